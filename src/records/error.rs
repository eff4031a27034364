//! What can be wrong with a batch, and which error code Kafka answers it with.

/// The Kafka error codes that a batch can cause, by number: this crate does not know the protocol.
pub mod code {
    /// `UNKNOWN_SERVER_ERROR`: what Kafka answers where its own code threw an unexpected exception.
    pub const UNKNOWN_SERVER_ERROR: i16 = -1;
    /// `CORRUPT_MESSAGE`, retriable.
    pub const CORRUPT_MESSAGE: i16 = 2;
    /// `MESSAGE_TOO_LARGE`.
    pub const MESSAGE_TOO_LARGE: i16 = 10;
    /// `INVALID_TIMESTAMP`.
    pub const INVALID_TIMESTAMP: i16 = 32;
    /// `UNSUPPORTED_COMPRESSION_TYPE`.
    pub const UNSUPPORTED_COMPRESSION_TYPE: i16 = 76;
    /// `INVALID_RECORD`.
    pub const INVALID_RECORD: i16 = 87;
}

/// How many records of a batch are named at most when they are rejected one by one. Kafka names
/// all; a batch can have more than a hundred thousand.
pub const RECORD_ERRORS_MAX: usize = 100;

/// Why a batch cannot be read, or is not accepted from a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The length field is below what any format needs. `CORRUPT_MESSAGE`.
    #[error("record size {length} is less than the minimum record overhead ({min})")]
    LengthTooSmall {
        /// What the length field says.
        length: i32,
        /// The least that it can say.
        min: i32,
    },
    /// No format has this version. `CORRUPT_MESSAGE`.
    #[error("invalid magic found in record: {0}")]
    UnknownMagic(i8),
    /// The checksum does not fit the bytes. `CORRUPT_MESSAGE`.
    #[error("record is corrupt (stored crc = {stored}, computed crc = {computed})")]
    Crc {
        /// The header's checksum.
        stored: u32,
        /// That of the bytes.
        computed: u32,
    },
    /// There is no whole batch in the bytes. `INVALID_RECORD`.
    #[error("there is no whole record batch")]
    NoBatch,
    /// A format version that Kafka 4 no longer takes. `INVALID_RECORD`.
    #[error("only record batches with magic version 2 are allowed, not {0}")]
    OldMagic(i8),
    /// More than one batch for a partition. `INVALID_RECORD`.
    #[error("only exactly one record batch per partition is allowed")]
    SeveralBatches,
    /// A produced batch begins at 0: the broker gives the offset. `INVALID_RECORD`.
    #[error("the baseOffset of the record batch should be 0, but it is {0}")]
    BaseOffset(i64),
    /// The last offset lies before the first. `INVALID_RECORD`.
    #[error("batch has an invalid last offset delta {0}")]
    OffsetRange(i32),
    /// A batch of no or a negative number of records. `INVALID_RECORD`.
    #[error("invalid reported count for record batch: {0}")]
    Count(i32),
    /// Count and offsets contradict each other. `INVALID_RECORD`.
    #[error(
        "inconsistent batch offset range [0, {last_offset_delta}] and count of records {count}"
    )]
    CountMismatch {
        /// The header's count.
        count: i32,
        /// The header's last offset delta.
        last_offset_delta: i32,
    },
    /// Clients write no control records. `INVALID_RECORD`.
    #[error("clients are not allowed to write control records")]
    Control,
    /// An idempotent producer numbers its records. `INVALID_RECORD`.
    #[error(
        "invalid sequence number {base_sequence} in record batch with producerId {producer_id}"
    )]
    Sequence {
        /// Whose batch.
        producer_id: i64,
        /// The negative sequence.
        base_sequence: i32,
    },
    /// A record's bytes make no sense. `INVALID_RECORD`.
    #[error("record {index}: {fault}")]
    Record {
        /// Which record, from 0.
        index: u32,
        /// What is wrong with it.
        fault: RecordFault,
    },
    /// Bytes follow the last record. `INVALID_RECORD`.
    #[error("incorrect declared batch size, records still remaining")]
    BytesAfterRecords,
    /// Records that are whole, but not accepted. `INVALID_TIMESTAMP` when one of them was rejected
    /// for its timestamp, `INVALID_RECORD` else.
    #[error("{} records are not accepted", .0.total)]
    Rejected(RecordErrors),
    /// Larger than `max.message.bytes`. `MESSAGE_TOO_LARGE`.
    #[error("the record batch size is {bytes} bytes which exceeds the maximum of {max}")]
    TooLarge {
        /// Size of the batch.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Its records take more than [`crate::PLAIN_BYTES_MAX`] without compression.
    /// `MESSAGE_TOO_LARGE`, upon which Kafka's producer sends them in smaller batches.
    #[error("the records take more than {} bytes without compression", crate::PLAIN_BYTES_MAX)]
    TooLargePlain,
    /// Zstandard in a Produce request below version 7. `UNSUPPORTED_COMPRESSION_TYPE`.
    #[error("zstd is not allowed in this version of the request")]
    ZstdNotAllowed,
    /// A codec number that nobody has given out. `UNKNOWN_SERVER_ERROR`, as Kafka answers.
    #[error("unknown compression type id: {0}")]
    UnknownCodec(u8),
    /// The compressed stream is broken. `UNKNOWN_SERVER_ERROR`, as Kafka answers.
    #[error("failed to decompress record stream: {0}")]
    Compression(String),
}

