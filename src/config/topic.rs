//! The configuration of a topic: its overrides over the broker's defaults (`LogConfig`).

use crate::key::{self, Default};
use crate::properties::Pairs;
use crate::settings::Settings;
use crate::value::{self, Value, invalid};

/// How a topic's records are stored compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As the producer sent them.
    Producer,
    /// Not at all.
    Uncompressed,
    /// By gzip.
    Gzip,
    /// By snappy.
    Snappy,
    /// By lz4.
    Lz4,
    /// By zstd.
    Zstd,
}

/// Which time stands in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer's.
    CreateTime,
    /// The broker's, when it appends.
    LogAppendTime,
}

/// Which partitions' replicas are throttled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThrottledReplicas {
    /// `*`.
    All,
    /// `partition:broker` each.
    These(Vec<String>),
}

/// Every key of a topic with its value, in the order of [`key::TOPIC`].
#[derive(Clone, Debug, PartialEq)]
pub struct TopicValues(Vec<Value>);

impl TopicValues {
    /// What a topic without overrides has on a broker (`KafkaConfig.extractLogConfigMap`).
    pub(crate) fn defaults(broker: &Settings) -> Self {
        let value_of = |key: &key::Key| match (broker.by_synonyms(key), key.default) {
            // Every negative time to keep is one word: for ever.
            (Some(Value::Integer(ms)), _) if key.name == "retention.ms" => {
                Value::Integer(ms.max(-1))
            }
            (Some(value), _) => value,
            (None, Default::Text(text)) => value::parse(key.name, key.kind, text)
                .expect("a default of the table has the type of its key"),
            (None, _) => Value::Null,
        };
        TopicValues(key::TOPIC.keys().iter().map(value_of).collect())
    }

    /// Puts `overrides` over the broker's defaults. The error is Kafka's message.
    pub(crate) fn with(&self, overrides: &Pairs) -> Result<Self, String> {
        let of_both = key::TOPIC.keys().iter().zip(&self.0);
        let values = of_both.map(|(key, default)| match overrides.get(key.name) {
            Some(text) => value::read(key, Some(text)),
            None => value::check(key.name, key.rule, default).map(|()| default.clone()),
        });
        values.collect::<Result<_, _>>().map(TopicValues)
    }

    /// The value of a key.
    pub fn get(&self, name: &str) -> Option<&Value> {
        key::TOPIC.position(name).and_then(|index| self.0.get(index))
    }

    fn value(&self, name: &str) -> &Value {
        self.get(name).unwrap_or_else(|| panic!("{name} is no key of a topic"))
    }

    fn integer(&self, name: &str) -> i64 {
        match self.value(name) {
            Value::Integer(value) => *value,
            other => panic!("{name} is {other}, and no integer"),
        }
    }

    fn int(&self, name: &str) -> i32 {
        i32::try_from(self.integer(name)).expect("its type is INT")
    }

    fn boolean(&self, name: &str) -> bool {
        match self.value(name) {
            Value::Boolean(value) => *value,
            other => panic!("{name} is {other}, and no boolean"),
        }
    }

    fn list(&self, name: &str) -> &[String] {
        match self.value(name) {
            Value::List(values) => values,
            other => panic!("{name} is {other}, and no list"),
        }
    }

    /// The rule that spans two keys of any topic (`LogConfig.validateValues`).
    pub(crate) fn check_compaction_lag(&self) -> Result<(), String> {
        let min = self.integer("min.compaction.lag.ms");
        let max = self.integer("max.compaction.lag.ms");
        if min > max {
            return Err(format!(
                "conflict topic config setting min.compaction.lag.ms ({min}) > \
                 max.compaction.lag.ms ({max})"
            ));
        }
        Ok(())
    }
}

