//! Random members that join, sync, beat, leave, fall silent and meet restarts: what always holds.

use std::collections::BTreeMap;

use proptest::prelude::*;
use protocol::leave_group_request::MemberIdentity;
use protocol::{ErrorCode, HeartbeatRequest, LeaveGroupRequest, Str};

use crate::group::{Group, GroupState};
use crate::world::{World, commit, join, shown, sync};
use crate::{GroupConfig, GroupReply, GroupRequest};

const GROUP: &str = "g";
const CLIENTS: usize = 5;

#[derive(Clone, Debug)]
enum Step {
    Join(usize),
    Sync(usize),
    Beat(usize),
    Commit(usize),
    Leave(usize),
    /// The client forgets who it is.
    Forget(usize),
    Pass(i64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let client = 0..CLIENTS;
    prop_oneof![
        6 => client.clone().prop_map(Step::Join),
        6 => client.clone().prop_map(Step::Sync),
        3 => client.clone().prop_map(Step::Beat),
        2 => client.clone().prop_map(Step::Commit),
        1 => client.clone().prop_map(Step::Leave),
        1 => client.prop_map(Step::Forget),
        3 => (1_i64..15_000).prop_map(Step::Pass),
        1 => Just(Step::Restart),
    ]
}

#[derive(Debug, Default)]
struct Client {
    member: Str,
    generation: i32,
    is_leader: bool,
    members: Vec<Str>,
    waits: Vec<u64>,
}

#[derive(Debug)]
struct Simulation {
    world: World,
    clients: Vec<Client>,
    /// The leader and the protocol of each generation.
    generations: BTreeMap<i32, (Str, Option<Str>)>,
    newest: i32,
}

/// Two of the clients are static members.
fn instance(client: usize) -> Option<String> {
    (client < 2).then(|| format!("instance-{client}"))
}

impl Simulation {
    fn run(&mut self, step: &Step) {
        match *step {
            Step::Join(at) => {
                let member = self.clients[at].member.clone();
                let request = join(GROUP, &member, instance(at).as_deref());
                self.send(at, 9, request);
            }
            Step::Sync(at) => {
                let client = &self.clients[at];
                let all = client.members.iter().map(|id| (&**id, "work")).collect::<Vec<_>>();
                let given = if client.is_leader { &all[..] } else { &[] };
                let request = sync(GROUP, &client.member, client.generation, given);
                self.send(at, 5, request);
            }
            Step::Beat(at) => {
                let client = &self.clients[at];
                let request = HeartbeatRequest {
                    group_id: GROUP.into(),
                    generation_id: client.generation,
                    member_id: client.member.clone(),
                    group_instance_id: instance(at).map(Str::from),
                    ..Default::default()
                };
                self.send(at, 4, GroupRequest::Heartbeat(request));
            }
            Step::Commit(at) => {
                let client = &self.clients[at];
                let request = commit(GROUP, &client.member, client.generation, &[("t", 0, 5)]);
                self.send(at, 9, request);
            }
            Step::Leave(at) => {
                let member = MemberIdentity {
                    member_id: self.clients[at].member.clone(),
                    group_instance_id: instance(at).map(Str::from),
                    ..Default::default()
                };
                let request = LeaveGroupRequest {
                    group_id: GROUP.into(),
                    members: vec![member],
                    ..Default::default()
                };
                self.send(at, 5, GroupRequest::Leave(request));
            }
            Step::Forget(at) => {
                let waits = std::mem::take(&mut self.clients[at].waits);
                self.clients[at] = Client { waits, ..Default::default() };
            }
            Step::Pass(ms) => self.world.pass(ms),
            Step::Restart => {
                self.world.restart();
                self.receive();
                let group = self.world.coordinator.groups().groups.get(GROUP);
                self.newest = group.map_or(-1, |group| group.generation);
                let newest = self.newest;
                self.generations.retain(|generation, _| *generation <= newest);
            }
        }
        self.receive();
    }

    fn send(&mut self, at: usize, version: i16, request: GroupRequest) {
        let ticket = self.world.send(version, request);
        self.clients[at].waits.push(ticket);
    }

