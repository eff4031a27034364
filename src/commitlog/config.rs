//! What is configured for one log.

use std::path::PathBuf;

use base::{Duration, Offset, TopicId, TopicPartition};

/// The settings of a topic that its logs obey, under Kafka's names; where a setting stands for
/// both a topic and the broker, the one that holds.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// `segment.bytes`: the size of a segment's records, at most.
    pub segment_bytes: u32,
    /// `segment.ms`: how far timestamps within a segment may lie apart, in milliseconds.
    pub segment_ms: i64,
    /// `segment.jitter.ms`, drawn for this log: how much earlier it rolls, in milliseconds.
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`: the size of each index of a segment, at most.
    pub segment_index_bytes: u32,
    /// `index.interval.bytes`: how much is written between two entries of an index.
    pub index_interval_bytes: u32,
    /// `file.delete.delay.ms`: how long a file that is not needed stays.
    pub file_delete_delay: Duration,
    /// `retention.ms`: the age at which a segment goes, in milliseconds; none for never.
    pub retention_ms: Option<i64>,
    /// `retention.bytes`: the size from which the oldest segments go; none for never.
    pub retention_bytes: Option<u64>,
    /// Whether `cleanup.policy` holds `delete`.
    pub delete_by_retention: bool,
    /// Whether `cleanup.policy` holds `compact`.
    pub compact: bool,
    /// `delete.retention.ms`: how long a tombstone stays once what it deletes is gone, in
    /// milliseconds.
    pub delete_retention_ms: i64,
    /// `min.cleanable.dirty.ratio`: the log is cleaned once this part of it was not.
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`: the age below which a record is not touched, in milliseconds.
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`: the age above which a record makes the log due, in milliseconds.
    pub max_compaction_lag_ms: i64,
    /// `producer.id.expiration.ms`: how long a producer is remembered that writes nothing, in
    /// milliseconds.
    pub producer_id_expiration_ms: i64,
}

impl Default for LogConfig {
    /// Kafka's defaults (`LogConfig`).
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3600 * 1000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            file_delete_delay: Duration::from_secs(60),
            retention_ms: Some(7 * 24 * 3600 * 1000),
            retention_bytes: None,
            delete_by_retention: true,
            compact: false,
            delete_retention_ms: 24 * 3600 * 1000,
            min_cleanable_dirty_ratio: 0.5,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            producer_id_expiration_ms: 24 * 3600 * 1000,
        }
    }
}

/// What the checkpoints of a log directory say of one log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoints {
    /// Whether the broker stopped in order.
    pub clean_shutdown: bool,
    /// Everything below it was durable, 0 where that is not known.
    pub recovery_point: Offset,
    /// The first offset that may be read, 0 where there is no entry.
    pub log_start_offset: Offset,
    /// Everything below it was compacted; none where there is no entry.
    pub first_dirty: Option<Offset>,
}

/// What a log is made with.
#[derive(Clone, Debug)]
pub struct LogParams {
    /// Its folder.
    pub directory: PathBuf,
    /// The partition.
    pub partition: TopicPartition,
    /// The id of its topic.
    pub topic_id: TopicId,
    /// Whether a folder that belongs to another topic is renamed; else it is left as it is, and
    /// cannot be read.
    pub sets_strays_aside: bool,
    /// Its settings.
    pub config: LogConfig,
}
