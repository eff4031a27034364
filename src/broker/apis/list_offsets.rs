//! ListOffsets: each partition's owner searches its log.

use base::{LeaderEpoch, PartitionIndex, Token};
use intercom::{FoundOffset, OffsetsPartition};
use protocol::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use protocol::{DecodeError, ErrorCode, ListOffsetsRequest, ListOffsetsResponse, RequestFrame};

use crate::shard::{Io, Shard};
use crate::spread::spread_topics;

/// `isolation_level` of a consumer that reads only what was committed.
const READ_COMMITTED: i8 = 1;

/// The lowest special timestamp that each version knows, from the newest version down
/// (KIP-734, KIP-405, KIP-1005, KIP-1023).
const LOWEST_TIMESTAMP: [(i16, i64); 5] = [(11, -6), (9, -5), (8, -4), (7, -3), (0, -2)];

/// The first version whose answer has the leader epoch (KIP-320).
const LEADER_EPOCH_FIRST_VERSION: i16 = 4;

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: ListOffsetsRequest = frame.body()?;
    let version = frame.version;
    let read_committed = request.isolation_level == READ_COMMITTED;
    let topics = request.topics.into_iter().map(|topic| (topic.name, topic.partitions));
    spread_topics(
        shard,
        io,
        call,
        topics,
        |shard, topic, asked| {
            let known = is_known(asked.timestamp, version);
            let index = PartitionIndex(asked.partition_index);
            let place = known.and_then(|()| shard.locate(topic, index));
            let part = place.map(|(key, owner)| {
                let leader_epoch = LeaderEpoch(asked.current_leader_epoch);
                let timestamp = asked.timestamp;
                (owner, OffsetsPartition { key, leader_epoch, timestamp, read_committed })
            });
            (asked.partition_index, part.map_err(FoundOffset::refused))
        },
        move |shard, io, call, outcomes| {
            let topics = outcomes.into_topics(
                |index, found| row(version, index, found),
                |name, partitions| ListOffsetsTopicResponse {
                    name,
                    partitions,
                    ..Default::default()
                },
            );
            let response = ListOffsetsResponse { topics, ..Default::default() };
            shard.respond::<ListOffsetsRequest>(io, call, &response);
        },
    );
    Ok(())
}

fn row(version: i16, partition_index: i32, found: FoundOffset) -> ListOffsetsPartitionResponse {
    let mut row = ListOffsetsPartitionResponse {
        partition_index,
        error_code: found.error,
        offset: found.offset.0,
        timestamp: found.timestamp,
        ..Default::default()
    };
    if version >= LEADER_EPOCH_FIRST_VERSION {
        row.leader_epoch = found.leader_epoch.0;
    }
    row
}

/// Whether the version of the request knows the timestamp.
fn is_known(timestamp: i64, version: i16) -> Result<(), ErrorCode> {
    let lowest = LOWEST_TIMESTAMP.iter().find(|(first, _)| version >= *first);
    let lowest = lowest.map_or(-2, |(_, lowest)| *lowest);
    if timestamp >= lowest { Ok(()) } else { Err(ErrorCode::UNSUPPORTED_VERSION) }
}
