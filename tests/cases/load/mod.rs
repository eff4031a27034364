//! A load that knows what it has been promised: producers, topics that come and go, a group. The
//! broker may end at any moment; what was acknowledged is checked afterwards.

mod churn;
mod client;
mod writer;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use blackbox::PAUSE;
use blackbox::wire::NONE;

use self::churn::{Churn, Committer};
pub(crate) use self::client::Client;
pub(crate) use self::writer::Plan;
use self::writer::Writer;

/// How a broker has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// In order, or killed: the page cache is still there.
    Kill,
    /// What was not synced is gone.
    PowerLoss,
}

/// Topics with everything that can go wrong in small: segments are rolled every few batches.
pub(crate) const PLANS: [Plan; 6] = [
    Plan {
        topic: "plain",
        partitions: 2,
        settings: &[("internal.segment.bytes", "50000")],
        is_idempotent: false,
        is_compacted: false,
        is_flushed: false,
    },
    Plan {
        topic: "idempotent",
        partitions: 2,
        settings: &[("internal.segment.bytes", "30000")],
        is_idempotent: true,
        is_compacted: false,
        is_flushed: false,
    },
    Plan {
        topic: "flushed",
        partitions: 2,
        settings: &[("flush.messages", "1"), ("internal.segment.bytes", "50000")],
        is_idempotent: false,
        is_compacted: false,
        is_flushed: true,
    },
    Plan {
        topic: "flushed-idempotent",
        partitions: 2,
        settings: &[("flush.messages", "1"), ("internal.segment.bytes", "30000")],
        is_idempotent: true,
        is_compacted: false,
        is_flushed: true,
    },
    Plan {
        topic: "retained",
        partitions: 1,
        settings: &[
            ("flush.messages", "1"),
            ("internal.segment.bytes", "4000"),
            ("retention.bytes", "20000"),
        ],
        is_idempotent: true,
        is_compacted: false,
        is_flushed: true,
    },
    Plan {
        topic: "compacted",
        partitions: 1,
        settings: &[
            ("flush.messages", "1"),
            ("internal.segment.bytes", "4000"),
            ("cleanup.policy", "compact"),
            ("min.cleanable.dirty.ratio", "0.01"),
        ],
        is_idempotent: true,
        is_compacted: true,
        is_flushed: true,
    },
];

/// Settings of a broker that does as often as it can what it does now and then.
pub(crate) const EAGER: [(&str, &str); 13] = [
    ("log.initial.task.delay.ms", "50"),
    ("log.retention.check.interval.ms", "100"),
    ("log.segment.delete.delay.ms", "100"),
    ("log.cleaner.backoff.ms", "50"),
    ("log.flush.offset.checkpoint.interval.ms", "100"),
    ("log.flush.start.offset.checkpoint.interval.ms", "100"),
    ("internal.metadata.log.segment.bytes", "20000"),
    ("metadata.log.max.record.bytes.between.snapshots", "5000"),
    ("metadata.max.retention.bytes", "40000"),
    ("internal.metadata.delete.delay.millis", "100"),
    ("offsets.topic.num.partitions", "1"),
    ("log.roll.ms", "500"),
    ("log.cleaner.min.cleanable.ratio", "0.01"),
];

/// What the threads of a load know of each other.
#[derive(Debug)]
pub(crate) struct Signals {
    stop: AtomicBool,
    acknowledged: AtomicU64,
    power_was_lost: bool,
}

impl Signals {
    fn has_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// One more batch was acknowledged.
    fn count(&self) {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
    }

    /// How many batches were acknowledged since the load began.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Whether the broker may have forgotten what a producer wrote last.
    fn may_forget(&self, plan: &Plan) -> bool {
        self.power_was_lost && !plan.is_flushed
    }
}

struct StopAtLast<'a>(&'a AtomicBool);

impl Drop for StopAtLast<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The whole load against one broker.
#[derive(Debug)]
pub(crate) struct Load {
    port: u16,
    writers: Vec<Writer>,
    churn: Churn,
    committer: Committer,
    power_was_lost: bool,
}

impl Load {
    /// Makes the topics. `all_flushed`: whatever the broker acknowledges is durable.
    pub(crate) fn new(port: u16, seed: u64, all_flushed: bool) -> Load {
        let mut client = Client::new(port);
        let mut writers = Vec::new();
        for mut plan in PLANS {
            let made = client.create_topic(plan.topic, plan.partitions, plan.settings);
            assert_eq!(made, Some(NONE), "{}", plan.topic);
            plan.is_flushed |= all_flushed;
            let index = writers.len() as u64;
            let new = |partition| Writer::new(plan, partition, seed.wrapping_add(index));
            writers.extend((0..plan.partitions).map(new));
        }
        let committer = Committer::new("plain", all_flushed);
        Load { port, writers, churn: Churn::new(seed), committer, power_was_lost: false }
    }

    /// Lets everybody work while `end` brings the broker to its end, and until it has.
    pub(crate) fn run_until(&mut self, end: impl FnOnce(&Signals)) {
        let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
        let signals = Signals { stop, acknowledged, power_was_lost: self.power_was_lost };
        let (port, signals) = (self.port, &signals);
        let (churn, committer) = (&mut self.churn, &mut self.committer);
        thread::scope(|scope| {
            for writer in &mut self.writers {
                scope.spawn(move || writer.run(port, signals));
            }
            scope.spawn(move || churn.run(port, signals));
            scope.spawn(move || committer.run(port, signals));
            // Also where `end` fails: the others would never end.
            let _stop = StopAtLast(&signals.stop);
            end(signals);
        });
    }

    /// Checks what is there after the broker has started again. `durable_ends` are by the name of
    /// the partition.
    pub(crate) fn check(
        &mut self,
        ending: Ending,
        durable_ends: &BTreeMap<String, i64>,
        in_full: bool,
    ) {
        self.power_was_lost |= ending == Ending::PowerLoss;
        let mut client = Client::new(self.port);
        for writer in &mut self.writers {
            let durable_end = durable_ends.get(&writer.name()).copied().unwrap_or(0);
            writer.check(&mut client, ending, durable_end, in_full);
        }
        self.churn.check(&mut client);
        self.committer.check(&mut client, ending);
    }

    /// How many batches were acknowledged, of those that are to be there.
    pub(crate) fn acknowledged(&self) -> usize {
        self.writers.iter().map(Writer::acknowledged).sum()
    }
}

/// Waits until so many batches were acknowledged, but not for ever.
///
/// # Panics
/// When they are not in time.
pub(crate) fn wait_for_acknowledged(signals: &Signals, count: u64) {
    const TIME_MAX: Duration = Duration::from_secs(60);
    let deadline = Instant::now() + TIME_MAX;
    while signals.acknowledged() < count {
        assert!(Instant::now() < deadline, "only {} batches are through", signals.acknowledged());
        thread::sleep(PAUSE);
    }
}

/// What `recovery-point-offset-checkpoint` says, by the name of the partition.
pub(crate) fn recovery_points(folder: &Path) -> BTreeMap<String, i64> {
    checkpoint(folder, "recovery-point-offset-checkpoint")
}

/// What a checkpoint of a directory says, by the name of the partition.
pub(crate) fn checkpoint(folder: &Path, name: &str) -> BTreeMap<String, i64> {
    let text = fs::read_to_string(folder.join(name));
    let entry = |line: &str| {
        let mut words = line.split(' ');
        let (topic, partition) = (words.next()?, words.next()?);
        Some((format!("{topic}-{partition}"), words.next()?.parse().ok()?))
    };
    text.unwrap_or_default().lines().filter_map(entry).collect()
}
