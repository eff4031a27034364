//! What AlterConfigs and IncrementalAlterConfigs may change (`ConfigAdminManager` on the broker,
//! `ConfigurationControlManager` on the controller).

use crate::broker::BrokerConfig;
use crate::key::{self, Default, Key, Type};
use crate::layers::{self, Layers};
use crate::properties::Pairs;
use crate::topic;
use crate::value;

/// What is done to a key (`AlterConfigOp.OpType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It gets the value.
    Set,
    /// It gets its default again.
    Delete,
    /// The value's elements are added to its list.
    Append,
    /// The value's elements are taken from its list.
    Subtract,
}

impl Operation {
    /// The operation of a number in a request.
    pub fn from_protocol_number(number: i8) -> Option<Self> {
        match number {
            0 => Some(Self::Set),
            1 => Some(Self::Delete),
            2 => Some(Self::Append),
            3 => Some(Self::Subtract),
            _ => None,
        }
    }
}

/// One change of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The key.
    pub name: &'a str,
    /// What is done.
    pub operation: Operation,
    /// The value; nothing is needed for [`Operation::Delete`] only.
    pub value: Option<&'a str>,
}

/// What the metadata get: a key with its new value, or with none where it is to be removed.
pub type Altered = Vec<(String, Option<String>)>;

/// A change that is refused: the error of the protocol and its message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlterError {
    /// INVALID_CONFIG (40).
    #[error("{0}")]
    InvalidConfig(String),
    /// INVALID_REQUEST (42).
    #[error("{0}")]
    InvalidRequest(String),
}

/// Whether a topic can be created with `overrides`. The error is INVALID_CONFIG with this message.
pub fn check_new_topic(config: &BrokerConfig, overrides: &Pairs) -> Result<(), AlterError> {
    check_topic(config, &Pairs::new(), overrides)
}

/// The overrides that a topic has after the changes of IncrementalAlterConfigs, not checked yet.
pub fn apply_to_topic(old: &Pairs, changes: &[Change<'_>]) -> Result<Pairs, AlterError> {
    apply(old, changes, |name| key::TOPIC.get(name))
}

/// Gives a topic that has the overrides `old` those of `new` only. What stays as it was is left
/// out of the answer.
pub fn replace_topic(
    config: &BrokerConfig,
    old: &Pairs,
    new: &Pairs,
) -> Result<Altered, AlterError> {
    check_topic(config, old, new)?;
    Ok(difference(old, new))
}

fn check_topic(config: &BrokerConfig, old: &Pairs, new: &Pairs) -> Result<(), AlterError> {
    let remote = config.settings().boolean("remote.log.storage.system.enable");
    topic::check(config.topic_defaults(), old, new, remote).map_err(AlterError::InvalidConfig)
}

/// Whose configuration is altered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Of this broker.
    ThisBroker,
    /// Of all brokers: the resource with the empty name.
    AllBrokers,
}

