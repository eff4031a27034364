//! What administrators do: quotas, credentials, access rules, tokens, and sequences of requests
//! that are sent to Apache Kafka and to Corelane alike.

use std::collections::BTreeMap;

use blackbox::{Broker, CLUSTER_ID, Running, Target, quick_java};
use serde_json::Value;

/// Nothing is written to the metadata log for the sake of it.
const QUIET: [(&str, &str); 1] = [("metadata.max.idle.interval.ms", "0")];

/// A sequence of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sequence {
    /// What is drawn.
    pub(crate) seed: u64,
    /// How many requests.
    pub(crate) requests: u32,
    /// The metadata.version to begin with.
    pub(crate) release: &'static str,
}

/// What a broker said and wrote.
struct Outcome {
    said: Vec<String>,
    records: Vec<String>,
    /// It has stopped.
    broker: Broker,
}

impl Sequence {
    /// Sends the sequence to both brokers: they must answer the same and write the same records,
    /// and what Corelane holds then must be there when it is started again.
    #[track_caller]
    pub(crate) fn compare(self) {
        let (kafka, corelane) = (self.run(Target::Kafka), self.run(Target::Corelane));
        assert_eq!(kafka.said.len(), corelane.said.len(), "{self:?}");
        assert!(kafka.said.len() > usize::try_from(self.requests).expect("few"), "{self:?}");
        let same = |what, of_kafka: &[String], own: &[String]| {
            let pairs = of_kafka.iter().zip(own);
            let differs = pairs.enumerate().find(|(_, (of_kafka, own))| of_kafka != own);
            if let Some((number, (of_kafka, own))) = differs {
                panic!("{what} {number} of {self:?}\nKafka:    {of_kafka}\nCorelane: {own}");
            }
            assert_eq!(of_kafka.len(), own.len(), "{what}, {self:?}");
        };
        same("answer", &kafka.said, &corelane.said);
        same("record", &kafka.records, &corelane.records);
        // What is listed at the end was the same. Kafka is not asked again: after a start it was
        // seen to list one credential of a user who has two.
        let listed = self.list_again(corelane.broker);
        let before = &corelane.said[corelane.said.len() - listed.len()..];
        assert_eq!(before, listed, "before and after a start, {self:?}");
    }

    fn run(self, program: Target) -> Outcome {
        let mut broker = Broker::prepare(&QUIET);
        broker.set_program(program);
        let options = format!("--cluster-id {CLUSTER_ID} --release-version {}", self.release);
        broker.format(&options).ok();
        broker.start_again();
        let said = self.send(&broker, &[]);
        broker.stop();
        let records = records(&broker);
        Outcome { said, records, broker }
    }

    /// What a broker lists when it is started again.
    fn list_again(self, mut broker: Broker) -> Vec<String> {
        broker.start_again();
        self.send(&broker, &["listed"])
    }

    fn send(self, broker: &Broker, more: &[&str]) -> Vec<String> {
        let mut command = quick_java("AdminSequence");
        command.arg(broker.address()).arg(self.seed.to_string());
        command.arg(self.requests.to_string()).args(more);
        let said = Running::start(&mut command).finish().ok().stdout;
        said.lines().map(str::to_owned).collect()
    }
}

/// The records of the metadata log, without what is each broker's own: its registration, and where
/// it puts its replicas, which both tell when they come to it.
fn records(broker: &Broker) -> Vec<String> {
    const OWN: [&str; 6] = [
        "NO_OP_RECORD",
        "BEGIN_TRANSACTION_RECORD",
        "END_TRANSACTION_RECORD",
        "REGISTER_BROKER_RECORD",
        "REGISTER_CONTROLLER_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
    ];
    let log = "data/__cluster_metadata-0/00000000000000000000.log";
    let line =
        format!("dump-log --cluster-metadata-decoder --files {}", broker.path(log).display());
    let dumped = broker.kafka(&line).ok().stdout;
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    let mut topics: BTreeMap<String, String> = BTreeMap::new();
    for line in dumped.lines() {
        if line.starts_with("baseOffset:") {
            // What one request leads to is written in the order of a hash table.
            batch.sort();
            all.append(&mut batch);
        }
        let Some((_, payload)) = line.split_once("payload: ") else { continue };
        let mut record: Value = serde_json::from_str(payload).expect("a record is JSON");
        let kind = record["type"].as_str().unwrap_or_default().to_owned();
        let data = record["data"].as_object_mut().expect("a record has fields");
        let has_directories = data.remove("directories").is_some();
        let only_directories = has_directories && data.len() == 2;
        if OWN.contains(&&*kind) || (kind == "PARTITION_CHANGE_RECORD" && only_directories) {
            continue;
        }
        data.remove("brokerEpoch");
        let id = data.get("topicId").and_then(Value::as_str).map(str::to_owned);
        if let Some(id) = id {
            let next = format!("topic {}", topics.len());
            let name = data.get("name").and_then(Value::as_str).map_or(next, str::to_owned);
            let known = topics.entry(id).or_insert(name).clone();
            data.insert("topicId".to_owned(), Value::from(known));
        }
        batch.push(record.to_string());
    }
    batch.sort();
    all.append(&mut batch);
    all
}

