//! The rules, one by one.

use std::collections::BTreeMap;

use base::{Instant, Now, Offset, ProducerEpoch, ProducerId, Random, Token, Uuid};
use bytes::Bytes;
use coordinator::{KeyValue, Phase, WriteRules};
use proptest::prelude::*;
use protocol::leave_group_request::MemberIdentity;
use protocol::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use protocol::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use protocol::offset_fetch_response::OffsetFetchResponseGroup;
use protocol::{
    ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, DeleteGroupsRequest,
    DescribeGroupsRequest, ErrorCode, FindCoordinatorRequest, GroupRecord, HeartbeatRequest,
    LeaveGroupRequest, LeaveGroupResponse, ListGroupsRequest, OffsetCommitResponse,
    OffsetDeleteRequest, OffsetFetchRequest, Str,
};
use records::{BatchBuilder, Compression, ControlKey, ControlType, NewRecord};

use crate::group::GroupState;
use crate::record::of_offset;
use crate::world::{
    TOPIC, TOPIC_ID, World, commit, commit_request, join, join_request, protocols, records_in,
    shown, sync,
};
use crate::*;

/// `__consumer_offsets-0` of Apache Kafka 4.4.0 after kcat was in group `kg`, an admin client
/// reset the offsets of `simple`, and kcat was in `kg2` and committed.
const KAFKAS_LOG: &[u8] = include_bytes!("testdata/kafka-consumer-offsets.log");

fn world() -> World {
    World::new(GroupConfig::default())
}

fn join_code(reply: &GroupReply) -> ErrorCode {
    let GroupReply::Join(reply) = reply else { panic!("{reply:?}") };
    reply.error_code
}

fn heartbeat(world: &mut World, member: &str, generation: i32) -> ErrorCode {
    let request = HeartbeatRequest {
        group_id: "g".into(),
        generation_id: generation,
        member_id: member.into(),
        ..Default::default()
    };
    match world.ask(4, GroupRequest::Heartbeat(request)) {
        GroupReply::Heartbeat(reply) => reply.error_code,
        other => panic!("{other:?}"),
    }
}

fn leave(world: &mut World, version: i16, members: &[(&str, Option<&str>)]) -> LeaveGroupResponse {
    let member = |(id, instance): &(&str, Option<&str>)| MemberIdentity {
        member_id: Str::from(*id),
        group_instance_id: instance.map(Str::from),
        ..Default::default()
    };
    let request = LeaveGroupRequest {
        group_id: "g".into(),
        member_id: members[0].0.into(),
        members: if version >= 3 { members.iter().map(member).collect() } else { vec![] },
        ..Default::default()
    };
    match world.ask(version, GroupRequest::Leave(request)) {
        GroupReply::Leave(reply) => reply,
        other => panic!("{other:?}"),
    }
}

fn commit_codes(reply: GroupReply) -> Vec<ErrorCode> {
    let GroupReply::Commit(OffsetCommitResponse { topics, .. }) = reply else {
        panic!("{reply:?}")
    };
    topics.iter().flat_map(|topic| topic.partitions.iter().map(|own| own.error_code)).collect()
}

fn fetch(world: &mut World, version: i16, group: &str, topics: Option<&[(&str, i32)]>) -> Fetched {
    let topic = |(name, partition): &(&str, i32)| OffsetFetchRequestTopics {
        name: Str::from(*name),
        topic_id: if *name == TOPIC { TOPIC_ID } else { Uuid([1; 16]) },
        partition_indexes: vec![*partition],
        ..Default::default()
    };
    let group = OffsetFetchRequestGroup {
        group_id: group.into(),
        topics: topics.map(|topics| topics.iter().map(topic).collect()),
        ..Default::default()
    };
    match world.ask(version, GroupRequest::Fetch { group, require_stable: true }) {
        GroupReply::Fetch(reply) => fetched(&reply),
        other => panic!("{other:?}"),
    }
}

type Fetched = Vec<(i32, i64, ErrorCode)>;

fn fetched(reply: &OffsetFetchResponseGroup) -> Fetched {
    let partitions = reply.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|own| (own.partition_index, own.committed_offset, own.error_code)).collect()
}

fn delete_offsets(world: &mut World, group: &str, topic: &str) -> (ErrorCode, Vec<ErrorCode>) {
    let partition = OffsetDeleteRequestPartition { partition_index: 0, ..Default::default() };
    let topic = OffsetDeleteRequestTopic {
        name: topic.into(),
        partitions: vec![partition],
        ..Default::default()
    };
    let request =
        OffsetDeleteRequest { group_id: group.into(), topics: vec![topic], ..Default::default() };
    match world.ask(0, GroupRequest::DeleteOffsets(request)) {
        GroupReply::DeleteOffsets(reply) => {
            let partitions = reply.topics.iter().flat_map(|topic| &topic.partitions);
            (reply.error_code, partitions.map(|own| own.error_code).collect())
        }
        other => panic!("{other:?}"),
    }
}

fn delete(world: &mut World, group: &str) -> ErrorCode {
    let groups_names = vec![group.into(), group.into()];
    let request = DeleteGroupsRequest { groups_names, ..Default::default() };
    match world.ask(2, GroupRequest::Delete(request)) {
        GroupReply::Delete(reply) => {
            assert_eq!(reply.results.len(), 1, "a name that is there twice is answered once");
            reply.results[0].error_code
        }
        other => panic!("{other:?}"),
    }
}

fn describe(
    world: &mut World,
    version: i16,
    group: &str,
) -> (String, usize, ErrorCode, Option<Str>) {
    let request = DescribeGroupsRequest { groups: vec![group.into()], ..Default::default() };
    match world.ask(version, GroupRequest::Describe(request)) {
        GroupReply::Describe(mut reply) => {
            let group = reply.groups.remove(0);
            let state = group.group_state.to_string();
            (state, group.members.len(), group.error_code, group.error_message)
        }
        other => panic!("{other:?}"),
    }
}

