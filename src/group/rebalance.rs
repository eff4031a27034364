//! From one generation to the next.

use base::Instant;
use bytes::Bytes;
use protocol::{ErrorCode, Str, SyncGroupResponse};

use crate::call::{GroupReply, sync_error};
use crate::config::millis;
use crate::group::GroupState;
use crate::join::joined;
use crate::machine::{Alarm, GroupTurn, Groups};
use crate::record::of_group;

/// The shortest time that members are given to join. A static member that asks for none must not
/// keep the coordinator busy with a group in which nobody joins.
const JOIN_TIMEOUT_MS_MIN: i32 = 100;

impl Groups {
    /// A member came or changed: a rebalance begins, or the one that goes on may be complete.
    pub(crate) fn rebalance_or_complete(&mut self, turn: &mut GroupTurn<'_>, id: &Str) {
        if self.group_mut(id).state == GroupState::PreparingRebalance {
            self.maybe_complete_join(turn, id);
        } else {
            self.prepare_rebalance(turn, id);
        }
    }

    /// Ends the join phase when everyone joined. The first one always lasts its delay.
    pub(crate) fn maybe_complete_join(&mut self, turn: &mut GroupTurn<'_>, id: &Str) {
        let group = self.group_mut(id);
        let is_preparing = group.state == GroupState::PreparingRebalance;
        if is_preparing && !group.is_initial && group.has_all_joined() {
            self.complete_join(turn, id);
        }
    }

    /// Begins a rebalance.
    pub(crate) fn prepare_rebalance(&mut self, turn: &mut GroupTurn<'_>, id: &Str) {
        if self.group_mut(id).state == GroupState::CompletingRebalance {
            self.fail_sync(turn, id, ErrorCode::REBALANCE_IN_PROGRESS);
        }
        let delay_ms = self.config.initial_rebalance_delay_ms;
        let group = self.group_mut(id);
        group.pending_sync.clear();
        let sync_timer = group.sync_timer.take();
        group.is_initial = group.state == GroupState::Empty;
        let is_initial = group.is_initial;
        let timeout_ms = group.rebalance_timeout_ms();
        group.transition(GroupState::PreparingRebalance, turn.now.wall_ms);
        let is_complete = group.has_all_joined();
        self.cancel(sync_timer);
        if is_initial {
            let remaining_ms = timeout_ms.saturating_sub(delay_ms).max(0);
            self.set_initial_delay(turn.now.mono, id, delay_ms, remaining_ms);
        } else if is_complete {
            self.complete_join(turn, id);
        } else {
            self.set_join_timeout(turn.now.mono, id);
        }
    }

    fn set_initial_delay(&mut self, now: Instant, id: &Str, delay_ms: i32, remaining_ms: i32) {
        let alarm = Alarm::InitialDelay { group: id.clone(), delay_ms, remaining_ms };
        let timer = self.timers.set(now + millis(delay_ms.into()), alarm);
        let former = self.group_mut(id).join_timer.replace(timer);
        self.cancel(former);
    }

    fn set_join_timeout(&mut self, now: Instant, id: &Str) {
        let timeout_ms = self.group_mut(id).rebalance_timeout_ms().max(JOIN_TIMEOUT_MS_MIN);
        let alarm = Alarm::JoinTimeout { group: id.clone() };
        let timer = self.timers.set(now + millis(timeout_ms.into()), alarm);
        let former = self.group_mut(id).join_timer.replace(timer);
        self.cancel(former);
    }

    /// The initial delay is over: more is waited only if someone came in it.
    pub(crate) fn initial_delay_over(
        &mut self,
        turn: &mut GroupTurn<'_>,
        id: &Str,
        delay_ms: i32,
        remaining_ms: i32,
    ) {
        let delay_ms_max = self.config.initial_rebalance_delay_ms;
        let group = self.group_mut(id);
        if !group.new_member_added || remaining_ms == 0 {
            return self.complete_join(turn, id);
        }
        group.new_member_added = false;
        let next_ms = delay_ms_max.min(remaining_ms);
        self.set_initial_delay(turn.now.mono, id, next_ms, (remaining_ms - delay_ms).max(0));
    }

    /// Ends the join phase: who did not join is out, unless it is a static member.
    pub(crate) fn complete_join(&mut self, turn: &mut GroupTurn<'_>, id: &Str) {
        let group = self.group_mut(id);
        let timer = group.join_timer.take();
        let late = group
            .members()
            .iter()
            .filter(|(_, member)| member.awaiting_join.is_none() && member.instance_id.is_none());
        let late: Vec<Str> = late.map(|(id, _)| id.clone()).collect();
        self.cancel(timer);
        for member in late {
            self.take_out(turn, id, &member, ErrorCode::UNKNOWN_MEMBER_ID);
        }
        let group = self.group_mut(id);
        if !group.elect_joined_leader() && !group.members().is_empty() {
            // Nobody joined; static members are given as much time again.
            return self.set_join_timeout(turn.now.mono, id);
        }
        group.next_generation(turn.now.wall_ms);
        group.is_initial = false;
        group.new_member_added = false;
        if group.state == GroupState::Empty {
            let record = of_group(id, group, |_, _| Bytes::new());
            if turn.write(&[record]).is_err() {
                tracing::warn!(group = %id, "an empty group does not fit into a record");
            }
            return;
        }
        self.answer_joins(turn, id);
        self.set_sync_timeout(turn.now.mono, id);
    }

