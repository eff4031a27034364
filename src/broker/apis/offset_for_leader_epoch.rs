//! OffsetForLeaderEpoch: where an epoch ends in a partition's log (KIP-320).

use base::{LeaderEpoch, PartitionIndex, Token};
use intercom::{EpochEnd, EpochEndPartition, Reply, Request};
use protocol::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use protocol::{
    DecodeError, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, RequestFrame,
};

use crate::shard::{Io, Shard};
use crate::spread::{Parts, SpreadApi, spread};

/// An OffsetForLeaderEpoch request under way: its response, but for what the owners find.
#[derive(Debug)]
struct OffsetForLeaderEpoch(OffsetForLeaderEpochResponse);

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: OffsetForLeaderEpochRequest = frame.body()?;
    let (mut parts, mut response) = (Parts::default(), OffsetForLeaderEpochResponse::default());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for part in topic.partitions {
            partitions.push(EpochEndOffset { partition: part.partition, ..Default::default() });
            let place = shard.locate(&topic.topic, PartitionIndex(part.partition));
            let current_epoch = LeaderEpoch(part.current_leader_epoch);
            let epoch = LeaderEpoch(part.leader_epoch);
            parts.push(
                place
                    .map(|(key, owner)| (owner, EpochEndPartition { key, current_epoch, epoch }))
                    .map_err(EpochEnd::refused),
            );
        }
        let topic = topic.topic;
        let result = OffsetForLeaderTopicResult { topic, partitions, ..Default::default() };
        response.topics.push(result);
    }
    spread(shard, io, call, OffsetForLeaderEpoch(response), parts, Request::EpochEnds);
    Ok(())
}

impl SpreadApi for OffsetForLeaderEpoch {
    type Outcome = EpochEnd;

    fn outcomes(reply: Reply) -> Vec<EpochEnd> {
        let Reply::EpochEnds(ends) = reply else { unreachable!("answered by {reply:?}") };
        ends
    }

    fn finish(
        mut self,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        outcomes: impl Iterator<Item = EpochEnd>,
    ) {
        let places = self.0.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
        for (place, end) in places.zip(outcomes) {
            place.error_code = end.error;
            place.leader_epoch = end.epoch.0;
            place.end_offset = end.end_offset.0;
        }
        shard.respond::<OffsetForLeaderEpochRequest>(io, call, &self.0);
    }
}
