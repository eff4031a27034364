//! The state of one partition of `__consumer_offsets`, and who handles what.

use std::collections::BTreeMap;

use base::{Instant, Offset, ProducerId, Random, TimerId, Timers, Token};
use bytes::Bytes;
use coordinator::{Machine, Refusal, Replayed, Turn};
use metadata::Image;
use protocol::{
    ErrorCode, GroupMetadataValue, GroupRecord, OffsetCommitValue, OffsetDeleteResponse, Str,
};

use crate::call::{GroupCall, GroupReply, GroupRequest, heartbeat, join_error, sync_error};
use crate::config::{GroupConfig, millis};
use crate::group::{Group, GroupState, Member};
use crate::offsets::{Committed, Offsets, Place};
use crate::record::TEXT_BYTES_MAX;
use crate::unserved::Unserved;

pub(crate) type GroupTurn<'a> = Turn<'a, GroupReply>;

/// What is to be done at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// A member, or one that has its id only, was not heard of for too long.
    Session { group: Str, member: Str },
    /// The first members of a group had time to come together; more time is left if they came.
    InitialDelay { group: Str, delay_ms: i32, remaining_ms: i32 },
    /// Members had time to join again.
    JoinTimeout { group: Str },
    /// Members had time to ask for their assignment.
    SyncTimeout { group: Str, generation: i32 },
    /// Offsets and groups may have expired.
    Expiry,
}

/// All groups and offsets of the partition.
#[derive(Debug)]
pub(crate) struct Groups {
    pub(crate) config: GroupConfig,
    pub(crate) random: Random,
    pub(crate) groups: BTreeMap<Str, Group>,
    /// Groups of other kinds.
    pub(crate) unserved: Unserved,
    pub(crate) offsets: Offsets,
    pub(crate) timers: Timers<Alarm>,
}

impl Groups {
    pub(crate) fn new(config: GroupConfig, random: Random) -> Self {
        Self {
            config,
            random,
            groups: BTreeMap::new(),
            unserved: Unserved::default(),
            offsets: Offsets::default(),
            timers: Timers::default(),
        }
    }

    /// A group of which the caller knows that it is there.
    pub(crate) fn group_mut(&mut self, id: &str) -> &mut Group {
        self.groups.get_mut(id).expect("a group stays while something is done with it")
    }

    /// Waits anew for a sign of life of a member.
    pub(crate) fn watch_member(&mut self, now: Instant, group_id: &Str, id: &Str, within_ms: i32) {
        let alarm = Alarm::Session { group: group_id.clone(), member: id.clone() };
        let timer = self.timers.set(now + millis(within_ms.into()), alarm);
        let group = self.groups.get_mut(group_id);
        let member = group.and_then(|group| group.member_mut(id));
        let former = match member {
            Some(member) => member.session_timer.replace(timer),
            None => Some(timer),
        };
        self.cancel(former);
    }

    /// Waits anew as long as the member's session lasts.
    pub(crate) fn heard_of(&mut self, now: Instant, group_id: &Str, id: &Str) {
        let group = self.groups.get(group_id);
        if let Some(member) = group.and_then(|group| group.member(id)) {
            let within_ms = member.session_timeout_ms;
            self.watch_member(now, group_id, id, within_ms);
        }
    }

    pub(crate) fn cancel(&mut self, timer: Option<TimerId>) {
        if let Some(timer) = timer {
            self.timers.cancel(timer);
        }
    }

    /// Takes a member, or one that has its id only, out of the group and answers it.
    pub(crate) fn take_out(
        &mut self,
        turn: &mut GroupTurn<'_>,
        group_id: &str,
        id: &str,
        error: ErrorCode,
    ) {
        let group = self.group_mut(group_id);
        let pending = group.pending.remove(id);
        let joining = group.take_join(id);
        let member = group.remove(id);
        self.cancel(pending);
        if let Some((ticket, _)) = joining {
            turn.reply_at_once(ticket, GroupReply::Join(join_error(Str::new(), error)));
        }
        if let Some(member) = member {
            self.cancel(member.session_timer);
            if let Some(ticket) = member.awaiting_sync {
                turn.reply_at_once(ticket, GroupReply::Sync(sync_error(error)));
            }
        }
    }

    /// Forgets a group with its timers; its record was written.
    pub(crate) fn drop_group(&mut self, id: &str) {
        let Some(group) = self.groups.remove(id) else { return };
        let sessions = group.members().values().map(|member| member.session_timer);
        let pending = group.pending.values().map(|timer| Some(*timer));
        let timers = sessions.chain(pending).chain([group.join_timer, group.sync_timer]);
        timers.flatten().for_each(|timer| {
            self.timers.cancel(timer);
        });
    }

