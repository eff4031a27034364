//! The files of a log made by hand, with nothing but what `docs/data_format.md` and
//! `docs/recovery.md` say (`tests/python/rebuild.py`): they are those that a broker makes when it
//! finds the `.log` files alone. And no file of Kafka's has anything that the page does not tell.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use blackbox::{Broker, CLUSTER_ID, Finished, Running, Target, target};
use xtask::workspace_root;

use crate::cleaning::{CHECKPOINT, EAGER, NEVER, Workload, entries};
use crate::exchange;
use crate::load::checkpoint;

/// Of every topic: more entries are made with it than by default.
const INTERVAL_BYTES: &str = "200";
const SEED: u64 = 7;
const STEPS: u32 = 40;
const METADATA: &str = "__cluster_metadata-0";
const EPOCHS: &str = "leader-epoch-checkpoint";
/// A log whose last segment ends within a batch.
const TORN: &str = "x-none-0";
/// What follows from the batches.
const MADE: [&str; 4] = ["index", "timeindex", "txnindex", "snapshot"];

#[test]
fn what_kafka_wrote_is_made_again_by_hand() {
    let written = written_by(Target::Kafka, "transact", &["fill", "transact", "trim"]);
    let names = rebuild(&["check", &shown(&written.data())]).ok().stdout;
    for name in ["txnindex", "snapshot", "timeindex", "cleanshutdown", "quorum-state"] {
        assert!(names.contains(name), "Kafka left no {name}: {names}");
    }
    is_made_again(&written);
}

#[test]
fn what_corelane_wrote_is_made_again_by_hand() {
    let written = written_by(target(), "plain", &["fill", "trim"]);
    rebuild(&["check", &shown(&written.data())]).ok();
    is_made_again(&written);
}

/// A directory with all codecs, idempotent producers and compacted logs, closed in order.
fn written_by(program: Target, word: &str, words: &[&str]) -> Broker {
    let settings = [&EAGER[..], &[("log.index.interval.bytes", INTERVAL_BYTES)]].concat();
    let mut broker = Broker::prepare(&settings);
    broker.set_program(program);
    broker.format(&format!("--cluster-id {CLUSTER_ID}")).ok();
    broker.start_again();
    let workload = Workload::new(SEED, STEPS);
    exchange::run(&broker, workload.first, words);
    workload.run(&broker, word);
    workload.run(&broker, &format!("poke={}", broker.path(CHECKPOINT).display()));
    broker.stop();
    broker
}

/// What the logs alone tell is what a broker makes of them.
fn is_made_again(written: &Broker) {
    let settings = [&NEVER[..], &[("log.index.interval.bytes", INTERVAL_BYTES)]].concat();
    let mut broker = Broker::prepare(&settings);
    copy_logs(&written.data(), &broker.data());
    let segments = entries(&broker.data().join(TORN)).into_iter();
    let torn = segments.filter(|path| path.extension().is_some_and(|it| it == "log")).max();
    let torn = torn.expect("it has segments");
    let half = fs::read(&torn).expect("it is there")[..99].to_vec();
    let mut file = fs::File::options().append(true).open(torn).expect("it can be written");
    file.write_all(&half).expect("there is room");
    let by_hand = broker.path("by-hand");
    let ends = made_by_hand(&broker.data(), &by_hand, INTERVAL_BYTES);
    broker.start_again();
    // A leader that answers has its log open: only such a log is closed.
    broker.kafka("get-offsets").ok();
    broker.stop();

    let mut logs = 0;
    for (log, end) in ends.iter().filter(|(log, _)| !log.starts_with("__")) {
        assert_same(&by_hand.join(log), &broker.data().join(log), *end);
        logs += 1;
    }
    assert!(logs > 5, "{ends:?}");
    // A start writes to these, so that they are made from what it left.
    let (left, by_hand) = (broker.path("left"), broker.path("by-hand-of-internal"));
    copy_logs(&broker.data(), &left);
    let ends = made_by_hand(&left, &by_hand, INTERVAL_BYTES);
    for (log, end) in ends.iter().filter(|(log, _)| log.starts_with("__") && *log != METADATA) {
        assert_same(&by_hand.join(log), &broker.data().join(log), *end);
    }
    checkpoints_are_right(&broker, &ends);
}

/// Copies the batches, and what does not follow from them; of deleted logs nothing.
fn copy_logs(from: &Path, to: &Path) {
    let endings = [".log", ".checkpoint", ".metadata", ".properties", "quorum-state"];
    fs::create_dir_all(to).expect("a folder");
    for path in entries(from) {
        let name = path.file_name().and_then(|name| name.to_str()).expect("it has a name");
        let is_kept = endings.iter().any(|ending| name.ends_with(ending));
        if path.is_dir() && !name.ends_with("-delete") {
            copy_logs(&path, &to.join(name));
        } else if is_kept || name == "log-start-offset-checkpoint" {
            fs::copy(&path, to.join(name)).expect("a copy");
        }
    }
}

/// What the logs below a folder tell, and where each ends.
fn made_by_hand(from: &Path, to: &Path, interval: &str) -> BTreeMap<String, i64> {
    let said = rebuild(&["rebuild", &shown(from), &shown(to), interval]).ok().stdout;
    let log = |line: &str| {
        let (log, end) = line.split_once(' ').expect("a log and its end");
        (log.to_owned(), end.parse().expect("a number"))
    };
    said.lines().map(log).collect()
}

fn rebuild(words: &[&str]) -> Finished {
    let root = workspace_root();
    let mut command = Command::new("python3");
    command.arg(root.join("tests/python/rebuild.py")).arg(root.join("docs/data_format.md"));
    Running::start(command.args(words)).finish()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The files of a log, made by hand and by a broker, are the same.
#[track_caller]
fn assert_same(by_hand: &Path, own: &Path, end: i64) {
    let made = |path: &PathBuf| {
        path.extension().is_some_and(|it| it == "log" || MADE.iter().any(|made| it == *made))
    };
    let names = |folder: &Path| {
        let mut names: Vec<_> = entries(folder).into_iter().filter(made).collect();
        names.sort();
        names.iter().map(|path| path.file_name().map(ToOwned::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(names(by_hand), names(own), "{}", own.display());
    for path in entries(by_hand).iter().filter(|path| made(path)) {
        // Kafka drops producers there whose markers compaction has emptied: recovery.md says why.
        if target() == Target::Kafka && path.ends_with(format!("{end:020}.snapshot")) {
            continue;
        }
        let other = own.join(path.file_name().expect("it has a name"));
        let same = fs::read(path).expect("it is there") == fs::read(&other).expect("it is there");
        assert!(same, "{} is not as it is made by hand", other.display());
    }
    let epochs = |folder: &Path| fs::read_to_string(folder.join(EPOCHS)).expect("it is there");
    let (by_hand, own) = (epochs(by_hand), epochs(own));
    // The leader that started has written nothing yet: its epoch begins where the log ends.
    let rows = |text: &str| text.lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
    let mut found = rows(&own);
    found.pop_if(|row| row.ends_with(&format!(" {end}")));
    assert_eq!(rows(&by_hand), found, "{own}");
}

/// After an orderly stop, all of every log is durable and replicated.
fn checkpoints_are_right(broker: &Broker, ends: &BTreeMap<String, i64>) {
    for name in ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"] {
        let mut found = checkpoint(&broker.data(), name);
        found.remove(METADATA);
        let mut expected = ends.clone();
        expected.remove(METADATA);
        assert_eq!(found, expected, "{name}");
    }
}
