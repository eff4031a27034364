//! A world with one node and a client that asks one thing at a time, or several.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Duration, Instant, NodeId, Random, ShardId, Uuid};
use broker::{LogDirectorySetup, Setup, Shard};
use bytes::{Buf, Bytes, BytesMut};
use config::BrokerConfig;
use fakeworld::{
    ClientSocket, Crash, Exit, FaultPlan, Seat, Trouble, World as Fake, WorldEvent, WorldOptions,
};
use intercom::ListenerSetup;
use intercom::Message;
use metadata::{Image, SecurityProtocol};
use protocol::create_topics_request::CreatableTopic;
use protocol::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use protocol::delete_topics_request::DeleteTopicState;
use protocol::fetch_request::{FetchPartition, FetchTopic};
use protocol::fetch_response::PartitionData;
use protocol::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::metadata_request::MetadataRequestTopic;
use protocol::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::{
    CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest, FetchRequest,
    ListOffsetsRequest, Message as _, PartitionChangeRecord, PartitionRecord, ProduceRequest,
    Reader, Records, RemoveTopicRecord, Request, ResponseHeader, TopicRecord, encode_request,
};
use records::Batches;

use crate::script::{Cluster, Script, replay};

const PORT: u16 = 9092;
const SLOTS: u32 = 16;
/// Where a node of these tests has its first log directory, and its metadata log.
pub(crate) const DIRECTORY: &str = "/data";
/// Its second one, where it has two.
pub(crate) const SECOND_DIRECTORY: &str = "/more";
/// Its third one.
pub(crate) const THIRD_DIRECTORY: &str = "/most";

pub(crate) struct World {
    fake: Fake<Message>,
    node: fakeworld::NodeId,
    cluster: Cluster,
    shards: u16,
    directories: &'static [&'static str],
    calls_max: usize,
    /// Of the node, besides the usual ones.
    settings: &'static str,
    seed: u64,
    starts: u64,
    /// What has arrived on connections whose answer nobody has taken yet.
    inboxes: Vec<(ClientSocket, BytesMut)>,
}

/// A request that was sent on a connection of its own.
pub(crate) struct Begun(ClientSocket);

impl World {
    pub(crate) fn new(seed: u64, shards: u16, faults: FaultPlan) -> Self {
        Self::with_directories(seed, shards, faults, &[DIRECTORY])
    }

    /// A world in whose shards only a few calls can be under way at once.
    pub(crate) fn with_few_calls(seed: u64, shards: u16, calls_max: usize) -> Self {
        Self::with(seed, shards, FaultPlan::calm(), &[DIRECTORY], calls_max, "")
    }

    /// A world whose node syncs every record before it acknowledges it, and has two directories.
    pub(crate) fn with_syncs(seed: u64, shards: u16, faults: FaultPlan) -> Self {
        let directories = &[DIRECTORY, SECOND_DIRECTORY];
        let settings = "log.flush.interval.messages=1\n";
        Self::with(seed, shards, faults, directories, Setup::CALLS_MAX, settings)
    }

