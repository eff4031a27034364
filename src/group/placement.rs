//! Which coordinator a group belongs to, and how requests about several groups are split.

use std::collections::BTreeMap;

use protocol::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use protocol::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponseTopic,
};
use protocol::{OffsetFetchRequest, OffsetFetchResponse, Str};

/// From this version on a request asks for several groups.
const VERSION_GROUPS: i16 = 8;

/// The partition of `__consumer_offsets`, which has `partitions`, that a group's records are in.
///
/// # Panics
/// Without partitions.
pub fn coordinator_partition(group: &str, partitions: i32) -> i32 {
    assert!(partitions > 0, "the topic of offsets has partitions");
    // Java's String.hashCode over UTF-16, and Kafka's Utils.abs, which drops the sign bit.
    let hash = group
        .encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    let positive = if hash == i32::MIN { 0 } else { hash.abs() };
    positive % partitions
}

/// The groups by the partition of `__consumer_offsets`, which has `partitions`.
pub fn by_partition(groups: &[Str], partitions: i32) -> BTreeMap<i32, Vec<Str>> {
    let mut by_partition: BTreeMap<i32, Vec<Str>> = BTreeMap::new();
    for group in groups {
        let partition = coordinator_partition(group, partitions);
        by_partition.entry(partition).or_default().push(group.clone());
    }
    by_partition
}

/// What an OffsetFetch request asks of each group.
pub fn split_offset_fetch(
    request: OffsetFetchRequest,
    version: i16,
) -> Vec<OffsetFetchRequestGroup> {
    if version >= VERSION_GROUPS {
        return request.groups;
    }
    let topics = request.topics.map(|topics| {
        let topics = topics.into_iter().map(|topic| OffsetFetchRequestTopics {
            name: topic.name,
            partition_indexes: topic.partition_indexes,
            ..Default::default()
        });
        topics.collect()
    });
    vec![OffsetFetchRequestGroup { group_id: request.group_id, topics, ..Default::default() }]
}

/// The answer to an OffsetFetch request from the groups' answers, in the order of
/// [`split_offset_fetch`].
pub fn join_offset_fetch(
    version: i16,
    mut groups: Vec<OffsetFetchResponseGroup>,
) -> OffsetFetchResponse {
    if version >= VERSION_GROUPS {
        return OffsetFetchResponse { groups, ..Default::default() };
    }
    let group = groups.pop().unwrap_or_default();
    let topics = group.topics.into_iter().map(|topic| OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic
            .partitions
            .into_iter()
            .map(|partition| OffsetFetchResponsePartition {
                partition_index: partition.partition_index,
                committed_offset: partition.committed_offset,
                committed_leader_epoch: partition.committed_leader_epoch,
                metadata: partition.metadata,
                error_code: partition.error_code,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    });
    let topics = topics.collect();
    OffsetFetchResponse { topics, error_code: group.error_code, ..Default::default() }
}
