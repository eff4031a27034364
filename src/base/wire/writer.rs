use bytes::{BufMut, Bytes, BytesMut};

use super::{
    EncodeError, RECORDS_APART_BYTES_MIN, Records, STRING_BYTES_MAX, UNKNOWN_TAGS_END, UnknownTags,
};
use crate::{Uuid, varint};

/// One piece of an encoded message.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Bytes to send.
    Bytes(Bytes),
    /// Bytes that stand elsewhere: see [`Records::Elsewhere`].
    Gap {
        /// How many bytes belong here.
        length: u32,
        /// Which [`Records::Elsewhere`] left it.
        slot: u32,
    },
}

/// An encoded message: its parts in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Encoded {
    /// The parts, none of them empty.
    pub parts: Vec<Part>,
    /// The bytes of all parts together, gaps included.
    pub length: usize,
}

impl Encoded {
    /// All of it in one slice, copied only if there are several parts.
    ///
    /// # Panics
    /// If there is a gap.
    pub fn into_bytes(mut self) -> Bytes {
        if self.parts.len() == 1
            && let Some(Part::Bytes(bytes)) = self.parts.pop_if(|part| !part.is_gap())
        {
            return bytes;
        }
        let mut all = BytesMut::with_capacity(self.length);
        for part in self.parts {
            match part {
                Part::Bytes(bytes) => all.put(bytes),
                Part::Gap { slot, .. } => panic!("the gap {slot} was not filled"),
            }
        }
        all.freeze()
    }
}

impl Part {
    /// Whether its bytes stand elsewhere.
    pub fn is_gap(&self) -> bool {
        matches!(self, Part::Gap { .. })
    }
}

/// Writes the fields of a message, one after the other.
///
/// The first error is kept and returned by [`Writer::finish`]; what is written after it is lost.
/// A writer made by [`Writer::counting`] only measures.
#[derive(Debug, Default)]
pub struct Writer {
    buffer: BytesMut,
    parts: Vec<Part>,
    counting: bool,
    /// Bytes written so far, gaps included.
    length: usize,
    /// Those of them that are record data apart from the buffer.
    length_apart: usize,
    error: Option<EncodeError>,
}

macro_rules! fixed_size {
    ($(#[$doc:meta])* $name:ident, $type:ty) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(&mut self, value: $type) {
            self.put(&value.to_be_bytes());
        }
    };
}

