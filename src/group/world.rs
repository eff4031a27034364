//! A coordinator with a log in memory, a clock and clients' replies.

use std::collections::BTreeMap;

use base::{Instant, LeaderEpoch, Now, Offset, Random, Token, Uuid};
use bytes::Bytes;
use metadata::Image;
use protocol::join_group_request::JoinGroupRequestProtocol;
use protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use protocol::sync_group_request::SyncGroupRequestAssignment;
use protocol::{
    ConsumerProtocolSubscription, ErrorCode, GroupRecord, JoinGroupRequest, JoinGroupResponse,
    Message, OffsetCommitRequest, PartitionRecord, Str, SyncGroupRequest, SyncGroupResponse,
    TopicRecord, VersionedRecord,
};

use crate::{GroupCall, GroupConfig, GroupCoordinator, GroupReply, GroupRequest, Output};

pub(crate) const TOPIC: &str = "t";
pub(crate) const TOPIC_ID: Uuid = Uuid([7; 16]);

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) coordinator: GroupCoordinator,
    pub(crate) config: GroupConfig,
    pub(crate) image: Image,
    pub(crate) now_ms: i64,
    pub(crate) log: Vec<u8>,
    pub(crate) end: i64,
    pub(crate) replies: BTreeMap<u64, GroupReply>,
    /// Whether the high watermark stays where it is.
    pub(crate) holds_back: bool,
    tickets: u64,
}

impl World {
    pub(crate) fn new(config: GroupConfig) -> Self {
        let mut image = Image::default();
        let topic = TopicRecord { name: TOPIC.into(), topic_id: TOPIC_ID, ..Default::default() };
        let mut records = vec![VersionedRecord { record: topic.into(), version: 0 }];
        for partition_id in 0..2 {
            let partition = PartitionRecord {
                partition_id,
                topic_id: TOPIC_ID,
                replicas: vec![1],
                isr: vec![1],
                leader: 1,
                directories: vec![Uuid([9; 16])],
                ..Default::default()
            };
            records.push(VersionedRecord { record: partition.into(), version: 2 });
        }
        for record in records {
            image.replay(&record.record).expect("a topic");
        }
        let mut world = Self {
            coordinator: GroupCoordinator::new(config.clone(), Random::new(1)),
            config,
            image,
            now_ms: 1_000_000,
            log: Vec::new(),
            end: 0,
            replies: BTreeMap::new(),
            holds_back: false,
            tickets: 0,
        };
        world.coordinator.loaded(world.now());
        world
    }

    pub(crate) fn now(&self) -> Now {
        let nanos = u64::try_from(self.now_ms).expect("after 1970") * 1_000_000;
        Now { mono: Instant::from_nanos(nanos), wall_ms: self.now_ms }
    }

    /// Loads the log into a new coordinator, which must not make the ids of the former one.
    pub(crate) fn loaded_anew(&self) -> GroupCoordinator {
        let mut coordinator =
            GroupCoordinator::new(self.config.clone(), Random::new(1 + self.tickets));
        let next = coordinator.load(self.log.clone().into()).expect("our own log");
        assert_eq!(next, Offset(self.end));
        coordinator.loaded(self.now());
        coordinator
    }

    pub(crate) fn restart(&mut self) {
        self.coordinator.unload(self.now());
        self.pump();
        self.coordinator = self.loaded_anew();
    }

    pub(crate) fn send(&mut self, version: i16, request: GroupRequest) -> u64 {
        self.tickets += 1;
        let call = GroupCall {
            client_id: "client".into(),
            client_host: "/127.0.0.1".into(),
            version,
            request,
        };
        let ticket = Token::from_bits(self.tickets);
        self.coordinator.handle(self.now(), &self.image, call, ticket);
        self.pump();
        self.tickets
    }

    pub(crate) fn sent(&self) -> u64 {
        self.tickets
    }

