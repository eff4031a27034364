//! The client connections that this shard was given.

use std::collections::VecDeque;
use std::net::SocketAddr;

use api::{Effects, Part, SocketEffect, SocketId};
use base::{Duration, Instant, Token};
use bytes::Bytes;

use crate::frames::{FrameError, Frames};

/// Requests of one connection that are under way at once. A client that sends more waits.
pub const CALLS_PER_CONNECTION_MAX: usize = 64;
/// Requests of one connection that start in one turn of the core. What more has arrived waits for
/// the next turn, so that a client that pipelines small requests does not keep others waiting.
const STARTED_PER_TURN_MAX: usize = 64;
/// Bytes of answers that a connection has not taken yet, above which its next request waits: a
/// client that sends and never reads costs no more than this and one answer.
pub const UNSENT_BYTES_MAX: u64 = 4 << 20;
/// Bytes of requests that wait to be started, above which a connection is not read.
const WAITING_BYTES_MAX: usize = 64 << 10;
/// Bytes of requests that a shard holds, from the first byte that arrived to the answer, above
/// which none is started and no connection is read that has a part of one: somewhat more than the
/// largest request (`socket.request.max.bytes`).
pub const REQUEST_BYTES_MAX: usize = 128 << 20;
/// At that limit, where unfinished requests hold more than half of it, one connection is read on,
/// so that one of them comes to its end. In each such time it has to bring
/// [`FAVOURITE_BYTES_MIN`], or it is closed.
pub const STALL_MAX: Duration = Duration::from_secs(1);
/// How long the peer of a connection that is closed may take for what was answered before: else it
/// would keep that, and the segments in it, for as long as it likes.
const FLUSH_MAX: Duration = Duration::from_secs(30);
/// Less than any network that a broker is used over brings in a second, and enough for the largest
/// request to come to its end within minutes.
const FAVOURITE_BYTES_MIN: usize = 1 << 20;

/// One connection.
#[derive(Debug)]
pub struct Connection {
    /// Its socket.
    pub socket: SocketId,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// Which listener it came by: the number that it was handed over with.
    pub listener: u16,
    frames: Frames,
    /// The requests under way, oldest first: answers leave in this order.
    pub calls: VecDeque<Token>,
    /// Whether the newest request under way must be answered before another one starts.
    pub exclusive: bool,
    /// Requests under way that wait for a disk that is behind.
    pub slow_calls: usize,
    outbox: Vec<Part>,
    unsent_bytes: u64,
    started_in_turn: usize,
    /// Memory of its frames as it was last counted.
    pinned_bytes: usize,
    is_held_back: bool,
    paused: bool,
    /// Since when it only waits for its answers to leave, if so.
    closing_since: Option<Instant>,
    last_active: Instant,
}

/// Whether a connection may start its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// At once.
    Free,
    /// When something of its own is done.
    Wait,
    /// In the next turn.
    NextTurn,
}

impl Connection {
    fn new(socket: SocketId, listener: u16, peer: SocketAddr, now: Instant) -> Self {
        Self {
            socket,
            peer,
            listener,
            frames: Frames::default(),
            calls: VecDeque::new(),
            exclusive: false,
            slow_calls: 0,
            outbox: Vec::new(),
            unsent_bytes: 0,
            started_in_turn: 0,
            pinned_bytes: 0,
            is_held_back: false,
            paused: false,
            closing_since: None,
            last_active: now,
        }
    }

    /// Whether the next request may start.
    pub fn room(&self) -> Room {
        let waits = self.closing_since.is_some()
            || self.exclusive
            || self.slow_calls > 0
            || self.calls.len() >= CALLS_PER_CONNECTION_MAX
            || self.unsent_bytes > UNSENT_BYTES_MAX;
        match waits {
            true => Room::Wait,
            false if self.started_in_turn >= STARTED_PER_TURN_MAX => Room::NextTurn,
            false => Room::Free,
        }
    }

