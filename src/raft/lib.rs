//! The quorum that keeps the metadata log: who leads it, and what of it is committed (KRaft).
//!
//! [`Raft`] is told what was found, what became durable and what is to be appended, and answers
//! with what is to be written and how far the log is committed. Today it leads a quorum of one
//! voter, itself; elections between several and replication by fetches come in by the same two
//! doors (messages and ticks beside the notices of the disk). What must be durable before it counts
//! is tied to that by type: an epoch is claimed by [`ElectionWritten`], which only the notice of
//! its write yields.
//!
//! Beside it stand the formats that belong to the quorum: its state ([`ElectionState`]), its voters
//! ([`VoterSet`]), its control records, and snapshots ([`snapshot`]).
//!
//! Depends on: `base`, `records`. Deliberately absent: the disk, the wire, what the records of the
//! log mean.

mod control;
mod election;
mod quorum;
pub mod snapshot;
mod voters;

#[cfg(test)]
mod tests;

pub use control::{ControlError, ControlRecord, control_records};
pub use election::{BadElectionState, ElectionState, ReplicaKey};
pub use quorum::{ElectionWritten, Found, NotLeader, Output, Raft, RaftError};
pub use voters::{Voter, VoterEndpoint, VoterSet};
