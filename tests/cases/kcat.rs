//! kcat, and with it librdkafka.

use blackbox::{Broker, Running, kcat};

#[test]
fn metadata_is_listed() {
    let broker = Broker::shared();
    broker.kafka("topics --create --topic kcat-list --partitions 2").ok();
    Running::start(&mut kcat(broker, "-L -t kcat-list")).finish().ok().prints(&format!(
        "Metadata for kcat-list (from broker *: {address}/*):\n 1 brokers:\n  \
         broker 1 at {address} (controller)\n 1 topics:\n  topic \"kcat-list\" with 2 \
         partitions:\n    partition 0, leader 1, replicas: 1, isrs: 1\n    \
         partition 1, leader 1, replicas: 1, isrs: 1",
        address = broker.address()
    ));
}

#[test]
fn records_go_in_and_out_with_every_codec() {
    let broker = Broker::shared();
    let mut expected = String::new();
    for (offset, codec) in ["none", "gzip", "snappy", "lz4", "zstd"].iter().enumerate() {
        let line = format!("-P -t kcat-codecs -p 0 -K : -H h=1 -z {codec}");
        let input = format!("key-{codec}:value-{codec}\n");
        Running::start_with_input(&mut kcat(broker, &line), &input).finish().ok();
        expected += &format!("0 {offset} key-{codec} value-{codec} h=1\n");
    }
    // The format ends with a line of its own: `\n` is kcat's to read.
    let mut command = kcat(broker, "-C -t kcat-codecs -o beginning -e -q");
    command.args(["-f", "%p %o %k %s %h\\n"]);
    Running::start(&mut command).finish().ok().prints(&expected);
}

#[test]
fn a_group_reads_and_goes_on() {
    let broker = Broker::shared();
    let produce = |input| {
        Running::start_with_input(&mut kcat(broker, "-P -t kcat-group -p 0"), input).finish().ok()
    };
    let consume = |count| {
        let line = format!("-q -c {count} -X auto.offset.reset=earliest -G kcat-group kcat-group");
        Running::start(&mut kcat(broker, &line)).finish().ok()
    };
    produce("one\ntwo\n");
    consume(2).prints("one\ntwo");
    produce("three\n");
    consume(1).prints("three");
}

#[test]
fn offsets_are_queried_by_time() {
    let broker = Broker::shared();
    let input = "one\ntwo\n";
    Running::start_with_input(&mut kcat(broker, "-P -t kcat-query -p 0"), input).finish().ok();
    let query = |time: &str, expected: &str| {
        let line = format!("-Q -t kcat-query:0:{time}");
        Running::start(&mut kcat(broker, &line)).finish().ok().prints(expected);
    };
    query("-1", "kcat-query [0] offset 2");
    query("-2", "kcat-query [0] offset 0");
    query("1000", "kcat-query [0] offset 0");
}
