//! The ways from role to role, all of them (`QuorumState`).
//!
//! | from | when | to |
//! |---|---|---|
//! | any | a larger epoch is heard of, without its leader | unattached, in that epoch |
//! | any | a leader of a larger epoch is heard of | follower |
//! | unattached, prospective, candidate | the leader of its epoch is heard of | follower |
//! | unattached, prospective | it grants its vote | the same, having voted |
//! | unattached | the election timeout is over, and it votes | prospective |
//! | follower | the fetch timeout is over, or the leader has gone, and it votes | prospective |
//! | prospective | a majority would vote for it | candidate, of the next epoch |
//! | prospective | it gets no majority, in time or at all | as before: follower or unattached |
//! | candidate | a majority has voted for it | leader |
//! | candidate | the election timeout is over | prospective |
//! | leader | no majority has fetched in time, it is asked to, or it votes no more | resigned |
//! | resigned | the election timeout is over | unattached, in the next epoch |
//!
//! A voter that starts is resigned if it led, follower if it knows the leader, candidate if it had
//! voted for itself, else unattached; the only voter is candidate of the next epoch at once.
//! Whoever does not vote is unattached or follower. Everything but becoming prospective is written
//! to `quorum-state` before anything else leaves.

use base::{Instant, LeaderEpoch, Now};

use super::ballots::Ballots;
use super::candidate::Candidate;
use super::follower::Follower;
use super::leader::Leader;
use super::prospective::Prospective;
use super::resigned::Resigned;
use super::unattached::Unattached;
use super::{LeaderAt, Raft, Role};
use crate::control;
use crate::election::{ElectionState, ReplicaKey};
use crate::messages::{Peer, Refusal};
use crate::outbox::Output;

impl Raft {
    /// The role of a replica that starts.
    pub(super) fn begin_as(&mut self, now: Now, election: ElectionState) {
        self.epoch = election.epoch;
        let election_at = now.mono + self.election_timeout();
        let leader = (election.leader.0 >= 0).then(|| LeaderAt {
            id: election.leader,
            endpoints: self
                .voters()
                .get(election.leader)
                .map_or(Vec::new(), |voter| voter.endpoints.clone()),
        });
        let has_led = leader.as_ref().is_some_and(|leader| leader.id == self.own.key.id);
        let voted = election.voted;
        if self.is_voter() && self.voters().len() == 1 && self.installing.is_none() {
            // The vote of the only voter is its own: the claim and the election are one write.
            self.become_candidate(now);
        } else if has_led {
            self.role = self.resigned(Vec::new(), election_at);
        } else if let Some(leader) = leader {
            if self.peer_is_known(&leader) {
                let fetch_until = now.mono + self.timing.fetch_timeout;
                let role = Follower::new(leader, voted, fetch_until, fetch_until);
                self.role = Role::Follower(role);
            } else {
                self.role =
                    Role::Unattached(Unattached { leader: Some(leader), voted, election_at });
            }
        } else if voted == Some(self.own.key) && self.is_voter() {
            let ballots = Ballots::new(self.voters(), self.own.key.id);
            self.role = Role::Candidate(Candidate { ballots, election_at });
        } else {
            self.role = Role::Unattached(Unattached { leader: None, voted, election_at });
        }
        tracing::info!(
            epoch = self.epoch.0,
            role = self.role.name(),
            "the quorum's replica starts"
        );
    }

    pub(super) fn peer_is_known(&self, leader: &LeaderAt) -> bool {
        !leader.endpoints.is_empty() || self.voters().get(leader.id).is_some()
    }

    fn resigned(&self, successors: Vec<ReplicaKey>, election_at: Instant) -> Role {
        let own = self.own_leadership();
        let others = self.voters().ids().into_iter();
        let unacknowledged = others.filter(|id| *id != own.id).collect();
        Role::Resigned(Resigned { own, unacknowledged, successors, election_at })
    }

    pub(super) fn own_leadership(&self) -> LeaderAt {
        LeaderAt { id: self.own.key.id, endpoints: self.own.endpoints.clone() }
    }

