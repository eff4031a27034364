//! Replicas that move between log directories: what their clients see, and what is left whenever
//! the node ends meanwhile.

use std::collections::BTreeSet;
use std::path::Path;

use base::{Duration, NodeId};
use bytes::Bytes;
use commitlog::COPY_MARK;
use fakeworld::{ClientSocket, Crash, Delay, FaultPlan, Trouble};
use protocol::alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic};
use protocol::{
    AlterReplicaLogDirsRequest, DescribeLogDirsRequest, ErrorCode, FetchRequest, ProduceRequest,
};
use records::Batches;

use crate::client::{self, Begun, DIRECTORY, SECOND_DIRECTORY, THIRD_DIRECTORY, World};
use crate::{TRIES, batch, fetched, produced};

const BOTH: [&str; 2] = [DIRECTORY, SECOND_DIRECTORY];
const ALL: &[&str] = &[DIRECTORY, SECOND_DIRECTORY, THIRD_DIRECTORY];
const TOPIC: &str = "orders";

/// A replica as DescribeLogDirs shows it: its directory, whether it is a copy, how far it lags.
type Place = (String, bool, i64);

fn request(topic: &str, partition: i32, directory: &str) -> AlterReplicaLogDirsRequest {
    let (name, partitions) = (topic.into(), vec![partition]);
    let topic = AlterReplicaLogDirTopic { name, partitions, ..Default::default() };
    let (path, topics) = (directory.into(), vec![topic]);
    let directory = AlterReplicaLogDir { path, topics, ..Default::default() };
    AlterReplicaLogDirsRequest { dirs: vec![directory], ..Default::default() }
}

fn alter(world: &mut World, topic: &str, partition: i32, directory: &str) -> ErrorCode {
    let request = request(topic, partition, directory);
    let response = world.call::<AlterReplicaLogDirsRequest>(2, &request);
    let [topic] = &response.results[..] else { panic!("{response:?}") };
    let [partition] = &topic.partitions[..] else { panic!("{response:?}") };
    partition.error_code
}

fn places(world: &mut World, topic: &str, partition: i32) -> Vec<Place> {
    let all = DescribeLogDirsRequest { topics: None, ..Default::default() };
    let response = world.call::<DescribeLogDirsRequest>(4, &all);
    let mut places = Vec::new();
    for result in response.results {
        let topics = result.topics.iter().filter(|one| &*one.name == topic);
        let partitions = topics.flat_map(|topic| &topic.partitions);
        for one in partitions.filter(|one| one.partition_index == partition) {
            places.push((result.log_dir.to_string(), one.is_future_key, one.offset_lag));
        }
    }
    places
}

/// Where the partition is, once it moves no more.
fn settles(world: &mut World, topic: &str, partition: i32) -> String {
    for _ in 0..TRIES {
        if let [(directory, false, 0)] = &places(world, topic, partition)[..] {
            return directory.clone();
        }
        world.pause();
    }
    panic!("it moves on and on: {:?}", places(world, topic, partition));
}

fn other(directory: &str) -> &'static str {
    if directory == DIRECTORY { SECOND_DIRECTORY } else { DIRECTORY }
}

/// The directory that the metadata name.
fn named(world: &World) -> Option<&'static str> {
    let image = world.image();
    let topic = image.topic_by_name(TOPIC)?;
    let id = topic.partition(base::PartitionIndex(0))?.directory_of(NodeId(1));
    (0..BOTH.len()).find(|index| Some(World::directory_id(*index)) == id).map(|index| BOTH[index])
}

/// The folders of partition 0 of the topic whose names begin and end so, with their directories.
fn folders(world: &mut World, end: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for file in world.files() {
        let Some(folder) = file.parent().filter(|it| it.parent() != Some(Path::new("/"))) else {
            continue;
        };
        let name = folder.file_name().expect("it has a name").to_string_lossy().into_owned();
        let is_current = end.is_empty() && name == format!("{TOPIC}-0");
        let is_aside =
            !end.is_empty() && name.starts_with(&format!("{TOPIC}-0.")) && name.ends_with(end);
        let directory = folder.parent().expect("a directory").display().to_string();
        if (is_current || is_aside) && !found.contains(&(directory.clone(), name.clone())) {
            found.push((directory, name));
        }
    }
    found
}

