//! Votes and PreVotes: who asks for them, and who grants them.

use base::{NodeId, Now};

use super::{Raft, Role};
use crate::election::ReplicaKey;
use crate::messages::{Peer, Refusal, ReplyBody, RequestBody, RequestId, VoteRequest};

impl Raft {
    /// Asks every voter that has not said anything yet and is free.
    pub(super) fn ask_for_votes(&mut self, now: Now, pre_vote: bool) {
        let (Role::Prospective(super::Prospective { ballots, .. })
        | Role::Candidate(super::Candidate { ballots, .. })) = &self.role
        else {
            return;
        };
        for id in ballots.missing() {
            if !self.peers.is_free(Peer::Node(id), now.mono) {
                continue;
            }
            let vote = VoteRequest {
                epoch: self.epoch,
                candidate: self.own.key,
                voter: self.voters().get(id).map(|voter| voter.key),
                log_end: self.log.end(),
                pre_vote,
            };
            self.send(now, Peer::Node(id), RequestBody::Vote(vote));
        }
    }

    /// Answers a request for a vote (`KafkaRaftClient.handleVoteRequest`).
    pub(super) fn on_vote_request(&mut self, now: Now, id: RequestId, vote: &VoteRequest) {
        let end = vote.log_end;
        let is_epoch_too_new =
            if vote.pre_vote { end.epoch > vote.epoch } else { end.epoch >= vote.epoch };
        if end.offset.0 < 0 || end.epoch.0 < 0 || is_epoch_too_new {
            return self.reply(id, Err(Refusal::InvalidRequest));
        }
        if let Err(refusal) = self.check_voter_request(vote.candidate.id, vote.epoch) {
            return self.reply(id, Err(refusal));
        }
        if vote.epoch > self.epoch {
            self.become_unattached(now, vote.epoch, None);
        }
        if !self.is_meant(vote.voter) {
            return self.reply(id, Err(Refusal::InvalidVoterKey));
        }
        let granted = self.would_grant(vote);
        if granted && !vote.pre_vote {
            self.vote_for(vote.candidate);
        }
        tracing::debug!(?vote, granted, "a vote was asked for");
        self.reply(id, Ok(ReplyBody::Vote { granted }));
    }

    /// Whether this role grants the vote of its epoch (`EpochState.canGrantVote`).
    ///
    /// | role | PreVote | vote |
    /// |---|---|---|
    /// | unattached, prospective | yes | for whom it has voted; else if it knows no leader |
    /// | candidate, resigned | yes | no |
    /// | follower | until it has fetched from its leader, and once that has gone | no |
    /// | leader | no | no |
    ///
    /// Whatever stands there, the candidate's log must not end before this one.
    fn would_grant(&self, vote: &VoteRequest) -> bool {
        let is_up_to_date = vote.log_end >= self.log.end();
        match &self.role {
            Role::Unattached(_) | Role::Prospective(_) if !vote.pre_vote => match self.voted() {
                Some(voted) => is_same(voted, vote.candidate),
                None => self.leader().is_none() && is_up_to_date,
            },
            Role::Unattached(_) | Role::Prospective(_) => is_up_to_date,
            Role::Candidate(_) | Role::Resigned(_) => vote.pre_vote && is_up_to_date,
            Role::Follower(role) => vote.pre_vote && is_up_to_date && role.would_let_go(),
            Role::Leader(_) => false,
        }
    }

    pub(super) fn on_vote_response(&mut self, voter: NodeId, granted: bool) {
        let ballots = match &mut self.role {
            Role::Prospective(role) => &mut role.ballots,
            Role::Candidate(role) => &mut role.ballots,
            _ => return,
        };
        ballots.record(voter, granted);
    }
}

/// Whether a vote was given to `candidate`. Without a directory any is meant.
fn is_same(voted: ReplicaKey, candidate: ReplicaKey) -> bool {
    let any = voted.directory.is_zero() || voted.directory == candidate.directory;
    voted.id == candidate.id && any
}