    fn receive(&mut self) {
        for (ticket, reply) in std::mem::take(&mut self.world.replies) {
            let found = self.clients.iter_mut().find(|client| client.waits.contains(&ticket));
            let client = found.expect("someone waits for every answer");
            client.waits.retain(|waits| *waits != ticket);
            let GroupReply::Join(reply) = reply else { continue };
            if reply.error_code == ErrorCode::MEMBER_ID_REQUIRED {
                client.member = reply.member_id;
            } else if !reply.error_code.is_error() {
                assert!(reply.generation_id >= self.newest, "generations grow");
                self.newest = reply.generation_id;
                let agreed = (reply.leader.clone(), reply.protocol_name.clone());
                let first =
                    self.generations.entry(reply.generation_id).or_insert_with(|| agreed.clone());
                // A static member may come back under a new id, also as the leader.
                let place = |leader: &Str| leader.get(..10).map(str::to_owned);
                let is_back =
                    agreed.0.starts_with("instance-") && place(&first.0) == place(&agreed.0);
                assert!(first.0 == agreed.0 || is_back, "a generation has one leader");
                assert_eq!(first.1, agreed.1, "and one protocol");
                *first = agreed;
                client.is_leader = reply.leader == reply.member_id;
                assert!(reply.members.is_empty() || client.is_leader, "only a leader assigns");
                client.members = reply.members.into_iter().map(|own| own.member_id).collect();
                client.member = reply.member_id;
                client.generation = reply.generation_id;
            } else if reply.error_code == ErrorCode::UNKNOWN_MEMBER_ID
                || reply.error_code == ErrorCode::FENCED_INSTANCE_ID
            {
                client.member = Str::new();
            }
        }
    }

    fn check(&self) {
        let groups = self.world.coordinator.groups();
        let Some(group) = groups.groups.get(GROUP) else { return };
        check_group(group);
        let sessions = group.members().values().filter(|own| own.session_timer.is_some()).count();
        let group_timers = [group.join_timer, group.sync_timer].iter().flatten().count();
        let timers = sessions + group.pending.len() + group_timers;
        assert_eq!(groups.timers.len(), timers + 1, "no timer is lost; one is for expiry");
        if matches!(group.state, GroupState::Stable | GroupState::Empty) {
            let anew = self.world.loaded_anew();
            let live = shown(&self.world.coordinator, GROUP);
            assert_eq!(shown(&anew, GROUP), live, "the log says what is");
        }
    }
}

fn check_group(group: &Group) {
    let members = group.members();
    let joined = members.values().filter(|own| own.awaiting_join.is_some()).count();
    assert_eq!(group.joined(), joined);
    for (id, member) in members {
        if let Some(instance_id) = &member.instance_id {
            assert_eq!(group.static_member(instance_id), Some(id));
        }
        assert!(!group.pending.contains_key(id), "a member is not awaited any more");
        assert!(member.session_timer.is_some() || member.is_waiting(), "a silent member goes");
        if member.awaiting_join.is_some() {
            assert_eq!(group.state, GroupState::PreparingRebalance);
        }
        if member.awaiting_sync.is_some() {
            assert_eq!(group.state, GroupState::CompletingRebalance);
        }
    }
    assert!(group.pending_sync.iter().all(|id| members.contains_key(id)));
    match group.state {
        GroupState::Empty => assert!(members.is_empty()),
        GroupState::PreparingRebalance => assert!(group.join_timer.is_some(), "it ends"),
        GroupState::CompletingRebalance => {
            assert!(group.sync_timer.is_some() || group.pending_sync.is_empty());
            assert!(group.protocol_name.is_some());
        }
        GroupState::Stable => assert!(group.protocol_name.is_some()),
    }
    if members.is_empty() {
        assert_eq!(group.leader, None);
    } else {
        let leader = group.leader.as_ref().expect("a leader");
        assert!(members.contains_key(leader), "the leader is a member");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_always_holds(steps in prop::collection::vec(step(), 1..80)) {
        let config = GroupConfig {
            group_size_max: 4,
            retention_check_interval_ms: 1_000_000_000,
            ..Default::default()
        };
        let world = World::new(config);
        let clients = (0..CLIENTS).map(|_| Client::default()).collect();
        let mut simulation =
            Simulation { world, clients, generations: BTreeMap::new(), newest: -1 };
        for step in &steps {
            simulation.run(step);
            simulation.check();
        }
        simulation.world.restart();
        simulation.receive();
        prop_assert!(simulation.clients.iter().all(|client| client.waits.is_empty()));
    }
}
