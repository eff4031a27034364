//! Topics that are deleted and made again under their names: what the clients of the new one see,
//! and what becomes of the folders of the old one.

use base::Uuid;
use fakeworld::{Crash, Delay, FaultPlan, Trouble};

use crate::client::{DIRECTORY, SECOND_DIRECTORY, THIRD_DIRECTORY, World};
use crate::{TRIES, batch, client, fetched, produced, slow};
use protocol::{ErrorCode, ProduceRequest};

/// How the node ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Stop,
    Crash,
}

const ENDS: [End; 2] = [End::Stop, End::Crash];

fn end(world: &mut World, end: End) {
    match end {
        End::Stop => world.stop(),
        End::Crash => world.crash(Crash::Process),
    }
}

/// Waits until a topic that was deleted has given back its names, and is there again: that is more
/// round trips than a client tries, where the disk is slow.
fn await_folders(world: &mut World, partitions: usize) {
    for _ in 0..TRIES {
        let deleted = folders(world, "-delete").len();
        let logs = (0..partitions).map(|partition| format!("/orders-{partition}"));
        let here = logs.filter(|log| folders(world, log).len() == 1).count();
        if (deleted, here) == (partitions, partitions) {
            return;
        }
        world.pause();
    }
    panic!("{:?}", world.files());
}

/// The folders that end so, whatever they hold.
fn folders(world: &mut World, ending: &str) -> Vec<String> {
    let files = world.files();
    let folders = files.iter().filter_map(|file| file.parent());
    let mut folders: Vec<String> = folders.map(|folder| folder.display().to_string()).collect();
    folders.dedup();
    folders.retain(|folder| folder.ends_with(ending));
    folders
}

#[test]
fn a_topic_that_is_made_again_has_nothing_of_its_predecessor() {
    for (seed, ends) in (0..20).flat_map(|seed| ENDS.map(|ends| (seed, ends))) {
        let mut world = World::new(seed, 2, slow(seed));
        world.create_topic("orders", 2);
        for partition in [0, 1] {
            produced(&mut world, "orders", partition, &["a"; 20]);
            world.delete_records("orders", partition, 15);
        }
        world.delete_topic("orders");
        world.create_topic("orders", 2);
        await_folders(&mut world, 2);
        for partition in [0, 1] {
            assert_eq!(produced(&mut world, "orders", partition, &["b", "c"]), 0, "seed {seed}");
        }
        end(&mut world, ends);
        world.start();
        for partition in [0, 1] {
            let values = fetched(&mut world, "orders", partition, 0);
            assert_eq!(values, ["b", "c"], "seed {seed} {ends:?}");
            assert_eq!(produced(&mut world, "orders", partition, &["d"]), 2, "seed {seed}");
        }
    }
}

#[test]
fn what_is_left_of_a_deleted_topic_goes_at_the_next_start() {
    for ends in ENDS {
        let mut world = World::new(1, 2, FaultPlan::calm());
        world.create_topic("orders", 2);
        for partition in [0, 1] {
            produced(&mut world, "orders", partition, &["a"]);
        }
        world.delete_topic("orders");
        world.create_topic("orders", 1);
        produced(&mut world, "orders", 0, &["b"]);
        assert_eq!(folders(&mut world, "-delete").len(), 2);
        end(&mut world, ends);
        assert_eq!(folders(&mut world, "-delete").len(), 2);
        world.start();
        assert_eq!(fetched(&mut world, "orders", 0, 0), ["b"], "{ends:?}");
        world.pause();
        assert_eq!(folders(&mut world, "-delete"), [""; 0], "{ends:?}");
    }
}

