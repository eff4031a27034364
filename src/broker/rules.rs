//! What a topic's configuration demands, in the form in which a partition asks for it.

use base::Duration;
use commitlog::LogConfig;
use config::{BrokerConfig, TopicConfig};
use coordinator::WriteRules;
use group::GroupConfig;
use records::{Batch, Codec, Compression, ProduceRules, TimestampType};

/// The rules of one topic.
#[derive(Clone, Debug)]
pub(crate) struct TopicRules {
    /// Of its logs.
    pub(crate) log: LogConfig,
    /// `max.message.bytes`.
    pub(crate) batch_bytes_max: usize,
    /// `max.decompressed.message.bytes`.
    pub(crate) decompressed_record_bytes_max: usize,
    /// Whether `cleanup.policy` has `compact`.
    pub(crate) compacted: bool,
    /// `message.timestamp.type`.
    pub(crate) timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub(crate) timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub(crate) timestamp_after_max_ms: i64,
    /// The codec that batches are brought to; none where the producer's is kept.
    pub(crate) compression: Option<Compression>,
    /// Records after which the log is synced before they are acknowledged (`flush.messages`).
    pub(crate) flush_messages: i64,
    /// Time after which appended records are synced (`flush.ms`); none where the kernel decides.
    pub(crate) flush_after: Option<Duration>,
}

impl TopicRules {
    /// The rules that a configuration gives.
    pub(crate) fn of(config: &TopicConfig, broker: &BrokerConfig) -> Self {
        let log = LogConfig {
            segment_bytes: unsigned(config.segment_bytes),
            // What is not rolled is not cleaned (`LogConfig.maxSegmentMs`).
            segment_ms: match config.compact {
                true => config.segment_ms.min(config.max_compaction_lag_ms),
                false => config.segment_ms,
            },
            segment_jitter_ms: config.segment_jitter_ms,
            segment_index_bytes: unsigned(config.segment_index_bytes),
            index_interval_bytes: unsigned(config.index_interval_bytes),
            file_delete_delay: milliseconds(config.file_delete_delay_ms),
            retention_ms: (config.retention_ms >= 0).then_some(config.retention_ms),
            retention_bytes: u64::try_from(config.retention_bytes).ok(),
            delete_by_retention: config.delete,
            compact: config.compact,
            delete_retention_ms: config.delete_retention_ms,
            min_cleanable_dirty_ratio: config.min_cleanable_dirty_ratio,
            min_compaction_lag_ms: config.min_compaction_lag_ms,
            max_compaction_lag_ms: config.max_compaction_lag_ms,
            producer_id_expiration_ms: i64::from(broker.simple.producer_id_expiration_ms),
        };
        Self {
            log,
            batch_bytes_max: config.max_message_bytes.max(0) as usize,
            decompressed_record_bytes_max: config.max_decompressed_message_bytes.max(0) as usize,
            compacted: config.compact,
            timestamp_type: match config.timestamp_type {
                config::TimestampType::CreateTime => TimestampType::CreateTime,
                config::TimestampType::LogAppendTime => TimestampType::LogAppendTime,
            },
            timestamp_before_max_ms: config.timestamp_before_max_ms,
            timestamp_after_max_ms: config.timestamp_after_max_ms,
            compression: compression_of(config),
            flush_messages: config.flush_messages,
            flush_after: (config.flush_ms != i64::MAX).then(|| milliseconds(config.flush_ms)),
        }
    }

    /// What a produced batch is checked against at this time.
    pub(crate) fn produce(&self, now_ms: i64) -> ProduceRules {
        ProduceRules {
            batch_bytes_max: self.batch_bytes_max,
            decompressed_record_bytes_max: self.decompressed_record_bytes_max,
            key_required: self.compacted,
            timestamp_type: self.timestamp_type,
            timestamp_before_max_ms: self.timestamp_before_max_ms,
            timestamp_after_max_ms: self.timestamp_after_max_ms,
            now_ms,
        }
    }

    /// The compression that a batch is rebuilt with when it keeps its codec.
    pub(crate) fn same_compression(&self, batch: &Batch) -> Compression {
        batch.header().codec().unwrap_or(Codec::None).into()
    }
}

fn compression_of(config: &TopicConfig) -> Option<Compression> {
    match config.compression {
        config::Compression::Producer => None,
        config::Compression::Uncompressed => Some(Compression::None),
        config::Compression::Gzip => Some(Compression::Gzip { level: config.gzip_level }),
        config::Compression::Snappy => Some(Compression::Snappy),
        config::Compression::Lz4 => Some(Compression::Lz4),
        config::Compression::Zstd => Some(Compression::Zstd { level: config.zstd_level }),
    }
}

fn unsigned(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

fn milliseconds(value: i64) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}

/// What the broker's settings demand of classic groups.
pub(crate) fn group_config(config: &BrokerConfig) -> GroupConfig {
    let simple = &config.simple;
    let codec = u8::try_from(simple.offsets_topic_compression_codec).ok().and_then(Codec::from_id);
    GroupConfig {
        session_timeout_ms_min: simple.group_min_session_timeout_ms,
        session_timeout_ms_max: simple.group_max_session_timeout_ms,
        initial_rebalance_delay_ms: simple.group_initial_rebalance_delay_ms,
        group_size_max: usize::try_from(simple.group_max_size).unwrap_or(usize::MAX),
        offset_metadata_units_max: usize::try_from(simple.offset_metadata_max_bytes).unwrap_or(0),
        offsets_retention_ms: i64::from(simple.offsets_retention_minutes) * 60_000,
        retention_check_interval_ms: simple.offsets_retention_check_interval_ms,
        write: WriteRules {
            compression: codec.unwrap_or(Codec::None).into(),
            batch_bytes_max: usize::try_from(simple.message_max_bytes).unwrap_or(0),
        },
    }
}
