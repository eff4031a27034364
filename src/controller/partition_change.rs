//! How the leader and the in-sync replicas of a partition change (`PartitionChangeBuilder`).

use base::{NodeId, PartitionIndex, TopicId};
use metadata::{LEADER_UNCHANGED, LeaderRecovery, MetadataVersion, Partition, ids_of};
use protocol::PartitionChangeRecord;

/// Whom an election may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Election {
    /// The leader stays if it can; else the first replica that can.
    Online,
    /// The first replica if it can; else as `Online`.
    Preferred,
    /// As `Online`; where none can, any replica that is alive, at the risk of losing records.
    Unclean,
}

/// One change of one partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartitionChange<'a, F> {
    /// The partition as it is.
    pub(crate) partition: &'a Partition,
    /// The in-sync replicas that it gets; others may follow from an election.
    pub(crate) target_isr: &'a [NodeId],
    /// Replicas that may have lost what they had: no longer eligible.
    pub(crate) unclean_shutdown: Option<NodeId>,
    /// Who may lead at all.
    pub(crate) can_lead: F,
    /// How a leader is chosen.
    pub(crate) election: Election,
    /// How many in-sync replicas are enough.
    pub(crate) min_isr: usize,
    /// Whether eligible leader replicas are kept (KIP-966).
    pub(crate) has_elr: bool,
    /// The metadata.version.
    pub(crate) version: MetadataVersion,
}

impl<F: Fn(NodeId) -> bool> PartitionChange<'_, F> {
    /// The record of the change, unless nothing changes.
    pub(crate) fn record(
        &self,
        topic: TopicId,
        index: PartitionIndex,
    ) -> Option<PartitionChangeRecord> {
        let partition = self.partition;
        let mut isr = self.target_isr.to_vec();
        let mut elr = self.eligible();
        let (leader, is_unclean) = self.elect(&isr, &elr);
        let mut record = PartitionChangeRecord {
            partition_id: index.0,
            topic_id: topic,
            leader: LEADER_UNCHANGED,
            ..PartitionChangeRecord::default()
        };
        if leader != partition.leader {
            record.leader = leader.0;
            if is_unclean {
                isr = vec![leader];
                elr.clear();
                if partition.leader_recovery != LeaderRecovery::Recovering {
                    record.leader_recovery_state = LeaderRecovery::Recovering.code();
                }
            } else if let Some(position) = elr.iter().position(|replica| *replica == leader) {
                elr.remove(position);
                isr = vec![leader];
            }
        }
        if elr != partition.elr {
            record.eligible_leader_replicas = Some(ids_of(&elr));
        }
        // Without eligible replicas the last member of the ISR stays in it, so that it is known.
        if isr != partition.isr && (!isr.is_empty() || self.has_elr) {
            record.isr = Some(ids_of(&isr));
        }
        let shrinks = partition.isr.iter().any(|replica| !isr.contains(replica));
        if record.isr.is_some()
            && shrinks
            && record.leader == LEADER_UNCHANGED
            && self.version.bumps_epoch_on_isr_shrink()
        {
            record.leader = partition.leader.0;
        }
        if self.has_elr {
            if record.leader == NodeId::NONE.0 && partition.last_known_elr.is_empty() {
                record.last_known_elr = Some(vec![partition.leader.0]);
            } else if record.leader >= 0 && !partition.last_known_elr.is_empty() {
                record.last_known_elr = Some(Vec::new());
            }
        }
        let changes = record.leader != LEADER_UNCHANGED
            || record.isr.is_some()
            || record.eligible_leader_replicas.is_some()
            || record.last_known_elr.is_some();
        changes.then_some(record)
    }

    /// Replicas outside of the ISR that have everything committed: those that leave it while it is
    /// smaller than the minimum, and those that were eligible before.
    fn eligible(&self) -> Vec<NodeId> {
        let partition = self.partition;
        if !self.has_elr || self.target_isr.len() >= self.min_isr {
            return Vec::new();
        }
        let mut eligible: Vec<NodeId> =
            partition.elr.iter().chain(&partition.isr).copied().collect();
        eligible.sort_unstable();
        eligible.dedup();
        eligible.retain(|replica| {
            !self.target_isr.contains(replica) && self.unclean_shutdown != Some(*replica)
        });
        // In the order that they had, where the members are the same.
        let same = eligible.len() == partition.elr.len()
            && eligible.iter().all(|replica| partition.elr.contains(replica));
        if same { partition.elr.clone() } else { eligible }
    }

    /// The leader, and whether it may lack committed records.
    fn elect(&self, isr: &[NodeId], elr: &[NodeId]) -> (NodeId, bool) {
        let partition = self.partition;
        let is_good = |replica: NodeId| {
            (isr.contains(&replica) || (isr.is_empty() && elr.contains(&replica)))
                && (self.can_lead)(replica)
        };
        let preferred = partition.replicas.first().copied().filter(|replica| is_good(*replica));
        if let (Election::Preferred, Some(preferred)) = (self.election, preferred) {
            return (preferred, false);
        }
        if is_good(partition.leader) {
            return (partition.leader, false);
        }
        let mut replicas = partition.replicas.iter().copied();
        if let Some(leader) = replicas.clone().find(|replica| is_good(*replica)) {
            return (leader, false);
        }
        // Everyone who has everything is gone, and who led last is known: better than anyone else.
        if let (true, true, true, [last]) =
            (self.has_elr, isr.is_empty(), elr.is_empty(), &partition.last_known_elr[..])
            && (self.can_lead)(*last)
        {
            return (*last, true);
        }
        if self.election == Election::Unclean
            && let Some(leader) = replicas.find(|replica| (self.can_lead)(*replica))
        {
            return (leader, true);
        }
        (NodeId::NONE, false)
    }
}

