//! The kernel made safe: io_uring, and the few system calls that are cheaper inline.
//!
//! A [`Ring`] belongs to one thread. Every operation owns what the kernel touches on its behalf
//! (buffer, file, socket) until its completion arrives, a cancelled one too. What is measured to be
//! faster as a plain call stays one: receiving, sending, `sendfile`, appending to a file whose
//! space is allocated, reading what the page cache has. None of these calls blocks for long: the
//! sockets are non-blocking, and reads refuse to wait for the disk.
//!
//! Depends on: `api` for the vocabulary of errors and directories, `base`, `io-uring`, `libc`.
//! Deliberately absent: machines, events, any decision. This crate and `mesh` are the only ones
//! that may say `unsafe`.

mod bell;
mod chunk;
mod directory;
mod error;
mod file;
mod operation;
mod probe;
mod ring;
mod signal;
mod socket;

pub use bell::Bell;
pub use chunk::ChunkPool;
pub use directory::{FileLock, list, list_names, make_directory, space};
pub use error::io_error;
pub use file::{OpenCount, OpenFile, Residency};
pub use operation::{Completion, Operation, OperationId};
pub use probe::{Missing, Probe, probe, raise_open_files_limit};
pub use ring::{Ring, RingHandle, Wait};
pub use signal::{Signals, Waited};
pub use socket::{Listener, Socket};
