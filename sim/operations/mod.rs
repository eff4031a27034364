//! What clients do, a file for each operation: `sample` draws one that fits what is known,
//! `predict` notes what its answer must not contradict, `build` makes the frame, `classify` judges
//! the answer and takes down what it says.

mod api_versions;
mod create_topic;
mod delete_records;
mod delete_topic;
mod fetch;
mod fetch_session;
pub mod idempotent;
mod list_offsets;
mod membership;
mod metadata;
mod move_replica;
mod offset_commit;
mod offset_fetch;
mod produce;

use std::ops::RangeInclusive;

use base::Random;
use base::wire::{Message, Reader};
use bytes::Bytes;
use protocol::{ErrorCode, Request, ResponseHeader};

pub use api_versions::ApiVersions;
pub use create_topic::CreateTopic;
pub use delete_records::DeleteRecords;
pub use delete_topic::DeleteTopic;
pub use fetch::{Fetch, Positions};
pub use fetch_session::{FetchSession, Session};
pub use idempotent::{IdempotentProduce, InitProducerId};
pub use list_offsets::ListOffsets;
pub use membership::Membership;
pub use metadata::Metadata;
pub use move_replica::MoveReplica;
pub use offset_commit::OffsetCommit;
pub use offset_fetch::OffsetFetch;
pub use produce::Produce;

use crate::history::{History, Place, TopicHistory, Violation, ensure};
use crate::member::{Member, Stage};
use crate::producers::Producer;

/// What a client remembers from answer to answer.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Where it reads.
    pub positions: Positions,
    /// Its idempotent producer.
    pub producer: Producer,
    /// Its fetch session.
    pub session: Option<Session>,
    /// Whether a request of the session is in flight.
    pub session_is_asked: bool,
    /// The member of a group that it is, if it is one.
    pub member: Option<Member>,
}

impl Memory {
    /// That of the `number`th client, which may be a member of a group.
    pub fn new(number: usize, group: Option<usize>) -> Self {
        Self {
            positions: Positions::new(),
            producer: Producer::new(number),
            session: None,
            session_is_asked: false,
            member: group.map(Member::new),
        }
    }

    /// The connection is gone, and with it what was in flight.
    pub fn lost_connection(&mut self) {
        if std::mem::take(&mut self.session_is_asked) {
            // Whether the broker has counted the request is not known.
            self.session = None;
        }
        if let Some(member) = &mut self.member {
            member.lost_connection();
        }
    }
}

/// How often a client fetches in its session, in a thousand operations.
const SESSIONS_PER_THOUSAND: u64 = 150;
/// How often a topic is deleted, in a thousand operations.
const DELETIONS_PER_THOUSAND: u64 = 10;
/// How often records are deleted, in a thousand operations.
const CUTS_PER_THOUSAND: u64 = 20;
/// How often partitions are moved between log directories, in a thousand operations.
const MOVES_PER_THOUSAND: u64 = 20;

/// An operation that was sent.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Asks what the broker speaks.
    ApiVersions(ApiVersions),
    /// Creates a topic.
    CreateTopic(CreateTopic),
    /// Moves the starts of logs.
    DeleteRecords(DeleteRecords),
    /// Deletes a topic.
    DeleteTopic(DeleteTopic),
    /// Appends.
    Produce(Produce),
    /// Asks for the id of an idempotent producer.
    InitProducerId(InitProducerId),
    /// Appends what may come again.
    IdempotentProduce(IdempotentProduce),
    /// Reads.
    Fetch(Fetch),
    /// Reads in a session.
    FetchSession(FetchSession),
    /// Is a member of a group.
    Membership(Membership),
    /// Commits an offset.
    OffsetCommit(OffsetCommit),
    /// Asks for committed offsets.
    OffsetFetch(OffsetFetch),
    /// Asks for the ends of logs.
    ListOffsets(ListOffsets),
    /// Asks for topics.
    Metadata(Metadata),
    /// Moves partitions between log directories.
    MoveReplica(MoveReplica),
}

