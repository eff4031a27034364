//! DeleteRecords: each partition's owner moves its log start offset.

use base::{Offset, PartitionIndex, Token};
use intercom::{DeletePartition, Deleted};
use protocol::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use protocol::{DecodeError, DeleteRecordsRequest, DeleteRecordsResponse, ErrorCode, RequestFrame};

use crate::shard::{Io, Shard};
use crate::spread::spread_topics;
use crate::topics::is_internal;

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: DeleteRecordsRequest = frame.body()?;
    let topics = request.topics.into_iter().map(|topic| (topic.name, topic.partitions));
    spread_topics(
        shard,
        io,
        call,
        topics,
        |shard, topic, asked| {
            let place = match is_internal(topic) {
                // Who keeps something there deletes it (`ReplicaManager.deleteRecords`).
                true => Err(ErrorCode::INVALID_TOPIC_EXCEPTION),
                false => shard.locate(topic, PartitionIndex(asked.partition_index)),
            };
            let before = Offset(asked.offset);
            let part = place.map(|(key, owner)| (owner, DeletePartition { key, before }));
            (asked.partition_index, part.map_err(Deleted::refused))
        },
        |shard, io, call, outcomes| {
            let topics = outcomes.into_topics(row, |name, partitions| DeleteRecordsTopicResult {
                name,
                partitions,
                ..Default::default()
            });
            let response = DeleteRecordsResponse { topics, ..Default::default() };
            shard.respond::<DeleteRecordsRequest>(io, call, &response);
        },
    );
    Ok(())
}

fn row(partition_index: i32, deleted: Deleted) -> DeleteRecordsPartitionResult {
    DeleteRecordsPartitionResult {
        partition_index,
        error_code: deleted.error,
        low_watermark: deleted.low_watermark.0,
        ..Default::default()
    }
}
