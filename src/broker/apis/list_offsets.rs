//! ListOffsets: each partition's owner searches its log.

use base::{LeaderEpoch, PartitionIndex, Token};
use intercom::{FoundOffset, OffsetsAsk, OffsetsPartition, Reply, Request};
use protocol::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use protocol::{DecodeError, ErrorCode, ListOffsetsRequest, ListOffsetsResponse, RequestFrame};

use crate::shard::{Io, Shard};
use crate::spread::{Parts, SpreadApi, spread};

/// `isolation_level` of a consumer that reads only what was committed.
const READ_COMMITTED: i8 = 1;

/// The lowest special timestamp that each version knows, from the newest version down
/// (KIP-734, KIP-405, KIP-1005, KIP-1023).
const LOWEST_TIMESTAMP: [(i16, i64); 5] = [(11, -6), (9, -5), (8, -4), (7, -3), (0, -2)];

/// The first version whose answer has the leader epoch (KIP-320).
const LEADER_EPOCH_FIRST_VERSION: i16 = 4;

/// A ListOffsets request under way: its response, but for what the owners find.
#[derive(Debug)]
struct ListOffsets {
    response: ListOffsetsResponse,
    with_leader_epoch: bool,
}

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: ListOffsetsRequest = frame.body()?;
    let (mut parts, mut response) = (Parts::default(), ListOffsetsResponse::default());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for part in topic.partitions {
            let partition_index = part.partition_index;
            partitions.push(ListOffsetsPartitionResponse { partition_index, ..Default::default() });
            let known = is_known(part.timestamp, frame.version);
            let place =
                known.and_then(|()| shard.locate(&topic.name, PartitionIndex(partition_index)));
            let leader_epoch = LeaderEpoch(part.current_leader_epoch);
            let timestamp = part.timestamp;
            parts.push(
                place
                    .map(|(key, owner)| (owner, OffsetsPartition { key, leader_epoch, timestamp }))
                    .map_err(FoundOffset::refused),
            );
        }
        let name = topic.name;
        response.topics.push(ListOffsetsTopicResponse { name, partitions, ..Default::default() });
    }
    let read_committed = request.isolation_level == READ_COMMITTED;
    let with_leader_epoch = frame.version >= LEADER_EPOCH_FIRST_VERSION;
    let api = ListOffsets { response, with_leader_epoch };
    spread(shard, io, call, api, parts, |partitions| {
        Request::Offsets(OffsetsAsk { partitions, read_committed })
    });
    Ok(())
}

impl SpreadApi for ListOffsets {
    type Outcome = FoundOffset;

    fn outcomes(reply: Reply) -> Vec<FoundOffset> {
        let Reply::Offsets(answer) = reply else { unreachable!("answered by {reply:?}") };
        answer.partitions
    }

    fn finish(
        mut self,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        outcomes: impl Iterator<Item = FoundOffset>,
    ) {
        let places = self.response.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
        for (place, found) in places.zip(outcomes) {
            place.error_code = found.error;
            place.offset = found.offset.0;
            place.timestamp = found.timestamp;
            if self.with_leader_epoch {
                place.leader_epoch = found.leader_epoch.0;
            }
        }
        shard.respond::<ListOffsetsRequest>(io, call, &self.response);
    }
}

/// Whether the version of the request knows the timestamp.
fn is_known(timestamp: i64, version: i16) -> Result<(), ErrorCode> {
    let lowest = LOWEST_TIMESTAMP.iter().find(|(first, _)| version >= *first);
    let lowest = lowest.map_or(-2, |(_, lowest)| *lowest);
    if timestamp >= lowest { Ok(()) } else { Err(ErrorCode::UNSUPPORTED_VERSION) }
}
