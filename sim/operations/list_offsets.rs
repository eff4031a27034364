//! ListOffsets: the start and the end of some logs.

use base::Random;
use bytes::Bytes;
use protocol::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::list_offsets_response::ListOffsetsPartitionResponse;
use protocol::{ErrorCode, ListOffsetsRequest};

use super::{by_topic, frame, reply, sample_places, tolerate, version};
use crate::checkers::watermark::Floor;
use crate::history::{History, Place, Violation, ensure};
use crate::lie::Lie;

/// Which offset is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Latest = -1,
    Earliest = -2,
}

/// One request.
#[derive(Clone, Debug)]
pub struct ListOffsets {
    version: i16,
    which: Which,
    partitions: Vec<(Place, Floor)>,
    request: ListOffsetsRequest,
}

impl ListOffsets {
    /// Draws partitions.
    pub fn sample(random: &mut Random, history: &History) -> Self {
        let places = sample_places(random, history, 3, |topic| topic.incarnation == 0);
        let which = if random.chance(70) { Which::Latest } else { Which::Earliest };
        Self::new(history, places, version(random, 1..=10), which)
    }

    /// Asks where the log of a partition begins.
    pub fn start_of(history: &History, place: Place) -> Self {
        Self::new(history, vec![place], 5, Which::Earliest)
    }

    fn new(history: &History, places: Vec<Place>, version: i16, which: Which) -> Self {
        let partitions: Vec<(Place, Floor)> = places
            .iter()
            .map(|&place| (place, Floor::of(&history.topics[place.0].partitions[place.1])))
            .collect();
        let list = by_topic(places.into_iter().map(|place| (place, ())).collect());
        let topics = list.into_iter().map(|(topic, partitions)| ListOffsetsTopic {
            name: history.topics[topic].name.as_str().into(),
            partitions: partitions
                .into_iter()
                .map(|(partition, ())| ListOffsetsPartition {
                    partition_index: partition as i32,
                    timestamp: which as i64,
                    ..ListOffsetsPartition::default()
                })
                .collect(),
            ..ListOffsetsTopic::default()
        });
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: topics.collect(),
            ..ListOffsetsRequest::default()
        };
        Self { version, which, partitions, request }
    }

    /// The frame of the request.
    pub fn build(&self, correlation_id: i32) -> Bytes {
        frame(correlation_id, self.version, &self.request)
    }

    /// Judges the reply: no log has lost its start, or an end that was shown.
    pub fn classify(&self, bytes: &Bytes, history: &mut History) -> Result<(), Violation> {
        let response = reply::<ListOffsetsRequest>(bytes, self.version)?;
        let mut open = self.partitions.clone();
        for topic in &response.topics {
            let index = history.by_name(&topic.name);
            for partition in &topic.partitions {
                let place = index.map(|topic| (topic, partition.partition_index as usize));
                let asked = open.iter().position(|(asked, _)| Some(*asked) == place);
                let Some(asked) = asked else {
                    return Err(Violation(format!("{partition:?} was not asked for")));
                };
                let (place, floor) = open.swap_remove(asked);
                let name = history.name(place);
                self.classify_partition(history, place, floor, partition)
                    .map_err(|violation| Violation(format!("{name}: {violation}")))?;
            }
        }
        ensure(open.is_empty(), || format!("ListOffsets left {open:?} unanswered"))
    }

    fn classify_partition(
        &self,
        history: &mut History,
        place: Place,
        floor: Floor,
        answer: &ListOffsetsPartitionResponse,
    ) -> Result<(), Violation> {
        if answer.error_code != ErrorCode::NONE {
            return tolerate(history, "ListOffsets", answer.error_code);
        }
        let lie = history.lie;
        let partition = history.partition(place);
        if floor.is_of_another_topic(partition) {
            return Ok(());
        }
        match self.which {
            Which::Latest => floor.check(partition, answer.offset),
            Which::Earliest => {
                let offset = if lie == Some(Lie::StartGoesBack) { 0 } else { answer.offset };
                let moved = floor.check_start(partition, offset)?;
                history.counts.starts_moved += u64::from(moved);
                Ok(())
            }
        }
    }
}
