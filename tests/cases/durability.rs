//! What was acknowledged stays, however the broker ends.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use blackbox::wire::{self, Batch, NONE};
use blackbox::{Broker, PAUSE, Running, Target, target};

/// Enough that the load is in full swing at the kill, and more than one batch is in flight.
const RECORDS_BEFORE_THE_KILL: &str = "\"value\":\"3000\"";
/// Kafka begins to remove what was deleted half a minute after its start, and then waits for the
/// delay.
const DELETION_TIME_MAX: Duration = Duration::from_secs(150);
/// Must come through once the broker is there again.
const RECORD_LONG_AFTER_THE_KILL: &str = "\"value\":\"100000\"";

#[test]
fn a_killed_broker_has_every_acknowledged_record() {
    survives(&[]);
}

#[test]
fn a_killed_broker_that_flushes_has_every_acknowledged_record() {
    survives(&[("log.flush.interval.messages", "1")]);
}

#[test]
fn a_topic_that_is_made_again_has_its_own_records_only_and_its_predecessor_goes() {
    // Kafka waits so long after a start; it is longer than what comes before the broker ends.
    // The records are years old, and are to stay.
    let settings = [("log.segment.delete.delay.ms", "30000"), ("log.retention.ms", "-1")];
    let mut broker = Broker::start(&settings);
    let list = broker.path("offsets.json");
    let partition = "{\"topic\":\"again\",\"partition\":0,\"offset\":4}";
    let offsets = format!("{{\"partitions\":[{partition}],\"version\":1}}");
    fs::write(&list, offsets).expect("a file for the tool");
    for kill in [false, true] {
        broker.kafka("topics --create --topic again").ok();
        for _ in 0..5 {
            assert_eq!(produce_one(&broker, "again"), NONE);
        }
        broker.kafka(&format!("delete-records --offset-json-file {}", list.display())).ok();
        broker.kafka("topics --delete --topic again").ok();
        broker.kafka("topics --create --topic again").ok();
        for _ in 0..3 {
            assert_eq!(produce_one(&broker, "again"), NONE);
        }
        if kill {
            broker.kill()
        } else {
            broker.stop()
        }
        assert!(!deleted(&broker).is_empty(), "it was removed too early to see what becomes of it");
        broker.start_again();
        broker.kafka("get-offsets --topic again --time earliest").ok().prints("again:0:0");
        broker.kafka("get-offsets --topic again --time latest").ok().prints("again:0:3");
        let consume = "console-consumer --topic again --partition 0 --offset earliest";
        broker.kafka(&format!("{consume} --max-messages 3")).ok().prints("value\nvalue\nvalue");
        let deadline = Instant::now() + DELETION_TIME_MAX;
        while !deleted(&broker).is_empty() {
            assert!(Instant::now() < deadline, "{:?} are still there", deleted(&broker));
            thread::sleep(PAUSE);
        }
        broker.kafka("topics --delete --topic again").ok();
    }
}

#[test]
fn topics_groups_and_settings_survive_a_restart() {
    let mut broker = Broker::start(&[]);
    broker.kafka("topics --create --topic kept --partitions 3 --config retention.ms=7000000").ok();
    broker.kafka_reads("console-producer --topic read", "a\nb\n").ok();
    let consume = "console-consumer --topic read --group kept --from-beginning --max-messages 1";
    broker.kafka(consume).ok().prints("a");
    let described = broker.kafka("topics --describe --topic kept").ok().stdout;
    for kill in [false, true] {
        if kill {
            broker.kill()
        } else {
            broker.stop()
        }
        broker.start_again();
        broker.kafka("topics --describe --topic kept").ok().prints(&described);
    }
    broker.kafka(consume).ok().prints("b");
    broker
        .kafka("consumer-groups --describe --group kept")
        .ok()
        .says("kept            read            0          2               2               0");
}

