//! Replicas that move between log directories, by Kafka's tool and by its admin client.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use blackbox::{Broker, CLUSTER_ID, Running, Target, quick_java, target};

const BOTH: (&str, &str) = ("log.dirs", "{folder}/data,{folder}/more");
/// With it, Kafka looks at its limit of bytes a second after every few batches.
const FEW: (&str, &str) = ("replica.fetch.max.bytes", "65536");
/// How long a broker may take for a move.
const MOVE_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// What the admin client says, without the broker's folder.
fn admin(broker: &Broker, words: &[&str]) -> String {
    let folder = broker.path("").display().to_string();
    let words = words.iter().map(|word| word.replace("{folder}", folder.trim_end_matches('/')));
    let mut command = quick_java("LogDirs");
    let said = Running::start(command.arg(broker.address()).args(words)).finish().ok();
    said.stdout.replace(&folder, "")
}

/// The directory that has the only folder of a partition, once it moves no more.
fn moved_to(broker: &Broker, partition: &str) -> &'static str {
    let deadline = Instant::now() + MOVE_MAX;
    loop {
        let is_copy =
            |name: &String| name.starts_with(&format!("{partition}.")) && name.ends_with("-future");
        let found: Vec<&'static str> = ["data", "more"]
            .into_iter()
            .filter(|it| names(&broker.path(it)).contains(&partition.to_owned()))
            .collect();
        let is_moving =
            ["data", "more"].iter().any(|it| names(&broker.path(it)).iter().any(is_copy));
        if let [directory] = found[..]
            && !is_moving
        {
            return directory;
        }
        assert!(Instant::now() < deadline, "{partition} moves on\n{}", broker.end_of_log());
        thread::sleep(PAUSE);
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("the directory is there");
    entries.map(|entry| entry.expect("listed").file_name().display().to_string()).collect()
}

fn other(directory: &str) -> &'static str {
    if directory == "data" { "more" } else { "data" }
}

/// A plan for the tool to put partition 0 of a topic there.
fn plan(broker: &Broker, topic: &str, directory: &str) -> String {
    let directory = broker.path(directory).display().to_string();
    let text = format!(
        r#"{{"version":1,"partitions":[{{"topic":"{topic}","partition":0,"replicas":[1],
            "log_dirs":["{directory}"]}}]}}"#
    );
    let path = broker.path("plan.json");
    fs::write(&path, text).expect("writing a plan");
    format!("reassign-partitions --reassignment-json-file {}", path.display())
}

#[test]
fn the_tool_moves_a_partition_there_and_back() {
    let mut broker = Broker::start(&[BOTH]);
    broker.kafka_reads("console-producer --topic moved", "a\nb\nc\n").ok();
    let read = "console-consumer --topic moved --from-beginning --max-messages 3";
    let mut directory = moved_to(&broker, "moved-0");
    for _ in 0..2 {
        let to = other(directory);
        let reassign = plan(&broker, "moved", to);
        broker
            .kafka(&format!("{reassign} --execute"))
            .ok()
            .says("Successfully started partition reassignment for moved-0")
            .says(&format!(
                "Successfully started moving log directory to {} for replica moved-0 with broker 1",
                broker.path(to).display()
            ));
        assert_eq!(moved_to(&broker, "moved-0"), to);
        broker
            .kafka(&format!("{reassign} --verify"))
            .ok()
            .says("Reassignment of partition moved-0 is completed.")
            .says("Reassignment of replica moved-0-1 completed successfully.");
        broker.kafka(read).ok().prints("a\nb\nc");
        directory = to;
    }
    broker.stop();
    broker.start_again();
    assert_eq!(moved_to(&broker, "moved-0"), directory);
    broker.kafka(read).ok().prints("a\nb\nc");
}

