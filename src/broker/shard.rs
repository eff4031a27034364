//! A data shard: the machine that owns connections and partitions.
//!
//! The shard has two sides. As *home* of a connection it parses requests, asks the owners of
//! their partitions and answers in order (`connections`, `calls`, `api`). As *owner* of
//! partitions it serves what homes ask (`owner`), its own home among them. The life of the shard,
//! from start to stop, is in `life`.

use std::collections::VecDeque;

use api::{Effects, Event, FileEffect, FileOutcome, Machine, Part, SocketId};
use base::{Instant, Map, Now, PartitionIndex, Random, ShardId, Slab, Timers, Token, TopicId};
use config::{BrokerConfig, Layers};
use intercom::{Message, PartitionKey, Published, QuorumRequest, Reply, Request};
use protocol::{ErrorCode, RequestFrame, Str};

use crate::apis;
use crate::apis::init_producer_id::ProducerIds;
use crate::calls::{Ask, CALLS_MAX, Call, Forwarded, Head, Stage};
use crate::connections::{Connections, Room};
use crate::files::{FileStep, Files};
use crate::life::Life;
use crate::mail::Mail;
use crate::owner::{Asker, Desk, Owner};
use crate::rules::group_config;
use crate::sessions::Sessions;
use crate::setup::Setup;
use crate::topics::OFFSETS_TOPIC;

/// Fetch sessions of a whole node (`max.incremental.fetch.session.cache.slots`), of which each
/// shard has its part.
const FETCH_SESSIONS_OF_NODE_MAX: usize = 1_000;
/// Questions to other shards under way at once: a few for each call.
const ASKS_MAX: usize = 1 << 20;

/// What a step works with: the time, and the list of what is to be done.
pub(crate) struct Io<'a> {
    pub(crate) now: Now,
    pub(crate) effects: &'a mut Effects<Message>,
}

/// What the shard has asked to be told at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timer {
    /// A call has waited long enough.
    Call(Token),
    /// Checkpoints are due.
    Checkpoint,
    /// Segments may have outlived their topic's retention.
    Retention,
    /// Connections may have been idle for too long.
    Idle,
}

/// A data shard.
#[derive(Debug)]
pub struct Shard {
    pub(crate) setup: Setup,
    pub(crate) life: Life,
    /// The newest metadata; none until the quorum shard has loaded its log.
    pub(crate) view: Option<Published>,
    pub(crate) connections: Connections,
    pub(crate) sessions: Sessions,
    pub(crate) owner: Owner,
    pub(crate) random: Random,
    pub(crate) timers: Timers<Timer>,
    pub(crate) files: Files,
    pub(crate) mail: Mail,
    /// The node's configuration with what was altered since.
    pub(crate) layers: Layers,
    pub(crate) producer_ids: ProducerIds,
    /// Calls that wait for a newer image.
    awaiting_view: Vec<Token>,
    calls: Slab<Call>,
    asks: Slab<Ask>,
    /// Connections whose next request may be there and may start.
    ready: VecDeque<SocketId>,
    /// Connections that have to wait until there is room for another call.
    starved: VecDeque<SocketId>,
    wake_at: Instant,
}

impl Shard {
    /// A shard that has done nothing yet.
    pub fn new(setup: Setup, random: Random) -> Self {
        let machines = usize::from(setup.data_shards) + 1;
        let owner = Owner::new(group_config(&setup.config), random.fork("groups"));
        let sessions_max = FETCH_SESSIONS_OF_NODE_MAX.div_ceil(usize::from(setup.data_shards));
        Self {
            mail: Mail::new(setup.shard, machines, setup.lane_slots),
            life: Life::new(&setup),
            layers: Layers::new(BrokerConfig::clone(&setup.config)),
            producer_ids: ProducerIds::default(),
            awaiting_view: Vec::new(),
            setup,
            view: None,
            connections: Connections::default(),
            sessions: Sessions::new(sessions_max, random.fork("sessions")),
            owner,
            random,
            timers: Timers::default(),
            files: Files::default(),
            calls: Slab::new(CALLS_MAX),
            asks: Slab::new(ASKS_MAX),
            ready: VecDeque::new(),
            starved: VecDeque::new(),
            wake_at: Instant::FAR_FUTURE,
        }
    }
}

impl Machine for Shard {
    type Message = Message;

