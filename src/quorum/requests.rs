//! What the data shards ask, each to its rule of the controller.

use base::{Now, ShardId, Token, Uuid};
use intercom::{PartitionKey, ProducerIdBlock, QuorumReply, QuorumRequest};
use protocol::list_partition_reassignments_response::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use protocol::{ErrorCode, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse};

use controller::{PRODUCER_IDS_PER_BLOCK, Proposal};
use metadata::{Image, Topic, ids_of};

use crate::shard::{Quorum, Waiting};

impl Quorum {
    /// Decides about one request. Its answer waits for the commit.
    pub(crate) fn handle(&mut self, now: Now, waiting: Waiting) {
        let Waiting { from, id, request } = waiting;
        let (params, image) = (&self.controller, self.timeline.applied());
        match *request {
            QuorumRequest::BrokerReady { endpoints, previous_epoch, directories } => {
                let request = self.registration(&endpoints, previous_epoch, directories);
                self.broker_ready(now, from, id, &request);
            }
            QuorumRequest::DirectoriesFailed(directories) => {
                self.directories_failed(now, from, id, directories);
            }
            QuorumRequest::AssignDirectories(assigned) => {
                let proposal = self.assign_directories(&assigned);
                self.accept(now, from, id, proposal.map(QuorumReply::AssignDirectories));
            }
            QuorumRequest::BrokerStopping => self.broker_stopping(now, from, id),
            QuorumRequest::CreateTopics { request } => {
                let proposal = controller::create_topics(params, image, &mut self.random, &request);
                self.accept(now, from, id, proposal.map(QuorumReply::CreateTopics));
            }
            QuorumRequest::DeleteTopics { request, version } => {
                let proposal = controller::delete_topics(params, image, &request, version);
                self.accept(now, from, id, proposal.map(QuorumReply::DeleteTopics));
            }
            QuorumRequest::CreatePartitions(request) => {
                let proposal = controller::create_partitions(image, &mut self.random, &request);
                self.accept(now, from, id, proposal.map(QuorumReply::CreatePartitions));
            }
            QuorumRequest::IncrementalAlterConfigs(request) => {
                let proposal = controller::incremental_alter_configs(params, image, &request);
                self.accept(now, from, id, proposal.map(QuorumReply::IncrementalAlterConfigs));
            }
            QuorumRequest::AlterConfigs(request) => {
                let proposal = controller::alter_configs(params, image, &request);
                self.accept(now, from, id, proposal.map(QuorumReply::AlterConfigs));
            }
            QuorumRequest::UpdateFeatures(request) => {
                let kraft_version = self.raft.kraft_version();
                let proposal = controller::update_features(params, image, kraft_version, &request);
                self.accept(now, from, id, proposal.map(QuorumReply::UpdateFeatures));
            }
            QuorumRequest::ElectLeaders { request, .. } => {
                let proposal = controller::elect_leaders(params, image, &request);
                self.accept(now, from, id, proposal.map(QuorumReply::ElectLeaders));
            }
            QuorumRequest::UnregisterBroker(request) => {
                let proposal = controller::unregister_broker(params, image, &request);
                self.accept(now, from, id, proposal.map(QuorumReply::UnregisterBroker));
            }
            QuorumRequest::AllocateProducerIds => {
                let proposal = self.allocate_producer_ids();
                self.accept(now, from, id, proposal.map(QuorumReply::AllocateProducerIds));
            }
            QuorumRequest::AlterPartitionReassignments(request) => {
                let proposal = controller::alter_partition_reassignments(image, &request);
                let proposal = proposal.map(QuorumReply::AlterPartitionReassignments);
                self.accept(now, from, id, proposal);
            }
            QuorumRequest::ListPartitionReassignments(request) => {
                let response = list_moves(self.timeline.stable(), &request);
                let reply = QuorumReply::ListPartitionReassignments(response);
                self.accept(now, from, id, Proposal::nothing(reply));
            }
            QuorumRequest::DescribeQuorum(request) => {
                let response = self.describe_quorum(now, &request);
                let reply = QuorumReply::DescribeQuorum(response);
                self.accept(now, from, id, Proposal::nothing(reply));
            }
        }
    }

    fn accept(&mut self, now: Now, from: ShardId, id: Token, proposal: Proposal<QuorumReply>) {
        let offset = self.propose(now, &proposal.records);
        self.answer_at(offset, from, id, proposal.response);
    }

    fn assign_directories(&self, assigned: &[(PartitionKey, Uuid)]) -> Proposal<bool> {
        let assigned = assigned.iter().map(|(key, directory)| {
            let PartitionKey { topic, partition } = *key;
            (topic, partition, *directory)
        });
        let assigned: Vec<_> = assigned.collect();
        let (params, image) = (&self.controller, self.timeline.applied());
        let epoch = self.life.broker_epoch();
        match controller::assign_replicas(params, image, self.node(), epoch, &assigned) {
            Ok(proposal) => proposal.map(|()| true),
            Err(_) => Proposal::nothing(false),
        }
    }

    fn allocate_producer_ids(&self) -> Proposal<Result<ProducerIdBlock, ErrorCode>> {
        let (image, node) = (self.timeline.applied(), self.node());
        let epoch = self.life.broker_epoch();
        match controller::allocate_producer_ids(image, node, epoch) {
            Ok(proposal) => {
                proposal.map(|first| Ok(ProducerIdBlock { first, length: PRODUCER_IDS_PER_BLOCK }))
            }
            Err(error) => Proposal::nothing(Err(error.code)),
        }
    }
}

/// The partitions that are being moved, of some topics or of all.
fn list_moves(
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
