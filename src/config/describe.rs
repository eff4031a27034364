//! What DescribeConfigs tells of a topic and of a broker (`ConfigHelper`).

use std::collections::BTreeSet;

use crate::broker::ConfigError;
use crate::key::{self, Default, Key, Table, Type, Update};
use crate::layers::Layers;
use crate::properties::Pairs;
use crate::settings;
use crate::value;

/// Where a value comes from (`DescribeConfigsResponse.ConfigSource`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// It was altered for the topic.
    Topic,
    /// It was altered for this broker.
    DynamicBroker,
    /// It was altered for all brokers.
    DynamicDefaultBroker,
    /// It stands in the broker's file.
    StaticBroker,
    /// It is Kafka's default.
    Default,
    /// It was altered for the subscription of client metrics.
    ClientMetrics,
    /// It was altered for the group.
    Group,
}

impl Source {
    /// The number in the response.
    pub fn protocol_number(self) -> i8 {
        match self {
            Source::Topic => 1,
            Source::DynamicBroker => 2,
            Source::DynamicDefaultBroker => 3,
            Source::StaticBroker => 4,
            Source::Default => 5,
            Source::ClientMetrics => 7,
            Source::Group => 8,
        }
    }
}

/// A key and value that stand behind an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synonym {
    /// The key.
    pub name: String,
    /// As it was written; nothing if it is sensitive.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: Source,
}

/// One key of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub name: String,
    /// What counts; nothing if it is unset or sensitive.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: Source,
    /// Whether it can only be set in the file.
    pub is_read_only: bool,
    /// Whether its value is kept secret; so is one of unknown type.
    pub is_sensitive: bool,
    /// Its type, if it is known. [`Type::protocol_number`] gives the number, 0 stands for none.
    pub kind: Option<Type>,
    /// Every place that sets it, the one that counts first. The response leaves them out unless
    /// `include_synonyms` was asked for. A default in other units than this key's is left out.
    pub synonyms: Vec<Synonym>,
}

/// Describes a topic, sorted by key. The error is of overrides that are not valid.
pub fn describe_topic(layers: &Layers, overrides: &Pairs) -> Result<Vec<Entry>, ConfigError> {
    let values = layers.current().topic_defaults().with(overrides).map_err(ConfigError)?;
    let text = |key: &Key| values.get(key.name).and_then(|value| value.to_text());
    Ok(describe(&key::TOPIC, Source::Topic, layers, overrides, text))
}

/// Describes a group, sorted by key: what is not set has the broker's value.
pub fn describe_group(layers: &Layers, overrides: &Pairs) -> Vec<Entry> {
    let of_broker = |key: &Key| {
        let (name, _) = key.synonyms.first()?;
        layers.current().settings().get(name).and_then(|value| value.to_text())
    };
    describe(&key::GROUP, Source::Group, layers, overrides, |key| {
        own_or_default(key, overrides, of_broker)
    })
}

/// Describes a subscription of client metrics, sorted by key.
pub fn describe_client_metrics(layers: &Layers, overrides: &Pairs) -> Vec<Entry> {
    describe(&key::CLIENT_METRICS, Source::ClientMetrics, layers, overrides, |key| {
        own_or_default(key, overrides, |_| None)
    })
}

fn own_or_default(
    key: &Key,
    overrides: &Pairs,
    of_broker: impl FnOnce(&Key) -> Option<String>,
) -> Option<String> {
    if let Some(text) = overrides.get(key.name) {
        return value::read(key, Some(text)).ok().and_then(|value| value.to_text());
    }
    of_broker(key).or_else(|| match key.default {
        Default::Text(text) => Some(text.to_owned()),
        Default::Null | Default::Required => None,
    })
}

fn default_of(key: &Key) -> Vec<Synonym> {
    let Default::Text(text) = key.default else { return Vec::new() };
    let (name, value) = (key.name.to_owned(), Some(text.to_owned()));
    vec![Synonym { name, value, source: Source::Default }]
}