#[test]
fn moves_that_cannot_be_are_refused_and_what_is_not_there_yet_is_remembered() {
    let broker = Broker::start(&[BOTH]);
    // The names of folders have 255 bytes at most.
    let [longest, too_long] = ["l".repeat(213), "m".repeat(214)];
    for topic in ["here", &longest, &too_long] {
        broker.kafka(&format!("topics --create --topic {topic}")).ok();
    }
    let said = admin(
        &broker,
        &[
            &format!("{longest},0,{{folder}}/data"),
            &format!("{too_long},0,{{folder}}/data"),
            "here,0,/nowhere",
            "here,7,{folder}/data",
            "later,0,{folder}/more",
            "last,0,{folder}/data",
        ],
    );
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "here-0 LogDirNotFoundException",
            "here-7 UnknownTopicOrPartitionException",
            "last-0 UnknownTopicOrPartitionException",
            "later-0 UnknownTopicOrPartitionException",
            &format!("{longest}-0 NONE"),
            &format!("{too_long}-0 InvalidTopicException"),
        ]
    );
    for (topic, directory) in [("later", "more"), ("last", "data")] {
        broker.kafka(&format!("topics --create --topic {topic}")).ok();
        assert_eq!(moved_to(&broker, &format!("{topic}-0")), directory);
    }
}

#[test]
fn a_move_is_seen_while_it_lasts_and_can_be_changed_and_goes_on_after_a_kill() {
    const RECORDS: usize = 12_000;
    const BYTES: usize = 1_000;
    let mut broker = Broker::start(&[BOTH, FEW]);
    let value = "x".repeat(BYTES);
    let input = format!("{value}\n").repeat(RECORDS);
    broker.kafka_reads("console-producer --topic slow", &input).ok();
    let from = moved_to(&broker, "slow-0");
    let to = other(from);
    let throttle = "configs --alter --entity-type brokers --entity-name 1";
    let limit = "replica.alter.log.dirs.io.max.bytes.per.second";
    broker.kafka(&format!("{throttle} --add-config {limit}=1")).ok();
    let word = |directory: &str| format!("slow,0,{{folder}}/{directory}");
    let is_moving = |broker: &Broker| {
        let said = admin(broker, &["describe"]);
        let lines: Vec<&str> = said.lines().filter(|line| line.contains("slow-0")).collect();
        let future = lines.iter().find(|line| line.ends_with("future"));
        let future = future.map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(lines.contains(&&*format!("{from} slow-0 0 current")), "{lines:?}");
        future.inspect(|words| {
            assert_eq!(words[0], to, "{words:?}");
            let lag: usize = words[2].parse().expect("a lag");
            assert!((1..=RECORDS).contains(&lag), "{words:?}");
        })
    };
    assert_eq!(admin(&broker, &[&word(to)]), "slow-0 NONE\n");
    assert!(is_moving(&broker).is_some());
    // Where it is already: the move is given up.
    assert_eq!(admin(&broker, &[&word(from)]), "slow-0 NONE\n");
    assert_eq!(is_moving(&broker), None);
    assert_eq!(moved_to(&broker, "slow-0"), from);
    assert_eq!(admin(&broker, &[&word(to)]), "slow-0 NONE\n");
    assert!(is_moving(&broker).is_some());
    broker.kill();
    broker.start_again();
    assert!(is_moving(&broker).is_some(), "it goes on");
    broker.kafka(&format!("{throttle} --delete-config {limit}")).ok();
    assert_eq!(moved_to(&broker, "slow-0"), to);
    let consume =
        format!("console-consumer --topic slow --from-beginning --max-messages {RECORDS}");
    assert_eq!(broker.kafka(&consume).ok().stdout, input);
}

#[test]
fn a_move_that_one_broker_began_is_ended_by_the_other() {
    const RECORDS: usize = 12_000;
    let input = format!("{}\n", "x".repeat(1_000)).repeat(RECORDS);
    for (first, second) in [(target(), Target::Kafka), (Target::Kafka, target())] {
        let mut broker = Broker::prepare(&[BOTH, FEW]);
        broker.set_program(first);
        broker.format(&format!("--cluster-id {CLUSTER_ID}")).ok();
        broker.start_again();
        broker.kafka_reads("console-producer --topic passed-on", &input).ok();
        let from = moved_to(&broker, "passed-on-0");
        let to = other(from);
        let limit = "replica.alter.log.dirs.io.max.bytes.per.second";
        let configs = "configs --alter --entity-type brokers --entity-name 1";
        broker.kafka(&format!("{configs} --add-config {limit}=1")).ok();
        let word = format!("passed-on,0,{{folder}}/{to}");
        assert_eq!(admin(&broker, &[&word]), "passed-on-0 NONE\n");
        let shown = admin(&broker, &["describe"]);
        assert!(shown.contains("future"), "{shown}");
        broker.kill();
        broker.set_program(second);
        broker.start_again();
        let shown = admin(&broker, &["describe"]);
        assert!(shown.contains("future"), "{shown}");
        broker.kafka(&format!("{configs} --delete-config {limit}")).ok();
        assert_eq!(moved_to(&broker, "passed-on-0"), to);
        let consume =
            format!("console-consumer --topic passed-on --from-beginning --max-messages {RECORDS}");
        assert_eq!(broker.kafka(&consume).ok().stdout, input);
        // And the other one finds it where it is.
        broker.kill();
        broker.set_program(first);
        broker.start_again();
        assert_eq!(broker.kafka(&consume).ok().stdout, input);
    }
}

