//! How a record changes an image: the same on the leader, the standby and the broker.

use std::sync::Arc;

use base::{NodeId, PartitionIndex, ProducerId, TopicId};
use protocol::{
    AccessControlEntryRecord, BrokerRegistrationChangeRecord, ClearElrRecord, ClientQuotaRecord,
    ConfigRecord, DelegationTokenRecord, FeatureLevelRecord, PartitionChangeRecord,
    PartitionRecord, ProducerIdsRecord, RegisterBrokerRecord, RemoveTopicRecord, TopicRecord,
    UnregisterBrokerRecord, UserScramCredentialRecord,
};

use crate::image::unified_name;
use crate::security::{Acl, DelegationToken, QuotaEntity, ScramCredential, ScramUser};
use crate::{Broker, Controller, Image, METADATA_VERSION, MetadataVersion, Partition, Record};
use crate::{Resource, ResourceType, Topic};

/// A record that does not fit what was replayed before it: the log is broken, or was written by
/// software of another time. A node that meets one must not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// A topic that is there already.
    #[error("a TopicRecord names the topic {name} with the id {topic}, one of which exists")]
    DuplicateTopic {
        /// The name.
        name: Arc<str>,
        /// The id.
        topic: TopicId,
    },
    /// A partition of a topic that is not there.
    #[error("a {record} names the topic {topic}, which does not exist")]
    UnknownTopic {
        /// The record's name.
        record: &'static str,
        /// The topic.
        topic: TopicId,
    },
    /// A change of a partition that is not there.
    #[error("a PartitionChangeRecord names partition {topic}-{partition}, which does not exist")]
    UnknownPartition {
        /// The topic.
        topic: TopicId,
        /// The partition.
        partition: PartitionIndex,
    },
    /// A change of a broker that is not registered.
    #[error("a {record} names the broker {broker}, which is not registered")]
    UnknownBroker {
        /// The record's name.
        record: &'static str,
        /// The broker.
        broker: NodeId,
    },
    /// A change of another registration of the broker.
    #[error(
        "a {record} names epoch {epoch} of broker {broker}, which is registered at {registered}"
    )]
    BrokerEpoch {
        /// The record's name.
        record: &'static str,
        /// The broker.
        broker: NodeId,
        /// The record's epoch.
        epoch: i64,
        /// The broker's.
        registered: i64,
    },
    /// A metadata.version that this software does not know.
    #[error(
        "the metadata.version is {level}, but only {min} to {max} are known here: the log was \
         written by newer software",
        min = MetadataVersion::MINIMUM.level(), max = MetadataVersion::LATEST.level()
    )]
    MetadataVersion {
        /// The level.
        level: i16,
    },
    /// A configuration of an unknown kind of resource.
    #[error("a ConfigRecord names the resource type {code}, which is unknown")]
    ResourceType {
        /// The number.
        code: i8,
    },
    /// Producer ids that were given out before.
    #[error("a ProducerIdsRecord goes back from {from} to {to}")]
    ProducerIds {
        /// The next id before it.
        from: ProducerId,
        /// The next id that it says.
        to: ProducerId,
    },
}

