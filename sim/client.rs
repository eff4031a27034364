//! One client: a connection at a time, several requests in flight, its own pace and its own bad
//! habits.

use std::collections::VecDeque;
use std::fmt;

use api::CloseReason;
use base::Random;
use bytes::Bytes;
use fakeworld::{ClientSocket, World};

use crate::history::{History, Place, Violation, ensure};
use crate::operations::{FetchSession, Memory, Operation, correlation_id, idempotent};

/// The longest reply that a client expects, in bytes.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    /// Requests that it has in flight at most.
    pub depth: usize,
    /// The longest time between two of its requests, in microseconds.
    pub pace_us_max: u64,
    /// How often it drops its connection, in a thousand ticks.
    pub drops_per_thousand: u64,
    /// How often it stops reading for a while, in a thousand ticks.
    pub pauses_per_thousand: u64,
    /// The group that it is a member of, if it is one.
    pub group: Option<usize>,
}

/// A connection that is there.
#[derive(Debug)]
struct Connection {
    /// Counts the connections of all clients: the order of batches is kept within one.
    number: u64,
    inbox: Vec<u8>,
    in_flight: VecDeque<(i32, Operation)>,
    /// Whether it sent something whose failure the broker can only tell by closing (acks=0), or
    /// ended its own side.
    may_be_closed: bool,
}

/// One client.
#[derive(Debug)]
pub struct Client {
    /// Its number.
    pub number: usize,
    plan: ClientPlan,
    memory: Memory,
    socket: Option<ClientSocket>,
    connection: Option<Connection>,
    next_correlation: i32,
}

/// What a client wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To go on at its pace.
    GoOn,
    /// To read again after a while.
    PauseReading,
    /// To connect again after a while.
    Reconnect,
}

impl Client {
    /// A client that is not connected.
    pub fn new(number: usize, plan: ClientPlan) -> Self {
        let memory = Memory::new(number, plan.group);
        Self { number, plan, memory, socket: None, connection: None, next_correlation: 0 }
    }

    /// How long it waits until its next tick, in microseconds.
    pub fn pace_us(&self, random: &mut Random) -> u64 {
        10 + random.below(self.plan.pace_us_max)
    }

    /// The socket that it uses or tries to get.
    pub fn socket(&self) -> Option<ClientSocket> {
        self.socket
    }

    /// What it waits for: the oldest request without a reply.
    pub fn waits_for(&self) -> Option<&Operation> {
        self.connection.as_ref()?.in_flight.front().map(|(_, operation)| operation)
    }

    /// Whether it can send.
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Begins to connect.
    pub fn connect<M: fmt::Debug + Send + 'static>(&mut self, world: &mut World<M>, port: u16) {
        self.socket = Some(world.connect(0, port));
    }

    /// The connection is there, the `number`th of all.
    pub fn connected(&mut self, number: u64) {
        self.memory.lost_connection();
        self.connection = Some(Connection {
            number,
            inbox: Vec::new(),
            in_flight: VecDeque::new(),
            may_be_closed: false,
        });
    }

    /// Does something: mostly it sends a request, if it has not too many in flight.
    pub fn tick<M: fmt::Debug + Send + 'static>(
        &mut self,
        world: &mut World<M>,
        history: &mut History,
        random: &mut Random,
    ) -> Wish {
        let (Some(socket), Some(connection)) = (self.socket, &self.connection) else {
            return Wish::GoOn;
        };
        let dice = random.below(1_000);
        if dice < self.plan.drops_per_thousand {
            self.drop_connection(world, random, socket);
            return Wish::Reconnect;
        }
        if connection.in_flight.len() < self.plan.depth {
            let number = connection.number;
            let is_member = self.plan.group.is_some();
            let is_idempotent = !is_member && random.chance(40);
            let operation = is_idempotent.then(|| self.idempotent(random, history)).flatten();
            let operation = operation
                .unwrap_or_else(|| Operation::sample(random, history, &mut self.memory, number));
            self.send(world, history, operation);
        }
        if dice >= 1_000 - self.plan.pauses_per_thousand {
            world.set_paused(socket, true);
            return Wish::PauseReading;
        }
        Wish::GoOn
    }

    /// What its idempotent producer sends next, if anything.
    pub fn idempotent(&mut self, random: &mut Random, history: &mut History) -> Option<Operation> {
        let number = self.connection_number()?;
        idempotent::sample(random, history, &mut self.memory.producer, number)
    }

    /// Sends one operation.
    ///
    /// # Panics
    /// If it is not connected.
    pub fn send<M: fmt::Debug + Send + 'static>(
        &mut self,
        world: &mut World<M>,
        history: &mut History,
        operation: Operation,
    ) {
        let (Some(socket), Some(connection)) = (self.socket, &mut self.connection) else {
            panic!("client {} is not connected", self.number);
        };
        history.counts.requests += 1;
        let correlation = self.next_correlation;
        self.next_correlation = self.next_correlation.wrapping_add(1);
        let number = self.number;
        world.note(format_args!("client {number} asks {correlation}: {operation:?}"), &[]);
        world.send(socket, operation.build(correlation));
        if operation.has_reply() {
            connection.in_flight.push_back((correlation, operation));
        } else {
            connection.may_be_closed = true;
        }
    }

    /// The next request of a session about these partitions.
    pub fn session_fetch(&mut self, history: &History, places: &[Place]) -> Operation {
        let connection = self.connection_number().unwrap_or(0);
        let memory = &mut self.memory;
        Operation::FetchSession(FetchSession::next(history, memory, places, connection))
    }

    /// The number of its connection.
    pub fn connection_number(&self) -> Option<u64> {
        self.connection.as_ref().map(|connection| connection.number)
    }

    /// Bytes arrived: every whole reply belongs to the oldest request in flight.
    pub fn received(&mut self, bytes: &Bytes, history: &mut History) -> Result<(), Violation> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        connection.inbox.extend_from_slice(bytes);
        while let Some(length) = connection.inbox.first_chunk::<4>() {
            let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            ensure(length <= REPLY_BYTES_MAX, || format!("a reply says it has {length} bytes"))?;
            if connection.inbox.len() < 4 + length {
                break;
            }
            let rest = connection.inbox.split_off(4 + length);
            let frame = Bytes::from(std::mem::replace(&mut connection.inbox, rest)).slice(4..);
            let got = correlation_id(&frame)?;
            let Some((expected, operation)) = connection.in_flight.pop_front() else {
                return Err(Violation(format!("reply {got} came and nothing was asked")));
            };
            ensure(got == expected, || {
                format!("reply {got} came before {expected}, which was asked for earlier")
            })?;
            operation.classify(&frame, history, &mut self.memory)?;
        }
        Ok(())
    }

    /// The connection is gone, or was never made. What was in flight keeps an unknown fate.
    pub fn closed(&mut self, reason: &CloseReason) -> Result<(), Violation> {
        self.socket = None;
        let Some(connection) = self.connection.take() else { return Ok(()) };
        ensure(*reason != CloseReason::PeerClosed || connection.may_be_closed, || {
            let waits_for = connection.in_flight.front();
            format!("the broker closed the connection of a client that waits for {waits_for:?}")
        })
    }

    fn drop_connection<M: fmt::Debug + Send + 'static>(
        &mut self,
        world: &mut World<M>,
        random: &mut Random,
        socket: ClientSocket,
    ) {
        match random.below(3) {
            0 => world.close(socket, false),
            1 => world.close(socket, true),
            _ => {
                world.half_close(socket);
                // The broker's answer to that is nobody's concern any more.
                world.close(socket, true);
            }
        }
        self.socket = None;
        self.connection = None;
    }
}
