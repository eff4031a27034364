//! Idempotent producers: each client has one, which sends again, in order, what was not answered.
//!
//! It does what Kafka's producer does: at most five batches of a partition are in flight; after an
//! error or a lost connection it sends again from the first one that is not acknowledged; and when
//! the broker has lost what it had acknowledged, it goes on under another id.

use std::collections::{BTreeMap, VecDeque};

use base::Random;
use bytes::Bytes;

use crate::checkers::watermark::Floor;
use crate::history::{BatchId, Life, PartitionHistory, Place};

/// Batches of a partition in flight.
const IN_FLIGHT_MAX: usize = 5;
/// Added to a producer's number, so that it is not taken for that of a connection.
const SENDER_BASE: u64 = 1 << 40;

/// A batch that is not acknowledged.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Its name.
    pub batch: BatchId,
    /// How it was sent first, and is sent again.
    pub bytes: Bytes,
    /// What was known when it was sent first.
    pub floor: Floor,
}

/// One partition that a producer writes to.
#[derive(Clone, Debug)]
pub struct Lane {
    /// The sequence of the next new record.
    pub next_sequence: i32,
    /// The newest batch.
    pub newest: Option<BatchId>,
    pending: VecDeque<Pending>,
    /// How many of those were sent since the last failure.
    sent: usize,
    in_flight: usize,
    /// Something failed: all that is pending is sent again once nothing is in flight.
    has_failed: bool,
    /// The life in which the last acknowledgement was given.
    acknowledged_in: Option<Life>,
}

/// One producer.
#[derive(Clone, Debug)]
pub struct Producer {
    client: usize,
    /// Its id, once it has one.
    pub id: Option<i64>,
    /// Counts the ids that it had.
    generation: u64,
    /// The connection that it asks for an id on.
    asks_on: Option<u64>,
    connection: u64,
    lanes: BTreeMap<Place, Lane>,
}

/// What a producer does next.
#[derive(Debug)]
pub enum Next {
    /// It asks for an id.
    AskForId,
    /// It sends this batch again.
    Again(Pending),
    /// It sends a new batch.
    New,
    /// It waits.
    Wait,
}

/// What a refusal of a batch means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A batch before it was not taken, or it is of an earlier id: it is sent again.
    Expected,
    /// The broker may have lost what it had acknowledged, or know only of a later batch.
    Excused,
    /// The broker has lost track.
    Wrong,
}

impl Lane {
    fn new(random: &mut Random) -> Self {
        // Some begin close to where sequences begin anew.
        let near_end = i32::MAX - random.below(40) as i32;
        Self {
            next_sequence: if random.chance(50) { 0 } else { near_end },
            newest: None,
            pending: VecDeque::new(),
            sent: 0,
            in_flight: 0,
            has_failed: false,
            acknowledged_in: None,
        }
    }

    fn restart(&mut self) {
        (self.sent, self.in_flight, self.has_failed) = (0, 0, false);
    }
}

impl Producer {
    /// The producer of a client; it has no id yet.
    pub fn new(client: usize) -> Self {
        let lanes = BTreeMap::new();
        Self { client, id: None, generation: 0, asks_on: None, connection: 0, lanes }
    }

    /// Who sends its batches, in the place of a connection: their order is the order of their
    /// numbers, whatever connection they come by.
    pub fn sender(&self) -> u64 {
        SENDER_BASE + self.generation * 1_000 + self.client as u64
    }

    /// Its lane to a partition.
    pub fn lane(&mut self, random: &mut Random, place: Place) -> &mut Lane {
        self.lanes.entry(place).or_insert_with(|| Lane::new(random))
    }

    /// What it does on a connection for a partition; that it is done is taken down.
    pub fn next(&mut self, random: &mut Random, connection: u64, place: Place, life: Life) -> Next {
        if self.connection != connection {
            self.connection = connection;
            self.lanes.values_mut().for_each(Lane::restart);
        }
        if self.id.is_none() {
            if self.asks_on == Some(connection) {
                return Next::Wait;
            }
            self.asks_on = Some(connection);
            return Next::AskForId;
        }
        let lane = self.lane(random, place);
        if lane.has_failed && lane.in_flight == 0 {
            lane.restart();
        }
        // Of a producer that it does not know a broker takes any sequence: before the first
        // acknowledgement a second batch could overtake the first.
        let is_known = lane.acknowledged_in == Some(life);
        let room = if is_known { IN_FLIGHT_MAX } else { 1 };
        if lane.has_failed || lane.in_flight >= room {
            return Next::Wait;
        }
        if let Some(pending) = lane.pending.get(lane.sent) {
            (lane.sent, lane.in_flight) = (lane.sent + 1, lane.in_flight + 1);
            return Next::Again(pending.clone());
        }
        if lane.pending.len() < room { Next::New } else { Next::Wait }
    }

    /// A new batch is sent.
    pub fn sent(&mut self, place: Place, pending: Pending) {
        let lane = self.lanes.get_mut(&place).expect("it was made for the batch");
        lane.newest = Some(pending.batch);
        lane.pending.push_back(pending);
        (lane.sent, lane.in_flight) = (lane.sent + 1, lane.in_flight + 1);
    }

    /// It asked for an id and got one, or none.
    pub fn take_id(&mut self, id: Option<i64>) {
        self.asks_on = None;
        self.id = id;
    }

    /// A batch that was sent under `id` in `life` is acknowledged. Whether it is the oldest one
    /// that was not: a broker takes no other.
    pub fn acknowledged(&mut self, id: i64, place: Place, batch: BatchId, life: Life) -> bool {
        let Some(lane) = self.lane_of(id, place) else { return true };
        lane.in_flight -= 1;
        lane.acknowledged_in = Some(life);
        let is_oldest = lane.pending.front().is_some_and(|oldest| oldest.batch == batch);
        if is_oldest {
            lane.pending.pop_front();
            lane.sent -= 1;
        }
        is_oldest
    }

    /// A batch is refused with an error that is tried again.
    pub fn refused(&mut self, id: i64, place: Place) {
        if let Some(lane) = self.lane_of(id, place) {
            lane.in_flight -= 1;
            lane.has_failed = true;
        }
    }

    /// A batch is refused because of its sequence.
    pub fn out_of_order(
        &mut self,
        id: i64,
        place: Place,
        batch: BatchId,
        life: Life,
        partition: &PartitionHistory,
    ) -> Refusal {
        let Some(lane) = self.lane_of(id, place) else { return Refusal::Expected };
        lane.in_flight -= 1;
        if lane.pending.front().is_some_and(|oldest| oldest.batch != batch) {
            lane.has_failed = true;
            return Refusal::Expected;
        }
        let is_of_earlier_life = lane.acknowledged_in.is_some_and(|known| known != life);
        let may_be_lost = is_of_earlier_life && !partition.is_synced;
        // It may stand in the log, with a later one that a snapshot names in its place: both were
        // sent before the node was started anew.
        let was_there = |pending: &Pending| pending.floor.is_of_earlier_boot(partition);
        let may_be_forgotten = lane.pending.len() > 1 && lane.pending.iter().take(2).all(was_there);
        if !may_be_lost && !may_be_forgotten {
            return Refusal::Wrong;
        }
        // It begins anew. What it waited for may be in the log or not.
        self.id = None;
        self.generation += 1;
        self.lanes.clear();
        Refusal::Excused
    }

    fn lane_of(&mut self, id: i64, place: Place) -> Option<&mut Lane> {
        if self.id == Some(id) { self.lanes.get_mut(&place) } else { None }
    }
}
