//! What a log remembers of idempotent and transactional producers, so that a batch that comes
//! twice is written once (`ProducerStateManager`, KIP-98).
//!
//! The state follows from the batches alone: it is what the log's owner checks a client's batch
//! against, and every batch that is appended changes it, whoever wrote it. What a failed write
//! takes back is taken back here too.

mod entry;
mod snapshot;
mod transactions;

use std::collections::VecDeque;

use base::{Map, Offset, ProducerId};
use bytes::Bytes;
use records::BatchHeader;

use crate::aborted::AbortedTransaction;

use entry::{Before, Entry};
use transactions::Transactions;

pub use entry::{EarlierBatch, ProducerError, ProducerState};
pub use snapshot::{BadSnapshot, format_snapshot, parse_snapshot};

/// Producers that one log remembers. Kafka has no such limit; with more, those that wrote longest
/// ago are forgotten, as if they had expired, but none whose transaction is open.
const PRODUCERS_MAX: usize = 1 << 16;
/// Which part of them goes at once when there are too many: one of so many.
const FORGOTTEN_PART: usize = 8;

/// The producers of one log.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    entries: Map<ProducerId, Entry>,
    transactions: Transactions,
    /// What batches changed that are not written yet, in their order.
    unwritten: VecDeque<Change>,
    /// The offset of the newest snapshot; a new one is worth its while above it only.
    snapshot_end: Offset,
}

/// What a batch changed.
#[derive(Debug)]
struct Change {
    /// The offset behind the batch.
    next: Offset,
    producer_id: ProducerId,
    before: Before,
}

/// The state at one offset, as it stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// It follows from everything below.
    pub(crate) offset: Offset,
    /// Where the snapshot before it stands.
    pub(crate) before: Offset,
    pub(crate) content: Bytes,
}

impl Producers {
    /// No producers, in a log that begins at `start`.
    pub(crate) fn empty(start: Offset) -> Self {
        Self { snapshot_end: start, ..Self::default() }
    }

    /// What a snapshot at `offset` holds, without the producers that have expired since.
    pub(crate) fn from_snapshot(
        offset: Offset,
        states: Vec<ProducerState>,
        now_ms: i64,
        expiration_ms: i64,
    ) -> Self {
        let mut producers = Self { snapshot_end: offset, ..Self::default() };
        for state in states {
            producers.entries.insert(state.producer_id, Entry::of(&state));
        }
        for (id, entry) in &producers.entries {
            if let Some(begun) = entry.transaction_start() {
                producers.transactions.restore(begun, *id);
            }
        }
        producers.expire(now_ms, expiration_ms);
        producers.make_room(PRODUCERS_MAX);
        producers
    }

    /// What a batch that a client sends is to the log: new, or one of its producer's latest.
    pub(crate) fn check(
        &self,
        header: &BatchHeader,
    ) -> Result<Option<EarlierBatch>, ProducerError> {
        if !header.has_producer_id() {
            return Ok(None);
        }
        self.entries.get(&header.producer_id).map_or(Ok(None), |entry| entry.check(header))
    }

    /// A batch was appended and will be written. Returns the transaction that it aborts.
    pub(crate) fn append(
        &mut self,
        header: &BatchHeader,
        records: &Bytes,
    ) -> Option<AbortedTransaction> {
        let (before, aborted) = self.apply(header, records)?;
        let (next, producer_id) = (header.next_offset(), header.producer_id);
        self.unwritten.push_back(Change { next, producer_id, before });
        aborted
    }

    /// A batch stands in the log. `records` are needed of a control batch only. Returns the
    /// transaction that it aborts.
    pub(crate) fn replay(
        &mut self,
        header: &BatchHeader,
        records: &Bytes,
    ) -> Option<AbortedTransaction> {
        self.apply(header, records)?.1
    }

    /// Everything below `end` is written: it will not be taken back.
    pub(crate) fn written(&mut self, end: Offset) {
        while self.unwritten.pop_front_if(|change| change.next <= end).is_some() {}
    }

