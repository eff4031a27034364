//! A data shard: what it is made of, and what the handlers of its APIs do with it.
//!
//! The shard has two sides. As *home* of a connection it parses requests, asks the owners of
//! their partitions and answers in order (`connections`, `apis`). As *owner* of partitions it
//! serves what homes ask (`owner`), its own home among them. `machine` takes its events apart,
//! `lifecycle` leads it from start to stop, `view` from metadata to partitions.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Debug;

use api::{Effects, FileEffect, Part, SocketId, Space};
use base::{
    Instant, Now, Offset, PartitionIndex, Random, ShardId, Slab, TimerId, Timers, Token, TopicId,
};
use config::{BrokerConfig, Layers};
use intercom::{
    Fetched, Message, PartitionKey, Published, QuorumReply, QuorumRequest, Reply, Request,
};
use network::{Complaints, Connections};
use protocol::{ApiKey, ErrorCode, Str};

use crate::assignments::Assignments;
use crate::files::{FileStep, Files};
use crate::life::Life;
use crate::mail::Mail;
use crate::owner::{Desk, Owner};
use crate::producer_ids::ProducerIds;
use crate::rules::group_config;
use crate::sessions::Sessions;
use crate::setup::Setup;
use crate::topics::OFFSETS_TOPIC;
use crate::wanted::WantedDirectories;

/// Questions under way at once, for each call that may be under way and each machine that it may
/// ask: a call asks a machine one thing at a time, and as many may be left of calls that are gone.
const ASKS_PER_CALL_AND_MACHINE_MAX: usize = 2;

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
    /// Checkpoints are due because a log was cleaned.
    Cleaned,
    /// Segments may have outlived their topic's retention.
    Retention,
    /// Logs may have to be cleaned.
    Cleaning,
    /// Producers may have written nothing for too long.
    Producers,
    /// The address of a listener, by its index, may be free now.
    Listen(usize),
    /// Connections may have been idle for too long.
    Idle,
    /// The connection that is read while memory is short may have sent nothing.
    Favourite(SocketId),
}

/// What the answer to a request has to repeat of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) api_key: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
}

/// One request under way.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) socket: SocketId,
    pub(crate) head: Head,
    /// How long the request is.
    pub(crate) bytes: usize,
    /// Whether it waits for a disk that is behind.
    pub(crate) is_slow: bool,
    pub(crate) stage: Stage,
    pub(crate) timer: Option<TimerId>,
}

/// How far a request has come.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Its handler is at work.
    Started,
    /// It waits for others.
    Waiting(Box<dyn Waiting>),
    /// The answer waits for those of earlier requests.
    Answered(Vec<Part>),
    /// It is done and there is no answer (acks=0).
    Silent,
}

/// A call that waits for others. What happens takes it out of the call; if it waits on, it is put
/// back with [`Shard::wait`].
pub(crate) trait Waiting: Debug {
    /// A shard has answered what it was asked.
    fn answered(
        self: Box<Self>,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        from: ShardId,
        reply: Reply,
    );

    /// An owner tells what a watch has waited for.
    fn told(
        self: Box<Self>,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        from: ShardId,
        partitions: Vec<Fetched>,
    ) {
        let _ = (shard, io, call, from, partitions);
        unreachable!("{self:?} watches nothing");
    }

    /// The connection of the call is gone: nobody needs an answer.
    fn abandoned(self: Box<Self>, shard: &mut Shard, io: &mut Io<'_>, connection: SocketId) {
        let _ = (shard, io, connection);
    }

    /// The time that was set has come.
    fn timed_out(self: Box<Self>, shard: &mut Shard, io: &mut Io<'_>, call: Token) {
        let _ = (shard, io, call);
        unreachable!("{self:?} has set no time");
    }

    /// There is a newer image.
    fn view_changed(self: Box<Self>, shard: &mut Shard, io: &mut Io<'_>, call: Token) {
        let _ = (shard, io, call);
        unreachable!("{self:?} does not wait for an image");
    }

    /// The size of a log directory's file system is known, or could not be found out.
    fn measured(
        self: Box<Self>,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        directory: u16,
        space: Option<Space>,
    ) {
        let _ = (shard, io, call, directory, space);
        unreachable!("{self:?} has measured nothing");
    }
}

