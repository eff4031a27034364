//! OffsetCommit: one partition of a member, sometimes of a generation that is over.

use base::Random;
use bytes::Bytes;
use protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use protocol::{ErrorCode, OffsetCommitRequest};

use super::membership::heed;
use super::{frame, reply, version};
use crate::history::{History, Life, Place, Violation};
use crate::member::Member;

/// One request.
#[derive(Clone, Debug)]
pub struct OffsetCommit {
    group: usize,
    version: i16,
    place: Place,
    /// Names the commit, in its metadata.
    number: u64,
    life: Life,
    request: OffsetCommitRequest,
}

impl OffsetCommit {
    /// Draws one of the member's partitions; the commit is taken down as sent.
    pub fn sample(random: &mut Random, history: &mut History, member: &Member) -> Self {
        let place = member.assigned[random.below(member.assigned.len() as u64) as usize];
        let number = history.tick();
        let offset = random.below(1_000) as i64;
        let life = history.life;
        let commits = history.groups[member.group].commits.entry(place).or_default();
        commits.sent(number, offset, number, life);
        let partition = OffsetCommitRequestPartition {
            partition_index: place.1 as i32,
            committed_offset: offset,
            committed_metadata: Some(number.to_string().into()),
            ..Default::default()
        };
        let topic = OffsetCommitRequestTopic {
            name: history.topics[place.0].name.as_str().into(),
            partitions: vec![partition],
            ..Default::default()
        };
        let is_late = random.chance(10);
        let request = OffsetCommitRequest {
            group_id: history.groups[member.group].name.as_str().into(),
            generation_id_or_member_epoch: member.generation - i32::from(is_late),
            member_id: member.id.clone(),
            topics: vec![topic],
            ..Default::default()
        };
        let version = version(random, 2..=9);
        Self { group: member.group, version, place, number, life, request }
    }

    /// The frame of the request.
    pub fn build(&self, correlation_id: i32) -> Bytes {
        frame(correlation_id, self.version, &self.request)
    }

    /// Judges the reply, and takes down whether the commit is made.
    pub fn classify(
        &self,
        bytes: &Bytes,
        history: &mut History,
        member: Option<&mut Member>,
    ) -> Result<(), Violation> {
        let response = reply::<OffsetCommitRequest>(bytes, self.version)?;
        let topic = response.topics.first().and_then(|topic| topic.partitions.first());
        let Some(code) = topic.map(|partition| partition.error_code) else {
            return Err(Violation(format!("one offset was committed, and answered: {response:?}")));
        };
        let now = history.tick();
        let commits = history.groups[self.group].commits.entry(self.place).or_default();
        match code {
            ErrorCode::NONE => {
                commits.acknowledged(self.number, now, self.life);
                history.counts.commits += 1;
            }
            ErrorCode::ILLEGAL_GENERATION
            | ErrorCode::UNKNOWN_MEMBER_ID
            | ErrorCode::GROUP_ID_NOT_FOUND
            | ErrorCode::REBALANCE_IN_PROGRESS => commits.refused(self.number),
            _ => {}
        }
        match member {
            Some(member) => heed(history, member, "OffsetCommit", code),
            None => Ok(()),
        }
    }
}
