//! What an idempotent producer asks: its id, and that a batch be written, which it may send more
//! than once.

use base::{ProducerEpoch, ProducerId, Random};
use bytes::Bytes;
use protocol::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::{ErrorCode, InitProducerIdRequest, ProduceRequest, Records};

use super::produce::batch;
use super::{Operation, frame, reply, sample_places, tolerate, version};
use crate::checkers::lasting;
use crate::checkers::watermark::Floor;
use crate::history::{BatchId, Fate, History, Life, Place, SentBatch, Violation, ensure};
use crate::producers::{Next, Pending, Producer, Refusal};

/// A request for an id.
#[derive(Clone, Debug)]
pub struct InitProducerId {
    version: i16,
}

/// One batch.
#[derive(Clone, Debug)]
pub struct IdempotentProduce {
    producer_id: i64,
    version: i16,
    life: Life,
    place: Place,
    batch: BatchId,
    floor: Floor,
    request: ProduceRequest,
}

/// What the producer of a client asks next, if anything.
pub fn sample(
    random: &mut Random,
    history: &mut History,
    producer: &mut Producer,
    connection: u64,
) -> Option<Operation> {
    // In a topic that is made anew, sequences begin anew.
    let place = history.is_whole.then(|| {
        sample_places(random, history, 1, |topic| !topic.may_be_deleted && !topic.is_cut)
            .first()
            .copied()
    });
    let place = place.flatten()?;
    let next = producer.next(random, connection, place, history.life);
    match next {
        Next::Wait => None,
        Next::AskForId => {
            let version = version(random, 0..=5);
            Some(Operation::InitProducerId(InitProducerId { version }))
        }
        Next::Again(pending) => Some(produce(random, history, producer, place, &pending)),
        Next::New => {
            let pending = new_batch(random, history, producer, place);
            let operation = produce(random, history, producer, place, &pending);
            producer.sent(place, pending);
            Some(operation)
        }
    }
}

fn new_batch(
    random: &mut Random,
    history: &mut History,
    producer: &mut Producer,
    place: Place,
) -> Pending {
    let id = history.next_batch;
    history.next_batch += 1;
    let count = 1 + random.below(4) as u32;
    let connection = producer.sender();
    let producer_id = ProducerId(producer.id.expect("it has one by now"));
    let lane = producer.lane(random, place);
    let sequence = lane.next_sequence;
    lane.next_sequence = records::increment_sequence(sequence, count as i32);
    let after = lane.newest;
    let partition = history.partition(place);
    let floor = Floor::of(partition);
    partition.batches.insert(id, SentBatch { count, connection, after, fate: Fate::Unknown });
    let numbers = Some((producer_id, ProducerEpoch(0), sequence));
    Pending { batch: id, bytes: batch(random, 7, id, count, numbers), floor }
}

fn produce(
    random: &mut Random,
    history: &History,
    producer: &Producer,
    place: Place,
    pending: &Pending,
) -> Operation {
    let data = PartitionProduceData {
        index: place.1 as i32,
        records: Some(Records::Bytes(pending.bytes.clone())),
        ..PartitionProduceData::default()
    };
    let topic = TopicProduceData {
        name: history.topics[place.0].name.as_str().into(),
        partition_data: vec![data],
        ..TopicProduceData::default()
    };
    Operation::IdempotentProduce(IdempotentProduce {
        producer_id: producer.id.expect("it has one by now"),
        version: version(random, 7..=12),
        life: history.life,
        place,
        batch: pending.batch,
        floor: pending.floor,
        request: ProduceRequest {
            acks: -1,
            timeout_ms: 5_000,
            topic_data: vec![topic],
            ..ProduceRequest::default()
        },
    })
}

impl InitProducerId {
    /// The frame of the request.
    pub fn build(&self, correlation_id: i32) -> Bytes {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: 1_000,
            ..Default::default()
        };
        frame(correlation_id, self.version, &request)
    }

    /// Takes the id, if there is one.
    pub fn classify(
        &self,
        bytes: &Bytes,
        history: &mut History,
        producer: &mut Producer,
    ) -> Result<(), Violation> {
        let response = reply::<InitProducerIdRequest>(bytes, self.version)?;
        let is_there = response.error_code == ErrorCode::NONE;
        let id = is_there.then_some(response.producer_id);
        producer.take_id(id);
        let Some(id) = id else { return tolerate(history, "InitProducerId", response.error_code) };
        ensure(id >= 0 && history.producer_ids.insert(id), || {
            format!("the producer id {id} was given out before")
        })
    }
}

impl IdempotentProduce {
    /// The frame of the request.
    pub fn build(&self, correlation_id: i32) -> Bytes {
        frame(correlation_id, self.version, &self.request)
    }

    /// Judges the reply: a batch that comes again is acknowledged where it stands, and none is
    /// taken before the one that precedes it.
    pub fn classify(
        &self,
        bytes: &Bytes,
        history: &mut History,
        producer: &mut Producer,
    ) -> Result<(), Violation> {
        let response = reply::<ProduceRequest>(bytes, self.version)?;
        let rows: Vec<_> =
            response.responses.iter().flat_map(|topic| &topic.partition_responses).collect();
        let [row] = rows[..] else {
            return Err(Violation(format!("one partition was asked for: {response:?}")));
        };
        let (id, place, batch, life) = (self.producer_id, self.place, self.batch, self.life);
        let name = history.name(place);
        let at = |violation: Violation| Violation(format!("{name}: {violation}"));
        match row.error_code {
            ErrorCode::NONE => {
                history.counts.acknowledged += 1;
                let is_oldest = producer.acknowledged(id, place, batch, life);
                let partition = history.partition(place);
                ensure(is_oldest, || format!("batch {batch} was taken before an earlier one"))
                    .and_then(|()| self.floor.check_new(partition, row.base_offset))
                    .and_then(|()| lasting::acknowledge(partition, life, batch, row.base_offset))
                    .map_err(at)
            }
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER => {
                let partition = history.partition(place);
                let refusal = producer.out_of_order(id, place, batch, life, partition);
                ensure(refusal != Refusal::Wrong, || {
                    format!("batch {batch} is next and is said to leave a gap")
                })
                .map_err(at)
            }
            code => {
                producer.refused(id, place);
                tolerate(history, "Produce", code)
            }
        }
    }
}
