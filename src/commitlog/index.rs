//! The two sparse indexes of a segment, as entries and as the bytes of their files
//! (`OffsetIndex`, `TimeIndex`).

use base::Offset;
use bytes::{BufMut, Bytes, BytesMut};
use records::{BatchHeader, NO_TIMESTAMP};

/// The size of an entry of the `.index` file: relative offset and position, 4 bytes each.
pub(crate) const OFFSET_ENTRY_BYTES: usize = 8;
/// The size of an entry of the `.timeindex` file: timestamp, 8 bytes, and relative offset, 4.
pub(crate) const TIME_ENTRY_BYTES: usize = 12;

/// The batch that begins at `position` ends with this offset, relative to the segment's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffsetEntry {
    pub(crate) relative_offset: u32,
    pub(crate) position: u32,
}

impl OffsetEntry {
    pub(crate) fn read(bytes: [u8; OFFSET_ENTRY_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self {
            relative_offset: u32::from_be_bytes([a, b, c, d]),
            position: u32::from_be_bytes([e, f, g, h]),
        }
    }
}

/// Up to and with the batch that ends with this offset, no timestamp of the segment is larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeEntry {
    pub(crate) timestamp: i64,
    pub(crate) relative_offset: u32,
}

impl TimeEntry {
    pub(crate) fn read(bytes: [u8; TIME_ENTRY_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        Self {
            timestamp: i64::from_be_bytes([a, b, c, d, e, f, g, h]),
            relative_offset: u32::from_be_bytes([i, j, k, l]),
        }
    }
}

/// The indexes of the segment that is written, or rebuilt, in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentIndex {
    offsets: Vec<OffsetEntry>,
    times: Vec<TimeEntry>,
    state: IndexState,
}

/// Where the indexes stand: enough to take back what was added since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexState {
    offset_entries: usize,
    time_entries: usize,
    bytes_since_entry: u64,
    largest: Option<TimeEntry>,
}

impl SegmentIndex {
    /// Takes over what the files of a cleanly closed segment hold: whole entries that rise, up to
    /// the first that does not (Kafka leaves zeros behind them in its metadata log).
    pub(crate) fn load(offsets: &[u8], times: &[u8]) -> Self {
        let mut index = Self::default();
        for bytes in offsets.as_chunks::<OFFSET_ENTRY_BYTES>().0 {
            let entry = OffsetEntry::read(*bytes);
            let rises = index.offsets.last().is_none_or(|last| {
                entry.relative_offset > last.relative_offset && entry.position > last.position
            });
            // The first batch of a segment has no entry, so that position 0 is padding.
            if !rises || entry.position == 0 {
                break;
            }
            index.offsets.push(entry);
        }
        for bytes in times.as_chunks::<TIME_ENTRY_BYTES>().0 {
            let entry = TimeEntry::read(*bytes);
            let rises = index.times.last().is_none_or(|last| {
                entry.timestamp > last.timestamp && entry.relative_offset >= last.relative_offset
            });
            if !rises || (entry.timestamp == 0 && entry.relative_offset == 0) {
                break;
            }
            index.times.push(entry);
        }
        index.state.largest = index.times.last().copied();
        index.state.offset_entries = index.offsets.len();
        index.state.time_entries = index.times.len();
        index
    }

    /// Accounts for a batch at `position` in the segment that begins at `base`.
    ///
    /// An entry is made before the batch that crosses the interval, as `LogSegment.append` does.
    pub(crate) fn add(&mut self, base: Offset, header: &BatchHeader, position: u32, interval: u32) {
        let relative_offset = relative(base, header.last_offset());
        self.raise_largest(base, header);
        if self.state.bytes_since_entry > u64::from(interval) {
            self.offsets.push(OffsetEntry { relative_offset, position });
            self.add_largest_time();
            self.state.bytes_since_entry = 0;
            self.state.offset_entries = self.offsets.len();
        }
        self.state.bytes_since_entry += header.batch_bytes().unwrap_or(0) as u64;
    }

    /// Accounts for the timestamp of a batch alone.
    pub(crate) fn raise_largest(&mut self, base: Offset, header: &BatchHeader) {
        if header.max_timestamp > self.largest_timestamp() {
            let relative_offset = relative(base, header.last_offset());
            let timestamp = header.max_timestamp;
            self.state.largest = Some(TimeEntry { timestamp, relative_offset });
        }
    }

    /// Says that `bytes` lie between the last entry and the end, when entries were loaded.
    pub(crate) fn set_bytes_since_entry(&mut self, bytes: u64) {
        self.state.bytes_since_entry = bytes;
    }

    /// Adds the entry of the largest timestamp, which a segment ends with.
    pub(crate) fn add_largest_time(&mut self) {
        let last = self.times.last().map_or(NO_TIMESTAMP, |entry| entry.timestamp);
        if let Some(largest) = self.state.largest
            && largest.timestamp > last
        {
            self.times.push(largest);
        }
        self.state.time_entries = self.times.len();
    }

    /// Whether a file of `bytes_max` has no room for a further entry; the time index keeps room
    /// for its last one.
    pub(crate) fn is_full(&self, bytes_max: u32) -> bool {
        let bytes_max = bytes_max as usize;
        self.offsets.len() >= bytes_max / OFFSET_ENTRY_BYTES
            || self.times.len() + 1 >= bytes_max / TIME_ENTRY_BYTES
    }

    /// Where it stands now.
    pub(crate) fn state(&self) -> IndexState {
        self.state
    }

    /// Takes back what was added since `state`.
    pub(crate) fn restore(&mut self, state: IndexState) {
        self.offsets.truncate(state.offset_entries);
        self.times.truncate(state.time_entries);
        self.state = state;
    }

    /// The entry of the largest timestamp so far.
    pub(crate) fn largest(&self) -> Option<TimeEntry> {
        self.state.largest
    }

    /// The entries from offsets to positions.
    pub(crate) fn offsets(&self) -> &[OffsetEntry] {
        &self.offsets
    }

    /// The entries from timestamps to offsets.
    pub(crate) fn times(&self) -> &[TimeEntry] {
        &self.times
    }

    /// The content of the `.index` file.
    pub(crate) fn offset_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.offsets.len() * OFFSET_ENTRY_BYTES);
        for entry in &self.offsets {
            bytes.put_u32(entry.relative_offset);
            bytes.put_u32(entry.position);
        }
        bytes.freeze()
    }

    /// The content of the `.timeindex` file.
    pub(crate) fn time_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.times.len() * TIME_ENTRY_BYTES);
        for entry in &self.times {
            bytes.put_i64(entry.timestamp);
            bytes.put_u32(entry.relative_offset);
        }
        bytes.freeze()
    }

    fn largest_timestamp(&self) -> i64 {
        self.state.largest.map_or(NO_TIMESTAMP, |entry| entry.timestamp)
    }
}

/// Whether `offset` can stand in the indexes of a segment that begins at `base`.
pub(crate) fn fits(base: Offset, offset: Offset) -> bool {
    (0..=i64::from(i32::MAX)).contains(&offset.0.wrapping_sub(base.0))
}

/// `offset` relative to `base`, which it was checked to fit.
pub(crate) fn relative(base: Offset, offset: Offset) -> u32 {
    u32::try_from(offset.0 - base.0).expect("offsets of a segment fit its indexes")
}
