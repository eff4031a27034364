//! What takes long in full: each test has a short form, which is what runs by default, and its
//! full form under `cargo xtask campaign`. `docs/campaigns.md` has what the full ones found.
#![allow(clippy::print_stderr, reason = "a campaign says what it has measured")]

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use blackbox::wire::{self, Batch, Bytes, LIST_OFFSETS, PRODUCE, Rest};
use blackbox::{Broker, Target, target};
use faultfs::{Left, Random};

use crate::admin::Sequence;
use crate::cleaning::{self, Workload};
use crate::load::{EAGER, Ending, Load, Signals, recovery_points, wait_for_acknowledged};

/// How long all partitions may take until they are back, in whichever form.
const BACK_MAX: Duration = Duration::from_secs(60);
/// Records of one request to produce, in bytes.
const REQUEST_BYTES: usize = 8 << 20;

/// The seed of short forms, which do the same each time.
const SHORT_SEED: u64 = 7;

fn is_full() -> bool {
    std::env::var_os("CORELANE_CAMPAIGN").is_some()
}

/// A size: that of the full form, or that of the short one.
fn sized<T>(full: T, short: T) -> T {
    if is_full() { full } else { short }
}

fn say(line: &str) {
    eprintln!("campaign: {line}");
}

/// Topics of so many partitions each.
struct Many {
    topics: Vec<String>,
    partitions: i32,
}

impl Many {
    fn create(broker: &Broker, topics: usize, partitions: i32) -> Many {
        let topics: Vec<String> = (0..topics).map(|number| format!("many-{number}")).collect();
        for topic in &topics {
            let line = format!("topics --create --topic {topic} --partitions {partitions}");
            broker.kafka(&line).ok();
        }
        Many { topics, partitions }
    }

    fn count(&self) -> usize {
        self.topics.len() * usize::try_from(self.partitions).expect("positive")
    }

    /// Appends one record of so many bytes to every partition.
    fn produce(&self, stream: &mut TcpStream, bytes: usize) {
        let batch = Batch { values: vec![vec![7; bytes]], ..Batch::default() }.encode();
        let indexes: Vec<i32> = (0..self.partitions).collect();
        for topic in &self.topics {
            for some in indexes.chunks(REQUEST_BYTES / bytes) {
                let mut body = Bytes::default();
                body.i16(-1).i16(1).i32(30_000).i32(1).string(topic);
                body.i32(i32::try_from(some.len()).expect("few"));
                for index in some {
                    body.i32(*index).bytes(&batch);
                }
                stream.write_all(&wire::request(PRODUCE, 8, 1, &body.0)).expect("it is read");
                let answer = wire::answer(stream, 1).expect("an answer");
                let mut rest = Rest(&answer);
                rest.take(4 + 2 + topic.len() + 4);
                for index in some {
                    assert_eq!((rest.i32(), rest.i16()), (*index, 0), "{topic}");
                    // Offset, times, start; no errors of records and no message.
                    rest.take(8 + 8 + 8 + 4 + 2);
                }
            }
        }
    }

    /// The end of every partition; none while one of them says that it is not there yet.
    fn ends(&self, stream: &mut TcpStream) -> Option<Vec<i64>> {
        let mut body = Bytes::default();
        body.i32(-1).i32(i32::try_from(self.topics.len()).expect("few"));
        for topic in &self.topics {
            body.string(topic).i32(self.partitions);
            for index in 0..self.partitions {
                body.i32(index).i64(-1);
            }
        }
        stream.write_all(&wire::request(LIST_OFFSETS, 1, 2, &body.0)).expect("it is read");
        let answer = wire::answer(stream, 2).expect("an answer");
        let mut rest = Rest(&answer);
        let mut ends = Vec::new();
        for _ in 0..rest.i32() {
            let name = rest.i16();
            rest.take(usize::try_from(name).expect("a name"));
            for _ in 0..rest.i32() {
                let (_, error, _, offset) = (rest.i32(), rest.i16(), rest.i64(), rest.i64());
                if error != 0 {
                    return None;
                }
                ends.push(offset);
            }
        }
        Some(ends)
    }

    /// Waits until every partition is there, and checks where it ends.
    fn await_ends(&self, broker: &Broker, end: i64) {
        let deadline = Instant::now() + BACK_MAX;
        let mut stream = broker.connect();
        loop {
            if let Some(ends) = self.ends(&mut stream) {
                assert_eq!(ends, vec![end; self.count()]);
                return;
            }
            assert!(Instant::now() < deadline, "not all are back\n{}", broker.end_of_log());
        }
    }
}

