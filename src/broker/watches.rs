//! Fetches that found too little and want to be told when there is more.

use std::collections::BTreeMap;

use api::SocketId;
use base::{Instant, ShardId, Slab, TimerId, Timers, Token};
use intercom::{FetchAsk, Watch};

/// Watches of one shard at once. There is no more than one a connection; beyond the limit a fetch
/// is answered when its time is over.
const WATCHES_MAX: usize = 1 << 20;

/// Who waits for more than a read found.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) home: ShardId,
    pub(crate) watch: Watch,
    /// What is read again when there is news.
    pub(crate) ask: FetchAsk,
    /// Fewer bytes are not told.
    pub(crate) bytes_enough: u32,
    /// Whether a partition had news since the last reading.
    has_news: bool,
    timer: Option<TimerId>,
}

/// The watches that homes have set at this shard.
#[derive(Debug)]
pub(crate) struct Watches {
    waiters: Slab<Waiter>,
    by_connection: BTreeMap<(ShardId, SocketId), Token>,
    expiry: Timers<Token>,
}

impl Default for Watches {
    fn default() -> Self {
        Self {
            waiters: Slab::new(WATCHES_MAX),
            by_connection: BTreeMap::new(),
            expiry: Timers::default(),
        }
    }
}

impl Watches {
    /// Sets a watch on what `ask` reads, which has `bytes_found` so far. An older watch of the
    /// connection has to be taken out first. Nothing when there is no room.
    pub(crate) fn set(
        &mut self,
        home: ShardId,
        watch: Watch,
        ask: FetchAsk,
        bytes_found: u32,
    ) -> Option<Token> {
        let bytes_min = if watch.is_shared { 0 } else { watch.bytes_min };
        let bytes_enough = bytes_min.max(bytes_found.saturating_add(1));
        let waiter = Waiter { home, watch, ask, bytes_enough, has_news: false, timer: None };
        let token = self.waiters.insert(waiter).ok()?;
        let timer = self.expiry.set(watch.until, token);
        self.waiters.get_mut(token).expect("just inserted").timer = Some(timer);
        self.by_connection.insert((home, watch.connection), token);
        Some(token)
    }

    /// The watch that a home has set for a connection, if there is one.
    pub(crate) fn of_connection(&self, home: ShardId, connection: SocketId) -> Option<Token> {
        self.by_connection.get(&(home, connection)).copied()
    }

    /// A partition of the watch has news. True when it had none since the last [`Watches::look`].
    pub(crate) fn has_news(&mut self, token: Token) -> bool {
        let waiter = self.waiters.get_mut(token);
        waiter.is_some_and(|waiter| !std::mem::replace(&mut waiter.has_news, true))
    }

    /// Who waits, now that the news is looked at.
    pub(crate) fn look(&mut self, token: Token) -> Option<&Waiter> {
        let waiter = self.waiters.get_mut(token)?;
        waiter.has_news = false;
        Some(waiter)
    }

    /// Takes a watch out.
    pub(crate) fn take(&mut self, token: Token) -> Option<Waiter> {
        let waiter = self.waiters.remove(token)?;
        waiter.timer.and_then(|timer| self.expiry.cancel(timer));
        self.by_connection.remove(&(waiter.home, waiter.watch.connection));
        Some(waiter)
    }

    /// A watch whose home does not wait any more. It has to be taken out.
    pub(crate) fn expired(&mut self, now: Instant) -> Option<Token> {
        self.expiry.expired(now)
    }

    /// When the next one expires.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.expiry.next_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: ShardId = ShardId(1);
    /// The least bytes of the request that asks other owners too.
    const SHARED: u32 = 1_000;

    fn set(watches: &mut Watches, connection: u64, bytes_min: u32, until: u64) -> Token {
        let is_shared = bytes_min == SHARED;
        let connection = SocketId(Token::from_bits(connection));
        let until = Instant::from_nanos(until);
        let watch = Watch { call: Token::NONE, connection, bytes_min, is_shared, until };
        let ask = FetchAsk {
            partitions: Vec::new(),
            bytes_max: 1,
            read_committed: false,
            watch: Some(watch),
        };
        watches.set(HOME, watch, ask, 7).expect("there is room")
    }

    #[test]
    fn a_watch_is_taken_out_once_by_news_connection_or_time() {
        let mut watches = Watches::default();
        let first = set(&mut watches, 1, 1, 10);
        let second = set(&mut watches, 2, 1, 20);
        let third = set(&mut watches, 3, 1, 30);
        assert!(watches.take(first).is_some() && watches.take(first).is_none());
        let connection = |bits| SocketId(Token::from_bits(bits));
        assert_eq!(watches.of_connection(HOME, connection(1)), None);
        assert_eq!(watches.of_connection(HOME, connection(3)), Some(third));
        assert!(watches.take(third).is_some());
        assert_eq!(watches.expired(Instant::from_nanos(19)), None);
        assert_eq!(watches.expired(Instant::from_nanos(20)), Some(second));
        assert!(watches.take(second).is_some());
        assert_eq!((watches.waiters.len(), watches.next_at()), (0, None));
    }

    #[test]
    fn news_counts_once_until_it_is_looked_at_and_must_be_more_than_was_known() {
        let mut watches = Watches::default();
        for (bytes_min, enough) in [(0, 8), (8, 8), (100, 100), (SHARED, 8)] {
            let token = set(&mut watches, 1, bytes_min, 10);
            assert!(watches.has_news(token) && !watches.has_news(token));
            assert_eq!(watches.look(token).map(|waiter| waiter.bytes_enough), Some(enough));
            assert!(watches.has_news(token));
            watches.take(token);
            assert!(!watches.has_news(token));
        }
    }
}
