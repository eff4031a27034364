//! What happens in a run, drawn from its seed.

use base::{Duration, Instant, Random};
use fakeworld::{Crash, DiskFaults, FaultPlan};

use crate::client::ClientPlan;
use crate::history::{GroupHistory, History, PartitionHistory, TopicHistory};

/// Longer than any run lasts, with all that its clocks are set.
const DAY_MS: u64 = 86_400_000;

/// A crash to come.
#[derive(Clone, Copy, Debug)]
pub struct PlannedCrash {
    /// When its countdown begins.
    pub at: Instant,
    /// How many effects the node performs until then.
    pub after_effects: u64,
    /// In which way.
    pub crash: Crash,
}

/// What else a disk does in this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskTrouble {
    /// Nothing: it is at most slow.
    None,
    /// A part of the syncs fails.
    Syncs,
    /// A part of the writes fails.
    Writes,
    /// A part of the reads fails.
    Reads,
    /// It is full for a while.
    Full,
    /// The second log directory dies.
    DeadDirectory,
    /// The second log directory is full for a while.
    FullDirectory,
}

impl DiskTrouble {
    /// Whether a node may give up because of it: where the log of the metadata cannot be kept. For
    /// space it waits, also while it starts.
    pub fn excuses_an_end(self) -> bool {
        matches!(self, DiskTrouble::Syncs | DiskTrouble::Writes | DiskTrouble::Reads)
    }

    fn plan(self, disk: &mut DiskFaults) {
        match self {
            DiskTrouble::Syncs => disk.sync_errors_per_million = 10_000,
            DiskTrouble::Writes => disk.write_errors_per_million = 5_000,
            DiskTrouble::Reads => disk.read_errors_per_million = 5_000,
            DiskTrouble::Full
            | DiskTrouble::DeadDirectory
            | DiskTrouble::FullDirectory
            | DiskTrouble::None => {}
        }
    }
}

/// Everything about a run but what the world does by itself.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// How long clients work and faults last.
    pub length: Duration,
    /// What goes slow and wrong meanwhile.
    pub faults: FaultPlan,
    /// What the disk does besides.
    pub trouble: DiskTrouble,
    /// Whether the node has a second log directory.
    pub has_second_directory: bool,
    /// The crashes, in order of time.
    pub crashes: Vec<PlannedCrash>,
    /// When the node is cut off for a while, and for how long.
    pub cuts: Vec<(Instant, Duration)>,
    /// When the wall clock is set, and how far it is off then, in milliseconds.
    pub clock_changes: Vec<(Instant, i64)>,
    /// The clients.
    pub clients: Vec<ClientPlan>,
    /// Data shards of the node.
    pub data_shards: u16,
    /// Cores of the node: with fewer of them than machines, some share one.
    pub cores: usize,
    /// Settings of the node besides those that every node has.
    pub settings: Vec<(&'static str, String)>,
    /// How the node ends between the two audits; in order if there is none.
    pub last_crash: Option<Crash>,
}

