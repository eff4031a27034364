//! Assignments of replicas: those that a client gives, and those that are made here.

use base::{LeaderEpoch, NodeId, Random, Uuid};
use metadata::{
    Broker, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Image, LeaderRecovery, Partition,
};
use protocol::ErrorCode;

use crate::ApiError;
use crate::placement::Placer;

/// Checks the replicas that a client wants for one partition
/// (`ReplicationControlManager.validateManualPartitionAssignment`).
///
/// `replication_factor` is that of the partitions before it, if there are any.
pub(crate) fn check_manual(
    image: &Image,
    replicas: &[NodeId],
    replication_factor: Option<usize>,
) -> Result<(), ApiError> {
    let refuse = |message: String| {
        let message = format!("The manual partition assignment includes {message}");
        Err(ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message))
    };
    if replicas.is_empty() {
        return refuse("an empty replica list.".to_owned());
    }
    let mut sorted = replicas.to_vec();
    sorted.sort_unstable();
    let mut previous = None;
    for id in sorted {
        let Some(broker) = image.broker(id) else {
            return refuse(format!("broker {id}, but no such broker is registered."));
        };
        if !crate::placement::can_take_partitions(broker) {
            return refuse(format!("broker {id}, but all its log directories are cordoned."));
        }
        if previous == Some(id) {
            return refuse(format!("the broker {id} more than once."));
        }
        previous = Some(id);
    }
    match replication_factor {
        Some(before) if before != replicas.len() => refuse(format!(
            "a partition with {} replica(s), but this is not consistent with previous partitions, \
             which have {before} replica(s).",
            replicas.len()
        )),
        _ => Ok(()),
    }
}

/// A new partition on `replicas`, led by the first of them that is active; nothing if none is.
pub(crate) fn new_partition(image: &Image, replicas: Vec<NodeId>) -> Option<Partition> {
    let is_active = |id: &NodeId| image.broker(*id).is_some_and(|broker| broker.is_active());
    let isr: Vec<NodeId> = replicas.iter().copied().filter(is_active).collect();
    let leader = *isr.first()?;
    let directory =
        |id: &NodeId| image.broker(*id).map_or(DIRECTORY_UNASSIGNED, |b| new_directory(b));
    Some(Partition {
        directories: replicas.iter().map(directory).collect(),
        replicas,
        isr,
        removing_replicas: Vec::new(),
        adding_replicas: Vec::new(),
        leader,
        leader_recovery: LeaderRecovery::Recovered,
        leader_epoch: LeaderEpoch(0),
        partition_epoch: 0,
        elr: Vec::new(),
        last_known_elr: Vec::new(),
    })
}

/// New partitions on brokers that are chosen here.
pub(crate) fn place_partitions(
    image: &Image,
    random: &mut Random,
    count: usize,
    replication_factor: i16,
) -> Result<Vec<Partition>, PlacementError> {
    let mut placer = Placer::new(image, random);
    let mut partitions = Vec::with_capacity(count);
    for _ in 0..count {
        let replicas = placer.place(replication_factor).map_err(PlacementError::Impossible)?;
        let partition = new_partition(image, replicas).ok_or(PlacementError::NobodyActive)?;
        partitions.push(partition);
    }
    Ok(partitions)
}

/// Why new partitions have no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlacementError {
    /// In Kafka's words.
    Impossible(String),
    /// The brokers that are not fenced are all on their way down.
    NobodyActive,
}

impl PlacementError {
    /// What CreateTopics answers.
    pub(crate) fn of_replication(&self, replication_factor: i16) -> ApiError {
        let reason = match self {
            PlacementError::Impossible(reason) => reason,
            PlacementError::NobodyActive => {
                "All brokers are currently fenced or in controlled shutdown."
            }
        };
        ApiError::new(
            ErrorCode::INVALID_REPLICATION_FACTOR,
            format!("Unable to replicate the partition {replication_factor} time(s): {reason}"),
        )
    }
}

/// The directory of a new replica: the broker's only one, or none yet, when the broker chooses
/// (`ClusterControlManager.defaultDir`).
pub(crate) fn new_directory(broker: &Broker) -> Uuid {
    match broker.directories[..] {
        [] => DIRECTORY_MIGRATING,
        [only] => only,
        _ => DIRECTORY_UNASSIGNED,
    }
}
