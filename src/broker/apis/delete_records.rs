//! DeleteRecords: each partition's owner moves its log start offset.

use base::{Offset, PartitionIndex, Token};
use intercom::{DeletePartition, Deleted, Reply, Request};
use protocol::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use protocol::{DecodeError, DeleteRecordsRequest, DeleteRecordsResponse, RequestFrame};

use crate::shard::{Io, Shard};
use crate::spread::{Parts, SpreadApi, spread};

/// A DeleteRecords request under way: its response, but for what the owners say.
#[derive(Debug)]
struct DeleteRecords(DeleteRecordsResponse);

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: DeleteRecordsRequest = frame.body()?;
    let (mut parts, mut response) = (Parts::default(), DeleteRecordsResponse::default());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for part in topic.partitions {
            let partition_index = part.partition_index;
            partitions.push(DeleteRecordsPartitionResult { partition_index, ..Default::default() });
            let place = shard.locate(&topic.name, PartitionIndex(partition_index));
            let before = Offset(part.offset);
            parts.push(
                place
                    .map(|(key, owner)| (owner, DeletePartition { key, before }))
                    .map_err(Deleted::refused),
            );
        }
        let name = topic.name;
        response.topics.push(DeleteRecordsTopicResult { name, partitions, ..Default::default() });
    }
    spread(shard, io, call, DeleteRecords(response), parts, Request::DeleteRecords);
    Ok(())
}

impl SpreadApi for DeleteRecords {
    type Outcome = Deleted;

    fn outcomes(reply: Reply) -> Vec<Deleted> {
        let Reply::DeleteRecords(deleted) = reply else { unreachable!("answered by {reply:?}") };
        deleted
    }

    fn finish(
        mut self,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        outcomes: impl Iterator<Item = Deleted>,
    ) {
        let places = self.0.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
        for (place, deleted) in places.zip(outcomes) {
            place.error_code = deleted.error;
            place.low_watermark = deleted.low_watermark.0;
        }
        shard.respond::<DeleteRecordsRequest>(io, call, &self.0);
    }
}