impl Scenario {
    /// Draws a scenario, and the topics of its history; `is_whole` is whether the node does all
    /// that the workload knows.
    pub fn draw(random: &Random, is_whole: bool) -> (Self, History) {
        let mut dice = random.fork("scenario");
        let length_us = 200_000 + dice.below(1_200_000);
        let moment = |dice: &mut Random| Instant::from_nanos(dice.below(length_us) * 1_000);
        let mut faults = if dice.chance(15) {
            FaultPlan::calm()
        } else {
            FaultPlan::rough(&mut random.fork("faults"))
        };
        let trouble = match dice.below(22) {
            0 => DiskTrouble::Syncs,
            1 => DiskTrouble::Writes,
            2 => DiskTrouble::Reads,
            3 => DiskTrouble::Full,
            20 => DiskTrouble::DeadDirectory,
            21 => DiskTrouble::FullDirectory,
            _ => DiskTrouble::None,
        };
        trouble.plan(&mut faults.disk);
        let needs_second =
            matches!(trouble, DiskTrouble::DeadDirectory | DiskTrouble::FullDirectory);
        let has_second_directory = needs_second || dice.chance(25);
        let crashes = crashes(&mut dice, length_us, trouble);
        let cuts = (0..dice.below(3))
            .map(|_| (moment(&mut dice), Duration::from_millis(1 + dice.below(100))));
        let cuts = cuts.collect();
        let clock_changes =
            (0..dice.below(3)).map(|_| (moment(&mut dice), dice.below(1_200_000) as i64 - 600_000));
        let clock_changes = clock_changes.collect();
        let mut clients: Vec<ClientPlan> =
            (0..2 + dice.below(5)).map(|_| client(&mut dice)).collect();
        let mut topics = topics(&mut dice, is_whole);
        let mut settings = settings(&mut dice);
        let all_synced = is_whole && dice.chance(25);
        if all_synced {
            settings.push(("log.flush.interval.messages", "1".to_owned()));
            let partitions = topics.iter_mut().flat_map(|topic| &mut topic.partitions);
            partitions.for_each(|partition| partition.is_synced = true);
        }
        let mut history_groups = Vec::new();
        if is_whole {
            let (groups, members) =
                groups(&mut dice, &topics, all_synced, trouble != DiskTrouble::None);
            history_groups = groups;
            clients.extend(members);
        }
        let scenario = Self {
            length: Duration::from_micros(length_us),
            faults,
            trouble,
            has_second_directory,
            crashes,
            cuts,
            clock_changes,
            clients,
            data_shards: 1 + dice.below(3) as u16,
            cores: 1 + dice.below(4) as usize,
            settings,
            last_crash: [None, Some(Crash::Process), Some(Crash::Machine)][dice.below(3) as usize],
        };
        let history = History {
            topics,
            groups: history_groups,
            is_whole,
            has_second_directory: is_whole && has_second_directory,
            ..History::default()
        };
        (scenario, history)
    }
}

fn crashes(dice: &mut Random, length_us: u64, trouble: DiskTrouble) -> Vec<PlannedCrash> {
    let crashes = (0..dice.below(4)).map(|_| PlannedCrash {
        at: Instant::from_nanos(dice.below(length_us) * 1_000),
        after_effects: dice.below(40),
        // A kill after a failed sync would leave in the page cache what the disk never gets,
        // as if it had been there: no process can tell.
        crash: if trouble != DiskTrouble::Syncs && dice.chance(50) {
            Crash::Process
        } else {
            Crash::Machine
        },
    });
    let mut crashes: Vec<PlannedCrash> = crashes.collect();
    crashes.sort_by_key(|crash| crash.at);
    crashes
}

/// What a node does by itself is done soon enough to be seen in a run.
fn settings(dice: &mut Random) -> Vec<(&'static str, String)> {
    let mut settings = vec![
        ("log.cleaner.backoff.ms", (5 + dice.below(100)).to_string()),
        ("log.retention.check.interval.ms", (10 + dice.below(300)).to_string()),
        ("log.flush.offset.checkpoint.interval.ms", (10 + dice.below(1_000)).to_string()),
        ("metadata.log.max.record.bytes.between.snapshots", (1 + dice.below(10_000)).to_string()),
        ("metadata.max.retention.bytes", (1 + dice.below(40_000)).to_string()),
        ("internal.metadata.log.segment.bytes", (8_000 + dice.below(20_000)).to_string()),
        ("group.initial.rebalance.delay.ms", dice.below(50).to_string()),
        ("group.min.session.timeout.ms", "50".to_owned()),
        ("offsets.topic.num.partitions", (1 + dice.below(4)).to_string()),
        ("offsets.topic.replication.factor", "1".to_owned()),
    ];
    if dice.chance(50) {
        // What groups committed is compacted, too.
        settings.push(("log.roll.ms", (20 + dice.below(300)).to_string()));
        settings.push(("log.cleaner.min.cleanable.ratio", "0.1".to_owned()));
    }
    if dice.chance(50) {
        // Deleted topics go from the disk before their successors have.
        settings.push(("log.segment.delete.delay.ms", dice.below(200).to_string()));
    }
    if dice.chance(30) {
        let bytes_per_second = 100_000 + dice.below(10_000_000);
        settings.push(("log.cleaner.io.max.bytes.per.second", format!("{bytes_per_second}.0")));
    }
    settings
}

