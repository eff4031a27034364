//! Topics and partitions as the image holds them.

use std::sync::Arc;

use base::{LeaderEpoch, NodeId, PartitionIndex, TopicId, Uuid};
use protocol::{PartitionChangeRecord, PartitionRecord};

use crate::SharedMap;

/// The directory of a replica that has none yet (`DirectoryId.UNASSIGNED`).
pub const DIRECTORY_UNASSIGNED: Uuid = Uuid([0; 16]);
/// The directory of a replica from before directories had ids (`DirectoryId.MIGRATING`).
pub const DIRECTORY_MIGRATING: Uuid = Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
/// The directory of a replica whose broker lost it (`DirectoryId.LOST`).
pub const DIRECTORY_LOST: Uuid = Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
/// `PartitionChangeRecord.leader` where the leader stays.
pub const LEADER_UNCHANGED: i32 = -2;

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its id for life.
    pub id: TopicId,
    /// Its name.
    pub name: Arc<str>,
    /// Its partitions, from 0 without a gap.
    pub partitions: SharedMap<PartitionIndex, Arc<Partition>>,
}

impl Topic {
    /// A topic that has no partition yet.
    pub fn new(id: TopicId, name: Arc<str>) -> Self {
        Self { id, name, partitions: SharedMap::default() }
    }

    /// One of its partitions.
    pub fn partition(&self, index: PartitionIndex) -> Option<&Arc<Partition>> {
        self.partitions.get(&index)
    }

    /// How many replicas its first partition has; 0 where there is no partition.
    pub fn replication_factor(&self) -> usize {
        self.partition(PartitionIndex(0)).map_or(0, |partition| partition.replicas.len())
    }
}

/// Whether what the leader has can be taken as it is (KIP-704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaderRecovery {
    /// The leader came from the in-sync replicas, or has recovered since.
    #[default]
    Recovered,
    /// The leader was elected outside of the in-sync replicas and has not recovered yet.
    Recovering,
}

impl LeaderRecovery {
    /// Its number in records and responses.
    pub fn code(self) -> i8 {
        match self {
            LeaderRecovery::Recovered => 0,
            LeaderRecovery::Recovering => 1,
        }
    }

    fn of_code(code: i8) -> Option<Self> {
        match code {
            0 => Some(LeaderRecovery::Recovered),
            1 => Some(LeaderRecovery::Recovering),
            _ => None,
        }
    }
}

/// One partition: who has it, who leads it (`PartitionRegistration`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The replicas, the preferred leader first.
    pub replicas: Vec<NodeId>,
    /// The log directory of each replica, in their order.
    pub directories: Vec<Uuid>,
    /// The in-sync replicas.
    pub isr: Vec<NodeId>,
    /// Replicas that a reassignment takes away.
    pub removing_replicas: Vec<NodeId>,
    /// Replicas that a reassignment adds.
    pub adding_replicas: Vec<NodeId>,
    /// The leader, or [`NodeId::NONE`].
    pub leader: NodeId,
    /// Whether the leader is recovering.
    pub leader_recovery: LeaderRecovery,
    /// Grows whenever the leader is set.
    pub leader_epoch: LeaderEpoch,
    /// Grows with every change.
    pub partition_epoch: i32,
    /// Replicas that have everything committed though they left the ISR (KIP-966).
    pub elr: Vec<NodeId>,
    /// Where nobody leads: who led last (KIP-966).
    pub last_known_elr: Vec<NodeId>,
}

/// The numbers of nodes, as records write them.
pub fn ids_of(nodes: &[NodeId]) -> Vec<i32> {
    nodes.iter().map(|node| node.0).collect()
}

/// The nodes of their numbers.
pub fn nodes_of(ids: &[i32]) -> Vec<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