/// Applies the changes of IncrementalAlterConfigs to this broker or to all. Values that stay as
/// they were are part of the answer: writing them again makes brokers read files anew
/// (KAFKA-14136).
pub fn alter_broker(
    layers: &Layers,
    scope: Scope,
    changes: &[Change<'_>],
) -> Result<Altered, AlterError> {
    for change in changes {
        let verb = match change.operation {
            Operation::Set | Operation::Delete => continue,
            Operation::Append => "append",
            Operation::Subtract => "subtract",
        };
        let name = change.name;
        let refuse = match key::BROKER.get(name) {
            None => format!("Unknown config name: {name}"),
            Some(key) if key.kind != Type::List => {
                format!("Config value {verb} is not allowed for config key: {name}")
            }
            Some(_) => continue,
        };
        return Err(AlterError::InvalidConfig(refuse));
    }
    let old = of_scope(layers, scope);
    let new = apply(old, changes, |name| key::BROKER.get(name))?;
    check_broker(layers, scope, &new).map_err(AlterError::InvalidRequest)?;
    let value_of = |change: &Change<'_>| (change.name.to_owned(), new.get(change.name).cloned());
    Ok(changes.iter().map(value_of).collect())
}

/// Applies AlterConfigs to this broker or to all: what is in `old` and not in `new` is removed.
pub fn replace_broker(
    layers: &Layers,
    scope: Scope,
    old: &Pairs,
    new: &Pairs,
) -> Result<Altered, AlterError> {
    check_broker(layers, scope, new).map_err(AlterError::InvalidRequest)?;
    let removed = old.keys().filter(|name| !new.contains_key(*name));
    let set = new.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
    Ok(set.chain(removed.map(|name| (name.clone(), None))).collect())
}

fn of_scope(layers: &Layers, scope: Scope) -> &Pairs {
    match scope {
        Scope::ThisBroker => layers.broker(),
        Scope::AllBrokers => layers.cluster(),
    }
}

/// The overrides after the changes. A list that is not overridden starts from the key's default,
/// even where the broker has another.
pub(crate) fn apply(
    old: &Pairs,
    changes: &[Change<'_>],
    key_of: impl Fn(&str) -> Option<&'static Key>,
) -> Result<Pairs, AlterError> {
    let mut new = old.clone();
    for change in changes {
        let value = change.value.unwrap_or_default();
        let verb = match change.operation {
            Operation::Set => {
                new.insert(change.name.to_owned(), value.to_owned());
                continue;
            }
            Operation::Delete => {
                new.remove(change.name);
                continue;
            }
            Operation::Append => "APPEND",
            Operation::Subtract => "SUBTRACT",
        };
        let key = key_of(change.name).filter(|key| key.kind == Type::List).ok_or_else(|| {
            AlterError::InvalidConfig(format!(
                "Can't {verb} to key {} because its type is not LIST.",
                change.name
            ))
        })?;
        let current = match (old.get(change.name), key.default) {
            (Some(current), _) => current.as_str(),
            (None, Default::Text(default)) => default,
            (None, _) => "",
        };
        let mut elements: Vec<&str> =
            current.split(',').filter(|element| !element.is_empty()).collect();
        for element in java_split(value) {
            let position = elements.iter().position(|one| *one == element);
            match (change.operation, position) {
                (Operation::Append, None) => elements.push(element),
                (Operation::Subtract, Some(position)) => drop(elements.remove(position)),
                _ => {}
            }
        }
        new.insert(change.name.to_owned(), elements.join(","));
    }
    Ok(new)
}

/// `String.split(",")`: empty elements at the end go, unless there is nothing else.
fn java_split(text: &str) -> impl Iterator<Item = &str> {
    let without_end = text.trim_end_matches(',');
    let nothing = without_end.is_empty() && !text.is_empty();
    without_end.split(',').filter(move |_| !nothing)
}

/// What is set anew or removed.
pub(crate) fn difference(old: &Pairs, new: &Pairs) -> Altered {
    let changed = new.iter().filter(|(name, value)| old.get(*name) != Some(value));
    let removed = old.keys().filter(|name| !new.contains_key(*name));
    let set = changed.map(|(name, value)| (name.clone(), Some(value.clone())));
    set.chain(removed.map(|name| (name.clone(), None))).collect()
}

fn check_broker(layers: &Layers, scope: Scope, new: &Pairs) -> Result<(), String> {
    let config = with_altered(layers, scope, new)?;
    check_transition(layers.current(), &config)
}

/// What the broker would have if `new` were all that is altered in a scope
/// (`DynamicBrokerConfig.validate`).
pub(crate) fn with_altered(
    layers: &Layers,
    scope: Scope,
    new: &Pairs,
) -> Result<BrokerConfig, String> {
    refuse(new, layers::is_static, "Cannot update these configs dynamically")?;
    refuse(
        new,
        layers::needs_listener,
        "These security configs can be dynamically updated only per-listener using the listener \
         prefix",
    )?;
    for (name, text) in new {
        layers::check_value(name, text)?;
    }
    let merged = match scope {
        Scope::ThisBroker => layers.merged(layers.cluster(), new),
        Scope::AllBrokers => {
            refuse(
                new,
                layers::is_per_broker,
                "Cannot update these configs at default cluster level, broker id must be specified",
            )?;
            layers.merged(new, layers.broker())
        }
    };
    BrokerConfig::from_pairs(merged).map_err(|error| error.0)
}

fn refuse(pairs: &Pairs, is_refused: fn(&str) -> bool, why: &str) -> Result<(), String> {
    let refused: Vec<&str> =
        pairs.keys().map(String::as_str).filter(|name| is_refused(name)).collect();
    match refused[..] {
        [] => Ok(()),
        _ => Err(format!("{why}: [{}]", refused.join(", "))),
    }
}

/// What may not change so far in one step on a running broker.
fn check_transition(old: &BrokerConfig, new: &BrokerConfig) -> Result<(), String> {
    /// Kafka lets these at most double or halve.
    const POOLS: [&str; 9] = [
        "num.io.threads",
        "num.network.threads",
        "num.replica.fetchers",
        "num.recovery.threads.per.data.dir",
        "background.threads",
        "remote.log.reader.threads",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
    ];
    for name in POOLS {
        let was = old.settings().integer(name);
        let becomes = new.settings().integer(name);
        let bound = if becomes > was * 2 {
            "not be greater than double"
        } else if becomes < was / 2 {
            "be at least half"
        } else {
            continue;
        };
        return Err(wrapped(&format!(
            "Dynamic thread count update validation failed for {name}={becomes}, value should \
             {bound} the current value {was}"
        )));
    }
    let was = old.settings().integer("log.cleaner.threads");
    let becomes = new.settings().integer("log.cleaner.threads");
    if becomes > was * 2 {
        return Err(wrapped(&format!(
            "Log cleaner threads cannot be increased to more than double the current value {was}"
        )));
    }
    if becomes < was / 2 {
        return Err(wrapped(&format!(
            "Log cleaner threads cannot be reduced to less than half the current value {was}"
        )));
    }
    check_reporters(old, new)?;
    for listener in &new.listeners {
        let before = old.listeners.iter().find(|one| one.name == listener.name);
        if before.is_some_and(|before| before.protocol != listener.protocol) {
            return Err(wrapped(&format!(
                "Security protocol cannot be updated for existing listener ListenerName({})",
                listener.name
            )));
        }
    }
    Ok(())
}

/// A reporter is a Java class: there is none beside Kafka's own.
fn check_reporters(old: &BrokerConfig, new: &BrokerConfig) -> Result<(), String> {
    const REPORTERS: &str = "metric.reporters";
    const KNOWN: &str = "org.apache.kafka.common.metrics.JmxReporter";
    let of = |config: &BrokerConfig| config.settings().list(REPORTERS).map(<[String]>::to_vec);
    let before = of(old).unwrap_or_default();
    let mut names = of(new).unwrap_or_default().into_iter();
    if names.all(|name| name == KNOWN || before.contains(&name)) {
        return Ok(());
    }
    Err(wrapped(&format!(
        "Validation of dynamic config update of Set({REPORTERS}) failed with class class \
         kafka.server.DynamicMetricsReporters"
    )))
}

/// Kafka wraps the exception of a component into one of its own.
fn wrapped(message: &str) -> String {
    value::invalid(
        "Invalid dynamic configuration",
        format_args!("org.apache.kafka.common.config.ConfigException: {message}"),
        "",
    )
    .trim_end_matches(": ")
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers() -> Layers {
        let file = b"process.roles=broker,controller\nnode.id=1\n\
            listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n\
            controller.quorum.voters=1@localhost:9093\nlog.roll.ms=100000\n";
        Layers::new(BrokerConfig::parse(file).expect("the file is right"))
    }

    fn pairs(of: &[(&str, &str)]) -> Pairs {
        of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_a_replacement_leaves_out_is_removed() {
        let old = pairs(&[("retention.ms", "5"), ("segment.ms", "6")]);
        let new = pairs(&[("retention.ms", "5"), ("flush.ms", "7")]);
        let altered = replace_topic(layers().current(), &old, &new);
        let flush = ("flush.ms".to_owned(), Some("7".to_owned()));
        assert_eq!(altered, Ok(vec![flush, ("segment.ms".to_owned(), None)]));
    }

    #[test]
    fn what_is_not_valid_in_the_metadata_is_left_out() {
        let mut layers = layers();
        let cluster = pairs(&[
            ("listeners", "PLAINTEXT://:1"),
            ("log.retention.ms", "x"),
            ("message.max.bytes", "77"),
            ("node.id", "5"),
        ]);
        let left_out = layers.alter(cluster, Pairs::new()).expect("the rest is valid");
        assert_eq!(left_out.len(), 3, "{left_out:?}");
        assert_eq!(layers.current().simple.message_max_bytes, 77);
        assert_eq!(layers.cluster(), &pairs(&[("message.max.bytes", "77")]));
    }

    #[test]
    fn a_key_of_a_higher_layer_hides_its_synonyms() {
        let mut layers = layers();
        let roll_ms = |layers: &Layers| {
            let topic = layers.current().topic_config(&Pairs::new()).expect("defaults are valid");
            topic.segment_ms
        };
        assert_eq!(roll_ms(&layers), 100_000);
        layers.alter(pairs(&[("log.roll.ms", "200000")]), Pairs::new()).expect("valid");
        assert_eq!(roll_ms(&layers), 200_000);
        layers.alter(Pairs::new(), pairs(&[("log.roll.ms", "300000")])).expect("valid");
        assert_eq!(roll_ms(&layers), 300_000);
    }

    #[test]
    fn texts_are_split_as_java_splits_them() {
        for (text, parts) in
            [("", vec![""]), (",", vec![]), ("a,,b,,", vec!["a", "", "b"]), ("a", vec!["a"])]
        {
            assert_eq!(java_split(text).collect::<Vec<_>>(), parts);
        }
    }
}