impl Image {
    /// Changes the image by one record.
    ///
    /// What brackets a transaction changes nothing here: see [`crate::Timeline`].
    ///
    /// # Errors
    /// If the record cannot follow what was replayed before; the image is as it was then.
    pub fn replay(&mut self, record: &Record) -> Result<(), ReplayError> {
        match record {
            Record::RegisterBroker(record) => self.replay_register_broker(record),
            Record::UnregisterBroker(record) => self.replay_unregister_broker(record),
            Record::BrokerRegistrationChange(record) => self.replay_broker_change(record),
            Record::FenceBroker(record) => {
                self.change_broker("FenceBrokerRecord", record.id, record.epoch, |broker| {
                    broker.fenced = true;
                })
            }
            Record::UnfenceBroker(record) => {
                self.change_broker("UnfenceBrokerRecord", record.id, record.epoch, |broker| {
                    broker.fenced = false;
                })
            }
            Record::RegisterController(record) => {
                let controller = Controller::of_record(record);
                self.controllers.insert(controller.id, Arc::new(controller));
                Ok(())
            }
            Record::UnregisterController(record) => {
                self.controllers.remove(&NodeId(record.controller_id));
                Ok(())
            }
            Record::Topic(record) => self.replay_topic(record),
            Record::RemoveTopic(record) => self.replay_remove_topic(record),
            Record::Partition(record) => self.replay_partition(record),
            Record::PartitionChange(record) => self.replay_partition_change(record),
            Record::ClearElr(record) => self.replay_clear_elr(record),
            Record::Config(record) => self.replay_config(record),
            Record::FeatureLevel(record) => self.replay_feature_level(record),
            Record::ProducerIds(record) => self.replay_producer_ids(record),
            Record::ClientQuota(record) => self.replay_client_quota(record),
            Record::UserScramCredential(record) => self.replay_scram_credential(record),
            Record::RemoveUserScramCredential(record) => {
                let name = Arc::from(&*record.name);
                self.credentials.remove(&ScramUser { mechanism: record.mechanism, name });
                Ok(())
            }
            Record::AccessControlEntry(record) => self.replay_acl(record),
            Record::RemoveAccessControlEntry(record) => {
                self.acls.remove(&record.id);
                Ok(())
            }
            Record::DelegationToken(record) => self.replay_delegation_token(record),
            Record::RemoveDelegationToken(record) => {
                self.tokens.remove(&*record.token_id);
                Ok(())
            }
            Record::NoOp(_)
            | Record::ZkMigrationState(_)
            | Record::BeginTransaction(_)
            | Record::EndTransaction(_)
            | Record::AbortTransaction(_) => Ok(()),
        }
    }

    // Brokers.

    fn replay_register_broker(&mut self, record: &RegisterBrokerRecord) -> Result<(), ReplayError> {
        let broker = Broker::of_record(record);
        self.brokers.insert(broker.id, Arc::new(broker));
        Ok(())
    }

    fn replay_unregister_broker(
        &mut self,
        record: &UnregisterBrokerRecord,
    ) -> Result<(), ReplayError> {
        let broker = NodeId(record.broker_id);
        self.registered("UnregisterBrokerRecord", broker, record.broker_epoch)?;
        self.brokers.remove(&broker);
        Ok(())
    }

    fn replay_broker_change(
        &mut self,
        record: &BrokerRegistrationChangeRecord,
    ) -> Result<(), ReplayError> {
        let (id, epoch) = (record.broker_id, record.broker_epoch);
        self.change_broker("BrokerRegistrationChangeRecord", id, epoch, |broker| {
            match record.fenced {
                1 => broker.fenced = true,
                -1 => broker.fenced = false,
                _ => {}
            }
            if record.in_controlled_shutdown == 1 {
                broker.in_controlled_shutdown = true;
            }
            if !record.log_dirs.is_empty() {
                broker.directories.clone_from(&record.log_dirs);
                broker.directories.sort_unstable();
            }
            if let Some(cordoned) = &record.cordoned_log_dirs {
                broker.cordoned_directories = Some(cordoned.clone());
            }
        })
    }

    fn registered(
        &self,
        record: &'static str,
        broker: NodeId,
        epoch: i64,
    ) -> Result<&Arc<Broker>, ReplayError> {
        let found =
            self.brokers.get(&broker).ok_or(ReplayError::UnknownBroker { record, broker })?;
        if found.epoch == epoch {
            Ok(found)
        } else {
            Err(ReplayError::BrokerEpoch { record, broker, epoch, registered: found.epoch })
        }
    }

    fn change_broker(
        &mut self,
        record: &'static str,
        id: i32,
        epoch: i64,
        change: impl FnOnce(&mut Broker),
    ) -> Result<(), ReplayError> {
        let id = NodeId(id);
        self.registered(record, id, epoch)?;
        let broker = self.brokers.get_mut(&id).expect("it was found above");
        change(Arc::make_mut(broker));
        Ok(())
    }

