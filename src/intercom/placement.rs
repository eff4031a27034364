//! Which shard of this node owns a partition.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{PartitionIndex, ShardId, TopicId};

/// A partition by the id of its topic: what the image, the shards and the newer requests use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey {
    /// The topic.
    pub topic: TopicId,
    /// Which of its partitions.
    pub partition: PartitionIndex,
}

/// The table of the node: every partition that has a replica here, with the shard that owns it.
///
/// One writer (the quorum shard) changes it and publishes it with the image; the data shards only
/// read. It is not kept on disk: a restart may place partitions anew, since a log belongs to a
/// directory and not to a core.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    topics: Arc<BTreeMap<TopicId, Arc<[ShardId]>>>,
    partitions_per_shard: Vec<u32>,
}

impl Placement {
    /// An empty table for a node whose data shards are `0..data_shards`.
    ///
    /// # Panics
    /// If there is no data shard.
    pub fn new(data_shards: u16) -> Self {
        assert!(data_shards > 0, "a placement needs a data shard");
        let partitions_per_shard = vec![0; usize::from(data_shards)];
        Self { topics: Arc::default(), partitions_per_shard }
    }

    /// The shard that owns the partition, if the table has it.
    pub fn owner(&self, key: PartitionKey) -> Option<ShardId> {
        let shards = self.topics.get(&key.topic)?;
        shards.get(usize::try_from(key.partition.0).ok()?).copied()
    }

    /// Sees to it that partitions `0..partitions` of `topic` have an owner. Those that have one
    /// keep it; the others go, one by one, to the shard that owns the fewest.
    pub fn place(&mut self, topic: TopicId, partitions: usize) {
        let known = self.topics.get(&topic).map_or(0, |shards| shards.len());
        if known >= partitions {
            return;
        }
        let mut shards = self.topics.get(&topic).map_or_else(Vec::new, |shards| shards.to_vec());
        while shards.len() < partitions {
            let least = self.least_loaded();
            self.partitions_per_shard[least] += 1;
            shards.push(ShardId(u16::try_from(least).expect("shards are counted by a u16")));
        }
        Arc::make_mut(&mut self.topics).insert(topic, shards.into());
    }

    /// Forgets a topic that was deleted.
    pub fn remove(&mut self, topic: TopicId) {
        let Some(shards) = Arc::make_mut(&mut self.topics).remove(&topic) else { return };
        for shard in shards.iter() {
            self.partitions_per_shard[usize::from(shard.0)] -= 1;
        }
    }

    fn least_loaded(&self) -> usize {
        let counts = self.partitions_per_shard.iter().enumerate();
        counts.min_by_key(|(_, count)| **count).map_or(0, |(shard, _)| shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Uuid;

    #[test]
    fn partitions_spread_evenly_and_stay_where_they_are() {
        let (mut placement, topic) = (Placement::new(2), Uuid([7; 16]));
        let owner = |placement: &Placement, partition| {
            placement.owner(PartitionKey { topic, partition: PartitionIndex(partition) })
        };
        placement.place(topic, 3);
        let before: Vec<_> = (0..3).map(|index| owner(&placement, index)).collect();
        assert_eq!(before, [Some(ShardId(0)), Some(ShardId(1)), Some(ShardId(0))]);
        let published = placement.clone();
        placement.place(topic, 4);
        assert_eq!(owner(&placement, 3), Some(ShardId(1)));
        assert_eq!(owner(&published, 3), None);
        assert_eq!(owner(&placement, 2), before[2]);
        placement.remove(topic);
        assert_eq!(owner(&placement, 0), None);
        assert_eq!(owner(&placement, -1), None);
    }
}
