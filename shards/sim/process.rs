//! One running process of a node: its machines, on which cores they sit, and what waits for them.

use std::collections::VecDeque;
use std::fmt;

use api::{Effects, Event, Lane, Machine};
use base::{Instant, ShardId};

use crate::fault::Crash;
use crate::lanes::Lanes;

/// A machine and the core that it runs on. Machines of one core share its turns.
pub struct Seat<M> {
    /// Which core, from 0.
    pub core: usize,
    /// The machine.
    pub machine: Box<dyn Machine<Message = M>>,
}

impl<M> fmt::Debug for Seat<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a machine on core {}", self.core)
    }
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// In order: every machine answered `Stopped`.
    Stopped,
    /// By itself, with this sentence (`Effect::Fail`).
    Failed(String),
    /// It was crashed.
    Crashed(Crash),
}

/// What waits for a turn.
#[derive(Debug)]
pub(crate) enum Waiting<M> {
    Event(Event<M>),
    /// A message of a lane, which holds its slot until it is taken.
    Message {
        from: ShardId,
        lane: Lane,
        message: M,
    },
    /// Something stands in the latest-wins slot.
    Post {
        from: ShardId,
    },
}

pub(crate) struct Core<M> {
    pub(crate) inbox: VecDeque<(ShardId, Waiting<M>)>,
    pub(crate) turn_is_due: bool,
    pub(crate) busy_until: Instant,
}

pub(crate) struct Shard<M> {
    pub(crate) core: usize,
    pub(crate) machine: Box<dyn Machine<Message = M>>,
    pub(crate) effects: Effects<M>,
    pub(crate) wake_at: Instant,
    /// Counts the calls of `WakeAt`: a timer of an earlier one is void.
    pub(crate) wake_count: u64,
    pub(crate) stopped: bool,
}

/// One running process of a node.
pub(crate) struct Process<M> {
    /// Counts the processes of the world, so that what was under way to an earlier one is void.
    pub(crate) number: u64,
    pub(crate) shards: Vec<Shard<M>>,
    pub(crate) cores: Vec<Core<M>>,
    pub(crate) lanes: Lanes<M>,
    /// How many more effects are performed before this process crashes, and in which way.
    pub(crate) effects_before_crash: Option<(u64, Crash)>,
}

impl<M> fmt::Debug for Process<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "process {} with {} machines", self.number, self.shards.len())
    }
}

impl<M> Process<M> {
    pub(crate) fn new(number: u64, seats: Vec<Seat<M>>, lane_slots: usize) -> Self {
        let core_count = seats.iter().map(|seat| seat.core + 1).max().unwrap_or(0);
        let core =
            |_| Core { inbox: VecDeque::new(), turn_is_due: false, busy_until: Instant::ZERO };
        let shard = |seat: Seat<M>| Shard {
            core: seat.core,
            machine: seat.machine,
            effects: Effects::new(),
            wake_at: Instant::FAR_FUTURE,
            wake_count: 0,
            stopped: false,
        };
        Self {
            number,
            shards: seats.into_iter().map(shard).collect(),
            cores: (0..core_count).map(core).collect(),
            lanes: Lanes::new(lane_slots),
            effects_before_crash: None,
        }
    }

    /// Whether every machine has stopped.
    pub(crate) fn has_stopped(&self) -> bool {
        self.shards.iter().all(|shard| shard.stopped)
    }

    pub(crate) fn shard(&mut self, shard: ShardId) -> &mut Shard<M> {
        &mut self.shards[usize::from(shard.0)]
    }
}
