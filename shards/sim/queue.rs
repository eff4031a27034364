//! What will happen, in order of time.

use std::collections::BTreeMap;

use base::Instant;

/// Things to come. Two things of one instant come out in the order they were put in.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    things: BTreeMap<(Instant, u64), T>,
    put: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { things: BTreeMap::new(), put: 0 }
    }
}

impl<T> Queue<T> {
    /// Lets `thing` come out at `at`.
    pub(crate) fn put(&mut self, at: Instant, thing: T) {
        self.put += 1;
        self.things.insert((at, self.put), thing);
    }

    /// When the next thing comes out.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.things.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Takes the next thing out.
    pub(crate) fn take(&mut self) -> Option<(Instant, T)> {
        self.things.pop_first().map(|((at, _), thing)| (at, thing))
    }

    /// Takes out all things that `wanted` says yes to, in order.
    pub(crate) fn take_all(&mut self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let keys: Vec<_> =
            self.things.iter().filter(|(_, thing)| wanted(thing)).map(|(&key, _)| key).collect();
        keys.iter().filter_map(|key| self.things.remove(key)).collect()
    }
}