    /// A request of it starts.
    pub fn starts(&mut self, call: Token, exclusive: bool) {
        self.calls.push_back(call);
        self.exclusive = exclusive;
        self.started_in_turn += 1;
    }

    /// The next whole request, if there is one.
    pub fn next_frame(&mut self, limit: i32) -> Result<Option<Bytes>, FrameError> {
        self.frames.next(limit)
    }
}

/// All connections of a shard.
#[derive(Debug, Default)]
pub struct Connections {
    slots: Vec<Option<Connection>>,
    count: u32,
    /// Those that have something to send or to settle at the end of the turn.
    touched: Vec<SocketId>,
    /// Memory of all unfinished and unstarted requests.
    pinned_bytes: usize,
    /// Those that are not read because memory is short.
    held_back: Vec<SocketId>,
    /// The one that is read nevertheless.
    favourite: Option<SocketId>,
    /// What the favourite had brought of its request when it was last looked at.
    favourite_bytes: usize,
}

impl Connections {
    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Takes in a connection.
    pub fn open(&mut self, socket: SocketId, listener: u16, peer: SocketAddr, now: Instant) {
        let index = socket.index();
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        assert!(self.slots[index].is_none(), "the driver used socket {socket:?} twice");
        self.slots[index] = Some(Connection::new(socket, listener, peer, now));
        self.count += 1;
    }

    /// The connection, if it is still there.
    pub fn get_mut(&mut self, socket: SocketId) -> Option<&mut Connection> {
        let connection = self.slots.get_mut(socket.index())?.as_mut()?;
        (connection.socket == socket).then_some(connection)
    }

    /// The connection, if it is still there.
    pub fn get(&self, socket: SocketId) -> Option<&Connection> {
        let connection = self.slots.get(socket.index())?.as_ref()?;
        (connection.socket == socket).then_some(connection)
    }

    /// Takes out a connection that is gone.
    pub fn remove(&mut self, socket: SocketId) -> Option<Connection> {
        self.get(socket)?;
        self.count -= 1;
        self.favourite = self.favourite.filter(|favourite| *favourite != socket);
        let connection = self.slots[socket.index()].take();
        self.pinned_bytes -= connection.as_ref().map_or(0, |connection| connection.pinned_bytes);
        connection
    }

    /// Takes bytes that arrived. False when the connection is gone or takes nothing more.
    pub fn received(&mut self, socket: SocketId, bytes: Bytes, now: Instant) -> bool {
        let Some(connection) = self.get_mut(socket) else { return false };
        connection.last_active = now;
        if connection.closing_since.is_some() {
            return false;
        }
        connection.frames.push(bytes);
        self.touched.push(socket);
        true
    }

    /// Notes that the kernel took `bytes`. True when the connection has room again that it did
    /// not have before.
    pub fn sent(&mut self, socket: SocketId, bytes: u64) -> bool {
        let Some(connection) = self.get_mut(socket) else { return false };
        let was_full = connection.unsent_bytes > UNSENT_BYTES_MAX;
        connection.unsent_bytes = connection.unsent_bytes.saturating_sub(bytes);
        was_full && connection.unsent_bytes <= UNSENT_BYTES_MAX
    }

    /// Puts an answer behind those that wait to leave at the end of the turn.
    pub fn answer(&mut self, socket: SocketId, parts: Vec<Part>) {
        let Some(connection) = self.get_mut(socket) else { return };
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        connection.unsent_bytes += bytes;
        if connection.outbox.is_empty() {
            connection.outbox = parts;
        } else {
            connection.outbox.extend(parts);
        }
        self.touched.push(socket);
    }

    /// Closes a connection once its answers have left, or by [`Connections::close_idle`] when they
    /// do not.
    pub fn close<M>(&mut self, socket: SocketId, now: Instant, effects: &mut Effects<M>) {
        let Some(connection) = self.get_mut(socket) else { return };
        if connection.closing_since.is_some() {
            return;
        }
        connection.closing_since = Some(now);
        connection.send(effects);
        effects.socket(SocketEffect::Close { socket, flush: true });
    }

