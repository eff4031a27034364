//! The requests of consumer groups: each goes to the coordinator on the partition of the offsets
//! topic that its group belongs to; those about several groups are spread and joined.
#![allow(clippy::result_large_err, reason = "a refusal is the whole answer, moved once")]

use base::{PartitionIndex, ShardId, Token};
use group::{GroupCall, GroupReply, GroupRequest};
use intercom::{GroupAsk, Reply, Request};
use protocol::{
    DecodeError, DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest,
    DescribeGroupsResponse, ErrorCode, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest,
    ListGroupsRequest, ListGroupsResponse, OffsetCommitRequest, OffsetDeleteRequest,
    OffsetFetchRequest, RequestFrame, Str, SyncGroupRequest,
};

use crate::shard::{Io, Shard};
use crate::spread::{Parts, SpreadApi, spread};
use crate::topics::OFFSETS_TOPIC;

/// Makes the handler of an API that is about one group.
macro_rules! of_one_group {
    ($name:ident, $api:ident, $request:ty, $variant:ident) => {
        pub(crate) fn $name(
            shard: &mut Shard,
            io: &mut Io<'_>,
            call: Token,
            frame: &RequestFrame,
        ) -> Result<(), DecodeError> {
            let request: $request = frame.body()?;
            let group = request.group_id.clone();
            let mut parts = Parts::default();
            parts.push(part(shard, call, frame, &group, GroupRequest::$variant(request)));
            spread(shard, io, call, $api, parts, Request::Group);
            Ok(())
        }

        #[derive(Debug)]
        struct $api;

        impl SpreadApi for $api {
            type Outcome = GroupReply;

            fn outcomes(reply: Reply) -> Vec<GroupReply> {
                replies(reply)
            }

            fn finish(
                self,
                shard: &mut Shard,
                io: &mut Io<'_>,
                call: Token,
                outcomes: impl Iterator<Item = GroupReply>,
            ) {
                for outcome in outcomes {
                    let GroupReply::$variant(response) = outcome else {
                        unreachable!("{} was answered by {outcome:?}", stringify!($name));
                    };
                    shard.respond::<$request>(io, call, &response);
                }
            }
        }
    };
}

of_one_group!(join, Join, JoinGroupRequest, Join);
of_one_group!(sync, Sync, SyncGroupRequest, Sync);
of_one_group!(heartbeat, Heartbeat, HeartbeatRequest, Heartbeat);
of_one_group!(leave, Leave, LeaveGroupRequest, Leave);
of_one_group!(commit, Commit, OffsetCommitRequest, Commit);
of_one_group!(delete_offsets, DeleteOffsets, OffsetDeleteRequest, DeleteOffsets);

/// OffsetFetch of one group or several.
#[derive(Debug)]
struct FetchOffsets {
    version: i16,
}

pub(crate) fn fetch_offsets(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: OffsetFetchRequest = frame.body()?;
    let require_stable = request.require_stable;
    let mut parts = Parts::default();
    for group in group::split_offset_fetch(request, frame.version) {
        let name = group.group_id.clone();
        let request = GroupRequest::Fetch { group, require_stable };
        parts.push(part(shard, call, frame, &name, request));
    }
    let api = FetchOffsets { version: frame.version };
    spread(shard, io, call, api, parts, Request::Group);
    Ok(())
}

impl SpreadApi for FetchOffsets {
    type Outcome = GroupReply;

    fn outcomes(reply: Reply) -> Vec<GroupReply> {
        replies(reply)
    }

    fn finish(
        self,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        outcomes: impl Iterator<Item = GroupReply>,
    ) {
        let groups = outcomes.map(|outcome| match outcome {
            GroupReply::Fetch(group) => group,
            other => unreachable!("OffsetFetch was answered by {other:?}"),
        });
        let response = group::join_offset_fetch(self.version, groups.collect());
        shard.respond::<OffsetFetchRequest>(io, call, &response);
    }
}

/// ListGroups: all groups of all coordinators of this broker.
#[derive(Debug)]
struct List;

pub(crate) fn list(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: ListGroupsRequest = frame.body()?;
    let mut parts = Parts::default();
    for partition in 0..shard.offsets_partitions() {
        let request = GroupRequest::List(request.clone());
        let ask = ask_at(shard, call, frame, PartitionIndex(partition), request);
        // A partition that another broker leads is that broker's to list.
        if let Ok(ask) = ask {
            parts.push(Ok(ask));
        }
    }
    spread(shard, io, call, List, parts, Request::Group);
    Ok(())
}

impl SpreadApi for List {
    type Outcome = GroupReply;

    fn outcomes(reply: Reply) -> Vec<GroupReply> {
        replies(reply)
    }

