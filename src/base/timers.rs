//! Timers of a machine, which knows one wake-up of its driver and many times of its own.

use std::collections::BTreeMap;

use crate::Instant;

/// Names a timer that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId {
    at: Instant,
    sequence: u64,
}

/// What is to happen at which time. Timers of one instant expire in the order they were set.
#[derive(Clone, Debug)]
pub struct Timers<T> {
    queue: BTreeMap<TimerId, T>,
    next_sequence: u64,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self { queue: BTreeMap::new(), next_sequence: 0 }
    }
}

impl<T> Timers<T> {
    /// Sets a timer.
    pub fn set(&mut self, at: Instant, what: T) -> TimerId {
        let id = TimerId { at, sequence: self.next_sequence };
        self.next_sequence += 1;
        self.queue.insert(id, what);
        id
    }

    /// Takes a timer back; nothing when it has expired already.
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        self.queue.remove(&id)
    }

    /// When the next one expires: what to ask the driver for.
    pub fn next_at(&self) -> Option<Instant> {
        self.queue.first_key_value().map(|(id, _)| id.at)
    }

    /// Takes out the next one that has expired by `now`. A caller loops until there is none.
    pub fn expired(&mut self, now: Instant) -> Option<T> {
        let entry = self.queue.first_entry()?;
        if entry.key().at > now { None } else { Some(entry.remove()) }
    }

    /// How many are set.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_expire_in_order_and_once() {
        let mut timers = Timers::default();
        let at = Instant::from_nanos;
        timers.set(at(20), "later");
        timers.set(at(10), "first");
        timers.set(at(10), "second");
        let cancelled = timers.set(at(5), "cancelled");
        assert_eq!(timers.next_at(), Some(at(5)));
        assert_eq!(timers.cancel(cancelled), Some("cancelled"));
        assert_eq!(timers.cancel(cancelled), None);
        assert_eq!(timers.expired(at(9)), None);
        assert_eq!(timers.expired(at(15)), Some("first"));
        assert_eq!(timers.expired(at(15)), Some("second"));
        assert_eq!(timers.expired(at(15)), None);
        assert_eq!((timers.next_at(), timers.len()), (Some(at(20)), 1));
    }
}
