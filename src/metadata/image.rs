//! The cluster at one offset of the metadata log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{NodeId, Offset, PartitionIndex, ProducerId, TopicId, Uuid};

use crate::features::METADATA_VERSION;
use crate::security::{Acl, DelegationToken, QuotaEntity, Quotas, ScramCredential, ScramUser};
use crate::{
    Broker, Change, Configs, Controller, MetadataVersion, Partition, Resource, SharedMap, Topic,
};

/// Which record an image was made up to (`MetadataProvenance`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// The offset of the last record in it; −1 where there was none.
    pub last_offset: Offset,
    /// The epoch of the leader that wrote it.
    pub last_epoch: i32,
    /// When the batch with it was written, in milliseconds since 1970.
    pub last_timestamp_ms: i64,
}

impl Default for Provenance {
    fn default() -> Self {
        Self { last_offset: Offset(-1), last_epoch: -1, last_timestamp_ms: -1 }
    }
}

/// The cluster as all records up to an offset make it (`MetadataImage`).
///
/// A value: a clone costs some reference counts, and shares everything with its original until
/// one of them changes. [`Image::replay`] is the only way to change one, the same on every node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image {
    pub(crate) provenance: Provenance,
    pub(crate) features: Arc<BTreeMap<Arc<str>, i16>>,
    pub(crate) brokers: SharedMap<NodeId, Arc<Broker>>,
    pub(crate) controllers: SharedMap<NodeId, Arc<Controller>>,
    pub(crate) topics: SharedMap<TopicId, Arc<Topic>>,
    pub(crate) topic_ids: SharedMap<Arc<str>, TopicId>,
    /// The names with a `.` or `_`, by what they become when each `.` is written as `_`.
    pub(crate) unified_names: SharedMap<Arc<str>, Arc<BTreeSet<Arc<str>>>>,
    pub(crate) configs: SharedMap<Resource, Arc<Configs>>,
    pub(crate) next_producer_id: ProducerId,
    pub(crate) quotas: SharedMap<QuotaEntity, Arc<Quotas>>,
    pub(crate) credentials: SharedMap<ScramUser, Arc<ScramCredential>>,
    pub(crate) acls: SharedMap<Uuid, Arc<Acl>>,
    pub(crate) tokens: SharedMap<Arc<str>, Arc<DelegationToken>>,
}

impl Image {
    /// Up to which record it was made.
    pub fn provenance(&self) -> Provenance {
        self.provenance
    }

    // Topics.

    /// A topic by its id.
    pub fn topic(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.topics.get(&id)
    }

    /// A topic by its name.
    pub fn topic_by_name(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(self.topic_ids.get(name)?)
    }

    /// A topic's id by its name.
    pub fn topic_id(&self, name: &str) -> Option<TopicId> {
        self.topic_ids.get(name).copied()
    }

    /// A topic's name by its id.
    pub fn topic_name(&self, id: TopicId) -> Option<&Arc<str>> {
        self.topics.get(&id).map(|topic| &topic.name)
    }

    /// A partition by its topic's id.
    pub fn partition(&self, topic: TopicId, index: PartitionIndex) -> Option<&Arc<Partition>> {
        self.topics.get(&topic)?.partition(index)
    }

    /// Every topic, by its id, in order of the ids.
    pub fn topics(&self) -> &SharedMap<TopicId, Arc<Topic>> {
        &self.topics
    }

    /// The id of every topic by its name, in order of the names.
    pub fn topic_ids(&self) -> &SharedMap<Arc<str>, TopicId> {
        &self.topic_ids
    }

    /// A topic whose name differs from `name` at most by `.` where the other has `_`, so that the
    /// two would share their metrics. `name` itself counts, if there is a topic of that name.
    pub fn colliding_topic(&self, name: &str) -> Option<&Arc<str>> {
        self.unified_names.get(&*unified_name(name)?)?.first()
    }

    /// What happened to topics between `old` and this image, whatever number of images lies
    /// between them. It costs what changed, not what is there.
    pub fn topics_changed_since(&self, old: &Image) -> Vec<TopicChange> {
        let changes = self.topics.changes_since(&old.topics).into_iter();
        let owned = changes.map(|change| match change {
            Change::Added(_, new) => TopicChange::Added(Arc::clone(new)),
            Change::Removed(_, old) => TopicChange::Removed(Arc::clone(old)),
            Change::Changed { old, new, .. } => {
                TopicChange::Changed { old: Arc::clone(old), new: Arc::clone(new) }
            }
        });
        owned.collect()
    }

