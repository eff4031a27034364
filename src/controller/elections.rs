//! ElectLeaders (`ReplicationControlManager.electLeaders`).

use base::{NodeId, PartitionIndex};
use metadata::{Image, VersionedRecord};
use protocol::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use protocol::{ElectLeadersRequest, ElectLeadersResponse, ErrorCode};

use crate::leaders::can_lead;
use crate::outcome::{code_and_message, versioned};
use crate::params::Params;
use crate::partition_change::{Election, PartitionChange};
use crate::{ApiError, Proposal};

/// The answer to a request for an election of a kind that nobody knows.
fn unknown_election(kind: i8, request: &ElectLeadersRequest) -> ElectLeadersResponse {
    let refused = |partition_id: &i32| PartitionResult {
        partition_id: *partition_id,
        error_code: ErrorCode::INVALID_REQUEST,
        error_message: Some(format!("Unknown election type {kind}").into()),
        ..PartitionResult::default()
    };
    let topics = request.topic_partitions.iter().flatten();
    let results = topics.map(|topic| ReplicaElectionResult {
        topic: topic.topic.clone(),
        partition_result: topic.partitions.iter().map(refused).collect(),
        ..ReplicaElectionResult::default()
    });
    ElectLeadersResponse {
        error_code: ErrorCode::INVALID_REQUEST,
        replica_election_results: results.collect(),
        ..ElectLeadersResponse::default()
    }
}

/// What ElectLeaders leads to.
pub fn elect_leaders(
    params: &Params,
    image: &Image,
    request: &ElectLeadersRequest,
) -> Proposal<ElectLeadersResponse> {
    let election = match request.election_type {
        0 => Election::Preferred,
        1 => Election::Unclean,
        unknown => return Proposal::nothing(unknown_election(unknown, request)),
    };
    let mut records = Vec::new();
    let all = request.topic_partitions.is_none();
    let asked: Vec<(String, Vec<i32>)> = match &request.topic_partitions {
        Some(topics) => {
            let named = topics.iter();
            named.map(|topic| (topic.topic.to_string(), topic.partitions.clone())).collect()
        }
        None => {
            let topics = image.topic_ids().keys().filter_map(|name| image.topic_by_name(name));
            let every = topics.map(|topic| {
                let indexes = topic.partitions.keys().map(|index| index.0).collect();
                (topic.name.to_string(), indexes)
            });
            every.collect()
        }
    };
    let results = asked.into_iter().map(|(topic, partitions)| {
        let mut results = Vec::new();
        for partition_id in partitions {
            let result = elect(params, image, &topic, partition_id, election, &mut records);
            let (error_code, error_message) = code_and_message(result);
            // Asked for all, nobody wants to hear of those that are as they should be.
            if all && error_code == ErrorCode::ELECTION_NOT_NEEDED {
                continue;
            }
            results.push(PartitionResult {
                partition_id,
                error_code,
                error_message,
                ..PartitionResult::default()
            });
        }
        ReplicaElectionResult {
            topic: topic.into(),
            partition_result: results,
            ..ReplicaElectionResult::default()
        }
    });
    let replica_election_results = results.collect();
    let response =
        ElectLeadersResponse { replica_election_results, ..ElectLeadersResponse::default() };
    Proposal::new(records, response)
}

fn elect(
    params: &Params,
    image: &Image,
    name: &str,
    index: i32,
    election: Election,
    records: &mut Vec<VersionedRecord>,
) -> Result<(), ApiError> {
    let unknown = |message: String| ApiError::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, message);
    let topic =
        image.topic_by_name(name).ok_or_else(|| unknown(format!("No such topic as {name}")))?;
    let index = PartitionIndex(index);
    let partition = topic
        .partition(index)
        .ok_or_else(|| unknown(format!("No such partition as {name}-{index}")))?;
    let (is_good, failure) = match election {
        Election::Preferred => (
            partition.replicas.first() == Some(&partition.leader),
            ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE,
        ),
        _ => (partition.leader != NodeId::NONE, ErrorCode::ELIGIBLE_LEADERS_NOT_AVAILABLE),
    };
    if is_good {
        return Err(ApiError::plain(ErrorCode::ELECTION_NOT_NEEDED));
    }
    let version = image.metadata_version();
    let change = PartitionChange {
        partition,
        target_isr: &partition.isr,
        unclean_shutdown: None,
        can_lead: |replica| can_lead(image, partition, replica, false),
        election,
        min_isr: params.min_isr(image, topic),
        has_elr: image.has_elr(),
        version,
    };
    let record = change.record(topic.id, index).ok_or_else(|| ApiError::plain(failure))?;
    records.push(versioned(record, version.partition_change_record()));
    Ok(())
}
