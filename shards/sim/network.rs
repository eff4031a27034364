//! Connections: byte streams between clients and nodes, chopped, held up, slow and broken.
//!
//! The kernel's part is played here: listening sockets, a bounded window between two ends, bytes
//! that wait because their reader does. What an end is told comes out of [`Network::told`].

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use api::{CloseReason, FileSlice, IoError, IoErrorKind, IoResult, Part, SocketId};
use base::{Instant, Random, ShardId, Slab, Token};
use bytes::Bytes;

use crate::fault::{NetworkFaults, strikes};
use crate::queue::Queue;

/// Sockets that one shard has at most.
const SOCKETS_PER_SHARD_MAX: usize = 1 << 20;
/// The first port that is given out where a listener asks for any.
const EPHEMERAL_PORT_MIN: u16 = 40_000;

/// How many of 100 pieces are as small as the plan has it.
const SMALL_PIECES_PERCENT: u64 = 40;
/// The largest of the others, in bytes.
const PIECE_BYTES_MAX: u64 = 128 * 1024;

/// Names a connection of a client for the whole simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientSocket(pub u64);

/// One machine of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) node: usize,
    pub(crate) shard: ShardId,
}

/// Whom something is told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Listener {
    Client(ClientSocket),
    Shard(Place),
}

/// What it is told.
#[derive(Debug)]
pub(crate) enum Told {
    Accepted { token: Token, socket: SocketId, peer: SocketAddr },
    Opened { socket: SocketId, listener: u16, peer: SocketAddr },
    Connected { token: Token, result: IoResult<SocketId> },
    ClientConnected,
    Received { socket: Option<SocketId>, bytes: Bytes },
    Sent { socket: SocketId, bytes: u64 },
    Closed { socket: Option<SocketId>, reason: CloseReason },
}

/// Reads a range of a file at the moment when it is sent; shorter where the file is.
pub(crate) type ReadSlice<'a> = dyn FnMut(usize, &FileSlice) -> Bytes + 'a;

#[derive(Debug)]
enum Arrival {
    Knock { connection: u64, to: SocketAddr },
    Refusal { connection: u64 },
    Welcome { connection: u64 },
    HandedOver { connection: u64, to: Place, listener: u16 },
    Bytes { connection: u64, side: usize, bytes: Bytes },
    End { connection: u64, side: usize, reason: CloseReason },
    Pump { connection: u64, side: usize },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Owner {
    /// A client.
    Client(ClientSocket),
    /// A machine that asked for the connection and was not told yet.
    Connecting { place: Place, token: Token },
    /// A machine that was told of it, and does not read it.
    Accepted { place: Place, socket: SocketId },
    /// On its way from one shard to another.
    BetweenShards { node: usize },
    /// A machine that reads it.
    Shard { place: Place, socket: SocketId },
    /// Nobody: this side is closed.
    Gone,
}

impl Owner {
    fn node(self) -> Option<usize> {
        match self {
            Owner::Connecting { place, .. }
            | Owner::Accepted { place, .. }
            | Owner::Shard { place, .. } => Some(place.node),
            Owner::BetweenShards { node } => Some(node),
            Owner::Client(_) | Owner::Gone => None,
        }
    }
}

/// How a side ends once everything it sends has left.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    /// It sends no more.
    Half,
    /// It neither sends nor reads.
    Whole,
}

#[derive(Debug)]
struct Side {
    owner: Owner,
    address: SocketAddr,
    /// What this side sends and the kernel has not taken.
    outgoing: VecDeque<Part>,
    when_sent: Option<Ending>,
    pump_is_due: bool,
    /// Bytes that the kernel took from this side and the other has not read.
    under_way_bytes: usize,
    /// When the last of them arrives.
    last_arrival: Instant,
    paused: bool,
    /// What arrived for this side and was not read.
    arrived: VecDeque<Bytes>,
    /// That the other side is gone arrived too, behind those bytes.
    ended: Option<CloseReason>,
}