    pub(super) fn become_unattached(
        &mut self,
        now: Now,
        epoch: LeaderEpoch,
        leader: Option<LeaderAt>,
    ) {
        assert!(epoch >= self.epoch, "epoch {epoch} after {}", self.epoch);
        let election_at = match &self.role {
            Role::Unattached(role) => role.election_at,
            Role::Candidate(role) => role.election_at,
            Role::Resigned(role) => role.election_at,
            Role::Prospective(role) if !role.ballots.is_rejected() => role.election_at,
            _ => now.mono + self.election_timeout(),
        };
        let voted = if epoch == self.epoch { self.voted() } else { None };
        let before = self.election();
        self.set_role(epoch, Role::Unattached(Unattached { leader, voted, election_at }));
        self.tell_if_changed(before);
    }

    /// Gives its vote of this epoch to a candidate.
    pub(super) fn vote_for(&mut self, candidate: ReplicaKey) {
        let voted = match &mut self.role {
            Role::Unattached(role) => &mut role.voted,
            Role::Prospective(role) => &mut role.voted,
            role => panic!("a vote is given as {}", role.name()),
        };
        if *voted != Some(candidate) {
            *voted = Some(candidate);
            self.write_election();
        }
    }

    /// `without_leader` says that the leader is known to be gone: it need not be asked.
    pub(super) fn become_prospective(&mut self, now: Now, without_leader: bool) {
        assert!(self.may_stand(), "only voters stand for election");
        let (leader, voted) = (self.leader().cloned(), self.voted());
        let mut ballots = Ballots::new(self.voters(), self.own.key.id);
        if let Some(leader) = leader.as_ref().filter(|_| without_leader) {
            ballots.record(leader.id, false);
        }
        let election_at = now.mono + self.election_timeout();
        let role = Prospective { leader, voted, ballots, election_at };
        self.set_role(self.epoch, Role::Prospective(role));
    }

    pub(super) fn become_candidate(&mut self, now: Now) {
        assert!(self.may_stand(), "only voters stand for election");
        let epoch = LeaderEpoch(self.epoch.0 + 1);
        let ballots = Ballots::new(self.voters(), self.own.key.id);
        let election_at = now.mono + self.election_timeout();
        self.set_role(epoch, Role::Candidate(Candidate { ballots, election_at }));
        self.write_election();
        self.tell_leader();
    }

    /// The epoch begins with a record of its own, since what earlier leaders wrote is committed
    /// only together with one.
    pub(super) fn become_leader(&mut self, now: Now) {
        let Role::Candidate(candidate) = &self.role else { panic!("only candidates are elected") };
        let granting = candidate.ballots.granting();
        let own = self.own_leadership();
        let epoch_start = self.log.end().offset;
        let leader = Leader::new(now, own, epoch_start, self.voters(), &self.timing);
        self.set_role(self.epoch, Role::Leader(Box::new(leader)));
        self.write_election();
        let begins = control::EpochBegins {
            base_offset: epoch_start,
            epoch: self.epoch,
            now_ms: now.wall_ms,
            leader: self.own.key.id,
            voters: self.voters(),
            granting,
        };
        let news = self.voters_to_begin_with();
        let batch =
            control::leader_change(&begins, news.as_ref().map(|(version, set)| (*version, set)));
        self.append_own(batch);
        self.outbox.push(Output::Leading(self.epoch));
        self.update_progress();
    }

    pub(super) fn become_follower(&mut self, now: Now, epoch: LeaderEpoch, leader: LeaderAt) {
        assert!(epoch >= self.epoch && leader.id != self.own.key.id, "it cannot follow {leader:?}");
        let voted = if epoch == self.epoch { self.voted() } else { None };
        let fetch_until = now.mono + self.timing.fetch_timeout;
        let before = self.election();
        let role = Follower::new(leader, voted, fetch_until, fetch_until);
        self.set_role(epoch, Role::Follower(role));
        self.tell_if_changed(before);
    }

    fn tell_if_changed(&mut self, before: ElectionState) {
        if self.election() != before {
            self.write_election();
            self.tell_leader();
        }
    }

