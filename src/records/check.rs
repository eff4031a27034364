//! What a broker checks in a batch that a client sent, in Kafka's order (`ProduceRequest`,
//! `UnifiedLog.analyzeAndValidateRecords`, `LogValidator`).
//!
//! Stricter than Kafka at one place: a record of a compressed batch whose fields do not add up to
//! its size is refused, where Kafka stores what no consumer can read.

use bytes::Bytes;

use crate::batch::{Batch, next_batch_bytes};
use crate::codec::{Codec, Window};
use crate::error::{BatchError, RecordError, RecordErrors, RecordFault, RejectedRecord};
use crate::header::{BatchHeader, NO_TIMESTAMP, TimestampType};
use crate::reader::broken_stream;
use crate::record::{Context, Fields, varint_fault};

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
            codec => {
                let window = Window::new(codec, self.record_bytes()).map_err(broken_stream)?;
                Source::Stream(Box::new(Walk::new(window, rules.decompressed_record_bytes_max)))
            }
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
                while self.judge.index < self.judge.count {
                    let index = self.judge.index;
                    match walk.next(pause_at).map_err(|failure| failure.at(index))? {
                        Some(head) => self.judge.record(head),
                        None => {
                            self.plain_bytes = walk.walked;
                            return Ok(None);
                        }
                    }
                }
                if !walk.is_at_end()? {
                    return Err(BatchError::BytesAfterRecords);
                }
                self.plain_bytes = walk.walked;
            }
        }
        self.judge.verdict(self.plain_bytes).map(Some)
    }

    /// How many bytes of the decompressed stream it holds at the moment; the codec's own window
    /// comes on top of it.
    pub fn held_bytes(&self) -> usize {
        match &self.source {
            Source::Plain { .. } => 0,
            Source::Stream(walk) => walk.window.held_bytes(),
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

/// What the check wants to know of a record.
#[derive(Clone, Copy, Debug)]
struct Head {
    timestamp_delta: i64,
    offset_delta: i32,
    has_key: bool,
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
            });
        }
        *position = bytes.len();
        if fields.rest.is_empty() { Ok(true) } else { Err(BatchError::BytesAfterRecords) }
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

/// Walks over a compressed batch's records, keeping nothing of keys, values and headers.
#[derive(Debug)]
struct Walk {
    window: Window,
    record_bytes_max: usize,
    /// Bytes of the stream that lie behind.
    walked: u64,
    /// Bytes of the current field that are still to be stepped over.
    skip: u64,
    /// Where the current record ends, in bytes from the start of the stream.
    record_end: u64,
    record_size: i32,
    expects: Expects,
    head: Head,
}

/// Which field of a record comes next.
#[derive(Clone, Copy, Debug)]
enum Expects {
    Record,
    ValueSize,
    HeaderCount,
    HeaderKey { left: u32 },
    HeaderValue { left: u32 },
    End,
}

#[derive(Debug)]
enum Failure {
    Record(RecordFault),
    Stream(std::io::Error),
}

impl Failure {
    fn at(self, index: u32) -> BatchError {
        match self {
            Failure::Record(fault) => BatchError::Record { index, fault },
            Failure::Stream(error) => broken_stream(error),
        }
    }
}

impl From<RecordFault> for Failure {
    fn from(fault: RecordFault) -> Self {
        Failure::Record(fault)
    }
}

impl Walk {
    fn new(window: Window, record_bytes_max: usize) -> Self {
        Self {
            window,
            record_bytes_max,
            walked: 0,
            skip: 0,
            record_end: 0,
            record_size: 0,
            expects: Expects::Record,
            head: Head { timestamp_delta: 0, offset_delta: 0, has_key: false },
        }
    }

