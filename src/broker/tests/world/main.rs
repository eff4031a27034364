//! Data shards in the fake world, with a scripted quorum: what clients see of them, under rough
//! networks and disks, and what is left after a crash.

mod cleaning;
mod client;
mod directories;
mod limits;
mod moves;
mod recreated;
mod script;
mod transactions;

use base::Duration;
use bytes::Bytes;
use client::World;
use fakeworld::{Crash, FaultPlan};
use protocol::{ErrorCode, FetchRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest};
use records::{BatchBuilder, Compression, NewRecord};

/// How often a client tries; each try takes a round trip of simulated time.
const TRIES: usize = 100;

fn batch(values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new(base::Offset(0), Compression::None);
    for value in values {
        let value = Some(value.as_bytes());
        builder.append(&NewRecord { timestamp: 1_000, value, ..Default::default() });
    }
    builder.build().bytes().clone()
}

/// A small batch of two records, the first of which holds this many bytes.
fn packed(bytes: usize) -> Bytes {
    let mut builder = BatchBuilder::new(base::Offset(0), Compression::Zstd { level: 1 });
    for (value, timestamp) in [(&vec![0; bytes][..], 1_000), (b"small", 2_000)] {
        builder.append(&NewRecord { timestamp, value: Some(value), ..Default::default() });
    }
    builder.build().bytes().clone()
}

/// Everything can be slow, and no connection breaks: a request that is sent is answered.
fn slow(seed: u64) -> FaultPlan {
    let mut plan = FaultPlan::rough(&mut base::Random::new(seed));
    plan.network.resets_per_million = 0;
    plan
}

/// Produces as a client does: an answer that says "not yet" (another shard may not have heard of
/// the topic) is followed by the same request again.
fn produced(world: &mut World, topic: &str, partition: i32, values: &[&str]) -> i64 {
    let request = client::produce(topic, partition, batch(values));
    for _ in 0..TRIES {
        let response = world.call::<ProduceRequest>(9, &request);
        let partition = &response.responses[0].partition_responses[0];
        if partition.error_code == ErrorCode::NONE {
            return partition.base_offset;
        }
        assert!(partition.error_code.is_retriable(), "{response:?}");
    }
    panic!("{topic}-{partition} never takes a record");
}

fn fetched(world: &mut World, topic: &str, partition: i32, offset: i64) -> Vec<String> {
    let request = client::fetch(topic, partition, offset, 0);
    let response = world.call::<FetchRequest>(12, &request);
    client::values(&response.responses[0].partitions[0])
}

#[test]
fn what_is_produced_is_read_from_every_shard() {
    for seed in 0..30 {
        let mut world = World::new(seed, 2, slow(seed));
        world.create_topic("orders", 3);
        for partition in 0..3 {
            assert_eq!(produced(&mut world, "orders", partition, &["a", "b"]), 0);
            assert_eq!(produced(&mut world, "orders", partition, &["c"]), 2);
        }
        for partition in 0..3 {
            assert_eq!(fetched(&mut world, "orders", partition, 0), ["a", "b", "c"]);
            assert_eq!(fetched(&mut world, "orders", partition, 2), ["c"]);
            let request = client::list_offsets("orders", partition, -1);
            let response = world.call::<ListOffsetsRequest>(6, &request);
            assert_eq!(response.topics[0].partitions[0].offset, 3);
        }
    }
}

#[test]
fn a_batch_that_holds_much_is_taken_and_searched_over_many_turns() {
    let mut world = World::new(1, 2, FaultPlan::calm());
    world.create_topic("orders", 1);
    let request = client::produce("orders", 0, packed(32 << 20));
    let response = world.call::<ProduceRequest>(9, &request);
    assert_eq!(response.responses[0].partition_responses[0].error_code, ErrorCode::NONE);
    for (timestamp, offset) in [(1_000, 0), (1_001, 1), (2_001, -1)] {
        let request = client::list_offsets("orders", 0, timestamp);
        let response = world.call::<ListOffsetsRequest>(6, &request);
        let found = &response.topics[0].partitions[0];
        assert_eq!((found.error_code, found.offset), (ErrorCode::NONE, offset));
    }
}

