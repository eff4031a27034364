//! OffsetCommit and OffsetDelete.

use std::sync::Arc;

use base::PartitionIndex;
use metadata::{Image, Topic};
use protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use protocol::offset_commit_response::OffsetCommitResponseTopic;
use protocol::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use protocol::{
    ErrorCode, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest,
    OffsetDeleteResponse, Str,
};

use crate::call::committed as answer;
use crate::group::{Group, GroupState};
use crate::machine::{GroupTurn, Groups, RECORD_UNDER_WAY, own};
use crate::offsets::{Committed, Place};
use crate::record::{of_no_offset, of_offset};

/// From this version on topics are named by their ids.
pub(crate) const VERSION_TOPIC_IDS: i16 = 10;
/// From this version on a group that is not there has its own error.
const VERSION_GROUP_NOT_FOUND: i16 = 9;

/// An offset of the request that is to be kept, and where its answer stands.
struct Accepted {
    place: Place,
    committed: Committed,
    answer: (usize, usize),
}

impl Groups {
    /// Keeps offsets. The error is about all partitions.
    pub(crate) fn commit(
        &mut self,
        turn: &mut GroupTurn<'_>,
        image: &Image,
        version: i16,
        request: &OffsetCommitRequest,
    ) -> Result<OffsetCommitResponse, ErrorCode> {
        let expire_timestamp_ms = match request.retention_time_ms {
            -1 => None,
            retention_ms => Some(turn.now.wall_ms.saturating_add(retention_ms)),
        };
        let allowed = self.may_commit(version, request);
        let mut topics = Vec::new();
        let mut accepted = Vec::new();
        for asked in &request.topics {
            let topic = find_topic(image, version, asked);
            let mut partitions = Vec::new();
            for partition in &asked.partitions {
                let checked = match &topic {
                    Ok(topic) => check_partition(topic, partition),
                    Err(error) => Err(*error),
                };
                let checked = checked.and(allowed).and_then(|()| self.check_metadata(partition));
                if let (Ok(()), Ok(topic)) = (checked, &topic) {
                    let mut committed = read(topic, partition, turn.now.wall_ms);
                    committed.expire_timestamp_ms = expire_timestamp_ms;
                    accepted.push(Accepted {
                        place: (Str::from(&*topic.name), partition.partition_index),
                        committed,
                        answer: (topics.len(), partitions.len()),
                    });
                }
                let error = checked.err().unwrap_or(ErrorCode::NONE);
                partitions.push(answer(partition.partition_index, error));
            }
            topics.push(OffsetCommitResponseTopic {
                name: asked.name.clone(),
                topic_id: asked.topic_id,
                partitions,
                ..Default::default()
            });
        }
        let group_id = own(&request.group_id);
        let mut response = OffsetCommitResponse { topics, ..Default::default() };
        if allowed.is_ok() && !accepted.is_empty() {
            self.heard_of(turn.now.mono, &group_id, &own(&request.member_id));
            self.keep(turn, group_id, accepted, &mut response);
        }
        Ok(response)
    }

    /// Writes what was accepted, together.
    fn keep(
        &mut self,
        turn: &mut GroupTurn<'_>,
        group_id: Str,
        accepted: Vec<Accepted>,
        response: &mut OffsetCommitResponse,
    ) {
        let mut answer = |(topic, partition): (usize, usize), error: ErrorCode| {
            response.topics[topic].partitions[partition].error_code = error;
        };
        let (mut records, mut kept) = (Vec::new(), Vec::new());
        for offset in accepted {
            match of_offset(&group_id, &offset.place, &offset.committed) {
                Ok(record) => {
                    records.push(record);
                    kept.push(offset);
                }
                Err(_) => answer(offset.answer, ErrorCode::OFFSET_METADATA_TOO_LARGE),
            }
        }
        if turn.write(&records).is_err() {
            for offset in kept {
                answer(offset.answer, ErrorCode::UNKNOWN_SERVER_ERROR);
            }
            return;
        }
        if kept.is_empty() {
            return;
        }
        self.groups.entry(group_id.clone()).or_insert_with(|| Group::new(Some(turn.now.wall_ms)));
        for offset in kept {
            self.offsets.put(group_id.clone(), offset.place, offset.committed);
        }
    }

