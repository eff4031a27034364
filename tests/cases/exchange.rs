//! A data directory that goes from Apache Kafka to Corelane and back, and the other way round: each
//! finds what the other one left, and Kafka finds nothing to complain of.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use blackbox::{Broker, CLUSTER_ID, Running, Target, compiled, fits, quick_java, target, wire};

use crate::cleaning::entries;

/// What Kafka complains of on its own directory, too.
const USUAL_COMPLAINTS: &[&str] = &[
    "* Performing controller activation.*",
    // It registers before it knows that it leads.
    "* ERROR [ControllerApis nodeId=1] Unexpected error handling request \
     RequestHeader(apiKey=CONTROLLER_REGISTRATION, *",
    "* Attempting to close NetworkClient that has already been closed.*",
    // The machine has other things to do.
    "* ERROR [QuorumController id=1] Exceptionally slow controller event *",
];

/// How a broker ends.
#[derive(Clone, Copy)]
enum End {
    Stop,
    Kill,
}

#[test]
fn from_kafka_and_back_in_order() {
    goes_and_returns(Target::Kafka, target(), End::Stop);
}

#[test]
fn from_kafka_and_back_killed() {
    goes_and_returns(Target::Kafka, target(), End::Kill);
}

#[test]
fn to_kafka_and_back_in_order() {
    goes_and_returns(target(), Target::Kafka, End::Stop);
}

#[test]
fn to_kafka_and_back_killed() {
    goes_and_returns(target(), Target::Kafka, End::Kill);
}

fn goes_and_returns(home: Target, guest: Target, end: End) {
    let mut exchange = Exchange::prepare(&[], home);
    // Only Kafka can begin and end transactions.
    let has_transactions = home == Target::Kafka;
    let mut words = vec!["fill"];
    if has_transactions {
        words.push("transact");
    }
    if let End::Stop = end {
        // Kafka writes down where a log starts once a minute: one that is killed forgets it.
        words.push("trim");
    }
    words.push("read");
    let filled = exchange.run(&words);

    exchange.ends(end);
    exchange.starts_as(guest);
    let seen_by_guest = exchange.run(&["read", "more", "read"]);
    assert_same(&filled[0], &seen_by_guest[0]);

    exchange.ends(end);
    exchange.starts_as(home);
    let words: &[&str] = if has_transactions {
        &["read", "finish", "last", "read"]
    } else {
        &["read", "last", "read"]
    };
    let seen_at_home = exchange.run(words);
    assert_same(&seen_by_guest[1], &seen_at_home[0]);

    exchange.ends(end);
    exchange.starts_as(guest);
    assert_same(&seen_at_home[1], &exchange.run(&["read"])[0]);
    exchange.ends(End::Stop);
    exchange.files_are_whole();
}

#[test]
fn a_newer_metadata_version_is_refused_and_nothing_is_changed() {
    // Kafka does not promise to change nothing.
    if target() == Target::Kafka {
        return;
    }
    let mut exchange = Exchange::prepare(&[], Target::Kafka);
    exchange.ends(End::Stop);
    let log = exchange.broker.data().join("__cluster_metadata-0/00000000000000000000.log");
    let mut bytes = fs::read(&log).expect("Kafka wrote it");
    raise_metadata_version(&mut bytes);
    fs::write(&log, bytes).expect("writing");
    exchange.is_refused("the metadata.version is 34, but only 7 to 33 are known here");
}

#[test]
fn a_topic_in_a_tier_is_refused_and_nothing_is_changed() {
    if target() == Target::Kafka {
        return;
    }
    let classes = compiled("NoTier").display().to_string();
    let settings = [
        ("remote.log.storage.system.enable", "true"),
        ("remote.log.storage.manager.class.name", "NoTier"),
        ("remote.log.storage.manager.class.path", &classes),
        ("remote.log.metadata.manager.listener.name", "PLAINTEXT"),
        ("rlmm.config.remote.log.metadata.topic.replication.factor", "1"),
        ("rlmm.config.remote.log.metadata.topic.num.partitions", "1"),
    ];
    let mut exchange = Exchange::prepare(&settings, Target::Kafka);
    let create = "topics --create --topic x-tiered --config remote.storage.enable=true";
    exchange.broker.kafka(create).ok();
    exchange.broker.stop();
    exchange.is_refused("The topic x-tiered has remote.storage.enable=true");
    Broker::fails_to_start(&exchange.broker, &settings).says("there is no tiered storage yet");
}

