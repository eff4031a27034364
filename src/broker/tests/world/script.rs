//! A quorum shard that does what the broker asks at once and keeps nothing on disk.
#![allow(clippy::disallowed_types, reason = "the test looks into the machine from outside")]

use std::sync::{Arc, Mutex};

use api::{Effect, Effects, Event, Machine};
use base::{LeaderEpoch, NodeId, Now, ProducerId, Random, ShardId, Uuid};
use intercom::{
    Message, Placement, ProducerIdBlock, Published, QuorumReply, QuorumRequest, Reply, Request,
};
use metadata::{Image, Record};
use protocol::create_topics_request::CreatableTopic;
use protocol::create_topics_response::CreatableTopicResult;
use protocol::register_broker_record::BrokerEndpoint;
use protocol::{CreateTopicsResponse, PartitionRecord, RegisterBrokerRecord, TopicRecord};

/// What survives a crash of the node: the cluster. The test holds the other end.
pub(crate) type Cluster = Arc<Mutex<Image>>;

pub(crate) struct Script {
    data_shards: u16,
    cluster: Cluster,
    placement: Placement,
    random: Random,
    registered: bool,
    stopping: bool,
}

impl Script {
    pub(crate) fn new(data_shards: u16, cluster: Cluster, random: Random) -> Self {
        let mut placement = Placement::new(data_shards);
        for topic in cluster.lock().expect("no panic").topics().values() {
            placement.place(topic.id, topic.partitions.len());
        }
        Self { data_shards, cluster, placement, random, registered: false, stopping: false }
    }

    fn publish(&self, effects: &mut Effects<Message>) {
        let image = Arc::new(self.cluster.lock().expect("no panic").clone());
        for to in (0..self.data_shards).map(ShardId) {
            let published = Published {
                image: Arc::clone(&image),
                placement: self.placement.clone(),
                kraft_version: 1,
                leader: NodeId(1),
                leader_epoch: LeaderEpoch(1),
            };
            effects.push(Effect::Post { to, message: Message::Published(published) });
        }
    }

    fn replay(&self, record: impl Into<Record>) {
        let mut image = self.cluster.lock().expect("no panic");
        image.replay(&record.into()).expect("the script replays what fits");
    }

    fn create(&mut self, topic: CreatableTopic) -> CreatableTopicResult {
        let topic_id = Uuid::random(&mut self.random);
        let num_partitions = topic.num_partitions.max(1);
        self.replay(TopicRecord { name: topic.name.clone(), topic_id, ..Default::default() });
        for partition_id in 0..num_partitions {
            self.replay(PartitionRecord {
                partition_id,
                topic_id,
                replicas: vec![1],
                isr: vec![1],
                leader: 1,
                directories: vec![Uuid([9; 16])],
                ..Default::default()
            });
        }
        self.placement.place(topic_id, usize::try_from(num_partitions).expect("positive"));
        CreatableTopicResult { name: topic.name, topic_id, num_partitions, ..Default::default() }
    }

    fn answer(&mut self, request: QuorumRequest, effects: &mut Effects<Message>) -> QuorumReply {
        match request {
            QuorumRequest::BrokerReady { endpoints, .. } => {
                self.registered = true;
                let end_points = endpoints.iter().map(|endpoint| BrokerEndpoint {
                    name: (&*endpoint.name).into(),
                    host: (&*endpoint.host).into(),
                    port: endpoint.port,
                    ..Default::default()
                });
                self.replay(RegisterBrokerRecord {
                    broker_id: 1,
                    broker_epoch: 5,
                    end_points: end_points.collect(),
                    fenced: false,
                    ..Default::default()
                });
                self.publish(effects);
                QuorumReply::BrokerReady(Ok(5))
            }
            QuorumRequest::BrokerStopping => {
                if self.stopping {
                    effects.push(Effect::Stopped);
                }
                QuorumReply::BrokerStopping
            }
            QuorumRequest::CreateTopics { request } => {
                let topics = request.topics.into_iter().map(|topic| self.create(topic));
                let response =
                    CreateTopicsResponse { topics: topics.collect(), ..Default::default() };
                self.publish(effects);
                QuorumReply::CreateTopics(response)
            }
            QuorumRequest::AllocateProducerIds => {
                let first = ProducerId(0);
                QuorumReply::AllocateProducerIds(Ok(ProducerIdBlock { first, length: 1_000 }))
            }
            other => panic!("the script has no answer to {other:?}"),
        }
    }
}

impl Machine for Script {
    type Message = Message;

    fn step(&mut self, _: Now, event: Event<Message>, effects: &mut Effects<Message>) {
        match event {
            Event::Started => self.publish(effects),
            Event::Stop if self.registered => self.stopping = true,
            Event::Stop => effects.push(Effect::Stopped),
            Event::Mesh { from, message: Message::Request { id, body: Request::Quorum(body) } } => {
                let body = Reply::Quorum(Box::new(self.answer(*body, effects)));
                effects.reply(from, Message::Reply { id, body });
            }
            other => panic!("the script did not expect {other:?}"),
        }
    }
}
