//! What a coordinator is asked and what it answers, API by API.

use coordinator::Refusal;
use protocol::delete_groups_response::DeletableGroupResult;
use protocol::describe_groups_response::DescribedGroup;
use protocol::leave_group_response::MemberResponse;
use protocol::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use protocol::offset_fetch_request::OffsetFetchRequestGroup;
use protocol::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use protocol::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    ErrorCode, HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, LeaveGroupResponse, ListGroupsRequest, ListGroupsResponse,
    OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    SyncGroupRequest, SyncGroupResponse,
};
use protocol::{Str, static_str};

/// From this version on LeaveGroup names several members, each with an answer of its own.
pub(crate) const LEAVE_VERSION_MEMBERS: i16 = 3;

/// A request of a client to a coordinator.
#[derive(Clone, Debug)]
pub struct GroupCall {
    /// The client's id, empty if it gave none.
    pub client_id: Str,
    /// The client's address as Java prints it: `/127.0.0.1`.
    pub client_host: Str,
    /// The version of the API.
    pub version: i16,
    /// What is asked.
    pub request: GroupRequest,
}

/// What is asked.
#[derive(Clone, Debug)]
pub enum GroupRequest {
    /// Become or stay a member.
    Join(JoinGroupRequest),
    /// Give (the leader) and take the assignment.
    Sync(SyncGroupRequest),
    /// Stay alive.
    Heartbeat(HeartbeatRequest),
    /// Remove members.
    Leave(LeaveGroupRequest),
    /// Keep offsets.
    Commit(OffsetCommitRequest),
    /// Read the offsets of one group (OffsetFetch asks for several).
    Fetch {
        /// The group and the partitions; all if `topics` is none.
        group: OffsetFetchRequestGroup,
        /// Whether offsets of open transactions make a partition unstable.
        require_stable: bool,
    },
    /// Remove offsets.
    DeleteOffsets(OffsetDeleteRequest),
    /// Name the groups.
    List(ListGroupsRequest),
    /// Show groups with their members.
    Describe(DescribeGroupsRequest),
    /// Remove groups.
    Delete(DeleteGroupsRequest),
}

/// What is answered, in the shape that the version of the request has.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupReply {
    /// To [`GroupRequest::Join`].
    Join(JoinGroupResponse),
    /// To [`GroupRequest::Sync`].
    Sync(SyncGroupResponse),
    /// To [`GroupRequest::Heartbeat`].
    Heartbeat(HeartbeatResponse),
    /// To [`GroupRequest::Leave`].
    Leave(LeaveGroupResponse),
    /// To [`GroupRequest::Commit`].
    Commit(OffsetCommitResponse),
    /// To [`GroupRequest::Fetch`].
    Fetch(OffsetFetchResponseGroup),
    /// To [`GroupRequest::DeleteOffsets`].
    DeleteOffsets(OffsetDeleteResponse),
    /// To [`GroupRequest::List`].
    List(ListGroupsResponse),
    /// To [`GroupRequest::Describe`].
    Describe(DescribeGroupsResponse),
    /// To [`GroupRequest::Delete`].
    Delete(DeleteGroupsResponse),
}

