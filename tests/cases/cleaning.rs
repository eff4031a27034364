//! The same logs cleaned by Apache Kafka and by Corelane: the same is left, batch for batch. The
//! short and the full form stand with the campaigns.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use blackbox::{Broker, CLUSTER_ID, Running, Target, quick_java, target};

/// While the logs are written nothing is cleaned.
pub(crate) const NEVER: [(&str, &str); 4] =
    [("log.cleaner.enable", "false"), EAGER[0], EAGER[1], EAGER[2]];
/// Cleaned at once, whatever the ratio.
pub(crate) const EAGER: [(&str, &str); 3] = [
    ("log.cleaner.backoff.ms", "100"),
    ("log.cleaner.min.cleanable.ratio", "0.0001"),
    ("log.flush.offset.checkpoint.interval.ms", "200"),
];
pub(crate) const CHECKPOINT: &str = "data/cleaner-offset-checkpoint";

/// What the clients do.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    seed: u64,
    steps: u32,
    /// In milliseconds since 1970.
    pub(crate) first: u128,
}

impl Workload {
    pub(crate) fn new(seed: u64, steps: u32) -> Workload {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        Workload { seed, steps, first: time.as_millis() }
    }

    pub(crate) fn run(&self, broker: &Broker, word: &str) -> Vec<String> {
        let mut command = quick_java("Cleaning");
        command.arg(broker.address()).arg(self.seed.to_string()).arg(self.first.to_string());
        command.arg(self.steps.to_string()).arg(word);
        let said = Running::start(&mut command).finish().ok().stdout;
        said.lines().map(str::to_owned).collect()
    }
}

/// A data directory that nothing cleans yet, and what the clients said.
struct Written {
    broker: Broker,
    said: Vec<String>,
}

impl Written {
    fn by(program: Target, workload: Workload, word: &str) -> Written {
        let mut broker = Broker::prepare(&NEVER);
        broker.set_program(program);
        broker.format(&format!("--cluster-id {CLUSTER_ID}")).ok();
        broker.start_again();
        let said = workload.run(&broker, word);
        broker.stop();
        let checkpoint = fs::read_to_string(broker.path(CHECKPOINT)).unwrap_or_default();
        assert!(!checkpoint.contains("c-"), "it was not to be cleaned: {checkpoint}");
        Written { broker, said }
    }

    /// Where each topic is clean to, once it is: where its last segment begins, or the one in which
    /// a transaction is open.
    fn ends(&self) -> Vec<(String, i64)> {
        let of = |word: &'static str| {
            let lines = self.said.iter().filter_map(move |line| line.strip_prefix(word));
            lines.map(|line| {
                let (topic, offset) = line.split_once(' ').expect("a topic and an offset");
                (topic.to_owned(), offset.parse::<i64>().expect("a number"))
            })
        };
        let open: Vec<_> = of("open ").collect();
        let ends = of("end ").map(|(topic, offset)| {
            let Some((_, begins)) = open.iter().find(|(open, _)| *open == topic) else {
                return (topic, offset);
            };
            let segments = segments(&self.broker.data().join(format!("{topic}-0")));
            let base = segments.into_iter().filter(|base| base <= begins).max();
            (topic, base.expect("it begins at 0"))
        });
        ends.collect()
    }
}

/// What a program makes of a directory: after its first round of cleaning, and after some more.
struct Cleaned {
    broker: Broker,
    first: Vec<String>,
    later: Vec<String>,
}

impl Cleaned {
    fn by(program: Target, written: &Written, workload: Workload) -> Cleaned {
        let mut broker = Broker::prepare(&EAGER);
        broker.set_program(program);
        copy(&written.broker.data(), &broker.data());
        broker.start_again();
        let ends = written.ends();
        for (topic, end) in &ends {
            broker.waits_for(CHECKPOINT, &format!("{topic} 0 {end}"));
        }
        // Nothing is dirty now but the last segments.
        let first = dump(&broker, &ends);
        let checkpoint = broker.path(CHECKPOINT);
        workload.run(&broker, &format!("poke={}", checkpoint.display()));
        broker.stop();
        let later = dump(&broker, &ends);
        Cleaned { broker, first, later }
    }

    /// What consumers see when `program` has the directory.
    fn read_by(&mut self, program: Target, workload: Workload) -> Vec<String> {
        self.broker.set_program(program);
        self.broker.start_again();
        let seen = workload.run(&self.broker, "read");
        self.broker.stop();
        seen
    }
}

