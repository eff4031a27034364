//! The loop: time passes, turns are taken, effects are performed, nodes crash and start again.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use api::{CloseReason, Effect, Event, FileEffect, Lane, SocketEffect};
use base::{Duration, Instant, Now, Random, ShardId, Token};
use bytes::Bytes;

use crate::disk::Disk;
use crate::fault::{Crash, CrashPoint, FaultPlan, Planted, Rest, Trouble, strikes};
use crate::network::{ClientSocket, Listener, Network, Place, Told};
use crate::process::{Exit, Process, Seat, Waiting};
use crate::queue::Queue;
use crate::storage::{Change, Storage};
use crate::trace::Trace;

/// A node of the world, from 0.
pub type NodeId = usize;

/// The date at which every simulation begins: 2026-01-01 UTC, in milliseconds since 1970.
const WALL_START_MS: i64 = 1_767_225_600_000;
/// How far the clock of a machine is when the world begins, at most, in milliseconds.
const BOOT_MS_MAX: u64 = 1_000_000;

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    /// Everything random follows from it.
    pub seed: u64,
    /// What goes slow and wrong.
    pub faults: FaultPlan,
    /// A fault of the driver, planted to see whether it is found.
    pub planted: Option<Planted>,
    /// Slots of each lane between two machines.
    pub lane_slots: usize,
    /// How many lines of text the trace keeps.
    pub trace_lines: usize,
}

/// What whoever drives the world is told.
#[derive(Debug)]
pub enum WorldEvent {
    /// A connection of a client is there.
    Connected(ClientSocket),
    /// A client received bytes.
    Received(ClientSocket, Bytes),
    /// A connection of a client is gone, or was never made. The last event of it.
    Closed(ClientSocket, CloseReason),
    /// A timer of [`World::wake_at`] is due.
    Timer(u64),
    /// The process of a node has ended.
    Exited(NodeId, Exit),
}

enum Item<M> {
    Turn { node: NodeId, process: u64, core: usize },
    Wake { node: NodeId, process: u64, shard: ShardId, count: u64 },
    Arrive { node: NodeId, process: u64, to: ShardId, what: Waiting<M> },
    Timer(u64),
}

struct Node<M> {
    process: Option<Process<M>>,
    storage: Storage,
    /// The monotonic clock of the node is this far ahead of the world's.
    boot: Duration,
    wall_skew_ms: i64,
}

struct Streams {
    turn: Random,
    mesh: Random,
    timer: Random,
    node: Random,
    planted: Random,
}

/// The fake world; `M` is what the machines of a node say to each other.
pub struct World<M> {
    now: Instant,
    faults: FaultPlan,
    options: WorldOptions,
    streams: Streams,
    nodes: Vec<Node<M>>,
    network: Network,
    queue: Queue<Item<M>>,
    processes: u64,
    events: VecDeque<WorldEvent>,
    trace: Trace,
}

impl<M> fmt::Debug for World<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a world of {} nodes at {:?}", self.nodes.len(), self.now)
    }
}

