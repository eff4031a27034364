//! What the data shards ask, each to its rule.

use base::{Now, ShardId, Token, Uuid};
use intercom::{PartitionKey, ProducerIdBlock, QuorumReply, QuorumRequest};
use protocol::ErrorCode;

use controller::{PRODUCER_IDS_PER_BLOCK, Proposal};

use crate::apis;
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
            QuorumRequest::Api(frame) => match apis::decide(self, now, &frame) {
                Ok(proposal) => {
                    self.accept(now, from, id, proposal.map(|it| QuorumReply::Api(Ok(it))))
                }
                Err(sentence) => {
                    let reply = QuorumReply::Api(Err(sentence));
                    self.accept(now, from, id, Proposal::nothing(reply));
                }
            },
            QuorumRequest::CreateTopics(request) => {
                let proposal = controller::create_topics(params, image, &mut self.random, &request);
                self.accept(now, from, id, proposal.map(QuorumReply::CreateTopics));
            }
            QuorumRequest::AllocateProducerIds => {
                let proposal = self.allocate_producer_ids();
                self.accept(now, from, id, proposal.map(QuorumReply::AllocateProducerIds));
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
