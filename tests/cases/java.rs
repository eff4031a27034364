//! Apache Kafka's Java clients: scenarios of `tests/java/Scenarios.java`.

use blackbox::{Broker, Running, Target, quick_java, target};

#[test]
fn producing_and_consuming() {
    run(&["records", "codecs", "recompression", "log_append_time", "too_large", "positions"]);
}

#[test]
fn administration() {
    run(&["topics", "configs", "cluster", "offsets", "errors"]);
}

#[test]
fn groups() {
    run(&["cooperative", "eager", "static_members", "fenced_member", "group_offsets"]);
}

#[test]
fn transactions_are_refused_for_good() {
    // Apache Kafka has them.
    if target() == Target::Corelane {
        run(&["transactions_refused"]);
    }
}

fn run(scenarios: &[&str]) {
    let broker = Broker::shared();
    let mut command = quick_java("Scenarios");
    let finished = Running::start(command.arg(broker.address()).args(scenarios)).finish();
    let expected: Vec<String> = scenarios.iter().map(|name| format!("ok {name}")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    finished.prints_in_any_order(&expected).ok();
}