impl GroupCall {
    /// The answer that says `error` to the whole request.
    pub fn refuse(&self, error: ErrorCode) -> GroupReply {
        match &self.request {
            GroupRequest::Join(request) => {
                GroupReply::Join(join_error(request.member_id.clone(), error))
            }
            GroupRequest::Sync(_) => GroupReply::Sync(sync_error(error)),
            GroupRequest::Heartbeat(_) => GroupReply::Heartbeat(heartbeat(error)),
            GroupRequest::Leave(request) => {
                GroupReply::Leave(refuse_leave(request, self.version, error))
            }
            GroupRequest::Commit(request) => GroupReply::Commit(refuse_commit(request, error)),
            GroupRequest::Fetch { group, .. } => {
                GroupReply::Fetch(refuse_fetch(group, self.version, error))
            }
            GroupRequest::DeleteOffsets(_) => GroupReply::DeleteOffsets(OffsetDeleteResponse {
                error_code: error,
                ..Default::default()
            }),
            GroupRequest::List(_) => {
                GroupReply::List(ListGroupsResponse { error_code: error, ..Default::default() })
            }
            GroupRequest::Describe(request) => {
                let describe = |group_id: &Str| DescribedGroup {
                    group_id: group_id.clone(),
                    error_code: error,
                    ..Default::default()
                };
                let groups = request.groups.iter().map(describe).collect();
                GroupReply::Describe(DescribeGroupsResponse { groups, ..Default::default() })
            }
            GroupRequest::Delete(request) => {
                let results = request.groups_names.iter();
                let results = results.map(|group| deleted(group, error)).collect();
                GroupReply::Delete(DeleteGroupsResponse { results, ..Default::default() })
            }
        }
    }

    /// The answer to a call that is not handled.
    pub(crate) fn refused(&self, refusal: Refusal) -> GroupReply {
        let is_heartbeat = matches!(self.request, GroupRequest::Heartbeat(_));
        let is_fetch = matches!(self.request, GroupRequest::Fetch { .. });
        match refusal {
            // A member that beats while its coordinator loads need not join anew.
            Refusal::Loading if is_heartbeat => self.refuse(ErrorCode::NONE),
            refusal => self.refuse(code_of(refusal, is_fetch)),
        }
    }
}

impl GroupReply {
    /// The same answer with an error in place of its success, since its records were not written.
    pub(crate) fn retracted(self, refusal: Refusal) -> GroupReply {
        let is_fetch = matches!(self, GroupReply::Fetch(_));
        let error = code_of(refusal, is_fetch);
        match self {
            GroupReply::Join(_) => GroupReply::Join(join_error(Str::new(), error)),
            GroupReply::Sync(_) => GroupReply::Sync(sync_error(error)),
            GroupReply::Heartbeat(_) => GroupReply::Heartbeat(heartbeat(error)),
            GroupReply::Leave(_) => {
                GroupReply::Leave(LeaveGroupResponse { error_code: error, ..Default::default() })
            }
            GroupReply::Commit(mut reply) => {
                let topics = reply.topics.iter_mut();
                topics.flat_map(|topic| &mut topic.partitions).for_each(|partition| {
                    if !partition.error_code.is_error() {
                        partition.error_code = error;
                    }
                });
                GroupReply::Commit(reply)
            }
            GroupReply::Fetch(reply) => GroupReply::Fetch(OffsetFetchResponseGroup {
                group_id: reply.group_id,
                error_code: error,
                ..Default::default()
            }),
            GroupReply::DeleteOffsets(_) => GroupReply::DeleteOffsets(OffsetDeleteResponse {
                error_code: error,
                ..Default::default()
            }),
            GroupReply::List(_) => {
                GroupReply::List(ListGroupsResponse { error_code: error, ..Default::default() })
            }
            GroupReply::Describe(mut reply) => {
                for group in &mut reply.groups {
                    let group_id = std::mem::take(&mut group.group_id);
                    *group = DescribedGroup { group_id, error_code: error, ..Default::default() };
                }
                GroupReply::Describe(reply)
            }
            GroupReply::Delete(mut reply) => {
                for result in &mut reply.results {
                    if !result.error_code.is_error() {
                        result.error_code = error;
                    }
                }
                GroupReply::Delete(reply)
            }
        }
    }
}

