//! Transactions that were aborted, as a reader of committed records needs them, and the bytes of
//! the `.txnindex` files (`TransactionIndex`, `AbortedTxn`, KIP-98).
//!
//! All of a log are in memory, 32 bytes each: there are none where nobody aborts. A million of them
//! take 32 MB, up to twice that while they grow, and took at least a batch and a marker of the log
//! each, which are 146 MB: a log that is cut forgets them with its segments. A file belongs to the
//! segment that holds the markers, and is written when that segment is.

use base::{Offset, ProducerId};
use bytes::{BufMut, Bytes, BytesMut};

/// The size of an entry of the file.
pub(crate) const ENTRY_BYTES: usize = 34;
/// The version of an entry, in its first two bytes.
const VERSION: i16 = 0;

/// One transaction that was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose.
    pub producer_id: ProducerId,
    /// The offset of its first record.
    pub first_offset: Offset,
    /// The offset of its marker.
    pub last_offset: Offset,
    /// What the last stable offset became with the marker: transactions that begin at or above it
    /// have their entries behind this one.
    pub last_stable_offset: Offset,
}

const _: () = assert!(size_of::<AbortedTransaction>() == 32, "memory is counted by it");

/// Why bytes are no index of aborted transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadIndex {
    /// It ends within an entry.
    #[error("it ends within an entry")]
    Torn,
    /// An entry of another version.
    #[error("version {0} is not known")]
    Version(i16),
    /// A marker that does not belong to the segment, or stands out of order.
    #[error("the marker at {0} is out of place")]
    OutOfPlace(Offset),
}

/// The aborted transactions of one log, in the order of their markers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aborted {
    entries: Vec<AbortedTransaction>,
}

impl Aborted {
    /// Adds one; one with the same marker is replaced.
    pub(crate) fn insert(&mut self, entry: AbortedTransaction) {
        let place = self.entries.partition_point(|other| other.last_offset < entry.last_offset);
        match self.entries.get_mut(place) {
            Some(other) if other.last_offset == entry.last_offset => *other = entry,
            _ => self.entries.insert(place, entry),
        }
    }

    /// Those whose markers lie between two offsets, the second one excluded.
    pub(crate) fn between(&self, from: Offset, to: Offset) -> &[AbortedTransaction] {
        let place = |at| self.entries.partition_point(|entry| entry.last_offset < at);
        self.entries.get(place(from)..place(to)).unwrap_or_default()
    }

    /// Those that have records between two offsets, the second one excluded.
    pub(crate) fn overlapping(
        &self,
        from: Offset,
        to: Offset,
    ) -> impl Iterator<Item = AbortedTransaction> {
        let entries = self.covering(from, to).iter();
        entries.filter(move |entry| entry.first_offset < to).copied()
    }

    /// Those whose markers lie at `from` or above, up to one behind which none begins at `offset`
    /// or below.
    pub(crate) fn decided(&self, from: Offset, offset: Offset) -> &[AbortedTransaction] {
        self.covering(from, offset.plus(1))
    }

    fn covering(&self, from: Offset, to: Offset) -> &[AbortedTransaction] {
        let entries = self.between(from, Offset(i64::MAX));
        // All that lies below the last stable offset was decided before, and has its entry.
        let covers = entries.iter().position(|entry| entry.last_stable_offset >= to);
        &entries[..covers.map_or(entries.len(), |place| place + 1)]
    }

    /// Puts these in the place of those whose markers lie between two offsets, the second one
    /// excluded.
    pub(crate) fn replace(&mut self, from: Offset, to: Offset, entries: &[AbortedTransaction]) {
        let place = |at| self.entries.partition_point(|entry| entry.last_offset < at);
        self.entries.splice(place(from)..place(to), entries.iter().copied());
    }

    /// Forgets those whose markers lie at `end` or above.
    pub(crate) fn truncate_from_end(&mut self, end: Offset) {
        while self.entries.pop_if(|entry| entry.last_offset >= end).is_some() {}
    }

