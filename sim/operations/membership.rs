//! What a member asks of its coordinator to be and stay a member: FindCoordinator, JoinGroup,
//! SyncGroup, Heartbeat and LeaveGroup.

use base::Random;
use bytes::Bytes;
use protocol::join_group_request::JoinGroupRequestProtocol;
use protocol::leave_group_request::MemberIdentity;
use protocol::sync_group_request::SyncGroupRequestAssignment;
use protocol::{
    ErrorCode, FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, Str,
    SyncGroupRequest,
};

use super::{Operation, frame, reply, tolerate, version};
use crate::history::{Boot, History, Life, Place, Violation, ensure};
use crate::member::{Member, Stage};

const PROTOCOL_TYPE: &str = "consumer";
const PROTOCOL: &str = "roundrobin";
/// The first version of FindCoordinator that asks about several groups.
const FIND_MANY_VERSION: i16 = 4;
/// The first version of LeaveGroup that names several members.
const LEAVE_MANY_VERSION: i16 = 3;
/// The first version of SyncGroup that repeats what was agreed on.
const PROTOCOL_VERSION: i16 = 5;

/// One request.
#[derive(Clone, Debug)]
pub struct Membership {
    group: usize,
    version: i16,
    life: Life,
    boot: Boot,
    step: Step,
}

#[derive(Clone, Debug)]
enum Step {
    Find(FindCoordinatorRequest),
    Join(JoinGroupRequest),
    Sync(SyncGroupRequest),
    Heartbeat(HeartbeatRequest),
    Leave(LeaveGroupRequest),
}

impl From<Membership> for Operation {
    fn from(membership: Membership) -> Self {
        Operation::Membership(membership)
    }
}

impl Membership {
    fn new(history: &History, group: usize, version: i16, step: Step) -> Self {
        Self { group, version, life: history.life, boot: history.boot, step }
    }

    /// Asks for the coordinator of a group.
    pub fn find(random: &mut Random, history: &History, group: usize) -> Self {
        let version = version(random, 0..=6);
        let name = Str::from(history.groups[group].name.as_str());
        let mut request = FindCoordinatorRequest::default();
        match version {
            FIND_MANY_VERSION.. => request.coordinator_keys = vec![name],
            _ => request.key = name,
        }
        Self::new(history, group, version, Step::Find(request))
    }

    /// Joins a group, or its next generation.
    pub fn join(random: &mut Random, history: &History, member: &Member) -> Self {
        let protocol = JoinGroupRequestProtocol { name: PROTOCOL.into(), ..Default::default() };
        let request = JoinGroupRequest {
            group_id: history.groups[member.group].name.as_str().into(),
            session_timeout_ms: 100 + random.below(400) as i32,
            rebalance_timeout_ms: 100 + random.below(400) as i32,
            member_id: member.id.clone(),
            protocol_type: PROTOCOL_TYPE.into(),
            protocols: vec![protocol],
            ..Default::default()
        };
        Self::new(history, member.group, version(random, 0..=9), Step::Join(request))
    }

    /// Asks for the assignment of a generation, and brings those of all if it is the leader's.
    pub fn sync(
        random: &mut Random,
        history: &History,
        member: &Member,
        plan: &[(Str, Vec<Place>)],
    ) -> Self {
        let assignments = plan.iter().map(|(member_id, places)| SyncGroupRequestAssignment {
            member_id: member_id.clone(),
            assignment: text_of(places).into(),
            ..Default::default()
        });
        let version = version(random, 0..=5);
        let agreed = |text: &str| (version >= PROTOCOL_VERSION).then(|| Str::from(text));
        let request = SyncGroupRequest {
            group_id: history.groups[member.group].name.as_str().into(),
            generation_id: member.generation,
            member_id: member.id.clone(),
            protocol_type: agreed(PROTOCOL_TYPE),
            protocol_name: agreed(PROTOCOL),
            assignments: assignments.collect(),
            ..Default::default()
        };
        Self::new(history, member.group, version, Step::Sync(request))
    }

    /// Says that the member is alive.
    pub fn heartbeat(random: &mut Random, history: &History, member: &Member) -> Self {
        let request = HeartbeatRequest {
            group_id: history.groups[member.group].name.as_str().into(),
            generation_id: member.generation,
            member_id: member.id.clone(),
            ..Default::default()
        };
        Self::new(history, member.group, version(random, 0..=4), Step::Heartbeat(request))
    }

    /// Leaves.
    pub fn leave(random: &mut Random, history: &History, member: &Member) -> Self {
        let version = version(random, 0..=5);
        let group_id = history.groups[member.group].name.as_str().into();
        let mut request = LeaveGroupRequest { group_id, ..Default::default() };
        match version {
            LEAVE_MANY_VERSION.. => {
                let member_id = member.id.clone();
                request.members = vec![MemberIdentity { member_id, ..Default::default() }];
            }
            _ => request.member_id = member.id.clone(),
        }
        Self::new(history, member.group, version, Step::Leave(request))
    }

