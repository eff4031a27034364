//! The skeleton of a machine whose state is the records of one partition: groups, transactions,
//! share groups.
//!
//! [`Coordinator`] loads the partition's batches into a [`Machine`], hands it calls, collects what
//! it writes into batches, and keeps back each reply until the records that it rests on are below
//! the high watermark (Kafka's `CoordinatorRuntime`). Whoever hosts it reads and appends.
//!
//! Depends on `base` and `records`. Deliberately absent: the wire and its error codes, what a
//! record means, and all I/O.

mod journal;
mod skeleton;

pub use journal::{KeyValue, NotWritten, Output, Turn, WriteRules};
pub use skeleton::{Coordinator, LoadError, Machine, Phase, Refusal, Replayed};
