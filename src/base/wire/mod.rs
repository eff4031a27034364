//! Reading and writing what Kafka's message schemas describe, in memory.
//!
//! The code generated from the schemas (crates `protocol` and `records`) is written against
//! [`Reader`] and [`Writer`]; everything is big-endian. A reader borrows nothing: strings and byte
//! fields are slices of the frame that share its memory, so that record data is never copied. A
//! writer yields a list of parts in which large record data stands by itself, uncopied, or as a gap
//! that is filled from a file.
//!
//! The limits are those that Apache Kafka 4.4's generated readers enforce.

mod error;
mod message;
mod reader;
mod writer;

pub use error::{DecodeError, EncodeError};
pub use message::Message;
pub use reader::Reader;
pub use writer::{Encoded, Part, Writer};

use bytes::Bytes;

/// A string of a message: UTF-8 in reference-counted bytes, cheap to clone, compared and hashed as
/// `str`.
///
/// One that was decoded shares the memory of its frame and keeps that memory in use: what outlives
/// the request is copied first, `Str::from(&*name)`. [`static_str`] makes one without allocating.
pub type Str = bytestring::ByteString;

/// A [`Str`] of a constant.
#[must_use]
pub const fn static_str(text: &'static str) -> Str {
    Str::from_static(text)
}

/// The most elements that an array may claim.
pub const ARRAY_ELEMENTS_MAX: usize = 1_000_000;
/// The most tagged fields that one structure may claim.
pub const TAGGED_FIELDS_MAX: u32 = 10_000;
/// Above every tag that can be written (Kafka's writer takes tags for signed numbers).
pub const UNKNOWN_TAGS_END: u32 = i32::MAX as u32;
/// The longest string, in bytes of UTF-8, in every version of every message.
pub const STRING_BYTES_MAX: usize = i16::MAX as usize;
/// Record data of at least this many bytes becomes a part of its own instead of being copied.
pub const RECORDS_APART_BYTES_MIN: usize = 4_096;

/// The records of one partition in a request or response.
#[derive(Clone, Debug, PartialEq)]
pub enum Records {
    /// In memory. A decoded message always has this one, sharing the frame's memory.
    Bytes(Bytes),
    /// Somewhere else, in a file as a rule. Encoding leaves a gap of this size.
    Elsewhere {
        /// How many bytes the gap has.
        length: u32,
        /// Tells the owner of the gap which one it is; never sent.
        slot: u32,
    },
}

impl Records {
    /// How many bytes they take on the wire, without their length.
    pub fn len(&self) -> usize {
        match self {
            Records::Bytes(bytes) => bytes.len(),
            Records::Elsewhere { length, .. } => *length as usize,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The tagged fields of a structure that its schema does not know, in the order of their arrival
/// (KIP-482). They are kept and written back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnknownTags(pub Vec<(u32, Bytes)>);

#[cfg(test)]
mod tests;
