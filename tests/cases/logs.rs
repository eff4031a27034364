//! What is in the logs: offsets, deletion, sizes, and the files themselves.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use blackbox::Broker;

/// How long a broker may take until it has written two snapshots, with the topics in between.
const SNAPSHOTS_MAX: Duration = Duration::from_secs(60);

#[test]
fn offsets_by_time_and_deletion_of_records() {
    let broker = Broker::shared();
    broker.kafka_reads("console-producer --topic logs-offsets", "a\nb\nc\n").ok();
    let check = |time: &str, offset: &str| {
        broker
            .kafka(&format!("get-offsets --topic logs-offsets --time {time}"))
            .ok()
            .prints(&format!("logs-offsets:0:{offset}"));
    };
    check("latest", "3");
    check("earliest", "0");
    check("-1", "3");
    // Records of one millisecond share the highest timestamp: any of them may be named.
    check("max-timestamp", "*");
    check("1000", "0");
    broker.kafka("get-offsets --topic logs-offsets --time 99999999999999").ok().prints("");
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let list = folder.path().join("delete.json");
    let text = r#"{"partitions":[{"topic":"logs-offsets","partition":0,"offset":2}],"version":1}"#;
    fs::write(&list, text).expect("writing a list");
    broker
        .kafka(&format!("delete-records --offset-json-file {}", list.display()))
        .ok()
        .says("partition: logs-offsets-0\tlow_watermark: 2");
    check("earliest", "2");
    broker
        .kafka("console-consumer --topic logs-offsets --from-beginning --max-messages 1")
        .ok()
        .prints("c");
    let too_far = text.replace("\"offset\":2", "\"offset\":9");
    fs::write(&list, too_far).expect("writing a list");
    broker
        .kafka(&format!("delete-records --offset-json-file {}", list.display()))
        .says("OffsetOutOfRangeException");
}

#[test]
fn records_that_are_kept_by_key_are_not_deleted() {
    let broker = Broker::shared();
    let create = "topics --create --topic logs-kept --config cleanup.policy=compact";
    broker.kafka(create).ok();
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let list = folder.path().join("delete.json");
    let refused = |topic: &str, partition: i32, sentence: &str| {
        let text = format!(
            r#"{{"version":1,"partitions":
                [{{"topic":"{topic}","partition":{partition},"offset":0}}]}}"#
        );
        fs::write(&list, text).expect("writing a list");
        let delete = format!("delete-records --offset-json-file {}", list.display());
        broker.kafka(&delete).says(sentence);
    };
    refused("logs-kept", 0, "PolicyViolationException");
    // A commit makes the offsets topic.
    broker.kafka_reads("console-producer --topic logs-committed", "a\n").ok();
    let consume = "console-consumer --group logs --topic logs-committed --from-beginning";
    broker.kafka(&format!("{consume} --max-messages 1")).ok().prints("a");
    refused("__consumer_offsets", 0, "InvalidTopicException");
}

#[test]
fn sizes_of_logs() {
    let broker = Broker::shared();
    broker.kafka_reads("console-producer --topic logs-sizes", "a\n").ok();
    broker.kafka("log-dirs --describe --topic-list logs-sizes").ok().prints(
        "Querying brokers for log directories information\n\
         Received log directory information from brokers 1\n\
         {\"brokers\":[{\"broker\":1,\"logDirs\":[{\"partitions\":[{\"partition\":\
         \"logs-sizes-0\",\"size\":69,\"offsetLag\":0,\"isFuture\":false}],\"error\":null,\
         \"logDir\":\"*/data\"}]}],\"version\":1}",
    );
}

#[test]
fn files_of_a_partition_are_read_by_dump_log() {
    let mut broker = Broker::start(&[]);
    let produce = "console-producer --topic dumped --reader-property parse.key=true \
                   --reader-property key.separator=:";
    broker.kafka_reads(produce, "k1:v1\nk2:v2\n").ok();
    broker
        .kafka_reads("console-producer --topic dumped --compression-codec lz4", "compressed\n")
        .ok();
    broker.stop();
    let log = broker.data().join("dumped-0/00000000000000000000.log");
    let dumped = broker
        .kafka(&format!("dump-log --deep-iteration --print-data-log --files {}", log.display()))
        .ok();
    dumped
        .says("baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 0 lastSequence: 1")
        .says("compresscodec: lz4")
        .says("isvalid: true")
        .says("key: k1 payload: v1")
        .says("key: k2 payload: v2")
        .says("payload: compressed");
}