#[test]
fn a_disk_that_is_full_acknowledges_nothing_more() {
    const DISK_MEGABYTES: u32 = 40;
    let mut broker = Broker::on_small_disk(&[], "data", DISK_MEGABYTES);
    // What takes space at first and can go later.
    for number in 0..3 {
        fs::write(filler(&broker, number), vec![0; 6 << 20]).expect("the disk has room yet");
    }
    broker.kafka("topics --create --topic full").ok();
    let mut acknowledged = 0;
    let code = fill(&broker, "full", &mut acknowledged);
    assert!(code.is_none_or(|code| code == STORAGE_ERROR), "{code:?}");
    assert!(acknowledged > 0, "{code:?}");
    assert!(broker.log_text().contains("No space left on device"), "{}", broker.end_of_log());
    if target() == Target::Kafka {
        // It has ended, since no disk is left to it.
        return;
    }
    // What is there can be read, and with space again writing goes on where it stopped.
    let get_offsets = "get-offsets --topic full --time latest";
    broker.kafka(get_offsets).ok().prints(&format!("full:0:{acknowledged}"));
    let consume = "console-consumer --topic full --from-beginning --max-messages 1 \
                   --formatter-property print.value=false";
    broker.kafka(consume).ok();
    fs::remove_file(filler(&broker, 0)).expect("it is there");
    let before = acknowledged;
    assert_eq!(fill(&broker, "full", &mut acknowledged), Some(STORAGE_ERROR));
    assert!(acknowledged > before, "nothing could be written after there was space again");
    // A kill on a full disk leaves nothing that the next start chokes on.
    broker.kill();
    fs::remove_file(filler(&broker, 1)).expect("it is there");
    broker.start_again();
    broker.kafka(get_offsets).ok().prints(&format!("full:0:{acknowledged}"));
    assert_eq!(fill(&broker, "full", &mut acknowledged), Some(STORAGE_ERROR));
    // And one that is asked to stop does not wait for space.
    broker.stop();
    fs::remove_file(filler(&broker, 2)).expect("it is there");
    broker.start_again();
    broker.kafka(get_offsets).ok().prints(&format!("full:0:{acknowledged}"));
}

#[test]
fn a_full_disk_leaves_the_other_directories_alone() {
    const DISK_MEGABYTES: u32 = 10;
    let settings = [("log.dirs", "{folder}/data,{folder}/more")];
    let broker = Broker::on_small_disk(&settings, "more", DISK_MEGABYTES);
    let topics = two_topics(&broker, |topic| broker.on_disk(&format!("more/{topic}-0")));
    let [sound, full] = &topics;
    // One record is there.
    let mut acknowledged = 1;
    // In Kafka the directory is offline from then on, and nobody leads what is in it.
    let code = fill(&broker, full, &mut acknowledged);
    assert!(code.is_some_and(|code| code == STORAGE_ERROR), "{code:?}");
    assert_eq!(produce_one(&broker, sound), NONE);
    if target() == Target::Kafka {
        return;
    }
    broker
        .kafka(&format!("get-offsets --topic {full} --time latest"))
        .ok()
        .prints(&format!("{full}:0:{acknowledged}"));
}

#[test]
fn a_directory_that_fails_takes_no_other_with_it() {
    let settings = [("log.dirs", "{folder}/data,{folder}/more"), ("log.segment.bytes", "1048576")];
    let mut broker = Broker::start(&settings);
    let [sound, lost] = two_topics(&broker, |topic| broker.path(&format!("more/{topic}-0")));
    fs::rename(broker.path("more"), broker.path("away")).expect("it is there");
    fs::write(broker.path("more"), []).expect("a file in the way of the directory");
    // The next segment cannot be made, if nothing was written there before. One record is there.
    let mut acknowledged = 1;
    assert_eq!(fill(&broker, &lost, &mut acknowledged), Some(STORAGE_ERROR));
    assert_eq!(produce_one(&broker, &sound), NONE);
    broker
        .kafka("log-dirs --describe")
        .ok()
        .says("\"error\":\"org.apache.kafka.common.errors.KafkaStorageException")
        .says(&format!("{sound}-0"));
    broker.kafka(&format!("topics --describe --topic {lost}")).ok().says("Leader: none");
    broker.kafka(&format!("topics --describe --topic {sound}")).ok().says("Leader: 1");
    // Nor does it keep the broker from starting, and what was in it is not made anew elsewhere.
    broker.stop();
    broker.start_again();
    broker.kafka(&format!("topics --describe --topic {lost}")).ok().says("Leader: none");
    assert_eq!(produce_one(&broker, &sound), NONE);
    assert!(!broker.data().join(format!("{lost}-0")).exists());
    // It is back, with all that was acknowledged.
    broker.stop();
    fs::remove_file(broker.path("more")).expect("it is in the way");
    fs::rename(broker.path("away"), broker.path("more")).expect("it is there");
    broker.start_again();
    let get_offsets = format!("get-offsets --topic {lost} --time latest");
    broker.kafka(&get_offsets).ok().prints(&format!("{lost}:0:{acknowledged}"));
    assert_eq!(produce_one(&broker, &lost), NONE);
}

/// What a broker answers where a disk failed or is full.
const STORAGE_ERROR: i16 = 56;
/// The folders of deleted logs.
fn deleted(broker: &Broker) -> Vec<String> {
    let entries = fs::read_dir(broker.data()).expect("the data are there");
    let names = entries.map(|entry| entry.expect("listed").file_name().display().to_string());
    names.filter(|name| name.starts_with("again") && name.ends_with("-delete")).collect()
}

