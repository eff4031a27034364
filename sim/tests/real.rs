//! The node as it ships, in its fake world.

use fakeworld::Planted;
use sim::lie::Lie;
use sim::node::RealNode;
use sim::simulation::{Options, Report, run};

/// Seeds of the run that everybody makes; `cargo xtask sim` runs more.
const SEEDS: u64 = 50;

fn run_node(seed: u64, planted: Option<Planted>) -> Report {
    run(RealNode::new, Options { seed, planted, ..Options::default() })
}

#[test]
fn nothing_is_found() {
    for seed in 0..SEEDS {
        if let Err(violation) = run_node(seed, None).outcome {
            panic!("{violation}\nreplay it with: cargo xtask sim --seed {seed} --trace 1000");
        }
    }
}

#[test]
fn one_seed_is_one_run() {
    for seed in 0..5 {
        assert_eq!(run_node(seed, None), run_node(seed, None));
    }
}

#[test]
fn planted_faults_are_found() {
    for planted in [Planted::SkipSync, Planted::SendBeforeWrite, Planted::LoseMesh] {
        let found = (0..SEEDS).find_map(|seed| run_node(seed, Some(planted)).outcome.err());
        println!("{planted:?}: {}", found.expect("a planted fault is found"));
    }
}

#[test]
fn lies_are_found() {
    for (lie, said) in [
        (Lie::StartGoesBack, "begins at"),
        (Lie::TopicComesBack, ""),
        (Lie::SessionIsSilent, "session"),
        (Lie::CommitGoesBack, ""),
        (Lie::AssignedTwice, ""),
        (Lie::NewestIsGone, "the newest of key"),
        (Lie::TombstoneIsGone, "is to be kept, and is gone"),
        (Lie::OldComesBack, " deleted Some("),
    ] {
        let options = |seed| Options { seed, lie: Some(lie), ..Options::default() };
        let found = (0..SEEDS).find_map(|seed| run(RealNode::new, options(seed)).outcome.err());
        let found = found.unwrap_or_else(|| panic!("{lie:?} is not found")).0;
        assert!(found.contains(said), "{lie:?}: {found}");
    }
}
