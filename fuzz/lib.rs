//! Fuzz targets as plain functions: bytes in, a panic if something is wrong. A fuzzer calls them
//! without end; the tests here call them a bounded number of times with seeded input.
//!
//! [`decode_any`] is the target of every decoder that is generated from a schema. [`sample()`]
//! makes valid messages from the schemas alone, without the generated code, so that it can witness
//! against it; the proof against Kafka's own classes uses it too. [`record_batch`] is the target of
//! record batches, [`producer_snapshot`] that of the snapshots of producers, [`damaged_file`] that
//! of the small files of a node, and [`damaged_log`] opens a folder of segments in the fake world.
//! [`TARGETS`] has them all, as `cargo xtask campaign fuzz` calls them.
//!
//! Depends on the crates whose input comes from outside. Deliberately absent: a fuzzing engine.

mod batches;
mod kinds;
mod logs;
mod recovery;
mod sample;
mod snapshots;
mod texts;

pub use batches::{broken_batch, record_batch};
pub use kinds::{Kind, Recoded};
pub use recovery::damaged_log;
pub use sample::{Shape, sample, schemas};
pub use snapshots::{broken_snapshot, producer_snapshot};
pub use texts::damaged_file;

use std::sync::LazyLock;

use base::Random;
use base::wire::EncodeError;
use bytes::Bytes;
use schema::Schema;

/// What is called without end, each time with other random input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Makes an input and reads it; says whether it was accepted. Panics if something is wrong.
    pub call: fn(&mut Random) -> bool,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "messages", call: damaged_message },
    Target { name: "batches", call: damaged_batch },
    Target { name: "producers", call: |random| producer_snapshot(&broken_snapshot(random)) },
    Target { name: "files", call: damaged_file },
    Target { name: "logs", call: damaged_log },
];

fn damaged_message(random: &mut Random) -> bool {
    static SCHEMAS: LazyLock<Vec<Schema>> =
        LazyLock::new(|| schemas().expect("the texts are well formed"));
    let schema = &SCHEMAS[random.below(SCHEMAS.len() as u64) as usize];
    let kind = Kind::named(schema.name()).expect("every schema became a message");
    let span = (kind.last - kind.first + 1) as u64;
    let version = kind.first + random.below(span) as i16;
    let mut bytes = sample(random, schema, version, Shape::Mixed);
    mutate(random, &mut bytes);
    decode(kind, version, &bytes)
}

fn damaged_batch(random: &mut Random) -> bool {
    record_batch(&[&[0], &broken_batch(random)[..]].concat())
}

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

/// Changes some bytes in one place to four.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(3) {
        let at = usize::try_from(random.below(bytes.len() as u64 + 1)).expect("small");
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.next_u64() as u8),
            2 => {
                for byte in bytes.iter_mut().skip(at).take(4) {
                    *byte = 0xff;
                }
            }
            3 => {
                for (byte, huge) in bytes.iter_mut().skip(at).zip([0x7f, 0xff, 0xff, 0xff]) {
                    *byte = huge;
                }
            }
            4 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ if at < bytes.len() => bytes[at] = random.next_u64() as u8,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
