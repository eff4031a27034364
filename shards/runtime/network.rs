//! The sockets of one core.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use api::{CloseReason, Event, FileSlice, Instant, IoError, IoErrorKind, Part, SocketEffect};
use api::{SocketId, Token};
use base::{Duration, Slab};
use ring::io_error;
use ring::{ChunkPool, Completion, Listener, OpenFile, Operation, OperationId, Ring, Socket};

use crate::connection::{Connection, Sending, Stage};
use crate::counters::Counters;
use crate::links::HandedOver;
use crate::purpose::{Purpose, Seat};
use crate::sending::{Budget, Pending, Stopped};
use crate::settings::Settings;
use crate::transport::Transport;

/// How long accepting pauses when the kernel cannot, as when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How many connections share one turn's bytes of files; the others have their turn after them.
const FILE_SENDERS_A_TURN_MAX: usize = 2;

/// The events of the next turn.
pub(crate) type Next<M> = Vec<(Seat, Event<M>)>;

struct Listening {
    number: u32,
    seat: Seat,
    token: Token,
    listener: Arc<Listener>,
    /// There while it accepts.
    accept: Option<OperationId>,
    /// When it tries again, if it could not.
    paused_until: Option<Instant>,
    /// The log says that it could not; it says so once until it can again.
    pause_is_told: bool,
}

/// Every socket of the machines of one core.
pub(crate) struct Network {
    settings: Settings,
    /// By seat.
    connections: Vec<Slab<Connection>>,
    listening: Vec<Listening>,
    listeners_so_far: u32,
    chunks: ChunkPool,
    to_receive: VecDeque<(Seat, SocketId)>,
    to_send: VecDeque<(Seat, SocketId)>,
    /// Those whose next part is a file and whom only the turn's limit stopped.
    to_send_files: VecDeque<(Seat, SocketId)>,
    /// Reading has paused because slices hold all chunks.
    starved: bool,
    counters: Arc<Counters>,
}

/// What a step of the network works with.
pub(crate) struct Tools<'a, M> {
    pub(crate) ring: &'a mut Ring<Purpose>,
    pub(crate) next: &'a mut Next<M>,
    pub(crate) now: Instant,
}

impl Network {
    pub(crate) fn new(settings: &Settings, seats: usize, counters: Arc<Counters>) -> Self {
        let limit = settings.connections_max;
        Self {
            settings: settings.clone(),
            connections: (0..seats).map(|_| Slab::new(limit)).collect(),
            listening: Vec::new(),
            listeners_so_far: 0,
            chunks: ChunkPool::new(settings.receive_chunk_bytes, settings.receive_bytes_max),
            to_receive: VecDeque::new(),
            to_send: VecDeque::new(),
            to_send_files: VecDeque::new(),
            starved: false,
            counters,
        }
    }

    /// Whether there is something to do without waiting for the kernel.
    pub(crate) fn is_busy(&self) -> bool {
        !self.to_send_files.is_empty() || (!self.to_receive.is_empty() && !self.starved)
    }

