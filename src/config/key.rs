//! What is known of each configuration key: Apache Kafka 4.4.0's facts, and Corelane's own keys.

/// The type of a value (`ConfigDef.Type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// `true` or `false`, in any case.
    Boolean,
    /// Text without white space around it.
    String,
    /// 32 bits.
    Int,
    /// 16 bits.
    Short,
    /// 64 bits.
    Long,
    /// A floating-point number.
    Double,
    /// Texts parted by commas.
    List,
    /// The name of a Java class.
    Class,
    /// Text that is never shown.
    Password,
}

impl Type {
    /// The number in a DescribeConfigs response (`DescribeConfigsResponse.ConfigType`); 0 stands
    /// for a key whose type is not known.
    pub fn protocol_number(self) -> i8 {
        match self {
            Type::Boolean => 1,
            Type::String => 2,
            Type::Int => 3,
            Type::Short => 4,
            Type::Long => 5,
            Type::Double => 6,
            Type::List => 7,
            Type::Class => 8,
            Type::Password => 9,
        }
    }

    /// As Kafka's messages and tools write it.
    pub fn name(self) -> &'static str {
        match self {
            Type::Boolean => "BOOLEAN",
            Type::String => "STRING",
            Type::Int => "INT",
            Type::Short => "SHORT",
            Type::Long => "LONG",
            Type::Double => "DOUBLE",
            Type::List => "LIST",
            Type::Class => "CLASS",
            Type::Password => "PASSWORD",
        }
    }
}

/// What a key has when it is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// It must be set.
    Required,
    /// Nothing.
    Null,
    /// A value, written as in a file.
    Text(&'static str),
}

/// One end of a range, inclusive, with the text that a message shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// As Kafka prints it.
    pub text: &'static str,
    /// What is compared.
    pub value: f64,
}

/// What a value must be beside having its type (`ConfigDef.Validator`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Anything.
    Any,
    /// A number between two ends, and not null.
    Range {
        /// The least.
        min: Option<Bound>,
        /// The greatest.
        max: Option<Bound>,
    },
    /// A list, from which duplicates are dropped before it is looked at.
    List {
        /// Whether it may have no element.
        may_be_empty: bool,
        /// Whether it may be unset.
        may_be_null: bool,
        /// What its elements may be; anything but the empty text, if there are none.
        values: &'static [&'static str],
    },
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// One of these words, in any case.
    OneOfAnyCase(&'static [&'static str]),
    /// Not the empty text.
    NonEmpty,
    /// Not unset.
    NonNull,
    /// 1 to 9, or −1.
    GzipLevel,
    /// `*`, or a list of `partition:broker`.
    ThrottledReplicas,
    /// A list of `id@host:port`.
    QuorumVoters,
    /// A list of `host:port`.
    QuorumBootstrapServers,
    /// `earliest`, `latest` or `by_duration:` and an ISO-8601 duration.
    ShareAutoOffsetReset,
    /// A number from 1, or `auto` (Corelane's).
    CountOrAuto,
}

/// How much a key matters, as Kafka's documentation sorts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importance {
    /// First of all.
    High,
    /// Often of use.
    Medium,
    /// Rarely of use.
    Low,
}

/// Whether a broker's key can be altered while it runs (`DynamicBrokerConfig`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// In the file only.
    ReadOnly,
    /// For one broker.
    PerBroker,
    /// For one broker, or for all.
    ClusterWide,
}

/// One key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// As it stands in a file or request.
    pub name: &'static str,
    /// The type of its value.
    pub kind: Type,
    /// Its value when unset.
    pub default: Default,
    /// What its value must be.
    pub rule: Rule,
    /// How much it matters.
    pub importance: Importance,
    /// Kafka does not describe it unless it is set.
    pub internal: bool,
    /// Whether it can be altered on a running broker; read-only in the tables of other resources.
    pub update: Update,
    /// The broker's keys that give its value when it is unset, first come first, each with the
    /// factor from its unit to this key's (3,600,000 from hours to milliseconds). In the broker's
    /// table: the keys for the same thing, itself among them, without factors.
    pub synonyms: &'static [(&'static str, i64)],
}

/// The keys of one kind of resource.
#[derive(Debug)]
pub struct Table {
    /// In the order in which Kafka checks them.
    pub(crate) keys: &'static [Key],
    /// Their indexes, sorted by name.
    pub(crate) by_name: &'static [u16],
}

impl Table {
    /// The keys in the order in which Kafka checks them.
    pub fn keys(&self) -> &'static [Key] {
        self.keys
    }

    /// The key of this name.
    pub fn get(&self, name: &str) -> Option<&'static Key> {
        self.position(name).and_then(|index| self.keys.get(index))
    }

    /// Where the key of this name stands in [`Table::keys`].
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        let found = self
            .by_name
            .binary_search_by(|&index| self.keys[usize::from(index)].name.cmp(name))
            .ok()?;
        Some(usize::from(self.by_name[found]))
    }
}

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_by_its_name() {
        for table in [&BROKER, &BROKER_DYNAMIC, &CORELANE, &TOPIC, &GROUP, &CLIENT_METRICS] {
            for key in table.keys() {
                assert_eq!(table.get(key.name), Some(key));
            }
            assert_eq!(table.get("no.such.key"), None);
        }
        assert_eq!(BROKER.keys().len(), 379);
        assert_eq!(TOPIC.keys().len(), 38);
    }

    #[test]
    fn a_synonym_is_a_key_of_the_broker() {
        for table in [&BROKER, &TOPIC, &GROUP] {
            for (name, _) in table.keys().iter().flat_map(|key| key.synonyms) {
                assert!(BROKER.get(name).is_some(), "{name}");
            }
        }
    }
}
