//! A search for a record of a batch by its offset and time.

use base::Offset;

use crate::batch::Batch;
use crate::error::BatchError;
use crate::record::Context;
use crate::walk::Walk;

/// Goes over the records of a batch up to the one that is wanted. It can pause, and keeps nothing
/// of keys and values: whatever a batch may hold can be searched.
#[derive(Debug)]
pub struct RecordSearch {
    context: Context,
    left: u32,
    index: u32,
    walk: Walk,
}

/// How far a search has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Searched {
    /// There are more records to look at.
    Paused,
    /// The first record that is wanted.
    Found {
        /// Its offset in the partition.
        offset: Offset,
        /// Milliseconds since 1970, −1 for none.
        timestamp: i64,
    },
    /// No record is wanted.
    Over,
}

impl RecordSearch {
    /// Begins at the first record.
    pub fn new(batch: &Batch) -> Result<Self, BatchError> {
        let header = batch.header();
        let left = u32::try_from(header.record_count)
            .map_err(|_| BatchError::Count(header.record_count))?;
        let walk = Walk::new(batch, usize::MAX)?;
        Ok(Self { context: Context::of(header), left, index: 0, walk })
    }

    /// Goes on for about `budget_bytes` of uncompressed records, up to the first whose offset and
    /// timestamp are wanted. After any other result than a pause it must not be called again.
    pub fn advance(
        &mut self,
        budget_bytes: usize,
        is_wanted: impl Fn(Offset, i64) -> bool,
    ) -> Result<Searched, BatchError> {
        let pause_at = self.walk.walked().saturating_add(budget_bytes as u64);
        while self.left > 0 {
            let next = self.walk.next(pause_at).map_err(|failure| failure.at(self.index))?;
            let Some(head) = next else { return Ok(Searched::Paused) };
            let offset = self.context.offset(head.offset_delta);
            let timestamp = self.context.timestamp(head.timestamp_delta);
            if is_wanted(offset, timestamp) {
                return Ok(Searched::Found { offset, timestamp });
            }
            self.left -= 1;
            self.index += 1;
        }
        Ok(Searched::Over)
    }

    /// How many bytes of uncompressed records lie behind, also after an error.
    pub fn plain_bytes(&self) -> u64 {
        self.walk.walked()
    }
}