    /// Steps over the next record; `None` when it has to pause before its end.
    fn next(&mut self, pause_at: u64) -> Result<Option<Head>, Failure> {
        loop {
            if self.walked >= pause_at {
                return Ok(None);
            }
            if self.skip > 0 {
                self.skip_some()?;
                continue;
            }
            self.expects = match self.expects {
                Expects::Record => self.record_head()?,
                Expects::ValueSize => {
                    self.skip = self.size()?.unwrap_or(0);
                    Expects::HeaderCount
                }
                Expects::HeaderCount => self.header_count()?,
                Expects::HeaderKey { left } => {
                    let size = self.varint()?;
                    self.skip =
                        u64::try_from(size).map_err(|_| RecordFault::HeaderKeySize(size))?;
                    Expects::HeaderValue { left }
                }
                Expects::HeaderValue { left } => {
                    self.skip = self.size()?.unwrap_or(0);
                    if left > 1 { Expects::HeaderKey { left: left - 1 } } else { Expects::End }
                }
                Expects::End => {
                    if self.walked != self.record_end {
                        return Err(RecordFault::SizeMismatch(self.record_size).into());
                    }
                    self.expects = Expects::Record;
                    return Ok(Some(self.head));
                }
            };
        }
    }

    fn record_head(&mut self) -> Result<Expects, Failure> {
        self.record_end = u64::MAX;
        self.record_size = self.varint()?;
        let size = self.record_size;
        let body = u64::try_from(size).map_err(|_| RecordFault::NegativeSize(size))?;
        if body > self.record_bytes_max as u64 {
            return Err(RecordFault::TooLarge { bytes: size, max: self.record_bytes_max }.into());
        }
        self.record_end = self.walked + body;
        // Attributes: none is defined.
        self.take(1)?;
        self.head.timestamp_delta = self.varlong()?;
        self.head.offset_delta = self.varint()?;
        let key = self.size()?;
        self.head.has_key = key.is_some();
        self.skip = key.unwrap_or(0);
        Ok(Expects::ValueSize)
    }

    fn header_count(&mut self) -> Result<Expects, Failure> {
        let count = self.varint()?;
        let left = u32::try_from(count).map_err(|_| RecordFault::HeaderCount(count))?;
        if u64::from(left) > self.record_end.saturating_sub(self.walked) {
            return Err(RecordFault::HeaderCount(count).into());
        }
        Ok(if left == 0 { Expects::End } else { Expects::HeaderKey { left } })
    }

    fn skip_some(&mut self) -> Result<(), Failure> {
        if self.skip > self.record_end.saturating_sub(self.walked) {
            return Err(RecordFault::SizeMismatch(self.record_size).into());
        }
        let seen = self.window.peek(1).map_err(Failure::Stream)?.len() as u64;
        if seen == 0 {
            return Err(RecordFault::Truncated.into());
        }
        let count = self.skip.min(seen);
        self.skip -= count;
        self.take(count as usize)
    }

    /// The size of a field; `None` for any negative one.
    fn size(&mut self) -> Result<Option<u64>, Failure> {
        Ok(u64::try_from(self.varint()?).ok())
    }

    fn varint(&mut self) -> Result<i32, Failure> {
        let bytes = self.window.peek(base::varint::VARINT_BYTES_MAX).map_err(Failure::Stream)?;
        let (value, length) = base::varint::read_varint(bytes).map_err(varint_fault)?;
        self.take(length)?;
        Ok(value)
    }

    fn varlong(&mut self) -> Result<i64, Failure> {
        let bytes = self.window.peek(base::varint::VARLONG_BYTES_MAX).map_err(Failure::Stream)?;
        let (value, length) = base::varint::read_varlong(bytes).map_err(varint_fault)?;
        self.take(length)?;
        Ok(value)
    }

    fn take(&mut self, count: usize) -> Result<(), Failure> {
        if self.window.peek(count).map_err(Failure::Stream)?.len() < count {
            return Err(RecordFault::Truncated.into());
        }
        self.window.consume(count);
        self.walked += count as u64;
        Ok(())
    }

    fn is_at_end(&mut self) -> Result<bool, BatchError> {
        Ok(self.window.peek(1).map_err(broken_stream)?.is_empty())
    }
}
