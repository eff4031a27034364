//! What was acknowledged stays, however the broker ends.

use std::io::Write;

use blackbox::wire::{self, Batch};
use blackbox::{Broker, Running};

/// Enough that the load is in full swing at the kill, and more than one batch is in flight.
const RECORDS_BEFORE_THE_KILL: &str = "\"value\":\"3000\"";
/// Must come through once the broker is there again.
const RECORD_LONG_AFTER_THE_KILL: &str = "\"value\":\"25000\"";

#[test]
fn a_killed_broker_has_every_acknowledged_record() {
    survives(&[]);
}

#[test]
fn a_killed_broker_that_flushes_has_every_acknowledged_record() {
    survives(&[("log.flush.interval.messages", "1")]);
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
    let broker = Broker::on_small_disk(DISK_MEGABYTES);
    broker.kafka("topics --create --topic full").ok();
    let batch = Batch { values: vec![vec![b'x'; 900_000]], ..Batch::default() }.encode();
    let request = wire::request(wire::PRODUCE, 8, 1, &wire::produce_body("full", 1, &batch));
    let mut stream = broker.connect();
    let mut acknowledged = 0;
    let code = loop {
        // An error instead of an answer: the broker ended, as Kafka does without a disk left.
        let sent = stream.write_all(&request);
        let Ok(answer) = sent.and_then(|()| wire::answer(&mut stream, 1)) else { break None };
        match wire::produce_result(&answer, "full") {
            (0, offset) => assert_eq!(offset, acknowledged, "offsets are dense"),
            (code, _) => break Some(code),
        }
        acknowledged += 1;
        assert!(acknowledged < i64::from(DISK_MEGABYTES) * 2, "more than fits was acknowledged");
    };
    let storage_error = 56;
    assert!(code.is_none_or(|code| code == storage_error), "{code:?}");
    assert!(acknowledged > 0, "{code:?}");
    assert!(broker.log_text().contains("No space left on device"), "{}", broker.end_of_log());
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
