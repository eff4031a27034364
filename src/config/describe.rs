//! What DescribeConfigs tells of a topic and of a broker (`ConfigHelper`).

use std::collections::BTreeSet;

use crate::broker::ConfigError;
use crate::key::{self, Type, Update};
use crate::layers::Layers;
use crate::properties::Pairs;
use crate::settings;

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
    let mut entries = Vec::with_capacity(key::TOPIC.keys().len());
    for key in key::TOPIC.keys() {
        if key.internal && !overrides.contains_key(key.name) {
            continue;
        }
        let is_sensitive = key.kind == Type::Password;
        let shown = values.get(key.name).and_then(|value| value.to_text());
        let value = shown.filter(|_| !is_sensitive);
        let mut synonyms = match key.synonyms.first() {
            Some((name, _)) => places(layers, name, is_sensitive),
            None => Vec::new(),
        };
        if overrides.contains_key(key.name) {
            let own =
                Synonym { name: key.name.into(), value: value.clone(), source: Source::Topic };
            synonyms.insert(0, own);
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
    Ok(entries)
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
