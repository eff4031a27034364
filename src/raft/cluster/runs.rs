//! The runs: many seeds that must be well, and planted faults that must be found.

use super::{Cluster, Planted};
use crate::replica::Faults;

fn run(seed: u64, planted: Planted) -> Result<(), String> {
    let _named = Named(seed);
    Cluster::new(seed, planted).run()
}

/// Says which seed it was that ran into an assertion.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("an assertion fails with RAFT_SEEDS={}..{}", self.0, self.0 + 1);
        }
    }
}

/// `RAFT_SEEDS=A..B` runs others than the usual ones.
fn seeds() -> std::ops::Range<u64> {
    let wanted = std::env::var("RAFT_SEEDS").unwrap_or_else(|_| "0..200".to_owned());
    let (from, to) = wanted.split_once("..").expect("RAFT_SEEDS is a range, like 0..200");
    from.parse().expect("is a number")..to.parse().expect("is a number")
}

#[test]
fn whatever_breaks_nothing_committed_is_lost_and_the_quorum_gets_on() {
    for seed in seeds() {
        if let Err(found) = run(seed, Planted::default()) {
            let next = seed + 1;
            panic!("{found}\nRAFT_SEEDS={seed}..{next} cargo test -p raft whatever_breaks");
        }
    }
}

/// With Kafka's defaults: the loss of a machine costs the fetch timeout and an election, the loss
/// of a process a fraction of a second.
#[test]
fn a_leader_whose_connections_are_refused_is_followed_soon() {
    let calm = |seed| Cluster::new(seed, Planted::default());
    let is_plain = |cluster: &Cluster| {
        let voters = cluster.nodes[0].raft.as_ref().map_or(0, |raft| raft.voters().len());
        (voters, cluster.nodes.len(), cluster.hunts) == (3, 3, false)
    };
    let seeds: Vec<u64> = (0..400).filter(|seed| is_plain(&calm(*seed))).take(31).collect();
    assert_eq!(seeds.len(), 31);
    let median_ms = |is_refused: bool| {
        let took = |seed: &u64| calm(*seed).succession_ms(is_refused).expect("there is a leader");
        let mut all: Vec<u64> = seeds.iter().map(took).collect();
        all.sort_unstable();
        println!("refused: {is_refused}, after {all:?} ms");
        all[all.len() / 2]
    };
    let (refused, silent) = (median_ms(true), median_ms(false));
    assert!(refused < 300 && (1_400..3_500).contains(&silent), "{refused} and {silent} ms");
}

#[test]
fn one_seed_is_one_run() {
    let trace = |seed: u64| {
        let mut cluster = Cluster::new(seed, Planted::default());
        cluster.trace = Some(0);
        (cluster.run(), cluster.trace)
    };
    for seed in 0..3 {
        assert_eq!(trace(seed), trace(seed));
    }
    assert_ne!(trace(0), trace(1));
}

/// Some seed finds the fault.
fn is_found(planted: Planted) {
    let found = (0..400).find_map(|seed| run(seed, planted).err().map(|found| (seed, found)));
    let (seed, found) = found.unwrap_or_else(|| panic!("nobody finds {planted:?}"));
    println!("{planted:?} is found by seed {seed}: {found}");
}

#[test]
fn a_vote_before_the_sync_is_found() {
    is_found(Planted { votes_before_sync: true, ..Planted::default() });
}

#[test]
fn a_commit_of_an_older_epoch_by_count_is_found() {
    let faults = Faults { commits_older_epochs: true, ..Faults::default() };
    is_found(Planted { faults, ..Planted::default() });
}

#[test]
fn a_lost_truncation_is_found() {
    let faults = Faults { loses_truncations: true, ..Faults::default() };
    is_found(Planted { faults, ..Planted::default() });
}

#[test]
fn a_fetch_that_claims_what_is_not_durable_is_found() {
    let faults = Faults { claims_unsynced: true, ..Faults::default() };
    is_found(Planted { faults, ..Planted::default() });
}