/// The values in the segments of a folder, in order.
fn values_in(world: &mut World, folder: &str) -> Vec<String> {
    let mut values = Vec::new();
    for (path, content) in world.contents() {
        if path.parent() != Some(Path::new(folder)) || path.extension().is_none_or(|it| it != "log")
        {
            continue;
        }
        for batch in Batches::new(Bytes::from(content)).map_while(Result::ok) {
            let Ok(mut records) = batch.records(1 << 20) else { break };
            while let Ok(Some(record)) = records.next_record() {
                let value = record.value.unwrap_or_default();
                values.push(String::from_utf8_lossy(value).into_owned());
            }
        }
    }
    values
}

/// Apache Kafka can start on what is there, and finds all that was acknowledged: there is one log,
/// or none and one copy that the metadata name; and a copy that the metadata name has everything.
fn kafka_finds(world: &mut World, acknowledged: &[String]) {
    let current = folders(world, "");
    let future = folders(world, "-future");
    assert!(current.len() <= 1 && future.len() <= 1, "{current:?} {future:?}");
    let promoted = future.first().filter(|(directory, _)| named(world) == Some(directory));
    let (directory, name) = promoted.or(current.first()).cloned().unwrap_or_else(|| {
        panic!("the log is lost: {future:?}, the metadata name {:?}", named(world))
    });
    let found = values_in(world, &format!("{directory}/{name}"));
    let missing = acknowledged.iter().find(|value| !found.iter().any(|found| found == *value));
    assert_eq!(missing, None, "of {acknowledged:?} in {directory}/{name}");
}

#[test]
fn a_partition_moves_and_keeps_its_records_whatever_comes_meanwhile() {
    for seed in 0..20 {
        let mut world = World::with_directories(seed, 2, crate::slow(seed), &BOTH);
        world.create_topic(TOPIC, 2);
        let mut expected: Vec<String> = Vec::new();
        for number in 0..10 {
            let value = number.to_string();
            produced(&mut world, TOPIC, 0, &[&value]);
            expected.push(value);
        }
        let mut directory = settles(&mut world, TOPIC, 0);
        for round in 0..3 {
            let to = other(&directory);
            assert_eq!(alter(&mut world, TOPIC, 0, to), ErrorCode::NONE);
            for number in 0..5 {
                let value = format!("{round}-{number}");
                let offset = produced(&mut world, TOPIC, 0, &[&value]);
                assert_eq!(offset, expected.len() as i64, "seed {seed}");
                expected.push(value);
            }
            directory = settles(&mut world, TOPIC, 0);
            assert_eq!(directory, to, "seed {seed}");
            assert_eq!(fetched(&mut world, TOPIC, 0, 0), expected, "seed {seed}");
        }
        assert_eq!(alter(&mut world, TOPIC, 0, &directory), ErrorCode::NONE, "it is there");
        world.stop();
        world.start();
        assert_eq!(fetched(&mut world, TOPIC, 0, 0), expected, "seed {seed}");
        assert_eq!(settles(&mut world, TOPIC, 0), directory);
        assert_eq!(named(&world), Some(&*directory), "seed {seed}");
    }
}

/// Produces to the topic on connections that are open already, until none is left.
struct Stream {
    sockets: Vec<ClientSocket>,
    sent: Vec<(String, Begun)>,
}

impl Stream {
    fn new(world: &mut World, count: usize) -> Self {
        Self { sockets: (0..count).map(|_| world.connected()).collect(), sent: Vec::new() }
    }

