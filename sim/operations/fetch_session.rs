//! Fetch in a session: after the first request only what changed is said, and only news answered.

use std::collections::BTreeMap;

use base::Random;
use bytes::Bytes;
use protocol::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use protocol::fetch_response::PartitionData;
use protocol::{ErrorCode, FetchRequest, Records};

use super::fetch::{Next, classify_partition};
use super::{Memory, by_topic, frame, reply, sample_partitions, tolerate};
use crate::checkers::watermark::Floor;
use crate::history::{History, Incarnation, Life, Place, Violation, ensure};
use crate::lie::Lie;

/// The last version that names topics by name.
const LAST_BY_NAME: i16 = 12;
/// Bytes that one request may have for each partition.
const PARTITION_BYTES_MAX: i32 = 1 << 20;

/// A session as its client knows it.
#[derive(Clone, Debug)]
pub struct Session {
    id: i32,
    epoch: i32,
    /// The connection that it was made on: another one may belong to another shard, which does not
    /// know it.
    connection: u64,
    version: i16,
    readings: BTreeMap<Place, Reading>,
}

/// Where a session reads a partition.
#[derive(Clone, Copy, Debug)]
struct Reading {
    incarnation: Incarnation,
    offset: i64,
    /// The offset that the broker was told.
    said: i64,
    /// The end of the log that the client was told.
    told: i64,
    /// Whether its place was not in the log: it goes on from where the log is known to begin when
    /// it asks next.
    is_lost: bool,
}

/// One request.
#[derive(Clone, Debug)]
pub struct FetchSession {
    version: i16,
    life: Life,
    connection: u64,
    is_full: bool,
    asked: Vec<(Place, i64, Floor)>,
    request: FetchRequest,
}

impl FetchSession {
    /// Goes on with the session of a client, or begins one; nothing where there is nothing to read.
    pub fn sample(
        random: &mut Random,
        history: &History,
        memory: &mut Memory,
        connection: u64,
    ) -> Option<Self> {
        let is_current = |(place, reading): (&Place, &Reading)| {
            let topic = &history.topics[place.0];
            topic.incarnation == reading.incarnation && topic.exists && !topic.is_doomed
        };
        let old = memory.session.take();
        let old = old.filter(|it| it.readings.iter().all(is_current) && !random.chance(3));
        let mut fetch = match old {
            Some(mut session) => {
                let forgotten = session.readings.keys().next().copied();
                let forgotten = forgotten.filter(|_| session.readings.len() > 1);
                let forgotten = forgotten.filter(|_| random.chance(5));
                if let Some(place) = forgotten {
                    session.readings.remove(&place);
                }
                Self::go_on(history, memory, session, connection, forgotten)
            }
            None => {
                let (places, naming) = sample_partitions(random, history, 6);
                if places.is_empty() {
                    return None;
                }
                let version = naming.version(random, 7..=18, LAST_BY_NAME);
                Self::begin(history, memory, &places, version, connection)
            }
        };
        fetch.request.max_wait_ms = [0, 10, 100, 500][random.below(4) as usize];
        fetch.request.max_bytes = [10_000, 1 << 20][random.below(2) as usize];
        Some(fetch)
    }

    /// The next request of an auditor's session about these partitions.
    pub fn next(history: &History, memory: &mut Memory, places: &[Place], connection: u64) -> Self {
        match memory.session.take() {
            Some(session) => Self::go_on(history, memory, session, connection, None),
            None => Self::begin(history, memory, places, LAST_BY_NAME, connection),
        }
    }

    fn begin(
        history: &History,
        memory: &mut Memory,
        places: &[Place],
        version: i16,
        connection: u64,
    ) -> Self {
        let readings = places.iter().map(|&place| {
            let topic = &history.topics[place.0];
            let offset = topic.partitions[place.1].start;
            let incarnation = topic.incarnation;
            (place, Reading { incarnation, offset, said: -1, told: -1, is_lost: false })
        });
        let readings = readings.collect();
        let session = Session { id: 0, epoch: 0, connection, version, readings };
        Self::go_on(history, memory, session, connection, None)
    }

