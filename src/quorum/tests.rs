//! The quorum shard in the fake world, beside a data shard that only asks.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use api::{Effect, Effects, Event, Machine};
use base::{Duration, Instant, NodeId, Now, Offset, Random, ShardId, Token, Uuid};
use bytes::Bytes;
use config::{BrokerConfig, Pairs};
use fakeworld::{Crash, Exit, FaultPlan, Seat, Trouble, World, WorldEvent, WorldOptions};
use intercom::{Endpoint, Message, Published, QuorumReply, QuorumRequest, Reply, Request};
use metadata::{Record, SecurityProtocol, VersionedRecord};
use protocol::create_topics_request::CreatableTopic;
use protocol::describe_quorum_request::{PartitionData, TopicData};
use protocol::{
    CreateTopicsRequest, DescribeQuorumRequest, ErrorCode, Message as _, Reader, RequestFrame,
    ResponseHeader, encode_request,
};
use raft::Output;
use records::Batches;

use crate::format::{self, Controllers, FormatRequest};
use crate::shard::Stage;
use crate::{Quorum, QuorumParams};

const CLUSTER: &str = "4L6g3nShT-eMCtK--X86sw";
const QUORUM: ShardId = ShardId(1);

/// What the data shard has heard, in order.
#[derive(Debug, Default)]
struct Heard {
    published: Vec<Published>,
    replies: Vec<QuorumReply>,
}

/// A data shard that asks one thing after the other once the metadata is there.
#[derive(Debug)]
struct Asker {
    script: VecDeque<QuorumRequest>,
    heard: Rc<RefCell<Heard>>,
    is_asking: bool,
    stops: bool,
}

impl Asker {
    fn ask_next(&mut self, effects: &mut Effects<Message>) {
        if self.is_asking || self.heard.borrow().published.is_empty() {
            return;
        }
        let next = match self.script.pop_front() {
            Some(next) => next,
            None if std::mem::take(&mut self.stops) => QuorumRequest::BrokerStopping,
            None => return,
        };
        self.is_asking = true;
        let body = Request::Quorum(Box::new(next));
        effects.request(QUORUM, Message::Request { id: Token::NONE, body });
    }
}

impl Machine for Asker {
    type Message = Message;

    fn step(&mut self, _: Now, event: Event<Message>, effects: &mut Effects<Message>) {
        match event {
            Event::Mesh { message: Message::Published(published), .. } => {
                self.heard.borrow_mut().published.push(published);
            }
            Event::Mesh { message: Message::Reply { body: Reply::Quorum(reply), .. }, .. } => {
                self.is_asking = false;
                let mut heard = self.heard.borrow_mut();
                let is_last = matches!(*reply, QuorumReply::BrokerStopping);
                heard.replies.push(*reply);
                if is_last {
                    return effects.push(Effect::Stopped);
                }
            }
            Event::Stop => self.stops = true,
            Event::Started => {}
            other => panic!("{other:?}"),
        }
        self.ask_next(effects);
    }
}

struct Cluster {
    world: World<Message>,
    node: usize,
    config: Arc<BrokerConfig>,
    directory_id: Uuid,
    starts: u64,
}

fn config(extra: &[(&str, &str)]) -> BrokerConfig {
    let settings = [
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        ("controller.listener.names", "CONTROLLER"),
        ("listeners", "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"),
        ("log.dirs", "/data"),
    ];
    let all = settings.iter().chain(extra);
    let pairs: Pairs = all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    BrokerConfig::from_pairs(pairs).expect("the settings are valid")
}

fn dynamic() -> BrokerConfig {
    config(&[("controller.quorum.bootstrap.servers", "127.0.0.1:9093")])
}

fn request(config: &BrokerConfig, controllers: Controllers) -> FormatRequest<'_> {
    FormatRequest {
        config,
        cluster_id: CLUSTER,
        controllers,
        release_version: None,
        features: &[],
        ignore_formatted: false,
        formatted: &[],
        now_ms: 1_796_082_968_000,
        date: "Mon Nov 30 23:56:08 UTC 2026",
    }
}

impl Cluster {
    /// A node whose disk was formatted.
    fn new(seed: u64, faults: FaultPlan) -> Self {
        Self::with(seed, faults, dynamic())
    }

    fn with(seed: u64, faults: FaultPlan, config: BrokerConfig) -> Self {
        let mut world = World::new(WorldOptions {
            seed,
            faults,
            planted: None,
            lane_slots: 64,
            trace_lines: 0,
        });
        let node = world.add_node();
        let config = Arc::new(config);
        let request = request(&config, Controllers::Standalone);
        let plan = format::plan(&request, &mut Random::new(seed)).expect("can be formatted");
        let mut directory_id = None;
        for file in &plan.files {
            world.disk(node).install(&file.path, &file.contents);
            if file.path.ends_with("meta.properties") {
                let text = String::from_utf8(file.contents.to_vec()).expect("is text");
                let properties = commitlog::MetaProperties::parse(&text).expect("can be read");
                directory_id = properties.directory_id;
            }
        }
        let directory_id = directory_id.expect("formatting gives an id");
        Self { world, node, config, directory_id, starts: 0 }
    }

