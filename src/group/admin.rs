//! ListGroups, DescribeGroups and DeleteGroups, as far as this coordinator's groups go.

use std::collections::BTreeSet;

use protocol::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use protocol::list_groups_response::ListedGroup;
use protocol::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    ErrorCode, ListGroupsRequest, ListGroupsResponse, Str, static_str,
};

use crate::call::deleted;
use crate::group::{Group, GroupState, Member};
use crate::machine::{GroupTurn, Groups};
use crate::record::of_no_group;

/// The type of all groups that are here.
const CLASSIC: &str = "classic";
/// The state of a group that is not there.
const DEAD: &str = "Dead";
/// From this version on a group that is not there is an error.
const VERSION_NOT_FOUND: i16 = 6;

impl Groups {
    /// Names the groups that pass the filters; an empty filter lets all pass.
    pub(crate) fn list(&self, request: &ListGroupsRequest) -> ListGroupsResponse {
        let passes = |filter: &[Str], value: &str, trim: bool| {
            let is_it = |asked: &Str| {
                let asked = if trim { asked.trim() } else { asked };
                asked.eq_ignore_ascii_case(value)
            };
            filter.is_empty() || filter.iter().any(is_it)
        };
        let groups = self.groups.iter().filter(|(_, group)| {
            passes(&request.states_filter, group.state.name(), true)
                && passes(&request.types_filter, CLASSIC, false)
        });
        let groups = groups.map(|(id, group)| ListedGroup {
            group_id: id.clone(),
            protocol_type: group.protocol_type.clone().unwrap_or_default(),
            group_state: static_str(group.state.name()),
            group_type: static_str(CLASSIC),
            ..Default::default()
        });
        ListGroupsResponse { groups: groups.collect(), ..Default::default() }
    }

    /// Shows groups. What the caller may do with them is not filled in here.
    pub(crate) fn describe(
        &self,
        version: i16,
        request: &DescribeGroupsRequest,
    ) -> DescribeGroupsResponse {
        let groups = request.groups.iter().map(|id| match self.groups.get(id) {
            Some(group) => describe_group(id, group),
            None => self.describe_missing(id, version),
        });
        DescribeGroupsResponse { groups: groups.collect(), ..Default::default() }
    }

    fn describe_missing(&self, id: &Str, version: i16) -> DescribedGroup {
        let group_state = static_str(DEAD);
        let missing = DescribedGroup { group_id: id.clone(), group_state, ..Default::default() };
        if version < VERSION_NOT_FOUND {
            return missing;
        }
        let why = if self.unserved.has(id) { "is not a classic group" } else { "not found" };
        DescribedGroup {
            error_code: ErrorCode::GROUP_ID_NOT_FOUND,
            error_message: Some(Str::from(format!("Group {id} {why}."))),
            ..missing
        }
    }

    /// Removes groups without members, with their offsets. A name that is there twice is answered
    /// once.
    pub(crate) fn delete(
        &mut self,
        turn: &mut GroupTurn<'_>,
        request: &DeleteGroupsRequest,
    ) -> DeleteGroupsResponse {
        let names: BTreeSet<&Str> = request.groups_names.iter().collect();
        let mut results = Vec::new();
        for id in names {
            let outcome = self.delete_one(turn, id);
            results.push(deleted(id, outcome.err().unwrap_or(ErrorCode::NONE)));
        }
        DeleteGroupsResponse { results, ..Default::default() }
    }

    fn delete_one(&mut self, turn: &mut GroupTurn<'_>, id: &Str) -> Result<(), ErrorCode> {
        let group = self.groups.get(id).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?;
        if group.state != GroupState::Empty {
            return Err(ErrorCode::NON_EMPTY_GROUP);
        }
        for place in self.offsets.places(id) {
            self.remove_offset(turn, id, &place);
        }
        turn.write(&[of_no_group(id)]).map_err(|_| ErrorCode::UNKNOWN_SERVER_ERROR)?;
        self.drop_group(id);
        Ok(())
    }
}

/// What members said and were given is shown of a stable group only.
fn describe_group(id: &Str, group: &Group) -> DescribedGroup {
    let is_stable = group.state == GroupState::Stable;
    let protocol = group.protocol_name.clone().unwrap_or_default();
    let member = |(id, member): (&Str, &Member)| {
        let described = DescribedGroupMember {
            member_id: id.clone(),
            group_instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            ..Default::default()
        };
        if !is_stable {
            return described;
        }
        DescribedGroupMember {
            member_metadata: member.metadata(&protocol),
            member_assignment: member.assignment.clone(),
            ..described
        }
    };
    DescribedGroup {
        group_id: id.clone(),
        group_state: static_str(group.state.name()),
        protocol_type: group.protocol_type.clone().unwrap_or_default(),
        protocol_data: if is_stable { protocol.clone() } else { Str::new() },
        members: group.members().iter().map(member).collect(),
        ..Default::default()
    }
}
