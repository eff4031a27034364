//! What a broker says when it cannot start: in words that help, and without harm to the data.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;

use blackbox::{Broker, Target, target, wire};

#[test]
fn a_folder_in_use_is_left_alone() {
    // A combined node of Kafka takes the lock only after its controller has written there: what
    // the second one does then depends on time.
    if target() == Target::Kafka {
        return;
    }
    let broker = Broker::start(&[]);
    let folder = broker.data().display().to_string();
    Broker::fails_to_start(&broker, &[]).says(&folder).says("another process");
    broker.kafka("topics --create --topic still-works").ok();
}

#[test]
fn a_port_in_use_is_named() {
    let taken = Broker::shared().address();
    let mut broker = Broker::start(&[]);
    broker.stop();
    let controller = format!("127.0.0.1:{}", blackbox::free_port());
    let listeners = format!("PLAINTEXT://{taken},CONTROLLER://{controller}");
    let voters = format!("1@{controller}");
    let settings = &[("listeners", listeners.as_str()), ("controller.quorum.voters", &voters)];
    let said =
        Broker::fails_to_start(&broker, settings).says("Address already in use").says(&taken);
    if target() == Target::Corelane {
        // Once is enough.
        assert_eq!(said.stderr.matches("Address already in use").count(), 1, "{said}");
    }
}

#[test]
fn a_folder_of_another_node_is_refused() {
    let mut broker = Broker::start(&[]);
    broker.stop();
    let voters = format!("2@127.0.0.1:{}", blackbox::free_port());
    Broker::fails_to_start(&broker, &[("node.id", "2"), ("controller.quorum.voters", &voters)])
        .says("Stored node id 1 doesn't match previous node id 2");
    broker.start_again();
}

#[test]
fn a_folder_of_another_cluster_is_refused() {
    let mut broker = Broker::start(&[("log.dirs", "{folder}/data,{folder}/more")]);
    broker.stop();
    let path = broker.path("more/meta.properties");
    let text = fs::read_to_string(&path).expect("it was formatted");
    let other = text.replace(blackbox::CLUSTER_ID, "b3RoZXItY2x1c3Rlci0xMA");
    assert_ne!(text, other);
    fs::write(&path, other).expect("writing");
    Broker::fails_to_start(&broker, &[("log.dirs", "{folder}/data,{folder}/more")])
        .says("Invalid cluster.id in")
        .says("b3RoZXItY2x1c3Rlci0xMA");
    fs::write(&path, text).expect("writing");
    broker.start_again();
}

#[test]
fn a_folder_by_two_names_is_refused() {
    let mut broker = Broker::start(&[]);
    broker.stop();
    symlink(broker.data(), broker.path("link")).expect("a link");
    for other in ["data/", "data/../data", "link"] {
        let both = format!("{{folder}}/data,{{folder}}/{other}");
        Broker::fails_to_start(&broker, &[("log.dirs", &both)])
            .says("Duplicate directory ID")
            .says(&format!("It was the ID of {}, but also of ", broker.data().display()))
            .says(&broker.path(other).display().to_string());
    }
    // The same words twice count once.
    let settings = fs::read_to_string(broker.settings()).expect("it has settings");
    let data = broker.data().display().to_string();
    fs::write(broker.settings(), format!("{settings}log.dirs={data},{data}\n")).expect("written");
    broker.start_again();
}

#[test]
fn a_folder_without_permission_is_named() {
    // Kafka's own files belong to the user that fetched them.
    if target() == Target::Kafka {
        return;
    }
    let mut broker = Broker::start(&[]);
    broker.stop();
    let folder = broker.data().display().to_string();
    Broker::fails_to_start_as_nobody(&broker).says(&folder).says("Permission denied");
    broker.start_again();
}

#[test]
fn a_folder_that_was_not_formatted_is_refused() {
    let mut broker = Broker::start(&[]);
    broker.stop();
    fs::remove_file(broker.data().join("meta.properties")).expect("it was formatted");
    Broker::fails_to_start(&broker, &[]).says("meta.properties");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let mut broker = Broker::start(&[]);
    broker.stop();
    let file = broker.data().join("meta.properties");
    let below_a_file = file.join("data").display().to_string();
    Broker::fails_to_start(&broker, &[("log.dirs", &below_a_file)]).says(&below_a_file);
}

#[test]
fn settings_that_are_wrong_get_kafkas_words() {
    let mut broker = Broker::start(&[]);
    broker.stop();
    let check = |key: &str, value: &str, words: &str| {
        Broker::fails_to_start(&broker, &[(key, value)]).says(words);
    };
    check(
        "num.partitions",
        "abc",
        "Invalid value abc for configuration num.partitions: Not a number of type INT",
    );
    check(
        "num.partitions",
        "0",
        "Invalid value 0 for configuration num.partitions: Value must be at least 1",
    );
    check(
        "process.roles",
        "nonsense",
        "configuration process.roles: String must be one of: broker, controller",
    );
    check("compression.type", "rar", "Invalid value rar for configuration compression.type");
    check("listeners", "nonsense", "nonsense");
}

#[test]
fn a_log_that_cannot_be_written_ends_no_broker() {
    let broker = Broker::without_log();
    // The broker has a line for a length that no request may have.
    let mut stream = broker.connect();
    stream.write_all(&i32::MAX.to_be_bytes()).expect("the broker reads");
    wire::assert_closed(&mut stream);
    broker.kafka("topics --create --topic still-there").ok();
}
