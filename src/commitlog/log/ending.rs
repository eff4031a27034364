//! What ends: the start of the log moves on, its end is cut off, the log is closed or deleted.

use std::path::{Path, PathBuf};

use api::{FileEffect, IoErrorKind, IoResult};
use base::{Instant, Now, Offset, Uuid};

use super::{Log, LogEffects, LogState, RETRY_AFTER};
use crate::config::{Checkpoints, LogParams};
use crate::names;
use crate::opening::{Opened, Opening};
use crate::segment::Segment;
use crate::step::{LogEvent, LogStep, Step};

/// An offset that the log does not hold (OFFSET_OUT_OF_RANGE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{offset} is not within {log_start_offset} and {end_offset}")]
pub struct OffsetOutOfRange {
    /// The offset.
    pub offset: Offset,
    /// The first offset of the log.
    pub log_start_offset: Offset,
    /// The end of what is written.
    pub end_offset: Offset,
}

/// A log whose end is being cut off.
#[derive(Debug)]
pub(super) struct Cutting {
    offset: Offset,
    stage: CuttingStage,
    /// The segments that go, the newest last.
    dropped: Vec<Segment>,
    /// What stays of the last one that does, in bytes.
    position: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CuttingStage {
    /// Until nothing is on its way to the disk, and the place of the offset is known.
    Waiting,
    /// The newest of the segments that go gets the names of a deleted one.
    Dropping { outstanding: u32 },
    /// These become durable.
    Syncing,
    /// The last segment that stays is cut.
    Truncating,
    /// The last segment is loaded again, as when a log is opened.
    Opening,
}

/// What goes on with the segment that is deleted just now.
#[derive(Debug)]
pub(super) enum Dropping {
    /// So many of its files get the suffix of deleted ones yet, or go at once.
    Renaming { outstanding: u32, refused: Vec<(&'static str, PathBuf)> },
    /// These can do neither on a full disk, and are tried again.
    Refused(Offset, Vec<(&'static str, PathBuf)>),
    /// The names become durable.
    Syncing,
}

/// A log that is being deleted.
#[derive(Debug)]
pub(super) struct Removing {
    path: PathBuf,
    stage: RemovingStage,
    /// When the folder goes, once it is renamed.
    pub(super) due: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemovingStage {
    /// Until no effect on the files is under way: one that comes late could meet the files of a
    /// log that is made anew under the same name.
    Waiting,
    Renaming,
    /// Its time has not come yet.
    Renamed,
    /// The new name becomes durable. A loss of power that brings the old one back must not have
    /// taken `partition.metadata`, without which the next topic of the name would take the folder
    /// for its own.
    Syncing,
    Going,
}

impl Removing {
    /// A log whose folder has the name of a deleted one, and goes at `due`.
    pub(super) fn renamed(path: PathBuf, due: Instant) -> Self {
        Self { path, stage: RemovingStage::Renamed, due: Some(due) }
    }
}

impl Log {
    /// Moves the start of the log to `new_start`, and deletes the segments that lie below it. A
    /// start that is not above the present one changes nothing. The caller has bounded it by the
    /// high watermark.
    ///
    /// # Errors
    /// The log does not reach so far.
    pub fn delete_records(
        &mut self,
        now: Now,
        new_start: Offset,
        out: &mut LogEffects,
    ) -> Result<(), OffsetOutOfRange> {
        let (log_start_offset, end_offset) = (self.log_start_offset, self.written_end_offset());
        if new_start > end_offset {
            return Err(OffsetOutOfRange { offset: new_start, log_start_offset, end_offset });
        }
        if new_start > log_start_offset && self.state == LogState::Open {
            self.begin_at(now, new_start, out);
        }
        Ok(())
    }

    /// Deletes the oldest segments as far as `retention.ms` and `retention.bytes` say, and none
    /// that reaches beyond `up_to`, the high watermark. Call it from time to time
    /// (`log.retention.check.interval.ms`): timestamps that are not known yet are looked up, and
    /// a segment that is written is rolled first, for the next call.
    pub fn apply_retention(
        &mut self,
        now: Now,
        up_to: Offset,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        if self.state != LogState::Open || self.cutting.is_some() || self.renaming.is_some() {
            return;
        }
        self.delete_below_start(now, out);
        if !self.config.delete_by_retention {
            return;
        }
        let sealed = 0..self.segments.len() - 1;
        if self.config.retention_ms.is_some() && !self.knows_timestamps(sealed, out) {
            return;
        }
        let by_age = self.segments.iter().take_while(|segment| self.is_old(now, segment)).count();
        let mut surplus = match self.config.retention_bytes {
            Some(bytes) => self.size_bytes().saturating_sub(bytes),
            None => 0,
        };
        let mut by_size = 0;
        for segment in &self.segments {
            let Some(rest) = surplus.checked_sub(u64::from(segment.bytes)) else { break };
            if surplus == 0 {
                break;
            }
            (surplus, by_size) = (rest, by_size + 1);
        }
        let count = by_age.max(by_size);
        let is_settled = self.writer.is_idle() && up_to >= self.writer.end;
        if count == self.segments.len() && is_settled && self.active().bytes > 0 {
            self.roll(now, self.writer.end);
            let directory = self.directory.clone();
            let token = LogStep(Step::Prepare);
            self.writer.preparing += self.active_mut().prepare(&directory, token, out);
            self.seal_next(out);
        }
        let ends = self.segments.iter().skip(1).take(count);
        let reached = ends.map(|next| next.base).take_while(|base| *base <= up_to).last();
        // None goes that is written or being sealed.
        let new_start = reached.map(|base| base.min(self.sealed_end()));
        if let Some(log_start_offset) = new_start.filter(|start| *start > self.log_start_offset) {
            events.push(LogEvent::StartMoved { log_start_offset });
            self.begin_at(now, log_start_offset, out);
        }
    }

    /// Moves the start of the log on, and deletes what lies below it.
    fn begin_at(&mut self, now: Now, log_start_offset: Offset, out: &mut LogEffects) {
        self.log_start_offset = log_start_offset;
        self.epochs_file.stale |= self.epochs.truncate_from_start(log_start_offset);
        self.write_epochs(now, out);
        self.delete_below_start(now, out);
    }

    /// Cuts off everything from `offset` on. [`LogEvent::Truncated`] says that it is done; until
    /// then appends are refused.
    ///
    /// # Panics
    /// If the log is not open, or is being cut already.
    pub fn truncate_to(
        &mut self,
        now: Now,
        offset: Offset,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        assert_eq!(self.state, LogState::Open, "only an open log is cut");
        assert!(self.cutting.is_none(), "a log is cut once at a time");
        self.cutting = Some(Cutting {
            offset,
            stage: CuttingStage::Waiting,
            dropped: Vec::new(),
            position: 0,
        });
        self.cut_on(now, out, events);
    }

    /// Brings everything to disk, trims it and writes the indexes. [`LogEvent::Closed`] says that
    /// it is done. Of a log that is not open there is nothing to close.
    pub fn close(&mut self, now: Now, out: &mut LogEffects, events: &mut Vec<LogEvent>) {
        if self.state == LogState::Open {
            self.state = LogState::Closing;
            self.close_on(now, out, events);
        }
    }

    /// Deletes the log: its folder gets another name, made with `unique`, as soon as nothing is
    /// under way ([`LogEvent::Renamed`]), and goes after a while ([`LogEvent::Removed`]). Slices
    /// that are being sent stay whole.
    ///
    /// # Panics
    /// If it is deleted already.
    pub fn remove(&mut self, unique: Uuid, out: &mut LogEffects) {
        assert!(self.removing.is_none(), "a log is deleted once");
        self.live_on();
        let path = self.directory.with_file_name(names::deleted_folder(&self.partition, unique));
        self.removing = Some(Removing { path, stage: RemovingStage::Waiting, due: None });
        self.retry_nothing();
        self.dropping.take_if(|it| matches!(it, Dropping::Refused(..)));
        self.tail.clear();
        self.stop_cleaning(out);
        let waits = self.waits_for_space() && self.opening_effects == 0;
        if self.opening.is_none() || waits {
            self.opening = None;
            self.state = LogState::Removing;
            self.remove_on(out);
        }
    }

    /// Renames the folder, once nothing is under way.
    pub(super) fn remove_on(&mut self, out: &mut LogEffects) {
        self.forget_batch_searches();
        let cleans = self.has_cleaning_effects();
        let Some(removing) = &mut self.removing else { return };
        let searches = !self.flows.is_empty();
        let epochs = self.epochs_file.writing.is_some();
        let cuts = self.cutting.as_ref().is_some_and(|it| it.stage != CuttingStage::Waiting);
        let waits = self.retry_at.is_some();
        let names = self.dropping.is_some() || self.renaming.is_some();
        let busy = waits || self.writer.has_effects() || searches || epochs || cuts || cleans;
        if busy || names || removing.stage != RemovingStage::Waiting {
            return;
        }
        removing.stage = RemovingStage::Renaming;
        let (from, to) = (self.directory.clone(), removing.path.clone());
        let aside = self.set_aside.drain(..).map(|(_, file)| file);
        let files = self.segments.iter().map(|it| it.log.clone()).chain(aside).collect();
        out.push(FileEffect::Rename { token: LogStep(Step::Remove), from, to, files });
    }

    pub(super) fn on_removed(
        &mut self,
        now: Now,
        result: IoResult<()>,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        let removing = self.removing.as_mut().expect("the log is being deleted");
        match result {
            Err(cause) if cause.kind == IoErrorKind::NoSpace => {
                tracing::warn!(partition = %self.partition, %cause, "deleted in a moment");
                let again_at = now.mono + RETRY_AFTER;
                if removing.stage == RemovingStage::Renaming {
                    removing.stage = RemovingStage::Waiting;
                    self.retry_at = Some(again_at);
                } else {
                    removing.stage = RemovingStage::Renamed;
                    removing.due = Some(again_at);
                }
                return;
            }
            Err(cause) if cause.kind != IoErrorKind::NotFound => return self.fail(cause, events),
            _ => {}
        }
        match removing.stage {
            RemovingStage::Waiting | RemovingStage::Renamed => {
                unreachable!("nothing was asked for")
            }
            RemovingStage::Renaming => {
                removing.stage = RemovingStage::Renamed;
                removing.due = Some(now.mono + self.config.file_delete_delay);
                events.push(LogEvent::Renamed);
            }
            RemovingStage::Syncing => {
                removing.stage = RemovingStage::Going;
                let path = removing.path.clone();
                let files = self.segments.iter().map(|segment| segment.log.clone()).collect();
                out.push(FileEffect::Remove { token: LogStep(Step::Remove), path, files });
            }
            RemovingStage::Going => {
                self.state = LogState::Closed;
                events.push(LogEvent::Removed);
            }
        }
    }

    /// Removes the files, and the folder, whose time has come.
    pub(super) fn remove_due(&mut self, now: Now, out: &mut LogEffects) {
        if self.renaming.is_some() || self.keeps_still {
            return;
        }
        while let Some((_, file)) = self.set_aside.pop_front_if(|(due, _)| *due <= now.mono) {
            let path = file.path().to_path_buf();
            // What was not there to be renamed has the name that a new file may have by now.
            if path.as_os_str().as_encoded_bytes().ends_with(names::DELETED.as_bytes()) {
                let token = LogStep(Step::Delete);
                out.push(FileEffect::Remove { token, path, files: vec![file] });
                self.removals += 1;
            }
        }
        if let Some(removing) = &mut self.removing
            && removing.due.take_if(|due| *due <= now.mono).is_some()
        {
            removing.stage = RemovingStage::Syncing;
            let directory = removing.path.parent().map(Path::to_path_buf).unwrap_or_default();
            out.push(FileEffect::SyncDirectory { token: LogStep(Step::Remove), directory });
        }
    }

    /// A file of a deleted segment has another name, or is gone. A name can need space in its
    /// folder: where there is none, the file goes at once, or later.
    pub(super) fn on_set_aside(
        &mut self,
        now: Now,
        (base, ending): (Offset, &'static str),
        result: IoResult<()>,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        match result {
            // The folder of a log that is deleted goes as a whole.
            Err(cause) if cause.kind == IoErrorKind::NoSpace && self.removing.is_none() => {
                let path = names::segment_file(&self.directory, base, ending);
                let place = self.set_aside.iter().position(|(_, file)| *file.path() == *path);
                if let Some((_, file)) = place.and_then(|place| self.set_aside.remove(place)) {
                    let token = LogStep(Step::SetAside(base, ending));
                    out.push(FileEffect::Remove { token, path, files: vec![file] });
                    return;
                }
                tracing::warn!(partition = %self.partition, %cause, "deleted in a moment");
                if let Some(Dropping::Renaming { refused, .. }) = &mut self.dropping {
                    refused.push((ending, path));
                }
            }
            Err(cause) if cause.kind == IoErrorKind::NoSpace => {}
            result => self.on_deleted(result, events),
        }
        self.drop_on(now, base, out);
    }

    /// A file that is not needed is gone. One that cannot go because the disk is full stays until
    /// the log is opened again.
    pub(super) fn on_deleted(&mut self, result: IoResult<()>, events: &mut Vec<LogEvent>) {
        match result {
            Err(cause) if cause.kind == IoErrorKind::NoSpace => {
                tracing::warn!(partition = %self.partition, %cause, "a deleted file stays");
            }
            Err(cause) if cause.kind != IoErrorKind::NotFound => self.fail(cause, events),
            _ => {}
        }
    }

    /// Goes on with closing, as far as it can.
    pub(super) fn close_on(&mut self, now: Now, out: &mut LogEffects, events: &mut Vec<LogEvent>) {
        self.flush_turn(now, out);
        self.stop_cleaning(out);
        if !self.writer.is_idle() || self.has_cleaning_effects() {
            return;
        }
        if !self.is_sealed {
            self.is_sealed = true;
            self.seal_active(out);
        }
        let epochs_idle = self.epochs_file.writing.is_none() && !self.epochs_file.stale;
        if self.writer.sealing.is_empty() && self.writer.sync.under_way.is_none() && epochs_idle {
            self.state = LogState::Closed;
            self.forget_searches();
            self.tail.clear();
            events.push(LogEvent::Closed { end_offset: self.writer.end });
        }
    }

    /// Goes on with cutting the end off, as far as it can.
    pub(super) fn cut_on(&mut self, now: Now, out: &mut LogEffects, events: &mut Vec<LogEvent>) {
        let Some(cutting) = &self.cutting else { return };
        if cutting.stage != CuttingStage::Waiting {
            return;
        }
        let offset = cutting.offset;
        self.flush_turn(now, out);
        self.stop_cleaning(out);
        if self.has_cleaning_effects() || self.dropping.is_some() {
            return;
        }
        let writer = &self.writer;
        let settled = writer.is_idle() && writer.sealing.is_empty() && !writer.has_effects();
        if !settled || self.epochs_file.writing.is_some() {
            return;
        }
        if offset >= self.writer.end {
            self.cutting = None;
            events.push(LogEvent::Truncated { end_offset: self.writer.end });
            return;
        }
        let (keep, position) = if offset <= self.segments[0].base {
            // Nothing stays: the log begins anew at the offset.
            (0, 0)
        } else if self.is_empty_from(self.segment_of(offset)) {
            (self.segment_of(offset) + 1, 0)
        } else {
            match self.start_of(offset) {
                Ok(Some((place, position))) if position > 0 => (place + 1, position),
                Ok(Some((place, _))) => (place, self.segments[place - 1].bytes),
                Err(_) => (self.segment_of(offset), 0),
                Ok(None) => {
                    // Its event brings us here again; when there is no room, another's does.
                    self.begin_locate(offset, out);
                    return;
                }
            }
        };
        self.cut_at(now, keep, position, out);
    }

    /// Keeps `keep` segments, the last of them up to `position`.
    fn cut_at(&mut self, now: Now, keep: usize, position: u32, out: &mut LogEffects) {
        let dropped = self.segments.split_off(keep);
        let cutting = self.cutting.as_mut().expect("it is being cut");
        let offset = cutting.offset;
        tracing::info!(partition = %self.partition, %offset, keep, "the end of the log is cut off");
        (cutting.dropped, cutting.position) = (dropped, position);
        if keep == 0 {
            self.log_start_offset = offset;
        }
        self.forget_places();
        self.tail.clear();
        self.forget_searches();
        self.state = LogState::Opening;
        self.epochs_file.stale |= self.epochs.truncate_from_end(offset);
        self.dirty_at_most_from(offset);
        self.aborted.truncate_from_end(offset);
        self.writer.flushed_end = self.writer.flushed_end.min(offset);
        self.drop_newest(now, out);
    }

    /// Sets the newest segment aside that goes, durably before the one before it, and all before
    /// the last that stays is cut: after a loss of power there is no gap, and none is back behind
    /// what was appended since.
    fn drop_newest(&mut self, now: Now, out: &mut LogEffects) {
        let cutting = self.cutting.as_mut().expect("it is being cut");
        let token = LogStep(Step::Truncate);
        if let Some(segment) = cutting.dropped.pop() {
            let files = segment.set_aside(&self.directory, |_| token, out);
            let outstanding = u32::try_from(files.len()).expect("a segment has few files");
            cutting.stage = CuttingStage::Dropping { outstanding };
            let due = now.mono + self.config.file_delete_delay;
            self.set_aside.extend(files.into_iter().map(|file| (due, file)));
        } else if let Some(last) = self.segments.last_mut() {
            last.bytes = cutting.position;
            let (file, length) = (last.log.clone(), u64::from(cutting.position));
            out.push(FileEffect::Truncate { token, file, length });
            cutting.stage = CuttingStage::Truncating;
        } else {
            self.open_again(out);
        }
    }

    pub(super) fn on_cut(
        &mut self,
        now: Now,
        result: IoResult<()>,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        match result {
            Err(cause) if cause.kind != IoErrorKind::NotFound => return self.fail(cause, events),
            _ => {}
        }
        let Some(cutting) = &mut self.cutting else { return };
        match &mut cutting.stage {
            CuttingStage::Dropping { outstanding } if *outstanding > 1 => *outstanding -= 1,
            CuttingStage::Dropping { .. } => {
                cutting.stage = CuttingStage::Syncing;
                let directory = self.directory.clone();
                out.push(FileEffect::SyncDirectory { token: LogStep(Step::Truncate), directory });
            }
            CuttingStage::Syncing => self.drop_newest(now, out),
            CuttingStage::Truncating => self.open_again(out),
            CuttingStage::Waiting | CuttingStage::Opening => {}
        }
    }

    /// Loads what is left, as when a log is opened.
    fn open_again(&mut self, out: &mut LogEffects) {
        self.cutting.as_mut().expect("it is being cut").stage = CuttingStage::Opening;
        let found = Checkpoints {
            clean_shutdown: true,
            recovery_point: self.writer.flushed_end,
            log_start_offset: self.log_start_offset,
            first_dirty: self.first_dirty_offset(),
        };
        let params = LogParams {
            directory: self.directory.clone(),
            partition: self.partition.clone(),
            topic_id: self.topic_id,
            sets_strays_aside: false,
            config: self.config.clone(),
        };
        let before = out.len();
        self.opening = Some(Box::new(Opening::open_again(params, found, out)));
        self.opening_effects = out.len() - before;
    }

    /// After the end was cut off, what is newer in memory than on disk holds. Returns the event.
    pub(super) fn keep_over_cut(&mut self, opened: &mut Opened) -> Option<LogEvent> {
        self.cutting.take()?;
        opened.epochs = std::mem::take(&mut self.epochs);
        opened.aborted = std::mem::take(&mut self.aborted);
        opened.flushed_end_offset = self.writer.flushed_end.min(opened.end_offset);
        // These are the files that wait in `set_aside` already.
        opened.set_aside.clear();
        Some(LogEvent::Truncated { end_offset: opened.end_offset })
    }

    fn is_old(&self, now: Now, segment: &Segment) -> bool {
        let Some(retention_ms) = self.config.retention_ms else { return false };
        let largest = if segment.base == self.active().base {
            self.writer.index.largest().map(|entry| entry.timestamp)
        } else {
            segment.largest_timestamp.filter(|largest| *largest >= 0)
        };
        let from = largest.unwrap_or(segment.modified_ms);
        now.wall_ms.saturating_sub(from) > retention_ms
    }

    /// Where the segments end that are neither written nor being sealed.
    fn sealed_end(&self) -> Offset {
        self.writer.sealing.front().map_or(self.active().base, |sealing| sealing.base)
    }

    /// Deletes the segments below the start of the log, the oldest first, and each durably before
    /// the next: after a loss of power no older one may be there where a newer one is gone, since
    /// recovery would take the gap for batches that were lost.
    pub(super) fn delete_below_start(&mut self, now: Now, out: &mut LogEffects) {
        let is_open = self.state == LogState::Open && self.renaming.is_none();
        let is_ready = is_open && self.cutting.is_none();
        // While segments are replaced by cleaned ones nothing goes; the end of that brings us here.
        if !is_ready || self.dropping.is_some() || self.is_swapping() {
            return;
        }
        let is_below = self.segments.get(1).is_some_and(|it| it.base <= self.log_start_offset);
        if !is_below || self.segments[0].base >= self.sealed_end() {
            return;
        }
        self.stop_cleaning(out);
        let segment = self.segments.remove(0);
        tracing::info!(partition = %self.partition, base = %segment.base, "deleting a segment");
        let step = |ending| LogStep(Step::SetAside(segment.base, ending));
        let files = segment.set_aside(&self.directory, step, out);
        let outstanding = u32::try_from(files.len()).expect("a segment has few files");
        self.dropping = Some(Dropping::Renaming { outstanding, refused: Vec::new() });
        let due = now.mono + self.config.file_delete_delay;
        self.set_aside.extend(files.into_iter().map(|file| (due, file)));
        self.forget_places();
        self.aborted.truncate_from_start(self.segments[0].base);
    }

    /// One file less of the segment that is deleted.
    fn drop_on(&mut self, now: Now, base: Offset, out: &mut LogEffects) {
        let Some(Dropping::Renaming { outstanding, refused }) = &mut self.dropping else { return };
        *outstanding -= 1;
        if *outstanding > 0 {
            return;
        }
        if !refused.is_empty() {
            self.dropping = Some(Dropping::Refused(base, std::mem::take(refused)));
            self.retry_at = Some(now.mono + RETRY_AFTER);
            return;
        }
        self.dropping = Some(Dropping::Syncing);
        let directory = self.directory.clone();
        out.push(FileEffect::SyncDirectory { token: LogStep(Step::Dropped), directory });
    }

    /// Tries once more to remove what a full disk kept of a deleted segment.
    pub(super) fn drop_again(&mut self, out: &mut LogEffects) {
        let Some(Dropping::Refused(base, files)) = &mut self.dropping else { return };
        let (base, files) = (*base, std::mem::take(files));
        let outstanding = u32::try_from(files.len()).expect("a segment has few files");
        self.dropping = Some(Dropping::Renaming { outstanding, refused: Vec::new() });
        for (ending, path) in files {
            let token = LogStep(Step::SetAside(base, ending));
            out.push(FileEffect::Remove { token, path, files: Vec::new() });
        }
    }

    /// The names of a deleted segment are durably gone.
    pub(super) fn on_dropped(
        &mut self,
        now: Now,
        result: IoResult<()>,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        self.dropping = None;
        match result {
            Err(cause) if cause.kind != IoErrorKind::NotFound => self.fail(cause, events),
            _ => self.delete_below_start(now, out),
        }
    }
}
