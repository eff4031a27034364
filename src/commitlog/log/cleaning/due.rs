//! Which part of a log is to be cleaned, and whether it is time (`LogCleanerManager`).

use api::{FileEffect, IoErrorKind, IoResult};
use base::{Now, Offset};
use bytes::Bytes;
use records::{BatchHeader, HEADER_BYTES};

use super::{Log, LogEffects, LogState};
use crate::index::{OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES};
use crate::segment::Segment;
use crate::step::{LogEvent, LogStep, Step};

/// How much of a log there is to be cleaned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cleanable {
    /// Which part of what could be cleaned is dirty: 0 to 1.
    pub dirty_ratio: f64,
    /// What is dirty, in bytes.
    pub dirty_bytes: u64,
}

impl Log {
    /// How much there is to be cleaned, if the topic's settings say that it is time. Nothing from
    /// `up_to` on is, the last stable offset. Timestamps that are not known yet are looked up, for
    /// the next call.
    pub fn cleanable(
        &mut self,
        now: Now,
        up_to: Offset,
        out: &mut LogEffects,
    ) -> Option<Cleanable> {
        let is_cut = self.cutting.is_some() || self.renaming.is_some();
        let busy = self.is_cleaning() || is_cut || self.state != LogState::Open;
        if busy || !self.config.compact {
            return None;
        }
        let dirty_from = self.dirty_from();
        let limit = self.uncleanable_from(now, dirty_from, up_to, out)?;
        let first_dirty = self.segment_of(dirty_from).min(limit);
        let bytes = |segments: &[Segment]| -> u64 {
            segments.iter().map(|segment| u64::from(segment.bytes)).sum()
        };
        let clean_bytes = bytes(&self.segments[..first_dirty]);
        let dirty_bytes = bytes(&self.segments[first_dirty..limit]);
        if dirty_bytes == 0 || self.segments[limit].base <= dirty_from {
            return None;
        }
        let dirty_ratio = dirty_bytes as f64 / (clean_bytes + dirty_bytes) as f64;
        let is_due = self.is_overdue(now, first_dirty, limit, out)
            || dirty_ratio > self.config.min_cleanable_dirty_ratio;
        is_due.then_some(Cleanable { dirty_ratio, dirty_bytes })
    }

    /// Where the dirty part begins. A checkpoint that lies outside of the log is not heeded.
    pub(super) fn dirty_from(&self) -> Offset {
        let (start, end) = (self.log_start_offset, self.writer.end);
        let from = self.cleaner.first_dirty.filter(|from| (start..=end).contains(from));
        from.unwrap_or(start)
    }

    /// The index of the first segment that is not to be cleaned. `None`: a timestamp is looked up.
    pub(super) fn uncleanable_from(
        &mut self,
        now: Now,
        dirty_from: Offset,
        up_to: Offset,
        out: &mut LogEffects,
    ) -> Option<usize> {
        let busy = self.writer.sealing.front().map_or(self.active().base, |sealing| sealing.base);
        let start = self.segments[0].base;
        let barrier = self.cleaner.barrier.filter(|it| *it >= start).unwrap_or(Offset(i64::MAX));
        let is_settled = |place: &usize| {
            let (segment, next) = (&self.segments[*place], &self.segments[place + 1]);
            segment.base < busy && segment.base < barrier && next.base <= up_to
        };
        let settled = (0..self.segments.len() - 1).take_while(is_settled).count();
        let lag_ms = self.config.min_compaction_lag_ms;
        if lag_ms <= 0 {
            return Some(settled);
        }
        let dirty = self.segment_of(dirty_from).min(settled);
        if !self.knows_timestamps(dirty..settled, out) {
            return None;
        }
        let is_young = |segment: &Segment| {
            let largest = segment.largest_timestamp.filter(|largest| *largest >= 0);
            largest.unwrap_or(segment.modified_ms) > now.wall_ms.saturating_sub(lag_ms)
        };
        let young = self.segments[dirty..settled].iter().position(is_young);
        Some(young.map_or(settled, |young| dirty + young))
    }

    /// Whether a dirty segment has waited for longer than `max.compaction.lag.ms`.
    fn is_overdue(&mut self, now: Now, dirty: usize, limit: usize, out: &mut LogEffects) -> bool {
        let lag_ms = self.config.max_compaction_lag_ms;
        if lag_ms == i64::MAX {
            return false;
        }
        let dirty = &self.segments[dirty..limit];
        let unknown = dirty.iter().find(|it| it.first_timestamp.is_none() && it.bytes > 0);
        if let Some(segment) = unknown.filter(|_| self.cleaner.asking.is_none()) {
            self.cleaner.asking = Some(segment.base);
            let (file, length) = (segment.log.clone(), HEADER_BYTES as u32);
            out.push(FileEffect::Read { token: LogStep(Step::Age), file, position: 0, length });
        }
        let oldest = dirty.iter().filter_map(|it| it.first_timestamp.filter(|at| *at > 0)).min();
        oldest.is_some_and(|oldest| oldest < now.wall_ms.saturating_sub(lag_ms))
    }

    pub(in crate::log) fn on_age(&mut self, result: IoResult<Bytes>, events: &mut Vec<LogEvent>) {
        let Some(base) = self.cleaner.asking.take() else { return };
        match result {
            Err(cause) if cause.kind != IoErrorKind::NotFound => self.fail(cause, events),
            result => {
                let bytes = result.unwrap_or_default();
                let header = bytes.first_chunk().map(BatchHeader::read);
                let place = self.place_of(base);
                if let Some(segment) = self.segments.get_mut(place).filter(|it| it.base == base) {
                    segment.first_timestamp = Some(header.map_or(-1, |it| it.max_timestamp));
                }
            }
        }
    }

    /// The index of the last segment of the group that begins with the one at `first`: together
    /// they fit one segment, whatever stays of them.
    pub(super) fn group_from(&self, first: usize, end: usize) -> usize {
        let (mut bytes, mut offsets, mut times) = (0_u64, 0_u64, 0_u64);
        let base = self.segments[first].base;
        let fits = |place: &usize| {
            let segment = &self.segments[*place];
            bytes += u64::from(segment.bytes);
            offsets += u64::from(segment.offset_entries) * OFFSET_ENTRY_BYTES as u64;
            times += u64::from(segment.time_entries) * TIME_ENTRY_BYTES as u64;
            let index_bytes = u64::from(self.config.segment_index_bytes);
            let last_offset = self.segments[place + 1].base.0 - 1;
            bytes <= u64::from(self.config.segment_bytes)
                && offsets <= index_bytes
                && times <= index_bytes
                && last_offset - base.0 <= i64::from(i32::MAX)
        };
        // The first one is taken whatever its size: it may be of a time of other settings.
        let count = (first..end).take_while(fits).count();
        first + count.max(1) - 1
    }
}
