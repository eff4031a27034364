//! AlterPartitionReassignments (`ReplicationControlManager.alterPartitionReassignments`), as far as
//! no replica moves: another order of the replicas, or what is as it should be already.

use base::{PartitionIndex, Uuid};
use metadata::{Image, VersionedRecord, ids_of, nodes_of};
use protocol::alter_partition_reassignments_request::ReassignablePartition;
use protocol::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use protocol::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ErrorCode,
    PartitionChangeRecord,
};

use crate::assignment::check_manual;
use crate::outcome::{code_and_message, versioned};
use crate::{ApiError, Proposal};

/// What AlterPartitionReassignments leads to.
pub fn alter_partition_reassignments(
    image: &Image,
    request: &AlterPartitionReassignmentsRequest,
) -> Proposal<AlterPartitionReassignmentsResponse> {
    let may_resize = request.allow_replication_factor_change;
    let mut records = Vec::new();
    let responses = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let result = alter(image, &topic.name, asked, may_resize, &mut records);
            let (error_code, error_message) = code_and_message(result);
            ReassignablePartitionResponse {
                partition_index: asked.partition_index,
                error_code,
                error_message,
                ..ReassignablePartitionResponse::default()
            }
        });
        ReassignableTopicResponse {
            name: topic.name.clone(),
            partitions: partitions.collect(),
            ..ReassignableTopicResponse::default()
        }
    });
    let response = AlterPartitionReassignmentsResponse {
        allow_replication_factor_change: may_resize,
        error_message: None,
        responses: responses.collect(),
        ..AlterPartitionReassignmentsResponse::default()
    };
    Proposal::new(records, response)
}

fn alter(
    image: &Image,
    name: &str,
    asked: &ReassignablePartition,
    may_resize: bool,
    records: &mut Vec<VersionedRecord>,
) -> Result<(), ApiError> {
    let unknown = |what: String| ApiError::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, what);
    let index = PartitionIndex(asked.partition_index);
    let topic = image
        .topic_by_name(name)
        .ok_or_else(|| unknown(format!("Unable to find a topic named {name}.")))?;
    let partition = topic
        .partition(index)
        .ok_or_else(|| unknown(format!("Unable to find partition {name}:{index}.")))?;
    if partition.is_reassigning() {
        // Only a controller of another kind can have begun it.
        let message = "A reassignment that is under way cannot be changed by this controller yet.";
        return Err(ApiError::new(ErrorCode::INVALID_REQUEST, message));
    }
    let Some(replicas) = &asked.replicas else {
        return Err(ApiError::silent(ErrorCode::NO_REASSIGNMENT_IN_PROGRESS));
    };
    let replicas = nodes_of(replicas);
    check_manual(image, &replicas, None)?;
    if !may_resize && replicas.len() != partition.replicas.len() {
        let message = format!(
            "The replication factor is changed from {} to {}",
            partition.replicas.len(),
            replicas.len()
        );
        return Err(ApiError::new(ErrorCode::INVALID_REPLICATION_FACTOR, message));
    }
    if replicas == partition.replicas {
        return Ok(());
    }
    let moves = replicas.len() != partition.replicas.len()
        || replicas.iter().any(|replica| !partition.has_replica(*replica));
    if moves {
        let message = "Partitions cannot be moved to other brokers by this controller yet.";
        return Err(ApiError::new(ErrorCode::INVALID_REQUEST, message));
    }
    let directories: Vec<Uuid> =
        replicas.iter().filter_map(|replica| partition.directory_of(*replica)).collect();
    let record = PartitionChangeRecord {
        partition_id: index.0,
        topic_id: topic.id,
        leader: metadata::LEADER_UNCHANGED,
        replicas: Some(ids_of(&replicas)),
        directories: (directories != partition.directories).then_some(directories),
        ..PartitionChangeRecord::default()
    };
    records.push(versioned(record, image.metadata_version().partition_change_record()));
    Ok(())
}
