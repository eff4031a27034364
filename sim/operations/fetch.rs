//! Fetch: some partitions, each from where the client stands, from the start or from the end.

use std::collections::BTreeMap;

use base::Random;
use bytes::Bytes;
use protocol::fetch_request::{FetchPartition, FetchTopic};
use protocol::fetch_response::PartitionData;
use protocol::{ErrorCode, FetchRequest, Records};

use super::{by_topic, frame, reply, sample_partitions, tolerate, version};
use crate::checkers::watermark::Floor;
use crate::checkers::{dense, lasting};
use crate::history::{History, Life, Place, Violation, ensure};

/// The next offset that a client reads, for each partition that it reads.
pub type Positions = BTreeMap<Place, i64>;

/// One request, outside of a session.
#[derive(Clone, Debug)]
pub struct Fetch {
    version: i16,
    life: Life,
    partitions: Vec<(Place, i64, Floor)>,
    request: FetchRequest,
}

impl Fetch {
    /// Draws partitions and positions.
    pub fn sample(random: &mut Random, history: &History, positions: &Positions) -> Self {
        let places = sample_partitions(random, history, 4);
        let from = places.into_iter().map(|place| {
            let partition = &history.topics[place.0].partitions[place.1];
            let offset = match random.below(10) {
                0 => partition.start,
                1 => partition.end_shown,
                _ => positions.get(&place).copied().unwrap_or(partition.start),
            };
            (place, offset)
        });
        let from: Vec<(Place, i64)> = from.collect();
        let ids_known = from.iter().all(|(place, _)| history.topics[place.0].id.is_some());
        let version = version(random, if ids_known { 4..=18 } else { 4..=12 });
        let wait_ms = [0, 10, 100, 500][random.below(4) as usize];
        let bytes_min = [0, 1, 1, 5_000][random.below(4) as usize];
        let bytes_max = [1, 3_000, 1 << 20][random.below(3) as usize];
        let mut fetch = Self::new(history, &from, version, wait_ms, bytes_max);
        fetch.request.min_bytes = bytes_min;
        fetch.request.max_bytes = [1, 10_000, 1 << 20][random.below(3) as usize];
        fetch
    }

    /// A request of this version from these positions, waiting so long for a first byte.
    pub fn new(
        history: &History,
        from: &[(Place, i64)],
        version: i16,
        wait_ms: i32,
        bytes_max: i32,
    ) -> Self {
        let partitions = from.iter().map(|&(place, offset)| {
            let partition = &history.topics[place.0].partitions[place.1];
            (place, offset, Floor::of(partition))
        });
        let topics = by_topic(from.to_vec()).into_iter().map(|(topic, partitions)| FetchTopic {
            topic: history.topics[topic].name.as_str().into(),
            topic_id: history.topics[topic].id.unwrap_or_default(),
            partitions: partitions
                .into_iter()
                .map(|(partition, fetch_offset)| FetchPartition {
                    partition: partition as i32,
                    fetch_offset,
                    partition_max_bytes: bytes_max,
                    ..FetchPartition::default()
                })
                .collect(),
            ..FetchTopic::default()
        });
        let request = FetchRequest {
            max_wait_ms: wait_ms,
            min_bytes: 1,
            topics: topics.collect(),
            ..FetchRequest::default()
        };
        Self { version, life: history.life, partitions: partitions.collect(), request }
    }

    /// The frame of the request.
    pub fn build(&self, correlation_id: i32) -> Bytes {
        frame(correlation_id, self.version, &self.request)
    }

    /// Judges the reply: each partition is answered once, with records that fit what is known.
    pub fn classify(
        &self,
        bytes: &Bytes,
        history: &mut History,
        positions: &mut Positions,
    ) -> Result<(), Violation> {
        let response = reply::<FetchRequest>(bytes, self.version)?;
        if response.error_code != ErrorCode::NONE {
            return tolerate(history, "Fetch", response.error_code);
        }
        let mut open = self.partitions.clone();
        for topic in &response.responses {
            let index = if self.version >= 13 {
                history.by_id(topic.topic_id)
            } else {
                history.by_name(&topic.topic)
            };
            for data in &topic.partitions {
                let place = index.map(|topic| (topic, data.partition_index as usize));
                let asked = open.iter().position(|(asked, ..)| Some(*asked) == place);
                let Some(asked) = asked else {
                    return Err(Violation(format!("{data:?} was not asked for")));
                };
                let (place, offset, floor) = open.swap_remove(asked);
                let name = history.name(place);
                self.classify_partition(data, history, positions, place, offset, floor)
                    .map_err(|violation| Violation(format!("{name}: {violation}")))?;
            }
        }
        ensure(open.is_empty(), || format!("Fetch left {open:?} unanswered"))
    }

    fn classify_partition(
        &self,
        data: &PartitionData,
        history: &mut History,
        positions: &mut Positions,
        place: Place,
        offset: i64,
        floor: Floor,
    ) -> Result<(), Violation> {
        match data.error_code {
            ErrorCode::NONE => {}
            ErrorCode::OFFSET_OUT_OF_RANGE => {
                positions.remove(&place);
                return floor.check_out_of_range(history.partition(place), offset);
            }
            code => return tolerate(history, "Fetch", code),
        }
        let records = match &data.records {
            Some(Records::Bytes(bytes)) => bytes.clone(),
            _ => Bytes::new(),
        };
        let found = dense::read(offset, &records)?;
        history.counts.read += found.len() as u64;
        if let Some(collected) = &mut history.collected {
            collected.extend(&found);
        }
        let partition = history.partition(place);
        floor.check(partition, data.high_watermark)?;
        let next = found.last().map_or(offset, |(last, _)| last + 1);
        ensure(next <= data.high_watermark.max(offset), || {
            format!("records up to {next} were sent, past the high watermark {data:?}")
        })?;
        for &(at, record) in &found {
            lasting::observe(partition, self.life, at, record)?;
        }
        let position = positions.entry(place).or_insert(next);
        *position = next.max(*position);
        Ok(())
    }
}
