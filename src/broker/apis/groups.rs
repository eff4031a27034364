//! The requests of consumer groups: each goes to the coordinator on the partition of the offsets
//! topic that its group belongs to; those about several groups are spread and joined.
#![allow(clippy::result_large_err, reason = "a refusal is the whole answer, moved once")]

use base::{PartitionIndex, Token};
use group::{GroupCall, GroupReply, GroupRequest};
use intercom::GroupAsk;
use protocol::{
    DecodeError, DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest,
    DescribeGroupsResponse, ErrorCode, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest,
    ListGroupsRequest, ListGroupsResponse, OffsetCommitRequest, OffsetDeleteRequest,
    OffsetFetchRequest, RequestFrame, Str, SyncGroupRequest,
};

use crate::shard::{Io, Shard};
use crate::spread::{Place, spread};
use crate::topics::OFFSETS_TOPIC;

/// Takes replies as those of one kind of request.
macro_rules! replies_as {
    ($variant:ident, $replies:expr) => {
        $replies.map(|reply| match reply {
            GroupReply::$variant(reply) => reply,
            other => unreachable!("{} was answered by {other:?}", stringify!($variant)),
        })
    };
}

/// Makes the handler of an API that is about one group.
macro_rules! of_one_group {
    ($name:ident, $request:ty, $variant:ident) => {
        pub(crate) fn $name(
            shard: &mut Shard,
            io: &mut Io<'_>,
            call: Token,
            frame: &RequestFrame,
        ) -> Result<(), DecodeError> {
            let request: $request = frame.body()?;
            let group = request.group_id.clone();
            let ask = ask_of(shard, call, frame, &group, GroupRequest::$variant(request));
            ask_coordinators::<$request>(shard, io, call, vec![ask], |_, replies| {
                replies_as!($variant, replies).next().expect("one question has one answer")
            });
            Ok(())
        }
    };
}

of_one_group!(join, JoinGroupRequest, Join);
of_one_group!(sync, SyncGroupRequest, Sync);
of_one_group!(heartbeat, HeartbeatRequest, Heartbeat);
of_one_group!(leave, LeaveGroupRequest, Leave);
of_one_group!(commit, OffsetCommitRequest, Commit);
of_one_group!(delete_offsets, OffsetDeleteRequest, DeleteOffsets);

/// OffsetFetch, of one group or several.
pub(crate) fn fetch_offsets(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: OffsetFetchRequest = frame.body()?;
    let require_stable = request.require_stable;
    let groups = group::split_offset_fetch(request, frame.version).into_iter();
    let asks = groups.map(|group| {
        let name = group.group_id.clone();
        let request = GroupRequest::Fetch { group, require_stable };
        ask_of(shard, call, frame, &name, request)
    });
    let asks = asks.collect();
    ask_coordinators::<OffsetFetchRequest>(shard, io, call, asks, |version, replies| {
        group::join_offset_fetch(version, replies_as!(Fetch, replies).collect())
    });
    Ok(())
}

/// ListGroups: all groups of all coordinators of this broker.
pub(crate) fn list(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: ListGroupsRequest = frame.body()?;
    let asks = (0..shard.offsets_partitions()).map(|partition| {
        let request = GroupRequest::List(request.clone());
        ask_at(shard, call, frame, PartitionIndex(partition), request)
    });
    // A partition that another broker leads is that broker's to list.
    let asks = asks.filter(Result::is_ok).collect();
    ask_coordinators::<ListGroupsRequest>(shard, io, call, asks, |_, replies| {
        let mut response = ListGroupsResponse::default();
        for list in replies_as!(List, replies) {
            if response.error_code == ErrorCode::NONE {
                response.error_code = list.error_code;
            }
            response.groups.extend(list.groups);
        }
        response
    });
    Ok(())
}

pub(crate) fn describe(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: DescribeGroupsRequest = frame.body()?;
    let asks = asks_by_coordinator(shard, call, frame, &request.groups, |groups| {
        GroupRequest::Describe(DescribeGroupsRequest { groups, ..request.clone() })
    });
    ask_coordinators::<DescribeGroupsRequest>(shard, io, call, asks, |_, replies| {
        let groups = replies_as!(Describe, replies).flat_map(|described| described.groups);
        DescribeGroupsResponse { groups: groups.collect(), ..Default::default() }
    });
    Ok(())
}

pub(crate) fn delete(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: DeleteGroupsRequest = frame.body()?;
    let asks = asks_by_coordinator(shard, call, frame, &request.groups_names, |groups_names| {
        GroupRequest::Delete(DeleteGroupsRequest { groups_names, ..Default::default() })
    });
    ask_coordinators::<DeleteGroupsRequest>(shard, io, call, asks, |_, replies| {
        let results = replies_as!(Delete, replies).flat_map(|deleted| deleted.results);
        DeleteGroupsResponse { results: results.collect(), ..Default::default() }
    });
    Ok(())
}

/// Asks coordinators, and answers with what `response` makes of the call's version and the
/// replies.
fn ask_coordinators<R: protocol::Request>(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    asks: Vec<Place<GroupAsk>>,
    response: impl FnOnce(i16, &mut dyn Iterator<Item = GroupReply>) -> R::Response + 'static,
) {
    let parts = asks.into_iter().map(|ask| ((), ask));
    spread(shard, io, call, parts, |shard, io, call, outcomes| {
        let version = shard.head(call).version;
        let response = response(version, &mut outcomes.map(|((), reply)| reply));
        shard.respond::<R>(io, call, &response);
    });
}

/// What to ask about several groups: those of one coordinator together.
fn asks_by_coordinator(
    shard: &Shard,
    call: Token,
    frame: &RequestFrame,
    groups: &[Str],
    request: impl Fn(Vec<Str>) -> GroupRequest,
) -> Vec<Place<GroupAsk>> {
    // Without the topic every group is refused: one partition is as good as another.
    let partitions = shard.offsets_partitions().max(1);
    let by_coordinator = group::by_partition(groups, partitions).into_iter();
    let asks = by_coordinator.map(|(partition, groups)| {
        ask_at(shard, call, frame, PartitionIndex(partition), request(groups))
    });
    asks.collect()
}

/// What to ask of whom about a group, or the refusal.
fn ask_of(
    shard: &Shard,
    call: Token,
    frame: &RequestFrame,
    group: &str,
    request: GroupRequest,
) -> Place<GroupAsk> {
    let partitions = shard.offsets_partitions().max(1);
    let partition = PartitionIndex(group::coordinator_partition(group, partitions));
    ask_at(shard, call, frame, partition, request)
}

fn ask_at(
    shard: &Shard,
    call: Token,
    frame: &RequestFrame,
    partition: PartitionIndex,
    request: GroupRequest,
) -> Place<GroupAsk> {
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
