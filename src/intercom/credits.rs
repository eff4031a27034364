//! How many requests a shard may still send to each of its peers.

use base::ShardId;

/// Counts the requests under way from one shard to each of its peers.
///
/// A request lane has `slots` slots, and so has the reply lane that leads back: as every request
/// is answered by exactly one reply, a sender that never has more than `slots` requests under way
/// never finds a lane full, and two shards that wait for each other cannot deadlock. Who is
/// refused a credit pauses what it was about to ask for (a connection, before its next frame).
#[derive(Clone, Debug)]
pub struct Credits {
    slots: u32,
    under_way: Vec<u32>,
}

impl Credits {
    /// Credits towards `shards` peers, with lanes of `slots` slots.
    pub fn new(shards: usize, slots: u32) -> Self {
        Self { slots, under_way: vec![0; shards] }
    }

    #[cfg(test)]
    fn left(&self, to: ShardId) -> u32 {
        self.slots - self.under_way[usize::from(to.0)]
    }

    /// Takes a credit towards `to`; false when there is none left.
    #[must_use]
    pub fn take(&mut self, to: ShardId) -> bool {
        let under_way = &mut self.under_way[usize::from(to.0)];
        if *under_way == self.slots {
            return false;
        }
        *under_way += 1;
        true
    }

    /// Gives a credit back: a reply of `from` has arrived.
    ///
    /// # Panics
    /// If nothing was asked of `from`: a peer replied twice.
    pub fn give_back(&mut self, from: ShardId) {
        let under_way = &mut self.under_way[usize::from(from.0)];
        assert!(*under_way > 0, "shard {from} replied to a request that was never sent");
        *under_way -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_run_out_and_come_back() {
        let mut credits = Credits::new(2, 2);
        let peer = ShardId(1);
        assert!(credits.take(peer) && credits.take(peer));
        assert!(!credits.take(peer));
        assert_eq!((credits.left(peer), credits.left(ShardId(0))), (0, 2));
        credits.give_back(peer);
        assert!(credits.take(peer));
    }

    #[test]
    #[should_panic(expected = "never sent")]
    fn a_second_reply_is_a_bug() {
        Credits::new(1, 1).give_back(ShardId(0));
    }
}
