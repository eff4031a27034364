//! A group of the classic protocol: its members and what they agreed on (Kafka's `ClassicGroup`).

use std::collections::{BTreeMap, BTreeSet};

use base::{TimerId, Token};
use bytes::Bytes;
use protocol::join_group_response::JoinGroupResponseMember;
use protocol::{ConsumerProtocolSubscription, ErrorCode, Message, Reader, Str};

/// The type of protocol that consumers name, whose subscriptions can be read.
const CONSUMER_PROTOCOL: &str = "consumer";

/// Where a group stands. A group that is gone is in no state: it is not there.
///
/// | from | when | to |
/// |---|---|---|
/// | Empty | the first member joins | PreparingRebalance |
/// | PreparingRebalance | all joined, or the time is up | CompletingRebalance, or Empty |
/// | CompletingRebalance | the leader gave the assignment | Stable |
/// | CompletingRebalance, Stable | a member came, went or changed | PreparingRebalance |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupState {
    /// Without members; there may be offsets.
    Empty,
    /// Members have to join (again).
    PreparingRebalance,
    /// The leader has to give the assignment.
    CompletingRebalance,
    /// Members have their assignment.
    Stable,
}

impl GroupState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::PreparingRebalance => "PreparingRebalance",
            GroupState::CompletingRebalance => "CompletingRebalance",
            GroupState::Stable => "Stable",
        }
    }
}

/// A member.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) instance_id: Option<Str>,
    pub(crate) client_id: Str,
    pub(crate) client_host: Str,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) session_timeout_ms: i32,
    /// Names with metadata, the one it likes best first; no name twice.
    pub(crate) protocols: Vec<(Str, Bytes)>,
    pub(crate) assignment: Bytes,
    /// Whether it has not been in a generation yet: it may die while it waits.
    pub(crate) is_new: bool,
    pub(crate) awaiting_join: Option<(Token, i16)>,
    pub(crate) awaiting_sync: Option<Token>,
    pub(crate) session_timer: Option<TimerId>,
}

impl Member {
    /// What it said about `protocol`.
    pub(crate) fn metadata(&self, protocol: &str) -> Bytes {
        let own = self.protocols.iter().find(|(name, _)| name == protocol);
        own.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
    }

    /// Whether it is known to live because it waits for an answer.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.is_new && (self.awaiting_join.is_some() || self.awaiting_sync.is_some())
    }
}

/// A group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) state: GroupState,
    /// When it came into this state, milliseconds since 1970; unknown in records of old.
    pub(crate) state_since_ms: Option<i64>,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<Str>,
    pub(crate) protocol_name: Option<Str>,
    pub(crate) leader: Option<Str>,
    members: BTreeMap<Str, Member>,
    static_members: BTreeMap<Str, Str>,
    /// Ids that were given out and not joined with yet.
    pub(crate) pending: BTreeMap<Str, TimerId>,
    /// Members that have not asked for the assignment of this generation yet.
    pub(crate) pending_sync: BTreeSet<Str>,
    /// Whether the rebalance in preparation is the first since the group was empty.
    pub(crate) is_initial: bool,
    /// Whether a member came since the initial delay was set.
    pub(crate) new_member_added: bool,
    pub(crate) join_timer: Option<TimerId>,
    pub(crate) sync_timer: Option<TimerId>,
    /// What the members subscribe to, if it can be known.
    pub(crate) subscribed: Option<BTreeSet<Str>>,
    /// How many members know each protocol.
    support: BTreeMap<Str, usize>,
    joined: usize,
}

impl Group {
    pub(crate) fn new(state_since_ms: Option<i64>) -> Self {
        Self {
            state: GroupState::Empty,
            state_since_ms,
            generation: 0,
            protocol_type: None,
            protocol_name: None,
            leader: None,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            pending: BTreeMap::new(),
            pending_sync: BTreeSet::new(),
            is_initial: false,
            new_member_added: false,
            join_timer: None,
            sync_timer: None,
            subscribed: None,
            support: BTreeMap::new(),
            joined: 0,
        }
    }