    // Brokers and controllers.

    /// A registered broker.
    pub fn broker(&self, id: NodeId) -> Option<&Arc<Broker>> {
        self.brokers.get(&id)
    }

    /// Every registered broker, in order of the numbers.
    pub fn brokers(&self) -> &SharedMap<NodeId, Arc<Broker>> {
        &self.brokers
    }

    /// Every registered controller, in order of the numbers.
    pub fn controllers(&self) -> &SharedMap<NodeId, Arc<Controller>> {
        &self.controllers
    }

    /// The brokers that clients can be told of: those that are not fenced.
    pub fn alive_brokers(&self) -> impl Iterator<Item = &Arc<Broker>> {
        self.brokers.values().filter(|broker| !broker.fenced)
    }

    /// Who is named to clients as the controller: a broker that is alive, as in
    /// `KRaftMetadataCache.controllerId`, since brokers pass on what is for the controller.
    /// [`NodeId::NONE`] where none is alive.
    pub fn controller_for_clients(&self) -> NodeId {
        self.alive_brokers().next().map_or(NodeId::NONE, |broker| broker.id)
    }

    // Configuration.

    /// What is set for a resource; nothing where it has no entry.
    pub fn configs(&self, resource: &Resource) -> Option<&Arc<Configs>> {
        self.configs.get(resource)
    }

    /// One value that is set for a resource.
    pub fn config(&self, resource: &Resource, key: &str) -> Option<&Arc<str>> {
        self.configs.get(resource)?.get(key)
    }

    /// Every resource for which something is set.
    pub fn all_configs(&self) -> &SharedMap<Resource, Arc<Configs>> {
        &self.configs
    }

    /// The resources whose configuration differs between `old` and this image.
    pub fn configs_changed_since(&self, old: &Image) -> Vec<Resource> {
        let changes = self.configs.changes_since(&old.configs).into_iter();
        let resources = changes.map(|change| match change {
            Change::Added(resource, _)
            | Change::Removed(resource, _)
            | Change::Changed { key: resource, .. } => resource.clone(),
        });
        resources.collect()
    }

    // Features.

    /// The level of a finalised feature; 0 where it has none.
    pub fn feature_level(&self, name: &str) -> i16 {
        self.features.get(name).copied().unwrap_or(0)
    }

    /// The finalised features by name, `metadata.version` among them.
    pub fn features(&self) -> &BTreeMap<Arc<str>, i16> {
        &self.features
    }

    /// The metadata.version; the lowest that there is where the log does not say.
    pub fn metadata_version(&self) -> MetadataVersion {
        let level = self.features.get(METADATA_VERSION).copied();
        level.and_then(MetadataVersion::of_level).unwrap_or(MetadataVersion::MINIMUM)
    }

    /// Whether eligible leader replicas are kept (KIP-966).
    pub fn has_elr(&self) -> bool {
        self.feature_level("eligible.leader.replicas.version") >= 1
    }

    // Everything else.

    /// The first producer id of the next block.
    pub fn next_producer_id(&self) -> ProducerId {
        self.next_producer_id
    }

    /// The quotas of every entity that has some.
    pub fn quotas(&self) -> &SharedMap<QuotaEntity, Arc<Quotas>> {
        &self.quotas
    }

    /// The SCRAM credentials.
    pub fn credentials(&self) -> &SharedMap<ScramUser, Arc<ScramCredential>> {
        &self.credentials
    }

    /// The access rules by their ids.
    pub fn acls(&self) -> &SharedMap<Uuid, Arc<Acl>> {
        &self.acls
    }

    /// The delegation tokens by their ids.
    pub fn tokens(&self) -> &SharedMap<Arc<str>, Arc<DelegationToken>> {
        &self.tokens
    }

    /// Takes note of the record that was replayed last. The last step of a batch.
    pub fn set_provenance(&mut self, provenance: Provenance) {
        self.provenance = provenance;
    }
}

/// `name` with each `.` as `_`; nothing where it has neither.
pub(crate) fn unified_name(name: &str) -> Option<String> {
    name.contains(['.', '_']).then(|| name.replace('.', "_"))
}

/// What happened to a topic between two images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicChange {
    /// It is new.
    Added(Arc<Topic>),
    /// It was deleted; one that was created again under its name is another topic.
    Removed(Arc<Topic>),
    /// Some of its partitions are new or changed.
    Changed {
        /// As it was.
        old: Arc<Topic>,
        /// As it is: `new.partitions.changes_since(&old.partitions)` has the partitions.
        new: Arc<Topic>,
    },
}