/// The keys of a table, sorted, with the values that `text` gives.
fn describe(
    table: &Table,
    own: Source,
    layers: &Layers,
    overrides: &Pairs,
    text: impl Fn(&Key) -> Option<String>,
) -> Vec<Entry> {
    let mut entries = Vec::with_capacity(table.keys().len());
    for key in table.keys() {
        if key.internal && !overrides.contains_key(key.name) {
            continue;
        }
        let is_sensitive = key.kind == Type::Password;
        let value = text(key).filter(|_| !is_sensitive);
        let mut synonyms = match (key.synonyms.first(), own) {
            (Some((name, _)), _) => places(layers, name, is_sensitive),
            // A group's key without a broker's has its own default behind it.
            (None, Source::Group) => default_of(key),
            (None, _) => Vec::new(),
        };
        if overrides.contains_key(key.name) {
            let set = Synonym { name: key.name.into(), value: value.clone(), source: own };
            synonyms.insert(0, set);
        }
        entries.push(Entry {
            name: key.name.to_owned(),
            value,
            source: synonyms.first().map_or(Source::Default, |first| first.source),
            is_read_only: false,
            is_sensitive,
            kind: Some(key.kind),
            synonyms,
        });
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    entries
}

/// What a CreateTopics response (from version 5) tells of a new topic, sorted by key: no synonyms,
/// values as they were written, and a broker's setting in other units as the source that it is,
/// where [`describe_topic`] calls it a default (`KafkaConfigSchema`).
pub fn describe_new_topic(layers: &Layers, overrides: &Pairs) -> Vec<Entry> {
    let entry = |key: &Key| {
        let (value, source) = effective(layers, overrides, key);
        let is_sensitive = key.kind == Type::Password;
        Entry {
            name: key.name.to_owned(),
            value: value.filter(|_| !is_sensitive),
            source,
            is_read_only: false,
            is_sensitive,
            kind: Some(key.kind),
            synonyms: Vec::new(),
        }
    };
    let shown = key::TOPIC.keys().iter().filter(|key| !key.internal);
    let mut entries: Vec<Entry> = shown.map(entry).collect();
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    entries
}

fn effective(layers: &Layers, overrides: &Pairs, key: &Key) -> (Option<String>, Source) {
    if let Some(value) = overrides.get(key.name) {
        return (Some(value.clone()), Source::Topic);
    }
    for (pairs, source) in [
        (layers.broker(), Source::DynamicBroker),
        (layers.cluster(), Source::DynamicDefaultBroker),
        (layers.file(), Source::StaticBroker),
    ] {
        let set = key.synonyms.iter().find_map(|(name, factor)| Some((pairs.get(*name)?, factor)));
        match set {
            None => {}
            Some((value, 1)) => return (Some(value.clone()), source),
            Some((value, factor)) => {
                let number: i64 = value::java_trim(value).parse().unwrap_or_default();
                return (Some(number.saturating_mul(*factor).to_string()), source);
            }
        }
    }
    match key.default {
        Default::Text(default) => (Some(default.to_owned()), Source::Default),
        Default::Null | Default::Required => (None, Source::Default),
    }
}

/// Describes this broker, sorted by key: every key that is set, and every one that has a default
/// and is not internal.
pub fn describe_broker(layers: &Layers) -> Vec<Entry> {
    let settings = layers.current().settings();
    let known = key::BROKER.keys().iter().filter(|key| !key.internal).map(|key| key.name);
    let set = settings.originals().keys().map(String::as_str);
    let names: BTreeSet<&str> = known.chain(set).collect();
    let entry = |name: &str| {
        let value = match settings.get(name) {
            Some(value) => value.to_text(),
            None => settings.originals().get(name).cloned(),
        };
        broker_entry(name, value, |is_sensitive| places(layers, name, is_sensitive))
    };
    names.into_iter().map(entry).collect()
}

/// Describes what was altered for all brokers (the resource with the empty name), sorted by key.
pub fn describe_all_brokers(layers: &Layers) -> Vec<Entry> {
    let entry = |(name, value): (&String, &String)| {
        broker_entry(name, Some(value.clone()), |is_sensitive| {
            let mut places = places(layers, name, is_sensitive);
            places.retain(|place| place.source == Source::DynamicDefaultBroker);
            places
        })
    };
    layers.cluster().iter().map(entry).collect()
}

fn broker_entry(
    name: &str,
    value: Option<String>,
    places: impl FnOnce(bool) -> Vec<Synonym>,
) -> Entry {
    let kind = settings::type_of(name);
    // What is not known could be a secret.
    let is_sensitive = kind.is_none_or(|kind| kind == Type::Password);
    let synonyms = places(is_sensitive);
    let can_be_altered = key::BROKER_DYNAMIC.get(name).is_some()
        || key::BROKER.get(name).is_some_and(|key| key.update != Update::ReadOnly);
    Entry {
        name: name.to_owned(),
        value: value.filter(|_| !is_sensitive),
        source: synonyms.first().map_or(Source::Default, |first| first.source),
        is_read_only: !can_be_altered,
        is_sensitive,
        kind,
        synonyms,
    }
}

/// Every place that sets a broker's key or one of its synonyms, layer by layer from the top, but
/// not those above the first that sets the key itself.
fn places(layers: &Layers, name: &str, is_sensitive: bool) -> Vec<Synonym> {
    let names = settings::synonyms(name, true);
    let mut places = Vec::new();
    let mut add = |source: Source, get: &dyn Fn(&str) -> Option<String>| {
        for name in &names {
            if let Some(value) = get(name) {
                let value = Some(value).filter(|_| !is_sensitive);
                places.push(Synonym { name: (*name).to_owned(), value, source });
            }
        }
    };
    add(Source::DynamicBroker, &|name| layers.broker().get(name).cloned());
    add(Source::DynamicDefaultBroker, &|name| layers.cluster().get(name).cloned());
    add(Source::StaticBroker, &|name| layers.file().get(name).cloned());
    add(Source::Default, &|name| settings::default_text(name).map(str::to_owned));
    let first = places.iter().position(|place| place.name == name).unwrap_or(places.len());
    places.split_off(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::BrokerConfig;
    use crate::properties;

    /// The answers are those of Kafka 4.4.0's `KafkaConfigSchema` to the same layers.
    #[test]
    fn a_new_topic_is_described_as_kafka_does() {
        let pairs = |text: &str| properties::parse(text.as_bytes()).expect("no escapes");
        let file = pairs(
            "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:1,C://:2\n\
             controller.listener.names=C\ncontroller.quorum.voters=1@localhost:2\n\
             log.retention.hours=24\nlog.roll.hours=\\ 12\nlog.cleanup.policy=delete , compact\n\
             log.cleaner.min.cleanable.ratio=.25\nlog.flush.scheduler.interval.ms=5000\n",
        );
        let mut layers = Layers::new(BrokerConfig::from_pairs(file).expect("the file is right"));
        let cluster = pairs("message.max.bytes=77\nlog.retention.ms=5\n");
        layers.alter(cluster, pairs("message.max.bytes=88\n")).expect("it is valid");
        let entries = describe_new_topic(&layers, &pairs("compression.type=gzip\n"));
        assert_eq!(entries.len(), 37);
        let set: Vec<(&str, &str, Source)> = entries
            .iter()
            .filter(|entry| entry.source != Source::Default)
            .map(|one| (one.name.as_str(), one.value.as_deref().unwrap_or("null"), one.source))
            .collect();
        let expected = [
            ("cleanup.policy", "delete , compact", Source::StaticBroker),
            ("compression.type", "gzip", Source::Topic),
            ("flush.ms", "5000", Source::StaticBroker),
            ("max.message.bytes", "88", Source::DynamicBroker),
            ("min.cleanable.dirty.ratio", ".25", Source::StaticBroker),
            ("retention.ms", "5", Source::DynamicDefaultBroker),
            ("segment.ms", "43200000", Source::StaticBroker),
        ];
        assert_eq!(set, expected);
    }
}