    fn send(&mut self, world: &mut World) {
        let Some(socket) = self.sockets.pop() else { return };
        let value = format!("stream{}", self.sent.len());
        let request = client::produce(TOPIC, 0, batch(&[&value]));
        self.sent.push((value, world.begin_on::<ProduceRequest>(socket, 9, &request)));
    }

    /// What was acknowledged by now.
    fn acknowledged(&self, world: &World) -> Vec<String> {
        let is_acknowledged = |begun: &Begun| {
            let response = world.answered::<ProduceRequest>(9, begun);
            response.is_some_and(|response| {
                response.responses[0].partition_responses[0].error_code == ErrorCode::NONE
            })
        };
        let sent = self.sent.iter().filter(|(_, begun)| is_acknowledged(begun));
        sent.map(|(value, _)| value.clone()).collect()
    }
}

#[test]
fn a_crash_at_any_effect_of_a_move_loses_nothing_and_the_move_goes_on() {
    const SLOW: Trouble = Trouble::SlowSyncs(Delay::us(2_000, 3_000));
    // How many batches are sent, how many moments apart; and how many effects lie between two
    // crashes.
    for (crash, seed, (sent, pace), (trouble, step)) in [
        (Crash::Process, 1, (12, 1), (None, 1)),
        (Crash::Machine, 2, (12, 1), (None, 1)),
        (Crash::Machine, 3, (0, 1), (None, 1)),
        (Crash::Machine, 4, (60, 5), (Some(SLOW), 3)),
    ] {
        let mut effects = 0;
        loop {
            let mut world = World::with_syncs(seed, 1, FaultPlan::calm());
            world.create_topic(TOPIC, 1);
            for value in ["a", "b", "c"] {
                produced(&mut world, TOPIC, 0, &[value]);
            }
            let from = settles(&mut world, TOPIC, 0);
            let to = other(&from);
            let asks = world.connected();
            let mut stream = Stream::new(&mut world, sent);
            world.set_trouble(to, trouble);
            world.begin_on::<AlterReplicaLogDirsRequest>(asks, 2, &request(TOPIC, 0, to));
            let has_crashed = world.crashes_after(effects, crash, |world, moment| {
                if moment % pace == 0 {
                    stream.send(world);
                }
            });
            let mut acknowledged: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
            acknowledged.extend(stream.acknowledged(&world));
            if has_crashed {
                kafka_finds(&mut world, &acknowledged);
                world.set_trouble(to, None);
                world.start();
            }
            produced(&mut world, TOPIC, 0, &["z"]);
            acknowledged.push("z".to_owned());
            let directory = settles(&mut world, TOPIC, 0);
            assert!(directory == to || has_crashed, "{effects}");
            let mut lasting = fetched(&mut world, TOPIC, 0, 0);
            lasting.retain(|value| acknowledged.contains(value));
            assert_eq!(lasting, acknowledged, "after {effects} effects, {crash:?}");
            assert_eq!(folders(&mut world, "").len(), 1);
            assert_eq!(folders(&mut world, "-future"), []);
            kafka_finds(&mut world, &acknowledged);
            if !has_crashed {
                assert_eq!(acknowledged.len(), sent + 4, "all that was sent");
                break;
            }
            effects += step;
        }
    }
}

