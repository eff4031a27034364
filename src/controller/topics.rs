//! CreateTopics and DeleteTopics (`ReplicationControlManager`, `ControllerApis`).

use std::collections::{BTreeMap, BTreeSet};

use base::{NodeId, PartitionIndex, Random, TopicId, Uuid};
use config::{Layers, Pairs};
use metadata::{
    Image, METADATA_TOPIC, Partition, Topic, VersionedRecord, nodes_of, topic_name_error,
};
use protocol::create_topics_request::CreatableTopic;
use protocol::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use protocol::delete_topics_response::DeletableTopicResult;
use protocol::{
    ConfigRecord, CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest,
    DeleteTopicsResponse, ErrorCode, RemoveTopicRecord, Str, TopicRecord,
};

use crate::assignment::{check_manual, new_partition, place_partitions};
use crate::outcome::{too_many_records, v0, versioned};
use crate::params::{PARTITIONS_PER_REQUEST_MAX, Params, RECORDS_PER_REQUEST_MAX};
use crate::{ApiError, Proposal};

/// What CreateTopics leads to.
pub fn create_topics(
    params: &Params,
    image: &Image,
    random: &mut Random,
    request: &CreateTopicsRequest,
) -> Proposal<CreateTopicsResponse> {
    let names = request.topics.iter().map(|topic| &topic.name);
    let duplicates = repeated(names);
    let is_wanted = |topic: &&CreatableTopic| {
        !duplicates.contains(&&topic.name) && &*topic.name != METADATA_TOPIC
    };
    let wanted: Vec<&CreatableTopic> = request.topics.iter().filter(is_wanted).collect();
    let mut records = Vec::new();
    let mut results = match check_partition_count(params, &wanted) {
        Ok(()) => create_each(params, image, random, &wanted, &mut records),
        Err(error) => wanted.iter().map(|topic| refused(&topic.name, error.clone())).collect(),
    };
    if records.len() > RECORDS_PER_REQUEST_MAX {
        records.clear();
        let error = too_many_records();
        results = wanted.iter().map(|topic| refused(&topic.name, error.clone())).collect();
    }
    for name in duplicates {
        let error = ApiError::new(ErrorCode::INVALID_REQUEST, "Duplicate topic name.");
        results.push(refused(name, error));
    }
    if request.topics.iter().filter(|topic| &*topic.name == METADATA_TOPIC).count() == 1 {
        let message = format!("Creation of internal topic {METADATA_TOPIC} is prohibited.");
        let error = ApiError::new(ErrorCode::INVALID_REQUEST, message);
        results.push(refused(&METADATA_TOPIC.into(), error));
    }
    let response = CreateTopicsResponse { topics: results, ..CreateTopicsResponse::default() };
    if request.validate_only {
        Proposal::nothing(response)
    } else {
        Proposal::new(records, response)
    }
}

fn check_partition_count(params: &Params, topics: &[&CreatableTopic]) -> Result<(), ApiError> {
    let count = |topic: &&&CreatableTopic| match (topic.assignments.len(), topic.num_partitions) {
        (0, -1) => usize::try_from(params.config.simple.num_partitions).unwrap_or(0),
        (0, partitions) => usize::try_from(partitions).unwrap_or(0),
        (assigned, _) => assigned,
    };
    let total = topics.iter().map(|topic| count(&topic)).fold(0_usize, usize::saturating_add);
    if total > PARTITIONS_PER_REQUEST_MAX {
        let message = "Excessively large number of partitions per request.";
        return Err(ApiError::new(ErrorCode::POLICY_VIOLATION, message));
    }
    Ok(())
}

fn create_each(
    params: &Params,
    image: &Image,
    random: &mut Random,
    topics: &[&CreatableTopic],
    records: &mut Vec<VersionedRecord>,
) -> Vec<CreatableTopicResult> {
    let layers = params.layers(image);
    let create = |topic: &&CreatableTopic| {
        let configs = check_new(params, image, topic);
        let created = configs.and_then(|configs| {
            let partitions = new_partitions(params, image, random, topic)?;
            Ok((configs, partitions))
        });
        match created {
            Ok((configs, partitions)) => {
                let id = Uuid::random(random);
                write_topic(image, id, &topic.name, &configs, &partitions, records);
                accepted(&layers, id, topic, &configs, &partitions)
            }
            Err(error) => refused(&topic.name, error),
        }
    };
    topics.iter().map(create).collect()
}

