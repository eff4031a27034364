//! What a replica wants done, and the one rule about its order: nothing leaves before the state of
//! the election that it rests on is durable.

use std::collections::VecDeque;

use base::{LeaderEpoch, NodeId, Offset};
use bytes::Bytes;
use records::Batch;

use crate::election::ElectionState;
use crate::messages::{Peer, Reply, Request, RequestId};
use crate::snapshot::SnapshotId;

/// What is to be done. What concerns the log is to be done in the order in which it comes.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// `quorum-state` is to be replaced and made durable; then
    /// [`crate::Raft::on_election_written`] is told so with the token. One is under way at a time.
    WriteElection(ElectionState, ElectionWritten),
    /// A batch is to be appended to the log and made durable; then [`crate::Raft::on_synced`] is
    /// told so.
    Append(Batch),
    /// Everything from this offset on is to be cut off the log. [`crate::Raft::on_truncated`] is
    /// told when it is done, and that the log is durable up to an offset means what came after.
    Truncate(Offset),
    /// A request is to be sent; [`crate::Raft::on_response`] is told of its answer, or that there
    /// is none.
    Send {
        /// To whom.
        to: Peer,
        /// Its name.
        id: RequestId,
        /// What is asked.
        request: Request,
    },
    /// A request is answered.
    Reply {
        /// The request.
        id: RequestId,
        /// The answer.
        reply: Reply,
    },
    /// This replica leads from now on, in this epoch.
    Leading(LeaderEpoch),
    /// This replica does not lead, and knows this epoch with this leader.
    Following {
        /// The epoch.
        epoch: LeaderEpoch,
        /// Its leader, once it is known.
        leader: Option<NodeId>,
    },
    /// Everything below is committed.
    HighWatermark(Offset),
    /// A part of a snapshot that is being fetched is to be kept outside; position 0 begins anew.
    SnapshotPart {
        /// The snapshot.
        id: SnapshotId,
        /// Where the bytes belong.
        position: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// A fetched snapshot is whole: it is to be checked and made durable, and the log is to be
    /// emptied and go on from its end; then [`crate::Raft::on_snapshot_installed`] is told so, or
    /// [`crate::Raft::on_snapshot_refused`].
    InstallSnapshot(SnapshotId),
}

/// Proof that one state of the election was handed out to be written. It goes back when that is
/// durable, and nothing else lets out what waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionWritten(u64);

/// Where everything waits for its turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    /// Each with the number of the write that must be durable before.
    waiting: VecDeque<(u64, Output)>,
    /// The state that is to be written next.
    unwritten: Option<ElectionState>,
    /// The number of the newest write that is needed, of the newest that began, and of the newest
    /// that is durable.
    needed: u64,
    begun: u64,
    durable: u64,
    /// A fault on purpose: nothing waits.
    #[cfg(test)]
    pub(crate) leaks: bool,
}

impl Outbox {
    /// Whatever is pushed from here on waits until `state` is durable.
    pub(crate) fn write_election(&mut self, state: ElectionState) {
        self.needed += 1;
        self.unwritten = Some(state);
    }

    pub(crate) fn push(&mut self, output: Output) {
        self.waiting.push_back((self.needed, output));
    }

    /// Whether nothing is to be written or being written.
    pub(crate) fn is_durable(&self) -> bool {
        self.durable == self.needed
    }

    /// How much waits.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn on_written(&mut self, written: ElectionWritten) {
        assert!(written.0 == self.begun && self.durable < self.begun, "another state was written");
        self.durable = self.begun;
    }

    /// Lets out what may leave. Of several states only the newest is written.
    pub(crate) fn drain(&mut self, out: &mut Vec<Output>) {
        while self.waiting.front().is_some_and(|(number, _)| self.may_leave(*number)) {
            let (_, output) = self.waiting.pop_front().expect("it was seen");
            out.push(output);
        }
        if self.begun == self.durable
            && let Some(state) = self.unwritten.take()
        {
            self.begun = self.needed;
            out.push(Output::WriteElection(state, ElectionWritten(self.begun)));
        }
    }

    fn may_leave(&self, number: u64) -> bool {
        #[cfg(test)]
        if self.leaks {
            return true;
        }
        number <= self.durable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_pushed_after_a_state_waits_for_it_and_states_are_merged() {
        let state = |epoch| ElectionState { epoch: LeaderEpoch(epoch), ..ElectionState::NONE };
        let output = |offset| Output::HighWatermark(Offset(offset));
        let mut outbox = Outbox::default();
        let mut out = Vec::new();
        outbox.push(output(1));
        outbox.write_election(state(1));
        outbox.push(output(2));
        outbox.drain(&mut out);
        let [Output::HighWatermark(Offset(1)), Output::WriteElection(first, written)] = out[..]
        else {
            panic!("{out:?}")
        };
        assert_eq!(first, state(1));
        outbox.write_election(state(2));
        outbox.push(output(3));
        outbox.write_election(state(3));
        outbox.push(output(4));
        out.clear();
        outbox.drain(&mut out);
        assert_eq!(out, [], "one write is under way at a time");
        outbox.on_written(written);
        outbox.drain(&mut out);
        let [Output::HighWatermark(Offset(2)), Output::WriteElection(third, written)] = out[..]
        else {
            panic!("{out:?}")
        };
        assert_eq!(third, state(3));
        out.clear();
        outbox.on_written(written);
        outbox.drain(&mut out);
        assert_eq!(out, [output(3), output(4)]);
        assert!(outbox.is_durable());
    }
}
