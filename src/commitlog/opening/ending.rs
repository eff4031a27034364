//! The end of opening: what belongs to no segment any more goes, what was found is made durable,
//! and the log is handed over.

use api::{FileEffect, IoResult};
use base::{Now, Offset};

use super::{Begins, Last, Opened, Opening, Out, Progress, STEP, Stage};
use crate::atomic_file::AtomicFile;
use crate::case::Case;
use crate::config::Checkpoints;
use crate::names;
use crate::segment::Segment;
use crate::text;

impl Opening {
    /// Every segment was treated: makes sure that there is one, and that the log reaches its start.
    pub(super) fn end(&mut self, now: Now, out: &mut Out) -> IoResult<Progress> {
        let start = self.found.log_start_offset;
        let mut outstanding = 0;
        if !self.segments.is_empty() && self.last.end < start {
            let end = self.last.end;
            self.note(Case::EndsBeforeStart, format_args!("it ends at {end}, begins at {start}"));
            for segment in std::mem::take(&mut self.segments) {
                outstanding += self.set_segment_aside(&segment, out);
            }
            self.epochs_changed |= self.epochs.clear();
        }
        self.name_what_is_missing();
        if self.segments.is_empty() {
            if !matches!(self.begins, Begins::Create(_)) && !self.has(Case::EndsBeforeStart) {
                let known = self.found.recovery_point.max(start);
                let detail = format_args!("one is made at {start}; the log reached {known} once");
                self.note(Case::SegmentMissing, detail);
            }
            let mut segment = Segment::empty(&self.params.directory, start, now.wall_ms);
            outstanding += segment.prepare(&self.params.directory, STEP, out);
            if let Some(parent) = self.params.directory.parent() {
                let directory = parent.to_path_buf();
                out.push(FileEffect::SyncDirectory { token: STEP, directory });
                outstanding += 1;
            }
            self.segments.push(segment);
            self.last = Last { end: start, ..Last::default() };
        }
        outstanding += self.write_aborted(out);
        outstanding += self.remove_snapshots(out);
        outstanding += self.sync_recovered(out);
        let log_start = start.max(self.segments[0].base);
        self.found.log_start_offset = log_start;
        let end = self.last.end;
        if self.epochs.truncate_from_end(end.plus(1)) {
            let detail = format_args!("leader epochs that begin above {end} are forgotten");
            self.note(Case::EpochsAboveEnd, detail);
            self.epochs_changed = true;
        }
        // One that begins at the end itself has no record: its leader wrote nothing.
        self.epochs_changed |= self.epochs.truncate_from_end(end);
        self.epochs_changed |= self.epochs.truncate_from_start(log_start);
        if outstanding == 0 {
            return Ok(self.write_epochs(out));
        }
        self.stage = Stage::Ending { outstanding };
        Ok(Progress::Going)
    }

    /// Writes which transactions were aborted in the segments that were recovered, but for the last
    /// one, whose indexes are written when it ends. Returns the number of outcomes.
    fn write_aborted(&mut self, out: &mut Out) -> u32 {
        self.rebuild.aborted.truncate_from_end(self.last.end);
        self.rebuild.aborted.truncate_from_start(self.segments[0].base);
        let mut outstanding = 0;
        let ends: Vec<Offset> = self.segments.iter().skip(1).map(|next| next.base).collect();
        for (segment, end) in self.segments.iter_mut().zip(ends) {
            if self.recovered.contains(&segment.base) {
                let aborted = self.rebuild.aborted.between(segment.base, end);
                outstanding += segment.write_aborted(&self.params.directory, aborted, STEP, out);
            }
        }
        if outstanding > 0 {
            let directory = self.params.directory.clone();
            out.push(FileEffect::SyncDirectory { token: STEP, directory });
            outstanding += 1;
        }
        outstanding
    }

    /// Removes the snapshots that belong to nothing any more. Returns the number of outcomes.
    fn remove_snapshots(&mut self, out: &mut Out) -> u32 {
        let bases = self.segments.iter().map(|segment| segment.base).collect();
        let (bad, needless) = self.rebuild.needless(self.last.end, &bases);
        if let Some(first) = needless.first() {
            self.note(Case::SnapshotNeedless, format_args!("that at {first}, and others"));
        }
        let gone = [bad, needless].concat();
        for offset in &gone {
            let path = names::segment_file(&self.params.directory, *offset, names::SNAPSHOT);
            out.push(FileEffect::Remove { token: STEP, path, files: Vec::new() });
        }
        u32::try_from(gone.len()).expect("a folder has few files")
    }

    /// Makes durable what a killed process had written and not synced, since it will be read from
    /// now on and a loss of power must not take it back, and that all were set aside. The
    /// earlier segments were synced when their recovery ended. Returns the number of outcomes.
    fn sync_recovered(&mut self, out: &mut Out) -> u32 {
        let end = self.last.end;
        let is_ahead = !self.found.clean_shutdown && end > self.found.recovery_point;
        let mut outstanding = 0;
        if is_ahead {
            self.note(Case::EndUnflushed, format_args!("what lies below {end} is synced"));
            self.found.recovery_point = end;
            let file = self.segments.last().expect("there is one by now").log.clone();
            out.push(FileEffect::Sync { token: STEP, file });
            outstanding += 1;
        }
        // Segments that were all set aside must not be back after a loss of power, beside what will
        // have been written in their place.
        if is_ahead || self.has(Case::EndsBeforeStart) {
            let directory = self.params.directory.clone();
            out.push(FileEffect::SyncDirectory { token: STEP, directory });
            outstanding += 1;
        }
        outstanding
    }

    pub(super) fn write_epochs(&mut self, out: &mut Out) -> Progress {
        if !self.epochs_changed {
            return self.done();
        }
        let path = self.params.directory.join(names::LEADER_EPOCH_CHECKPOINT);
        let content = text::format_epochs(self.epochs.entries());
        self.stage = Stage::WritingEpochs(AtomicFile::replace(path, content, STEP, out));
        Progress::Going
    }

    pub(super) fn done(&mut self) -> Progress {
        let end_offset = self.last.end;
        let flushed_end_offset = if self.found.clean_shutdown {
            end_offset
        } else {
            self.found.recovery_point.min(end_offset)
        };
        Progress::Done(Box::new(Opened {
            segments: std::mem::take(&mut self.segments),
            index: std::mem::take(&mut self.last.index),
            first_timestamp: self.last.first_timestamp,
            epochs: std::mem::take(&mut self.epochs),
            producers: std::mem::take(&mut self.rebuild.producers),
            aborted: std::mem::take(&mut self.rebuild.aborted),
            log_start_offset: self.found.log_start_offset,
            end_offset,
            flushed_end_offset,
            set_aside: std::mem::take(&mut self.set_aside),
            cases: self.cases,
        }))
    }

    /// Names what is missing at either end, by what the checkpoints said: segments that somebody or
    /// a mended file system has removed. Nothing can be done about it.
    pub(super) fn name_what_is_missing(&mut self) {
        let Some(first) = self.segments.first().map(|first| first.base) else { return };
        let Checkpoints { clean_shutdown, recovery_point, log_start_offset, .. } = self.found;
        // Of a log that nothing was deleted of, Kafka notes no start.
        if clean_shutdown && log_start_offset.0 > 0 && first > log_start_offset {
            let detail = format_args!("records from {log_start_offset} up to {first} are missing");
            self.note(Case::StartMissing, detail);
        }
        let end = self.last.end;
        if end < recovery_point {
            let detail = format_args!("records from {end} up to {recovery_point} are missing");
            self.note(Case::EndMissing, detail);
        }
    }
}