/// Checks everything of a new topic but its partitions, and returns its configuration.
fn check_new(params: &Params, image: &Image, topic: &CreatableTopic) -> Result<Pairs, ApiError> {
    let name = &*topic.name;
    // Of several errors Kafka keeps the one that it finds last.
    if image.topic_id(name).is_some() {
        let message = format!("Topic '{name}' already exists.");
        return Err(ApiError::new(ErrorCode::TOPIC_ALREADY_EXISTS, message));
    }
    if let Some(existing) = image.colliding_topic(name) {
        let message = format!("Topic '{name}' collides with existing topic: {existing}");
        return Err(ApiError::new(ErrorCode::INVALID_TOPIC_EXCEPTION, message));
    }
    if let Some(message) = topic_name_error(name) {
        return Err(ApiError::new(ErrorCode::INVALID_TOPIC_EXCEPTION, message));
    }
    let nulls: Vec<&str> = topic
        .configs
        .iter()
        .filter(|config| config.value.is_none())
        .map(|config| &*config.name)
        .collect();
    if !nulls.is_empty() {
        let message = format!("Null value not supported for topic configs: {}", nulls.join(","));
        return Err(ApiError::new(ErrorCode::INVALID_CONFIG, message));
    }
    let set = topic.configs.iter().filter_map(|config| {
        let value = config.value.as_ref()?;
        Some((config.name.to_string(), value.to_string()))
    });
    let configs: Pairs = set.collect();
    if !configs.is_empty() {
        crate::configs::check_sizes(configs.values())?;
        config::check_new_topic(&params.config, &configs).map_err(crate::configs::refused)?;
    }
    Ok(configs)
}

fn new_partitions(
    params: &Params,
    image: &Image,
    random: &mut Random,
    topic: &CreatableTopic,
) -> Result<Vec<Partition>, ApiError> {
    if !topic.assignments.is_empty() {
        return assigned_partitions(image, topic);
    }
    if topic.replication_factor < -1 || topic.replication_factor == 0 {
        let message = "Replication factor must be larger than 0, or -1 to use the default value.";
        return Err(ApiError::new(ErrorCode::INVALID_REPLICATION_FACTOR, message));
    }
    if topic.num_partitions < -1 || topic.num_partitions == 0 {
        let message = "Number of partitions was set to an invalid non-positive value.";
        return Err(ApiError::new(ErrorCode::INVALID_PARTITIONS, message));
    }
    let settings = &params.config.simple;
    let count = match topic.num_partitions {
        -1 => settings.num_partitions,
        count => count,
    };
    let replication_factor = match topic.replication_factor {
        -1 => i16::try_from(settings.default_replication_factor).unwrap_or(i16::MAX),
        factor => factor,
    };
    let count = usize::try_from(count).expect("it was checked to be positive");
    let placed = place_partitions(image, random, count, replication_factor);
    placed.map_err(|error| error.of_replication(replication_factor))
}

fn assigned_partitions(image: &Image, topic: &CreatableTopic) -> Result<Vec<Partition>, ApiError> {
    let other = |field: &str| {
        let message =
            format!("A manual partition assignment was specified, but {field} was not set to -1.");
        Err(ApiError::new(ErrorCode::INVALID_REQUEST, message))
    };
    if topic.replication_factor != -1 {
        return other("replication factor");
    }
    if topic.num_partitions != -1 {
        return other("numPartitions");
    }
    let refuse =
        |message: String| Err(ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message));
    let mut partitions: BTreeMap<i32, Partition> = BTreeMap::new();
    let mut replication_factor = None;
    for assignment in &topic.assignments {
        let index = assignment.partition_index;
        if partitions.contains_key(&index) {
            return refuse(format!(
                "Found multiple manual partition assignments for partition {index}"
            ));
        }
        let replicas: Vec<NodeId> = nodes_of(&assignment.broker_ids);
        check_manual(image, &replicas, replication_factor)?;
        replication_factor = Some(replicas.len());
        let Some(partition) = new_partition(image, replicas) else {
            return refuse(nobody_active(index));
        };
        partitions.insert(index, partition);
    }
    if !partitions.keys().zip(0..).all(|(index, expected)| *index == expected) {
        return refuse("partitions should be a consecutive 0-based integer sequence".to_owned());
    }
    Ok(partitions.into_values().collect())
}

