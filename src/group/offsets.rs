//! Committed offsets, also those of transactions that have not ended (Kafka's
//! `OffsetMetadataManager`).

use std::collections::BTreeMap;

use base::{Offset, ProducerId, Uuid};
use protocol::Str;

/// A topic's name and a partition of it.
pub(crate) type Place = (Str, i32);

/// An offset that was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Committed {
    pub(crate) offset: i64,
    /// −1 if unknown.
    pub(crate) leader_epoch: i32,
    pub(crate) metadata: Str,
    pub(crate) commit_timestamp_ms: i64,
    /// When it expires whatever else holds; only old clients say that.
    pub(crate) expire_timestamp_ms: Option<i64>,
    /// Zero if unknown.
    pub(crate) topic_id: Uuid,
    /// Where its record stands; the far end while that is not known yet.
    pub(crate) record_offset: Offset,
}

impl Committed {
    /// Whether it was committed for another topic of the same name.
    pub(crate) fn is_of_other_topic(&self, id: Uuid) -> bool {
        !self.topic_id.is_zero() && !id.is_zero() && self.topic_id != id
    }
}

/// The offsets of a group.
pub(crate) type GroupOffsets = BTreeMap<Place, Committed>;

/// The offsets of all groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offsets {
    by_group: BTreeMap<Str, GroupOffsets>,
    open: BTreeMap<ProducerId, BTreeMap<Str, GroupOffsets>>,
}

impl Offsets {
    pub(crate) fn of(&self, group: &str) -> Option<&GroupOffsets> {
        self.by_group.get(group)
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = (&Str, &GroupOffsets)> {
        self.by_group.iter()
    }

    pub(crate) fn put(&mut self, group: Str, place: Place, committed: Committed) {
        self.by_group.entry(group).or_default().insert(place, committed);
    }

    pub(crate) fn put_open(
        &mut self,
        producer: ProducerId,
        group: Str,
        place: Place,
        committed: Committed,
    ) {
        let open = self.open.entry(producer).or_default();
        open.entry(group).or_default().insert(place, committed);
    }

    /// Removes an offset, also from transactions that have not ended.
    pub(crate) fn remove(&mut self, group: &str, place: &Place) {
        if let Some(offsets) = self.by_group.get_mut(group) {
            offsets.remove(place);
            if offsets.is_empty() {
                self.by_group.remove(group);
            }
        }
        for open in self.open.values_mut() {
            if let Some(offsets) = open.get_mut(group) {
                offsets.remove(place);
            }
        }
    }

    /// Ends a transaction: its offsets count, but for those that were overtaken.
    pub(crate) fn end_transaction(&mut self, producer: ProducerId, committed: bool) {
        let Some(open) = self.open.remove(&producer) else { return };
        if !committed {
            return;
        }
        for (group, offsets) in open {
            let into = self.by_group.entry(group).or_default();
            for (place, offset) in offsets {
                let newer = |old: &Committed| old.record_offset > offset.record_offset;
                if !into.get(&place).is_some_and(newer) {
                    into.insert(place, offset);
                }
            }
        }
        self.by_group.retain(|_, offsets| !offsets.is_empty());
    }

    /// Whether an open transaction has an offset for the partition.
    pub(crate) fn is_unstable(&self, group: &str, place: &Place) -> bool {
        let mut open = self.open.values().filter_map(|groups| groups.get(group));
        open.any(|offsets| offsets.contains_key(place))
    }

    /// Whether an open transaction has offsets for the group.
    pub(crate) fn has_open_transaction(&self, group: &str) -> bool {
        self.open.values().any(|groups| groups.contains_key(group))
    }

    /// Every partition of the group that has an offset, open ones included.
    pub(crate) fn places(&self, group: &str) -> Vec<Place> {
        let open = self.open.values().filter_map(|groups| groups.get(group));
        let all = self.by_group.get(group).into_iter().chain(open);
        let mut places: Vec<Place> = all.flat_map(|offsets| offsets.keys().cloned()).collect();
        places.sort();
        places.dedup();
        places
    }
}
