//! What goes with time: offsets that nobody uses, groups without members, offsets of partitions
//! that are gone.

use std::collections::BTreeSet;

use protocol::Str;

use crate::group::{Group, GroupState};
use crate::machine::{GroupTurn, Groups};
use crate::offsets::{Committed, Place};
use crate::record::of_no_group;

/// Since when an offset of a group counts as unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnusedSince {
    /// Since the group became empty, where that is known.
    Empty(Option<i64>),
    /// Since it was committed.
    Commit,
    /// It is in use.
    Never,
}

impl Groups {
    /// Removes what has expired.
    pub(crate) fn expire(&mut self, turn: &mut GroupTurn<'_>) {
        let ids: Vec<Str> = self.groups.keys().cloned().collect();
        for id in ids {
            let (expired, all) = self.expired_of(&id, turn.now.wall_ms);
            for place in &expired {
                self.remove_offset(turn, &id, place);
            }
            let is_empty = self.group_mut(&id).state == GroupState::Empty;
            if all && is_empty && turn.write(&[of_no_group(&id)]).is_ok() {
                tracing::info!(group = %id, "a group without members and offsets is removed");
                self.drop_group(&id);
            }
        }
    }

    /// The expired offsets of a group, and whether none is left besides.
    fn expired_of(&self, id: &str, now_ms: i64) -> (Vec<Place>, bool) {
        let no_group = || unreachable!("only groups that are there expire");
        let group = self.groups.get(id).unwrap_or_else(no_group);
        let Some(offsets) = self.offsets.of(id) else {
            return (Vec::new(), !self.offsets.has_open_transaction(id));
        };
        let since = unused_since(group);
        let is_expired = |(place, committed): &(&Place, &Committed)| {
            !group.is_subscribed_to(&place.0)
                && self.is_expired(committed, since, now_ms)
                && !self.offsets.is_unstable(id, place)
        };
        let expired: Vec<Place> =
            offsets.iter().filter(is_expired).map(|(place, _)| place.clone()).collect();
        let all = expired.len() == offsets.len() && !self.offsets.has_open_transaction(id);
        (expired, all)
    }

    fn is_expired(&self, committed: &Committed, since: UnusedSince, now_ms: i64) -> bool {
        let since_ms = match since {
            UnusedSince::Never => return false,
            UnusedSince::Empty(since_ms) => since_ms.unwrap_or(committed.commit_timestamp_ms),
            UnusedSince::Commit => committed.commit_timestamp_ms,
        };
        match committed.expire_timestamp_ms {
            Some(at_ms) => now_ms >= at_ms,
            None => now_ms.saturating_sub(since_ms) >= self.config.offsets_retention_ms,
        }
    }

    /// Removes the offsets of partitions that are gone.
    pub(crate) fn partitions_deleted(&mut self, turn: &mut GroupTurn<'_>, gone: &[Place]) {
        let gone: BTreeSet<&Place> = gone.iter().collect();
        let mut lost: Vec<(Str, Place)> = Vec::new();
        for (group, offsets) in self.offsets.groups() {
            let places = offsets.keys().filter(|place| gone.contains(place));
            lost.extend(places.map(|place| (group.clone(), place.clone())));
        }
        for (group, place) in lost {
            self.remove_offset(turn, &group, &place);
        }
    }
}

fn unused_since(group: &Group) -> UnusedSince {
    match group.state {
        // Who commits without being a member.
        _ if group.protocol_type.is_none() => UnusedSince::Commit,
        GroupState::Empty => UnusedSince::Empty(group.state_since_ms),
        GroupState::Stable if group.uses_consumer_protocol() && group.subscribed.is_some() => {
            UnusedSince::Commit
        }
        _ => UnusedSince::Never,
    }
}
