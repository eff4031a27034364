//! Topics that keep the newest record of each key.

use blackbox::Broker;

/// Cleaned at once, whatever the ratio.
const EAGER: [(&str, &str); 4] = [
    ("log.cleaner.backoff.ms", "100"),
    ("log.cleaner.min.cleanable.ratio", "0.01"),
    ("log.flush.offset.checkpoint.interval.ms", "200"),
    ("offsets.topic.num.partitions", "1"),
];
const CHECKPOINT: &str = "data/cleaner-offset-checkpoint";

#[test]
fn the_newest_record_of_each_key_stays() {
    let mut broker = Broker::start(&EAGER);
    broker
        .kafka(
            "topics --create --topic compacted --config cleanup.policy=compact \
             --config segment.ms=1",
        )
        .ok();
    let produce = "console-producer --topic compacted --compression-codec gzip \
                   --reader-property parse.key=true --reader-property key.separator=:";
    for lines in ["a:1\nb:1\nc:1\n", "a:2\nb:2\n", "a:3\n", "z:1\n"] {
        broker.kafka_reads(produce, lines).ok();
    }
    broker.waits_for(CHECKPOINT, "compacted 0 6");
    let consume = "console-consumer --topic compacted --from-beginning --max-messages 4 \
                   --formatter-property print.key=true --formatter-property print.offset=true";
    let newest = "Offset:2\tc\t1\nOffset:4\tb\t2\nOffset:5\ta\t3\nOffset:6\tz\t1";
    broker.kafka(consume).ok().prints(newest);
    broker.kafka("get-offsets --topic compacted --time earliest").ok().prints("compacted:0:0");
    broker.kill();
    broker.start_again();
    broker.kafka(consume).ok().prints(newest);
    // A batch without a key has no place in it.
    broker.kafka_reads("console-producer --topic compacted", "keyless\n").says("InvalidRecord");
    broker.stop();
    let log = broker.data().join("compacted-0/00000000000000000000.log");
    let dump = format!("dump-log --deep-iteration --print-data-log --files {}", log.display());
    broker.kafka(&dump).ok().says("compresscodec: gzip").says("key: c payload: 1");
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