/// Groups of the new protocol, share groups and transactions outlive a time under a broker that
/// does not serve them, through the compaction of their topic.
#[test]
fn what_is_not_served_is_named_and_kept() {
    const CHECKPOINT: &str = "data/cleaner-offset-checkpoint";
    let settings = [
        ("log.cleaner.backoff.ms", "100"),
        ("log.cleaner.min.cleanable.ratio", "0.01"),
        ("log.flush.offset.checkpoint.interval.ms", "200"),
        ("offsets.topic.num.partitions", "1"),
        ("share.coordinator.state.topic.num.partitions", "1"),
        ("share.coordinator.state.topic.replication.factor", "1"),
        ("transaction.state.log.num.partitions", "1"),
    ];
    let new = "console-consumer --topic x-kept --group x-new --from-beginning \
               --command-property group.protocol=consumer --max-messages";
    let share = "console-share-consumer --topic x-kept --group x-share --max-messages";
    let mut exchange = Exchange::prepare(&settings, Target::Kafka);
    let broker = &exchange.broker;
    broker.kafka_reads("console-producer --topic x-kept", "a\nb\nc\n").ok();
    broker.kafka(&format!("{new} 2")).ok().prints("a\nb");
    let group = "configs --alter --entity-type groups --entity-name x-share";
    broker.kafka(&format!("{group} --add-config share.auto.offset.reset=earliest")).ok();
    broker.kafka(&format!("{share} 1")).ok().prints("a");
    let transact = "producer-perf-test --topic x-transacted --num-records 10 --record-size 10 \
                    --throughput -1 --transactional-id x --transaction-duration-ms 1000";
    broker.kafka(transact).ok();

    exchange.ends(End::Stop);
    exchange.starts_as(target());
    let broker = &exchange.broker;
    let alter = "configs --alter --entity-type topics --entity-name __consumer_offsets";
    broker.kafka(&format!("{alter} --add-config segment.ms=1")).ok();
    let classic = "console-consumer --topic x-kept --group x-old --from-beginning --max-messages 1";
    broker.kafka(classic).ok().prints("a");
    broker.kafka(classic).ok().prints("b");
    broker.waits_for(CHECKPOINT, "__consumer_offsets 0");
    if target() == Target::Corelane {
        let text = broker.log_text().split_off(exchange.log_bytes);
        for (partition, kept) in [
            ("__consumer_offsets-0", "consumer groups: 1 (* records), share groups: 1 (* records)"),
            ("__share_group_state-0", "the state of share groups (* records)"),
            ("__transaction_state-0", "transactions (* records)"),
        ] {
            let line = format!("*partition={partition}*");
            let words = format!("* WARN kept, but not served by this version: {kept}*");
            let is_it = |it: &&str| fits(it, &line) && fits(it, &words);
            assert_eq!(text.lines().filter(is_it).count(), 1, "{partition}: {text}");
        }
    }

    exchange.ends(End::Kill);
    exchange.starts_as(Target::Kafka);
    let broker = &exchange.broker;
    let describe = "consumer-groups --describe --group x-new";
    broker
        .kafka(describe)
        .ok()
        .says("x-new           x-kept          0          2               3");
    broker.kafka(&format!("{new} 1")).ok().prints("c");
    broker.kafka(&format!("{share} 2")).ok().prints("b\nc");
    broker.kafka(transact).ok();
    exchange.ends(End::Stop);
    exchange.files_are_whole();
}

/// Makes the record of the metadata.version that a log begins with one of the next version.
fn raise_metadata_version(log: &mut [u8]) {
    const NAME: &[u8] = b"metadata.version";
    const CRC: usize = 17;
    const SUMMED: usize = 21;
    let number = |bytes: &[u8]| i32::from_be_bytes(bytes.try_into().expect("four bytes"));
    let at = log.windows(NAME.len()).position(|part| part == NAME).expect("it has a version");
    let level = at + NAME.len() + 1;
    let mut begin = 0;
    let end = loop {
        let length = number(&log[begin + 8..begin + 12]);
        let end = begin + 12 + usize::try_from(length).expect("a batch has a length");
        if end > at {
            break end;
        }
        begin = end;
    };
    assert_eq!(log[level], 33, "the version is Kafka 4.4's");
    log[level] += 1;
    let crc = wire::crc32c(&log[begin + SUMMED..end]);
    log[begin + CRC..begin + SUMMED].copy_from_slice(&crc.to_be_bytes());
}

