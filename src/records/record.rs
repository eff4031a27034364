//! One record within a batch (`DefaultRecord`), read in place.

use base::Offset;
use base::varint::{BadVarint, read_varint, read_varlong};

use crate::error::RecordFault;
use crate::header::{BatchHeader, TimestampType};

/// A record, borrowed from the bytes of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its offset in the partition.
    pub offset: Offset,
    /// Milliseconds since 1970, −1 for none. With LogAppendTime, the batch's.
    pub timestamp: i64,
    /// Its key, if it has one.
    pub key: Option<&'a [u8]>,
    /// Its value; `None` is a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// Its headers, in order; names can repeat.
    pub headers: Headers<'a>,
}

/// The headers of a record, an iterator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    count: u32,
    // Was checked when the record was read.
    bytes: &'a [u8],
}

/// One header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader<'a> {
    /// Its name. Clients write UTF-8; nobody checks it.
    pub key: &'a [u8],
    /// Its value, if it has one.
    pub value: Option<&'a [u8]>,
}

impl<'a> Iterator for Headers<'a> {
    type Item = RecordHeader<'a>;

    fn next(&mut self) -> Option<RecordHeader<'a>> {
        self.count = self.count.checked_sub(1)?;
        let mut fields = Fields { rest: self.bytes };
        let header = fields.header().expect("headers are checked when their record is read");
        self.bytes = fields.rest;
        Some(header)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count as usize, Some(self.count as usize))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// What a batch's header contributes to each of its records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    base_offset: i64,
    base_timestamp: i64,
    append_time: Option<i64>,
}

impl Context {
    pub(crate) fn of(header: &BatchHeader) -> Self {
        let append_time = match header.timestamp_type() {
            TimestampType::CreateTime => None,
            TimestampType::LogAppendTime => Some(header.max_timestamp),
        };
        let (base_offset, base_timestamp) = (header.base_offset.0, header.base_timestamp);
        Self { base_offset, base_timestamp, append_time }
    }

    /// Wraps on absurd deltas, as Java does.
    pub(crate) fn offset(&self, delta: i32) -> Offset {
        Offset(self.base_offset.wrapping_add(i64::from(delta)))
    }

    /// Wraps on absurd deltas, as Java does.
    pub(crate) fn timestamp(&self, delta: i64) -> i64 {
        self.append_time.unwrap_or_else(|| self.base_timestamp.wrapping_add(delta))
    }
}

/// A record with what its header does not resolve yet.
#[derive(Clone, Copy)]
pub(crate) struct RawRecord<'a> {
    pub(crate) timestamp_delta: i64,
    pub(crate) offset_delta: i32,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) headers: Headers<'a>,
}

impl<'a> RawRecord<'a> {
    pub(crate) fn resolve(self, context: &Context) -> Record<'a> {
        Record {
            offset: context.offset(self.offset_delta),
            timestamp: context.timestamp(self.timestamp_delta),
            key: self.key,
            value: self.value,
            headers: self.headers,
        }
    }
}

/// Fields of records, taken from the front of some bytes.
pub(crate) struct Fields<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// A record with the size before it.
    #[inline]
    pub(crate) fn record(&mut self) -> Result<RawRecord<'a>, RecordFault> {
        let size = self.varint()?;
        let bytes = usize::try_from(size).map_err(|_| RecordFault::NegativeSize(size))?;
        let (body, rest) = self.rest.split_at_checked(bytes).ok_or(RecordFault::Truncated)?;
        self.rest = rest;
        // A field that reaches past the body contradicts the record's size, not the batch's.
        Fields { rest: body }.record_body(size).map_err(|fault| match fault {
            RecordFault::Truncated => RecordFault::SizeMismatch(size),
            fault => fault,
        })
    }

    #[inline]
    fn record_body(mut self, size: i32) -> Result<RawRecord<'a>, RecordFault> {
        // Attributes: none is defined, and Kafka ignores what stands there.
        self.skip_byte()?;
        let timestamp_delta = self.varlong()?;
        let offset_delta = self.varint()?;
        let key = self.nullable_bytes()?;
        let value = self.nullable_bytes()?;
        let count = self.varint()?;
        let headers =
            if count == 0 { Headers { count: 0, bytes: &[] } } else { self.headers(count)? };
        if !self.rest.is_empty() {
            return Err(RecordFault::SizeMismatch(size));
        }
        Ok(RawRecord { timestamp_delta, offset_delta, key, value, headers })
    }

    fn headers(&mut self, count: i32) -> Result<Headers<'a>, RecordFault> {
        let bytes = self.rest;
        let count = match u32::try_from(count) {
            Ok(fits) if fits as usize <= bytes.len() => fits,
            _ => return Err(RecordFault::HeaderCount(count)),
        };
        for _ in 0..count {
            self.header()?;
        }
        Ok(Headers { count, bytes })
    }

    fn header(&mut self) -> Result<RecordHeader<'a>, RecordFault> {
        let key_size = self.varint()?;
        let key = self.bytes(key_size)?.ok_or(RecordFault::HeaderKeySize(key_size))?;
        Ok(RecordHeader { key, value: self.nullable_bytes()? })
    }

    #[inline]
    fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, RecordFault> {
        let size = self.varint()?;
        self.bytes(size)
    }

    /// `None` for any negative size, as Kafka reads it.
    #[inline]
    fn bytes(&mut self, size: i32) -> Result<Option<&'a [u8]>, RecordFault> {
        let Ok(size) = usize::try_from(size) else { return Ok(None) };
        let (bytes, rest) = self.rest.split_at_checked(size).ok_or(RecordFault::Truncated)?;
        self.rest = rest;
        Ok(Some(bytes))
    }

    #[inline]
    fn skip_byte(&mut self) -> Result<(), RecordFault> {
        self.rest = self.rest.get(1..).ok_or(RecordFault::Truncated)?;
        Ok(())
    }

    #[inline]
    fn varint(&mut self) -> Result<i32, RecordFault> {
        let (value, length) = read_varint(self.rest).map_err(varint_fault)?;
        self.rest = &self.rest[length..];
        Ok(value)
    }

    #[inline]
    fn varlong(&mut self) -> Result<i64, RecordFault> {
        let (value, length) = read_varlong(self.rest).map_err(varint_fault)?;
        self.rest = &self.rest[length..];
        Ok(value)
    }
}

pub(crate) fn varint_fault(bad: BadVarint) -> RecordFault {
    match bad {
        BadVarint::Truncated => RecordFault::Truncated,
        BadVarint::TooLong => RecordFault::Varint,
    }
}