    /// One send a connection, and no connection keeps the core's chunk beyond the turn. With what
    /// the calls under way hold, memory may be short: then a connection can be returned that is
    /// read nevertheless, and has to be looked after.
    pub fn end_of_turn<M>(
        &mut self,
        call_bytes: usize,
        effects: &mut Effects<M>,
    ) -> Option<SocketId> {
        let mut touched = std::mem::take(&mut self.touched);
        for socket in &touched {
            let Some(connection) = self.get_mut(*socket) else { continue };
            connection.started_in_turn = 0;
            connection.send(effects);
            connection.frames.settle();
            let now = connection.frames.pinned_bytes();
            let before = std::mem::replace(&mut connection.pinned_bytes, now);
            self.pinned_bytes = self.pinned_bytes + now - before;
        }
        let is_short = self.pinned_bytes + call_bytes >= REQUEST_BYTES_MAX;
        if !is_short {
            self.favourite = None;
            touched.append(&mut self.held_back);
        }
        for socket in touched.drain(..) {
            let is_favourite = self.favourite == Some(socket);
            let Some(connection) = self.get_mut(socket) else { continue };
            let holds_back = is_short && !is_favourite && connection.pinned_bytes > 0;
            connection.pause_or_resume(holds_back, effects);
            if holds_back && !std::mem::replace(&mut connection.is_held_back, true) {
                self.held_back.push(socket);
            }
        }
        // The list keeps its room from turn to turn.
        self.touched = touched;
        let is_stuck = is_short && self.favourite.is_none() && call_bytes < REQUEST_BYTES_MAX / 2;
        if is_stuck { self.choose_favourite(effects) } else { None }
    }

    /// Whether the connection is read although memory is short.
    pub fn is_favourite(&self, socket: SocketId) -> bool {
        self.favourite == Some(socket)
    }

    /// Whether the favourite has brought too little since it was last looked at, [`STALL_MAX`] ago.
    pub fn favourite_stalls(&mut self) -> bool {
        let Some(favourite) = self.favourite.and_then(|socket| self.get(socket)) else {
            return false;
        };
        let now = favourite.pinned_bytes;
        let before = std::mem::replace(&mut self.favourite_bytes, now);
        // With less than before it has ended a request, and begun another one.
        (before..before + FAVOURITE_BYTES_MIN).contains(&now)
    }

    /// Lets the connection be read that holds the most: its end frees the most.
    fn choose_favourite<M>(&mut self, effects: &mut Effects<M>) -> Option<SocketId> {
        self.held_back.retain(|socket| {
            let connection = self.slots.get(socket.index()).and_then(Option::as_ref);
            connection.is_some_and(|connection| connection.socket == *socket)
        });
        let pinned = |socket: &SocketId| self.get(*socket).map_or(0, |one| one.pinned_bytes);
        let (place, _) =
            self.held_back.iter().enumerate().max_by_key(|(_, socket)| pinned(socket))?;
        let socket = self.held_back.swap_remove(place);
        self.favourite = Some(socket);
        self.favourite_bytes = self.get(socket)?.pinned_bytes;
        self.get_mut(socket)?.pause_or_resume(false, effects);
        Some(socket)
    }

    /// Sees to it that a connection is looked at when the turn ends.
    pub fn touch(&mut self, socket: SocketId) {
        self.touched.push(socket);
    }

    /// Closes those that had nothing under way for `idle_max`, and cuts off those that were closed
    /// [`FLUSH_MAX`] ago and whose peer does not take its answers.
    pub fn close_idle<M>(&mut self, now: Instant, idle_max: Duration, effects: &mut Effects<M>) {
        let idle = self.slots.iter().flatten().filter(|connection| {
            now.since(connection.last_active) > idle_max
                && connection.calls.is_empty()
                && connection.closing_since.is_none()
        });
        let idle: Vec<SocketId> = idle.map(|connection| connection.socket).collect();
        for socket in idle {
            self.close(socket, now, effects);
        }
        for connection in self.slots.iter().flatten() {
            if connection.closing_since.is_some_and(|since| now.since(since) > FLUSH_MAX) {
                effects.socket(SocketEffect::Close { socket: connection.socket, flush: false });
            }
        }
    }

