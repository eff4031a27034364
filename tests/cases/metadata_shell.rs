//! `corelane metadata-shell` shows what Apache Kafka's own classes make of the same files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use blackbox::{
    Broker, CLUSTER_ID, Finished, Running, Target, await_that, corelane, free_port, quick_java,
    target,
};
use tempfile::TempDir;

use super::exchange::{assert_same, contents};

/// In a data directory.
const LOG: &str = "__cluster_metadata-0";
/// So that there is a snapshot, and a log that goes on behind it.
const SNAPSHOTS: (&str, &str) = ("metadata.log.max.record.bytes.between.snapshots", "3000");

#[test]
fn all_that_kafka_can_have_is_the_same_tree() {
    // Kafka makes the files; there is nothing of it to judge.
    if target() == Target::Kafka {
        return;
    }
    let sasl_port = free_port();
    let mut first = kafka_node(&[
        SNAPSHOTS,
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("super.users", "User:ANONYMOUS"),
        ("allow.everyone.if.no.acl.found", "true"),
        ("delegation.token.secret.key", "secret"),
        (
            "listener.security.protocol.map",
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        ),
        ("sasl.enabled.mechanisms", "PLAIN"),
        (
            "listener.name.sasl_plaintext.plain.sasl.jaas.config",
            "org.apache.kafka.common.security.plain.PlainLoginModule required \
             user_alice=\"alice-secret\";",
        ),
    ]);
    let sasl = format!("127.0.0.1:{sasl_port}");
    edit(&first, "\nlisteners=", &format!("\nlisteners=SASL_PLAINTEXT://{sasl},"));
    first.format(&format!("--cluster-id {CLUSTER_ID}")).ok();
    first.start_again();
    make(&first, &["topics", "everything", &sasl]);

    let voters = setting(&first, "controller.quorum.voters");
    let mut second = kafka_node(&[
        ("process.roles", "broker"),
        ("node.id", "2"),
        ("controller.quorum.voters", &voters),
        ("broker.rack", "rack-2"),
    ]);
    let own_controller = setting(&second, "listeners");
    let (_, own_controller) = own_controller.split_once(',').expect("there are two");
    edit(&second, &format!(",{own_controller}"), "");
    second.format(&format!("--cluster-id {CLUSTER_ID}")).ok();
    second.start_again();
    make(&first, &["wait", "2", "replicated"]);
    second.stop();
    make(&first, &["shrunk", "move"]);

    wait_for_snapshot(&first.data().join(LOG));

    // The node runs, with its lock on the directory.
    let running = shell(&["--directory", &shown(&first.data()), "tree", "/image"]).ok();
    holds_everything(&running.stdout);
    same_tree_of_a_copy(&first.data().join(LOG));
    first.stop();
    let before = contents(&first.data());
    same_trees_of_all(&first.data().join(LOG));
    assert!(contents(&first.data()) == before, "the shell has changed something");
}

/// The tree has what the test is about.
fn holds_everything(tree: &str) {
    for part in [
        "rack=Optional.empty, fenced=false, inControlledShutdown=false",
        "rack=Optional[rack-2], fenced=true, inControlledShutdown=true",
        "ControllerRegistration(id=1",
        "BROKER:1:",
        "CLIENT_METRICS:m-metrics:",
        "GROUP:m-group:",
        "TOPIC:m-configured:",
        "clientId(one two)_user(a\\(b\\)\\\\c):",
        "5.0E-4",
        "2.0000001E7",
        "SCRAM-SHA-512:\n    alice:\n",
        "operation=DESCRIBE_TOKENS",
        "permissionType=DENY",
        "patternType=PREFIXED",
        "(renewers=User:bob User:carol",
        "Optional[4.4-IV2]",
        "addingReplicas=[2]",
        "removingReplicas=[1]",
        "isr=[1], removingReplicas=[], addingReplicas=[], elr=[2]",
        "nextProducerId:\n    1",
    ] {
        assert!(tree.contains(part), "no {part} in\n{tree}");
    }
}

#[test]
fn our_own_metadata_is_the_same_tree() {
    if target() == Target::Kafka {
        return;
    }
    let mut broker = Broker::start(&[SNAPSHOTS]);
    make(&broker, &["topics"]);
    wait_for_snapshot(&broker.data().join(LOG));
    let data = shown(&broker.data());
    let running = shell(&["--directory", &data, "cat", "/image/topics/byName/m.many/name"]).ok();
    assert_eq!(running.stdout, "m.many\n");
    same_tree_of_a_copy(&broker.data().join(LOG));
    broker.stop();
    same_trees_of_all(&broker.data().join(LOG));
    let input = "cd /image/topics\nls byName\nexit\nls\n";
    let mut command = Command::new(corelane());
    command.args(["metadata-shell", "--directory", &data]);
    let said = Running::start_with_input(&mut command, input).finish().ok();
    assert_eq!(said.stdout, "m-configured\nm.many\n", "{said}");
}