#[test]
fn quotas_are_kept() {
    let mut broker = Broker::start(&[]);
    let set =
        |entity: &str, config: &str| format!("configs --alter {entity} --add-config {config}");
    let entities = [
        ("--entity-type users --entity-name alice", "producer_byte_rate=1024.0"),
        ("--entity-type users --entity-default", "request_percentage=5000.5"),
        ("--entity-type clients --entity-name app", "consumer_byte_rate=2048.0"),
        ("--entity-type clients --entity-default", "controller_mutation_rate=1000.0"),
        ("--entity-type ips --entity-name 10.0.0.1", "connection_creation_rate=5.0"),
        ("--entity-type ips --entity-default", "connection_creation_rate=900.0"),
        (
            "--entity-type users --entity-name bob --entity-type clients --entity-default",
            "producer_byte_rate=3.0",
        ),
    ];
    for (entity, config) in entities {
        broker.kafka(&set(entity, config)).ok();
    }
    for is_again in [false, true] {
        if is_again {
            broker.stop();
            broker.start_again();
        }
        for (entity, config) in entities {
            broker.kafka(&format!("configs --describe {entity}")).ok().says(config);
        }
    }
    let alice = "--entity-type users --entity-name alice";
    broker.kafka(&format!("configs --alter {alice} --delete-config producer_byte_rate")).ok();
    let described = broker.kafka(&format!("configs --describe {alice}")).ok();
    assert!(!described.stdout.contains("producer_byte_rate"), "{described}");
    broker
        .kafka(&set("--entity-type clients --entity-name app", "producer_byte_rate=-1"))
        .fails()
        .says("Quota producer_byte_rate must be greater than 0");
}

#[test]
fn credentials_are_kept() {
    let mut broker = Broker::start(&[]);
    let alter = "configs --alter --entity-type users --entity-name carol";
    let describe = "configs --describe --entity-type users --entity-name carol";
    broker
        .kafka(&format!("{alter} --add-config SCRAM-SHA-256=[iterations=8192,password=secret]"))
        .ok()
        .prints("Completed updating config for user carol.");
    broker.kafka(&format!("{alter} --add-config SCRAM-SHA-512=[password=secret]")).ok();
    for is_again in [false, true] {
        if is_again {
            broker.stop();
            broker.start_again();
        }
        // In which order Kafka's table of mechanisms has them differs from run to run.
        broker
            .kafka(describe)
            .ok()
            .says("SCRAM credential configs for user-principal 'carol' are SCRAM-SHA-")
            .says("SCRAM-SHA-256=iterations=8192")
            .says("SCRAM-SHA-512=iterations=4096");
    }
    broker.kafka(&format!("{alter} --delete-config SCRAM-SHA-256")).ok();
    broker.kafka(describe).ok().says(
        "SCRAM credential configs for user-principal 'carol' are SCRAM-SHA-512=iterations=4096",
    );
    broker
        .kafka(&format!("{alter} --add-config SCRAM-SHA-256=[iterations=10,password=secret]"))
        .fails()
        .says("Iterations 10 is less than the minimum 4096 required for SCRAM-SHA-256");
    broker
        .kafka(&format!("{alter} --delete-config SCRAM-SHA-256"))
        .fails()
        .says("Attempt to delete a user credential that does not exist");
}

#[test]
fn access_rules_and_tokens_need_security() {
    let broker = Broker::shared();
    let none = "SecurityDisabledException: No Authorizer is configured";
    broker.kafka("acls --list").fails().says(none);
    broker
        .kafka("acls --add --allow-principal User:a --operation Read --topic t")
        .fails()
        .says(none);
    let refused = "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and \
                   on delegation token authenticated channels.";
    let settings = broker.path("client.properties");
    std::fs::write(&settings, "").expect("an empty file");
    let settings = settings.display();
    for line in ["--create --max-life-time-period -1", "--describe"] {
        broker
            .kafka(&format!("delegation-tokens --command-config {settings} {line}"))
            .fails()
            .says(refused);
    }
}
