//! Metadata: brokers and topics from the image; topics that are missing may be made.

use ::metadata::{Image, Partition, Topic};
use base::{NodeId, PartitionIndex, Token};
use protocol::create_topics_request::CreatableTopic;
use protocol::metadata_request::MetadataRequestTopic;
use protocol::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use protocol::{DecodeError, ErrorCode, MetadataRequest, MetadataResponse, RequestFrame, Str};

use super::creation;
use crate::shard::{Io, Shard};
use crate::topics;

/// Topics that one request may make; the others are made by the client's next one.
const AUTO_CREATED_TOPICS_MAX: usize = 100;

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request = decoded(frame)?;
    let missing = topics_to_create(shard, &request);
    if missing.is_empty() {
        respond(shard, io, call, &request);
    } else {
        creation::create(shard, io, call, frame, missing, |shard, io, call, frame| {
            let request = decoded(frame).expect("it was decoded before");
            respond(shard, io, call, &request);
        });
    }
    Ok(())
}

fn decoded(frame: &RequestFrame) -> Result<MetadataRequest, DecodeError> {
    let mut request: MetadataRequest = frame.body()?;
    if frame.version == 0 && request.topics.as_ref().is_some_and(Vec::is_empty) {
        // The first version has no null: an empty list means all topics.
        request.topics = None;
    }
    Ok(request)
}

fn topics_to_create(shard: &Shard, request: &MetadataRequest) -> Vec<CreatableTopic> {
    let enabled = shard.layers.current().simple.auto_create_topics_enable;
    let Some(view) = &shard.view else { return Vec::new() };
    if !enabled || !request.allow_auto_topic_creation {
        return Vec::new();
    }
    let named = request.topics.iter().flatten().filter_map(|topic| topic.name.as_ref());
    let missing =
        named.filter(|name| topics::is_valid_name(name) && view.image.topic_id(name).is_none());
    let mut missing: Vec<&Str> = missing.collect();
    missing.sort();
    missing.dedup();
    let missing = missing.into_iter().take(AUTO_CREATED_TOPICS_MAX);
    missing.map(|name| shard.new_topic(name)).collect()
}

fn respond(shard: &mut Shard, io: &mut Io<'_>, call: Token, request: &MetadataRequest) {
    let response = response(shard, call, request);
    shard.respond::<MetadataRequest>(io, call, &response);
}

fn response(shard: &Shard, call: Token, request: &MetadataRequest) -> MetadataResponse {
    let mut response = MetadataResponse {
        cluster_id: Some(Str::from(&*shard.setup.cluster_id)),
        ..Default::default()
    };
    let Some(view) = &shard.view else { return response };
    let image = &view.image;
    let listener = shard.listener_of(call);
    response.controller_id = image.controller_for_clients().0;
    for broker in image.alive_brokers() {
        let Some(endpoint) = broker.endpoint(listener) else { continue };
        response.brokers.push(MetadataResponseBroker {
            node_id: broker.id.0,
            host: Str::from(&*endpoint.host),
            port: i32::from(endpoint.port),
            rack: broker.rack.as_deref().map(Str::from),
            ..Default::default()
        });
    }
    response.topics = match &request.topics {
        None => {
            let ids = image.topic_ids().values();
            ids.filter_map(|id| image.topic(*id)).map(|topic| described(image, topic)).collect()
        }
        Some(topics) => topics.iter().map(|topic| answer_for(image, topic)).collect(),
    };
    response
}

fn answer_for(image: &Image, asked: &MetadataRequestTopic) -> MetadataResponseTopic {
    // An id counts where there is one, whatever stands in the name (Java's client sends an empty
    // name with it).
    let name = asked.name.clone().filter(|_| asked.topic_id.is_zero());
    let found = match &name {
        Some(name) => image.topic_by_name(name),
        None => image.topic(asked.topic_id),
    };
    if let Some(topic) = found {
        return described(image, topic);
    }
    let error_code = match &name {
        Some(name) if !topics::is_valid_name(name) => ErrorCode::INVALID_TOPIC_EXCEPTION,
        Some(_) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        None => ErrorCode::UNKNOWN_TOPIC_ID,
    };
    let is_internal = name.as_ref().is_some_and(|name| topics::is_internal(name));
    let topic_id = asked.topic_id;
    MetadataResponseTopic { error_code, name, topic_id, is_internal, ..Default::default() }
}

fn described(image: &Image, topic: &Topic) -> MetadataResponseTopic {
    let partitions = topic.partitions.iter();
    MetadataResponseTopic {
        name: Some(Str::from(&*topic.name)),
        topic_id: topic.id,
        is_internal: topics::is_internal(&topic.name),
        partitions: partitions.map(|(index, one)| row(image, *index, one)).collect(),
        ..Default::default()
    }
}

/// What clients are told of a partition.
pub(crate) fn row(
    image: &Image,
    index: PartitionIndex,
    partition: &Partition,
) -> MetadataResponsePartition {
    let is_alive = |node: &NodeId| image.broker(*node).is_some_and(|broker| !broker.fenced);
    let led = is_alive(&partition.leader);
    let has_directory = |node: &NodeId| {
        let directory = partition.directory_of(*node).unwrap_or_default();
        image.broker(*node).is_some_and(|broker| broker.has_online_directory(directory))
    };
    let is_online = |node: &NodeId| is_alive(node) && has_directory(node);
    let offline = partition.replicas.iter().filter(|replica| !is_online(replica));
    let ids = ::metadata::ids_of;
    MetadataResponsePartition {
        error_code: if led { ErrorCode::NONE } else { ErrorCode::LEADER_NOT_AVAILABLE },
        partition_index: index.0,
        leader_id: if led { partition.leader.0 } else { -1 },
        leader_epoch: partition.leader_epoch.0,
        replica_nodes: ids(&partition.replicas),
        isr_nodes: ids(&partition.isr),
        offline_replicas: offline.map(|replica| replica.0).collect(),
        ..Default::default()
    }
}