    // Topics.

    fn replay_topic(&mut self, record: &TopicRecord) -> Result<(), ReplayError> {
        let name: Arc<str> = Arc::from(&*record.name);
        if self.topic_ids.contains_key(&name) || self.topics.contains_key(&record.topic_id) {
            return Err(ReplayError::DuplicateTopic { name, topic: record.topic_id });
        }
        if let Some(unified) = unified_name(&name) {
            let mut names = self.unified_names.get(&*unified).cloned().unwrap_or_default();
            Arc::make_mut(&mut names).insert(Arc::clone(&name));
            self.unified_names.insert(unified.into(), names);
        }
        self.topic_ids.insert(Arc::clone(&name), record.topic_id);
        self.topics.insert(record.topic_id, Arc::new(Topic::new(record.topic_id, name)));
        Ok(())
    }

    fn replay_remove_topic(&mut self, record: &RemoveTopicRecord) -> Result<(), ReplayError> {
        let (name, topic) = ("RemoveTopicRecord", record.topic_id);
        let removed =
            self.topics.remove(&topic).ok_or(ReplayError::UnknownTopic { record: name, topic })?;
        self.topic_ids.remove(&*removed.name);
        self.configs.remove(&Resource::topic(Arc::clone(&removed.name)));
        if let Some(unified) = unified_name(&removed.name) {
            let mut names = self.unified_names.remove(&*unified).unwrap_or_default();
            Arc::make_mut(&mut names).remove(&removed.name);
            if !names.is_empty() {
                self.unified_names.insert(unified.into(), names);
            }
        }
        Ok(())
    }

    fn replay_partition(&mut self, record: &PartitionRecord) -> Result<(), ReplayError> {
        let (name, topic) = ("PartitionRecord", record.topic_id);
        let unknown = ReplayError::UnknownTopic { record: name, topic };
        let topic = Arc::make_mut(self.topics.get_mut(&topic).ok_or(unknown)?);
        let index = PartitionIndex(record.partition_id);
        topic.partitions.insert(index, Arc::new(Partition::of_record(record)));
        Ok(())
    }

    fn replay_partition_change(
        &mut self,
        record: &PartitionChangeRecord,
    ) -> Result<(), ReplayError> {
        let (topic, partition) = (record.topic_id, PartitionIndex(record.partition_id));
        let unknown = ReplayError::UnknownPartition { topic, partition };
        let merged = self.partition(topic, partition).ok_or(unknown)?.merge(record);
        let topic = self.topics.get_mut(&topic).expect("its partition was found above");
        Arc::make_mut(topic).partitions.insert(partition, Arc::new(merged));
        Ok(())
    }

    fn replay_clear_elr(&mut self, record: &ClearElrRecord) -> Result<(), ReplayError> {
        let ids: Vec<TopicId> = if record.topic_name.is_empty() {
            self.topics.keys().copied().collect()
        } else {
            self.topic_id(&record.topic_name).into_iter().collect()
        };
        for id in ids {
            let Some(topic) = self.topics.get(&id) else { continue };
            let with_elr = topic.partitions.iter().filter(|(_, partition)| {
                !partition.elr.is_empty() || !partition.last_known_elr.is_empty()
            });
            let indexes: Vec<PartitionIndex> = with_elr.map(|(index, _)| *index).collect();
            for index in indexes {
                let topic = Arc::make_mut(self.topics.get_mut(&id).expect("it was found above"));
                let partition = topic.partitions.get_mut(&index).expect("it was found above");
                let partition = Arc::make_mut(partition);
                partition.elr.clear();
                partition.last_known_elr.clear();
            }
        }
        Ok(())
    }

    // Everything else.

