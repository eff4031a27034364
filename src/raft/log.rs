//! What raft knows of its log without reading it: where it begins and ends, which epoch wrote what,
//! what is durable, and which snapshots there are.

use std::collections::BTreeMap;

use base::{LeaderEpoch, Offset};
use records::BatchHeader;

use crate::control::ControlError;
use crate::snapshot::SnapshotId;

/// Why a batch cannot be the next one of a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Something lies between it and the batch before, or both have an offset.
    #[error("a batch with the offsets from {base} to {next} does not go on from {end}")]
    Gap {
        /// The offset of its first record.
        base: Offset,
        /// The offset behind its last record.
        next: Offset,
        /// The end of the log.
        end: Offset,
    },
    /// Leaders append in their own epoch, and epochs only grow.
    #[error("a batch of epoch {epoch} comes after one of epoch {before}")]
    OlderEpoch {
        /// The epoch of the batch.
        epoch: LeaderEpoch,
        /// The epoch of the one before it.
        before: LeaderEpoch,
    },
    /// It has control records that cannot be read.
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// A place in the log: an offset, and the epoch of the record in front of it. Ordered as Raft
/// compares logs, the epoch first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EpochOffset {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// The offset.
    pub offset: Offset,
}

impl From<SnapshotId> for EpochOffset {
    fn from(id: SnapshotId) -> Self {
        Self { epoch: id.epoch, offset: id.end_offset }
    }
}

/// How a place in another replica's log stands to this log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// This log goes on from there.
    Valid,
    /// The logs differ from here at the latest.
    Diverging(EpochOffset),
    /// This log begins later: the snapshot holds what is missing.
    Snapshot(SnapshotId),
}

/// The log of one replica.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogView {
    /// Where it begins: behind the snapshot that holds what was before.
    start: EpochOffset,
    /// Where each epoch begins that has a record, in order.
    epochs: Vec<EpochOffset>,
    end: Offset,
    synced: Offset,
    /// Truncations that were asked for and are not done.
    truncations: u32,
    /// The snapshots behind the first offset, with their sizes in bytes.
    snapshots: BTreeMap<SnapshotId, u64>,
}

impl LogView {
    /// The epoch of the last record and the offset behind it.
    pub(crate) fn end(&self) -> EpochOffset {
        EpochOffset { epoch: self.epochs.last().unwrap_or(&self.start).epoch, offset: self.end }
    }

    pub(crate) fn start(&self) -> EpochOffset {
        self.start
    }

    /// Everything below is durable.
    pub(crate) fn synced(&self) -> Offset {
        self.synced
    }

    /// Whether all of it is durable, and nothing is being cut off.
    pub(crate) fn is_settled(&self) -> bool {
        self.truncations == 0 && self.synced == self.end
    }

    /// A batch is appended.
    ///
    /// # Errors
    /// If it does not go on from the end, or goes back to an older epoch: nothing is changed then.
    pub(crate) fn append(&mut self, header: &BatchHeader) -> Result<(), BatchError> {
        let end = self.end();
        let (base, next) = (header.base_offset, header.next_offset());
        if base != end.offset || next <= base {
            return Err(BatchError::Gap { base, next, end: end.offset });
        }
        if header.leader_epoch < end.epoch {
            return Err(BatchError::OlderEpoch { epoch: header.leader_epoch, before: end.epoch });
        }
        if header.leader_epoch > end.epoch || self.epochs.is_empty() {
            self.epochs.push(EpochOffset { epoch: header.leader_epoch, offset: end.offset });
        }
        self.end = next;
        Ok(())
    }

    /// Everything from `offset` on goes; until [`LogView::on_truncated`] nothing counts as durable
    /// that was not before.
    pub(crate) fn truncate(&mut self, offset: Offset) {
        assert!(offset >= self.start.offset && offset <= self.end, "no truncation to {offset}");
        self.epochs.retain(|epoch| epoch.offset < offset);
        self.end = offset;
        self.synced = self.synced.min(offset);
        self.truncations += 1;
    }

