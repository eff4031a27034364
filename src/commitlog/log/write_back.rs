//! Bringing what was written to the disk without the promise of a sync: before a rolled segment is
//! sealed, and where a directory has too much to catch up with.
//!
//! It goes by small portions, one at a time: whoever brings pages to the disk works for as long as
//! that takes on a core that others want, and a sync of a whole segment would take a tenth of a
//! second. What is in no hurry is left to the kernel, which does it by itself after half a minute.

use api::{FileEffect, IoErrorKind, IoResult};
use base::Offset;

use super::{Log, LogEffects, LogState};
use crate::step::{LogEvent, LogStep, Step};

/// What one portion has at most, in bytes.
const PORTION_BYTES: u32 = 2 << 20;

/// How far one segment is brought to the disk.
#[derive(Debug, Default)]
pub(super) struct WriteBack {
    segment: Offset,
    begun_to: u32,
    /// Up to where it goes on by itself, portion after portion.
    wanted_to: u32,
    /// While a portion is under way: how many bytes of the log will be clean then.
    cleans: Option<u64>,
}

impl WriteBack {
    /// Of a segment whose first `bytes` need not be brought to the disk.
    pub(super) fn behind(segment: Offset, bytes: u32) -> Self {
        Self { segment, begun_to: bytes, wanted_to: 0, cleans: None }
    }

    /// All of a segment is wanted that lies below `end`.
    fn want(&mut self, segment: Offset, end: u32) {
        if self.segment != segment {
            (self.segment, self.begun_to) = (segment, 0);
        }
        self.wanted_to = end;
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.cleans.is_some()
    }
}

impl Log {
    /// Bytes that were appended and are not known to be on the disk, nearly: those that a rolled
    /// segment has left count as clean as soon as some of the next one are.
    pub fn dirty_bytes(&self) -> u64 {
        match self.state {
            LogState::Open | LogState::Closing => {
                let taken = self.writer.rolled_bytes + u64::from(self.active().bytes);
                taken.saturating_sub(self.writer.clean_bytes)
            }
            _ => 0,
        }
    }

    /// Whether written bytes are being brought to the disk.
    pub fn is_writing_back(&self) -> bool {
        self.writer.write_back.is_under_way()
    }

    /// Brings all that was written to the disk, without the promise of a sync: for a log whose
    /// directory has too much to catch up with.
    pub fn write_back(&mut self, out: &mut LogEffects) {
        // A rolled segment comes before that which is written.
        if self.writer.sealing.is_empty() {
            let (segment, end) = self.writer.written_to;
            self.writer.write_back.want(segment, end);
        }
        self.write_back_on(out);
    }

    /// Whether a rolled segment, all of which is written, was brought to the disk, or is in no need
    /// of it since somebody waits for the sync; else goes on with that.
    pub(super) fn is_brought_to_disk(&mut self, base: Offset, out: &mut LogEffects) -> bool {
        let is_awaited = self.state != LogState::Open || self.writer.sync.is_wanted_from(base);
        let segment = self.segments.get(self.place_of(base)).filter(|it| it.base == base);
        let bytes = segment.map(|it| it.bytes);
        let write_back = &mut self.writer.write_back;
        let Some(bytes) = bytes.filter(|_| !is_awaited) else {
            write_back.wanted_to = 0;
            return true;
        };
        if write_back.is_under_way() {
            return false;
        }
        write_back.want(base, bytes);
        let is_done = write_back.begun_to >= bytes;
        self.write_back_on(out);
        is_done
    }

    /// Begins the next portion, unless one is under way.
    fn write_back_on(&mut self, out: &mut LogEffects) {
        let (segment, begin) = (self.writer.write_back.segment, self.writer.write_back.begun_to);
        let place = self.place_of(segment);
        let is_there = self.segments.get(place).is_some_and(|it| it.base == segment);
        if self.is_writing_back() || self.state != LogState::Open || !is_there {
            return;
        }
        let end = self.writer.write_back.wanted_to.min(self.written_bytes_of(place));
        let length = end.saturating_sub(begin).min(PORTION_BYTES);
        if length == 0 {
            return;
        }
        let cleans = self.taken_bytes_at(segment, begin + length);
        let write_back = &mut self.writer.write_back;
        (write_back.begun_to, write_back.cleans) = (begin + length, Some(cleans));
        let file = self.segments[place].log.clone();
        let (token, position) = (LogStep(Step::WriteBack), u64::from(begin));
        out.push(FileEffect::WriteBack { token, file, position, length });
    }

    pub(super) fn on_written_back(
        &mut self,
        result: IoResult<()>,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        let cleans = self.writer.write_back.cleans.take();
        match result {
            // The kernel tells of bytes that it could not write only once: a sync that follows
            // would not know. What a deleted segment had nobody misses.
            Err(cause) if cause.kind != IoErrorKind::NotFound => self.fail(cause, events),
            _ => {
                self.is_clean_to(cleans.unwrap_or(0));
                self.write_back_on(out);
                self.seal_next(out);
            }
        }
    }

    pub(super) fn is_clean_to(&mut self, bytes: u64) {
        self.writer.clean_bytes = self.writer.clean_bytes.max(bytes);
    }

    /// How many bytes the log had taken since it was opened, at a position of a segment.
    pub(super) fn taken_bytes_at(&self, segment: Offset, position: u32) -> u64 {
        let rolled = &self.segments[self.place_of(segment)..self.segments.len() - 1];
        let behind: u64 = rolled.iter().map(|segment| u64::from(segment.bytes)).sum();
        // What was there when the log was opened counts for the segment that is written.
        self.writer.rolled_bytes.saturating_sub(behind) + u64::from(position)
    }
}
