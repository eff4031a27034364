//! Brokers and controllers as the image holds them.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{NodeId, Uuid};
use protocol::register_broker_record::{BrokerEndpoint, BrokerFeature};
use protocol::register_controller_record::{ControllerEndpoint, ControllerFeature};
use protocol::{RegisterBrokerRecord, RegisterControllerRecord};

use crate::topic::{DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED};

/// How clients talk at an endpoint, by its number in the protocol (`SecurityProtocol`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecurityProtocol(pub i16);

impl SecurityProtocol {
    /// Plain, without authentication.
    pub const PLAINTEXT: SecurityProtocol = SecurityProtocol(0);
}

/// One endpoint of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The name of the listener.
    pub name: Arc<str>,
    /// The host that clients are told.
    pub host: Arc<str>,
    /// The port that clients are told.
    pub port: u16,
    /// How they talk there.
    pub security_protocol: SecurityProtocol,
}

/// The versions of a feature that a node can do, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRange {
    /// The lowest.
    pub min: i16,
    /// The highest.
    pub max: i16,
}

/// The features of a node by name.
pub type FeatureRanges = BTreeMap<Arc<str>, VersionRange>;

/// A registered broker (`BrokerRegistration`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Its number.
    pub id: NodeId,
    /// The offset of the first record of the batch that registered it.
    pub epoch: i64,
    /// Differs for every start of its process.
    pub incarnation: Uuid,
    /// Where it can be reached, in the order in which it gave them.
    pub endpoints: Vec<Endpoint>,
    /// What it can do.
    pub features: FeatureRanges,
    /// The rack that it stands in.
    pub rack: Option<Arc<str>>,
    /// Whether it may not lead.
    pub fenced: bool,
    /// Whether it is on its way down.
    pub in_controlled_shutdown: bool,
    /// Whether it came from ZooKeeper; such a broker is refused today.
    pub is_migrating: bool,
    /// Its log directories that are online, sorted.
    pub directories: Vec<Uuid>,
    /// Those that take no new partition; none known before its first heartbeat.
    pub cordoned_directories: Option<Vec<Uuid>>,
}

/// A registered controller (`ControllerRegistration`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Its number.
    pub id: NodeId,
    /// Differs for every start of its process.
    pub incarnation: Uuid,
    /// Whether it was set up for the migration from ZooKeeper.
    pub zk_migration_ready: bool,
    /// Where it can be reached.
    pub endpoints: Vec<Endpoint>,
    /// What it can do.
    pub features: FeatureRanges,
}

/// A feature of a node.
struct NamedRange<'a>(&'a str, &'a VersionRange);

/// Endpoints and features have a record type of their own for each kind of node, with the same
/// fields.
macro_rules! of_node {
    ($endpoint:ident, $feature:ident) => {
        impl From<&$endpoint> for Endpoint {
            fn from(endpoint: &$endpoint) -> Self {
                Self {
                    name: Arc::from(&*endpoint.name),
                    host: Arc::from(&*endpoint.host),
                    port: endpoint.port,
                    security_protocol: SecurityProtocol(endpoint.security_protocol),
                }
            }
        }

        impl From<&Endpoint> for $endpoint {
            fn from(endpoint: &Endpoint) -> Self {
                Self {
                    name: (&*endpoint.name).into(),
                    host: (&*endpoint.host).into(),
                    port: endpoint.port,
                    security_protocol: endpoint.security_protocol.0,
                    ..Self::default()
                }
            }
        }

        impl From<&$feature> for VersionRange {
            fn from(feature: &$feature) -> Self {
                let (min, max) = (feature.min_supported_version, feature.max_supported_version);
                Self { min, max }
            }
        }

        impl From<NamedRange<'_>> for $feature {
            fn from(NamedRange(name, range): NamedRange<'_>) -> Self {
                Self {
                    name: name.into(),
                    min_supported_version: range.min,
                    max_supported_version: range.max,
                    ..Self::default()
                }
            }
        }
    };
}

of_node!(BrokerEndpoint, BrokerFeature);
of_node!(ControllerEndpoint, ControllerFeature);

impl Broker {
    /// The broker that a record registers.
    pub fn of_record(record: &RegisterBrokerRecord) -> Self {
        let mut directories = record.log_dirs.clone();
        directories.sort_unstable();
        Self {
            id: NodeId(record.broker_id),
            epoch: record.broker_epoch,
            incarnation: record.incarnation_id,
            endpoints: record.end_points.iter().map(Endpoint::from).collect(),
            features: record
                .features
                .iter()
                .map(|one| (Arc::from(&*one.name), one.into()))
                .collect(),
            rack: record.rack.as_deref().map(Arc::from),
            fenced: record.fenced,
            in_controlled_shutdown: record.in_controlled_shutdown,
            is_migrating: record.is_migrating_zk_broker,
            directories,
            cordoned_directories: record.cordoned_log_dirs.clone(),
        }
    }

    /// The record that registers this broker.
    pub fn to_record(&self) -> RegisterBrokerRecord {
        RegisterBrokerRecord {
            broker_id: self.id.0,
            is_migrating_zk_broker: self.is_migrating,
            incarnation_id: self.incarnation,
            broker_epoch: self.epoch,
            end_points: self.endpoints.iter().map(Into::into).collect(),
            features: self
                .features
                .iter()
                .map(|(name, range)| NamedRange(name, range).into())
                .collect(),
            rack: self.rack.as_deref().map(Into::into),
            fenced: self.fenced,
            in_controlled_shutdown: self.in_controlled_shutdown,
            log_dirs: self.directories.clone(),
            cordoned_log_dirs: self.cordoned_directories.clone(),
            ..RegisterBrokerRecord::default()
        }
    }

    /// Its endpoint of the listener `name`.
    pub fn endpoint(&self, name: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|endpoint| &*endpoint.name == name)
    }

    /// Whether it may lead partitions (`ClusterControlManager.isActive`).
    pub fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }

    /// Whether a replica in this directory can be used (`DirectoryId.isOnline`). One that has no
    /// directory yet can; and so can every one of a broker that registered without directories,
    /// before they had ids: it would not run without one.
    pub fn has_online_directory(&self, directory: Uuid) -> bool {
        match directory {
            DIRECTORY_UNASSIGNED | DIRECTORY_MIGRATING => true,
            DIRECTORY_LOST => false,
            _ => self.directories.is_empty() || self.directories.contains(&directory),
        }
    }
}

impl Controller {
    /// The controller that a record registers.
    pub fn of_record(record: &RegisterControllerRecord) -> Self {
        Self {
            id: NodeId(record.controller_id),
            incarnation: record.incarnation_id,
            zk_migration_ready: record.zk_migration_ready,
            endpoints: record.end_points.iter().map(Endpoint::from).collect(),
            features: record
                .features
                .iter()
                .map(|one| (Arc::from(&*one.name), one.into()))
                .collect(),
        }
    }

    /// The record that registers this controller.
    pub fn to_record(&self) -> RegisterControllerRecord {
        RegisterControllerRecord {
            controller_id: self.id.0,
            incarnation_id: self.incarnation,
            zk_migration_ready: self.zk_migration_ready,
            end_points: self.endpoints.iter().map(Into::into).collect(),
            features: self
                .features
                .iter()
                .map(|(name, range)| NamedRange(name, range).into())
                .collect(),
            ..RegisterControllerRecord::default()
        }
    }
}
