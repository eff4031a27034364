//! `format`: what stands in a folder before the first start, as Kafka's own tools read it.

use std::fs;

use blackbox::{Broker, CLUSTER_ID};

/// Of another cluster.
const OTHER_ID: &str = "b3RoZXItY2x1c3Rlci1pZA";

#[test]
fn a_formatted_folder_is_read_by_kafkas_tools() {
    let broker = Broker::prepare(&[]);
    let data = broker.data().display().to_string();
    broker
        .format(&format!("--cluster-id {CLUSTER_ID}"))
        .ok()
        .says(&format!("Formatting metadata directory {data} with metadata.version 4.4-IV2."));
    broker.kafka(&format!("storage info --config {}", broker.settings().display())).ok().prints(
        &format!(
            "Found log directory:\n  {data}\n\nFound metadata: {{cluster.id={CLUSTER_ID}, \
             directory.id=*, node.id=1, version=1}}"
        ),
    );
    let checkpoint = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint";
    let dumped = broker
        .kafka(&format!("dump-log --cluster-metadata-decoder --files {data}/{checkpoint}"))
        .ok();
    let payloads: Vec<&str> = dumped
        .stdout
        .lines()
        .filter_map(|line| line.split_once("payload: ").map(|(_, payload)| payload))
        .collect();
    let expected = include_str!("../golden/bootstrap_records.txt");
    assert_eq!(payloads.join("\n"), expected.trim_end(), "{dumped}");
}

#[test]
fn a_folder_is_formatted_once() {
    let broker = Broker::prepare(&[]);
    broker.format(&format!("--cluster-id {CLUSTER_ID}")).ok();
    let meta = broker.data().join("meta.properties");
    let before = fs::read(&meta).expect("it was formatted");
    broker.format(&format!("--cluster-id {CLUSTER_ID}")).fails().says(&format!(
        "Log directory {} is already formatted. Use --ignore-formatted to ignore this directory \
         and format the others.",
        broker.data().display()
    ));
    broker.format(&format!("--cluster-id {CLUSTER_ID} --ignore-formatted")).ok();
    broker
        .format(&format!("--cluster-id {OTHER_ID} --ignore-formatted"))
        .fails()
        .says(&format!("Expected {OTHER_ID}, but read {CLUSTER_ID}"))
        .says(&meta.display().to_string());
    assert_eq!(fs::read(&meta).expect("it is still there"), before);
}

#[test]
fn folders_of_two_clusters_do_not_mix() {
    let first = Broker::prepare(&[]);
    first.format(&format!("--cluster-id {CLUSTER_ID}")).ok();
    let second = Broker::prepare(&[]);
    second.format(&format!("--cluster-id {OTHER_ID}")).ok();
    let both = format!("{},{}", first.data().display(), second.data().display());
    Broker::fails_to_start(&first, &[("log.dirs", &both)]).says("Invalid cluster.id in");
}