    pub(crate) fn on_truncated(&mut self) {
        self.truncations = self.truncations.checked_sub(1).expect("a truncation was asked for");
    }

    /// A fault on purpose: what is newer than `epoch` passes for records of that epoch.
    #[cfg(test)]
    pub(crate) fn forge_epochs(&mut self, epoch: LeaderEpoch) {
        self.epochs.retain(|entry| entry.epoch <= epoch);
    }

    /// Notices of what was durable before a truncation say nothing about what came after it.
    pub(crate) fn on_synced(&mut self, offset: Offset) {
        if self.truncations == 0 {
            assert!(offset <= self.end, "{offset} cannot be durable: the log ends at {}", self.end);
            self.synced = self.synced.max(offset);
        }
    }

    /// The whole log is durable: it was read from the disk.
    pub(crate) fn loaded(&mut self) {
        self.synced = self.end;
    }

    /// The log is empty and goes on from a snapshot; older ones are of no use any more.
    pub(crate) fn reset_to(&mut self, id: SnapshotId) {
        self.start = id.into();
        self.epochs.clear();
        self.snapshots.clear();
        (self.end, self.synced) = (id.end_offset, id.end_offset);
    }

    /// The newest epoch with a record that is not newer than `epoch`, and where it ends.
    pub(crate) fn end_of_epoch(&self, epoch: LeaderEpoch) -> EpochOffset {
        let behind = self.epochs.partition_point(|entry| entry.epoch <= epoch);
        let found = behind.checked_sub(1).map_or(self.start.epoch, |at| self.epochs[at].epoch);
        let offset = self.epochs.get(behind).map_or(self.end, |next| next.offset);
        EpochOffset { epoch: found, offset }
    }

    /// Where a log that ends at `other` stands (`RaftLog.validateOffsetAndEpoch`).
    pub(crate) fn position_of(&self, other: EpochOffset) -> Position {
        let newest = self.snapshots.last_key_value().map(|(id, _)| *id);
        if other.offset == Offset(0) {
            // Whoever has nothing is faster with a snapshot than with the log.
            return newest.map_or(Position::Valid, Position::Snapshot);
        }
        let start = self.start;
        let is_before = other.offset < start.offset
            || (other.offset == start.offset && other.epoch != start.epoch)
            || other.epoch < start.epoch;
        if start.offset > Offset(0) && is_before {
            let newest = newest.expect("a log that begins later has a snapshot");
            return Position::Snapshot(newest);
        }
        let end = self.end_of_epoch(other.epoch);
        if end.epoch != other.epoch || end.offset < other.offset {
            Position::Diverging(end)
        } else {
            Position::Valid
        }
    }

    /// How far this log agrees at most with one whose newest epoch up to ours ends at `diverging`
    /// (`RaftLog.truncateToEndOffset`).
    pub(crate) fn agrees_up_to(&self, diverging: EpochOffset) -> Offset {
        let own = self.end_of_epoch(diverging.epoch);
        if own.epoch == diverging.epoch { own.offset.min(diverging.offset) } else { own.offset }
    }

    /// A snapshot is there. The one that formatting writes is none.
    pub(crate) fn keep_snapshot(&mut self, id: SnapshotId, bytes: u64) {
        if id != SnapshotId::BOOTSTRAP {
            self.snapshots.insert(id, bytes);
        }
    }

    /// A snapshot is gone, and the log begins behind the oldest that is left.
    pub(crate) fn drop_snapshot(&mut self, id: SnapshotId) {
        self.snapshots.remove(&id);
        let Some((&oldest, _)) = self.snapshots.first_key_value() else { return };
        if oldest.end_offset <= self.start.offset || oldest.end_offset > self.end {
            return;
        }
        self.start = oldest.into();
        let last = self.end().epoch;
        let behind = self.epochs.partition_point(|entry| entry.offset <= oldest.end_offset);
        self.epochs.drain(..behind.saturating_sub(1));
        if let Some(first) = self.epochs.first_mut()
            && first.offset < oldest.end_offset
        {
            first.offset = oldest.end_offset;
        }
        self.epochs.retain(|entry| entry.offset < self.end);
        assert!(self.end().epoch <= last);
    }