#[test]
fn a_move_can_be_given_up_or_led_elsewhere_at_any_time() {
    for moments in (0..40).step_by(3) {
        for last in ALL {
            let mut world = World::with_directories(1, 1, FaultPlan::calm(), ALL);
            world.create_topic(TOPIC, 1);
            let mut expected = vec!["a".to_owned()];
            produced(&mut world, TOPIC, 0, &["a"]);
            let from = settles(&mut world, TOPIC, 0);
            let mut others = ALL.iter().filter(|directory| **directory != from);
            let to = others.next().expect("there are three");
            let mut stream = Stream::new(&mut world, 12);
            assert_eq!(alter(&mut world, TOPIC, 0, to), ErrorCode::NONE);
            world.passes(moments, |world| stream.send(world));
            assert_eq!(alter(&mut world, TOPIC, 0, last), ErrorCode::NONE);
            world.passes(100, |world| stream.send(world));
            assert_eq!(settles(&mut world, TOPIC, 0), *last, "after {moments}");
            let acknowledged = stream.acknowledged(&world);
            assert_eq!(acknowledged.len(), 12, "after {moments}");
            expected.extend(acknowledged);
            assert_eq!(fetched(&mut world, TOPIC, 0, 0), expected);
            assert_eq!(folders(&mut world, "-future"), []);
            assert_eq!(folders(&mut world, "").len(), 1);
            let index = ALL.iter().position(|one| one == last).expect("it is one of them");
            let named = world.image().topic_by_name(TOPIC).expect("it is there").clone();
            let named = named.partition(base::PartitionIndex(0)).expect("it is there").clone();
            assert_eq!(named.directory_of(NodeId(1)), Some(World::directory_id(index)));
        }
    }
}

#[test]
fn a_node_stops_whatever_moves_are_asked_for_meanwhile() {
    for moments in (0..200).step_by(7) {
        let mut faults = slow_names(1_000, 2_000);
        faults.disk.sync = Delay::us(500, 1_500);
        let mut world = World::with_settings(1, faults, ALL, "");
        world.create_topic(TOPIC, 1);
        produced(&mut world, TOPIC, 0, &["a"]);
        let from = settles(&mut world, TOPIC, 0);
        let sockets: Vec<ClientSocket> = (0..400).map(|_| world.connected()).collect();
        let mut asks = sockets.into_iter().zip(ALL.iter().cycle());
        let ask = |world: &mut World| {
            if let Some((socket, directory)) = asks.next() {
                let request = request(TOPIC, 0, directory);
                world.begin_on::<AlterReplicaLogDirsRequest>(socket, 2, &request);
            }
        };
        let to = ALL.iter().find(|directory| **directory != from).expect("there are three");
        assert_eq!(alter(&mut world, TOPIC, 0, to), ErrorCode::NONE);
        world.passes(moments, |_| {});
        world.stop_meanwhile(ask);
        world.start();
        assert_eq!(fetched(&mut world, TOPIC, 0, 0), ["a"], "after {moments}");
    }
}

#[test]
fn a_topic_can_be_deleted_and_made_again_while_its_partition_moves() {
    for moments in (0..40).step_by(3) {
        let mut world = World::with_directories(1, 2, FaultPlan::calm(), &BOTH);
        world.create_topic(TOPIC, 1);
        produced(&mut world, TOPIC, 0, &["old"]);
        let from = settles(&mut world, TOPIC, 0);
        assert_eq!(alter(&mut world, TOPIC, 0, other(&from)), ErrorCode::NONE);
        world.passes(moments, |_| {});
        world.delete_topic(TOPIC);
        world.create_topic(TOPIC, 1);
        assert_eq!(produced(&mut world, TOPIC, 0, &["new"]), 0, "after {moments}");
        settles(&mut world, TOPIC, 0);
        assert_eq!(folders(&mut world, "-future"), [], "after {moments}");
        world.restart(Crash::Process);
        assert_eq!(fetched(&mut world, TOPIC, 0, 0), ["new"], "after {moments}");
    }
}

