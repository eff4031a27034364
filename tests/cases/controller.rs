//! The controller's own listener: tools that ask it without a broker between, and what it does not
//! take.

use std::io::Write;

use blackbox::wire::{self, api_versions, assert_closed, frame, produce_body, request};
use blackbox::{Broker, fits};

const PRODUCE: i16 = 0;
const METADATA: i16 = 3;

#[test]
fn tools_ask_the_controller_itself() {
    let broker = Broker::start(&[]);
    let quorum = "metadata-quorum --bootstrap-controller {controller} describe";
    broker.kafka(&format!("{quorum} --status")).ok().says("LeaderId:               1");
    broker.kafka(&format!("{quorum} --replication")).ok().says("Leader");
    let listed = broker.kafka("cluster list-endpoints --bootstrap-controller {controller}").ok();
    let row = format!("1 *127.0.0.1 *{} *null *controller *", broker.controller_port());
    assert!(listed.stdout.lines().any(|line| fits(line, &row)), "{listed}");
    broker
        .kafka("features --bootstrap-controller {controller} describe")
        .ok()
        .says("FinalizedVersionLevel: 4.4-IV2");

    // What the controller decides is known to the broker.
    broker
        .kafka(
            "configs --bootstrap-controller {controller} --alter --entity-type brokers \
             --entity-default --add-config log.retention.ms=123456",
        )
        .ok()
        .prints("Completed updating default config for brokers in the cluster.");
    broker
        .kafka("configs --describe --entity-type brokers --entity-default")
        .ok()
        .says("log.retention.ms=123456");
    // Whoever takes the broker for a controller is told so.
    broker
        .kafka("metadata-quorum --bootstrap-controller {} describe --status")
        .fails()
        .says("The request was sent to an endpoint of type BROKER");
}

#[test]
fn what_is_not_for_a_controller_is_answered_by_closing() {
    let broker = Broker::shared();
    let check = |name: &str, bytes: &[u8]| {
        println!("{name}");
        let mut stream = wire::connect(broker.controller_port()).expect("it takes connections");
        stream.write_all(bytes).expect("it reads");
        assert_closed(&mut stream);
        let mut other = wire::connect(broker.controller_port()).expect("it takes connections");
        api_versions(&mut other).expect("it still serves others");
    };
    check("a producer", &request(PRODUCE, 9, 1, &produce_body("x", 1, &[])));
    check("a consumer that looks for brokers", &request(METADATA, 1, 1, &[0, 0, 0, 0]));
    check("an unknown API", &request(999, 0, 1, &[]));
    check("half a header", &frame(&[0, 18, 0]));
    check("a length of 2 GB", &i32::MAX.to_be_bytes());
    check("a request of HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
}
