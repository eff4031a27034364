//! A quorum shard that does what the broker asks at once and keeps nothing on disk.
#![allow(clippy::disallowed_types, reason = "the test looks into the machine from outside")]

use std::sync::{Arc, Mutex};

use api::{Effect, Effects, Event, Machine};
use base::{LeaderEpoch, NodeId, Now, Offset, ProducerId, Random, ShardId, TopicId, Uuid};
use intercom::{
    Message, PartitionKey, Placement, ProducerIdBlock, Published, QuorumReply, QuorumRequest,
    Reply, Request,
};
use metadata::{Image, Provenance, Record};
use protocol::create_topics_request::CreatableTopic;
use protocol::create_topics_response::CreatableTopicResult;
use protocol::delete_topics_response::DeletableTopicResult;
use protocol::register_broker_record::BrokerEndpoint;
use protocol::{
    ApiKey, BrokerRegistrationChangeRecord, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, PartitionChangeRecord, PartitionRecord,
    RegisterBrokerRecord, RemoveTopicRecord, Str, TopicRecord, encode_response,
};

/// What survives a crash of the node: the cluster. The test holds the other end.
pub(crate) type Cluster = Arc<Mutex<Image>>;

pub(crate) struct Script {
    cluster: Cluster,
    placement: Placement,
    /// The image that last lacked a topic that was there before.
    last_deleted: Offset,
    /// Up to which image each data shard has given back the names of what was deleted.
    settled: Vec<Offset>,
    /// Topics that get no owners before that.
    waiting: Vec<TopicId>,
    random: Random,
    /// Whether the broker chooses between several directories.
    has_choice: bool,
    registered: bool,
    stopping: bool,
    /// So many data shards, the keeper first, learn of the metadata.
    pub(crate) heard_by: u16,
}

impl Script {
    pub(crate) fn new(
        data_shards: u16,
        cluster: Cluster,
        has_choice: bool,
        random: Random,
    ) -> Self {
        let mut placement = Placement::new(data_shards);
        for topic in cluster.lock().expect("no panic").topics().values() {
            placement.place(topic.id, topic.partitions.len());
        }
        let (registered, stopping) = (false, false);
        let settled = vec![Offset(-1); usize::from(data_shards)];
        let (last_deleted, waiting) = (Offset(-1), Vec::new());
        Self {
            cluster,
            placement,
            last_deleted,
            settled,
            waiting,
            random,
            has_choice,
            registered,
            stopping,
            heard_by: data_shards,
        }
    }

