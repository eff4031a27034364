//! Produce: a batch for each of some partitions, with all acks, codecs and versions.

use base::{Offset, ProducerEpoch, ProducerId, Random};
use bytes::Bytes;
use protocol::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::{ErrorCode, ProduceRequest, Records};
use records::{BatchBuilder, Compression, NewRecord, RecordHeader};

use super::{by_topic, frame, reply, sample_partitions, tolerate};
use crate::checkers::lasting;
use crate::checkers::watermark::Floor;
use crate::history::{
    BatchId, Fate, History, Life, Place, RecordId, SentBatch, Violation, deletes, ensure,
};

/// One request.
#[derive(Clone, Debug)]
pub struct Produce {
    version: i16,
    acks: i16,
    life: Life,
    batches: Vec<(Place, BatchId, Floor)>,
    request: ProduceRequest,
}

impl Produce {
    /// Draws partitions and batches; they are taken down as sent.
    pub fn sample(random: &mut Random, history: &mut History, connection: u64) -> Self {
        let (places, naming) = sample_partitions(random, history, 3);
        let version = naming.version(random, 3..=13, 12);
        let acks = [0, 1, 1, 1, -1, -1][random.below(6) as usize];
        Self::new(random, history, connection, &places, version, acks)
    }

    /// A request of this version and these acks with a batch for each partition.
    pub fn new(
        random: &mut Random,
        history: &mut History,
        connection: u64,
        places: &[Place],
        version: i16,
        acks: i16,
    ) -> Self {
        let mut batches = Vec::new();
        let mut data = Vec::new();
        for &place in places {
            // Without an answer nobody knows whether a tombstone was written.
            let is_unfit = acks == 0 && deletes(history.next_batch);
            let id = history.next_batch + u64::from(is_unfit);
            history.next_batch = id + 1;
            let count_max = if random.chance(20) { 40 } else { 4 };
            let count = 1 + random.below(count_max) as u32;
            let partition = history.partition(place);
            batches.push((place, id, Floor::of(partition)));
            partition
                .batches
                .insert(id, SentBatch { count, connection, after: None, fate: Fate::Unknown });
            data.push((place, batch(random, version, id, count, None)));
        }
        let topics = by_topic(data).into_iter().map(|(topic, partitions)| TopicProduceData {
            name: history.topics[topic].name.as_str().into(),
            topic_id: history.topics[topic].id.unwrap_or_default(),
            partition_data: partitions
                .into_iter()
                .map(|(index, bytes)| PartitionProduceData {
                    index: index as i32,
                    records: Some(Records::Bytes(bytes)),
                    ..PartitionProduceData::default()
                })
                .collect(),
            ..TopicProduceData::default()
        });
        let request = ProduceRequest {
            acks,
            timeout_ms: 5_000,
            topic_data: topics.collect(),
            ..ProduceRequest::default()
        };
        Self { version, acks, life: history.life, batches, request }
    }

    /// Whether a reply follows.
    pub fn has_reply(&self) -> bool {
        self.acks != 0
    }

    /// The frame of the request.
    pub fn build(&self, correlation_id: i32) -> Bytes {
        frame(correlation_id, self.version, &self.request)
    }

    /// Judges the reply: each partition is answered once, and what is acknowledged has its offset.
    pub fn classify(&self, bytes: &Bytes, history: &mut History) -> Result<(), Violation> {
        let response = reply::<ProduceRequest>(bytes, self.version)?;
        let mut open = self.batches.clone();
        for topic in &response.responses {
            let index = history.by_name_or_id(self.version >= 13, &topic.name, topic.topic_id);
            for partition in &topic.partition_responses {
                let place = index.map(|topic| (topic, partition.index as usize));
                let asked = open.iter().position(|(asked, ..)| Some(*asked) == place);
                let Some(asked) = asked else {
                    return Err(Violation(format!("{partition:?} was not asked for")));
                };
                let (place, batch, floor) = open.swap_remove(asked);
                if partition.error_code == ErrorCode::NONE {
                    self.acknowledged(history, place, batch, floor, partition.base_offset)?;
                } else {
                    tolerate(history, "Produce", partition.error_code)?;
                }
            }
        }
        ensure(open.is_empty(), || format!("Produce left {open:?} unanswered: {response:?}"))
    }

    fn acknowledged(
        &self,
        history: &mut History,
        place: Place,
        batch: BatchId,
        floor: Floor,
        base_offset: i64,
    ) -> Result<(), Violation> {
        history.counts.acknowledged += 1;
        let name = history.name(place);
        let at = |violation: Violation| Violation(format!("{name}: {violation}"));
        let partition = history.partition(place);
        if floor.is_of_another_topic(partition) {
            return Ok(());
        }
        floor.check_new(partition, base_offset).map_err(at)?;
        lasting::acknowledge(partition, self.life, batch, base_offset).map_err(at)
    }
}

/// The bytes of a batch; of an idempotent producer with its id, its epoch and the sequence.
pub(super) fn batch(
    random: &mut Random,
    version: i16,
    id: BatchId,
    count: u32,
    producer: Option<(ProducerId, ProducerEpoch, i32)>,
) -> Bytes {
    let compression = match random.below(12) {
        0 => Compression::Gzip { level: -1 },
        1 => Compression::Snappy,
        2 => Compression::Lz4,
        3 if version >= 7 => Compression::Zstd { level: 3 },
        _ => Compression::None,
    };
    let bytes = match random.below(20) {
        // The smallest segments hold either of these.
        0 if count <= 4 => 20_000,
        0..4 => 2_000,
        _ => random.below(200),
    };
    let mut builder = BatchBuilder::new(Offset(0), compression);
    if let Some((id, epoch, sequence)) = producer {
        builder = builder.producer(id, epoch, sequence);
    }
    for index in 0..count {
        let record = RecordId { batch: id, index, count };
        let (key, name) = (record.key_bytes(), record.value(bytes as usize));
        let timestamp = 1_767_225_600_000 + random.below(100_000) as i64;
        let (key, name) = (Some(&key[..]), Some(&name[..]));
        let header = [RecordHeader { key: b"name", value: name }];
        let (value, headers) =
            if record.is_tombstone() { (None, &header[..]) } else { (name, &[][..]) };
        builder.append(&NewRecord { timestamp, key, value, headers });
    }
    builder.build().bytes().clone()
}