    pub(crate) fn with_directories(
        seed: u64,
        shards: u16,
        faults: FaultPlan,
        directories: &'static [&'static str],
    ) -> Self {
        Self::with(seed, shards, faults, directories, Setup::CALLS_MAX, "")
    }

    /// A world of one shard whose node has settings of its own.
    pub(crate) fn with_settings(
        seed: u64,
        faults: FaultPlan,
        directories: &'static [&'static str],
        settings: &'static str,
    ) -> Self {
        Self::with(seed, 1, faults, directories, Setup::CALLS_MAX, settings)
    }

    fn with(
        seed: u64,
        shards: u16,
        faults: FaultPlan,
        directories: &'static [&'static str],
        calls_max: usize,
        settings: &'static str,
    ) -> Self {
        let options = WorldOptions {
            seed,
            faults,
            planted: None,
            lane_slots: SLOTS as usize,
            trace_lines: 10_000,
        };
        let mut fake = Fake::new(options);
        let node = fake.add_node();
        for directory in directories {
            fake.disk(node).install_directory(Path::new(directory));
        }
        let cluster = Cluster::default();
        let (starts, inboxes) = (0, Vec::new());
        let mut world = Self {
            fake,
            node,
            cluster,
            shards,
            directories,
            calls_max,
            settings,
            seed,
            starts,
            inboxes,
        };
        world.start();
        world
    }

    /// The id of one of the node's log directories.
    pub(crate) fn directory_id(index: usize) -> Uuid {
        Uuid([9 + u8::try_from(index).expect("directories are few"); 16])
    }

    pub(crate) fn set_trouble(&mut self, directory: &str, trouble: Option<Trouble>) {
        self.fake.set_trouble(self.node, Path::new(directory), trouble);
    }

    /// The metadata, as the quorum has them.
    pub(crate) fn image(&self) -> Image {
        self.cluster.lock().expect("no panic").clone()
    }

    /// The metadata say no more in which directories the logs of a topic are.
    pub(crate) fn forget_directories(&mut self, topic: &str) {
        let mut image = self.cluster.lock().expect("no panic");
        let topic = image.topic_by_name(topic).expect("it was made").clone();
        for index in topic.partitions.keys() {
            let record = PartitionChangeRecord {
                partition_id: index.0,
                topic_id: topic.id,
                leader: metadata::LEADER_UNCHANGED,
                directories: Some(vec![Uuid::ZERO]),
                ..Default::default()
            };
            image.replay(&record.into()).expect("the partition is there");
        }
    }

    /// What the node says when it gives up.
    pub(crate) fn gives_up(&mut self) -> String {
        let until = self.now() + Duration::from_secs(60);
        while let Some(event) = self.fake.next_event(until) {
            match event {
                WorldEvent::Exited(_, Exit::Failed(sentence)) => return sentence,
                WorldEvent::Exited(_, exit) => panic!("{exit:?}"),
                _ => {}
            }
        }
        panic!("the node goes on");
    }

    pub(crate) fn now(&self) -> Instant {
        self.fake.now()
    }

    /// How many messages of this kind shards have sent to another one.
    pub(crate) fn sent(&self, kind: &str) -> usize {
        let body = format!("body: {kind}(");
        self.fake.trace().lines().filter(|l| l.contains("> Mesh") && l.contains(&body)).count()
    }

    /// How many reads of files have ended lately, as the trace has them.
    pub(crate) fn reads(&self) -> usize {
        self.fake.trace().lines().filter(|line| line.contains("< read for ")).count()
    }

    /// Breaks off what was begun: the client goes.
    pub(crate) fn abandon(&mut self, begun: Begun) {
        self.fake.close(begun.0, false);
        self.pause();
    }

    /// The length of the one file whose path ends so.
    pub(crate) fn bytes_of(&mut self, end: &str) -> usize {
        let files = self.files();
        let mut found = files.iter().filter(|file| file.ends_with(end));
        let (Some(file), None) = (found.next(), found.next()) else { panic!("{end} in {files:?}") };
        self.fake.disk(self.node).peek(file).expect("it was listed").len()
    }

    /// Damages the one file whose path ends so, at this byte.
    pub(crate) fn damage(&mut self, end: &str, byte: usize) {
        let file = self.files().into_iter().find(|file| file.ends_with(end));
        self.fake.disk(self.node).flip_bit(&file.expect("it is there"), byte);
    }

    pub(crate) fn files(&mut self) -> Vec<PathBuf> {
        self.fake.disk(self.node).files()
    }

    /// All files with what is in them.
    pub(crate) fn contents(&mut self) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = self.files();
        let disk = self.fake.disk(self.node);
        let content = |file: &PathBuf| disk.peek(file).expect("it was listed").to_vec();
        files.into_iter().map(|file| (file.clone(), content(&file))).collect()
    }

    /// Puts a file on the disk, as if it had always been there.
    pub(crate) fn install(&mut self, path: &str, content: &[u8]) {
        self.fake.disk(self.node).install(Path::new(path), content);
    }

    pub(crate) fn start(&mut self) {
        self.start_with(|_| {});
    }

    /// Starts the node; only so many of its shards learn of the metadata.
    pub(crate) fn start_heard_by(&mut self, shards: u16) {
        self.start_with(|script| script.heard_by = shards);
    }

    fn start_with(&mut self, set_up: impl FnOnce(&mut Script)) {
        self.starts += 1;
        let random = Random::new(self.seed ^ self.starts << 32);
        let mut seats = Vec::new();
        for shard in 0..self.shards {
            let setup = setup(shard, self.shards, self.directories, self.calls_max, self.settings);
            let machine = Shard::new(setup, random.fork(&shard.to_string()));
            seats.push(Seat { core: usize::from(shard), machine: Box::new(machine) as Box<_> });
        }
        let cluster = Arc::clone(&self.cluster);
        let has_choice = self.directories.len() > 1;
        let mut script = Script::new(self.shards, cluster, has_choice, random.fork("quorum"));
        set_up(&mut script);
        seats.push(Seat { core: 0, machine: Box::new(script) });
        self.fake.start(self.node, seats);
    }

    pub(crate) fn restart(&mut self, crash: Crash) {
        self.crash(crash);
        self.start();
    }

    pub(crate) fn crash(&mut self, crash: Crash) {
        self.fake.crash(self.node, crash);
        self.await_exit(&Exit::Crashed(crash));
    }

    /// The node is to crash after so many more effects. Whether it did within a while, in which
    /// something is done again and again.
    pub(crate) fn crashes_after(
        &mut self,
        effects: u64,
        crash: Crash,
        mut meanwhile: impl FnMut(&mut Self, usize),
    ) -> bool {
        self.fake.crash_after_effects(self.node, effects, crash);
        for moment in 0..600 {
            let until = self.now() + Duration::from_micros(100);
            self.fake.wake_at(until, 0);
            while let Some(event) = self.next_event(until) {
                match event {
                    WorldEvent::Exited(_, exit) => {
                        assert_eq!(exit, Exit::Crashed(crash));
                        return true;
                    }
                    WorldEvent::Timer(_) => break,
                    _ => {}
                }
            }
            meanwhile(self, moment);
        }
        self.fake.crash_after_effects(self.node, u64::MAX, crash);
        false
    }

    /// Lets so many moments pass, and does something in each.
    pub(crate) fn passes(&mut self, moments: usize, mut meanwhile: impl FnMut(&mut Self)) {
        for _ in 0..moments {
            let until = self.now() + Duration::from_micros(100);
            self.fake.wake_at(until, 0);
            while let Some(event) = self.next_event(until) {
                if matches!(event, WorldEvent::Timer(_)) {
                    break;
                }
            }
            meanwhile(self);
        }
    }

    /// The answer to a request, if it has come.
    pub(crate) fn answered<R: Request>(&self, version: i16, begun: &Begun) -> Option<R::Response> {
        let inbox = self.inboxes.iter().find(|(socket, _)| *socket == begun.0);
        inbox.and_then(|(_, received)| response::<R>(version, received))
    }

    pub(crate) fn stop(&mut self) {
        self.fake.stop(self.node);
        self.await_exit(&Exit::Stopped);
    }

    /// Asks the node to stop, twice, and does something in each moment until it has.
    pub(crate) fn stop_meanwhile(&mut self, mut meanwhile: impl FnMut(&mut Self)) {
        self.fake.stop(self.node);
        let end = self.now() + Duration::from_secs(60);
        while self.now() < end {
            let until = self.now() + Duration::from_micros(100);
            self.fake.wake_at(until, 0);
            while let Some(event) = self.fake.next_event(until) {
                match event {
                    WorldEvent::Timer(_) => break,
                    WorldEvent::Exited(_, exit) => return assert_eq!(exit, Exit::Stopped),
                    _ => {}
                }
            }
            meanwhile(self);
            self.fake.stop(self.node);
        }
        panic!("the node does not end");
    }

    fn await_exit(&mut self, expected: &Exit) {
        let until = self.now() + Duration::from_secs(60);
        while let Some(event) = self.fake.next_event(until) {
            if let WorldEvent::Exited(_, exit) = event {
                assert_eq!(exit, *expected);
                return;
            }
        }
        panic!("the node does not end");
    }

    pub(crate) fn create_topic(&mut self, name: &str, num_partitions: i32) {
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions,
            replication_factor: 1,
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
        self.call::<CreateTopicsRequest>(7, &request);
    }

    pub(crate) fn delete_topic(&mut self, name: &str) {
        let topic = DeleteTopicState { name: Some(name.into()), ..Default::default() };
        let request = DeleteTopicsRequest { topics: vec![topic], ..Default::default() };
        self.call::<DeleteTopicsRequest>(6, &request);
    }

    /// While the node is down, the cluster deletes a topic, and makes another one of this name.
    pub(crate) fn replace_topic(&mut self, name: &str, new_id: Option<Uuid>) {
        let topic = self.image().topic_by_name(name).expect("it was made").clone();
        replay(&self.cluster, RemoveTopicRecord { topic_id: topic.id, ..Default::default() });
        let Some(topic_id) = new_id else { return };
        replay(&self.cluster, TopicRecord { name: name.into(), topic_id, ..Default::default() });
        for index in topic.partitions.keys() {
            let record = PartitionRecord {
                partition_id: index.0,
                topic_id,
                replicas: vec![1],
                isr: vec![1],
                leader: 1,
                directories: vec![Uuid::ZERO],
                ..Default::default()
            };
            replay(&self.cluster, record);
        }
    }

    pub(crate) fn delete_records(&mut self, topic: &str, partition_index: i32, offset: i64) {
        let partition = DeleteRecordsPartition { partition_index, offset, ..Default::default() };
        let (name, partitions) = (topic.into(), vec![partition]);
        let topic = DeleteRecordsTopic { name, partitions, ..Default::default() };
        let request =
            DeleteRecordsRequest { topics: vec![topic], timeout_ms: 1_000, ..Default::default() };
        let response = self.call::<DeleteRecordsRequest>(2, &request);
        assert_eq!(response.topics[0].partitions[0].low_watermark, offset);
    }

    pub(crate) fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let begun = self.begin(version, request);
        self.end::<R>(version, begun)
    }

    /// Sends a request on a connection of its own.
    pub(crate) fn begin<R: Request>(&mut self, version: i16, request: &R) -> Begun {
        let connected = self.connected();
        self.begin_on(connected, version, request)
    }

    /// Sends a request on a connection that has had none.
    pub(crate) fn begin_on<R: Request>(
        &mut self,
        socket: ClientSocket,
        version: i16,
        request: &R,
    ) -> Begun {
        let frame = encode_request(7, None, version, request).expect("the version carries it");
        self.fake.send(socket, frame.into_bytes());
        Begun(socket)
    }

    /// A new connection; one that is refused is tried again.
    pub(crate) fn connected(&mut self) -> ClientSocket {
        let until = self.now() + Duration::from_secs(120);
        let mut socket = self.fake.connect(self.node, PORT);
        loop {
            match self.next_event(until) {
                Some(WorldEvent::Connected(connected)) if connected == socket => return socket,
                Some(WorldEvent::Closed(closed, _)) if closed == socket => {
                    self.pause();
                    socket = self.fake.connect(self.node, PORT);
                }
                Some(_) => {}
                None => panic!("no connection, seed {}", self.seed),
            }
        }
    }

    /// The answer to a request.
    pub(crate) fn end<R: Request>(&mut self, version: i16, begun: Begun) -> R::Response {
        let until = self.now() + Duration::from_secs(300);
        loop {
            let inbox = self.inboxes.iter().position(|(socket, _)| *socket == begun.0);
            if let Some(inbox) = inbox
                && let Some(response) = response::<R>(version, &self.inboxes[inbox].1)
            {
                self.inboxes.swap_remove(inbox);
                self.fake.close(begun.0, false);
                return response;
            }
            match self.next_event(until) {
                Some(WorldEvent::Closed(socket, why)) if socket == begun.0 => {
                    panic!("closed instead of answered: {why:?}, seed {}", self.seed);
                }
                Some(_) => {}
                None => {
                    let trace: Vec<&str> = self.fake.trace().lines().collect();
                    panic!("no answer, seed {}:\n{}", self.seed, trace.join("\n"));
                }
            }
        }
    }

    /// The next event; what arrives is kept until somebody wants it.
    fn next_event(&mut self, until: Instant) -> Option<WorldEvent> {
        let event = self.fake.next_event(until)?;
        if let WorldEvent::Received(socket, bytes) = &event {
            match self.inboxes.iter_mut().find(|(known, _)| known == socket) {
                Some((_, inbox)) => inbox.extend_from_slice(bytes),
                None => self.inboxes.push((*socket, BytesMut::from(&bytes[..]))),
            }
        }
        Some(event)
    }

    pub(crate) fn pause(&mut self) {
        let until = self.now() + Duration::from_millis(20);
        self.fake.wake_at(until, 0);
        while let Some(event) = self.next_event(until) {
            if matches!(event, WorldEvent::Timer(_)) {
                return;
            }
        }
    }
}

