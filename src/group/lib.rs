//! Groups and committed offsets: the classic group protocol, as records in `__consumer_offsets`.
//!
//! [`GroupCoordinator`] is the coordinator of one partition of that topic: which groups are its
//! own says [`coordinator_partition`]. It decides what members of a group are told and writes what
//! must survive (Kafka's `GroupMetadataManager`, `ClassicGroup` and `OffsetMetadataManager`).
//!
//! Depends on `base`, `protocol`, `metadata` and `coordinator`. Deliberately absent: authorisation
//! (the broker asks before), the merging of answers of several coordinators, and groups of the
//! other kinds (consumer, share, streams), whose records are left as they are and whose names are
//! refused to classic members.

mod admin;
mod call;
mod commit;
mod config;
mod expiry;
mod fetch;
mod find;
mod group;
mod hosting;
mod join;
mod leave;
mod machine;
mod offsets;
mod placement;
mod rebalance;
mod record;
mod sync;
mod unserved;

pub use call::{GroupCall, GroupReply, GroupRequest};
pub use config::GroupConfig;
pub use find::{CoordinatorNode, find_coordinator};
pub use hosting::{GroupCoordinator, Output};
pub use placement::{by_partition, coordinator_partition, join_offset_fetch, split_offset_fetch};

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
