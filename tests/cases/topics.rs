//! `kafka-topics`: topics are made, shown, grown and removed.

use blackbox::Broker;

#[test]
fn a_topic_is_made_listed_described_grown_and_deleted() {
    let broker = Broker::shared();
    broker
        .kafka("topics --create --topic topics-life --partitions 2")
        .ok()
        .prints("Created topic topics-life.");
    broker.kafka("topics --list --topic topics-life").ok().prints("topics-life");
    broker.kafka("topics --describe --topic topics-life").ok().prints(
        "Topic: topics-life\tTopicId: *\tPartitionCount: 2\tReplicationFactor: 1\t\
         Configs: min.insync.replicas=1\n\
         \tTopic: topics-life\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\t\
         Elr: \tLastKnownElr: \n\
         \tTopic: topics-life\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1\t\
         Elr: \tLastKnownElr: ",
    );
    broker.kafka("topics --alter --topic topics-life --partitions 4").ok();
    broker.kafka("topics --describe --topic topics-life").ok().says("PartitionCount: 4");
    broker.kafka("topics --delete --topic topics-life").ok();
    broker
        .kafka("topics --describe --topic topics-life")
        .fails()
        .says("Topic 'topics-life' does not exist as expected");
}

#[test]
fn settings_given_at_creation_are_shown() {
    let broker = Broker::shared();
    broker
        .kafka(
            "topics --create --topic topics-set --config retention.ms=5000 \
             --config cleanup.policy=compact",
        )
        .ok();
    broker
        .kafka("topics --describe --topic topics-set")
        .ok()
        .says("Configs: min.insync.replicas=1,cleanup.policy=compact,retention.ms=5000");
}

#[test]
fn what_cannot_be_made_is_refused_in_kafkas_words() {
    let broker = Broker::shared();
    broker.kafka("topics --create --topic topics-there").ok();
    let check = |line: &str, words: &str| {
        broker.kafka(&format!("topics {line}")).fails().says(words);
    };
    check("--create --topic topics-there", "Topic 'topics-there' already exists.");
    check("--create --topic a/b", "Topic name is invalid: 'a/b' contains one or more characters");
    check(
        "--create --topic topics-two --replication-factor 2",
        "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be \
         reached because only 1 broker(s) are registered or some brokers have all their log \
         directories cordoned.",
    );
    check("--create --topic topics-none --partitions 0", "The partitions must be greater than 0");
    check("--create --topic topics-odd --config nonsense=1", "Unknown topic config name: nonsense");
    check(
        "--create --topic topics-odd --config retention.ms=x",
        "Invalid value x for configuration retention.ms: Not a number of type LONG",
    );
    check("--alter --topic topics-there --partitions 1", "Topic already has 1 partition(s).");
    check("--delete --topic topics-nowhere", "Topic 'topics-nowhere' does not exist as expected");
    broker.kafka("topics --create --if-not-exists --topic topics-there").ok();
}