    fn start(&mut self, mut script: Vec<QuorumRequest>) -> Rc<RefCell<Heard>> {
        for request in &mut script {
            if let QuorumRequest::BrokerReady { directories, .. } = request {
                directories.push(self.directory_id);
            }
        }
        self.starts += 1;
        let heard = Rc::new(RefCell::new(Heard::default()));
        let asker = Asker {
            script: script.into(),
            heard: Rc::clone(&heard),
            is_asking: false,
            stops: false,
        };
        let quorum = Quorum::new(QuorumParams {
            listeners: Arc::new([]),
            cluster_id: CLUSTER.to_owned(),
            config: Arc::clone(&self.config),
            directory: PathBuf::from("/data"),
            directory_id: self.directory_id,
            data_shards: 1,
            random: Random::new(self.starts),
        });
        let seats = vec![
            Seat { core: 0, machine: Box::new(asker) },
            Seat { core: 1, machine: Box::new(quorum) },
        ];
        self.world.start(self.node, seats);
        heard
    }

    /// Lets the world go on until the data shard has heard `replies` replies.
    fn run_until(&mut self, heard: &Rc<RefCell<Heard>>, replies: usize) {
        for _ in 0..100_000 {
            if heard.borrow().replies.len() >= replies {
                return;
            }
            let until = self.world.now() + Duration::from_millis(1);
            if let Some(event) = self.world.next_event(until) {
                panic!("{event:?} after {:?}", heard.borrow().replies);
            }
        }
        panic!("only {:?} came", heard.borrow().replies);
    }

    fn run_for(&mut self, how_long: Duration) {
        let until = self.world.now() + how_long;
        if let Some(event) = self.world.next_event(until) {
            panic!("{event:?}");
        }
    }

    fn exit(&mut self) -> Exit {
        match self.world.next_event(Instant::FAR_FUTURE) {
            Some(WorldEvent::Exited(_, exit)) => exit,
            other => panic!("{other:?}"),
        }
    }

    fn stop(&mut self) {
        self.world.stop(self.node);
        assert_eq!(self.exit(), Exit::Stopped);
    }

    /// The metadata records of the log as batches of names, control batches as `control`.
    fn log(&mut self) -> Vec<Vec<String>> {
        let path = Path::new("/data/__cluster_metadata-0/00000000000000000000.log");
        let bytes = Bytes::copy_from_slice(self.world.disk(self.node).peek(path).expect("exists"));
        let batches = Batches::new(bytes).map_while(Result::ok);
        batches.map(|batch| names(&batch)).collect()
    }
}

fn names(batch: &records::Batch) -> Vec<String> {
    let count = usize::try_from(batch.header().record_count).expect("is positive");
    if batch.header().is_control() {
        return vec!["control".to_owned(); count];
    }
    let mut reader = batch.records(usize::MAX).expect("can be read");
    let mut names = Vec::new();
    while let Some(record) = reader.next_record().expect("can be read") {
        let value = Bytes::copy_from_slice(record.value.expect("has a value"));
        let decoded = VersionedRecord::decode(&value).expect("is a record");
        names.push(match decoded.record {
            Record::NoOp(_) => "no-op".to_owned(),
            Record::Topic(topic) => format!("topic {}", topic.name),
            Record::Partition(partition) => format!("partition {}", partition.partition_id),
            Record::PartitionChange(_) => "partition change".to_owned(),
            Record::FeatureLevel(level) => format!("{} {}", level.name, level.feature_level),
            Record::Config(config) => format!("config {}", config.name),
            Record::BeginTransaction(_) => "begin".to_owned(),
            Record::EndTransaction(_) => "end".to_owned(),
            Record::RegisterController(_) => "controller".to_owned(),
            Record::RegisterBroker(_) => "broker".to_owned(),
            Record::BrokerRegistrationChange(change) => {
                format!("broker change {} {}", change.fenced, change.in_controlled_shutdown)
            }
            Record::ProducerIds(ids) => format!("ids {}", ids.next_producer_id),
            other => format!("{other:?}"),
        });
    }
    names
}

fn ready() -> QuorumRequest {
    ready_after(-1)
}

fn ready_after(previous_epoch: i64) -> QuorumRequest {
    let endpoint = Endpoint {
        name: "PLAINTEXT".into(),
        host: "127.0.0.1".into(),
        port: 9092,
        security_protocol: SecurityProtocol::PLAINTEXT,
    };
    let (endpoints, directories) = (vec![endpoint], Vec::new());
    QuorumRequest::BrokerReady { endpoints, previous_epoch, directories }
}