#[test]
fn what_is_no_command_fails() {
    if target() == Target::Kafka {
        return;
    }
    let folder = TempDir::with_prefix("blackbox-").expect("a folder");
    let path = shown(folder.path());
    shell(&["--directory", &path, "ls"]).fails().says("holds no metadata: give a data directory");
    shell(&["--snapshot", &path, "ls"]).fails().says("cannot read ");
    shell(&["ls"]).fails().says("--snapshot <FILE>");
    fs::create_dir(folder.path().join(LOG)).expect("made");
    fs::write(folder.path().join(LOG).join("00000000000000000000.log"), "").expect("written");
    shell(&["--directory", &path, "cd", "/"])
        .fails()
        .says("choose from 'cat', 'find', 'ls', 'tree'");
    shell(&["--directory", &path, "cat"]).fails().says("too few arguments");
    assert_eq!(shell(&["-d", &path, "ls", "/"]).ok().stdout, "image\nlocal\n");
}

/// A node of Kafka that has settings only.
fn kafka_node(settings: &[(&str, &str)]) -> Broker {
    let mut broker = Broker::prepare(settings);
    broker.set_program(Target::Kafka);
    broker
}

/// Replaces a part of a broker's settings.
fn edit(broker: &Broker, part: &str, other: &str) {
    let text = fs::read_to_string(broker.settings()).expect("it has settings");
    assert_eq!(text.matches(part).count(), 1, "{part} in\n{text}");
    fs::write(broker.settings(), text.replace(part, other)).expect("writing settings");
}

fn setting(broker: &Broker, key: &str) -> String {
    let text = fs::read_to_string(broker.settings()).expect("it has settings");
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    value.expect("it is set").to_owned()
}

fn make(broker: &Broker, words: &[&str]) {
    let mut command = quick_java("MetadataMaker");
    Running::start(command.arg(broker.address()).args(words)).finish().ok();
}

fn shell(arguments: &[&str]) -> Finished {
    Running::start(Command::new(corelane()).arg("metadata-shell").args(arguments)).finish()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The snapshots and segments of a log.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let all = entries.map(|entry| entry.expect("it can be listed").path());
    let endings = [".log", ".checkpoint"];
    all.filter(|path| endings.iter().any(|ending| shown(path).ends_with(ending))).collect()
}

/// Waits until there is a snapshot besides the one of formatting. The log grows by itself.
fn wait_for_snapshot(folder: &Path) {
    await_that("a snapshot", || files(folder).len() > 2);
}

/// As [`same_trees`], of a folder and of each file in it.
#[track_caller]
fn same_trees_of_all(folder: &Path) {
    let mut all = vec![("directory", folder.to_owned())];
    all.extend(files(folder).into_iter().map(|file| ("file", file)));
    same_trees(&all);
}

/// As [`same_trees`], of the files as they are now, of a node that runs and changes them.
fn same_tree_of_a_copy(folder: &Path) {
    let copy = TempDir::with_prefix("blackbox-").expect("a folder");
    let target = copy.path().join(LOG);
    fs::create_dir(&target).expect("made");
    for entry in fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("it can be listed").path();
        // What is removed meanwhile is not needed any more.
        drop(fs::copy(&path, target.join(path.file_name().expect("it has a name"))));
    }
    same_trees(&[("directory", target)]);
}

/// Our shell says of files, and of the folder of a log, what Kafka's classes say.
#[track_caller]
fn same_trees(all: &[(&str, PathBuf)]) {
    let mut command = quick_java("MetadataTree");
    command.args(all.iter().flat_map(|(kind, path)| [(*kind).to_owned(), shown(path)]));
    let kafka = Running::start(&mut command).finish().ok().stdout;
    let parts: Vec<&str> = kafka.split("--- ").skip(1).collect();
    assert_eq!(parts.len(), 4 * all.len(), "{kafka}");
    for ((kind, path), parts) in all.iter().zip(parts.chunks(4)) {
        let part = |index: usize, name: &str| {
            parts[index].strip_prefix(name).expect("they have an order").trim_start_matches('\n')
        };
        let option = if *kind == "file" { "--snapshot" } else { "--directory" };
        let path = shown(path);
        let say = |words: &[&str]| shell(&[&[option, &path], words].concat()).ok().stdout;
        assert_same(part(0, "find"), &say(&["find", "/image"]));
        let leaves: Vec<&str> = part(1, "leaves").lines().collect();
        assert_same(part(2, "cat"), &say(&[&["cat"], &*leaves].concat()));
        assert_same(part(3, "tree"), &say(&["tree", "/image"]));
    }
}