macro_rules! array_of {
    ($(#[$doc:meta])* $name:ident, $type:ty, $element:ident) => {
        $(#[$doc])*
        pub fn $name(&mut self, elements: &[$type]) {
            for element in elements {
                self.$element(*element);
            }
        }
    };
}

impl Writer {
    /// A writer whose buffer has room for `bytes` bytes and grows beyond.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { buffer: BytesMut::with_capacity(bytes), ..Self::default() }
    }

    /// A writer that keeps nothing and only measures.
    pub fn counting() -> Self {
        Self { counting: true, ..Self::default() }
    }

    /// How many bytes were written, gaps included.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// How many of the written bytes stand in the buffer, and are not parts of their own.
    pub fn buffered_bytes(&self) -> usize {
        self.length - self.length_apart
    }

    /// Notes that the message cannot be written. Only the first error counts.
    #[cold]
    pub fn fail(&mut self, error: EncodeError) {
        self.error.get_or_insert(error);
    }

    /// What went wrong first, if anything.
    pub fn error(&self) -> Option<EncodeError> {
        self.error
    }

    /// What was written, or the first error.
    pub fn finish(mut self) -> Result<Encoded, EncodeError> {
        if !self.buffer.is_empty() {
            // All of the buffer, which a part before would share.
            self.parts.push(Part::Bytes(self.buffer.freeze()));
        }
        match self.error {
            Some(error) => Err(error),
            None => Ok(Encoded { parts: self.parts, length: self.length }),
        }
    }

    /// Bytes as they are, without a length.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.length += bytes.len();
        if !self.counting {
            self.buffer.extend_from_slice(bytes);
        }
    }

    fixed_size! {
        /// int8.
        i8, i8
    }
    fixed_size! {
        /// int16.
        i16, i16
    }
    fixed_size! {
        /// int32.
        i32, i32
    }
    fixed_size! {
        /// int64.
        i64, i64
    }
    fixed_size! {
        /// uint16.
        u16, u16
    }
    fixed_size! {
        /// uint32.
        u32, u32
    }
    fixed_size! {
        /// float64.
        f64, f64
    }

    /// bool: one byte, 0 or 1.
    pub fn bool(&mut self, value: bool) {
        self.i8(i8::from(value));
    }

    /// uuid.
    pub fn uuid(&mut self, value: Uuid) {
        self.put(&value.0);
    }

    /// An unsigned variable-length integer.
    #[inline]
    pub fn unsigned_varint(&mut self, value: u32) {
        self.length += varint::unsigned_varint_bytes(value);
        if !self.counting {
            varint::write_unsigned_varint(value, &mut self.buffer);
        }
    }

    /// A string. `flexible` says how its length is written.
    pub fn string(&mut self, value: &str, flexible: bool, field: &'static str) {
        if value.len() > STRING_BYTES_MAX {
            return self.fail(EncodeError::TooLong { field, bytes: value.len() });
        }
        if flexible {
            self.unsigned_varint(value.len() as u32 + 1);
        } else {
            self.i16(value.len() as i16);
        }
        self.put(value.as_bytes());
    }

    /// The null of a string.
    pub fn null_string(&mut self, flexible: bool) {
        if flexible {
            self.unsigned_varint(0);
        } else {
            self.i16(-1);
        }
    }

    /// Bytes, after their length.
    pub fn bytes(&mut self, value: &Bytes, flexible: bool, field: &'static str) {
        self.long_length(value.len(), flexible, field);
        self.put(value);
    }

    /// How many elements follow.
    pub fn array(&mut self, elements: usize, flexible: bool, field: &'static str) {
        self.long_length(elements, flexible, field);
    }

    /// The null of bytes, records and arrays.
    pub fn null(&mut self, flexible: bool) {
        if flexible {
            self.unsigned_varint(0);
        } else {
            self.i32(-1);
        }
    }

    /// Records, after their length. Large ones become a part of their own.
    pub fn records(&mut self, value: &Records, flexible: bool, field: &'static str) {
        self.long_length(value.len(), flexible, field);
        let part = match value {
            Records::Bytes(bytes) if bytes.len() < RECORDS_APART_BYTES_MIN => {
                return self.put(bytes);
            }
            Records::Bytes(bytes) => Part::Bytes(bytes.clone()),
            Records::Elsewhere { length: 0, .. } => return,
            Records::Elsewhere { length, slot } => Part::Gap { length: *length, slot: *slot },
        };
        self.length += value.len();
        self.length_apart += value.len();
        if !self.counting {
            self.end_part();
            self.parts.push(part);
        }
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
        elements: &[super::Str],
        flexible: bool,
        field: &'static str,
    ) {
        for element in elements {
            self.string(element, flexible, field);
        }
    }

    /// The head of a tagged field: its tag and its size in bytes.
    pub fn tag(&mut self, tag: u32, size: usize) {
        self.unsigned_varint(tag);
        match u32::try_from(size) {
            Ok(size) => self.unsigned_varint(size),
            Err(_) => self.fail(EncodeError::TooLong { field: "a tagged field", bytes: size }),
        }
    }

    /// How many tagged fields follow: the known ones that are written, and the unknown ones.
    pub fn tag_count(&mut self, known: u32, unknown: &UnknownTags) {
        self.unsigned_varint(known + unknown.0.len() as u32);
    }

    /// Unknown tagged fields with tags from `from` up to, not including, `to`: called between the
    /// known ones, the last time with [`UNKNOWN_TAGS_END`], it writes them all in ascending order.
    pub fn unknown_tags(&mut self, unknown: &UnknownTags, from: u32, to: u32) {
        let mut previous = None;
        for (tag, bytes) in &unknown.0 {
            if *tag >= UNKNOWN_TAGS_END || previous.is_some_and(|previous| *tag <= previous) {
                return self.fail(EncodeError::TagOutOfOrder(*tag));
            }
            previous = Some(*tag);
            if (from..to).contains(tag) {
                self.tag(*tag, bytes.len());
                self.put(bytes);
            }
        }
    }

    /// Checks that no unknown tagged field has the tag of a known one.
    pub fn known_tag(&mut self, unknown: &UnknownTags, tag: u32) {
        if unknown.0.iter().any(|(other, _)| *other == tag) {
            self.fail(EncodeError::TagOutOfOrder(tag));
        }
    }

    /// Checks, for a version without tagged fields, that there are none.
    pub fn no_tags(&mut self, unknown: &UnknownTags, version: i16) {
        if !unknown.0.is_empty() {
            self.fail(EncodeError::TagsNotInVersion { version });
        }
    }

    fn long_length(&mut self, length: usize, flexible: bool, field: &'static str) {
        // Compact lengths are written plus one, and Kafka reads both kinds as a signed number.
        match i32::try_from(length) {
            Ok(length) if length < i32::MAX => {
                if flexible {
                    self.unsigned_varint(length as u32 + 1);
                } else {
                    self.i32(length);
                }
            }
            _ => self.fail(EncodeError::TooLong { field, bytes: length }),
        }
    }

    fn end_part(&mut self) {
        if !self.buffer.is_empty() {
            self.parts.push(Part::Bytes(self.buffer.split().freeze()));
        }
    }
}
