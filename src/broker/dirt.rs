//! How much of a log is in the page cache and not known to be on the disk.

use std::collections::VecDeque;

use base::Offset;

/// Bytes of one log that were appended and are not synced yet.
#[derive(Debug, Default)]
pub(crate) struct Dirt {
    /// Since a sync was last asked for.
    fresh: u64,
    /// What syncs under way will have made clean, and up to which offset, in order.
    syncing: VecDeque<(Offset, u64)>,
}

impl Dirt {
    /// All of it.
    pub(crate) fn bytes(&self) -> u64 {
        self.fresh + self.syncing.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    /// What no sync has been asked for.
    pub(crate) fn fresh_bytes(&self) -> u64 {
        self.fresh
    }

    /// Whether a sync of a part of it is under way.
    pub(crate) fn is_syncing(&self) -> bool {
        !self.syncing.is_empty()
    }

    /// A batch was appended.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.fresh += bytes;
    }

    /// A sync of everything was asked for; the log ends at `end`.
    pub(crate) fn sync_is_asked(&mut self, end: Offset) {
        if self.fresh > 0 {
            self.syncing.push_back((end, std::mem::take(&mut self.fresh)));
        }
    }

    /// Everything below `end` is on the disk.
    pub(crate) fn synced(&mut self, end: Offset) {
        while self.syncing.pop_front_if(|(up_to, _)| *up_to <= end).is_some() {}
    }

    /// The newest batches were taken back.
    pub(crate) fn take_back(&mut self, bytes: u64) {
        let fresh = bytes.min(self.fresh);
        self.fresh -= fresh;
        let mut left = bytes - fresh;
        while left > 0
            && let Some((up_to, bytes)) = self.syncing.pop_back()
        {
            if bytes > left {
                self.syncing.push_back((up_to, bytes - left));
            }
            left = left.saturating_sub(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_is_dirty_until_it_is_synced_or_taken_back() {
        let mut dirt = Dirt::default();
        dirt.add(10);
        dirt.sync_is_asked(Offset(1));
        dirt.add(5);
        assert_eq!((dirt.bytes(), dirt.fresh_bytes(), dirt.is_syncing()), (15, 5, true));
        dirt.sync_is_asked(Offset(2));
        dirt.synced(Offset(1));
        assert_eq!((dirt.bytes(), dirt.is_syncing()), (5, true));
        dirt.add(7);
        dirt.take_back(9);
        assert_eq!((dirt.bytes(), dirt.fresh_bytes()), (3, 0));
        dirt.synced(Offset(9));
        assert_eq!((dirt.bytes(), dirt.is_syncing()), (0, false));
    }
}
