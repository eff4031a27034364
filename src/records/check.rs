//! What a broker checks in a batch that a client sent, in Kafka's order (`ProduceRequest`,
//! `UnifiedLog.analyzeAndValidateRecords`, `LogValidator`).
//!
//! Stricter than Kafka at two places: a record of a compressed batch whose fields do not add up to
//! its size is refused, where Kafka stores what no consumer can read; and so is a batch whose
//! records take more than [`PLAIN_BYTES_MAX`].

use bytes::Bytes;

use crate::batch::{Batch, next_batch_bytes};
use crate::codec::Codec;
use crate::error::{BatchError, RecordError, RecordErrors, RejectedRecord};
use crate::header::{BatchHeader, NO_TIMESTAMP, TimestampType};
use crate::record::{Context, Fields};
use crate::walk::{Head, Walk};

/// The most that the records of a compressed batch may take without compression, in bytes: what
/// the size field of an uncompressed one could tell. Kafka has no such limit; it bounds a single
/// record by the same number (`max.decompressed.message.bytes` at its highest).
pub const PLAIN_BYTES_MAX: u64 = i32::MAX as u64;

/// What the topic demands of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProduceRules {
    /// The largest batch, in bytes (`max.message.bytes`).
    pub batch_bytes_max: usize,
    /// The largest record of a compressed batch, in bytes (`max.decompressed.message.bytes`).
    pub decompressed_record_bytes_max: usize,
    /// Whether each record must have a key (`cleanup.policy` has `compact`).
    pub key_required: bool,
    /// Who sets the timestamps (`message.timestamp.type`).
    pub timestamp_type: TimestampType,
    /// How far back a CreateTime may lie, in milliseconds (`message.timestamp.before.max.ms`).
    pub timestamp_before_max_ms: i64,
    /// How far ahead a CreateTime may lie, in milliseconds (`message.timestamp.after.max.ms`).
    pub timestamp_after_max_ms: i64,
    /// The broker's time, in milliseconds since 1970.
    pub now_ms: i64,
}

/// What the records of an accepted batch hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedRecords {
    /// The largest timestamp, −1 where none has one. Goes into
    /// [`crate::MaxTimestamp::CreateTime`].
    pub max_timestamp: i64,
    /// Whether the records have the offsets 0, 1, 2 and so on. If not, the batch must not be
    /// written as it is but rebuilt ([`crate::rebuild`]). Kafka writes an uncompressed one with
    /// its wrong offsets, and tries to rebuild a compressed one, but fails
    /// (`UNKNOWN_SERVER_ERROR`, as its validator has not kept the keys).
    pub offsets_contiguous: bool,
    /// How many bytes the records have without compression.
    pub plain_bytes: u64,
}

/// The one batch that a partition of a Produce request (version 3 and later) may have, from the
/// bytes of its records field. An incomplete batch behind it is ignored, as Kafka does.
pub fn single_batch(bytes: &Bytes, zstd_allowed: bool) -> Result<Batch, BatchError> {
    let batch = Batch::read(bytes)?.ok_or(BatchError::NoBatch)?;
    if !zstd_allowed && batch.header().codec() == Ok(Codec::Zstd) {
        return Err(BatchError::ZstdNotAllowed);
    }
    match next_batch_bytes(&bytes[batch.size()..])? {
        None => Ok(batch),
        Some(_) => Err(BatchError::SeveralBatches),
    }
}

impl Batch {
    /// The cheap half of the check: header, size and checksum. Costs a pass of CRC-32C.
    pub fn check_produced(&self, rules: &ProduceRules) -> Result<(), BatchError> {
        let header = self.header();
        if header.base_offset.0 != 0 {
            return Err(BatchError::BaseOffset(header.base_offset.0));
        }
        if self.size() > rules.batch_bytes_max {
            return Err(BatchError::TooLarge { bytes: self.size(), max: rules.batch_bytes_max });
        }
        self.check_crc()?;
        header.codec().map_err(BatchError::UnknownCodec)?;
        check_header(header)
    }

    /// The other half: a walk over all records, decompressing a compressed batch in a window.
    /// To be called after [`Batch::check_produced`] has accepted the batch.
    pub fn check_records(&self, rules: &ProduceRules) -> Result<RecordsCheck, BatchError> {
        let header = *self.header();
        let codec = header.codec().map_err(BatchError::UnknownCodec)?;
        let source = match codec {
            Codec::None => Source::Plain { bytes: self.record_bytes(), position: 0 },
            _ => Source::Stream(Box::new(Walk::new(self, rules.decompressed_record_bytes_max)?)),
        };
        let judge = Judge {
            rules: *rules,
            batch_type: header.timestamp_type(),
            context: Context::of(&header),
            count: u32::try_from(header.record_count)
                .map_err(|_| BatchError::Count(header.record_count))?,
            index: 0,
            max_timestamp: NO_TIMESTAMP,
            offsets_contiguous: true,
            errors: RecordErrors::default(),
        };
        Ok(RecordsCheck { judge, source, plain_bytes: 0 })
    }
}

fn check_header(header: &BatchHeader) -> Result<(), BatchError> {
    let (count, last_offset_delta) = (header.record_count, header.last_offset_delta);
    if last_offset_delta < 0 {
        return Err(BatchError::OffsetRange(last_offset_delta));
    }
    if count <= 0 {
        return Err(BatchError::Count(count));
    }
    if i64::from(last_offset_delta) + 1 != i64::from(count) {
        return Err(BatchError::CountMismatch { count, last_offset_delta });
    }
    if header.is_control() {
        return Err(BatchError::Control);
    }
    if header.has_producer_id() && header.base_sequence < 0 {
        let (producer_id, base_sequence) = (header.producer_id.0, header.base_sequence);
        return Err(BatchError::Sequence { producer_id, base_sequence });
    }
    Ok(())
}