/// A question of a call to a shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) call: Token,
    pub(crate) to: ShardId,
}

/// Passes on what the quorum shard answered.
pub(crate) type Forwarded = fn(&mut Shard, &mut Io<'_>, Token, QuorumReply);

/// A call that waits for the quorum shard.
struct Passing(Forwarded);

impl Debug for Passing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a call that waits for the quorum shard")
    }
}

impl Waiting for Passing {
    fn answered(
        self: Box<Self>,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        _: ShardId,
        reply: Reply,
    ) {
        let Reply::Quorum(reply) = reply else { unreachable!("answered by {reply:?}") };
        (self.0)(shard, io, call, *reply);
    }
}

/// How far the names of deleted logs have been given back, in offsets of the metadata log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    /// The image that last lacked a log of this shard.
    pub(crate) last_deleted: Offset,
    /// Whether checkpoints were written since the node started. Those that it found may speak of
    /// logs that are not there any more: no log is made before.
    pub(crate) are_clean: bool,
    /// The offset with which checkpoints were last asked for.
    pub(crate) checkpoint_asked: Option<Offset>,
    /// Checkpoints that were written lack what was deleted up to here.
    pub(crate) checkpointed: Offset,
    /// What was last said by [`Message::Settled`].
    pub(crate) reported: Offset,
}

impl Default for Names {
    fn default() -> Self {
        let none = Offset(-1);
        Self {
            last_deleted: none,
            are_clean: false,
            checkpoint_asked: None,
            checkpointed: none,
            reported: none,
        }
    }
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
    /// Whether the timer of [`Timer::Cleaned`] is set.
    pub(crate) checkpoints_are_soon: bool,
    pub(crate) files: Files,
    pub(crate) mail: Mail,
    /// The node's configuration with what was altered since.
    pub(crate) layers: Layers,
    pub(crate) producer_ids: ProducerIds,
    pub(crate) assignments: Assignments,
    pub(crate) wanted: WantedDirectories,
    /// Calls that wait for a newer image.
    pub(crate) awaiting_view: Vec<Token>,
    /// Topics of the image that have no owner yet.
    pub(crate) unplaced: BTreeSet<TopicId>,
    pub(crate) names: Names,
    pub(crate) calls: Slab<Call>,
    /// Bytes of the requests under way.
    pub(crate) call_bytes: usize,
    pub(crate) complaints: Complaints,
    pub(crate) asks: Slab<Ask>,
    /// Connections whose next request may be there and may start.
    pub(crate) ready: VecDeque<SocketId>,
    /// Connections that have started enough requests in this turn.
    pub(crate) next_turn: Vec<SocketId>,
    /// Connections that have to wait until there is room for another call.
    pub(crate) starved: VecDeque<SocketId>,
    pub(crate) wake_at: Instant,
}

impl Shard {
    /// A shard that has done nothing yet.
    pub fn new(setup: Setup, random: Random) -> Self {
        let machines = usize::from(setup.data_shards) + 1;
        let owner = Owner::new(&setup, group_config(&setup.config), random.fork("groups"));
        // Those of the whole node, of which each shard has its part.
        let slots = setup.config.simple.max_incremental_fetch_session_cache_slots;
        let slots = usize::try_from(slots).unwrap_or(0);
        let sessions_max = slots.div_ceil(usize::from(setup.data_shards));
        Self {
            mail: Mail::new(setup.shard, machines, setup.lane_slots),
            life: Life::new(&setup),
            layers: Layers::new(BrokerConfig::clone(&setup.config)),
            producer_ids: ProducerIds::default(),
            assignments: Assignments::default(),
            wanted: WantedDirectories::default(),
            awaiting_view: Vec::new(),
            unplaced: BTreeSet::new(),
            names: Names::default(),
            calls: Slab::new(setup.calls_max),
            asks: Slab::new(setup.calls_max * machines * ASKS_PER_CALL_AND_MACHINE_MAX),
            setup,
            view: None,
            connections: Connections::default(),
            sessions: Sessions::new(sessions_max, random.fork("sessions")),
            owner,
            random,
            timers: Timers::default(),
            checkpoints_are_soon: false,
            files: Files::default(),
            call_bytes: 0,
            complaints: Complaints::default(),
            ready: VecDeque::new(),
            next_turn: Vec::new(),
            starved: VecDeque::new(),
            wake_at: Instant::FAR_FUTURE,
        }
    }
}

