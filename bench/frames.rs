//! The requests of a load, made before it starts: sending one costs no CRC and no encoding.

use std::time::{SystemTime, UNIX_EPOCH};

use base::{Offset, Random};
use bytes::Bytes;
use protocol::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::{ProduceRequest, Records, Str};
use records::{BatchBuilder, Compression, NewRecord};

use crate::wire::{Topic, request_frame};

/// How many different frames are sent in turn, at least: more than a core's cache takes for free,
/// few enough to be made in no time.
const FRAMES_MIN: usize = 64;
/// The seed of all contents.
const SEED: u64 = 7;
/// How long a broker may wait for its replicas.
const TIMEOUT_MS: i32 = 30_000;

/// What the requests of a produce load are made of.
#[derive(Clone, Debug)]
pub struct BatchShape {
    /// Bytes of a batch, filled with as many records as fit, at least one. 0 is a single record.
    pub batch_bytes: usize,
    /// Bytes of the value of a record.
    pub record_bytes: usize,
    /// Keyed records: each request carries a batch for every partition, as that of a producer whose
    /// keys spread. Without it, a request carries one batch.
    pub keyed: bool,
    /// Which replicas answer: 0, 1 or -1 for all.
    pub acks: i16,
}

/// The frames of a load. The n-th one has the correlation id n.
#[derive(Debug)]
pub(crate) struct Frames {
    pub(crate) frames: Vec<Bytes>,
    /// Bytes of all batches of a request.
    pub(crate) payload_bytes: usize,
    pub(crate) records: u64,
    pub(crate) version: i16,
    pub(crate) acks: i16,
}

impl Frames {
    pub(crate) fn new(topic: &Topic, version: i16, shape: &BatchShape) -> Result<Self, String> {
        let partitions = topic.partitions.max(1);
        let count = FRAMES_MIN.next_multiple_of(partitions as usize);
        let mut random = Random::new(SEED);
        let mut made = Self {
            frames: Vec::with_capacity(count),
            payload_bytes: 0,
            records: 0,
            version,
            acks: shape.acks,
        };
        for (number, partition) in (0..count as i32).zip((0..partitions).cycle()) {
            let of_request = match shape.keyed {
                true => 0..partitions,
                false => partition..partition + 1,
            };
            (made.payload_bytes, made.records) = (0, 0);
            let mut partition_data = Vec::new();
            for index in of_request {
                let (batch, records) = batch(shape, &mut random);
                made.payload_bytes += batch.len();
                made.records += records;
                let records = Some(Records::Bytes(batch));
                partition_data.push(PartitionProduceData { index, records, ..Default::default() });
            }
            made.frames.push(frame(number, topic, version, shape.acks, partition_data)?);
        }
        Ok(made)
    }
}

fn frame(
    correlation_id: i32,
    topic: &Topic,
    version: i16,
    acks: i16,
    partition_data: Vec<PartitionProduceData>,
) -> Result<Bytes, String> {
    let topic = TopicProduceData {
        name: Str::from(topic.name.as_str()),
        topic_id: topic.id,
        partition_data,
        ..Default::default()
    };
    let request = ProduceRequest {
        acks,
        timeout_ms: TIMEOUT_MS,
        topic_data: vec![topic],
        ..Default::default()
    };
    request_frame(correlation_id, version, &request)
}

/// A batch with its CRC, and how many records are in it.
fn batch(shape: &BatchShape, random: &mut Random) -> (Bytes, u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    let mut builder = BatchBuilder::new(Offset(0), Compression::None);
    let mut value = vec![0; shape.record_bytes];
    loop {
        random.fill(&mut value);
        let key = random.next_u64().to_be_bytes();
        let record = NewRecord {
            timestamp: now.as_millis() as i64,
            key: shape.keyed.then_some(&key),
            value: Some(&value),
            ..Default::default()
        };
        let full = builder.plain_bytes() + builder.record_bytes(&record) > shape.batch_bytes;
        if builder.record_count() > 0 && full {
            break;
        }
        builder.append(&record);
    }
    let records = builder.record_count() as u64;
    (builder.build().bytes().clone(), records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Uuid;
    use protocol::RequestFrame;
    use records::single_batch;

    fn requests(shape: &BatchShape, partitions: i32) -> (Frames, Vec<(i32, ProduceRequest)>) {
        let topic = Topic { name: "t".to_owned(), id: Uuid([3; 16]), partitions };
        let frames = Frames::new(&topic, 13, shape).expect("encodes");
        let read = |frame: &Bytes| {
            let frame = RequestFrame::decode(frame.slice(4..)).expect("a frame");
            (frame.correlation_id, frame.body::<ProduceRequest>().expect("a request"))
        };
        let requests = frames.frames.iter().map(read).collect();
        (frames, requests)
    }

    #[test]
    fn a_batch_is_as_full_as_it_can_be_and_valid() {
        let shape = BatchShape { batch_bytes: 16_384, record_bytes: 1_000, keyed: false, acks: 1 };
        let (frames, requests) = requests(&shape, 6);
        assert_eq!((frames.frames.len(), frames.records), (66, 16));
        for (number, (correlation_id, request)) in requests.iter().enumerate() {
            assert_eq!(*correlation_id, number as i32);
            let [partition] = &request.topic_data[0].partition_data[..] else { panic!("one") };
            assert_eq!(partition.index, number as i32 % 6);
            let Some(Records::Bytes(bytes)) = &partition.records else { panic!("records") };
            assert!((15_000..=16_384).contains(&bytes.len()), "{}", bytes.len());
            assert_eq!(bytes.len(), frames.payload_bytes);
            single_batch(bytes, true).expect("a batch").check_crc().expect("its CRC");
        }
    }

    #[test]
    fn a_keyed_request_has_a_batch_for_each_partition() {
        let shape = BatchShape { batch_bytes: 0, record_bytes: 100, keyed: true, acks: -1 };
        let (frames, requests) = requests(&shape, 6);
        assert_eq!(frames.records, 6);
        let partitions = &requests[5].1.topic_data[0].partition_data;
        assert_eq!(
            partitions.iter().map(|data| data.index).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4, 5]
        );
    }
}
