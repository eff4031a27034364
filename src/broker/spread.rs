//! A request that is about several partitions, each of which its owner answers.

use std::collections::BTreeMap;
use std::fmt::Debug;

use base::{ShardId, Token};
use intercom::{Reply, Request};

use crate::shard::{Io, Shard, Waiting};

/// An API whose partitions are answered one by one by their owners.
pub(crate) trait SpreadApi: Debug + Sized + 'static {
    /// What an owner says of one partition.
    type Outcome: Debug;

    /// Takes an owner's answer apart, in the order of what it was asked.
    fn outcomes(reply: Reply) -> Vec<Self::Outcome>;

    /// All partitions are answered: makes the response.
    fn finish(
        self,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        outcomes: impl Iterator<Item = Self::Outcome>,
    );
}

#[derive(Debug)]
struct Spreading<A: SpreadApi> {
    api: A,
    outcomes: Spread<A::Outcome>,
}

impl<A: SpreadApi> Waiting for Spreading<A> {
    fn answered(
        mut self: Box<Self>,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        slots: &[usize],
        reply: Reply,
    ) {
        self.outcomes.set_all(slots, A::outcomes(reply));
        self.go_on(shard, io, call);
    }
}

impl<A: SpreadApi> Spreading<A> {
    fn go_on(self: Box<Self>, shard: &mut Shard, io: &mut Io<'_>, call: Token) {
        if self.outcomes.is_complete() {
            self.api.finish(shard, io, call, self.outcomes.into_outcomes());
        } else {
            shard.wait(call, self);
        }
    }
}

/// Asks the owners of a request's partitions. `question` makes what one owner is asked of its
/// parts.
pub(crate) fn spread<A: SpreadApi, P>(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    api: A,
    parts: Parts<P, A::Outcome>,
    question: impl Fn(Vec<P>) -> Request,
) {
    let mut outcomes = Spread::new(parts.count);
    for (slot, outcome) in parts.refused {
        outcomes.set(slot, outcome);
    }
    for (owner, slots, parts) in parts.routes.into_shards() {
        shard.ask(io, call, owner, slots, question(parts));
    }
    // What was asked of this shard itself is answered later in this step, and so waits too.
    Box::new(Spreading { api, outcomes }).go_on(shard, io, call);
}

/// The partitions of a request as it is read: each is asked of its owner, or refused at once.
#[derive(Debug)]
pub(crate) struct Parts<P, T> {
    count: usize,
    routes: Routes<P>,
    refused: Vec<(usize, T)>,
}

impl<P, T> Default for Parts<P, T> {
    fn default() -> Self {
        Self { count: 0, routes: Routes::default(), refused: Vec::new() }
    }
}

impl<P, T> Parts<P, T> {
    /// Adds the next partition of the request.
    pub(crate) fn push(&mut self, place: Result<(ShardId, P), T>) {
        let slot = self.count;
        self.count += 1;
        match place {
            Ok((owner, part)) => self.routes.add(owner, slot, part),
            Err(outcome) => self.refused.push((slot, outcome)),
        }
    }
}

/// The partitions of a request, flat and in its order, with what came of each so far.
#[derive(Debug)]
struct Spread<T> {
    outcomes: Vec<Option<T>>,
    missing: usize,
}

impl<T> Spread<T> {
    /// Nothing is known of `partitions` partitions yet.
    fn new(partitions: usize) -> Self {
        Self { outcomes: (0..partitions).map(|_| None).collect(), missing: partitions }
    }

    /// Notes what came of one.
    ///
    /// # Panics
    /// If it is known already: an owner answered twice.
    fn set(&mut self, slot: usize, outcome: T) {
        let place = &mut self.outcomes[slot];
        assert!(place.is_none(), "partition {slot} of a request was answered twice");
        *place = Some(outcome);
        self.missing -= 1;
    }

    /// Notes what an owner answered about the partitions it was asked for.
    fn set_all(&mut self, slots: &[usize], outcomes: Vec<T>) {
        assert_eq!(slots.len(), outcomes.len(), "an owner answered about other partitions");
        for (slot, outcome) in slots.iter().zip(outcomes) {
            self.set(*slot, outcome);
        }
    }

    /// Whether all are known.
    fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// All of them, in order.
    ///
    /// # Panics
    /// If one is missing.
    fn into_outcomes(self) -> impl Iterator<Item = T> {
        self.outcomes.into_iter().map(|outcome| outcome.expect("all partitions are answered"))
    }
}

/// What is to be asked of which shard.
#[derive(Debug)]
pub(crate) struct Routes<P> {
    by_shard: BTreeMap<ShardId, (Vec<usize>, Vec<P>)>,
}

impl<P> Default for Routes<P> {
    fn default() -> Self {
        Self { by_shard: BTreeMap::new() }
    }
}

impl<P> Routes<P> {
    /// Partition `slot` of the request is asked of `owner` with `part`.
    pub(crate) fn add(&mut self, owner: ShardId, slot: usize, part: P) {
        let (slots, parts) = self.by_shard.entry(owner).or_default();
        slots.push(slot);
        parts.push(part);
    }

    /// Each shard with the slots and parts of its partitions.
    pub(crate) fn into_shards(self) -> impl Iterator<Item = (ShardId, Vec<usize>, Vec<P>)> {
        self.by_shard.into_iter().map(|(shard, (slots, parts))| (shard, slots, parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_in_the_order_of_the_request() {
        let mut routes = Routes::default();
        for (slot, owner) in [1, 0, 1].into_iter().enumerate() {
            routes.add(ShardId(owner), slot, slot * 10);
        }
        let mut spread = Spread::new(4);
        spread.set(3, 99);
        for (_, slots, parts) in routes.into_shards() {
            assert!(!spread.is_complete());
            spread.set_all(&slots, parts);
        }
        assert!(spread.is_complete());
        assert_eq!(spread.into_outcomes().collect::<Vec<_>>(), [0, 10, 20, 99]);
    }
}