fn response<R: Request>(version: i16, received: &BytesMut) -> Option<R::Response> {
    let mut frame = Bytes::copy_from_slice(received);
    if frame.len() < 4 {
        return None;
    }
    let length = usize::try_from(frame.get_i32()).expect("positive");
    if frame.len() < length {
        return None;
    }
    let mut reader = Reader::new(frame.split_to(length));
    let header_version = R::API_KEY.response_header_version(version);
    let header = ResponseHeader::decode(&mut reader, header_version).expect("a header");
    assert_eq!(header.correlation_id, 7);
    Some(R::Response::decode(&mut reader, version).expect("a response"))
}

fn setup(
    shard: u16,
    data_shards: u16,
    directories: &[&str],
    calls_max: usize,
    settings: &str,
) -> Setup {
    let list = directories.join(",");
    let text = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=C\n\
         listeners=PLAINTEXT://127.0.0.1:{PORT},C://127.0.0.1:9093\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,C:PLAINTEXT\n\
         controller.quorum.voters=1@127.0.0.1:9093\nlog.dirs={list}\n{settings}"
    );
    let address = Fake::<Message>::address(fakeworld::NodeId::default(), PORT);
    Setup {
        shard: ShardId(shard),
        data_shards,
        quorum: ShardId(data_shards),
        lane_slots: SLOTS,
        node: NodeId(1),
        cluster_id: "test-cluster".into(),
        config: Arc::new(BrokerConfig::parse(text.as_bytes()).expect("valid")),
        log_directories: directories
            .iter()
            .enumerate()
            .map(|(index, path)| LogDirectorySetup {
                path: path.into(),
                id: World::directory_id(index),
                offline: None,
            })
            .collect(),
        dirty_bytes_max: 256 << 20,
        calls_max,
        listeners: vec![ListenerSetup {
            name: "PLAINTEXT".into(),
            address,
            advertised_host: "127.0.0.1".into(),
            advertised_port: None,
            security_protocol: SecurityProtocol::PLAINTEXT,
        }]
        .into(),
    }
}

