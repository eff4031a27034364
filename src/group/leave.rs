//! LeaveGroup.

use protocol::leave_group_request::MemberIdentity;
use protocol::leave_group_response::MemberResponse;
use protocol::{ErrorCode, LeaveGroupRequest, LeaveGroupResponse, Str};

use crate::call::LEAVE_VERSION_MEMBERS;
use crate::group::GroupState;
use crate::machine::{GroupTurn, Groups, own};

impl Groups {
    /// Removes members, each with an answer of its own. The error is about the group.
    pub(crate) fn leave(
        &mut self,
        turn: &mut GroupTurn<'_>,
        version: i16,
        request: &LeaveGroupRequest,
    ) -> Result<LeaveGroupResponse, ErrorCode> {
        if !self.groups.contains_key(&request.group_id) {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        let id = own(&request.group_id);
        let single =
            [MemberIdentity { member_id: request.member_id.clone(), ..Default::default() }];
        let leaving = if version < LEAVE_VERSION_MEMBERS { &single[..] } else { &request.members };
        let mut members = Vec::new();
        for member in leaving {
            let outcome = self.remove_one(turn, &id, member);
            members.push(MemberResponse {
                member_id: member.member_id.clone(),
                group_instance_id: member.group_instance_id.clone(),
                error_code: outcome.err().unwrap_or(ErrorCode::NONE),
                ..Default::default()
            });
        }
        if members.iter().any(|member| !member.error_code.is_error()) {
            match self.group_mut(&id).state {
                GroupState::Empty => {}
                GroupState::PreparingRebalance => self.maybe_complete_join(turn, &id),
                GroupState::Stable | GroupState::CompletingRebalance => {
                    self.prepare_rebalance(turn, &id);
                }
            }
        }
        if version >= LEAVE_VERSION_MEMBERS {
            return Ok(LeaveGroupResponse { members, ..Default::default() });
        }
        let error_code = members.first().map_or(ErrorCode::NONE, |member| member.error_code);
        Ok(LeaveGroupResponse { error_code, ..Default::default() })
    }

    fn remove_one(
        &mut self,
        turn: &mut GroupTurn<'_>,
        id: &Str,
        leaving: &MemberIdentity,
    ) -> Result<(), ErrorCode> {
        let group = self.group_mut(id);
        let instance_id = leaving.group_instance_id.as_ref();
        let member_id = if leaving.member_id.is_empty() {
            let current = instance_id.and_then(|instance_id| group.static_member(instance_id));
            current.cloned().ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?
        } else {
            if !group.pending.contains_key(&leaving.member_id) {
                group.check_member(&leaving.member_id, instance_id)?;
            }
            leaving.member_id.clone()
        };
        self.take_out(turn, id, &member_id, ErrorCode::UNKNOWN_MEMBER_ID);
        Ok(())
    }
}
