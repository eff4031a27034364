//! What happens in a run, drawn from its seed.

use base::{Duration, Instant, Random};
use fakeworld::{Crash, FaultPlan};

use crate::client::ClientPlan;
use crate::history::{History, PartitionHistory, TopicHistory};

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

/// The second log directory of a node that has one.
pub const SECOND_DIRECTORY: &str = "/more";

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
    /// How the node ends between the two audits; in order if there is none.
    pub last_crash: Option<Crash>,
}

impl Scenario {
    /// Draws a scenario, and the topics of its history.
    pub fn draw(random: &Random) -> (Self, History) {
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
        match trouble {
            DiskTrouble::Syncs => faults.disk.sync_errors_per_million = 10_000,
            DiskTrouble::Writes => faults.disk.write_errors_per_million = 5_000,
            DiskTrouble::Reads => faults.disk.read_errors_per_million = 5_000,
            DiskTrouble::Full
            | DiskTrouble::DeadDirectory
            | DiskTrouble::FullDirectory
            | DiskTrouble::None => {}
        }
        let needs_second =
            matches!(trouble, DiskTrouble::DeadDirectory | DiskTrouble::FullDirectory);
        let has_second_directory = needs_second || dice.chance(25);
        let crashes = (0..dice.below(4)).map(|_| PlannedCrash {
            at: moment(&mut dice),
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
        let cuts = (0..dice.below(3))
            .map(|_| (moment(&mut dice), Duration::from_millis(1 + dice.below(100))));
        let cuts = cuts.collect();
        let clock_changes =
            (0..dice.below(3)).map(|_| (moment(&mut dice), dice.below(1_200_000) as i64 - 600_000));
        let clock_changes = clock_changes.collect();
        let clients = (0..2 + dice.below(5)).map(|_| client(&mut dice)).collect();
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
            last_crash: [None, Some(Crash::Process), Some(Crash::Machine)][dice.below(3) as usize],
        };
        let history = History { topics: topics(&mut dice), ..History::default() };
        (scenario, history)
    }
}

fn client(dice: &mut Random) -> ClientPlan {
    ClientPlan {
        depth: [1, 1, 3, 5, 20][dice.below(5) as usize],
        pace_us_max: [300, 3_000, 10_000, 30_000][dice.below(4) as usize],
        drops_per_thousand: [0, 0, 5, 20][dice.below(4) as usize],
        pauses_per_thousand: [0, 0, 10][dice.below(3) as usize],
    }
}

fn topics(dice: &mut Random) -> Vec<TopicHistory> {
    let count = 1 + dice.below(4);
    (0..count)
        .map(|number| {
            let is_synced = dice.chance(60);
            let mut configs = Vec::new();
            if is_synced {
                configs.push(("flush.messages", "1".to_owned()));
            }
            if dice.chance(40) {
                // Segments that are rolled soon.
                configs.push(("segment.ms", (20 + dice.below(300)).to_string()));
            }
            let partition = PartitionHistory { is_synced, ..PartitionHistory::default() };
            let partitions = vec![partition; 1 + dice.below(4) as usize];
            let name = format!("topic{number}");
            TopicHistory { name, id: None, exists: false, configs, partitions }
        })
        .collect()
}
