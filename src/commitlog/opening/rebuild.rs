//! What a log knew of producers, found again when it is opened: from the newest snapshot that can
//! be trusted, and from the batches behind it (`UnifiedLog.rebuildProducerState`).
//!
//! | stop was clean | snapshots | what is done |
//! |---|---|---|
//! | yes | none | nothing is known: Kafka spares itself a walk over a log of an older version |
//! | yes | one at the end | it is loaded |
//! | no | one at the segment that is checked first | it is loaded; the checks go over the batches |
//! | – | one above the end, or one that is damaged | it goes; the one before it is tried |
//! | – | none, or one that is older | the batches behind it are walked over once more |

use std::collections::BTreeSet;

use base::{Now, Offset};
use bytes::Bytes;
use records::BatchHeader;

use crate::producers::{Producers, Snapshot, parse_snapshot};

/// The state on its way through the segments.
#[derive(Debug, Default)]
pub(super) struct Rebuild {
    pub(super) producers: Producers,
    /// The state follows from everything below.
    pub(super) end: Offset,
    /// Snapshots in the folder that are not known to be bad.
    pub(super) found: BTreeSet<Offset>,
    /// Snapshots that can be of no use.
    bad: Vec<Offset>,
    /// A snapshot that is to be written.
    pub(super) pending: Option<Snapshot>,
    /// The stop was clean and left no snapshot: nothing is known of the producers.
    is_skipped: bool,
}

impl Rebuild {
    /// The log begins at `start`: what does not lie above it is of no use.
    pub(super) fn begin(&mut self, start: Offset, skips_without_snapshot: bool) {
        self.is_skipped = skips_without_snapshot && self.found.is_empty();
        let above = self.found.split_off(&start.plus(1));
        self.bad.extend(std::mem::replace(&mut self.found, above));
        self.restart(start);
    }

    /// Nothing is known but that the log begins at `start`.
    pub(super) fn restart(&mut self, start: Offset) {
        self.producers = Producers::empty(start);
        self.end = start;
    }

    /// The newest snapshot up to `end`.
    pub(super) fn newest(&self, end: Offset) -> Option<Offset> {
        self.found.range(..=end).next_back().copied()
    }

    /// Takes what the snapshot at `offset` holds; whether it can be trusted.
    pub(super) fn load(
        &mut self,
        now: Now,
        expiration_ms: i64,
        offset: Offset,
        bytes: &Bytes,
    ) -> bool {
        match parse_snapshot(bytes) {
            Ok(states) => {
                let now_ms = now.wall_ms;
                self.producers = Producers::from_snapshot(offset, states, now_ms, expiration_ms);
                self.end = offset;
                true
            }
            Err(bad) => {
                tracing::warn!(%offset, %bad, "an unreadable snapshot of producers is removed");
                self.found.remove(&offset);
                self.bad.push(offset);
                false
            }
        }
    }

    /// A batch of a walk; `follows` tells that nothing is missing between the batches before it,
    /// and becomes true where it begins at or below what the state covers.
    pub(super) fn take(&mut self, header: &BatchHeader, records: &Bytes, follows: &mut bool) {
        *follows |= header.base_offset <= self.end;
        if !self.is_skipped && *follows && header.last_offset() >= self.end {
            self.producers.replay(header, records);
            self.end = header.next_offset();
        }
    }

    /// A snapshot is being written, over a bad one perhaps.
    pub(super) fn replaces(&mut self, offset: Offset) {
        self.bad.retain(|bad| *bad != offset);
        self.found.insert(offset);
    }

    /// The state covers everything below `base`, where a segment begins.
    pub(super) fn reach(&mut self, base: Offset) {
        if base < self.end {
            return;
        }
        self.end = base;
        if self.found.contains(&base) {
            self.producers.set_snapshot_end(base);
        } else {
            self.pending = self.producers.snapshot(base);
        }
    }

    /// Whether the state is that at `end`, where the log ends.
    pub(super) fn is_at(&mut self, end: Offset) -> bool {
        if self.is_skipped {
            self.end = end;
        }
        self.end == end
    }

    /// The snapshots that go: those that are bad, those above the end of the log, and those that
    /// belong to no segment, but for the newest one above them all, which a clean stop left.
    pub(super) fn needless(&mut self, end: Offset, bases: &BTreeSet<Offset>) -> Vec<Offset> {
        let mut gone = std::mem::take(&mut self.bad);
        let last = bases.last().copied().unwrap_or(end);
        let newest = self.newest(end).filter(|offset| *offset > last);
        let kept = |offset: &Offset| bases.contains(offset) || newest == Some(*offset);
        gone.extend(self.found.iter().filter(|offset| **offset > end || !kept(offset)));
        gone
    }
}
