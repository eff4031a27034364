//! The lanes between the machines of one node: bounded, in order, and a slot for the latest.

use std::collections::BTreeMap;

use api::Lane;
use base::{Instant, ShardId};

/// From one machine to another.
pub(crate) type Pair = (ShardId, ShardId);

#[derive(Debug, Default)]
struct LaneState {
    used_slots: usize,
    last_arrival: Instant,
}

/// All lanes of one node.
#[derive(Debug)]
pub(crate) struct Lanes<M> {
    slots: usize,
    lanes: BTreeMap<(Pair, bool), LaneState>,
    posts: BTreeMap<Pair, M>,
}

impl<M> Lanes<M> {
    /// Lanes of `slots` messages each.
    pub(crate) fn new(slots: usize) -> Self {
        Self { slots, lanes: BTreeMap::new(), posts: BTreeMap::new() }
    }

    /// Takes a slot for a message that would arrive at `at`; when it does, behind those before it.
    ///
    /// # Panics
    /// If the lane is full: the sender's account of its credits is wrong.
    pub(crate) fn send(&mut self, pair: Pair, lane: Lane, at: Instant) -> Instant {
        let state = self.lanes.entry((pair, lane == Lane::Reply)).or_default();
        assert!(
            state.used_slots < self.slots,
            "the {lane:?} lane from {:?} to {:?} overflows its {} slots",
            pair.0,
            pair.1,
            self.slots
        );
        state.used_slots += 1;
        state.last_arrival = state.last_arrival.max(at);
        state.last_arrival
    }

    /// A message was taken out at the other end: its slot is free.
    pub(crate) fn taken(&mut self, pair: Pair, lane: Lane) {
        let state = self.lanes.entry((pair, lane == Lane::Reply)).or_default();
        state.used_slots -= 1;
    }

    /// Puts a message into the latest-wins slot. True if nothing was waiting in it.
    pub(crate) fn post(&mut self, pair: Pair, message: M) -> bool {
        self.posts.insert(pair, message).is_none()
    }

    /// Takes what waits in the latest-wins slot.
    pub(crate) fn take_post(&mut self, pair: Pair) -> Option<M> {
        self.posts.remove(&pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: Pair = (ShardId(0), ShardId(1));

    #[test]
    fn messages_keep_their_order_and_replies_have_slots_of_their_own() {
        let mut lanes = Lanes::<()>::new(1);
        let late = Instant::from_nanos(9);
        assert_eq!(lanes.send(PAIR, Lane::Request, late), late);
        assert_eq!(lanes.send(PAIR, Lane::Reply, Instant::ZERO), Instant::ZERO);
        lanes.taken(PAIR, Lane::Request);
        assert_eq!(lanes.send(PAIR, Lane::Request, Instant::from_nanos(3)), late);
    }

    #[test]
    #[should_panic(expected = "overflows its 2 slots")]
    fn a_full_lane_is_a_bug() {
        let mut lanes = Lanes::<()>::new(2);
        for _ in 0..3 {
            lanes.send(PAIR, Lane::Request, Instant::ZERO);
        }
    }

    #[test]
    fn the_latest_post_wins() {
        let mut lanes = Lanes::new(1);
        assert!(lanes.post(PAIR, 1));
        assert!(!lanes.post(PAIR, 2));
        assert_eq!((lanes.take_post(PAIR), lanes.take_post(PAIR)), (Some(2), None));
    }
}
