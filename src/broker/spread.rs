//! A request that is about several partitions, each of which its owner answers.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::iter::Map;
use std::vec::IntoIter;

use base::{ShardId, Token};
use group::GroupReply;
use intercom::{
    AppendAsk, AppendPartition, Appended, DeletePartition, Deleted, EpochEnd, EpochEndPartition,
    FoundOffset, FoundProducers, GroupAsk, OffsetsPartition, ProducersPartition, Reply, Request,
};

use crate::shard::{Io, Shard, Waiting};

/// What the owner of one partition is asked about it.
pub(crate) trait Part: Sized + 'static {
    /// What it answers.
    type Outcome: 'static;

    /// The question to an owner of several.
    fn question(parts: Vec<Self>) -> Request;

    /// Takes an owner's answer apart, in the order of the question.
    fn outcomes(reply: Reply) -> Vec<Self::Outcome>;
}

/// Says which question and which answer a part belongs to.
macro_rules! part {
    ($part:ty => $outcome:ty, $kind:ident) => {
        impl Part for $part {
            type Outcome = $outcome;

            fn question(parts: Vec<Self>) -> Request {
                Request::$kind(parts)
            }

            fn outcomes(reply: Reply) -> Vec<$outcome> {
                let Reply::$kind(outcomes) = reply else { unreachable!("answered by {reply:?}") };
                outcomes
            }
        }
    };
}

part!(OffsetsPartition => FoundOffset, Offsets);
part!(EpochEndPartition => EpochEnd, EpochEnds);
part!(ProducersPartition => FoundProducers, Producers);
part!(DeletePartition => Deleted, DeleteRecords);
part!(GroupAsk => GroupReply, Group);

impl Part for AppendPartition {
    type Outcome = Appended;

    fn question(partitions: Vec<Self>) -> Request {
        Request::Append(AppendAsk { partitions })
    }

    fn outcomes(reply: Reply) -> Vec<Appended> {
        let Reply::Append(answer) = reply else { unreachable!("answered by {reply:?}") };
        answer.partitions
    }
}

/// Whom a part goes to; or what comes of it at once, as there is nobody to ask.
pub(crate) type Place<P> = Result<(ShardId, P), <P as Part>::Outcome>;

/// Asks the owners of a request's parts. When all have answered, `finish` gets the outcomes in the
/// order of the parts, each with the label that its part had.
pub(crate) fn spread<L: 'static, P: Part>(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    parts: impl IntoIterator<Item = (L, Place<P>)>,
    finish: impl FnOnce(&mut Shard, &mut Io<'_>, Token, Outcomes<L, P::Outcome>) + 'static,
) {
    let mut routed = Routed::default();
    for (label, place) in parts {
        routed.add(label, place);
    }
    routed.ask(shard, io, call, finish);
}

/// Asks the owners of a request's partitions, which stand under topics there: `take_apart` gives
/// the index of a partition and whom it goes to. When all have answered, `finish` gets the
/// outcomes in the shape of the request.
pub(crate) fn spread_topics<N: 'static, Q, P: Part>(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    topics: impl IntoIterator<Item = (N, Vec<Q>)>,
    take_apart: impl Fn(&Shard, &N, Q) -> (i32, Place<P>),
    finish: impl FnOnce(&mut Shard, &mut Io<'_>, Token, TopicOutcomes<N, P::Outcome>) + 'static,
) {
    let mut routed = Routed::default();
    let mut names = Vec::new();
    for (name, partitions) in topics {
        routed.slots.reserve(partitions.len());
        let count = partitions.len();
        for partition in partitions {
            let (index, place) = take_apart(shard, &name, partition);
            routed.add(index, place);
        }
        names.push((name, count));
    }
    routed.ask(shard, io, call, move |shard, io, call, outcomes| {
        finish(shard, io, call, TopicOutcomes { names, outcomes });
    });
}

/// What came of a request's parts, in their order, each with its label.
pub(crate) type Outcomes<L, T> = Map<IntoIter<(L, Slot<T>)>, fn((L, Slot<T>)) -> (L, T)>;

/// What came of a request's partitions, in the shape of the request.
pub(crate) struct TopicOutcomes<N, T> {
    /// The topics, and how many partitions each has.
    names: Vec<(N, usize)>,
    /// The partitions of all topics, by index.
    outcomes: Outcomes<i32, T>,
}

impl<N, T> TopicOutcomes<N, T> {
    /// The topics of the response, of their names and rows.
    pub(crate) fn into_topics<R, Topic>(
        mut self,
        mut row: impl FnMut(i32, T) -> R,
        topic: impl Fn(N, Vec<R>) -> Topic,
    ) -> Vec<Topic> {
        let topics = self.names.into_iter().map(|(name, count)| {
            let outcomes = self.outcomes.by_ref().take(count);
            topic(name, outcomes.map(|(index, outcome)| row(index, outcome)).collect())
        });
        topics.collect()
    }
}

/// What is known of one part.
pub(crate) enum Slot<T> {
    /// It was asked of this shard.
    Asked(ShardId),
    /// This came of it.
    Known(T),
}

/// The parts of a request, by whom they go to.
struct Routed<L, P: Part> {
    slots: Vec<(L, Slot<P::Outcome>)>,
    by_owner: BTreeMap<ShardId, Vec<P>>,
}

impl<L, P: Part> Default for Routed<L, P> {
    fn default() -> Self {
        Self { slots: Vec::new(), by_owner: BTreeMap::new() }
    }
}