#[test]
fn files_of_metadata_and_groups_are_read_by_dump_log() {
    let mut broker = Broker::start(&[]);
    broker.kafka("topics --create --topic dumped --config retention.ms=5000").ok();
    broker.kafka_reads("console-producer --topic dumped", "a\n").ok();
    broker
        .kafka(
            "console-consumer --topic dumped --group dumped-group --from-beginning \
             --max-messages 1",
        )
        .ok();
    broker.stop();
    let metadata = broker.data().join("__cluster_metadata-0/00000000000000000000.log");
    broker
        .kafka(&format!("dump-log --cluster-metadata-decoder --files {}", metadata.display()))
        .ok()
        .says("LeaderChange: {\"version\":0,\"leaderId\":1,\"voters\":[{\"voterId\":1}]")
        .says("{\"name\":\"metadata.version\",\"featureLevel\":33}")
        .says("\"type\":\"REGISTER_BROKER_RECORD\"")
        .says("\"type\":\"TOPIC_RECORD\",\"version\":0,\"data\":{\"name\":\"dumped\"")
        .says("\"resourceName\":\"dumped\",\"name\":\"retention.ms\",\"value\":\"5000\"");
    let logs = fs::read_dir(broker.data()).expect("the data is there");
    let offsets: Vec<String> = logs
        .map(|entry| entry.expect("an entry of a folder").path())
        .filter(|path| path.to_string_lossy().contains("__consumer_offsets-"))
        .map(|path| path.join("00000000000000000000.log").display().to_string())
        .collect();
    broker
        .kafka(&format!("dump-log --offsets-decoder --files {}", offsets.join(",")))
        .ok()
        .says("key: {\"type\":\"2\",\"data\":{\"group\":\"dumped-group\"}}")
        .says("\"data\":{\"group\":\"dumped-group\",\"topic\":\"dumped\",\"partition\":0}}")
        .says("{\"version\":\"4\",\"data\":{\"offset\":1,\"leaderEpoch\":0");
}

/// The snapshots of the metadata that the broker has written so far, in their order.
fn snapshots(broker: &Broker) -> Vec<PathBuf> {
    let folder = fs::read_dir(broker.data().join("__cluster_metadata-0")).expect("it is there");
    let paths = folder.map(|entry| entry.expect("an entry of a folder").path());
    let first = "00000000000000000000-0000000000.checkpoint";
    let is_one = |path: &PathBuf| {
        path.extension().is_some_and(|it| it == "checkpoint") && !path.ends_with(first)
    };
    let mut paths: Vec<PathBuf> = paths.filter(is_one).collect();
    paths.sort();
    paths
}

#[test]
fn the_metadata_are_put_into_snapshots() {
    let mut broker = Broker::start(&[("metadata.log.max.record.bytes.between.snapshots", "1000")]);
    broker.kafka("topics --create --topic snapped --config retention.ms=5000").ok();
    // The second one from here on was begun when the topic was there.
    let before = snapshots(&broker).len();
    let deadline = Instant::now() + SNAPSHOTS_MAX;
    for number in 0.. {
        if snapshots(&broker).len() >= before + 2 {
            break;
        }
        assert!(Instant::now() < deadline, "no snapshots come\n{}", broker.end_of_log());
        broker.kafka(&format!("topics --create --topic more-{number} --partitions 20")).ok();
    }
    let newest = snapshots(&broker).pop().expect("there are two");
    broker.stop();
    broker
        .kafka(&format!("dump-log --cluster-metadata-decoder --files {}", newest.display()))
        .ok()
        .says("SnapshotHeader")
        .says("{\"name\":\"metadata.version\",\"featureLevel\":33}")
        .says("\"type\":\"TOPIC_RECORD\",\"version\":0,\"data\":{\"name\":\"snapped\"")
        .says("\"resourceName\":\"snapped\",\"name\":\"retention.ms\",\"value\":\"5000\"")
        .says("SnapshotFooter");
    broker.start_again();
    broker.kafka("topics --describe --topic snapped").ok().says("retention.ms=5000");
    broker.kafka("topics --describe --topic more-0").ok().says("PartitionCount: 20");
}
