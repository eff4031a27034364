//! What clients meet that ask for more than a node keeps.

use protocol::join_group_request::JoinGroupRequestProtocol;
use protocol::{ErrorCode, JoinGroupRequest};

use crate::client::World;
use crate::produced;

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