    fn replay_config(&mut self, record: &ConfigRecord) -> Result<(), ReplayError> {
        let code = record.resource_type;
        let resource_type =
            ResourceType::of_code(code).ok_or(ReplayError::ResourceType { code })?;
        let resource = Resource::new(resource_type, &*record.resource_name);
        let mut configs = self.configs.get(&resource).cloned().unwrap_or_default();
        let changed = Arc::make_mut(&mut configs);
        match &record.value {
            Some(value) => changed.insert(Arc::from(&*record.name), Arc::from(&**value)),
            None => changed.remove(&*record.name),
        };
        if configs.is_empty() {
            self.configs.remove(&resource);
        } else {
            self.configs.insert(resource, configs);
        }
        Ok(())
    }

    fn replay_feature_level(&mut self, record: &FeatureLevelRecord) -> Result<(), ReplayError> {
        let level = record.feature_level;
        if &*record.name == METADATA_VERSION && MetadataVersion::of_level(level).is_none() {
            return Err(ReplayError::MetadataVersion { level });
        }
        let features = Arc::make_mut(&mut self.features);
        if level == 0 {
            features.remove(&*record.name);
        } else {
            features.insert(Arc::from(&*record.name), level);
        }
        Ok(())
    }

    fn replay_producer_ids(&mut self, record: &ProducerIdsRecord) -> Result<(), ReplayError> {
        let (from, to) = (self.next_producer_id, ProducerId(record.next_producer_id));
        if to < from {
            return Err(ReplayError::ProducerIds { from, to });
        }
        self.next_producer_id = to;
        Ok(())
    }

    fn replay_client_quota(&mut self, record: &ClientQuotaRecord) -> Result<(), ReplayError> {
        let mut parts: Vec<_> = record
            .entity
            .iter()
            .map(|part| (Arc::from(&*part.entity_type), part.entity_name.as_deref().map(Arc::from)))
            .collect();
        parts.sort_unstable();
        let entity = QuotaEntity(parts);
        let mut quotas = self.quotas.get(&entity).cloned().unwrap_or_default();
        let changed = Arc::make_mut(&mut quotas);
        if record.remove {
            changed.remove(&*record.key);
        } else {
            changed.insert(Arc::from(&*record.key), record.value);
        }
        if quotas.is_empty() {
            self.quotas.remove(&entity);
        } else {
            self.quotas.insert(entity, quotas);
        }
        Ok(())
    }

    fn replay_scram_credential(
        &mut self,
        record: &UserScramCredentialRecord,
    ) -> Result<(), ReplayError> {
        let user = ScramUser { mechanism: record.mechanism, name: Arc::from(&*record.name) };
        let credential = ScramCredential {
            salt: own(&record.salt),
            stored_key: own(&record.stored_key),
            server_key: own(&record.server_key),
            iterations: record.iterations,
        };
        self.credentials.insert(user, Arc::new(credential));
        Ok(())
    }

    fn replay_acl(&mut self, record: &AccessControlEntryRecord) -> Result<(), ReplayError> {
        let acl = Acl {
            id: record.id,
            resource_type: record.resource_type,
            resource_name: Arc::from(&*record.resource_name),
            pattern_type: record.pattern_type,
            principal: Arc::from(&*record.principal),
            host: Arc::from(&*record.host),
            operation: record.operation,
            permission_type: record.permission_type,
        };
        self.acls.insert(acl.id, Arc::new(acl));
        Ok(())
    }

    fn replay_delegation_token(
        &mut self,
        record: &DelegationTokenRecord,
    ) -> Result<(), ReplayError> {
        let token = DelegationToken {
            token_id: Arc::from(&*record.token_id),
            owner: Arc::from(&*record.owner),
            requester: Arc::from(&*record.requester),
            renewers: record.renewers.iter().map(|renewer| Arc::from(&**renewer)).collect(),
            issue_timestamp: record.issue_timestamp,
            max_timestamp: record.max_timestamp,
            expiration_timestamp: record.expiration_timestamp,
        };
        self.tokens.insert(Arc::clone(&token.token_id), Arc::new(token));
        Ok(())
    }
}

/// A copy that does not keep the batch in memory that `bytes` is a slice of.
fn own(bytes: &[u8]) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(bytes)
}
