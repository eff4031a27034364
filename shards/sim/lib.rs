//! The other driver of [`api::Machine`]: the loop of `shards/runtime` in a fake world.
//!
//! A [`World`] has nodes, each with its machines, cores, clock and disk, and clients that whoever
//! drives the world plays. Clock, disk, network and mesh are faked at their lowest: bytes at an
//! offset, a sync, a packet, a timer, a slot of a lane. Whatever is slow, torn, lost or out of
//! order follows from one seed, so that a run can be repeated; [`Trace::hash`] says whether two
//! runs were the same.
//!
//! Depends on: `api`, `base`, and `bytes` for payload. Deliberately absent: everything of Kafka,
//! clients, workloads and checkers (crate `sim` has those), real time, real I/O and threads.

mod content;
mod disk;
mod fault;
mod lanes;
mod network;
mod process;
mod queue;
mod storage;
mod trace;
mod world;

pub use disk::Disk;
pub use fault::{
    Crash, CrashPoint, Delay, DiskFaults, FaultPlan, Moment, NetworkFaults, Planted, Rest, Trouble,
};
pub use network::ClientSocket;
pub use process::{Exit, Seat};
pub use storage::Change;
pub use trace::{TRACE_LINES_MAX, Trace};
pub use world::{NodeId, World, WorldEvent, WorldOptions};
