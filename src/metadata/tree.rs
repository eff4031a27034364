//! An image as a tree of directories and files, as `kafka-metadata-shell` shows it
//! (`org.apache.kafka.image.node`).
//!
//! A [`Directory`] is a place in the tree and a reference to the image: names, children and texts
//! are made when they are asked for. Paths with patterns are looked up by [`Directory::look_up`].

mod glob;
mod names;
mod text;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use base::{NodeId, PartitionIndex, Uuid};

pub use self::glob::{Found, has_pattern};
use self::text::Content;
use crate::features::METADATA_VERSION;
use crate::security::ScramUser;
use crate::{Configs, Image, KRAFT_VERSION, Quotas, Topic};

/// What stands before the name of a finalised feature (`FeaturesImageNode`).
const FINALIZED: &str = "finalized_";
/// The mechanisms of SCRAM by their names, with their numbers (`ScramMechanism`).
const SCRAM_MECHANISMS: [(&str, i8); 2] = [("SCRAM-SHA-256", 1), ("SCRAM-SHA-512", 2)];

/// The program that shows the tree: what stands in `/local`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Software<'a> {
    /// Its version.
    pub version: &'a str,
    /// The commit that it was built from, or `unknown`.
    pub commit: &'a str,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub enum Node<'a> {
    /// It has children.
    Directory(Directory<'a>),
    /// It has a text.
    File(File<'a>),
}

/// A directory of the tree.
#[derive(Clone, Copy, Debug)]
pub struct Directory<'a> {
    image: &'a Image,
    software: Software<'a>,
    place: Place<'a>,
}

/// A file of the tree.
#[derive(Clone, Copy, Debug)]
pub struct File<'a>(Content<'a>);