    fn replay_offset(
        &mut self,
        record: &Replayed<'_>,
        group: Str,
        place: Place,
        value: Option<OffsetCommitValue>,
    ) {
        let Some(value) = value else { return self.offsets.remove(&group, &place) };
        if !self.unserved.has(&group) {
            self.groups.entry(group.clone()).or_insert_with(|| Group::new(None));
        }
        let committed = Committed {
            offset: value.offset,
            leader_epoch: value.leader_epoch,
            metadata: value.metadata,
            commit_timestamp_ms: value.commit_timestamp,
            expire_timestamp_ms: Some(value.expire_timestamp).filter(|ms| *ms != -1),
            topic_id: value.topic_id,
            record_offset: record.offset,
        };
        match record.transaction {
            Some(producer) => self.offsets.put_open(producer, group, place, committed),
            None => self.offsets.put(group, place, committed),
        }
    }

    fn replay_group(&mut self, id: Str, value: Option<GroupMetadataValue>) {
        let Some(value) = value else {
            self.groups.remove(&id);
            return;
        };
        let mut group = Group::new(Some(value.current_state_timestamp).filter(|ms| *ms != -1));
        let protocol = value.protocol.clone().unwrap_or_default();
        for member in value.members {
            let rebalance_timeout_ms = match member.rebalance_timeout {
                -1 => member.session_timeout,
                given => given,
            };
            let loaded = Member {
                instance_id: member.group_instance_id,
                client_id: member.client_id,
                client_host: member.client_host,
                rebalance_timeout_ms,
                session_timeout_ms: member.session_timeout,
                protocols: vec![(protocol.clone(), member.subscription)],
                assignment: member.assignment,
                is_new: false,
                awaiting_join: None,
                awaiting_sync: None,
                session_timer: None,
            };
            if group.member(&member.member_id).is_none() {
                group.add(member.member_id, &value.protocol_type, loaded);
            }
        }
        if !group.members().is_empty() {
            group.state = GroupState::Stable;
        }
        group.generation = value.generation;
        group.protocol_type = Some(value.protocol_type).filter(|own| !own.is_empty());
        group.protocol_name = value.protocol;
        group.leader = value.leader;
        group.subscribed = group.read_subscriptions();
        self.groups.insert(id, group);
    }

    fn replay_foreign(&mut self, id: Str, kind: &'static str, exists: bool) {
        if exists {
            self.groups.remove(&id);
            self.unserved.add(id, kind);
        } else {
            self.unserved.remove(&id);
        }
    }

    /// What is wrong with a call whatever the state is.
    fn check_call(call: &GroupCall) -> Result<(), ErrorCode> {
        let (id, may_be_empty) = match &call.request {
            GroupRequest::Join(request) => (&request.group_id, false),
            GroupRequest::Sync(request) => (&request.group_id, false),
            GroupRequest::Heartbeat(request) => (&request.group_id, false),
            GroupRequest::Leave(request) => (&request.group_id, false),
            GroupRequest::DeleteOffsets(request) => (&request.group_id, false),
            GroupRequest::Commit(request) => (&request.group_id, true),
            _ => return Ok(()),
        };
        let is_valid = id.len() <= TEXT_BYTES_MAX && (may_be_empty || !id.is_empty());
        if is_valid { Ok(()) } else { Err(ErrorCode::INVALID_GROUP_ID) }
    }

    fn end_of_alarm(&mut self, turn: &mut GroupTurn<'_>, alarm: Alarm) {
        match alarm {
            Alarm::Session { group, member } => self.session_expired(turn, &group, &member),
            Alarm::InitialDelay { group, delay_ms, remaining_ms } => {
                self.group_mut(&group).join_timer = None;
                self.initial_delay_over(turn, &group, delay_ms, remaining_ms);
            }
            Alarm::JoinTimeout { group } => {
                self.group_mut(&group).join_timer = None;
                self.complete_join(turn, &group);
            }
            Alarm::SyncTimeout { group, generation } => {
                self.group_mut(&group).sync_timer = None;
                self.sync_expired(turn, &group, generation);
            }
            Alarm::Expiry => {
                self.expire(turn);
                self.set_expiry(turn.now.mono);
            }
        }
    }

    fn set_expiry(&mut self, now: Instant) {
        let within = millis(self.config.retention_check_interval_ms.max(1));
        self.timers.set(now + within, Alarm::Expiry);
    }
}

impl Machine for Groups {
    type Call = GroupCall;
    type Reply = GroupReply;
    type Context = Image;

