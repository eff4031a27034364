//! Which log is cleaned, and when (`LogCleaner`, `LogCleanerManager`): one at a time on each shard,
//! the dirtiest first. The log itself sees to it that a turn stays short.

use base::{Random, Token};
use commitlog::{CleaningLimits, Log};
use config::BrokerConfig;

use super::{Desk, Owner};
use crate::partition::Partition;

/// Memory for the newest offsets that a shard's cleaner has at least, in bytes: Kafka wants as much
/// for each of its threads.
const MAP_BYTES_MIN: usize = 1 << 20;

/// How this shard cleans.
#[derive(Debug)]
pub(super) struct Cleaning {
    is_enabled: bool,
    limits: CleaningLimits,
    /// The partition whose log was cleaned last.
    newest: Option<Token>,
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
            random,
        }
    }
}

impl Owner {
    /// Begins to clean the dirtiest log, unless one is being cleaned.
    pub(crate) fn clean_next(&mut self, desk: &mut Desk<'_>) {
        let newest = self.cleaning.newest.and_then(|token| self.partitions.get(token));
        let is_busy = newest.is_some_and(|partition| partition.log.is_cleaning());
        if !self.cleaning.is_enabled || is_busy || !self.closing.is_empty() {
            return;
        }
        let mut dirtiest: Option<(f64, Token)> = None;
        let compacted =
            |token: &Token| self.partitions.get(*token).is_some_and(Partition::compacts);
        let stays = |token: &Token| !self.moves.has(*token);
        let tokens = self.by_key.values().copied().filter(compacted).filter(stays);
        for token in tokens.collect::<Vec<Token>>() {
            let up_to = self.partition(token).last_stable_offset();
            let mut found = None;
            self.with_log(desk, token, |log, now, effects, _| {
                found = log.cleanable(now, up_to, effects);
            });
            if let Some(found) = found
                && dirtiest.is_none_or(|(ratio, _)| found.dirty_ratio > ratio)
            {
                dirtiest = Some((found.dirty_ratio, token));
            }
        }
        let Some((_, token)) = dirtiest else { return };
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
