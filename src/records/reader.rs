//! Reads the records of a batch one after the other.

use std::io;

use bytes::Bytes;

use crate::codec::{Codec, Window};
use crate::error::{BatchError, RecordFault};
use crate::header::BatchHeader;
use crate::record::{Context, Fields, Record, varint_fault};

/// The longest encoding of a record's size, in bytes.
const SIZE_BYTES_MAX: usize = base::varint::VARINT_BYTES_MAX;

/// The records of one batch. Each borrows from the reader, so a compressed batch needs memory for
/// one record at a time; that is why this is no [`Iterator`].
#[derive(Debug)]
pub struct RecordReader {
    context: Context,
    count: u32,
    index: u32,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Plain { bytes: Bytes, position: usize },
    Stream { window: Box<Window>, record_bytes_max: usize },
}

impl RecordReader {
    pub(crate) fn new(
        header: &BatchHeader,
        bytes: Bytes,
        record_bytes_max: usize,
    ) -> Result<Self, BatchError> {
        let count = u32::try_from(header.record_count)
            .map_err(|_| BatchError::Count(header.record_count))?;
        let source = match header.codec().map_err(BatchError::UnknownCodec)? {
            Codec::None => Source::Plain { bytes, position: 0 },
            codec => {
                let window = Box::new(Window::new(codec, bytes).map_err(broken_stream)?);
                Source::Stream { window, record_bytes_max }
            }
        };
        Ok(Self { context: Context::of(header), count, index: 0, source })
    }

    /// The next record; `None` after the last. After an error the result has no meaning.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, BatchError> {
        if self.index == self.count {
            return Ok(None);
        }
        let (index, last) = (self.index, self.index + 1 == self.count);
        self.index += 1;
        let record_bytes = match &mut self.source {
            Source::Plain { bytes, position } => {
                let rest = &bytes[*position..];
                let size = whole_record(rest, usize::MAX, index)?;
                let truncated = BatchError::Record { index, fault: RecordFault::Truncated };
                let (record, after) = rest.split_at_checked(size).ok_or(truncated)?;
                *position += size;
                if last && !after.is_empty() {
                    return Err(BatchError::BytesAfterRecords);
                }
                record
            }
            Source::Stream { window, record_bytes_max } => {
                next_of_stream(window, *record_bytes_max, index, last)?
            }
        };
        let record = Fields { rest: record_bytes }
            .record()
            .map_err(|fault| BatchError::Record { index, fault })?;
        Ok(Some(record.resolve(&self.context)))
    }
}

fn next_of_stream(
    window: &mut Window,
    record_bytes_max: usize,
    index: u32,
    last: bool,
) -> Result<&[u8], BatchError> {
    let start = window.peek(SIZE_BYTES_MAX).map_err(broken_stream)?;
    let size = whole_record(start, record_bytes_max, index)?;
    // One byte more shows whether anything follows the last record.
    let seen = window.peek(size + usize::from(last)).map_err(broken_stream)?.len();
    if seen < size {
        return Err(BatchError::Record { index, fault: RecordFault::Truncated });
    }
    if last && seen > size {
        return Err(BatchError::BytesAfterRecords);
    }
    window.consume(size);
    Ok(window.before(size))
}

/// The size of the record at the start of `bytes`, with that of its size field.
fn whole_record(bytes: &[u8], record_bytes_max: usize, index: u32) -> Result<usize, BatchError> {
    let fault = |fault| BatchError::Record { index, fault };
    let (size, prefix) =
        base::varint::read_varint(bytes).map_err(|bad| fault(varint_fault(bad)))?;
    let body = usize::try_from(size).map_err(|_| fault(RecordFault::NegativeSize(size)))?;
    if body > record_bytes_max {
        return Err(fault(RecordFault::TooLarge { bytes: size, max: record_bytes_max }));
    }
    Ok(prefix + body)
}

pub(crate) fn broken_stream(error: io::Error) -> BatchError {
    BatchError::Compression(error.to_string())
}
