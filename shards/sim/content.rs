//! The bytes of one file: what a reader sees, and what a loss of power leaves of it.

use std::collections::BTreeSet;

use base::Random;

/// The unit that a disk writes whole or not at all, in bytes.
const SECTOR_BYTES: usize = 512;
/// Sectors of one page of the cache, which the kernel writes back together.
const PAGE_SECTORS: u32 = 8;

/// How much of what was not synced a loss of power leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing: the kernel had written nothing back.
    Nothing,
    /// Everything: it had written all of it back.
    Everything,
    /// Some pages, some of them torn between two sectors, and a length that may not fit.
    Torn,
}

#[derive(Debug)]
struct SyncUnderWay {
    id: u64,
    sectors: BTreeSet<u32>,
    length: usize,
}

/// The bytes of one file.
#[derive(Debug, Default)]
pub(crate) struct Content {
    current: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<u32>,
    syncs: Vec<SyncUnderWay>,
    /// The newest sync that has ended well: it covers what older ones cover.
    synced: u64,
    /// Bytes from the start of the file that have disk space.
    allocated: u64,
}

impl Content {
    /// A file that is durable as it is.
    pub(crate) fn durable(bytes: Vec<u8>) -> Self {
        Self { durable: bytes.clone(), current: bytes, ..Self::default() }
    }

    /// The bytes that a reader sees.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.current
    }

    /// Disk space that it takes.
    pub(crate) fn space_bytes(&self) -> u64 {
        self.allocated.max(self.current.len() as u64)
    }

    /// Takes space up to `end`.
    pub(crate) fn allocate(&mut self, end: u64) {
        self.allocated = self.allocated.max(end);
    }

    /// Writes into the page cache.
    pub(crate) fn write(&mut self, position: usize, bytes: &[u8]) {
        let end = position + bytes.len();
        if bytes.is_empty() {
            return;
        }
        // A hole before the position is written too: as zeros.
        let from = position.min(self.current.len());
        if self.current.len() < end {
            self.current.resize(end, 0);
        }
        self.current[position..end].copy_from_slice(bytes);
        self.touch(from, end);
    }

    /// Sets the length.
    pub(crate) fn truncate(&mut self, length: usize) {
        let before = self.current.len();
        self.current.resize(length, 0);
        self.allocated = self.allocated.min(length as u64);
        self.touch(before.min(length), before.max(length));
    }

    /// Begins to make durable what is written by now. A later sync has a greater id.
    pub(crate) fn sync_begins(&mut self, id: u64) {
        let mut sectors = std::mem::take(&mut self.dirty);
        for under_way in &self.syncs {
            sectors.extend(&under_way.sectors);
        }
        self.syncs.push(SyncUnderWay { id, sectors, length: self.current.len() });
    }

    /// What was written when sync `id` began is durable from now on.
    pub(crate) fn sync_ends(&mut self, id: u64) {
        let Some(done) = self.take_sync(id).filter(|_| id > self.synced) else { return };
        self.synced = id;
        let length = done.length.min(self.current.len());
        self.durable.resize(length, 0);
        for sector in done.sectors {
            copy_sector(&self.current, &mut self.durable, sector);
        }
    }

    /// Sync `id` failed: its pages count as clean, yet the disk does not have them.
    pub(crate) fn sync_fails(&mut self, id: u64) {
        self.take_sync(id);
    }

    /// Sync `id` never took place: its pages are as dirty as before.
    pub(crate) fn sync_skipped(&mut self, id: u64) {
        if let Some(skipped) = self.take_sync(id) {
            self.dirty.extend(skipped.sectors);
        }
    }

    /// The power is lost.
    pub(crate) fn lose_power(&mut self, left: Left, random: &mut Random) {
        let mut unsynced = std::mem::take(&mut self.dirty);
        for under_way in std::mem::take(&mut self.syncs) {
            unsynced.extend(under_way.sectors);
        }
        self.allocated = 0;
        let length = match left {
            Left::Nothing => self.durable.len(),
            // A change of length without any dirty sector was lost by a sync that failed.
            _ if unsynced.is_empty() => self.durable.len(),
            Left::Everything => self.current.len(),
            Left::Torn => self.torn_length(random),
        };
        self.durable.resize(length, 0);
        let mut kept = 0..0;
        for &sector in &unsynced {
            if !kept.contains(&sector) && sector >= kept.end {
                let page = sector - sector % PAGE_SECTORS;
                kept = match left {
                    Left::Nothing => page..page,
                    Left::Everything => page..page + PAGE_SECTORS,
                    Left::Torn => torn_page(page, random),
                };
            }
            if kept.contains(&sector) {
                copy_sector(&self.current, &mut self.durable, sector);
            }
        }
        self.current.clone_from(&self.durable);
    }

    fn torn_length(&self, random: &mut Random) -> usize {
        let (low, high) = (
            self.durable.len().min(self.current.len()),
            self.durable.len().max(self.current.len()),
        );
        match random.below(3) {
            0 => self.durable.len(),
            1 => self.current.len(),
            _ => low + random.below((high - low) as u64 + 1) as usize,
        }
    }

    fn touch(&mut self, from: usize, end: usize) {
        self.dirty.extend(sector_of(from)..=sector_of(end.max(from + 1) - 1));
    }

    fn take_sync(&mut self, id: u64) -> Option<SyncUnderWay> {
        let index = self.syncs.iter().position(|sync| sync.id == id)?;
        Some(self.syncs.remove(index))
    }
}