fn create(name: &str, num_partitions: i32) -> QuorumRequest {
    let topic = CreatableTopic {
        name: name.into(),
        num_partitions,
        replication_factor: 1,
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
    QuorumRequest::CreateTopics(request)
}

/// A request as a client sends it.
fn api<R: protocol::Request>(request: &R, version: i16) -> QuorumRequest {
    let frame = encode_request(1, None, version, request).expect("it is carried").into_bytes();
    QuorumRequest::Api(RequestFrame::decode(frame.slice(4..)).expect("it has a header"))
}

fn response_of<R: protocol::Request>(reply: &QuorumReply, version: i16) -> R::Response {
    let QuorumReply::Api(Ok(frame)) = reply else { panic!("{reply:?}") };
    let mut reader = Reader::new(frame.slice(4..));
    let header_version = R::API_KEY.response_header_version(version);
    ResponseHeader::decode(&mut reader, header_version).expect("it has a header");
    R::Response::decode(&mut reader, version).expect("it is a response")
}

fn code(reply: &QuorumReply) -> ErrorCode {
    match reply {
        QuorumReply::CreateTopics(response) => response.topics[0].error_code,
        other => panic!("{other:?}"),
    }
}

/// Example 1 of the description of Kafka's metadata: what stands in the log of a new node.
#[test]
fn the_log_of_a_new_node_is_that_of_kafka() {
    let mut cluster = Cluster::new(1, FaultPlan::calm());
    let heard =
        cluster.start(vec![ready(), create("orders", 3), QuorumRequest::AllocateProducerIds]);
    cluster.run_until(&heard, 3);
    let log = cluster.log();
    let log: Vec<Vec<&str>> =
        log.iter().map(|batch| batch.iter().map(String::as_str).collect()).collect();
    let expected: [&[&str]; 8] = [
        &["control", "control", "control"],
        &[
            "begin",
            "metadata.version 33",
            "eligible.leader.replicas.version 1",
            "group.version 1",
            "share.version 2",
            "streams.version 1",
            "transaction.version 2",
            "config min.insync.replicas",
            "end",
        ],
        &["controller"],
        &["broker"],
        &["broker change -1 0", "broker change 0 0"],
        &["topic orders", "partition 0", "partition 1", "partition 2"],
        &["ids 1000"],
        &["no-op"],
    ];
    assert_eq!(log, expected[..7]);
    cluster.run_for(Duration::from_millis(50));
    {
        let heard = heard.borrow();
        let first = &heard.published[0].image;
        assert!(first.brokers().is_empty() && first.metadata_version().level() == 33);
        // A reply and an image travel apart: either can be first.
        let published = heard.published.last().expect("there are some");
        assert_eq!(published.image.alive_brokers().count(), 1);
        assert_eq!(published.image.next_producer_id().0, 1_000);
        let topic = published.image.topic_by_name("orders").expect("was created");
        assert_eq!(topic.partitions.len(), 3);
        assert_eq!(published.kraft_version, 1);
        for partition in topic.partitions.keys() {
            let key = intercom::PartitionKey { topic: topic.id, partition: *partition };
            assert_eq!(published.placement.owner(key), Some(ShardId(0)));
        }
        assert!(matches!(heard.replies[0], QuorumReply::BrokerReady(Ok(_))));
    }
    cluster.run_for(Duration::from_millis(1_200));
    let log = cluster.log();
    assert_eq!(log.iter().filter(|batch| batch[..] == ["no-op"]).count(), 2, "one each 500 ms");
    let path = Path::new("/data/__cluster_metadata-0/quorum-state");
    let state = cluster.world.disk(cluster.node).peek(path).expect("is written");
    assert_eq!(
        std::str::from_utf8(state),
        Ok("{\"leaderId\":1,\"leaderEpoch\":1,\"votedId\":-1,\
            \"votedDirectoryId\":\"AAAAAAAAAAAAAAAAAAAAAA\",\"data_version\":1}")
    );
}

#[test]
fn a_restart_goes_on_in_the_next_epoch() {
    let mut cluster = Cluster::new(2, FaultPlan::calm());
    let heard = cluster.start(vec![ready(), create("orders", 2)]);
    cluster.run_until(&heard, 2);
    let Some(QuorumReply::BrokerReady(Ok(epoch))) = heard.borrow_mut().replies.drain(..1).next()
    else {
        panic!("the broker is registered first")
    };
    cluster.stop();
    let log = cluster.log();
    let end: Vec<_> = log.iter().rev().filter(|batch| batch[..] != ["no-op"]).take(2).collect();
    assert_eq!(end[1][..], ["broker change 0 1", "partition change", "partition change"]);
    assert_eq!(end[0][..], ["broker change 1 0"]);

    let heard = cluster.start(vec![ready_after(epoch), create("orders", 2), create("more", 1)]);
    cluster.run_until(&heard, 3);
    let heard = heard.borrow();
    assert_eq!(code(&heard.replies[1]), ErrorCode::TOPIC_ALREADY_EXISTS);
    assert_eq!(code(&heard.replies[2]), ErrorCode::NONE);
    let last = heard.published.last().expect("was published");
    assert_eq!(last.leader_epoch.0, 2);
    let topic = last.image.topic_by_name("orders").expect("was kept");
    for partition in topic.partitions.values() {
        assert_eq!((partition.leader, partition.isr.len()), (NodeId(1), 1));
        assert_eq!(partition.leader_recovery.code(), 0, "it was closed in order");
    }
}

/// What was answered is there after any crash, and a node always comes up again.
#[test]
fn what_was_answered_survives_crashes() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut cluster = Cluster::new(seed, FaultPlan::rough(&mut random));
        let mut created: Vec<String> = Vec::new();
        for round in 0..6 {
            let names: Vec<String> = (0..4).map(|number| format!("t{round}-{number}")).collect();
            let mut script = vec![ready()];
            script.extend(names.iter().map(|name| create(name, 2)));
            let heard = cluster.start(script);
            cluster.world.crash_after_effects(
                cluster.node,
                20 + random.below(120),
                if random.chance(50) { Crash::Process } else { Crash::Machine },
            );
            let deadline = cluster.world.now() + Duration::from_secs(30);
            match cluster.world.next_event(deadline) {
                Some(WorldEvent::Exited(_, Exit::Crashed(_))) => {}
                other => panic!("seed {seed}, round {round}: {other:?}"),
            }
            let heard = heard.borrow();
            if let Some(last) = heard.published.last() {
                for name in &created {
                    assert!(
                        last.image.topic_id(name).is_some(),
                        "seed {seed}: {name} was acknowledged and is lost"
                    );
                }
            }
            for (reply, name) in heard.replies.iter().skip(1).zip(&names) {
                assert_eq!(code(reply), ErrorCode::NONE);
                created.push(name.clone());
            }
        }
    }
}