#[test]
fn a_directory_that_fails_while_a_partition_moves_takes_no_more_than_what_is_in_it() {
    for moments in (0..40).step_by(3) {
        for target_fails in [true, false] {
            let mut world = World::with_syncs(1, 1, FaultPlan::calm());
            world.create_topic(TOPIC, 1);
            produced(&mut world, TOPIC, 0, &["a"]);
            let from = settles(&mut world, TOPIC, 0);
            // The one with the metadata log stays.
            if from != SECOND_DIRECTORY && !target_fails {
                alter(&mut world, TOPIC, 0, SECOND_DIRECTORY);
                settles(&mut world, TOPIC, 0);
            } else if from != DIRECTORY && target_fails {
                alter(&mut world, TOPIC, 0, DIRECTORY);
                settles(&mut world, TOPIC, 0);
            }
            let to = if target_fails { SECOND_DIRECTORY } else { DIRECTORY };
            let mut stream = Stream::new(&mut world, 12);
            assert_eq!(alter(&mut world, TOPIC, 0, to), ErrorCode::NONE);
            world.passes(moments, |world| stream.send(world));
            world.set_trouble(SECOND_DIRECTORY, Some(Trouble::Broken));
            world.passes(100, |world| stream.send(world));
            let mut acknowledged = vec!["a".to_owned()];
            if target_fails {
                produced(&mut world, TOPIC, 0, &["z"]);
                acknowledged.push("z".to_owned());
            }
            acknowledged.splice(1..1, stream.acknowledged(&world));
            if target_fails {
                let found = fetched(&mut world, TOPIC, 0, 0);
                let missing = acknowledged.iter().find(|value| !found.contains(value));
                assert_eq!(missing, None, "after {moments}");
            }
            world.set_trouble(SECOND_DIRECTORY, None);
            world.restart(Crash::Process);
            produced(&mut world, TOPIC, 0, &["later"]);
            let found = fetched(&mut world, TOPIC, 0, 0);
            let missing = acknowledged.iter().find(|value| !found.contains(value));
            assert_eq!(missing, None, "after {moments}, the target fails: {target_fails}");
        }
    }
}

#[test]
fn nothing_moves_where_a_directory_is_offline_and_offline_is_what_moves_nowhere() {
    let mut world = World::with_directories(1, 1, FaultPlan::calm(), ALL);
    world.create_topic(TOPIC, 3);
    for partition in 0..3 {
        produced(&mut world, TOPIC, partition, &["a"]);
    }
    let places: Vec<String> =
        (0..3).map(|partition| settles(&mut world, TOPIC, partition)).collect();
    let lost = places.iter().position(|it| it == THIRD_DIRECTORY).expect("one is there") as i32;
    let sound = places.iter().position(|it| it == DIRECTORY).expect("one is there") as i32;
    world.set_trouble(THIRD_DIRECTORY, Some(Trouble::Broken));
    let request = client::produce(TOPIC, lost, batch(&["x"]));
    world.call::<ProduceRequest>(9, &request);
    let storage = ErrorCode::KAFKA_STORAGE_ERROR;
    assert_eq!(alter(&mut world, TOPIC, sound, THIRD_DIRECTORY), storage);
    assert_eq!(alter(&mut world, TOPIC, sound, SECOND_DIRECTORY), storage);
    assert_eq!(alter(&mut world, TOPIC, lost, SECOND_DIRECTORY), storage);
    assert_eq!(alter(&mut world, TOPIC, sound, DIRECTORY), ErrorCode::NONE);
    let fetch = client::fetch(TOPIC, sound, 0, 0);
    let response = world.call::<FetchRequest>(12, &fetch);
    assert_eq!(client::values(&response.responses[0].partitions[0]), ["a"]);
}

/// A world in which names take long.
fn slow_names(shortest_us: u64, longest_us: u64) -> FaultPlan {
    let mut faults = FaultPlan::calm();
    faults.disk.names = Delay::us(shortest_us, longest_us);
    faults
}

/// Asks for a move to each of these in turn, while something else happens.
fn asks_meanwhile(world: &mut World, sockets: Vec<ClientSocket>, directories: &[&str]) {
    let moments = 2 * sockets.len();
    let mut sockets = sockets.into_iter().enumerate();
    world.passes(moments, |world| {
        if let Some((number, socket)) = sockets.next() {
            let request = request(TOPIC, 0, directories[number % directories.len()]);
            world.begin_on::<AlterReplicaLogDirsRequest>(socket, 2, &request);
        }
    });
}