    fn publish(&self, effects: &mut Effects<Message>) {
        let image = Arc::new(self.cluster.lock().expect("no panic").clone());
        for to in (0..self.heard_by).map(ShardId) {
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
        replay(&self.cluster, record);
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
                directories: vec![if self.has_choice { Uuid::ZERO } else { Uuid([9; 16]) }],
                ..Default::default()
            });
        }
        self.waiting.push(topic_id);
        self.place_waiting();
        CreatableTopicResult { name: topic.name, topic_id, num_partitions, ..Default::default() }
    }

    fn delete(&mut self, name: Option<Str>) -> DeletableTopicResult {
        let topic_id = {
            let image = self.cluster.lock().expect("no panic");
            let name = name.as_ref().expect("the tests name topics");
            image.topic_by_name(name).expect("it was made").id
        };
        self.replay(RemoveTopicRecord { topic_id, ..Default::default() });
        self.placement.remove(topic_id);
        self.last_deleted = self.cluster.lock().expect("no panic").provenance().last_offset;
        DeletableTopicResult { name, topic_id, ..Default::default() }
    }

    /// Gives owners to new topics, once nothing that was deleted can have their names.
    fn place_waiting(&mut self) {
        if self.settled.iter().any(|settled| *settled < self.last_deleted) {
            return;
        }
        let image = self.cluster.lock().expect("no panic");
        for id in self.waiting.drain(..) {
            let topic = image.topic(id).expect("it is deleted when it has owners");
            self.placement.place(id, topic.partitions.len());
        }
    }

    fn partitions_in(&self, directories: &[Uuid]) -> Vec<PartitionKey> {
        let image = self.cluster.lock().expect("no panic");
        let mut found = Vec::new();
        for topic in image.topics().values() {
            for (index, partition) in topic.partitions.iter() {
                if partition.directories.iter().any(|one| directories.contains(one)) {
                    found.push(PartitionKey { topic: topic.id, partition: *index });
                }
            }
        }
        found
    }

    fn change(&self, key: PartitionKey, change: impl FnOnce(&mut PartitionChangeRecord)) {
        let mut record = PartitionChangeRecord {
            partition_id: key.partition.0,
            topic_id: key.topic,
            leader: metadata::LEADER_UNCHANGED,
            ..Default::default()
        };
        change(&mut record);
        self.replay(record);
    }

    /// The broker leads what is in its directories, if this holds of who leads it.
    fn lead(&self, wants: impl Fn(NodeId) -> bool) {
        let directories = {
            let image = self.cluster.lock().expect("no panic");
            image.broker(NodeId(1)).expect("it registered").directories.clone()
        };
        for key in self.partitions_in(&directories) {
            if wants(self.leader_of(key)) {
                self.change(key, |record| record.leader = 1);
            }
        }
    }

    fn leader_of(&self, key: PartitionKey) -> NodeId {
        let image = self.cluster.lock().expect("no panic");
        let topic = image.topic(key.topic).expect("it is there");
        topic.partition(key.partition).expect("it is there").leader
    }

    /// The broker has lost directories: nobody leads what is in them.
    fn lose(&self, failed: &[Uuid]) {
        for key in self.partitions_in(failed) {
            self.change(key, |record| record.leader = -1);
        }
        let mut log_dirs = {
            let image = self.cluster.lock().expect("no panic");
            image.broker(NodeId(1)).expect("it registered first").directories.clone()
        };
        log_dirs.retain(|directory| !failed.contains(directory));
        self.replay(BrokerRegistrationChangeRecord {
            broker_id: 1,
            broker_epoch: 5,
            log_dirs,
            ..Default::default()
        });
    }

    fn answer(&mut self, request: QuorumRequest, effects: &mut Effects<Message>) -> QuorumReply {
        match request {
            QuorumRequest::BrokerReady { endpoints, directories, .. } => {
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
                    log_dirs: directories,
                    ..Default::default()
                });
                // It is back.
                self.lead(|_| true);
                self.publish(effects);
                QuorumReply::BrokerReady(Ok(5))
            }
            QuorumRequest::AssignDirectories(assigned) => {
                for (key, directory) in assigned {
                    self.change(key, |record| record.directories = Some(vec![directory]));
                }
                if self.registered {
                    self.lead(|leader| leader == NodeId::NONE);
                }
                self.publish(effects);
                QuorumReply::AssignDirectories(true)
            }
            QuorumRequest::DirectoriesFailed(failed) => {
                self.lose(&failed);
                self.publish(effects);
                QuorumReply::DirectoriesFailed
            }
            QuorumRequest::BrokerStopping => {
                if self.stopping {
                    effects.push(Effect::Stopped);
                }
                QuorumReply::BrokerStopping
            }
            QuorumRequest::CreateTopics(request) => {
                QuorumReply::CreateTopics(self.create_all(request, effects))
            }
            QuorumRequest::Api(frame) => {
                let (id, version) = (frame.correlation_id, frame.version);
                let response = match frame.api_key {
                    Some(ApiKey::CreateTopics) => {
                        let request = frame.body().expect("it is such a request");
                        let response = self.create_all(request, effects);
                        encode_response::<CreateTopicsRequest>(id, version, &response)
                    }
                    Some(ApiKey::DeleteTopics) => {
                        let request = frame.body().expect("it is such a request");
                        let response = self.delete_all(request, effects);
                        encode_response::<DeleteTopicsRequest>(id, version, &response)
                    }
                    other => panic!("the script has no answer to {other:?}"),
                };
                QuorumReply::Api(Ok(response.expect("it is carried").into_bytes()))
            }
            QuorumRequest::AllocateProducerIds => {
                let first = ProducerId(0);
                QuorumReply::AllocateProducerIds(Ok(ProducerIdBlock { first, length: 1_000 }))
            }
        }
    }

    fn create_all(
        &mut self,
        request: CreateTopicsRequest,
        effects: &mut Effects<Message>,
    ) -> CreateTopicsResponse {
        let topics = request.topics.into_iter().map(|topic| self.create(topic));
        let response = CreateTopicsResponse { topics: topics.collect(), ..Default::default() };
        self.publish(effects);
        response
    }

    fn delete_all(
        &mut self,
        request: DeleteTopicsRequest,
        effects: &mut Effects<Message>,
    ) -> DeleteTopicsResponse {
        let topics = request.topics.into_iter().map(|topic| self.delete(topic.name));
        let response = DeleteTopicsResponse { responses: topics.collect(), ..Default::default() };
        self.publish(effects);
        response
    }
}

/// Changes the metadata by a record.
pub(crate) fn replay(cluster: &Cluster, record: impl Into<Record>) {
    let mut image = cluster.lock().expect("no panic");
    image.replay(&record.into()).expect("the tests replay what fits");
    let last_offset = image.provenance().last_offset.plus(1);
    image.set_provenance(Provenance { last_offset, ..Provenance::default() });
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
            Event::Mesh { from, message: Message::Settled(offset) } => {
                self.settled[usize::from(from.0)] = offset;
                if !self.waiting.is_empty() {
                    self.place_waiting();
                    self.publish(effects);
                }
            }
            other => panic!("the script did not expect {other:?}"),
        }
    }
}
