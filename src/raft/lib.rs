//! The quorum that keeps the metadata log: who leads it, and what of it is committed (KRaft).
//!
//! [`Raft`] is told what was found, what others say ([`Request`], [`Reply`]), what became durable,
//! that time has passed, and what is to be appended; it answers with what is to be sent and written
//! and how far the log is committed ([`Output`]). One file below `replica` has each role, and
//! `replica/transitions.rs` the ways between them. What must be durable before it counts is tied to
//! that by type: whatever is to leave waits in the outbox for the state of the election that it
//! rests on, and only [`ElectionWritten`], which only the notice of a write yields, lets it out.
//!
//! Beside it stand the formats that belong to the quorum: its state ([`ElectionState`]), its voters
//! ([`VoterSet`]), its control records, and snapshots ([`snapshot`]).
//!
//! Depends on: `base`, `records`. Deliberately absent: the disk, the wire, what the records of the
//! log mean.

mod control;
mod election;
mod history;
mod log;
mod messages;
mod outbox;
mod peers;
mod replica;
pub mod snapshot;
mod voters;

#[cfg(test)]
mod cluster;
#[cfg(test)]
mod tests;

pub use control::{ControlError, ControlRecord, control_records};
pub use election::{BadElectionState, ElectionState, ReplicaKey};
pub use log::{BatchError, EpochOffset};
pub use messages::{
    FetchContent, FetchRequest, Known, Peer, Refusal, Reply, ReplyBody, Request, RequestBody,
    RequestId, SnapshotContent, VoteRequest,
};
pub use outbox::{ElectionWritten, Output};
pub use replica::{NotLeader, Params, Progress, Raft, RaftError, Timing};
pub use voters::{Voter, VoterEndpoint, VoterSet};