#[test]
fn any_directory_may_fail_at_any_time_of_a_move_and_another_may_be_asked_for_then() {
    const OTHERS: &str = "others";
    let fails: [&[&str]; 3] = [
        &[THIRD_DIRECTORY],
        &[SECOND_DIRECTORY, THIRD_DIRECTORY],
        &[THIRD_DIRECTORY, SECOND_DIRECTORY],
    ];
    let mut outcomes = BTreeSet::new();
    for (fails, moments) in fails.iter().flat_map(|it| (0..240).step_by(4).map(move |at| (it, at)))
    {
        let mut world = World::with_settings(
            1,
            slow_names(1_000, 2_000),
            ALL,
            "log.flush.interval.messages=1\n",
        );
        world.create_topic(TOPIC, 1);
        world.create_topic(OTHERS, 2);
        for (topic, partition, to) in [
            (TOPIC, 0, SECOND_DIRECTORY),
            (OTHERS, 0, SECOND_DIRECTORY),
            (OTHERS, 1, THIRD_DIRECTORY),
        ] {
            produced(&mut world, topic, partition, &["a"]);
            settles(&mut world, topic, partition);
            assert_eq!(alter(&mut world, topic, partition, to), ErrorCode::NONE);
            assert_eq!(settles(&mut world, topic, partition), to);
        }
        let finders: Vec<ClientSocket> = (0..2).map(|_| world.connected()).collect();
        let sockets = (0..40).map(|_| world.connected()).collect();
        assert_eq!(alter(&mut world, TOPIC, 0, THIRD_DIRECTORY), ErrorCode::NONE);
        world.passes(moments, |_| {});
        for (directory, finder) in fails.iter().zip(finders) {
            // Whoever writes into the directory finds it.
            let partition = i32::from(*directory == THIRD_DIRECTORY);
            world.set_trouble(directory, Some(Trouble::Broken));
            let write = client::produce(OTHERS, partition, batch(&["x"]));
            world.begin_on::<ProduceRequest>(finder, 9, &write);
            world.passes(10, |_| {});
        }
        asks_meanwhile(&mut world, sockets, &[DIRECTORY, SECOND_DIRECTORY]);
        let write = client::produce(TOPIC, 0, batch(&["b"]));
        let response = world.call::<ProduceRequest>(9, &write);
        let is_written = match response.responses[0].partition_responses[0].error_code {
            ErrorCode::NONE => true,
            ErrorCode::KAFKA_STORAGE_ERROR => false,
            code => panic!("{code} after {moments}"),
        };
        outcomes.insert((fails.len(), is_written));
        for directory in [SECOND_DIRECTORY, THIRD_DIRECTORY] {
            world.set_trouble(directory, None);
        }
        world.restart(Crash::Process);
        produced(&mut world, TOPIC, 0, &["c"]);
        let expected: &[&str] = if is_written { &["a", "b", "c"] } else { &["a", "c"] };
        let found = fetched(&mut world, TOPIC, 0, 0);
        assert_eq!(found, expected, "{fails:?} after {moments}");
    }
    // Where only the directory of the copy fails, that matters once the copy is the log.
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), [(1, false), (1, true), (2, false)]);
}

/// What cannot be read of the log's directory when the node starts again.
fn log_is_out_of_sight(world: &mut World, unreadable: &str) -> bool {
    world.set_trouble(unreadable, Some(Trouble::Broken));
    world.restart(Crash::Process);
    let write = client::produce(TOPIC, 0, batch(&["x"]));
    let response = world.call::<ProduceRequest>(9, &write);
    world.set_trouble(unreadable, None);
    match response.responses[0].partition_responses[0].error_code {
        ErrorCode::NONE => false,
        ErrorCode::KAFKA_STORAGE_ERROR => true,
        code => panic!("{code} while {unreadable} cannot be read"),
    }
}

