//! Incremental fetch sessions (KIP-227): what a consumer fetches is said once and then only
//! changed, and an answer names only the partitions of which there is news.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Duration, Instant, Map, Random, Uuid};

/// The epoch of a request that wants no session (`FetchMetadata.FINAL_EPOCH`).
pub(crate) const FINAL_EPOCH: i32 = -1;
/// The epoch of a request that wants a new session (`FetchMetadata.INITIAL_EPOCH`).
pub(crate) const INITIAL_EPOCH: i32 = 0;
/// The id of "no session".
pub(crate) const NO_SESSION: i32 = 0;
/// A session that was idle this long gives its place to a newer one
/// (`FetchSession` in Kafka: `min.incremental.fetch.session.eviction.ms`).
const EVICTION_IDLE: Duration = Duration::from_secs(120);

/// How a request names a topic: by id from version 13 on, by name before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TopicKey {
    /// By name.
    Name(Arc<str>),
    /// By id.
    Id(Uuid),
}

/// One partition as the request names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FetchKey {
    pub(crate) topic: TopicKey,
    pub(crate) partition: i32,
}

/// What a consumer wants of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) offset: i64,
    pub(crate) max_bytes: i32,
    pub(crate) leader_epoch: i32,
    pub(crate) last_fetched_epoch: i32,
}

/// What a consumer was last told of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) high_watermark: i64,
    pub(crate) log_start_offset: i64,
}

#[derive(Clone, Debug)]
struct Entry {
    key: FetchKey,
    wanted: Wanted,
    told: Option<Told>,
}

/// The partitions of one session, in the order in which they are served.
#[derive(Debug)]
struct Session {
    /// The epoch that the next request must carry.
    next_epoch: i32,
    by_id: bool,
    last_used: Instant,
    order: BTreeMap<u64, Entry>,
    places: Map<FetchKey, u64>,
    next_place: u64,
}

/// What a request stands for, once its session has been looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// Every partition is answered; there is no session.
    Sessionless,
    /// Every partition is answered; a session may be made of them.
    Full,
    /// Only what is news is answered.
    Incremental {
        /// The session.
        id: i32,
    },
}

/// Why a session cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionError {
    /// There is no such session, or not any more.
    NotFound,
    /// A request was lost or repeated.
    InvalidEpoch,
    /// The session was made with topic names and is used with ids, or the reverse.
    TopicIdMismatch,
}

/// The sessions of one shard.
#[derive(Debug)]
pub(crate) struct Sessions {
    limit: usize,
    sessions: BTreeMap<i32, Session>,
    random: Random,
}

impl Sessions {
    /// At most `limit` sessions (this shard's share of
    /// `max.incremental.fetch.session.cache.slots`).
    pub(crate) fn new(limit: usize, random: Random) -> Self {
        Self { limit, sessions: BTreeMap::new(), random }
    }

    /// Looks up what a request refers to, and brings the session up to date with it: `changed`
    /// are the partitions that it lists, `forgotten` those that it drops.
    pub(crate) fn open(
        &mut self,
        id: i32,
        epoch: i32,
        by_id: bool,
        changed: &[(FetchKey, Wanted)],
        forgotten: &[FetchKey],
        now: Instant,
    ) -> Result<Context, SessionError> {
        if epoch == FINAL_EPOCH || epoch == INITIAL_EPOCH {
            self.sessions.remove(&id);
            let full = epoch == INITIAL_EPOCH;
            return Ok(if full { Context::Full } else { Context::Sessionless });
        }
        let session = self.sessions.get_mut(&id).ok_or(SessionError::NotFound)?;
        if session.next_epoch != epoch {
            return Err(SessionError::InvalidEpoch);
        }
        if session.by_id != by_id {
            return Err(SessionError::TopicIdMismatch);
        }
        for (key, wanted) in changed {
            session.want(key.clone(), *wanted);
        }
        for key in forgotten {
            session.forget(key);
        }
        if session.places.is_empty() {
            self.sessions.remove(&id);
            return Ok(Context::Sessionless);
        }
        session.next_epoch = following(epoch);
        session.last_used = now;
        Ok(Context::Incremental { id })
    }

    /// The partitions of a session, in the order in which they are to be served.
    pub(crate) fn wanted(&self, id: i32) -> Vec<(FetchKey, Wanted)> {
        let entries = self.sessions.get(&id).into_iter().flat_map(|session| session.order.values());
        entries.map(|entry| (entry.key.clone(), entry.wanted)).collect()
    }

    /// Makes a session of a full request that was answered; [`NO_SESSION`] when there is no room.
    pub(crate) fn create(
        &mut self,
        by_id: bool,
        partitions: Vec<(FetchKey, Wanted, Option<Told>)>,
        now: Instant,
    ) -> i32 {
        if partitions.is_empty() || !self.make_room(now) {
            return NO_SESSION;
        }
        let id = self.free_id();
        let mut session = Session {
            next_epoch: following(INITIAL_EPOCH),
            by_id,
            last_used: now,
            order: BTreeMap::new(),
            places: Map::default(),
            next_place: 0,
        };
        for (key, wanted, told) in partitions {
            session.want(key.clone(), wanted);
            session.tell(&key, told, false);
        }
        self.sessions.insert(id, session);
        id
    }