    fn step(&mut self, now: Now, event: Event<Message>, effects: &mut Effects<Message>) {
        let io = &mut Io { now, effects };
        match event {
            Event::Started => self.started(io),
            Event::Listening { token, result } => self.listening(io, token, result),
            Event::Accepted { token, socket, .. } => self.accepted(io, token, socket),
            Event::Opened { socket, listener, peer } => {
                self.connections.open(socket, listener, peer, now.mono);
                self.report_load(io);
            }
            Event::Received { socket, bytes } => {
                if self.connections.received(socket, bytes, now.mono) {
                    self.ready.push_back(socket);
                }
            }
            Event::Sent { socket, bytes } => {
                if self.connections.sent(socket, bytes) {
                    self.connections.touch(socket);
                    self.ready.push_back(socket);
                }
            }
            Event::Closed { socket, .. } => self.closed(io, socket),
            Event::File { token, outcome } => self.on_file(io, token, outcome),
            Event::Mesh { from, message } => self.on_message(io, from, message),
            Event::WakeUp => self.on_time(io),
            Event::Stop => self.stop(io),
            Event::Connected { .. } => unreachable!("a data shard connects to nobody"),
        }
        self.settle(io);
    }

    fn end_of_turn(&mut self, now: Now, effects: &mut Effects<Message>) {
        let io = &mut Io { now, effects };
        self.with_owner(io, |owner, desk| owner.end_of_turn(desk));
        self.spread_news(io);
        self.settle(io);
        self.connections.end_of_turn(io.effects);
        self.set_wake_up(io);
    }
}

/// Home of connections.
impl Shard {
    /// The partition's key and the shard that owns it, by the topic's name.
    pub(crate) fn locate(
        &self,
        topic: &str,
        partition: PartitionIndex,
    ) -> Result<(PartitionKey, ShardId), ErrorCode> {
        let image = self.view.as_ref().map(|view| &view.image);
        let topic = image.and_then(|image| image.topic_id(topic));
        self.locate_by_id(topic.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?, partition)
    }

    /// The partition's key and the shard that owns it, by the topic's id.
    pub(crate) fn locate_by_id(
        &self,
        topic: TopicId,
        partition: PartitionIndex,
    ) -> Result<(PartitionKey, ShardId), ErrorCode> {
        let view = self.view.as_ref().ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?;
        let found = view.image.topic(topic).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?;
        let found = found.partition(partition).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        if found.leader != self.setup.node {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        let key = PartitionKey { topic, partition };
        let owner = view.placement.owner(key).ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
        Ok((key, owner))
    }

    /// The name of the listener that a call came by.
    pub(crate) fn listener_of(&self, call: Token) -> &str {
        let socket = self.socket(call);
        let connection = socket.and_then(|socket| self.connections.get(socket));
        let listener = connection.map_or(0, |connection| usize::from(connection.listener));
        self.setup.listeners.get(listener).map_or("", |listener| &listener.name)
    }

    /// How many partitions the offsets topic has; 0 where there is no such topic.
    pub(crate) fn offsets_partitions(&self) -> i32 {
        let image = self.view.as_ref().map(|view| &view.image);
        let topic = image.and_then(|image| image.topic_by_name(OFFSETS_TOPIC));
        topic.map_or(0, |topic| i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX))
    }

    /// The address that a call came from, as Java prints it.
    pub(crate) fn client_host(&self, call: Token) -> Str {
        let socket = self.socket(call);
        let peer = socket.and_then(|socket| self.connections.get(socket)).map(|one| one.peer);
        peer.map_or_else(Str::default, |peer| format!("/{}", peer.ip()).into())
    }

    /// The name of a topic.
    pub(crate) fn topic_name(&self, id: TopicId) -> Option<Str> {
        let image = self.view.as_ref().map(|view| &view.image)?;
        image.topic_name(id).map(|name| Str::from(&**name))
    }

    /// The call is told of every newer image.
    pub(crate) fn await_view(&mut self, call: Token) {
        self.awaiting_view.push(call);
    }

    /// There is a newer image.
    pub(crate) fn view_changed(&mut self, io: &mut Io<'_>) {
        for call in std::mem::take(&mut self.awaiting_view) {
            if matches!(self.stage_mut(call), Some(Stage::Creation(_))) {
                self.awaiting_view.push(call);
                apis::creation::view_changed(self, io, call);
            }
        }
    }

    /// Asks for the size of a log directory's file system.
    pub(crate) fn ask_space(&mut self, io: &mut Io<'_>, call: Token, index: u16) {
        let path = self.setup.log_directories[usize::from(index)].path.clone();
        let effect = FileEffect::Space { token: (call, index), path };
        self.files.file(io.effects, effect, |(call, index)| FileStep::Space(call, index));
    }

