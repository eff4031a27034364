//! What a controller knows without the log.

use std::sync::Arc;

use base::NodeId;
use config::{BrokerConfig, Layers, Pairs};
use metadata::{Image, Resource, ResourceType};

/// The most records that one request may lead to (`QuorumController.MAX_RECORDS_PER_USER_OP`).
pub const RECORDS_PER_REQUEST_MAX: usize = 10_000;
/// The most partitions that one request may ask for
/// (`ReplicationControlManager.MAX_PARTITIONS_PER_BATCH`).
pub const PARTITIONS_PER_REQUEST_MAX: usize = 10_000;

/// Who the controller is, and the configuration that it was started with.
#[derive(Clone, Debug)]
pub struct Params {
    /// The id of the cluster.
    pub cluster_id: String,
    /// The node that the controller is part of.
    pub node: NodeId,
    /// Every voter of the quorum.
    pub quorum_nodes: Vec<NodeId>,
    /// The configuration of the node's file.
    pub config: Arc<BrokerConfig>,
}

impl Params {
    /// The configuration of the node, with what was altered for all brokers and for this one.
    pub(crate) fn layers(&self, image: &Image) -> Layers {
        let mut layers = Layers::new(BrokerConfig::clone(&self.config));
        let this = Resource::new(ResourceType::Broker, self.node.to_string());
        let (cluster, broker) = (pairs_of(image, &Resource::all_brokers()), pairs_of(image, &this));
        if !(cluster.is_empty() && broker.is_empty())
            && let Err(error) = layers.alter(cluster, broker)
        {
            tracing::warn!("dynamic configuration is left out: {error}");
        }
        layers
    }

    /// How many in-sync replicas a topic needs at least, its replication factor at most
    /// (`ReplicationControlManager.getTopicEffectiveMinIsr`).
    pub(crate) fn min_isr(&self, image: &Image, topic: &metadata::Topic) -> usize {
        let set = self.topic_setting(image, &topic.name, "min.insync.replicas");
        let wanted = set.and_then(|value| value.parse::<usize>().ok()).unwrap_or(1);
        wanted.min(topic.replication_factor())
    }

    /// Whether a replica from outside of the ISR may lead.
    pub(crate) fn has_unclean_election(&self, image: &Image, topic: &metadata::Topic) -> bool {
        let set = self.topic_setting(image, &topic.name, "unclean.leader.election.enable");
        set.is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// What counts for a topic: its own value, this node's, that of all brokers, the file's or the
    /// default (`KafkaConfigSchema.resolveEffectiveTopicConfig`). For keys that a broker has under
    /// the same name.
    fn topic_setting(&self, image: &Image, topic: &str, key: &str) -> Option<String> {
        let places = [
            Resource::topic(topic),
            Resource::new(ResourceType::Broker, self.node.to_string()),
            Resource::all_brokers(),
        ];
        let dynamic = places.iter().find_map(|place| image.config(place, key));
        match dynamic {
            Some(value) => Some(value.to_string()),
            None => self.config.settings().get(key).and_then(config::Value::to_text),
        }
    }
}

/// What is set for a resource, as crate `config` takes it.
pub(crate) fn pairs_of(image: &Image, resource: &Resource) -> Pairs {
    let set = image.configs(resource).into_iter().flat_map(|configs| configs.iter());
    set.map(|(key, value)| (key.to_string(), value.to_string())).collect()
}
