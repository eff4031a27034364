//! The configuration of a node, typed (`KafkaConfig`).

use base::NodeId;

use crate::checks::{self, ConnectionLimit, ProcessRoles};
use crate::key;
use crate::listener::{Listener, SecurityProtocol};
use crate::properties::{self, Pairs};
use crate::quorum::{HostPort, Voter};
use crate::settings::Settings;
use crate::topic::{TopicConfig, TopicValues};
use crate::value::Value;

/// A file of settings that cannot be used. The text is Kafka's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// A number that is given, or left to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountOrAuto {
    /// The node decides.
    Auto,
    /// This many.
    Count(u16),
}

/// Gives a value the type of its field; a mismatch of table and field is a bug.
trait FromValue: Sized {
    fn from_value(value: &Value) -> Option<Self>;
}

impl FromValue for bool {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Boolean(value) => Some(*value),
            _ => None,
        }
    }
}

impl FromValue for i64 {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Integer(value) => Some(*value),
            _ => None,
        }
    }
}

impl FromValue for i32 {
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value).and_then(|value| value.try_into().ok())
    }
}

impl FromValue for i16 {
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value).and_then(|value| value.try_into().ok())
    }
}

impl FromValue for f64 {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Double(value) => Some(*value),
            _ => None,
        }
    }
}

impl FromValue for Option<String> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(value) => Some(Some(value.clone())),
            Value::Null => Some(None),
            _ => None,
        }
    }
}

impl FromValue for CountOrAuto {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => text.parse().map(CountOrAuto::Count).ok().or(Some(Self::Auto)),
            _ => None,
        }
    }
}