/// The message about a manual assignment that names only brokers which cannot lead.
pub(crate) fn nobody_active(index: i32) -> String {
    format!(
        "All brokers specified in the manual partition assignment for partition {index} are \
         fenced or in controlled shutdown."
    )
}

/// One topic is one run of records: the topic, its configuration, its partitions.
fn write_topic(
    image: &Image,
    id: TopicId,
    name: &Str,
    configs: &Pairs,
    partitions: &[Partition],
    records: &mut Vec<VersionedRecord>,
) {
    let name: Str = (&**name).into();
    records.push(v0(TopicRecord { name: name.clone(), topic_id: id, ..TopicRecord::default() }));
    for (key, value) in configs {
        records.push(v0(ConfigRecord {
            resource_type: metadata::ResourceType::Topic.code(),
            resource_name: name.clone(),
            name: key.as_str().into(),
            value: Some(value.as_str().into()),
            ..ConfigRecord::default()
        }));
    }
    if configs.contains_key(crate::configs::MIN_ISR) && image.has_elr() {
        records.push(crate::configs::clear_elr(&name));
    }
    let version = image.metadata_version();
    for (partition, index) in partitions.iter().zip(0..) {
        let record = partition.to_record(id, PartitionIndex(index), version.has_directories());
        records.push(versioned(record, version.partition_record()));
    }
}

fn accepted(
    layers: &Layers,
    id: TopicId,
    topic: &CreatableTopic,
    configs: &Pairs,
    partitions: &[Partition],
) -> CreatableTopicResult {
    let described = config::describe_new_topic(layers, configs);
    let configs = described.into_iter().map(|entry| CreatableTopicConfigs {
        name: entry.name.into(),
        value: entry.value.filter(|_| !entry.is_sensitive).map(Into::into),
        read_only: entry.is_read_only,
        config_source: entry.source.protocol_number(),
        is_sensitive: entry.is_sensitive,
        ..CreatableTopicConfigs::default()
    });
    let replicas = partitions.first().map_or(0, |partition| partition.replicas.len());
    CreatableTopicResult {
        name: topic.name.clone(),
        topic_id: id,
        num_partitions: i32::try_from(partitions.len()).expect("it is limited"),
        replication_factor: i16::try_from(replicas).unwrap_or(i16::MAX),
        error_message: None,
        configs: Some(configs.collect()),
        ..CreatableTopicResult::default()
    }
}

fn refused(name: &Str, error: ApiError) -> CreatableTopicResult {
    CreatableTopicResult {
        name: name.clone(),
        error_code: error.code,
        error_message: error.message.map(Into::into),
        ..CreatableTopicResult::default()
    }
}

