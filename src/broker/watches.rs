//! Fetches that found too little and want to be told when there is more.

use std::collections::BTreeMap;

use base::{Instant, ShardId, Slab, TimerId, Timers, Token};
use intercom::Watch;

/// Watches of one shard at once. More than there are connections are never set; beyond it a
/// fetch is answered when its time is over.
const WATCHES_MAX: usize = 1 << 20;

/// Who waits for news of some partitions.
#[derive(Debug)]
struct Entry {
    home: ShardId,
    id: Token,
    /// The partitions, by their tokens at this shard.
    partitions: Vec<Token>,
    timer: Option<TimerId>,
}

/// What a watch was, when it is taken out.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) token: Token,
    pub(crate) home: ShardId,
    pub(crate) id: Token,
    pub(crate) partitions: Vec<Token>,
}

/// The watches that others have set at this shard.
#[derive(Debug)]
pub(crate) struct Watches {
    entries: Slab<Entry>,
    by_asker: BTreeMap<(ShardId, Token), Token>,
    expiry: Timers<Token>,
}

impl Default for Watches {
    fn default() -> Self {
        Self {
            entries: Slab::new(WATCHES_MAX),
            by_asker: BTreeMap::new(),
            expiry: Timers::default(),
        }
    }
}

impl Watches {
    /// Sets a watch on `partitions`. A watch of the same asker and name has to be taken out first
    /// ([`Watches::take_of`]). Nothing when there is no room.
    pub(crate) fn set(
        &mut self,
        home: ShardId,
        watch: Watch,
        partitions: Vec<Token>,
    ) -> Option<Token> {
        let entry = Entry { home, id: watch.id, partitions, timer: None };
        let token = self.entries.insert(entry).ok()?;
        let timer = self.expiry.set(watch.until, token);
        self.entries.get_mut(token).expect("just inserted").timer = Some(timer);
        self.by_asker.insert((home, watch.id), token);
        Some(token)
    }

    /// Takes a watch out: it is being told, or replaced.
    pub(crate) fn take(&mut self, token: Token) -> Option<Taken> {
        let entry = self.entries.remove(token)?;
        entry.timer.and_then(|timer| self.expiry.cancel(timer));
        self.by_asker.remove(&(entry.home, entry.id));
        Some(Taken { token, home: entry.home, id: entry.id, partitions: entry.partitions })
    }

    /// Takes out the watch that this asker set under this name, if there is one.
    pub(crate) fn take_of(&mut self, home: ShardId, id: Token) -> Option<Taken> {
        let token = *self.by_asker.get(&(home, id))?;
        self.take(token)
    }

    /// Takes out a watch whose asker does not wait any more.
    pub(crate) fn expired(&mut self, now: Instant) -> Option<Taken> {
        let token = self.expiry.expired(now)?;
        self.take(token)
    }

    /// When the next one expires.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.expiry.next_at()
    }

    /// How many there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(id: u64, until: u64) -> Watch {
        Watch { id: Token::from_bits(id), bytes_min: 1, until: Instant::from_nanos(until) }
    }

    #[test]
    fn a_watch_is_taken_out_once_by_news_name_or_time() {
        let (mut watches, home) = (Watches::default(), ShardId(1));
        let partition = vec![Token::from_bits(9)];
        let first = watches.set(home, watch(1, 10), partition.clone()).expect("room");
        watches.set(home, watch(2, 20), partition.clone()).expect("room");
        watches.set(home, watch(3, 30), partition.clone()).expect("room");
        assert_eq!(watches.take(first).map(|taken| taken.id), Some(Token::from_bits(1)));
        assert!(watches.take(first).is_none());
        assert!(watches.take_of(home, Token::from_bits(3)).is_some());
        assert!(watches.expired(Instant::from_nanos(19)).is_none());
        let expired = watches.expired(Instant::from_nanos(20)).expect("its time has come");
        assert_eq!((expired.id, expired.partitions), (Token::from_bits(2), partition));
        assert_eq!((watches.len(), watches.next_at()), (0, None));
    }
}
