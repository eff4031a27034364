//! What a log holds of groups of the kinds that are not served: how many there are, for the person
//! who takes a directory over. The records themselves stay in the log as they are, through
//! compaction too.

use std::collections::BTreeMap;

use protocol::{GroupRecord, Str};

/// The kind of records whose type is not known; nobody can tell of how many groups they are.
const UNKNOWN: &str = "unknown";

/// The kind of groups that a type of records belongs to; none for what classic groups keep.
fn kind_of(record: &GroupRecord) -> Option<&'static str> {
    match record.kind() {
        0..=2 => None,
        3..=8 | 16 => Some("consumer"),
        10..=15 => Some("share"),
        17..=23 => Some("streams"),
        _ => Some(UNKNOWN),
    }
}

/// What was read so far.
#[derive(Debug, Default)]
pub(crate) struct Unserved {
    /// Groups with their kind, known by their records only.
    kinds: BTreeMap<Str, &'static str>,
    /// Records that are no tombstones, by kind.
    records: BTreeMap<&'static str, u64>,
}

impl Unserved {
    /// Takes note of a record, whatever it is.
    pub(crate) fn count(&mut self, record: &GroupRecord, is_tombstone: bool) {
        if let Some(kind) = kind_of(record).filter(|_| !is_tombstone) {
            *self.records.entry(kind).or_default() += 1;
        }
    }

    /// There is such a group.
    pub(crate) fn add(&mut self, id: Str, kind: &'static str) {
        self.kinds.insert(id, kind);
    }

    /// There is no such group any more.
    pub(crate) fn remove(&mut self, id: &str) {
        self.kinds.remove(id);
    }

    /// Whether a group is of such a kind.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.kinds.contains_key(id)
    }

    /// What there is, in words; nothing where there is nothing of the sort. Of records that are not
    /// compacted yet, the older ones count as well.
    ///
    /// `consumer groups: 2 (12 records), share groups: 1 (3 records)`
    pub(crate) fn summary(&self) -> Option<String> {
        let parts = self.records.iter().filter_map(|(kind, records)| {
            let groups = self.kinds.values().filter(|own| *own == kind).count();
            match (groups, *kind) {
                (_, UNKNOWN) => Some(format!("records of unknown types: {records}")),
                (0, _) => None,
                _ => Some(format!("{kind} groups: {groups} ({records} records)")),
            }
        });
        let parts: Vec<String> = parts.collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}
