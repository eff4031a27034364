//! Log directories that fail, fill up or are slow: what their clients see, and everybody else's.

use base::{Duration, NodeId, PartitionIndex};
use fakeworld::{Crash, Delay, FaultPlan, Trouble};
use protocol::{DescribeLogDirsRequest, ErrorCode, FetchRequest, ProduceRequest};

use crate::client::{self, DIRECTORY, SECOND_DIRECTORY, World};
use crate::{TRIES, batch, fetched, produced};

const BOTH: &[&str] = &[DIRECTORY, SECOND_DIRECTORY];
/// So many that each of two shards has two in each of two directories.
const PARTITIONS: i32 = 8;

/// A node with two directories and a topic whose partitions lie in both.
fn two_directories(seed: u64, faults: FaultPlan) -> World {
    let mut world = World::with_directories(seed, 2, faults, BOTH);
    world.create_topic("orders", PARTITIONS);
    for partition in 0..PARTITIONS {
        produced(&mut world, "orders", partition, &["a"]);
    }
    for _ in 0..TRIES {
        let known = partitions_in(&world, 0).len() + partitions_in(&world, 1).len();
        if known == PARTITIONS as usize {
            return world;
        }
        world.pause();
    }
    panic!("the metadata never say where the logs are, seed {seed}");
}

/// The partitions of the topic that the metadata have in a directory.
fn partitions_in(world: &World, directory: usize) -> Vec<i32> {
    let image = world.image();
    let topic = image.topic_by_name("orders").expect("it was made");
    let id = World::directory_id(directory);
    let here = topic.partitions.iter();
    let here = here.filter(|(_, one)| one.directory_of(NodeId(1)) == Some(id));
    here.map(|(PartitionIndex(index), _)| *index).collect()
}

/// The code that a produced batch is answered with.
fn produce_code(world: &mut World, partition: i32) -> ErrorCode {
    let request = client::produce("orders", partition, batch(&["x"]));
    let response = world.call::<ProduceRequest>(9, &request);
    response.responses[0].partition_responses[0].error_code
}

fn fetch_code(world: &mut World, partition: i32) -> ErrorCode {
    let request = client::fetch("orders", partition, 0, 0);
    world.call::<FetchRequest>(12, &request).responses[0].partitions[0].error_code
}

#[test]
fn the_controller_learns_where_logs_are() {
    for seed in 0..10 {
        let world = two_directories(seed, crate::slow(seed));
        let (first, second) = (partitions_in(&world, 0), partitions_in(&world, 1));
        assert_eq!((first.len(), second.len()), (4, 4), "seed {seed}");
    }
}

#[test]
fn a_directory_that_fails_takes_its_partitions_offline_and_no_others() {
    for seed in 0..10 {
        let mut world = two_directories(seed, crate::slow(seed));
        let (sound, lost) = (partitions_in(&world, 0), partitions_in(&world, 1));
        // One fault is enough: the directory's other partitions go with it.
        let folder = format!("{SECOND_DIRECTORY}/orders-{}", lost[0]);
        world.set_trouble(&folder, Some(Trouble::Broken));
        assert_eq!(produce_code(&mut world, lost[0]), ErrorCode::KAFKA_STORAGE_ERROR);
        let mut tries = 0..TRIES;
        for partition in &lost {
            while fetch_code(&mut world, *partition) != ErrorCode::KAFKA_STORAGE_ERROR {
                tries.next().expect("the other shard hears of it");
            }
        }
        for partition in &lost {
            assert_eq!(produce_code(&mut world, *partition), ErrorCode::KAFKA_STORAGE_ERROR);
            assert_eq!(fetch_code(&mut world, *partition), ErrorCode::KAFKA_STORAGE_ERROR);
        }
        for partition in &sound {
            assert_eq!(produced(&mut world, "orders", *partition, &["b"]), 1);
            assert_eq!(fetched(&mut world, "orders", *partition, 0), ["a", "b"]);
        }
        let response = world.call::<DescribeLogDirsRequest>(4, &DescribeLogDirsRequest::default());
        let codes: Vec<_> = response.results.iter().map(|one| one.error_code).collect();
        assert_eq!(codes, [ErrorCode::NONE, ErrorCode::KAFKA_STORAGE_ERROR]);
        let image = world.image();
        let online = &image.broker(NodeId(1)).expect("registered").directories;
        assert_eq!(online[..], [World::directory_id(0)]);
        // What is new goes where a disk is left.
        world.create_topic("later", 2);
        for partition in 0..2 {
            assert_eq!(produced(&mut world, "later", partition, &["c"]), 0);
        }
        world.stop();
        let files = world.files();
        let marks = files.iter().filter(|file| file.ends_with(".kafka_cleanshutdown"));
        assert!(marks.clone().all(|file| file.starts_with(DIRECTORY)), "{files:?}");
        assert_eq!(marks.count(), 1);
        world.set_trouble(&folder, None);
        world.start();
        for partition in lost {
            assert_eq!(fetched(&mut world, "orders", partition, 0), ["a"], "seed {seed}");
            assert_eq!(produced(&mut world, "orders", partition, &["b"]), 1);
        }
    }
}

