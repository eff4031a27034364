//! A walk over a batch's records that keeps nothing of their keys, values and headers, so that
//! records of any size take no memory, and that can pause anywhere.

use crate::batch::Batch;
use crate::codec::Window;
use crate::error::{BatchError, RecordFault};
use crate::reader::broken_stream;
use crate::record::{Context, varint_fault};

/// What a walk tells of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) timestamp_delta: i64,
    pub(crate) offset_delta: i32,
    pub(crate) has_key: bool,
    pub(crate) has_value: bool,
}

/// Walks over a compressed batch's records, keeping nothing of keys, values and headers.
#[derive(Debug)]
pub(crate) struct Walk {
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

/// A walk over all records that the header of a batch counts, with what it says of them.
#[derive(Debug)]
pub(crate) struct RecordWalk {
    pub(crate) context: Context,
    left: u32,
    index: u32,
    walk: Walk,
}

impl RecordWalk {
    /// At the first record; records may have any size.
    pub(crate) fn new(batch: &Batch) -> Result<Self, BatchError> {
        let header = batch.header();
        let left = u32::try_from(header.record_count)
            .map_err(|_| BatchError::Count(header.record_count))?;
        let walk = Walk::new(batch, usize::MAX)?;
        Ok(Self { context: Context::of(header), left, index: 0, walk })
    }

    /// Whether all records lie behind.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Whether nothing is behind the last record.
    pub(crate) fn is_at_end(&mut self) -> Result<bool, BatchError> {
        self.walk.is_at_end()
    }

    /// Bytes of the records that lie behind, also after an error.
    pub(crate) fn walked(&self) -> u64 {
        self.walk.walked()
    }

    /// Where to pause to go on for about `budget_bytes`.
    pub(crate) fn pause_after(&self, budget_bytes: usize) -> u64 {
        self.walk.walked().saturating_add(budget_bytes as u64)
    }

    /// Steps over the next record and shows the pieces of its key, each with how many bytes of it
    /// are to come; `None` when it has to pause before its end.
    pub(crate) fn next(
        &mut self,
        pause_at: u64,
        on_key: impl FnMut(&[u8], u64),
    ) -> Result<Option<Head>, BatchError> {
        let next = self.walk.next_with_key(pause_at, on_key);
        let head = next.map_err(|failure| failure.at(self.index))?;
        if head.is_some() {
            self.left -= 1;
            self.index += 1;
        }
        Ok(head)
    }
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
pub(crate) enum Failure {
    Record(RecordFault),
    Stream(std::io::Error),
}

impl Failure {
    pub(crate) fn at(self, index: u32) -> BatchError {
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
    /// At the first record of a batch. Refuses records above `record_bytes_max`, in bytes.
    pub(crate) fn new(batch: &Batch, record_bytes_max: usize) -> Result<Self, BatchError> {
        let codec = batch.header().codec().map_err(BatchError::UnknownCodec)?;
        let window = Window::new(codec, batch.record_bytes()).map_err(broken_stream)?;
        Ok(Self {
            window,
            record_bytes_max,
            walked: 0,
            skip: 0,
            record_end: 0,
            record_size: 0,
            expects: Expects::Record,
            head: Head { timestamp_delta: 0, offset_delta: 0, has_key: false, has_value: false },
        })
    }

    /// Bytes of the records that lie behind.
    pub(crate) fn walked(&self) -> u64 {
        self.walked
    }

    /// How much of the stream it holds, in bytes.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.window.held_bytes()
    }

    /// Steps over the next record; `None` when it has to pause before its end.
    pub(crate) fn next(&mut self, pause_at: u64) -> Result<Option<Head>, Failure> {
        self.next_with_key(pause_at, |_, _| ())
    }

    /// The same, and shows the pieces of the key, each with how many bytes of it are to come.
    pub(crate) fn next_with_key(
        &mut self,
        pause_at: u64,
        mut on_key: impl FnMut(&[u8], u64),
    ) -> Result<Option<Head>, Failure> {
        loop {
            if self.walked >= pause_at {
                return Ok(None);
            }
            if self.skip > 0 {
                match self.expects {
                    Expects::ValueSize => self.skip_some(&mut on_key)?,
                    _ => self.skip_some(|_, _| ())?,
                }
                continue;
            }
            self.expects = match self.expects {
                Expects::Record => self.record_head()?,
                Expects::ValueSize => {
                    let value = self.size()?;
                    self.head.has_value = value.is_some();
                    self.skip = value.unwrap_or(0);
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

    fn skip_some(&mut self, show: impl FnOnce(&[u8], u64)) -> Result<(), Failure> {
        if self.skip > self.record_end.saturating_sub(self.walked) {
            return Err(RecordFault::SizeMismatch(self.record_size).into());
        }
        let seen = self.window.peek(1).map_err(Failure::Stream)?;
        if seen.is_empty() {
            return Err(RecordFault::Truncated.into());
        }
        let count = self.skip.min(seen.len() as u64);
        self.skip -= count;
        show(&seen[..count as usize], self.skip);
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

    /// Whether nothing follows the records that lie behind.
    pub(crate) fn is_at_end(&mut self) -> Result<bool, BatchError> {
        Ok(self.window.peek(1).map_err(broken_stream)?.is_empty())
    }
}
