//! Fuzz targets as plain functions: bytes in, a panic if something is wrong. A fuzzer calls them
//! without end; the tests here call them a bounded number of times with seeded input.
//!
//! [`decode_any`] is the target of every decoder that is generated from a schema. [`sample()`]
//! makes valid messages from the schemas alone, without the generated code, so that it can witness
//! against it; the proof against Kafka's own classes uses it too. [`record_batch`] is the target of
//! record batches, [`producer_snapshot`] that of the snapshots of producers.
//!
//! Depends on the crates whose input comes from outside. Deliberately absent: a fuzzing engine.

mod batches;
mod kinds;
mod sample;
mod snapshots;

pub use batches::{broken_batch, record_batch};
pub use kinds::{Kind, Recoded};
pub use sample::{Shape, sample, schemas};
pub use snapshots::{broken_snapshot, producer_snapshot};

use base::wire::EncodeError;
use bytes::Bytes;

/// Reads `data` as a message and checks that what was read survives writing and reading again.
///
/// The first two bytes choose the message, the third its version, the rest is its bytes.
///
/// # Panics
/// If a decoder or encoder is wrong.
pub fn decode_any(data: &[u8]) {
    let &[high, low, pick, ref bytes @ ..] = data else { return };
    let index = usize::from(u16::from_be_bytes([high, low])) % Kind::all().count();
    let Some(kind) = Kind::all().nth(index) else { return };
    let span = i16::from(pick) % (kind.last - kind.first + 1);
    decode(kind, kind.first + span, bytes);
}

/// The same for a message and version that are known. Says whether the bytes were such a message.
///
/// # Panics
/// If a decoder or encoder is wrong.
pub fn decode(kind: &Kind, version: i16, bytes: &[u8]) -> bool {
    let input = Bytes::copy_from_slice(bytes);
    let Ok(first) = (kind.recode)(input, version, version) else { return false };
    let written = match first.written {
        Ok(written) => written,
        // Kafka reads these, too, and cannot write them either: tags out of order, and a string
        // that grew when what is no UTF-8 in it was replaced.
        Err(EncodeError::TagOutOfOrder(_) | EncodeError::TooLong { .. }) => return true,
        Err(error) => panic!("{} {version} was read and not written: {error}", kind.name),
    };
    let second = (kind.recode)(written.clone(), version, version)
        .unwrap_or_else(|error| panic!("{} {version} does not read itself: {error}", kind.name));
    assert_eq!(second.left, 0, "{} {version} does not read all that it wrote", kind.name);
    assert_eq!(second.written, Ok(written), "{} {version} changes when read", kind.name);
    true
}

#[cfg(test)]
mod tests;