#[test]
fn a_log_in_a_directory_that_is_offline_is_not_made_anew_elsewhere() {
    let mut world = two_directories(1, FaultPlan::calm());
    let (sound, lost) = (partitions_in(&world, 0), partitions_in(&world, 1));
    // The second time it is not even known that the log is there.
    for knows in [true, false] {
        if !knows {
            world.forget_directories("orders");
        }
        world.set_trouble(SECOND_DIRECTORY, Some(Trouble::Broken));
        world.restart(Crash::Process);
        assert_eq!(fetched(&mut world, "orders", sound[0], 0), ["a"]);
        assert_eq!(produce_code(&mut world, lost[0]), ErrorCode::KAFKA_STORAGE_ERROR);
        world.set_trouble(SECOND_DIRECTORY, None);
        world.restart(Crash::Process);
        assert_eq!(fetched(&mut world, "orders", lost[0], 0), ["a"]);
    }
}

#[test]
fn a_node_without_the_directory_of_its_metadata_log_gives_up() {
    let mut world = two_directories(1, FaultPlan::calm());
    let lost = partitions_in(&world, 0);
    // What making the logs has left to do ends before the fault: the node gives up at the first.
    world.pause();
    world.set_trouble(DIRECTORY, Some(Trouble::Broken));
    let request = client::produce("orders", lost[0], batch(&["x"]));
    let _unanswered = world.begin::<ProduceRequest>(9, &request);
    let sentence = world.gives_up();
    assert!(
        sentence.contains("The directory of the metadata log, /data, has failed"),
        "{sentence}"
    );
}