    fn finish(
        self,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        outcomes: impl Iterator<Item = GroupReply>,
    ) {
        let mut response = ListGroupsResponse::default();
        for outcome in outcomes {
            let GroupReply::List(list) = outcome else { unreachable!("answered by {outcome:?}") };
            if response.error_code == ErrorCode::NONE {
                response.error_code = list.error_code;
            }
            response.groups.extend(list.groups);
        }
        shard.respond::<ListGroupsRequest>(io, call, &response);
    }
}

/// DescribeGroups.
#[derive(Debug)]
struct Describe;

pub(crate) fn describe(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: DescribeGroupsRequest = frame.body()?;
    let mut parts = Parts::default();
    for groups in by_coordinator(shard, &request.groups) {
        let Some(first) = groups.first().cloned() else { continue };
        let request = DescribeGroupsRequest { groups, ..request.clone() };
        parts.push(part(shard, call, frame, &first, GroupRequest::Describe(request)));
    }
    spread(shard, io, call, Describe, parts, Request::Group);
    Ok(())
}

impl SpreadApi for Describe {
    type Outcome = GroupReply;

    fn outcomes(reply: Reply) -> Vec<GroupReply> {
        replies(reply)
    }

    fn finish(
        self,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        outcomes: impl Iterator<Item = GroupReply>,
    ) {
        let groups = outcomes.flat_map(|outcome| match outcome {
            GroupReply::Describe(described) => described.groups,
            other => unreachable!("DescribeGroups was answered by {other:?}"),
        });
        let response = DescribeGroupsResponse { groups: groups.collect(), ..Default::default() };
        shard.respond::<DescribeGroupsRequest>(io, call, &response);
    }
}

/// DeleteGroups.
#[derive(Debug)]
struct Delete;

pub(crate) fn delete(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: DeleteGroupsRequest = frame.body()?;
    let mut parts = Parts::default();
    for groups_names in by_coordinator(shard, &request.groups_names) {
        let Some(first) = groups_names.first().cloned() else { continue };
        let request = DeleteGroupsRequest { groups_names, ..Default::default() };
        parts.push(part(shard, call, frame, &first, GroupRequest::Delete(request)));
    }
    spread(shard, io, call, Delete, parts, Request::Group);
    Ok(())
}

impl SpreadApi for Delete {
    type Outcome = GroupReply;

    fn outcomes(reply: Reply) -> Vec<GroupReply> {
        replies(reply)
    }

    fn finish(
        self,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        outcomes: impl Iterator<Item = GroupReply>,
    ) {
        let results = outcomes.flat_map(|outcome| match outcome {
            GroupReply::Delete(deleted) => deleted.results,
            other => unreachable!("DeleteGroups was answered by {other:?}"),
        });
        let response = DeleteGroupsResponse { results: results.collect(), ..Default::default() };
        shard.respond::<DeleteGroupsRequest>(io, call, &response);
    }
}

fn replies(reply: Reply) -> Vec<GroupReply> {
    let Reply::Group(replies) = reply else { unreachable!("a group was answered by {reply:?}") };
    replies
}

/// The groups of a request, those of one coordinator together.
fn by_coordinator(shard: &Shard, groups: &[Str]) -> Vec<Vec<Str>> {
    // Without the topic every group is refused: one partition is as good as another.
    let partitions = shard.offsets_partitions().max(1);
    group::by_partition(groups, partitions).into_values().collect()
}

/// What to ask of whom about a group, or the refusal.
fn part(
    shard: &Shard,
    call: Token,
    frame: &RequestFrame,
    group: &str,
    request: GroupRequest,
) -> Result<(ShardId, GroupAsk), GroupReply> {
    let partitions = shard.offsets_partitions();
    if partitions == 0 {
        return Err(group_call(shard, call, frame, request).refuse(ErrorCode::NOT_COORDINATOR));
    }
    let partition = PartitionIndex(group::coordinator_partition(group, partitions));
    ask_at(shard, call, frame, partition, request)
}

fn ask_at(
    shard: &Shard,
    call: Token,
    frame: &RequestFrame,
    partition: PartitionIndex,
    request: GroupRequest,
) -> Result<(ShardId, GroupAsk), GroupReply> {
    let group_call = group_call(shard, call, frame, request);
    match shard.locate(OFFSETS_TOPIC, partition) {
        Ok((key, owner)) => Ok((owner, GroupAsk { key, call: group_call })),
        Err(_) => Err(group_call.refuse(ErrorCode::NOT_COORDINATOR)),
    }
}

/// The request with what a coordinator has to know of its client.
fn group_call(
    shard: &Shard,
    call: Token,
    frame: &RequestFrame,
    request: GroupRequest,
) -> GroupCall {
    let client_id = frame.client_id.as_deref().map(Str::from).unwrap_or_default();
    let client_host = shard.client_host(call);
    GroupCall { client_id, client_host, version: frame.version, request }
}
