//! `cargo xtask campaign fuzz`: calls every target, or one, with seeded input for some minutes.
#![allow(clippy::print_stdout, reason = "it talks to a person")]
#![allow(clippy::disallowed_methods, reason = "it ends when its time is over")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use base::Random;
use clap::Parser;
use fuzz::{TARGETS, Target};

/// Calls fuzz targets: one seed after the other, each a call that can be repeated.
#[derive(Debug, Parser)]
#[command(name = "fuzz")]
struct Arguments {
    /// Which target; all of them unless it is given, as many at once as there are cores.
    target: Option<String>,
    /// How long each target is called.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Call the target with this seed only.
    #[arg(long, requires = "target")]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let wanted = |target: &&Target| arguments.target.as_ref().is_none_or(|it| it == target.name);
    let targets: Vec<&Target> = TARGETS.iter().filter(wanted).collect();
    if targets.is_empty() {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        println!("there is no such target, but {}", names.join(", "));
        return ExitCode::FAILURE;
    }
    if let Some(seed) = arguments.seed {
        let accepted = (targets[0].call)(&mut Random::new(seed));
        println!("{}: seed {seed}: nothing found, {}", targets[0].name, word(accepted));
        return ExitCode::SUCCESS;
    }
    let how_long = Duration::from_secs(60 * arguments.minutes);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let work = &|worker: usize| -> bool {
        let own: Vec<&&Target> = targets.iter().skip(worker).step_by(threads).collect();
        own.into_iter().map(|target| fuzz_for(target, how_long)).fold(true, |all, one| all & one)
    };
    let found_nothing = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|it| scope.spawn(move || work(it))).collect();
        let ended = workers.into_iter().map(|worker| worker.join().expect("panics are caught"));
        ended.fold(true, |all, one| all & one)
    });
    if found_nothing { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Says whether nothing was found.
fn fuzz_for(target: &Target, how_long: Duration) -> bool {
    let end = Instant::now() + how_long;
    let (mut accepted, mut refused) = (0_u64, 0_u64);
    for seed in 0.. {
        if Instant::now() >= end {
            break;
        }
        match std::panic::catch_unwind(|| (target.call)(&mut Random::new(seed))) {
            Ok(true) => accepted += 1,
            Ok(false) => refused += 1,
            Err(_) => {
                println!("{}: seed {seed} found something: see above", target.name);
                println!("again: cargo run --profile sim -p fuzz -- {} --seed {seed}", target.name);
                return false;
            }
        }
    }
    let name = target.name;
    println!("{name}: nothing found; {accepted} inputs were accepted, {refused} refused");
    true
}

fn word(accepted: bool) -> &'static str {
    if accepted { "accepted" } else { "refused" }
}
