//! When votes are enough.

use std::collections::BTreeMap;

use base::NodeId;

use crate::voters::VoterSet;

/// What the voters have said in one election (`EpochElection`).
#[derive(Clone, Debug)]
pub(crate) struct Ballots(BTreeMap<NodeId, Option<bool>>);

impl Ballots {
    /// An election that `own` takes part in and votes for itself.
    pub(super) fn new(voters: &VoterSet, own: NodeId) -> Self {
        let vote = |id: NodeId| (id, (id == own).then_some(true));
        Self(voters.ids().into_iter().map(vote).collect())
    }

    /// What others say counts once; who does not vote is not counted.
    pub(super) fn record(&mut self, voter: NodeId, granted: bool) {
        if let Some(vote @ None) = self.0.get_mut(&voter) {
            *vote = Some(granted);
        }
    }

    pub(super) fn is_granted(&self) -> bool {
        self.count(Some(true)) >= self.majority()
    }

    /// Whether a majority cannot be reached any more.
    pub(super) fn is_rejected(&self) -> bool {
        self.count(Some(true)) + self.count(None) < self.majority()
    }

    pub(super) fn granting(&self) -> Vec<NodeId> {
        self.0.iter().filter(|(_, vote)| **vote == Some(true)).map(|(id, _)| *id).collect()
    }

    pub(super) fn missing(&self) -> Vec<NodeId> {
        self.0.iter().filter(|(_, vote)| vote.is_none()).map(|(id, _)| *id).collect()
    }

    fn count(&self, wanted: Option<bool>) -> usize {
        self.0.values().filter(|vote| **vote == wanted).count()
    }

    fn majority(&self) -> usize {
        self.0.len() / 2 + 1
    }
}

#[cfg(test)]
mod tests {
    use base::Uuid;

    use super::*;
    use crate::{ReplicaKey, Voter};

    #[test]
    fn a_majority_decides_either_way() {
        // Voters beside the candidate that grant and refuse, of how many: granted, rejected.
        let cases = [
            (1, 0, 0, true, false),
            (2, 0, 0, false, false),
            (2, 1, 0, true, false),
            (2, 0, 1, false, true),
            (3, 1, 0, true, false),
            (3, 0, 1, false, false),
            (3, 0, 2, false, true),
            (4, 1, 1, false, false),
            (4, 1, 2, false, true),
            (4, 2, 1, true, false),
            (5, 1, 2, false, false),
            (5, 2, 2, true, false),
            (5, 1, 3, false, true),
        ];
        for (count, granting, refusing, granted, rejected) in cases {
            let voter = |id| Voter {
                key: ReplicaKey { id: NodeId(id), directory: Uuid::ZERO },
                endpoints: Vec::new(),
                kraft_versions: (0, 1),
            };
            let voters = VoterSet::new((0..count).map(voter).collect());
            let mut ballots = Ballots::new(&voters, NodeId(0));
            for id in 1..=granting {
                ballots.record(NodeId(id), true);
                ballots.record(NodeId(id), false);
            }
            for id in granting + 1..=granting + refusing {
                ballots.record(NodeId(id), false);
            }
            ballots.record(NodeId(77), true);
            let decided = (ballots.is_granted(), ballots.is_rejected());
            assert_eq!(decided, (granted, rejected), "{granting} and {refusing} of {count}");
            let missing = usize::try_from(count - 1 - granting - refusing).expect("small");
            assert_eq!(ballots.missing().len(), missing);
        }
    }
}