impl Partition {
    /// The partition that a record creates. A record of before directories had ids (version 0)
    /// leaves them [`DIRECTORY_MIGRATING`].
    pub fn of_record(record: &PartitionRecord) -> Self {
        let replicas = nodes_of(&record.replicas);
        let directories = directories_for(&replicas, record.directories.clone());
        Self {
            replicas,
            directories,
            isr: nodes_of(&record.isr),
            removing_replicas: nodes_of(&record.removing_replicas),
            adding_replicas: nodes_of(&record.adding_replicas),
            leader: NodeId(record.leader),
            leader_recovery: LeaderRecovery::of_code(record.leader_recovery_state)
                .unwrap_or_default(),
            leader_epoch: LeaderEpoch(record.leader_epoch),
            partition_epoch: record.partition_epoch,
            elr: nodes_of(record.eligible_leader_replicas.as_deref().unwrap_or_default()),
            last_known_elr: nodes_of(record.last_known_elr.as_deref().unwrap_or_default()),
        }
    }

    /// The record that creates this partition. Older versions cannot carry its directories.
    pub fn to_record(
        &self,
        topic: TopicId,
        index: PartitionIndex,
        has_directories: bool,
    ) -> PartitionRecord {
        let unless_empty = |nodes: &[NodeId]| (!nodes.is_empty()).then(|| ids_of(nodes));
        PartitionRecord {
            partition_id: index.0,
            topic_id: topic,
            replicas: ids_of(&self.replicas),
            isr: ids_of(&self.isr),
            removing_replicas: ids_of(&self.removing_replicas),
            adding_replicas: ids_of(&self.adding_replicas),
            leader: self.leader.0,
            leader_recovery_state: self.leader_recovery.code(),
            leader_epoch: self.leader_epoch.0,
            partition_epoch: self.partition_epoch,
            directories: if has_directories { self.directories.clone() } else { Vec::new() },
            eligible_leader_replicas: unless_empty(&self.elr),
            last_known_elr: unless_empty(&self.last_known_elr),
            ..PartitionRecord::default()
        }
    }

    /// The partition after a change (`PartitionRegistration.merge`).
    #[must_use]
    pub fn merge(&self, change: &PartitionChangeRecord) -> Self {
        let mut merged = self.clone();
        let set = |target: &mut Vec<NodeId>, ids: &Option<Vec<i32>>| {
            if let Some(ids) = ids {
                *target = nodes_of(ids);
            }
        };
        set(&mut merged.replicas, &change.replicas);
        set(&mut merged.isr, &change.isr);
        set(&mut merged.removing_replicas, &change.removing_replicas);
        set(&mut merged.adding_replicas, &change.adding_replicas);
        set(&mut merged.elr, &change.eligible_leader_replicas);
        set(&mut merged.last_known_elr, &change.last_known_elr);
        if let Some(directories) = &change.directories {
            merged.directories.clone_from(directories);
        }
        merged.directories = directories_for(&merged.replicas, merged.directories);
        if change.leader != LEADER_UNCHANGED {
            merged.leader = NodeId(change.leader);
            merged.leader_epoch = LeaderEpoch(self.leader_epoch.0.wrapping_add(1));
        }
        if let Some(recovery) = LeaderRecovery::of_code(change.leader_recovery_state) {
            merged.leader_recovery = recovery;
        }
        merged.partition_epoch = self.partition_epoch.wrapping_add(1);
        merged
    }

    /// The log directory of a replica, if `node` is one.
    pub fn directory_of(&self, node: NodeId) -> Option<Uuid> {
        let position = self.replicas.iter().position(|replica| *replica == node)?;
        self.directories.get(position).copied()
    }

    /// Whether `node` has a replica.
    pub fn has_replica(&self, node: NodeId) -> bool {
        self.replicas.contains(&node)
    }

    /// Whether it is being moved to other replicas.
    pub fn is_reassigning(&self) -> bool {
        !self.removing_replicas.is_empty() || !self.adding_replicas.is_empty()
    }
}

/// `directories` if there is one for each replica.
fn directories_for(replicas: &[NodeId], directories: Vec<Uuid>) -> Vec<Uuid> {
    if directories.len() == replicas.len() {
        directories
    } else {
        vec![DIRECTORY_MIGRATING; replicas.len()]
    }
}