    /// The call is answered in another version than it came in.
    pub(crate) fn answer_in_version(&mut self, call: Token, version: i16) {
        if let Some(call) = self.calls.get_mut(call) {
            call.head.version = version;
        }
    }

    /// The call's version and the like.
    pub(crate) fn head(&self, call: Token) -> Head {
        self.calls.get(call).expect("a handler works on a call that is under way").head
    }

    /// The socket that a call came by.
    pub(crate) fn socket(&self, call: Token) -> Option<SocketId> {
        self.calls.get(call).map(|call| call.socket)
    }

    /// The call waits, in this stage.
    pub(crate) fn wait(&mut self, call: Token, stage: Stage) {
        if let Some(call) = self.calls.get_mut(call) {
            call.stage = stage;
        }
    }

    /// The stage that a call waits in, if it is still under way.
    pub(crate) fn stage_mut(&mut self, call: Token) -> Option<&mut Stage> {
        self.calls.get_mut(call).map(|call| &mut call.stage)
    }

    /// Takes the stage out: the call does not wait any more.
    pub(crate) fn take_stage(&mut self, call: Token) -> Option<Stage> {
        let call = self.calls.get_mut(call)?;
        if let Some(timer) = call.timer.take() {
            self.timers.cancel(timer);
        }
        Some(std::mem::replace(&mut call.stage, Stage::Started))
    }

    /// The call is told when this time comes; an earlier time of it is forgotten.
    pub(crate) fn set_timer(&mut self, token: Token, at: Instant) {
        let Some(call) = self.calls.get_mut(token) else { return };
        if let Some(timer) = call.timer.take() {
            self.timers.cancel(timer);
        }
        call.timer = Some(self.timers.set(at, Timer::Call(token)));
    }

    /// Asks a shard something on behalf of a call, about these of its partitions.
    pub(crate) fn ask(
        &mut self,
        io: &mut Io<'_>,
        call: Token,
        to: ShardId,
        slots: Vec<usize>,
        body: Request,
    ) {
        let ask = Ask { call, slots };
        let id = self.asks.insert(ask).expect("the questions of a call are bounded");
        self.mail.request(io.effects, to, id, body);
    }

    /// Asks the quorum shard, and passes its answer to `forwarded`.
    pub(crate) fn ask_quorum(
        &mut self,
        io: &mut Io<'_>,
        call: Token,
        request: QuorumRequest,
        forwarded: Forwarded,
    ) {
        self.wait(call, Stage::Quorum(forwarded));
        let to = self.setup.quorum;
        self.ask(io, call, to, Vec::new(), Request::Quorum(Box::new(request)));
    }

    /// Answers a call.
    pub(crate) fn respond<R: protocol::Request>(
        &mut self,
        io: &mut Io<'_>,
        call: Token,
        response: &R::Response,
    ) {
        self.respond_with_gaps::<R>(io, call, response, Vec::new());
    }

    /// Answers a call; gap number `n` of the response is filled with `gaps[n]`.
    pub(crate) fn respond_with_gaps<R: protocol::Request>(
        &mut self,
        io: &mut Io<'_>,
        call: Token,
        response: &R::Response,
        mut gaps: Vec<Vec<Part>>,
    ) {
        let head = self.head(call);
        let encoded = protocol::encode_response::<R>(head.correlation_id, head.version, response);
        let encoded = match encoded {
            Ok(encoded) => encoded,
            Err(error) => {
                // A response that its version cannot carry is a fault of this broker. The client
                // learns of it by the closed connection, the operator by this line.
                tracing::error!(api = %head.api_key, version = head.version, %error, "no answer");
                self.stay_silent(call);
                return self.close_connection_of(io, call);
            }
        };
        let mut parts = Vec::with_capacity(encoded.parts.len());
        for part in encoded.parts {
            match part {
                protocol::Part::Bytes(bytes) => parts.push(Part::Bytes(bytes)),
                protocol::Part::Gap { slot, .. } => {
                    let gap = gaps.get_mut(slot as usize).expect("the response made this gap");
                    parts.append(gap);
                }
            }
        }
        self.done(call, Stage::Answered(parts));
    }

    /// The call is done without an answer (acks=0).
    pub(crate) fn stay_silent(&mut self, call: Token) {
        self.done(call, Stage::Silent);
    }

    /// Closes the connection that a call came by, when what was answered has left.
    pub(crate) fn close_connection_of(&mut self, io: &mut Io<'_>, call: Token) {
        if let Some(socket) = self.socket(call) {
            self.connections.close(socket, io.effects);
        }
    }

