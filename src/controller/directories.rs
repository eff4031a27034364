//! Which log directory a replica is in, as its broker says (AssignReplicasToDirs, KIP-858).

use base::{NodeId, PartitionIndex, TopicId, Uuid};
use metadata::{Image, LEADER_UNCHANGED, Partition};
use protocol::PartitionChangeRecord;

use crate::brokers::check_epoch;
use crate::leaders::{Move, change};
use crate::outcome::versioned;
use crate::{ApiError, Params, Proposal};

/// What it leads to that a broker has put replicas into its directories
/// (`ReplicationControlManager.handleAssignReplicasToDirs`). Partitions that are gone meanwhile,
/// or are not the broker's, are passed over: there is nothing that the broker could do about it.
///
/// # Errors
/// If the broker is not registered with the epoch that it names.
pub fn assign_replicas(
    params: &Params,
    image: &Image,
    node: NodeId,
    epoch: i64,
    assigned: &[(TopicId, PartitionIndex, Uuid)],
) -> Result<Proposal<()>, ApiError> {
    let broker = check_epoch(image, node, epoch)?;
    let version = image.metadata_version();
    let mut records = Vec::new();
    if !version.has_directories() {
        return Ok(Proposal::nothing(()));
    }
    for (topic, index, directory) in assigned {
        let Some(topic) = image.topic(*topic) else { continue };
        let Some(partition) = topic.partition(*index) else { continue };
        let Some(place) = partition.replicas.iter().position(|replica| *replica == node) else {
            continue;
        };
        if partition.directories.get(place) == Some(directory) {
            continue;
        }
        let mut moved = Partition::clone(partition);
        if let Some(known) = moved.directories.get_mut(place) {
            *known = *directory;
        }
        // A broker can have lost the directory before it could say what is in it; and a replica
        // that was moved out of a directory that is gone can lead again.
        let is_online = broker.has_online_directory(*directory);
        let follows = match is_online {
            false if partition.isr.contains(&node) => Some(Move::LosesDirectory(node, *directory)),
            true if partition.leader == NodeId::NONE && broker.is_active() => {
                Some(Move::Returns(node))
            }
            _ => None,
        };
        let record = follows.and_then(|it| change(params, image, it, topic, *index, &moved));
        let mut record = record.unwrap_or_else(|| PartitionChangeRecord {
            partition_id: index.0,
            topic_id: topic.id,
            leader: LEADER_UNCHANGED,
            ..PartitionChangeRecord::default()
        });
        record.directories = Some(moved.directories);
        records.push(versioned(record, version.partition_change_record()));
    }
    Ok(Proposal::new(records, ()))
}

#[cfg(test)]
mod tests {
    use protocol::create_topics_request::CreatableTopic;
    use protocol::{
        BrokerHeartbeatRequest, BrokerRegistrationChangeRecord, CreateTopicsRequest, ErrorCode,
    };

    use super::*;
    use crate::testing::{after, directory, image_with_brokers, params};

    const NODE: NodeId = NodeId(1);
    const EPOCH: i64 = 101;
    const SECOND: Uuid = Uuid([7; 16]);

    /// A broker with two directories that has one topic of two partitions.
    fn two_directories() -> Image {
        let change = BrokerRegistrationChangeRecord {
            broker_id: NODE.0,
            broker_epoch: EPOCH,
            log_dirs: vec![directory(1), SECOND],
            ..BrokerRegistrationChangeRecord::default()
        };
        let image = image_with_brokers(&[(NODE.0, None, false)]);
        let image = after(&image, &[versioned(change, 2)]);
        let topic = CreatableTopic {
            name: "orders".into(),
            num_partitions: 2,
            replication_factor: 1,
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
        let mut random = base::Random::new(1);
        let proposal = crate::create_topics(&params(), &image, &mut random, &request);
        after(&image, &proposal.records)
    }

    fn topic_of(image: &Image) -> TopicId {
        image.topic_id("orders").expect("it was made")
    }

    fn partition(image: &Image, index: i32) -> Partition {
        let topic = image.topic_by_name("orders").expect("it was made");
        Partition::clone(topic.partition(PartitionIndex(index)).expect("it has two"))
    }

    fn assign(image: &Image, index: i32, directory: Uuid) -> Image {
        let assigned = [(topic_of(image), PartitionIndex(index), directory)];
        let proposal = assign_replicas(&params(), image, NODE, EPOCH, &assigned);
        after(image, &proposal.expect("the broker is registered").records)
    }

    fn lose(image: &Image, directory: Uuid) -> Image {
        let beat = BrokerHeartbeatRequest {
            broker_id: NODE.0,
            broker_epoch: EPOCH,
            current_metadata_offset: EPOCH,
            offline_log_dirs: vec![directory],
            ..BrokerHeartbeatRequest::default()
        };
        let proposal = crate::heartbeat(&params(), image, &beat).expect("it is registered");
        after(image, &proposal.records)
    }

    #[test]
    fn a_lost_directory_takes_the_leaders_that_are_in_it() {
        let image = two_directories();
        assert_eq!(partition(&image, 0).directories, [metadata::DIRECTORY_UNASSIGNED]);
        let image = assign(&assign(&image, 0, directory(1)), 1, SECOND);
        assert_eq!(partition(&image, 0).directories, [directory(1)]);
        assert_eq!(partition(&image, 1).directories, [SECOND]);
        let image = lose(&image, SECOND);
        assert_eq!(
            (partition(&image, 0).leader, partition(&image, 1).leader),
            (NODE, NodeId::NONE)
        );
        assert_eq!(image.broker(NODE).expect("registered").directories, [directory(1)]);
        // Once is enough.
        assert_eq!(lose(&image, SECOND), image);
    }

    #[test]
    fn a_directory_can_be_lost_before_it_is_known_what_is_in_it() {
        let image = lose(&two_directories(), SECOND);
        assert_eq!(partition(&image, 1).leader, NODE);
        let image = assign(&image, 1, SECOND);
        assert_eq!(partition(&image, 1).directories, [SECOND]);
        assert_eq!(partition(&image, 1).leader, NodeId::NONE);
        // Its log was put into the other directory by hand.
        let image = assign(&image, 1, directory(1));
        assert_eq!(partition(&image, 1).leader, NODE);
    }

    #[test]
    fn what_is_gone_or_known_changes_nothing_and_an_old_epoch_is_refused() {
        let image = assign(&two_directories(), 0, SECOND);
        assert_eq!(assign(&image, 0, SECOND), image);
        assert_eq!(assign(&image, 9, SECOND), image);
        let gone = [(Uuid([1; 16]), PartitionIndex(0), SECOND)];
        let proposal = assign_replicas(&params(), &image, NODE, EPOCH, &gone);
        assert_eq!(proposal.expect("it is registered").records, []);
        let stale = assign_replicas(&params(), &image, NODE, EPOCH - 1, &gone);
        assert_eq!(stale.expect_err("the epoch is old").code, ErrorCode::STALE_BROKER_EPOCH);
    }
}