pub(crate) fn named(topic: &str) -> MetadataRequestTopic {
    MetadataRequestTopic { name: Some(topic.into()), ..Default::default() }
}

pub(crate) fn produce(topic: &str, index: i32, batch: Bytes) -> ProduceRequest {
    let records = Some(Records::Bytes(batch));
    let partition = PartitionProduceData { index, records, ..Default::default() };
    let topic = TopicProduceData {
        name: topic.into(),
        partition_data: vec![partition],
        ..Default::default()
    };
    ProduceRequest { acks: -1, timeout_ms: 1_000, topic_data: vec![topic], ..Default::default() }
}

pub(crate) fn fetch(topic: &str, partition: i32, offset: i64, max_wait_ms: i32) -> FetchRequest {
    fetch_all(topic, &[(partition, offset)], max_wait_ms)
}

/// Fetches some partitions from these offsets on.
pub(crate) fn fetch_all(topic: &str, from: &[(i32, i64)], max_wait_ms: i32) -> FetchRequest {
    let partitions = from.iter().map(|&(partition, fetch_offset)| FetchPartition {
        partition,
        fetch_offset,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    });
    let topic =
        FetchTopic { topic: topic.into(), partitions: partitions.collect(), ..Default::default() };
    FetchRequest {
        max_wait_ms,
        min_bytes: 1,
        session_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    }
}