    /// The answer leaves when those before it have left.
    fn done(&mut self, token: Token, stage: Stage) {
        self.take_stage(token);
        let Some(call) = self.calls.get_mut(token) else { return };
        call.stage = stage;
        self.ready.push_back(call.socket);
    }

    /// Sends the answers that are next in order, then starts what may start. Ends when there is
    /// nothing left that this shard can do by itself.
    fn settle(&mut self, io: &mut Io<'_>) {
        loop {
            if self.has_room_for_calls() {
                self.ready.append(&mut self.starved);
            }
            while let Some(message) = self.mail.next_local() {
                self.on_message(io, self.setup.shard, message);
            }
            let Some(socket) = self.ready.pop_front() else { break };
            self.release(socket);
            self.start_calls(io, socket);
        }
    }

    /// Puts the answers that are next in order into the connection's outbox.
    fn release(&mut self, socket: SocketId) {
        while let Some(connection) = self.connections.get_mut(socket) {
            let Some(&oldest) = connection.calls.front() else { break };
            let stage = self.calls.get(oldest).map(|call| &call.stage);
            if !matches!(stage, Some(Stage::Answered(_) | Stage::Silent)) {
                break;
            }
            connection.calls.pop_front();
            connection.exclusive &= !connection.calls.is_empty();
            let call = self.calls.remove(oldest).expect("it was looked at a line ago");
            if let Stage::Answered(parts) = call.stage {
                self.connections.answer(socket, parts);
            }
        }
    }

    fn start_calls(&mut self, io: &mut Io<'_>, socket: SocketId) {
        let limit = self.setup.config.simple.socket_request_max_bytes;
        loop {
            if !self.has_room_for_calls() {
                return self.starved.push_back(socket);
            }
            let Some(connection) = self.connections.get_mut(socket) else { return };
            if connection.room() == Room::Wait {
                return self.connections.touch(socket);
            }
            match connection.next_frame(limit) {
                Ok(None) => return self.connections.touch(socket),
                Ok(Some(frame)) => self.start_call(io, socket, frame),
                Err(error) => {
                    let peer = connection.peer;
                    tracing::warn!(%peer, %error, "closing a connection");
                    return self.connections.close(socket, io.effects);
                }
            }
        }
    }

    /// Whether another call may start: it has a place, and what it asks of others will leave.
    fn has_room_for_calls(&self) -> bool {
        !self.calls.is_full() && self.mail.has_room()
    }

    fn start_call(&mut self, io: &mut Io<'_>, socket: SocketId, frame: bytes::Bytes) {
        if let Err(error) = self.try_start_call(io, socket, frame) {
            let peer = self.connections.get(socket).map(|connection| connection.peer);
            tracing::warn!(?peer, %error, "closing a connection");
            self.connections.close(socket, io.effects);
        }
    }

    /// An error is a sentence on why the frame is no request that is served here.
    fn try_start_call(
        &mut self,
        io: &mut Io<'_>,
        socket: SocketId,
        frame: bytes::Bytes,
    ) -> Result<(), String> {
        let frame = RequestFrame::decode(frame).map_err(|error| error.to_string())?;
        let handler = apis::handler_of(&frame)?;
        let head = Head {
            api_key: handler.api_key,
            version: frame.version,
            correlation_id: frame.correlation_id,
        };
        let call = Call { socket, head, stage: Stage::Started, timer: None };
        let call = self.calls.insert(call).expect("there was room before the frame was cut");
        if let Some(connection) = self.connections.get_mut(socket) {
            connection.calls.push_back(call);
            connection.exclusive = !handler.pipelined;
        }
        (handler.start)(self, io, call, &frame)
            .map_err(|error| format!("{} version {}: {error}", head.api_key, head.version))
    }

    fn closed(&mut self, io: &mut Io<'_>, socket: SocketId) {
        let Some(connection) = self.connections.remove(socket) else { return };
        // What they still wait for will find nobody: an answer that nobody reads is not made.
        for call in connection.calls {
            self.take_stage(call);
            self.calls.remove(call);
        }
        self.report_load(io);
    }
}