/// What a client is told for a failure of the log (Kafka's
/// `CoordinatorOperationExceptionHelper`). Clients that fetch offsets know fewer codes.
fn code_of(refusal: Refusal, is_fetch: bool) -> ErrorCode {
    let code = match refusal {
        Refusal::Loading => return ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        Refusal::NotCoordinator => return ErrorCode::NOT_COORDINATOR,
        Refusal::AppendFailed(code) => ErrorCode(code),
    };
    match code {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        | ErrorCode::NOT_ENOUGH_REPLICAS
        | ErrorCode::REQUEST_TIMED_OUT
            if is_fetch =>
        {
            ErrorCode::NOT_COORDINATOR
        }
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        | ErrorCode::NOT_ENOUGH_REPLICAS
        | ErrorCode::REQUEST_TIMED_OUT => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::KAFKA_STORAGE_ERROR => {
            ErrorCode::NOT_COORDINATOR
        }
        ErrorCode::MESSAGE_TOO_LARGE
        | ErrorCode::RECORD_LIST_TOO_LARGE
        | ErrorCode::INVALID_FETCH_SIZE => ErrorCode::UNKNOWN_SERVER_ERROR,
        other => other,
    }
}

/// A JoinGroup answer that says only an error.
pub(crate) fn join_error(member_id: Str, error: ErrorCode) -> JoinGroupResponse {
    JoinGroupResponse { member_id, error_code: error, ..Default::default() }
}

/// Before version 7 the name may not be null.
pub(crate) fn protocol_name_for(version: i16, name: Option<Str>) -> Option<Str> {
    if version < 7 { Some(name.unwrap_or_default()) } else { name }
}

/// A SyncGroup answer that says only an error.
pub(crate) fn sync_error(error: ErrorCode) -> SyncGroupResponse {
    SyncGroupResponse { error_code: error, ..Default::default() }
}

pub(crate) fn heartbeat(error: ErrorCode) -> HeartbeatResponse {
    HeartbeatResponse { error_code: error, ..Default::default() }
}

/// An unknown member is told member by member (from version 3 on).
fn refuse_leave(request: &LeaveGroupRequest, version: i16, error: ErrorCode) -> LeaveGroupResponse {
    if error != ErrorCode::UNKNOWN_MEMBER_ID || version < LEAVE_VERSION_MEMBERS {
        return LeaveGroupResponse { error_code: error, ..Default::default() };
    }
    let members = request.members.iter().map(|member| MemberResponse {
        member_id: member.member_id.clone(),
        group_instance_id: member.group_instance_id.clone(),
        error_code: error,
        ..Default::default()
    });
    LeaveGroupResponse { members: members.collect(), ..Default::default() }
}

fn refuse_commit(request: &OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse {
    let topics = request.topics.iter().map(|topic| OffsetCommitResponseTopic {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| committed(partition.partition_index, error))
            .collect(),
        ..Default::default()
    });
    OffsetCommitResponse { topics: topics.collect(), ..Default::default() }
}

pub(crate) fn committed(partition: i32, error: ErrorCode) -> OffsetCommitResponsePartition {
    OffsetCommitResponsePartition {
        partition_index: partition,
        error_code: error,
        ..Default::default()
    }
}

/// Before version 2 there is no error of the whole, so every partition says it.
fn refuse_fetch(
    group: &OffsetFetchRequestGroup,
    version: i16,
    error: ErrorCode,
) -> OffsetFetchResponseGroup {
    let group_id = group.group_id.clone();
    if version >= 2 {
        return OffsetFetchResponseGroup { group_id, error_code: error, ..Default::default() };
    }
    let topics = group.topics.iter().flatten().map(|topic| OffsetFetchResponseTopics {
        name: topic.name.clone(),
        partitions: topic
            .partition_indexes
            .iter()
            .map(|partition| no_offset(*partition, error))
            .collect(),
        ..Default::default()
    });
    OffsetFetchResponseGroup { group_id, topics: topics.collect(), ..Default::default() }
}

/// A partition without an offset.
pub(crate) fn no_offset(partition: i32, error: ErrorCode) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        partition_index: partition,
        committed_offset: -1,
        committed_leader_epoch: -1,
        metadata: Some(static_str("")),
        error_code: error,
        ..Default::default()
    }
}

pub(crate) fn deleted(group: &Str, error: ErrorCode) -> DeletableGroupResult {
    DeletableGroupResult { group_id: group.clone(), error_code: error, ..Default::default() }
}
