//! What was acknowledged stays, however the broker ends.

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
