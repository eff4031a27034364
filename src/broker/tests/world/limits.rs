//! What clients meet that ask for more than a node keeps.

use protocol::join_group_request::JoinGroupRequestProtocol;
use protocol::{ErrorCode, JoinGroupRequest};

use base::{Duration, Instant};
use fakeworld::{Crash, Delay, FaultPlan};

use crate::client::World;
use crate::{fetched, produced};

/// Joins a group that is new: the answer waits for some seconds, in case more members come.
fn join() -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol { name: "range".into(), ..Default::default() };
    JoinGroupRequest {
        group_id: "readers".into(),
        session_timeout_ms: 300_000,
        protocol_type: "consumer".into(),
        protocols: vec![protocol],
        ..Default::default()
    }
}

#[test]
fn clients_that_ask_and_go_away_leave_a_node_that_serves_others() {
    const CALLS_MAX: usize = 4;
    for shards in [1, 2] {
        let mut world = World::with_few_calls(1, shards, CALLS_MAX);
        world.create_topic("__consumer_offsets", 1);
        world.create_topic("orders", 2);
        produced(&mut world, "orders", 0, &["before"]);
        for _ in 0..20 * CALLS_MAX {
            let begun = world.begin::<JoinGroupRequest>(0, &join());
            world.pause();
            world.abandon(begun);
        }
        let joined = world.call::<JoinGroupRequest>(0, &join());
        assert_eq!(joined.error_code, ErrorCode::NOT_COORDINATOR, "it is to try again later");
        for partition in [0, 1] {
            produced(&mut world, "orders", partition, &["after"]);
        }
    }
}

/// A node that is started again after a crash, while its address stays taken for so long.
fn started_again(linger: Delay) -> World {
    let mut plan = FaultPlan::calm();
    plan.network.linger = linger;
    let mut world = World::new(1, 2, plan);
    world.create_topic("orders", 1);
    produced(&mut world, "orders", 0, &["before"]);
    world.restart(Crash::Process);
    world
}

#[test]
fn an_address_that_is_still_taken_is_waited_for() {
    let mut world = started_again(Delay::us(1_000_000, 1_500_000));
    for _ in 0..100 {
        world.pause();
    }
    assert_eq!(fetched(&mut world, "orders", 0, 0), ["before"]);
}

#[test]
fn an_address_that_stays_taken_ends_the_start() {
    let mut world = started_again(Delay::us(60_000_000, 60_000_000));
    let begun: Instant = world.now();
    let sentence = world.gives_up();
    assert!(sentence.contains("failed to bind"), "{sentence}");
    assert!(world.now().since(begun) < Duration::from_secs(5), "{:?}", world.now());
}
