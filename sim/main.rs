//! The simulator on the command line: `cargo xtask sim --seed N`, `--seeds A..B`.
#![allow(clippy::print_stdout, reason = "it talks to a person")]

use std::ops::Range;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use fakeworld::{CrashPoint, Moment, Planted, Rest};
use sim::boundaries::{Course, changes, crash_at, points};
use sim::history::Counts;
use sim::lie::Lie;
use sim::node::RealNode;
use sim::simulation::{Options, Report, run};

/// Lines of the trace that are shown of a run that failed, unless others are asked for.
const TAIL_LINES: usize = 60;

/// Runs whole nodes in a fake world, each run from one seed.
#[derive(Debug, Parser)]
#[command(name = "sim")]
struct Arguments {
    /// Run this seed, twice, and compare the two runs.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run the seeds from A to B, without B.
    #[arg(long, value_name = "A..B", value_parser = parse_range, default_value = "0..100")]
    seeds: Range<u64>,
    /// Plant a fault into the driver or into the broker's answers, and expect that it is found.
    #[arg(long)]
    plant: Option<Plant>,
    /// Crash a short course of the node at every change of its disk, in all ways, instead.
    #[arg(long, conflicts_with = "plant")]
    boundaries: bool,
    /// How many lines of the trace to show of a run that failed.
    #[arg(long, value_name = "LINES", default_value_t = TAIL_LINES)]
    trace: usize,
}

/// A fault of the driver, or a falsification of answers.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Plant {
    /// A sync is answered without being performed.
    SkipSync,
    /// A write is answered before it is performed.
    SendBeforeWrite,
    /// A message between two machines of a node vanishes.
    LoseMesh,
    /// A log begins at 0 again.
    StartGoesBack,
    /// A deleted topic is listed instead of the one that has its name now.
    TopicComesBack,
    /// An incremental fetch keeps quiet about a partition that has records.
    SessionIsSilent,
    /// A group is told an older commit than the newest.
    CommitGoesBack,
    /// A partition is assigned to every member of a generation.
    AssignedTwice,
    /// Compaction took the newest record of a key.
    NewestIsGone,
    /// Compaction took tombstones before their time.
    TombstoneIsGone,
    /// A tombstone is gone, and a record that it deleted is back.
    OldComesBack,
}

impl Plant {
    fn options(self) -> Options {
        let driver = |planted| Options { planted: Some(planted), ..Options::default() };
        let lie = |lie| Options { lie: Some(lie), ..Options::default() };
        match self {
            Plant::SkipSync => driver(Planted::SkipSync),
            Plant::SendBeforeWrite => driver(Planted::SendBeforeWrite),
            Plant::LoseMesh => driver(Planted::LoseMesh),
            Plant::StartGoesBack => lie(Lie::StartGoesBack),
            Plant::TopicComesBack => lie(Lie::TopicComesBack),
            Plant::SessionIsSilent => lie(Lie::SessionIsSilent),
            Plant::CommitGoesBack => lie(Lie::CommitGoesBack),
            Plant::AssignedTwice => lie(Lie::AssignedTwice),
            Plant::NewestIsGone => lie(Lie::NewestIsGone),
            Plant::TombstoneIsGone => lie(Lie::TombstoneIsGone),
            Plant::OldComesBack => lie(Lie::OldComesBack),
        }
    }
}

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let parse = || {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    };
    parse().ok_or_else(|| format!("'{text}' is no range of seeds like 0..1000"))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.boundaries {
        return run_boundaries(&arguments);
    }
    let plant = arguments.plant;
    let seeds = match arguments.seed {
        Some(seed) => seed..seed + 1,
        None => arguments.seeds.clone(),
    };
    let mut total = Counts::default();
    for seed in seeds.clone() {
        let report = run_seed(seed, plant, 0);
        match report.outcome {
            Ok(counts) => total.add(counts),
            Err(_) if plant.is_some() => {
                show(seed, &arguments);
                println!("the planted fault was found");
                return ExitCode::SUCCESS;
            }
            Err(_) => {
                show(seed, &arguments);
                return ExitCode::FAILURE;
            }
        }
        if arguments.seed.is_some() && run_seed(seed, plant, 0).hash != report.hash {
            println!("seed {seed}: two runs of it differ, so something is random that must not be");
            return ExitCode::FAILURE;
        }
        if arguments.seed.is_some() {
            println!("seed {seed}: trace {:016x}, the same twice", report.hash);
        }
    }
    println!("seeds {}..{}: nothing found; {total}", seeds.start, seeds.end);
    if plant.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Goes through every course, once for each crash, with each seed. What is not drawn is left out
/// but for the first of them.
fn run_boundaries(arguments: &Arguments) -> ExitCode {
    for &course in Course::ALL {
        let (mut all_changes, mut crashes) = (0, 0);
        for seed in arguments.seeds.clone() {
            let options = Options { seed, ..Options::default() };
            let changes = match changes(RealNode::new, course, options) {
                Ok(changes) => changes,
                Err(violation) => {
                    println!("{course:?}, seed {seed}, without a crash: {violation}");
                    return ExitCode::FAILURE;
                }
            };
            let is_first = seed == arguments.seeds.start;
            let mut points = points(&changes, true);
            points.retain(|point| {
                is_first || point.rest == Rest::Drawn || point.moment == Moment::Within
            });
            (all_changes, crashes) = (all_changes + changes.len(), crashes + points.len());
            for point in points {
                if !survives(course, point, options, arguments.trace) {
                    return ExitCode::FAILURE;
                }
            }
        }
        println!("{course:?}: {crashes} crashes at {all_changes} changes, nothing found");
    }
    ExitCode::SUCCESS
}

/// Crashes a course once; says what was found, if anything.
fn survives(course: Course, point: CrashPoint, options: Options, trace: usize) -> bool {
    let Err(violation) = crash_at(RealNode::new, course, point, options).outcome else {
        return true;
    };
    let options = Options { trace_lines: trace.max(1), ..options };
    for line in crash_at(RealNode::new, course, point, options).lines {
        println!("{line}");
    }
    println!("{course:?}, seed {}, {point:?}: {violation}", options.seed);
    false
}

fn run_seed(seed: u64, plant: Option<Plant>, trace_lines: usize) -> Report {
    let options = plant.map(Plant::options).unwrap_or_default();
    run(RealNode::new, Options { seed, trace_lines, ..options })
}

/// Repeats a run that failed with its trace, and says how to do it again.
fn show(seed: u64, arguments: &Arguments) {
    let report = run_seed(seed, arguments.plant, arguments.trace.max(1));
    for line in &report.lines {
        println!("{line}");
    }
    match report.outcome {
        Ok(_) => println!("seed {seed}: passed when it was repeated: something is random"),
        Err(violation) => println!("seed {seed}: {violation}"),
    }
    let plant = arguments.plant.and_then(|plant| plant.to_possible_value());
    let plant = plant.map(|value| format!(" --plant {}", value.get_name())).unwrap_or_default();
    println!("replay it with: cargo xtask sim --seed {seed}{plant} --trace 1000");
}
