//! What the cluster says of itself.

use std::process::Command;

use blackbox::{Broker, CLUSTER_ID, Running, Target, fits, quick_java, target};

#[test]
fn tools_run_as_a_person_runs_them() {
    let broker = Broker::shared();
    let run = |line: String| {
        let mut command = Command::new(env!("CARGO"));
        command.args(["xtask", "kafka"]).args(line.split_whitespace());
        Running::start(&mut command).finish()
    };
    let address = broker.address();
    run(format!("kafka-topics.sh --bootstrap-server {address} --create --topic by-hand"))
        .ok()
        .prints("Created topic by-hand.");
    run(format!(
        "producer-perf-test --topic by-hand --num-records 10 --record-size 10 \
                 --throughput -1 --bootstrap-server {address}"
    ))
    .ok()
    .says("10 records sent");
    run("nothing".to_owned()).fails().says("no tool is named `nothing`");
}

#[test]
fn a_broker_for_trying_out_needs_no_file() {
    // Apache Kafka has no such command.
    if target() == Target::Kafka {
        return;
    }
    let mut broker = Broker::dev();
    broker.kafka_reads("console-producer --topic tried", "hello\n").ok();
    broker.stop();
    broker.start_again();
    broker
        .kafka("console-consumer --topic tried --from-beginning --max-messages 1")
        .ok()
        .prints("hello");
    assert!(broker.end_of_log().contains(&broker.address()), "{}", broker.end_of_log());
}

#[test]
fn versions_are_those_of_kafka() {
    let broker = Broker::shared();
    let printed = broker.kafka("broker-api-versions").ok();
    let of_kafka = include_str!("../golden/api_versions.txt");
    let mut listed = 0;
    for line in printed.stdout.lines().map(|line| line.trim_end_matches(',')) {
        let is_known = of_kafka.lines().any(|known| fits(line, known.trim_end_matches(',')));
        assert!(is_known || line.ends_with("UNSUPPORTED"), "{line} is not Kafka's: {printed}");
        listed += usize::from(line.contains("usable"));
    }
    assert!(listed > 20, "too few: {printed}");
}

#[test]
fn every_api_answers_in_every_version() {
    let broker = Broker::start(&[]);
    let printed = Running::start(quick_java("EveryVersion").arg(broker.address())).finish().ok();
    // Kafka's answers; an API that the broker doesn't list yet isn't asked for.
    let of_kafka = include_str!("../golden/every_version.txt");
    let known: Vec<&str> = of_kafka.lines().collect();
    let differs = |line: &&str| !known.contains(line);
    let differences: Vec<&str> = printed.stdout.lines().filter(differs).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(printed.stdout.lines().count() > 150, "too few: {printed}");
}

#[test]
fn identity_and_endpoints() {
    let broker = Broker::shared();
    broker
        .kafka("cluster cluster-id --bootstrap-server {}")
        .ok()
        .prints(&format!("Cluster ID: {CLUSTER_ID}"));
    broker.kafka("cluster list-endpoints --bootstrap-server {}").ok().says("unfenced   broker");
}

#[test]
fn features() {
    let broker = Broker::shared();
    let printed = broker.kafka("features --bootstrap-server {} describe").ok();
    for (feature, lowest, highest, level) in [
        ("eligible.leader.replicas.version", "0", "1", "1"),
        ("group.version", "0", "1", "1"),
        ("kraft.version", "0", "1", "0"),
        ("metadata.version", "3.3-IV3", "4.4-IV2", "4.4-IV2"),
        ("share.version", "0", "2", "2"),
        ("streams.version", "0", "1", "1"),
        ("transaction.version", "0", "2", "2"),
    ] {
        let pattern = format!(
            "Feature: {feature}*SupportedMinVersion: {lowest} *SupportedMaxVersion: {highest} *\
             FinalizedVersionLevel: {level} *Epoch: *"
        );
        assert!(printed.stdout.lines().any(|line| fits(line, &pattern)), "{pattern}: {printed}");
    }
}

#[test]
fn quorum() {
    let broker = Broker::shared();
    let status = broker.kafka("metadata-quorum --bootstrap-server {} describe --status").ok();
    for pattern in [
        &format!("ClusterId: *{CLUSTER_ID}"),
        "LeaderId: *1",
        "MaxFollowerLag: *0",
        "CurrentVoters: *[{\"id\": 1, \"endpoints\": [\"CONTROLLER://127.0.0.1:*\"]}]",
        "CurrentObservers: *[]",
    ] {
        assert!(status.stdout.lines().any(|line| fits(line, pattern)), "{pattern}: {status}");
    }
    broker
        .kafka("metadata-quorum --bootstrap-server {} describe --replication")
        .ok()
        .says("Leader");
}

#[test]
fn what_there_is_none_of() {
    let broker = Broker::shared();
    broker.kafka("reassign-partitions --list").ok().prints("No partition reassignments found.");
    broker.kafka("configs --describe --entity-type users").ok().prints("");
    broker.kafka("configs --describe --entity-type clients").ok().prints("");
    broker.kafka("client-metrics --list").ok().prints("");
}