    /// Whether the answer of an incremental request must name this partition: it has records, an
    /// error, or moved its high watermark or log start offset since it was last named. What is
    /// named with records goes to the end of the order, so that a busy partition starves none.
    pub(crate) fn is_news(
        &mut self,
        id: i32,
        key: &FetchKey,
        told: Option<Told>,
        has_records: bool,
    ) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return true };
        session.tell(key, told, has_records) || has_records
    }

    /// How many sessions there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.sessions.len()
    }

    fn make_room(&mut self, now: Instant) -> bool {
        if self.sessions.len() < self.limit {
            return true;
        }
        let oldest = self.sessions.iter().min_by_key(|(_, session)| session.last_used);
        let Some((id, session)) = oldest else { return false };
        if now.since(session.last_used) < EVICTION_IDLE {
            return false;
        }
        let id = *id;
        self.sessions.remove(&id);
        true
    }

    fn free_id(&mut self) -> i32 {
        loop {
            let id = i32::try_from(1 + self.random.below(i32::MAX as u64)).expect("31 bits");
            if !self.sessions.contains_key(&id) {
                return id;
            }
        }
    }
}

impl Session {
    fn want(&mut self, key: FetchKey, wanted: Wanted) {
        if let Some(entry) = self.places.get(&key).and_then(|place| self.order.get_mut(place)) {
            entry.wanted = wanted;
            return;
        }
        self.places.insert(key.clone(), self.next_place);
        self.order.insert(self.next_place, Entry { key, wanted, told: None });
        self.next_place += 1;
    }

    fn forget(&mut self, key: &FetchKey) {
        if let Some(place) = self.places.remove(key) {
            self.order.remove(&place);
        }
    }

    /// Notes what the consumer is told; an error (`None`) is always news, also the next time.
    fn tell(&mut self, key: &FetchKey, told: Option<Told>, to_the_end: bool) -> bool {
        let Some(place) = self.places.get_mut(key) else { return true };
        let Some(entry) = self.order.get_mut(place) else { return true };
        let news = told.is_none() || entry.told != told;
        entry.told = told;
        if to_the_end {
            let entry = self.order.remove(place).expect("it was there a line ago");
            *place = self.next_place;
            self.order.insert(self.next_place, entry);
            self.next_place += 1;
        }
        news
    }
}

/// Epochs grow by one, and skip 0 when they wrap (`FetchMetadata.nextEpoch`).
fn following(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(partition: i32) -> FetchKey {
        FetchKey { topic: TopicKey::Name("t".into()), partition }
    }

    fn wanted(offset: i64) -> Wanted {
        Wanted { offset, max_bytes: 1, leader_epoch: -1, last_fetched_epoch: -1 }
    }

    fn told(high_watermark: i64) -> Option<Told> {
        Some(Told { high_watermark, log_start_offset: 0 })
    }

    fn with_session(limit: usize) -> (Sessions, i32) {
        let mut sessions = Sessions::new(limit, Random::new(1));
        let both = vec![(key(0), wanted(0), told(5)), (key(1), wanted(0), told(5))];
        let id = sessions.create(false, both, Instant::ZERO);
        (sessions, id)
    }

    #[test]
    fn epochs_are_checked_and_grow() {
        let (mut sessions, id) = with_session(1);
        assert_ne!(id, NO_SESSION);
        let mut open = |id, epoch, by_id| sessions.open(id, epoch, by_id, &[], &[], Instant::ZERO);
        assert_eq!(open(id, 1, false), Ok(Context::Incremental { id }));
        assert_eq!(open(id, 1, false), Err(SessionError::InvalidEpoch));
        assert_eq!(open(id, 2, true), Err(SessionError::TopicIdMismatch));
        assert_eq!(open(id ^ 1, 2, false), Err(SessionError::NotFound));
        assert_eq!(open(id, 2, false), Ok(Context::Incremental { id }));
        assert_eq!(open(id, INITIAL_EPOCH, false), Ok(Context::Full));
        assert_eq!(open(id, 3, false), Err(SessionError::NotFound));
        assert_eq!(open(0, FINAL_EPOCH, false), Ok(Context::Sessionless));
        assert_eq!((following(i32::MAX), following(1)), (1, 2));
    }

    #[test]
    fn only_news_is_told_and_the_busy_go_last() {
        let (mut sessions, id) = with_session(1);
        assert!(!sessions.is_news(id, &key(0), told(5), false));
        assert!(sessions.is_news(id, &key(0), told(6), false));
        assert!(sessions.is_news(id, &key(0), told(6), true));
        assert!(sessions.is_news(id, &key(1), None, false));
        assert!(sessions.is_news(id, &key(1), None, false));
        let order: Vec<_> = sessions.wanted(id).into_iter().map(|(key, _)| key).collect();
        assert_eq!(order, [key(1), key(0)]);
    }

    #[test]
    fn a_session_changes_with_its_requests() {
        let (mut sessions, id) = with_session(1);
        let changed = [(key(1), wanted(7)), (key(2), wanted(9))];
        let context = sessions.open(id, 1, false, &changed, &[key(0)], Instant::ZERO);
        assert_eq!(context, Ok(Context::Incremental { id }));
        assert_eq!(sessions.wanted(id), [(key(1), wanted(7)), (key(2), wanted(9))]);
        let context = sessions.open(id, 2, false, &[], &[key(1), key(2)], Instant::ZERO);
        assert_eq!((context, sessions.len()), (Ok(Context::Sessionless), 0));
    }

    #[test]
    fn a_full_cache_gives_way_only_when_somebody_is_idle() {
        let (mut sessions, _) = with_session(1);
        let one = || vec![(key(0), wanted(0), told(0))];
        assert_eq!(sessions.create(false, one(), Instant::ZERO), NO_SESSION);
        assert_ne!(sessions.create(false, one(), Instant::ZERO + EVICTION_IDLE), NO_SESSION);
        assert_eq!(sessions.len(), 1);
    }
}
