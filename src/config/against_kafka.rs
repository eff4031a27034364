//! The same questions put to this crate as to Apache Kafka 4.4.0, whose answers stand in
//! `testdata/` (written by `cargo xtask config-keys`).

use crate::alter::{self, AlterError, Change, Operation, Scope};
use crate::broker::BrokerConfig;
use crate::describe::{self, Entry, Source};
use crate::layers::Layers;
use crate::properties::{self, Pairs};
use crate::topic;

fn pairs(text: &str) -> Pairs {
    properties::parse(text.as_bytes()).expect("the cases have no wrong escapes")
}

/// One block of a file of cases.
struct Case<'a> {
    text: &'a str,
    server: Pairs,
    altered: Pairs,
    old: Pairs,
    answer: &'a str,
}

fn cases(file: &str) -> impl Iterator<Item = Case<'_>> {
    let mut blocks = file.trim().split("\n\n");
    let base = pairs(blocks.next().expect("the first block is the base"));
    blocks.map(move |text| {
        let (mut server, mut altered, mut old) = (base.clone(), Pairs::new(), Pairs::new());
        let mut answer = None;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("- ") {
                server.remove(name);
            } else if let Some(pair) = line.strip_prefix("+ ") {
                server.extend(pairs(pair));
            } else if let Some(pair) = line.strip_prefix("= ") {
                altered.extend(pairs(pair));
            } else if let Some(pair) = line.strip_prefix("old ") {
                old.extend(pairs(pair));
            } else if let Some(text) = line.strip_prefix("> ") {
                answer = Some(text);
            }
        }
        Case { text, server, altered, old, answer: answer.expect("each block has an answer") }
    })
}

/// Runs every case, and shows all that differ at once.
fn check(file: &str, ours: impl Fn(&Case<'_>) -> String) {
    let mut differ = String::new();
    for case in cases(file) {
        let ours = ours(&case);
        if ours != case.answer {
            differ.push_str(&format!("{}\nours: {ours}\n\n", case.text));
        }
    }
    assert!(differ.is_empty(), "these differ from Kafka:\n\n{differ}");
}

fn answer(result: Result<(), AlterError>) -> String {
    match result {
        Ok(()) => "ok".to_owned(),
        Err(AlterError::InvalidConfig(message)) => format!("INVALID_CONFIG {message}"),
        Err(AlterError::InvalidRequest(message)) => format!("INVALID_REQUEST {message}"),
    }
}

#[test]
fn files_are_refused_with_the_words_of_kafka() {
    check(include_str!("testdata/server_cases.txt"), |case| {
        match BrokerConfig::from_pairs(case.server.clone()) {
            Ok(_) => "ok".to_owned(),
            Err(error) => error.to_string(),
        }
    });
}

#[test]
fn topics_are_altered_as_by_kafka() {
    check(include_str!("testdata/topic_cases.txt"), |case| {
        let config = BrokerConfig::from_pairs(case.server.clone()).expect("the file is right");
        let remote = config.settings().boolean("remote.log.storage.system.enable");
        let result = topic::check(config.topic_defaults(), &case.old, &case.altered, remote);
        answer(result.map_err(AlterError::InvalidConfig))
    });
}

fn check_brokers(file: &str, scope: Scope) {
    check(file, |case| {
        let config = BrokerConfig::from_pairs(case.server.clone()).expect("the file is right");
        let result = alter::with_altered(&Layers::new(config), scope, &case.altered);
        answer(result.map(|_| ()).map_err(AlterError::InvalidRequest))
    });
}

#[test]
fn brokers_are_altered_as_by_kafka() {
    check_brokers(include_str!("testdata/broker_cases.txt"), Scope::ThisBroker);
    check_brokers(include_str!("testdata/default_cases.txt"), Scope::AllBrokers);
}

fn source_name(source: Source) -> &'static str {
    match source {
        Source::Topic => "DYNAMIC_TOPIC_CONFIG",
        Source::DynamicBroker => "DYNAMIC_BROKER_CONFIG",
        Source::DynamicDefaultBroker => "DYNAMIC_DEFAULT_BROKER_CONFIG",
        Source::StaticBroker => "STATIC_BROKER_CONFIG",
        Source::Default => "DEFAULT_CONFIG",
        Source::ClientMetrics => "CLIENT_METRICS_CONFIG",
        Source::Group => "GROUP_CONFIG",
    }
}

fn line(entry: &Entry) -> String {
    let or_null = |value: &Option<String>| value.clone().unwrap_or_else(|| "null".to_owned());
    let synonym = |one: &describe::Synonym| {
        format!("{}:{}={}", source_name(one.source), one.name, or_null(&one.value))
    };
    let synonyms: Vec<String> = entry.synonyms.iter().map(synonym).collect();
    [
        entry.name.as_str(),
        &or_null(&entry.value),
        source_name(entry.source),
        if entry.is_read_only { "read-only" } else { "-" },
        if entry.is_sensitive { "sensitive" } else { "-" },
        entry.kind.map_or("UNKNOWN", |kind| kind.name()),
        &synonyms.join("; "),
    ]
    .join("\t")
}

