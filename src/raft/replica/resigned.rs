//! A voter that has let go of the leadership of its epoch, or that led when it stopped
//! (`ResignedState`). It tells the others, so that they need not wait for a timeout.

use base::{Instant, LeaderEpoch, NodeId, Now};

use super::{LeaderAt, Raft, Role, is_due};
use crate::election::ReplicaKey;
use crate::messages::{Peer, RequestBody};

#[derive(Clone, Debug)]
pub(crate) struct Resigned {
    pub(super) own: LeaderAt,
    /// Whom it has not reached yet.
    pub(super) unacknowledged: Vec<NodeId>,
    pub(super) successors: Vec<ReplicaKey>,
    pub(super) election_at: Instant,
}

impl Resigned {
    pub(super) fn next_timer(&self) -> Instant {
        self.election_at
    }
}

impl Raft {
    pub(super) fn act_resigned(&mut self, now: Now) -> bool {
        let Role::Resigned(role) = &self.role else { return false };
        if is_due(role.election_at, now) {
            self.become_unattached(now, LeaderEpoch(self.epoch.0 + 1), None);
            return true;
        }
        let body = RequestBody::EndQuorumEpoch {
            epoch: self.epoch,
            leader: role.own.id,
            endpoints: role.own.endpoints.clone(),
            successors: role.successors.clone(),
        };
        for id in role.unacknowledged.clone() {
            if self.peers.is_free(Peer::Node(id), now.mono) {
                self.send(now, Peer::Node(id), body.clone());
            }
        }
        false
    }

    pub(super) fn resignation_is_known_to(&mut self, id: NodeId) {
        if let Role::Resigned(role) = &mut self.role {
            role.unacknowledged.retain(|waiting| *waiting != id);
        }
    }
}