pub(crate) fn list_offsets(topic: &str, partition: i32, timestamp: i64) -> ListOffsetsRequest {
    let partition =
        ListOffsetsPartition { partition_index: partition, timestamp, ..Default::default() };
    let topic =
        ListOffsetsTopic { name: topic.into(), partitions: vec![partition], ..Default::default() };
    ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() }
}

/// How many bytes of records a fetched partition has.
pub(crate) fn bytes(partition: &PartitionData) -> usize {
    partition.records.as_ref().map_or(0, |records| match records {
        Records::Bytes(bytes) => bytes.len(),
        other => panic!("{other:?} was decoded"),
    })
}

/// The first offset of the batches in a fetched partition, and the one behind the last that is
/// whole.
pub(crate) fn offsets(partition: &PartitionData) -> Option<(i64, i64)> {
    let Some(Records::Bytes(bytes)) = &partition.records else { return None };
    let whole: Vec<_> = Batches::new(bytes.clone()).map_while(Result::ok).collect();
    Some((whole.first()?.header().base_offset.0, whole.last()?.header().next_offset().0))
}

/// The values of the records in a fetched partition.
pub(crate) fn values(partition: &PartitionData) -> Vec<String> {
    let Some(Records::Bytes(bytes)) = &partition.records else { return Vec::new() };
    let mut values = Vec::new();
    for batch in Batches::new(bytes.clone()) {
        let batch = batch.expect("a batch");
        batch.check_crc().expect("its checksum");
        let mut records = batch.records(1 << 20).expect("readable");
        while let Some(record) = records.next_record().expect("a record") {
            if record.offset.0 >= 0 {
                values.push(String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned());
            }
        }
    }
    values
}
