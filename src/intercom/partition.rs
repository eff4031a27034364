//! What a connection's home shard asks of the shard that owns a partition.

use api::{Part, SocketId};
use base::{
    Instant, LeaderEpoch, Offset, ProducerEpoch, ProducerId, ShardId, Token, TopicPartition,
};
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
    /// Who waits where there is too little.
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

/// Who waits for more than a [`FetchAsk`] found. The owner reads again when there is news, and
/// tells what it has once when it is enough ([`News`]).
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// The call that waits.
    pub call: Token,
    /// The connection that it came by. A connection waits for one call at a time: a new watch of
    /// it replaces the old one.
    pub connection: SocketId,
    /// With so many bytes the request can be answered.
    pub bytes_min: u32,
    /// Whether other owners are asked too. Then each tells all that is new, as none knows what
    /// the others have; one that is asked alone tells nothing below `bytes_min`.
    pub is_shared: bool,
    /// Nobody waits any more after this.
    pub until: Instant,
}

/// What a [`Watch`] has waited for.
#[derive(Debug)]
pub struct News {
    /// The call that waits.
    pub call: Token,
    /// As in the answer to its ask: one entry a partition, in its order.
    pub partitions: Vec<Fetched>,
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
    /// How many of them are kept at least when `parts` are cut, so that a whole batch is left.
    pub bytes_uncut: u32,
    /// Who aborted a transaction that has records among them, and where it began; only for those
    /// who read what was committed.
    pub aborted: Vec<(ProducerId, Offset)>,
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
            bytes_uncut: 0,
            aborted: Vec::new(),
        }
    }

    /// Cuts the records to what is left of a request's bytes, or leaves none where no whole batch
    /// would be left (`ReplicaManager.readFromLog`: the last batch may be cut, the first may not).
    pub fn cut_to(&mut self, bytes_max: u32) {
        if self.bytes <= bytes_max {
            return;
        }
        self.bytes = if self.bytes_uncut <= bytes_max { bytes_max } else { 0 };
        let mut left = self.bytes as usize;
        self.parts.retain_mut(|part| {
            part.truncate(left);
            left -= part.len();
            !part.is_empty()
        });
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

/// Tell who writes to a partition (DescribeProducers).
#[derive(Clone, Copy, Debug)]
pub struct ProducersPartition {
    /// Which.
    pub key: PartitionKey,
}

/// Who writes to a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundProducers {
    /// `NONE`, or why it is not known.
    pub error: ErrorCode,
    /// The producers that are remembered, in no particular order.
    pub producers: Vec<ActiveProducer>,
}

/// One producer that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    /// Who.
    pub producer_id: ProducerId,
    /// The epoch that wrote last, −1 for none.
    pub producer_epoch: ProducerEpoch,
    /// The sequence of its last record, −1 for none in this epoch.
    pub last_sequence: i32,
    /// The timestamp of its last batch or marker, in milliseconds since 1970.
    pub last_timestamp: i64,
    /// The epoch of the coordinator that ended its last transaction, −1 for none.
    pub coordinator_epoch: i32,
    /// Where its open transaction begins.
    pub transaction_start: Option<Offset>,
}

impl FoundProducers {
    /// A partition whose producers cannot be told.
    pub fn refused(error: ErrorCode) -> Self {
        Self { error, producers: Vec::new() }
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
    /// By how many offsets it is behind the log that it copies; −1 where that is offline.
    pub offset_lag: i64,
    /// Whether it is a copy that will take the place of a log in another directory.
    pub is_future: bool,
}

/// Keep a replica in this log directory (AlterReplicaLogDirs). It is told to every data shard:
/// whoever makes the log of a partition that is not there yet has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedDirectory {
    /// Which partition.
    pub partition: TopicPartition,
    /// The same, and who owns it and answers; none while nobody does.
    pub owned: Option<(PartitionKey, ShardId)>,
    /// The directory, by its index.
    pub directory: u16,
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{FileRef, FileSlice};

    fn fetched(bytes_uncut: u32) -> Fetched {
        let file = FileRef::new("/data/t-0/0.log");
        let parts = vec![
            Part::Bytes(Bytes::from_static(&[1; 10])),
            Part::File(FileSlice { file, position: 7, length: 20 }),
            Part::Bytes(Bytes::from_static(&[2; 5])),
        ];
        Fetched { parts, bytes: 35, bytes_uncut, ..Fetched::refused(ErrorCode::NONE) }
    }

    #[test]
    fn records_are_cut_to_what_is_left_but_for_a_first_batch() {
        for (bytes_max, expected) in [
            (99, vec![10, 20, 5]),
            (35, vec![10, 20, 5]),
            (34, vec![10, 20, 4]),
            (30, vec![10, 20]),
            (12, vec![10, 2]),
            (10, vec![10]),
            (9, vec![]),
            (0, vec![]),
        ] {
            let mut fetched = fetched(10);
            fetched.cut_to(bytes_max);
            let lengths: Vec<usize> = fetched.parts.iter().map(Part::len).collect();
            assert_eq!(lengths, expected, "{bytes_max}");
            assert_eq!(fetched.bytes as usize, lengths.iter().sum(), "{bytes_max}");
        }
    }
}
