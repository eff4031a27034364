//! Produce: each partition's batch goes to its owner; the answer leaves when every owner's disk
//! has done what the topic demands.

use base::{PartitionIndex, Token};
use intercom::{AppendAsk, AppendPartition, Appended, Reply, Request};
use protocol::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use protocol::{DecodeError, ErrorCode, ProduceRequest, ProduceResponse, Records, RequestFrame};
use records::{Batch, Codec};

use crate::shard::{Io, Shard};
use crate::spread::{Parts, SpreadApi, spread};

/// The first version that may carry Zstandard (KIP-110).
const ZSTD_FIRST_VERSION: i16 = 7;
/// The first version that names topics by id (KIP-516).
const TOPIC_ID_FIRST_VERSION: i16 = 13;

/// A Produce request under way: the response, but for what the owners say.
#[derive(Debug)]
struct Produce {
    response: ProduceResponse,
    acks: i16,
}

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: ProduceRequest = frame.body()?;
    let refused = refusal_of_request(&request);
    let (mut parts, mut response) = (Parts::default(), ProduceResponse::default());
    let by_id = frame.version >= TOPIC_ID_FIRST_VERSION;
    for topic in request.topic_data {
        let mut partitions = Vec::with_capacity(topic.partition_data.len());
        for part in topic.partition_data {
            partitions.push(PartitionProduceResponse { index: part.index, ..Default::default() });
            let index = PartitionIndex(part.index);
            let place = if by_id {
                shard.locate_by_id(topic.topic_id, index)
            } else {
                shard.locate(&topic.name, index)
            };
            let place = match &refused {
                Some(refused) => Err(refused.clone()),
                None => place.map_err(|code| Appended::refused(code, None)),
            };
            parts.push(place.and_then(|(key, owner)| {
                let records = records_of(part.records, frame.version)?;
                Ok((owner, AppendPartition { key, records }))
            }));
        }
        response.responses.push(TopicProduceResponse {
            name: topic.name,
            topic_id: topic.topic_id,
            partition_responses: partitions,
            ..Default::default()
        });
    }
    let produce = Produce { response, acks: request.acks };
    spread(shard, io, call, produce, parts, |partitions| Request::Append(AppendAsk { partitions }));
    Ok(())
}

impl SpreadApi for Produce {
    type Outcome = Appended;

    fn outcomes(reply: Reply) -> Vec<Appended> {
        let Reply::Append(answer) = reply else { unreachable!("answered by {reply:?}") };
        answer.partitions
    }

    fn finish(
        mut self,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        outcomes: impl Iterator<Item = Appended>,
    ) {
        let topics = self.response.responses.iter_mut();
        let places = topics.flat_map(|topic| &mut topic.partition_responses);
        let mut failed = false;
        for (place, outcome) in places.zip(outcomes) {
            failed |= outcome.error.is_error();
            fill(place, outcome);
        }
        if self.acks != 0 {
            return shard.respond::<ProduceRequest>(io, call, &self.response);
        }
        if failed {
            // Nothing can be answered; closing tells the client to look again, as in Kafka.
            shard.close_connection_of(io, call);
        }
        shard.stay_silent(call);
    }
}

fn fill(place: &mut PartitionProduceResponse, outcome: Appended) {
    place.error_code = outcome.error;
    place.base_offset = outcome.base_offset.0;
    place.log_append_time_ms = outcome.log_append_time_ms;
    place.log_start_offset = outcome.log_start_offset.0;
    place.error_message = outcome.message.map(Into::into);
    let errors = outcome.record_errors.into_iter();
    place.record_errors = errors
        .map(|(batch_index, message)| BatchIndexAndErrorMessage {
            batch_index,
            batch_index_error_message: Some(message.into()),
            ..Default::default()
        })
        .collect();
}

/// Why the request as a whole is refused, if it is.
fn refusal_of_request(request: &ProduceRequest) -> Option<Appended> {
    if !(-1..=1).contains(&request.acks) {
        return Some(Appended::refused(ErrorCode::INVALID_REQUIRED_ACKS, None));
    }
    // No transaction can have been begun: there is no transaction coordinator yet. The code is one
    // that a client does not try again.
    request.transactional_id.as_ref().map(|_| {
        let sentence = "Transactions are not available on this broker.".to_owned();
        Appended::refused(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Some(sentence))
    })
}

fn records_of(records: Option<Records>, version: i16) -> Result<bytes::Bytes, Appended> {
    let Some(Records::Bytes(bytes)) = records else {
        let sentence = "the request has no records for this partition".to_owned();
        return Err(Appended::refused(ErrorCode::INVALID_RECORD, Some(sentence)));
    };
    if version < ZSTD_FIRST_VERSION
        && let Ok(Some(batch)) = Batch::read(&bytes)
        && batch.header().codec() == Ok(Codec::Zstd)
    {
        return Err(Appended::refused(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, None));
    }
    Ok(bytes)
}
