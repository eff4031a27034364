//! One file per API: how a request is taken apart, whom it is asked of, and how the answers become
//! a response. The table of handlers is also what ApiVersions advertises.

pub(crate) mod alter_replica_log_dirs;
pub(crate) mod api_versions;
pub(crate) mod creation;
pub(crate) mod delete_records;
pub(crate) mod describe_cluster;
pub(crate) mod describe_configs;
pub(crate) mod describe_log_dirs;
pub(crate) mod describe_producers;
pub(crate) mod describe_topic_partitions;
pub(crate) mod fetch;
pub(crate) mod find_coordinator;
pub(crate) mod forwarded;
pub(crate) mod groups;
pub(crate) mod init_producer_id;
pub(crate) mod list_offsets;
pub(crate) mod listed;
pub(crate) mod metadata;
pub(crate) mod offset_for_leader_epoch;
pub(crate) mod produce;
pub(crate) mod unsecured;

use base::Token;
use protocol::{ApiKey, DecodeError, RequestFrame};

use crate::shard::{Io, Shard};

/// Begins a call. An error closes the connection: the frame is no such request.
type Start = fn(&mut Shard, &mut Io<'_>, Token, &RequestFrame) -> Result<(), DecodeError>;

/// What handles an API.
#[derive(Clone, Copy)]
pub(crate) struct Handler {
    pub(crate) api_key: ApiKey,
    /// Whether the next request of the connection may start before this one is answered. Kafka
    /// handles one request of a connection at a time; what may overlap is what keeps its order
    /// all the same: appends, since the lanes to a partition's owner do.
    pub(crate) pipelined: bool,
    pub(crate) start: Start,
}

const fn one_by_one(api_key: ApiKey, start: Start) -> Handler {
    Handler { api_key, pipelined: false, start }
}

/// The APIs that are whole, by number.
static HANDLERS: [Handler; 48] = [
    Handler { api_key: ApiKey::Produce, pipelined: true, start: produce::start },
    one_by_one(ApiKey::Fetch, fetch::start),
    one_by_one(ApiKey::ListOffsets, list_offsets::start),
    one_by_one(ApiKey::Metadata, metadata::start),
    one_by_one(ApiKey::OffsetCommit, groups::commit),
    one_by_one(ApiKey::OffsetFetch, groups::fetch_offsets),
    one_by_one(ApiKey::FindCoordinator, find_coordinator::start),
    one_by_one(ApiKey::JoinGroup, groups::join),
    one_by_one(ApiKey::Heartbeat, groups::heartbeat),
    one_by_one(ApiKey::LeaveGroup, groups::leave),
    one_by_one(ApiKey::SyncGroup, groups::sync),
    one_by_one(ApiKey::DescribeGroups, groups::describe),
    one_by_one(ApiKey::ListGroups, groups::list),
    one_by_one(ApiKey::ApiVersions, api_versions::start),
    one_by_one(ApiKey::CreateTopics, forwarded::start),
    one_by_one(ApiKey::DeleteTopics, forwarded::start),
    one_by_one(ApiKey::DeleteRecords, delete_records::start),
    one_by_one(ApiKey::InitProducerId, init_producer_id::start),
    one_by_one(ApiKey::OffsetForLeaderEpoch, offset_for_leader_epoch::start),
    one_by_one(ApiKey::DescribeAcls, unsecured::describe_acls),
    one_by_one(ApiKey::CreateAcls, unsecured::create_acls),
    one_by_one(ApiKey::DeleteAcls, unsecured::delete_acls),
    one_by_one(ApiKey::DescribeConfigs, describe_configs::start),
    one_by_one(ApiKey::AlterConfigs, forwarded::start),
    one_by_one(ApiKey::AlterReplicaLogDirs, alter_replica_log_dirs::start),
    one_by_one(ApiKey::DescribeLogDirs, describe_log_dirs::start),
    one_by_one(ApiKey::CreatePartitions, forwarded::start),
    one_by_one(ApiKey::CreateDelegationToken, unsecured::create_token),
    one_by_one(ApiKey::RenewDelegationToken, unsecured::renew_token),
    one_by_one(ApiKey::ExpireDelegationToken, unsecured::expire_token),
    one_by_one(ApiKey::DescribeDelegationToken, unsecured::describe_tokens),
    one_by_one(ApiKey::DeleteGroups, groups::delete),
    one_by_one(ApiKey::ElectLeaders, forwarded::start),
    one_by_one(ApiKey::IncrementalAlterConfigs, forwarded::start),
    one_by_one(ApiKey::AlterPartitionReassignments, forwarded::start),
    one_by_one(ApiKey::ListPartitionReassignments, forwarded::start),
    one_by_one(ApiKey::OffsetDelete, groups::delete_offsets),
    one_by_one(ApiKey::DescribeClientQuotas, listed::client_quotas),
    one_by_one(ApiKey::AlterClientQuotas, forwarded::start),
    one_by_one(ApiKey::DescribeUserScramCredentials, listed::scram_credentials),
    one_by_one(ApiKey::AlterUserScramCredentials, forwarded::start),
    one_by_one(ApiKey::DescribeQuorum, forwarded::start),
    one_by_one(ApiKey::UpdateFeatures, forwarded::start),
    one_by_one(ApiKey::DescribeCluster, describe_cluster::start),
    one_by_one(ApiKey::DescribeProducers, describe_producers::start),
    one_by_one(ApiKey::UnregisterBroker, forwarded::start),
    one_by_one(ApiKey::ListConfigResources, listed::config_resources),
    one_by_one(ApiKey::DescribeTopicPartitions, describe_topic_partitions::start),
];

/// The handler of a request, or why there is none: then the connection is closed.
pub(crate) fn handler_of(frame: &RequestFrame) -> Result<&'static Handler, String> {
    let key = network::taken_api(frame, handled())?;
    let handler = HANDLERS.iter().find(|handler| handler.api_key == key);
    Ok(handler.expect("an API that is taken has a handler"))
}

/// The APIs that are whole.
pub(crate) fn handled() -> impl Iterator<Item = ApiKey> {
    HANDLERS.iter().map(|handler| handler.api_key)
}
