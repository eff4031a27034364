//! DescribeQuorum (`KafkaRaftClient.handleDescribeQuorumRequest`), and DescribeCluster of
//! controllers (`ControllerApis.handleDescribeCluster`).

use base::{Now, Uuid};
use protocol::describe_cluster_response::DescribeClusterBroker;
use protocol::describe_quorum_response::{Listener, Node, PartitionData, ReplicaState, TopicData};
use protocol::{
    DescribeClusterRequest, DescribeClusterResponse, DescribeQuorumRequest, DescribeQuorumResponse,
    ErrorCode,
};

use metadata::Controller;

use crate::shard::Quorum;

/// `endpoint_type` of brokers and of controllers (KIP-919).
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

impl Quorum {
    /// The controllers, at the listener that they are reached by.
    pub(crate) fn describe_controllers(
        &self,
        request: &DescribeClusterRequest,
    ) -> DescribeClusterResponse {
        if request.endpoint_type != CONTROLLERS {
            let (error_code, sentence) = match request.endpoint_type {
                BROKERS => (
                    ErrorCode::MISMATCHED_ENDPOINT_TYPE,
                    "The request was sent to an endpoint of type CONTROLLER, but we wanted an \
                     endpoint of type BROKER"
                        .to_owned(),
                ),
                other => (
                    ErrorCode::UNSUPPORTED_ENDPOINT_TYPE,
                    format!("Unsupported endpoint type {other}"),
                ),
            };
            let error_message = Some(sentence.into());
            return DescribeClusterResponse { error_code, error_message, ..Default::default() };
        }
        let listener = self.params.config.controller_listener_names.first();
        let listener = listener.map_or("", String::as_str);
        let described = |controller: &Controller| {
            let mut endpoints = controller.endpoints.iter();
            let endpoint = endpoints.find(|endpoint| &*endpoint.name == listener)?;
            Some(DescribeClusterBroker {
                broker_id: controller.id.0,
                host: (&*endpoint.host).into(),
                port: i32::from(endpoint.port),
                ..DescribeClusterBroker::default()
            })
        };
        let controllers = self.timeline.stable().controllers().values();
        DescribeClusterResponse {
            cluster_id: self.controller.cluster_id.as_str().into(),
            endpoint_type: CONTROLLERS,
            controller_id: self.raft.election().leader.0,
            brokers: controllers.filter_map(|controller| described(controller)).collect(),
            ..DescribeClusterResponse::default()
        }
    }

    /// The state of the quorum as its leader sees it.
    pub(crate) fn describe_quorum(
        &self,
        now: Now,
        request: &DescribeQuorumRequest,
    ) -> DescribeQuorumResponse {
        let mut is_ours = false;
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                if &*topic.topic_name == controller::METADATA_TOPIC && asked.partition_index == 0 {
                    is_ours = true;
                    return self.own_partition(now);
                }
                PartitionData {
                    partition_index: asked.partition_index,
                    error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                    error_message: Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.message().into()),
                    ..PartitionData::default()
                }
            });
            TopicData {
                topic_name: topic.topic_name.clone(),
                partitions: partitions.collect(),
                ..TopicData::default()
            }
        });
        let topics = topics.collect();
        let nodes = if is_ours { self.voter_nodes() } else { Vec::new() };
        DescribeQuorumResponse {
            error_message: None,
            topics,
            nodes,
            ..DescribeQuorumResponse::default()
        }
    }

    fn own_partition(&self, now: Now) -> PartitionData {
        let election = self.raft.election();
        let voters = self.raft.voters().iter().map(|voter| {
            let is_self = voter.key.id == self.node();
            ReplicaState {
                replica_id: voter.key.id.0,
                replica_directory_id: if self.raft.kraft_version() > 0 {
                    voter.key.directory
                } else {
                    Uuid::ZERO
                },
                log_end_offset: if is_self { self.raft.end_offset().0 } else { -1 },
                last_fetch_timestamp: if is_self { now.wall_ms } else { -1 },
                last_caught_up_timestamp: if is_self { now.wall_ms } else { -1 },
                ..ReplicaState::default()
            }
        });
        PartitionData {
            partition_index: 0,
            error_message: None,
            leader_id: election.leader.0,
            leader_epoch: election.epoch.0,
            high_watermark: self.raft.high_watermark().map_or(-1, |offset| offset.0),
            current_voters: voters.collect(),
            observers: Vec::new(),
            ..PartitionData::default()
        }
    }

    fn voter_nodes(&self) -> Vec<Node> {
        let voters = self.raft.voters().iter().map(|voter| {
            let listeners = voter.endpoints.iter().map(|endpoint| Listener {
                name: (&*endpoint.listener).into(),
                host: (&*endpoint.host).into(),
                port: endpoint.port,
                ..Listener::default()
            });
            Node { node_id: voter.key.id.0, listeners: listeners.collect(), ..Node::default() }
        });
        voters.collect()
    }
}