    pub(crate) fn members(&self) -> &BTreeMap<Str, Member> {
        &self.members
    }

    pub(crate) fn member(&self, id: &str) -> Option<&Member> {
        self.members.get(id)
    }

    /// For what does not change who joined or which protocols it knows.
    pub(crate) fn member_mut(&mut self, id: &str) -> Option<&mut Member> {
        self.members.get_mut(id)
    }

    pub(crate) fn static_member(&self, instance_id: &str) -> Option<&Str> {
        self.static_members.get(instance_id)
    }

    pub(crate) fn is_leader(&self, id: &str) -> bool {
        self.leader.as_ref().is_some_and(|leader| leader == id)
    }

    /// How many members wait for the end of the join phase.
    pub(crate) fn joined(&self) -> usize {
        self.joined
    }

    pub(crate) fn has_all_joined(&self) -> bool {
        self.joined == self.members.len() && self.pending.is_empty()
    }

    pub(crate) fn transition(&mut self, to: GroupState, now_ms: i64) {
        self.state = to;
        self.state_since_ms = Some(now_ms);
    }

    pub(crate) fn add(&mut self, id: Str, protocol_type: &Str, member: Member) {
        if self.members.is_empty() {
            self.protocol_type = Some(protocol_type.clone());
        }
        if let Some(instance_id) = &member.instance_id {
            self.static_members.insert(instance_id.clone(), id.clone());
        }
        self.leader.get_or_insert_with(|| id.clone());
        self.count(&member, true);
        let former = self.members.insert(id, member);
        assert!(former.is_none(), "a member is added once");
    }

    /// Removes a member with whatever is kept about it.
    pub(crate) fn remove(&mut self, id: &str) -> Option<Member> {
        self.pending_sync.remove(id);
        let member = self.members.remove(id)?;
        self.count(&member, false);
        if let Some(instance_id) = &member.instance_id {
            self.static_members.remove(instance_id);
        }
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
        Some(member)
    }

    /// Gives a static member a new id; it keeps its place, also as the leader.
    pub(crate) fn replace_static(&mut self, instance_id: &Str, old: &str, new: &Str) {
        let mut member = self.members.remove(old).expect("a static member is a member");
        self.count(&member, false);
        (member.awaiting_join, member.awaiting_sync, member.is_new) = (None, None, false);
        self.count(&member, true);
        if self.pending_sync.remove(old) {
            self.pending_sync.insert(new.clone());
        }
        if self.is_leader(old) {
            self.leader = Some(new.clone());
        }
        self.static_members.insert(instance_id.clone(), new.clone());
        self.members.insert(new.clone(), member);
    }

    /// Changes what a member waits for or knows.
    pub(crate) fn update(&mut self, id: &str, change: impl FnOnce(&mut Member)) {
        let Some(mut member) = self.members.get(id).cloned() else { return };
        self.count(&member, false);
        change(&mut member);
        self.count(&member, true);
        if let Some(entry) = self.members.get_mut(id) {
            *entry = member;
        }
    }

    /// Takes whom a member's join is to be answered to.
    pub(crate) fn take_join(&mut self, id: &str) -> Option<(Token, i16)> {
        let waiting = self.members.get_mut(id)?.awaiting_join.take()?;
        self.joined -= 1;
        Some(waiting)
    }

    fn count(&mut self, member: &Member, enters: bool) {
        let change = |count: usize| if enters { count + 1 } else { count - 1 };
        if member.awaiting_join.is_some() {
            self.joined = change(self.joined);
        }
        for (name, _) in &member.protocols {
            let count = self.support.entry(name.clone()).or_default();
            *count = change(*count);
            if *count == 0 {
                self.support.remove(name);
            }
        }
    }