impl Operation {
    /// Draws an operation of a client whose `connection` it will be sent on.
    pub fn sample(
        random: &mut Random,
        history: &mut History,
        memory: &mut Memory,
        connection: u64,
    ) -> Self {
        if let Some(member) = &memory.member {
            return Self::of_member(random, history, member);
        }
        if history.topics.iter().any(|topic| !topic.exists) && random.chance(30) {
            return Self::CreateTopic(CreateTopic::sample(random, history));
        }
        if history.existing().is_empty() {
            return Self::Metadata(Metadata::sample(random, history));
        }
        if history.is_whole
            && random.below(1_000) < DELETIONS_PER_THOUSAND
            && let Some(delete) = DeleteTopic::sample(random, history)
        {
            return Self::DeleteTopic(delete);
        }
        if history.is_whole && random.below(1_000) < CUTS_PER_THOUSAND {
            return Self::DeleteRecords(DeleteRecords::sample(random, history));
        }
        if history.has_second_directory && random.below(1_000) < MOVES_PER_THOUSAND {
            return Self::MoveReplica(MoveReplica::sample(random, history));
        }
        if history.is_whole
            && !memory.session_is_asked
            && random.below(1_000) < SESSIONS_PER_THOUSAND
            && let Some(fetch) = FetchSession::sample(random, history, memory, connection)
        {
            return Self::FetchSession(fetch);
        }
        match random.below(100) {
            0..50 => Self::Produce(Produce::sample(random, history, connection)),
            50..85 => Self::Fetch(Fetch::sample(random, history, &memory.positions)),
            85..92 => Self::ListOffsets(ListOffsets::sample(random, history)),
            92..97 => Self::Metadata(Metadata::sample(random, history)),
            _ => Self::ApiVersions(ApiVersions::sample(random)),
        }
    }

    /// Draws what a member of a group does next.
    fn of_member(random: &mut Random, history: &mut History, member: &Member) -> Self {
        match &member.stage {
            Stage::Finding => Membership::find(random, history, member.group).into(),
            Stage::Joining => Membership::join(random, history, member).into(),
            Stage::Syncing(plan) => Membership::sync(random, history, member, plan).into(),
            Stage::Stable => match random.below(100) {
                0..2 => Membership::leave(random, history, member).into(),
                2..20 => {
                    let places = history.groups[member.group].places.clone();
                    Self::OffsetFetch(OffsetFetch::new(random, history, member.group, &places))
                }
                20..50 if !member.assigned.is_empty() => {
                    Self::OffsetCommit(OffsetCommit::sample(random, history, member))
                }
                _ => Membership::heartbeat(random, history, member).into(),
            },
        }
    }

    /// The frame of its request.
    pub fn build(&self, correlation_id: i32) -> Bytes {
        match self {
            Self::ApiVersions(operation) => operation.build(correlation_id),
            Self::CreateTopic(operation) => operation.build(correlation_id),
            Self::DeleteRecords(operation) => operation.build(correlation_id),
            Self::DeleteTopic(operation) => operation.build(correlation_id),
            Self::Produce(operation) => operation.build(correlation_id),
            Self::InitProducerId(operation) => operation.build(correlation_id),
            Self::IdempotentProduce(operation) => operation.build(correlation_id),
            Self::Fetch(operation) => operation.build(correlation_id),
            Self::FetchSession(operation) => operation.build(correlation_id),
            Self::Membership(operation) => operation.build(correlation_id),
            Self::OffsetCommit(operation) => operation.build(correlation_id),
            Self::OffsetFetch(operation) => operation.build(correlation_id),
            Self::ListOffsets(operation) => operation.build(correlation_id),
            Self::Metadata(operation) => operation.build(correlation_id),
            Self::MoveReplica(operation) => operation.build(correlation_id),
        }
    }

    /// Whether a reply follows: to a produce request with acks=0 there is none.
    pub fn has_reply(&self) -> bool {
        !matches!(self, Self::Produce(produce) if !produce.has_reply())
    }

    /// Judges the reply, a frame without its length, and takes down what it says.
    pub fn classify(
        &self,
        frame: &Bytes,
        history: &mut History,
        memory: &mut Memory,
    ) -> Result<(), Violation> {
        let member = memory.member.as_mut();
        match self {
            Self::ApiVersions(operation) => operation.classify(frame),
            Self::CreateTopic(operation) => operation.classify(frame, history),
            Self::DeleteRecords(operation) => operation.classify(frame, history),
            Self::DeleteTopic(operation) => operation.classify(frame, history),
            Self::Produce(operation) => operation.classify(frame, history),
            Self::InitProducerId(operation) => {
                operation.classify(frame, history, &mut memory.producer)
            }
            Self::IdempotentProduce(operation) => {
                operation.classify(frame, history, &mut memory.producer)
            }
            Self::Fetch(operation) => operation.classify(frame, history, &mut memory.positions),
            Self::FetchSession(operation) => operation.classify(frame, history, memory),
            Self::Membership(operation) => operation.classify(frame, history, member),
            Self::OffsetCommit(operation) => operation.classify(frame, history, member),
            Self::OffsetFetch(operation) => operation.classify(frame, history),
            Self::ListOffsets(operation) => operation.classify(frame, history),
            Self::Metadata(operation) => operation.classify(frame, history),
            Self::MoveReplica(operation) => operation.classify(frame, history),
        }
    }
}