#[test]
fn a_node_that_stops_finishes_what_it_began_to_delete() {
    const BATCH_BYTES: usize = 1_000_000;
    // So many that some are on their way to the disk.
    const BATCHES: i64 = 12;
    let mut world = World::new(1, 2, FaultPlan::calm());
    world.create_topic("orders", 1);
    let value = "x".repeat(BATCH_BYTES);
    produced(&mut world, "orders", 0, &[&value]);
    let slow = Delay::us(20_000_000, 20_000_000);
    // The checkpoints are on the disk long before.
    let folder = format!("{DIRECTORY}/orders-0");
    world.set_trouble(&folder, Some(Trouble::SlowSyncs(slow)));
    for offset in 1..BATCHES {
        assert_eq!(produced(&mut world, "orders", 0, &[&value]), offset);
    }
    world.delete_topic("orders");
    world.pause();
    assert_eq!(folders(&mut world, "/orders-0").len(), 1, "it has to wait");
    world.stop();
    assert_eq!(folders(&mut world, "/orders-0"), [""; 0]);
    assert_eq!(folders(&mut world, "-delete").len(), 1);
}

#[test]
fn a_log_whose_topic_went_while_the_node_was_down_is_set_aside() {
    for (seed, ends) in (0..10).flat_map(|seed| ENDS.map(|ends| (seed, ends))) {
        // The new topic is there at the start, or comes later.
        for new_id in [Some(Uuid([5; 16])), None] {
            let mut world = World::new(seed, 2, slow(seed));
            world.create_topic("orders", 3);
            world.create_topic("others", 1);
            produced(&mut world, "others", 0, &["x"]);
            for partition in 0..3 {
                produced(&mut world, "orders", partition, &["a"; 20]);
                world.delete_records("orders", partition, 15);
            }
            end(&mut world, ends);
            world.replace_topic("orders", new_id);
            world.start();
            assert_eq!(fetched(&mut world, "others", 0, 0), ["x"], "seed {seed}");
            let strays = folders(&mut world, "-stray");
            assert_eq!(strays.len(), 3, "seed {seed} {ends:?} {new_id:?}: {strays:?}");
            if new_id.is_none() {
                world.create_topic("orders", 3);
            }
            for partition in 0..3 {
                assert_eq!(produced(&mut world, "orders", partition, &["b"]), 0, "seed {seed}");
            }
            end(&mut world, ends);
            world.start();
            for partition in 0..3 {
                let values = fetched(&mut world, "orders", partition, 0);
                assert_eq!(values, ["b"], "seed {seed} {ends:?} {new_id:?}");
            }
            assert_eq!(folders(&mut world, "-stray"), strays);
        }
    }
}

/// The topic is deleted while one of its directories is offline, and made again in the others.
#[test]
fn a_directory_that_comes_back_has_nothing_to_say_of_a_topic_that_was_deleted() {
    const PARTITIONS: i32 = 6;
    let directories: &[&str] = &[DIRECTORY, SECOND_DIRECTORY, THIRD_DIRECTORY];
    for ends in ENDS {
        let mut world = World::with_directories(1, 1, FaultPlan::calm(), directories);
        world.create_topic("orders", PARTITIONS);
        for partition in 0..PARTITIONS {
            produced(&mut world, "orders", partition, &["a"; 3]);
        }
        world.set_trouble(SECOND_DIRECTORY, Some(Trouble::Broken));
        let mut offline = 0;
        for partition in 0..PARTITIONS {
            let request = client::produce("orders", partition, batch(&["x"]));
            let response = world.call::<ProduceRequest>(9, &request);
            let code = response.responses[0].partition_responses[0].error_code;
            offline += usize::from(code == ErrorCode::KAFKA_STORAGE_ERROR);
        }
        assert_eq!(offline, 2);
        world.delete_topic("orders");
        world.create_topic("orders", PARTITIONS);
        for partition in 0..PARTITIONS {
            assert_eq!(produced(&mut world, "orders", partition, &["b"]), 0);
        }
        end(&mut world, ends);
        world.set_trouble(SECOND_DIRECTORY, None);
        world.start();
        for partition in 0..PARTITIONS {
            assert_eq!(fetched(&mut world, "orders", partition, 0), ["b"], "{ends:?}");
        }
        let strays = folders(&mut world, "-stray");
        assert_eq!(strays.len(), offline, "{strays:?}");
        assert!(strays.iter().all(|stray| stray.starts_with(SECOND_DIRECTORY)), "{strays:?}");
        for _ in 0..TRIES {
            world.pause();
        }
        assert_eq!(folders(&mut world, "-stray"), strays);
    }
}