    pub(crate) fn pump(&mut self) {
        loop {
            let mut outputs = Vec::new();
            self.coordinator.end_of_turn(&mut outputs);
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                match output {
                    Output::Append { batch } => self.append(&batch),
                    Output::Reply { ticket, reply } => {
                        let former = self.replies.insert(ticket.to_bits(), reply);
                        assert!(former.is_none(), "a ticket is answered once");
                    }
                    Output::Reload => panic!("no append fails here"),
                }
            }
        }
    }

    fn append(&mut self, batch: &Bytes) {
        let batch = records::Batch::read(batch).unwrap().expect("whole");
        let header = batch.stamp(&records::Stamp {
            base_offset: Offset(self.end),
            leader_epoch: LeaderEpoch(0),
            max_timestamp: records::MaxTimestamp::Keep,
        });
        self.log.extend_from_slice(&header);
        self.log.extend_from_slice(&batch.record_bytes());
        self.end += i64::from(batch.header().record_count);
        self.coordinator.appended(self.now(), Ok(Offset(self.end - 1)));
        if !self.holds_back {
            self.coordinator.high_watermark(Offset(self.end));
        }
    }

    pub(crate) fn commit_all(&mut self) {
        self.holds_back = false;
        self.coordinator.high_watermark(Offset(self.end));
        self.pump();
    }

    /// Lets time pass, waking the coordinator when it asked for it.
    pub(crate) fn pass(&mut self, ms: i64) {
        let until = self.now_ms + ms;
        while let Some(at) = self.coordinator.next_timer() {
            let at_ms = i64::try_from(at.as_nanos().div_ceil(1_000_000)).expect("soon");
            if at_ms > until {
                break;
            }
            self.now_ms = self.now_ms.max(at_ms);
            self.coordinator.on_timer(self.now());
            self.pump();
        }
        self.now_ms = until;
    }

    pub(crate) fn reply(&mut self, ticket: u64) -> GroupReply {
        self.replies.remove(&ticket).expect("an answer")
    }

    pub(crate) fn ask(&mut self, version: i16, request: GroupRequest) -> GroupReply {
        let ticket = self.send(version, request);
        self.reply(ticket)
    }

    pub(crate) fn joined(&mut self, ticket: u64) -> JoinGroupResponse {
        match self.reply(ticket) {
            GroupReply::Join(reply) => reply,
            other => panic!("{other:?} is no answer to a join"),
        }
    }

    pub(crate) fn synced(&mut self, ticket: u64) -> SyncGroupResponse {
        match self.reply(ticket) {
            GroupReply::Sync(reply) => reply,
            other => panic!("{other:?} is no answer to a sync"),
        }
    }

    /// Joins without an id and then with the one that was given.
    pub(crate) fn enter(&mut self, group: &str) -> (Str, u64) {
        let ticket = self.send(9, join(group, "", None));
        let reply = self.joined(ticket);
        assert_eq!(reply.error_code, ErrorCode::MEMBER_ID_REQUIRED);
        let id = reply.member_id;
        let ticket = self.send(9, join(group, &id, None));
        (id, ticket)
    }

    /// Brings a group with one member to Stable: its id.
    pub(crate) fn stable(&mut self, group: &str) -> Str {
        let (id, ticket) = self.enter(group);
        self.pass(10_000);
        let reply = self.joined(ticket);
        assert_eq!((reply.error_code, &reply.leader), (ErrorCode::NONE, &id));
        let ticket = self.send(5, sync(group, &id, reply.generation_id, &[(&id, "all")]));
        assert_eq!(self.synced(ticket).assignment, "all");
        id
    }

    /// Every record of the log: kind, version of the value, and what it says.
    pub(crate) fn records(&self) -> Vec<(i16, Option<i16>, GroupRecord)> {
        records_in(&self.log)
    }
}

pub(crate) fn records_in(log: &[u8]) -> Vec<(i16, Option<i16>, GroupRecord)> {
    let mut all = Vec::new();
    for batch in records::Batches::new(Bytes::copy_from_slice(log)) {
        let mut reader = batch.unwrap().records(1 << 20).unwrap();
        while let Some(record) = reader.next_record().unwrap() {
            let key = Bytes::copy_from_slice(record.key.unwrap());
            let value = record.value.map(Bytes::copy_from_slice);
            let version = value.as_ref().map(|value| i16::from_be_bytes([value[0], value[1]]));
            let record = GroupRecord::decode(&key, value.as_ref()).unwrap();
            all.push((record.kind(), version, record));
        }
    }
    all
}