#[test]
fn a_copy_that_lacks_records_is_not_taken_for_the_log_where_that_is_out_of_sight() {
    let mark = format!("{SECOND_DIRECTORY}/{TOPIC}-0/{COPY_MARK}");
    let mut copies = 0;
    for moments in (0..400).step_by(2) {
        let settings = "log.flush.interval.messages=1\n";
        let mut world = World::with_settings(1, slow_names(1_000, 2_000), ALL, settings);
        world.create_topic(TOPIC, 1);
        produced(&mut world, TOPIC, 0, &["a"]);
        settles(&mut world, TOPIC, 0);
        assert_eq!(alter(&mut world, TOPIC, 0, SECOND_DIRECTORY), ErrorCode::NONE);
        assert_eq!(settles(&mut world, TOPIC, 0), SECOND_DIRECTORY);
        assert_eq!(alter(&mut world, TOPIC, 0, THIRD_DIRECTORY), ErrorCode::NONE);
        world.passes(moments, |_| {});
        world.set_trouble(THIRD_DIRECTORY, Some(Trouble::Broken));
        world.passes(200, |_| {});
        if folders(&mut world, "").len() != 2 {
            // The copy has not got the name of the log, or has taken its place.
            continue;
        }
        copies += 1;
        assert_eq!(produced(&mut world, TOPIC, 0, &["b"]), 1, "after {moments}");
        world.set_trouble(THIRD_DIRECTORY, None);
        let unreadable = if copies % 2 == 0 { &*mark } else { SECOND_DIRECTORY };
        assert!(log_is_out_of_sight(&mut world, unreadable), "after {moments}: {unreadable}");
        world.restart(Crash::Process);
        assert_eq!(produced(&mut world, TOPIC, 0, &["c"]), 2, "after {moments}");
        assert_eq!(fetched(&mut world, TOPIC, 0, 0), ["a", "b", "c"], "after {moments}");
        assert_eq!(settles(&mut world, TOPIC, 0), SECOND_DIRECTORY);
    }
    assert!(copies > 1, "the copy got the name of the log and the log got it back {copies} times");
}

/// Lets the copy in this directory be marked; the name of the mark takes so long to be durable.
fn is_being_marked(world: &mut World, directory: &str, sync_us: u64) {
    let mut slow = None;
    for _ in 0..1_000 {
        world.passes(1, |_| {});
        let copies = folders(world, "-future");
        let copy = copies.iter().find(|(here, _)| here == directory);
        let Some(folder) = copy.map(|(here, name)| format!("{here}/{name}")) else { continue };
        let segment = Path::new(&folder).join("00000000000000000000.log");
        let is_copied = world.contents().get(&segment).is_some_and(|content| !content.is_empty());
        if slow.is_none() && is_copied {
            let delay = Delay::us(sync_us, sync_us);
            world.set_trouble(&folder, Some(Trouble::SlowFolderSyncs(delay)));
            slow = Some(folder);
        } else if slow.is_some() && world.files().contains(&Path::new(&folder).join(COPY_MARK)) {
            // The sync is under way.
            return world.passes(2, |_| {});
        }
    }
    panic!("no copy is marked in {directory}");
}

#[test]
fn what_becomes_of_the_mark_in_a_copy_that_was_given_up_does_not_touch_another_one() {
    let mut world = World::with_directories(1, 1, FaultPlan::calm(), ALL);
    world.create_topic(TOPIC, 1);
    produced(&mut world, TOPIC, 0, &["a"]);
    if settles(&mut world, TOPIC, 0) != DIRECTORY {
        assert_eq!(alter(&mut world, TOPIC, 0, DIRECTORY), ErrorCode::NONE);
        assert_eq!(settles(&mut world, TOPIC, 0), DIRECTORY);
    }
    assert_eq!(alter(&mut world, TOPIC, 0, THIRD_DIRECTORY), ErrorCode::NONE);
    is_being_marked(&mut world, THIRD_DIRECTORY, 300_000);
    let ends_at = world.now() + Duration::from_millis(300);
    assert_eq!(alter(&mut world, TOPIC, 0, SECOND_DIRECTORY), ErrorCode::NONE);
    is_being_marked(&mut world, SECOND_DIRECTORY, 600_000);
    assert!(world.now() + Duration::from_millis(10) < ends_at, "the first is still under way");
    // It fails, for its folder has another name by now.
    world.passes(4_000, |_| {});
    assert_eq!(folders(&mut world, "-future").len(), 1, "the second is");
    assert_eq!(settles(&mut world, TOPIC, 0), SECOND_DIRECTORY);
    assert_eq!(produced(&mut world, TOPIC, 0, &["b"]), 1);
    assert_eq!(fetched(&mut world, TOPIC, 0, 0), ["a", "b"]);
}

