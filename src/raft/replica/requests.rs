//! The doors for messages: what every request and every answer is checked for before its own rules
//! are asked.

use base::{LeaderEpoch, NodeId, Now};

use super::{LeaderAt, Raft, Role};
use crate::election::ReplicaKey;
use crate::messages::{Known, Peer, Refusal, Reply, ReplyBody, Request, RequestBody, RequestId};
use crate::outbox::Output;

/// The most that waits for the disk at once; requests that come then are refused.
const WAITING_MAX: usize = 4_096;

impl Raft {
    /// A request came in; its answer is an [`Output::Reply`] with its `id`, at once or later.
    pub fn on_request(
        &mut self,
        now: Now,
        id: RequestId,
        request: &Request,
        out: &mut Vec<Output>,
    ) {
        if self.outbox.len() >= WAITING_MAX {
            // It says nothing of the election, so that it need not wait.
            let body = Err(Refusal::BrokerNotAvailable);
            out.push(Output::Reply { id, reply: Reply { known: Known::default(), body } });
            return;
        }
        if request.cluster_id.as_ref().is_some_and(|cluster_id| *cluster_id != self.cluster_id) {
            self.reply(id, Err(Refusal::InconsistentClusterId));
            return self.settle(now, out);
        }
        match &request.body {
            RequestBody::Vote(vote) => self.on_vote_request(now, id, vote),
            RequestBody::BeginQuorumEpoch { epoch, leader, endpoints, voter } => {
                let leader = LeaderAt { id: *leader, endpoints: endpoints.clone() };
                self.on_begin_quorum_epoch(now, id, *epoch, leader, *voter);
            }
            RequestBody::EndQuorumEpoch { epoch, leader, endpoints, successors } => {
                let leader = LeaderAt { id: *leader, endpoints: endpoints.clone() };
                self.on_end_quorum_epoch(now, id, *epoch, leader, successors);
            }
            RequestBody::Fetch(fetch) => self.on_fetch_request(now, id, *fetch),
            RequestBody::FetchSnapshot { epoch, replica, id: snapshot, position, bytes_max } => {
                let part = (*snapshot, *position, *bytes_max);
                self.on_fetch_snapshot_request(now, id, *epoch, *replica, part);
            }
            RequestBody::AddVoter { voter, endpoints, ack_when_committed } => {
                self.on_add_voter(now, id, *voter, endpoints, *ack_when_committed);
            }
            RequestBody::RemoveVoter { voter } => self.on_remove_voter(now, id, *voter),
            RequestBody::UpdateVoter { epoch, voter } => {
                self.on_update_voter(now, id, *epoch, voter);
            }
            RequestBody::ApiVersions => {
                let kraft_versions = Some(self.own.kraft_versions);
                self.reply(id, Ok(ReplyBody::ApiVersions { kraft_versions }));
            }
        }
        self.settle(now, out);
    }

    /// The request `id` to `from` was answered, or is known to get no answer. Answers that come too
    /// late say nothing.
    pub fn on_response(
        &mut self,
        now: Now,
        from: Peer,
        id: RequestId,
        reply: Option<Reply>,
        out: &mut Vec<Output>,
    ) {
        if !self.peers.awaits(from, id) {
            return;
        }
        let is_good = match reply {
            Some(reply) => self.take_reply(now, from, reply),
            None => {
                self.joining_voter_is_silent(from);
                self.leadership_is_unknown_to(from, now);
                false
            }
        };
        // A change of the role has forgotten the request, and with it the pause.
        if self.peers.awaits(from, id) {
            if is_good {
                self.peers.succeeded(from);
            } else {
                self.peers.pause(from, now.mono);
            }
        }
        self.settle(now, out);
    }

