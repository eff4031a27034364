//! Batches and records whose offsets are where they belong.
//!
//! The checksum of a batch covers neither its base offset nor its place among the others, and an
//! uncompressed batch is stored with the record offsets that its client gave it.

use base::{Offset, ProducerId};
use records::{Batch, BatchError, Keyed, RecordKeys};

use super::{Budget, KeyHash, KeyHasher};

/// Why a batch is not cleaned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Damage {
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error("a batch goes from {first} to {last}, and should lie from {from} to below {end}")]
    BatchOffsets { first: Offset, last: Offset, from: Offset, end: Offset },
    #[error("a record has the offset {offset}, and should lie from {from} to {last}")]
    RecordOffset { offset: Offset, from: Offset, last: Offset },
    #[error("the .txnindex contradicts the marker of producer {producer_id} at {offset}")]
    Marker { producer_id: ProducerId, offset: Offset },
}

/// Whether a batch lies in its segment, which begins at `segment` and ends below `end`, and not
/// before `from`, where the batch before it ended.
///
/// # Errors
/// It does not.
pub(crate) fn check_place(
    batch: &Batch,
    segment: Offset,
    from: Offset,
    end: Offset,
) -> Result<(), Damage> {
    let (first, last) = (batch.header().base_offset, batch.header().last_offset());
    // The indexes of a segment do not hold more.
    let end = end.min(Offset(segment.0.saturating_add(1 << 31)));
    if from <= first && first <= last && last < end {
        return Ok(());
    }
    Err(Damage::BatchOffsets { first, last, from, end })
}

/// The keys of a batch's records, whose offsets rise within the range that its header gives.
#[derive(Debug)]
pub(crate) struct OrderedKeys {
    keys: RecordKeys,
    hasher: KeyHasher,
    from: Offset,
    last: Offset,
}

/// A record, as far as it says whether it stays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyedRecord {
    pub(crate) offset: Offset,
    pub(crate) key: Option<KeyHash>,
    pub(crate) has_value: bool,
}

/// How far the walk has come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ordered {
    Paused,
    Record(KeyedRecord),
    Over,
}

impl OrderedKeys {
    /// Begins with the first one.
    ///
    /// # Errors
    /// The batch is damaged.
    pub(crate) fn new(batch: &Batch, hash_seed: u64) -> Result<Self, BatchError> {
        let (keys, header) = (RecordKeys::new(batch)?, batch.header());
        let hasher = KeyHasher::new(hash_seed);
        Ok(Self { keys, hasher, from: header.base_offset, last: header.last_offset() })
    }

    /// Goes on as far as the budget goes, to the end of the next record at most.
    ///
    /// # Errors
    /// The batch is damaged, or the offset is not where it should be.
    pub(crate) fn advance(&mut self, budget: &mut Budget) -> Result<Ordered, Damage> {
        if budget.is_spent() {
            return Ok(Ordered::Paused);
        }
        let before = self.keys.plain_bytes();
        let hasher = &mut self.hasher;
        let keyed = self.keys.advance(budget.left(), |piece, left| hasher.push(piece, left))?;
        budget.reads(self.keys.plain_bytes() - before);
        let (offset, has_key, has_value) = match keyed {
            Keyed::Paused => return Ok(Ordered::Paused),
            Keyed::Over => return Ok(Ordered::Over),
            Keyed::Record { offset, has_key, has_value } => (offset, has_key, has_value),
        };
        let (from, last) = (self.from, self.last);
        if offset < from || offset > last {
            return Err(Damage::RecordOffset { offset, from, last });
        }
        self.from = offset.plus(1);
        let hash = self.hasher.take();
        let key = has_key.then_some(hash);
        Ok(Ordered::Record(KeyedRecord { offset, key, has_value }))
    }
}