    /// Forgets those whose markers lie below `start`.
    pub(crate) fn truncate_from_start(&mut self, start: Offset) {
        let below = self.entries.partition_point(|entry| entry.last_offset < start);
        self.entries.drain(..below);
    }
}

/// The bytes of a file.
pub(crate) fn format(entries: &[AbortedTransaction]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(entries.len() * ENTRY_BYTES);
    for entry in entries {
        bytes.put_i16(VERSION);
        bytes.put_i64(entry.producer_id.0);
        bytes.put_i64(entry.first_offset.0);
        bytes.put_i64(entry.last_offset.0);
        bytes.put_i64(entry.last_stable_offset.0);
    }
    bytes.freeze()
}

/// The entries of a file of the segment that begins at `base`.
pub(crate) fn parse(bytes: &[u8], base: Offset) -> Result<Vec<AbortedTransaction>, BadIndex> {
    let (entries, rest) = bytes.as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() {
        return Err(BadIndex::Torn);
    }
    let mut parsed = Vec::with_capacity(entries.len());
    let mut above = base;
    for entry in entries {
        let (version, numbers) = entry.split_at(size_of::<i16>());
        let version = i16::from_be_bytes(*version.first_chunk().expect("an entry is longer"));
        if version != VERSION {
            return Err(BadIndex::Version(version));
        }
        let (numbers, _) = numbers.as_chunks();
        let number = |index: usize| i64::from_be_bytes(numbers[index]);
        let last_offset = Offset(number(2));
        if last_offset < above || last_offset.0 == i64::MAX {
            return Err(BadIndex::OutOfPlace(last_offset));
        }
        above = last_offset.plus(1);
        parsed.push(AbortedTransaction {
            producer_id: ProducerId(number(0)),
            first_offset: Offset(number(1)),
            last_offset,
            last_stable_offset: Offset(number(3)),
        });
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(first: i64, last: i64, stable: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer_id: ProducerId(5),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(stable),
        }
    }

    #[test]
    fn readers_get_what_overlaps_with_their_range() {
        let mut aborted = Aborted::default();
        // The second one was open when the first one ended, and so on.
        for it in [entry(10, 20, 15), entry(15, 30, 25), entry(25, 40, 41), entry(50, 60, 61)] {
            aborted.insert(it);
        }
        let check = |from: i64, to: i64, expected: &[i64]| {
            let found = aborted.overlapping(Offset(from), Offset(to));
            let firsts: Vec<i64> = found.map(|entry| entry.first_offset.0).collect();
            assert_eq!(firsts, expected, "{from} to {to}");
        };
        check(0, 10, &[]);
        check(0, 11, &[10]);
        check(0, 16, &[10, 15]);
        check(21, 26, &[15, 25]);
        check(31, 50, &[25]);
        check(41, 100, &[50]);
        check(61, 100, &[]);
    }

    #[test]
    fn files_are_read_as_they_were_written_and_damage_is_noticed() {
        let entries = [entry(10, 20, 15), entry(15, 30, 31)];
        let bytes = format(&entries);
        assert_eq!(bytes.len(), 2 * ENTRY_BYTES);
        assert_eq!(parse(&bytes, Offset(20)).as_deref(), Ok(&entries[..]));
        assert_eq!(parse(&bytes, Offset(21)), Err(BadIndex::OutOfPlace(Offset(20))));
        assert_eq!(parse(&bytes[..67], Offset(0)), Err(BadIndex::Torn));
        let twice = [&bytes[..], &bytes[..]].concat();
        assert_eq!(parse(&twice, Offset(0)), Err(BadIndex::OutOfPlace(Offset(20))));
        let mut newer = bytes.to_vec();
        newer[1] = 1;
        assert_eq!(parse(&newer, Offset(0)), Err(BadIndex::Version(1)));
        assert_eq!(parse(&[], Offset(0)), Ok(vec![]));
    }
}
