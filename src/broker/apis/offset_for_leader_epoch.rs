//! OffsetForLeaderEpoch: where an epoch ends in a partition's log (KIP-320).

use base::{LeaderEpoch, PartitionIndex, Token};
use intercom::{EpochEnd, EpochEndPartition};
use protocol::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use protocol::{
    DecodeError, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, RequestFrame,
};

use crate::shard::{Io, Shard};
use crate::spread::spread_topics;

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: OffsetForLeaderEpochRequest = frame.body()?;
    let topics = request.topics.into_iter().map(|topic| (topic.topic, topic.partitions));
    spread_topics(
        shard,
        io,
        call,
        topics,
        |shard, topic, asked| {
            let place = shard.locate(topic, PartitionIndex(asked.partition));
            let current_epoch = LeaderEpoch(asked.current_leader_epoch);
            let epoch = LeaderEpoch(asked.leader_epoch);
            let part =
                place.map(|(key, owner)| (owner, EpochEndPartition { key, current_epoch, epoch }));
            (asked.partition, part.map_err(EpochEnd::refused))
        },
        |shard, io, call, outcomes| {
            let topics = outcomes.into_topics(row, |topic, partitions| {
                OffsetForLeaderTopicResult { topic, partitions, ..Default::default() }
            });
            let response = OffsetForLeaderEpochResponse { topics, ..Default::default() };
            shard.respond::<OffsetForLeaderEpochRequest>(io, call, &response);
        },
    );
    Ok(())
}

fn row(partition: i32, end: EpochEnd) -> EpochEndOffset {
    EpochEndOffset {
        partition,
        error_code: end.error,
        leader_epoch: end.epoch.0,
        end_offset: end.end_offset.0,
        ..Default::default()
    }
}
