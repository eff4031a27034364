//! ListPartitionReassignments (`ReplicationControlManager.listPartitionReassignments`).

use metadata::{Image, Topic, ids_of};
use protocol::list_partition_reassignments_response::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use protocol::{ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse};

/// The partitions that are being moved, of some topics or of all.
pub(crate) fn list_moves(
    image: &Image,
    request: &ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let of_topic = |topic: &Topic, wanted: Option<&[i32]>| {
        let moving = topic.partitions.iter().filter(|(index, partition)| {
            partition.is_reassigning() && wanted.is_none_or(|wanted| wanted.contains(&index.0))
        });
        let partitions: Vec<_> = moving
            .map(|(index, partition)| OngoingPartitionReassignment {
                partition_index: index.0,
                replicas: ids_of(&partition.replicas),
                adding_replicas: ids_of(&partition.adding_replicas),
                removing_replicas: ids_of(&partition.removing_replicas),
                ..OngoingPartitionReassignment::default()
            })
            .collect();
        (!partitions.is_empty()).then(|| OngoingTopicReassignment {
            name: (&*topic.name).into(),
            partitions,
            ..OngoingTopicReassignment::default()
        })
    };
    let topics = match &request.topics {
        None => image.topics().values().filter_map(|topic| of_topic(topic, None)).collect(),
        Some(asked) => asked
            .iter()
            .filter_map(|asked| {
                let topic = image.topic_by_name(&asked.name)?;
                of_topic(topic, Some(&asked.partition_indexes))
            })
            .collect(),
    };
    // The sentence is none where there is no error, as in Kafka.
    ListPartitionReassignmentsResponse {
        error_message: None,
        topics,
        ..ListPartitionReassignmentsResponse::default()
    }
}