#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    Root,
    Local,
    Image,
    Features,
    Cluster,
    Brokers,
    Controllers,
    Topics,
    TopicsByName,
    TopicsById,
    Topic(&'a Topic),
    Configs,
    ConfigsOf(&'a Configs),
    Quotas,
    QuotasOf(&'a Quotas),
    ProducerIds,
    Acls,
    AclsById,
    Scram,
    ScramUsers(i8),
    Tokens,
}

impl Place<'static> {
    /// The directories that are in a directory whatever the image holds.
    fn fixed(place: &Place<'_>) -> &'static [(&'static str, Place<'static>)] {
        match place {
            Place::Root => &[("image", Place::Image), ("local", Place::Local)],
            Place::Image => &[
                ("acls", Place::Acls),
                ("clientQuotas", Place::Quotas),
                ("cluster", Place::Cluster),
                ("configs", Place::Configs),
                ("delegationToken", Place::Tokens),
                ("features", Place::Features),
                ("producerIds", Place::ProducerIds),
                ("scram", Place::Scram),
                ("topics", Place::Topics),
            ],
            Place::Cluster => &[("brokers", Place::Brokers), ("controllers", Place::Controllers)],
            Place::Topics => &[("byId", Place::TopicsById), ("byName", Place::TopicsByName)],
            Place::Acls => &[("byId", Place::AclsById)],
            Place::Scram => &[
                (SCRAM_MECHANISMS[0].0, Place::ScramUsers(SCRAM_MECHANISMS[0].1)),
                (SCRAM_MECHANISMS[1].0, Place::ScramUsers(SCRAM_MECHANISMS[1].1)),
            ],
            _ => &[],
        }
    }
}

impl<'a> Directory<'a> {
    /// The root of the tree.
    pub fn root(image: &'a Image, software: Software<'a>) -> Self {
        Self { image, software, place: Place::Root }
    }

    /// The names in it, in Java's order of strings.
    ///
    /// Of an entity of quotas that has a default in it Kafka shows only the other parts: a name
    /// can be empty, or there twice, and [`Directory::child`] can have nothing under it.
    pub fn names(&self) -> Vec<String> {
        let fixed = Place::fixed(&self.place).iter().map(|(name, _)| (*name).to_owned());
        let mut names: Vec<String> = fixed.chain(self.names_of_image()).collect();
        names.sort_by(|one, other| one.encode_utf16().cmp(other.encode_utf16()));
        names
    }

    fn names_of_image(&self) -> Vec<String> {
        let image = self.image;
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        match self.place {
            Place::Local => own(&["commitId", "version"]),
            Place::Image => own(&["provenance"]),
            Place::ProducerIds => own(&["nextProducerId"]),
            Place::Features => {
                let levels = image.features.keys().filter(|name| is_finalized(name));
                let levels = levels.map(|name| format!("{FINALIZED}{name}"));
                levels.chain(["metadataVersion".to_owned()]).collect()
            }
            Place::Brokers => image.brokers.keys().map(NodeId::to_string).collect(),
            Place::Controllers => image.controllers.keys().map(NodeId::to_string).collect(),
            Place::TopicsByName => image.topic_ids.keys().map(|name| name.to_string()).collect(),
            Place::TopicsById => image.topics.keys().map(Uuid::to_string).collect(),
            Place::Topic(topic) => {
                let partitions = topic.partitions.keys().map(PartitionIndex::to_string);
                partitions.chain(["id".to_owned(), "name".to_owned()]).collect()
            }
            Place::Configs => image.configs.keys().map(names::of_resource).collect(),
            Place::ConfigsOf(configs) => configs.keys().map(|key| key.to_string()).collect(),
            Place::Quotas => image.quotas.keys().map(names::of_entity).collect(),
            Place::QuotasOf(quotas) => quotas.keys().map(|key| key.to_string()).collect(),
            Place::AclsById => image.acls.keys().map(Uuid::to_string).collect(),
            Place::ScramUsers(mechanism) => {
                let users = image.credentials.keys().filter(|user| user.mechanism == mechanism);
                users.map(|user| user.name.to_string()).collect()
            }
            Place::Tokens => image.tokens.keys().map(|id| id.to_string()).collect(),
            Place::Root | Place::Cluster | Place::Topics | Place::Acls | Place::Scram => Vec::new(),
        }
    }

    /// What `name` stands for in it, if anything. As with Kafka, that can be something that
    /// [`Directory::names`] doesn't list: a feature that is not finalised has level 0, and a number
    /// can be written with a sign or zeros in front.
    pub fn child(&self, name: &str) -> Option<Node<'a>> {
        let fixed = Place::fixed(&self.place).iter().find(|(fixed, _)| *fixed == name);
        if let Some((_, place)) = fixed {
            return Some(self.directory(*place));
        }
        let image = self.image;
        match self.place {
            Place::Topics | Place::Acls | Place::Scram | Place::Cluster | Place::Root => None,
            Place::TopicsByName => Some(self.directory(Place::Topic(image.topic_by_name(name)?))),
            Place::TopicsById => {
                Some(self.directory(Place::Topic(image.topic(name.parse().ok()?)?)))
            }
            Place::Configs => {
                let configs = image.configs.get(&names::resource_of(name)?)?;
                Some(self.directory(Place::ConfigsOf(configs)))
            }
            Place::Quotas => {
                let quotas = image.quotas.get(&names::entity_of(name)?)?;
                Some(self.directory(Place::QuotasOf(quotas)))
            }
            _ => self.content(name).map(|content| Node::File(File(content))),
        }
    }

    fn directory(&self, place: Place<'a>) -> Node<'a> {
        Node::Directory(Directory { place, ..*self })
    }

    fn content(&self, name: &str) -> Option<Content<'a>> {
        let image = self.image;
        Some(match (self.place, name) {
            (Place::Local, "version") => Content::Text(self.software.version),
            (Place::Local, "commitId") => Content::Text(self.software.commit),
            (Place::Image, "provenance") => Content::Provenance(image.provenance),
            (Place::Features, "metadataVersion") => {
                let is_known = image.features.contains_key(METADATA_VERSION);
                Content::MetadataVersion(is_known.then(|| image.metadata_version()))
            }
            (Place::Features, _) => {
                let feature = name.strip_prefix(FINALIZED)?;
                let level = if is_finalized(feature) { image.feature_level(feature) } else { 0 };
                Content::Number(level.into())
            }
            (Place::ProducerIds, "nextProducerId") => {
                // Kafka says −1 as long as nobody was given one; every block begins above 0.
                let next = image.next_producer_id.0;
                Content::Number(if next == 0 { -1 } else { next })
            }
            (Place::Brokers, _) => Content::Broker(image.brokers.get(&NodeId(name.parse().ok()?))?),
            (Place::Controllers, _) => {
                Content::Controller(image.controllers.get(&NodeId(name.parse().ok()?))?)
            }
            (Place::Topic(topic), "name") => Content::Text(&topic.name),
            (Place::Topic(topic), "id") => Content::Id(topic.id),
            (Place::Topic(topic), _) => {
                Content::Partition(topic.partition(PartitionIndex(name.parse().ok()?))?)
            }
            (Place::ConfigsOf(configs), _) => Content::Text(configs.get(name)?),
            (Place::QuotasOf(quotas), _) => Content::Quota(*quotas.get(name)?),
            (Place::AclsById, _) => Content::Acl(image.acls.get(&name.parse().ok()?)?),
            (Place::ScramUsers(mechanism), _) => {
                let user = ScramUser { mechanism, name: Arc::from(name) };
                Content::Credential(image.credentials.get(&user)?)
            }
            (Place::Tokens, _) => Content::Token(image.tokens.get(name)?),
            _ => return None,
        })
    }
}

impl File<'_> {
    /// What it holds: one line, but for a configuration with several in it. Nothing is left out:
    /// secrets are shown as Kafka's shell shows them.
    pub fn text(&self) -> String {
        self.0.text()
    }
}

/// Whether a feature stands among the finalised ones: `metadata.version` has a file of its own,
/// and the quorum's own version isn't part of the image.
fn is_finalized(name: &str) -> bool {
    name != METADATA_VERSION && name != KRAFT_VERSION.name
}
