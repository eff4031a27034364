//! The 61 bytes in front of a batch's records (`DefaultRecordBatch`).

use base::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use crate::codec::Codec;

/// The size of the header, in bytes; the records follow it.
pub const HEADER_BYTES: usize = 61;
/// The bytes that the header's length field does not count: base offset and length.
pub const LOG_OVERHEAD_BYTES: usize = 12;
/// The format version that this crate reads and writes.
pub const MAGIC: i8 = 2;
/// "No timestamp", as records and headers write it.
pub const NO_TIMESTAMP: i64 = -1;
/// "No sequence", as the header of a batch without an idempotent producer writes it.
pub const NO_SEQUENCE: i32 = -1;

/// Where each field of the header begins, in bytes from the start of the batch.
pub mod offsets {
    /// Base offset, 8 bytes.
    pub const BASE_OFFSET: usize = 0;
    /// Length of all that follows this field, 4 bytes.
    pub const LENGTH: usize = 8;
    /// Partition leader epoch, 4 bytes; not covered by the CRC.
    pub const LEADER_EPOCH: usize = 12;
    /// Format version, 1 byte; at the same place in every version of the format.
    pub const MAGIC: usize = 16;
    /// CRC-32C of everything from the attributes to the end of the batch, 4 bytes.
    pub const CRC: usize = 17;
    /// Attributes, 2 bytes.
    pub const ATTRIBUTES: usize = 21;
    /// Offset of the last record less the base offset, 4 bytes.
    pub const LAST_OFFSET_DELTA: usize = 23;
    /// Base timestamp (or delete horizon), 8 bytes.
    pub const BASE_TIMESTAMP: usize = 27;
    /// Maximum timestamp, 8 bytes.
    pub const MAX_TIMESTAMP: usize = 35;
    /// Producer id, 8 bytes.
    pub const PRODUCER_ID: usize = 43;
    /// Producer epoch, 2 bytes.
    pub const PRODUCER_EPOCH: usize = 51;
    /// Sequence of the first record, 4 bytes.
    pub const BASE_SEQUENCE: usize = 53;
    /// How many records follow, 4 bytes.
    pub const RECORD_COUNT: usize = 57;
}

const CODEC_MASK: i16 = 0x07;
const LOG_APPEND_TIME_BIT: i16 = 0x08;
const TRANSACTIONAL_BIT: i16 = 0x10;
const CONTROL_BIT: i16 = 0x20;
const DELETE_HORIZON_BIT: i16 = 0x40;

/// Who set the timestamps of a batch's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer, each record its own.
    #[default]
    CreateTime,
    /// The broker, one for the whole batch: the header's maximum timestamp.
    LogAppendTime,
}