/// Written by clients to Apache Kafka with transactions, and cleaned by both; then each reads what
/// the other one left.
pub(crate) fn transactions(workload: Workload) {
    let written = Written::by(Target::Kafka, workload, "transact");
    let mut kafka = Cleaned::by(Target::Kafka, &written, workload);
    let mut own = Cleaned::by(target(), &written, workload);
    for (lines, word) in [
        (&kafka.first, "COMMIT"),
        (&kafka.first, "ABORT"),
        (&kafka.first, "lastStableOffset: "),
        (&kafka.first, " count: 0 "),
        (&kafka.later, "deleteHorizonMs: some"),
    ] {
        assert!(lines.iter().any(|line| line.contains(word)), "no line has {word}");
    }
    assert_same(&kafka.first, &own.first);
    assert_same(&kafka.later, &own.later);
    assert!(kafka.later.len() < kafka.first.len(), "more goes in later rounds");
    let seen = kafka.read_by(target(), workload);
    assert_same(&own.read_by(Target::Kafka, workload), &seen);
}

/// Written to both without transactions, and cleaned by the one that it was written to.
pub(crate) fn plain(workload: Workload) {
    let cleaned = [Target::Kafka, target()].map(|program| {
        let written = Written::by(program, workload, "plain");
        let mut cleaned = Cleaned::by(program, &written, workload);
        let other = if program == Target::Kafka { target() } else { Target::Kafka };
        let seen = cleaned.read_by(other, workload);
        // Who a producer is, is the broker's to say.
        let anonymous = |lines: Vec<String>| {
            let lines = lines.iter().map(|line| without(line, "producerId: "));
            lines.collect::<Vec<String>>()
        };
        (written.said, anonymous(cleaned.first), anonymous(cleaned.later), seen)
    });
    let [kafka, own] = cleaned;
    assert_same(&kafka.0, &own.0);
    assert_same(&kafka.1, &own.1);
    assert_same(&kafka.2, &own.2);
    assert_same(&kafka.3, &own.3);
}

/// What stands in the files of the topics, as Kafka's own reader has it: the segments, their
/// batches, records and markers, and the transactions that were aborted; without what depends on
/// the time of the cleaning and on how well a broker compresses.
fn dump(broker: &Broker, topics: &[(String, i64)]) -> Vec<String> {
    let mut files: Vec<PathBuf> = Vec::new();
    for (topic, _) in topics {
        let mut found: Vec<PathBuf> = entries(&broker.data().join(format!("{topic}-0")));
        found.retain(|path| path.extension().is_some_and(|it| it == "log" || it == "txnindex"));
        found.sort();
        files.extend(found);
    }
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let line = format!("dump-log --deep-iteration --print-data-log --files {}", names.join(","));
    let said = broker.kafka(&line).ok().stdout;
    let folder = broker.data().display().to_string();
    said.lines().map(|line| line.replace(&folder, "")).map(|line| comparable(&line)).collect()
}

fn comparable(line: &str) -> String {
    let changing = ["position: ", "size: ", "crc: "];
    let line = changing.into_iter().fold(line.to_owned(), |line, name| without(&line, name));
    match line.split_once("deleteHorizonMs: OptionalLong[") {
        Some((before, rest)) => {
            let after = rest.split_once(']').map_or("", |(_, after)| after);
            format!("{before}deleteHorizonMs: some{after}")
        }
        None => line,
    }
}

/// A line without the value of a field.
fn without(line: &str, field: &str) -> String {
    let Some((before, rest)) = line.split_once(&format!(" {field}")) else {
        return line.to_owned();
    };
    let after = rest.split_once(' ').map_or("", |(_, after)| after);
    format!("{before} {after}")
}

/// The base offsets of the segments of a log.
fn segments(folder: &Path) -> Vec<i64> {
    let logs =
        entries(folder).into_iter().filter(|path| path.extension().is_some_and(|it| it == "log"));
    let bases = logs.filter_map(|path| path.file_stem()?.to_str()?.parse().ok());
    bases.collect()
}

pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    entries.map(|entry| entry.expect("it can be listed").path()).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for path in entries(from) {
        let target = to.join(path.file_name().expect("it has a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("a copy");
        }
    }
}

#[track_caller]
fn assert_same(kafka: &[String], own: &[String]) {
    let place = kafka.iter().zip(own).position(|(kafka, own)| kafka != own);
    let place = place.unwrap_or(kafka.len().min(own.len()));
    let around = |lines: &[String]| {
        let begin = place.saturating_sub(4).min(lines.len());
        lines[begin..(place + 3).min(lines.len())].join("\n")
    };
    assert!(kafka == own, "--- Kafka\n{}\n--- Corelane\n{}", around(kafka), around(own));
}
