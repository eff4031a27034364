//! DeleteTopics: one of the topics that may be deleted, by its id.

use base::{Random, TopicId};
use bytes::Bytes;
use protocol::delete_topics_request::DeleteTopicState;
use protocol::{DeleteTopicsRequest, ErrorCode};

use super::{frame, reply, tolerate};
use crate::history::{History, Incarnation, Violation, ensure};

/// The first version that names topics by id. A repeated request must not hit the next topic of
/// the same name.
const VERSION: i16 = 6;

/// One request.
#[derive(Clone, Debug)]
pub struct DeleteTopic {
    topic: usize,
    incarnation: Incarnation,
    request: DeleteTopicsRequest,
}

impl DeleteTopic {
    /// Draws a topic whose id is known, if there is one that may be deleted. Nothing else is done
    /// with it from here on.
    pub fn sample(random: &mut Random, history: &mut History) -> Option<Self> {
        let topics = history.topics.iter().enumerate();
        let candidates = topics.filter(|(_, topic)| topic.exists && topic.may_be_deleted);
        let candidates = candidates.filter_map(|(topic, plan)| Some((topic, plan.id?)));
        let candidates: Vec<(usize, TopicId)> = candidates.collect();
        if candidates.is_empty() {
            return None;
        }
        let (topic, id) = candidates[random.below(candidates.len() as u64) as usize];
        Some(Self::new(history, topic, id))
    }

    /// Asks for the end of a topic.
    pub fn new(history: &mut History, topic: usize, topic_id: TopicId) -> Self {
        history.topics[topic].is_doomed = true;
        for partition in &mut history.topics[topic].partitions {
            partition.is_doomed = true;
        }
        let state = DeleteTopicState { topic_id, name: None, ..DeleteTopicState::default() };
        let request = DeleteTopicsRequest {
            topics: vec![state],
            timeout_ms: 5_000,
            ..DeleteTopicsRequest::default()
        };
        Self { topic, incarnation: history.topics[topic].incarnation, request }
    }

    /// The frame of the request.
    pub fn build(&self, correlation_id: i32) -> Bytes {
        frame(correlation_id, VERSION, &self.request)
    }

    /// Judges the reply: the topic is gone, or was gone already.
    pub fn classify(&self, bytes: &Bytes, history: &mut History) -> Result<(), Violation> {
        let response = reply::<DeleteTopicsRequest>(bytes, VERSION)?;
        let [result] = &response.responses[..] else {
            return Err(Violation(format!("one topic was deleted, and answered: {response:?}")));
        };
        ensure(result.topic_id == self.request.topics[0].topic_id, || {
            format!("another topic was deleted: {result:?}")
        })?;
        match result.error_code {
            ErrorCode::NONE | ErrorCode::UNKNOWN_TOPIC_ID => {
                if history.topics[self.topic].incarnation == self.incarnation {
                    history.topic_is_gone(self.topic);
                }
                Ok(())
            }
            code => tolerate(history, "DeleteTopics", code),
        }
    }
}
