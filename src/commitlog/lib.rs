//! One partition's log on disk, in Kafka's files, as a state machine; and the files that a log
//! directory has for all its logs.
//!
//! A [`Log`] gathers what is appended in a turn into one write, tells what is written and what is
//! durable, plans reads as slices of files, finds records by timestamp, knows the leader epochs,
//! remembers producers, deletes, cuts and compacts segments, and recovers what a crash left. A
//! [`Directory`] reads and writes the checkpoints. `docs/data_format.md` has every file.
//!
//! Depends on: `base`, `records`, and `api` for the effects on files. Deliberately absent: I/O
//! (effects are appended to a list and their outcomes handed back), the wire, the high watermark
//! and everything else that needs other replicas.

mod aborted;
mod atomic_file;
mod case;
mod cleaner;
mod config;
mod directory;
mod epochs;
mod index;
mod log;
mod marks;
mod names;
mod opening;
mod producers;
mod scan;
mod segment;
mod step;
mod tail;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;

pub use aborted::AbortedTransaction;
pub use atomic_file::AtomicFile;
pub use case::{Case, Cases};
pub use config::{Checkpoints, LogConfig, LogParams};
pub use directory::{
    CheckpointKind, Directory, DirectoryEvent, DirectoryStep, FoundDirectory, FoundFuture, Renaming,
};
pub use log::{
    AppendBatch, AppendError, AppendInfo, Cleanable, CleaningLimits, CopyPlace, CopyRead,
    Durability, Log, LogEffects, LogState, OffsetOutOfRange, Read, ReadError, ReadPlan,
    ReadRequest, UNWRITTEN_BYTES_MAX,
};
pub use names::{
    COPY_MARK, FolderName, deleted_folder, future_folder, parse_folder, parse_segment_file,
    stray_folder,
};
pub use producers::{
    BadSnapshot, EarlierBatch, ProducerError, ProducerState, format_snapshot, parse_snapshot,
};
pub use step::{FoundTimestamp, LogEvent, LogStep, Ticket};
pub use text::{
    BadFile, MetaProperties, format_clean_shutdown, format_offsets, parse_clean_shutdown,
    parse_offsets,
};