/// Declares the fields that are one key's value each, and with them which keys are used.
macro_rules! simple_settings {
    ($($field:ident: $kind:ty = $key:literal,)+) => {
        /// The settings that are one key's value each. The name ends in the unit; Kafka's limits
        /// of the value stand in the tables of keys.
        #[derive(Clone, Debug, PartialEq)]
        pub struct SimpleSettings {
            $(#[doc = concat!("`", $key, "`.")] pub $field: $kind,)+
        }

        /// The keys of [`SimpleSettings`].
        const SIMPLE_KEYS: &[&str] = &[$($key),+];

        impl SimpleSettings {
            fn from_settings(settings: &Settings) -> Self {
                SimpleSettings {
                    $($field: <$kind>::from_value(settings.value($key)).expect(
                        concat!("the field has the type of ", $key)
                    ),)+
                }
            }
        }
    };
}

simple_settings! {
    corelane_cores: CountOrAuto = "corelane.cores",
    corelane_quorum_cores: CountOrAuto = "corelane.quorum.cores",
    broker_rack: Option<String> = "broker.rack",
    message_max_bytes: i32 = "message.max.bytes",
    num_partitions: i32 = "num.partitions",
    default_replication_factor: i32 = "default.replication.factor",
    auto_create_topics_enable: bool = "auto.create.topics.enable",
    delete_topic_enable: bool = "delete.topic.enable",
    fetch_max_bytes: i32 = "fetch.max.bytes",
    max_incremental_fetch_session_cache_slots: i32 = "max.incremental.fetch.session.cache.slots",
    max_request_partition_size_limit: i32 = "max.request.partition.size.limit",
    socket_request_max_bytes: i32 = "socket.request.max.bytes",
    socket_listen_backlog_size: i32 = "socket.listen.backlog.size",
    connections_max_idle_ms: i64 = "connections.max.idle.ms",
    log_retention_check_interval_ms: i64 = "log.retention.check.interval.ms",
    log_flush_offset_checkpoint_interval_ms: i32 = "log.flush.offset.checkpoint.interval.ms",
    producer_id_expiration_ms: i32 = "producer.id.expiration.ms",
    producer_id_expiration_check_interval_ms: i32 = "producer.id.expiration.check.interval.ms",
    group_min_session_timeout_ms: i32 = "group.min.session.timeout.ms",
    group_max_session_timeout_ms: i32 = "group.max.session.timeout.ms",
    group_initial_rebalance_delay_ms: i32 = "group.initial.rebalance.delay.ms",
    group_max_size: i32 = "group.max.size",
    offset_metadata_max_bytes: i32 = "offset.metadata.max.bytes",
    offsets_retention_minutes: i32 = "offsets.retention.minutes",
    offsets_retention_check_interval_ms: i64 = "offsets.retention.check.interval.ms",
    offsets_topic_num_partitions: i32 = "offsets.topic.num.partitions",
    offsets_topic_replication_factor: i16 = "offsets.topic.replication.factor",
    offsets_topic_segment_bytes: i32 = "offsets.topic.segment.bytes",
    offsets_topic_compression_codec: i32 = "offsets.topic.compression.codec",
    metadata_log_segment_bytes: i32 = "metadata.log.segment.bytes",
    metadata_log_segment_ms: i64 = "metadata.log.segment.ms",
    metadata_log_max_record_bytes_between_snapshots: i64 =
        "metadata.log.max.record.bytes.between.snapshots",
    metadata_log_max_snapshot_interval_ms: i64 = "metadata.log.max.snapshot.interval.ms",
    metadata_max_retention_bytes: i64 = "metadata.max.retention.bytes",
    metadata_max_retention_ms: i64 = "metadata.max.retention.ms",
    metadata_max_idle_interval_ms: i32 = "metadata.max.idle.interval.ms",
    log_cleaner_enable: bool = "log.cleaner.enable",
    log_cleaner_backoff_ms: i64 = "log.cleaner.backoff.ms",
    log_cleaner_dedupe_buffer_size_bytes: i64 = "log.cleaner.dedupe.buffer.size",
    log_cleaner_io_buffer_load_factor: f64 = "log.cleaner.io.buffer.load.factor",
    log_cleaner_io_max_bytes_per_second: f64 = "log.cleaner.io.max.bytes.per.second",
}

/// The keys that are used beside those of [`SimpleSettings`] and the defaults of topics.
const OTHER_KEYS: &[&str] = &[
    "advertised.listeners",
    "broker.id",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "internal.metadata.log.segment.bytes",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "node.id",
    "process.roles",
    "security.inter.broker.protocol",
];

/// Whether this build of Corelane heeds a broker's key.
pub fn is_used(name: &str) -> bool {
    let is_default_of_topics =
        || key::TOPIC.keys().iter().any(|key| key.synonyms.iter().any(|one| one.0 == name));
    SIMPLE_KEYS.contains(&name) || OTHER_KEYS.contains(&name) || is_default_of_topics()
}

/// The configuration of a node, whole and checked.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// `node.id`.
    pub node_id: NodeId,
    /// `process.roles`.
    pub roles: ProcessRoles,
    /// `listeners`, of the controller too.
    pub listeners: Vec<Listener>,
    /// What clients are told of: `advertised.listeners`, or else `listeners`, without the
    /// controller's.
    pub advertised_listeners: Vec<Listener>,
    /// What other nodes are told of the controller's listeners; an empty host stands for the name
    /// of this machine.
    pub advertised_controller_listeners: Vec<Listener>,
    /// `controller.listener.names`, in upper case.
    pub controller_listener_names: Vec<String>,
    /// The listener over which brokers speak to each other, and its protocol.
    pub inter_broker_listener: (String, SecurityProtocol),
    /// `controller.quorum.voters`.
    pub quorum_voters: Vec<Voter>,
    /// `controller.quorum.bootstrap.servers`.
    pub quorum_bootstrap_servers: Vec<HostPort>,
    /// `log.dirs`, or else `log.dir`. Never empty.
    pub log_dirs: Vec<String>,
    /// `metadata.log.dir`, or else the first of `log_dirs`.
    pub metadata_log_dir: String,
    /// `max.connections.per.ip.overrides`.
    pub connection_limits: Vec<ConnectionLimit>,
    /// The settings that are one key's value each.
    pub simple: SimpleSettings,
    settings: Settings,
    topic_defaults: TopicValues,
}

