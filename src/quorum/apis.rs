//! The APIs of the controller: what a client asks of it, through a broker or by itself, each with
//! its rule. The table is also what decides which requests the controller takes.

use base::{Now, Uuid};
use bytes::Bytes;
use controller::Proposal;
use protocol::{
    AlterClientQuotasRequest, AlterConfigsRequest, AlterPartitionReassignmentsRequest,
    AlterUserScramCredentialsRequest, ApiKey, CreatePartitionsRequest, CreateTopicsRequest,
    DeleteTopicsRequest, DescribeClusterRequest, DescribeQuorumRequest, DescribeQuorumResponse,
    ElectLeadersRequest, IncrementalAlterConfigsRequest, ListPartitionReassignmentsRequest,
    Request, RequestFrame, UnregisterBrokerRequest, UpdateFeaturesRequest, encode_response,
};

use crate::reassignments::list_moves;
use crate::shard::Quorum;

/// What a request leads to: records, and the frame of its response. An error is a sentence on why
/// the frame is no such request.
type Decided = Result<Proposal<Bytes>, String>;

/// What is done with the requests of one API.
type Rule = fn(&mut Quorum, Now, &RequestFrame) -> Decided;

/// Every API with its rule, by number.
static APIS: [(ApiKey, Rule); 14] = [
    (ApiKey::CreateTopics, |quorum, _, frame| {
        answer::<CreateTopicsRequest>(frame, |request| {
            let image = quorum.timeline.applied();
            controller::create_topics(&quorum.controller, image, &mut quorum.random, request)
        })
    }),
    (ApiKey::DeleteTopics, |quorum, _, frame| {
        answer::<DeleteTopicsRequest>(frame, |request| {
            let (params, image) = (&quorum.controller, quorum.timeline.applied());
            controller::delete_topics(params, image, request, frame.version)
        })
    }),
    (ApiKey::AlterConfigs, |quorum, _, frame| {
        answer::<AlterConfigsRequest>(frame, |request| {
            controller::alter_configs(&quorum.controller, quorum.timeline.applied(), request)
        })
    }),
    (ApiKey::CreatePartitions, |quorum, _, frame| {
        answer::<CreatePartitionsRequest>(frame, |request| {
            let image = quorum.timeline.applied();
            controller::create_partitions(image, &mut quorum.random, request)
        })
    }),
    (ApiKey::ElectLeaders, |quorum, _, frame| {
        answer::<ElectLeadersRequest>(frame, |request| {
            controller::elect_leaders(&quorum.controller, quorum.timeline.applied(), request)
        })
    }),
    (ApiKey::IncrementalAlterConfigs, |quorum, _, frame| {
        answer::<IncrementalAlterConfigsRequest>(frame, |request| {
            let (params, image) = (&quorum.controller, quorum.timeline.applied());
            controller::incremental_alter_configs(params, image, request)
        })
    }),
    (ApiKey::AlterPartitionReassignments, |quorum, _, frame| {
        answer::<AlterPartitionReassignmentsRequest>(frame, |request| {
            controller::alter_partition_reassignments(quorum.timeline.applied(), request)
        })
    }),
    (ApiKey::ListPartitionReassignments, |quorum, _, frame| {
        answer::<ListPartitionReassignmentsRequest>(frame, |request| {
            Proposal::nothing(list_moves(quorum.timeline.stable(), request))
        })
    }),
    (ApiKey::AlterClientQuotas, |quorum, _, frame| {
        answer::<AlterClientQuotasRequest>(frame, |request| {
            controller::alter_client_quotas(quorum.timeline.applied(), request)
        })
    }),
    (ApiKey::AlterUserScramCredentials, |quorum, _, frame| {
        answer::<AlterUserScramCredentialsRequest>(frame, |request| {
            controller::alter_scram_credentials(quorum.timeline.applied(), request)
        })
    }),
    (ApiKey::DescribeQuorum, |quorum, now, frame| {
        answer::<DescribeQuorumRequest>(frame, |request| {
            let mut response = quorum.describe_quorum(now, request);
            if frame.version < DIRECTORIES_FIRST_VERSION {
                leave_out_directories(&mut response);
            }
            Proposal::nothing(response)
        })
    }),
    (ApiKey::UpdateFeatures, |quorum, _, frame| {
        answer::<UpdateFeaturesRequest>(frame, |request| {
            let (params, image) = (&quorum.controller, quorum.timeline.applied());
            controller::update_features(params, image, quorum.raft.kraft_version(), request)
        })
    }),
    (ApiKey::DescribeCluster, |quorum, _, frame| {
        answer::<DescribeClusterRequest>(frame, |request| {
            Proposal::nothing(quorum.describe_controllers(request))
        })
    }),
    (ApiKey::UnregisterBroker, |quorum, _, frame| {
        answer::<UnregisterBrokerRequest>(frame, |request| {
            controller::unregister_broker(&quorum.controller, quorum.timeline.applied(), request)
        })
    }),
];

/// The APIs that the controller's listeners take, by number.
pub(crate) fn taken() -> impl Iterator<Item = ApiKey> {
    let is_before = |key: &ApiKey| key.code() < ApiKey::ApiVersions.code();
    let keys = || APIS.iter().map(|(key, _)| *key);
    let before = keys().take_while(is_before);
    before.chain([ApiKey::ApiVersions]).chain(keys().skip_while(is_before))
}

/// Decides about a request.
pub(crate) fn decide(quorum: &mut Quorum, now: Now, frame: &RequestFrame) -> Decided {
    let api = APIS.iter().find(|(key, _)| Some(*key) == frame.api_key);
    let (_, rule) = api.ok_or_else(|| format!("the controller has no API {}", frame.api_code))?;
    rule(quorum, now, frame)
}

fn answer<R: Request>(
    frame: &RequestFrame,
    rule: impl FnOnce(&R) -> Proposal<R::Response>,
) -> Decided {
    let (key, version) = (R::API_KEY, frame.version);
    let request = frame.body().map_err(|error| format!("{key} version {version}: {error}"))?;
    let Proposal { records, response } = rule(&request);
    let response = encode_response::<R>(frame.correlation_id, version, &response);
    // A response that its version cannot carry is a fault of this node; nothing was decided.
    let response = response.map_err(|error| format!("{key} version {version}: {error}"))?;
    Ok(Proposal::new(records, response.into_bytes()))
}

/// The first version of DescribeQuorum that names directories and nodes (KIP-853).
const DIRECTORIES_FIRST_VERSION: i16 = 2;

/// Older versions cannot carry what newer ones tell.
fn leave_out_directories(response: &mut DescribeQuorumResponse) {
    response.nodes.clear();
    for partition in response.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        let replicas = partition.current_voters.iter_mut().chain(&mut partition.observers);
        replicas.for_each(|replica| replica.replica_directory_id = Uuid::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apis_are_in_order() {
        assert!(taken().is_sorted_by_key(ApiKey::code));
        assert_eq!(taken().count(), APIS.len() + 1);
    }
}