/// Every file of a folder, and what is in it.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |name: String| (name.clone(), fs::read(folder.join(name)).expect("it is read"));
    names(folder).into_iter().map(read).collect()
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).expect("it is not there yet");
    for (name, content) in files(from) {
        fs::write(to.join(name), content).expect("it is copied");
    }
}

/// From now on the broker has these directories.
fn set_directories(broker: &Broker, list: &str) {
    let text = fs::read_to_string(broker.settings()).expect("it has settings");
    let list =
        list.replace("{folder}", broker.path("").display().to_string().trim_end_matches('/'));
    let line = |line: &str| match line.starts_with("log.dirs=") {
        true => format!("log.dirs={list}\n"),
        false => format!("{line}\n"),
    };
    fs::write(broker.settings(), text.lines().map(line).collect::<String>()).expect("written");
}

/// A topic of one partition, with a record, that lies in one of these directories.
fn topic_in(broker: &Broker, directories: &[&str]) -> String {
    for number in 0..20 {
        let topic = format!("placed-{number}");
        broker.kafka_reads(&format!("console-producer --topic {topic}"), "a\n").ok();
        let folder = format!("{topic}-0");
        if directories.iter().any(|it| names(&broker.path(it)).contains(&folder)) {
            return topic;
        }
    }
    panic!("no topic lies in {directories:?}");
}

#[test]
fn two_logs_of_a_partition_are_refused_and_left_as_they_are() {
    let mut broker = Broker::start(&[BOTH]);
    let topic = topic_in(&broker, &["data"]);
    broker.stop();
    let [one, two] = ["data", "more"].map(|it| broker.path(it).join(format!("{topic}-0")));
    copy_folder(&one, &two);
    let before = [&one, &two].map(|folder| files(folder));
    let said = Broker::fails_to_start(&broker, &[BOTH])
        .says(&format!("Duplicate log directories for {topic}-0 are found in"))
        .says(&one.display().to_string())
        .says(&two.display().to_string());
    if target() == Target::Corelane {
        assert_eq!(said.stderr.matches("Duplicate").count(), 1, "{said}");
        assert_eq!(before, [&one, &two].map(|folder| files(folder)));
        for directory in ["data", "more"] {
            let names = names(&broker.path(directory));
            assert!(names.contains(&".kafka_cleanshutdown".to_owned()), "{names:?}");
        }
    }
    fs::rename(&two, broker.path("aside")).expect("it is there");
    broker.start_again();
    let read = format!("console-consumer --topic {topic} --from-beginning --max-messages 1");
    broker.kafka(&read).ok().prints("a");
}

#[test]
fn a_directory_that_was_dropped_and_put_back_is_not_forgotten_in_silence() {
    let mut broker = Broker::start(&[BOTH]);
    let topic = topic_in(&broker, &["more"]);
    broker.stop();
    set_directories(&broker, "{folder}/data");
    broker.start_again();
    // An empty log is made for it.
    let deadline = Instant::now() + MOVE_MAX;
    while !names(&broker.data()).contains(&format!("{topic}-0")) {
        assert!(Instant::now() < deadline, "no log is made\n{}", broker.end_of_log());
        thread::sleep(PAUSE);
    }
    // Kafka leads it from the next start on.
    if target() == Target::Corelane {
        let said = broker.kafka(&format!("get-offsets --topic {topic}")).ok();
        said.prints(&format!("{topic}:0:0"));
        says_once(&broker, "logs were in a directory that log.dirs does not name any more");
    }
    broker.stop();
    let said = Broker::fails_to_start(&broker, &[BOTH]);
    let said = said.says(&format!("Duplicate log directories for {topic}-0 are found in"));
    if target() == Target::Corelane {
        said.says("move the one that you do not need out of its directory");
    }
    // The empty one goes.
    fs::rename(broker.data().join(format!("{topic}-0")), broker.path("aside")).expect("there");
    set_directories(&broker, "{folder}/data,{folder}/more");
    broker.start_again();
    let read = format!("console-consumer --topic {topic} --from-beginning --max-messages 1");
    broker.kafka(&read).ok().prints("a");
}