/// The names of the files of the metadata log that end so.
fn files(cluster: &mut Cluster, end: &str) -> Vec<String> {
    let all = cluster.world.disk(cluster.node).files();
    let here = all.iter().filter_map(|path| path.strip_prefix("/data/__cluster_metadata-0").ok());
    let names = here.map(|path| path.display().to_string());
    names.filter(|name| name.ends_with(end)).collect()
}

/// Snapshots take the place of the log's beginning, whatever breaks off their writing; all that
/// was answered is there after any crash, in a snapshot or in the log.
#[test]
fn snapshots_take_the_place_of_the_logs_beginning() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let config = config(&[
            ("controller.quorum.bootstrap.servers", "127.0.0.1:9093"),
            ("metadata.log.max.record.bytes.between.snapshots", "1000"),
            ("metadata.max.retention.bytes", "6000"),
            ("internal.metadata.log.segment.bytes", "2000"),
        ]);
        let mut cluster = Cluster::with(seed, FaultPlan::rough(&mut random), config);
        let mut created: Vec<String> = Vec::new();
        for round in 0..8 {
            let names: Vec<String> = (0..6).map(|number| format!("t{round}-{number}")).collect();
            let mut script = vec![ready()];
            script.extend(names.iter().map(|name| create(name, 2)));
            let heard = cluster.start(script);
            if round == 7 {
                cluster.run_until(&heard, 7);
                cluster.run_for(Duration::from_secs(5));
                cluster.stop();
            } else {
                let crash = if random.chance(50) { Crash::Process } else { Crash::Machine };
                let effects = 20 + random.below(200);
                cluster.world.crash_after_effects(cluster.node, effects, crash);
                let deadline = cluster.world.now() + Duration::from_secs(60);
                match cluster.world.next_event(deadline) {
                    Some(WorldEvent::Exited(_, Exit::Crashed(_))) => {}
                    other => panic!("seed {seed}, round {round}: {other:?}"),
                }
            }
            let heard = heard.borrow();
            if let Some(last) = heard.published.last() {
                for name in &created {
                    let topic = last.image.topic_by_name(name);
                    assert!(
                        topic.is_some_and(|topic| topic.partitions.len() == 2),
                        "seed {seed}: {name} was acknowledged and is lost"
                    );
                }
            }
            for (reply, name) in heard.replies.iter().skip(1).zip(&names) {
                assert_eq!(code(reply), ErrorCode::NONE);
                created.push(name.clone());
            }
        }
        let snapshots = files(&mut cluster, ".checkpoint");
        let oldest = snapshots.first().expect("one stays");
        assert!(!oldest.starts_with("00000000000000000000"), "seed {seed}: {snapshots:?}");
        assert!(snapshots.len() < 8, "seed {seed}: {snapshots:?}");
        let first = files(&mut cluster, ".log").remove(0);
        assert_ne!(first, "00000000000000000000.log", "seed {seed}");
        assert!(first[..20] <= oldest[..20], "seed {seed}: {first} begins behind {oldest}");
        assert_eq!(files(&mut cluster, ".part"), Vec::<String>::new(), "seed {seed}");
    }
}

