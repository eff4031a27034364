//! The workload and its checkers tried against a broker that is small enough to be known: one
//! journal for all topics, synced before anything is answered.

use std::collections::{BTreeMap, VecDeque};

use api::{Effect, Effects, Event, FileEffect, FileRef, Machine, Part, SocketEffect, SocketId};
use base::{Now, Offset, Random, ShardId, Token, TopicId};
use bytes::{Buf, Bytes};
use fakeworld::{Disk, Planted, Seat, World};
use protocol::create_topics_response::CreatableTopicResult;
use protocol::fetch_response::{FetchableTopicResponse, PartitionData};
use protocol::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use protocol::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use protocol::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use protocol::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    ErrorCode, FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse,
    MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse, Records, Request,
    RequestFrame,
};
use records::{Batch, BatchHeader};
use sim::simulation::{Node, Options, PORT, Report, run};

const STORE: ShardId = ShardId(1);

#[derive(Debug)]
enum Message {
    Ask { socket: SocketId, frame: Bytes },
    Answer { socket: SocketId, bytes: Option<Bytes> },
}

/// Cuts the streams of its connections into frames, and asks the store one after the other.
#[derive(Default)]
struct Front {
    inboxes: BTreeMap<SocketId, Vec<u8>>,
}

impl Machine for Front {
    type Message = Message;

    fn step(&mut self, _now: Now, event: Event<Message>, effects: &mut Effects<Message>) {
        match event {
            Event::Accepted { socket, .. } => {
                effects.socket(SocketEffect::HandOver { socket, to: ShardId(0), listener: 0 });
            }
            Event::Opened { socket, .. } => {
                self.inboxes.insert(socket, Vec::new());
            }
            Event::Received { socket, bytes } => {
                let inbox = self.inboxes.get_mut(&socket).expect("it was opened");
                inbox.extend_from_slice(&bytes);
                while let Some(length) = inbox.first_chunk::<4>() {
                    let end = 4 + u32::from_be_bytes(*length) as usize;
                    if inbox.len() < end {
                        break;
                    }
                    let frame: Bytes = inbox.drain(..end).skip(4).collect::<Vec<u8>>().into();
                    effects.request(STORE, Message::Ask { socket, frame });
                }
            }
            Event::Mesh { message: Message::Answer { socket, bytes: Some(bytes) }, .. } => {
                let parts = vec![Part::Bytes(bytes)];
                effects.socket(SocketEffect::Send { socket, parts });
            }
            Event::Mesh { message: Message::Ask { .. }, .. } => {
                effects.socket(SocketEffect::Listen {
                    token: Token::from_bits(1),
                    address: World::<Message>::address(0, PORT),
                    backlog: 9,
                });
            }
            Event::Closed { socket, .. } => {
                self.inboxes.remove(&socket);
            }
            Event::Stop => effects.push(Effect::Stopped),
            _ => {}
        }
    }
}

struct ToyTopic {
    id: TopicId,
    logs: Vec<Vec<Bytes>>,
}

#[derive(Debug, PartialEq)]
enum Stage {
    Reading,
    Cutting,
    SyncingNames,
    Idle,
    Writing,
    Syncing,
}

/// Keeps everything in memory and in one journal, which it replays when it starts.
struct Store {
    random: Random,
    topics: BTreeMap<String, ToyTopic>,
    file: FileRef,
    stage: Stage,
    length: u64,
    waiting: VecDeque<(ShardId, SocketId, Bytes)>,
    entries: Vec<Bytes>,
    answers: Vec<(ShardId, SocketId, Option<Bytes>)>,
}

/// An entry of the journal: CRC and length, then the name of the topic with a count of partitions
/// and its id, or the name with a partition and a batch.
fn entry(name: &str, number: u32, payload: &[u8]) -> Bytes {
    let mut body = vec![name.len() as u8];
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(&number.to_be_bytes());
    body.extend_from_slice(payload);
    let mut entry = records::crc_of(&body).to_be_bytes().to_vec();
    entry.extend_from_slice(&(body.len() as u32).to_be_bytes());
    entry.extend_from_slice(&body);
    entry.into()
}