/// Messages, files and time.
impl Shard {
    /// Lets the partitions do something.
    pub(crate) fn with_owner<R>(
        &mut self,
        io: &mut Io<'_>,
        work: impl FnOnce(&mut Owner, &mut Desk<'_>) -> R,
    ) -> R {
        let mut desk = Desk {
            now: io.now,
            effects: &mut *io.effects,
            mail: &mut self.mail,
            files: &mut self.files,
            image: self.view.as_ref().map(|view| &*view.image),
        };
        work(&mut self.owner, &mut desk)
    }

    fn on_file(&mut self, io: &mut Io<'_>, token: Token, outcome: FileOutcome) {
        match self.files.done(token) {
            FileStep::Log(partition, step) => {
                self.with_owner(io, |owner, desk| owner.on_file(desk, partition, step, outcome));
                self.take_notices(io);
            }
            FileStep::Load(partition) => {
                self.with_owner(io, |owner, desk| owner.load_read(desk, partition, outcome));
            }
            FileStep::Directory(index, step) => self.on_directory(io, index, step, outcome),
            FileStep::Space(call, index) => {
                let space = outcome.space().ok();
                apis::describe_log_dirs::measured(self, io, call, index, space);
            }
        }
    }

    fn on_message(&mut self, io: &mut Io<'_>, from: ShardId, message: Message) {
        match message {
            Message::Request { id, body } => self.on_request(io, Asker { shard: from, id }, body),
            Message::Reply { id, body } => {
                self.mail.replied(io.effects, from);
                self.on_reply(io, id, body);
            }
            Message::Published(published) => self.published(io, published),
            Message::Found(found) => self.found_directories(io, found),
            Message::Load { connections } => self.life.note_load(from, connections),
        }
    }

    fn on_request(&mut self, io: &mut Io<'_>, asker: Asker, body: Request) {
        match body {
            Request::Woken(calls) => {
                for call in calls {
                    apis::woken(self, io, call);
                }
                self.mail.reply(io.effects, asker.shard, asker.id, Reply::Taken);
            }
            Request::Checkpoints { positions, closed } => {
                self.mail.reply(io.effects, asker.shard, asker.id, Reply::Taken);
                self.note_checkpoints(io, asker.shard, positions, closed);
            }
            Request::Late { id, body } => {
                self.mail.reply(io.effects, asker.shard, asker.id, Reply::Taken);
                self.on_reply(io, id, *body);
            }
            Request::Quorum(_) => unreachable!("a data shard is asked nothing of the quorum"),
            body => self.with_owner(io, |owner, desk| owner.ask(desk, asker, body)),
        }
    }

    fn on_reply(&mut self, io: &mut Io<'_>, id: Token, reply: Reply) {
        if matches!(reply, Reply::Later) {
            // The lane's slot is free again; the question stays open.
            return;
        }
        let Some(ask) = self.asks.remove(id) else {
            return self.on_reply_to_shard(io, reply);
        };
        let Some(call) = self.calls.get(ask.call) else { return };
        match (&call.stage, reply) {
            (Stage::Quorum(forwarded), Reply::Quorum(reply)) => {
                let forwarded = *forwarded;
                forwarded(self, io, ask.call, *reply);
            }
            (_, reply) => apis::answered(self, io, &ask, reply),
        }
    }

    /// A reply to what the shard asked for itself and not for a call.
    fn on_reply_to_shard(&mut self, io: &mut Io<'_>, reply: Reply) {
        match reply {
            Reply::Taken => {}
            Reply::Quorum(reply) => self.on_quorum_reply(io, *reply),
            other => unreachable!("{other:?} answers no question of this shard"),
        }
    }

    fn on_time(&mut self, io: &mut Io<'_>) {
        self.wake_at = Instant::FAR_FUTURE;
        self.with_owner(io, |owner, desk| owner.on_time(desk));
        while let Some(timer) = self.timers.expired(io.now.mono) {
            match timer {
                Timer::Call(call) => apis::timed_out(self, io, call),
                Timer::Checkpoint => self.send_checkpoints(io),
                Timer::Retention => self.look_for_retention(io),
                Timer::Idle => self.close_idle(io),
            }
        }
    }

    /// Tells the homes of watches that there is news, each home once a turn.
    fn spread_news(&mut self, io: &mut Io<'_>) {
        let mut by_home: Map<ShardId, Vec<Token>> = Map::default();
        for (home, watch) in self.owner.take_news() {
            by_home.entry(home).or_default().push(watch);
        }
        for (home, watches) in by_home {
            self.mail.request(io.effects, home, Token::NONE, Request::Woken(watches));
        }
    }

    fn set_wake_up(&mut self, io: &mut Io<'_>) {
        let next = self.timers.next_at().into_iter().chain(self.owner.next_alarm()).min();
        let next = next.unwrap_or(Instant::FAR_FUTURE);
        if next != self.wake_at {
            self.wake_at = next;
            io.effects.push(api::Effect::WakeAt(next));
        }
    }
}
