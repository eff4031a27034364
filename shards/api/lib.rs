//! The seam between what decides and what waits.
//!
//! A [`Machine`] decides. It takes the time and one [`Event`], changes its own state, and appends
//! [`Effect`]s to a list; it never waits and never touches the kernel. A driver waits: it performs
//! the effects and turns what comes of them into further events. Production has one driver
//! (`shards/runtime` on io_uring), the simulator another (`shards/sim`); a machine cannot tell
//! which of them it runs on.
//!
//! One *turn* of a driver's thread: take the completions and mesh messages that are there; `step`
//! each; call `end_of_turn` once on every machine that stepped; perform the effects (files first,
//! then mesh, then sockets); enter the kernel once. What an effect led to is an event of a later
//! turn, never of the same one, and a turn that has results pending does not block.
//!
//! Depends on: `base`, and `bytes` for payload. Deliberately absent: the wire, records,
//! partitions, anything of Kafka.

mod effect;
mod event;
mod file;
mod machine;
mod socket;

pub use effect::{Effect, Effects, Lane};
pub use event::Event;
pub use file::{
    Advice, DirectoryEntry, FileEffect, FileOutcome, FileRef, FileSlice, IoError, IoErrorKind,
    IoResult, Space, WeakFileRef,
};
pub use machine::Machine;
pub use socket::{CloseReason, Part, SocketEffect, SocketId};

pub use base::{Instant, Now, ShardId, Token};