fn client(dice: &mut Random) -> ClientPlan {
    ClientPlan {
        depth: [1, 1, 3, 5, 20][dice.below(5) as usize],
        pace_us_max: [300, 3_000, 10_000, 30_000][dice.below(4) as usize],
        drops_per_thousand: [0, 0, 5, 20][dice.below(4) as usize],
        pauses_per_thousand: [0, 0, 10][dice.below(3) as usize],
        group: None,
    }
}

/// Draws groups, each with its members; what they consume is never deleted.
fn groups(
    dice: &mut Random,
    topics: &[TopicHistory],
    is_synced: bool,
    may_forget: bool,
) -> (Vec<GroupHistory>, Vec<ClientPlan>) {
    let (mut groups, mut members) = (Vec::new(), Vec::new());
    for number in 0..dice.below(3) as usize {
        let consumed = topics.iter().enumerate().filter(|(_, topic)| !topic.may_be_deleted);
        let places = consumed.flat_map(|(topic, plan)| {
            (0..plan.partitions.len()).map(move |partition| (topic, partition))
        });
        groups.push(GroupHistory {
            name: format!("group{number}"),
            places: places.collect(),
            is_synced,
            may_forget,
            ..GroupHistory::default()
        });
        members.extend((0..1 + dice.below(3)).map(|_| ClientPlan {
            depth: 1,
            group: Some(number),
            pace_us_max: [3_000, 30_000][dice.below(2) as usize],
            ..client(dice)
        }));
    }
    (groups, members)
}

fn topics(dice: &mut Random, is_whole: bool) -> Vec<TopicHistory> {
    let count = 1 + dice.below(4);
    (0..count).map(|number| topic(dice, number, is_whole)).collect()
}

fn topic(dice: &mut Random, number: u64, is_whole: bool) -> TopicHistory {
    let is_synced = dice.chance(60);
    let mut configs = Vec::new();
    if is_synced {
        configs.push(("flush.messages", "1".to_owned()));
    }
    if dice.chance(40) {
        // Segments that are rolled soon.
        configs.push(("segment.ms", (20 + dice.below(300)).to_string()));
    }
    let mut partition = PartitionHistory { is_synced, ..PartitionHistory::default() };
    if is_whole && dice.chance(30) {
        configs.push(("internal.segment.bytes", (90_000 + dice.below(60_000)).to_string()));
    }
    if is_whole && is_synced && dice.chance(35) {
        partition.is_compacted = true;
        let ratio = dice.below(60) as f64 / 100.0;
        configs.push(("cleanup.policy", "compact".to_owned()));
        configs.push(("min.cleanable.dirty.ratio", ratio.to_string()));
        partition.keeps_tombstones = dice.chance(50);
        let retention_ms = dice.below(300);
        let retention_ms = if partition.keeps_tombstones { DAY_MS } else { retention_ms };
        configs.push(("delete.retention.ms", retention_ms.to_string()));
        configs.push(("file.delete.delay.ms", dice.below(200).to_string()));
        if !configs.iter().any(|(name, _)| *name == "segment.ms") {
            configs.push(("segment.ms", (5 + dice.below(100)).to_string()));
        }
    } else if is_whole && dice.chance(25) {
        configs.push(("file.delete.delay.ms", dice.below(200).to_string()));
        partition.start_max = i64::MAX;
        if dice.chance(70) {
            let bytes = dice.below(60_000);
            configs.push(("retention.bytes", bytes.to_string()));
            partition.retention_bytes = Some(bytes);
        } else {
            // Records are stamped with the first hundred seconds of the world.
            configs.push(("retention.ms", (1_000 + dice.below(600_000)).to_string()));
        }
    }
    let may_be_cut = partition.start_max > 0 || dice.chance(50);
    let is_cut = is_whole && may_be_cut && !partition.is_compacted;
    TopicHistory {
        is_cut,
        name: format!("topic{number}"),
        id: None,
        exists: false,
        may_be_deleted: is_whole && number > 0 && dice.chance(50),
        is_doomed: false,
        incarnation: 0,
        past_ids: Vec::new(),
        configs,
        partitions: vec![partition; 1 + dice.below(4) as usize],
    }
}
