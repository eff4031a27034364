//! `kafka-topics`: topics are made, shown, grown and removed.

use blackbox::{Broker, tool};

#[test]
fn a_topic_is_made_listed_described_and_deleted() {
    let broker = Broker::shared();
    let topics = |arguments: &[&str]| {
        let mut all = vec!["--bootstrap-server", "{}"];
        all.extend(arguments);
        tool(&broker, "topics", &all)
    };
    topics(&["--create", "--topic", "topics-life", "--partitions", "2"])
        .ok()
        .prints("Created topic topics-life.");
    topics(&["--list", "--topic", "topics-life"]).ok().prints("topics-life");
    topics(&["--describe", "--topic", "topics-life"]).ok().prints(
        "Topic: topics-life\tTopicId: *\tPartitionCount: 2\tReplicationFactor: 1\t\
         Configs: min.insync.replicas=1\n\
         \tTopic: topics-life\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\t\
         Elr: \tLastKnownElr: \n\
         \tTopic: topics-life\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1\t\
         Elr: \tLastKnownElr: ",
    );
    topics(&["--alter", "--topic", "topics-life", "--partitions", "4"]).ok();
    topics(&["--describe", "--topic", "topics-life"]).ok().says("PartitionCount: 4");
    topics(&["--delete", "--topic", "topics-life"]).ok();
    topics(&["--describe", "--topic", "topics-life"])
        .fails()
        .says("Topic 'topics-life' does not exist as expected");
}
