//! Goes over the records of a batch to keep some of them, in a log that is compacted
//! (`MemoryRecords.filterTo`), in pieces: a record of any size takes no long step, and no memory
//! but for what stays of it in the new batch.

use base::Offset;

use crate::batch::Batch;
use crate::builder::BatchBuilder;
use crate::codec::{Codec, Compression};
use crate::error::BatchError;
use crate::header::{BatchHeader, NO_TIMESTAMP, TimestampType};
use crate::rebuild::Passage;
use crate::walk::RecordWalk;

/// The largest batch that is written anew, in bytes.
pub const RETAINED_BYTES_MAX: usize = 1 << 30;

/// The records of a batch, as far as it takes to say which of them stay.
#[derive(Debug)]
pub struct RecordKeys {
    walk: RecordWalk,
}

/// How far a walk over records has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyed {
    /// There is more to look at.
    Paused,
    /// A record, all of whose key was shown.
    Record {
        /// Its offset in the partition.
        offset: Offset,
        /// Whether it has a key.
        has_key: bool,
        /// Whether it has a value; else it is a tombstone.
        has_value: bool,
    },
    /// There are no more.
    Over,
}

impl RecordKeys {
    /// Begins at the first record.
    ///
    /// # Errors
    /// The batch is damaged.
    pub fn new(batch: &Batch) -> Result<Self, BatchError> {
        Ok(Self { walk: RecordWalk::new(batch)? })
    }

    /// Goes on for about `budget_bytes` of uncompressed records, to the end of the next at most.
    /// Shows the pieces of its key, each with how many bytes of the key are to come. After an error
    /// it must not be called again.
    ///
    /// # Errors
    /// The batch is damaged.
    pub fn advance(
        &mut self,
        budget_bytes: usize,
        on_key: impl FnMut(&[u8], u64),
    ) -> Result<Keyed, BatchError> {
        if self.walk.is_over() {
            let is_at_end = self.walk.is_at_end()?;
            return if is_at_end { Ok(Keyed::Over) } else { Err(BatchError::BytesAfterRecords) };
        }
        let pause_at = self.walk.pause_after(budget_bytes);
        let Some(head) = self.walk.next(pause_at, on_key)? else { return Ok(Keyed::Paused) };
        let offset = self.walk.context.offset(head.offset_delta);
        Ok(Keyed::Record { offset, has_key: head.has_key, has_value: head.has_value })
    }

    /// How many bytes of uncompressed records lie behind.
    pub fn plain_bytes(&self) -> u64 {
        self.walk.walked()
    }
}

/// Writes a batch anew with some of its records: offsets, producer, codec and last offset stay as
/// they were.
#[derive(Debug)]
pub struct RetainedRecords {
    passage: Passage,
    builder: BatchBuilder,
    last_offset_delta: i32,
    keeps: bool,
}

impl RetainedRecords {
    /// Begins with a batch over whose records a [`RecordKeys`] has gone, and whose offsets rise.
    /// With a delete horizon, in milliseconds since 1970, the new batch says when its tombstones
    /// may go (KIP-534); one that it had stays.
    ///
    /// # Errors
    /// The codec is not known.
    pub fn new(batch: &Batch, delete_horizon_ms: Option<i64>) -> Result<Self, BatchError> {
        let header = batch.header();
        let codec = header.codec().map_err(BatchError::UnknownCodec)?;
        let mut builder = BatchBuilder::new(header.base_offset, codec.into());
        builder.header = BatchHeader {
            last_offset_delta: -1,
            record_count: 0,
            base_timestamp: NO_TIMESTAMP,
            ..*header
        };
        if let Some(horizon_ms) = header.delete_horizon_ms().or(delete_horizon_ms) {
            builder.header.set_delete_horizon_ms(horizon_ms);
        }
        if header.timestamp_type() == TimestampType::CreateTime {
            builder.header.max_timestamp = NO_TIMESTAMP;
        }
        let (passage, last_offset_delta) = (Passage::new(batch)?, header.last_offset_delta);
        Ok(Self { passage, builder, last_offset_delta, keeps: false })
    }

    /// Goes on for about `budget_bytes` of uncompressed records, and keeps those whose index within
    /// the batch `keeps` says; says whether all are done. After an error it must not be called
    /// again.
    ///
    /// # Errors
    /// The batch is damaged, or the new one is larger than [`RETAINED_BYTES_MAX`].
    pub fn advance(
        &mut self,
        budget_bytes: usize,
        keeps: impl Fn(u32) -> bool,
    ) -> Result<bool, BatchError> {
        let pause_at = self.passage.plain_bytes().saturating_add(budget_bytes as u64);
        while !self.passage.is_over() {
            if self.passage.plain_bytes() >= pause_at {
                return Ok(false);
            }
            if self.passage.is_between() {
                self.keeps = keeps(self.passage.index());
                let head = self.passage.head()?;
                if self.keeps {
                    self.builder.append_head(head.offset, head.timestamp, head.rest);
                }
            } else {
                self.passage.pass_on(self.keeps.then_some(&mut self.builder))?;
                let (bytes, max) = (self.builder.written(), RETAINED_BYTES_MAX);
                if bytes > max {
                    return Err(BatchError::TooLarge { bytes, max });
                }
            }
        }
        Ok(true)
    }

    /// How many bytes of uncompressed records lie behind.
    pub fn plain_bytes(&self) -> u64 {
        self.passage.plain_bytes()
    }

    /// The new batch, once all records are done.
    pub fn finish(mut self) -> Batch {
        self.builder.header.last_offset_delta = self.last_offset_delta;
        self.builder.build()
    }
}

/// A batch without records in the place of one that lost them all: it keeps what is known of its
/// producer and of its last offset (`DefaultRecordBatch.writeEmptyHeader`).
pub fn without_records(header: &BatchHeader) -> Batch {
    let mut builder = BatchBuilder::new(header.base_offset, Compression::None);
    builder.header = BatchHeader { record_count: 0, base_timestamp: NO_TIMESTAMP, ..*header };
    builder.header.set_codec(Codec::None);
    builder.header.clear_delete_horizon();
    builder.build()
}