impl<M: fmt::Debug + Send + 'static> World<M> {
    /// A world without nodes.
    pub fn new(options: WorldOptions) -> Self {
        let random = Random::new(options.seed);
        Self {
            now: Instant::ZERO,
            faults: options.faults.clone(),
            streams: Streams {
                turn: random.fork("turn"),
                mesh: random.fork("mesh"),
                timer: random.fork("timer"),
                node: random.fork("node"),
                planted: random.fork("planted"),
            },
            nodes: Vec::new(),
            network: Network::new(options.faults.network.clone(), random.fork("network")),
            queue: Queue::default(),
            processes: 0,
            events: VecDeque::new(),
            trace: Trace::new(options.trace_lines),
            options,
        }
    }

    /// Adds a node with an empty disk that never fills up, and no process.
    pub fn add_node(&mut self) -> NodeId {
        let node = self.nodes.len();
        let random = Random::new(self.options.seed).fork("disk").fork(&node.to_string());
        let mut storage = Storage::new(u64::MAX, self.faults.disk.clone(), random);
        storage.planted = self.options.planted;
        let boot = Duration::from_millis(self.streams.node.below(BOOT_MS_MAX));
        self.nodes.push(Node { process: None, storage, boot, wall_skew_ms: 0 });
        node
    }

    /// The address of a port of a node.
    pub fn address(node: NodeId, port: u16) -> SocketAddr {
        SocketAddr::new(Network::node_ip(node), port)
    }

    /// The disk of a node, to put files on it and to look at it.
    pub fn disk(&mut self, node: NodeId) -> &mut Disk {
        &mut self.nodes[node].storage.disk
    }

    /// Starts a process on a node: the machines get their [`ShardId`]s in order.
    ///
    /// # Panics
    /// If one is running already.
    pub fn start(&mut self, node: NodeId, seats: Vec<Seat<M>>) {
        assert!(self.nodes[node].process.is_none(), "node {node} is running");
        self.processes += 1;
        let shards = seats.len();
        self.note(format_args!("n{node} starts with {shards} machines"), &[]);
        let process = Process::new(self.processes, seats, self.options.lane_slots);
        self.nodes[node].process = Some(process);
        for shard in 0..shards {
            self.deliver(place(node, shard), Waiting::Event(Event::Started));
        }
    }

    /// Whether a process runs on a node.
    pub fn is_running(&self, node: NodeId) -> bool {
        self.nodes[node].process.is_some()
    }

    /// Asks the process of a node to stop in order, as a signal does.
    pub fn stop(&mut self, node: NodeId) {
        let shards = self.nodes[node].process.as_ref().map_or(0, |process| process.shards.len());
        for shard in 0..shards {
            self.deliver(place(node, shard), Waiting::Event(Event::Stop));
        }
    }

    /// Crashes a node between two turns. A machine can lose its power while no process runs, too.
    pub fn crash(&mut self, node: NodeId, crash: Crash) {
        if self.is_running(node) {
            self.end_process(node, Exit::Crashed(crash), Rest::Drawn, None);
        } else if crash == Crash::Machine {
            self.note(format_args!("n{node} loses its power"), &[]);
            let wall_ms = self.clock_of(node).wall_ms;
            self.nodes[node].storage.crash(wall_ms, crash, Rest::Drawn, None);
        }
    }

    /// Crashes a node when it has performed this many more effects, which is mostly within a turn
    /// and can be within a write.
    pub fn crash_after_effects(&mut self, node: NodeId, effects: u64, crash: Crash) {
        if let Some(process) = &mut self.nodes[node].process {
            process.effects_before_crash = Some((effects, crash));
        }
    }

    /// Counts the changes of a node's disk from now on, and crashes the node at one of them, if a
    /// point is given.
    pub fn watch_changes(&mut self, node: NodeId, point: Option<CrashPoint>) {
        self.nodes[node].storage.watch(point);
    }

    /// Ends counting: what was changed since, in order. A crash that was to come does not.
    pub fn watched_changes(&mut self, node: NodeId) -> Vec<Change> {
        self.nodes[node].storage.watched()
    }

    /// Crashes a node whose disk has come to the change at which it is to.
    fn crash_if_due(&mut self, node: NodeId) {
        if let Some((point, cut)) = self.nodes[node].storage.crash_now() {
            self.end_process(node, Exit::Crashed(point.crash), point.rest, cut);
        }
    }

    /// Cuts a node off for a while: what is sent to and from it arrives afterwards.
    pub fn cut(&mut self, node: NodeId, how_long: Duration) {
        self.note(format_args!("n{node} is cut off for {how_long:?}"), &[]);
        self.network.cut(node, self.now + how_long);
    }

    /// Sets the wall clock of a node back or forward.
    pub fn set_wall_clock(&mut self, node: NodeId, skew_ms: i64) {
        self.nodes[node].wall_skew_ms = skew_ms;
    }

    /// Replaces the faults: from here on it is this plan that holds.
    pub fn set_faults(&mut self, faults: FaultPlan) {
        self.note(format_args!("faults change"), &[]);
        self.network.faults = faults.network.clone();
        for node in &mut self.nodes {
            node.storage.faults = faults.disk.clone();
        }
        self.faults = faults;
    }

    /// A directory of a node's disk, with all that is in it, is in trouble from now on, or no more.
    pub fn set_trouble(&mut self, node: NodeId, directory: &Path, trouble: Option<Trouble>) {
        self.note(format_args!("n{node} {}: {trouble:?}", directory.display()), &[]);
        self.nodes[node].storage.set_trouble(directory, trouble);
    }

    /// The time of the world.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// What the clocks of a node show.
    pub fn clock_of(&self, node: NodeId) -> Now {
        let node = &self.nodes[node];
        let wall = i64::try_from(self.now.as_nanos() / 1_000_000).expect("a short simulation");
        Now { mono: self.now + node.boot, wall_ms: WALL_START_MS + node.wall_skew_ms + wall }
    }

    /// What happened so far.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Takes down something that whoever drives the world did or saw.
    pub fn note(&mut self, what: fmt::Arguments<'_>, payload: &[u8]) {
        self.trace.note(self.now, what, payload);
    }

    /// Asks for [`WorldEvent::Timer`] at this time.
    pub fn wake_at(&mut self, at: Instant, timer: u64) {
        self.queue.put(at.max(self.now), Item::Timer(timer));
    }

    /// Connects a client; [`WorldEvent::Connected`] or [`WorldEvent::Closed`] follows.
    pub fn connect(&mut self, node: NodeId, port: u16) -> ClientSocket {
        let client = self.network.client_connect(self.now, Self::address(node, port));
        self.note(format_args!("c{} connects to n{node}:{port}", client.0), &[]);
        client
    }

    /// Sends bytes of a client. Without effect on a connection that is gone.
    pub fn send(&mut self, client: ClientSocket, bytes: Bytes) {
        self.note(format_args!("c{} sends", client.0), &bytes);
        self.network.client_send(self.now, client, bytes);
    }

    /// Closes a connection of a client, at once or after all it sent has left. No event follows.
    pub fn close(&mut self, client: ClientSocket, flush: bool) {
        self.note(format_args!("c{} closes", client.0), &[]);
        self.network.client_close(self.now, client, flush);
        self.hear_network();
    }

    /// Ends what a client sends; it still reads.
    pub fn half_close(&mut self, client: ClientSocket) {
        self.note(format_args!("c{} sends no more", client.0), &[]);
        self.network.client_half_close(self.now, client);
    }

    /// Breaks a connection of a client: what is under way is lost.
    pub fn reset(&mut self, client: ClientSocket) {
        self.note(format_args!("c{} is reset", client.0), &[]);
        self.network.client_reset(client);
        self.hear_network();
    }

    /// Lets a client stop reading, or read again.
    pub fn set_paused(&mut self, client: ClientSocket, paused: bool) {
        self.network.client_set_paused(self.now, client, paused);
        self.hear_network();
    }

    /// What whoever drives the world is told next, letting time pass until there is something;
    /// nothing when nothing happens before `until`, which it is then.
    pub fn next_event(&mut self, until: Instant) -> Option<WorldEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if !self.advance(until) {
                self.now = self.now.max(until);
                return None;
            }
        }
    }

    /// Lets the next thing happen, unless that is after `until`. False if nothing did.
    fn advance(&mut self, until: Instant) -> bool {
        let storage = self.nodes.iter().enumerate().filter_map(|(node, state)| {
            state.storage.next_at().map(|at| (at, Source::Storage(node)))
        });
        let others = [
            self.queue.next_at().map(|at| (at, Source::Queue)),
            self.network.next_at().map(|at| (at, Source::Network)),
        ];
        let next = storage.chain(others.into_iter().flatten()).min_by_key(|&(at, _)| at);
        let Some((at, source)) = next.filter(|&(at, _)| at <= until) else { return false };
        assert!(at >= self.now, "time goes back from {:?} to {at:?}", self.now);
        self.now = at;
        match source {
            Source::Queue => self.advance_queue(),
            Source::Network => {
                let nodes = &mut self.nodes;
                self.network.arrive(&mut |node, slice| nodes[node].storage.read_slice(slice));
                self.hear_network();
            }
            Source::Storage(node) => {
                let wall_ms = self.clock_of(node).wall_ms;
                self.nodes[node].storage.arrive(wall_ms);
                self.crash_if_due(node);
                self.hear_storage(node);
            }
        }
        true
    }

    fn advance_queue(&mut self) {
        let Some((_, item)) = self.queue.take() else { return };
        match item {
            Item::Timer(timer) => self.events.push_back(WorldEvent::Timer(timer)),
            Item::Turn { node, process, core } if self.is_current(node, process) => {
                self.turn(node, core);
            }
            Item::Wake { node, process, shard, count } if self.is_current(node, process) => {
                let state = self.process(node).shard(shard);
                if state.wake_count == count {
                    state.wake_at = Instant::FAR_FUTURE;
                    self.deliver(Place { node, shard }, Waiting::Event(Event::WakeUp));
                }
            }
            Item::Arrive { node, process, to, what } if self.is_current(node, process) => {
                self.deliver(Place { node, shard: to }, what);
            }
            // It was on its way to a process that is gone.
            Item::Turn { .. } | Item::Wake { .. } | Item::Arrive { .. } => {}
        }
    }

    fn is_current(&self, node: NodeId, number: u64) -> bool {
        self.nodes[node].process.as_ref().is_some_and(|process| process.number == number)
    }

    fn process(&mut self, node: NodeId) -> &mut Process<M> {
        self.nodes[node].process.as_mut().expect("it was found running")
    }

    /// Puts something before a machine, and makes sure that its core takes a turn.
    fn deliver(&mut self, to: Place, what: Waiting<M>) {
        let now = self.now;
        let Some(process) = &mut self.nodes[to.node].process else { return };
        let number = process.number;
        let shard = process.shard(to.shard);
        if shard.stopped {
            // A machine that has stopped is told nothing more; messages to it pile up unread.
            return;
        }
        let core_index = shard.core;
        let core = &mut process.cores[core_index];
        core.inbox.push_back((to.shard, what));
        if !core.turn_is_due {
            core.turn_is_due = true;
            let at = now.max(core.busy_until);
            self.queue.put(at, Item::Turn { node: to.node, process: number, core: core_index });
        }
    }

    /// One turn of a core: everything that waits is stepped, then the effects are performed.
    fn turn(&mut self, node: NodeId, core: usize) {
        let now = self.clock_of(node);
        let mut busy = self.faults.turn.draw(&mut self.streams.turn);
        if strikes(self.faults.core_stalls_per_million, &mut self.streams.turn) {
            busy += self.faults.core_stall.draw(&mut self.streams.turn);
        }
        let busy_until = self.now + busy;
        let state = &mut self.process(node).cores[core];
        state.busy_until = busy_until;
        state.turn_is_due = false;
        let inbox = std::mem::take(&mut state.inbox);
        let mut stepped = Vec::new();
        for (shard, waiting) in inbox {
            if self.process(node).shard(shard).stopped {
                continue;
            }
            let Some(event) = self.take_out(node, shard, waiting) else { continue };
            self.note_event(node, shard, &event);
            let state = self.process(node).shard(shard);
            state.machine.step(now, event, &mut state.effects);
            if !stepped.contains(&shard) {
                stepped.push(shard);
            }
        }
        let mut effects = Vec::new();
        for shard in stepped {
            let state = self.process(node).shard(shard);
            state.machine.end_of_turn(now, &mut state.effects);
            effects.extend(state.effects.drain().map(|effect| (shard, effect)));
        }
        self.perform_all(node, effects);
    }

    /// Takes a message out of its slot.
    fn take_out(&mut self, node: NodeId, to: ShardId, waiting: Waiting<M>) -> Option<Event<M>> {
        match waiting {
            Waiting::Event(event) => Some(event),
            Waiting::Message { from, lane, message } => {
                self.process(node).lanes.taken((from, to), lane);
                Some(Event::Mesh { from, message })
            }
            Waiting::Post { from } => {
                let message = self.process(node).lanes.take_post((from, to))?;
                Some(Event::Mesh { from, message })
            }
        }
    }

    /// Performs the effects of a turn: files, then the mesh, then sockets, then the rest.
    fn perform_all(&mut self, node: NodeId, effects: Vec<(ShardId, Effect<M>)>) {
        let rank = |effect: &Effect<M>| match effect {
            Effect::File(_) => 0,
            Effect::Mesh { .. } | Effect::Post { .. } => 1,
            Effect::Socket(_) => 2,
            _ => 3,
        };
        let mut effects = effects;
        effects.sort_by_key(|(_, effect)| rank(effect));
        for (shard, effect) in effects {
            self.note_effect(node, shard, &effect);
            if let Some((left, crash)) = &mut self.process(node).effects_before_crash {
                if *left == 0 {
                    let crash = *crash;
                    let cut = match effect {
                        Effect::File(effect) => Some(effect),
                        _ => None,
                    };
                    self.end_process(node, Exit::Crashed(crash), Rest::Drawn, cut);
                    return;
                }
                *left -= 1;
            }
            self.perform(Place { node, shard }, effect);
            if !self.is_running(node) {
                return;
            }
        }
        self.hear_network();
        self.hear_storage(node);
    }

    fn perform(&mut self, from: Place, effect: Effect<M>) {
        match effect {
            Effect::File(effect) => {
                let wall_ms = self.clock_of(from.node).wall_ms;
                self.nodes[from.node].storage.ask(self.now, wall_ms, from.shard, effect);
                self.crash_if_due(from.node);
            }
            Effect::Socket(effect) => self.perform_socket(from, effect),
            Effect::Mesh { to, lane, message } => self.send_message(from, to, lane, message),
            Effect::Post { to, message } => {
                let (node, number) = (from.node, self.process(from.node).number);
                let at = self.faults.mesh_delay.after(self.now, &mut self.streams.mesh);
                if self.process(node).lanes.post((from.shard, to), message) {
                    let what = Waiting::Post { from: from.shard };
                    self.queue.put(at, Item::Arrive { node, process: number, to, what });
                }
            }
            Effect::WakeAt(at) => self.set_timer(from, at),
            Effect::Stopped => {
                let process = self.process(from.node);
                process.shard(from.shard).stopped = true;
                self.network.shard_is_gone(self.now, from);
                let process = self.process(from.node);
                if process.has_stopped() {
                    self.end_process(from.node, Exit::Stopped, Rest::Drawn, None);
                }
            }
            Effect::Fail { sentence } => {
                self.end_process(from.node, Exit::Failed(sentence), Rest::Drawn, None);
            }
        }
    }

    fn send_message(&mut self, from: Place, to: ShardId, lane: Lane, message: M) {
        let loses = self.options.planted == Some(Planted::LoseMesh);
        if loses && self.streams.planted.chance(1) {
            return;
        }
        let at = self.faults.mesh_delay.after(self.now, &mut self.streams.mesh);
        let process = self.process(from.node);
        let number = process.number;
        let at = process.lanes.send((from.shard, to), lane, at);
        let what = Waiting::Message { from: from.shard, lane, message };
        self.queue.put(at, Item::Arrive { node: from.node, process: number, to, what });
    }

    fn set_timer(&mut self, from: Place, at: Instant) {
        let boot = self.nodes[from.node].boot;
        let now = self.now;
        let late = self.faults.timer_delay.draw(&mut self.streams.timer);
        let process = self.process(from.node);
        let number = process.number;
        let state = process.shard(from.shard);
        if state.wake_at == at {
            return;
        }
        state.wake_at = at;
        state.wake_count += 1;
        let count = state.wake_count;
        if at == Instant::FAR_FUTURE {
            return;
        }
        let in_world = Instant::ZERO + at.since(Instant::ZERO + boot);
        let (node, shard) = (from.node, from.shard);
        let item = Item::Wake { node, process: number, shard, count };
        self.queue.put(in_world.max(now) + late, item);
    }

    fn perform_socket(&mut self, from: Place, effect: SocketEffect) {
        let (now, network) = (self.now, &mut self.network);
        match effect {
            SocketEffect::Listen { token, address, backlog: _ } => {
                let result = network.listen(now, from, token, address);
                self.deliver(from, Waiting::Event(Event::Listening { token, result }));
            }
            SocketEffect::StopListening { token } => network.stop_listening(from, token),
            SocketEffect::HandOver { socket, to, listener } => {
                let to = Place { node: from.node, shard: to };
                network.hand_over(now, from, socket, to, listener);
            }
            SocketEffect::Connect { token, address } => network.connect(now, from, token, address),
            SocketEffect::Send { socket, parts } => network.send(now, from, socket, parts),
            SocketEffect::Close { socket, flush } => network.close(now, from, socket, flush),
            SocketEffect::PauseRead { socket } => network.set_paused(now, from, socket, true),
            SocketEffect::ResumeRead { socket } => network.set_paused(now, from, socket, false),
        }
    }

    /// Passes on what the network told.
    fn hear_network(&mut self) {
        while let Some((listener, told)) = self.network.told() {
            match listener {
                Listener::Client(client) => self.tell_client(client, told),
                Listener::Shard(to) => {
                    let event = match told {
                        Told::Accepted { token, socket, peer } => {
                            Event::Accepted { token, socket, peer }
                        }
                        Told::Opened { socket, listener, peer } => {
                            Event::Opened { socket, listener, peer }
                        }
                        Told::Connected { token, result } => Event::Connected { token, result },
                        Told::Received { socket: Some(socket), bytes } => {
                            Event::Received { socket, bytes }
                        }
                        Told::Sent { socket, bytes } => Event::Sent { socket, bytes },
                        Told::Closed { socket: Some(socket), reason } => {
                            Event::Closed { socket, reason }
                        }
                        client => panic!("{client:?} is for clients"),
                    };
                    self.deliver(to, Waiting::Event(event));
                }
            }
        }
    }

    fn tell_client(&mut self, client: ClientSocket, told: Told) {
        let event = match told {
            Told::ClientConnected => WorldEvent::Connected(client),
            Told::Received { bytes, .. } => WorldEvent::Received(client, bytes),
            Told::Closed { reason, .. } => WorldEvent::Closed(client, reason),
            machine => panic!("{machine:?} is for machines"),
        };
        match &event {
            WorldEvent::Received(_, bytes) => {
                self.trace.note(self.now, format_args!("c{} receives", client.0), bytes);
            }
            other => self.trace.note(self.now, format_args!("{other:?}"), &[]),
        }
        self.events.push_back(event);
    }

    /// Passes on what the disk of a node did.
    fn hear_storage(&mut self, node: NodeId) {
        while let Some((shard, token, outcome)) = self.nodes[node].storage.done() {
            self.deliver(Place { node, shard }, Waiting::Event(Event::File { token, outcome }));
        }
    }

    fn end_process(
        &mut self,
        node: NodeId,
        exit: Exit,
        rest: Rest,
        cut: Option<FileEffect<Token>>,
    ) {
        if self.nodes[node].process.is_none() {
            return;
        }
        self.note(format_args!("n{node} ends: {exit:?}"), &[]);
        let wall_ms = self.clock_of(node).wall_ms;
        let crash = match &exit {
            Exit::Crashed(crash) => *crash,
            Exit::Stopped | Exit::Failed(_) => Crash::Process,
        };
        self.network.node_is_gone(self.now, node);
        let state = &mut self.nodes[node];
        state.process = None;
        state.storage.crash(wall_ms, crash, rest, cut);
        if crash == Crash::Machine {
            // The machine boots: its monotonic clock begins anew.
            let boot_ms = self.streams.node.below(BOOT_MS_MAX);
            state.boot = Duration::from_millis(boot_ms);
        }
        self.events.push_back(WorldEvent::Exited(node, exit));
    }

    fn note_event(&mut self, node: NodeId, shard: ShardId, event: &Event<M>) {
        let (now, trace) = (self.now, &mut self.trace);
        match event {
            Event::Received { socket, bytes } => {
                let socket = socket.index();
                trace.note(now, format_args!("n{node}.{shard} < received on {socket}"), bytes);
            }
            Event::File { token, outcome: api::FileOutcome::Read(Ok(bytes)) } => {
                let token = token.to_bits();
                trace.note(now, format_args!("n{node}.{shard} < read for {token:x}"), bytes);
            }
            other => trace.note(now, format_args!("n{node}.{shard} < {other:?}"), &[]),
        }
    }

    fn note_effect(&mut self, node: NodeId, shard: ShardId, effect: &Effect<M>) {
        let (now, trace) = (self.now, &mut self.trace);
        match effect {
            Effect::File(FileEffect::Write { token, file, position, parts }) => {
                let token = token.to_bits();
                let what = format_args!("n{node}.{shard} > write {token:x} {file:?} at {position}");
                trace.note(now, what, &parts.concat());
            }
            Effect::Socket(SocketEffect::Send { socket, parts }) => {
                let socket = socket.index();
                trace.note(now, format_args!("n{node}.{shard} > send on {socket}"), &[]);
                for part in parts {
                    match part {
                        api::Part::Bytes(bytes) => trace.note(now, format_args!("  ."), bytes),
                        file => trace.note(now, format_args!("  . {file:?}"), &[]),
                    }
                }
            }
            other => trace.note(now, format_args!("n{node}.{shard} > {other:?}"), &[]),
        }
    }
}

#[derive(Clone, Copy)]
enum Source {
    Queue,
    Network,
    Storage(NodeId),
}

fn place(node: NodeId, shard: usize) -> Place {
    Place { node, shard: ShardId(u16::try_from(shard).expect("a node has few machines")) }
}
