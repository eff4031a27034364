//! DeleteRecords: the start of some logs moves up.

use base::Random;
use bytes::Bytes;
use protocol::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use protocol::{DeleteRecordsRequest, ErrorCode};

use super::{by_topic, frame, reply, sample_places, tolerate, version};
use crate::checkers::watermark::Floor;
use crate::history::{History, Place, TopicHistory, Violation, ensure};

/// One request.
#[derive(Clone, Debug)]
pub struct DeleteRecords {
    version: i16,
    partitions: Vec<(Place, i64, Floor)>,
    request: DeleteRecordsRequest,
}

impl DeleteRecords {
    /// Draws partitions and offsets of records that were shown; they are taken down as doomed.
    pub fn sample(random: &mut Random, history: &mut History) -> Self {
        // The request can only name topics by name.
        let fits = |topic: &TopicHistory| topic.incarnation == 0 && topic.is_cut;
        let places = sample_places(random, history, 2, fits).into_iter();
        let partitions = places.map(|place| {
            let partition = history.partition(place);
            let from = partition.start.min(partition.end_shown);
            let room = (partition.end_shown - from) as u64;
            (place, from + random.below(room + 1) as i64)
        });
        let partitions = partitions.collect();
        let version = version(random, 0..=2);
        Self::new(history, version, partitions)
    }

    /// Deletes what lies before these offsets; it is taken down as doomed.
    pub fn new(history: &mut History, version: i16, places: Vec<(Place, i64)>) -> Self {
        let partitions = places.iter().map(|&(place, before)| {
            let partition = history.partition(place);
            partition.start_max = partition.start_max.max(before);
            partition.retention_bytes = None;
            (place, before, Floor::of(partition))
        });
        let partitions: Vec<(Place, i64, Floor)> = partitions.collect();
        let topics = by_topic(places).into_iter().map(|(topic, partitions)| DeleteRecordsTopic {
            name: history.topics[topic].name.as_str().into(),
            partitions: partitions
                .into_iter()
                .map(|(partition, offset)| DeleteRecordsPartition {
                    partition_index: partition as i32,
                    offset,
                    ..DeleteRecordsPartition::default()
                })
                .collect(),
            ..DeleteRecordsTopic::default()
        });
        let request = DeleteRecordsRequest {
            topics: topics.collect(),
            timeout_ms: 5_000,
            ..DeleteRecordsRequest::default()
        };
        Self { version, partitions, request }
    }

    /// The frame of the request.
    pub fn build(&self, correlation_id: i32) -> Bytes {
        frame(correlation_id, self.version, &self.request)
    }

    /// Judges the reply: the log begins no earlier than was asked for.
    pub fn classify(&self, bytes: &Bytes, history: &mut History) -> Result<(), Violation> {
        let response = reply::<DeleteRecordsRequest>(bytes, self.version)?;
        let mut open = self.partitions.clone();
        for topic in &response.topics {
            let index = history.by_name(&topic.name);
            for partition in &topic.partitions {
                let place = index.map(|topic| (topic, partition.partition_index as usize));
                let asked = open.iter().position(|(asked, ..)| Some(*asked) == place);
                let Some(asked) = asked else {
                    return Err(Violation(format!("{partition:?} was not asked for")));
                };
                let (place, before, floor) = open.swap_remove(asked);
                let low_watermark = partition.low_watermark;
                let name = history.name(place);
                let known = history.partition(place);
                let end = floor.end(known).filter(|_| !floor.is_of_another_topic(known));
                match partition.error_code {
                    ErrorCode::NONE => {}
                    // The end may have been lost with the power, or with the topic, since it was
                    // shown.
                    ErrorCode::OFFSET_OUT_OF_RANGE if end.is_none_or(|end| end < before) => {
                        continue;
                    }
                    code => {
                        tolerate(history, "DeleteRecords", code)?;
                        continue;
                    }
                }
                let known = history.partition(place);
                if floor.is_of_another_topic(known) {
                    continue;
                }
                ensure(low_watermark >= before, || {
                    format!("{name} was cut to {before} and begins at {low_watermark}")
                })?;
                let moved = floor
                    .check_start(known, low_watermark)
                    .map_err(|violation| Violation(format!("{name}: {violation}")))?;
                history.counts.starts_moved += u64::from(moved);
            }
        }
        ensure(open.is_empty(), || format!("DeleteRecords left {open:?} unanswered"))
    }
}