/// The configuration of a topic.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicConfig {
    /// `cleanup.policy` has `compact`.
    pub compact: bool,
    /// `cleanup.policy` has `delete`.
    pub delete: bool,
    /// `compression.type`.
    pub compression: Compression,
    /// `compression.gzip.level`: 1 to 9, or −1 for the codec's own.
    pub gzip_level: i32,
    /// `compression.lz4.level`: 1 to 17.
    pub lz4_level: i32,
    /// `compression.zstd.level`: −131072 to 22.
    pub zstd_level: i32,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// `file.delete.delay.ms`.
    pub file_delete_delay_ms: i64,
    /// `flush.messages`: `i64::MAX` for never.
    pub flush_messages: i64,
    /// `flush.ms`: `i64::MAX` for never.
    pub flush_ms: i64,
    /// `index.interval.bytes`.
    pub index_interval_bytes: i32,
    /// `max.compaction.lag.ms`.
    pub max_compaction_lag_ms: i64,
    /// `max.decompressed.message.bytes`.
    pub max_decompressed_message_bytes: i32,
    /// `max.message.bytes`: the largest batch.
    pub max_message_bytes: i32,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// `min.cleanable.dirty.ratio`: 0 to 1.
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`.
    pub min_compaction_lag_ms: i64,
    /// `min.insync.replicas`.
    pub min_insync_replicas: i32,
    /// `preallocate`.
    pub preallocate: bool,
    /// `retention.bytes`: negative for no limit.
    pub retention_bytes: i64,
    /// `retention.ms`: −1 for no limit.
    pub retention_ms: i64,
    /// `segment.bytes`, or `internal.segment.bytes` where a test has set that.
    pub segment_bytes: i32,
    /// `segment.index.bytes`.
    pub segment_index_bytes: i32,
    /// `segment.jitter.ms`.
    pub segment_jitter_ms: i64,
    /// `segment.ms`.
    pub segment_ms: i64,
    /// `unclean.leader.election.enable`.
    pub unclean_leader_election: bool,
    /// `leader.replication.throttled.replicas`.
    pub leader_throttled: ThrottledReplicas,
    /// `follower.replication.throttled.replicas`.
    pub follower_throttled: ThrottledReplicas,
    /// `remote.storage.enable`.
    pub remote_storage: bool,
    /// `remote.log.copy.disable`.
    pub remote_copy_disabled: bool,
    /// `remote.log.delete.on.disable`.
    pub remote_delete_on_disable: bool,
    /// `remote.copy.lag.ms`: −1 for as long as `local_retention_ms`.
    pub remote_copy_lag_ms: i64,
    /// `remote.copy.lag.bytes`: −1 for as much as `local_retention_bytes`.
    pub remote_copy_lag_bytes: i64,
    /// `local.retention.ms`, or `retention.ms` where it is −2.
    pub local_retention_ms: i64,
    /// `local.retention.bytes`, or `retention.bytes` where it is −2.
    pub local_retention_bytes: i64,
    /// `errors.deadletterqueue.group.enable`.
    pub dead_letter_queue: bool,
}

impl TopicConfig {
    pub(crate) fn from_values(values: &TopicValues) -> Self {
        let policies = values.list("cleanup.policy");
        let has_policy = |name: &str| policies.iter().any(|policy| policy == name);
        let or_whole = |local: &str, whole: &str| match values.integer(local) {
            -2 => values.integer(whole),
            own => own,
        };
        TopicConfig {
            compact: has_policy("compact"),
            delete: has_policy("delete"),
            compression: compression(values),
            gzip_level: values.int("compression.gzip.level"),
            lz4_level: values.int("compression.lz4.level"),
            zstd_level: values.int("compression.zstd.level"),
            delete_retention_ms: values.integer("delete.retention.ms"),
            file_delete_delay_ms: values.integer("file.delete.delay.ms"),
            flush_messages: values.integer("flush.messages"),
            flush_ms: values.integer("flush.ms"),
            index_interval_bytes: values.int("index.interval.bytes"),
            max_compaction_lag_ms: values.integer("max.compaction.lag.ms"),
            max_decompressed_message_bytes: values.int("max.decompressed.message.bytes"),
            max_message_bytes: values.int("max.message.bytes"),
            timestamp_type: timestamp_type(values),
            timestamp_before_max_ms: values.integer("message.timestamp.before.max.ms"),
            timestamp_after_max_ms: values.integer("message.timestamp.after.max.ms"),
            min_cleanable_dirty_ratio: ratio(values),
            min_compaction_lag_ms: values.integer("min.compaction.lag.ms"),
            min_insync_replicas: values.int("min.insync.replicas"),
            preallocate: values.boolean("preallocate"),
            retention_bytes: values.integer("retention.bytes"),
            retention_ms: values.integer("retention.ms"),
            segment_bytes: match values.value("internal.segment.bytes") {
                Value::Null => values.int("segment.bytes"),
                _ => values.int("internal.segment.bytes"),
            },
            segment_index_bytes: values.int("segment.index.bytes"),
            segment_jitter_ms: values.integer("segment.jitter.ms"),
            segment_ms: values.integer("segment.ms"),
            unclean_leader_election: values.boolean("unclean.leader.election.enable"),
            leader_throttled: throttled(values.list("leader.replication.throttled.replicas")),
            follower_throttled: throttled(values.list("follower.replication.throttled.replicas")),
            remote_storage: values.boolean("remote.storage.enable"),
            remote_copy_disabled: values.boolean("remote.log.copy.disable"),
            remote_delete_on_disable: values.boolean("remote.log.delete.on.disable"),
            remote_copy_lag_ms: values.integer("remote.copy.lag.ms"),
            remote_copy_lag_bytes: values.integer("remote.copy.lag.bytes"),
            local_retention_ms: or_whole("local.retention.ms", "retention.ms"),
            local_retention_bytes: or_whole("local.retention.bytes", "retention.bytes"),
            dead_letter_queue: values.boolean("errors.deadletterqueue.group.enable"),
        }
    }
}

fn compression(values: &TopicValues) -> Compression {
    match values.value("compression.type") {
        Value::Text(name) => match name.as_str() {
            "producer" => Compression::Producer,
            "uncompressed" => Compression::Uncompressed,
            "gzip" => Compression::Gzip,
            "snappy" => Compression::Snappy,
            "lz4" => Compression::Lz4,
            "zstd" => Compression::Zstd,
            other => panic!("the rule of compression.type let {other} pass"),
        },
        other => panic!("compression.type is {other}, and no text"),
    }
}

fn timestamp_type(values: &TopicValues) -> TimestampType {
    match values.value("message.timestamp.type") {
        Value::Text(name) if name == "LogAppendTime" => TimestampType::LogAppendTime,
        _ => TimestampType::CreateTime,
    }
}

fn ratio(values: &TopicValues) -> f64 {
    match values.value("min.cleanable.dirty.ratio") {
        Value::Double(ratio) => *ratio,
        other => panic!("min.cleanable.dirty.ratio is {other}, and no double"),
    }
}

fn throttled(values: &[String]) -> ThrottledReplicas {
    match values {
        [star] if star == "*" => ThrottledReplicas::All,
        these => ThrottledReplicas::These(these.to_vec()),
    }
}

/// Whether a topic whose overrides were `old` may have `new` (`LogConfig.validate`). The error is
/// Kafka's message, to be sent with INVALID_CONFIG.
pub(crate) fn check(
    defaults: &TopicValues,
    old: &Pairs,
    new: &Pairs,
    remote_system_enabled: bool,
) -> Result<(), String> {
    if let Some(name) = new.keys().find(|name| key::TOPIC.get(name).is_none()) {
        return Err(format!("Unknown topic config name: {name}"));
    }
    let values = defaults.with(new)?;
    values.check_compaction_lag()?;
    if values.boolean("remote.storage.enable") {
        if !remote_system_enabled {
            return Err("Tiered Storage functionality is disabled in the broker. Topic cannot be \
                        configured with remote log storage."
                .to_owned());
        }
        return check_remote(&values);
    }
    let was_remote =
        old.get("remote.storage.enable").is_some_and(|text| text.eq_ignore_ascii_case("true"));
    if was_remote && !values.boolean("remote.log.delete.on.disable") {
        return Err(
            "It is invalid to disable remote storage without deleting remote data. If you \
                    want to keep the remote data and turn to read only, please set \
                    `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to \
                    disable remote storage and delete all remote data, please set \
                    `remote.storage.enable=false,remote.log.delete.on.disable=true`."
                .to_owned(),
        );
    }
    Ok(())
}

