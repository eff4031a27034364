//! What a data shard asks of the quorum shard.

use base::{ProducerId, Uuid};
use bytes::Bytes;
use metadata::Endpoint;
use protocol::{CreateTopicsRequest, CreateTopicsResponse, ErrorCode, RequestFrame};

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
    /// A client's request to the controller, as it came.
    Api(RequestFrame),
    /// CreateTopics, for topics that are missing and made where they are needed.
    CreateTopics(CreateTopicsRequest),
    /// A block of producer ids for this shard.
    AllocateProducerIds,
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
    /// The response as it goes to the client, its length first; or a sentence on why the request
    /// is none, which ends its connection.
    Api(Result<Bytes, String>),
    /// The response.
    CreateTopics(CreateTopicsResponse),
    /// The block, or the error code.
    AllocateProducerIds(Result<ProducerIdBlock, ErrorCode>),
}
