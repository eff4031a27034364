//! The settings of a broker that groups obey.

use base::Duration;
use coordinator::WriteRules;

/// The settings. `Default` has Kafka's.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// `group.min.session.timeout.ms`.
    pub session_timeout_ms_min: i32,
    /// `group.max.session.timeout.ms`.
    pub session_timeout_ms_max: i32,
    /// `group.initial.rebalance.delay.ms`.
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size`.
    pub group_size_max: usize,
    /// `offset.metadata.max.bytes`; Kafka counts UTF-16 units, and so is done here.
    pub offset_metadata_units_max: usize,
    /// `offsets.retention.minutes`, in milliseconds.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`.
    pub retention_check_interval_ms: i64,
    /// How batches are written to `__consumer_offsets`.
    pub write: WriteRules,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            session_timeout_ms_min: 6_000,
            session_timeout_ms_max: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            group_size_max: i32::MAX as usize,
            offset_metadata_units_max: 4_096,
            offsets_retention_ms: 7 * 24 * 3_600_000,
            retention_check_interval_ms: 600_000,
            write: WriteRules::default(),
        }
    }
}

/// A span that came as milliseconds; a negative one is none.
pub(crate) fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or_default())
}