impl Store {
    fn new(random: Random) -> Self {
        Self {
            random,
            topics: BTreeMap::new(),
            file: FileRef::new("/data/journal"),
            stage: Stage::Reading,
            length: 0,
            waiting: VecDeque::new(),
            entries: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn replay(&mut self, mut journal: Bytes) {
        while journal.len() >= 8 {
            let (crc, length) = (journal.slice(..4).get_u32(), journal.slice(4..8).get_u32());
            let end = 8 + length as usize;
            if length == 0 || journal.len() < end || records::crc_of(&journal[8..end]) != crc {
                return;
            }
            let mut body = journal.split_to(end).slice(8..);
            self.length += end as u64;
            let name = body.split_to(1 + usize::from(body[0])).slice(1..);
            let name = String::from_utf8(name.to_vec()).expect("it was written as text");
            let number = body.get_u32();
            match self.topics.get_mut(&name) {
                None => {
                    let id = TopicId::try_from_slice(&body);
                    let logs = vec![Vec::new(); number as usize];
                    self.topics.insert(name, ToyTopic { id, logs });
                }
                Some(topic) => topic.logs[number as usize].push(body),
            }
        }
    }

    fn file_event(&mut self, outcome: api::FileOutcome, effects: &mut Effects<Message>) {
        let (token, file) = (Token::NONE, self.file.clone());
        self.stage = match self.stage {
            Stage::Reading => {
                self.replay(outcome.read().unwrap_or_default());
                effects.file(FileEffect::Truncate { token, file, length: self.length });
                Stage::Cutting
            }
            Stage::Cutting => {
                effects.file(FileEffect::SyncDirectory { token, directory: "/data".into() });
                Stage::SyncingNames
            }
            Stage::SyncingNames => {
                let frame = Bytes::new();
                let socket = SocketId(Token::NONE);
                effects.request(ShardId(0), Message::Ask { socket, frame });
                Stage::Idle
            }
            Stage::Writing => {
                if let Err(error) = outcome.done() {
                    return effects.push(Effect::Fail { sentence: error.to_string() });
                }
                effects.file(FileEffect::Sync { token, file });
                Stage::Syncing
            }
            Stage::Syncing => {
                if let Err(error) = outcome.done() {
                    return effects.push(Effect::Fail { sentence: error.to_string() });
                }
                self.answer(effects);
                Stage::Idle
            }
            Stage::Idle => panic!("nothing is under way"),
        };
    }

    fn answer(&mut self, effects: &mut Effects<Message>) {
        for (to, socket, bytes) in self.answers.drain(..) {
            effects.reply(to, Message::Answer { socket, bytes });
        }
    }

    fn handle(&mut self, frame: Bytes) -> Option<Bytes> {
        let frame = RequestFrame::decode(frame).expect("the workload sends frames");
        match frame.api_key.expect("the workload asks for what there is") {
            ApiKey::ApiVersions => {
                let api = protocol::api_versions_response::ApiVersion::default();
                let api_keys = vec![api];
                let response = ApiVersionsResponse { api_keys, ..Default::default() };
                reply::<ApiVersionsRequest>(&frame, &response)
            }
            ApiKey::Metadata => self.metadata(&frame),
            ApiKey::CreateTopics => self.create(&frame),
            ApiKey::Produce => self.produce(&frame),
            ApiKey::Fetch => self.fetch(&frame),
            ApiKey::ListOffsets => self.list_offsets(&frame),
            other => panic!("the workload does not ask for {other:?}"),
        }
    }

    fn metadata(&mut self, frame: &RequestFrame) -> Option<Bytes> {
        let topics = self.topics.iter().map(|(name, topic)| MetadataResponseTopic {
            name: Some(name.as_str().into()),
            topic_id: topic.id,
            partitions: (0..topic.logs.len() as i32)
                .map(|partition_index| MetadataResponsePartition {
                    partition_index,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        });
        let response = MetadataResponse { topics: topics.collect(), ..Default::default() };
        reply::<MetadataRequest>(frame, &response)
    }

    fn create(&mut self, frame: &RequestFrame) -> Option<Bytes> {
        let request: CreateTopicsRequest = frame.body().expect("well formed");
        let topic = &request.topics[0];
        let mut result = CreatableTopicResult { name: topic.name.clone(), ..Default::default() };
        if self.topics.contains_key(&*topic.name) {
            result.error_code = ErrorCode::TOPIC_ALREADY_EXISTS;
        } else {
            let id = TopicId::random(&mut self.random);
            result.topic_id = id;
            self.entries.push(entry(&topic.name, topic.num_partitions as u32, &id.0));
            let logs = vec![Vec::new(); topic.num_partitions as usize];
            self.topics.insert(topic.name.to_string(), ToyTopic { id, logs });
        }
        let response = CreateTopicsResponse { topics: vec![result], ..Default::default() };
        reply::<CreateTopicsRequest>(frame, &response)
    }

    fn name(&self, name: &str, id: TopicId) -> String {
        let by_id = self.topics.iter().find(|(_, topic)| topic.id == id);
        by_id.map_or(name.to_owned(), |(name, _)| name.clone())
    }

    fn produce(&mut self, frame: &RequestFrame) -> Option<Bytes> {
        let request: ProduceRequest = frame.body().expect("well formed");
        let mut response = ProduceResponse::default();
        for data in &request.topic_data {
            let name = self.name(&data.name, data.topic_id);
            let topic = self.topics.get_mut(&name).expect("it was created");
            let mut answer = TopicProduceResponse {
                name: data.name.clone(),
                topic_id: data.topic_id,
                ..Default::default()
            };
            for partition in &data.partition_data {
                let Some(Records::Bytes(bytes)) = &partition.records else { panic!("no records") };
                let log = &mut topic.logs[partition.index as usize];
                let base_offset = end_of(log);
                let batch = Batch::read(bytes).expect("well formed").expect("whole");
                let mut bytes = bytes.to_vec();
                bytes[..8].copy_from_slice(&base_offset.to_be_bytes());
                assert_eq!(batch.size(), bytes.len());
                self.entries.push(entry(&name, partition.index as u32, &bytes));
                log.push(bytes.into());
                answer.partition_responses.push(PartitionProduceResponse {
                    index: partition.index,
                    base_offset,
                    log_start_offset: 0,
                    ..Default::default()
                });
            }
            response.responses.push(answer);
        }
        if request.acks == 0 { None } else { reply::<ProduceRequest>(frame, &response) }
    }

    fn fetch(&mut self, frame: &RequestFrame) -> Option<Bytes> {
        let request: FetchRequest = frame.body().expect("well formed");
        let mut response = FetchResponse::default();
        for asked in &request.topics {
            let topic = &self.topics[&self.name(&asked.topic, asked.topic_id)];
            let mut answer = FetchableTopicResponse {
                topic: asked.topic.clone(),
                topic_id: asked.topic_id,
                ..Default::default()
            };
            for partition in &asked.partitions {
                let log = &topic.logs[partition.partition as usize];
                let from = log
                    .iter()
                    .skip_while(|batch| header(batch).next_offset().0 <= partition.fetch_offset);
                let bytes: Vec<u8> = from.take(3).flatten().copied().collect();
                let is_behind = partition.fetch_offset > end_of(log);
                answer.partitions.push(PartitionData {
                    partition_index: partition.partition,
                    high_watermark: end_of(log),
                    log_start_offset: 0,
                    records: Some(Records::Bytes(bytes.into())),
                    error_code: match is_behind {
                        true => ErrorCode::OFFSET_OUT_OF_RANGE,
                        false => ErrorCode::NONE,
                    },
                    ..Default::default()
                });
            }
            response.responses.push(answer);
        }
        reply::<FetchRequest>(frame, &response)
    }

    fn list_offsets(&mut self, frame: &RequestFrame) -> Option<Bytes> {
        let request: ListOffsetsRequest = frame.body().expect("well formed");
        let topics = request.topics.iter().map(|asked| ListOffsetsTopicResponse {
            name: asked.name.clone(),
            partitions: asked
                .partitions
                .iter()
                .map(|partition| ListOffsetsPartitionResponse {
                    partition_index: partition.partition_index,
                    offset: match partition.timestamp {
                        -1 => {
                            let topic = &self.topics[&*asked.name];
                            end_of(&topic.logs[partition.partition_index as usize])
                        }
                        _ => 0,
                    },
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        });
        let response = ListOffsetsResponse { topics: topics.collect(), ..Default::default() };
        reply::<ListOffsetsRequest>(frame, &response)
    }
}

trait FromSlice {
    fn try_from_slice(bytes: &[u8]) -> Self;
}

impl FromSlice for TopicId {
    fn try_from_slice(bytes: &[u8]) -> Self {
        base::Uuid(bytes.try_into().expect("an id has 16 bytes"))
    }
}

fn header(batch: &Bytes) -> BatchHeader {
    BatchHeader::read(batch.first_chunk().expect("a batch has a header"))
}

fn end_of(log: &[Bytes]) -> i64 {
    log.last().map_or(Offset(0), |batch| header(batch).next_offset()).0
}

fn reply<R: Request>(frame: &RequestFrame, response: &R::Response) -> Option<Bytes> {
    let encoded = protocol::encode_response::<R>(frame.correlation_id, frame.version, response);
    Some(encoded.expect("the version carries it").into_bytes())
}

impl Machine for Store {
    type Message = Message;

    fn step(&mut self, _now: Now, event: Event<Message>, effects: &mut Effects<Message>) {
        match event {
            Event::Started => {
                let file = self.file.clone();
                let token = Token::NONE;
                effects.file(FileEffect::Read { token, file, position: 0, length: 1 << 30 });
            }
            Event::File { outcome, .. } => self.file_event(outcome, effects),
            Event::Mesh { from, message: Message::Ask { socket, frame } } => {
                self.waiting.push_back((from, socket, frame));
            }
            Event::Stop => effects.push(Effect::Stopped),
            _ => {}
        }
    }

    fn end_of_turn(&mut self, _now: Now, effects: &mut Effects<Message>) {
        if self.stage != Stage::Idle {
            return;
        }
        while let Some((from, socket, frame)) = self.waiting.pop_front() {
            let bytes = self.handle(frame);
            self.answers.push((from, socket, bytes));
        }
        if self.entries.is_empty() {
            return self.answer(effects);
        }
        self.stage = Stage::Writing;
        let parts = std::mem::take(&mut self.entries);
        let (file, position) = (self.file.clone(), self.length);
        self.length += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        effects.file(FileEffect::Write { token: Token::NONE, file, position, parts });
    }
}

struct ToyNode;

impl Node for ToyNode {
    type Message = Message;
    const LANE_SLOTS: usize = 1_000_000;
    const IS_WHOLE: bool = false;

    fn format(&mut self, disk: &mut Disk, _random: &mut Random) {
        disk.install_directory("/data".as_ref());
    }

    fn seats(
        &mut self,
        _disk: &mut Disk,
        random: &mut Random,
    ) -> Result<Vec<Seat<Message>>, String> {
        let front = Seat { core: 0, machine: Box::new(Front::default()) as _ };
        Ok(vec![front, Seat { core: 1, machine: Box::new(Store::new(random.clone())) }])
    }
}

fn run_toy(seed: u64, planted: Option<Planted>) -> Report {
    run(|_| ToyNode, Options { seed, planted, ..Options::default() })
}

#[test]
fn a_broker_that_syncs_passes() {
    let (mut acknowledged, mut read, mut power_losses) = (0, 0, 0);
    for seed in 0..12 {
        let counts = run_toy(seed, None).outcome.unwrap_or_else(|violation| {
            panic!("seed {seed}: {violation}");
        });
        acknowledged += counts.acknowledged;
        read += counts.read;
        power_losses += counts.power_losses;
    }
    println!(
        "{acknowledged} batches acknowledged, {read} records read, {power_losses} power losses"
    );
    assert!(acknowledged > 1_000 && read > 10_000 && power_losses > 3);
}

#[test]
fn one_seed_is_one_run() {
    for seed in 0..5 {
        assert_eq!(run_toy(seed, None), run_toy(seed, None));
    }
}

#[test]
fn planted_faults_are_found() {
    for planted in [Planted::SkipSync, Planted::LoseMesh] {
        let found = (0..60).find_map(|seed| run_toy(seed, Some(planted)).outcome.err());
        println!("{planted:?}: {}", found.expect("a planted fault is found"));
    }
}
