//! The small names that file effects of a log carry, and what a log says to its owner.

use api::IoError;
use base::{LeaderEpoch, Offset, Token};

use crate::case::Cases;

/// What goes on with a log when an effect is done. Opaque and cheap to copy: the owner keeps it
/// while the effect is under way, and hands it back with the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStep(pub(crate) Step);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The flow that makes or opens the log.
    Open,
    /// The write of the batches.
    Write,
    /// Empty files of a new segment.
    Prepare,
    /// Space ahead of the end.
    Allocate,
    /// The sync that was asked for.
    Sync,
    /// What was written goes to the disk before anyone demands it.
    WriteBack,
    /// The end of a segment that was rolled, or of the log: named by its base offset.
    Seal(Offset),
    /// The snapshot of the producers that belongs to the end of a segment, named by its base
    /// offset.
    Snapshot(Offset),
    /// A write that did not fit the disk is taken back.
    Undo,
    /// The checkpoint of the leader epochs.
    Epochs,
    /// A flow of a reader.
    Flow(Token),
    /// The cleaning of a log that is compacted.
    Clean,
    /// The first timestamp of a segment that may have to be cleaned.
    Age,
    /// A file of a segment that was deleted gets another name: the segment begins at the offset,
    /// and the file's name ends so.
    SetAside(Offset, &'static str),
    /// The new names of such a segment's files become durable.
    Dropped,
    /// A file that is not needed goes.
    Delete,
    /// The log is cut at its end.
    Truncate,
    /// The folder of the log is renamed, or goes.
    Remove,
    /// The folder of a log that is moved gets another name.
    Rename,
}

/// Names a read or search that takes more than one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub(crate) Token);

/// What a log says to its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// It can be appended to and read.
    Opened {
        /// The first offset that can be read.
        log_start_offset: Offset,
        /// The offset of the next record.
        end_offset: Offset,
        /// What was found that was not in order.
        cases: Cases,
    },
    /// Batches are in the file: readers may see what lies below `end_offset`.
    Written {
        /// The end of what is written.
        end_offset: Offset,
    },
    /// Everything below `end_offset` survives a loss of power.
    Synced {
        /// The end of what is durable.
        end_offset: Offset,
    },
    /// The disk is full: the batches from `from` on were taken back, and their offsets will be
    /// given out again.
    Refused {
        /// The first offset that was taken back: the end of the log from now on.
        from: Offset,
        /// What the write said.
        cause: IoError,
    },
    /// The disk is too full for the log to be opened: it is tried again in a moment.
    NoSpace {
        /// What the disk said.
        cause: IoError,
    },
    /// A read that answered [`crate::Read::Locating`] can be tried again.
    Located {
        /// Which.
        ticket: Ticket,
    },
    /// A search by timestamp is over.
    TimestampFound {
        /// Which.
        ticket: Ticket,
        /// What it found.
        found: Option<FoundTimestamp>,
    },
    /// A search by timestamp cannot go on.
    SearchFailed {
        /// Which.
        ticket: Ticket,
        /// Whether it met bytes that are no batch (CORRUPT_MESSAGE); else its segment was deleted,
        /// and it may begin anew.
        is_corrupt: bool,
    },
    /// [`crate::Log::truncate_to`] is done.
    Truncated {
        /// The end of the log.
        end_offset: Offset,
    },
    /// Retention moved the start of the log.
    StartMoved {
        /// The first offset that can be read.
        log_start_offset: Offset,
    },
    /// A round of cleaning is over.
    Cleaned {
        /// Whether more of the log is clean now: there may be more to do.
        moved: bool,
    },
    /// Everything is on disk, trimmed, with its indexes.
    Closed {
        /// The end of the log.
        end_offset: Offset,
    },
    /// The disk is too full for the log to be closed: the next start has to recover it.
    NotClosed {
        /// What the disk said.
        cause: IoError,
    },
    /// The folder of the log has another name: the partition can be made again.
    Renamed,
    /// The folder of a log that is moved has its new name, durably ([`crate::Log::rename`]).
    Moved,
    /// The folder of the log is gone.
    Removed,
    /// The directory can no longer be trusted. The log takes nothing from now on.
    Failed {
        /// What happened.
        cause: IoError,
    },
    /// The folder belonged to another topic. It has another name now, and this log is no more: a
    /// new one can be made once no checkpoint speaks of the old one.
    Stray,
    /// Opening met something that must not be touched. The log takes nothing.
    Unreadable {
        /// What it is, for the person who reads the broker's log.
        sentence: String,
    },
}

/// A record that was searched by its timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundTimestamp {
    /// Its timestamp, in milliseconds since 1970.
    pub timestamp: i64,
    /// Its offset.
    pub offset: Offset,
    /// The epoch in which it was written.
    pub leader_epoch: LeaderEpoch,
}