    fn replay(&mut self, record: &Replayed<'_>) -> Result<(), String> {
        let key = Bytes::copy_from_slice(record.key);
        let value = record.value.map(Bytes::copy_from_slice);
        let decoded = GroupRecord::decode(&key, value.as_ref());
        let decoded = decoded.map_err(|error| error.to_string())?;
        self.unserved.count(&decoded, value.is_none());
        match decoded {
            GroupRecord::OffsetCommit(key, value) => {
                self.replay_offset(record, key.group, (key.topic, key.partition), value);
            }
            GroupRecord::LegacyOffsetCommit(key, value) => {
                let value = value.map(|value| OffsetCommitValue {
                    offset: value.offset,
                    metadata: value.metadata,
                    commit_timestamp: value.commit_timestamp,
                    ..Default::default()
                });
                self.replay_offset(record, key.group, (key.topic, key.partition), value);
            }
            GroupRecord::GroupMetadata(key, value) => self.replay_group(key.group, value),
            GroupRecord::ConsumerGroupMetadata(key, value) => {
                self.replay_foreign(key.group_id, "consumer", value.is_some());
            }
            GroupRecord::ShareGroupMetadata(key, value) => {
                self.replay_foreign(key.group_id, "share", value.is_some());
            }
            GroupRecord::StreamsGroupMetadata(key, value) => {
                self.replay_foreign(key.group_id, "streams", value.is_some());
            }
            // What other kinds of groups keep besides, and types that came later, stay in the log.
            _ => {}
        }
        Ok(())
    }

    fn end_transaction(&mut self, producer: ProducerId, committed: bool) {
        self.offsets.end_transaction(producer, committed);
    }

    fn loaded(&mut self, turn: &mut GroupTurn<'_>) {
        let ids: Vec<Str> = self.groups.keys().cloned().collect();
        for id in ids {
            let members: Vec<Str> = self.group_mut(&id).members().keys().cloned().collect();
            for member in &members {
                self.heard_of(turn.now.mono, &id, member);
            }
            if members.len() > self.config.group_size_max {
                tracing::info!(group = %id, members = members.len(), "a loaded group is too large");
                self.prepare_rebalance(turn, &id);
            }
        }
        self.set_expiry(turn.now.mono);
    }

    fn handle(&mut self, turn: &mut GroupTurn<'_>, image: &Image, call: GroupCall, ticket: Token) {
        if let Err(error) = Self::check_call(&call) {
            return turn.reply_at_once(ticket, call.refuse(error));
        }
        let version = call.version;
        let reply = match &call.request {
            GroupRequest::Join(_) => return self.join(turn, call, ticket),
            GroupRequest::Sync(request) => return self.sync(turn, request, ticket),
            GroupRequest::Heartbeat(request) => {
                let outcome = self.heartbeat(turn.now.mono, request);
                let error = outcome.err().unwrap_or(ErrorCode::NONE);
                return turn.reply_at_once(ticket, GroupReply::Heartbeat(heartbeat(error)));
            }
            GroupRequest::Leave(request) => match self.leave(turn, version, request) {
                Ok(reply) => GroupReply::Leave(reply),
                Err(error) => call.refuse(error),
            },
            GroupRequest::Commit(request) => match self.commit(turn, image, version, request) {
                Ok(reply) => GroupReply::Commit(reply),
                Err(error) => call.refuse(error),
            },
            GroupRequest::Fetch { group, require_stable } => {
                GroupReply::Fetch(self.fetch(image, version, group, *require_stable))
            }
            GroupRequest::DeleteOffsets(request) => {
                let reply = self.delete_offsets(turn, image, request);
                GroupReply::DeleteOffsets(reply.unwrap_or_else(|error_code| OffsetDeleteResponse {
                    error_code,
                    ..Default::default()
                }))
            }
            GroupRequest::List(request) => GroupReply::List(self.list(request)),
            GroupRequest::Describe(request) => {
                GroupReply::Describe(self.describe(version, request))
            }
            GroupRequest::Delete(request) => GroupReply::Delete(self.delete(turn, request)),
        };
        turn.reply(ticket, reply);
    }

    fn next_timer(&self) -> Option<Instant> {
        self.timers.next_at()
    }

    fn on_timer(&mut self, turn: &mut GroupTurn<'_>) {
        while let Some(alarm) = self.timers.expired(turn.now.mono) {
            self.end_of_alarm(turn, alarm);
        }
    }

    fn forget(&mut self, turn: &mut GroupTurn<'_>) {
        for (id, group) in std::mem::take(&mut self.groups) {
            for (member_id, member) in group.members() {
                let code = ErrorCode::NOT_COORDINATOR;
                if let Some((ticket, _)) = member.awaiting_join {
                    let reply = join_error(member_id.clone(), code);
                    turn.reply_at_once(ticket, GroupReply::Join(reply));
                }
                if let Some(ticket) = member.awaiting_sync {
                    turn.reply_at_once(ticket, GroupReply::Sync(sync_error(code)));
                }
            }
            tracing::debug!(group = %id, generation = group.generation, "forgot a group");
        }
        self.unserved = Unserved::default();
        self.offsets = Offsets::default();
        self.timers = Timers::default();
    }

    fn refuse(call: &GroupCall, refusal: Refusal) -> GroupReply {
        call.refused(refusal)
    }

    fn retract(reply: GroupReply, refusal: Refusal) -> GroupReply {
        reply.retracted(refusal)
    }
}

/// A text of its own, so that the frame that it came in can go.
pub(crate) fn own(text: &Str) -> Str {
    Str::from(&**text)
}

/// Where a record stands that is on its way into the log.
pub(crate) const RECORD_UNDER_WAY: Offset = Offset(i64::MAX);