/// Two topics of one partition each: the first one lies in the first of two directories, the other
/// one in the second, where `folder` says that its folder is.
fn two_topics(broker: &Broker, folder: impl Fn(&str) -> PathBuf) -> [String; 2] {
    let (mut first, mut second) = (None, None);
    for number in 0..10 {
        let topic = format!("placed{number}");
        broker.kafka(&format!("topics --create --topic {topic}")).ok();
        assert_eq!(produce_one(broker, &topic), NONE);
        let place = if folder(&topic).exists() { &mut second } else { &mut first };
        place.get_or_insert(topic);
        if let (Some(first), Some(second)) = (&first, &second) {
            return [first.clone(), second.clone()];
        }
    }
    panic!("all topics lie in one directory");
}

/// The code that one record is answered with.
fn produce_one(broker: &Broker, topic: &str) -> i16 {
    let body = wire::produce_body(topic, 1, &Batch::default().encode());
    let mut stream = broker.connect();
    stream.write_all(&wire::request(wire::PRODUCE, 8, 1, &body)).expect("the broker reads");
    let answer = wire::answer(&mut stream, 1).expect("an answer to Produce");
    wire::produce_result(&answer, topic).0
}

/// Produces until an error comes, and gives its code; none where the broker has ended.
fn fill(broker: &Broker, topic: &str, acknowledged: &mut i64) -> Option<i16> {
    const BATCHES_MAX: i64 = 200;
    let batch = Batch { values: vec![vec![b'x'; 900_000]], ..Batch::default() }.encode();
    let request = wire::request(wire::PRODUCE, 8, 1, &wire::produce_body(topic, 1, &batch));
    let mut stream = broker.connect();
    for _ in 0..BATCHES_MAX {
        let sent = stream.write_all(&request);
        let answer = sent.and_then(|()| wire::answer(&mut stream, 1)).ok()?;
        match wire::produce_result(&answer, topic) {
            (0, offset) => *acknowledged = offset + 1,
            (code, _) => return Some(code),
        }
    }
    panic!("more than fits was acknowledged");
}

fn filler(broker: &Broker, number: u32) -> PathBuf {
    broker.on_disk(&format!("data/filler{number}"))
}

/// Kills the broker in the middle of a load and counts what is there afterwards.
fn survives(settings: &[(&str, &str)]) {
    let mut broker = Broker::start(settings);
    let mut producer = Running::start(&mut broker.kafka_command(
        "verifiable-producer --topic killed --acks -1 --max-messages 1000000 --throughput 4000",
    ));
    producer.wait_for(RECORDS_BEFORE_THE_KILL);
    let mut consumer = Running::start(&mut broker.kafka_command(
        "verifiable-consumer --topic killed --group-id killed --reset-policy earliest --verbose",
    ));
    consumer.wait_for("record_data");
    broker.kill();
    broker.start_again();
    // Both go on against the broker that is there again.
    producer.wait_for(RECORD_LONG_AFTER_THE_KILL);
    consumer.wait_for(RECORD_LONG_AFTER_THE_KILL);
    drop(consumer);
    let produced = producer.interrupt();
    let acknowledged = offsets(&produced.stdout, "producer_send_success");
    assert!(acknowledged.len() > 3000, "{}", acknowledged.len());
    let count: usize = acknowledged.len();
    let consumed = broker
        .kafka(
            "console-consumer --topic killed --partition 0 --offset earliest --timeout-ms 8000 \
             --formatter-property print.offset=true",
        )
        .stdout;
    let mut found: Vec<(u64, String)> = consumed
        .lines()
        .filter_map(|line| {
            let (offset, value) = line.strip_prefix("Offset:")?.split_once('\t')?;
            Some((offset.parse().ok()?, value.to_owned()))
        })
        .collect();
    found.sort();
    for (index, (offset, _)) in found.iter().enumerate() {
        assert_eq!(*offset, index as u64, "offsets have a gap or repeat");
    }
    let missing: Vec<_> =
        acknowledged.iter().filter(|record| found.binary_search(record).is_err()).collect();
    assert!(missing.is_empty(), "{} of {count} are missing: {:?}", missing.len(), missing.first());
}

/// Offset and value of every record that the verifiable producer reports so.
fn offsets(printed: &str, event: &str) -> Vec<(u64, String)> {
    let field = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("\"{name}\":"))?;
        let end = rest.find([',', '}'])?;
        Some(rest.get(..end)?.trim_matches('"').to_owned())
    };
    let lines = printed.lines().filter(|line| line.contains(event));
    lines
        .filter_map(|line| Some((field(line, "offset")?.parse().ok()?, field(line, "value")?)))
        .collect()
}
