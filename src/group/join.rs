//! JoinGroup.

use std::collections::BTreeSet;

use base::Token;
use bytes::Bytes;
use protocol::{ErrorCode, JoinGroupRequest, JoinGroupResponse, Str};

use crate::call::{GroupCall, GroupReply, GroupRequest, join_error, protocol_name_for, sync_error};
use crate::config::GroupConfig;
use crate::group::{Group, GroupState, Member};
use crate::machine::{GroupTurn, Groups, own};
use crate::record::{TEXT_BYTES_MAX, of_group, of_new_group};

/// How long a member that is new may wait for its first generation (`ClassicGroup`'s limit).
pub(crate) const NEW_MEMBER_TIMEOUT_MS: i32 = 300_000;
/// What an id has behind the client's or the instance's: a dash and a UUID.
const ID_SUFFIX_BYTES: usize = 37;
/// From this version on a member has to join with an id that it was given.
const VERSION_ID_REQUIRED: i16 = 4;
/// From this version on a leader can be told that its assignment is not needed.
const VERSION_SKIP_ASSIGNMENT: i16 = 9;

/// A request to join with everything that stays of it, in memory of its own.
#[derive(Debug)]
struct Join {
    ticket: Token,
    version: i16,
    group_id: Str,
    member_id: Str,
    protocol_type: Str,
    as_member: Member,
}

impl Join {
    fn reply(&self, turn: &mut GroupTurn<'_>, reply: JoinGroupResponse) {
        turn.reply_at_once(self.ticket, GroupReply::Join(reply));
    }

    fn error(&self, turn: &mut GroupTurn<'_>, member_id: Str, error: ErrorCode) {
        self.reply(turn, join_error(member_id, error));
    }

    fn instance_id(&self) -> Option<&Str> {
        self.as_member.instance_id.as_ref()
    }
}