    /// The frame of the request.
    pub fn build(&self, correlation_id: i32) -> Bytes {
        match &self.step {
            Step::Find(request) => frame(correlation_id, self.version, request),
            Step::Join(request) => frame(correlation_id, self.version, request),
            Step::Sync(request) => frame(correlation_id, self.version, request),
            Step::Heartbeat(request) => frame(correlation_id, self.version, request),
            Step::Leave(request) => frame(correlation_id, self.version, request),
        }
    }

    /// Judges the reply, and takes the member on. An auditor is none.
    pub fn classify(
        &self,
        bytes: &Bytes,
        history: &mut History,
        member: Option<&mut Member>,
    ) -> Result<(), Violation> {
        let mut nobody = Member::new(self.group);
        let member = member.unwrap_or(&mut nobody);
        match &self.step {
            Step::Find(_) => self.found(bytes, history, member),
            Step::Join(_) => self.joined(bytes, history, member),
            Step::Sync(_) => self.synced(bytes, history, member),
            Step::Heartbeat(_) => {
                let response = reply::<HeartbeatRequest>(bytes, self.version)?;
                heed(history, member, "Heartbeat", response.error_code)
            }
            Step::Leave(_) => {
                let response = reply::<LeaveGroupRequest>(bytes, self.version)?;
                let code = response.members.first().map_or(ErrorCode::NONE, |one| one.error_code);
                let code = if response.error_code.is_error() { response.error_code } else { code };
                heed(history, member, "LeaveGroup", code)?;
                if !code.is_error() {
                    member.begins_anew();
                }
                Ok(())
            }
        }
    }

    fn found(
        &self,
        bytes: &Bytes,
        history: &mut History,
        member: &mut Member,
    ) -> Result<(), Violation> {
        let response = reply::<FindCoordinatorRequest>(bytes, self.version)?;
        let code = response.coordinators.first().map_or(response.error_code, |one| one.error_code);
        heed(history, member, "FindCoordinator", code)?;
        if !code.is_error() {
            member.stage = Stage::Joining;
        }
        Ok(())
    }

    fn joined(
        &self,
        bytes: &Bytes,
        history: &mut History,
        member: &mut Member,
    ) -> Result<(), Violation> {
        let response = reply::<JoinGroupRequest>(bytes, self.version)?;
        if response.error_code == ErrorCode::MEMBER_ID_REQUIRED {
            member.id = response.member_id;
            return ensure(!member.id.is_empty(), || "a member was given no id".to_owned());
        }
        if response.error_code.is_error() {
            return heed(history, member, "JoinGroup", response.error_code);
        }
        let group = &mut history.groups[self.group];
        if self.boot == history.boot && !group.may_forget {
            let generations = &mut group.generations;
            let is_new = generations.led_by(self.boot, response.generation_id, &response.leader)?;
            history.counts.generations += u64::from(is_new);
        }
        member.id = response.member_id;
        member.generation = response.generation_id;
        let leads = member.id == response.leader;
        let members: Vec<Str> = response.members.into_iter().map(|one| one.member_id).collect();
        ensure(leads == members.contains(&member.id), || {
            format!("{} of {members:?} was told that {} leads", member.id, response.leader)
        })?;
        let plan = if leads { member.plan(history, &members) } else { Vec::new() };
        member.stage = Stage::Syncing(plan);
        Ok(())
    }

    fn synced(
        &self,
        bytes: &Bytes,
        history: &mut History,
        member: &mut Member,
    ) -> Result<(), Violation> {
        let response = reply::<SyncGroupRequest>(bytes, self.version)?;
        if response.error_code.is_error() {
            return heed(history, member, "SyncGroup", response.error_code);
        }
        let places = places_of(&response.assignment)?;
        if self.life == history.life {
            let generations = &mut history.groups[self.group].generations;
            for &place in &places {
                generations.assigned(self.life, member.generation, place, &member.id)?;
            }
        }
        (member.assigned, member.stage) = (places, Stage::Stable);
        Ok(())
    }
}

/// What a member does about an error; other errors pass, or are none that it may get.
pub(super) fn heed(
    history: &mut History,
    member: &mut Member,
    what: &str,
    code: ErrorCode,
) -> Result<(), Violation> {
    match code {
        ErrorCode::NONE => {}
        ErrorCode::REBALANCE_IN_PROGRESS => member.stage = Stage::Joining,
        // A group that was lost with the power is not known at all.
        ErrorCode::ILLEGAL_GENERATION
        | ErrorCode::UNKNOWN_MEMBER_ID
        | ErrorCode::GROUP_ID_NOT_FOUND => member.begins_anew(),
        code => tolerate(history, what, code)?,
    }
    Ok(())
}

fn text_of(places: &[Place]) -> String {
    let text = places.iter().map(|(topic, partition)| format!("{topic}:{partition}"));
    text.collect::<Vec<_>>().join(",")
}

fn places_of(text: &[u8]) -> Result<Vec<Place>, Violation> {
    let text = String::from_utf8_lossy(text);
    let place = |one: &str| {
        let (topic, partition) = one.split_once(':')?;
        Some((topic.parse().ok()?, partition.parse().ok()?))
    };
    let places = text.split(',').filter(|one| !one.is_empty()).map(place);
    places
        .collect::<Option<Vec<Place>>>()
        .ok_or_else(|| Violation(format!("nobody made the assignment '{text}'")))
}
