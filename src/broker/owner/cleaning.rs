//! Which log is cleaned, and when (`LogCleaner`, `LogCleanerManager`): one at a time on each shard,
//! the dirtiest first. The log itself sees to it that a turn stays short.

use base::{Random, Token};
use commitlog::{CleaningLimits, Log};
use config::BrokerConfig;

use super::{Desk, Owner};

/// Memory for the newest offsets that a shard's cleaner has at least, in bytes: Kafka wants as much
/// for each of its threads.
const MAP_BYTES_MIN: usize = 1 << 20;
/// Logs that one turn looks at: of one that is compacted the segments are counted up.
const LOGS_A_TURN: usize = 512;

/// How this shard cleans.
#[derive(Debug)]
pub(super) struct Cleaning {
    is_enabled: bool,
    limits: CleaningLimits,
    /// The partition whose log was cleaned last.
    newest: Option<Token>,
    search: Option<Search>,
    random: Random,
}

impl Cleaning {
    /// The shard's part of what the node's settings allow.
    pub(super) fn new(config: &BrokerConfig, data_shards: u16, random: Random) -> Self {
        let simple = &config.simple;
        let bytes = usize::try_from(simple.log_cleaner_dedupe_buffer_size_bytes).unwrap_or(0);
        let shards = usize::from(data_shards);
        Self {
            is_enabled: simple.log_cleaner_enable,
            limits: CleaningLimits {
                map_bytes: (bytes / shards).max(MAP_BYTES_MIN),
                map_load_factor: simple.log_cleaner_io_buffer_load_factor,
                bytes_per_second: simple.log_cleaner_io_max_bytes_per_second
                    / f64::from(data_shards),
                hash_seed: 0,
            },
            newest: None,
            search: None,
            random,
        }
    }
}

/// A search for the dirtiest log.
#[derive(Debug, Default)]
struct Search {
    /// The place of the partition that is looked at next.
    next: usize,
    dirtiest: Option<(f64, Token)>,
}

impl Owner {
    /// Begins to look for the dirtiest log, unless one is looked for or cleaned. It is cleaned as
    /// soon as it is found.
    pub(crate) fn clean_next(&mut self) {
        let newest = self.cleaning.newest.and_then(|token| self.partitions.get(token));
        let is_busy = newest.is_some_and(|partition| partition.log.is_cleaning());
        if self.cleaning.is_enabled && !is_busy && self.cleaning.search.is_none() {
            self.cleaning.search = Some(Search::default());
        }
    }

    /// Whether a log is looked for: the next turn goes on.
    pub(super) fn looks_for_dirty(&self) -> bool {
        self.cleaning.search.is_some()
    }

    /// Looks at some logs.
    pub(super) fn look_for_dirty(&mut self, desk: &mut Desk<'_>) {
        let Some(mut search) = self.cleaning.search.take().filter(|_| self.closing.is_empty())
        else {
            return;
        };
        let end = search.next.saturating_add(LOGS_A_TURN).min(self.partitions.places());
        for place in search.next..end {
            let Some((token, _)) = self.partitions.at(place) else { continue };
            if let Some(found) = self.dirty_ratio(desk, token)
                && search.dirtiest.is_none_or(|(ratio, _)| found > ratio)
            {
                search.dirtiest = Some((found, token));
            }
        }
        search.next = end;
        if end < self.partitions.places() {
            self.cleaning.search = Some(search);
        } else if let Some((_, token)) = search.dirtiest {
            self.clean(desk, token);
        }
    }

    /// Which part of a log is dirty, if it is time to clean it. One that moves stays as it is.
    fn dirty_ratio(&mut self, desk: &mut Desk<'_>, token: Token) -> Option<f64> {
        let partition = self.partitions.get(token).filter(|partition| partition.compacts())?;
        if self.by_key.get(&partition.key) != Some(&token) || self.moves.has(token) {
            return None;
        }
        let up_to = self.partition(token).last_stable_offset();
        let mut found = None;
        self.with_log(desk, token, |log, now, effects, _| {
            found = log.cleanable(now, up_to, effects);
        });
        found.map(|found| found.dirty_ratio)
    }

    /// Begins to clean a log, if it still is to be: it was looked at some turns ago.
    fn clean(&mut self, desk: &mut Desk<'_>, token: Token) {
        if self.dirty_ratio(desk, token).is_none() {
            return;
        }
        let partition = self.partition(token);
        let (up_to, high_watermark) = (partition.last_stable_offset(), partition.high_watermark());
        let hash_seed = self.cleaning.random.next_u64();
        let limits = CleaningLimits { hash_seed, ..self.cleaning.limits };
        self.cleaning.newest = Some(token);
        self.with_log(desk, token, |log: &mut Log, now, effects, events| {
            log.clean(now, up_to, high_watermark, limits, effects, events);
        });
        self.touch(token);
    }
}