/// The seed of a campaign: that of `CORELANE_SEED`, or in full another one each time.
fn seed() -> u64 {
    let given = std::env::var("CORELANE_SEED").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        sized(u64::from(now.expect("it is after 1970").subsec_nanos()), SHORT_SEED)
    })
}

fn open_files(broker: &Broker) -> usize {
    let files = fs::read_dir(format!("/proc/{}/fd", broker.pid()));
    files.expect("the process runs").count()
}

/// Partitions with records that nobody has flushed, all of which are read again after a kill.
#[test]
fn recovery() {
    let (topics, partitions) = sized((10, 1_000), (2, 50));
    let record_bytes = 200_000;
    let mut broker = Broker::start(&[]);
    let many = Many::create(&broker, topics, partitions);
    many.produce(&mut broker.connect(), record_bytes);
    broker.kill();
    let begun = Instant::now();
    broker.start_again();
    let ready = begun.elapsed();
    many.await_ends(&broker, 1);
    let all = begun.elapsed();
    say(&format!(
        "{} partitions with {record_bytes} bytes each after kill -9: the first answer after {} ms, \
         all online after {} ms",
        many.count(),
        ready.as_millis(),
        all.as_millis(),
    ));
    // The short form runs beside other tests: its time says nothing.
    if is_full() && target() == Target::Corelane {
        assert!(all < Duration::from_secs(5), "{all:?}");
    }
}

/// Many partitions that hold a little: what they cost in memory, open files and time to start.
#[test]
fn partitions() {
    let (topics, partitions) = sized((25, 4_000), (2, 100));
    let mut broker = Broker::start(&[]);
    let begun = Instant::now();
    let many = Many::create(&broker, topics, partitions);
    let created = begun.elapsed();
    many.produce(&mut broker.connect(), 100);
    many.await_ends(&broker, 1);
    let (memory, files) = (broker.memory_bytes_most(), open_files(&broker));
    let begun = Instant::now();
    broker.stop();
    let stopped = begun.elapsed();
    let begun = Instant::now();
    broker.start_again();
    many.await_ends(&broker, 1);
    let started = begun.elapsed();
    let memory_again = broker.memory_bytes_most();
    say(&format!(
        "{} partitions: created in {} ms, {} MB of memory at most and {files} open files, stopped \
         in {} ms, all online {} ms after a start, {} MB at most then",
        many.count(),
        created.as_millis(),
        memory >> 20,
        stopped.as_millis(),
        started.as_millis(),
        memory_again >> 20,
    ));
    if target() == Target::Corelane {
        assert!(memory.max(memory_again) <= 1 << 30, "{memory} and {memory_again} bytes");
    }
}

/// Logs with transactions, cleaned by Apache Kafka and by Corelane.
#[test]
fn cleaning_with_transactions() {
    let (seeds, steps) = sized((5, 1_000), (1, 150));
    for seed in 1..=seeds {
        cleaning::transactions(Workload::new(seed, steps));
        say(&format!("transactions of seed {seed}: the same is left after {steps} steps"));
    }
}

/// Logs without transactions, written to Apache Kafka and to Corelane, and cleaned by each.
#[test]
fn cleaning() {
    let (seeds, steps) = sized((5, 1_000), (1, 150));
    for seed in 1..=seeds {
        cleaning::plain(Workload::new(seed, steps));
        say(&format!("seed {seed}: the same is left after {steps} steps"));
    }
}

/// Settings of a broker that syncs all that it acknowledges.
const FLUSHES: (&str, &str) = ("log.flush.interval.messages", "1");

/// The process is killed under load, again and again.
#[test]
fn kills() {
    for all_flushed in [false, true] {
        kill_often(all_flushed, sized(100, 5));
    }
}

fn kill_often(all_flushed: bool, kills: u32) {
    let batches_max = sized(3_000, 300);
    let seed = seed();
    say(&format!("kills, all flushed: {all_flushed}, CORELANE_SEED={seed}"));
    let mut random = Random::new(seed);
    let settings = with_flushes(all_flushed);
    let mut broker = Broker::start(&settings);
    let mut load = Load::new(broker.port(), seed, all_flushed);
    let begun = Instant::now();
    for number in 0..kills {
        let batches = random.below(batches_max);
        load.run_until(|signals| {
            wait_for_acknowledged(signals, batches);
            broker.kill();
        });
        // Some are killed once more while they start, and some have ended in order before.
        if random.below(3) == 0 {
            broker.launch();
            std::thread::sleep(Duration::from_millis(random.below(sized(400, 100))));
            broker.kill();
        }
        broker.start_again();
        load.check(Ending::Kill, &Default::default(), number + 1 == kills);
        if random.below(6) == 0 {
            broker.stop();
            broker.start_again();
            load.check(Ending::Kill, &Default::default(), false);
        }
    }
    say(&format!(
        "killed {kills} times in {} s, all flushed: {all_flushed}: {} batches were acknowledged, \
         and all are there",
        begun.elapsed().as_secs(),
        load.acknowledged(),
    ));
}