    /// Says whether the answer was a good one (`KafkaRaftClient.maybeHandleCommonResponse`).
    fn take_reply(&mut self, now: Now, from: Peer, reply: Reply) -> bool {
        let Reply { known, body } = reply;
        if let Ok(ReplyBody::ApiVersions { kraft_versions }) = body {
            self.on_api_versions(now, from, kraft_versions);
            return true;
        }
        if body == Err(Refusal::UnsupportedVersion)
            && let (Role::Prospective(role), Peer::Node(id)) = (&mut self.role, from)
        {
            // It knows no PreVote, and would be asked for a vote at once by one like itself.
            role.ballots.record(id, true);
            return true;
        }
        let is_refused_without_epoch =
            matches!(body, Err(Refusal::InconsistentClusterId | Refusal::BrokerNotAvailable));
        if is_refused_without_epoch {
            tracing::warn!(?from, ?body, "a replica of the quorum refuses to answer");
            return false;
        }
        if known.epoch < self.epoch || body == Err(Refusal::UnknownLeaderEpoch) {
            // It is behind, and learns that from this replica's next requests.
            return false;
        }
        let leader = known.leader.map(|id| LeaderAt { id, endpoints: known.endpoints });
        let before = self.election();
        let is_overtaken = self.peers.is_overtaken(from);
        if !self.learn(now, known.epoch, leader) {
            return false;
        }
        if self.epoch > before.epoch {
            return true;
        }
        match body {
            Ok(_) if is_overtaken => true,
            Ok(body) => self.take_answer(now, from, body),
            // Who knows no more than this replica is not asked again at once.
            Err(Refusal::FencedLeaderEpoch | Refusal::NotLeaderOrFollower) => {
                self.election() != before
            }
            Err(refusal) => {
                tracing::warn!(?from, ?refusal, "a request of the quorum was refused");
                self.was_refused(now, from, refusal)
            }
        }
    }

    fn take_answer(&mut self, now: Now, from: Peer, body: ReplyBody) -> bool {
        let node = match from {
            Peer::Node(id) => id,
            Peer::Bootstrap(_) => NodeId::NONE,
        };
        match body {
            ReplyBody::Vote { granted } => self.on_vote_response(node, granted),
            ReplyBody::BeginQuorumEpoch => self.leadership_is_known_to(node),
            ReplyBody::EndQuorumEpoch => self.resignation_is_known_to(node),
            ReplyBody::Fetch { high_watermark, content, .. } => {
                return self.on_fetch_response(now, high_watermark, content);
            }
            ReplyBody::FetchSnapshot { id, size, position, content } => {
                return self.on_fetch_snapshot_response(now, id, size, position, content);
            }
            ReplyBody::VotersChanged => self.voter_update_is_known(),
            ReplyBody::ApiVersions { .. } => {}
        }
        true
    }

    fn was_refused(&mut self, now: Now, from: Peer, refusal: Refusal) -> bool {
        match (&mut self.role, refusal) {
            (Role::Follower(role), Refusal::SnapshotNotFound | Refusal::PositionOutOfRange) => {
                role.snapshot_is_gone();
                role.heard_from_leader(now.mono + self.timing.fetch_timeout);
                true
            }
            // The node is another one than the voter that was meant.
            (_, Refusal::InvalidVoterKey) => {
                if let Peer::Node(id) = from {
                    self.on_vote_response(id, false);
                }
                true
            }
            _ => false,
        }
    }

    /// What is asked of a voter, or told to it (`validateVoterOnlyRequest`).
    pub(super) fn check_voter_request(
        &self,
        from: NodeId,
        epoch: LeaderEpoch,
    ) -> Result<(), Refusal> {
        if epoch < self.epoch {
            Err(Refusal::FencedLeaderEpoch)
        } else if from.0 < 0 {
            Err(Refusal::InvalidRequest)
        } else {
            Ok(())
        }
    }

    /// What only the leader of `epoch` may be asked (`validateLeaderOnlyRequest`).
    pub(super) fn check_leader_request(&self, epoch: LeaderEpoch) -> Result<(), Refusal> {
        if epoch < self.epoch {
            Err(Refusal::FencedLeaderEpoch)
        } else if epoch > self.epoch {
            Err(Refusal::UnknownLeaderEpoch)
        } else if !matches!(self.role, Role::Leader(_)) {
            Err(Refusal::NotLeaderOrFollower)
        } else {
            Ok(())
        }
    }

    /// Whether a request for a certain voter is for this one.
    pub(super) fn is_meant(&self, voter: Option<ReplicaKey>) -> bool {
        voter.is_none_or(|voter| {
            let own = self.own.key;
            voter.id == own.id && (voter.directory.is_zero() || voter.directory == own.directory)
        })
    }
}
