//! What must hold whatever happens.

use std::collections::BTreeMap;

use base::{LeaderEpoch, Offset};

use super::disk::Disk;
use crate::*;

/// A batch that was committed, as far as it can be told from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Committed {
    next: Offset,
    epoch: LeaderEpoch,
    crc: u32,
}

#[derive(Default)]
pub(super) struct Checks {
    pub(super) found: Option<String>,
    leaders: BTreeMap<LeaderEpoch, ReplicaKey>,
    /// By their first offsets, with the epoch in which each was committed.
    committed: BTreeMap<Offset, (Committed, LeaderEpoch)>,
    high_watermarks: BTreeMap<ReplicaKey, Offset>,
    votes: BTreeMap<(ReplicaKey, LeaderEpoch), ReplicaKey>,
    /// What was committed when all was well again.
    pub(super) healed_at: Option<Offset>,
}

impl Checks {
    pub(super) fn fail(&mut self, what: String) {
        self.found.get_or_insert(what);
    }

    pub(super) fn committed_end(&self) -> Offset {
        self.committed.last_key_value().map_or(Offset(0), |(_, (batch, _))| batch.next)
    }

    /// Up to where a replica has said that all is committed.
    pub(super) fn told_high_watermark(&self, key: ReplicaKey) -> Option<Offset> {
        self.high_watermarks.get(&key).copied()
    }

    /// What a replica knew to be committed goes with its memory.
    pub(super) fn starts(&mut self, key: ReplicaKey) {
        self.high_watermarks.remove(&key);
    }

    /// An epoch has one leader, which has everything that was committed in earlier epochs.
    pub(super) fn leads(&mut self, key: ReplicaKey, disk: &Disk, epoch: LeaderEpoch) {
        let leader = *self.leaders.entry(epoch).or_insert(key);
        if leader != key {
            self.fail(format!("{leader:?} and {key:?} lead in epoch {epoch}"));
        }
        let start = disk.start();
        let is_missing = |base: Offset, (batch, committed_in): &(Committed, LeaderEpoch)| {
            *committed_in < epoch && !has(disk, base, batch)
        };
        let mut later = self.committed.range(start..);
        if let Some((base, (batch, _))) = later.find(|(base, batch)| is_missing(**base, batch)) {
            let (base, batch) = (*base, *batch);
            self.fail(format!("{key:?} leads in epoch {epoch} without {batch:?} at {base}"));
        }
    }

    /// What is committed stays, and is the same everywhere.
    pub(super) fn high_watermark(
        &mut self,
        key: ReplicaKey,
        disk: &Disk,
        now_in: LeaderEpoch,
        offset: Offset,
    ) {
        let before = self.high_watermarks.insert(key, offset).unwrap_or(Offset(0));
        if offset < before {
            self.fail(format!("the high watermark of {key:?} fell from {before} to {offset}"));
        }
        if offset > disk.end().offset {
            self.fail(format!("{key:?} has not what it says is committed up to {offset}"));
        }
        for batch in &disk.log {
            let header = batch.header();
            if header.base_offset < before || header.base_offset >= offset {
                continue;
            }
            let (next, epoch, crc) = (header.next_offset(), header.leader_epoch, header.crc);
            let own = Committed { next, epoch, crc };
            let (known, _) = *self.committed.entry(header.base_offset).or_insert((own, now_in));
            if known != own {
                let base = header.base_offset;
                self.fail(format!("{key:?} has {own:?} at {base}, where {known:?} is committed"));
            }
        }
    }

    /// Nobody votes twice in an epoch; a candidate has voted for itself.
    pub(super) fn request_leaves(&mut self, from: ReplicaKey, request: &Request) {
        if let RequestBody::Vote(vote) = &request.body
            && !vote.pre_vote
        {
            self.votes_for(from, vote.epoch, from);
        }
    }

    pub(super) fn votes_for(&mut self, voter: ReplicaKey, epoch: LeaderEpoch, whom: ReplicaKey) {
        let voted = *self.votes.entry((voter, epoch)).or_insert(whom);
        if voted != whom {
            self.fail(format!("{voter:?} votes for {voted:?} and {whom:?} in epoch {epoch}"));
        }
    }
}

fn has(disk: &Disk, base: Offset, wanted: &Committed) -> bool {
    let is_it = |batch: &records::Batch| batch.header().base_offset == base;
    disk.log.iter().find(|batch| is_it(batch)).is_some_and(|batch| {
        batch.header().crc == wanted.crc && batch.header().leader_epoch == wanted.epoch
    })
}