/// The rules of a topic whose old segments go to a remote store (KIP-405).
fn check_remote(values: &TopicValues) -> Result<(), String> {
    if values.list("cleanup.policy").iter().any(|policy| policy != "delete") {
        return Err("Remote log storage only supports topics with cleanup.policy=delete or \
                    cleanup.policy being an empty list."
            .to_owned());
    }
    check_local_retention(values, "local.retention.bytes", "retention.bytes")?;
    check_local_retention(values, "local.retention.ms", "retention.ms")?;
    check_copy_lag(values, "remote.copy.lag.ms", "local.retention.ms", "retention.ms")?;
    check_copy_lag(values, "remote.copy.lag.bytes", "local.retention.bytes", "retention.bytes")?;
    if !values.boolean("remote.log.copy.disable") {
        return Ok(());
    }
    for (local, whole) in
        [("local.retention.bytes", "retention.bytes"), ("local.retention.ms", "retention.ms")]
    {
        if values.integer(local) != -2 && values.integer(local) != values.integer(whole) {
            return Err(format!(
                "When `remote.log.copy.disable` is set to true, the `{local}` and `{whole}` must \
                 be set to the identical value because there will be no more logs copied to the \
                 remote storage."
            ));
        }
    }
    Ok(())
}

/// What is kept here may not be more than what is kept at all.
fn check_local_retention(values: &TopicValues, local: &str, whole: &str) -> Result<(), String> {
    let kept = values.integer(whole);
    let kept_here = values.integer(local);
    if kept < 0 || kept_here == -2 {
        return Ok(());
    }
    if kept_here == -1 {
        let why = format!("Value must not be -1 as {whole} value is set as {kept}.");
        return Err(invalid(local, kept_here, &why));
    }
    if kept_here > kept {
        let why = format!("Value must not be more than {whole} property value: {kept}");
        return Err(invalid(local, kept_here, &why));
    }
    Ok(())
}

/// A segment must go to the remote store before it is dropped here.
fn check_copy_lag(values: &TopicValues, lag: &str, local: &str, whole: &str) -> Result<(), String> {
    let kept_here = match values.integer(local) {
        -2 => values.integer(whole),
        own => own,
    };
    let waits = values.integer(lag);
    if waits > 0 && kept_here >= 0 && waits > kept_here {
        let why = format!("Value must not exceed {local} (effective value: {kept_here})");
        return Err(invalid(lag, waits, &why));
    }
    Ok(())
}
