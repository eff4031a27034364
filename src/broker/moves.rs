//! Replicas that are wanted in other log directories: which shard moves them, and which remember
//! those that are not made yet.

use std::sync::Arc;

use base::{TopicPartition, Uuid};
use commitlog::Checkpoints;
use config::Pairs;
use intercom::{PartitionKey, Reply, WantedDirectory};
use metadata::Partition;

use crate::owner::Asker;
use crate::shard::{Io, Shard};

/// How many bytes a second may be copied between directories.
const BYTES_PER_SECOND: &str = "replica.alter.log.dirs.io.max.bytes.per.second";

impl Shard {
    /// Moves those replicas that this shard owns, and remembers where others are wanted.
    pub(crate) fn move_replicas(
        &mut self,
        io: &mut Io<'_>,
        asker: Asker,
        all: &Arc<[WantedDirectory]>,
    ) {
        let directories = 0..self.setup.log_directories.len();
        let may_begin = !directories.clone().any(|index| self.is_offline(index));
        let mut outcomes = Vec::new();
        for (index, wanted) in all.iter().enumerate() {
            let WantedDirectory { partition, owned, directory } = wanted;
            let Some((key, owner)) = *owned else {
                self.wanted.add(partition, *directory);
                continue;
            };
            if owner != self.setup.shard {
                continue;
            }
            if !self.owner.has(key) {
                self.wanted.add(partition, *directory);
            }
            let code = self
                .with_owner(io, |owner, desk| owner.move_replica(desk, key, *directory, may_begin));
            outcomes.push((index, code));
        }
        self.mail.reply(io.effects, asker.shard, asker.id, Reply::MoveReplicas(outcomes));
    }

    /// Goes on with the move of a partition whose copy was found, now that its log is opened.
    pub(crate) fn resume_move(
        &mut self,
        io: &mut Io<'_>,
        key: PartitionKey,
        name: &TopicPartition,
        partition: &Partition,
    ) {
        let Some(found) = self.life.found().cloned() else { return };
        for (index, directory) in found.iter().enumerate() {
            let Some(future) = directory.futures.iter().find(|it| it.partition == *name) else {
                continue;
            };
            if directory.offline.is_some() {
                continue;
            }
            let checkpoints = Checkpoints {
                clean_shutdown: directory.clean_shutdown.is_some(),
                recovery_point: future.log.recovery_point,
                log_start_offset: future.log.log_start_offset,
                first_dirty: future.log.first_dirty,
            };
            let id = self.setup.log_directories[index].id;
            let is_assigned = partition.directory_of(self.setup.node) == Some(id);
            let index = u16::try_from(index).expect("directories are few");
            let found = (future.folder.as_str(), checkpoints);
            self.with_owner(io, |owner, desk| {
                owner.resume_move(desk, key, index, found, is_assigned);
            });
            return;
        }
    }

    /// The controller knows that these partitions are in these directories.
    pub(crate) fn directories_assigned(
        &mut self,
        io: &mut Io<'_>,
        assigned: Vec<(PartitionKey, Uuid)>,
    ) {
        for (key, directory) in assigned {
            self.with_owner(io, |owner, desk| owner.assigned(desk, key, directory));
        }
    }

    /// How fast logs may be copied from now on, of what was altered for all brokers and for this
    /// one.
    pub(crate) fn limit_moves(&mut self, cluster: &Pairs, own: &Pairs) {
        let value = own.get(BYTES_PER_SECOND).or_else(|| cluster.get(BYTES_PER_SECOND));
        let bytes = value.and_then(|value| value.parse::<u64>().ok());
        let bytes = bytes.filter(|bytes| *bytes < i64::MAX as u64);
        let part = bytes.map(|bytes| (bytes / u64::from(self.setup.data_shards)).max(1));
        self.owner.limit_moves(part);
    }
}