/// What handlers do.
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
        // Its owner knows better whether it is led here: a log whose disk has failed is led by
        // nobody, and its clients are told of the disk.
        if !found.has_replica(self.setup.node) {
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

    /// The call waits for what this says.
    pub(crate) fn wait(&mut self, call: Token, waiting: Box<dyn Waiting>) {
        if let Some(call) = self.calls.get_mut(call) {
            call.stage = Stage::Waiting(waiting);
        }
    }

    /// Takes out what a call waits for; nothing when it is gone, or waits for nothing.
    pub(crate) fn take_waiting(&mut self, call: Token) -> Option<Box<dyn Waiting>> {
        let call = self.calls.get_mut(call)?;
        match std::mem::replace(&mut call.stage, Stage::Started) {
            Stage::Waiting(waiting) => Some(waiting),
            other => {
                call.stage = other;
                None
            }
        }
    }

    /// The call is told when this time comes; an earlier time of it is forgotten.
    pub(crate) fn set_timer(&mut self, token: Token, at: Instant) {
        let Some(call) = self.calls.get_mut(token) else { return };
        if let Some(timer) = call.timer.take() {
            self.timers.cancel(timer);
        }
        call.timer = Some(self.timers.set(at, Timer::Call(token)));
    }

    /// Asks a shard something on behalf of a call.
    pub(crate) fn ask(&mut self, io: &mut Io<'_>, call: Token, to: ShardId, body: Request) {
        if self.asks.is_full() {
            self.forget_abandoned_asks();
        }
        let ask = Ask { call, to };
        let id = self.asks.insert(ask).expect("a call asks a machine one thing at a time");
        self.mail.request(io.effects, to, id, body);
    }

    /// Forgets the questions of calls that are gone: their connection was closed before an owner
    /// answered, which can take it minutes. It leaves half of the room at least.
    fn forget_abandoned_asks(&mut self) {
        let asks = self.asks.iter().filter(|(_, ask)| self.calls.get(ask.call).is_none());
        for id in asks.map(|(id, _)| id).collect::<Vec<Token>>() {
            self.asks.remove(id);
        }
    }

    /// Asks the quorum shard, and passes its answer to `forwarded`.
    pub(crate) fn ask_quorum(
        &mut self,
        io: &mut Io<'_>,
        call: Token,
        request: QuorumRequest,
        forwarded: Forwarded,
    ) {
        self.wait(call, Box::new(Passing(forwarded)));
        let to = self.setup.quorum;
        self.ask(io, call, to, Request::Quorum(Box::new(request)));
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
        self.answer(call, parts);
    }

    /// Answers a call by a response that is written already.
    pub(crate) fn answer(&mut self, call: Token, parts: Vec<Part>) {
        self.done(call, Stage::Answered(parts));
    }

    /// The call was no request: its connection is closed, and the sentence says why.
    pub(crate) fn refuse(&mut self, io: &mut Io<'_>, call: Token, sentence: &str) {
        self.stay_silent(call);
        if let Some(socket) = self.socket(call) {
            self.close_on(io, socket, sentence);
        }
    }

    /// The call is done without an answer (acks=0).
    pub(crate) fn stay_silent(&mut self, call: Token) {
        self.done(call, Stage::Silent);
    }

    /// Closes the connection that a call came by, when what was answered has left.
    pub(crate) fn close_connection_of(&mut self, io: &mut Io<'_>, call: Token) {
        if let Some(socket) = self.socket(call) {
            self.connections.close(socket, io.now.mono, io.effects);
        }
    }

    /// The answer leaves when those before it have left.
    fn done(&mut self, token: Token, stage: Stage) {
        let Some(call) = self.calls.get_mut(token) else { return };
        if let Some(timer) = call.timer.take() {
            self.timers.cancel(timer);
        }
        call.stage = stage;
        self.ready.push_back(call.socket);
    }
}
