//! What happens to partitions when a broker comes or goes
//! (`ReplicationControlManager.generateLeaderAndIsrUpdates`).

use base::{NodeId, PartitionIndex, Uuid};
use metadata::{DIRECTORY_UNASSIGNED, Image, Partition, Topic, VersionedRecord};
use protocol::PartitionChangeRecord;

use crate::outcome::versioned;
use crate::params::Params;
use crate::partition_change::{Election, PartitionChange};

/// A broker whose state changes, while the image still has its old state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// It is fenced or goes down in order: it leaves the ISR.
    Leaves(NodeId),
    /// It died, or came back without having gone down in order: nobody knows what it still has.
    Died(NodeId),
    /// It may lead again.
    Returns(NodeId),
    /// One of its log directories failed: it leaves the ISR of what it has there.
    LosesDirectory(NodeId, Uuid),
}

/// Whether a replica may lead: its broker is active, or comes back just now, and has the replica's
/// directory (`LeaderAcceptor`).
pub(crate) fn can_lead(
    image: &Image,
    partition: &Partition,
    replica: NodeId,
    returns: bool,
) -> bool {
    let Some(broker) = image.broker(replica) else { return false };
    let directory = partition.directory_of(replica).unwrap_or(DIRECTORY_UNASSIGNED);
    (broker.is_active() || returns) && broker.has_online_directory(directory)
}

/// The changes of partitions that follow from a move.
pub(crate) fn partition_changes(
    params: &Params,
    image: &Image,
    broker_move: Move,
    records: &mut Vec<VersionedRecord>,
) {
    let concerns = |partition: &Partition| match broker_move {
        Move::Leaves(broker) => partition.isr.contains(&broker),
        Move::Died(broker) => partition.isr.contains(&broker) || partition.elr.contains(&broker),
        Move::Returns(_) => partition.leader == NodeId::NONE,
        Move::LosesDirectory(broker, lost) => {
            partition.isr.contains(&broker) && partition.directory_of(broker) == Some(lost)
        }
    };
    for topic in image.topics().values() {
        for (index, partition) in topic.partitions.iter() {
            if concerns(partition) {
                let record = change(params, image, broker_move, topic, *index, partition);
                let version = image.metadata_version().partition_change_record();
                records.extend(record.map(|record| versioned(record, version)));
            }
        }
    }
}

/// The change of one partition that follows from a move.
pub(crate) fn change(
    params: &Params,
    image: &Image,
    broker_move: Move,
    topic: &Topic,
    index: PartitionIndex,
    partition: &Partition,
) -> Option<PartitionChangeRecord> {
    let leaving = match broker_move {
        Move::Leaves(broker) | Move::Died(broker) | Move::LosesDirectory(broker, _) => Some(broker),
        Move::Returns(_) => None,
    };
    let target_isr: Vec<NodeId> =
        partition.isr.iter().copied().filter(|replica| Some(*replica) != leaving).collect();
    let can_lead = |replica: NodeId| {
        let returns = broker_move == Move::Returns(replica);
        Some(replica) != leaving && can_lead(image, partition, replica, returns)
    };
    let unclean_shutdown = match broker_move {
        Move::Died(broker) => Some(broker),
        Move::Leaves(_) | Move::Returns(_) | Move::LosesDirectory(..) => None,
    };
    let is_unclean = params.has_unclean_election(image, topic);
    let version = image.metadata_version();
    let change = PartitionChange {
        partition,
        target_isr: &target_isr,
        unclean_shutdown,
        can_lead,
        election: if is_unclean { Election::Unclean } else { Election::Online },
        min_isr: params.min_isr(image, topic),
        has_elr: image.has_elr(),
        version,
    };
    change.record(topic.id, index)
}
