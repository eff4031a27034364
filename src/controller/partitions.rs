//! CreatePartitions (`ReplicationControlManager.createPartitions`).

use base::{PartitionIndex, Random};
use metadata::{Image, Partition, VersionedRecord, nodes_of};
use protocol::create_partitions_request::CreatePartitionsTopic;
use protocol::create_partitions_response::CreatePartitionsTopicResult;
use protocol::{CreatePartitionsRequest, CreatePartitionsResponse, ErrorCode};

use crate::assignment::{PlacementError, check_manual, new_partition, place_partitions};
use crate::outcome::{code_and_message, too_many_records, versioned};
use crate::params::{PARTITIONS_PER_REQUEST_MAX, RECORDS_PER_REQUEST_MAX};
use crate::topics::nobody_active;
use crate::topics::repeated;
use crate::{ApiError, Proposal};

/// What CreatePartitions leads to.
pub fn create_partitions(
    image: &Image,
    random: &mut Random,
    request: &CreatePartitionsRequest,
) -> Proposal<CreatePartitionsResponse> {
    let duplicates = repeated(request.topics.iter().map(|topic| &topic.name));
    let duplicate_error = || ApiError::new(ErrorCode::INVALID_REQUEST, "Duplicate topic name.");
    let mut results: Vec<_> =
        duplicates.iter().map(|name| ((*name).clone(), Err(duplicate_error()))).collect();
    let wanted = request.topics.iter().filter(|topic| !duplicates.contains(&&topic.name));
    let mut records = Vec::new();
    let limit = check_partition_count(image, wanted.clone());
    for topic in wanted.clone() {
        let created = limit.clone().and_then(|()| create(image, random, topic, &mut records));
        results.push((topic.name.clone(), created));
    }
    if records.len() > RECORDS_PER_REQUEST_MAX {
        records.clear();
        results = wanted.map(|topic| (topic.name.clone(), Err(too_many_records()))).collect();
    }
    let results = results.into_iter().map(|(name, result)| {
        let (error_code, error_message) = code_and_message(result);
        CreatePartitionsTopicResult {
            name,
            error_code,
            error_message,
            ..CreatePartitionsTopicResult::default()
        }
    });
    let results = results.collect();
    let response = CreatePartitionsResponse { results, ..CreatePartitionsResponse::default() };
    if request.validate_only {
        Proposal::nothing(response)
    } else {
        Proposal::new(records, response)
    }
}

fn check_partition_count<'a>(
    image: &Image,
    topics: impl Iterator<Item = &'a CreatePartitionsTopic>,
) -> Result<(), ApiError> {
    let additional = |topic: &CreatePartitionsTopic| {
        let existing = image.topic_by_name(&topic.name)?.partitions.len();
        usize::try_from(topic.count).ok()?.checked_sub(existing)
    };
    let total = topics.filter_map(additional).fold(0_usize, usize::saturating_add);
    if total > PARTITIONS_PER_REQUEST_MAX {
        let message = "Excessively large number of additional partitions per request.";
        return Err(ApiError::new(ErrorCode::POLICY_VIOLATION, message));
    }
    Ok(())
}

fn create(
    image: &Image,
    random: &mut Random,
    request: &CreatePartitionsTopic,
    records: &mut Vec<VersionedRecord>,
) -> Result<(), ApiError> {
    let refuse = |message: String| Err(ApiError::new(ErrorCode::INVALID_PARTITIONS, message));
    let Some(topic) = image.topic_by_name(&request.name) else {
        return Err(ApiError::silent(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
    };
    let existing = i32::try_from(topic.partitions.len()).expect("a partition's index is an i32");
    if request.count == existing {
        return refuse(format!("Topic already has {existing} partition(s)."));
    }
    if request.count < existing {
        return refuse(format!(
            "The topic {} currently has {existing} partition(s); {} would not be an increase.",
            request.name, request.count
        ));
    }
    let additional = usize::try_from(request.count - existing).expect("it is positive");
    let replication_factor = topic.replication_factor();
    let partitions = match &request.assignments {
        Some(assignments) if assignments.len() != additional => {
            let message = format!(
                "Attempted to add {additional} additional partition(s), but only {} assignment(s) \
                 were specified.",
                assignments.len()
            );
            return Err(ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message));
        }
        Some(assignments) => {
            let assign = |(assignment, index): (&Vec<i32>, i32)| -> Result<Partition, ApiError> {
                let replicas = nodes_of(assignment);
                check_manual(image, &replicas, Some(replication_factor))?;
                new_partition(image, replicas).ok_or_else(|| {
                    let message = nobody_active(index);
                    ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message)
                })
            };
            let lists = assignments.iter().map(|assignment| &assignment.broker_ids);
            lists.zip(existing..).map(assign).collect::<Result<Vec<_>, _>>()?
        }
        None => {
            let factor = i16::try_from(replication_factor).unwrap_or(i16::MAX);
            let placed = place_partitions(image, random, additional, factor);
            placed.map_err(|error| match error {
                PlacementError::Impossible(message) => {
                    ApiError::new(ErrorCode::INVALID_REPLICATION_FACTOR, message)
                }
                PlacementError::NobodyActive => error.of_replication(factor),
            })?
        }
    };
    let version = image.metadata_version();
    for (partition, index) in partitions.iter().zip(existing..) {
        let record =
            partition.to_record(topic.id, PartitionIndex(index), version.has_directories());
        records.push(versioned(record, version.partition_record()));
    }
    Ok(())
}
