//! OffsetFetch, for one group.

use base::Uuid;
use metadata::Image;
use protocol::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use protocol::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use protocol::{ErrorCode, Str};

use crate::call::no_offset;
use crate::commit::VERSION_TOPIC_IDS;
use crate::machine::{Groups, own};
use crate::offsets::Committed;

impl Groups {
    /// The offsets that a group committed. What has none has the offset −1 and no error, also when
    /// there is no such group.
    pub(crate) fn fetch(
        &self,
        image: &Image,
        version: i16,
        request: &OffsetFetchRequestGroup,
        require_stable: bool,
    ) -> OffsetFetchResponseGroup {
        let group = &request.group_id;
        let topics = match &request.topics {
            Some(topics) => topics
                .iter()
                .map(|topic| self.fetch_topic(image, version, group, topic, require_stable))
                .collect(),
            None => self.fetch_all(image, version, group, require_stable),
        };
        OffsetFetchResponseGroup { group_id: group.clone(), topics, ..Default::default() }
    }

    fn fetch_topic(
        &self,
        image: &Image,
        version: i16,
        group: &Str,
        asked: &OffsetFetchRequestTopics,
        require_stable: bool,
    ) -> OffsetFetchResponseTopics {
        let by_id = version >= VERSION_TOPIC_IDS;
        let name = match by_id {
            true => image.topic_name(asked.topic_id).map(|name| Str::from(&**name)),
            false => Some(own(&asked.name)),
        };
        let topic_id = if by_id { asked.topic_id } else { Uuid::ZERO };
        let partition = |index: &i32| match &name {
            None => no_offset(*index, ErrorCode::UNKNOWN_TOPIC_ID),
            Some(name) => self.fetch_one(group, &(name.clone(), *index), topic_id, require_stable),
        };
        OffsetFetchResponseTopics {
            name: asked.name.clone(),
            topic_id: asked.topic_id,
            partitions: asked.partition_indexes.iter().map(partition).collect(),
            ..Default::default()
        }
    }

    fn fetch_one(
        &self,
        group: &str,
        place: &(Str, i32),
        topic_id: Uuid,
        require_stable: bool,
    ) -> OffsetFetchResponsePartitions {
        if require_stable && self.offsets.is_unstable(group, place) {
            return no_offset(place.1, ErrorCode::UNSTABLE_OFFSET_COMMIT);
        }
        let committed = self.offsets.of(group).and_then(|offsets| offsets.get(place));
        match committed.filter(|committed| !committed.is_of_other_topic(topic_id)) {
            Some(committed) => answer(place.1, committed),
            None => no_offset(place.1, ErrorCode::NONE),
        }
    }

    /// Every offset of the group. A topic that is gone has no id to be named by.
    fn fetch_all(
        &self,
        image: &Image,
        version: i16,
        group: &str,
        require_stable: bool,
    ) -> Vec<OffsetFetchResponseTopics> {
        let mut topics: Vec<OffsetFetchResponseTopics> = Vec::new();
        for place in self.offsets.of(group).into_iter().flat_map(|offsets| offsets.keys()) {
            let topic_id = image.topic_id(&place.0).unwrap_or(Uuid::ZERO);
            if version >= VERSION_TOPIC_IDS && topic_id.is_zero() {
                continue;
            }
            let partition = self.fetch_one(group, place, Uuid::ZERO, require_stable);
            match topics.last_mut() {
                Some(topic) if topic.name == place.0 => topic.partitions.push(partition),
                _ => topics.push(OffsetFetchResponseTopics {
                    name: place.0.clone(),
                    topic_id,
                    partitions: vec![partition],
                    ..Default::default()
                }),
            }
        }
        topics
    }
}

fn answer(partition: i32, committed: &Committed) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        partition_index: partition,
        committed_offset: committed.offset,
        committed_leader_epoch: committed.leader_epoch,
        metadata: Some(committed.metadata.clone()),
        ..Default::default()
    }
}
