//! The quorum shard of a node: the metadata log, who leads it, and the active controller.
//!
//! [`Quorum`] is a machine. It loads the log and its snapshot into an image, becomes the leader,
//! and from then on turns what the data shards ask for into records: the `controller` proposes,
//! `raft` appends, the image is changed at once, and the answer leaves when the records are
//! committed and the new image was posted to every data shard. [`format`] says which files a node
//! needs before it can start; [`OfflineLog`] reads those of one for people.
//!
//! Depends on: all that decides about metadata, and `commitlog` for the log's files. Deliberately
//! absent: the brokers' clients and partitions' data (`broker`).

mod apis;
mod clients;
mod describe;
pub mod format;
mod life;
mod load;
mod machine;
mod owners;
mod reassignments;
mod replay;
mod requests;
mod shard;
mod snapshots;
mod snapshotting;
mod store;

#[cfg(test)]
mod tests;

pub use raft::snapshot::SnapshotId;
pub use replay::{OfflineLog, OfflineRead};
pub use shard::{Quorum, QuorumParams};
