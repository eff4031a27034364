//! What clients do, a file for each operation: `sample` draws one that fits what is known,
//! `predict` notes what its answer must not contradict, `build` makes the frame, `classify` judges
//! the answer and takes down what it says.

mod api_versions;
mod create_topic;
mod fetch;
pub mod idempotent;
mod list_offsets;
mod metadata;
mod produce;

use std::ops::RangeInclusive;

use base::Random;
use base::wire::{Message, Reader};
use bytes::Bytes;
use protocol::{ErrorCode, Request, ResponseHeader};

pub use api_versions::ApiVersions;
pub use create_topic::CreateTopic;
pub use fetch::{Fetch, Positions};
pub use idempotent::{IdempotentProduce, InitProducerId};
pub use list_offsets::ListOffsets;
pub use metadata::Metadata;
pub use produce::Produce;

use crate::history::{History, Violation, ensure};
use crate::producers::Producer;

/// An operation that was sent.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Asks what the broker speaks.
    ApiVersions(ApiVersions),
    /// Creates a topic.
    CreateTopic(CreateTopic),
    /// Appends.
    Produce(Produce),
    /// Asks for the id of an idempotent producer.
    InitProducerId(InitProducerId),
    /// Appends what may come again.
    IdempotentProduce(IdempotentProduce),
    /// Reads.
    Fetch(Fetch),
    /// Asks for the ends of logs.
    ListOffsets(ListOffsets),
    /// Asks for topics.
    Metadata(Metadata),
}

impl Operation {
    /// Draws an operation of a client whose `connection` it will be sent on.
    pub fn sample(
        random: &mut Random,
        history: &mut History,
        positions: &Positions,
        connection: u64,
    ) -> Self {
        if history.topics.iter().any(|topic| !topic.exists) && random.chance(30) {
            return Self::CreateTopic(CreateTopic::sample(random, history));
        }
        if history.existing().is_empty() {
            return Self::Metadata(Metadata::sample(random, history));
        }
        match random.below(100) {
            0..50 => Self::Produce(Produce::sample(random, history, connection)),
            50..85 => Self::Fetch(Fetch::sample(random, history, positions)),
            85..92 => Self::ListOffsets(ListOffsets::sample(random, history)),
            92..97 => Self::Metadata(Metadata::sample(random, history)),
            _ => Self::ApiVersions(ApiVersions::sample(random)),
        }
    }

    /// The frame of its request.
    pub fn build(&self, correlation_id: i32) -> Bytes {
        match self {
            Self::ApiVersions(operation) => operation.build(correlation_id),
            Self::CreateTopic(operation) => operation.build(correlation_id),
            Self::Produce(operation) => operation.build(correlation_id),
            Self::InitProducerId(operation) => operation.build(correlation_id),
            Self::IdempotentProduce(operation) => operation.build(correlation_id),
            Self::Fetch(operation) => operation.build(correlation_id),
            Self::ListOffsets(operation) => operation.build(correlation_id),
            Self::Metadata(operation) => operation.build(correlation_id),
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
        positions: &mut Positions,
        producer: &mut Producer,
    ) -> Result<(), Violation> {
        match self {
            Self::ApiVersions(operation) => operation.classify(frame),
            Self::CreateTopic(operation) => operation.classify(frame, history),
            Self::Produce(operation) => operation.classify(frame, history),
            Self::InitProducerId(operation) => operation.classify(frame, history, producer),
            Self::IdempotentProduce(operation) => operation.classify(frame, history, producer),
            Self::Fetch(operation) => operation.classify(frame, history, positions),
            Self::ListOffsets(operation) => operation.classify(frame, history),
            Self::Metadata(operation) => operation.classify(frame, history),
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

/// Draws from one to `count_max` different partitions of topics that exist.
fn sample_partitions(
    random: &mut Random,
    history: &History,
    count_max: u64,
) -> Vec<crate::history::Place> {
    let mut all: Vec<_> = history
        .existing()
        .into_iter()
        .flat_map(|topic| {
            (0..history.topics[topic].partitions.len()).map(move |partition| (topic, partition))
        })
        .collect();
    let count = (1 + random.below(count_max)).min(all.len() as u64);
    let mut chosen: Vec<_> =
        (0..count).map(|_| all.swap_remove(random.below(all.len() as u64) as usize)).collect();
    chosen.sort_unstable();
    chosen
}

/// Groups partitions by their topic, in order.
fn by_topic<T>(partitions: Vec<(crate::history::Place, T)>) -> Vec<(usize, Vec<(usize, T)>)> {
    let mut topics: Vec<(usize, Vec<(usize, T)>)> = Vec::new();
    for ((topic, partition), what) in partitions {
        match topics.last_mut() {
            Some((last, list)) if *last == topic => list.push((partition, what)),
            _ => topics.push((topic, vec![(partition, what)])),
        }
    }
    topics
}
