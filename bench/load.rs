//! The load itself: many connections on one thread and one ring, which costs the client little.
//!
//! A paced load is an open loop: each request has an intended time that no answer moves, and its
//! latency counts from there. A saturating load keeps as many requests in flight as it may.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use ring::{Completion, Operation, Ring, Socket, Wait};

use crate::latency::Latencies;
use crate::schedule::Schedule;

/// How long the answers to the last requests may take.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a load stays silent before it is given up.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// The last part of a wait is spent looking. A sleeping core takes tens of microseconds to wake,
/// and the server would pay for the interrupt that wakes it.
const SPIN: Duration = Duration::from_micros(300);
/// Completions that are handled at once.
const COMPLETIONS_MAX: usize = 1024;
/// The largest answer that is believed.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As fast as the answers come.
    Saturate,
    /// So many in a second, over all connections.
    Rate(f64),
}

/// What a load sends, and what it makes of the answers. Answers come in the order of requests.
pub trait Work {
    /// The next request of a connection.
    ///
    /// # Errors
    /// A sentence when it cannot be made.
    fn next(&mut self, connection: usize) -> Result<Bytes, String>;

    /// Judges the next answer (without its length) on a connection.
    ///
    /// # Errors
    /// A sentence when the broker did not do what it was asked.
    fn answer(&mut self, connection: usize, frame: Bytes) -> Result<Answer, String>;

    /// What each request counts for when the broker is asked not to answer.
    fn unanswered(&self) -> Option<Answer>;

    /// How much an answer may have at once: the room that is made to receive it.
    fn answer_bytes(&self) -> usize;
}

/// What one request came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Bytes of record batches, sent or received.
    pub bytes: u64,
    /// Records in them.
    pub records: u64,
}

/// How a load is sent.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many connections.
    pub connections: usize,
    /// How many requests each may have in flight.
    pub depth: usize,
    /// When requests are sent.
    pub pace: Pace,
    /// For how long; the last answers are awaited beyond it.
    pub duration: Duration,
    /// After how many requests it ends early.
    pub requests_max: u64,
}

/// What a load came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Requests that were answered (or sent, if no answer was asked for).
    pub requests: u64,
    /// Requests that were meant to be sent but could not be in time: the pace was not held.
    pub unsent: u64,
    /// Bytes of record batches.
    pub bytes: u64,
    /// Records in them.
    pub records: u64,
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// From the intended time of a request to its answer.
    pub latencies: Latencies,
}

struct Connection {
    socket: Arc<Socket>,
    input: BytesMut,
    output: VecDeque<Bytes>,
    /// The kernel takes no more until it says so.
    blocked: bool,
    /// When the requests in flight were meant to be sent.
    in_flight: VecDeque<Duration>,
    /// Requests that were meant to be sent since the start, and those that were.
    owed: u64,
    sent: u64,
}

/// Open connections that can be loaded several times.
pub struct Load<W> {
    ring: Ring<usize>,
    connections: Vec<Connection>,
    work: W,
}

/// One run of a load.
struct Run<'a, W> {
    load: &'a mut Load<W>,
    plan: Plan,
    schedule: Option<Schedule>,
    started: Instant,
    released: u64,
    sent: u64,
    outcome: Outcome,
    last_answer: Duration,
}

impl<W: Work> Load<W> {
    /// Opens the connections.
    ///
    /// # Errors
    /// A sentence: the kernel or the broker refuses.
    pub fn connect(address: SocketAddr, connections: usize, work: W) -> Result<Self, String> {
        let fail = |error: std::io::Error| format!("opening the connections of a load: {error}");
        let mut ring = Ring::new().map_err(fail)?;
        let mut opened = Vec::with_capacity(connections);
        for index in 0..connections {
            let stream = TcpStream::connect(address).map_err(fail)?;
            stream.set_nonblocking(true).map_err(fail)?;
            let socket = Arc::new(Socket::accepted(OwnedFd::from(stream)).map_err(fail)?);
            ring.start(Operation::WatchReadable(Arc::clone(&socket)), index);
            opened.push(Connection::new(socket));
        }
        Ok(Self { ring, connections: opened, work })
    }

    /// Sends the load and awaits the answers.
    ///
    /// # Errors
    /// A sentence: an answer is an error, is missing, or a connection is gone.
    pub fn run(&mut self, plan: Plan) -> Result<Outcome, String> {
        assert!(plan.depth > 0, "a connection may have a request in flight");
        assert_eq!(plan.connections, self.connections.len(), "the plan is that of this load");
        for connection in &mut self.connections {
            assert!(connection.in_flight.is_empty(), "the last run awaited its answers");
            (connection.owed, connection.sent) = (0, 0);
        }
        let schedule = match plan.pace {
            Pace::Saturate => None,
            Pace::Rate(rate) => Some(Schedule::new(rate)),
        };
        let run = Run {
            load: self,
            plan,
            schedule,
            started: Instant::now(),
            released: 0,
            sent: 0,
            outcome: Outcome::default(),
            last_answer: Duration::ZERO,
        };
        run.complete()
    }
}

