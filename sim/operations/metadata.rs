//! Metadata: all topics, or those that exist.

use base::Random;
use bytes::Bytes;
use protocol::metadata_request::MetadataRequestTopic;
use protocol::metadata_response::MetadataResponseTopic;
use protocol::{ErrorCode, MetadataRequest};

use super::{frame, reply, tolerate, version};
use crate::history::{History, Violation, ensure};
use crate::lie::Lie;

/// The first version whose answers have the ids of topics.
const ID_FIRST_VERSION: i16 = 10;

/// One request.
#[derive(Clone, Debug)]
pub struct Metadata {
    version: i16,
    /// The topics that must be in the answer.
    expected: Vec<usize>,
    request: MetadataRequest,
}

impl Metadata {
    /// Draws one.
    pub fn sample(random: &mut Random, history: &History) -> Self {
        Self::new(history, version(random, 0..=13), random.chance(50))
    }

    /// Asks for all topics, or by name for those that exist.
    pub fn new(history: &History, version: i16, all: bool) -> Self {
        let expected = history.existing();
        // Below version 4 a name that is asked for would be created.
        let all = all || version < 4 || expected.is_empty();
        let named = expected.iter().map(|&topic| MetadataRequestTopic {
            name: Some(history.topics[topic].name.as_str().into()),
            ..MetadataRequestTopic::default()
        });
        let topics = match (all, version) {
            (true, 0) => Some(Vec::new()),
            (true, _) => None,
            (false, _) => Some(named.collect()),
        };
        let request = MetadataRequest {
            topics,
            allow_auto_topic_creation: version < 4,
            ..MetadataRequest::default()
        };
        Self { version, expected, request }
    }

    /// The frame of the request.
    pub fn build(&self, correlation_id: i32) -> Bytes {
        frame(correlation_id, self.version, &self.request)
    }

    /// Judges the reply: a topic that existed is there, under its id, with all its partitions.
    pub fn classify(&self, bytes: &Bytes, history: &mut History) -> Result<(), Violation> {
        let response = reply::<MetadataRequest>(bytes, self.version)?;
        let mut open = self.expected.clone();
        for topic in &response.topics {
            let name = topic.name.as_deref().unwrap_or_default();
            let Some(index) = history.by_name(name) else {
                ensure(name.starts_with("__"), || format!("nobody created the topic '{name}'"))?;
                continue;
            };
            open.retain(|&expected| expected != index);
            if topic.error_code == ErrorCode::NONE {
                self.classify_topic(history, index, topic)?;
            } else {
                tolerate(history, "Metadata", topic.error_code)?;
            }
        }
        // The shard that answers may not have seen the newest image yet.
        ensure(open.is_empty() || !history.is_calm, || {
            format!("the topics {open:?} exist and are missing in {response:?}")
        })
    }

    fn classify_topic(
        &self,
        history: &mut History,
        index: usize,
        answer: &MetadataResponseTopic,
    ) -> Result<(), Violation> {
        let topic = &history.topics[index];
        let is_another = topic.id.is_some_and(|id| id != answer.topic_id);
        let was_deleted = topic.past_ids.contains(&answer.topic_id);
        if self.version >= ID_FIRST_VERSION && topic.is_doomed && is_another && !was_deleted {
            // It is gone, though the word of it was lost, and what was still on its way made it
            // anew.
            history.topic_is_gone(index);
        }
        let topic = &mut history.topics[index];
        if self.version >= ID_FIRST_VERSION {
            let mut answered = answer.topic_id;
            if history.lie == Some(Lie::TopicComesBack) && history.is_calm {
                answered = topic.past_ids.last().copied().unwrap_or(answered);
            }
            if topic.past_ids.contains(&answered) {
                // The shard that answers may not have seen the newest image yet.
                return ensure(!history.is_calm, || format!("it was deleted: {answer:?}"));
            }
            let id = *topic.id.get_or_insert(answered);
            ensure(id == answered, || format!("the id {id} changed: {answer:?}"))?;
        } else if topic.incarnation > 0 {
            // Nobody knows which topic of this name is meant.
            return Ok(());
        }
        topic.exists = true;
        let mut indexes: Vec<i32> =
            answer.partitions.iter().map(|partition| partition.partition_index).collect();
        indexes.sort_unstable();
        ensure(indexes.into_iter().eq(0..topic.partitions.len() as i32), || {
            format!("a topic of {} partitions has {answer:?}", topic.partitions.len())
        })?;
        for partition in &answer.partitions {
            if partition.error_code != ErrorCode::NONE {
                tolerate(history, "a partition in Metadata", partition.error_code)?;
            }
        }
        Ok(())
    }
}
