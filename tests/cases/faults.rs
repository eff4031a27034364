//! Disks that fail, fill up and lose their power under a broker, on the disk of `faultfs`. Apache
//! Kafka does not get through: it ends on a full disk, and a loss of power takes the directories
//! that its formatting has made.

use blackbox::wire::{Batch, NONE};
use blackbox::{Broker, Target, await_that, target};
use faultfs::{Failing, Left};

use crate::load::Client;

/// The program that serves the disk.
const FAULTFS: &str = env!("CARGO_BIN_EXE_faultfs");
const DISK_BYTES: u64 = 256 << 20;
/// What a broker answers where a disk failed or is full.
const STORAGE_ERROR: i16 = 56;

/// Produces one record, as soon as the partition is led.
#[track_caller]
fn produce(client: &mut Client, topic: &str, values: Vec<Vec<u8>>) -> (i16, i64) {
    let batch = Batch { values, ..Batch::default() }.encode();
    client.insist("lead", |client| {
        client.produce(topic, 0, &batch).filter(|(error, _)| [NONE, STORAGE_ERROR].contains(error))
    })
}

/// Produces until something else than success comes.
fn fill(client: &mut Client, topic: &str, acknowledged: &mut i64) -> i16 {
    const BATCHES_MAX: i64 = 1_000;
    for _ in 0..BATCHES_MAX {
        match produce(client, topic, vec![vec![b'x'; 100_000]]) {
            (NONE, offset) => *acknowledged = offset + 1,
            (error, _) => return error,
        }
    }
    panic!("more than fits was acknowledged");
}

#[test]
fn a_start_on_a_full_disk_waits_for_space() {
    if target() == Target::Kafka {
        return;
    }
    let mut broker = Broker::on_served_disk(&[], FAULTFS, DISK_BYTES);
    let mut client = Client::new(broker.port());
    assert_eq!(client.create_topic("full", 1, &[("flush.messages", "1")]), Some(NONE));
    assert_eq!(produce(&mut client, "full", vec![b"x".to_vec()]), (NONE, 0));
    let mut acknowledged = 1;
    for power in [false, true] {
        broker.served_disk().set_free(3_000_000);
        assert_eq!(fill(&mut client, "full", &mut acknowledged), STORAGE_ERROR);
        // Reads go on.
        assert_eq!(client.bounds("full", 0), Some((0, acknowledged)));
        assert!(client.fetch("full", 0, 0).is_some_and(|found| found.is_ok()));
        if power {
            broker.lose_power(Left::Nothing);
        } else {
            broker.kill();
        }
        // Nothing can grow, whatever files without names are released yet.
        broker.served_disk().set_capacity(0);
        let waits = |broker: &Broker| broker.log_text().matches("waits for space").count();
        let before = waits(&broker);
        // One that waits can be stopped, too.
        for stops in [true, false] {
            broker.launch();
            let expected = before + if stops { 1 } else { 2 };
            await_that("the broker says what it waits for", || waits(&broker) >= expected);
            if stops {
                broker.stop();
            }
        }
        broker.served_disk().set_free(50_000_000);
        broker.wait_until_ready();
        let bounds = client.insist("lead", |client| client.bounds("full", 0));
        assert_eq!(bounds, (0, acknowledged));
        assert_eq!(produce(&mut client, "full", vec![b"x".to_vec()]), (NONE, acknowledged));
        acknowledged += 1;
    }
}

/// One directory fails, in each way; the other goes on, and nothing acknowledged is lost.
#[test]
fn a_directory_whose_disk_fails_takes_no_other_with_it() {
    if target() == Target::Kafka {
        return;
    }
    for failing in [Failing::All, Failing::Writes, Failing::Syncs] {
        let settings = [("log.dirs", "{folder}/data/one,{folder}/data/two")];
        let mut broker = Broker::on_served_disk(&settings, FAULTFS, DISK_BYTES);
        let mut client = Client::new(broker.port());
        let (mut sound, mut lost) = (None, None);
        for number in 0.. {
            let topic = format!("placed-{number}");
            let settings = [("flush.messages", "1")];
            assert_eq!(client.create_topic(&topic, 1, &settings), Some(NONE));
            assert_eq!(produce(&mut client, &topic, vec![b"x".to_vec()]), (NONE, 0));
            let is_second = broker.on_disk(&format!("data/two/{topic}-0")).exists();
            let place = if is_second { &mut lost } else { &mut sound };
            place.get_or_insert(topic);
            if sound.is_some() && lost.is_some() {
                break;
            }
        }
        let (Some(sound), Some(lost)) = (sound, lost) else { panic!("there is one in each") };
        broker.served_disk().set_failing(Some(("two", failing)));
        assert_eq!(produce(&mut client, &lost, vec![b"y".to_vec()]).0, STORAGE_ERROR);
        assert_eq!(produce(&mut client, &sound, vec![b"y".to_vec()]), (NONE, 1));
        let describe = format!("topics --describe --topic {lost}");
        await_that("the partition has no leader", || {
            broker.kafka(&describe).ok().stdout.contains("Leader: none")
        });
        // Nor does a disk that fails keep the broker from starting with the other one.
        broker.kill();
        broker.start_again();
        assert_eq!(produce(&mut client, &sound, vec![b"y".to_vec()]), (NONE, 2));
        broker.served_disk().set_failing(None);
        broker.lose_power(Left::Nothing);
        broker.start_again();
        // What was refused may be there, and does not have to.
        let (start, end) = client.insist("lead", |client| client.bounds(&lost, 0));
        assert!(start == 0 && (1..=2).contains(&end), "{failing:?}: from {start} to {end}");
        assert_eq!(produce(&mut client, &lost, vec![b"z".to_vec()]), (NONE, end));
        let bounds = client.insist("lead", |client| client.bounds(&sound, 0));
        assert_eq!(bounds, (0, 3), "{failing:?}");
    }
}
