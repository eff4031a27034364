//! The driver of production: machines on pinned cores, one io_uring a core.
//!
//! [`run`] starts a thread for each core of a [`NodeSpec`], builds its machines there, and turns
//! (see `api`) until all machines have stopped. A machine's files, sockets and messages are
//! effects that this crate performs, each in the way that was measured to be the cheapest: what
//! the page cache has is read, appended and sent inline, the disk is waited for in the ring.
//!
//! Depends on: `api`, `base`, `ring` (the kernel), `mesh` (between cores). Deliberately absent:
//! any decision, anything of Kafka, and `unsafe`.

mod clock;
mod connection;
mod core;
mod counters;
mod files;
mod links;
mod network;
mod node;
mod purpose;
mod sending;
mod settings;
mod shared;
mod spin;
mod transport;

pub use counters::{Counters, CountersSnapshot};
pub use node::{MachineFactory, Node, NodeSpec, ThreadSpec, cores, run};
pub use settings::{Settings, TransportChoice};
pub use shared::RunError;
pub use spin::Spin;
pub use transport::{BadTransport, Transform};
