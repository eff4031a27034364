//! What a log that is compacted keeps: for each key the record with the largest offset that no
//! transaction took back (`Cleaner`).
//!
//! Here are the decisions and what they work with; how a log goes through its files with them is in
//! `log/cleaning.rs`.

mod budget;
mod filter;
mod key;
mod offset_map;
mod ordered;
mod output;
#[cfg(test)]
mod tests;
mod transactions;

pub(crate) use budget::Budget;
pub(crate) use filter::{Filter, Filtered, Filtering, LastRecord};
pub(crate) use key::{KeyHash, KeyHasher};
pub(crate) use offset_map::OffsetMap;
pub(crate) use ordered::{Damage, KeyedRecord, Ordered, OrderedKeys, check_place};
pub(crate) use output::CleanedSegment;
pub(crate) use transactions::{Fate, OpenTransactions};