    fn go_on(
        history: &History,
        memory: &mut Memory,
        mut session: Session,
        connection: u64,
        forgotten: Option<Place>,
    ) -> Self {
        for (&(topic, partition), reading) in &mut session.readings {
            if std::mem::take(&mut reading.is_lost) {
                reading.offset = history.topics[topic].partitions[partition].start;
            }
        }
        let asked = session.readings.iter().map(|(&place, reading)| {
            (place, reading.offset, Floor::of(&history.topics[place.0].partitions[place.1]))
        });
        let asked: Vec<(Place, i64, Floor)> = asked.collect();
        let changed = session.readings.iter_mut().filter(|(_, it)| it.offset != it.said);
        let changed = changed.map(|(&place, reading)| {
            reading.said = reading.offset;
            (place, reading.offset)
        });
        let changed = by_topic(changed.collect()).into_iter();
        let topics = changed.map(|(topic, partitions)| FetchTopic {
            topic: history.topics[topic].name.as_str().into(),
            topic_id: history.topics[topic].id.unwrap_or_default(),
            partitions: partitions
                .into_iter()
                .map(|(partition, fetch_offset)| FetchPartition {
                    partition: partition as i32,
                    fetch_offset,
                    partition_max_bytes: PARTITION_BYTES_MAX,
                    ..FetchPartition::default()
                })
                .collect(),
            ..FetchTopic::default()
        });
        let forgotten = forgotten.map(|(topic, partition)| ForgottenTopic {
            topic: history.topics[topic].name.as_str().into(),
            topic_id: history.topics[topic].id.unwrap_or_default(),
            partitions: vec![partition as i32],
            ..ForgottenTopic::default()
        });
        let request = FetchRequest {
            min_bytes: 1,
            session_id: session.id,
            session_epoch: session.epoch,
            topics: topics.collect(),
            forgotten_topics_data: forgotten.into_iter().collect(),
            ..FetchRequest::default()
        };
        let is_full = session.epoch == 0;
        let (version, life) = (session.version, history.life);
        memory.session = Some(session);
        memory.session_is_asked = true;
        Self { version, life, connection, is_full, asked, request }
    }

    /// The frame of the request.
    pub fn build(&self, correlation_id: i32) -> Bytes {
        frame(correlation_id, self.version, &self.request)
    }

    /// Judges the reply: what is named fits what is known, and what is not named is no news.
    pub fn classify(
        &self,
        bytes: &Bytes,
        history: &mut History,
        memory: &mut Memory,
    ) -> Result<(), Violation> {
        memory.session_is_asked = false;
        let Some(mut session) = memory.session.take() else {
            return Err(Violation("a session was answered that nobody has".to_owned()));
        };
        let mut response = reply::<FetchRequest>(bytes, self.version)?;
        match response.error_code {
            ErrorCode::NONE => {}
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND => {
                return ensure(session.connection != self.connection, || {
                    format!("session {} was made on this connection and is gone", session.id)
                });
            }
            code => return tolerate(history, "Fetch in a session", code),
        }
        history.counts.session_answers += 1;
        if history.lie == Some(Lie::SessionIsSilent) && !self.is_full {
            let partitions = response.responses.iter_mut().flat_map(|one| &mut one.partitions);
            partitions.filter(|data| has_records(data)).for_each(|data| data.partition_index = -1);
        }
        let mut open = self.asked.clone();
        for topic in &response.responses {
            let by_id = self.version > LAST_BY_NAME;
            let index = history.by_name_or_id(by_id, &topic.topic, topic.topic_id);
            for data in topic.partitions.iter().filter(|data| data.partition_index >= 0) {
                let place = index.map(|topic| (topic, data.partition_index as usize));
                let asked = open.iter().position(|(asked, ..)| Some(*asked) == place);
                let Some(asked) = asked else {
                    return Err(Violation(format!("{data:?} is not in the session")));
                };
                let (place, offset, floor) = open.swap_remove(asked);
                let next = classify_partition(
                    self.version,
                    self.life,
                    data,
                    history,
                    place,
                    offset,
                    floor,
                )?;
                let Some(reading) = session.readings.get_mut(&place) else { continue };
                reading.told = if data.error_code.is_error() { -1 } else { data.high_watermark };
                match next {
                    Next::Offset(next) => reading.offset = next,
                    Next::Lost => reading.is_lost = true,
                    Next::Same => {}
                }
            }
        }
        self.check_silence(history, &session, &open)?;
        if response.session_id != 0 {
            session.id = response.session_id;
            session.epoch += 1;
            memory.session = Some(session);
        }
        Ok(())
    }

    /// A partition that is not named has no end that the client has not been told.
    fn check_silence(
        &self,
        history: &mut History,
        session: &Session,
        open: &[(Place, i64, Floor)],
    ) -> Result<(), Violation> {
        ensure(open.is_empty() || !self.is_full, || {
            format!("a full request left {open:?} unanswered")
        })?;
        for (place, _, floor) in open {
            let name = history.name(*place);
            let partition = history.partition(*place);
            if floor.is_of_another_topic(partition) {
                continue;
            }
            let told = session.readings.get(place).map_or(-1, |reading| reading.told);
            let end = floor.end(partition).unwrap_or(0);
            ensure(told >= end, || {
                format!("{name} ends at {end} and the session, told of {told}, keeps quiet")
            })?;
        }
        Ok(())
    }
}

fn has_records(data: &PartitionData) -> bool {
    matches!(&data.records, Some(Records::Bytes(bytes)) if !bytes.is_empty())
}
