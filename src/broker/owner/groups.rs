//! The group coordinators on the partitions of the offsets topic that this shard leads.

use std::collections::VecDeque;

use api::{FileEffect, FileOutcome, Part};
use base::{Map, Offset, Random, Slab, Token};
use bytes::{Bytes, BytesMut};
use commitlog::{LogState, Read, ReadRequest};
use group::{GroupCoordinator, GroupReply, GroupRequest, Output};
use intercom::{GroupAsk, Reply};
use protocol::ErrorCode;

use super::{Alarm, Asker, Desk, Gathering, Owner, Serving};
use crate::files::FileStep;
use crate::partition::{Incarnation, Place, Waiter};
use crate::topics::OFFSETS_TOPIC;

/// Bytes of the log that a coordinator reads at a time while it loads: what one turn can replay
/// without holding others up.
const LOAD_BYTES: u32 = 1 << 20;

/// The coordinators of a shard.
#[derive(Debug)]
pub(super) struct Hosts {
    by_partition: Map<Token, Host>,
    /// That of the newest one.
    latest: Incarnation,
    /// Which ask a coordinator's answer belongs to.
    tickets: Slab<Place>,
    tickets_max: usize,
    /// Coordinators that were called in this turn.
    pub(super) called: Vec<Token>,
    /// Asks that may wait for long and have to be told so at the end of the turn.
    patient: Vec<Token>,
}

impl Hosts {
    /// No coordinators yet; so many of the requests to them may wait at once.
    pub(super) fn new(tickets_max: usize) -> Self {
        Self {
            by_partition: Map::default(),
            latest: Incarnation::default(),
            tickets: Slab::new(tickets_max),
            tickets_max,
            called: Vec::new(),
            patient: Vec::new(),
        }
    }

    /// Whether so many more requests may wait.
    pub(super) fn has_room(&self, requests: usize) -> bool {
        self.tickets.len() + requests <= self.tickets_max
    }
}

/// One coordinator.
#[derive(Debug)]
struct Host {
    incarnation: Incarnation,
    coordinator: GroupCoordinator,
    loading: Option<Loading>,
    /// When its alarm is set.
    alarm: Option<base::Instant>,
}

/// How far a coordinator has read its log.
#[derive(Debug)]
struct Loading {
    from: Offset,
    /// Of the piece that is being read: what is still to come, and what is there.
    parts: VecDeque<Part>,
    gathered: BytesMut,
}

impl Owner {
    /// Starts or ends the coordinator of a partition, as its leadership demands.
    pub(super) fn host_if_led(&mut self, desk: &mut Desk<'_>, token: Token) {
        let partition = self.partition(token);
        if &*partition.name.topic != OFFSETS_TOPIC {
            return;
        }
        let leads = partition.led_in().is_some() && partition.log.state() == LogState::Open;
        let from = partition.log.log_start_offset();
        match (leads, self.hosts.by_partition.contains_key(&token)) {
            (true, false) => {
                // One that is loaded again must not give the ids once more that it gave before.
                let random = Random::new(self.random.next_u64());
                let coordinator = GroupCoordinator::new(self.group_config.clone(), random);
                let loading = Some(Loading::at(from));
                self.hosts.latest.0 += 1;
                let incarnation = self.hosts.latest;
                let host = Host { incarnation, coordinator, loading, alarm: None };
                self.hosts.by_partition.insert(token, host);
                self.load_more(desk, token);
            }
            (false, true) => self.end_host(desk, token),
            _ => {}
        }
    }

    /// The partition is led elsewhere, or goes.
    pub(super) fn end_host(&mut self, desk: &mut Desk<'_>, token: Token) {
        if let Some(host) = self.hosts.by_partition.get_mut(&token) {
            host.coordinator.unload(desk.now);
            self.give_outputs(desk, token);
            self.hosts.by_partition.remove(&token);
        }
    }

    /// Handles what is asked of groups.
    pub(super) fn ask_groups(&mut self, desk: &mut Desk<'_>, asker: Asker, asks: Vec<GroupAsk>) {
        let patient = asks.iter().any(|ask| may_wait(&ask.call.request));
        let gathering = Gathering::new(asker, asks.len());
        let serving = Serving::Group { gathering, is_late: false };
        let token = self.serving.insert(serving).expect("there was room");
        if patient {
            self.hosts.patient.push(token);
        }
        for (index, GroupAsk { key, call }) in asks.into_iter().enumerate() {
            let place = Place { ask: token, index };
            let partition = self.find(key).ok();
            let host = partition.and_then(|token| self.hosts.by_partition.get_mut(&token));
            let (Some(partition), Some(host), Some(image)) = (partition, host, desk.image) else {
                let refused = call.refuse(ErrorCode::NOT_COORDINATOR);
                self.group_answered(desk, place, refused);
                continue;
            };
            let ticket = self.hosts.tickets.insert(place).expect("there was room");
            host.coordinator.handle(desk.now, image, call, ticket);
            self.hosts.called.push(partition);
        }
    }