struct Exchange {
    broker: Broker,
    /// The timestamp of the first records.
    first: u128,
    program: Target,
    /// What was logged by those that ran before.
    log_bytes: usize,
}

impl Exchange {
    fn prepare(settings: &[(&str, &str)], program: Target) -> Exchange {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        let mut broker = Broker::prepare(settings);
        broker.set_program(program);
        broker.format(&format!("--cluster-id {CLUSTER_ID}")).ok();
        let mut exchange = Exchange { broker, first: time.as_millis(), program, log_bytes: 0 };
        exchange.starts_as(program);
        exchange
    }

    fn starts_as(&mut self, program: Target) {
        self.log_bytes = self.broker.log_text().len();
        self.program = program;
        self.broker.set_program(program);
        self.broker.start_again();
    }

    /// Ends the program; if it was Kafka, on what another one left, it must not have complained.
    fn ends(&mut self, end: End) {
        match end {
            End::Stop => self.broker.stop(),
            End::Kill => self.broker.kill(),
        }
        let text = self.broker.log_text().split_off(self.log_bytes);
        if self.program == Target::Kafka && self.log_bytes > 0 {
            // What follows a line, such as where an exception came from, belongs to it.
            let entries = text.split("\n[");
            let complaints: Vec<&str> = entries.filter(|entry| is_unusual(entry)).collect();
            assert!(complaints.is_empty(), "{}", complaints.join("\n"));
        }
    }

    /// Corelane does not start on the directory, says why, and leaves every byte as it was.
    fn is_refused(&self, sentence: &str) {
        let before = contents(&self.broker.data());
        let said = Broker::fails_to_start(&self.broker, &[]).says(sentence);
        assert_eq!(said.stderr.matches(sentence).count(), 1, "{said}");
        let after = contents(&self.broker.data());
        let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&before), names(&after));
        for (path, content) in before {
            assert!(after[&path] == content, "{} was changed", path.display());
        }
    }

    fn run(&self, words: &[&str]) -> Vec<String> {
        run(&self.broker, self.first, words)
    }

    /// Kafka's own reader of files finds every batch valid, and every index in agreement with it.
    fn files_are_whole(&self) {
        let endings = [".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint"];
        let mut files = Vec::new();
        for folder in entries(&self.broker.data()).iter().filter(|path| path.is_dir()) {
            let whole =
                |path: &PathBuf| endings.iter().any(|it| path.to_string_lossy().ends_with(it));
            files.extend(entries(folder).into_iter().filter(whole));
        }
        let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        let checked = self
            .broker
            .kafka(&format!(
                "dump-log --deep-iteration --verify-index-only --files {}",
                names.join(",")
            ))
            .ok();
        for complaint in
            ["isvalid: false", "ismatch", "not found in", "non-consecutive", "out of order"]
        {
            assert!(!checked.stdout.contains(complaint), "{complaint}: {checked}");
        }
        assert!(checked.stdout.contains("isvalid: true"), "{checked}");
    }
}

/// Lets a client do some things, with records from a timestamp on. Returns all that it read, each
/// time that it did.
pub(crate) fn run(broker: &Broker, first: u128, words: &[&str]) -> Vec<String> {
    let mut command = quick_java("Exchange");
    command.arg(broker.address()).arg(first.to_string()).args(words);
    let said = Running::start(&mut command).finish().ok().stdout;
    said.split("--- read\n").skip(1).map(str::to_owned).collect()
}

/// Every file below a folder.
pub(crate) fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for path in entries(folder) {
        if path.is_dir() {
            files.extend(contents(&path));
        } else if !path.ends_with(".lock") {
            // Whoever starts takes the lock, and it is empty.
            let content = fs::read(&path).expect("it can be read");
            files.insert(path, content);
        }
    }
    files
}

/// Whether an entry of Kafka's log is a complaint that Kafka does not have by itself.
fn is_unusual(entry: &str) -> bool {
    let line = entry.lines().next().unwrap_or_default();
    let complains = [" WARN ", " ERROR ", " FATAL "].iter().any(|level| line.contains(level));
    complains && !USUAL_COMPLAINTS.iter().any(|usual| fits(line, usual))
}

/// Shows where two states differ.
#[track_caller]
pub(crate) fn assert_same(before: &str, after: &str) {
    let differs = before.lines().zip(after.lines()).find(|(before, after)| before != after);
    assert!(before == after, "{differs:#?}\n--- before\n{before}--- after\n{after}");
}
