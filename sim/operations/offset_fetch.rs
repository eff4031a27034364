//! OffsetFetch: what a group has committed.

use base::Random;
use bytes::Bytes;
use protocol::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use protocol::{ErrorCode, OffsetFetchRequest, Str};

use super::{by_topic, frame, reply, tolerate, version};
use crate::commits::Clock;
use crate::history::{History, Life, Place, Violation, ensure};
use crate::lie::Lie;

/// The first version that asks about several groups.
const MANY_VERSION: i16 = 8;

/// One request.
#[derive(Clone, Debug)]
pub struct OffsetFetch {
    group: usize,
    version: i16,
    sent: Clock,
    life: Life,
    places: Vec<Place>,
    request: OffsetFetchRequest,
}

/// Answers by topic.
type Topics = Vec<(Str, Vec<Answer>)>;

/// An answer about one partition.
struct Answer {
    partition: i32,
    offset: i64,
    metadata: Option<Str>,
    code: ErrorCode,
}

impl OffsetFetch {
    /// Asks for the offsets of some partitions.
    pub fn new(random: &mut Random, history: &mut History, group: usize, places: &[Place]) -> Self {
        let version = version(random, 1..=9);
        let group_id = Str::from(history.groups[group].name.as_str());
        let list = by_topic(places.iter().map(|place| (*place, ())).collect()).into_iter();
        let topics = list.map(|(topic, partitions)| {
            let name = Str::from(history.topics[topic].name.as_str());
            let indexes = partitions.into_iter().map(|(partition, ())| partition as i32);
            (name, indexes.collect::<Vec<i32>>())
        });
        let mut request = OffsetFetchRequest::default();
        if version >= MANY_VERSION {
            let topics = topics.map(|(name, partition_indexes)| OffsetFetchRequestTopics {
                name,
                partition_indexes,
                ..Default::default()
            });
            let topics = Some(topics.collect());
            request.groups =
                vec![OffsetFetchRequestGroup { group_id, topics, ..Default::default() }];
        } else {
            let topics = topics.map(|(name, partition_indexes)| OffsetFetchRequestTopic {
                name,
                partition_indexes,
                ..Default::default()
            });
            (request.group_id, request.topics) = (group_id, Some(topics.collect()));
        }
        let sent = history.tick();
        Self { group, version, sent, life: history.life, places: places.to_vec(), request }
    }

    /// The frame of the request.
    pub fn build(&self, correlation_id: i32) -> Bytes {
        frame(correlation_id, self.version, &self.request)
    }

    /// Judges the reply: every partition has what was committed last.
    pub fn classify(&self, bytes: &Bytes, history: &mut History) -> Result<(), Violation> {
        let now = history.tick();
        let (code, topics) = self.answers(bytes)?;
        if code.is_error() {
            return tolerate(history, "OffsetFetch", code);
        }
        let mut open = self.places.clone();
        for (name, answers) in topics {
            let index = history.by_name(&name);
            for answer in answers {
                let place = index.map(|topic| (topic, answer.partition as usize));
                let asked = open.iter().position(|asked| Some(*asked) == place);
                let Some(asked) = asked else {
                    return Err(Violation(format!(
                        "{name}-{} was not asked for",
                        answer.partition
                    )));
                };
                let place = open.swap_remove(asked);
                if answer.code.is_error() {
                    tolerate(history, "OffsetFetch", answer.code)?;
                    continue;
                }
                self.classify_answer(history, place, &answer, now)?;
            }
        }
        ensure(open.is_empty(), || format!("OffsetFetch left {open:?} unanswered"))
    }

    fn classify_answer(
        &self,
        history: &mut History,
        place: Place,
        answer: &Answer,
        now: Clock,
    ) -> Result<(), Violation> {
        let name = format!("{} of {}", history.groups[self.group].name, history.name(place));
        let lie = history.lie;
        let group = &mut history.groups[self.group];
        let commits = group.commits.entry(place).or_default();
        let number = answer.metadata.as_deref().and_then(|text| text.parse().ok());
        let mut found = number.map(|number| (number, answer.offset));
        ensure(found.is_some() == (answer.offset >= 0), || {
            format!("{name}: offset {} has no metadata of ours", answer.offset)
        })?;
        if lie == Some(Lie::CommitGoesBack) {
            found = commits.oldest().or(found);
        }
        commits
            .found(found, self.sent, now, self.life, group.is_synced)
            .map_err(|violation| Violation(format!("{name}: {violation}")))
    }

    fn answers(&self, bytes: &Bytes) -> Result<(ErrorCode, Topics), Violation> {
        let response = reply::<OffsetFetchRequest>(bytes, self.version)?;
        if self.version < MANY_VERSION {
            let topics = response.topics.into_iter().map(|topic| {
                let answers = topic.partitions.into_iter().map(|one| Answer {
                    partition: one.partition_index,
                    offset: one.committed_offset,
                    metadata: one.metadata,
                    code: one.error_code,
                });
                (topic.name, answers.collect())
            });
            return Ok((response.error_code, topics.collect()));
        }
        let Some(group) = response.groups.into_iter().next() else {
            return Err(Violation("OffsetFetch has no answer for its group".to_owned()));
        };
        let topics = group.topics.into_iter().map(|topic| {
            let answers = topic.partitions.into_iter().map(|one| Answer {
                partition: one.partition_index,
                offset: one.committed_offset,
                metadata: one.metadata,
                code: one.error_code,
            });
            (topic.name, answers.collect())
        });
        Ok((group.error_code, topics.collect()))
    }
}
