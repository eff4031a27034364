//! Produce: each partition's batch goes to its owner; the answer leaves when every owner's disk
//! has done what the topic demands.

use base::{PartitionIndex, Token, TopicId};
use intercom::{AppendPartition, Appended};
use protocol::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use protocol::{
    DecodeError, ErrorCode, ProduceRequest, ProduceResponse, Records, RequestFrame, Str,
};
use records::{Batch, BatchHeader, Codec};

use crate::shard::{Io, Shard};
use crate::spread::{TopicOutcomes, spread_topics};
use crate::topics::is_internal;

/// Whoever calls itself so may write the topics that the broker keeps for itself
/// (`AdminUtils.ADMIN_CLIENT_ID`).
const ADMIN_CLIENT_ID: &str = "__admin_client";
/// The first version that may carry Zstandard (KIP-110).
const ZSTD_FIRST_VERSION: i16 = 7;
/// The first version that names topics by id (KIP-516).
const TOPIC_ID_FIRST_VERSION: i16 = 13;

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: ProduceRequest = frame.body()?;
    let (version, acks) = (frame.version, request.acks);
    let refused = refusal_of_request(&request);
    let may_write_internal = frame.client_id.as_deref() == Some(ADMIN_CLIENT_ID);
    let topics = request.topic_data.into_iter();
    let topics = topics.map(|topic| ((topic.name, topic.topic_id), topic.partition_data));
    spread_topics(
        shard,
        io,
        call,
        topics,
        |shard, (name, topic_id), data| {
            let index = PartitionIndex(data.index);
            let place = match &refused {
                Some(refused) => Err(refused.clone()),
                None if version >= TOPIC_ID_FIRST_VERSION => {
                    shard.locate_by_id(*topic_id, index).map_err(refusal)
                }
                None => shard.locate(name, index).map_err(refusal),
            };
            let part = place.and_then(|(key, owner)| {
                if !may_write_internal
                    && let Some(name) = shard.topic_name(key.topic).filter(|it| is_internal(it))
                {
                    let sentence = format!("Cannot append to internal topic {name}");
                    return Err(Appended::refused(
                        ErrorCode::INVALID_TOPIC_EXCEPTION,
                        Some(sentence),
                    ));
                }
                let records = records_of(data.records, version)?;
                Ok((owner, AppendPartition { key, records }))
            });
            (data.index, part)
        },
        move |shard, io, call, outcomes| finish(shard, io, call, acks, outcomes),
    );
    Ok(())
}

/// All owners have answered.
fn finish(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    acks: i16,
    outcomes: TopicOutcomes<(Str, TopicId), Appended>,
) {
    let mut failed = false;
    let responses = outcomes.into_topics(
        |index, appended| {
            failed |= appended.error.is_error();
            row(index, appended)
        },
        |(name, topic_id), partition_responses| TopicProduceResponse {
            name,
            topic_id,
            partition_responses,
            ..Default::default()
        },
    );
    if acks != 0 {
        let response = ProduceResponse { responses, ..Default::default() };
        return shard.respond::<ProduceRequest>(io, call, &response);
    }
    if failed {
        // Nothing can be answered; closing tells the client to look again, as in Kafka.
        shard.close_connection_of(io, call);
    }
    shard.stay_silent(call);
}

fn row(index: i32, appended: Appended) -> PartitionProduceResponse {
    let errors = appended.record_errors.into_iter();
    let record_errors = errors.map(|(batch_index, message)| BatchIndexAndErrorMessage {
        batch_index,
        batch_index_error_message: Some(message.into()),
        ..Default::default()
    });
    PartitionProduceResponse {
        index,
        error_code: appended.error,
        base_offset: appended.base_offset.0,
        log_append_time_ms: appended.log_append_time_ms,
        log_start_offset: appended.log_start_offset.0,
        record_errors: record_errors.collect(),
        error_message: appended.message.map(Into::into),
        ..Default::default()
    }
}

fn refusal(code: ErrorCode) -> Appended {
    Appended::refused(code, None)
}

/// Why the request as a whole is refused, if it is.
fn refusal_of_request(request: &ProduceRequest) -> Option<Appended> {
    if !(-1..=1).contains(&request.acks) {
        return Some(Appended::refused(ErrorCode::INVALID_REQUIRED_ACKS, None));
    }
    // No transaction can have been begun: there is no transaction coordinator yet. The code is one
    // that a client does not try again; Kafka gives it to batches of a transaction without an id.
    let partitions = request.topic_data.iter().flat_map(|topic| &topic.partition_data);
    let mut records = partitions.filter_map(|partition| partition.records.as_ref());
    let transactional = request.transactional_id.is_some() || records.any(is_transactional);
    transactional.then(|| {
        let sentence = "Transactions are not available on this broker.".to_owned();
        Appended::refused(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Some(sentence))
    })
}

fn is_transactional(records: &Records) -> bool {
    let Records::Bytes(bytes) = records else { return false };
    bytes.first_chunk().is_some_and(|header| BatchHeader::read(header).is_transactional())
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
