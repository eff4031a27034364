//! Which transactions the cleaner is within, on its way through a log from segment to segment
//! (`CleanedTransactionMetadata`, KIP-98, KIP-534).
//!
//! | batch | its fate |
//! |---|---|
//! | records of a transaction that was aborted | [`Fate::Aborted`]: they go, supersede nothing |
//! | other records | [`Fate::Records`]: each is judged by its key |
//! | a marker whose transaction has a batch before it | [`Fate::Marker`]: it stays |
//! | a marker whose transaction has none left | [`Fate::NeedlessMarker`]: it goes in time |
//!
//! A batch counts while it is there, without records too: as long as one is, a reader needs the
//! marker, and that of an aborted transaction needs its entry in the index.

use std::collections::BTreeMap;

use base::{Map, Offset, ProducerId, Set};
use records::{Batch, EndTransaction};

use super::Damage;
use crate::aborted::{Aborted, AbortedTransaction};

/// What becomes of a batch, as far as transactions say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Records,
    Aborted,
    /// With the entry of the index that has to stay.
    Marker(Option<AbortedTransaction>),
    NeedlessMarker,
}

/// The transactions that have begun before the place where the walk is, and end behind it. It needs
/// memory for as many as were open at once, and for those that were aborted meanwhile.
#[derive(Debug)]
pub(crate) struct OpenTransactions {
    /// The entries of the index that are not taken yet have their markers here or behind.
    from: Offset,
    /// All that begin below are taken.
    taken_to: Offset,
    /// Those that begin behind the walk, by where they begin and end.
    ahead: BTreeMap<(Offset, Offset), AbortedTransaction>,
    /// Those that were aborted, and whether a batch was met.
    aborted: Map<ProducerId, (AbortedTransaction, bool)>,
    /// Whose batches were met of a transaction that was not aborted.
    committed: Set<ProducerId>,
}

impl OpenTransactions {
    /// The walk begins with the segment at `segment`.
    pub(crate) fn new(segment: Offset) -> Self {
        Self {
            from: segment,
            taken_to: segment,
            ahead: BTreeMap::new(),
            aborted: Map::default(),
            committed: Set::default(),
        }
    }

    /// Goes over the next batch. `index` has the aborted transactions of the log, and all that the
    /// walk meets are decided.
    ///
    /// # Errors
    /// A marker says otherwise than the index: aborted records were taken for committed ones, and
    /// must not supersede any, or the other way round.
    pub(crate) fn pass(&mut self, batch: &Batch, index: &Aborted) -> Result<Fate, Damage> {
        let header = batch.header();
        let (producer_id, last_offset) = (header.producer_id, header.last_offset());
        if header.is_control() {
            self.advance(last_offset, index);
            return self.pass_marker(batch);
        }
        if !header.is_transactional() {
            return Ok(Fate::Records);
        }
        self.advance(last_offset, index);
        match self.aborted.get_mut(&producer_id) {
            // One whose marker lies before, and was not met, says nothing of this batch.
            Some((entry, has_batch)) if entry.last_offset > last_offset => {
                *has_batch = true;
                Ok(Fate::Aborted)
            }
            _ => {
                self.committed.insert(producer_id);
                Ok(Fate::Records)
            }
        }
    }

    fn pass_marker(&mut self, batch: &Batch) -> Result<Fate, Damage> {
        let header = batch.header();
        let (producer_id, offset) = (header.producer_id, header.last_offset());
        if header.record_count == 0 {
            return Ok(Fate::NeedlessMarker);
        }
        let Some(marker) = EndTransaction::read(header, batch.record_bytes()) else {
            return Ok(Fate::Marker(None));
        };
        let was_committed = self.committed.remove(&producer_id);
        let aborted = self.aborted.remove(&producer_id).filter(|(_, has_batch)| *has_batch);
        match (was_committed, aborted) {
            (false, None) => Ok(Fate::NeedlessMarker),
            (true, None) if marker.is_commit => Ok(Fate::Marker(None)),
            (false, Some((entry, _))) if !marker.is_commit && entry.last_offset == offset => {
                Ok(Fate::Marker(Some(entry)))
            }
            _ => Err(Damage::Marker { producer_id, offset }),
        }
    }

    /// Takes the entries of the index up to those that begin at `offset`.
    fn advance(&mut self, offset: Offset, index: &Aborted) {
        if self.taken_to <= offset {
            for entry in index.decided(self.from, offset) {
                self.from = entry.last_offset.plus(1);
                self.taken_to = entry.last_stable_offset;
                self.ahead.insert((entry.first_offset, entry.last_offset), *entry);
            }
        }
        while let Some(first) = self.ahead.first_entry().filter(|it| it.key().0 <= offset) {
            let entry = first.remove();
            self.aborted.insert(entry.producer_id, (entry, false));
        }
    }
}