#[test]
fn a_topic_that_is_missing_is_made_when_its_metadata_are_asked_for() {
    let mut world = World::new(1, 2, FaultPlan::calm());
    let request = MetadataRequest {
        topics: Some(vec![client::named("fresh")]),
        allow_auto_topic_creation: true,
        ..Default::default()
    };
    let response = world.call::<MetadataRequest>(12, &request);
    assert_eq!(response.topics[0].error_code, ErrorCode::NONE);
    assert_eq!(response.topics[0].partitions.len(), 1);
    assert_eq!(response.brokers.len(), 1);
    let request = MetadataRequest { allow_auto_topic_creation: false, ..request };
    let mut request = request;
    request.topics = Some(vec![client::named("other")]);
    let response = world.call::<MetadataRequest>(12, &request);
    assert_eq!(response.topics[0].error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
}

#[test]
fn a_fetch_waits_for_records_and_for_no_longer_than_it_said() {
    let mut world = World::new(2, 2, FaultPlan::calm());
    world.create_topic("orders", 2);
    let before = world.now();
    let request = client::fetch("orders", 1, 0, 500);
    let response = world.call::<FetchRequest>(12, &request);
    assert!(client::values(&response.responses[0].partitions[0]).is_empty());
    let waited = world.now().since(before);
    assert!(waited >= Duration::from_millis(500), "{waited:?}");
    assert!(waited < Duration::from_millis(700), "{waited:?}");

    let waiting = world.begin::<FetchRequest>(12, &client::fetch("orders", 1, 0, 60_000));
    let before = world.now();
    assert_eq!(produced(&mut world, "orders", 1, &["news"]), 0);
    let response = world.end::<FetchRequest>(12, waiting);
    assert_eq!(client::values(&response.responses[0].partitions[0]), ["news"]);
    let waited = world.now().since(before);
    assert!(waited < Duration::from_secs(1), "{waited:?}");
}

/// A topic whose first two partitions belong to two shards, and a value that fills a batch.
fn two_owners(seed: u64) -> (World, String) {
    let mut world = World::new(seed, 2, FaultPlan::calm());
    world.create_topic("orders", 2);
    (world, "x".repeat(1_000))
}

#[test]
fn the_bytes_of_a_request_are_spent_in_its_order_and_to_the_last() {
    let (mut world, value) = two_owners(3);
    for partition in [0, 1] {
        for _ in 0..3 {
            produced(&mut world, "orders", partition, &[&value]);
        }
    }
    let batch_bytes = batch(&[&value]).len();
    for (first, second) in [(0, 1), (1, 0)] {
        for (bytes_max, whole, cut) in [
            (6 * batch_bytes, 3, 3 * batch_bytes),
            // The last batch may be cut, but a partition never has less than one.
            (5 * batch_bytes + 100, 2, 2 * batch_bytes + 100),
            (4 * batch_bytes, 1, batch_bytes),
            (4 * batch_bytes - 1, 0, 0),
            (3 * batch_bytes, 0, 0),
        ] {
            let request = client::fetch_all("orders", &[(first, 0), (second, 0)], 0);
            let max_bytes = i32::try_from(bytes_max).expect("small");
            let request = FetchRequest { max_bytes, ..request };
            let response = world.call::<FetchRequest>(12, &request);
            let partitions = &response.responses[0].partitions;
            assert_eq!(client::values(&partitions[0]).len(), 3, "{bytes_max}");
            assert_eq!(client::values(&partitions[1]).len(), whole, "{bytes_max}");
            assert_eq!(client::bytes(&partitions[1]), cut, "{bytes_max}");
        }
        // Where nothing fits, the first partition has one batch all the same.
        let request = client::fetch_all("orders", &[(first, 0), (second, 0)], 0);
        let response = world.call::<FetchRequest>(12, &FetchRequest { max_bytes: 1, ..request });
        let partitions = &response.responses[0].partitions;
        let values = partitions.iter().map(|partition| client::values(partition).len());
        assert_eq!(values.collect::<Vec<_>>(), [1, 0]);
    }
}

#[test]
fn a_fetch_that_waits_for_many_bytes_is_told_once() {
    let (mut world, value) = two_owners(4);
    let min_bytes = i32::try_from(3 * batch(&[&value]).len()).expect("small");
    // The connection belongs to one of the two shards: one fetch asks it, the other its peer.
    for partition in [0, 1] {
        let request = client::fetch("orders", partition, 0, 60_000);
        let waiting = world.begin::<FetchRequest>(12, &FetchRequest { min_bytes, ..request });
        for _ in 0..3 {
            produced(&mut world, "orders", partition, &[&value]);
        }
        let response = world.end::<FetchRequest>(12, waiting);
        assert_eq!(client::values(&response.responses[0].partitions[0]).len(), 3);
    }
    assert_eq!((world.sent("Fetch"), world.sent("News")), (2, 1), "one ask, its answer, one news");
}

#[test]
fn a_fetch_of_two_owners_waits_for_the_bytes_of_both() {
    for seed in 0..20 {
        let mut world = World::new(seed, 2, slow(seed));
        world.create_topic("orders", 2);
        let value = "x".repeat(1_000);
        for partition in [0, 1] {
            produced(&mut world, "orders", partition, &["y"]);
        }
        let min_bytes = i32::try_from(4 * batch(&[&value]).len()).expect("small");
        let request = client::fetch_all("orders", &[(0, 0), (1, 0)], 60_000);
        let waiting = world.begin::<FetchRequest>(12, &FetchRequest { min_bytes, ..request });
        let before = world.now();
        for partition in [0, 1, 1, 0] {
            produced(&mut world, "orders", partition, &[&value]);
        }
        let response = world.end::<FetchRequest>(12, waiting);
        let bytes = response.responses[0].partitions.iter().map(client::bytes).sum::<usize>();
        assert!(bytes >= min_bytes as usize, "seed {seed}: {bytes} of {min_bytes}");
        assert!(world.now().since(before) < Duration::from_secs(30), "seed {seed}");
    }
}

#[test]
fn a_fetch_whose_time_is_over_has_what_came_meanwhile() {
    let (mut world, _) = two_owners(6);
    let request = client::fetch_all("orders", &[(0, 0), (1, 0)], 500);
    let waiting =
        world.begin::<FetchRequest>(12, &FetchRequest { min_bytes: 10_000, ..request.clone() });
    produced(&mut world, "orders", 1, &["late"]);
    let response = world.end::<FetchRequest>(12, waiting);
    assert_eq!(client::values(&response.responses[0].partitions[1]), ["late"]);

    let request = client::fetch("orders", 0, 0, 500);
    let waiting = world.begin::<FetchRequest>(12, &FetchRequest { min_bytes: 10_000, ..request });
    produced(&mut world, "orders", 0, &["late"]);
    let response = world.end::<FetchRequest>(12, waiting);
    assert_eq!(client::values(&response.responses[0].partitions[0]), ["late"]);
}

#[test]
fn nobody_watches_for_a_client_that_is_gone() {
    let (mut world, _) = two_owners(7);
    for partition in [0, 1] {
        let request = client::fetch("orders", partition, 0, 60_000);
        let waiting = world.begin::<FetchRequest>(12, &request);
        world.pause();
        world.abandon(waiting);
        produced(&mut world, "orders", partition, &["x"]);
    }
    assert_eq!((world.sent("Unwatch"), world.sent("News")), (1, 0));
}

#[test]
fn a_killed_process_loses_nothing_that_it_acknowledged() {
    for seed in 0..30 {
        let mut world = World::new(seed, 2, slow(seed));
        world.create_topic("orders", 2);
        for round in 0..5 {
            assert_eq!(produced(&mut world, "orders", round % 2, &["x"]), i64::from(round / 2));
        }
        world.restart(Crash::Process);
        assert_eq!(fetched(&mut world, "orders", 0, 0), ["x", "x", "x"], "seed {seed}");
        assert_eq!(fetched(&mut world, "orders", 1, 0), ["x", "x"], "seed {seed}");
        assert_eq!(produced(&mut world, "orders", 0, &["y"]), 3);
    }
}

#[test]
fn a_node_that_stops_in_order_marks_its_directory_clean() {
    let mut world = World::new(3, 2, FaultPlan::calm());
    world.create_topic("orders", 2);
    // A log that is still being made is not closed in order.
    for partition in [0, 1] {
        produced(&mut world, "orders", partition, &["x"]);
    }
    world.stop();
    let files = world.files();
    assert!(files.iter().any(|file| file.ends_with(".kafka_cleanshutdown")), "{files:?}");
    world.start();
    assert_eq!(fetched(&mut world, "orders", 0, 0), ["x"]);
    // This time there is nothing to write before it ends.
    world.stop();
}

#[test]
fn a_node_that_stops_while_it_starts_leaves_the_checkpoints_as_they_are() {
    for seed in 0..10 {
        let mut world = World::new(seed, 2, slow(seed));
        world.create_topic("orders", 2);
        for partition in [0, 1] {
            produced(&mut world, "orders", partition, &["x"; 20]);
            world.delete_records("orders", partition, 15);
        }
        world.stop();
        // The directories are read, and one shard does not know what has to be in them.
        world.start_heard_by(1);
        for _ in 0..TRIES {
            world.pause();
        }
        world.stop();
        let files = world.files();
        assert!(!files.iter().any(|file| file.ends_with(".kafka_cleanshutdown")), "{files:?}");
        world.start();
        for partition in [0, 1] {
            let request = client::list_offsets("orders", partition, -2);
            let response = world.call::<ListOffsetsRequest>(6, &request);
            assert_eq!(response.topics[0].partitions[0].offset, 15, "seed {seed}");
        }
    }
}

#[test]
fn bytes_that_are_no_batch_are_corrupt_to_whoever_reads_there() {
    let mut world = World::new(1, 2, FaultPlan::calm());
    world.create_topic("orders", 1);
    produced(&mut world, "orders", 0, &["a"]);
    world.call::<ProduceRequest>(9, &client::produce("orders", 0, packed(10)));
    world.stop();
    world.start();
    assert_eq!(fetched(&mut world, "orders", 0, 0).len(), 3);
    // The magic of the second batch.
    world.damage("orders-0/00000000000000000000.log", batch(&["a"]).len() + 16);
    let response = world.call::<FetchRequest>(12, &client::fetch("orders", 0, 2, 0));
    let data = &response.responses[0].partitions[0];
    let offsets = (data.high_watermark, data.last_stable_offset, data.log_start_offset);
    assert_eq!((data.error_code, offsets), (ErrorCode::CORRUPT_MESSAGE, (-1, -1, -1)));
    let request = client::list_offsets("orders", 0, 2_000);
    let response = world.call::<ListOffsetsRequest>(6, &request);
    assert_eq!(response.topics[0].partitions[0].error_code, ErrorCode::CORRUPT_MESSAGE);
    let response = world.call::<FetchRequest>(12, &client::fetch("orders", 0, 4, 0));
    let data = &response.responses[0].partitions[0];
    let offsets = (data.high_watermark, data.last_stable_offset, data.log_start_offset);
    assert_eq!((data.error_code, offsets), (ErrorCode::OFFSET_OUT_OF_RANGE, (-1, -1, -1)));
}

#[test]
fn a_node_that_learns_nothing_of_the_metadata_changes_nothing() {
    let mut world = World::new(1, 2, FaultPlan::calm());
    world.create_topic("orders", 1);
    produced(&mut world, "orders", 0, &["x"; 20]);
    world.stop();
    let before = world.contents();
    world.start_heard_by(0);
    for _ in 0..TRIES {
        world.pause();
    }
    world.stop();
    assert_eq!(world.contents(), before);
    assert!(before.keys().any(|file| file.ends_with(".kafka_cleanshutdown")), "{before:?}");
}