pub(crate) fn subscription(topics: &[&str]) -> Bytes {
    let subscription = ConsumerProtocolSubscription {
        topics: topics.iter().map(|topic| Str::from(*topic)).collect(),
        ..Default::default()
    };
    subscription.to_bytes_after(&[0, 0], 0).unwrap()
}

pub(crate) fn join_request(group: &str, member: &str, instance: Option<&str>) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: group.into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 20_000,
        member_id: member.into(),
        group_instance_id: instance.map(Str::from),
        protocol_type: "consumer".into(),
        protocols: protocols(&["range", "sticky"]),
        ..Default::default()
    }
}

pub(crate) fn protocols(names: &[&str]) -> Vec<JoinGroupRequestProtocol> {
    let protocol = |name: &&str| JoinGroupRequestProtocol {
        name: Str::from(*name),
        metadata: subscription(&[TOPIC]),
        ..Default::default()
    };
    names.iter().map(protocol).collect()
}

pub(crate) fn join(group: &str, member: &str, instance: Option<&str>) -> GroupRequest {
    GroupRequest::Join(join_request(group, member, instance))
}

pub(crate) fn sync(
    group: &str,
    member: &str,
    generation_id: i32,
    assignments: &[(&str, &str)],
) -> GroupRequest {
    let assignment = |(member, assignment): &(&str, &str)| SyncGroupRequestAssignment {
        member_id: Str::from(*member),
        assignment: Bytes::copy_from_slice(assignment.as_bytes()),
        ..Default::default()
    };
    GroupRequest::Sync(SyncGroupRequest {
        group_id: group.into(),
        generation_id,
        member_id: member.into(),
        assignments: assignments.iter().map(assignment).collect(),
        ..Default::default()
    })
}

pub(crate) fn commit_request(
    group: &str,
    member: &str,
    generation: i32,
    offsets: &[(&str, i32, i64)],
) -> OffsetCommitRequest {
    let topic = |(topic, partition, offset): &(&str, i32, i64)| OffsetCommitRequestTopic {
        name: Str::from(*topic),
        topic_id: if *topic == TOPIC { TOPIC_ID } else { Uuid([1; 16]) },
        partitions: vec![OffsetCommitRequestPartition {
            partition_index: *partition,
            committed_offset: *offset,
            committed_metadata: Some("m".into()),
            ..Default::default()
        }],
        ..Default::default()
    };
    OffsetCommitRequest {
        group_id: group.into(),
        member_id: member.into(),
        generation_id_or_member_epoch: generation,
        topics: offsets.iter().map(topic).collect(),
        ..Default::default()
    }
}

pub(crate) fn commit(
    group: &str,
    member: &str,
    generation: i32,
    offsets: &[(&str, i32, i64)],
) -> GroupRequest {
    GroupRequest::Commit(commit_request(group, member, generation, offsets))
}

/// What must be equal after a restart: a group as text.
pub(crate) fn shown(coordinator: &GroupCoordinator, group: &str) -> Option<String> {
    let groups = coordinator.groups();
    let offsets: Vec<_> = groups
        .offsets
        .of(group)
        .into_iter()
        .flatten()
        .map(|(place, own)| (place, own.offset, &own.metadata, own.commit_timestamp_ms))
        .collect();
    let group = groups.groups.get(group)?;
    let protocol = group.protocol_name.clone().unwrap_or_default();
    let members: Vec<_> = group
        .members()
        .iter()
        .map(|(id, own)| {
            let timeouts = (own.session_timeout_ms, own.rebalance_timeout_ms);
            (id, &own.instance_id, timeouts, own.metadata(&protocol), own.assignment.clone())
        })
        .collect();
    Some(format!(
        "{:?} {} {:?} {:?} {:?} {:?} {members:?} {offsets:?}",
        group.state,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader,
        group.subscribed
    ))
}