/// A segment that is gone is no loss where the newest snapshot has what it held, be there an older
/// segment or not.
#[test]
fn a_gap_below_the_newest_snapshot_is_no_loss() {
    let config = || {
        config(&[
            ("controller.quorum.bootstrap.servers", "127.0.0.1:9093"),
            ("metadata.log.max.record.bytes.between.snapshots", "1000"),
            ("internal.metadata.log.segment.bytes", "5000"),
        ])
    };
    let mut cluster = Cluster::with(1, FaultPlan::calm(), config());
    let created: Vec<String> = (0..40).map(|number| format!("t{number}")).collect();
    let script = std::iter::once(ready()).chain(created.iter().map(|name| create(name, 2)));
    let heard = cluster.start(script.collect());
    cluster.run_until(&heard, 41);
    cluster.run_for(Duration::from_secs(5));
    cluster.world.crash(cluster.node, Crash::Process);
    assert!(matches!(cluster.exit(), Exit::Crashed(_)));
    let newest = files(&mut cluster, ".checkpoint").pop().expect("there is one");
    let logs = files(&mut cluster, ".log");
    assert!(logs.len() > 2 && logs[2][..20] < newest[..20], "{logs:?}, {newest}");
    let gone = format!("/data/__cluster_metadata-0/{}", logs[1]);

    let mut again = Cluster::with(1, FaultPlan::calm(), config());
    let disk = cluster.world.disk(cluster.node);
    for path in disk.files().into_iter().filter(|path| *path != Path::new(&gone)) {
        again.world.disk(again.node).install(&path, disk.peek(&path).expect("it was listed"));
    }
    // Random ids go on, too.
    again.starts = cluster.starts;
    let heard = again.start(vec![ready(), create("last", 1)]);
    again.run_until(&heard, 2);
    let heard = heard.borrow();
    let last = heard.published.last().expect("was published");
    for name in &created {
        let topic = last.image.topic_by_name(name);
        assert!(topic.is_some_and(|topic| topic.partitions.len() == 2), "{name} is lost");
    }
}

/// Time alone makes one, and a snapshot that cannot be written is no harm.
#[test]
fn a_snapshot_is_made_when_the_last_is_old() {
    let config = config(&[
        ("controller.quorum.bootstrap.servers", "127.0.0.1:9093"),
        ("metadata.log.max.snapshot.interval.ms", "60000"),
        ("metadata.max.retention.ms", "150000"),
    ]);
    let mut cluster = Cluster::with(1, FaultPlan::calm(), config);
    // The snapshot of formatting is of a later time than that at which the world begins.
    cluster.world.set_wall_clock(cluster.node, 10 * 365 * 24 * 3_600 * 1_000);
    let heard = cluster.start(vec![ready(), create("orders", 1)]);
    cluster.run_until(&heard, 2);
    cluster.run_for(Duration::from_secs(55));
    assert_eq!(files(&mut cluster, ".checkpoint").len(), 1, "that of formatting");
    cluster.run_for(Duration::from_secs(10));
    let snapshots = files(&mut cluster, ".checkpoint");
    assert_eq!(snapshots.len(), 1, "the first is of long ago: {snapshots:?}");
    assert!(!snapshots[0].starts_with("00000000000000000000"), "{snapshots:?}");
    cluster.run_for(Duration::from_secs(3_600));
    let snapshots = files(&mut cluster, ".checkpoint");
    assert_eq!(snapshots.len(), 3, "what is older than 150 s goes: {snapshots:?}");
}

/// On a full disk nothing is decided and nothing given up; with space all of it goes on.
#[test]
fn a_full_disk_is_waited_for() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed, FaultPlan::rough(&mut Random::new(seed)));
        let data = Path::new("/data");
        let heard = cluster.start(vec![ready(), create("orders", 1), create("more", 2)]);
        cluster.run_until(&heard, 1);
        cluster.world.set_trouble(cluster.node, data, Some(Trouble::Full));
        cluster.run_for(Duration::from_secs(3));
        let before = heard.borrow().replies.len();
        cluster.run_for(Duration::from_secs(3));
        assert_eq!(heard.borrow().replies.len(), before, "seed {seed}");
        cluster.world.set_trouble(cluster.node, data, None);
        cluster.run_until(&heard, 3);
        cluster.world.set_trouble(cluster.node, data, Some(Trouble::Full));
        cluster.run_for(Duration::from_secs(3));
        // Nobody waits for space to stop.
        let asked = cluster.world.now();
        cluster.stop();
        assert!(cluster.world.now().since(asked) < Duration::from_secs(10), "seed {seed}");
        // Nor does a start end for want of it.
        let again = cluster.start(vec![ready(), create("orders", 1), create("last", 1)]);
        cluster.run_for(Duration::from_secs(3));
        assert!(again.borrow().replies.is_empty(), "seed {seed}");
        cluster.world.set_trouble(cluster.node, data, None);
        cluster.run_until(&again, 3);
        let again = again.borrow();
        assert_eq!(code(&again.replies[1]), ErrorCode::TOPIC_ALREADY_EXISTS);
        assert_eq!(code(&again.replies[2]), ErrorCode::NONE);
        let last = again.published.last().expect("was published");
        assert!(last.image.topic_by_name("more").is_some_and(|topic| topic.partitions.len() == 2));
    }
}

