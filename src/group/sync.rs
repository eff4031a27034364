//! SyncGroup and Heartbeat.

use std::collections::BTreeMap;

use base::{Instant, Token};
use bytes::Bytes;
use protocol::{ErrorCode, HeartbeatRequest, Str, SyncGroupRequest};

use crate::call::{GroupReply, sync_error};
use crate::group::{Group, GroupState};
use crate::machine::{GroupTurn, Groups, own};
use crate::record::of_group;

impl Groups {
    /// Answers a member that asks for its assignment, at once or when the leader gave it.
    pub(crate) fn sync(
        &mut self,
        turn: &mut GroupTurn<'_>,
        request: &SyncGroupRequest,
        ticket: Token,
    ) {
        let checked = self.groups.get(&request.group_id).map(|group| check_sync(group, request));
        let state = match checked.unwrap_or(Err(ErrorCode::UNKNOWN_MEMBER_ID)) {
            Ok(state) => state,
            Err(error) => {
                return turn.reply_at_once(ticket, GroupReply::Sync(sync_error(error)));
            }
        };
        let (id, member_id) = (own(&request.group_id), own(&request.member_id));
        let group = self.group_mut(&id);
        group.pending_sync.remove(&member_id);
        let timer = if group.pending_sync.is_empty() { group.sync_timer.take() } else { None };
        self.cancel(timer);
        if state == GroupState::Stable {
            let reply = self.assignment_of(&id, &member_id);
            return turn.reply(ticket, GroupReply::Sync(reply));
        }
        let group = self.group_mut(&id);
        let is_leader = group.is_leader(&member_id);
        let member = group.member_mut(&member_id).expect("the member was checked");
        if let Some(superseded) = member.awaiting_sync.replace(ticket) {
            let reply = sync_error(ErrorCode::REBALANCE_IN_PROGRESS);
            turn.reply_at_once(superseded, GroupReply::Sync(reply));
        }
        if is_leader {
            self.assign(turn, &id, request);
        }
    }

    /// The leader gave the assignment.
    fn assign(&mut self, turn: &mut GroupTurn<'_>, id: &Str, request: &SyncGroupRequest) {
        let given = request.assignments.iter();
        let given: BTreeMap<&str, &Bytes> =
            given.map(|part| (&*part.member_id, &part.assignment)).collect();
        let assignment = |member: &str| -> Bytes {
            given.get(member).map(|part| Bytes::copy_from_slice(part)).unwrap_or_default()
        };
        let group = self.group_mut(id);
        let record = of_group(id, group, |member, _| assignment(member));
        if turn.write(&[record]).is_err() {
            tracing::warn!(group = %id, "an assignment does not fit into a record");
            self.fail_sync(turn, id, ErrorCode::UNKNOWN_SERVER_ERROR);
            return self.prepare_rebalance(turn, id);
        }
        let members: Vec<Str> = group.members().keys().cloned().collect();
        for member_id in members {
            let assignment = assignment(&member_id);
            if let Some(member) = group.member_mut(&member_id) {
                member.assignment = assignment;
            }
        }
        group.transition(GroupState::Stable, turn.now.wall_ms);
        self.answer_sync(turn, id);
    }

    /// A member says that it lives; the error tells it what to do.
    pub(crate) fn heartbeat(
        &mut self,
        now: Instant,
        request: &HeartbeatRequest,
    ) -> Result<(), ErrorCode> {
        let group = self.groups.get(&request.group_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        group.check_member(&request.member_id, request.group_instance_id.as_ref())?;
        if request.generation_id != group.generation {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        let state = group.state;
        self.heard_of(now, &own(&request.group_id), &own(&request.member_id));
        match state {
            GroupState::Empty => Err(ErrorCode::UNKNOWN_MEMBER_ID),
            GroupState::PreparingRebalance => Err(ErrorCode::REBALANCE_IN_PROGRESS),
            GroupState::CompletingRebalance | GroupState::Stable => Ok(()),
        }
    }
}

/// The state of the group, if the member may sync in it.
fn check_sync(group: &Group, request: &SyncGroupRequest) -> Result<GroupState, ErrorCode> {
    if group.state == GroupState::Empty {
        return Err(ErrorCode::UNKNOWN_MEMBER_ID);
    }
    group.check_member(&request.member_id, request.group_instance_id.as_ref())?;
    if request.generation_id != group.generation {
        return Err(ErrorCode::ILLEGAL_GENERATION);
    }
    let differs =
        |given: &Option<Str>, own: &Option<Str>| given.is_some() && own.is_some() && given != own;
    if differs(&request.protocol_type, &group.protocol_type)
        || differs(&request.protocol_name, &group.protocol_name)
    {
        return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
    }
    if group.state == GroupState::PreparingRebalance {
        return Err(ErrorCode::REBALANCE_IN_PROGRESS);
    }
    Ok(group.state)
}