#[cfg(test)]
mod tests {
    use base::{LeaderEpoch, Uuid};

    use super::*;

    fn nodes(ids: &[i32]) -> Vec<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    fn partition(leader: i32, isr: &[i32], elr: &[i32], last: &[i32]) -> Partition {
        Partition {
            replicas: nodes(&[1, 2, 3]),
            directories: vec![Uuid([1; 16]); 3],
            isr: nodes(isr),
            removing_replicas: Vec::new(),
            adding_replicas: Vec::new(),
            leader: NodeId(leader),
            leader_recovery: LeaderRecovery::Recovered,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: 0,
            elr: nodes(elr),
            last_known_elr: nodes(last),
        }
    }

    /// What a record says: leader, ISR, ELR, last known leader, recovery.
    type Said = (i32, Option<Vec<i32>>, Option<Vec<i32>>, Option<Vec<i32>>, i8);

    struct Case {
        name: &'static str,
        before: Partition,
        target_isr: &'static [i32],
        unclean: Option<i32>,
        alive: &'static [i32],
        said: Option<Said>,
    }

    fn check(cases: &[Case], election: Election, has_elr: bool) {
        for case in cases {
            let change = PartitionChange {
                partition: &case.before,
                target_isr: &nodes(case.target_isr),
                unclean_shutdown: case.unclean.map(NodeId),
                can_lead: |node: NodeId| case.alive.contains(&node.0),
                election,
                min_isr: 2,
                has_elr,
                version: MetadataVersion::LATEST,
            };
            let record = change.record(Uuid([9; 16]), PartitionIndex(0));
            let said = record.map(|record| {
                let elr = record.eligible_leader_replicas;
                let last = record.last_known_elr;
                (record.leader, record.isr, elr, last, record.leader_recovery_state)
            });
            assert_eq!(said, case.said, "{}", case.name);
        }
    }

    #[rustfmt::skip] // A table.
    #[test]
    fn leaders_and_replicas_move_as_in_kafka() {
        let kept = LEADER_UNCHANGED;
        let full = || partition(1, &[1, 2, 3], &[], &[]);
        check(&[
            Case { name: "nothing changes", before: full(),
                target_isr: &[1, 2, 3], unclean: None, alive: &[1, 2, 3], said: None },
            Case { name: "a follower is fenced", before: full(),
                target_isr: &[1, 2], unclean: None, alive: &[1, 2],
                said: Some((kept, Some(vec![1, 2]), None, None, -1)) },
            Case { name: "the leader is fenced", before: full(),
                target_isr: &[2, 3], unclean: None, alive: &[2, 3],
                said: Some((2, Some(vec![2, 3]), None, None, -1)) },
            Case { name: "below the minimum who leaves is eligible",
                before: partition(1, &[1, 2], &[], &[]),
                target_isr: &[1], unclean: None, alive: &[1],
                said: Some((kept, Some(vec![1]), Some(vec![2]), None, -1)) },
            Case { name: "the last one leaves in order", before: partition(1, &[1], &[2], &[]),
                target_isr: &[], unclean: None, alive: &[],
                said: Some((-1, Some(vec![]), Some(vec![1, 2]), Some(vec![1]), -1)) },
            Case { name: "the last one dies", before: partition(1, &[1], &[], &[]),
                target_isr: &[], unclean: Some(1), alive: &[],
                said: Some((-1, Some(vec![]), None, Some(vec![1]), -1)) },
            Case { name: "an eligible one comes back", before: partition(-1, &[], &[1, 2], &[1]),
                target_isr: &[], unclean: None, alive: &[2],
                said: Some((2, Some(vec![2]), Some(vec![1]), Some(vec![]), -1)) },
            Case { name: "nobody is eligible, who led last comes back",
                before: partition(-1, &[], &[], &[1]),
                target_isr: &[], unclean: None, alive: &[1, 2],
                said: Some((1, Some(vec![1]), None, Some(vec![]), 1)) },
        ], Election::Online, true);
    }

    #[rustfmt::skip] // A table.
    #[test]
    fn without_eligible_replicas_the_last_member_stays() {
        let alone = || partition(1, &[1], &[], &[]);
        check(&[
            Case { name: "the ISR keeps its last", before: alone(),
                target_isr: &[], unclean: None, alive: &[2],
                said: Some((-1, None, None, None, -1)) },
        ], Election::Online, false);
        check(&[
            Case { name: "an unclean election", before: alone(),
                target_isr: &[], unclean: None, alive: &[2],
                said: Some((2, Some(vec![2]), None, None, 1)) },
        ], Election::Unclean, false);
        check(&[
            Case { name: "the preferred leader is back", before: partition(2, &[2, 1], &[], &[]),
                target_isr: &[2, 1], unclean: None, alive: &[1, 2],
                said: Some((1, None, None, None, -1)) },
        ], Election::Preferred, false);
    }
}