impl Side {
    fn new(owner: Owner, address: SocketAddr) -> Self {
        Self {
            owner,
            address,
            outgoing: VecDeque::new(),
            when_sent: None,
            pump_is_due: false,
            under_way_bytes: 0,
            last_arrival: Instant::ZERO,
            paused: false,
            arrived: VecDeque::new(),
            ended: None,
        }
    }
}

#[derive(Debug)]
struct Listening {
    place: Place,
    token: Token,
}

/// All connections of the world.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) faults: NetworkFaults,
    random: Random,
    arrivals: Queue<Arrival>,
    connections: BTreeMap<u64, [Side; 2]>,
    next_connection: u64,
    clients: BTreeMap<ClientSocket, u64>,
    sockets: BTreeMap<Place, Slab<(u64, usize)>>,
    listening: BTreeMap<(usize, u16), Listening>,
    /// Ports of processes that have gone, with the time until which they stay taken.
    lingering: BTreeMap<(usize, u16), Instant>,
    cut_until: BTreeMap<usize, Instant>,
    told: VecDeque<(Listener, Told)>,
}

impl Network {
    pub(crate) fn new(faults: NetworkFaults, random: Random) -> Self {
        Self {
            faults,
            random,
            arrivals: Queue::default(),
            connections: BTreeMap::new(),
            next_connection: 0,
            clients: BTreeMap::new(),
            sockets: BTreeMap::new(),
            listening: BTreeMap::new(),
            lingering: BTreeMap::new(),
            cut_until: BTreeMap::new(),
            told: VecDeque::new(),
        }
    }

    /// The address of a node.
    pub(crate) fn node_ip(node: usize) -> IpAddr {
        let last = u8::try_from(node + 1).expect("a simulated cluster has fewer than 255 nodes");
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
    }

    fn node_at(ip: IpAddr) -> Option<usize> {
        match ip {
            IpAddr::V4(ip) => match ip.octets() {
                [10, 0, 0, last] => usize::from(last).checked_sub(1),
                _ => None,
            },
            IpAddr::V6(_) => None,
        }
    }

