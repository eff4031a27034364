//! DescribeTopicPartitions: topics page by page, with the replicas that could lead (KIP-966).

use ::metadata::{Image, Partition, Topic};
use base::{PartitionIndex, Token};
use protocol::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use protocol::{
    DecodeError, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, ErrorCode,
    RequestFrame, Str,
};

use super::metadata;
use crate::shard::{Io, Shard};
use crate::topics;

/// Partitions of one response (`max.request.partition.size.limit`) are bounded by this as well as
/// by what the client asks for.
fn limit(shard: &Shard, asked: i32) -> usize {
    let most = shard.layers.current().simple.max_request_partition_size_limit;
    usize::try_from(asked.min(most)).unwrap_or(1).max(1)
}

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: DescribeTopicPartitionsRequest = frame.body()?;
    let mut response = DescribeTopicPartitionsResponse::default();
    if let Some(view) = &shard.view {
        let left = limit(shard, request.response_partition_limit);
        fill(&mut response, &view.image, &request, left);
    }
    shard.respond::<DescribeTopicPartitionsRequest>(io, call, &response);
    Ok(())
}

fn fill(
    response: &mut DescribeTopicPartitionsResponse,
    image: &Image,
    request: &DescribeTopicPartitionsRequest,
    mut left: usize,
) {
    let (from_topic, from_partition) = match &request.cursor {
        Some(cursor) => (&*cursor.topic_name, cursor.partition_index.max(0)),
        None => ("", 0),
    };
    for name in names(image, request) {
        if &*name < from_topic {
            continue;
        }
        let first = if &*name == from_topic { from_partition } else { 0 };
        let Some(topic) = image.topic_by_name(&name) else {
            response.topics.push(unknown(name));
            continue;
        };
        let next = push_topic(response, image, topic, first, &mut left);
        if let Some(partition_index) = next {
            let topic_name = name;
            response.next_cursor =
                Some(Cursor { topic_name, partition_index, ..Default::default() });
            return;
        }
    }
}

/// The topics that are asked for, in order of their names; all where none is named.
fn names(image: &Image, request: &DescribeTopicPartitionsRequest) -> Vec<Str> {
    if request.topics.is_empty() {
        return image.topic_ids().keys().map(|name| Str::from(&**name)).collect();
    }
    let mut names: Vec<Str> = request.topics.iter().map(|topic| topic.name.clone()).collect();
    names.sort();
    names.dedup();
    names
}

/// Adds what fits of a topic; the index of its first partition that does not.
fn push_topic(
    response: &mut DescribeTopicPartitionsResponse,
    image: &Image,
    topic: &Topic,
    first: i32,
    left: &mut usize,
) -> Option<i32> {
    if *left == 0 {
        return Some(first);
    }
    let mut described = DescribeTopicPartitionsResponseTopic {
        name: Some(Str::from(&*topic.name)),
        topic_id: topic.id,
        is_internal: topics::is_internal(&topic.name),
        ..Default::default()
    };
    let mut next = None;
    for (index, one) in topic.partitions.range_from(&PartitionIndex(first)) {
        if *left == 0 {
            next = Some(index.0);
            break;
        }
        *left -= 1;
        described.partitions.push(partition(image, *index, one));
    }
    response.topics.push(described);
    next
}

fn partition(
    image: &Image,
    index: PartitionIndex,
    partition: &Partition,
) -> DescribeTopicPartitionsResponsePartition {
    // What Metadata tells, and who else could lead.
    let known = metadata::row(image, index, partition);
    let ids = ::metadata::ids_of;
    DescribeTopicPartitionsResponsePartition {
        error_code: known.error_code,
        partition_index: known.partition_index,
        leader_id: known.leader_id,
        leader_epoch: known.leader_epoch,
        replica_nodes: known.replica_nodes,
        isr_nodes: known.isr_nodes,
        eligible_leader_replicas: Some(ids(&partition.elr)),
        last_known_elr: Some(ids(&partition.last_known_elr)),
        offline_replicas: known.offline_replicas,
        ..Default::default()
    }
}

fn unknown(name: Str) -> DescribeTopicPartitionsResponseTopic {
    let error_code = if topics::is_valid_name(&name) {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    } else {
        ErrorCode::INVALID_TOPIC_EXCEPTION
    };
    let is_internal = topics::is_internal(&name);
    DescribeTopicPartitionsResponseTopic {
        error_code,
        name: Some(name),
        is_internal,
        ..Default::default()
    }
}
