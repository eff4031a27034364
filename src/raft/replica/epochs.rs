//! The beginning and the end of an epoch, as others are told of it.

use base::{LeaderEpoch, Now};

use super::{LeaderAt, Raft, Role};
use crate::election::ReplicaKey;
use crate::messages::{Refusal, ReplyBody, RequestId};

impl Raft {
    /// A leader says that its epoch has begun.
    pub(super) fn on_begin_quorum_epoch(
        &mut self,
        now: Now,
        id: RequestId,
        epoch: LeaderEpoch,
        leader: LeaderAt,
        voter: Option<ReplicaKey>,
    ) {
        if let Err(refusal) = self.check_voter_request(leader.id, epoch) {
            return self.reply(id, Err(refusal));
        }
        if !self.learn(now, epoch, Some(leader)) {
            return self.reply(id, Err(Refusal::InvalidRequest));
        }
        if !self.is_meant(voter) {
            return self.reply(id, Err(Refusal::InvalidVoterKey));
        }
        self.reply(id, Ok(ReplyBody::BeginQuorumEpoch));
    }

    /// A leader lets go: the first of its successors stands for election at once, the others later
    /// and later. Until then they grant PreVotes to each other.
    pub(super) fn on_end_quorum_epoch(
        &mut self,
        now: Now,
        id: RequestId,
        epoch: LeaderEpoch,
        leader: LeaderAt,
        successors: &[ReplicaKey],
    ) {
        if let Err(refusal) = self.check_voter_request(leader.id, epoch) {
            return self.reply(id, Err(refusal));
        }
        let leader_id = leader.id;
        if !self.learn(now, epoch, Some(leader)) {
            return self.reply(id, Err(Refusal::InvalidRequest));
        }
        let wait = self.successor_backoff(successors);
        if let Role::Follower(role) = &mut self.role
            && role.leader.id == leader_id
        {
            role.leave_at(now.mono + wait, false);
        }
        self.reply(id, Ok(ReplyBody::EndQuorumEpoch));
    }

    /// How long a successor lets those before it go first
    /// (`KafkaRaftClient.strictExponentialElectionBackoffMs`).
    fn successor_backoff(&self, successors: &[ReplicaKey]) -> base::Duration {
        let max = self.timing.election_backoff_max;
        let place = successors.iter().position(|successor| self.is_meant(Some(*successor)));
        match place {
            Some(0) => base::Duration::ZERO,
            Some(place) => {
                let halvings = u32::try_from(successors.len() - 1).unwrap_or(u32::MAX).min(31);
                let doublings = u32::try_from(place - 1).unwrap_or(u32::MAX).min(31);
                max.min((max / (1 << halvings)) * (1 << doublings))
            }
            None => max,
        }
    }
}
