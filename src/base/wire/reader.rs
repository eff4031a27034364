use bytes::Bytes;

use super::{
    ARRAY_ELEMENTS_MAX, DecodeError, STRING_BYTES_MAX, Str, TAGGED_FIELDS_MAX, UnknownTags,
};
use crate::Uuid;
use crate::varint::{self, BadVarint};

/// Reads the fields of a message, one after the other, from a frame.
///
/// After an error its position means nothing: the frame is given up.
#[derive(Clone, Debug)]
pub struct Reader {
    frame: Bytes,
    position: usize,
}

macro_rules! fixed_size {
    ($(#[$doc:meta])* $name:ident, $type:ty, $bytes:literal) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(&mut self) -> Result<$type, DecodeError> {
            Ok(<$type>::from_be_bytes(self.array_of_bytes::<$bytes>()?))
        }
    };
}

macro_rules! array_of {
    ($(#[$doc:meta])* $name:ident, $type:ty, $element:ident) => {
        $(#[$doc])*
        pub fn $name(&mut self, count: usize) -> Result<Vec<$type>, DecodeError> {
            let mut elements = Vec::with_capacity(self.capacity(count, size_of::<$type>()));
            for _ in 0..count {
                elements.push(self.$element()?);
            }
            Ok(elements)
        }
    };
}

impl Reader {
    /// Reads from the start of `frame`.
    pub fn new(frame: Bytes) -> Self {
        Self { frame, position: 0 }
    }

    /// How many bytes were not read yet.
    pub fn remaining(&self) -> usize {
        self.frame.len() - self.position
    }

    /// How many bytes were read.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Everything that was not read yet, sharing the frame's memory.
    pub fn rest(&mut self) -> Bytes {
        let rest = self.frame.slice(self.position..);
        self.position = self.frame.len();
        rest
    }

    /// The next `length` bytes, sharing the frame's memory.
    pub fn take(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        if length > self.remaining() {
            return Err(self.truncated(length));
        }
        let end = self.position + length;
        let taken = self.frame.slice(self.position..end);
        self.position = end;
        Ok(taken)
    }

    fixed_size! {
        /// int8.
        i8, i8, 1
    }
    fixed_size! {
        /// int16.
        i16, i16, 2
    }
    fixed_size! {
        /// int32.
        i32, i32, 4
    }
    fixed_size! {
        /// int64.
        i64, i64, 8
    }
    fixed_size! {
        /// uint16.
        u16, u16, 2
    }
    fixed_size! {
        /// uint32.
        u32, u32, 4
    }
    fixed_size! {
        /// float64; every bit pattern is accepted and kept.
        f64, f64, 8
    }

    /// bool: any byte but zero is true.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.i8()? != 0)
    }

    /// uuid.
    pub fn uuid(&mut self) -> Result<Uuid, DecodeError> {
        Ok(Uuid(self.array_of_bytes::<16>()?))
    }

    /// An unsigned variable-length integer of 32 bits.
    #[inline]
    pub fn unsigned_varint(&mut self) -> Result<u32, DecodeError> {
        let left = self.frame.get(self.position..).unwrap_or_default();
        match varint::read_unsigned_varint(left) {
            Ok((value, length)) => {
                self.position += length;
                Ok(value)
            }
            Err(BadVarint::Truncated) => Err(self.truncated(self.remaining() + 1)),
            Err(BadVarint::TooLong) => Err(DecodeError::VarintTooLong),
        }
    }

    /// A string that must not be null. `flexible` says how its length is written. What is not
    /// UTF-8 in it becomes U+FFFD, as in Kafka's reader.
    pub fn string(&mut self, flexible: bool, field: &'static str) -> Result<Str, DecodeError> {
        self.nullable_string(flexible, field)?.ok_or(DecodeError::Null { field })
    }

    /// A string or null.
    pub fn nullable_string(
        &mut self,
        flexible: bool,
        field: &'static str,
    ) -> Result<Option<Str>, DecodeError> {
        let length = if flexible { self.compact_length()? } else { i64::from(self.i16()?) };
        let Ok(length) = usize::try_from(length) else {
            return Ok(None);
        };
        if length > STRING_BYTES_MAX {
            return Err(DecodeError::StringTooLong { field, bytes: length });
        }
        Ok(Some(lossy(self.take(length)?)))
    }

    /// Bytes that must not be null.
    pub fn bytes(&mut self, flexible: bool, field: &'static str) -> Result<Bytes, DecodeError> {
        self.nullable_bytes(flexible)?.ok_or(DecodeError::Null { field })
    }

    /// Bytes or null.
    pub fn nullable_bytes(&mut self, flexible: bool) -> Result<Option<Bytes>, DecodeError> {
        match usize::try_from(self.long_length(flexible)?) {
            Ok(length) => Ok(Some(self.take(length)?)),
            Err(_) => Ok(None),
        }
    }

    /// How many elements the array has that follows; it must not be null. Never more than there
    /// are bytes left.
    pub fn array(&mut self, flexible: bool, field: &'static str) -> Result<usize, DecodeError> {
        self.nullable_array(flexible, field)?.ok_or(DecodeError::Null { field })
    }

    /// How many elements the array has that follows, or none for null.
    pub fn nullable_array(
        &mut self,
        flexible: bool,
        field: &'static str,
    ) -> Result<Option<usize>, DecodeError> {
        let Ok(elements) = usize::try_from(self.long_length(flexible)?) else {
            return Ok(None);
        };
        if elements > self.remaining() || elements > ARRAY_ELEMENTS_MAX {
            return Err(DecodeError::ArrayTooLong { field, elements });
        }
        Ok(Some(elements))
    }

    /// For how many of `count` elements room may be made at once, so that a claim never takes more
    /// memory than the bytes that came with it.
    pub fn capacity(&self, count: usize, element_bytes: usize) -> usize {
        count.min(self.remaining() / element_bytes.max(1) + 1)
    }

    array_of! {
        /// The elements of an array of int8.
        i8_elements, i8, i8
    }
    array_of! {
        /// The elements of an array of int16.
        i16_elements, i16, i16
    }
    array_of! {
        /// The elements of an array of int32.
        i32_elements, i32, i32
    }
    array_of! {
        /// The elements of an array of int64.
        i64_elements, i64, i64
    }
    array_of! {
        /// The elements of an array of uuid.
        uuid_elements, Uuid, uuid
    }

    /// The elements of an array of strings.
    pub fn string_elements(
        &mut self,
        count: usize,
        flexible: bool,
        field: &'static str,
    ) -> Result<Vec<Str>, DecodeError> {
        let mut elements = Vec::with_capacity(self.capacity(count, size_of::<Str>()));
        for _ in 0..count {
            elements.push(self.string(flexible, field)?);
        }
        Ok(elements)
    }

    /// How many tagged fields follow.
    pub fn tag_count(&mut self) -> Result<u32, DecodeError> {
        let count = self.unsigned_varint()?;
        if count > TAGGED_FIELDS_MAX || count as usize > self.remaining() {
            return Err(DecodeError::TooManyTags(count));
        }
        Ok(count)
    }

    /// The tag of the tagged field that follows, and where it must end.
    pub fn tag(&mut self) -> Result<(u32, usize), DecodeError> {
        let tag = self.unsigned_varint()?;
        let size = self.unsigned_varint()? as usize;
        if size > self.remaining() {
            return Err(self.truncated(size));
        }
        Ok((tag, self.position + size))
    }

    /// Checks that the tagged field that began at `start` was read to its `end`.
    pub fn tag_end(&self, tag: u32, start: usize, end: usize) -> Result<(), DecodeError> {
        if self.position == end {
            return Ok(());
        }
        Err(DecodeError::TagSize { tag, size: end - start, used: self.position - start })
    }

    /// Keeps a tagged field that the schema does not know.
    pub fn unknown_tag(
        &mut self,
        unknown: &mut UnknownTags,
        tag: u32,
        end: usize,
    ) -> Result<(), DecodeError> {
        let bytes = self.take(end - self.position)?;
        unknown.0.push((tag, bytes));
        Ok(())
    }

    /// The tagged fields of a structure whose schema knows none.
    pub fn unknown_tags(&mut self, unknown: &mut UnknownTags) -> Result<(), DecodeError> {
        for _ in 0..self.tag_count()? {
            let (tag, end) = self.tag()?;
            self.unknown_tag(unknown, tag, end)?;
        }
        Ok(())
    }

    fn long_length(&mut self, flexible: bool) -> Result<i64, DecodeError> {
        if flexible { self.compact_length() } else { Ok(i64::from(self.i32()?)) }
    }

    /// A compact length is one more than what it stands for; zero is null.
    fn compact_length(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from(self.unsigned_varint()?) - 1)
    }

    #[inline]
    fn array_of_bytes<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let left = self.frame.get(self.position..).unwrap_or_default();
        match left.first_chunk::<N>() {
            Some(bytes) => {
                self.position += N;
                Ok(*bytes)
            }
            None => Err(self.truncated(N)),
        }
    }

    #[cold]
    fn truncated(&self, wanted: usize) -> DecodeError {
        DecodeError::Truncated { wanted, left: self.remaining() }
    }
}

fn lossy(bytes: Bytes) -> Str {
    match Str::try_from(bytes.clone()) {
        Ok(text) => text,
        Err(_) => Str::from(String::from_utf8_lossy(&bytes).into_owned()),
    }
}