#[test]
fn the_quorum_is_described() {
    let mut cluster = Cluster::new(3, FaultPlan::calm());
    let topic = |name: &str| TopicData {
        topic_name: name.into(),
        partitions: vec![PartitionData { partition_index: 0, ..PartitionData::default() }],
        ..TopicData::default()
    };
    let describe = DescribeQuorumRequest {
        topics: vec![topic("__cluster_metadata"), topic("orders")],
        ..DescribeQuorumRequest::default()
    };
    let heard = cluster.start(vec![ready(), api(&describe, 2)]);
    cluster.run_until(&heard, 2);
    let response = response_of::<DescribeQuorumRequest>(&heard.borrow().replies[1], 2);
    let ours = &response.topics[0].partitions[0];
    assert_eq!((ours.error_code, ours.leader_id, ours.leader_epoch), (ErrorCode::NONE, 1, 1));
    assert_eq!(ours.current_voters[0].replica_directory_id, cluster.directory_id);
    assert_eq!(ours.current_voters[0].log_end_offset, ours.high_watermark);
    let other = &response.topics[1].partitions[0];
    assert_eq!(other.error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(
        (&*response.nodes[0].listeners[0].host, response.nodes[0].listeners[0].port),
        ("127.0.0.1", 9093)
    );
}

/// What raft knows to be committed may wait in it for `quorum-state`, and so do the answers.
#[test]
fn an_answer_waits_until_the_high_watermark_has_come_out() {
    let now = Now { mono: Instant::ZERO, wall_ms: 0 };
    let directory_id = Uuid([7; 16]);
    let mut quorum = Quorum::new(QuorumParams {
        listeners: Arc::new([]),
        cluster_id: CLUSTER.to_owned(),
        config: Arc::new(config(&[("controller.quorum.voters", "1@127.0.0.1:9093")])),
        directory: PathBuf::from("/data"),
        directory_id,
        data_shards: 1,
        random: Random::new(1),
    });
    let mut outputs = Vec::new();
    quorum.raft.start(now, None, &mut outputs).expect("it can start");
    let Some(Output::WriteElection(_, written)) = outputs.pop() else { panic!("{outputs:?}") };
    quorum.raft.on_election_written(now, written, &mut outputs);
    quorum.stage = Stage::Leading { activated: Offset(0) };
    let end = quorum.raft.end_offset();
    outputs.clear();
    quorum.raft.on_synced(now, end, &mut outputs);
    assert_eq!(
        (quorum.raft.high_watermark(), &outputs[..]),
        (Some(end), &[Output::HighWatermark(end)][..])
    );

    let mut effects = Effects::new();
    let describe = api(&DescribeQuorumRequest::default(), 2);
    let body = Request::Quorum(Box::new(describe));
    let message = Message::Request { id: Token::NONE, body };
    quorum.step(now, Event::Mesh { from: ShardId(0), message }, &mut effects);
    let is_answered = |effects: &Effects<Message>| {
        let reply = |effect: &Effect<Message>| {
            matches!(effect, Effect::Mesh { message: Message::Reply { .. }, .. })
        };
        effects.as_slice().iter().any(reply)
    };
    assert!(!is_answered(&effects), "{effects:?}");
    quorum.take_outputs(now, outputs, &mut effects);
    assert!(is_answered(&effects), "{effects:?}");
}

#[test]
fn a_directory_that_cannot_be_used_stops_the_node() {
    let folder = "/data/__cluster_metadata-0";
    let fails = |change: &dyn Fn(&mut Cluster)| {
        let mut cluster = Cluster::new(4, FaultPlan::calm());
        let heard = cluster.start(vec![ready()]);
        cluster.run_until(&heard, 1);
        cluster.stop();
        change(&mut cluster);
        cluster.start(vec![]);
        match cluster.exit() {
            Exit::Failed(sentence) => sentence,
            other => panic!("{other:?}"),
        }
    };
    let snapshot = format!("{folder}/00000000000000000000-0000000000.checkpoint");
    let log = format!("{folder}/00000000000000000000.log");
    let sentence = fails(&|cluster| {
        cluster.world.disk(cluster.node).flip_bit(Path::new(&snapshot), 150);
    });
    assert!(sentence.contains(&snapshot), "{sentence}");
    let sentence = fails(&|cluster| {
        let text = b"{\"leaderId\":1}";
        cluster
            .world
            .disk(cluster.node)
            .install(Path::new(&format!("{folder}/quorum-state")), text);
    });
    assert!(sentence.contains("quorum-state cannot be read"), "{sentence}");
    let sentence = fails(&|cluster| {
        let disk = cluster.world.disk(cluster.node);
        let mut bytes = disk.peek(Path::new(&log)).expect("exists").to_vec();
        // The name of a record's feature, with the checksum of its batch made good again.
        let at = bytes.windows(16).position(|part| part == b"metadata.version").expect("is there");
        bytes[at - 3] = 99;
        let crc = records::crc_of(&bytes[174 + 21..504]);
        bytes[174 + 17..174 + 21].copy_from_slice(&crc.to_be_bytes());
        disk.install(Path::new(&log), &bytes);
    });
    assert!(sentence.contains("cannot be used at offset 4"), "{sentence}");
    // Neither the offset nor the epoch of a batch is under its checksum.
    let second = |at: usize, change: fn(&mut u8)| {
        fails(&|cluster| {
            let disk = cluster.world.disk(cluster.node);
            let mut bytes = disk.peek(Path::new(&log)).expect("exists").to_vec();
            assert_eq!(bytes[174..182], 3i64.to_be_bytes(), "the second batch begins here");
            change(&mut bytes[at]);
            disk.install(Path::new(&log), &bytes);
        })
    };
    let sentence = second(181, |offset| *offset += 1);
    assert!(sentence.contains("cannot be used at offset 3: a batch with"), "{sentence}");
    let sentence = second(174 + 15, |epoch| *epoch -= 1);
    assert!(sentence.contains("cannot be used at offset 3: a batch of epoch 0"), "{sentence}");
    let mut cluster = Cluster::new(5, FaultPlan::calm());
    cluster.directory_id = Uuid([9; 16]);
    cluster.start(vec![]);
    let Exit::Failed(sentence) = cluster.exit() else { panic!("another directory is no voter") };
    assert!(sentence.contains("is not a voter"), "{sentence}");
}

#[test]
fn formatting_is_refused_in_the_words_of_kafka() {
    let (dynamic, fixed) = (dynamic(), config(&[("controller.quorum.voters", "1@127.0.0.1:9093")]));
    let level = |name: &str, level| [(name.to_owned(), level)];
    let refused = |request: FormatRequest<'_>| {
        format::plan(&request, &mut Random::new(1)).expect_err("is refused").0
    };
    let standalone = || request(&dynamic, Controllers::Standalone);
    assert!(refused(request(&dynamic, Controllers::Configured)).starts_with(
        "Because controller.quorum.voters is not set on this controller, you must specify one of"
    ));
    assert!(
        refused(request(&fixed, Controllers::Standalone))
            .starts_with("You cannot specify controller.quorum.voters and format the node with")
    );
    let unknown = FormatRequest { release_version: Some("9.9"), ..standalone() };
    assert!(refused(unknown).starts_with(
        "Unknown metadata.version '9.9'. Supported metadata.version are: 3.3-IV3, 3.4-IV0, "
    ));
    let features = [
        (
            level("nope", 1),
            "Unsupported feature: nope. Supported features are: eligible.leader.replicas.version, \
             group.version, kraft.version, share.version, streams.version, transaction.version",
        ),
        (level("group.version", 7), "No feature:group.version with feature level 7"),
        (
            level("metadata.version", 25),
            "Use --release-version instead of --feature metadata.version=X to avoid ambiguity.",
        ),
    ];
    for (features, message) in features {
        assert_eq!(refused(FormatRequest { features: &features, ..standalone() }), message);
    }
    let properties = commitlog::MetaProperties {
        cluster_id: CLUSTER.to_owned(),
        node_id: NodeId(1),
        directory_id: None,
    };
    let formatted = [(PathBuf::from("/data"), properties)];
    let again = FormatRequest { formatted: &formatted, ..standalone() };
    assert_eq!(
        refused(again.clone()),
        "Log directory /data is already formatted. Use --ignore-formatted to ignore this \
         directory and format the others."
    );
    let words = format!(
        "Invalid cluster.id in: /data/meta.properties. Expected AAAAAAAAAAAAAAAAAAAAAw, but read \
         {CLUSTER}: the directory is already formatted"
    );
    let other = FormatRequest { cluster_id: "AAAAAAAAAAAAAAAAAAAAAw", ..again.clone() };
    assert!(refused(other).starts_with(&words));
    let ignored = FormatRequest { ignore_formatted: true, ..again };
    let plan = format::plan(&ignored, &mut Random::new(1)).expect("there is nothing to do");
    assert_eq!(plan.messages, ["All of the log directories are already formatted."]);
    assert_eq!(plan.files, []);
}

