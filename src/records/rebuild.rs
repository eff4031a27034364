//! Writes a batch anew, in pieces.

use base::Offset;
use base::varint::{VARINT_BYTES_MAX, VARLONG_BYTES_MAX, read_varint, read_varlong};

use crate::batch::Batch;
use crate::builder::BatchBuilder;
use crate::codec::{Compression, Window};
use crate::error::{BatchError, RecordFault};
use crate::reader::broken_stream;
use crate::record::{Context, varint_fault};

/// What stands before the key of a record at most, in bytes: its size, attributes, timestamp and
/// offset.
const HEAD_BYTES_MAX: usize = VARINT_BYTES_MAX + 1 + VARLONG_BYTES_MAX + VARINT_BYTES_MAX;

/// Writes a batch anew: with other compression (`compression.type` of the topic), or because its
/// offsets were not contiguous. The records get the offsets 0, 1, 2 and so on; producer and
/// transaction stay. To be called with a batch that [`Batch::check_records`] has accepted.
///
/// Stops with [`BatchError::TooLarge`] as soon as the result is larger than `batch_bytes_max`, in
/// bytes.
pub fn rebuild(
    batch: &Batch,
    compression: Compression,
    batch_bytes_max: usize,
) -> Result<Batch, BatchError> {
    let mut rebuild = Rebuild::new(batch, compression, batch_bytes_max)?;
    while !rebuild.advance(usize::MAX)? {}
    rebuild.finish()
}

/// A [`rebuild`] that can pause, as [`crate::RecordsCheck`] can. What follows the offset of a
/// record is passed on as it comes, so that a record of any size takes no memory.
#[derive(Debug)]
pub struct Rebuild {
    passage: Passage,
    builder: BatchBuilder,
    batch_bytes_max: usize,
}

impl Rebuild {
    /// Begins; the arguments and errors are those of [`rebuild`].
    pub fn new(
        batch: &Batch,
        compression: Compression,
        batch_bytes_max: usize,
    ) -> Result<Self, BatchError> {
        let header = batch.header();
        let mut builder = BatchBuilder::new(Offset(0), compression).producer(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        );
        if header.is_transactional() {
            builder = builder.transactional();
        }
        Ok(Self { passage: Passage::new(batch)?, builder, batch_bytes_max })
    }

    /// Goes on for about `budget_bytes` of uncompressed records; says whether all are done. After
    /// an error it must not be called again.
    pub fn advance(&mut self, budget_bytes: usize) -> Result<bool, BatchError> {
        let pause_at = self.plain_bytes().saturating_add(budget_bytes as u64);
        while !self.passage.is_over() {
            if self.plain_bytes() >= pause_at {
                return Ok(false);
            }
            if self.passage.is_between() {
                let head = self.passage.head()?;
                self.builder.append_head(self.builder.next_offset(), head.timestamp, head.rest);
            } else {
                self.passage.pass_on(Some(&mut self.builder))?;
                let (bytes, max) = (self.builder.written(), self.batch_bytes_max);
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

    /// How much of the decompressed stream it holds, in bytes.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.passage.window.held_bytes()
    }

    /// The new batch, once all records are done.
    pub fn finish(self) -> Result<Batch, BatchError> {
        let (rebuilt, max) = (self.builder.build(), self.batch_bytes_max);
        if rebuilt.size() > max {
            return Err(BatchError::TooLarge { bytes: rebuilt.size(), max });
        }
        Ok(rebuilt)
    }
}

/// The records of a batch on their way into another one: what stands before the key of each is
/// read, the rest is passed on as it comes.
#[derive(Debug)]
pub(crate) struct Passage {
    context: Context,
    window: Window,
    /// How many records are to come.
    left: u32,
    index: u32,
    /// Bytes of the current record that are to be passed on.
    rest: usize,
    plain_bytes: u64,
}

/// What stands before the key of a record.
pub(crate) struct PassedHead {
    pub(crate) offset: Offset,
    pub(crate) timestamp: i64,
    /// How many bytes follow.
    pub(crate) rest: usize,
}

impl Passage {
    pub(crate) fn new(batch: &Batch) -> Result<Self, BatchError> {
        let header = batch.header();
        let codec = header.codec().map_err(BatchError::UnknownCodec)?;
        let window = Window::new(codec, batch.record_bytes()).map_err(broken_stream)?;
        let left = u32::try_from(header.record_count)
            .map_err(|_| BatchError::Count(header.record_count))?;
        let context = Context::of(header);
        Ok(Self { context, window, left, index: 0, rest: 0, plain_bytes: 0 })
    }

    /// Whether all records lie behind.
    pub(crate) fn is_over(&self) -> bool {
        self.rest == 0 && self.left == 0
    }

    /// Whether the next thing is the head of a record.
    pub(crate) fn is_between(&self) -> bool {
        self.rest == 0
    }

    /// The index of the record whose head comes next.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn plain_bytes(&self) -> u64 {
        self.plain_bytes
    }

    /// Takes what stands before the key of the next record.
    pub(crate) fn head(&mut self) -> Result<PassedHead, BatchError> {
        let index = self.index;
        let fault = |fault| BatchError::Record { index, fault };
        let bytes = self.window.peek(HEAD_BYTES_MAX).map_err(broken_stream)?;
        let (size, prefix) = read_varint(bytes).map_err(|bad| fault(varint_fault(bad)))?;
        let body = &bytes[prefix..];
        // Attributes: none is defined.
        let delta = body.get(1..).unwrap_or_default();
        let (timestamp_delta, length) =
            read_varlong(delta).map_err(|bad| fault(varint_fault(bad)))?;
        let (offset_delta, offset_length) =
            read_varint(&delta[length..]).map_err(|bad| fault(varint_fault(bad)))?;
        let before_key = 1 + length + offset_length;
        let rest = usize::try_from(size).ok().and_then(|size| size.checked_sub(before_key));
        self.rest = rest.ok_or_else(|| fault(RecordFault::SizeMismatch(size)))?;
        self.window.consume(prefix + before_key);
        self.plain_bytes += (prefix + before_key) as u64;
        self.left -= 1;
        self.index += 1;
        let (offset, timestamp) =
            (self.context.offset(offset_delta), self.context.timestamp(timestamp_delta));
        Ok(PassedHead { offset, timestamp, rest: self.rest })
    }

    /// Passes on the next piece of the current record, or steps over it.
    pub(crate) fn pass_on(&mut self, to: Option<&mut BatchBuilder>) -> Result<(), BatchError> {
        let seen = self.window.peek(1).map_err(broken_stream)?;
        if seen.is_empty() {
            let fault = RecordFault::Truncated;
            return Err(BatchError::Record { index: self.index - 1, fault });
        }
        let piece = &seen[..seen.len().min(self.rest)];
        if let Some(builder) = to {
            builder.append_rest(piece);
        }
        let count = piece.len();
        self.window.consume(count);
        self.rest -= count;
        self.plain_bytes += count as u64;
        Ok(())
    }
}
