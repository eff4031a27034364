//! The disk of one replica: what was not synced is lost in a crash from some point on.

use std::collections::VecDeque;

use base::{Offset, Random};
use records::Batch;

use crate::log::EpochOffset;
use crate::snapshot::SnapshotId;
use crate::*;

/// A snapshot, as far as raft cares.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Snap {
    pub(super) id: SnapshotId,
    pub(super) kraft_version: i16,
    pub(super) voters: Option<VoterSet>,
}

#[derive(Clone, Debug)]
enum Operation {
    Append(Batch),
    Truncate(Offset),
}

pub(super) struct Disk {
    pub(super) election: Option<ElectionState>,
    /// The oldest first; at least the one of the formatting, until another one takes its place.
    snapshots: Vec<Snap>,
    durable: Vec<Batch>,
    /// What a reader sees.
    pub(super) log: Vec<Batch>,
    /// What was done since, in order.
    unsynced: VecDeque<Operation>,
    issued: u64,
    synced: u64,
    /// The number of the last truncation.
    truncated: u64,
    /// What it was asked for and cannot do.
    pub(super) wrong: Option<String>,
}

impl Disk {
    pub(super) fn new(snapshot: Snap) -> Self {
        Self {
            election: None,
            snapshots: vec![snapshot],
            durable: Vec::new(),
            log: Vec::new(),
            unsynced: VecDeque::new(),
            issued: 0,
            synced: 0,
            truncated: 0,
            wrong: None,
        }
    }

    /// Gives a new replica what is there.
    pub(super) fn load_into(&self, raft: &mut Raft) {
        let newest = self.newest();
        let bytes = super::net::SNAPSHOT_BYTES;
        raft.on_snapshot(newest.id, bytes, newest.kraft_version, newest.voters.clone());
        for snapshot in &self.snapshots {
            raft.keep_snapshot(snapshot.id, bytes);
        }
        let end = newest.id.end_offset;
        for batch in self.log.iter().filter(|batch| batch.header().base_offset >= end) {
            raft.on_batch(batch).expect("it was written by a replica");
        }
    }

    fn newest(&self) -> &Snap {
        self.snapshots.last().expect("there is one")
    }

    /// Where the log begins.
    pub(super) fn start(&self) -> Offset {
        self.log.first().map_or(self.newest().id.end_offset, |batch| batch.header().base_offset)
    }

    pub(super) fn end(&self) -> EpochOffset {
        self.log.last().map_or(self.newest().id.into(), |batch| EpochOffset {
            epoch: batch.header().leader_epoch,
            offset: batch.header().next_offset(),
        })
    }

    /// Returns the number of the operation, which a sync is to reach.
    pub(super) fn append(&mut self, batch: Batch) -> u64 {
        let (base, end) = (batch.header().base_offset, self.end().offset);
        if base != end {
            self.wrong = Some(format!("a batch at {base} is appended to a log that ends at {end}"));
        }
        self.log.push(batch.clone());
        self.issue(Operation::Append(batch))
    }

    pub(super) fn truncate(&mut self, offset: Offset) {
        cut(&mut self.log, offset);
        let end = self.end().offset;
        if end != offset {
            self.wrong = Some(format!("a log is cut at {offset}, within the batch from {end} on"));
        }
        self.truncated = self.issue(Operation::Truncate(offset));
    }

    fn issue(&mut self, operation: Operation) -> u64 {
        self.unsynced.push_back(operation);
        self.issued += 1;
        self.issued
    }

    /// Everything up to an operation is durable; says up to which offset, unless what was durable
    /// then was cut off since.
    pub(super) fn synced(&mut self, operations: u64) -> Option<Offset> {
        while self.synced < operations {
            let operation = self.unsynced.pop_front().expect("it was issued");
            apply(&mut self.durable, operation);
            self.synced += 1;
        }
        let end = self.durable.last().map(|batch| batch.header().next_offset());
        (operations >= self.truncated).then(|| end.unwrap_or(self.newest().id.end_offset))
    }

    /// Keeps the synced operations and some of those after them.
    pub(super) fn crash(&mut self, random: &mut Random) {
        let kept = random.below(self.unsynced.len() as u64 + 1);
        for _ in 0..kept {
            let operation = self.unsynced.pop_front().expect("it is there");
            apply(&mut self.durable, operation);
        }
        self.unsynced.clear();
        self.synced = self.issued;
        self.log.clone_from(&self.durable);
    }

    pub(super) fn install(&mut self, snapshot: Snap) {
        self.snapshots = vec![snapshot];
        self.log.clear();
        self.durable.clear();
        self.unsynced.clear();
        self.synced = self.issued;
    }

    /// Takes a snapshot of everything below `end`, if there is news in it.
    pub(super) fn snapshot_at(&mut self, end: Offset) -> Option<Snap> {
        let newest = self.newest();
        if end <= newest.id.end_offset {
            return None;
        }
        let (mut kraft_version, mut voters) = (newest.kraft_version, newest.voters.clone());
        let from = newest.id.end_offset;
        let mut epoch = newest.id.epoch;
        for batch in &self.log {
            let header = batch.header();
            if header.base_offset < from || header.base_offset >= end {
                continue;
            }
            epoch = header.leader_epoch;
            if header.is_control() {
                for record in control_records(batch).expect("can be read") {
                    match record {
                        ControlRecord::KraftVersion(version) => kraft_version = version,
                        ControlRecord::Voters(set) => voters = Some(set),
                        _ => {}
                    }
                }
            }
        }
        let snapshot = Snap { id: SnapshotId { end_offset: end, epoch }, kraft_version, voters };
        self.snapshots.push(snapshot.clone());
        Some(snapshot)
    }

    /// Drops all snapshots but the newest, with what of the log lies below it.
    pub(super) fn drop_old_snapshots(&mut self) -> Vec<SnapshotId> {
        let newest = self.snapshots.pop().expect("there is one");
        let end = newest.id.end_offset;
        let dropped = self.snapshots.drain(..).map(|snapshot| snapshot.id).collect();
        self.snapshots.push(newest);
        // What is not durable yet is committed nevertheless, and in the snapshot.
        while let Some(operation) = self.unsynced.pop_front() {
            apply(&mut self.durable, operation);
            self.synced += 1;
        }
        self.durable.retain(|batch| batch.header().base_offset >= end);
        self.log.retain(|batch| batch.header().base_offset >= end);
        dropped
    }
}

fn apply(log: &mut Vec<Batch>, operation: Operation) {
    match operation {
        Operation::Append(batch) => log.push(batch),
        Operation::Truncate(offset) => cut(log, offset),
    }
}

fn cut(log: &mut Vec<Batch>, offset: Offset) {
    log.retain(|batch| batch.header().next_offset() <= offset);
}
