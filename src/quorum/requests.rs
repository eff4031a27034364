//! What the data shards ask, each to its rule.

use base::{Now, Uuid};
use intercom::{PartitionKey, ProducerIdBlock, QuorumReply, QuorumRequest};
use protocol::ErrorCode;

use controller::{PRODUCER_IDS_PER_BLOCK, Proposal};

use crate::apis;
use crate::shard::{Asker, Quorum, Waiting};

impl Quorum {
    /// Decides about one request. Its answer waits for the commit.
    pub(crate) fn handle(&mut self, now: Now, waiting: Waiting) {
        let Waiting { from, request } = waiting;
        let (params, image) = (&self.controller, self.timeline.applied());
        match *request {
            QuorumRequest::BrokerReady { endpoints, previous_epoch, directories } => {
                let request = self.registration(&endpoints, previous_epoch, directories);
                self.broker_ready(now, from, &request);
            }
            QuorumRequest::DirectoriesFailed(directories) => {
                self.directories_failed(now, from, directories);
            }
            QuorumRequest::AssignDirectories(assigned) => {
                let proposal = self.assign_directories(&assigned);
                self.accept(now, from, proposal.map(QuorumReply::AssignDirectories));
            }
            QuorumRequest::BrokerStopping => self.broker_stopping(now, from),
            QuorumRequest::Api(frame) => match apis::decide(self, now, &frame) {
                Ok(proposal) => self.accept(now, from, proposal.map(|it| QuorumReply::Api(Ok(it)))),
                Err(sentence) => {
                    let reply = QuorumReply::Api(Err(sentence));
                    self.accept(now, from, Proposal::nothing(reply));
                }
            },
            QuorumRequest::CreateTopics(request) => {
                let proposal = controller::create_topics(params, image, &mut self.random, &request);
                self.accept(now, from, proposal.map(QuorumReply::CreateTopics));
            }
            QuorumRequest::AllocateProducerIds => {
                let proposal = self.allocate_producer_ids();
                self.accept(now, from, proposal.map(QuorumReply::AllocateProducerIds));
            }
        }
    }

    fn accept(&mut self, now: Now, from: Asker, proposal: Proposal<QuorumReply>) {
        let offset = self.propose(now, &proposal.records);
        self.answer_at(offset, from, proposal.response);
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
