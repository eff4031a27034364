//! A broker's keys with their values, each checked by itself, before the rules that span several.

use crate::key::{self, Default, Key, Type};
use crate::properties::Pairs;
use crate::value::{self, Value};

/// Every key of a broker with its value.
#[derive(Clone, Debug)]
pub struct Settings {
    originals: Pairs,
    /// In the order of [`key::BROKER`].
    values: Vec<Value>,
    /// In the order of [`key::CORELANE`].
    own: Vec<Value>,
}

impl Settings {
    /// Checks the value of every key. The error is Kafka's message on the first that is wrong.
    pub fn read(pairs: Pairs) -> Result<Settings, String> {
        let originals = with_both_ids(pairs);
        let read =
            |key: &'static Key| value::read(key, originals.get(key.name).map(String::as_str));
        let values = key::BROKER.keys().iter().map(read).collect::<Result<_, _>>()?;
        let own = key::CORELANE.keys().iter().map(read).collect::<Result<_, _>>()?;
        Ok(Settings { originals, values, own })
    }

    /// What was set, as it was written.
    pub fn originals(&self) -> &Pairs {
        &self.originals
    }

    /// The value of a key of [`key::BROKER`] or [`key::CORELANE`].
    pub fn get(&self, name: &str) -> Option<&Value> {
        match key::BROKER.position(name) {
            Some(index) => self.values.get(index),
            None => key::CORELANE.position(name).and_then(|index| self.own.get(index)),
        }
    }

    /// The value of a key that is known to exist.
    pub(crate) fn value(&self, name: &str) -> &Value {
        self.get(name).unwrap_or_else(|| panic!("{name} is no key of a broker"))
    }

    pub(crate) fn integer(&self, name: &str) -> i64 {
        match self.value(name) {
            Value::Integer(value) => *value,
            other => panic!("{name} is {other}, and no integer"),
        }
    }

    pub(crate) fn boolean(&self, name: &str) -> bool {
        match self.value(name) {
            Value::Boolean(value) => *value,
            other => panic!("{name} is {other}, and no boolean"),
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.value(name) {
            Value::Text(value) => Some(value),
            Value::Null => None,
            other => panic!("{name} is {other}, and no text"),
        }
    }

    /// A list; nothing when the key is unset.
    pub(crate) fn list(&self, name: &str) -> Option<&[String]> {
        match self.value(name) {
            Value::List(values) => Some(values),
            Value::Null => None,
            other => panic!("{name} is {other}, and no list"),
        }
    }

    /// The first of `key`'s synonyms that has a value, in `key`'s unit.
    pub(crate) fn by_synonyms(&self, key: &Key) -> Option<Value> {
        key.synonyms.iter().find_map(|&(name, factor)| match self.value(name) {
            Value::Null => None,
            Value::Integer(value) => Some(Value::Integer(value.saturating_mul(factor))),
            other => Some(other.clone()),
        })
    }
}

/// `node.id` and the older `broker.id` stand for each other.
pub(crate) fn with_both_ids(mut pairs: Pairs) -> Pairs {
    for (one, other) in [("node.id", "broker.id"), ("broker.id", "node.id")] {
        if let (Some(id), None) = (pairs.get(one), pairs.get(other)) {
            pairs.insert(other.to_owned(), id.clone());
        }
    }
    pairs
}

/// The default of a broker's key as text; nothing where it has none.
pub(crate) fn default_text(name: &str) -> Option<&'static str> {
    match key::BROKER.get(name)?.default {
        Default::Text(text) => Some(text),
        Default::Null | Default::Required => None,
    }
}

/// The other names of a broker's key, first come first, its own among them
/// (`DynamicBrokerConfig.brokerConfigSynonyms`). A key for one listener has the key for all of
/// them as its second name, if `match_listener`.
pub(crate) fn synonyms(name: &str, match_listener: bool) -> Vec<&str> {
    /// These stand behind `listener.name.NAME.MECHANISM.`, where others have no mechanism.
    const OF_A_MECHANISM: [&str; 5] = [
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.server.callback.handler.class",
        "connections.max.reauth.ms",
    ];
    if let Some(key) = key::BROKER.get(name).filter(|key| !key.synonyms.is_empty()) {
        return key.synonyms.iter().map(|&(name, _)| name).collect();
    }
    match listener_base(name).filter(|_| match_listener) {
        Some(base) => {
            let of_a_mechanism = OF_A_MECHANISM.into_iter().find(|key| base.ends_with(key));
            vec![name, of_a_mechanism.unwrap_or(base)]
        }
        None => vec![name],
    }
}

/// What follows `listener.name.NAME.` in the name of a key for one listener.
pub(crate) fn listener_base(name: &str) -> Option<&str> {
    let (_, base) = name.strip_prefix("listener.name.")?.split_once('.')?;
    Some(base)
}

/// The type of a broker's key, also one for a listener, or one that is only ever set dynamically.
pub(crate) fn type_of(name: &str) -> Option<Type> {
    let exact = |name: &str| {
        let tables = [&key::BROKER, &key::BROKER_DYNAMIC, &key::CORELANE];
        tables.into_iter().find_map(|table| table.get(name)).map(|key| key.kind)
    };
    exact(name).or_else(|| synonyms(name, true).into_iter().find_map(exact))
}
