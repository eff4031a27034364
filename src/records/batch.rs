//! A batch in memory: read in place, stamped without touching its records.

use base::{LeaderEpoch, Offset};
use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};

use crate::error::BatchError;
use crate::header::{BatchHeader, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, TimestampType, offsets};
use crate::reader::RecordReader;

/// The bytes that tell a batch's size and version, in every version of the format.
const PREFIX_BYTES: usize = offsets::MAGIC + 1;
/// The least that Kafka lets the length field say: the overhead of a record of version 0.
const LENGTH_MIN: i32 = 14;
/// The least that it can say in version 2.
const LENGTH_MIN_V2: i32 = (HEADER_BYTES - LOG_OVERHEAD_BYTES) as i32;

/// One batch of version 2: a counted reference to its bytes, and its header taken apart.
///
/// Reading it checks magic and length; everything else is as its author wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    header: BatchHeader,
    bytes: Bytes,
}

impl Batch {
    /// The batch at the start of `bytes`; `None` when it is not whole there.
    pub fn read(bytes: &Bytes) -> Result<Option<Batch>, BatchError> {
        let Some(size) = next_batch_bytes(bytes)? else { return Ok(None) };
        let magic = bytes[offsets::MAGIC] as i8;
        if magic != MAGIC {
            return Err(BatchError::OldMagic(magic));
        }
        let Some(header) = bytes[..size].first_chunk() else {
            let length = (size - LOG_OVERHEAD_BYTES) as i32;
            return Err(BatchError::LengthTooSmall { length, min: LENGTH_MIN_V2 });
        };
        Ok(Some(Batch { header: BatchHeader::read(header), bytes: bytes.slice(..size) }))
    }

    /// The fields of its header.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// All its bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The bytes behind its header: its records, compressed as the header says.
    pub fn record_bytes(&self) -> Bytes {
        self.bytes.slice(HEADER_BYTES..)
    }

    /// Its size in bytes; never less than [`HEADER_BYTES`].
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Compares the header's checksum with that of the bytes.
    pub fn check_crc(&self) -> Result<(), BatchError> {
        let (stored, computed) = (self.header.crc, crc_of(&self.bytes[offsets::ATTRIBUTES..]));
        if stored == computed { Ok(()) } else { Err(BatchError::Crc { stored, computed }) }
    }

    /// Reads its records one after the other, decompressing as far as it has got.
    ///
    /// A record of more than `record_bytes_max` is refused when the batch is compressed: what a
    /// stream expands to is not bounded by its size (`max.decompressed.message.bytes`).
    pub fn records(&self, record_bytes_max: usize) -> Result<RecordReader, BatchError> {
        RecordReader::new(&self.header, self.record_bytes(), record_bytes_max)
    }

    /// The header with what the broker changes when it appends the batch. The records stay as
    /// they are, so header and [`Batch::record_bytes`] are what is written.
    pub fn stamp(&self, stamp: &Stamp) -> [u8; HEADER_BYTES] {
        let mut header = self.header;
        header.base_offset = stamp.base_offset;
        header.leader_epoch = stamp.leader_epoch;
        let (timestamp_type, max_timestamp) = match stamp.max_timestamp {
            MaxTimestamp::Keep => return header.write(),
            MaxTimestamp::CreateTime(max) => (TimestampType::CreateTime, max),
            MaxTimestamp::LogAppendTime(now_ms) => (TimestampType::LogAppendTime, now_ms),
        };
        if header.timestamp_type() == timestamp_type && header.max_timestamp == max_timestamp {
            return header.write();
        }
        header.set_timestamp_type(timestamp_type);
        header.max_timestamp = max_timestamp;
        header.crc = crc_of_parts(&header, &self.bytes[HEADER_BYTES..]);
        header.write()
    }
}

/// What the broker changes in a batch that it appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The offset of the first record.
    pub base_offset: Offset,
    /// The epoch of the leader that appends.
    pub leader_epoch: LeaderEpoch,
    /// What becomes of the timestamps.
    pub max_timestamp: MaxTimestamp,
}

/// What a stamp does to the timestamps of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxTimestamp {
    /// Nothing: the batch was built here.
    Keep,
    /// The topic has CreateTime: the header's maximum becomes what the records really hold
    /// ([`crate::CheckedRecords::max_timestamp`]). Costs a checksum only if a client lied.
    CreateTime(i64),
    /// The topic has LogAppendTime: all records get this time, in milliseconds since 1970. Costs a
    /// checksum.
    LogAppendTime(i64),
}

/// The batches that stand one after the other in some bytes.
///
/// Ends at the first that is not whole, and after an error.
#[derive(Clone, Debug)]
pub struct Batches {
    rest: Bytes,
}

impl Batches {
    /// Over `bytes`, which begin with a batch.
    pub fn new(bytes: Bytes) -> Self {
        Self { rest: bytes }
    }

    /// What was not read: an incomplete batch, or what an error was about.
    pub fn rest(&self) -> &Bytes {
        &self.rest
    }
}

impl Iterator for Batches {
    type Item = Result<Batch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = Batch::read(&self.rest).transpose()?;
        match &batch {
            Ok(batch) => self.rest = self.rest.slice(batch.size()..),
            Err(_) => self.rest.clear(),
        }
        Some(batch)
    }
}

/// The size of the batch of any version at the start of `bytes`; `None` if it is not whole.
pub(crate) fn next_batch_bytes(bytes: &[u8]) -> Result<Option<usize>, BatchError> {
    let Some(length) = bytes.get(offsets::LENGTH..).and_then(|rest| rest.first_chunk()) else {
        return Ok(None);
    };
    let length = i32::from_be_bytes(*length);
    if length < LENGTH_MIN {
        return Err(BatchError::LengthTooSmall { length, min: LENGTH_MIN });
    }
    if bytes.len() < PREFIX_BYTES {
        return Ok(None);
    }
    let magic = bytes[offsets::MAGIC] as i8;
    if !(0..=MAGIC).contains(&magic) {
        return Err(BatchError::UnknownMagic(magic));
    }
    let size = length as usize + LOG_OVERHEAD_BYTES;
    Ok((size <= bytes.len()).then_some(size))
}

/// CRC-32C, the checksum of batches.
pub fn crc_of(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The checksum that `header` should have in front of `record_bytes`.
///
/// Hashing the records again is cheaper than combining their old checksum with the header's, for
/// every size that a batch has: a combination squares matrices.
pub(crate) fn crc_of_parts(header: &BatchHeader, record_bytes: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&header.write()[offsets::ATTRIBUTES..]);
    digest.update(record_bytes);
    digest.finalize() as u32
}