    pub(crate) fn snapshot_bytes(&self, id: SnapshotId) -> Option<u64> {
        self.snapshots.get(&id).copied()
    }
}

#[cfg(test)]
mod tests {
    use records::{BatchBuilder, Compression, NewRecord};

    use super::*;

    fn at(epoch: i32, offset: i64) -> EpochOffset {
        EpochOffset { epoch: LeaderEpoch(epoch), offset: Offset(offset) }
    }

    fn snapshot(epoch: i32, offset: i64) -> SnapshotId {
        SnapshotId { epoch: LeaderEpoch(epoch), end_offset: Offset(offset) }
    }

    /// Epoch 1 has the offsets 0 to 9, epoch 3 those to 14, epoch 6 those to 19.
    fn log() -> LogView {
        LogView {
            epochs: vec![at(1, 0), at(3, 10), at(6, 15)],
            end: Offset(20),
            synced: Offset(20),
            ..LogView::default()
        }
    }

    #[test]
    fn places_in_other_logs_are_judged_as_kafka_does() {
        let mut from_ten = log();
        from_ten.keep_snapshot(snapshot(1, 10), 7);
        from_ten.keep_snapshot(snapshot(3, 12), 8);
        from_ten.keep_snapshot(snapshot(1, 5), 8);
        from_ten.drop_snapshot(snapshot(1, 5));
        assert_eq!(from_ten.start(), at(1, 10));
        let newest = Position::Snapshot(snapshot(3, 12));
        let cases = [
            (at(0, 0), Position::Valid, newest),
            (at(1, 5), Position::Valid, newest),
            (at(1, 10), Position::Valid, Position::Valid),
            (at(3, 10), Position::Valid, newest),
            (at(1, 11), Position::Diverging(at(1, 10)), Position::Diverging(at(1, 10))),
            (at(2, 12), Position::Diverging(at(1, 10)), Position::Diverging(at(1, 10))),
            (at(3, 15), Position::Valid, Position::Valid),
            (at(3, 16), Position::Diverging(at(3, 15)), Position::Diverging(at(3, 15))),
            (at(5, 16), Position::Diverging(at(3, 15)), Position::Diverging(at(3, 15))),
            (at(6, 20), Position::Valid, Position::Valid),
            (at(6, 21), Position::Diverging(at(6, 20)), Position::Diverging(at(6, 20))),
            (at(7, 18), Position::Diverging(at(6, 20)), Position::Diverging(at(6, 20))),
            (at(0, 3), Position::Diverging(at(0, 0)), newest),
        ];
        for (other, whole, late) in cases {
            assert_eq!(log().position_of(other), whole, "{other:?} in the whole log");
            assert_eq!(from_ten.position_of(other), late, "{other:?} in the log from 10 on");
        }
    }

    #[test]
    fn a_diverging_epoch_says_how_far_logs_agree() {
        for (diverging, offset) in
            [(at(6, 17), 17), (at(6, 30), 20), (at(5, 19), 15), (at(3, 12), 12), (at(0, 0), 0)]
        {
            assert_eq!(log().agrees_up_to(diverging), Offset(offset), "{diverging:?}");
        }
    }

    #[test]
    fn what_was_durable_before_a_truncation_is_not_after_it() {
        let mut log = log();
        log.truncate(Offset(12));
        assert_eq!((log.end(), log.synced()), (at(3, 12), Offset(12)));
        let mut builder = BatchBuilder::new(Offset(12), Compression::None);
        builder = builder.leader_epoch(LeaderEpoch(7));
        for _ in 0..3 {
            builder.append(&NewRecord::default());
        }
        log.append(builder.build().header()).expect("it goes on");
        log.on_synced(Offset(20));
        assert_eq!((log.end(), log.synced()), (at(7, 15), Offset(12)));
        log.on_truncated();
        assert!(!log.is_settled());
        log.on_synced(Offset(15));
        assert!(log.is_settled());
        log.truncate(Offset(0));
        assert_eq!(log.end(), at(0, 0));
    }
}
