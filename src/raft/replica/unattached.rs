//! A replica that follows nobody: it knows no leader of its epoch, or not where that is
//! (`UnattachedState`). It asks around, and a voter stands for election when nobody else does.

use base::{Instant, Now};

use super::{LeaderAt, Raft, Role, is_due};
use crate::election::ReplicaKey;

#[derive(Clone, Debug)]
pub(crate) struct Unattached {
    pub(super) leader: Option<LeaderAt>,
    pub(super) voted: Option<ReplicaKey>,
    pub(super) election_at: Instant,
}

impl Default for Unattached {
    fn default() -> Self {
        Self { leader: None, voted: None, election_at: Instant::FAR_FUTURE }
    }
}

impl Unattached {
    pub(super) fn next_timer(&self) -> Instant {
        self.election_at
    }
}

impl Raft {
    pub(super) fn act_unattached(&mut self, now: Now) -> bool {
        let Role::Unattached(role) = &mut self.role else { return false };
        if is_due(role.election_at, now) {
            if self.may_stand() {
                self.become_prospective(now, false);
                return true;
            }
            let again_at = now.mono + self.election_timeout();
            if let Role::Unattached(role) = &mut self.role {
                role.election_at = again_at;
            }
        }
        self.fetch_from_anyone(now);
        false
    }
}
