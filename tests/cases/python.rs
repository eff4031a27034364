//! Python's clients: scripts of `tests/python`.

use blackbox::{Broker, Running, python};

#[test]
fn kafka_python() {
    run("kafka_python.py");
}

#[test]
fn confluent_kafka() {
    run("confluent.py");
}

fn run(script: &str) {
    let broker = Broker::shared();
    Running::start(python(script).arg(broker.address())).finish().ok().prints("ok");
}