/// What DeleteTopics leads to; `version` is that of the request.
pub fn delete_topics(
    params: &Params,
    image: &Image,
    request: &DeleteTopicsRequest,
    version: i16,
) -> Proposal<DeleteTopicsResponse> {
    let asked = Asked::of(request);
    let mut results = asked.refused;
    if !params.config.simple.delete_topic_enable {
        let error = if version < 3 {
            ApiError::new(ErrorCode::INVALID_REQUEST, "Topic deletion is disabled.")
        } else {
            ApiError::silent(ErrorCode::TOPIC_DELETION_DISABLED)
        };
        let names = request.topic_names.iter().map(|name| (Some(name), Uuid::ZERO));
        let topics = request.topics.iter().map(|topic| (topic.name.as_ref(), topic.topic_id));
        let all = names.chain(topics).map(|(name, id)| deleted(name, id, Err(error.clone())));
        let responses = all.collect();
        return Proposal::nothing(DeleteTopicsResponse {
            responses,
            ..DeleteTopicsResponse::default()
        });
    }
    let mut records = Vec::new();
    let mut doomed: BTreeMap<TopicId, &Topic> = BTreeMap::new();
    for id in asked.ids {
        match image.topic(id) {
            Some(topic) => drop(doomed.insert(id, topic)),
            None => {
                let error = ApiError::plain(ErrorCode::UNKNOWN_TOPIC_ID);
                results.push(deleted(None, id, Err(error)));
            }
        }
    }
    for name in asked.names {
        let Some(topic) = image.topic_by_name(&name) else {
            let error = ApiError::plain(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
            results.push(deleted(Some(&name), Uuid::ZERO, Err(error)));
            continue;
        };
        if asked.repeated_ids.contains(&topic.id) || doomed.contains_key(&topic.id) {
            doomed.remove(&topic.id);
            let message = "The provided topic name maps to an ID that was already supplied.";
            let error = ApiError::new(ErrorCode::INVALID_REQUEST, message);
            results.push(deleted(Some(&name), topic.id, Err(error)));
        } else {
            doomed.insert(topic.id, topic);
        }
    }
    for (id, topic) in doomed {
        records.push(v0(RemoveTopicRecord { topic_id: id, ..RemoveTopicRecord::default() }));
        results.push(deleted(Some(&(&*topic.name).into()), id, Ok(())));
    }
    let response = DeleteTopicsResponse { responses: results, ..DeleteTopicsResponse::default() };
    Proposal::new(records, response)
}

/// The topics that a DeleteTopics names, each once.
struct Asked {
    names: BTreeSet<Str>,
    ids: BTreeSet<TopicId>,
    repeated_ids: BTreeSet<TopicId>,
    refused: Vec<DeletableTopicResult>,
}

impl Asked {
    fn of(request: &DeleteTopicsRequest) -> Self {
        let refuse = |name: Option<&Str>, id, message: &str| {
            deleted(name, id, Err(ApiError::new(ErrorCode::INVALID_REQUEST, message)))
        };
        let mut refused = Vec::new();
        let (mut names, mut repeated_names) = (BTreeSet::new(), BTreeSet::new());
        let (mut ids, mut repeated_ids) = (BTreeSet::new(), BTreeSet::new());
        let mut add_name = |name: &Str| {
            if !names.insert(name.clone()) {
                repeated_names.insert(name.clone());
            }
        };
        request.topic_names.iter().for_each(&mut add_name);
        for topic in &request.topics {
            match (&topic.name, topic.topic_id) {
                (None, Uuid::ZERO) => {
                    let message = "Neither topic name nor id were specified.";
                    refused.push(refuse(None, Uuid::ZERO, message));
                }
                (None, id) => {
                    if !ids.insert(id) {
                        repeated_ids.insert(id);
                    }
                }
                (Some(name), Uuid::ZERO) => add_name(name),
                (Some(name), id) => {
                    let message = "You may not specify both topic name and topic id.";
                    refused.push(refuse(Some(name), id, message));
                }
            }
        }
        for name in repeated_names {
            names.remove(&name);
            refused.push(refuse(Some(&name), Uuid::ZERO, "Duplicate topic name."));
        }
        for id in &repeated_ids {
            ids.remove(id);
            refused.push(refuse(None, *id, "Duplicate topic id."));
        }
        Self { names, ids, repeated_ids, refused }
    }
}

fn deleted(name: Option<&Str>, id: TopicId, result: Result<(), ApiError>) -> DeletableTopicResult {
    let (error_code, error_message) = crate::outcome::code_and_message(result);
    DeletableTopicResult {
        name: name.cloned(),
        topic_id: id,
        error_code,
        error_message,
        ..DeletableTopicResult::default()
    }
}

/// The names that occur more than once, in the order of their second occurrence.
pub(crate) fn repeated<'a>(names: impl Iterator<Item = &'a Str>) -> Vec<&'a Str> {
    let mut seen = BTreeSet::new();
    let mut again = Vec::new();
    for name in names {
        if !seen.insert(&**name) && !again.contains(&name) {
            again.push(name);
        }
    }
    again
}
