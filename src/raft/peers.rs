//! The requests that are under way: one to each peer, given up after a time, with a pause after one
//! that failed (`RequestManager`).

use std::collections::BTreeMap;

use base::{Duration, Instant};

use crate::messages::{Peer, RequestId};

#[derive(Clone, Copy, Debug)]
enum State {
    UnderWay { id: RequestId, until: Instant, is_overtaken: bool },
    Pausing { until: Instant },
}

/// The peers that are not simply free.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    states: BTreeMap<Peer, State>,
    next_id: u64,
    request_timeout: Duration,
    retry_backoff: Duration,
}

impl Peers {
    pub(crate) fn new(request_timeout: Duration, retry_backoff: Duration) -> Self {
        Self { states: BTreeMap::new(), next_id: 0, request_timeout, retry_backoff }
    }

    /// Whether a request may go to `peer`.
    pub(crate) fn is_free(&self, peer: Peer, now: Instant) -> bool {
        match self.states.get(&peer) {
            None => true,
            Some(State::UnderWay { until, .. } | State::Pausing { until }) => *until <= now,
        }
    }

    /// Whether the last request to `peer` failed a moment ago.
    pub(crate) fn is_pausing(&self, peer: Peer, now: Instant) -> bool {
        matches!(self.states.get(&peer), Some(State::Pausing { until }) if *until > now)
    }

    /// Forgets a request to `peer` that got no answer in time; says whether there was one.
    pub(crate) fn forget_late(&mut self, peer: Peer, now: Instant) -> bool {
        let state = self.states.get(&peer);
        let is_late = matches!(state, Some(State::UnderWay { until, .. }) if *until <= now);
        if is_late {
            self.states.remove(&peer);
        }
        is_late
    }

    /// Whether an answer of anybody is awaited.
    pub(crate) fn is_any_under_way(&self, now: Instant) -> bool {
        let awaits = |state: &State| matches!(state, State::UnderWay { until, .. } if *until > now);
        self.states.values().any(awaits)
    }

    /// A newer request takes the place of all that are under way: their answers may still say who
    /// leads, and nothing of the log.
    pub(crate) fn overtake(&mut self) {
        for state in self.states.values_mut() {
            if let State::UnderWay { is_overtaken, .. } = state {
                *is_overtaken = true;
            }
        }
    }

    /// Whether a newer request took the place of the one to `peer`.
    pub(crate) fn is_overtaken(&self, peer: Peer) -> bool {
        let state = self.states.get(&peer);
        matches!(state, Some(State::UnderWay { is_overtaken: true, .. }))
    }

    /// A request goes to `peer`.
    pub(crate) fn begin(&mut self, peer: Peer, now: Instant) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let until = now + self.request_timeout;
        self.states.insert(peer, State::UnderWay { id, until, is_overtaken: false });
        id
    }

    /// Whether the answer to `id` is awaited from `peer`.
    pub(crate) fn awaits(&self, peer: Peer, id: RequestId) -> bool {
        let state = self.states.get(&peer);
        matches!(state, Some(State::UnderWay { id: awaited, .. }) if *awaited == id)
    }

    /// The request to `peer` was answered well.
    pub(crate) fn succeeded(&mut self, peer: Peer) {
        self.states.remove(&peer);
    }

    /// Nothing goes to `peer` for a moment.
    pub(crate) fn pause(&mut self, peer: Peer, now: Instant) {
        self.states.insert(peer, State::Pausing { until: now + self.retry_backoff });
    }

    /// Forgets every request: answers to earlier ones are not awaited any more.
    pub(crate) fn reset(&mut self) {
        self.states.clear();
    }

    /// When the next of them is free again.
    pub(crate) fn next_timer(&self, now: Instant) -> Option<Instant> {
        let until = |state: &State| match state {
            State::UnderWay { until, .. } | State::Pausing { until } => *until,
        };
        self.states.values().map(until).filter(|until| *until > now).min()
    }
}
