//! What everything here speaks of.

use std::fmt;

/// Something that must not happen, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A violation, unless `holds`.
pub fn ensure(holds: bool, sentence: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation(sentence())) }
}

/// A batch of the workload, never sent twice.
pub type BatchId = u64;

/// Counts the losses of power: what was not synced may be gone in the next life.
pub type Life = u32;

/// Counts the starts of the node: what it only remembers is gone in the next one.
pub type Boot = u32;

/// Counts the topics that had the same name one after the other.
pub type Incarnation = u32;

/// Which partition of which topic of the workload.
pub type Place = (usize, usize);

/// The first log directory, which has the metadata log as well.
pub const FIRST_DIRECTORY: &str = "/data";
/// The second log directory of a node that has one.
pub const SECOND_DIRECTORY: &str = "/more";
