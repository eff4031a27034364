//! The records that groups are kept in, as Kafka 4.4 writes them.

use bytes::Bytes;
use coordinator::KeyValue;
use protocol::group_metadata_value::MemberMetadata;
use protocol::{
    EncodeError, GroupMetadataKey, GroupMetadataValue, GroupRecord, OffsetCommitKey,
    OffsetCommitValue, Str,
};

use crate::group::{Group, Member};
use crate::offsets::{Committed, Place};

/// The version of a group's value.
const GROUP_VERSION: i16 = 3;
/// The version of an offset's value.
const OFFSET_VERSION: i16 = 4;
/// The only version that carries when an offset expires.
const OFFSET_VERSION_EXPIRING: i16 = 1;
/// The longest text in a record, which has a length of 16 bits.
pub(crate) const TEXT_BYTES_MAX: usize = i16::MAX as usize;

fn group_record(id: &Str, value: Option<GroupMetadataValue>) -> KeyValue {
    let key = GroupMetadataKey { group: id.clone(), ..Default::default() };
    let (key, value) = GroupRecord::GroupMetadata(key, value)
        .encode(GROUP_VERSION)
        .expect("the texts of a group were measured when they came");
    KeyValue { key, value }
}

/// A group with its members and what each was assigned.
pub(crate) fn of_group(
    id: &Str,
    group: &Group,
    assignment: impl Fn(&Str, &Member) -> Bytes,
) -> KeyValue {
    let protocol = group.protocol_name.as_deref().unwrap_or_default();
    let member = |(id, member): (&Str, &Member)| MemberMetadata {
        member_id: id.clone(),
        group_instance_id: member.instance_id.clone(),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        rebalance_timeout: member.rebalance_timeout_ms,
        session_timeout: member.session_timeout_ms,
        subscription: member.metadata(protocol),
        assignment: assignment(id, member),
        ..Default::default()
    };
    let value = GroupMetadataValue {
        protocol_type: group.protocol_type.clone().unwrap_or_default(),
        generation: group.generation,
        protocol: group.protocol_name.clone(),
        leader: group.leader.clone(),
        current_state_timestamp: group.state_since_ms.unwrap_or(-1),
        members: group.members().iter().map(member).collect(),
        ..Default::default()
    };
    group_record(id, Some(value))
}

/// A group that was just created.
pub(crate) fn of_new_group(id: &Str, group: &Group) -> KeyValue {
    let value = GroupMetadataValue {
        protocol: None,
        leader: None,
        current_state_timestamp: group.state_since_ms.unwrap_or(-1),
        ..Default::default()
    };
    group_record(id, Some(value))
}

/// The end of a group.
pub(crate) fn of_no_group(id: &Str) -> KeyValue {
    group_record(id, None)
}

fn offset_record(
    group: &Str,
    place: &Place,
    value: Option<OffsetCommitValue>,
    version: i16,
) -> Result<KeyValue, EncodeError> {
    let key = OffsetCommitKey {
        group: group.clone(),
        topic: place.0.clone(),
        partition: place.1,
        ..Default::default()
    };
    let (key, value) = GroupRecord::OffsetCommit(key, value).encode(version)?;
    Ok(KeyValue { key, value })
}

/// A committed offset; an error when its metadata is too long for the version.
pub(crate) fn of_offset(
    group: &Str,
    place: &Place,
    committed: &Committed,
) -> Result<KeyValue, EncodeError> {
    let value = OffsetCommitValue {
        offset: committed.offset,
        leader_epoch: committed.leader_epoch,
        metadata: committed.metadata.clone(),
        commit_timestamp: committed.commit_timestamp_ms,
        expire_timestamp: committed.expire_timestamp_ms.unwrap_or(-1),
        topic_id: committed.topic_id,
        ..Default::default()
    };
    let expires = committed.expire_timestamp_ms.is_some();
    let version = if expires { OFFSET_VERSION_EXPIRING } else { OFFSET_VERSION };
    offset_record(group, place, Some(value), version)
}

/// The end of a committed offset.
pub(crate) fn of_no_offset(group: &Str, place: &Place) -> KeyValue {
    offset_record(group, place, None, OFFSET_VERSION)
        .expect("the names in a key were in a key before, or were measured")
}