    pub(super) fn become_resigned(&mut self, now: Now, successors: Vec<ReplicaKey>) {
        let election_at = now.mono + self.election_timeout();
        self.set_role(self.epoch, self.resigned(successors, election_at));
        self.outbox.push(Output::Following { epoch: self.epoch, leader: None });
    }

    /// Whoever waits for this replica as a leader is told that it is none, and earlier requests
    /// are forgotten.
    fn set_role(&mut self, epoch: LeaderEpoch, role: Role) {
        tracing::info!(
            "the quorum's replica is {} in epoch {epoch}, from {} in epoch {}",
            role.name(),
            self.role.name(),
            self.epoch
        );
        let before = std::mem::replace(&mut self.role, role);
        self.epoch = epoch;
        self.peers.reset();
        if let Role::Leader(leader) = before {
            for id in leader.waiting_requests() {
                self.reply(id, Err(Refusal::NotLeaderOrFollower));
            }
        }
    }

    fn write_election(&mut self) {
        let election = self.election();
        self.outbox.write_election(election);
    }

    fn tell_leader(&mut self) {
        let leader = self.leader().map(|leader| leader.id);
        self.outbox.push(Output::Following { epoch: self.epoch, leader });
    }

    /// What a request or an answer says of the leader (`KafkaRaftClient.maybeTransition`). False if
    /// it contradicts what is known of the epoch.
    pub(super) fn learn(&mut self, now: Now, epoch: LeaderEpoch, leader: Option<LeaderAt>) -> bool {
        let own = self.own.key.id;
        let is_consistent = match &leader {
            Some(leader) if leader.id == own => {
                epoch < self.epoch
                    || (epoch == self.epoch
                        && matches!(self.role, Role::Leader(_) | Role::Resigned(_)))
            }
            Some(leader) if epoch == self.epoch => {
                self.leader().is_none_or(|known| known.id == leader.id)
            }
            _ => true,
        };
        if !is_consistent {
            tracing::error!(?leader, %epoch, known = ?self.leader(), "there are two leaders");
            return false;
        }
        if epoch < self.epoch {
            return true;
        }
        let is_larger = epoch > self.epoch;
        match leader.filter(|leader| leader.id != own) {
            Some(leader) if self.peer_is_known(&leader) => {
                let knows_more = |known: &LeaderAt| known.endpoints.len() < leader.endpoints.len();
                let is_news = is_larger || self.leader().is_none_or(knows_more);
                if is_news || matches!(self.role, Role::Unattached(_)) {
                    self.become_follower(now, epoch, leader);
                }
            }
            // It is known by name only: who knows where it is must be asked.
            Some(leader) if is_larger || self.leader().is_none() => {
                self.become_unattached(now, epoch, Some(leader));
            }
            None if is_larger => self.become_unattached(now, epoch, None),
            _ => {}
        }
        true
    }

    /// A leader whose connection broke and cannot be made again has gone. A voter that follows it
    /// stands for election after a short time by chance, so that not all do at once; until then, or
    /// until the leader answers after all, it grants PreVotes to others. Nothing is unsafe about
    /// that, since a PreVote only asks; a leader that a majority still reaches stays.
    pub fn leader_gone(&mut self, now: Now, leader: base::NodeId, out: &mut Vec<Output>) {
        let may_stand = self.may_stand();
        let spread = self.timing.election_timeout / 5;
        let spread = u64::try_from(spread.as_nanos()).unwrap_or(u64::MAX).max(1);
        if let Role::Follower(role) = &mut self.role
            && role.leader.id == leader
        {
            if may_stand && !role.is_gone() {
                let wait = base::Duration::from_nanos(self.random.below(spread));
                role.leave_at(now.mono + wait, true);
            }
            self.peers.pause(Peer::Node(leader), now.mono);
        }
        self.settle(now, out);
    }
}

impl Role {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Role::Unattached(_) => "unattached",
            Role::Prospective(_) => "prospective",
            Role::Candidate(_) => "candidate",
            Role::Leader(_) => "leader",
            Role::Follower(_) => "follower",
            Role::Resigned(_) => "resigned",
        }
    }
}
