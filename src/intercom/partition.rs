//! What a connection's home shard asks of the shard that owns a partition.

use api::Part;
use base::{Instant, LeaderEpoch, Offset, Token};
use bytes::Bytes;
use protocol::ErrorCode;

use crate::PartitionKey;

/// Append these batches (Produce, and what coordinators write).
#[derive(Debug)]
pub struct AppendAsk {
    /// One entry a partition, in the order of the request.
    pub partitions: Vec<AppendPartition>,
}

/// What goes to one partition.
#[derive(Debug)]
pub struct AppendPartition {
    /// Which.
    pub key: PartitionKey,
    /// The batches as the client sent them: unchecked, a slice of what was received.
    pub records: Bytes,
}

/// What came of an [`AppendAsk`], in its order. It comes when every partition's records are as
/// durable as the topic's flush policy demands.
#[derive(Debug)]
pub struct AppendAnswer {
    /// One entry a partition.
    pub partitions: Vec<Appended>,
}

/// What came of an append to one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// `NONE`, or why nothing was appended.
    pub error: ErrorCode,
    /// A sentence for the client, where the code does not say enough.
    pub message: Option<String>,
    /// The offset of the first record; −1 with an error.
    pub base_offset: Offset,
    /// The time that the broker put into the records, −1 where the topic keeps the client's.
    pub log_append_time_ms: i64,
    /// The first offset that the log still has; −1 with an error.
    pub log_start_offset: Offset,
    /// The records that caused the whole batch to be refused: index in the batch, and why.
    pub record_errors: Vec<(i32, String)>,
}

impl Appended {
    /// A refusal.
    pub fn refused(error: ErrorCode, message: Option<String>) -> Self {
        Self {
            error,
            message,
            base_offset: Offset(-1),
            log_append_time_ms: -1,
            log_start_offset: Offset(-1),
            record_errors: Vec::new(),
        }
    }
}

/// Read these partitions (Fetch).
#[derive(Clone, Debug)]
pub struct FetchAsk {
    /// One entry a partition, in the order in which they are to be served.
    pub partitions: Vec<FetchPartition>,
    /// How many bytes of records the whole request may still have.
    pub bytes_max: u32,
    /// Whether only what is below the last stable offset may be read.
    pub read_committed: bool,
    /// If the partitions have fewer than `bytes_min` bytes together and no error: tell this shard
    /// when there is more.
    pub watch: Option<Watch>,
}

/// One partition of a [`FetchAsk`].
#[derive(Clone, Copy, Debug)]
pub struct FetchPartition {
    /// Which.
    pub key: PartitionKey,
    /// From where on.
    pub offset: Offset,
    /// At most this many bytes, but for a first batch that is larger.
    pub bytes_max: u32,
    /// The leader epoch that the client knows, or −1.
    pub leader_epoch: LeaderEpoch,
}

/// Who is to be told of news, and until when. It is told once; a new watch of the same token
/// replaces the old one.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// The asker's name for it.
    pub id: Token,
    /// Fewer bytes than this are not worth an answer.
    pub bytes_min: u32,
    /// Nobody waits any more after this.
    pub until: Instant,
}

/// The answer to a [`FetchAsk`], in its order.
#[derive(Debug)]
pub struct FetchAnswer {
    /// One entry a partition.
    pub partitions: Vec<Fetched>,
    /// Whether the watch was set.
    pub watching: bool,
}

/// What one partition has.
#[derive(Debug)]
pub struct Fetched {
    /// `NONE`, or why there are no records.
    pub error: ErrorCode,
    /// Records below it are on every replica; −1 with an error.
    pub high_watermark: Offset,
    /// Records below it belong to decided transactions; −1 with an error.
    pub last_stable_offset: Offset,
    /// The first offset that the log still has; −1 with an error.
    pub log_start_offset: Offset,
    /// The records: whole batches but for the last one, which may be cut.
    pub parts: Vec<Part>,
    /// How many bytes `parts` have.
    pub bytes: u32,
}

impl Fetched {
    /// A partition that cannot be read.
    pub fn refused(error: ErrorCode) -> Self {
        Self {
            error,
            high_watermark: Offset(-1),
            last_stable_offset: Offset(-1),
            log_start_offset: Offset(-1),
            parts: Vec::new(),
            bytes: 0,
        }
    }
}

/// Find an offset (ListOffsets).
#[derive(Clone, Copy, Debug)]
pub struct OffsetsPartition {
    /// Which.
    pub key: PartitionKey,
    /// The leader epoch that the client knows, or −1.
    pub leader_epoch: LeaderEpoch,
    /// A time in milliseconds, or one of the special values of ListOffsets (−1 latest,
    /// −2 earliest, −3 max timestamp, −4 earliest local, −5 latest tiered, −6 earliest pending
    /// upload).
    pub timestamp: i64,
    /// Whether "latest" means the last stable offset.
    pub read_committed: bool,
}

/// An offset that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundOffset {
    /// `NONE`, or why there is none.
    pub error: ErrorCode,
    /// The offset; −1 where no record is that late.
    pub offset: Offset,
    /// The record's timestamp; −1 where a special value was asked for.
    pub timestamp: i64,
    /// The leader epoch of the record, or −1.
    pub leader_epoch: LeaderEpoch,
}

impl FoundOffset {
    /// An offset that cannot be found.
    pub fn refused(error: ErrorCode) -> Self {
        Self { error, offset: Offset(-1), timestamp: -1, leader_epoch: LeaderEpoch::NONE }
    }
}

/// Find the end of an epoch (OffsetForLeaderEpoch).
#[derive(Clone, Copy, Debug)]
pub struct EpochEndPartition {
    /// Which partition.
    pub key: PartitionKey,
    /// The leader epoch that the client knows, or −1.
    pub current_epoch: LeaderEpoch,
    /// The epoch whose end is asked for.
    pub epoch: LeaderEpoch,
}

/// Where an epoch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// `NONE`, or why it is not known.
    pub error: ErrorCode,
    /// The largest epoch that is at most the one asked for; −1 where there is none.
    pub epoch: LeaderEpoch,
    /// The offset behind its last record; −1 where there is none.
    pub end_offset: Offset,
}

impl EpochEnd {
    /// An epoch whose end cannot be told.
    pub fn refused(error: ErrorCode) -> Self {
        Self { error, epoch: LeaderEpoch::NONE, end_offset: Offset(-1) }
    }
}

/// Move the log start offset (DeleteRecords).
#[derive(Clone, Copy, Debug)]
pub struct DeletePartition {
    /// Which partition.
    pub key: PartitionKey,
    /// Records below it go; −1 for the high watermark.
    pub before: Offset,
}

/// What came of a [`DeletePartition`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// `NONE`, or why nothing was deleted.
    pub error: ErrorCode,
    /// The new log start offset (the field's name in Kafka is low watermark); −1 with an error.
    pub low_watermark: Offset,
}

impl Deleted {
    /// A partition whose start cannot be moved.
    pub fn refused(error: ErrorCode) -> Self {
        Self { error, low_watermark: Offset(-1) }
    }
}

/// One log in the answer of DescribeLogDirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSize {
    /// Which partition.
    pub key: PartitionKey,
    /// In which of the node's log directories, by index.
    pub directory: u16,
    /// Bytes of its segments.
    pub size_bytes: u64,
}