impl Groups {
    /// Handles the call, which is a join.
    pub(crate) fn join(&mut self, turn: &mut GroupTurn<'_>, call: GroupCall, ticket: Token) {
        let GroupRequest::Join(request) = &call.request else { unreachable!("it is a join") };
        if let Err(error) = check(&self.config, &call, request) {
            return turn.reply_at_once(ticket, call.refuse(error));
        }
        let join = read(&call, request, ticket);
        if self.unserved.has(&join.group_id) {
            return join.error(turn, Str::new(), ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        let group_id = join.group_id.clone();
        let is_new = !self.groups.contains_key(&group_id);
        if is_new {
            if !join.member_id.is_empty() {
                let id = join.member_id.clone();
                return join.error(turn, id, ErrorCode::UNKNOWN_MEMBER_ID);
            }
            self.groups.insert(group_id.clone(), Group::new(Some(turn.now.wall_ms)));
        }
        self.admit(turn, join);
        if is_new {
            let record = of_new_group(&group_id, self.group_mut(&group_id));
            if turn.write(&[record]).is_err() {
                tracing::warn!(group = %group_id, "a group does not fit into a record");
            }
        }
    }

    fn admit(&mut self, turn: &mut GroupTurn<'_>, join: Join) {
        let size_max = self.config.group_size_max;
        let group = self.group_mut(&join.group_id);
        let id = join.member_id.clone();
        if !has_room(group, &id, size_max) {
            self.take_out(turn, &join.group_id, &id, ErrorCode::GROUP_MAX_SIZE_REACHED);
            return join.error(turn, Str::new(), ErrorCode::GROUP_MAX_SIZE_REACHED);
        }
        if !group.supports(&join.protocol_type, &join.as_member.protocols) {
            return join.error(turn, id, ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        if id.is_empty() {
            return self.admit_new(turn, join);
        }
        if group.pending.contains_key(&id) {
            if join.instance_id().is_some() {
                // Ids are given to members without an instance id only. Kafka calls it a bug.
                return join.error(turn, id, ErrorCode::UNKNOWN_SERVER_ERROR);
            }
            return self.add_member(turn, join, id);
        }
        match group.check_member(&id, join.instance_id()) {
            Ok(()) => self.rejoin(turn, join),
            Err(error) => join.error(turn, id, error),
        }
    }

    /// Admits someone without an id.
    fn admit_new(&mut self, turn: &mut GroupTurn<'_>, join: Join) {
        let uuid = random_uuid(&mut self.random);
        let name = join.instance_id().unwrap_or(&join.as_member.client_id);
        let id = Str::from(format!("{name}-{uuid}"));
        let group = self.group_mut(&join.group_id);
        if let Some(instance_id) = join.instance_id() {
            return match group.static_member(instance_id).cloned() {
                Some(old) => self.replace_static(turn, join, old, id),
                None => self.add_member(turn, join, id),
            };
        }
        if join.version < VERSION_ID_REQUIRED {
            return self.add_member(turn, join, id);
        }
        let timeout_ms = join.as_member.session_timeout_ms;
        self.expect_member(turn.now.mono, &join.group_id, &id, timeout_ms);
        join.error(turn, id, ErrorCode::MEMBER_ID_REQUIRED);
    }

    fn add_member(&mut self, turn: &mut GroupTurn<'_>, join: Join, id: Str) {
        let Join { group_id, protocol_type, as_member, .. } = join;
        let group = self.group_mut(&group_id);
        let pending = group.pending.remove(&id);
        if group.state == GroupState::PreparingRebalance && group.is_initial {
            group.new_member_added = true;
        }
        group.add(id.clone(), &protocol_type, as_member);
        self.cancel(pending);
        self.watch_member(turn.now.mono, &group_id, &id, NEW_MEMBER_TIMEOUT_MS);
        self.rebalance_or_complete(turn, &group_id);
    }

    /// A member joins again.
    fn rejoin(&mut self, turn: &mut GroupTurn<'_>, join: Join) {
        let id = &join.member_id;
        let group = self.group_mut(&join.group_id);
        let is_leader = group.is_leader(id);
        let is_same = group.member(id).is_some_and(|own| own.protocols == join.as_member.protocols);
        match group.state {
            GroupState::Empty => join.error(turn, id.clone(), ErrorCode::UNKNOWN_MEMBER_ID),
            // It did not see the answer that it was sent.
            GroupState::CompletingRebalance if is_same => {
                let reply = joined(group, id, join.version, is_leader);
                join.reply(turn, reply);
            }
            GroupState::Stable if is_same && !is_leader => {
                let reply = joined(group, id, join.version, false);
                turn.reply(join.ticket, GroupReply::Join(reply));
            }
            _ => {
                let (group_id, id) = (join.group_id.clone(), id.clone());
                self.update_member(turn, join, &id);
                self.rebalance_or_complete(turn, &group_id);
            }
        }
    }

    /// The member waits for the next generation with what it says now.
    fn update_member(&mut self, turn: &mut GroupTurn<'_>, join: Join, id: &Str) {
        let group = self.group_mut(&join.group_id);
        if let Some((ticket, _)) = group.take_join(id) {
            // Who asked first is gone or asked twice. Kafka leaves it without an answer.
            let reply = join_error(id.clone(), ErrorCode::REBALANCE_IN_PROGRESS);
            turn.reply_at_once(ticket, GroupReply::Join(reply));
        }
        let new = join.as_member;
        group.update(id, |member| {
            member.protocols = new.protocols;
            member.rebalance_timeout_ms = new.rebalance_timeout_ms;
            member.session_timeout_ms = new.session_timeout_ms;
            member.awaiting_join = new.awaiting_join;
        });
    }

    /// A static member came back without its id: it takes its own place, and whoever is there is
    /// fenced off.
    fn replace_static(&mut self, turn: &mut GroupTurn<'_>, join: Join, old: Str, id: Str) {
        let group_id = join.group_id.clone();
        let group = self.group_mut(&group_id);
        let former_leader = group.leader.clone();
        let fenced = ErrorCode::FENCED_INSTANCE_ID;
        if let Some((ticket, _)) = group.take_join(&old) {
            let reply = join_error(old.clone(), fenced);
            turn.reply_at_once(ticket, GroupReply::Join(reply));
        }
        let former = group.member_mut(&old).expect("the table of instances names members");
        let timer = former.session_timer.take();
        if let Some(ticket) = former.awaiting_sync.take() {
            turn.reply_at_once(ticket, GroupReply::Sync(sync_error(fenced)));
        }
        let instance_id = join.instance_id().cloned().expect("a static member has an instance id");
        group.replace_static(&instance_id, &old, &id);
        let (ticket, version, state) = (join.ticket, join.version, group.state);
        self.cancel(timer);
        self.update_member(turn, join, &id);
        self.heard_of(turn.now.mono, &group_id, &id);
        let group = self.group_mut(&group_id);
        match state {
            GroupState::Stable if group.select_protocol() == group.protocol_name => {
                group.take_join(&id);
                let record = of_group(&group_id, group, |_, member| member.assignment.clone());
                let reply = match turn.write(&[record]) {
                    Ok(()) => replaced(group, &id, version, former_leader),
                    Err(_) => join_error(Str::new(), ErrorCode::UNKNOWN_SERVER_ERROR),
                };
                turn.reply(ticket, GroupReply::Join(reply));
            }
            GroupState::Stable | GroupState::CompletingRebalance => {
                self.prepare_rebalance(turn, &group_id);
            }
            GroupState::PreparingRebalance => self.maybe_complete_join(turn, &group_id),
            GroupState::Empty => unreachable!("an empty group has no static member"),
        }
    }
}

/// The answer to a static member that came back to a generation that goes on. Old clients that led
/// are told of the former leader, so that they don't assign anew.
fn replaced(group: &Group, id: &Str, version: i16, leader: Option<Str>) -> JoinGroupResponse {
    let is_leader = group.is_leader(id);
    if version >= VERSION_SKIP_ASSIGNMENT {
        let reply = joined(group, id, version, is_leader);
        return JoinGroupResponse { skip_assignment: is_leader, ..reply };
    }
    let reply = joined(group, id, version, false);
    JoinGroupResponse { leader: leader.unwrap_or_default(), ..reply }
}

/// The answer to a member of the current generation.
pub(crate) fn joined(
    group: &Group,
    id: &Str,
    version: i16,
    with_members: bool,
) -> JoinGroupResponse {
    JoinGroupResponse {
        generation_id: group.generation,
        protocol_type: group.protocol_type.clone(),
        protocol_name: protocol_name_for(version, group.protocol_name.clone()),
        leader: group.leader.clone().unwrap_or_default(),
        member_id: id.clone(),
        members: if with_members { group.join_members() } else { Vec::new() },
        ..Default::default()
    }
}

fn has_room(group: &Group, id: &str, size_max: usize) -> bool {
    let member = group.member(id);
    match group.state {
        GroupState::Empty => true,
        GroupState::PreparingRebalance => {
            member.is_some_and(|member| member.awaiting_join.is_some()) || group.joined() < size_max
        }
        GroupState::CompletingRebalance | GroupState::Stable => {
            member.is_some() || group.members().len() < size_max
        }
    }
}

fn check(
    config: &GroupConfig,
    call: &GroupCall,
    request: &JoinGroupRequest,
) -> Result<(), ErrorCode> {
    let allowed = config.session_timeout_ms_min..=config.session_timeout_ms_max;
    if !allowed.contains(&request.session_timeout_ms) {
        return Err(ErrorCode::INVALID_SESSION_TIMEOUT);
    }
    let names = request.protocols.iter().map(|protocol| &protocol.name);
    let instance = request.group_instance_id.iter();
    let texts =
        names.chain(instance).chain([&request.protocol_type, &call.client_id, &call.client_host]);
    // A record holds them, and an id made of them.
    let fits = |text: &Str| text.len() + ID_SUFFIX_BYTES <= TEXT_BYTES_MAX;
    if texts.into_iter().all(fits) { Ok(()) } else { Err(ErrorCode::INVALID_REQUEST) }
}

fn read(call: &GroupCall, request: &JoinGroupRequest, ticket: Token) -> Join {
    let mut protocols: Vec<(Str, Bytes)> = Vec::new();
    let mut names = BTreeSet::new();
    for protocol in &request.protocols {
        if names.insert(&protocol.name) {
            let metadata = Bytes::copy_from_slice(&protocol.metadata);
            protocols.push((own(&protocol.name), metadata));
        }
    }
    let rebalance_timeout_ms = match request.rebalance_timeout_ms {
        // Version 0 has one timeout for both.
        _ if call.version == 0 => request.session_timeout_ms,
        given => given.max(0),
    };
    let as_member = Member {
        instance_id: request.group_instance_id.as_ref().map(own),
        client_id: own(&call.client_id),
        client_host: own(&call.client_host),
        rebalance_timeout_ms,
        session_timeout_ms: request.session_timeout_ms,
        protocols,
        assignment: Bytes::new(),
        is_new: true,
        awaiting_join: Some((ticket, call.version)),
        awaiting_sync: None,
        session_timer: None,
    };
    Join {
        ticket,
        version: call.version,
        group_id: own(&request.group_id),
        member_id: own(&request.member_id),
        protocol_type: own(&request.protocol_type),
        as_member,
    }
}

/// A UUID of version 4, as Java prints it.
fn random_uuid(random: &mut base::Random) -> String {
    let high = (random.next_u64() & !0xf000) | 0x4000;
    let low = (random.next_u64() & !(0xc000 << 48)) | (0x8000 << 48);
    let (time_low, time_mid, time_high) = (high >> 32, (high >> 16) & 0xffff, high & 0xffff);
    let (sequence, node) = (low >> 48, low & 0xffff_ffff_ffff);
    format!("{time_low:08x}-{time_mid:04x}-{time_high:04x}-{sequence:04x}-{node:012x}")
}