impl<L: 'static, P: Part> Routed<L, P> {
    /// Adds the next part of the request.
    fn add(&mut self, label: L, place: Place<P>) {
        let slot = match place {
            Ok((owner, part)) => {
                self.by_owner.entry(owner).or_default().push(part);
                Slot::Asked(owner)
            }
            Err(outcome) => Slot::Known(outcome),
        };
        self.slots.push((label, slot));
    }

    fn ask(
        self,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        finish: impl FnOnce(&mut Shard, &mut Io<'_>, Token, Outcomes<L, P::Outcome>) + 'static,
    ) {
        let owners_left = self.by_owner.len();
        for (owner, parts) in self.by_owner {
            shard.ask(io, call, owner, P::question(parts));
        }
        // What was asked of this shard itself is answered later in this step, and so waits too.
        let answers = Answers::<L, P> { slots: self.slots, owners_left };
        Box::new(Spreading { answers, finish }).go_on(shard, io, call);
    }
}

/// What came of the parts so far.
struct Answers<L, P: Part> {
    slots: Vec<(L, Slot<P::Outcome>)>,
    owners_left: usize,
}

impl<L, P: Part> Answers<L, P> {
    /// Notes what an owner answered about the parts it was asked for.
    ///
    /// # Panics
    /// If it answered about others.
    fn take(&mut self, from: ShardId, outcomes: Vec<P::Outcome>) {
        let asked = |slot: &Slot<P::Outcome>| matches!(slot, Slot::Asked(owner) if *owner == from);
        let mut open = self.slots.iter_mut().filter(|(_, slot)| asked(slot));
        for outcome in outcomes {
            let (_, slot) = open.next().expect("an owner answers what it was asked");
            *slot = Slot::Known(outcome);
        }
        assert!(open.next().is_none(), "an owner answered less than it was asked");
        self.owners_left -= 1;
    }

    /// All outcomes.
    ///
    /// # Panics
    /// If one is missing.
    fn into_outcomes(self) -> Outcomes<L, P::Outcome> {
        self.slots.into_iter().map(|(label, slot)| match slot {
            Slot::Known(outcome) => (label, outcome),
            Slot::Asked(owner) => unreachable!("{owner} has not answered yet"),
        })
    }
}

/// A call that waits for the owners of its parts.
struct Spreading<L, P: Part, F> {
    answers: Answers<L, P>,
    finish: F,
}

impl<L, P: Part, F> Debug for Spreading<L, P, F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parts, owners) = (self.answers.slots.len(), self.answers.owners_left);
        write!(formatter, "a call about {parts} partitions that waits for {owners} owners")
    }
}

impl<L, P, F> Waiting for Spreading<L, P, F>
where
    L: 'static,
    P: Part,
    F: FnOnce(&mut Shard, &mut Io<'_>, Token, Outcomes<L, P::Outcome>) + 'static,
{
    fn answered(
        mut self: Box<Self>,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        from: ShardId,
        reply: Reply,
    ) {
        self.answers.take(from, P::outcomes(reply));
        self.go_on(shard, io, call);
    }
}

impl<L, P, F> Spreading<L, P, F>
where
    L: 'static,
    P: Part,
    F: FnOnce(&mut Shard, &mut Io<'_>, Token, Outcomes<L, P::Outcome>) + 'static,
{
    fn go_on(self: Box<Self>, shard: &mut Shard, io: &mut Io<'_>, call: Token) {
        if self.answers.owners_left == 0 {
            let Self { answers, finish } = *self;
            finish(shard, io, call, answers.into_outcomes());
        } else {
            shard.wait(call, self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Offset, PartitionIndex, TopicId};
    use intercom::PartitionKey;
    use protocol::ErrorCode;

    fn part(offset: i64) -> DeletePartition {
        let key = PartitionKey { topic: TopicId::ZERO, partition: PartitionIndex(0) };
        DeletePartition { key, before: Offset(offset) }
    }

    fn deleted(part: &DeletePartition) -> Deleted {
        Deleted { error: ErrorCode::NONE, low_watermark: part.before }
    }

    #[test]
    fn outcomes_come_in_the_order_and_shape_of_the_request() {
        let mut routed = Routed::<i32, DeletePartition>::default();
        for (index, owner) in [1, 0, 1].into_iter().enumerate() {
            routed.add(index as i32, Ok((ShardId(owner), part(index as i64 * 10))));
        }
        let error = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
        routed.add(7, Err(Deleted::refused(error)));
        let owners_left = routed.by_owner.len();
        let mut answers = Answers::<i32, DeletePartition> { slots: routed.slots, owners_left };
        for (owner, parts) in routed.by_owner.into_iter().rev() {
            answers.take(owner, parts.iter().map(deleted).collect());
        }
        assert_eq!(answers.owners_left, 0);
        let names = vec![("a", 2), ("b", 0), ("c", 2)];
        let outcomes = TopicOutcomes { names, outcomes: answers.into_outcomes() };
        let rows = outcomes.into_topics(
            |index, deleted| (index, deleted.low_watermark.0),
            |name, rows| (name, rows),
        );
        let expected = [("a", vec![(0, 0), (1, 10)]), ("b", vec![]), ("c", vec![(2, 20), (7, -1)])];
        assert_eq!(rows, expected);
    }

    #[test]
    #[should_panic(expected = "less than it was asked")]
    fn an_owner_that_leaves_something_out_is_a_bug() {
        let slots = vec![((), Slot::Asked(ShardId(0))), ((), Slot::Asked(ShardId(0)))];
        let mut answers = Answers::<(), DeletePartition> { slots, owners_left: 1 };
        answers.take(ShardId(0), vec![deleted(&part(1))]);
    }
}
