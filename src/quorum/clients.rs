//! The controller's listeners: who asks it without a broker between.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use api::{Effect, Effects, IoResult, Part, SocketEffect, SocketId};
use base::{Duration, Instant, Now, ShardId, Slab, Timers, Token};
use bytes::Bytes;
use config::SimpleSettings;
use intercom::{ListenerSetup, Message};
use network::{Bound, Complaints, Connections, REQUEST_BYTES_MAX, Room, STALL_MAX};
use protocol::RequestFrame;

/// Requests at once. At the limit no connection starts another one.
const CALLS_MAX: usize = 1 << 12;
/// How often idle connections are looked for within `connections.max.idle.ms`.
const IDLE_CHECKS: u32 = 10;

/// What is to be done at a time.
#[derive(Clone, Copy, Debug)]
enum Timer {
    /// The address of a listener, by its number, may be free now.
    Listen(usize),
    /// Connections may have been idle for too long.
    Idle,
    /// The connection that is read while memory is short may have sent nothing.
    Favourite(SocketId),
}

/// One request under way.
#[derive(Clone, Copy, Debug)]
struct Call {
    socket: SocketId,
    /// How long the request is.
    bytes: usize,
}

/// Connections to the controller. As in Kafka one request of a connection is answered before the
/// next one starts.
#[derive(Debug)]
pub(crate) struct Clients {
    /// The shard that this is, which keeps what it accepts.
    shard: ShardId,
    listeners: Arc<[ListenerSetup]>,
    backlog: i32,
    request_bytes_max: i32,
    /// None where connections may be idle for as long as they like.
    idle_max: Option<Duration>,
    connections: Connections,
    calls: Slab<Call>,
    call_bytes: usize,
    /// Connections whose next request may be there and may start.
    ready: VecDeque<SocketId>,
    /// Those that wait until there is room for another call.
    starved: VecDeque<SocketId>,
    complaints: Complaints,
    timers: Timers<Timer>,
    listens_since: Option<Instant>,
}

impl Clients {
    pub(crate) fn new(
        shard: ShardId,
        listeners: Arc<[ListenerSetup]>,
        config: &SimpleSettings,
    ) -> Self {
        let idle_ms = u64::try_from(config.connections_max_idle_ms).ok().filter(|ms| *ms > 0);
        Self {
            shard,
            listeners,
            backlog: config.socket_listen_backlog_size,
            request_bytes_max: config.socket_request_max_bytes,
            idle_max: idle_ms.map(Duration::from_millis),
            connections: Connections::default(),
            calls: Slab::new(CALLS_MAX),
            call_bytes: 0,
            ready: VecDeque::new(),
            starved: VecDeque::new(),
            complaints: Complaints::default(),
            timers: Timers::default(),
            listens_since: None,
        }
    }

    /// Opens the listeners.
    pub(crate) fn listen(&mut self, now: Now, effects: &mut Effects<Message>) {
        self.listens_since = Some(now.mono);
        (0..self.listeners.len()).for_each(|index| self.listen_at(index, effects));
        if let Some(idle_max) = self.idle_max {
            self.timers.set(now.mono + idle_max / IDLE_CHECKS, Timer::Idle);
        }
    }

    fn listen_at(&self, index: usize, effects: &mut Effects<Message>) {
        let (token, address) = (Token::from_bits(index as u64), self.listeners[index].address);
        effects.socket(SocketEffect::Listen { token, address, backlog: self.backlog });
    }

    /// Nobody new is let in.
    pub(crate) fn stop_listening(&mut self, effects: &mut Effects<Message>) {
        if self.listens_since.take().is_some() {
            for index in 0..self.listeners.len() {
                let token = Token::from_bits(index as u64);
                effects.socket(SocketEffect::StopListening { token });
            }
        }
    }

    /// Lets everybody go, once what was answered has left.
    pub(crate) fn close(&mut self, now: Now, effects: &mut Effects<Message>) {
        self.stop_listening(effects);
        for socket in self.connections.all() {
            self.connections.close(socket, now.mono, effects);
        }
    }

    pub(crate) fn listening(
        &mut self,
        now: Now,
        token: Token,
        result: IoResult<SocketAddr>,
        effects: &mut Effects<Message>,
    ) {
        let Some(since) = self.listens_since else { return };
        let index = token.to_bits() as usize;
        let listener = &self.listeners[index];
        match network::bound(now.mono, since, listener.address, result) {
            Bound::At(address) => tracing::info!(listener = %listener.name, %address, "listening"),
            Bound::Again(at) => drop(self.timers.set(at, Timer::Listen(index))),
            Bound::Refused(sentence) => effects.push(Effect::Fail { sentence }),
        }
    }

    /// Takes a connection. It stays on this core, which the data shards leave alone.
    pub(crate) fn accepted(&self, token: Token, socket: SocketId, effects: &mut Effects<Message>) {
        let listener = u16::try_from(token.to_bits()).expect("listeners are few");
        effects.socket(SocketEffect::HandOver { socket, to: self.shard, listener });
    }

    pub(crate) fn opened(&mut self, now: Now, socket: SocketId, listener: u16, peer: SocketAddr) {
        self.connections.open(socket, listener, peer, now.mono);
    }

