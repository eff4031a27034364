//! Typed configuration of a node and its topics from Kafka's own `server.properties`, what can be
//! altered while it runs, and what is told of it: every key of Apache Kafka 4.4.0 is known, with
//! its type, default, rules and messages.
//!
//! Depends on: `base`. Deliberately absent: files and their paths (callers hand in the bytes), the
//! wire types of the requests that describe and alter, which topics and brokers exist, the
//! documentation that Kafka has of its keys, and Java classes: a key that names one beside Kafka's
//! own is refused with Kafka's words for a class that is not there.
//!
//! The tables of keys (`keys/*.txt`) are facts taken from Kafka's classes by
//! `cargo xtask config-keys`, and become static arrays when the crate is built.

mod alter;
mod broker;
mod checks;
mod describe;
mod documentation;
mod group_checks;
pub mod key;
mod layers;
mod listener;
mod properties;
mod quorum;
mod resources;
mod settings;
mod topic;
mod value;

pub use alter::{
    AlterError, Altered, Change, Operation, Scope, alter_broker, apply_to_topic, check_new_topic,
    replace_broker, replace_topic,
};
pub use broker::{BrokerConfig, ConfigError, CountOrAuto, SimpleSettings, is_used};
pub use checks::{ConnectionLimit, ProcessRoles};
pub use describe::{
    Entry, Source, Synonym, describe_all_brokers, describe_broker, describe_client_metrics,
    describe_group, describe_new_topic, describe_topic,
};
pub use documentation::documentation;
pub use layers::Layers;
pub use listener::{Listener, ProtocolMap, SecurityProtocol};
pub use properties::{Pairs, PropertiesError, parse as parse_properties};
pub use quorum::{HostPort, Voter};
pub use resources::{apply_to_values, replace_client_metrics, replace_group};
pub use settings::Settings;
pub use topic::{Compression, ThrottledReplicas, TimestampType, TopicConfig, TopicValues};
pub use value::Value;

#[cfg(test)]
mod against_kafka;
