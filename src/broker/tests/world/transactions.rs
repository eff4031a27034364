//! A log in which Apache Kafka wrote transactions: what those who read all of it see, and those who
//! read only what was committed.

use std::fs;
use std::path::Path;

use fakeworld::{Crash, FaultPlan};
use protocol::{ErrorCode, FetchRequest, ListOffsetsRequest};

use crate::client::{self, DIRECTORY, World};
use crate::slow;

const READ_UNCOMMITTED: i8 = 0;
const READ_COMMITTED: i8 = 1;
const LATEST: i64 = -1;

/// The end of Kafka's log.
const END: i64 = 134;
/// A transaction begins here that is open at the end.
const OPEN: i64 = 123;
/// Who aborted a transaction, where it began, and where its marker stands.
const ABORTED: [(i64, i64, i64); 2] = [(19, 100, 107), (18, 119, 120)];

/// A node that has Kafka's log as the one of its topic.
fn world_of_kafka(seed: u64, faults: FaultPlan, crash: Option<Crash>) -> World {
    let mut world = World::new(seed, 2, faults);
    world.create_topic("orders", 1);
    // A log that is still being made has no folder yet.
    crate::fetched(&mut world, "orders", 0, 0);
    match crash {
        Some(crash) => world.crash(crash),
        None => world.stop(),
    }
    for (name, content) in kafka_log() {
        world.install(&format!("{DIRECTORY}/orders-0/{name}"), &content);
    }
    world.start();
    world
}

/// The files of the log, but for the one that has the id of its topic.
#[allow(clippy::disallowed_methods, reason = "a test reads its data")]
fn kafka_log() -> Vec<(String, Vec<u8>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../commitlog/testdata/kafka/producers-0");
    let files = fs::read_dir(Path::new(folder)).expect("it is there");
    let files = files.map(|file| file.expect("it can be listed").path());
    let named = files.map(|path| {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        (name, fs::read(path).expect("it can be read"))
    });
    named.filter(|(name, _)| name != "partition.metadata").collect()
}

fn fetch(from: i64, isolation_level: i8, bytes_max: i32) -> FetchRequest {
    let mut request = client::fetch("orders", 0, from, 0);
    request.topics[0].partitions[0].partition_max_bytes = bytes_max;
    FetchRequest { isolation_level, ..request }
}

fn offset(world: &mut World, isolation_level: i8, timestamp: i64) -> i64 {
    let request = client::list_offsets("orders", 0, timestamp);
    let request = ListOffsetsRequest { isolation_level, ..request };
    world.call::<ListOffsetsRequest>(6, &request).topics[0].partitions[0].offset
}

#[test]
fn readers_of_committed_records_end_before_an_open_transaction() {
    for (seed, crash) in [(1, None), (2, Some(Crash::Process)), (3, Some(Crash::Machine))] {
        let mut world = world_of_kafka(seed, slow(seed), crash);
        assert_eq!(offset(&mut world, READ_UNCOMMITTED, LATEST), END);
        assert_eq!(offset(&mut world, READ_COMMITTED, LATEST), OPEN);
        // The timestamp of the first record of the open transaction.
        assert_eq!(offset(&mut world, READ_UNCOMMITTED, 1_796_096_314_570), OPEN);
        assert_eq!(offset(&mut world, READ_COMMITTED, 1_796_096_314_570), -1);
        assert_eq!(offset(&mut world, READ_COMMITTED, 1_796_096_314_472), 120);
        for (isolation_level, end) in [(READ_UNCOMMITTED, END), (READ_COMMITTED, OPEN)] {
            for bytes_max in [1, 400, 1 << 20] {
                let mut next = 0;
                while next < end {
                    next = read_on(&mut world, next, isolation_level, end, bytes_max);
                }
                let request = fetch(next, isolation_level, bytes_max);
                let response = world.call::<FetchRequest>(12, &request);
                assert_eq!(client::bytes(&response.responses[0].partitions[0]), 0);
            }
        }
    }
}

/// One fetch from `from` on: where the next one begins.
fn read_on(world: &mut World, from: i64, isolation_level: i8, end: i64, bytes_max: i32) -> i64 {
    let request = fetch(from, isolation_level, bytes_max);
    let mut response = world.call::<FetchRequest>(12, &request);
    let partition = response.responses[0].partitions.pop().expect("it was asked for");
    let what = format!("level {isolation_level} from {from}, {bytes_max} bytes");
    assert_eq!(partition.error_code, ErrorCode::NONE, "{what}");
    assert_eq!((partition.high_watermark, partition.last_stable_offset), (END, OPEN), "{what}");
    let (first, next) = client::offsets(&partition).expect("there is more");
    assert!(first <= from && from < next && next <= end, "{what}: {first} to {next}");
    let Some(listed) = partition.aborted_transactions else {
        assert_eq!(isolation_level, READ_UNCOMMITTED, "{what}");
        return next;
    };
    assert_eq!(isolation_level, READ_COMMITTED, "{what}");
    let listed: Vec<_> = listed.iter().map(|it| (it.producer_id, it.first_offset)).collect();
    for (producer, begin, marker) in ABORTED {
        let is_listed = listed.contains(&(producer, begin));
        // One that begins behind what was read does no harm, but one that ended before would: its
        // producer may have begun another one, which was committed.
        assert!(is_listed || marker < from || begin >= next, "{what}: {listed:?}");
        assert!(!is_listed || marker >= from, "{what}: {listed:?}");
    }
    next
}

#[test]
fn what_is_written_behind_an_open_transaction_waits_for_its_end() {
    let mut world = world_of_kafka(4, FaultPlan::calm(), None);
    let waiting = FetchRequest { max_wait_ms: 500, ..fetch(OPEN, READ_COMMITTED, 1 << 20) };
    let waiting = world.begin::<FetchRequest>(12, &waiting);
    assert_eq!(crate::produced(&mut world, "orders", 0, &["news"]), END);
    let response = world.end::<FetchRequest>(12, waiting);
    let partition = &response.responses[0].partitions[0];
    assert_eq!(client::bytes(partition), 0);
    assert_eq!(partition.last_stable_offset, OPEN);
    assert_eq!(crate::fetched(&mut world, "orders", 0, END), ["news"]);
    assert_eq!(offset(&mut world, READ_UNCOMMITTED, LATEST), END + 1);
    assert_eq!(offset(&mut world, READ_COMMITTED, LATEST), OPEN);
    // Its records can go, and nothing is left to wait for but the rest of the log.
    world.delete_records("orders", 0, END);
    assert_eq!(offset(&mut world, READ_COMMITTED, LATEST), END);
}
