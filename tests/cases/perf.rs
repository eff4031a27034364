//! Kafka's tools that measure, with small counts: here they only have to work.

use blackbox::Broker;
use serde_json::json;

const CODECS: &[&str] = &["none", "gzip", "snappy", "lz4", "zstd"];

#[test]
fn producer_perf_test_with_every_codec_and_acks() {
    let broker = Broker::shared();
    let mut expected = Vec::new();
    for acks in ["0", "1", "all"] {
        for codec in CODECS {
            let topic = format!("perf-sent-{acks}-{codec}");
            broker
                .kafka(&format!(
                    "producer-perf-test --bootstrap-server {{}} --topic {topic} --num-records 300 \
                     --record-size 100 --throughput -1 \
                     --command-property acks={acks} compression.type={codec}"
                ))
                .ok()
                .says("300 records sent");
            expected.push(format!("{topic}:0:300"));
        }
    }
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    broker.kafka("get-offsets --topic perf-sent-.*").ok().prints_in_any_order(&expected);
}

#[test]
fn consumer_perf_test_reads_what_was_sent() {
    let broker = Broker::shared();
    broker
        .kafka(
            "producer-perf-test --topic perf-read --num-records 20000 --record-size 200 \
             --throughput -1",
        )
        .ok();
    let read = broker.kafka("consumer-perf-test --topic perf-read --num-records 20000").ok();
    let figures = read.stdout.lines().nth(1).unwrap_or_default();
    assert_eq!(figures.split(", ").nth(4), Some("20000"), "{read}");
}

#[test]
fn end_to_end_latency() {
    let broker = Broker::shared();
    broker
        .kafka(
            "e2e-latency --topic perf-latency --num-records 50 --producer-acks all \
             --record-size 100",
        )
        .ok()
        .prints("Topic *\n0\t*\nAvg latency: * ms\nPercentiles: 50th = *, 99th = *, 99.9th = *");
}

#[test]
fn verifiable_clients() {
    let broker = Broker::shared();
    // Fields are looked for by name: they come in the order in which the JVM lists an object's
    // methods, which is any.
    let produced = broker
        .kafka("verifiable-producer --topic verifiable --max-messages 20 --acks -1")
        .ok()
        .reports(&json!({ "name": "tool_data", "sent": 20, "acked": 20 }))
        .reports(&json!({
            "name": "producer_send_success", "value": "19", "offset": 19, "topic": "verifiable",
            "partition": 0,
        }));
    assert!(!produced.stdout.contains("producer_send_error"), "{produced}");
    let consumed = json!({
        "topic": "verifiable", "partition": 0, "count": 20, "minOffset": 0, "maxOffset": 19,
    });
    let committed = json!({ "topic": "verifiable", "partition": 0, "offset": 20 });
    broker
        .kafka("verifiable-consumer --topic verifiable --group-id verifiable --max-messages 20")
        .ok()
        .reports(&json!({
            "name": "partitions_assigned",
            "partitions": [{ "topic": "verifiable", "partition": 0 }],
        }))
        .reports(&json!({ "name": "records_consumed", "count": 20, "partitions": [consumed] }))
        .reports(&json!({
            "name": "offsets_committed", "offsets": [committed], "success": true,
        }));
}
