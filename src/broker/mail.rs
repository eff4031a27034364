//! What this shard sends to others and to itself.

use std::collections::{BTreeMap, VecDeque};

use api::Effects;
use base::{ShardId, Token};
use intercom::{Credits, Message, Reply, Request};

/// Sends messages within their credits. A request to the shard itself takes the same path but no
/// lane: it is handled before the step ends.
#[derive(Debug)]
pub(crate) struct Mail {
    me: ShardId,
    credits: Credits,
    /// Requests that wait for a credit. They belong to calls that are under way, which are
    /// bounded; and while there are any, no connection starts another call.
    waiting: BTreeMap<ShardId, VecDeque<(Token, Request)>>,
    local: VecDeque<Message>,
}

impl Mail {
    /// The mail of shard `me` in a node of `shards` machines with lanes of `slots` slots.
    pub(crate) fn new(me: ShardId, shards: usize, slots: u32) -> Self {
        let credits = Credits::new(shards, slots);
        Self { me, credits, waiting: BTreeMap::new(), local: VecDeque::new() }
    }

    /// Whether every request so far has left: what a new call asks will leave at once, or soon.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Asks `to`, at once or when a credit is there.
    pub(crate) fn request(
        &mut self,
        effects: &mut Effects<Message>,
        to: ShardId,
        id: Token,
        body: Request,
    ) {
        if to == self.me {
            self.local.push_back(Message::Request { id, body });
        } else if self.waiting.contains_key(&to) || !self.credits.take(to) {
            self.waiting.entry(to).or_default().push_back((id, body));
        } else {
            effects.request(to, Message::Request { id, body });
        }
    }

    /// Answers a request of `to`.
    pub(crate) fn reply(
        &mut self,
        effects: &mut Effects<Message>,
        to: ShardId,
        id: Token,
        body: Reply,
    ) {
        if to == self.me {
            self.local.push_back(Message::Reply { id, body });
        } else {
            effects.reply(to, Message::Reply { id, body });
        }
    }

    /// A reply of `from` has arrived: its credit sends what waited for it.
    pub(crate) fn replied(&mut self, effects: &mut Effects<Message>, from: ShardId) {
        if from == self.me {
            return;
        }
        self.credits.give_back(from);
        let Some(queue) = self.waiting.get_mut(&from) else { return };
        if let Some((id, body)) = queue.pop_front() {
            assert!(self.credits.take(from), "a credit has just been given back");
            effects.request(from, Message::Request { id, body });
        }
        if queue.is_empty() {
            self.waiting.remove(&from);
        }
    }

    /// The next message of the shard to itself.
    pub(crate) fn next_local(&mut self) -> Option<Message> {
        self.local.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_credit_waits_in_order() {
        let mut mail = Mail::new(ShardId(0), 2, 1);
        let mut effects = Effects::new();
        let peer = ShardId(1);
        for bits in 0..3 {
            mail.request(&mut effects, peer, Token::from_bits(bits), Request::LogSizes);
        }
        assert_eq!((effects.as_slice().len(), mail.has_room()), (1, false));
        mail.replied(&mut effects, peer);
        mail.replied(&mut effects, peer);
        assert!(mail.has_room());
        let ids: Vec<u64> = effects
            .as_slice()
            .iter()
            .map(|effect| match effect {
                api::Effect::Mesh { message: Message::Request { id, .. }, .. } => id.to_bits(),
                other => panic!("unexpected {other:?}"),
            })
            .collect();
        assert_eq!(ids, [0, 1, 2]);
    }

    #[test]
    fn a_shard_asks_itself_without_a_lane() {
        let mut mail = Mail::new(ShardId(0), 1, 1);
        let mut effects = Effects::new();
        for bits in 0..3 {
            mail.request(&mut effects, ShardId(0), Token::from_bits(bits), Request::LogSizes);
        }
        assert!(effects.is_empty() && mail.has_room());
        assert!(mail.next_local().is_some());
    }
}