impl BrokerConfig {
    /// Reads a file in the `.properties` format, and checks it as Kafka does when it starts.
    pub fn parse(file: &[u8]) -> Result<Self, ConfigError> {
        let pairs = properties::parse(file).map_err(|error| ConfigError(error.to_string()))?;
        let config = Self::from_pairs(pairs)?;
        // Kafka finds these when it makes the log manager, after its configuration was read.
        config
            .topic_defaults
            .with(&Pairs::new())
            .and_then(|values| values.check_compaction_lag())
            .map_err(ConfigError)?;
        Ok(config)
    }

    /// Checks keys and values that are no longer a file.
    pub fn from_pairs(pairs: Pairs) -> Result<Self, ConfigError> {
        Settings::read(pairs).and_then(Self::from_settings).map_err(ConfigError)
    }

    fn from_settings(settings: Settings) -> Result<Self, String> {
        let parts = checks::check(&settings)?;
        let log_dirs = checks::log_dirs(&settings).to_vec();
        let first_dir = log_dirs.first().expect("a rule of both keys refuses an empty list");
        let metadata_log_dir = settings.text("metadata.log.dir").unwrap_or(first_dir).to_owned();
        Ok(BrokerConfig {
            node_id: parts.node_id,
            roles: parts.roles,
            listeners: parts.listeners.all,
            advertised_listeners: parts.listeners.advertised,
            advertised_controller_listeners: parts.listeners.advertised_controllers,
            controller_listener_names: parts.listeners.controller_names,
            inter_broker_listener: parts.inter_broker_listener,
            quorum_voters: parts.voters,
            quorum_bootstrap_servers: parts.bootstrap_servers,
            log_dirs,
            metadata_log_dir,
            connection_limits: parts.connection_limits,
            simple: SimpleSettings::from_settings(&settings),
            topic_defaults: TopicValues::defaults(&settings),
            settings,
        })
    }

    /// Every key with its value.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The configuration of a topic. `overrides` are what the controller let pass for it; the error
    /// is on one that is not valid, or on a default of this broker that is not valid for a topic.
    pub fn topic_config(&self, overrides: &Pairs) -> Result<TopicConfig, ConfigError> {
        let values = self.topic_defaults.with(overrides).map_err(ConfigError)?;
        Ok(TopicConfig::from_values(&values))
    }

    /// The values of a topic without overrides.
    pub(crate) fn topic_defaults(&self) -> &TopicValues {
        &self.topic_defaults
    }

    /// The keys that were set and are known, but not used yet, for the one warning at the start.
    pub fn unused_keys(&self) -> Vec<&str> {
        let set = self.settings.originals().keys().map(String::as_str);
        set.filter(|name| self.settings.get(name).is_some() && !is_used(name)).collect()
    }

