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
    /// Those that have started enough requests in this turn.
    next_turn: Vec<SocketId>,
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
            next_turn: Vec::new(),
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

    /// A connection is gone: nobody needs an answer to these calls any more.
    pub(crate) fn closed(&mut self, socket: SocketId) -> VecDeque<Token> {
        let Some(connection) = self.connections.remove(socket) else { return VecDeque::new() };
        for call in &connection.calls {
            self.end(*call);
        }
        connection.calls
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
            match connection.room() {
                Room::Free => {}
                Room::Wait => continue,
                Room::NextTurn => {
                    self.next_turn.push(socket);
                    continue;
                }
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
        self.ready.extend(self.next_turn.drain(..));
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

    /// When [`Clients::on_time`] is to be called.
    pub(crate) fn next_timer(&self, now: Now) -> Option<Instant> {
        if self.next_turn.is_empty() { self.timers.next_at() } else { Some(now.mono) }
    }

    pub(crate) fn end_of_turn(&mut self, now: Now, effects: &mut Effects<Message>) {
        if let Some(favourite) = self.connections.end_of_turn(self.call_bytes, effects) {
            self.timers.set(now.mono + STALL_MAX, Timer::Favourite(favourite));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{ApiVersionsRequest, encode_request};

    const SOCKET: SocketId = SocketId(Token::from_bits(0));
    const NOW: Now = Now { mono: Instant::ZERO, wall_ms: 0 };

    fn clients() -> Clients {
        let config = config::BrokerConfig::parse(
            b"process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=C\n\
             listeners=C://127.0.0.1:9093,PLAINTEXT://127.0.0.1:9092\nlog.dirs=/data\n\
             controller.quorum.voters=1@127.0.0.1:9093\n\
             listener.security.protocol.map=C:PLAINTEXT,PLAINTEXT:PLAINTEXT\n",
        );
        let config = config.expect("it can be read").simple;
        let mut clients = Clients::new(ShardId(1), Arc::new([]), &config);
        clients.opened(NOW, SOCKET, 0, "127.0.0.1:1".parse().expect("an address"));
        clients
    }

    fn pipelined(count: usize) -> Bytes {
        let request = ApiVersionsRequest::default();
        let frame = encode_request(7, None, 0, &request).expect("it is carried").into_bytes();
        frame.repeat(count).into()
    }

    /// Answers whatever may start in this turn, and says how much that was.
    fn serve(clients: &mut Clients) -> usize {
        let mut effects = Effects::new();
        let mut served = 0;
        while let Some((call, _)) = clients.next_request(NOW, &mut effects) {
            clients.answer(call, Bytes::from_static(b"answer"));
            served += 1;
        }
        clients.end_of_turn(NOW, &mut effects);
        served
    }

    #[test]
    fn a_burst_of_small_requests_is_spread_over_turns() {
        let mut clients = clients();
        clients.received(NOW, SOCKET, pipelined(150));
        let mut turns = vec![serve(&mut clients)];
        while clients.next_timer(NOW) == Some(NOW.mono) {
            clients.on_time(NOW, &mut Effects::new());
            turns.push(serve(&mut clients));
        }
        assert_eq!(turns, [64, 64, 22]);
    }

    #[test]
    fn one_request_of_a_connection_is_under_way_and_a_lost_one_is_named() {
        let mut clients = clients();
        clients.received(NOW, SOCKET, pipelined(2));
        let (call, _) = clients.next_request(NOW, &mut Effects::new()).expect("it may start");
        assert!(clients.next_request(NOW, &mut Effects::new()).is_none());
        assert_eq!(clients.closed(SOCKET), [call]);
        assert_eq!((clients.calls.len(), clients.call_bytes), (0, 0));
        clients.answer(call, Bytes::from_static(b"late"));
        assert!(clients.closed(SOCKET).is_empty());
    }
}
