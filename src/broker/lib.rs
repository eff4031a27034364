//! A data shard as a machine: connections, partitions, and every API of a broker.
//!
//! Depends on everything that decides, below it. Deliberately absent: whatever waits, and the
//! decisions of the controller, which the quorum shard makes.

mod apis;
mod assignments;
mod check;
mod directories;
mod files;
mod life;
mod lifecycle;
mod machine;
mod mail;
mod moves;
mod owner;
mod partition;
mod producer_ids;
mod rules;
mod sessions;
mod setup;
mod shard;
mod spread;
mod strays;
mod topics;
mod view;
mod wanted;
mod watches;

pub use setup::{LogDirectorySetup, Setup};
pub use shard::Shard;
