//! `kafka-consumer-groups` and `kafka-groups`.

use std::io::Write;

use blackbox::wire::{self, Bytes, Rest};
use blackbox::{Broker, Running};

#[test]
fn a_group_is_described_reset_and_deleted() {
    let broker = Broker::shared();
    broker.kafka_reads("console-producer --topic groups-life", "a\nb\nc\n").ok();
    let consume = "console-consumer --topic groups-life --group groups-life --from-beginning \
                   --max-messages 2";
    broker.kafka(consume).ok().prints("a\nb");
    broker.kafka("groups --list --group-type classic").ok().says("groups-life");
    broker.kafka("consumer-groups --list --state empty").ok().says("groups-life");
    let group = |line: &str| broker.kafka(&format!("consumer-groups --group groups-life {line}"));
    group("--describe").ok().prints(
        "\nGROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  *\n\
         groups-life     groups-life     0          2               3               1    *",
    );
    group("--describe --state").ok().prints(
        "\nGROUP * COORDINATOR (ID) * ASSIGNMENT-STRATEGY  STATE * #MEMBERS\n\
         groups-life * (1) * - * Empty * 0",
    );
    group("--topic groups-life --reset-offsets --to-earliest --execute").ok().prints(
        "\nGROUP           TOPIC           PARTITION  NEW-OFFSET\n\
         groups-life     groups-life     0          0",
    );
    group("--topic groups-life --reset-offsets --shift-by 1 --execute")
        .ok()
        .says("groups-life     groups-life     0          1");
    group("--delete-offsets --topic groups-life").ok().says("0          Successful");
    group("--delete").ok().prints("Deletion of requested consumer groups ('groups-life') was*");
    group("--describe").says("GroupIdNotFoundException: Group groups-life not found.");
    group("--delete").says("GroupIdNotFoundException");
}

#[test]
fn members_of_a_group_are_shown_while_they_read() {
    let broker = Broker::shared();
    broker.kafka("topics --create --topic groups-live --partitions 2").ok();
    let mut consumer =
        Running::start(&mut broker.kafka_command(
            "verifiable-consumer --topic groups-live --group-id groups-live --verbose",
        ));
    consumer.wait_for("partitions_assigned");
    let describe = "consumer-groups --describe --group groups-live";
    broker.kafka(&format!("{describe} --members --verbose")).ok().prints(
        "\nGROUP * CONSUMER-ID * HOST * CLIENT-ID * #PARTITIONS * CURRENT-ASSIGNMENT *\n\
         groups-live * /127.0.0.1 * 2 * groups-live:0,1 *",
    );
    broker.kafka(&format!("{describe} --state")).ok().prints(
        "\nGROUP * COORDINATOR (ID) * ASSIGNMENT-STRATEGY * STATE * #MEMBERS\n\
         groups-live * (1) * range * Stable * 1",
    );
    broker
        .kafka("consumer-groups --delete --group groups-live")
        .says("GroupNotEmptyException: The group is not empty.");
    broker
        .kafka(
            "consumer-groups --group groups-live --topic groups-live --reset-offsets \
             --to-earliest --execute",
        )
        .says("Assignments can only be reset if the group 'groups-live' is inactive");
    consumer.interrupt();
    broker.kafka(&format!("{describe} --state")).says("Empty");
}

#[test]
fn a_topic_of_offsets_that_cannot_be_made_leaves_groups_without_a_coordinator() {
    const COORDINATOR_NOT_AVAILABLE: i16 = 15;
    // A setting that brokers may have and topics may not.
    let broker = Broker::start(&[("offsets.topic.segment.bytes", "1000")]);
    let mut body = Bytes::default();
    body.string("groups-homeless");
    for _ in 0..2 {
        let mut stream = broker.connect();
        let request = wire::request(wire::FIND_COORDINATOR, 0, 1, &body.0);
        stream.write_all(&request).expect("the broker reads");
        let answer = wire::answer(&mut stream, 1).expect("an answer to FindCoordinator");
        assert_eq!(Rest(&answer).i16(), COORDINATOR_NOT_AVAILABLE);
    }
}
