//! DescribeProducers: who writes to partitions, as their owners' logs remember it (KIP-664).

use base::{PartitionIndex, Token};
use intercom::{ActiveProducer, FoundProducers, ProducersPartition};
use protocol::describe_producers_response::{PartitionResponse, ProducerState, TopicResponse};
use protocol::{
    DecodeError, DescribeProducersRequest, DescribeProducersResponse, ErrorCode, RequestFrame, Str,
};

use crate::shard::{Io, Shard};
use crate::spread::spread_topics;

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: DescribeProducersRequest = frame.body()?;
    let topics = request.topics.into_iter().map(|topic| {
        let wrong = wrong_topic(shard, &topic.name);
        ((topic.name, wrong), topic.partition_indexes)
    });
    let topics: Vec<_> = topics.collect();
    spread_topics(
        shard,
        io,
        call,
        topics,
        |shard, (name, wrong), index| {
            let place = wrong
                .as_ref()
                .map_or_else(|| shard.locate(name, PartitionIndex(index)), |(code, _)| Err(*code));
            let part = place.map(|(key, owner)| (owner, ProducersPartition { key }));
            (index, part.map_err(FoundProducers::refused))
        },
        |shard, io, call, outcomes| {
            let topics = outcomes.into_topics(row, |(name, wrong), mut partitions| {
                let message = wrong.map(|(_, message)| Str::from(message));
                for partition in &mut partitions {
                    partition.error_message = message.clone();
                }
                TopicResponse { name, partitions, ..Default::default() }
            });
            let response = DescribeProducersResponse { topics, ..Default::default() };
            shard.respond::<DescribeProducersRequest>(io, call, &response);
        },
    );
    Ok(())
}

/// Why nothing can be told of any partition of a topic, if so. Only here Kafka adds a sentence.
fn wrong_topic(shard: &Shard, name: &str) -> Option<(ErrorCode, String)> {
    if let Some(message) = metadata::topic_name_error(name) {
        return Some((ErrorCode::INVALID_TOPIC_EXCEPTION, message));
    }
    let image = shard.view.as_ref().map(|view| &view.image);
    let is_known = image.is_some_and(|image| image.topic_id(name).is_some());
    let code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    (!is_known).then(|| (code, code.message().to_owned()))
}

fn row(partition_index: i32, found: FoundProducers) -> PartitionResponse {
    PartitionResponse {
        partition_index,
        error_code: found.error,
        active_producers: found.producers.iter().map(state).collect(),
        ..Default::default()
    }
}

fn state(producer: &ActiveProducer) -> ProducerState {
    ProducerState {
        producer_id: producer.producer_id.0,
        producer_epoch: i32::from(producer.producer_epoch.0),
        last_sequence: producer.last_sequence,
        last_timestamp: producer.last_timestamp,
        coordinator_epoch: producer.coordinator_epoch,
        current_txn_start_offset: producer.transaction_start.map_or(-1, |offset| offset.0),
        ..Default::default()
    }
}