    /// Gives out what the coordinators of this turn have decided; what is not answered by then and
    /// may wait for long gives its slot of the lane back.
    pub(super) fn end_group_turn(&mut self, desk: &mut Desk<'_>) {
        let mut held = Vec::new();
        while let Some(token) = self.hosts.called.pop() {
            // What it wants appended waits for the log that takes the place of this one.
            if self.partitions.get(token).is_some_and(|partition| partition.is_held) {
                held.push(token);
            } else {
                self.give_outputs(desk, token);
            }
        }
        self.hosts.called = held;
        for token in std::mem::take(&mut self.hosts.patient) {
            if let Some(Serving::Group { gathering, is_late }) = self.serving.get_mut(token) {
                *is_late = true;
                desk.reply(gathering.asker, Reply::Later);
            }
        }
    }

    /// A coordinator's records are written, or could not be.
    pub(super) fn coordinator_appended(
        &mut self,
        desk: &mut Desk<'_>,
        token: Token,
        incarnation: Incarnation,
        outcome: Result<Offset, ErrorCode>,
    ) {
        // What an earlier coordinator of the partition wrote is read by a later one from the log.
        let host = self.hosts.by_partition.get_mut(&token);
        let host = host.filter(|host| host.incarnation == incarnation);
        if let Some(host) = host.filter(|host| host.loading.is_none()) {
            host.coordinator.appended(desk.now, outcome);
            self.hosts.called.push(token);
        }
    }

    /// The high watermark of a partition has moved.
    pub(super) fn coordinator_advanced(&mut self, token: Token) {
        let high_watermark = self.partition(token).high_watermark();
        if let Some(host) = self.hosts.by_partition.get_mut(&token) {
            host.coordinator.high_watermark(high_watermark);
            self.hosts.called.push(token);
        }
    }

    /// A partition has another log: its coordinator goes on.
    pub(super) fn call_host(&mut self, desk: &mut Desk<'_>, token: Token) {
        if !self.hosts.by_partition.contains_key(&token) {
            return;
        }
        self.hosts.called.push(token);
        if self.locating_loads.remove(&(token, None)).is_some() {
            self.load_more(desk, token);
        }
    }

    /// The alarm of a coordinator.
    pub(super) fn coordinator_alarm(&mut self, desk: &mut Desk<'_>, token: Token) {
        if let Some(host) = self.hosts.by_partition.get_mut(&token) {
            host.alarm = None;
            host.coordinator.on_timer(desk.now);
            self.hosts.called.push(token);
        }
    }

    /// Partitions were deleted: what groups committed for them goes.
    pub(crate) fn forget_offsets(
        &mut self,
        desk: &mut Desk<'_>,
        partitions: &[(protocol::Str, i32)],
    ) {
        for (token, host) in &mut self.hosts.by_partition {
            host.coordinator.partitions_deleted(desk.now, partitions);
            self.hosts.called.push(*token);
        }
    }

    fn give_outputs(&mut self, desk: &mut Desk<'_>, token: Token) {
        let Some(host) = self.hosts.by_partition.get_mut(&token) else { return };
        let mut outputs = Vec::new();
        host.coordinator.end_of_turn(&mut outputs);
        for output in outputs {
            match output {
                Output::Append { batch } => self.append_for_coordinator(desk, token, &batch),
                Output::Reply { ticket, reply } => {
                    let place = self.hosts.tickets.remove(ticket);
                    self.group_answered(desk, place.expect("one answer a ticket"), reply);
                }
                Output::Reload => self.reload(desk, token),
            }
        }
        self.set_coordinator_alarm(token);
    }

    pub(super) fn append_for_coordinator(
        &mut self,
        desk: &mut Desk<'_>,
        token: Token,
        batch: &Bytes,
    ) {
        let Some(host) = self.hosts.by_partition.get(&token) else { return };
        let incarnation = host.incarnation;
        let waiter = Waiter::Coordinator(incarnation);
        match self.partition(token).append_own(desk.now, batch, waiter) {
            Ok(()) => self.touch(token),
            Err(code) => self.coordinator_appended(desk, token, incarnation, Err(code)),
        }
    }

    fn set_coordinator_alarm(&mut self, token: Token) {
        let Some(host) = self.hosts.by_partition.get_mut(&token) else { return };
        let Some(at) = host.coordinator.next_timer() else { return };
        if host.alarm.is_none_or(|set| at < set) {
            host.alarm = Some(at);
            self.alarms.set(at, Alarm::Coordinator(token));
        }
    }

    fn group_answered(&mut self, desk: &mut Desk<'_>, place: Place, reply: GroupReply) {
        let Some(Serving::Group { gathering, .. }) = self.serving.get_mut(place.ask) else {
            unreachable!("a request of groups was answered before all of it was done");
        };
        if gathering.set(place.index, reply)
            && let Some(Serving::Group { gathering, is_late }) = self.serving.remove(place.ask)
        {
            let asker = gathering.asker;
            let reply = Reply::Group(gathering.into_outcomes());
            if is_late {
                desk.reply_late(asker, reply);
            } else {
                desk.reply(asker, reply);
            }
        }
    }
}