/// The sectors of the page that starts at `page` that reached the disk. The sectors of one page
/// are looked at in order, so that the range's end also marks the page as decided.
fn torn_page(page: u32, random: &mut Random) -> std::ops::Range<u32> {
    let end = page + PAGE_SECTORS;
    match random.below(4) {
        0 => end..end,
        1 => page..end,
        2 => page + random.below(u64::from(PAGE_SECTORS)) as u32..end,
        _ => {
            // The first sectors only. The rest of the page is decided anew, sector by sector,
            // which tears it in more than one place.
            page..page + 1 + random.below(u64::from(PAGE_SECTORS)) as u32
        }
    }
}

fn sector_of(position: usize) -> u32 {
    u32::try_from(position / SECTOR_BYTES).expect("files of a simulation are below 2 TiB")
}

fn copy_sector(from: &[u8], to: &mut [u8], sector: u32) {
    let start = sector as usize * SECTOR_BYTES;
    let end = (start + SECTOR_BYTES).min(from.len()).min(to.len());
    if start < end {
        to[start..end].copy_from_slice(&from[start..end]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_power_loss(mut content: Content, left: Left) -> Vec<u8> {
        content.lose_power(left, &mut Random::new(1));
        content.bytes().to_vec()
    }

    fn half_synced() -> Content {
        let mut content = Content::default();
        content.write(0, b"synced ");
        content.sync_begins(1);
        content.write(7, b"and not");
        content.sync_ends(1);
        content
    }

    #[test]
    fn a_sync_covers_what_was_written_before_it_began() {
        assert_eq!(after_power_loss(half_synced(), Left::Nothing), b"synced ");
        assert_eq!(after_power_loss(half_synced(), Left::Everything), b"synced and not");
    }

    #[test]
    fn a_later_sync_covers_what_an_earlier_one_has_under_way() {
        let mut content = Content::default();
        content.write(0, b"one");
        content.sync_begins(1);
        content.sync_begins(2);
        content.sync_ends(2);
        assert_eq!(after_power_loss(content, Left::Nothing), b"one");
    }

    #[test]
    fn an_earlier_sync_that_ends_later_takes_nothing_back() {
        let mut content = Content::default();
        content.write(0, b"one");
        content.sync_begins(1);
        content.write(3, b" two");
        content.sync_begins(2);
        content.sync_ends(2);
        content.sync_ends(1);
        assert_eq!(after_power_loss(content, Left::Nothing), b"one two");
    }

    #[test]
    fn pages_of_a_failed_sync_are_lost_although_a_later_one_succeeds() {
        let mut content = Content::default();
        content.write(0, &[1; 600]);
        content.sync_begins(1);
        content.sync_fails(1);
        content.write(600, &[2; 600]);
        content.sync_begins(2);
        content.sync_ends(2);
        let bytes = after_power_loss(content, Left::Nothing);
        assert_eq!((bytes[0], bytes[1100]), (0, 2));
    }

    #[test]
    fn a_torn_file_keeps_what_was_synced_and_differs_from_seed_to_seed() {
        let mut results = BTreeSet::new();
        for seed in 0..100 {
            let mut content = Content::default();
            content.write(0, &[1; 5_000]);
            content.sync_begins(1);
            content.sync_ends(1);
            content.write(5_000, &[2; 20_000]);
            content.lose_power(Left::Torn, &mut Random::new(seed));
            let bytes = content.bytes().to_vec();
            assert_eq!(bytes[..5_000], [1; 5_000]);
            assert!((5_000..=25_000).contains(&bytes.len()));
            results.insert(bytes);
        }
        assert!(results.len() > 50, "only {} different outcomes", results.len());
    }

    #[test]
    fn an_unsynced_truncation_can_come_undone() {
        let mut content = Content::durable(vec![7; 2_000]);
        content.truncate(10);
        content.sync_begins(1);
        assert_eq!(after_power_loss(content, Left::Nothing).len(), 2_000);
        let mut content = Content::durable(vec![7; 2_000]);
        content.truncate(10);
        content.sync_begins(1);
        content.sync_ends(1);
        assert_eq!(after_power_loss(content, Left::Torn), [7; 10]);
    }
}