impl<W> std::fmt::Debug for Load<W> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Load").field("connections", &self.connections.len()).finish()
    }
}

impl<W: Work> Run<'_, W> {
    fn complete(mut self) -> Result<Outcome, String> {
        let mut completions: Vec<Completion<usize>> = Vec::new();
        if self.schedule.is_none() {
            (0..self.plan.connections).try_for_each(|index| self.pump(index))?;
        }
        loop {
            let now = self.started.elapsed();
            self.release(now)?;
            let stopped = now >= self.plan.duration || self.sent >= self.plan.requests_max;
            if stopped && self.is_drained() {
                break;
            }
            if now >= self.plan.duration + DRAIN_TIME_MAX {
                self.give_up(now)?;
                break;
            }
            if now > self.last_answer + SILENCE_MAX && self.sent > self.outcome.requests {
                return Err(format!("no answer for {SILENCE_MAX:?}"));
            }
            self.wait(now)?;
            self.load.ring.take_completions(&mut completions, COMPLETIONS_MAX);
            for completion in completions.drain(..) {
                self.handle(&completion)?;
            }
        }
        self.outcome.elapsed = self.last_answer;
        Ok(self.outcome)
    }

    /// Owes the connections, one after the other, what is meant to have been sent by now.
    fn release(&mut self, now: Duration) -> Result<(), String> {
        let Some(schedule) = self.schedule else { return Ok(()) };
        // What is due at the very end belongs to the next second.
        let due = match now.checked_sub(self.plan.duration) {
            None => schedule.due(now),
            Some(_) => schedule.due(self.plan.duration.saturating_sub(Duration::from_nanos(1))),
        };
        let due = due.min(self.plan.requests_max);
        while self.released < due {
            let index = (self.released % self.plan.connections as u64) as usize;
            self.load.connections[index].owed += 1;
            self.released += 1;
            self.pump(index)?;
        }
        Ok(())
    }

    fn is_drained(&self) -> bool {
        let behind = self.schedule.is_some() && self.released > self.sent;
        let idle = |connection: &Connection| {
            connection.in_flight.is_empty() && connection.output.is_empty()
        };
        !behind && self.load.connections.iter().all(idle)
    }

    /// Counts what could not be sent, with the time that it has waited so far.
    fn give_up(&mut self, now: Duration) -> Result<(), String> {
        if self.load.connections.iter().any(|connection| !connection.in_flight.is_empty()) {
            return Err(format!("answers are missing {DRAIN_TIME_MAX:?} after the last request"));
        }
        if let Some(schedule) = self.schedule {
            self.outcome.unsent = self.released - self.sent;
            for number in self.sent..self.released {
                let waited = now.saturating_sub(schedule.intended(number));
                self.outcome.latencies.record(waited);
            }
        }
        Ok(())
    }

    fn wait(&mut self, now: Duration) -> Result<(), String> {
        let running = now < self.plan.duration;
        let next_due = match self.schedule {
            Some(schedule) if running && self.released < self.plan.requests_max => {
                schedule.intended(self.released).min(self.plan.duration)
            }
            _ if running => self.plan.duration,
            _ => now + Duration::from_millis(10),
        };
        let left = next_due.saturating_sub(now);
        if left > SPIN {
            let wait = Wait::AtMost(left - SPIN);
            return self.load.ring.enter(wait).map_err(|error| format!("the ring: {error}"));
        }
        while self.started.elapsed() < next_due && !self.load.ring.has_news() {
            std::hint::spin_loop();
        }
        self.load.ring.enter(Wait::No).map_err(|error| format!("the ring: {error}"))
    }

    fn handle(&mut self, completion: &Completion<usize>) -> Result<(), String> {
        let index = completion.user;
        let writable = *completion.result.as_ref().map_err(|error| format!("polling: {error}"))?;
        if self.load.connections[index].blocked && writable & POLL_OUT != 0 {
            self.load.connections[index].blocked = false;
        } else {
            if !completion.more {
                let socket = Arc::clone(&self.load.connections[index].socket);
                self.load.ring.start(Operation::WatchReadable(socket), index);
            }
            self.receive(index)?;
        }
        self.pump(index)
    }

    fn receive(&mut self, index: usize) -> Result<(), String> {
        let answer_bytes = self.load.work.answer_bytes();
        loop {
            let connection = &mut self.load.connections[index];
            if connection.input.capacity() - connection.input.len() < answer_bytes / 2 {
                connection.input.reserve(answer_bytes);
            }
            match connection.socket.receive(&mut connection.input) {
                Ok(0) => return Err("the broker closed a connection".to_owned()),
                Ok(_) => self.take_answers(index)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(format!("receiving: {error}")),
            }
        }
    }

    fn take_answers(&mut self, index: usize) -> Result<(), String> {
        loop {
            let connection = &mut self.load.connections[index];
            let Some(length) = connection.input.first_chunk::<4>() else { return Ok(()) };
            let length = u32::from_be_bytes(*length) as usize;
            if length > ANSWER_BYTES_MAX {
                return Err(format!("an answer of {length} bytes is no answer"));
            }
            if connection.input.len() < 4 + length {
                let missing = 4 + length - connection.input.len();
                connection.input.reserve(missing);
                return Ok(());
            }
            let frame = connection.input.split_to(4 + length).freeze().slice(4..);
            let intended = connection.in_flight.pop_front();
            let intended = intended.ok_or("an answer that nothing was asked for")?;
            let answer = self.load.work.answer(index, frame)?;
            self.count(answer, Some(intended));
        }
    }

    fn count(&mut self, answer: Answer, intended: Option<Duration>) {
        let now = self.started.elapsed();
        self.outcome.requests += 1;
        self.outcome.bytes += answer.bytes;
        self.outcome.records += answer.records;
        self.last_answer = now;
        if let Some(intended) = intended {
            self.outcome.latencies.record(now.saturating_sub(intended));
        }
    }

    /// Sends what may be sent on a connection.
    fn pump(&mut self, index: usize) -> Result<(), String> {
        let now = self.started.elapsed();
        let mut unanswered = 0;
        loop {
            let connection = &mut self.load.connections[index];
            if connection.blocked || connection.in_flight.len() + unanswered >= self.plan.depth {
                break;
            }
            let intended = match self.schedule {
                None if now >= self.plan.duration || self.sent >= self.plan.requests_max => break,
                None => now,
                Some(_) if connection.sent >= connection.owed => break,
                Some(schedule) => {
                    let connections = self.plan.connections as u64;
                    schedule.intended(connection.sent * connections + index as u64)
                }
            };
            connection.output.push_back(self.load.work.next(index)?);
            connection.sent += 1;
            self.sent += 1;
            match self.load.work.unanswered() {
                Some(answer) => {
                    self.count(answer, None);
                    unanswered += 1;
                }
                None => connection.in_flight.push_back(intended),
            }
        }
        self.flush(index)?;
        if unanswered > 0 {
            // No answer leads back to this connection: the next turn does.
            self.await_writable(index);
        }
        Ok(())
    }

    fn await_writable(&mut self, index: usize) {
        let connection = &mut self.load.connections[index];
        if !connection.blocked {
            connection.blocked = true;
            let socket = Arc::clone(&connection.socket);
            self.load.ring.start(Operation::AwaitWritable(socket), index);
        }
    }

    fn flush(&mut self, index: usize) -> Result<(), String> {
        let connection = &mut self.load.connections[index];
        while !connection.output.is_empty() && !connection.blocked {
            match connection.socket.send(connection.output.iter().map(|piece| &piece[..])) {
                Ok(sent) => connection.advance(sent),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.await_writable(index);
                    break;
                }
                Err(error) => return Err(format!("sending: {error}")),
            }
        }
        Ok(())
    }
}

/// In the mask of a completion: the kernel takes more to send (`POLLOUT` of Linux).
const POLL_OUT: u32 = 4;

impl Connection {
    fn new(socket: Arc<Socket>) -> Self {
        Self {
            socket,
            input: BytesMut::new(),
            output: VecDeque::new(),
            blocked: false,
            in_flight: VecDeque::new(),
            owed: 0,
            sent: 0,
        }
    }

    fn advance(&mut self, mut sent: usize) {
        while let Some(piece) = self.output.front_mut() {
            if sent < piece.len() {
                piece.advance(sent);
                return;
            }
            sent -= piece.len();
            self.output.pop_front();
        }
    }
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            requests: 0,
            unsent: 0,
            bytes: 0,
            records: 0,
            elapsed: Duration::ZERO,
            latencies: Latencies::default(),
        }
    }
}

impl Outcome {
    /// Megabytes (10⁶) of batches in a second.
    pub fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.elapsed.as_secs_f64()
    }

    /// Requests in a second.
    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }
}
