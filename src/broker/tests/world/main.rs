//! Data shards in the fake world, with a scripted quorum: what clients see of them, under rough
//! networks and disks, and what is left after a crash.

mod client;
mod script;

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
    produced(&mut world, "orders", 0, &["x"]);
    world.stop();
    let files = world.files();
    assert!(files.iter().any(|file| file.ends_with(".kafka_cleanshutdown")), "{files:?}");
    world.start();
    assert_eq!(fetched(&mut world, "orders", 0, 0), ["x"]);
    // This time there is nothing to write before it ends.
    world.stop();
}
