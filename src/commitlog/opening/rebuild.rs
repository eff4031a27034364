//! What a log knew of producers, found again when it is opened: from the newest snapshot that can
//! be trusted, and from the batches behind it (`UnifiedLog.rebuildProducerState`).
//!
//! The walks find the aborted transactions of recovered segments, too. `docs/recovery.md` has the
//! cases.

use std::collections::BTreeSet;

use base::{Now, Offset};
use bytes::Bytes;
use records::BatchHeader;

use crate::aborted::Aborted;
use crate::producers::{BadSnapshot, Producers, Snapshot, parse_snapshot};

/// The state on its way through the segments.
#[derive(Debug, Default)]
pub(super) struct Rebuild {
    pub(super) producers: Producers,
    /// The state follows from everything below.
    pub(super) end: Offset,
    /// The aborted transactions: those that the files held, and those that the batches told of.
    pub(super) aborted: Aborted,
    /// The first segment that was recovered while the state was not that at its start: which
    /// transactions were aborted in it is not known.
    uncovered: Option<Offset>,
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
    pub(super) fn begin(&mut self, start: Offset, is_skipped: bool) {
        self.is_skipped = is_skipped;
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

    /// Takes what the snapshot at `offset` holds, if it can be trusted.
    pub(super) fn load(
        &mut self,
        now: Now,
        expiration_ms: i64,
        offset: Offset,
        bytes: &Bytes,
    ) -> Result<(), BadSnapshot> {
        match parse_snapshot(bytes) {
            Ok(states) => {
                let now_ms = now.wall_ms;
                self.producers = Producers::from_snapshot(offset, states, now_ms, expiration_ms);
                self.end = offset;
                Ok(())
            }
            Err(bad) => {
                self.found.remove(&offset);
                self.bad.push(offset);
                Err(bad)
            }
        }
    }

    /// A batch of a walk; `follows` tells that nothing is missing between the batches before it,
    /// and becomes true where it begins at or below what the state covers.
    pub(super) fn take(&mut self, header: &BatchHeader, records: &Bytes, follows: &mut bool) {
        *follows |= header.base_offset <= self.end;
        if !self.is_skipped && *follows && header.last_offset() >= self.end {
            if let Some(aborted) = self.producers.replay(header, records) {
                self.aborted.insert(aborted);
            }
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

    /// The segment that begins at `base` is recovered, in a log that begins at `start`.
    pub(super) fn recovers(&mut self, base: Offset, start: Offset) {
        self.is_skipped = false;
        if base.max(start) != self.end {
            self.uncovered.get_or_insert(base);
        }
    }

    /// Whether the state is that at `end`, where the log ends, and no segment needs another one:
    /// else up to where the snapshot may lie from which all is gone over again.
    pub(super) fn needs(&mut self, end: Offset, is_clean: bool) -> Option<Offset> {
        if self.is_skipped {
            self.end = end;
        }
        if let Some(base) = self.uncovered.take() {
            if !is_clean {
                // Nobody looks into those behind it, and one that is damaged must not stay.
                self.bad.extend(self.found.split_off(&base.plus(1)));
            }
            return Some(base);
        }
        (self.end != end).then_some(end)
    }

    /// The snapshots that go: those that are bad; and those above the end of the log and those that
    /// belong to no segment, but for the newest one above them all, which a clean stop left.
    pub(super) fn needless(
        &mut self,
        end: Offset,
        bases: &BTreeSet<Offset>,
    ) -> (Vec<Offset>, Vec<Offset>) {
        let last = bases.last().copied().unwrap_or(end);
        let newest = self.newest(end).filter(|offset| *offset > last);
        let kept = |offset: &Offset| bases.contains(offset) || newest == Some(*offset);
        let needless = self.found.iter().filter(|offset| **offset > end || !kept(offset));
        (std::mem::take(&mut self.bad), needless.copied().collect())
    }
}
