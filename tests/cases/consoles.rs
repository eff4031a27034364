//! `kafka-console-producer` and `kafka-console-consumer`.

use blackbox::Broker;

#[test]
fn keys_and_values_come_back_in_order() {
    let broker = Broker::shared();
    let produce = "console-producer --topic console-keys \
                   --reader-property parse.key=true --reader-property key.separator=:";
    broker.kafka_reads(produce, "k1:v1\nk2:v2\nk1:v3\n").ok();
    let consume = "console-consumer --topic console-keys --from-beginning --max-messages 3 \
                   --formatter-property print.key=true --formatter-property print.offset=true \
                   --formatter-property print.partition=true";
    broker
        .kafka(consume)
        .ok()
        .prints(
            "Partition:0\tOffset:0\tk1\tv1\n\
             Partition:0\tOffset:1\tk2\tv2\n\
             Partition:0\tOffset:2\tk1\tv3",
        )
        .says("Processed a total of 3 messages");
}

#[test]
fn headers_and_timestamps_come_back() {
    let broker = Broker::shared();
    let produce = "console-producer --topic console-headers \
                   --reader-property parse.headers=true --compression-codec zstd";
    broker.kafka_reads(produce, "a:1,b:2\tvalue\n").ok();
    let consume = "console-consumer --topic console-headers --from-beginning --max-messages 1 \
                   --formatter-property print.headers=true \
                   --formatter-property print.timestamp=true";
    broker.kafka(consume).ok().prints("CreateTime:1*\ta:1,b:2\tvalue");
}

#[test]
fn a_group_goes_on_where_it_stopped() {
    let broker = Broker::shared();
    broker.kafka_reads("console-producer --topic console-group", "one\ntwo\n").ok();
    let consume = "console-consumer --topic console-group --group console-group \
                   --from-beginning --max-messages";
    broker.kafka(&format!("{consume} 2")).ok().prints("one\ntwo");
    broker.kafka_reads("console-producer --topic console-group", "three\n").ok();
    broker.kafka(&format!("{consume} 1")).ok().prints("three");
}

#[test]
fn a_partition_is_read_from_an_offset() {
    let broker = Broker::shared();
    broker.kafka_reads("console-producer --topic console-offset", "a\nb\nc\nd\n").ok();
    let consume = "console-consumer --topic console-offset --partition 0";
    broker.kafka(&format!("{consume} --offset 2 --max-messages 2")).ok().prints("c\nd");
    broker.kafka(&format!("{consume} --offset earliest --max-messages 1")).ok().prints("a");
}
