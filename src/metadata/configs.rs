//! Dynamic configuration as the image holds it.

use std::collections::BTreeMap;
use std::sync::Arc;

/// What a configuration belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceType {
    /// A topic, by its name.
    Topic,
    /// A broker, by its number; the empty name is the default of all brokers.
    Broker,
    /// Log levels of a broker; never written to the log.
    BrokerLogger,
    /// A subscription of client metrics.
    ClientMetrics,
    /// A group, by its id.
    Group,
}

impl ResourceType {
    /// Its number in the protocol (`ConfigResource.Type`).
    pub fn code(self) -> i8 {
        match self {
            ResourceType::Topic => 2,
            ResourceType::Broker => 4,
            ResourceType::BrokerLogger => 8,
            ResourceType::ClientMetrics => 16,
            ResourceType::Group => 32,
        }
    }

    /// The type of a number, if it is one.
    pub fn of_code(code: i8) -> Option<Self> {
        let all = [
            ResourceType::Topic,
            ResourceType::Broker,
            ResourceType::BrokerLogger,
            ResourceType::ClientMetrics,
            ResourceType::Group,
        ];
        all.into_iter().find(|resource_type| resource_type.code() == code)
    }
}

/// One configured thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    /// Its type.
    pub resource_type: ResourceType,
    /// Its name.
    pub name: Arc<str>,
}

impl Resource {
    /// A resource by its type and name.
    pub fn new(resource_type: ResourceType, name: impl Into<Arc<str>>) -> Self {
        Self { resource_type, name: name.into() }
    }

    /// The topic called `name`.
    pub fn topic(name: impl Into<Arc<str>>) -> Self {
        Self::new(ResourceType::Topic, name)
    }

    /// What holds for every broker (`ConfigurationControlManager.DEFAULT_NODE`).
    pub fn all_brokers() -> Self {
        Self::new(ResourceType::Broker, "")
    }
}

/// The values that are set for one resource, by their keys.
pub type Configs = BTreeMap<Arc<str>, Arc<str>>;