    /// Whether who asks may commit in the group.
    fn may_commit(&self, version: i16, request: &OffsetCommitRequest) -> Result<(), ErrorCode> {
        let generation = request.generation_id_or_member_epoch;
        let Some(group) = self.groups.get(&request.group_id) else {
            let is_foreign = self.unserved.has(&request.group_id);
            return match generation {
                // Someone who manages its partitions itself; the group comes to be.
                ..0 if !is_foreign => Ok(()),
                ..0 => Err(ErrorCode::UNKNOWN_MEMBER_ID),
                _ if version >= VERSION_GROUP_NOT_FOUND => Err(ErrorCode::GROUP_ID_NOT_FOUND),
                _ => Err(ErrorCode::ILLEGAL_GENERATION),
            };
        };
        if generation < 0 && group.state == GroupState::Empty {
            return Ok(());
        }
        let instance_id = request.group_instance_id.as_ref();
        if generation < 0 && request.member_id.is_empty() && instance_id.is_none() {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        group.check_member(&request.member_id, instance_id)?;
        if generation != group.generation {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        if group.state == GroupState::CompletingRebalance {
            return Err(ErrorCode::REBALANCE_IN_PROGRESS);
        }
        Ok(())
    }

    fn check_metadata(&self, partition: &OffsetCommitRequestPartition) -> Result<(), ErrorCode> {
        let metadata = partition.committed_metadata.as_deref().unwrap_or_default();
        let units_max = self.config.offset_metadata_units_max;
        // Only a text with more bytes than that can have more units.
        if metadata.len() > units_max && metadata.encode_utf16().count() > units_max {
            return Err(ErrorCode::OFFSET_METADATA_TOO_LARGE);
        }
        Ok(())
    }

    /// Removes offsets. The error is about the group.
    pub(crate) fn delete_offsets(
        &mut self,
        turn: &mut GroupTurn<'_>,
        image: &Image,
        request: &OffsetDeleteRequest,
    ) -> Result<OffsetDeleteResponse, ErrorCode> {
        self.may_delete_offsets(&request.group_id)?;
        let exists = |name: &str| image.topic_by_name(name).is_some();
        let group_id = own(&request.group_id);
        let mut topics = Vec::new();
        for asked in &request.topics {
            let error = match self.groups.get(&group_id) {
                _ if !exists(&asked.name) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                Some(group) if group.is_subscribed_to(&asked.name) => {
                    ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC
                }
                _ => ErrorCode::NONE,
            };
            let mut partitions = Vec::new();
            for partition in &asked.partitions {
                if !error.is_error() {
                    let place = (own(&asked.name), partition.partition_index);
                    self.remove_offset(turn, &group_id, &place);
                }
                partitions.push(OffsetDeleteResponsePartition {
                    partition_index: partition.partition_index,
                    error_code: error,
                    ..Default::default()
                });
            }
            let name = asked.name.clone();
            topics.push(OffsetDeleteResponseTopic { name, partitions, ..Default::default() });
        }
        Ok(OffsetDeleteResponse { topics, ..Default::default() })
    }

    fn may_delete_offsets(&self, group_id: &str) -> Result<(), ErrorCode> {
        let group = self.groups.get(group_id).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?;
        if group.state != GroupState::Empty && !group.uses_consumer_protocol() {
            return Err(ErrorCode::NON_EMPTY_GROUP);
        }
        Ok(())
    }

    /// Removes an offset if there is one.
    pub(crate) fn remove_offset(&mut self, turn: &mut GroupTurn<'_>, group: &Str, place: &Place) {
        let is_there = self.offsets.of(group).is_some_and(|offsets| offsets.contains_key(place));
        if !is_there && !self.offsets.is_unstable(group, place) {
            return;
        }
        match turn.write(&[of_no_offset(group, place)]) {
            Ok(()) => self.offsets.remove(group, place),
            Err(_) => tracing::warn!(group = %group, topic = %place.0,
                "the end of an offset does not fit into a record"),
        }
    }
}

fn find_topic<'a>(
    image: &'a Image,
    version: i16,
    asked: &OffsetCommitRequestTopic,
) -> Result<&'a Arc<Topic>, ErrorCode> {
    if version >= VERSION_TOPIC_IDS {
        image.topic(asked.topic_id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)
    } else {
        image.topic_by_name(&asked.name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    }
}

fn check_partition(
    topic: &Topic,
    partition: &OffsetCommitRequestPartition,
) -> Result<(), ErrorCode> {
    let found = topic.partition(PartitionIndex(partition.partition_index));
    found.map(|_| ()).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
}

fn read(topic: &Topic, partition: &OffsetCommitRequestPartition, now_ms: i64) -> Committed {
    Committed {
        offset: partition.committed_offset,
        leader_epoch: partition.committed_leader_epoch,
        metadata: partition.committed_metadata.as_ref().map(own).unwrap_or_default(),
        commit_timestamp_ms: now_ms,
        expire_timestamp_ms: None,
        topic_id: topic.id,
        record_offset: RECORD_UNDER_WAY,
    }
}