    /// Whether someone with these protocols can be in the group.
    pub(crate) fn supports(&self, protocol_type: &str, protocols: &[(Str, Bytes)]) -> bool {
        if self.state == GroupState::Empty {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        let everyone = self.members.len();
        let known_to_all = |name: &Str| self.support.get(name).copied().unwrap_or(0) == everyone;
        self.protocol_type.as_ref().is_some_and(|own| own == protocol_type)
            && protocols.iter().any(|(name, _)| known_to_all(name))
    }

    /// The protocol with the most votes among those that everyone knows.
    pub(crate) fn select_protocol(&self) -> Option<Str> {
        let everyone = self.members.len();
        let mut votes: BTreeMap<&Str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let mut names = member.protocols.iter().map(|(name, _)| name);
            if let Some(name) = names.find(|name| self.support.get(*name) == Some(&everyone)) {
                *votes.entry(name).or_default() += 1;
            }
        }
        let most = votes.values().copied().max()?;
        votes.into_iter().find(|(_, count)| *count == most).map(|(name, _)| name.clone())
    }

    /// Makes a member the leader that takes part in the coming generation. Whether there is one.
    pub(crate) fn elect_joined_leader(&mut self) -> bool {
        let Some(leader) = &self.leader else { return false };
        let has_joined = |member: &Member| member.awaiting_join.is_some();
        if self.members.get(leader).is_some_and(has_joined) {
            return true;
        }
        let joined = self.members.iter().find(|(_, member)| has_joined(member));
        let Some((id, _)) = joined else { return false };
        self.leader = Some(id.clone());
        true
    }

    pub(crate) fn next_generation(&mut self, now_ms: i64) {
        self.generation = self.generation.wrapping_add(1).max(0);
        self.protocol_name = self.select_protocol();
        self.subscribed = self.read_subscriptions();
        let is_empty = self.members.is_empty();
        let next = if is_empty { GroupState::Empty } else { GroupState::CompletingRebalance };
        self.transition(next, now_ms);
        self.pending_sync.clear();
    }

    pub(crate) fn rebalance_timeout_ms(&self) -> i32 {
        self.members.values().map(|member| member.rebalance_timeout_ms).max().unwrap_or(0)
    }

    /// What the leader is told of the members.
    pub(crate) fn join_members(&self) -> Vec<JoinGroupResponseMember> {
        let protocol = self.protocol_name.as_deref().unwrap_or_default();
        let member = |(id, member): (&Str, &Member)| JoinGroupResponseMember {
            member_id: id.clone(),
            group_instance_id: member.instance_id.clone(),
            metadata: member.metadata(protocol),
            ..Default::default()
        };
        self.members.iter().map(member).collect()
    }

    /// Checks who asks.
    pub(crate) fn check_member(
        &self,
        id: &str,
        instance_id: Option<&Str>,
    ) -> Result<(), ErrorCode> {
        if let Some(instance_id) = instance_id {
            match self.static_member(instance_id) {
                None => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
                Some(current) if current != id => return Err(ErrorCode::FENCED_INSTANCE_ID),
                Some(_) => {}
            }
        }
        if self.members.contains_key(id) { Ok(()) } else { Err(ErrorCode::UNKNOWN_MEMBER_ID) }
    }

    pub(crate) fn uses_consumer_protocol(&self) -> bool {
        self.protocol_type.as_ref().is_some_and(|own| own == CONSUMER_PROTOCOL)
    }

    pub(crate) fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed {
            Some(topics) => topics.contains(topic),
            None => self.uses_consumer_protocol(),
        }
    }

    /// The topics in the members' subscriptions, which every version writes first.
    pub(crate) fn read_subscriptions(&self) -> Option<BTreeSet<Str>> {
        if !self.uses_consumer_protocol() {
            return None;
        }
        if self.members.is_empty() {
            return Some(BTreeSet::new());
        }
        let protocol = self.protocol_name.as_ref()?;
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            let mut reader = Reader::new(member.metadata(protocol));
            reader.i16().ok()?;
            let subscription = ConsumerProtocolSubscription::decode(&mut reader, 0).ok()?;
            topics.extend(subscription.topics.iter().map(|topic| Str::from(&**topic)));
        }
        Some(topics)
    }
}