#[test]
fn formatting_says_what_kafka_says() {
    let dynamic = dynamic();
    let of_4_0 = FormatRequest {
        release_version: Some("4.0"),
        ..request(&dynamic, Controllers::Standalone)
    };
    let plan = format::plan(&of_4_0, &mut Random::new(1)).expect("can be formatted");
    assert_eq!(
        plan.messages,
        [
            "Bootstrap metadata: BootstrapMetadata(records=[ApiMessageAndVersion(\
             FeatureLevelRecord(name='metadata.version', featureLevel=25) at version 0), \
             ApiMessageAndVersion(FeatureLevelRecord(name='group.version', featureLevel=1) at \
             version 0), ApiMessageAndVersion(FeatureLevelRecord(name='transaction.version', \
             featureLevel=2) at version 0)], metadataVersionLevel=25, source=format command)",
            "Formatting dynamic metadata voter directory /data with metadata.version 4.0-IV3.",
        ]
    );
    let names: Vec<&Path> = plan.files.iter().map(|file| file.path.as_path()).collect();
    let snapshot = "/data/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint";
    assert_eq!(names, [Path::new(snapshot), Path::new("/data/meta.properties")]);
    let voters =
        format::parse_initial_controllers("1@127.0.0.1:29493:4rrYtq7BToiZRRu0fVVEog").expect("one");
    let initial = request(&dynamic, Controllers::Initial(voters));
    let plan = format::plan(&initial, &mut Random::new(1)).expect("can be formatted");
    let properties = String::from_utf8(plan.files[1].contents.to_vec()).expect("is text");
    assert!(properties.contains("directory.id=4rrYtq7BToiZRRu0fVVEog\n"), "{properties}");
    for wrong in
        ["", "1", "1@:1:4rrYtq7BToiZRRu0fVVEog", "x@h:1:4rrYtq7BToiZRRu0fVVEog", "1@h:1:no"]
    {
        assert!(format::parse_initial_controllers(wrong).is_err(), "{wrong}");
    }
}

