//! CreateTopics: one of the topics of the workload that are not known to exist.

use base::Random;
use bytes::Bytes;
use protocol::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use protocol::{CreateTopicsRequest, ErrorCode};

use super::{frame, reply, tolerate, version};
use crate::history::{History, Incarnation, Violation, ensure};

/// One request.
#[derive(Clone, Debug)]
pub struct CreateTopic {
    version: i16,
    topic: usize,
    incarnation: Incarnation,
    request: CreateTopicsRequest,
}

impl CreateTopic {
    /// Draws a topic that does not exist.
    ///
    /// # Panics
    /// If all of them exist.
    pub fn sample(random: &mut Random, history: &History) -> Self {
        let missing: Vec<usize> =
            (0..history.topics.len()).filter(|&topic| !history.topics[topic].exists).collect();
        let topic = missing[random.below(missing.len() as u64) as usize];
        let plan = &history.topics[topic];
        let configs = plan.configs.iter().map(|(name, value)| CreatableTopicConfig {
            name: (*name).into(),
            value: Some(value.as_str().into()),
            ..CreatableTopicConfig::default()
        });
        let creatable = CreatableTopic {
            name: plan.name.as_str().into(),
            num_partitions: plan.partitions.len() as i32,
            replication_factor: 1,
            configs: configs.collect(),
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest {
            topics: vec![creatable],
            timeout_ms: 5_000,
            ..CreateTopicsRequest::default()
        };
        let incarnation = plan.incarnation;
        Self { version: version(random, 2..=7), topic, incarnation, request }
    }

    /// The frame of the request.
    pub fn build(&self, correlation_id: i32) -> Bytes {
        frame(correlation_id, self.version, &self.request)
    }

    /// Judges the reply: the topic exists from now on, or already did.
    pub fn classify(&self, bytes: &Bytes, history: &mut History) -> Result<(), Violation> {
        let response = reply::<CreateTopicsRequest>(bytes, self.version)?;
        let [result] = &response.topics[..] else {
            return Err(Violation(format!("one topic was created, and answered: {response:?}")));
        };
        let topic = &mut history.topics[self.topic];
        ensure(*result.name == *topic.name, || format!("another topic was created: {result:?}"))?;
        match result.error_code {
            // The topic was deleted since, or will be; which may have been this one or an earlier
            // one.
            ErrorCode::NONE | ErrorCode::TOPIC_ALREADY_EXISTS
                if topic.incarnation != self.incarnation || topic.is_doomed =>
            {
                Ok(())
            }
            ErrorCode::NONE => {
                topic.exists = true;
                if self.version >= 7 {
                    topic.id = Some(result.topic_id);
                }
                Ok(())
            }
            ErrorCode::TOPIC_ALREADY_EXISTS => {
                topic.exists = true;
                Ok(())
            }
            code => tolerate(history, "CreateTopics", code),
        }
    }
}