/// What the broker has logged has one line with this.
#[track_caller]
fn says_once(broker: &Broker, words: &str) {
    let text = broker.log_text();
    assert_eq!(text.lines().filter(|line| line.contains(words)).count(), 1, "{words}: {text}");
}

#[test]
fn a_folder_that_is_missing_is_named() {
    let mut broker = Broker::start(&[]);
    for topic in ["missing", "there"] {
        broker.kafka_reads(&format!("console-producer --topic {topic}"), "a\nb\n").ok();
    }
    broker.stop();
    let folder = broker.data().join("missing-0");
    fs::remove_dir_all(&folder).expect("it is there");
    broker.start_again();
    broker.kafka("get-offsets --topic missing").ok().prints("missing:0:0");
    broker.kafka("get-offsets --topic there").ok().prints("there:0:2");
    // Kafka says nothing.
    if target() == Target::Corelane {
        let line = format!("partition=missing-0 folder={} below=2", folder.display());
        says_once(&broker, &line);
        says_once(&broker, "the folder of a log is missing");
    }
}

/// A disk can fail just as a copy gets its log's name: when it is back, there are two.
#[test]
fn a_copy_that_was_taking_its_logs_place_is_told_by_its_mark() {
    const MARK: &str = "00000000000000000000.moving.deleted";
    if target() == Target::Kafka {
        return;
    }
    let mut broker = Broker::start(&[BOTH]);
    let topic = topic_in(&broker, &["data"]);
    let partition = format!("{topic}-0");
    let read = format!("console-consumer --topic {topic} --from-beginning --max-messages 1");
    broker.stop();
    let [one, two] = ["data", "more"].map(|it| broker.path(it).join(&partition));
    copy_folder(&one, &two);
    fs::write(two.join(MARK), []).expect("a mark");
    broker.start_again();
    assert_eq!(moved_to(&broker, &partition), "data");
    let is_aside = |name: &String| name.starts_with(&partition) && name.ends_with("-stray");
    assert!(names(&broker.path("more")).iter().any(is_aside));
    broker.kafka(&read).ok().prints("a");
    // A copy that is alone is the log, and has no mark for long.
    broker.stop();
    fs::write(one.join(MARK), []).expect("a mark");
    broker.start_again();
    broker.kafka(&read).ok().prints("a");
    broker.stop();
    assert!(!names(&one).contains(&MARK.to_owned()));
}

/// A copy may lie in a directory that is offline: nothing new begins, wherever it is to go.
#[test]
fn no_partition_begins_to_move_while_a_directory_is_offline() {
    let mut broker = Broker::start(&[("log.dirs", "{folder}/data,{folder}/more,{folder}/third")]);
    let topic = topic_in(&broker, &["data", "more"]);
    broker.stop();
    let third = broker.path("third");
    fs::rename(&third, broker.path("away")).expect("it is there");
    fs::write(&third, []).expect("a file in the way of the directory");
    broker.start_again();
    let read = format!("console-consumer --topic {topic} --from-beginning --max-messages 1");
    broker.kafka(&read).ok().prints("a");
    let partition = format!("{topic}-0");
    let from = moved_to(&broker, &partition);
    for to in [other(from), "third"] {
        let said = admin(&broker, &[&format!("{topic},0,{{folder}}/{to}")]);
        assert_eq!(said, format!("{partition} KafkaStorageException\n"));
    }
    assert_eq!(
        admin(&broker, &[&format!("{topic},0,{{folder}}/{from}")]),
        format!("{partition} NONE\n")
    );
    assert_eq!(moved_to(&broker, &partition), from);
}