    /// When something arrives next.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.arrivals.next_at()
    }

    /// What was told since the last call, in order.
    pub(crate) fn told(&mut self) -> Option<(Listener, Told)> {
        self.told.pop_front()
    }

    /// Lets the next thing arrive.
    pub(crate) fn arrive(&mut self, read: &mut ReadSlice<'_>) {
        let Some((now, arrival)) = self.arrivals.take() else { return };
        match arrival {
            Arrival::Knock { connection, to } => self.knock(now, connection, to),
            Arrival::Refusal { connection } => self.refuse(connection),
            Arrival::Welcome { connection } => self.welcome(now, connection),
            Arrival::HandedOver { connection, to, listener } => {
                self.open(now, connection, to, listener);
            }
            Arrival::Bytes { connection, side, bytes } => {
                if let Some(receiver) = self.side(connection, side) {
                    receiver.arrived.push_back(bytes);
                    self.hand_up(now, connection, side);
                }
            }
            Arrival::End { connection, side, reason } => {
                if let Some(receiver) = self.side(connection, side) {
                    if matches!(reason, CloseReason::Failed(_)) && receiver.paused {
                        // A reset does not wait until the bytes before it are read.
                        receiver.paused = false;
                        receiver.arrived.clear();
                    }
                    receiver.ended.get_or_insert(reason);
                    self.hand_up(now, connection, side);
                }
            }
            Arrival::Pump { connection, side } => self.pump(now, connection, side, read),
        }
    }

    // What machines ask for.

    pub(crate) fn listen(
        &mut self,
        now: Instant,
        place: Place,
        token: Token,
        address: SocketAddr,
    ) -> IoResult<SocketAddr> {
        self.lingering.retain(|_, until| *until > now);
        let taken = |port: u16| {
            let at = (place.node, port);
            self.listening.contains_key(&at) || self.lingering.contains_key(&at)
        };
        let port = match address.port() {
            0 => (EPHEMERAL_PORT_MIN..).find(|&port| !taken(port)).expect("ports are left"),
            port if taken(port) => {
                return Err(IoError {
                    kind: IoErrorKind::AddressInUse,
                    action: "listen at",
                    subject: address.to_string(),
                    cause: "Address already in use".to_owned(),
                });
            }
            port => port,
        };
        self.listening.insert((place.node, port), Listening { place, token });
        Ok(SocketAddr::new(address.ip(), port))
    }

    pub(crate) fn stop_listening(&mut self, place: Place, token: Token) {
        self.listening.retain(|_, listening| listening.place != place || listening.token != token);
    }

    pub(crate) fn connect(&mut self, now: Instant, place: Place, token: Token, to: SocketAddr) {
        let port = 10_000 + (self.next_connection % 50_000) as u16;
        let from = SocketAddr::new(Self::node_ip(place.node), port);
        self.knock_at(now, Owner::Connecting { place, token }, from, to);
    }

    pub(crate) fn hand_over(
        &mut self,
        now: Instant,
        place: Place,
        socket: SocketId,
        to: Place,
        listener: u16,
    ) {
        let Some((connection, side)) = self.end_of(place, socket) else { return };
        let Some(end) = self.side(connection, side) else { return };
        assert!(
            matches!(end.owner, Owner::Accepted { .. }),
            "{place:?} hands over socket {socket:?}, which it did not just accept"
        );
        end.owner = Owner::BetweenShards { node: place.node };
        self.forget_socket(place, socket);
        let at = self.faults.latency.after(now, &mut self.random);
        self.arrivals.put(at, Arrival::HandedOver { connection, to, listener });
    }

    pub(crate) fn send(&mut self, now: Instant, place: Place, socket: SocketId, parts: Vec<Part>) {
        let Some((connection, side)) = self.end_of(place, socket) else { return };
        self.queue_parts(now, connection, side, parts);
    }

    pub(crate) fn close(&mut self, now: Instant, place: Place, socket: SocketId, flush: bool) {
        let Some((connection, side)) = self.end_of(place, socket) else { return };
        self.end_side(now, connection, side, Ending::Whole, flush);
    }

    pub(crate) fn set_paused(
        &mut self,
        now: Instant,
        place: Place,
        socket: SocketId,
        paused: bool,
    ) {
        let Some((connection, side)) = self.end_of(place, socket) else { return };
        self.set_side_paused(now, connection, side, paused);
    }

    // What clients ask for.

    pub(crate) fn client_connect(&mut self, now: Instant, to: SocketAddr) -> ClientSocket {
        let client = ClientSocket(self.next_connection);
        let port = 10_000 + (self.next_connection % 50_000) as u16;
        let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1)), port);
        let connection = self.knock_at(now, Owner::Client(client), from, to);
        self.clients.insert(client, connection);
        client
    }

    pub(crate) fn client_send(&mut self, now: Instant, client: ClientSocket, bytes: Bytes) {
        if let Some(&connection) = self.clients.get(&client) {
            self.queue_parts(now, connection, 0, vec![Part::Bytes(bytes)]);
        }
    }

    pub(crate) fn client_close(&mut self, now: Instant, client: ClientSocket, flush: bool) {
        if let Some(&connection) = self.clients.get(&client) {
            self.end_side(now, connection, 0, Ending::Whole, flush);
        }
    }

    pub(crate) fn client_half_close(&mut self, now: Instant, client: ClientSocket) {
        if let Some(&connection) = self.clients.get(&client) {
            self.end_side(now, connection, 0, Ending::Half, true);
        }
    }

    pub(crate) fn client_reset(&mut self, client: ClientSocket) {
        if let Some(&connection) = self.clients.get(&client) {
            self.reset(connection);
        }
    }

    pub(crate) fn client_set_paused(&mut self, now: Instant, client: ClientSocket, paused: bool) {
        if let Some(&connection) = self.clients.get(&client) {
            self.set_side_paused(now, connection, 0, paused);
        }
    }

    // What befalls a node.

    /// Nothing travels to or from a node until then; what is sent waits.
    pub(crate) fn cut(&mut self, node: usize, until: Instant) {
        self.cut_until.insert(node, until);
    }

    /// A machine has stopped: its sockets are closed, once what it sent has left.
    pub(crate) fn shard_is_gone(&mut self, now: Instant, place: Place) {
        self.listening.retain(|_, listening| listening.place != place);
        let Some(slab) = self.sockets.remove(&place) else { return };
        let ends: Vec<(u64, usize)> = slab.iter().map(|(_, &end)| end).collect();
        for (connection, side) in ends {
            self.end_side(now, connection, side, Ending::Whole, true);
        }
    }

    /// The node is gone: everyone connected to it learns of it behind the bytes under way.
    pub(crate) fn node_is_gone(&mut self, now: Instant, node: usize) {
        self.listening.retain(|&(at, port), _| {
            if at == node {
                let linger = self.faults.linger.draw(&mut self.random);
                self.lingering.insert((at, port), now + linger);
            }
            at != node
        });
        self.sockets.retain(|place, _| place.node != node);
        let touched: Vec<(u64, usize)> = self
            .connections
            .iter()
            .flat_map(|(&connection, sides)| [(connection, 0, sides), (connection, 1, sides)])
            .filter(|(_, side, sides)| sides[*side].owner.node() == Some(node))
            .map(|(connection, side, _)| (connection, side))
            .collect();
        for (connection, side) in touched {
            if let Some(end) = self.side(connection, side) {
                end.owner = Owner::Gone;
                end.outgoing.clear();
            }
            self.end_other_side(now, connection, side, CloseReason::Failed(broken()));
            self.drop_if_gone(connection);
        }
    }

    // The connections themselves.

    fn knock_at(&mut self, now: Instant, owner: Owner, from: SocketAddr, to: SocketAddr) -> u64 {
        let connection = self.next_connection;
        self.next_connection += 1;
        self.connections.insert(connection, [Side::new(owner, from), Side::new(Owner::Gone, to)]);
        let at = self.arrival_time(now, connection, Self::node_at(to.ip()));
        self.arrivals.put(at, Arrival::Knock { connection, to });
        connection
    }

    fn knock(&mut self, now: Instant, connection: u64, to: SocketAddr) {
        let listening = Self::node_at(to.ip())
            .and_then(|node| self.listening.get(&(node, to.port())))
            .map(|listening| (listening.place, listening.token));
        let back_at = self.faults.latency.after(now, &mut self.random);
        let Some((place, token)) = listening else {
            self.arrivals.put(back_at, Arrival::Refusal { connection });
            return;
        };
        let Some(peer) = self.side(connection, 0).map(|side| side.address) else { return };
        let socket = self.new_socket(place, connection, 1);
        if let Some(end) = self.side(connection, 1) {
            end.owner = Owner::Accepted { place, socket };
        }
        self.told.push_back((Listener::Shard(place), Told::Accepted { token, socket, peer }));
        self.arrivals.put(back_at, Arrival::Welcome { connection });
    }

    fn refuse(&mut self, connection: u64) {
        let Some([connector, _]) = self.connections.remove(&connection) else { return };
        match connector.owner {
            Owner::Connecting { place, token } => {
                let told = Told::Connected { token, result: Err(refused()) };
                self.told.push_back((Listener::Shard(place), told));
            }
            Owner::Client(client) => {
                self.clients.remove(&client);
                let told = Told::Closed { socket: None, reason: CloseReason::Failed(broken()) };
                self.told.push_back((Listener::Client(client), told));
            }
            _ => {}
        }
    }

    fn welcome(&mut self, now: Instant, connection: u64) {
        let Some(owner) = self.side(connection, 0).map(|side| side.owner) else { return };
        match owner {
            Owner::Client(client) => {
                self.told.push_back((Listener::Client(client), Told::ClientConnected));
            }
            Owner::Connecting { place, token } => {
                let socket = self.new_socket(place, connection, 0);
                if let Some(end) = self.side(connection, 0) {
                    end.owner = Owner::Shard { place, socket };
                }
                let told = Told::Connected { token, result: Ok(socket) };
                self.told.push_back((Listener::Shard(place), told));
                self.hand_up(now, connection, 0);
            }
            _ => {}
        }
    }

    fn open(&mut self, now: Instant, connection: u64, to: Place, listener: u16) {
        let Some(end) = self.side(connection, 1) else { return };
        if !matches!(end.owner, Owner::BetweenShards { .. }) {
            return;
        }
        let socket = self.new_socket(to, connection, 1);
        let Some([connector, end]) = self.connections.get_mut(&connection) else { return };
        end.owner = Owner::Shard { place: to, socket };
        let told = Told::Opened { socket, listener, peer: connector.address };
        self.told.push_back((Listener::Shard(to), told));
        self.hand_up(now, connection, 1);
    }

    fn queue_parts(&mut self, now: Instant, connection: u64, side: usize, parts: Vec<Part>) {
        let Some(end) = self.side(connection, side) else { return };
        if end.owner == Owner::Gone || end.when_sent.is_some() {
            return;
        }
        end.outgoing.extend(parts.into_iter().filter(|part| !part.is_empty()));
        self.pump_soon(now, connection, side);
    }

    fn pump_soon(&mut self, now: Instant, connection: u64, side: usize) {
        let Some(end) = self.side(connection, side) else { return };
        if !end.pump_is_due {
            end.pump_is_due = true;
            self.arrivals.put(now, Arrival::Pump { connection, side });
        }
    }

    /// The kernel takes one piece of what a side sends, if there is room between the two ends.
    fn pump(&mut self, now: Instant, connection: u64, side: usize, read: &mut ReadSlice<'_>) {
        let window_bytes = self.faults.window_bytes;
        let Some(end) = self.side(connection, side) else { return };
        end.pump_is_due = false;
        let room = window_bytes.saturating_sub(end.under_way_bytes);
        if room == 0 || end.outgoing.is_empty() || end.owner == Owner::Gone {
            return;
        }
        if strikes(self.faults.resets_per_million, &mut self.random) {
            self.reset(connection);
            return;
        }
        // Small pieces now and then: a large stream in nothing else would take all the time.
        let is_small = self.random.chance(SMALL_PIECES_PERCENT);
        let bytes_max = if is_small { self.faults.piece_bytes_max } else { PIECE_BYTES_MAX };
        let piece_bytes = 1 + self.random.below(bytes_max) as usize;
        let Some(piece) = self.take_piece(connection, side, piece_bytes.min(room), read) else {
            // The file that was to be sent is shorter than the machine said: the connection
            // cannot go on, as with a real sendfile.
            self.reset(connection);
            return;
        };
        let length = piece.len();
        let mut at = self.arrival_time(now, connection, None);
        if strikes(self.faults.stalls_per_million, &mut self.random) {
            at = self.faults.stall.after(at, &mut self.random);
        }
        let Some(end) = self.side(connection, side) else { return };
        end.under_way_bytes += length;
        at = at.max(end.last_arrival);
        end.last_arrival = at;
        let owner = end.owner;
        let (all_sent, ending) = (end.outgoing.is_empty(), end.when_sent);
        self.arrivals.put(at, Arrival::Bytes { connection, side: 1 - side, bytes: piece });
        if let Owner::Shard { place, socket } = owner {
            let told = Told::Sent { socket, bytes: length as u64 };
            self.told.push_back((Listener::Shard(place), told));
        }
        if !all_sent {
            let soon = now + base::Duration::from_nanos(100 + self.random.below(2_000));
            if let Some(end) = self.side(connection, side) {
                end.pump_is_due = true;
            }
            self.arrivals.put(soon, Arrival::Pump { connection, side });
        } else if let Some(ending) = ending {
            self.end_side(now, connection, side, ending, false);
        }
    }

    fn take_piece(
        &mut self,
        connection: u64,
        side: usize,
        bytes_max: usize,
        read: &mut ReadSlice<'_>,
    ) -> Option<Bytes> {
        let end = self.side(connection, side)?;
        let node = end.owner.node();
        match end.outgoing.pop_front()? {
            Part::Bytes(mut bytes) => {
                let piece = bytes.split_to(bytes_max.min(bytes.len()));
                if !bytes.is_empty() {
                    end.outgoing.push_front(Part::Bytes(bytes));
                }
                Some(piece)
            }
            Part::File(mut slice) => {
                let length = bytes_max.min(slice.length as usize);
                let first = FileSlice { length: length as u32, ..slice.clone() };
                let piece = read(node?, &first);
                slice.position += length as u64;
                slice.length -= length as u32;
                if slice.length > 0 {
                    end.outgoing.push_front(Part::File(slice));
                }
                if piece.len() == length { Some(piece) } else { None }
            }
        }
    }

    /// Gives a side what arrived for it, if it reads.
    fn hand_up(&mut self, now: Instant, connection: u64, side: usize) {
        let Some(end) = self.side(connection, side) else { return };
        let (listener, socket) = match end.owner {
            Owner::Client(client) => (Listener::Client(client), None),
            Owner::Shard { place, socket } => (Listener::Shard(place), Some(socket)),
            Owner::Gone => {
                end.arrived.clear();
                return;
            }
            _ => return,
        };
        if end.paused {
            return;
        }
        let arrived = std::mem::take(&mut end.arrived);
        let ended = end.ended.clone();
        if ended.is_some() {
            end.owner = Owner::Gone;
            end.outgoing.clear();
        }
        let read: usize = arrived.iter().map(Bytes::len).sum();
        for bytes in arrived {
            self.told.push_back((listener, Told::Received { socket, bytes }));
        }
        if let Some(sender) = self.side(connection, 1 - side) {
            sender.under_way_bytes -= read;
        }
        self.pump_soon(now, connection, 1 - side);
        if let Some(reason) = ended {
            self.told.push_back((listener, Told::Closed { socket, reason }));
            self.forget(listener, socket);
            self.end_other_side(now, connection, side, CloseReason::PeerClosed);
            self.drop_if_gone(connection);
        }
    }

    fn set_side_paused(&mut self, now: Instant, connection: u64, side: usize, paused: bool) {
        if let Some(end) = self.side(connection, side) {
            end.paused = paused;
            if !paused {
                self.hand_up(now, connection, side);
            }
        }
    }

    /// A side ends, at once or when everything it sends has left.
    fn end_side(
        &mut self,
        now: Instant,
        connection: u64,
        side: usize,
        ending: Ending,
        flush: bool,
    ) {
        let Some(end) = self.side(connection, side) else { return };
        if flush && !end.outgoing.is_empty() {
            end.when_sent = Some(ending);
            return;
        }
        match ending {
            Ending::Whole => self.close_side(now, connection, side),
            Ending::Half => self.end_other_side(now, connection, side, CloseReason::PeerClosed),
        }
    }

    /// The owner of a side closes it.
    fn close_side(&mut self, now: Instant, connection: u64, side: usize) {
        let Some(end) = self.side(connection, side) else { return };
        let owner = std::mem::replace(&mut end.owner, Owner::Gone);
        end.outgoing.clear();
        end.arrived.clear();
        match owner {
            Owner::Shard { place, socket } => {
                let told = Told::Closed { socket: Some(socket), reason: CloseReason::Asked };
                self.told.push_back((Listener::Shard(place), told));
                self.forget_socket(place, socket);
            }
            Owner::Accepted { place, socket } => self.forget_socket(place, socket),
            Owner::Client(client) => {
                self.clients.remove(&client);
            }
            _ => {}
        }
        self.end_other_side(now, connection, side, CloseReason::PeerClosed);
        self.drop_if_gone(connection);
    }

    /// Lets the other side learn, behind all bytes, that this one is gone.
    fn end_other_side(&mut self, now: Instant, connection: u64, side: usize, reason: CloseReason) {
        let at = self.arrival_time(now, connection, None);
        let Some(end) = self.side(connection, side) else { return };
        let at = at.max(end.last_arrival);
        end.last_arrival = at;
        self.arrivals.put(at, Arrival::End { connection, side: 1 - side, reason });
    }

    /// The connection breaks, and what is under way is lost.
    fn reset(&mut self, connection: u64) {
        let Some(sides) = self.connections.remove(&connection) else { return };
        for side in sides {
            let reason = CloseReason::Failed(broken());
            match side.owner {
                Owner::Client(client) => {
                    self.clients.remove(&client);
                    let told = Told::Closed { socket: None, reason };
                    self.told.push_back((Listener::Client(client), told));
                }
                Owner::Shard { place, socket } => {
                    let told = Told::Closed { socket: Some(socket), reason };
                    self.told.push_back((Listener::Shard(place), told));
                    self.forget_socket(place, socket);
                }
                Owner::Accepted { place, socket } => self.forget_socket(place, socket),
                Owner::Connecting { place, token } => {
                    let told = Told::Connected { token, result: Err(broken()) };
                    self.told.push_back((Listener::Shard(place), told));
                }
                Owner::BetweenShards { .. } | Owner::Gone => {}
            }
        }
    }

    fn drop_if_gone(&mut self, connection: u64) {
        let gone = |sides: &[Side; 2]| sides.iter().all(|side| side.owner == Owner::Gone);
        if self.connections.get(&connection).is_some_and(gone) {
            self.connections.remove(&connection);
        }
    }

    fn arrival_time(&mut self, now: Instant, connection: u64, to: Option<usize>) -> Instant {
        let at = self.faults.latency.after(now, &mut self.random);
        let sides = self.connections.get(&connection);
        let nodes = sides.into_iter().flatten().filter_map(|side| side.owner.node()).chain(to);
        nodes.filter_map(|node| self.cut_until.get(&node)).fold(at, |at, &until| at.max(until))
    }

    fn side(&mut self, connection: u64, side: usize) -> Option<&mut Side> {
        self.connections.get_mut(&connection).map(|sides| &mut sides[side])
    }

    fn end_of(&self, place: Place, socket: SocketId) -> Option<(u64, usize)> {
        self.sockets.get(&place)?.get(socket.0).copied()
    }

    fn new_socket(&mut self, place: Place, connection: u64, side: usize) -> SocketId {
        let slab = self.sockets.entry(place).or_insert_with(|| Slab::new(SOCKETS_PER_SHARD_MAX));
        SocketId(slab.insert((connection, side)).expect("a simulation has fewer sockets"))
    }

    fn forget(&mut self, listener: Listener, socket: Option<SocketId>) {
        match (listener, socket) {
            (Listener::Shard(place), Some(socket)) => self.forget_socket(place, socket),
            (Listener::Client(client), _) => {
                self.clients.remove(&client);
            }
            (Listener::Shard(_), None) => {}
        }
    }

    fn forget_socket(&mut self, place: Place, socket: SocketId) {
        if let Some(slab) = self.sockets.get_mut(&place) {
            slab.remove(socket.0);
        }
    }
}

fn broken() -> IoError {
    failure(IoErrorKind::Connection, "Connection reset by peer")
}

fn refused() -> IoError {
    failure(IoErrorKind::Refused, "Connection refused")
}

fn failure(kind: IoErrorKind, cause: &str) -> IoError {
    IoError { kind, action: "talk to", subject: "the peer".to_owned(), cause: cause.to_owned() }
}
