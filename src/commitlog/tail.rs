//! The newest small batches of a log, in memory, for those who read its end.

use std::collections::VecDeque;

use base::Offset;
use bytes::Bytes;

/// What the newest batches of one log may pin, in bytes. Each is a copy of its own, so that no
/// chunk that a whole core receives into is kept.
pub(crate) const TAIL_BYTES_MAX: usize = 32 << 10;
/// The largest batch that is copied and kept, in bytes; a larger one is sent from the file.
pub(crate) const TAIL_BATCH_BYTES_MAX: usize = 4 << 10;

#[derive(Debug)]
struct Entry {
    base: Offset,
    next: Offset,
    bytes: Bytes,
}

/// Batches that follow each other without a gap, up to the end of the log.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl Tail {
    /// Adds the newest batch, and lets the oldest go when there are too many bytes.
    pub(crate) fn push(&mut self, base: Offset, next: Offset, bytes: Bytes) {
        if self.entries.back().is_some_and(|last| last.next != base) {
            self.clear();
        }
        self.bytes += bytes.len();
        self.entries.push_back(Entry { base, next, bytes });
        while self.bytes > TAIL_BYTES_MAX
            && let Some(oldest) = self.entries.pop_front()
        {
            self.bytes -= oldest.bytes.len();
        }
    }

    /// Forgets everything and gives the memory back.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The batches from the one that begins at `offset`, as far as they end at or below `up_to`
    /// and are no more than `bytes_max`; the first one whatever its size with `at_least_one`.
    /// `None` when the first one is not here.
    pub(crate) fn read(
        &self,
        offset: Offset,
        up_to: Offset,
        bytes_max: usize,
        at_least_one: bool,
    ) -> Option<Vec<Bytes>> {
        let first = self.entries.binary_search_by_key(&offset, |entry| entry.base).ok()?;
        let mut room = bytes_max;
        let mut parts = Vec::new();
        for entry in self.entries.range(first..) {
            let fits = entry.bytes.len() <= room || (parts.is_empty() && at_least_one);
            if entry.next > up_to || !fits {
                break;
            }
            room = room.saturating_sub(entry.bytes.len());
            parts.push(entry.bytes.clone());
        }
        Some(parts)
    }

    /// Drops the batches that begin below `start`: some of their records are gone.
    pub(crate) fn forget_below(&mut self, start: Offset) {
        while let Some(oldest) = self.entries.pop_front_if(|entry| entry.base < start) {
            self.bytes -= oldest.bytes.len();
        }
    }

    /// Drops the batches from `end` on.
    pub(crate) fn truncate_to(&mut self, end: Offset) {
        while let Some(newest) = self.entries.pop_back_if(|entry| entry.next > end) {
            self.bytes -= newest.bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_whole_batches_within_limits() {
        let mut tail = Tail::default();
        for index in 0..100 {
            let bytes = Bytes::from(vec![index as u8; 1000]);
            tail.push(Offset(index * 10), Offset(index * 10 + 10), bytes);
        }
        assert!(tail.bytes <= TAIL_BYTES_MAX);
        let read = |tail: &Tail, offset, up_to, bytes_max, one| {
            tail.read(Offset(offset), Offset(up_to), bytes_max, one).map(|parts| parts.len())
        };
        assert_eq!(read(&tail, 0, 1000, 5000, true), None);
        assert_eq!(read(&tail, 905, 1000, 5000, true), None);
        assert_eq!(read(&tail, 900, 1000, 5000, true), Some(5));
        assert_eq!(read(&tail, 980, 1000, 5000, true), Some(2));
        assert_eq!(read(&tail, 900, 925, 5000, true), Some(2));
        assert_eq!(read(&tail, 900, 1000, 999, false), Some(0));
        assert_eq!(read(&tail, 900, 1000, 999, true), Some(1));
        tail.truncate_to(Offset(985));
        assert_eq!(read(&tail, 970, 1000, 5000, true), Some(1));
        tail.forget_below(Offset(960));
        assert_eq!(read(&tail, 950, 1000, 5000, true), None);
        assert_eq!(read(&tail, 960, 1000, 5000, true), Some(2));
        tail.push(Offset(2000), Offset(2001), Bytes::from_static(b"after a gap"));
        assert_eq!(read(&tail, 970, 3000, 5000, true), None);
    }
}