/// A disk that takes a minute for a sync: what is not on it stays bounded, whoever writes more
/// waits, nobody else does, and nothing is lost.
#[test]
fn a_slow_disk_makes_its_own_producers_wait() {
    // With so many shards each has the least that it may have dirty in a directory, 32 MiB.
    const SHARDS: u16 = 8;
    const DIRTY_BYTES_MAX: usize = 32 << 20;
    const BATCH_BYTES: usize = 1_000_000;
    // More than may be dirty and as much again, which may wait.
    const BATCHES: usize = 80;
    let mut world = World::with_directories(1, SHARDS, FaultPlan::calm(), BOTH);
    world.create_topic("orders", 1);
    world.create_topic("others", 1);
    // Until the logs are made.
    world.pause();
    let value = "x".repeat(BATCH_BYTES);
    let slow = if world.files().iter().any(|file| file.starts_with("/more/orders-0")) {
        [SECOND_DIRECTORY, DIRECTORY]
    } else {
        [DIRECTORY, SECOND_DIRECTORY]
    };
    world.set_trouble(slow[0], Some(Trouble::SlowSyncs(Delay::us(60_000_000, 60_000_000))));
    let started = world.now();
    let request = client::produce("orders", 0, batch(&[value.as_str()]));
    let begun: Vec<_> = (0..BATCHES).map(|_| world.begin::<ProduceRequest>(9, &request)).collect();
    // The other directory is as fast as ever, though it may have its partition on the same shard.
    for offset in 0..5 {
        let before = world.now();
        assert_eq!(produced(&mut world, "others", 0, &["a"]), offset);
        assert!(world.now().since(before) < Duration::from_secs(1));
    }
    let written = world.bytes_of("orders-0/00000000000000000000.log");
    assert!(world.now().since(started) < Duration::from_secs(30), "no sync is over");
    assert!(written >= DIRTY_BYTES_MAX, "{written}");
    assert!(written <= DIRTY_BYTES_MAX + 2 * BATCH_BYTES, "{written}");
    let (mut offsets, mut refused) = (Vec::new(), 0);
    for begun in begun {
        let response = world.end::<ProduceRequest>(9, begun);
        let partition = &response.responses[0].partition_responses[0];
        match partition.error_code {
            ErrorCode::NONE => offsets.push(partition.base_offset),
            ErrorCode::REQUEST_TIMED_OUT => refused += 1,
            code => panic!("{code:?}"),
        }
    }
    offsets.sort_unstable();
    assert_eq!(offsets, (0..offsets.len() as i64).collect::<Vec<_>>());
    assert!((64..=70).contains(&offsets.len()), "{} and {refused}", offsets.len());
    assert!(world.now().since(started) >= Duration::from_secs(60), "they waited for syncs");
}

#[test]
fn a_full_disk_refuses_what_is_written_and_is_read_and_goes_on_when_there_is_space() {
    for seed in 0..10 {
        let mut world = two_directories(seed, crate::slow(seed));
        let (sound, full) = (partitions_in(&world, 0), partitions_in(&world, 1));
        world.set_trouble(SECOND_DIRECTORY, Some(Trouble::Full));
        for partition in &full {
            assert_eq!(produce_code(&mut world, *partition), ErrorCode::KAFKA_STORAGE_ERROR);
            assert_eq!(fetched(&mut world, "orders", *partition, 0), ["a"]);
        }
        assert_eq!(produced(&mut world, "orders", sound[0], &["b"]), 1);
        let response = world.call::<DescribeLogDirsRequest>(4, &DescribeLogDirsRequest::default());
        assert!(response.results.iter().all(|one| one.error_code == ErrorCode::NONE));
        world.set_trouble(SECOND_DIRECTORY, None);
        for partition in &full {
            assert_eq!(produced(&mut world, "orders", *partition, &["b"]), 1, "seed {seed}");
            assert_eq!(fetched(&mut world, "orders", *partition, 0), ["a", "b"]);
        }
    }
}

#[test]
fn a_full_disk_keeps_no_node_from_stopping_and_nothing_is_lost() {
    for seed in 0..10 {
        let mut world = World::new(seed, 2, crate::slow(seed));
        world.create_topic("orders", 2);
        produced(&mut world, "orders", 0, &["a"]);
        world.set_trouble(DIRECTORY, Some(Trouble::Full));
        // A log that is made on a full disk waits for space, and says so.
        world.create_topic("late", 1);
        let request = client::produce("late", 0, batch(&["x"]));
        let response = world.call::<ProduceRequest>(9, &request);
        let code = response.responses[0].partition_responses[0].error_code;
        let codes = [ErrorCode::KAFKA_STORAGE_ERROR, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION];
        assert!(codes.contains(&code) || code == ErrorCode::NOT_LEADER_OR_FOLLOWER, "{code:?}");
        world.stop();
        world.set_trouble(DIRECTORY, None);
        world.start();
        assert_eq!(fetched(&mut world, "orders", 0, 0), ["a"], "seed {seed}");
        assert_eq!(produced(&mut world, "late", 0, &["x"]), 0, "seed {seed}");
    }
}