fn assert_described(ours: &[Entry], file: &str) {
    let theirs: Vec<&str> = file.lines().collect();
    let ours: Vec<String> = ours.iter().map(line).collect();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
}

/// The state of a node that the commands of `describe_commands.txt` change.
struct Node {
    layers: Layers,
    topic: Pairs,
}

impl Node {
    fn alter(&mut self, words: &[&str]) -> String {
        let operation = match words[0] {
            "set" => Operation::Set,
            "delete" => Operation::Delete,
            "append" => Operation::Append,
            "subtract" => Operation::Subtract,
            other => panic!("{other} is no command"),
        };
        let value = Some(words.get(4).copied().unwrap_or_default());
        let changes = [Change { name: words[3], operation, value }];
        let take = |mut pairs: Pairs, altered: alter::Altered| {
            for (name, value) in altered {
                match value {
                    Some(value) => pairs.insert(name, value),
                    None => pairs.remove(&name),
                };
            }
            pairs
        };
        let result = match (words[1], words[2]) {
            ("TOPIC", _) => alter::apply_to_topic(&self.topic, &changes)
                .and_then(|new| alter::replace_topic(self.layers.current(), &self.topic, &new))
                .map(|altered| self.topic = take(self.topic.clone(), altered)),
            (_, name) => {
                let scope = if name == "-" { Scope::AllBrokers } else { Scope::ThisBroker };
                alter::alter_broker(&self.layers, scope, &changes).map(|altered| {
                    let (mut cluster, mut broker) =
                        (self.layers.cluster().clone(), self.layers.broker().clone());
                    match scope {
                        Scope::AllBrokers => cluster = take(cluster, altered),
                        Scope::ThisBroker => broker = take(broker, altered),
                    }
                    let left_out = self.layers.alter(cluster, broker);
                    assert_eq!(left_out, Ok(Vec::new()));
                })
            }
        };
        answer(result)
    }

    fn describe(&self, kind: &str, name: &str) -> Vec<Entry> {
        match (kind, name) {
            ("TOPIC", _) => describe::describe_topic(&self.layers, &self.topic).expect("valid"),
            (_, "-") => describe::describe_all_brokers(&self.layers),
            (_, _) => describe::describe_broker(&self.layers),
        }
    }
}

fn described_by_kafka(file: &str) -> &'static str {
    match file {
        "describe_topic_static.txt" => include_str!("testdata/describe_topic_static.txt"),
        "describe_broker_static.txt" => include_str!("testdata/describe_broker_static.txt"),
        "describe_default_static.txt" => include_str!("testdata/describe_default_static.txt"),
        "describe_topic_dynamic.txt" => include_str!("testdata/describe_topic_dynamic.txt"),
        "describe_broker_dynamic.txt" => include_str!("testdata/describe_broker_dynamic.txt"),
        "describe_default_dynamic.txt" => include_str!("testdata/describe_default_dynamic.txt"),
        other => panic!("{other} is no file of descriptions"),
    }
}

/// A broker of Kafka's ran these commands; here they run again. What is not asked of this crate
/// (which topics exist, names of resources) is left out.
#[test]
fn a_running_node_answers_as_kafka_does() {
    let file = include_bytes!("testdata/describe_server.properties");
    let mut layers = Layers::new(BrokerConfig::parse(file).expect("Kafka started with it"));
    // Kafka's format command puts this into the metadata with the feature of eligible leaders.
    layers.alter(pairs("min.insync.replicas=1"), Pairs::new()).expect("it is valid");
    let mut node = Node { layers, topic: Pairs::new() };
    let mut differ = String::new();
    let mut lines = include_str!("testdata/describe_commands.txt").lines();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        let is_asked = match (words[0], words[1]) {
            ("topic", _) => false,
            (_, "TOPIC") => words[2] == "plain",
            (_, kind) => kind == "BROKER",
        };
        if words[0] == "describe" && is_asked {
            assert_described(&node.describe(words[1], words[2]), described_by_kafka(words[3]));
        } else if words[0] != "topic" && words[0] != "describe" {
            let theirs = lines.next().and_then(|line| line.strip_prefix("> "));
            let theirs = theirs.expect("an answer follows each change");
            let ours = if is_asked { node.alter(&words) } else { theirs.to_owned() };
            if ours != theirs {
                differ.push_str(&format!("{line}\n> {theirs}\nours: {ours}\n"));
            }
        }
    }
    assert!(differ.is_empty(), "these differ from Kafka:\n{differ}");
}
