//! The state of a log's producers as it stands in a `.snapshot` file.

use base::wire::{Message, Reader};
use base::{Offset, ProducerEpoch, ProducerId};
use bytes::Bytes;
use records::files::ProducerSnapshot;
use records::files::producer_snapshot::ProducerEntry;

use super::entry::ProducerState;

/// The version that is written and read, in the first two bytes.
const VERSION: i16 = 1;
/// Where the CRC stands, and what it covers begins behind it.
const CRC_AT: std::ops::Range<usize> = 2..6;

/// Why bytes are no snapshot of producers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSnapshot {
    /// Another version, or none.
    #[error("version {0} is not known")]
    Version(i16),
    /// The CRC does not fit the bytes.
    #[error("the CRC is {found:#010x} where {computed:#010x} belongs")]
    Crc {
        /// What stands in the file.
        found: u32,
        /// What the bytes have.
        computed: u32,
    },
    /// The bytes end too early.
    #[error("it is cut off: {0}")]
    Short(base::wire::DecodeError),
}

/// The bytes of a snapshot.
///
/// # Panics
/// With more producers than an array of a message can have (a million).
pub fn format_snapshot(mut states: Vec<ProducerState>) -> Bytes {
    let buckets = buckets_of(states.len());
    states.sort_unstable_by_key(|state| (bucket_of(state.producer_id, buckets), state.producer_id));
    let producer_entries = states.iter().map(entry_of).collect();
    let snapshot = ProducerSnapshot { producer_entries, ..ProducerSnapshot::default() };
    let bytes = snapshot
        .to_bytes_after(&VERSION.to_be_bytes(), VERSION)
        .expect("a log's producers fit an array");
    let mut bytes = Vec::from(bytes);
    let crc = records::crc_of(&bytes[CRC_AT.end..]);
    bytes[CRC_AT].copy_from_slice(&crc.to_be_bytes());
    Bytes::from(bytes)
}

/// The producers of a snapshot, in its order.
///
/// # Errors
/// It cannot be trusted; see [`BadSnapshot`].
pub fn parse_snapshot(bytes: &Bytes) -> Result<Vec<ProducerState>, BadSnapshot> {
    let mut reader = Reader::new(bytes.clone());
    let version = reader.i16().map_err(BadSnapshot::Short)?;
    if version != VERSION {
        return Err(BadSnapshot::Version(version));
    }
    let snapshot = ProducerSnapshot::decode(&mut reader, version).map_err(BadSnapshot::Short)?;
    let (found, computed) = (snapshot.crc, records::crc_of(&bytes[CRC_AT.end..]));
    if found != computed {
        return Err(BadSnapshot::Crc { found, computed });
    }
    Ok(snapshot.producer_entries.iter().map(state_of).collect())
}

fn entry_of(state: &ProducerState) -> ProducerEntry {
    ProducerEntry {
        producer_id: state.producer_id.0,
        epoch: state.producer_epoch.0,
        last_sequence: state.last_sequence,
        last_offset: state.last_offset.0,
        offset_delta: state.offset_delta,
        timestamp: state.last_timestamp,
        coordinator_epoch: state.coordinator_epoch,
        current_txn_first_offset: state.transaction_start.map_or(-1, |offset| offset.0),
        ..ProducerEntry::default()
    }
}

fn state_of(entry: &ProducerEntry) -> ProducerState {
    let start = Offset(entry.current_txn_first_offset);
    ProducerState {
        producer_id: ProducerId(entry.producer_id),
        producer_epoch: ProducerEpoch(entry.epoch),
        last_sequence: entry.last_sequence,
        last_offset: Offset(entry.last_offset),
        offset_delta: entry.offset_delta,
        last_timestamp: entry.timestamp,
        coordinator_epoch: entry.coordinator_epoch,
        transaction_start: (start.0 >= 0).then_some(start),
    }
}

/// How many buckets a Java hash map has that grew to `count` entries.
fn buckets_of(count: usize) -> usize {
    let mut buckets = 16;
    while count > buckets / 4 * 3 {
        buckets *= 2;
    }
    buckets
}

/// Where a producer stands in such a map. Kafka writes its map as it iterates over it; a reader
/// heeds no order, but files that hold the same are to be the same.
fn bucket_of(producer_id: ProducerId, buckets: usize) -> usize {
    let id = producer_id.0 as u64;
    let hash = (id ^ (id >> 32)) as u32;
    (hash ^ (hash >> 16)) as usize & (buckets - 1)
}