#[test]
fn a_log_with_a_damaged_batch_stays_where_it_is_and_takes_appends() {
    // The length says 64 KiB more, or 16 MiB; the batch is another than its checksum says; or, if
    // it is small, the next one has another offset.
    for byte in [9, 8, 62, 70] {
        for large in [false, true] {
            let mut world = World::with_directories(1, 1, FaultPlan::calm(), &BOTH);
            world.create_topic(TOPIC, 1);
            let value = if large { "v".repeat(200_000) } else { "v".to_owned() };
            for _ in 0..5 {
                produced(&mut world, TOPIC, 0, &[&value]);
            }
            let from = settles(&mut world, TOPIC, 0);
            world.damage("orders-0/00000000000000000000.log", byte);
            assert_eq!(alter(&mut world, TOPIC, 0, other(&from)), ErrorCode::NONE);
            world.passes(1_000, |_| {});
            assert!(world.reads() < 20, "byte {byte}, large: {large}: {}", world.reads());
            assert_eq!(produced(&mut world, TOPIC, 0, &["w"]), 5);
            let places = places(&mut world, TOPIC, 0);
            assert_eq!(places[0].0, from);
            // Where little is left appends waited for the copy, and it was given up.
            assert_eq!(places.len(), if large { 2 } else { 1 }, "{places:?}");
        }
    }
}

#[test]
fn a_full_disk_does_not_keep_a_partition_that_moves_from_being_read() {
    let full_at = (0..150).step_by(5).map(Some).chain([None]);
    for moments in full_at {
        let settings = "log.flush.interval.messages=1\n";
        let mut world = World::with_settings(1, slow_names(300, 600), &BOTH, settings);
        world.create_topic(TOPIC, 1);
        for value in ["a", "b"] {
            produced(&mut world, TOPIC, 0, &[value]);
        }
        let from = settles(&mut world, TOPIC, 0);
        let to = other(&from);
        if moments.is_none() {
            // The log cannot say where it begins.
            world.set_trouble(&from, Some(Trouble::Full));
        }
        world.delete_records(TOPIC, 0, 1);
        assert_eq!(alter(&mut world, TOPIC, 0, to), ErrorCode::NONE);
        if let Some(moments) = moments {
            // Sooner or later it is the copy that cannot.
            world.passes(moments, |_| {});
            world.set_trouble(to, Some(Trouble::Full));
        }
        world.passes(300, |_| {});
        let begins = world.now();
        let fetch = client::fetch(TOPIC, 0, 1, 0);
        let response = world.call::<FetchRequest>(12, &fetch);
        assert!(world.now() < begins + Duration::from_secs(5), "after {moments:?}");
        assert_eq!(client::values(&response.responses[0].partitions[0]), ["b"]);
        for directory in BOTH {
            world.set_trouble(directory, None);
        }
        produced(&mut world, TOPIC, 0, &["z"]);
        // It is given up where it held up appends.
        assert_eq!(alter(&mut world, TOPIC, 0, to), ErrorCode::NONE);
        let settled = (0..TRIES).any(|_| settles(&mut world, TOPIC, 0) == to);
        assert!(settled, "after {moments:?}");
        assert_eq!(fetched(&mut world, TOPIC, 0, 1), ["b", "z"], "after {moments:?}");
    }
}