/// The folder of a node of Apache Kafka 4.4.0 that made a topic, was stopped, was started, was
/// killed, and was started and stopped again.
#[test]
fn a_directory_that_kafka_wrote_goes_on() {
    let files: [(&str, &[u8]); 5] = [
        ("00000000000000000000.log", include_bytes!("testdata/kafka/00000000000000000000.log")),
        (
            "00000000000000000000-0000000000.checkpoint",
            include_bytes!("testdata/kafka/bootstrap.checkpoint"),
        ),
        ("leader-epoch-checkpoint", include_bytes!("testdata/kafka/leader-epoch-checkpoint")),
        ("partition.metadata", include_bytes!("testdata/kafka/partition.metadata")),
        ("quorum-state", include_bytes!("testdata/kafka/quorum-state")),
    ];
    let mut cluster = Cluster::new(6, FaultPlan::calm());
    for (name, bytes) in files {
        let path = Path::new("/data/__cluster_metadata-0").join(name);
        cluster.world.disk(cluster.node).install(&path, bytes);
    }
    cluster.directory_id = "4rrYtq7BToiZRRu0fVVEog".parse().expect("is an id");
    let all = cluster.start(vec![ready(), create("orders", 1), create("more", 1)]);
    cluster.run_until(&all, 3);
    cluster.run_for(Duration::from_millis(50));
    let heard = all.borrow();
    assert_eq!(code(&heard.replies[1]), ErrorCode::TOPIC_ALREADY_EXISTS);
    assert_eq!(code(&heard.replies[2]), ErrorCode::NONE);
    let last = heard.published.last().expect("was published");
    assert_eq!((last.leader_epoch.0, last.kraft_version), (4, 1));
    let topic = last.image.topic_by_name("orders").expect("Kafka made it");
    assert_eq!(topic.id.to_string(), "7xqL672TRf6DFgXSB5MSng");
    assert!(topic.partitions.values().all(|partition| partition.leader == NodeId(1)));
    drop(heard);
    // Its controller listens elsewhere now, and the log says so.
    let log = cluster.log();
    let batches_of = |controls: usize| {
        log.iter().filter(|batch| batch[..] == vec!["control"; controls][..]).count()
    };
    assert_eq!(batches_of(1), 2, "the later epochs of Kafka");
    assert_eq!(batches_of(3), 2, "its first epoch with the voters, and ours with new endpoints");
    let heard = all.borrow();
    let last = heard.published.last().expect("was published");
    let resource = metadata::Resource::topic("orders");
    assert_eq!(last.image.config(&resource, "retention.ms").map(|value| &**value), Some("10000"));
}
