//! The bytes of one file: what a reader sees, and what is durable of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::random::Random;

/// What the cache holds and writes back as one, in bytes.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// What a disk writes whole or not at all, in bytes.
const SECTOR_BYTES: usize = 512;

type Page = Arc<[u8; PAGE_BYTES as usize]>;
const ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

/// The bytes of one file. A page that is not there is all zeros.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    seen: BTreeMap<u64, Page>,
    length: u64,
    durable: BTreeMap<u64, Page>,
    durable_length: u64,
    /// Pages that were changed since they were synced.
    dirty: BTreeSet<u64>,
    /// The length was changed since it was synced.
    is_length_dirty: bool,
    /// Pages from the start of the file for which space was taken.
    allocated: u64,
}

impl Pages {
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Disk space that it takes, in bytes.
    pub(crate) fn space_bytes(&self) -> u64 {
        (self.allocated + self.seen.range(self.allocated..).count() as u64) * PAGE_BYTES
    }

    /// How much more space it takes once `position..position + length` is allocated or written.
    pub(crate) fn growth_bytes(&self, position: u64, length: u64) -> u64 {
        if length == 0 {
            return 0;
        }
        let (first, end) = (position / PAGE_BYTES, (position + length).div_ceil(PAGE_BYTES));
        let first = first.max(self.allocated);
        let there = self.seen.range(first..end.max(first)).count() as u64;
        (end.saturating_sub(first) - there) * PAGE_BYTES
    }

    pub(crate) fn read(&self, position: u64, length: u64) -> Vec<u8> {
        let end = self.length.min(position.saturating_add(length));
        let mut bytes = Vec::new();
        let mut at = position;
        while at < end {
            let (page, from) = (at / PAGE_BYTES, at % PAGE_BYTES);
            let to = PAGE_BYTES.min(from + end - at);
            let content = self.seen.get(&page).map_or(&ZEROS, |page| &**page);
            bytes.extend_from_slice(&content[from as usize..to as usize]);
            at += to - from;
        }
        bytes
    }

