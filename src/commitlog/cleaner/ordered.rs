//! Batches and records whose offsets are where they belong.
//!
//! The checksum of a batch covers neither its base offset nor its place among the others, and an
//! uncompressed batch is stored with the record offsets that its client gave it.

use base::{Offset, ProducerId};
use records::{Batch, BatchError, Record, RecordReader};

use super::RECORD_BYTES_MAX;

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

/// The records of a batch, whose offsets rise within the range that its header gives.
#[derive(Debug)]
pub(crate) struct OrderedRecords {
    reader: RecordReader,
    from: Offset,
    last: Offset,
}

impl OrderedRecords {
    /// Begins with the first one.
    ///
    /// # Errors
    /// The batch is damaged.
    pub(crate) fn new(batch: &Batch) -> Result<Self, BatchError> {
        let (reader, header) = (batch.records(RECORD_BYTES_MAX)?, batch.header());
        Ok(Self { reader, from: header.base_offset, last: header.last_offset() })
    }

    /// The next one, if there is one.
    ///
    /// # Errors
    /// The batch is damaged, or the offset is not where it should be.
    pub(crate) fn next_record(&mut self) -> Result<Option<Record<'_>>, Damage> {
        let Some(record) = self.reader.next_record()? else { return Ok(None) };
        let (offset, from, last) = (record.offset, self.from, self.last);
        if offset < from || offset > last {
            return Err(Damage::RecordOffset { offset, from, last });
        }
        self.from = offset.plus(1);
        Ok(Some(record))
    }
}