    /// When it must look again by itself, if at all.
    pub(crate) fn look_again_at(&self, now: Instant) -> Instant {
        let paused = self.listening.iter().filter_map(|listening| listening.paused_until).min();
        let starved = self.starved.then(|| now + Duration::from_millis(1));
        paused.into_iter().chain(starved).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Performs an effect of the machine at `seat`, but for handing over, which crosses cores.
    pub(crate) fn perform<M>(
        &mut self,
        seat: Seat,
        effect: SocketEffect,
        open: &mut dyn FnMut(&FileSlice) -> Result<Arc<OpenFile>, IoError>,
        tools: &mut Tools<'_, M>,
    ) {
        match effect {
            SocketEffect::Listen { token, address, backlog } => {
                let result = self.listen(seat, token, address, backlog, tools);
                tools.next.push((seat, Event::Listening { token, result }));
            }
            SocketEffect::StopListening { token } => {
                self.stop_listening(tools.ring, |other| other.seat == seat && other.token == token);
            }
            SocketEffect::HandOver { .. } => {
                unreachable!("the core hands connections over itself")
            }
            SocketEffect::Connect { token, address } => self.connect(seat, token, address, tools),
            SocketEffect::Send { socket, parts } => self.queue(seat, socket, parts, open, tools),
            SocketEffect::Close { socket, flush } => self.close(seat, socket, flush, tools),
            SocketEffect::PauseRead { socket } => {
                if let Some(connection) = self.connection(seat, socket) {
                    connection.paused = true;
                }
            }
            SocketEffect::ResumeRead { socket } => {
                if let Some(connection) = self.connection(seat, socket) {
                    connection.paused = false;
                    self.list_to_receive(seat, socket);
                }
            }
        }
    }

    fn connection(&mut self, seat: Seat, socket: SocketId) -> Option<&mut Connection> {
        self.connections[usize::from(seat)].get_mut(socket.0)
    }

    fn listen<M>(
        &mut self,
        seat: Seat,
        token: Token,
        address: SocketAddr,
        backlog: i32,
        tools: &mut Tools<'_, M>,
    ) -> Result<SocketAddr, IoError> {
        let refused = |error: io::Error| io_error("listen on", address, &error);
        let listener = Arc::new(Listener::open(address, backlog).map_err(refused)?);
        let taken = listener.address().map_err(refused)?;
        let number = self.listeners_so_far;
        self.listeners_so_far += 1;
        let operation = Operation::Accept(Arc::clone(&listener));
        let accept = Some(tools.ring.start(operation, Purpose::Accept(number)));
        self.listening.push(Listening {
            number,
            seat,
            token,
            listener,
            accept,
            paused_until: None,
            pause_is_told: false,
        });
        Ok(taken)
    }

    fn stop_listening(&mut self, ring: &mut Ring<Purpose>, which: impl Fn(&Listening) -> bool) {
        self.listening.retain(|listening| {
            let stop = which(listening);
            if stop && let Some(accept) = listening.accept {
                ring.cancel(accept);
            }
            !stop
        });
    }

    /// A client connected, or accepting has ended.
    pub(crate) fn accepted<M>(
        &mut self,
        number: u32,
        completion: Completion<Purpose>,
        tools: &mut Tools<'_, M>,
    ) {
        let Some(listening) = self.listening.iter_mut().find(|other| other.number == number) else {
            return; // It was stopped meanwhile; the connection is dropped.
        };
        let (seat, token) = (listening.seat, listening.token);
        if !completion.more {
            listening.accept = None;
            listening.paused_until = Some(tools.now);
        }
        match &completion.result {
            Ok(_) => listening.pause_is_told = false,
            Err(error) => {
                listening.paused_until = Some(tools.now + ACCEPT_PAUSE);
                self.counters.accept_paused.add(1);
                if !std::mem::replace(&mut listening.pause_is_told, true) {
                    tracing::warn!("accepting connections pauses: {error}{}", advice(error));
                }
            }
        }
        if let Some(descriptor) = completion.accepted
            && let Some((socket, peer)) = self.adopt(seat, descriptor)
        {
            tools.next.push((seat, Event::Accepted { token, socket, peer }));
        }
    }

    /// Takes an accepted descriptor; `None` if the peer is gone already, or there are too many.
    fn adopt(&mut self, seat: Seat, descriptor: OwnedFd) -> Option<(SocketId, SocketAddr)> {
        let socket = Socket::accepted(descriptor).ok()?;
        let peer = socket.peer().ok()?;
        let connection =
            Connection::new(Arc::new(socket), peer, Stage::Accepted, Transport::new(None));
        let socket = self.insert(seat, connection)?;
        self.counters.accepted.add(1);
        Some((socket, peer))
    }

    fn insert(&mut self, seat: Seat, connection: Connection) -> Option<SocketId> {
        match self.connections[usize::from(seat)].insert(connection) {
            Ok(token) => Some(SocketId(token)),
            Err(connection) => {
                let limit = self.settings.connections_max;
                let peer = connection.peer;
                tracing::warn!("connection with {peer} dropped: there are {limit} already");
                None
            }
        }
    }

    /// Listeners that paused try again.
    pub(crate) fn accept_again(&mut self, ring: &mut Ring<Purpose>, now: Instant) {
        for listening in &mut self.listening {
            if listening.paused_until.is_some_and(|until| until <= now) {
                listening.paused_until = None;
                let operation = Operation::Accept(Arc::clone(&listening.listener));
                listening.accept = Some(ring.start(operation, Purpose::Accept(listening.number)));
            }
        }
    }

    /// Takes an accepted connection out, to be served elsewhere.
    pub(crate) fn release(&mut self, seat: Seat, socket: SocketId) -> Option<Connection> {
        let connections = &mut self.connections[usize::from(seat)];
        let accepted = connections.get(socket.0)?.stage == Stage::Accepted;
        assert!(accepted, "{socket:?} is handed over a second time");
        connections.remove(socket.0)
    }

    /// Takes a connection that was handed to the machine at its seat: it is read from now on.
    pub(crate) fn take_over<M>(&mut self, given: HandedOver, tools: &mut Tools<'_, M>) {
        let HandedOver { seat, socket, listener, peer } = given;
        let transport = Transport::new(self.settings.transport.make(listener));
        let connection = Connection::new(socket, peer, Stage::Open, transport);
        if let Some(socket) = self.insert(seat, connection) {
            tools.next.push((seat, Event::Opened { socket, listener, peer }));
            self.watch(seat, socket, tools.ring);
        }
    }

    fn watch(&mut self, seat: Seat, socket: SocketId, ring: &mut Ring<Purpose>) {
        if let Some(connection) = self.connection(seat, socket) {
            let operation = Operation::WatchReadable(Arc::clone(&connection.socket));
            connection.watch = Some(ring.start(operation, Purpose::Readable(seat, socket)));
        }
    }

    fn connect<M>(
        &mut self,
        seat: Seat,
        token: Token,
        address: SocketAddr,
        tools: &mut Tools<'_, M>,
    ) {
        let connecting = Socket::connect(address)
            .map(|socket| {
                let socket = Arc::new(socket);
                let stage = Stage::Connecting(token);
                Connection::new(socket, address, stage, Transport::new(None))
            })
            .map_err(|error| io_error("connect to", address, &error));
        let inserted = connecting.and_then(|connection| {
            let socket = Arc::clone(&connection.socket);
            let id = self.insert(seat, connection).ok_or_else(|| IoError {
                kind: IoErrorKind::TooManyFiles,
                action: "connect to",
                subject: address.to_string(),
                cause: "there are too many connections".to_owned(),
            })?;
            Ok((id, socket))
        });
        match inserted {
            Ok((id, socket)) => {
                let operation = Operation::AwaitWritable(socket);
                let wait = tools.ring.start(operation, Purpose::Writable(seat, id));
                if let Some(connection) = self.connection(seat, id) {
                    connection.sending = Sending::Blocked(wait);
                }
            }
            Err(error) => {
                tools.next.push((seat, Event::Connected { token, result: Err(error) }));
            }
        }
    }

    fn queue<M>(
        &mut self,
        seat: Seat,
        socket: SocketId,
        parts: Vec<Part>,
        open: &mut dyn FnMut(&FileSlice) -> Result<Arc<OpenFile>, IoError>,
        tools: &mut Tools<'_, M>,
    ) {
        let Some(connection) = self.connections[usize::from(seat)].get_mut(socket.0) else {
            return;
        };
        if connection.stage != Stage::Open {
            return;
        }
        for part in parts {
            match part {
                Part::Bytes(bytes) => connection.queue.push(Pending::Bytes(bytes)),
                Part::File(slice) => match open(&slice) {
                    Ok(file) => {
                        let (position, left) = (slice.position, u64::from(slice.length));
                        connection.queue.push(Pending::File { file, position, left });
                    }
                    Err(error) => {
                        return self.end(seat, socket, CloseReason::Failed(error), tools);
                    }
                },
            }
        }
        self.list_to_send(seat, socket);
    }

    fn close<M>(&mut self, seat: Seat, socket: SocketId, flush: bool, tools: &mut Tools<'_, M>) {
        let Some(connection) = self.connection(seat, socket) else { return };
        if flush && connection.stage == Stage::Open && !connection.is_drained() {
            connection.stage = Stage::Flushing;
            return;
        }
        if flush && connection.stage == Stage::Flushing {
            return;
        }
        self.end(seat, socket, CloseReason::Asked, tools);
    }

    /// Ends a connection, and says so if its machine knew it as open.
    fn end<M>(
        &mut self,
        seat: Seat,
        socket: SocketId,
        reason: CloseReason,
        tools: &mut Tools<'_, M>,
    ) {
        let Some(connection) = self.connections[usize::from(seat)].remove(socket.0) else {
            return;
        };
        connection.socket.shut_down();
        if let Some(watch) = connection.watch {
            tools.ring.cancel(watch);
        }
        if let Sending::Blocked(wait) = connection.sending {
            tools.ring.cancel(wait);
        }
        match connection.stage {
            Stage::Open | Stage::Flushing => {
                self.counters.closed.add(1);
                tools.next.push((seat, Event::Closed { socket, reason }));
            }
            Stage::Accepted | Stage::Connecting(_) => {}
        }
    }

    fn fail<M>(
        &mut self,
        seat: Seat,
        socket: SocketId,
        action: &'static str,
        error: &io::Error,
        tools: &mut Tools<'_, M>,
    ) {
        let Some(connection) = self.connection(seat, socket) else { return };
        let mut told = io_error(action, connection.peer, error);
        if told.kind == IoErrorKind::NotFound {
            told.kind = IoErrorKind::Other;
        }
        self.end(seat, socket, CloseReason::Failed(told), tools);
    }

    /// Something arrived on a connection, or its peer has ended it.
    pub(crate) fn readable<M>(
        &mut self,
        (seat, socket): (Seat, SocketId),
        completion: &Completion<Purpose>,
        tools: &mut Tools<'_, M>,
    ) {
        let Some(connection) = self.connection(seat, socket) else { return };
        if !completion.more {
            connection.watch = None;
        }
        match &completion.result {
            Ok(mask) => {
                connection.readable = true;
                connection.ended |= mask & Operation::ENDED != 0;
                let broken = mask & Operation::BROKEN != 0;
                if broken && (connection.paused || connection.stage == Stage::Flushing) {
                    // It will not be read, and nothing more reaches the peer.
                    let error = match connection.socket.connect_result() {
                        Ok(()) => io::ErrorKind::ConnectionReset.into(),
                        Err(error) => error,
                    };
                    return self.fail(seat, socket, "read from", &error, tools);
                }
                self.list_to_receive(seat, socket);
            }
            Err(error) => return self.fail(seat, socket, "watch", error, tools),
        }
        if !completion.more {
            self.watch(seat, socket, tools.ring);
        }
    }

    fn list_to_receive(&mut self, seat: Seat, socket: SocketId) {
        let Some(connection) = self.connection(seat, socket) else { return };
        if connection.wants_to_receive() && !connection.listed_to_receive {
            connection.listed_to_receive = true;
            self.to_receive.push_back((seat, socket));
        }
    }

    /// Receives once from each connection that has something, and gives it to `deliver`.
    pub(crate) fn receive<M>(
        &mut self,
        tools: &mut Tools<'_, M>,
        mut deliver: impl FnMut(Seat, Event<M>),
    ) {
        self.starved = false;
        for _ in 0..self.to_receive.len() {
            let Some((seat, socket)) = self.to_receive.pop_front() else { break };
            let Some(connection) = self.connections[usize::from(seat)].get_mut(socket.0) else {
                continue;
            };
            connection.listed_to_receive = false;
            if !connection.wants_to_receive() {
                continue;
            }
            let Some(room) = self.chunks.room() else {
                self.starved = true;
                self.counters.receive_budget_reached.add(1);
                self.list_to_receive(seat, socket);
                break;
            };
            let room_bytes = room.capacity();
            match connection.socket.receive(room) {
                Ok(0) => self.end(seat, socket, CloseReason::PeerClosed, tools),
                Ok(received) => {
                    // A receive that filled less than its room took everything: what comes later
                    // is a new edge. The end of the stream that came before is not.
                    connection.readable = received == room_bytes || connection.ended;
                    self.counters.received_bytes.add(received as u64);
                    match connection.transport.open(room.split().freeze()) {
                        Ok(bytes) if bytes.is_empty() => {}
                        Ok(bytes) => deliver(seat, Event::Received { socket, bytes }),
                        Err(error) => {
                            let error = io::Error::new(io::ErrorKind::InvalidData, error);
                            self.fail(seat, socket, "read from", &error, tools);
                        }
                    }
                    self.list_to_receive(seat, socket);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    connection.readable = false;
                }
                Err(error) => self.fail(seat, socket, "read from", &error, tools),
            }
        }
    }

    fn list_to_send(&mut self, seat: Seat, socket: SocketId) {
        let Some(connection) = self.connection(seat, socket) else { return };
        if connection.sending == Sending::Ready && !connection.listed_to_send {
            connection.listed_to_send = true;
            self.to_send.push_back((seat, socket));
        }
    }

    /// The kernel takes more on a connection, or connecting has come to an end.
    pub(crate) fn writable<M>(
        &mut self,
        (seat, socket): (Seat, SocketId),
        completion: &Completion<Purpose>,
        tools: &mut Tools<'_, M>,
    ) {
        let Some(connection) = self.connection(seat, socket) else { return };
        connection.sending = Sending::Ready;
        if let Err(error) = &completion.result {
            return self.fail(seat, socket, "write to", error, tools);
        }
        let Stage::Connecting(token) = connection.stage else {
            return self.list_to_send(seat, socket);
        };
        match connection.socket.connect_result() {
            Ok(()) => {
                connection.stage = Stage::Open;
                tools.next.push((seat, Event::Connected { token, result: Ok(socket) }));
                self.watch(seat, socket, tools.ring);
            }
            Err(error) => {
                let error = io_error("connect to", connection.peer, &error);
                self.end(seat, socket, CloseReason::Asked, tools);
                tools.next.push((seat, Event::Connected { token, result: Err(error) }));
            }
        }
    }

    /// The next range of a file that is to be sent is in memory.
    pub(crate) fn warmed<M>(
        &mut self,
        (seat, socket): (Seat, SocketId),
        completion: Completion<Purpose>,
        tools: &mut Tools<'_, M>,
    ) {
        let Some(connection) = self.connection(seat, socket) else { return };
        connection.sending = Sending::Ready;
        let buffer = completion.buffer.unwrap_or_default();
        let read = completion.result.and_then(|_| {
            let transport = &mut connection.transport;
            connection.queue.warmed(transport, buffer)
        });
        match read {
            Ok(()) => self.list_to_send(seat, socket),
            Err(error) => self.fail(seat, socket, "read a file for", &error, tools),
        }
    }

    /// Sends: first what is in memory, then files, within the bytes of one turn.
    pub(crate) fn send<M>(&mut self, tools: &mut Tools<'_, M>) {
        while let Some((seat, socket)) = self.to_send.pop_front() {
            self.send_on(seat, socket, 0, tools);
        }
        let mut left = self.settings.send_file_turn_bytes;
        let sharing = self.to_send_files.len().clamp(1, FILE_SENDERS_A_TURN_MAX);
        let share = left / sharing;
        for _ in 0..self.to_send_files.len() {
            if left == 0 {
                break;
            }
            let Some((seat, socket)) = self.to_send_files.pop_front() else { break };
            left -= self.send_on(seat, socket, share.min(left), tools);
        }
    }

    /// Sends on one connection, and returns how many bytes of files that took.
    fn send_on<M>(
        &mut self,
        seat: Seat,
        socket: SocketId,
        file_bytes: usize,
        tools: &mut Tools<'_, M>,
    ) -> usize {
        let Some(connection) = self.connections[usize::from(seat)].get_mut(socket.0) else {
            return 0;
        };
        connection.listed_to_send = false;
        if connection.sending != Sending::Ready {
            return 0;
        }
        let mut budget = Budget { file_bytes, sent_bytes: 0, counters: &self.counters };
        let result =
            connection.queue.send(&connection.socket, &mut connection.transport, &mut budget);
        let used = file_bytes - budget.file_bytes;
        if budget.sent_bytes > 0 {
            tools.next.push((seat, Event::Sent { socket, bytes: budget.sent_bytes }));
        }
        match result {
            Ok(Stopped::Empty) => {
                if connection.stage == Stage::Flushing {
                    self.end(seat, socket, CloseReason::Asked, tools);
                }
            }
            Ok(Stopped::Blocked) => {
                let operation = Operation::AwaitWritable(Arc::clone(&connection.socket));
                let wait = tools.ring.start(operation, Purpose::Writable(seat, socket));
                connection.sending = Sending::Blocked(wait);
            }
            Ok(Stopped::FileTurn) => {
                connection.listed_to_send = true;
                self.to_send_files.push_back((seat, socket));
            }
            Ok(Stopped::Cold(read, ahead)) => {
                tools.ring.start(read, Purpose::Warmed(seat, socket));
                if let Some(ahead) = ahead {
                    tools.ring.start(ahead, Purpose::Nobody);
                }
                connection.sending = Sending::Warming;
            }
            Err(error) => self.fail(seat, socket, "write to", &error, tools),
        }
        used
    }

    /// Ends a turn: chunks that nobody holds are used again.
    pub(crate) fn end_of_turn(&mut self) {
        self.chunks.end_of_turn();
    }

    /// The machine at `seat` has stopped: its sockets close, and nobody is told.
    pub(crate) fn close_all<M>(&mut self, seat: Seat, tools: &mut Tools<'_, M>) {
        self.stop_listening(tools.ring, |listening| listening.seat == seat);
        let all: Vec<Token> =
            self.connections[usize::from(seat)].iter().map(|(token, _)| token).collect();
        for token in all {
            self.end(seat, SocketId(token), CloseReason::Asked, tools);
        }
    }
}

fn advice(error: &io::Error) -> &'static str {
    match io_error("accept", "", error).kind {
        IoErrorKind::TooManyFiles => "; allow more open files with `ulimit -n` or LimitNOFILE",
        _ => "",
    }
}
