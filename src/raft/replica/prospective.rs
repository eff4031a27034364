//! A voter that asks whether it would be elected (KIP-996; `ProspectiveState`). It stays in its
//! epoch, and nothing of it is on disk: a voter that was cut off disturbs nobody when it is back.

use base::{Instant, Now};

use super::ballots::Ballots;
use super::{LeaderAt, Raft, Role, is_due};
use crate::election::ReplicaKey;
use crate::messages::Peer;

#[derive(Clone, Debug)]
pub(crate) struct Prospective {
    /// The leader of the epoch, whom it goes back to if the others want to keep it.
    pub(super) leader: Option<LeaderAt>,
    pub(super) voted: Option<ReplicaKey>,
    pub(super) ballots: Ballots,
    pub(super) election_at: Instant,
}

impl Prospective {
    pub(super) fn next_timer(&self) -> Instant {
        self.election_at
    }
}

impl Raft {
    pub(super) fn act_prospective(&mut self, now: Now) -> bool {
        let Role::Prospective(role) = &self.role else { return false };
        if !self.may_stand() || role.ballots.is_rejected() || is_due(role.election_at, now) {
            self.lose_prospect(now);
            return true;
        }
        if role.ballots.is_granted() {
            self.become_candidate(now);
            return true;
        }
        self.ask_for_votes(now, true);
        false
    }

    fn lose_prospect(&mut self, now: Now) {
        let leader = self.leader().cloned();
        match leader {
            Some(leader) if self.peer_is_known(&leader) => {
                // One that has just gone is not asked again at once.
                let peer = Peer::Node(leader.id);
                self.become_follower(now, self.epoch, leader);
                self.peers.pause(peer, now.mono);
            }
            leader => self.become_unattached(now, self.epoch, leader),
        }
    }
}