impl BatchError {
    /// The code that Kafka answers a Produce request with; see [`code`].
    pub fn code(&self) -> i16 {
        match self {
            BatchError::LengthTooSmall { .. }
            | BatchError::UnknownMagic(_)
            | BatchError::Crc { .. } => code::CORRUPT_MESSAGE,
            BatchError::NoBatch
            | BatchError::OldMagic(_)
            | BatchError::SeveralBatches
            | BatchError::BaseOffset(_)
            | BatchError::OffsetRange(_)
            | BatchError::Count(_)
            | BatchError::CountMismatch { .. }
            | BatchError::Control
            | BatchError::Sequence { .. }
            | BatchError::Record { .. }
            | BatchError::BytesAfterRecords => code::INVALID_RECORD,
            BatchError::Rejected(errors) if errors.any_timestamp => code::INVALID_TIMESTAMP,
            BatchError::Rejected(_) => code::INVALID_RECORD,
            BatchError::TooLarge { .. } | BatchError::TooLargePlain => code::MESSAGE_TOO_LARGE,
            BatchError::ZstdNotAllowed => code::UNSUPPORTED_COMPRESSION_TYPE,
            BatchError::UnknownCodec(_) | BatchError::Compression(_) => code::UNKNOWN_SERVER_ERROR,
        }
    }
}

/// What is wrong with the bytes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// The bytes end within the record.
    #[error("the record reaches past the end of the batch")]
    Truncated,
    /// A number of variable length does not end.
    #[error("found invalid record structure")]
    Varint,
    /// The size is negative.
    #[error("invalid record size: {0} is negative")]
    NegativeSize(i32),
    /// The size is above `max.decompressed.message.bytes` (or another limit of the reader).
    #[error("invalid record size: {bytes} exceeds the configured maximum record size of {max}")]
    TooLarge {
        /// Size of the record's body.
        bytes: i32,
        /// The limit.
        max: usize,
    },
    /// The fields take more or fewer bytes than the size says.
    #[error("invalid record size: {0} bytes were expected in the record")]
    SizeMismatch(i32),
    /// A negative number of headers, or more than could follow.
    #[error("found invalid number of record headers {0}")]
    HeaderCount(i32),
    /// A header without a key.
    #[error("invalid negative header key size {0}")]
    HeaderKeySize(i32),
}

/// Records that were rejected one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordErrors {
    /// How many.
    pub total: u32,
    /// Whether one of them was for its timestamp.
    pub any_timestamp: bool,
    /// The first of them, [`RECORD_ERRORS_MAX`] at most, for the response's `record_errors`.
    pub first: Vec<RecordError>,
}

impl RecordErrors {
    pub(crate) fn push(&mut self, error: RecordError) {
        self.total += 1;
        self.any_timestamp |= !matches!(error.why, RejectedRecord::NoKey);
        if self.first.len() < RECORD_ERRORS_MAX {
            self.first.push(error);
        }
    }

    /// The `error_message` of a response about `partition`, in Kafka's words.
    pub fn sentence(&self, partition: &str) -> String {
        if self.any_timestamp {
            return "One or more records have been rejected due to invalid timestamp".to_owned();
        }
        let shown = self.first.iter().take(3).map(|RecordError { index, why }| {
            format!("RecordError(batchIndex={index}, message='{}')", why.sentence(partition))
        });
        format!(
            "One or more records have been rejected due to {} record errors in total, and only \
             showing the first three errors at most: [{}]",
            self.total,
            shown.collect::<Vec<_>>().join(", ")
        )
    }
}

/// One rejected record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// Which record of the batch, from 0.
    pub index: u32,
    /// Why.
    pub why: RejectedRecord,
}

/// Why a record that can be read is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectedRecord {
    /// A compacted topic finds a record by its key.
    #[error("Compacted topic cannot accept message without key")]
    NoKey,
    /// Too far from the broker's time (`message.timestamp.before.max.ms`, `.after.max.ms`).
    #[error(
        "Timestamp {timestamp} of message with offset {offset} is out of range. The timestamp \
         should be within [{from}, {to}]"
    )]
    Timestamp {
        /// The record's.
        timestamp: i64,
        /// Its offset within the batch.
        offset: i64,
        /// The earliest that is accepted.
        from: i64,
        /// The latest that is accepted.
        to: i64,
    },
    /// Only a broker marks a batch as LogAppendTime.
    #[error(
        "Invalid timestamp type in message. Producer should not set timestamp type to \
         LogAppendTime."
    )]
    LogAppendTime,
}

impl RejectedRecord {
    /// The message of a response about `partition`, in Kafka's words.
    pub fn sentence(&self, partition: &str) -> String {
        match self {
            Self::NoKey => format!("{self} in topic partition {partition}"),
            Self::Timestamp { .. } | Self::LogAppendTime => self.to_string(),
        }
    }
}
