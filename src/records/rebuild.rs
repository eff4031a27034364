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
    context: Context,
    window: Window,
    /// How many records are to come.
    left: u32,
    index: u32,
    /// Bytes of the current record that are to be passed on.
    rest: usize,
    plain_bytes: u64,
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
        let codec = header.codec().map_err(BatchError::UnknownCodec)?;
        let window = Window::new(codec, batch.record_bytes()).map_err(broken_stream)?;
        let left = u32::try_from(header.record_count)
            .map_err(|_| BatchError::Count(header.record_count))?;
        Ok(Self {
            context: Context::of(header),
            window,
            left,
            index: 0,
            rest: 0,
            plain_bytes: 0,
            builder,
            batch_bytes_max,
        })
    }

    /// Goes on for about `budget_bytes` of uncompressed records; says whether all are done. After
    /// an error it must not be called again.
    pub fn advance(&mut self, budget_bytes: usize) -> Result<bool, BatchError> {
        let pause_at = self.plain_bytes.saturating_add(budget_bytes as u64);
        while self.rest > 0 || self.left > 0 {
            if self.plain_bytes >= pause_at {
                return Ok(false);
            }
            if self.rest > 0 {
                self.pass_on()?;
            } else {
                self.head()?;
                self.left -= 1;
                self.index += 1;
            }
        }
        Ok(true)
    }

    /// How many bytes of uncompressed records lie behind.
    pub fn plain_bytes(&self) -> u64 {
        self.plain_bytes
    }

    /// How much of the decompressed stream it holds, in bytes.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.window.held_bytes()
    }

    /// The new batch, once all records are done.
    pub fn finish(self) -> Result<Batch, BatchError> {
        let (rebuilt, max) = (self.builder.build(), self.batch_bytes_max);
        if rebuilt.size() > max {
            return Err(BatchError::TooLarge { bytes: rebuilt.size(), max });
        }
        Ok(rebuilt)
    }

    /// Takes what stands before the key of the next record, and begins a new one.
    fn head(&mut self) -> Result<(), BatchError> {
        let index = self.index;
        let fault = |fault| BatchError::Record { index, fault };
        let bytes = self.window.peek(HEAD_BYTES_MAX).map_err(broken_stream)?;
        let (size, prefix) = read_varint(bytes).map_err(|bad| fault(varint_fault(bad)))?;
        let body = &bytes[prefix..];
        // Attributes: none is defined.
        let delta = body.get(1..).unwrap_or_default();
        let (timestamp_delta, length) =
            read_varlong(delta).map_err(|bad| fault(varint_fault(bad)))?;
        let (_, offset_length) =
            read_varint(&delta[length..]).map_err(|bad| fault(varint_fault(bad)))?;
        let before_key = 1 + length + offset_length;
        let rest = usize::try_from(size).ok().and_then(|size| size.checked_sub(before_key));
        self.rest = rest.ok_or_else(|| fault(RecordFault::SizeMismatch(size)))?;
        self.window.consume(prefix + before_key);
        self.plain_bytes += (prefix + before_key) as u64;
        self.builder.append_head(self.context.timestamp(timestamp_delta), self.rest);
        Ok(())
    }

    /// Passes on the next piece of the current record.
    fn pass_on(&mut self) -> Result<(), BatchError> {
        let seen = self.window.peek(1).map_err(broken_stream)?;
        if seen.is_empty() {
            let fault = RecordFault::Truncated;
            return Err(BatchError::Record { index: self.index, fault });
        }
        let piece = &seen[..seen.len().min(self.rest)];
        self.builder.append_rest(piece);
        let (count, bytes, max) = (piece.len(), self.builder.written(), self.batch_bytes_max);
        self.window.consume(count);
        self.rest -= count;
        self.plain_bytes += count as u64;
        if bytes > max { Err(BatchError::TooLarge { bytes, max }) } else { Ok(()) }
    }
}
