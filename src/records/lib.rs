//! Record batches, format version 2 (magic 2): the unit that clients send, that logs keep and that
//! consumers get, byte for byte the same in all three places.
//!
//! Reads them in place from [`bytes::Bytes`], checks what a client sent, makes the 61-byte header
//! with what the broker changes, builds batches, and knows the four compression codecs.
//!
//! Depends on: `base`. Deliberately absent: the older message formats (Apache Kafka 4 dropped
//! them), the wire protocol (errors name Kafka's codes by number), files and segments, and the
//! state of producers (sequences are only checked for shape).

mod batch;
mod builder;
mod check;
mod codec;
mod control;
mod error;
pub mod files;
mod header;
mod lz4;
#[cfg(test)]
mod proof;
mod reader;
mod rebuild;
mod record;
mod retain;
mod search;
mod snappy;
mod walk;

pub use batch::{Batch, Batches, MaxTimestamp, Stamp, crc_of};
pub use builder::{BatchBuilder, NewRecord};
pub use check::{CheckedRecords, PLAIN_BYTES_MAX, ProduceRules, RecordsCheck, single_batch};
pub use codec::{
    Codec, Compression, GZIP_LEVEL_DEFAULT, GZIP_LEVEL_MAX, GZIP_LEVEL_MIN, LZ4_LEVEL_DEFAULT,
    LZ4_LEVEL_MAX, LZ4_LEVEL_MIN, ZSTD_LEVEL_DEFAULT, ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN,
    ZSTD_WINDOW_LOG_MAX,
};
pub use control::{
    CONTROL_KEY_BYTES, ControlKey, ControlType, END_TRANSACTION_VALUE_BYTES, EndTransaction,
    end_transaction_marker,
};
pub use error::{
    BatchError, RECORD_ERRORS_MAX, RecordError, RecordErrors, RecordFault, RejectedRecord, code,
};
pub use header::{
    BatchHeader, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, NO_SEQUENCE, NO_TIMESTAMP, TimestampType,
    decrement_sequence, increment_sequence, offsets,
};
pub use reader::RecordReader;
pub use rebuild::{Rebuild, rebuild};
pub use record::{Headers, Record, RecordHeader};
pub use retain::{Keyed, RETAINED_BYTES_MAX, RecordKeys, RetainedRecords, without_records};
pub use search::{RecordSearch, Searched};
