//! FindCoordinator: which broker leads the partition that a group belongs to.

use base::{PartitionIndex, Token};
use group::CoordinatorNode;
use protocol::{DecodeError, ErrorCode, FindCoordinatorRequest, RequestFrame, Str};

use super::creation;
use crate::shard::{Io, Shard};
use crate::topics::OFFSETS_TOPIC;

/// `key_type` of groups.
const GROUP: i8 = 0;

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: FindCoordinatorRequest = frame.body()?;
    if request.key_type == GROUP && shard.offsets_partitions() == 0 {
        let topics = vec![shard.new_topic(OFFSETS_TOPIC)];
        creation::create(shard, io, call, frame, topics, |shard, io, call, frame| {
            let request = frame.body().expect("it was decoded before");
            respond(shard, io, call, frame.version, &request);
        });
    } else {
        respond(shard, io, call, frame.version, &request);
    }
    Ok(())
}

fn respond(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    version: i16,
    request: &FindCoordinatorRequest,
) {
    // Where the topic could not be made, its first partition is not there either.
    let partitions = shard.offsets_partitions().max(1);
    let response = group::find_coordinator(request, version, partitions, &|partition| {
        coordinator(shard, call, PartitionIndex(partition))
    });
    shard.respond::<FindCoordinatorRequest>(io, call, &response);
}

/// The broker that leads a partition of the offsets topic.
fn coordinator(
    shard: &Shard,
    call: Token,
    partition: PartitionIndex,
) -> Result<CoordinatorNode, ErrorCode> {
    let image = shard.view.as_ref().map(|view| &view.image);
    let found = image.and_then(|image| {
        let leader = image.topic_by_name(OFFSETS_TOPIC)?.partition(partition)?.leader;
        let broker = image.broker(leader).filter(|broker| !broker.fenced)?;
        let endpoint = broker.endpoint(shard.listener_of(call))?;
        let host = Str::from(&*endpoint.host);
        Some(CoordinatorNode { id: broker.id.0, host, port: i32::from(endpoint.port) })
    });
    found.ok_or(ErrorCode::COORDINATOR_NOT_AVAILABLE)
}