fn with_flushes(all_flushed: bool) -> Vec<(&'static str, &'static str)> {
    let mut settings = EAGER.to_vec();
    settings.extend(all_flushed.then_some(FLUSHES));
    settings
}

/// The power is lost under load, again and again, on a disk that loses what was not synced.
#[test]
fn power() {
    for all_flushed in [false, true] {
        lose_power_often(all_flushed, sized(100, 5));
    }
}

/// The program that serves the disk.
const FAULTFS: &str = env!("CARGO_BIN_EXE_faultfs");
/// More than all the load writes, in bytes.
const DISK_BYTES: u64 = 4 << 30;
/// How long a load may take until its disk stands still.
const FROZEN_MAX: Duration = Duration::from_secs(60);
/// How long a load goes on on a full disk, and how much space that has at first.
const FULL_MAX: Duration = Duration::from_millis(500);
const FULL_SPACE_BYTES: u64 = 500_000;
/// A start that is to be cut may be over before.
const START_CUT_MAX: Duration = Duration::from_secs(2);

fn lose_power_often(all_flushed: bool, losses: u32) {
    // Changes of the disk until it stands still: a batch has a few.
    let (changes_max, changes_of_start_max) = (sized(6_000, 1_500), 300);
    let seed = seed();
    say(&format!("power, all flushed: {all_flushed}, CORELANE_SEED={seed}"));
    let mut random = Random::new(seed);
    let settings = with_flushes(all_flushed);
    let mut broker = Broker::on_served_disk(&settings, FAULTFS, DISK_BYTES);
    let mut load = Load::new(broker.port(), seed, all_flushed);
    let begun = Instant::now();
    for number in 0..losses {
        let changes = 1 + random.below(changes_max);
        let left = left_by(&mut random);
        let is_full = random.below(5) == 0;
        let space = random.below(FULL_SPACE_BYTES);
        load.run_until(|_: &Signals| {
            let disk = broker.served_disk();
            if is_full {
                disk.set_free(space);
            }
            disk.freeze_after(changes);
            let is_frozen = disk.wait_until_frozen(if is_full { FULL_MAX } else { FROZEN_MAX });
            assert!(is_frozen || is_full, "nothing is written");
            broker.lose_power(left);
            broker.served_disk().set_capacity(DISK_BYTES);
        });
        let mut durable_ends = recovery_points(&broker.on_disk("data"));
        if random.below(3) == 0 {
            broker.launch();
            broker.served_disk().freeze_after(1 + random.below(changes_of_start_max));
            broker.served_disk().wait_until_frozen(START_CUT_MAX);
            broker.lose_power(left_by(&mut random));
            durable_ends = recovery_points(&broker.on_disk("data"));
        }
        broker.start_again();
        load.check(Ending::PowerLoss, &durable_ends, number + 1 == losses);
        if random.below(6) == 0 {
            broker.stop();
            // What was stopped in order loses nothing.
            broker.lose_power(left_by(&mut random));
            broker.start_again();
            load.check(Ending::Kill, &Default::default(), false);
        }
    }
    say(&format!(
        "lost the power {losses} times in {} s, all flushed: {all_flushed}: {} batches were \
         acknowledged for good, and all are there",
        begun.elapsed().as_secs(),
        load.acknowledged(),
    ));
}

/// What is left of what was not synced: nothing, or what a seed chooses.
fn left_by(random: &mut Random) -> Left {
    match random.below(3) {
        0 => Left::Nothing,
        _ => Left::Some(random.below(u64::MAX)),
    }
}

/// The same requests of administrators, right ones and wrong ones, sent to both brokers.
#[test]
fn admin() {
    let seed = seed();
    let releases =
        sized(&["3.3-IV3", "3.5-IV2", "3.7-IV1", "4.0-IV1", "4.4-IV2"][..], &["4.4-IV2"]);
    let requests = sized(2_000, 200);
    say(&format!("admin, CORELANE_SEED={seed}"));
    for release in releases {
        Sequence { seed, requests, release }.compare();
        say(&format!("from {release}: {requests} requests and what they lead to are the same"));
    }
}
