//! A whole node on one thread, in a world that is as bad as its seed says.
//!
//! A run has clients that speak the real protocol, a node of real machines on a fake clock, disk,
//! network and mesh (crate `fakeworld`), crashes and disk faults, and checkers that know what
//! must never happen. First anything breaks; then faults end, and everything must be answered,
//! be there and go on. See `docs/simulator.md`.
//!
//! Depends on: the machines of a node, `protocol` and `records` for its clients, `fakeworld`.
//! Deliberately absent: real time and I/O, and anything that a client could not see, so that the
//! same workload can judge any broker.

pub mod audit;
pub mod boundaries;
pub mod checkers;
pub mod client;
pub mod commits;
pub mod generations;
pub mod history;
pub mod lie;
pub mod member;
pub mod node;
pub mod operations;
pub mod producers;
pub mod scenario;
pub mod simulation;
pub mod terms;
