//! What a data shard asks of the quorum shard.

use base::{ProducerId, Uuid};
use metadata::Endpoint;
use protocol::{
    AlterConfigsRequest, AlterConfigsResponse, AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse, CreatePartitionsRequest, CreatePartitionsResponse,
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
    DescribeQuorumRequest, DescribeQuorumResponse, ElectLeadersRequest, ElectLeadersResponse,
    ErrorCode, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, UnregisterBrokerRequest,
    UnregisterBrokerResponse, UpdateFeaturesRequest, UpdateFeaturesResponse,
};

use crate::PartitionKey;

/// What can be asked of the quorum shard. Requests of clients are passed on whole; their answers
/// come after the commit, and after the image that shows their effect was posted.
#[derive(Debug)]
pub enum QuorumRequest {
    /// The broker of this node is ready to be registered and unfenced.
    BrokerReady {
        /// Its listeners, with the ports that were really taken.
        endpoints: Vec<Endpoint>,
        /// The broker epoch of the last clean shutdown, or −1.
        previous_epoch: i64,
        /// The ids of its log directories that are online.
        directories: Vec<Uuid>,
    },
    /// These log directories of this node have failed (a field of Kafka's BrokerHeartbeat).
    DirectoriesFailed(Vec<Uuid>),
    /// These partitions of this node have their logs in these directories, which the metadata do
    /// not say yet (AssignReplicasToDirs, KIP-858).
    AssignDirectories(Vec<(PartitionKey, Uuid)>),
    /// The broker of this node stops: it is fenced before it is answered.
    BrokerStopping,
    /// CreateTopics, of a client or for a topic that is missing.
    CreateTopics {
        /// The request.
        request: CreateTopicsRequest,
    },
    /// DeleteTopics.
    DeleteTopics {
        /// The request.
        request: DeleteTopicsRequest,
        /// Its version: from 6 on topics can be named by id.
        version: i16,
    },
    /// CreatePartitions.
    CreatePartitions(CreatePartitionsRequest),
    /// IncrementalAlterConfigs.
    IncrementalAlterConfigs(IncrementalAlterConfigsRequest),
    /// AlterConfigs.
    AlterConfigs(AlterConfigsRequest),
    /// UpdateFeatures.
    UpdateFeatures(UpdateFeaturesRequest),
    /// ElectLeaders.
    ElectLeaders {
        /// The request.
        request: ElectLeadersRequest,
        /// Its version: from 1 on it says which kind of election.
        version: i16,
    },
    /// AlterPartitionReassignments.
    AlterPartitionReassignments(AlterPartitionReassignmentsRequest),
    /// ListPartitionReassignments.
    ListPartitionReassignments(ListPartitionReassignmentsRequest),
    /// UnregisterBroker.
    UnregisterBroker(UnregisterBrokerRequest),
    /// A block of producer ids for this shard.
    AllocateProducerIds,
    /// DescribeQuorum.
    DescribeQuorum(DescribeQuorumRequest),
}

/// Producer ids that nobody else gives out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIdBlock {
    /// The first of them.
    pub first: ProducerId,
    /// How many.
    pub length: i32,
}

/// The answers to [`QuorumRequest`], under the same names.
#[derive(Debug)]
pub enum QuorumReply {
    /// The epoch of the registered broker, or why it cannot be registered.
    BrokerReady(Result<i64, String>),
    /// The broker is fenced.
    BrokerStopping,
    /// It is known.
    DirectoriesFailed,
    /// Whether it is known; else the broker is not registered, and asks again when it is.
    AssignDirectories(bool),
    /// The response.
    CreateTopics(CreateTopicsResponse),
    /// The response.
    DeleteTopics(DeleteTopicsResponse),
    /// The response.
    CreatePartitions(CreatePartitionsResponse),
    /// The response.
    IncrementalAlterConfigs(IncrementalAlterConfigsResponse),
    /// The response.
    AlterConfigs(AlterConfigsResponse),
    /// The response.
    UpdateFeatures(UpdateFeaturesResponse),
    /// The response.
    ElectLeaders(ElectLeadersResponse),
    /// The response.
    AlterPartitionReassignments(AlterPartitionReassignmentsResponse),
    /// The response.
    ListPartitionReassignments(ListPartitionReassignmentsResponse),
    /// The response.
    UnregisterBroker(UnregisterBrokerResponse),
    /// The block, or the error code.
    AllocateProducerIds(Result<ProducerIdBlock, ErrorCode>),
    /// The response.
    DescribeQuorum(DescribeQuorumResponse),
}