/// A walk over the records of a batch, which can pause: what a batch of one megabyte expands to
/// can take seconds.
#[derive(Debug)]
pub struct RecordsCheck {
    judge: Judge,
    source: Source,
    plain_bytes: u64,
}

#[derive(Debug)]
enum Source {
    Plain { bytes: Bytes, position: usize },
    Stream(Box<Walk>),
}

impl RecordsCheck {
    /// Goes on for about `budget_bytes` of uncompressed records: `None` says that there is more.
    /// After a result or an error it must not be called again.
    pub fn advance(&mut self, budget_bytes: usize) -> Result<Option<CheckedRecords>, BatchError> {
        let pause_at = self.plain_bytes.saturating_add(budget_bytes as u64);
        match &mut self.source {
            Source::Plain { bytes, position } => {
                let done = self.judge.plain(bytes, position, budget_bytes)?;
                self.plain_bytes = *position as u64;
                if !done {
                    return Ok(None);
                }
            }
            Source::Stream(walk) => {
                let stop_at = pause_at.min(PLAIN_BYTES_MAX + 1);
                let done = self.judge.stream(walk, stop_at);
                self.plain_bytes = walk.walked();
                let done = done?;
                if self.plain_bytes > PLAIN_BYTES_MAX {
                    return Err(BatchError::TooLargePlain);
                }
                if !done {
                    return Ok(None);
                }
            }
        }
        self.judge.verdict(self.plain_bytes).map(Some)
    }

    /// How many bytes of uncompressed records lie behind, also after an error.
    pub fn plain_bytes(&self) -> u64 {
        self.plain_bytes
    }

    /// How much of a decompressed stream it holds, in bytes.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        match &self.source {
            Source::Plain { .. } => 0,
            Source::Stream(walk) => walk.held_bytes(),
        }
    }

    /// Goes on to the end, however long it takes.
    pub fn finish(mut self) -> Result<CheckedRecords, BatchError> {
        loop {
            if let Some(checked) = self.advance(usize::MAX)? {
                return Ok(checked);
            }
        }
    }
}

/// Judges one record after the other, wherever its fields come from.
#[derive(Debug)]
struct Judge {
    rules: ProduceRules,
    batch_type: TimestampType,
    context: Context,
    count: u32,
    index: u32,
    max_timestamp: i64,
    offsets_contiguous: bool,
    errors: RecordErrors,
}

impl Judge {
    /// Walks over uncompressed records; says whether it came to the end.
    fn plain(
        &mut self,
        bytes: &Bytes,
        position: &mut usize,
        budget_bytes: usize,
    ) -> Result<bool, BatchError> {
        let mut fields = Fields { rest: &bytes[*position..] };
        let pause_below = fields.rest.len().saturating_sub(budget_bytes);
        while self.index < self.count {
            if fields.rest.len() < pause_below {
                *position = bytes.len() - fields.rest.len();
                return Ok(false);
            }
            let record =
                fields.record().map_err(|fault| BatchError::Record { index: self.index, fault })?;
            self.record(Head {
                timestamp_delta: record.timestamp_delta,
                offset_delta: record.offset_delta,
                has_key: record.key.is_some(),
                has_value: record.value.is_some(),
            });
        }
        *position = bytes.len();
        if fields.rest.is_empty() { Ok(true) } else { Err(BatchError::BytesAfterRecords) }
    }

    /// Walks over compressed records; says whether it came to the end.
    fn stream(&mut self, walk: &mut Walk, stop_at: u64) -> Result<bool, BatchError> {
        while self.index < self.count {
            match walk.next(stop_at).map_err(|failure| failure.at(self.index))? {
                Some(head) => self.record(head),
                None => return Ok(false),
            }
        }
        if walk.is_at_end()? { Ok(true) } else { Err(BatchError::BytesAfterRecords) }
    }

    #[inline]
    fn record(&mut self, head: Head) {
        let timestamp = self.context.timestamp(head.timestamp_delta);
        if let Some(why) = self.reject(&head, timestamp) {
            self.errors.push(RecordError { index: self.index, why });
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.offsets_contiguous &= head.offset_delta as u32 == self.index;
        self.index += 1;
    }

    #[inline]
    fn reject(&self, head: &Head, timestamp: i64) -> Option<RejectedRecord> {
        let rules = &self.rules;
        if rules.key_required && !head.has_key {
            return Some(RejectedRecord::NoKey);
        }
        if rules.timestamp_type == TimestampType::CreateTime && timestamp != NO_TIMESTAMP {
            // Wraps as Java does, so that absurd timestamps get Kafka's answer.
            let age = rules.now_ms.wrapping_sub(timestamp);
            let in_range = age <= rules.timestamp_before_max_ms
                && age.wrapping_neg() <= rules.timestamp_after_max_ms;
            return (!in_range).then(|| RejectedRecord::Timestamp {
                timestamp,
                offset: self.context.offset(head.offset_delta).0,
                from: rules.now_ms.wrapping_sub(rules.timestamp_before_max_ms),
                to: rules.now_ms.wrapping_add(rules.timestamp_after_max_ms),
            });
        }
        (self.batch_type == TimestampType::LogAppendTime).then_some(RejectedRecord::LogAppendTime)
    }

    fn verdict(&mut self, plain_bytes: u64) -> Result<CheckedRecords, BatchError> {
        if self.errors.total > 0 {
            return Err(BatchError::Rejected(std::mem::take(&mut self.errors)));
        }
        let (max_timestamp, offsets_contiguous) = (self.max_timestamp, self.offsets_contiguous);
        Ok(CheckedRecords { max_timestamp, offsets_contiguous, plain_bytes })
    }
}