/// The correlation id of a reply.
pub fn correlation_id(frame: &Bytes) -> Result<i32, Violation> {
    Reader::new(frame.clone()).i32().map_err(|error| unreadable("a reply", &error))
}

/// The frame of a request.
fn frame<R: Request>(correlation_id: i32, version: i16, request: &R) -> Bytes {
    protocol::encode_request(correlation_id, Some("sim".into()), version, request)
        .expect("the workload asks for nothing that the version lacks")
        .into_bytes()
}

/// Reads the whole reply to a request.
fn reply<R: Request>(frame: &Bytes, version: i16) -> Result<R::Response, Violation> {
    let mut reader = Reader::new(frame.clone());
    ResponseHeader::decode(&mut reader, R::API_KEY.response_header_version(version))
        .map_err(|error| unreadable(R::NAME, &error))?;
    let response =
        R::Response::decode(&mut reader, version).map_err(|error| unreadable(R::NAME, &error))?;
    ensure(reader.remaining() == 0, || {
        format!("the reply to {} has {} bytes too many", R::NAME, reader.remaining())
    })?;
    Ok(response)
}

fn unreadable(what: &str, error: &base::wire::DecodeError) -> Violation {
    Violation(format!("the reply to {what} cannot be read: {error}"))
}

fn version(random: &mut Random, versions: RangeInclusive<i16>) -> i16 {
    let count = (versions.end() - versions.start() + 1) as u64;
    versions.start() + random.below(count) as i16
}

/// Judges an error code: while faults last, what a client retries is no surprise.
fn tolerate(history: &mut History, what: &str, code: ErrorCode) -> Result<(), Violation> {
    history.refusals += 1;
    history.last_refusal = format!("{what} was answered with {} ({})", code.name(), code.0);
    let is_passing = code.is_retriable() || code == ErrorCode::KAFKA_STORAGE_ERROR;
    ensure(is_passing && !history.is_calm, || {
        format!("{what} was answered with {} ({})", code.name(), code.0)
    })
}

/// Draws from one to `count_max` different partitions of topics that exist, and whether a request
/// about them may name topics by name and by id. A shard that has not heard yet of a deletion
/// takes the name for the topic that is gone: the next one is only named by its id.
fn sample_partitions(
    random: &mut Random,
    history: &History,
    count_max: u64,
) -> (Vec<Place>, Naming) {
    let mut chosen = sample_places(random, history, count_max, |topic| {
        topic.incarnation == 0 || topic.id.is_some()
    });
    let has_id = |place: &Place| history.topics[place.0].id.is_some();
    let by_name = chosen.iter().all(|place| history.topics[place.0].incarnation == 0);
    if !by_name {
        chosen.retain(has_id);
    }
    let naming = match (by_name, chosen.iter().all(has_id)) {
        (true, true) => Naming::Both,
        (true, false) => Naming::ByName,
        (false, _) => Naming::ById,
    };
    (chosen, naming)
}

fn sample_places(
    random: &mut Random,
    history: &History,
    count_max: u64,
    fits: impl Fn(&TopicHistory) -> bool,
) -> Vec<Place> {
    let topics = history.existing().into_iter();
    let topics = topics.filter(|&topic| fits(&history.topics[topic]));
    let mut all: Vec<Place> = topics
        .flat_map(|topic| {
            (0..history.topics[topic].partitions.len()).map(move |partition| (topic, partition))
        })
        .collect();
    let count = (1 + random.below(count_max)).min(all.len() as u64);
    let mut chosen: Vec<Place> =
        (0..count).map(|_| all.swap_remove(random.below(all.len() as u64) as usize)).collect();
    chosen.sort_unstable();
    chosen
}

/// How a request may name its topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Naming {
    ByName,
    ById,
    Both,
}

impl Naming {
    /// Draws a version of a request that names topics by name up to `last_by_name`, by id from the
    /// next one on.
    fn version(self, random: &mut Random, all: RangeInclusive<i16>, last_by_name: i16) -> i16 {
        let first_by_id = last_by_name + 1;
        match self {
            Self::ByName => version(random, *all.start()..=last_by_name),
            Self::ById => version(random, first_by_id..=*all.end()),
            Self::Both => version(random, all),
        }
    }
}

/// Groups partitions by their topic, in order.
fn by_topic<T>(partitions: Vec<(Place, T)>) -> Vec<(usize, Vec<(usize, T)>)> {
    let mut topics: Vec<(usize, Vec<(usize, T)>)> = Vec::new();
    for ((topic, partition), what) in partitions {
        match topics.last_mut() {
            Some((last, list)) if *last == topic => list.push((partition, what)),
            _ => topics.push((topic, vec![(partition, what)])),
        }
    }
    topics
}