    /// What is not written never will be.
    pub(crate) fn take_back(&mut self) {
        while let Some(Change { next, producer_id, before }) = self.unwritten.pop_back() {
            let begins = self.transaction_start(producer_id);
            match before {
                Before::Absent => {
                    self.entries.remove(&producer_id);
                }
                Before::Entry(entry) => {
                    self.entries.insert(producer_id, *entry);
                }
                Before::Batch { dropped, last_timestamp } => {
                    if let Some(entry) = self.entries.get_mut(&producer_id) {
                        entry.take_back(dropped, last_timestamp);
                    }
                }
            }
            let begun = self.transaction_start(producer_id);
            if begun != begins {
                let last_offset = Offset(next.0 - 1);
                self.transactions.take_back(producer_id, last_offset, begun, begins);
            }
        }
    }

    /// Where the first transaction begins that is open, or has its marker at `up_to` or above.
    pub(crate) fn first_unstable(&mut self, up_to: Offset) -> Option<Offset> {
        self.transactions.first_unstable(up_to)
    }

    /// Forgets the producers that wrote nothing for `expiration_ms`, by the timestamps of their
    /// records, but none whose transaction is open.
    pub(crate) fn expire(&mut self, now_ms: i64, expiration_ms: i64) {
        self.entries.retain(|_, entry| !entry.is_expired(now_ms, expiration_ms));
        self.entries.shrink_to(self.entries.len() * 2);
    }

    /// The producers, in no particular order.
    pub(crate) fn states(&self) -> impl Iterator<Item = ProducerState> {
        self.entries.iter().map(|(id, entry)| entry.state(*id))
    }

    /// The snapshot to be written at `offset`, the end of what was appended; none where the newest
    /// one stands there already.
    pub(crate) fn snapshot(&mut self, offset: Offset) -> Option<Snapshot> {
        if offset <= self.snapshot_end {
            return None;
        }
        let content = format_snapshot(self.states().collect());
        let before = std::mem::replace(&mut self.snapshot_end, offset);
        Some(Snapshot { offset, before, content })
    }

    /// Where the newest snapshot stands.
    pub(crate) fn snapshot_end(&self) -> Offset {
        self.snapshot_end
    }

    /// The newest snapshot stands at `offset`: what was made later was not written, or that one was
    /// found.
    pub(crate) fn set_snapshot_end(&mut self, offset: Offset) {
        self.snapshot_end = offset;
    }

    /// Gives memory back that only a busy log needs.
    pub(crate) fn release_memory(&mut self) {
        self.unwritten.shrink_to_fit();
    }

    fn transaction_start(&self, producer_id: ProducerId) -> Option<Offset> {
        self.entries.get(&producer_id).and_then(Entry::transaction_start)
    }

    fn apply(
        &mut self,
        header: &BatchHeader,
        records: &Bytes,
    ) -> Option<(Before, Option<AbortedTransaction>)> {
        if !header.has_producer_id() {
            return None;
        }
        let is_known = self.entries.contains_key(&header.producer_id);
        if !is_known {
            self.make_room(PRODUCERS_MAX - 1);
        }
        let entry = self.entries.entry(header.producer_id).or_default();
        let begun = entry.transaction_start();
        let before = entry.append(header, records);
        let begins = entry.transaction_start();
        let before = if is_known { before } else { Before::Absent };
        let aborted = (begun != begins)
            .then(|| self.transactions.change(header, records, begun, begins))
            .flatten();
        Some((before, aborted))
    }

    /// Forgets those that wrote longest ago, when there are more than `most`.
    fn make_room(&mut self, most: usize) {
        if self.entries.len() <= most {
            return;
        }
        let idle = self.entries.values().filter_map(Entry::idle_since);
        let mut ends: Vec<Offset> = idle.collect();
        let surplus = (self.entries.len() - most).max(most / FORGOTTEN_PART).min(ends.len());
        let Some(last) = surplus.checked_sub(1) else { return };
        let (_, &mut newest, _) = ends.select_nth_unstable(last);
        self.entries.retain(|_, entry| entry.idle_since().is_none_or(|end| end > newest));
        tracing::warn!(most, "too many producers: those that wrote longest ago are forgotten");
    }
}

#[cfg(test)]
mod tests;
