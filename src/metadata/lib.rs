//! What the cluster is: the image that the records of the metadata log add up to.
//!
//! [`Image`] is the cluster at one offset: an immutable value
//! whose versions share what did not change, so that one of them can be handed to every core, and
//! a small change costs a small change. [`Image::replay`] is what a record does, the same on the
//! active controller, a standby one and a broker; [`Timeline`] holds the versions between what is
//! committed and what is applied. What changed between two images is found by comparing them
//! ([`Image::topics_changed_since`]), whatever lies between, so that a reader may miss some.
//! [`tree`] shows an image to people.
//!
//! Depends on: `base`, `protocol` (the records' schemas). Deliberately absent: which records a
//! request leads to (`controller`), where the log is and who leads it (`raft`, `quorum`).

mod api_versions;
mod cluster;
mod configs;
mod describe;
mod features;
mod image;
mod replay;
mod security;
mod shared_map;
mod snapshot;
mod timeline;
mod topic;
mod topic_name;
pub mod tree;

#[cfg(test)]
mod tests;

pub use api_versions::{Answerer, api_versions};
pub use cluster::{Broker, Controller, Endpoint, FeatureRanges, SecurityProtocol, VersionRange};
pub use configs::{Configs, Resource, ResourceType};
pub use features::{
    FEATURES, Feature, KRAFT_VERSION, METADATA_VERSION, MetadataVersion, supported_features,
};
pub use image::{Image, Provenance, TopicChange};
pub use protocol::{MetadataRecord as Record, VersionedRecord};
pub use replay::ReplayError;
pub use security::{Acl, DelegationToken, QuotaEntity, Quotas, ScramCredential, ScramUser};
pub use shared_map::{Change, SharedMap};
pub use snapshot::ImageRecords;
pub use timeline::{Batch, ReplayFailure, Timeline};
pub use topic::{
    DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, LEADER_UNCHANGED, LeaderRecovery,
    Partition, Topic, ids_of, nodes_of,
};
pub use topic_name::{METADATA_TOPIC, TOPIC_NAME_LENGTH_MAX, topic_name_error};
