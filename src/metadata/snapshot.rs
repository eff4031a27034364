//! The records that make an image anew: what a snapshot holds.

use std::sync::Arc;

use base::TopicId;
use protocol::client_quota_record::EntityData;
use protocol::{
    AccessControlEntryRecord, ClientQuotaRecord, ConfigRecord, DelegationTokenRecord,
    FeatureLevelRecord, ProducerIdsRecord, TopicRecord, UserScramCredentialRecord,
};

use crate::{
    Configs, Image, METADATA_VERSION, Record, Resource, SharedMap, Topic, VersionedRecord,
};

/// About how many records one portion has: what is encoded within one turn of a core.
const PORTION: usize = 1_000;

/// The records whose replay onto an empty image gives this one, provenance aside, in the order of
/// Kafka's snapshots (`MetadataImage.write`); in portions, so that whoever writes those of many
/// partitions can do other things in between.
///
/// A portion has about 1,000 records; a topic's stay together, and so do those of each kind that
/// is not a topic or a configuration.
#[derive(Clone, Debug)]
pub struct ImageRecords {
    image: Arc<Image>,
    next: Section,
}

/// Where in the order the next portion begins; topics and configurations behind the last one that
/// was written.
#[derive(Clone, Debug)]
enum Section {
    Features,
    Cluster,
    Topics(Option<TopicId>),
    Configs(Option<Resource>),
    Others,
    Done,
}

impl ImageRecords {
    /// From the first record on.
    pub fn new(image: Arc<Image>) -> Self {
        Self { image, next: Section::Features }
    }
}

impl Iterator for ImageRecords {
    type Item = Vec<VersionedRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut records = Vec::new();
        let image = &self.image;
        while records.len() < PORTION {
            self.next = match &self.next {
                Section::Features => {
                    image.write_features(&mut records);
                    Section::Cluster
                }
                Section::Cluster => {
                    image.write_cluster(&mut records);
                    Section::Topics(None)
                }
                Section::Topics(last) => match after(&image.topics, last.as_ref()) {
                    Some((id, topic)) => {
                        image.write_topic(topic, &mut records);
                        Section::Topics(Some(*id))
                    }
                    None => Section::Configs(None),
                },
                Section::Configs(last) => match after(&image.configs, last.as_ref()) {
                    Some((resource, configs)) => {
                        write_configs(resource, configs, &mut records);
                        Section::Configs(Some(resource.clone()))
                    }
                    None => Section::Others,
                },
                Section::Others => {
                    image.write_quotas(&mut records);
                    image.write_producer_ids(&mut records);
                    image.write_security(&mut records);
                    Section::Done
                }
                Section::Done => break,
            };
        }
        (!records.is_empty()).then_some(records)
    }
}

/// The entry behind that of `last`, or the first one.
fn after<'a, K: Ord + Clone, V: Clone>(
    map: &'a SharedMap<K, V>,
    last: Option<&K>,
) -> Option<(&'a K, &'a V)> {
    match last {
        None => map.iter().next(),
        Some(last) => map.range_from(last).find(|(key, _)| *key != last),
    }
}

impl Image {
    fn write_features(&self, records: &mut Vec<VersionedRecord>) {
        // The metadata.version stands first: it says how the rest is to be read.
        let (mut features, others): (Vec<_>, Vec<_>) =
            self.features.iter().partition(|(name, _)| &***name == METADATA_VERSION);
        features.extend(others);
        for (name, level) in features {
            records.push(v0(FeatureLevelRecord {
                name: (&**name).into(),
                feature_level: *level,
                ..FeatureLevelRecord::default()
            }));
        }
    }

    fn write_cluster(&self, records: &mut Vec<VersionedRecord>) {
        let version = self.metadata_version().register_broker_record();
        for broker in self.brokers.values() {
            records.push(versioned(broker.to_record(), version));
        }
        for controller in self.controllers.values() {
            records.push(v0(controller.to_record()));
        }
    }

    fn write_topic(&self, topic: &Topic, records: &mut Vec<VersionedRecord>) {
        let version = self.metadata_version();
        records.push(v0(TopicRecord {
            name: (&*topic.name).into(),
            topic_id: topic.id,
            ..TopicRecord::default()
        }));
        for (index, partition) in topic.partitions.iter() {
            let record = partition.to_record(topic.id, *index, version.has_directories());
            records.push(versioned(record, version.partition_record()));
        }
    }

    fn write_producer_ids(&self, records: &mut Vec<VersionedRecord>) {
        if self.next_producer_id.0 > 0 {
            records.push(v0(ProducerIdsRecord {
                broker_id: -1,
                broker_epoch: -1,
                next_producer_id: self.next_producer_id.0,
                ..ProducerIdsRecord::default()
            }));
        }
    }

    fn write_quotas(&self, records: &mut Vec<VersionedRecord>) {
        for (entity, quotas) in self.quotas.iter() {
            let parts = entity.0.iter().map(|(entity_type, name)| EntityData {
                entity_type: (&**entity_type).into(),
                entity_name: name.as_deref().map(Into::into),
                ..EntityData::default()
            });
            let parts: Vec<EntityData> = parts.collect();
            for (key, value) in quotas.iter() {
                records.push(v0(ClientQuotaRecord {
                    entity: parts.clone(),
                    key: (&**key).into(),
                    value: *value,
                    remove: false,
                    ..ClientQuotaRecord::default()
                }));
            }
        }
    }

    fn write_security(&self, records: &mut Vec<VersionedRecord>) {
        for acl in self.acls.values() {
            records.push(v0(AccessControlEntryRecord {
                id: acl.id,
                resource_type: acl.resource_type,
                resource_name: (&*acl.resource_name).into(),
                pattern_type: acl.pattern_type,
                principal: (&*acl.principal).into(),
                host: (&*acl.host).into(),
                operation: acl.operation,
                permission_type: acl.permission_type,
                ..AccessControlEntryRecord::default()
            }));
        }
        for (user, credential) in self.credentials.iter() {
            records.push(v0(UserScramCredentialRecord {
                name: (&*user.name).into(),
                mechanism: user.mechanism,
                salt: credential.salt.clone(),
                stored_key: credential.stored_key.clone(),
                server_key: credential.server_key.clone(),
                iterations: credential.iterations,
                ..UserScramCredentialRecord::default()
            }));
        }
        for token in self.tokens.values() {
            records.push(v0(DelegationTokenRecord {
                owner: (&*token.owner).into(),
                requester: (&*token.requester).into(),
                renewers: token.renewers.iter().map(|renewer| (&**renewer).into()).collect(),
                issue_timestamp: token.issue_timestamp,
                max_timestamp: token.max_timestamp,
                expiration_timestamp: token.expiration_timestamp,
                token_id: (&*token.token_id).into(),
                ..DelegationTokenRecord::default()
            }));
        }
    }
}

fn write_configs(resource: &Resource, configs: &Configs, records: &mut Vec<VersionedRecord>) {
    for (name, value) in configs.iter() {
        records.push(v0(ConfigRecord {
            resource_type: resource.resource_type.code(),
            resource_name: (&*resource.name).into(),
            name: (&**name).into(),
            value: Some((&**value).into()),
            ..ConfigRecord::default()
        }));
    }
}

/// A record in the first version of its schema.
fn v0(record: impl Into<Record>) -> VersionedRecord {
    versioned(record, 0)
}

fn versioned(record: impl Into<Record>, version: i16) -> VersionedRecord {
    VersionedRecord { record: record.into(), version }
}