fn list(world: &mut World, states: &[&str], types: &[&str]) -> Vec<String> {
    let texts = |texts: &[&str]| texts.iter().map(|text| Str::from(*text)).collect();
    let request = ListGroupsRequest {
        states_filter: texts(states),
        types_filter: texts(types),
        ..Default::default()
    };
    match world.ask(5, GroupRequest::List(request)) {
        GroupReply::List(reply) => {
            reply.groups.iter().map(|group| group.group_id.to_string()).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_members_meet_in_one_generation_and_get_what_the_leader_assigned() {
    let mut world = world();
    let (first, first_join) = world.enter("g");
    world.pass(2_000);
    let (second, second_join) = world.enter("g");
    world.pass(1_500);
    assert!(world.replies.is_empty(), "the delay begins again when someone came in it");
    world.pass(2_600);
    let (leads, follows) = (world.joined(first_join), world.joined(second_join));
    assert_eq!((leads.generation_id, follows.generation_id), (1, 1));
    assert_eq!((&leads.leader, &follows.leader), (&first, &first));
    assert_eq!((leads.members.len(), follows.members.len()), (2, 0));
    assert_eq!(leads.protocol_name.as_deref(), Some("range"), "both like it best");

    let waits = world.send(5, sync("g", &second, 1, &[]));
    assert!(!world.replies.contains_key(&waits), "the leader has not assigned yet");
    assert_eq!(heartbeat(&mut world, &second, 1), ErrorCode::NONE);
    world.holds_back = true;
    let leader_sync = world.send(5, sync("g", &first, 1, &[(&first, "a"), (&second, "b")]));
    assert!(world.replies.is_empty(), "nobody learns of an assignment that is not committed");
    world.commit_all();
    assert_eq!(world.synced(waits).assignment, "b");
    assert_eq!(world.synced(leader_sync).assignment, "a");
    let again = world.send(5, sync("g", &second, 1, &[]));
    assert_eq!(world.synced(again).assignment, "b");

    // The second leaves: the first has to join again, and then has a generation of its own.
    assert_eq!(leave(&mut world, 5, &[(&second, None)]).members[0].error_code, ErrorCode::NONE);
    assert_eq!(heartbeat(&mut world, &first, 1), ErrorCode::REBALANCE_IN_PROGRESS);
    let ticket = world.send(9, join("g", &first, None));
    assert_eq!(world.joined(ticket).generation_id, 2);
    assert_eq!(heartbeat(&mut world, &second, 1), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(heartbeat(&mut world, &first, 1), ErrorCode::ILLEGAL_GENERATION);
}

#[test]
fn who_may_not_join_is_told_why() {
    let with = |change: fn(&mut protocol::JoinGroupRequest)| {
        let mut request = join_request("g", "", None);
        change(&mut request);
        GroupRequest::Join(request)
    };
    let cases = [
        (with(|own| own.group_id = "".into()), ErrorCode::INVALID_GROUP_ID),
        (with(|own| own.group_id = " ".into()), ErrorCode::MEMBER_ID_REQUIRED),
        (with(|own| own.group_id = "x".repeat(40_000).into()), ErrorCode::INVALID_GROUP_ID),
        (with(|own| own.session_timeout_ms = 5_999), ErrorCode::INVALID_SESSION_TIMEOUT),
        (with(|own| own.session_timeout_ms = 1_800_001), ErrorCode::INVALID_SESSION_TIMEOUT),
        (with(|own| own.protocols = vec![]), ErrorCode::INCONSISTENT_GROUP_PROTOCOL),
        (with(|own| own.protocol_type = "".into()), ErrorCode::INCONSISTENT_GROUP_PROTOCOL),
        (with(|own| own.protocol_type = "connect".into()), ErrorCode::INCONSISTENT_GROUP_PROTOCOL),
        (with(|own| own.protocols = protocols(&["other"])), ErrorCode::INCONSISTENT_GROUP_PROTOCOL),
        (with(|own| own.member_id = "someone".into()), ErrorCode::UNKNOWN_MEMBER_ID),
        (with(|own| own.protocol_type = "x".repeat(32_767).into()), ErrorCode::INVALID_REQUEST),
        (
            with(|own| {
                own.member_id = "someone".into();
                own.group_instance_id = Some("i".into());
            }),
            ErrorCode::UNKNOWN_MEMBER_ID,
        ),
        (with(|_| ()), ErrorCode::MEMBER_ID_REQUIRED),
    ];
    let mut world = world();
    let empty = |own: &mut protocol::JoinGroupRequest| own.protocols = vec![];
    let reply = world.ask(9, with(empty));
    assert_eq!(join_code(&reply), ErrorCode::INCONSISTENT_GROUP_PROTOCOL, "also to a new group");
    let unknown = world.ask(9, join("other", "someone", None));
    assert_eq!(join_code(&unknown), ErrorCode::UNKNOWN_MEMBER_ID, "a group begins without ids");
    world.stable("g");
    for (request, code) in cases {
        let shown = format!("{request:?}");
        assert_eq!(join_code(&world.ask(9, request)), code, "{shown:.200}");
    }
    let before_ids = world.send(3, join("old", "", None));
    world.pass(3_000);
    assert_eq!(world.joined(before_ids).generation_id, 1, "before version 4 no id is asked for");
}

#[test]
fn a_full_group_takes_nobody_else() {
    let mut world = World::new(GroupConfig { group_size_max: 1, ..Default::default() });
    let member = world.stable("g");
    let reply = world.ask(9, join("g", "", None));
    assert_eq!(join_code(&reply), ErrorCode::GROUP_MAX_SIZE_REACHED);
    let ticket = world.send(9, join("g", &member, None));
    assert_eq!(world.joined(ticket).generation_id, 2, "who is in it stays");
}

#[test]
fn the_protocol_with_the_most_votes_among_those_of_all_is_chosen() {
    let mut world = world();
    let preferences: [&[&str]; 3] = [&["mine", "b", "a"], &["a", "b"], &["a", "b", "other"]];
    let mut tickets = Vec::new();
    for names in preferences {
        let request = join_request("g", "", None);
        let request = protocol::JoinGroupRequest { protocols: protocols(names), ..request };
        tickets.push(world.send(3, GroupRequest::Join(request)));
    }
    world.pass(20_000);
    for ticket in tickets {
        assert_eq!(world.joined(ticket).protocol_name.as_deref(), Some("a"));
    }
}

#[test]
fn who_is_silent_is_removed_and_who_waits_is_not() {
    let mut world = world();
    let member = world.stable("g");
    world.pass(9_900);
    assert_eq!(heartbeat(&mut world, &member, 1), ErrorCode::NONE);
    world.pass(9_900);
    let (_, waits) = world.enter("g");
    world.pass(9_999);
    assert_eq!(describe(&mut world, 5, "g").0, "CompletingRebalance", "the first was silent");
    let joined = world.joined(waits);
    assert_eq!((joined.generation_id, joined.members.len()), (2, 1));
    world.pass(100_000);
    assert_eq!(describe(&mut world, 5, "g").0, "Empty");

    // An id that nobody joins with does not hold up the others for longer than a session.
    let first = world.send(9, join("h", "", None));
    let id = world.joined(first).member_id;
    world.send(9, join("h", "", None));
    let waits = world.send(9, join("h", &id, None));
    world.pass(30_000);
    assert_eq!(world.joined(waits).generation_id, 1);
}

#[test]
fn who_does_not_ask_for_its_assignment_is_removed() {
    let mut world = world();
    let (_, ticket) = world.enter("g");
    world.pass(3_000);
    let generation = world.joined(ticket).generation_id;
    for _ in 0..4 {
        world.pass(5_000);
        let groups = world.coordinator.groups();
        let id = groups.groups["g"].members().keys().next().cloned();
        if let Some(id) = id {
            heartbeat(&mut world, &id, generation);
        }
    }
    assert_eq!(describe(&mut world, 5, "g").0, "Empty", "the rebalance timeout is 20 seconds");
}

#[test]
fn a_static_member_keeps_its_place_and_fences_its_former_self() {
    let mut world = world();
    let ticket = world.send(9, join("g", "", Some("i")));
    world.pass(3_000);
    let old = world.joined(ticket).member_id;
    assert!(old.starts_with("i-"), "{old}");
    let ticket = world.send(5, sync("g", &old, 1, &[(&old, "all")]));
    assert_eq!(world.synced(ticket).assignment, "all");

    let ticket = world.send(9, join("g", "", Some("i")));
    let back = world.joined(ticket);
    assert_eq!((back.generation_id, back.error_code), (1, ErrorCode::NONE), "no rebalance");
    assert!(back.skip_assignment && back.leader == back.member_id && back.members.len() == 1);
    let new = back.member_id;
    assert_ne!(new, old);
    let ticket = world.send(5, sync("g", &new, 1, &[]));
    assert_eq!(world.synced(ticket).assignment, "all", "the same assignment");
    let fenced = world.ask(9, join("g", &old, Some("i")));
    assert_eq!(join_code(&fenced), ErrorCode::FENCED_INSTANCE_ID);
    let mut request = commit_request("g", &old, 1, &[(TOPIC, 0, 1)]);
    request.group_instance_id = Some("i".into());
    let codes = commit_codes(world.ask(9, GroupRequest::Commit(request)));
    assert_eq!(codes, [ErrorCode::FENCED_INSTANCE_ID]);
    let live = shown(&world.coordinator, "g");
    assert_eq!(shown(&world.loaded_anew(), "g"), live, "the new id is in the log");

    let reply = leave(&mut world, 5, &[("", Some("i")), ("", Some("i")), ("x", None)]);
    let codes: Vec<_> = reply.members.iter().map(|member| member.error_code).collect();
    let unknown = ErrorCode::UNKNOWN_MEMBER_ID;
    assert_eq!(codes, [ErrorCode::NONE, unknown, unknown]);
    assert_eq!(describe(&mut world, 5, "g").0, "Empty");
}

#[test]
fn a_static_member_without_a_rebalance_timeout_keeps_nobody_busy() {
    let mut world = world();
    let mut request = join_request("g", "", Some("i"));
    request.rebalance_timeout_ms = 0;
    let first = world.send(9, GroupRequest::Join(request));
    let (other, second) = world.enter("g");
    world.pass(10_000);
    let id = world.joined(first).member_id;
    world.joined(second);
    world.send(5, sync("g", &id, 1, &[]));
    world.send(5, sync("g", &other, 1, &[]));
    assert_eq!(describe(&mut world, 5, "g").0, "Stable");
    // Nobody joins again. It ends when the session of the static member does.
    leave(&mut world, 5, &[(&other, None)]);
    world.pass(10_100);
    assert_eq!(describe(&mut world, 5, "g").0, "Empty");
}

#[test]
fn a_second_static_member_of_the_name_fences_the_one_that_waits() {
    let mut world = world();
    let first = world.send(9, join("g", "", Some("i")));
    let second = world.send(9, join("g", "", Some("i")));
    assert_eq!(world.joined(first).error_code, ErrorCode::FENCED_INSTANCE_ID);
    world.pass(3_000);
    assert_eq!(world.joined(second).generation_id, 1);
}

#[test]
fn old_versions_of_leave_and_join_have_their_shapes() {
    let mut world = world();
    let member = world.stable("g");
    let reply = leave(&mut world, 1, &[("nobody", None)]);
    assert_eq!((reply.error_code, reply.members.len()), (ErrorCode::UNKNOWN_MEMBER_ID, 0));
    assert_eq!(leave(&mut world, 2, &[(&member, None)]).error_code, ErrorCode::NONE);
    assert_eq!(describe(&mut world, 5, "g").0, "Empty");
    let mut missing = World::new(GroupConfig::default());
    assert_eq!(leave(&mut missing, 2, &[("a", None)]).error_code, ErrorCode::UNKNOWN_MEMBER_ID);
    let reply = leave(&mut missing, 3, &[("a", None), ("b", Some("i"))]);
    assert_eq!((reply.error_code, reply.members.len()), (ErrorCode::NONE, 2));
    assert_eq!(reply.members[1].error_code, ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn sync_is_refused_for_its_reasons() {
    let mut world = world();
    let member = world.stable("g");
    let typed = |kind: Option<&str>, name: Option<&str>| {
        let GroupRequest::Sync(request) = sync("g", &member, 1, &[]) else { unreachable!() };
        GroupRequest::Sync(protocol::SyncGroupRequest {
            protocol_type: kind.map(Str::from),
            protocol_name: name.map(Str::from),
            ..request
        })
    };
    let cases = [
        (sync("none", &member, 1, &[]), ErrorCode::UNKNOWN_MEMBER_ID),
        (sync("g", "nobody", 1, &[]), ErrorCode::UNKNOWN_MEMBER_ID),
        (sync("g", &member, 2, &[]), ErrorCode::ILLEGAL_GENERATION),
        (sync("", &member, 1, &[]), ErrorCode::INVALID_GROUP_ID),
        (typed(Some("connect"), None), ErrorCode::INCONSISTENT_GROUP_PROTOCOL),
        (typed(None, Some("sticky")), ErrorCode::INCONSISTENT_GROUP_PROTOCOL),
        (typed(Some("consumer"), Some("range")), ErrorCode::NONE),
    ];
    for (request, code) in cases {
        let ticket = world.send(5, request);
        assert_eq!(world.synced(ticket).error_code, code);
    }
    world.enter("g");
    let ticket = world.send(5, sync("g", &member, 1, &[]));
    assert_eq!(world.synced(ticket).error_code, ErrorCode::REBALANCE_IN_PROGRESS);
}

#[test]
fn an_assignment_that_fits_no_batch_fails_and_the_group_goes_on() {
    let write = WriteRules { batch_bytes_max: 1_000, ..WriteRules::default() };
    let mut world = World::new(GroupConfig { write, ..Default::default() });
    let (id, ticket) = world.enter("g");
    world.pass(3_000);
    world.joined(ticket);
    let large = "x".repeat(2_000);
    let ticket = world.send(5, sync("g", &id, 1, &[(&id, &large)]));
    assert_eq!(world.synced(ticket).error_code, ErrorCode::UNKNOWN_SERVER_ERROR);
    let ticket = world.send(9, join("g", &id, None));
    assert_eq!(world.joined(ticket).generation_id, 2);
    let ticket = world.send(5, sync("g", &id, 2, &[(&id, "small")]));
    assert_eq!(world.synced(ticket).assignment, "small");
}

#[test]
fn offsets_are_kept_for_whom_may_commit_them() {
    let mut world = world();
    let member = world.stable("g");
    let at = [(TOPIC, 0, 5)];
    let none = ErrorCode::NONE;
    let cases = [
        (9, commit("g", &member, 1, &at), none),
        (10, commit("g", &member, 1, &at), none),
        (9, commit("g", &member, 2, &at), ErrorCode::ILLEGAL_GENERATION),
        (9, commit("g", "nobody", 1, &at), ErrorCode::UNKNOWN_MEMBER_ID),
        (9, commit("g", "", -1, &at), ErrorCode::UNKNOWN_MEMBER_ID),
        (9, commit("g", &member, -1, &at), ErrorCode::ILLEGAL_GENERATION),
        (8, commit("none", &member, 1, &at), ErrorCode::ILLEGAL_GENERATION),
        (9, commit("none", &member, 1, &at), ErrorCode::GROUP_ID_NOT_FOUND),
        (2, commit("simple", "", -1, &at), none),
        (9, commit("g", &member, 1, &[("gone", 0, 5)]), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        (10, commit("g", &member, 1, &[("gone", 0, 5)]), ErrorCode::UNKNOWN_TOPIC_ID),
        (10, commit("g", &member, 1, &[(TOPIC, 2, 5)]), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
    ];
    for (version, request, code) in cases {
        let shown = format!("{request:?}");
        assert_eq!(commit_codes(world.ask(version, request)), [code], "{version} {shown}");
    }
    let mixed = commit("g", &member, 7, &[("gone", 0, 1), (TOPIC, 0, 1)]);
    let codes = commit_codes(world.ask(9, mixed));
    assert_eq!(codes, [ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, ErrorCode::ILLEGAL_GENERATION]);
    let mut long = commit_request("g", &member, 1, &[(TOPIC, 0, 9), (TOPIC, 1, 6)]);
    long.topics[0].partitions[0].committed_metadata = Some("ä".repeat(4_097).into());
    long.topics[1].partitions[0].committed_metadata = Some("ä".repeat(4_096).into());
    let codes = commit_codes(world.ask(9, GroupRequest::Commit(long)));
    assert_eq!(codes, [ErrorCode::OFFSET_METADATA_TOO_LARGE, none]);

    world.enter("g");
    assert_eq!(
        commit_codes(world.ask(9, commit("g", &member, 1, &[(TOPIC, 0, 8)]))),
        [none],
        "while the others gather a member may still commit"
    );
    let ticket = world.send(9, join("g", &member, None));
    world.joined(ticket);
    let codes = commit_codes(world.ask(9, commit("g", &member, 2, &at)));
    assert_eq!(codes, [ErrorCode::REBALANCE_IN_PROGRESS]);
    assert_eq!(fetch(&mut world, 8, "g", Some(&[(TOPIC, 0)])), [(0, 8, none)]);
}

#[test]
fn a_commit_is_a_sign_of_life() {
    let mut world = world();
    let member = world.stable("g");
    for _ in 0..3 {
        world.pass(9_000);
        let codes = commit_codes(world.ask(9, commit("g", &member, 1, &[(TOPIC, 0, 5)])));
        assert_eq!(codes, [ErrorCode::NONE]);
    }
}

#[test]
fn offsets_are_read_as_each_version_has_them() {
    let mut world = world();
    world.ask(9, commit("s", "", -1, &[(TOPIC, 0, 5), (TOPIC, 1, 6)]));
    let none = ErrorCode::NONE;
    assert_eq!(fetch(&mut world, 8, "s", None), [(0, 5, none), (1, 6, none)]);
    assert_eq!(fetch(&mut world, 10, "s", None), [(0, 5, none), (1, 6, none)]);
    let asked: &[(&str, i32)] = &[(TOPIC, 0), ("gone", 3), (TOPIC, 9)];
    let found = fetch(&mut world, 9, "s", Some(asked));
    assert_eq!(found, [(0, 5, none), (3, -1, none), (9, -1, none)]);
    let found = fetch(&mut world, 10, "s", Some(asked));
    assert_eq!(found, [(0, 5, none), (3, -1, ErrorCode::UNKNOWN_TOPIC_ID), (9, -1, none)]);
    assert_eq!(fetch(&mut world, 8, "none", Some(&[(TOPIC, 0)])), [(0, -1, none)]);
    assert_eq!(fetch(&mut world, 8, "none", None), []);

    // A commit under way is not read before it is committed.
    world.holds_back = true;
    let commit_ticket = world.send(9, commit("s", "", -1, &[(TOPIC, 0, 7)]));
    let group =
        OffsetFetchRequestGroup { group_id: "s".into(), topics: None, ..Default::default() };
    let read = world.send(8, GroupRequest::Fetch { group, require_stable: false });
    assert!(world.replies.is_empty());
    world.commit_all();
    assert_eq!(commit_codes(world.reply(commit_ticket)), [none]);
    let GroupReply::Fetch(reply) = world.reply(read) else { panic!() };
    assert_eq!(fetched(&reply)[0], (0, 7, none));
}

#[test]
fn an_offset_of_a_former_topic_of_the_name_is_not_given_by_id() {
    let mut world = world();
    world.ask(9, commit("s", "", -1, &[(TOPIC, 0, 5)]));
    let again = Uuid([8; 16]);
    let topic = protocol::RemoveTopicRecord { topic_id: TOPIC_ID, ..Default::default() };
    world.image.replay(&topic.into()).unwrap();
    let topic = protocol::TopicRecord { name: TOPIC.into(), topic_id: again, ..Default::default() };
    world.image.replay(&topic.into()).unwrap();
    let topic = OffsetFetchRequestTopics {
        topic_id: again,
        partition_indexes: vec![0],
        ..Default::default()
    };
    let group = OffsetFetchRequestGroup {
        group_id: "s".into(),
        topics: Some(vec![topic]),
        ..Default::default()
    };
    let reply = world.ask(10, GroupRequest::Fetch { group, require_stable: false });
    let GroupReply::Fetch(reply) = reply else { panic!() };
    assert_eq!(fetched(&reply), [(0, -1, ErrorCode::NONE)]);
    assert_eq!(fetch(&mut world, 9, "s", Some(&[(TOPIC, 0)])), [(0, 5, ErrorCode::NONE)]);
}

#[test]
fn offsets_and_groups_expire() {
    let day = 24 * 3_600_000;
    let config = GroupConfig { offsets_retention_ms: day, ..Default::default() };
    let mut world = World::new(config);
    // A simple group by its commits; old clients say for how long.
    world.ask(9, commit("simple", "", -1, &[(TOPIC, 0, 5)]));
    let mut short = commit_request("short", "", -1, &[(TOPIC, 0, 5)]);
    short.retention_time_ms = 60_000;
    world.ask(4, GroupRequest::Commit(short));
    // A group of consumers from when it became empty on.
    let member = world.stable("g");
    world.ask(9, commit("g", &member, 1, &[(TOPIC, 0, 5)]));
    leave(&mut world, 5, &[(&member, None)]);

    world.pass(601_000);
    assert_eq!(list(&mut world, &[], &[]), ["g", "simple"]);
    world.pass(day / 2);
    world.ask(9, commit("simple", "", -1, &[(TOPIC, 1, 6)]));
    world.pass(day / 2 + 600_000);
    assert_eq!(list(&mut world, &[], &[]), ["simple"]);
    assert_eq!(fetch(&mut world, 8, "simple", None), [(1, 6, ErrorCode::NONE)]);
    world.pass(day);
    assert_eq!(list(&mut world, &[], &[]), [""; 0]);
    world.restart();
    assert_eq!(list(&mut world, &[], &[]), [""; 0], "tombstones were written");
    assert_eq!(fetch(&mut world, 8, "g", None), []);
}

#[test]
fn what_a_stable_group_subscribes_to_does_not_expire() {
    let config = GroupConfig { offsets_retention_ms: 1_000_000, ..Default::default() };
    let mut world = World::new(config);
    let member = world.stable("g");
    world.ask(9, commit("g", &member, 1, &[(TOPIC, 0, 5)]));
    for _ in 0..500 {
        world.pass(9_000);
        assert_eq!(heartbeat(&mut world, &member, 1), ErrorCode::NONE);
    }
    assert_eq!(fetch(&mut world, 8, "g", None), [(0, 5, ErrorCode::NONE)]);
}

#[test]
fn offsets_of_partitions_that_are_gone_go_too() {
    let mut world = world();
    world.ask(9, commit("s", "", -1, &[(TOPIC, 0, 5), (TOPIC, 1, 6)]));
    let now = world.now();
    world.coordinator.partitions_deleted(now, &[(TOPIC.into(), 0), ("other".into(), 1)]);
    world.pump();
    assert_eq!(fetch(&mut world, 8, "s", None), [(1, 6, ErrorCode::NONE)]);
    world.restart();
    assert_eq!(fetch(&mut world, 8, "s", None), [(1, 6, ErrorCode::NONE)]);
}

#[test]
fn groups_are_listed_described_and_deleted() {
    let mut world = world();
    let member = world.stable("g");
    world.ask(9, commit("g", &member, 1, &[(TOPIC, 0, 5)]));
    world.ask(9, commit("simple", "", -1, &[(TOPIC, 0, 5)]));
    let (none, not_found) = (ErrorCode::NONE, ErrorCode::GROUP_ID_NOT_FOUND);
    assert_eq!(list(&mut world, &[], &[]), ["g", "simple"]);
    assert_eq!(list(&mut world, &[" stable", "Dead"], &["CLASSIC"]), ["g"]);
    assert_eq!(list(&mut world, &["empty"], &[]), ["simple"]);
    assert_eq!(list(&mut world, &[], &["consumer"]), [""; 0]);
    assert_eq!(describe(&mut world, 6, "g"), ("Stable".into(), 1, none, None));
    assert_eq!(describe(&mut world, 5, "no"), ("Dead".into(), 0, none, None));
    let missing = Some("Group no not found.".into());
    assert_eq!(describe(&mut world, 6, "no"), ("Dead".into(), 0, not_found, missing));

    assert_eq!(delete(&mut world, "g"), ErrorCode::NON_EMPTY_GROUP);
    assert_eq!(delete(&mut world, "no"), not_found);
    let subscribed = ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC;
    assert_eq!(delete_offsets(&mut world, "g", TOPIC), (none, vec![subscribed]));
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    assert_eq!(delete_offsets(&mut world, "g", "gone"), (none, vec![unknown]));
    assert_eq!(delete_offsets(&mut world, "no", TOPIC), (not_found, vec![]));
    assert_eq!(delete_offsets(&mut world, "no", "gone"), (not_found, vec![]));
    assert_eq!(delete_offsets(&mut world, "", TOPIC), (ErrorCode::INVALID_GROUP_ID, vec![]));
    assert_eq!(delete_offsets(&mut world, "simple", TOPIC), (none, vec![none]));
    assert_eq!(fetch(&mut world, 8, "simple", None), []);

    leave(&mut world, 5, &[(&member, None)]);
    assert_eq!(delete(&mut world, "g"), none);
    assert_eq!(fetch(&mut world, 8, "g", None), []);
    world.restart();
    assert_eq!(fetch(&mut world, 8, "g", None), [], "the offsets went with the group");
    assert_eq!(list(&mut world, &[], &[]), ["simple"]);
}

#[test]
fn other_protocols_than_the_consumers_keep_their_offsets_while_members_are_there() {
    let mut world = world();
    let mut request = join_request("g", "", None);
    request.protocol_type = "connect".into();
    let ticket = world.send(3, GroupRequest::Join(request));
    world.pass(3_000);
    world.joined(ticket);
    assert_eq!(delete_offsets(&mut world, "g", TOPIC).0, ErrorCode::NON_EMPTY_GROUP);
}

#[test]
fn while_it_loads_and_after_it_was_unloaded_calls_are_refused() {
    let mut world = world();
    let mut coordinator = GroupCoordinator::new(GroupConfig::default(), Random::new(1));
    assert_eq!(coordinator.phase(), Phase::Loading);
    std::mem::swap(&mut world.coordinator, &mut coordinator);
    let loading = ErrorCode::COORDINATOR_LOAD_IN_PROGRESS;
    assert_eq!(join_code(&world.ask(9, join("g", "", None))), loading);
    assert_eq!(heartbeat(&mut world, "m", 1), ErrorCode::NONE, "it need not join anew");
    assert_eq!(commit_codes(world.ask(9, commit("g", "m", 1, &[(TOPIC, 0, 1)]))), [loading]);
    let group = OffsetFetchRequestGroup {
        group_id: "g".into(),
        topics: Some(vec![OffsetFetchRequestTopics {
            name: TOPIC.into(),
            partition_indexes: vec![4],
            ..Default::default()
        }]),
        ..Default::default()
    };
    let ask = GroupRequest::Fetch { group, require_stable: false };
    let GroupReply::Fetch(reply) = world.ask(1, ask.clone()) else { panic!() };
    assert_eq!(fetched(&reply), [(4, -1, loading)], "version 1 says it of each partition");
    let GroupReply::Fetch(reply) = world.ask(2, ask) else { panic!() };
    assert_eq!((reply.error_code, reply.topics.len()), (loading, 0));

    std::mem::swap(&mut world.coordinator, &mut coordinator);
    let (_, waits) = world.enter("g");
    let now = world.now();
    world.coordinator.unload(now);
    world.pump();
    assert_eq!(world.joined(waits).error_code, ErrorCode::NOT_COORDINATOR);
    assert_eq!(join_code(&world.ask(9, join("g", "", None))), ErrorCode::NOT_COORDINATOR);
}

#[test]
fn a_failed_append_is_told_and_forgotten() {
    let cases = [
        (ErrorCode::NOT_ENOUGH_REPLICAS, ErrorCode::COORDINATOR_NOT_AVAILABLE),
        (ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::NOT_COORDINATOR),
        (ErrorCode::KAFKA_STORAGE_ERROR, ErrorCode::NOT_COORDINATOR),
        (ErrorCode::MESSAGE_TOO_LARGE, ErrorCode::UNKNOWN_SERVER_ERROR),
    ];
    for (failure, told) in cases {
        let world = world();
        let mut coordinator = GroupCoordinator::new(GroupConfig::default(), Random::new(1));
        let now = Now { mono: Instant::ZERO, wall_ms: 1 };
        coordinator.loaded(now);
        let call = GroupCall {
            client_id: "c".into(),
            client_host: "/127.0.0.1".into(),
            version: 9,
            request: commit("s", "", -1, &[(TOPIC, 0, 5)]),
        };
        coordinator.handle(now, &world.image, call, Token::from_bits(1));
        let mut out = Vec::new();
        coordinator.end_of_turn(&mut out);
        assert!(matches!(out[..], [Output::Append { .. }]));
        out.clear();
        coordinator.appended(now, Err(failure));
        coordinator.end_of_turn(&mut out);
        let [Output::Reply { reply, .. }, Output::Reload] = &out[..] else { panic!("{out:?}") };
        assert_eq!(commit_codes(reply.clone()), [told]);
        assert_eq!(coordinator.phase(), Phase::Loading);
        assert!(coordinator.groups().offsets.of("s").is_none());
        assert_eq!(coordinator.next_timer(), None);
    }
}

#[test]
fn a_log_of_kafka_is_loaded() {
    let mut coordinator = GroupCoordinator::new(GroupConfig::default(), Random::new(1));
    coordinator.load(Bytes::from_static(KAFKAS_LOG)).unwrap();
    let groups = coordinator.groups();
    let names: Vec<&str> = groups.groups.keys().map(|name| &**name).collect();
    assert_eq!(names, ["kg2", "simple"], "kg had no offsets and expired");
    let kg2 = &groups.groups["kg2"];
    assert_eq!((kg2.state, kg2.generation), (GroupState::Empty, 2));
    assert_eq!(kg2.protocol_type.as_deref(), Some("consumer"));
    let offsets: BTreeMap<i32, i64> =
        groups.offsets.of("kg2").unwrap().iter().map(|(at, own)| (at.1, own.offset)).collect();
    assert_eq!(offsets, BTreeMap::from([(0, 2), (1, 3)]));
    assert!(groups.offsets.of("simple").unwrap().values().all(|own| !own.topic_id.is_zero()));
}

/// A record without what differs from run to run.
fn without_the_particular(record: (i16, Option<i16>, GroupRecord)) -> String {
    let (kind, version, mut record) = record;
    match &mut record {
        GroupRecord::GroupMetadata(key, Some(value)) => {
            key.group = "g".into();
            assert!(value.current_state_timestamp > 0);
            value.current_state_timestamp = 0;
            value.leader = value.leader.take().map(|_| "leader".into());
            for member in &mut value.members {
                assert_eq!(member.client_host, "/127.0.0.1");
                (member.member_id, member.client_id) = ("member".into(), "client".into());
                (member.rebalance_timeout, member.session_timeout) = (0, 0);
                (member.subscription, member.assignment) = (Bytes::new(), Bytes::new());
            }
        }
        GroupRecord::OffsetCommit(key, Some(value)) => {
            key.group = "g".into();
            assert!(value.commit_timestamp > 0 && !value.topic_id.is_zero());
            (value.commit_timestamp, value.topic_id) = (0, Uuid::ZERO);
            (value.offset, value.metadata) = (0, Str::new());
        }
        other => panic!("{other:?}"),
    }
    format!("{kind} {version:?} {record:?}")
}

#[test]
fn the_same_records_are_written_as_kafka_writes() {
    let of_kg2 = |record: &(i16, Option<i16>, GroupRecord)| match &record.2 {
        GroupRecord::GroupMetadata(key, _) => key.group == "kg2",
        GroupRecord::OffsetCommit(key, _) => key.group == "kg2",
        _ => false,
    };
    let kafkas = records_in(KAFKAS_LOG).into_iter().filter(of_kg2);
    let kafkas: Vec<String> = kafkas.map(without_the_particular).collect();
    let mut world = world();
    let member = world.stable("g");
    world.ask(7, commit("g", &member, 1, &[(TOPIC, 0, 2), (TOPIC, 1, 3)]));
    leave(&mut world, 1, &[(&member, None)]);
    let ours: Vec<String> = world.records().into_iter().map(without_the_particular).collect();
    assert_eq!(ours, kafkas);
}

fn batch(offset: i64, producer: Option<i64>, records: &[KeyValue]) -> Bytes {
    let mut batch = BatchBuilder::new(Offset(offset), Compression::None);
    if let Some(producer) = producer {
        batch = batch.producer(ProducerId(producer), ProducerEpoch(0), -1).transactional();
    }
    for record in records {
        let value = record.value.as_deref();
        batch.append(&NewRecord { key: Some(&record.key), value, ..Default::default() });
    }
    batch.build().bytes().clone()
}

fn marker(offset: i64, producer: i64, kind: ControlType) -> Bytes {
    let mut batch = BatchBuilder::new(Offset(offset), Compression::None)
        .producer(ProducerId(producer), ProducerEpoch(0), -1)
        .transactional()
        .control();
    let (key, value) = (ControlKey::new(kind).write(), records::end_transaction_marker(0));
    batch.append(&NewRecord { key: Some(&key), value: Some(&value), ..Default::default() });
    batch.build().bytes().clone()
}

fn offset_record(group: &str, partition: i32, offset: i64) -> KeyValue {
    let committed = crate::offsets::Committed {
        offset,
        leader_epoch: -1,
        metadata: Str::new(),
        commit_timestamp_ms: 1_000_000,
        expire_timestamp_ms: None,
        topic_id: Uuid::ZERO,
        record_offset: Offset(0),
    };
    of_offset(&group.into(), &(TOPIC.into(), partition), &committed).unwrap()
}

#[test]
fn offsets_of_transactions_count_when_they_end() {
    let mut world = world();
    let log = [
        batch(0, Some(1), &[offset_record("s", 0, 10)]),
        batch(1, Some(2), &[offset_record("s", 1, 11)]),
        batch(2, Some(3), &[offset_record("s", 0, 12)]),
        batch(3, None, &[offset_record("s", 0, 13)]),
        marker(4, 1, ControlType::Commit),
        marker(5, 2, ControlType::Abort),
        batch(6, Some(4), &[offset_record("s", 1, 14)]),
        marker(7, 4, ControlType::Commit),
        batch(8, Some(5), &[offset_record("s", 0, 15)]),
    ];
    world.log = log.concat();
    world.end = 9;
    world.restart();
    let unstable = ErrorCode::UNSTABLE_OFFSET_COMMIT;
    let found = fetch(&mut world, 8, "s", None);
    assert_eq!(found, [(0, -1, unstable), (1, 14, ErrorCode::NONE)], "3 and 5 are open");
    let group =
        OffsetFetchRequestGroup { group_id: "s".into(), topics: None, ..Default::default() };
    let GroupReply::Fetch(reply) =
        world.ask(8, GroupRequest::Fetch { group, require_stable: false })
    else {
        panic!()
    };
    assert_eq!(fetched(&reply)[0], (0, 13, ErrorCode::NONE), "1 was overtaken");
}

#[test]
fn groups_of_other_kinds_are_left_alone() {
    let key = ConsumerGroupMetadataKey { group_id: "new".into(), ..Default::default() };
    let value = ConsumerGroupMetadataValue { epoch: 3, ..Default::default() };
    let record = GroupRecord::ConsumerGroupMetadata(key, Some(value));
    let (key, value) = record.encode(0).unwrap();
    let unknown = KeyValue {
        key: Bytes::from_static(&[0x40, 0, 9]),
        value: Some(Bytes::from_static(&[1, 2, 3])),
    };
    let mut world = world();
    world.log =
        batch(0, None, &[offset_record("new", 0, 4), KeyValue { key, value }, unknown]).to_vec();
    world.end = 3;
    world.restart();
    let reply = world.ask(9, join("new", "", None));
    assert_eq!(join_code(&reply), ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
    let unknown = ErrorCode::UNKNOWN_MEMBER_ID;
    assert_eq!(commit_codes(world.ask(9, commit("new", "", -1, &[(TOPIC, 0, 5)]))), [unknown]);
    assert_eq!(fetch(&mut world, 8, "new", None), [(0, 4, ErrorCode::NONE)]);
    assert_eq!(delete(&mut world, "new"), ErrorCode::GROUP_ID_NOT_FOUND);
    let (_, _, _, message) = describe(&mut world, 6, "new");
    assert_eq!(message.as_deref(), Some("Group new is not a classic group."));
    world.pass(30 * 24 * 3_600_000);
    assert_eq!(world.end, 3, "nothing is written over it");
}

#[test]
fn a_damaged_record_fails_the_loading() {
    let mut coordinator = GroupCoordinator::new(GroupConfig::default(), Random::new(1));
    let record = KeyValue { key: Bytes::from_static(&[0, 1, 0]), value: None };
    assert!(coordinator.load(batch(0, None, &[record])).is_err());
}

#[test]
fn groups_have_kafkas_partitions() {
    // Of `abs("…".hashCode()) % 50` in Java; the last hash is the smallest integer.
    let cases = [("", 0), ("g", 3), ("test-group", 12), ("ä€😀", 1), ("polygenelubricants", 0)];
    for (group, partition) in cases {
        assert_eq!(coordinator_partition(group, 50), partition, "{group}");
    }
    let groups = ["g".into(), "".into(), "g".into()];
    let expected = BTreeMap::from([(0, vec!["".into()]), (3, vec!["g".into(), "g".into()])]);
    assert_eq!(by_partition(&groups, 50), expected);
}

#[test]
fn one_request_for_offsets_is_split_and_joined() {
    let old = OffsetFetchRequest { group_id: "g".into(), topics: None, ..Default::default() };
    let groups = split_offset_fetch(old, 7);
    assert_eq!((groups.len(), &*groups[0].group_id, &groups[0].topics), (1, "g", &None));
    let mut world = world();
    world.ask(9, commit("g", "", -1, &[(TOPIC, 0, 5)]));
    let ask = GroupRequest::Fetch { group: groups[0].clone(), require_stable: false };
    let GroupReply::Fetch(reply) = world.ask(7, ask) else { panic!() };
    let joined = join_offset_fetch(7, vec![reply.clone()]);
    assert_eq!(joined.topics[0].partitions[0].committed_offset, 5);
    assert_eq!(joined.groups.len(), 0);
    assert_eq!(join_offset_fetch(8, vec![reply]).groups.len(), 1);
}

#[test]
fn coordinators_are_found_or_refused_for_good() {
    let node = CoordinatorNode { id: 4, host: "here".into(), port: 9092 };
    let found = |_| Ok(node.clone());
    let missing = |_| Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
    let old = FindCoordinatorRequest { key: "g".into(), ..Default::default() };
    let reply = find_coordinator(&old, 3, 50, &found);
    assert_eq!((reply.error_code, reply.node_id, reply.port), (ErrorCode::NONE, 4, 9092));
    let reply = find_coordinator(&old, 3, 50, &missing);
    assert_eq!((reply.error_code, reply.node_id), (ErrorCode::COORDINATOR_NOT_AVAILABLE, -1));
    for (key_type, retriable, code) in [
        (0, false, ErrorCode::NONE),
        (1, false, ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (2, false, ErrorCode::INVALID_REQUEST),
        (9, false, ErrorCode::INVALID_REQUEST),
    ] {
        let coordinator_keys = vec!["a".into(), "b".into()];
        let request = FindCoordinatorRequest { key_type, coordinator_keys, ..Default::default() };
        let reply = find_coordinator(&request, 6, 50, &found);
        assert_eq!(reply.coordinators.len(), 2);
        for own in reply.coordinators {
            assert_eq!(own.error_code, code);
            assert_eq!(own.error_code.is_retriable(), retriable);
            assert_ne!(own.error_message.unwrap().is_empty(), code.is_error());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn hostile_requests_are_answered(
        group in ".{0,3}", member in ".{0,3}", instance in proptest::option::of(".{0,3}"),
        session: i32, rebalance: i32, generation: i32, version in 0_i16..10,
    ) {
        let mut world = World::new(GroupConfig {
            session_timeout_ms_min: 0,
            session_timeout_ms_max: i32::MAX,
            ..Default::default()
        });
        let mut request = join_request(&group, &member, instance.as_deref());
        request.session_timeout_ms = session;
        request.rebalance_timeout_ms = rebalance;
        world.send(version, GroupRequest::Join(request));
        world.send(version.min(5), sync(&group, &member, generation, &[]));
        world.send(version.max(2), commit(&group, &member, generation, &[(TOPIC, generation, 5)]));
        world.pass(1_000_000);
        world.restart();
        prop_assert_eq!(world.replies.len() as u64, world.sent());
    }
}