    pub(crate) fn write(&mut self, position: u64, bytes: &[u8]) {
        let mut at = position;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (page, from) = (at / PAGE_BYTES, (at % PAGE_BYTES) as usize);
            let (now, later) = rest.split_at(rest.len().min(PAGE_BYTES as usize - from));
            let content = Arc::make_mut(self.seen.entry(page).or_insert_with(|| Arc::new(ZEROS)));
            content[from..from + now.len()].copy_from_slice(now);
            self.dirty.insert(page);
            at += now.len() as u64;
            rest = later;
        }
        if at > self.length {
            self.length = at;
            self.is_length_dirty = true;
        }
    }

    pub(crate) fn allocate(&mut self, position: u64, length: u64) {
        self.allocated = self.allocated.max((position + length).div_ceil(PAGE_BYTES));
    }

    pub(crate) fn set_length(&mut self, length: u64) {
        let end = length.div_ceil(PAGE_BYTES);
        self.dirty.extend(self.seen.split_off(&end).into_keys());
        if !length.is_multiple_of(PAGE_BYTES)
            && let Some(last) = self.seen.get_mut(&(length / PAGE_BYTES))
        {
            Arc::make_mut(last)[(length % PAGE_BYTES) as usize..].fill(0);
            self.dirty.insert(length / PAGE_BYTES);
        }
        self.allocated = self.allocated.min(end);
        self.is_length_dirty |= length != self.length;
        self.length = length;
    }

    /// Makes everything durable that was not lost by a sync that failed.
    pub(crate) fn sync(&mut self) {
        for page in std::mem::take(&mut self.dirty) {
            match self.seen.get(&page) {
                Some(content) => drop(self.durable.insert(page, Arc::clone(content))),
                None => drop(self.durable.remove(&page)),
            }
        }
        self.is_length_dirty = false;
        self.durable_length = self.length;
    }

    /// What is not durable counts as clean from now on, as the kernel has it after an error: no
    /// later sync brings it to the disk.
    pub(crate) fn fail_to_sync(&mut self) {
        self.dirty.clear();
        self.is_length_dirty = false;
    }

    /// Only what is durable is left, and what `random` chooses of the rest: pages whole, torn
    /// between two sectors or not at all, and a length that need not fit.
    pub(crate) fn lose_power(&mut self, random: Option<&mut Random>) {
        if let Some(random) = random {
            for page in std::mem::take(&mut self.dirty) {
                let torn = self.torn(page, random);
                self.durable.insert(page, torn);
            }
            if self.is_length_dirty {
                let low = self.length.min(self.durable_length);
                let high = self.length.max(self.durable_length);
                self.durable_length = match random.below(4) {
                    0 => self.durable_length,
                    1 => low + random.below(high - low + 1),
                    _ => self.length,
                };
            }
        }
        self.dirty.clear();
        self.is_length_dirty = false;
        self.allocated = 0;
        self.seen = self.durable.clone();
        // What lies behind the end must not come to light when the file grows.
        self.set_length(self.durable_length);
        self.sync();
    }

    /// What the disk has of a page that was being written.
    fn torn(&self, page: u64, random: &mut Random) -> Page {
        let content = |pages: &BTreeMap<u64, Page>| {
            pages.get(&page).cloned().unwrap_or_else(|| Arc::new(ZEROS))
        };
        let (mut left, new) = (content(&self.durable), content(&self.seen));
        let cut = random.below(PAGE_BYTES / SECTOR_BYTES as u64) as usize * SECTOR_BYTES;
        match random.below(8) {
            0 | 1 => left,
            2 => {
                Arc::make_mut(&mut left)[..cut].copy_from_slice(&new[..cut]);
                left
            }
            3 => {
                Arc::make_mut(&mut left)[cut..].copy_from_slice(&new[cut..]);
                left
            }
            _ => new,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pages: &Pages) -> Vec<u8> {
        pages.read(0, u64::MAX)
    }

    fn half_synced() -> Pages {
        let mut pages = Pages::default();
        pages.write(0, b"synced ");
        pages.sync();
        pages.write(7, b"and not");
        pages
    }

    #[test]
    fn a_reader_sees_everything_and_only_what_was_synced_is_left() {
        let mut pages = half_synced();
        assert_eq!(all(&pages), b"synced and not");
        pages.lose_power(None);
        assert_eq!(all(&pages), b"synced ");
        pages.write(9, b"x");
        assert_eq!(all(&pages), b"synced \0\0x");
    }

    #[test]
    fn a_failed_sync_loses_what_it_had_to_write_for_good() {
        let mut pages = half_synced();
        pages.fail_to_sync();
        assert_eq!(all(&pages), b"synced and not");
        pages.write(PAGE_BYTES, b"later");
        pages.sync();
        pages.lose_power(None);
        assert_eq!(&all(&pages)[..14], b"synced \0\0\0\0\0\0\0");
        assert_eq!(&all(&pages)[PAGE_BYTES as usize..], b"later");
    }

    #[test]
    fn pages_and_holes_are_read_as_they_were_written() {
        let mut pages = Pages::default();
        let bytes: Vec<u8> = (0..10_000).map(|index| (index % 251) as u8).collect();
        pages.write(6_000, &bytes);
        assert_eq!(pages.length(), 16_000);
        assert_eq!(pages.read(6_000, 10_000), bytes);
        assert_eq!(pages.read(5_000, 1_001), [[0; 1_000].as_slice(), &[0]].concat());
        assert_eq!(pages.read(15_999, 100), [bytes[9_999]]);
        assert_eq!(pages.read(20_000, 100), []);
        pages.set_length(7_000);
        pages.set_length(9_000);
        assert_eq!(pages.read(6_000, 9_000), [&bytes[..1_000], &[0; 2_000]].concat());
    }

    #[test]
    fn a_truncation_is_undone_unless_it_was_synced() {
        let mut pages = Pages::default();
        pages.write(0, &[7; 9_000]);
        pages.sync();
        pages.set_length(10);
        pages.lose_power(None);
        assert_eq!(all(&pages), [7; 9_000]);
        pages.set_length(10);
        pages.sync();
        pages.lose_power(None);
        assert_eq!(all(&pages), [7; 10]);
    }

    #[test]
    fn space_is_counted_by_pages_that_are_there_or_allocated() {
        let mut pages = Pages::default();
        assert_eq!(pages.growth_bytes(PAGE_BYTES - 1, 2), 2 * PAGE_BYTES);
        pages.write(PAGE_BYTES - 1, &[1; 2]);
        assert_eq!(pages.space_bytes(), 2 * PAGE_BYTES);
        assert_eq!(pages.growth_bytes(0, 3 * PAGE_BYTES), PAGE_BYTES);
        pages.allocate(0, 3 * PAGE_BYTES);
        assert_eq!(pages.space_bytes(), 3 * PAGE_BYTES);
        assert_eq!(pages.growth_bytes(2 * PAGE_BYTES, PAGE_BYTES + 1), PAGE_BYTES);
        pages.write(4 * PAGE_BYTES, &[1]);
        assert_eq!(pages.space_bytes(), 4 * PAGE_BYTES);
        pages.set_length(1);
        assert_eq!(pages.space_bytes(), PAGE_BYTES);
    }

    #[test]
    fn what_is_left_of_the_rest_differs_from_seed_to_seed_and_harms_nothing_that_was_synced() {
        let mut seen = BTreeSet::new();
        for seed in 0..100 {
            let mut pages = Pages::default();
            pages.write(0, &[1; 5_000]);
            pages.sync();
            pages.write(5_000, &[2; 20_000]);
            pages.lose_power(Some(&mut Random::new(seed)));
            let bytes = all(&pages);
            assert_eq!(bytes[..5_000], [1; 5_000]);
            assert!((5_000..=25_000).contains(&bytes.len()), "{}", bytes.len());
            assert!(bytes[5_000..].iter().all(|byte| [0, 2].contains(byte)));
            let before = bytes.clone();
            pages.lose_power(Some(&mut Random::new(seed)));
            assert_eq!(all(&pages), before, "a second loss takes nothing more");
            seen.insert(bytes);
        }
        assert!(seen.len() > 50, "only {} different outcomes", seen.len());
    }
}
