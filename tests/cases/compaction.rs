//! Topics that keep the newest record of each key.

use std::time::{Duration, Instant};

use blackbox::Broker;

/// Cleaned at once, whatever the ratio.
const EAGER: [(&str, &str); 4] = [
    ("log.cleaner.backoff.ms", "100"),
    ("log.cleaner.min.cleanable.ratio", "0.01"),
    ("log.flush.offset.checkpoint.interval.ms", "200"),
    ("offsets.topic.num.partitions", "1"),
];
const CHECKPOINT: &str = "data/cleaner-offset-checkpoint";
/// What producers read: a key, a colon and a value, or NULL.
const KEYED: &str = "--reader-property parse.key=true --reader-property key.separator=: \
                     --reader-property null.marker=NULL";
/// What consumers print besides the value.
const FULL: &str = "--formatter-property print.key=true --formatter-property print.offset=true";
/// How long a broker may take for what it does some time after its answer.
const TIME_MAX: Duration = Duration::from_secs(60);

#[test]
fn the_newest_record_of_each_key_stays() {
    let mut broker = Broker::start(&EAGER);
    broker
        .kafka(
            "topics --create --topic compacted --config cleanup.policy=compact \
             --config segment.ms=1",
        )
        .ok();
    let produce = format!("console-producer --topic compacted --compression-codec gzip {KEYED}");
    for lines in ["a:1\nb:1\nc:1\n", "a:2\nb:2\n", "a:3\n", "z:1\n"] {
        broker.kafka_reads(&produce, lines).ok();
    }
    broker.waits_for(CHECKPOINT, "compacted 0 6");
    let consume =
        format!("console-consumer --topic compacted --from-beginning --max-messages 4 {FULL}");
    let newest = "Offset:2\tc\t1\nOffset:4\tb\t2\nOffset:5\ta\t3\nOffset:6\tz\t1";
    broker.kafka(&consume).ok().prints(newest);
    broker.kafka("get-offsets --topic compacted --time earliest").ok().prints("compacted:0:0");
    broker.kill();
    broker.start_again();
    broker.kafka(&consume).ok().prints(newest);
    // A batch without a key has no place in it.
    broker.kafka_reads("console-producer --topic compacted", "keyless\n").says(
        "InvalidRecordException: Compacted topic cannot accept message without key in topic \
         partition compacted-0",
    );
    broker.stop();
    let log = broker.data().join("compacted-0/00000000000000000000.log");
    let dump = format!("dump-log --deep-iteration --print-data-log --files {}", log.display());
    broker.kafka(&dump).ok().says("compresscodec: gzip").says("key: c payload: 1");
}

#[test]
fn what_was_deleted_and_what_is_old_goes() {
    let settings = [&EAGER[..], &[("log.retention.check.interval.ms", "200")]].concat();
    let broker = Broker::start(&settings);
    broker
        .kafka(
            "topics --create --topic emptied --config cleanup.policy=compact,delete \
             --config segment.ms=1 --config delete.retention.ms=0",
        )
        .ok();
    let produce = format!("console-producer --topic emptied {KEYED}");
    let consume =
        format!("console-consumer --topic emptied --from-beginning --max-messages 3 {FULL}");
    for lines in ["a:1\nb:1\n", "a:NULL\n", "z:1\n"] {
        broker.kafka_reads(&produce, lines).ok();
    }
    broker.waits_for(CHECKPOINT, "emptied 0 3");
    broker.kafka(&consume).ok().prints("Offset:1\tb\t1\nOffset:2\ta\tnull\nOffset:3\tz\t1");
    // Cleaned once more, the tombstone has had its time.
    broker.kafka_reads(&produce, "z:2\n").ok();
    broker.waits_for(CHECKPOINT, "emptied 0 4");
    broker.kafka(&consume).ok().prints("Offset:1\tb\t1\nOffset:3\tz\t1\nOffset:4\tz\t2");
    let alter = "configs --alter --entity-type topics --entity-name emptied";
    broker.kafka(&format!("{alter} --add-config retention.ms=1")).ok();
    let deadline = Instant::now() + TIME_MAX;
    while !broker
        .kafka("get-offsets --topic emptied --time earliest")
        .ok()
        .stdout
        .contains("emptied:0:5")
    {
        assert!(Instant::now() < deadline, "the log is not emptied\n{}", broker.end_of_log());
    }
}

#[test]
fn offsets_of_groups_outlive_the_compaction_of_their_topic() {
    let mut broker = Broker::start(&EAGER);
    broker.kafka_reads("console-producer --topic read", "a\nb\nc\nd\ne\n").ok();
    let consume = "console-consumer --topic read --group kept --from-beginning --max-messages 1";
    broker.kafka(consume).ok().prints("a");
    broker
        .kafka(
            "configs --alter --entity-type topics --entity-name __consumer_offsets \
             --add-config segment.ms=1",
        )
        .ok();
    broker.kafka(consume).ok().prints("b");
    broker.kafka(consume).ok().prints("c");
    broker.waits_for(CHECKPOINT, "__consumer_offsets 0");
    for _ in 0..2 {
        broker.kill();
        broker.start_again();
        broker
            .kafka("consumer-groups --describe --group kept")
            .ok()
            .says("kept            read            0          3               5               2");
        broker.stop();
        broker.start_again();
    }
    broker.kafka(consume).ok().prints("d");
}
