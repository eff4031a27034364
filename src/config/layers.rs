//! A broker's configuration in layers: what was altered for this broker, what was altered for all
//! brokers, what stands in the file, what Kafka's defaults are (`DynamicBrokerConfig`).

use std::collections::BTreeSet;

use crate::broker::{BrokerConfig, ConfigError};
use crate::key::{self, Type, Update};
use crate::properties::Pairs;
use crate::settings;
use crate::value;

/// The layers, and what they add up to.
#[derive(Clone, Debug)]
pub struct Layers {
    file: Pairs,
    cluster: Pairs,
    broker: Pairs,
    current: BrokerConfig,
}

impl Layers {
    /// Nothing is altered yet.
    pub fn new(file: BrokerConfig) -> Self {
        let pairs = file.settings().originals().clone();
        Layers { file: pairs, cluster: Pairs::new(), broker: Pairs::new(), current: file }
    }

    /// What counts now.
    pub fn current(&self) -> &BrokerConfig {
        &self.current
    }

    /// What stands in the file.
    pub fn file(&self) -> &Pairs {
        &self.file
    }

    /// What was altered for all brokers (the resource with the empty name).
    pub fn cluster(&self) -> &Pairs {
        &self.cluster
    }

    /// What was altered for this broker.
    pub fn broker(&self) -> &Pairs {
        &self.broker
    }

    /// Takes what the metadata hold for all brokers and for this one. A value that is not valid
    /// is left out, as Kafka does it when it reads its metadata, and its message is returned. The
    /// error is of values that are valid each but not together: then nothing changes.
    pub fn alter(&mut self, cluster: Pairs, broker: Pairs) -> Result<Vec<String>, ConfigError> {
        let mut left_out = Vec::new();
        let cluster = without_invalid(cluster, false, &mut left_out);
        let broker = without_invalid(broker, true, &mut left_out);
        let current = BrokerConfig::from_pairs(self.merged(&cluster, &broker))?;
        self.cluster = cluster;
        self.broker = broker;
        self.current = current;
        Ok(left_out)
    }

    /// The file under what is altered.
    pub(crate) fn merged(&self, cluster: &Pairs, broker: &Pairs) -> Pairs {
        let mut merged = self.file.clone();
        for (name, value) in cluster.iter().chain(broker) {
            // A key that is set in a higher layer hides its synonyms below, even those that would
            // come first within one layer: hours altered hide milliseconds in the file.
            for synonym in settings::synonyms(name, false) {
                merged.remove(synonym);
            }
            merged.insert(name.clone(), value.clone());
        }
        merged
    }
}

fn without_invalid(pairs: Pairs, for_one_broker: bool, left_out: &mut Vec<String>) -> Pairs {
    let mut kept = Pairs::new();
    for (name, value) in pairs {
        let error = if is_static(&name) {
            Some(format!("{name} cannot be updated dynamically"))
        } else if needs_listener(&name) {
            Some(format!("{name} can be updated only for one listener"))
        } else if !for_one_broker && is_per_broker(&name) {
            Some(format!("{name} can be updated only for one broker"))
        } else {
            check_value(&name, &value).err()
        };
        match error {
            Some(error) => left_out.push(error),
            None => {
                kept.insert(name, value);
            }
        }
    }
    kept
}

/// Whether a key is known and can only stand in the file.
pub(crate) fn is_static(name: &str) -> bool {
    key::BROKER.get(name).is_some_and(|key| key.update == Update::ReadOnly)
        || key::CORELANE.get(name).is_some()
}

/// Whether a key can be altered for a listener only, although it stands for all of them.
pub(crate) fn needs_listener(name: &str) -> bool {
    name == "ssl.key.password"
        || name.starts_with("ssl.keystore.")
        || name.starts_with("ssl.truststore.")
}

/// Whether a key can be altered for one broker only.
pub(crate) fn is_per_broker(name: &str) -> bool {
    const OF_LISTENER_FOR_ALL_BROKERS: [&str; 3] =
        ["max.connections", "max.connection.creation.rate", "num.network.threads"];
    match settings::listener_base(name) {
        Some(base) => !OF_LISTENER_FOR_ALL_BROKERS.contains(&base),
        None => key::BROKER.get(name).is_some_and(|key| key.update == Update::PerBroker),
    }
}

/// Checks the value of a key that can be altered; a key that is not known may have any.
pub(crate) fn check_value(name: &str, text: &str) -> Result<(), String> {
    let base = settings::listener_base(name).unwrap_or(name);
    let key = key::BROKER_DYNAMIC
        .get(base)
        .or_else(|| key::BROKER.get(base).filter(|key| key.update != Update::ReadOnly));
    let Some(key) = key else { return Ok(()) };
    // In a file what stands twice counts once.
    let elements = text.split(',').map(str::trim);
    if key.kind == Type::List && !all_differ(elements) {
        return Err(format!("Configuration '{base}' values must not be duplicated."));
    }
    value::read(key, Some(text)).map(|_| ())
}

fn all_differ<'a>(mut elements: impl Iterator<Item = &'a str>) -> bool {
    let mut seen = BTreeSet::new();
    elements.all(|element| seen.insert(element))
}
