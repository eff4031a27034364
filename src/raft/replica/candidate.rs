//! A voter that asks for votes in a new epoch, having voted for itself (`CandidateState`). One that
//! cannot win any more waits for the end of its time, so that another one goes first.

use base::{Instant, Now};

use super::ballots::Ballots;
use super::{Raft, Role, is_due};

#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(super) ballots: Ballots,
    pub(super) election_at: Instant,
}

impl Candidate {
    pub(super) fn next_timer(&self) -> Instant {
        self.election_at
    }
}

impl Raft {
    pub(super) fn act_candidate(&mut self, now: Now) -> bool {
        let Role::Candidate(role) = &self.role else { return false };
        if role.ballots.is_granted() {
            self.become_leader(now);
            return true;
        }
        if is_due(role.election_at, now) {
            if self.may_stand() {
                self.become_prospective(now, false);
            } else {
                self.become_unattached(now, self.epoch, None);
            }
            return true;
        }
        if !role.ballots.is_rejected() {
            self.ask_for_votes(now, false);
        }
        false
    }
}
