//! A file system in a process of its own that loses what was not synced.
//!
//! It is mounted by FUSE and holds everything in memory, twice: what a reader sees, and what a
//! loss of power leaves. Bytes become durable by a sync of their file, names by a sync of their
//! directory, and nothing by anything else: not even the name of a file that was synced. On
//! demand it stops in the middle of things, loses its power, fills up, or fails in one directory.
//! [`serve`] is the process, [`Served`] the test's end of it.
//!
//! Depends on: `fuser`, which mounts without a library of C. Deliberately absent: any crate of the
//! broker or its simulator, since two models of a disk that share code share their mistakes; and
//! links, extended attributes and permissions, which a log directory has none of.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the kernel's requests and the test's commands come on threads of their own"
)]
#![allow(clippy::print_stderr, reason = "what a failed test shows")]

mod control;
mod disk;
mod mount;
mod pages;
mod random;
mod served;

pub use control::serve;
pub use disk::Failing;
pub use random::Random;
pub use served::{Left, Served, entering};