    fn answer_joins(&mut self, turn: &mut GroupTurn<'_>, id: &Str) {
        let group = self.group_mut(id);
        let members: Vec<Str> = group.members().keys().cloned().collect();
        tracing::debug!(group = %id, generation = group.generation, members = members.len(),
            "a generation begins");
        for member_id in members {
            let group = self.group_mut(id);
            if let Some((ticket, version)) = group.take_join(&member_id) {
                let reply = joined(group, &member_id, version, group.is_leader(&member_id));
                turn.reply_at_once(ticket, GroupReply::Join(reply));
            }
            if let Some(member) = group.member_mut(&member_id) {
                member.is_new = false;
            }
            group.pending_sync.insert(member_id.clone());
            self.heard_of(turn.now.mono, id, &member_id);
        }
    }

    fn set_sync_timeout(&mut self, now: Instant, id: &Str) {
        let group = self.group_mut(id);
        let within = millis(group.rebalance_timeout_ms().into());
        let alarm = Alarm::SyncTimeout { group: id.clone(), generation: group.generation };
        let timer = self.timers.set(now + within, alarm);
        let former = self.group_mut(id).sync_timer.replace(timer);
        self.cancel(former);
    }

    /// Who did not ask for its assignment in time is out.
    pub(crate) fn sync_expired(&mut self, turn: &mut GroupTurn<'_>, id: &Str, generation: i32) {
        let group = self.group_mut(id);
        let is_due = matches!(group.state, GroupState::CompletingRebalance | GroupState::Stable);
        let late = std::mem::take(&mut group.pending_sync);
        if group.generation != generation || !is_due || late.is_empty() {
            return;
        }
        for member in late {
            self.take_out(turn, id, &member, ErrorCode::UNKNOWN_MEMBER_ID);
        }
        self.prepare_rebalance(turn, id);
    }

    /// A member, or one that has its id only, was not heard of.
    pub(crate) fn session_expired(&mut self, turn: &mut GroupTurn<'_>, id: &Str, member_id: &Str) {
        let group = self.group_mut(id);
        let is_pending = group.pending.contains_key(member_id);
        if let Some(member) = group.member_mut(member_id) {
            member.session_timer = None;
            if member.is_waiting() {
                return;
            }
            tracing::debug!(group = %id, member = %member_id, "a member was not heard of");
        } else if !is_pending {
            return;
        }
        self.take_out(turn, id, member_id, ErrorCode::UNKNOWN_MEMBER_ID);
        let group = self.group_mut(id);
        match group.state {
            GroupState::Stable | GroupState::CompletingRebalance if !is_pending => {
                self.prepare_rebalance(turn, id);
            }
            GroupState::PreparingRebalance if group.has_all_joined() => {
                self.complete_join(turn, id);
            }
            _ => {}
        }
    }

    /// Keeps an id for someone who is to join with it.
    pub(crate) fn expect_member(&mut self, now: Instant, id: &Str, member_id: &Str, ms: i32) {
        let alarm = Alarm::Session { group: id.clone(), member: member_id.clone() };
        let timer = self.timers.set(now + millis(ms.into()), alarm);
        let former = self.group_mut(id).pending.insert(member_id.clone(), timer);
        self.cancel(former);
    }

    /// Everyone who waits for an assignment gets an error; nobody has one any more.
    pub(crate) fn fail_sync(&mut self, turn: &mut GroupTurn<'_>, id: &Str, error: ErrorCode) {
        let members: Vec<Str> = self.group_mut(id).members().keys().cloned().collect();
        for member_id in members {
            let member = self.group_mut(id).member_mut(&member_id);
            let Some(member) = member else { continue };
            member.assignment = Bytes::new();
            if let Some(ticket) = member.awaiting_sync.take() {
                turn.reply_at_once(ticket, GroupReply::Sync(sync_error(error)));
                self.heard_of(turn.now.mono, id, &member_id);
            }
        }
    }

    /// Everyone who waits for an assignment gets it once it is committed.
    pub(crate) fn answer_sync(&mut self, turn: &mut GroupTurn<'_>, id: &Str) {
        let members: Vec<Str> = self.group_mut(id).members().keys().cloned().collect();
        for member_id in members {
            let group = self.group_mut(id);
            let member = group.member_mut(&member_id);
            let Some(ticket) = member.and_then(|member| member.awaiting_sync.take()) else {
                continue;
            };
            let reply = self.assignment_of(id, &member_id);
            turn.reply(ticket, GroupReply::Sync(reply));
            self.heard_of(turn.now.mono, id, &member_id);
        }
    }

    /// What a member of a stable group is to do.
    pub(crate) fn assignment_of(&mut self, id: &Str, member_id: &str) -> SyncGroupResponse {
        let group = self.group_mut(id);
        let assignment = group.member(member_id).map(|member| member.assignment.clone());
        SyncGroupResponse {
            protocol_type: group.protocol_type.clone(),
            protocol_name: group.protocol_name.clone(),
            assignment: assignment.unwrap_or_default(),
            ..Default::default()
        }
    }
}
