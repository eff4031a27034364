//! What happens to partitions when a broker comes or goes
//! (`ReplicationControlManager.generateLeaderAndIsrUpdates`).

use base::{NodeId, PartitionIndex};
use metadata::{Image, Partition, Topic, VersionedRecord};

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
    };
    for topic in image.topics().values() {
        for (index, partition) in topic.partitions.iter() {
            if concerns(partition) {
                records.extend(change(params, image, broker_move, topic, *index, partition));
            }
        }
    }
}

fn change(
    params: &Params,
    image: &Image,
    broker_move: Move,
    topic: &Topic,
    index: PartitionIndex,
    partition: &Partition,
) -> Option<VersionedRecord> {
    let leaving = match broker_move {
        Move::Leaves(broker) | Move::Died(broker) => Some(broker),
        Move::Returns(_) => None,
    };
    let target_isr: Vec<NodeId> =
        partition.isr.iter().copied().filter(|replica| Some(*replica) != leaving).collect();
    let can_lead = |replica: NodeId| {
        let is_active = image.broker(replica).is_some_and(|broker| broker.is_active());
        Some(replica) != leaving && (is_active || broker_move == Move::Returns(replica))
    };
    let unclean_shutdown = match broker_move {
        Move::Died(broker) => Some(broker),
        Move::Leaves(_) | Move::Returns(_) => None,
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
    let record = change.record(topic.id, index)?;
    Some(versioned(record, version.partition_change_record()))
}