/// Loading.
impl Owner {
    fn reload(&mut self, desk: &mut Desk<'_>, token: Token) {
        let from = self.partition(token).log.log_start_offset();
        if let Some(host) = self.hosts.by_partition.get_mut(&token) {
            host.loading = Some(Loading::at(from));
            self.load_more(desk, token);
        }
    }

    /// Asks for the next piece of the log, or ends the loading.
    fn load_more(&mut self, desk: &mut Desk<'_>, token: Token) {
        let Some(from) = self.hosts.by_partition.get(&token).and_then(Host::loads_from) else {
            return;
        };
        let partition = self.partitions.get_mut(token).expect("its coordinator loads");
        let request = ReadRequest {
            offset: from,
            up_to: partition.high_watermark(),
            bytes_max: LOAD_BYTES,
            at_least_one: true,
        };
        let read = partition.log.read(request, &mut self.log_effects);
        self.file_log_effects(desk, token);
        match read {
            Ok(Read::Plan(plan)) if plan.bytes == 0 => self.loaded(desk, token),
            Ok(Read::Plan(plan)) => {
                if let Some(loading) = self.loading(token) {
                    loading.parts = plan.parts.into();
                    self.load_parts(desk, token);
                }
            }
            Ok(Read::Locating(ticket)) => {
                self.locating_loads.entry((token, Some(ticket))).or_default();
            }
            Ok(Read::Busy) => {
                self.locating_loads.entry((token, None)).or_default();
            }
            Err(error) => self.load_failed(desk, token, &format!("{error:?}")),
        }
    }

    /// A position has been found that a load may wait for.
    pub(super) fn load_located(
        &mut self,
        desk: &mut Desk<'_>,
        token: Token,
        ticket: commitlog::Ticket,
    ) {
        let waited = [Some(ticket), None]
            .iter()
            .any(|ticket| self.locating_loads.remove(&(token, *ticket)).is_some());
        if waited {
            self.load_more(desk, token);
        }
    }

    fn load_parts(&mut self, desk: &mut Desk<'_>, token: Token) {
        while let Some(loading) = self.loading(token) {
            match loading.parts.pop_front() {
                Some(Part::Bytes(bytes)) => loading.gathered.extend_from_slice(&bytes),
                Some(Part::File(slice)) => {
                    let effect = FileEffect::Read {
                        token,
                        file: slice.file,
                        position: slice.position,
                        length: slice.length,
                    };
                    return desk.files.file(desk.effects, effect, FileStep::Load);
                }
                None => return self.replay_gathered(desk, token),
            }
        }
    }

    /// A piece of the log has been read from its file.
    pub(crate) fn load_read(&mut self, desk: &mut Desk<'_>, token: Token, outcome: FileOutcome) {
        match outcome.read() {
            Ok(bytes) => {
                if let Some(loading) = self.loading(token) {
                    loading.gathered.extend_from_slice(&bytes);
                    self.load_parts(desk, token);
                }
            }
            Err(error) => self.load_failed(desk, token, &error.to_string()),
        }
    }

    fn replay_gathered(&mut self, desk: &mut Desk<'_>, token: Token) {
        let Some(host) = self.hosts.by_partition.get_mut(&token) else { return };
        let Some(loading) = &mut host.loading else { return };
        let batches = std::mem::take(&mut loading.gathered).freeze();
        match host.coordinator.load(batches) {
            Ok(next) if next > loading.from => {
                loading.from = next;
                self.load_more(desk, token);
            }
            Ok(_) => self.loaded(desk, token),
            Err(error) => self.load_failed(desk, token, &error.to_string()),
        }
    }

    fn loaded(&mut self, desk: &mut Desk<'_>, token: Token) {
        let high_watermark = self.partition(token).high_watermark();
        let Some(host) = self.hosts.by_partition.get_mut(&token) else { return };
        host.loading = None;
        host.coordinator.loaded(desk.now);
        host.coordinator.high_watermark(high_watermark);
        let unserved = host.coordinator.unserved();
        self.hosts.called.push(token);
        if let Some(unserved) = unserved {
            let partition = &self.partition(token).name;
            tracing::warn!(%partition, "kept, but not served by this version: {unserved}");
        }
    }

    fn load_failed(&mut self, desk: &mut Desk<'_>, token: Token, why: &str) {
        let name = &self.partition(token).name;
        tracing::error!(partition = %name, "its groups cannot be loaded: {why}");
        self.end_host(desk, token);
    }

    fn loading(&mut self, token: Token) -> Option<&mut Loading> {
        self.hosts.by_partition.get_mut(&token)?.loading.as_mut()
    }
}

/// Whether a client's patience, and not a disk, decides when the request is answered.
fn may_wait(request: &GroupRequest) -> bool {
    matches!(request, GroupRequest::Join(_) | GroupRequest::Sync(_))
}

impl Host {
    fn loads_from(&self) -> Option<Offset> {
        self.loading.as_ref().map(|loading| loading.from)
    }
}

impl Loading {
    fn at(from: Offset) -> Self {
        Self { from, parts: VecDeque::new(), gathered: BytesMut::new() }
    }
}