    pub(crate) fn received(&mut self, now: Now, socket: SocketId, bytes: Bytes) {
        if self.connections.received(socket, bytes, now.mono) {
            self.ready.push_back(socket);
        }
    }

    pub(crate) fn sent(&mut self, socket: SocketId, bytes: u64) {
        if self.connections.sent(socket, bytes) {
            self.connections.touch(socket);
            self.ready.push_back(socket);
        }
    }

    pub(crate) fn closed(&mut self, socket: SocketId) {
        let Some(connection) = self.connections.remove(socket) else { return };
        for call in connection.calls {
            self.end(call);
        }
    }

    /// The next request that may start, with the name of its call.
    pub(crate) fn next_request(
        &mut self,
        now: Now,
        effects: &mut Effects<Message>,
    ) -> Option<(Token, RequestFrame)> {
        while let Some(socket) = self.ready.pop_front() {
            self.connections.touch(socket);
            if self.calls.is_full() || self.call_bytes >= REQUEST_BYTES_MAX {
                self.starved.push_back(socket);
                continue;
            }
            let Some(connection) = self.connections.get_mut(socket) else { continue };
            if connection.room() == Room::Wait {
                continue;
            }
            let frame = match connection.next_frame(self.request_bytes_max) {
                Ok(None) => continue,
                // A slice of what the core received would keep a whole chunk of it.
                Ok(Some(frame)) => Bytes::copy_from_slice(&frame),
                Err(error) => {
                    self.close_on(now, socket, &error.to_string(), effects);
                    continue;
                }
            };
            let bytes = frame.len();
            match RequestFrame::decode(frame) {
                Ok(frame) => {
                    let call = self.calls.insert(Call { socket, bytes }).expect("there is room");
                    self.call_bytes += bytes;
                    connection.starts(call, true);
                    return Some((call, frame));
                }
                Err(error) => self.close_on(now, socket, &error.to_string(), effects),
            }
        }
        None
    }

    /// Answers a call, if its connection is still there.
    pub(crate) fn answer(&mut self, call: Token, frame: Bytes) {
        let Some(socket) = self.end(call) else { return };
        let Some(connection) = self.connections.get_mut(socket) else { return };
        connection.calls.clear();
        connection.exclusive = false;
        self.connections.answer(socket, vec![Part::Bytes(frame)]);
        self.ready.push_back(socket);
    }

    /// The call was no request: its connection is closed, and the sentence says why.
    pub(crate) fn refuse(
        &mut self,
        now: Now,
        call: Token,
        sentence: &str,
        effects: &mut Effects<Message>,
    ) {
        if let Some(socket) = self.end(call) {
            self.close_on(now, socket, sentence, effects);
        }
    }

    /// Forgets a call, and returns where it came from.
    fn end(&mut self, call: Token) -> Option<SocketId> {
        let Call { socket, bytes } = self.calls.remove(call)?;
        self.call_bytes -= bytes;
        self.ready.append(&mut self.starved);
        Some(socket)
    }

    fn close_on(
        &mut self,
        now: Now,
        socket: SocketId,
        sentence: &str,
        effects: &mut Effects<Message>,
    ) {
        let Some(connection) = self.connections.get(socket) else { return };
        let (peer, listener) = (connection.peer, connection.listener);
        if let Some(suppressed) = self.complaints.may_say(now.mono, listener) {
            let name = self.listeners.get(usize::from(listener));
            let listener = name.map_or("", |listener| &*listener.name);
            tracing::warn!(%peer, listener, suppressed, "closing a connection: {sentence}");
        }
        self.connections.close(socket, now.mono, effects);
    }

    pub(crate) fn on_time(&mut self, now: Now, effects: &mut Effects<Message>) {
        while let Some(timer) = self.timers.expired(now.mono) {
            match timer {
                Timer::Listen(index) if self.listens_since.is_some() => {
                    self.listen_at(index, effects);
                }
                Timer::Listen(_) => {}
                Timer::Idle => {
                    let Some(idle_max) = self.idle_max else { continue };
                    self.connections.close_idle(now.mono, idle_max, effects);
                    self.timers.set(now.mono + idle_max / IDLE_CHECKS, Timer::Idle);
                }
                Timer::Favourite(socket) => self.check_favourite(now, socket, effects),
            }
        }
    }

    /// The one connection that is still read has to send something, or it stands in everybody's
    /// way.
    fn check_favourite(&mut self, now: Now, socket: SocketId, effects: &mut Effects<Message>) {
        if !self.connections.is_favourite(socket) {
            return;
        }
        if self.connections.favourite_stalls() {
            let sentence = "the memory for requests is full, and it does not send the rest of its \
                            own, or too slowly";
            return self.close_on(now, socket, sentence, effects);
        }
        self.timers.set(now.mono + STALL_MAX, Timer::Favourite(socket));
    }

    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.next_at()
    }

    pub(crate) fn end_of_turn(&mut self, now: Now, effects: &mut Effects<Message>) {
        if let Some(favourite) = self.connections.end_of_turn(self.call_bytes, effects) {
            self.timers.set(now.mono + STALL_MAX, Timer::Favourite(favourite));
        }
    }
}
