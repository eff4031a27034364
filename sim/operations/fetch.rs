//! Fetch: some partitions, each from where the client stands, from the start or from the end.

use std::collections::BTreeMap;

use base::Random;
use bytes::Bytes;
use protocol::fetch_request::{FetchPartition, FetchTopic};
use protocol::fetch_response::PartitionData;
use protocol::{ErrorCode, FetchRequest, Records};

use super::{by_topic, frame, reply, sample_partitions, tolerate};
use crate::checkers::watermark::Floor;
use crate::checkers::{dense, lasting};
use crate::history::{Fate, History, Life, Place, RecordId, Violation, ensure};
use crate::lie::Lie;

/// The first version whose answers say where a log begins.
const LOG_START_FIRST_VERSION: i16 = 5;

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
        let (places, naming) = sample_partitions(random, history, 4);
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
        let version = naming.version(random, 4..=18, 12);
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
            let index = history.by_name_or_id(self.version >= 13, &topic.topic, topic.topic_id);
            for data in &topic.partitions {
                let place = index.map(|topic| (topic, data.partition_index as usize));
                let asked = open.iter().position(|(asked, ..)| Some(*asked) == place);
                let Some(asked) = asked else {
                    return Err(Violation(format!("{data:?} was not asked for")));
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
                match next {
                    Next::Offset(next) => {
                        let position = positions.entry(place).or_insert(next);
                        *position = next.max(*position);
                    }
                    Next::Lost => {
                        positions.remove(&place);
                    }
                    Next::Same => {}
                }
            }
        }
        ensure(open.is_empty(), || format!("Fetch left {open:?} unanswered"))
    }
}

/// Where a reader goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Behind what it got.
    Offset(i64),
    /// Where it was: it was refused.
    Same,
    /// Its place is not in the log.
    Lost,
}

/// Judges what came of one partition, and takes it down.
pub(super) fn classify_partition(
    version: i16,
    life: Life,
    data: &PartitionData,
    history: &mut History,
    place: Place,
    offset: i64,
    floor: Floor,
) -> Result<Next, Violation> {
    let name = history.name(place);
    classify_data(version, life, data, history, place, offset, floor)
        .map_err(|violation| Violation(format!("{name}: {violation}")))
}

fn classify_data(
    version: i16,
    life: Life,
    data: &PartitionData,
    history: &mut History,
    place: Place,
    offset: i64,
    floor: Floor,
) -> Result<Next, Violation> {
    if floor.is_of_another_topic(history.partition(place)) {
        return Ok(Next::Lost);
    }
    match data.error_code {
        ErrorCode::NONE => {}
        ErrorCode::OFFSET_OUT_OF_RANGE => {
            floor.check_out_of_range(history.partition(place), offset)?;
            return Ok(Next::Lost);
        }
        code => return tolerate(history, "Fetch", code).map(|()| Next::Same),
    }
    let records = match &data.records {
        Some(Records::Bytes(bytes)) => bytes.clone(),
        _ => Bytes::new(),
    };
    let is_compacted = history.partition(place).is_compacted;
    let mut found = dense::read(offset, &records, is_compacted)?;
    history.counts.read += found.records.len() as u64;
    if history.collected.is_some() && is_compacted {
        falsify(history, place, offset, &mut found.records);
    }
    if let Some(collected) = &mut history.collected {
        let read = collected.entry(place).or_default();
        read.bytes += dense::whole_bytes(&records);
        read.records.extend(&found.records);
        read.next = found.next;
    }
    let partition = history.partition(place);
    if version >= LOG_START_FIRST_VERSION {
        floor.check_start(partition, data.log_start_offset)?;
    }
    floor.check(partition, data.high_watermark)?;
    let next = found.next;
    ensure(next <= data.high_watermark.max(offset), || {
        format!("records up to {next} were sent, past the high watermark {data:?}")
    })?;
    for &(at, record) in &found.records {
        lasting::observe(partition, life, at, record)?;
    }
    Ok(Next::Offset(next))
}

/// Does to what an audit reads of a compacted log from an offset on what a bad cleaner would.
fn falsify(history: &mut History, place: Place, from: i64, found: &mut Vec<(i64, RecordId)>) {
    match history.lie {
        Some(Lie::NewestIsGone) => {
            // A tombstone may be gone.
            while found.pop().is_some_and(|(_, record)| record.is_tombstone()) {}
        }
        Some(Lie::TombstoneIsGone) => found.retain(|(_, record)| !record.is_tombstone()),
        Some(Lie::OldComesBack) => {
            let partition = history.partition(place);
            let newest =
                |record: RecordId| found.iter().rev().find(|it| it.1.key() == record.key());
            let mut tombstones = found.iter().filter(|it| it.1.is_tombstone());
            let Some(&(deleted, tombstone)) = tombstones.find(|it| newest(it.1) == Some(*it))
            else {
                return;
            };
            let acknowledged = partition.batches.iter().filter_map(|(&batch, sent)| {
                let Fate::Acknowledged { base_offset, .. } = sent.fate else { return None };
                Some((batch, sent.count, base_offset))
            });
            let mut records = acknowledged.flat_map(|(batch, count, base)| {
                let record = move |index| RecordId { batch, index, count };
                (0..count).map(move |index| (base + i64::from(index), record(index)))
            });
            let old = records.find(|(offset, record)| {
                let is_old = (from..deleted).contains(offset) && !record.is_tombstone();
                is_old && record.key() == tombstone.key() && !partition.keeps_tombstones
            });
            if let Some(old) = old {
                found.retain(|(_, record)| record.key() != tombstone.key());
                found.push(old);
                found.sort_unstable();
            }
        }
        _ => {}
    }
}
