//! A search for a record of a batch by its offset and time.

use base::Offset;

use crate::batch::Batch;
use crate::error::BatchError;
use crate::walk::RecordWalk;

/// Goes over the records of a batch up to the one that is wanted. It can pause, and keeps nothing
/// of keys and values: whatever a batch may hold can be searched.
#[derive(Debug)]
pub struct RecordSearch {
    walk: RecordWalk,
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
        Ok(Self { walk: RecordWalk::new(batch)? })
    }

    /// Goes on for about `budget_bytes` of uncompressed records, up to the first whose offset and
    /// timestamp are wanted. After any other result than a pause it must not be called again.
    pub fn advance(
        &mut self,
        budget_bytes: usize,
        is_wanted: impl Fn(Offset, i64) -> bool,
    ) -> Result<Searched, BatchError> {
        let pause_at = self.walk.pause_after(budget_bytes);
        while !self.walk.is_over() {
            let next = self.walk.next(pause_at, |_, _| ())?;
            let Some(head) = next else { return Ok(Searched::Paused) };
            let offset = self.walk.context.offset(head.offset_delta);
            let timestamp = self.walk.context.timestamp(head.timestamp_delta);
            if is_wanted(offset, timestamp) {
                return Ok(Searched::Found { offset, timestamp });
            }
        }
        Ok(Searched::Over)
    }

    /// How many bytes of uncompressed records lie behind, also after an error.
    pub fn plain_bytes(&self) -> u64 {
        self.walk.walked()
    }
}