    /// Every connection.
    pub fn all(&self) -> Vec<SocketId> {
        self.slots.iter().flatten().map(|connection| connection.socket).collect()
    }
}

impl Connection {
    fn send<M>(&mut self, effects: &mut Effects<M>) {
        if !self.outbox.is_empty() {
            let parts = std::mem::take(&mut self.outbox);
            effects.socket(SocketEffect::Send { socket: self.socket, parts });
        }
    }

    /// Whether it is read follows from what it holds itself, and from whether it is held back since
    /// all together hold too much.
    fn pause_or_resume<M>(&mut self, holds_back: bool, effects: &mut Effects<M>) {
        self.is_held_back &= holds_back;
        let is_full = self.room() != Room::Free && self.frames.held_bytes() > WAITING_BYTES_MAX;
        let pauses = (is_full || holds_back) && !self.paused;
        if pauses {
            self.paused = true;
            effects.socket(SocketEffect::PauseRead { socket: self.socket });
        } else if self.paused && !holds_back && self.room() == Room::Free {
            self.paused = false;
            effects.socket(SocketEffect::ResumeRead { socket: self.socket });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Effect;

    const SOCKET: SocketId = SocketId(Token::from_bits(0));

    fn open() -> Connections {
        let mut connections = Connections::default();
        let peer = "127.0.0.1:1".parse().expect("an address");
        connections.open(SOCKET, 0, peer, Instant::ZERO);
        connections
    }

    fn names(effects: &Effects<()>) -> Vec<&'static str> {
        let name = |effect: &Effect<()>| match effect {
            Effect::Socket(SocketEffect::Send { .. }) => "send",
            Effect::Socket(SocketEffect::PauseRead { .. }) => "pause",
            Effect::Socket(SocketEffect::ResumeRead { .. }) => "resume",
            Effect::Socket(SocketEffect::Close { .. }) => "close",
            other => panic!("unexpected {other:?}"),
        };
        effects.as_slice().iter().map(name).collect()
    }

    #[test]
    fn answers_of_one_turn_leave_in_one_send() {
        let (mut connections, mut effects) = (open(), Effects::<()>::new());
        for _ in 0..3 {
            connections.answer(SOCKET, vec![Part::Bytes(Bytes::from_static(b"answer"))]);
        }
        connections.end_of_turn(0, &mut effects);
        assert_eq!(names(&effects), ["send"]);
    }

    #[test]
    fn a_client_that_does_not_read_is_not_served_and_then_not_read() {
        let (mut connections, mut effects) = (open(), Effects::<()>::new());
        let large = Bytes::from(vec![0; 5 << 20]);
        connections.answer(SOCKET, vec![Part::Bytes(large.clone())]);
        assert_eq!(connections.get(SOCKET).map(Connection::room), Some(Room::Wait));
        connections.received(SOCKET, large.slice(..100 << 10), Instant::ZERO);
        connections.end_of_turn(0, &mut effects);
        assert_eq!(names(&effects), ["send", "pause"]);
        assert!(connections.sent(SOCKET, 2 << 20));
        connections.touch(SOCKET);
        connections.end_of_turn(0, &mut effects);
        assert_eq!(names(&effects), ["send", "pause", "resume"]);
    }

    #[test]
    fn many_small_requests_are_spread_over_turns() {
        let (mut connections, mut effects) = (open(), Effects::<()>::new());
        let room = |connections: &Connections| connections.get(SOCKET).map(Connection::room);
        for call in 0..STARTED_PER_TURN_MAX as u64 {
            assert_eq!(room(&connections), Some(Room::Free));
            let connection = connections.get_mut(SOCKET).expect("open");
            connection.starts(Token::from_bits(call), false);
            connection.calls.pop_front();
        }
        assert_eq!(room(&connections), Some(Room::NextTurn));
        connections.touch(SOCKET);
        connections.end_of_turn(0, &mut effects);
        assert_eq!(room(&connections), Some(Room::Free));
    }

    #[test]
    fn unfinished_requests_of_many_clients_are_held_back_and_one_is_read_on() {
        let (mut connections, mut effects) = (Connections::default(), Effects::<()>::new());
        let socket = |index: u64| SocketId(Token::from_bits(index << 32));
        let peer = "127.0.0.1:1".parse().expect("an address");
        let part = Bytes::from([&i32::MAX.to_be_bytes()[..], &vec![0; 50 << 20]].concat());
        for index in 0..4 {
            connections.open(socket(index), 0, peer, Instant::ZERO);
        }
        for index in 0..3 {
            connections.received(socket(index), part.slice(..), Instant::ZERO);
        }
        // The last one has sent nothing: it is read, so that it can be served.
        connections.received(socket(3), Bytes::new(), Instant::ZERO);
        let favourite = connections.end_of_turn(0, &mut effects).expect("there must be one");
        assert_eq!(names(&effects), ["pause", "pause", "pause", "resume"]);
        assert!(connections.is_favourite(favourite));
        assert_eq!(connections.end_of_turn(0, &mut effects), None, "one at a time");
        let mut brings = |connections: &mut Connections, bytes: usize| {
            connections.received(favourite, part.slice(..bytes), Instant::ZERO);
            connections.end_of_turn(0, &mut effects);
            !connections.favourite_stalls()
        };
        assert!(brings(&mut connections, FAVOURITE_BYTES_MIN));
        assert!(!brings(&mut connections, FAVOURITE_BYTES_MIN - 1), "it trickles");
        connections.remove(favourite);
        connections.end_of_turn(0, &mut effects);
        assert_eq!(names(&effects)[4..], ["resume", "resume"], "two of them fit");
        connections.remove(socket(0));
        connections.remove(socket(1));
        connections.remove(socket(2));
        assert_eq!(connections.pinned_bytes, 0);
    }

    #[test]
    fn while_answers_will_free_memory_nobody_is_read() {
        let (mut connections, mut effects) = (open(), Effects::<()>::new());
        connections.received(SOCKET, Bytes::from(vec![0; 10]), Instant::ZERO);
        assert_eq!(connections.end_of_turn(REQUEST_BYTES_MAX, &mut effects), None);
        assert_eq!(names(&effects), ["pause"]);
        assert_eq!(connections.end_of_turn(0, &mut effects), None);
        assert_eq!(names(&effects), ["pause", "resume"]);
    }

    #[test]
    fn a_closing_connection_takes_nothing_more() {
        let (mut connections, mut effects) = (open(), Effects::<()>::new());
        connections.answer(SOCKET, vec![Part::Bytes(Bytes::from_static(b"last words"))]);
        connections.close(SOCKET, Instant::ZERO, &mut effects);
        connections.close(SOCKET, Instant::ZERO, &mut effects);
        assert_eq!(names(&effects), ["send", "close"]);
        let idle_max = Duration::from_secs(600);
        connections.close_idle(Instant::ZERO + FLUSH_MAX, idle_max, &mut effects);
        assert_eq!(names(&effects), ["send", "close"]);
        let late = Instant::from_nanos(1) + FLUSH_MAX;
        connections.close_idle(late, idle_max, &mut effects);
        assert_eq!(names(&effects), ["send", "close", "close"]);
        assert!(!connections.received(SOCKET, Bytes::from_static(b"x"), Instant::ZERO));
        assert!(connections.remove(SOCKET).is_some() && connections.remove(SOCKET).is_none());
        assert_eq!(connections.count(), 0);
    }
}