/// The fields of the header, in the order in which they are written.
///
/// Any 61 bytes are some header: nothing is judged by reading them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the batch's first record, as it was when the batch was first written (compaction
    /// can remove that record).
    pub base_offset: Offset,
    /// Bytes after this field: the batch is 12 bytes longer.
    pub length: i32,
    /// Epoch of the leader that appended the batch.
    pub leader_epoch: LeaderEpoch,
    /// Format version.
    pub magic: i8,
    /// CRC-32C from the attributes to the end of the batch.
    pub crc: u32,
    /// Codec and flags as they stand; the methods take them apart.
    pub attributes: i16,
    /// Last offset less base offset; survives compaction.
    pub last_offset_delta: i32,
    /// What the records' timestamps are relative to, in milliseconds since 1970; with a delete
    /// horizon, that horizon.
    pub base_timestamp: i64,
    /// The largest timestamp of a record (CreateTime), or of them all (LogAppendTime).
    pub max_timestamp: i64,
    /// Who produced it, −1 for a producer that is not idempotent.
    pub producer_id: ProducerId,
    /// Epoch of that producer.
    pub producer_epoch: ProducerEpoch,
    /// Sequence of the first record, −1 for none.
    pub base_sequence: i32,
    /// Records in the batch.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the fields.
    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Self {
        Self {
            base_offset: Offset(i64::from_be_bytes(field(bytes, offsets::BASE_OFFSET))),
            length: i32::from_be_bytes(field(bytes, offsets::LENGTH)),
            leader_epoch: LeaderEpoch(i32::from_be_bytes(field(bytes, offsets::LEADER_EPOCH))),
            magic: i8::from_be_bytes(field(bytes, offsets::MAGIC)),
            crc: u32::from_be_bytes(field(bytes, offsets::CRC)),
            attributes: i16::from_be_bytes(field(bytes, offsets::ATTRIBUTES)),
            last_offset_delta: i32::from_be_bytes(field(bytes, offsets::LAST_OFFSET_DELTA)),
            base_timestamp: i64::from_be_bytes(field(bytes, offsets::BASE_TIMESTAMP)),
            max_timestamp: i64::from_be_bytes(field(bytes, offsets::MAX_TIMESTAMP)),
            producer_id: ProducerId(i64::from_be_bytes(field(bytes, offsets::PRODUCER_ID))),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(field(
                bytes,
                offsets::PRODUCER_EPOCH,
            ))),
            base_sequence: i32::from_be_bytes(field(bytes, offsets::BASE_SEQUENCE)),
            record_count: i32::from_be_bytes(field(bytes, offsets::RECORD_COUNT)),
        }
    }

    /// Writes the fields: the inverse of [`BatchHeader::read`].
    pub fn write(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(offsets::BASE_OFFSET, &self.base_offset.0.to_be_bytes());
        put(offsets::LENGTH, &self.length.to_be_bytes());
        put(offsets::LEADER_EPOCH, &self.leader_epoch.0.to_be_bytes());
        put(offsets::MAGIC, &self.magic.to_be_bytes());
        put(offsets::CRC, &self.crc.to_be_bytes());
        put(offsets::ATTRIBUTES, &self.attributes.to_be_bytes());
        put(offsets::LAST_OFFSET_DELTA, &self.last_offset_delta.to_be_bytes());
        put(offsets::BASE_TIMESTAMP, &self.base_timestamp.to_be_bytes());
        put(offsets::MAX_TIMESTAMP, &self.max_timestamp.to_be_bytes());
        put(offsets::PRODUCER_ID, &self.producer_id.0.to_be_bytes());
        put(offsets::PRODUCER_EPOCH, &self.producer_epoch.0.to_be_bytes());
        put(offsets::BASE_SEQUENCE, &self.base_sequence.to_be_bytes());
        put(offsets::RECORD_COUNT, &self.record_count.to_be_bytes());
        bytes
    }

    /// The size of the whole batch in bytes, as the header claims it; `None` for a negative one.
    pub fn batch_bytes(&self) -> Option<usize> {
        Some(usize::try_from(self.length).ok()? + LOG_OVERHEAD_BYTES)
    }

    /// The offset of the last record, as the batch was first written. Wraps on absurd fields.
    pub fn last_offset(&self) -> Offset {
        Offset(self.base_offset.0.wrapping_add(i64::from(self.last_offset_delta)))
    }

    /// The offset that follows the batch. Wraps on absurd fields.
    pub fn next_offset(&self) -> Offset {
        Offset(self.last_offset().0.wrapping_add(1))
    }

    /// The sequence of the last record, [`NO_SEQUENCE`] where there is none.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence == NO_SEQUENCE {
            return NO_SEQUENCE;
        }
        increment_sequence(self.base_sequence, self.last_offset_delta)
    }

    /// How the records are compressed: the codec, or the unknown number of one.
    pub fn codec(&self) -> Result<Codec, u8> {
        let id = (self.attributes & CODEC_MASK) as u8;
        Codec::from_id(id).ok_or(id)
    }

    /// Whether any codec, known or not, was used.
    pub fn is_compressed(&self) -> bool {
        self.attributes & CODEC_MASK != 0
    }

    /// Who set the timestamps.
    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & LOG_APPEND_TIME_BIT == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Whether the batch is part of a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    /// Whether it holds control records, which no consumer is shown.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    /// When tombstones and markers in the batch may be removed, in milliseconds since 1970, once
    /// the cleaner has set it (KIP-534).
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        (self.attributes & DELETE_HORIZON_BIT != 0).then_some(self.base_timestamp)
    }

    /// Whether an idempotent producer wrote it. (Kafka counts any id above −1.)
    pub fn has_producer_id(&self) -> bool {
        self.producer_id > ProducerId::NONE
    }

    /// Sets who set the timestamps. Drops unused bits, as Kafka does when it rewrites attributes.
    pub(crate) fn set_timestamp_type(&mut self, timestamp_type: TimestampType) {
        self.attributes &= CODEC_MASK | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT;
        if timestamp_type == TimestampType::LogAppendTime {
            self.attributes |= LOG_APPEND_TIME_BIT;
        }
    }

    pub(crate) fn set_codec(&mut self, codec: Codec) {
        self.attributes = self.attributes & !CODEC_MASK | i16::from(codec.id());
    }

    pub(crate) fn set_transactional(&mut self) {
        self.attributes |= TRANSACTIONAL_BIT;
    }

    pub(crate) fn set_control(&mut self) {
        self.attributes |= CONTROL_BIT;
    }

    pub(crate) fn set_delete_horizon_ms(&mut self, delete_horizon_ms: i64) {
        self.attributes |= DELETE_HORIZON_BIT;
        self.base_timestamp = delete_horizon_ms;
    }

    pub(crate) fn clear_delete_horizon(&mut self) {
        self.attributes &= !DELETE_HORIZON_BIT;
    }
}

/// The sequence `increment` records further on; after 2³¹ − 1 comes 0.
pub fn increment_sequence(sequence: i32, increment: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(increment);
    let wrapped = if sum > i64::from(i32::MAX) { sum - (i64::from(i32::MAX) + 1) } else { sum };
    wrapped as i32
}

/// The sequence `decrement` records before; before 0 comes 2³¹ − 1.
pub fn decrement_sequence(sequence: i32, decrement: i32) -> i32 {
    let difference = i64::from(sequence) - i64::from(decrement);
    let wrapped = if difference < 0 { difference + (i64::from(i32::MAX) + 1) } else { difference };
    wrapped as i32
}

fn field<const LENGTH: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; LENGTH] {
    bytes[at..at + LENGTH].try_into().expect("the slice has the length of the array")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sequences_wrap_at_the_end_of_31_bits() {
        assert_eq!(increment_sequence(i32::MAX, 1), 0);
        assert_eq!(increment_sequence(i32::MAX - 1, 5), 3);
        assert_eq!(increment_sequence(7, 5), 12);
        assert_eq!(decrement_sequence(0, 1), i32::MAX);
        assert_eq!(decrement_sequence(3, 5), i32::MAX - 1);
        assert_eq!(decrement_sequence(7, 5), 2);
    }

    proptest! {
        #[test]
        fn any_header_is_written_as_it_was_read(bytes in prop::array::uniform32(any::<u8>()),
                                                more in prop::array::uniform32(any::<u8>())) {
            let mut header = [0; HEADER_BYTES];
            header[..32].copy_from_slice(&bytes);
            header[32..].copy_from_slice(&more[..29]);
            prop_assert_eq!(BatchHeader::read(&header).write(), header);
        }
    }
}
