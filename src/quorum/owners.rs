//! Which data shard owns a partition, and when it may.
//!
//! The folder of a log is named after its topic. A topic that is made under the name of one that
//! was deleted gets no owners before the folders of the old one are renamed: another shard may
//! own those, and what both do to a folder has no order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{Offset, ShardId, TopicId};
use intercom::Placement;
use metadata::{Image, Topic};

/// The table of owners.
#[derive(Debug)]
pub(crate) struct Owners {
    placement: Placement,
    /// Up to which offset of the metadata log each data shard has renamed what was deleted.
    settled: Vec<Offset>,
    /// Names of deleted topics whose folders may still be there, with the offset of the image
    /// that lacked them first.
    leaving: BTreeMap<Arc<str>, Offset>,
    /// Topics that wait for their name.
    waiting: BTreeSet<TopicId>,
}

impl Owners {
    /// No topics yet, on a node whose data shards are `0..data_shards`.
    pub(crate) fn new(data_shards: u16) -> Self {
        Self {
            placement: Placement::new(data_shards),
            settled: vec![Offset(-1); usize::from(data_shards)],
            leaving: BTreeMap::new(),
            waiting: BTreeSet::new(),
        }
    }

    /// The owners as they are now.
    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The image at `offset` lacks a topic that was there.
    pub(crate) fn topic_removed(&mut self, topic: &Topic, offset: Offset) {
        self.placement.remove(topic.id);
        // One that has never had owners has no folders, and its name is taken still.
        if !self.waiting.remove(&topic.id) {
            self.leaving.insert(Arc::clone(&topic.name), offset);
        }
    }

    /// The image has a topic of which this node has replicas.
    pub(crate) fn topic_is_here(&mut self, topic: &Topic) {
        if self.leaving.contains_key(&topic.name) {
            self.waiting.insert(topic.id);
        } else {
            self.placement.place(topic.id, topic.partitions.len());
        }
    }

    /// A data shard has renamed everything that was deleted up to `offset`. True if topics of
    /// `image` have got owners by that.
    pub(crate) fn settled(&mut self, shard: ShardId, offset: Offset, image: &Image) -> bool {
        self.settled[usize::from(shard.0)] = offset;
        let all = self.settled.iter().min().copied().unwrap_or(Offset(-1));
        self.leaving.retain(|_, removed| *removed > all);
        let waiting = std::mem::take(&mut self.waiting);
        let before = waiting.len();
        for id in waiting {
            if let Some(topic) = image.topic(id) {
                self.topic_is_here(topic);
            }
        }
        self.waiting.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{PartitionIndex, Uuid};
    use intercom::PartitionKey;
    use protocol::{PartitionRecord, RemoveTopicRecord, TopicRecord};

    fn id(number: u8) -> TopicId {
        Uuid([number; 16])
    }

    fn made(image: &mut Image, number: u8) -> Arc<Topic> {
        let topic_id = id(number);
        let record = TopicRecord { name: "orders".into(), topic_id, ..Default::default() };
        image.replay(&record.into()).expect("fits");
        let record = PartitionRecord { topic_id, replicas: vec![1], ..Default::default() };
        image.replay(&record.into()).expect("fits");
        Arc::clone(image.topic(topic_id).expect("just made"))
    }

    fn removed(image: &mut Image, number: u8) {
        let record = RemoveTopicRecord { topic_id: id(number), ..Default::default() };
        image.replay(&record.into()).expect("fits");
    }

    #[test]
    fn a_name_is_free_when_every_shard_has_renamed_its_folders() {
        let (mut image, mut owners) = (Image::default(), Owners::new(2));
        let owner = |owners: &Owners, number| {
            let key = PartitionKey { topic: id(number), partition: PartitionIndex(0) };
            owners.placement().owner(key)
        };
        let first = made(&mut image, 1);
        owners.topic_is_here(&first);
        assert_eq!(owner(&owners, 1), Some(ShardId(0)));
        removed(&mut image, 1);
        owners.topic_removed(&first, Offset(10));
        let second = made(&mut image, 2);
        owners.topic_is_here(&second);
        assert_eq!(owner(&owners, 2), None);
        assert!(!owners.settled(ShardId(0), Offset(10), &image));
        assert!(!owners.settled(ShardId(1), Offset(9), &image));
        assert_eq!(owner(&owners, 2), None);
        assert!(owners.settled(ShardId(1), Offset(10), &image));
        assert_eq!(owner(&owners, 2), Some(ShardId(0)));
    }

    #[test]
    fn a_topic_that_never_had_owners_keeps_nobody_waiting_for_its_own_folders() {
        let (mut image, mut owners) = (Image::default(), Owners::new(1));
        let first = made(&mut image, 1);
        owners.topic_is_here(&first);
        removed(&mut image, 1);
        owners.topic_removed(&first, Offset(10));
        let second = made(&mut image, 2);
        owners.topic_is_here(&second);
        removed(&mut image, 2);
        owners.topic_removed(&second, Offset(12));
        let third = made(&mut image, 3);
        owners.topic_is_here(&third);
        assert!(owners.settled(ShardId(0), Offset(10), &image), "12 is about no folder");
    }
}