    /// The keys that were set and that no Kafka 4.4 knows. Kafka takes them for settings of a
    /// plugin, and does not refuse them.
    pub fn unknown_keys(&self) -> Vec<&str> {
        let set = self.settings.originals().keys().map(String::as_str);
        set.filter(|name| self.settings.get(name).is_none()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topic::Compression;

    const FILE: &str = "process.roles=broker,controller\nnode.id=7\n\
        listeners=PLAINTEXT://:9092,CONTROLLER://[::1]:9093\n\
        advertised.listeners=PLAINTEXT://broker:19092\n\
        controller.listener.names=CONTROLLER\ncontroller.quorum.voters=7@[::1]:9093\n\
        log.dirs=/a,/b\n";

    fn parse(more: &str) -> Result<BrokerConfig, ConfigError> {
        BrokerConfig::parse(format!("{FILE}{more}").as_bytes())
    }

    #[test]
    fn a_file_becomes_typed() {
        let config = parse("log.retention.minutes=2\nbroker.rack=r1\ncorelane.cores=3\n")
            .expect("the file is right");
        assert_eq!(config.node_id, NodeId(7));
        assert_eq!(config.roles, ProcessRoles { broker: true, controller: true });
        let listener = |name: &str, host: &str, port: u16| Listener {
            name: name.to_owned(),
            protocol: SecurityProtocol::Plaintext,
            host: host.to_owned(),
            port,
        };
        let controller = listener("CONTROLLER", "::1", 9093);
        assert_eq!(config.listeners, [listener("PLAINTEXT", "", 9092), controller.clone()]);
        assert_eq!(config.advertised_listeners, [listener("PLAINTEXT", "broker", 19092)]);
        assert_eq!(config.advertised_controller_listeners, [controller]);
        let endpoint = HostPort { host: "::1".to_owned(), port: 9093 };
        assert_eq!(config.quorum_voters, [Voter { id: NodeId(7), endpoint }]);
        assert_eq!(config.log_dirs, ["/a", "/b"]);
        assert_eq!(config.metadata_log_dir, "/a");
        assert_eq!(config.simple.corelane_cores, CountOrAuto::Count(3));
        assert_eq!(config.simple.corelane_quorum_cores, CountOrAuto::Auto);
        assert_eq!(config.simple.broker_rack.as_deref(), Some("r1"));
        let topic = config.topic_config(&Pairs::new()).expect("defaults are valid");
        assert_eq!((topic.retention_ms, topic.local_retention_ms), (120_000, 120_000));
        assert_eq!((topic.segment_bytes, topic.segment_ms), (1 << 30, 604_800_000));
        assert_eq!((topic.compact, topic.delete), (false, true));
    }

    #[test]
    fn a_topic_overrides_the_defaults_of_the_broker() {
        let config = parse("compression.type=lz4\n").expect("the file is right");
        let overrides = [("cleanup.policy", "compact"), ("compression.type", "zstd")];
        let overrides: Pairs =
            overrides.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let topic = config.topic_config(&overrides).expect("the overrides are valid");
        assert_eq!((topic.compact, topic.delete), (true, false));
        assert_eq!(topic.compression, Compression::Zstd);
        let plain = config.topic_config(&Pairs::new()).expect("defaults are valid");
        assert_eq!(plain.compression, Compression::Lz4);
    }

    #[test]
    fn keys_without_use_are_named() {
        let config = parse("num.network.threads=3\nmy.plugin.key=x\nnum.partitions=2\n");
        let config = config.expect("the file is right");
        assert_eq!(config.unused_keys(), ["num.network.threads"]);
        assert_eq!(config.unknown_keys(), ["my.plugin.key"]);
    }

    #[test]
    fn what_is_wrong_only_for_topics_is_refused_too() {
        for (more, message) in [
            (
                "log.cleaner.min.compaction.lag.ms=10\nlog.cleaner.max.compaction.lag.ms=5\n",
                "conflict topic config setting min.compaction.lag.ms (10) > \
                 max.compaction.lag.ms (5)",
            ),
            (
                "log.flush.interval.ms=-5\n",
                "Invalid value -5 for configuration flush.ms: Value must be at least 0",
            ),
            (
                "corelane.cores=0\n",
                "Invalid value 0 for configuration corelane.cores: Value must be a number of at \
                 least 1, or auto",
            ),
            ("log.dirs=\\u00", "Malformed \\uxxxx encoding."),
        ] {
            let error = parse(more).expect_err("it is wrong");
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn every_used_key_exists() {
        for name in SIMPLE_KEYS.iter().chain(OTHER_KEYS) {
            assert!(
                key::BROKER.get(name).or(key::CORELANE.get(name)).is_some(),
                "{name} is no key"
            );
        }
    }
}
