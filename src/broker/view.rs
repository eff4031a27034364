//! From the metadata image to the partitions of this shard.

use std::sync::Arc;

use api::Effect;
use base::{Offset, PartitionIndex, TopicPartition, Uuid};
use commitlog::Checkpoints;
use config::{Pairs, TopicConfig};
use intercom::{Message, PartitionKey, Published};
use metadata::{Image, Partition, Resource, ResourceType, Topic, TopicChange};

use protocol::Str;
use protocol::create_topics_request::{CreatableTopic, CreatableTopicConfig};

use crate::owner::{Found, Opening};
use crate::rules::TopicRules;
use crate::shard::{Io, Shard};
use crate::topics;

impl Shard {
    /// The quorum shard has newer metadata.
    pub(crate) fn published(&mut self, io: &mut Io<'_>, published: Published) {
        let old = self.view.replace(published).map(|view| view.image);
        match old {
            // Too late: what nobody has opened is left as it is.
            None if self.is_stopping() => {}
            None => {
                self.open_directories(io);
                self.begin_when_loaded(io);
            }
            Some(old) if self.has_begun() => self.apply_changes(io, &old),
            Some(_) => {}
        }
        self.report_settled(io);
        self.assignments.view_changed();
        self.serve_when_unfenced(io);
        self.view_changed(io);
    }

    /// Opens the log of every partition that this shard owns.
    pub(crate) fn open_all_partitions(&mut self, io: &mut Io<'_>) {
        let Some(view) = self.view.clone() else { return };
        self.read_layers(&view.image);
        for topic in view.image.topics().values() {
            self.take_in_topic(io, &view, topic);
        }
        // From now on every log is new.
        self.life.forget_logs();
    }

    /// A topic as the broker makes one that a client asks for, or that it needs itself
    /// (`AutoTopicCreationManager`).
    pub(crate) fn new_topic(&self, name: &str) -> CreatableTopic {
        let simple = &self.layers.current().simple;
        if name != topics::OFFSETS_TOPIC {
            return CreatableTopic {
                name: name.into(),
                num_partitions: -1,
                replication_factor: -1,
                ..Default::default()
            };
        }
        let segment_bytes = simple.offsets_topic_segment_bytes.to_string();
        let configs = [
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", segment_bytes.as_str()),
        ];
        let config = |(name, value): (&str, &str)| CreatableTopicConfig {
            name: name.into(),
            value: Some(value.into()),
            ..Default::default()
        };
        CreatableTopic {
            name: name.into(),
            num_partitions: simple.offsets_topic_num_partitions,
            replication_factor: simple.offsets_topic_replication_factor,
            configs: configs.into_iter().map(config).collect(),
            ..Default::default()
        }
    }

    fn apply_changes(&mut self, io: &mut Io<'_>, old: &Image) {
        if self.is_stopping() {
            return;
        }
        let Some(view) = self.view.clone() else { return };
        self.take_in_unplaced(io);
        let offset = view.image.provenance().last_offset;
        for change in view.image.topics_changed_since(old) {
            match change {
                TopicChange::Added(topic) => self.take_in_topic(io, &view, &topic),
                TopicChange::Removed(topic) => self.delete_topic(io, &topic, offset),
                TopicChange::Changed { new, .. } => {
                    self.take_in_topic(io, &view, &new);
                    self.set_leaders(io, &new);
                }
            }
        }
        for resource in view.image.configs_changed_since(old) {
            match resource.resource_type {
                ResourceType::Topic => self.change_rules(&view.image, &resource.name),
                ResourceType::Broker => self.change_broker(&view.image),
                _ => {}
            }
        }
    }

    /// Takes in the topics that had to wait, as far as they need not any more.
    pub(crate) fn take_in_unplaced(&mut self, io: &mut Io<'_>) {
        let Some(view) = self.view.clone() else { return };
        for id in std::mem::take(&mut self.unplaced) {
            if let Some(topic) = view.image.topic(id) {
                self.take_in_topic(io, &view, topic);
            }
        }
    }

    /// Takes in those of the topic's partitions that this shard owns and does not have yet.
    fn take_in_topic(&mut self, io: &mut Io<'_>, view: &Published, topic: &Topic) {
        let mut rules = None;
        for (index, partition) in topic.partitions.iter() {
            let key = PartitionKey { topic: topic.id, partition: *index };
            let owner = view.placement.owner(key);
            if owner.is_none() {
                self.unplaced.insert(topic.id);
            }
            if owner != Some(self.setup.shard)
                || !partition.has_replica(self.setup.node)
                || self.owner.has(key)
            {
                continue;
            }
            let rules = rules.get_or_insert_with(|| self.rules_of(&view.image, &topic.name));
            let rules = Arc::clone(rules);
            let opening = self.opening(key, &topic.name, partition, rules);
            if matches!(opening.found, Found::Nothing) && !self.names.are_clean {
                self.unplaced.insert(topic.id);
                continue;
            }
            let name = opening.name.clone();
            self.wanted.forget(&name);
            self.with_owner(io, |owner, desk| owner.take_in(desk, opening));
            self.resume_move(io, key, &name, partition);
        }
    }

    fn opening(
        &self,
        key: PartitionKey,
        topic: &Arc<str>,
        partition: &Partition,
        rules: Arc<TopicRules>,
    ) -> Opening {
        let name = TopicPartition { topic: Arc::clone(topic), partition: key.partition };
        let (directory, found) = self.place_of_log(&name, partition);
        let path = self.setup.log_directories[usize::from(directory)].path.join(name.to_string());
        Opening {
            key,
            name,
            directory,
            path,
            rules,
            leads: partition.leader == self.setup.node,
            leader_epoch: partition.leader_epoch,
            found,
        }
    }

    /// Where the log of a partition was when the node started. A copy is none that waits for it.
    fn find_log(&self, name: &TopicPartition) -> Option<(u16, Found)> {
        let directories = self.life.found()?;
        for (index, directory) in directories.iter().enumerate() {
            let log = directory.logs.get(name).filter(|log| !log.is_copy);
            let Some(log) = log else { continue };
            let checkpoints = Checkpoints {
                clean_shutdown: directory.clean_shutdown.is_some(),
                recovery_point: log.recovery_point,
                log_start_offset: log.log_start_offset,
                first_dirty: log.first_dirty,
            };
            let is_offline = directory.offline.is_some();
            let found = if is_offline { Found::Offline } else { Found::Log(checkpoints) };
            return Some((u16::try_from(index).expect("directories are few"), found));
        }
        None
    }

    /// Whether a copy was found that must not be used before its log is.
    fn has_waiting_copy(&self, name: &TopicPartition) -> bool {
        let found = self.life.found().into_iter().flat_map(|found| found.iter());
        found.filter_map(|directory| directory.logs.get(name)).any(|log| log.is_copy)
    }

    /// The log's directory, and what is there of it: where it was found; else where somebody wanted
    /// it; else where the controller assigned it; else in the directory with the fewest logs. A log
    /// that may lie in a directory that is offline is not made anew elsewhere
    /// (`LogManager.getOrCreateLog`).
    fn place_of_log(&self, name: &TopicPartition, partition: &Partition) -> (u16, Found) {
        if let Some(found) = self.find_log(name) {
            return found;
        }
        let directories = &self.setup.log_directories;
        let assigned = partition.directory_of(self.setup.node);
        let assigned = directories.iter().position(|directory| Some(directory.id) == assigned);
        let is_offline = |index: &usize| self.is_offline(*index);
        let wanted = self.wanted.get(name).map(usize::from);
        let assigned = wanted.filter(|index| !self.is_offline(*index)).or(assigned);
        let first_offline = (0..directories.len()).find(is_offline);
        let was_before = !self.life.has_forgotten_logs;
        let (index, found) = match (assigned, first_offline) {
            (Some(index), _) if self.is_offline(index) => (index, Found::Offline),
            (_, Some(index)) if self.has_waiting_copy(name) => (index, Found::Offline),
            (None, Some(index)) if was_before => (index, Found::Offline),
            (Some(index), _) => (index, Found::Nothing),
            (None, _) => (self.emptiest_directory(), Found::Nothing),
        };
        (u16::try_from(index).expect("directories are few"), found)
    }

    /// The directory that is online and has the fewest logs of this shard.
    fn emptiest_directory(&self) -> usize {
        let counts = self.owner.logs_per_directory(self.setup.log_directories.len());
        let online = counts.iter().enumerate().filter(|(index, _)| !self.is_offline(*index));
        online.min_by_key(|(_, count)| **count).map_or(0, |(index, _)| index)
    }

    fn delete_topic(&mut self, io: &mut Io<'_>, topic: &Topic, offset: Offset) {
        let name = Str::from(&*topic.name);
        let partitions = topic.partitions.keys().map(|index| (name.clone(), index.0));
        let partitions: Vec<(Str, i32)> = partitions.collect();
        self.with_owner(io, |owner, desk| owner.forget_offsets(desk, &partitions));
        for (index, _) in topic.partitions.iter() {
            let key = PartitionKey { topic: topic.id, partition: *index };
            if self.owner.has(key) {
                self.names.last_deleted = offset;
            }
            let random = Uuid::random(&mut self.random);
            self.with_owner(io, |owner, desk| owner.delete(desk, key, offset, random));
        }
    }

    /// Up to where the folders of deleted logs have other names.
    pub(crate) fn settled_offset(&self) -> Offset {
        let seen = self.view.as_ref().map(|view| view.image.provenance().last_offset);
        let before = self.owner.leaving_since().map(|first| first.plus(-1));
        before.or(seen).unwrap_or(Offset(-1))
    }

    /// Tells the quorum shard up to where deleted logs have given back their names, in the
    /// checkpoints too: before that, no topic of the same name gets an owner. What a checkpoint
    /// says of the old log would else be taken for the new one after a crash.
    pub(crate) fn report_settled(&mut self, io: &mut Io<'_>) {
        if !self.has_begun() || self.is_stopping() {
            return;
        }
        let settled = self.settled_offset();
        let names = &mut self.names;
        if names.are_clean && names.checkpointed >= names.last_deleted {
            return self.settled(io, settled);
        }
        let is_asked = names.checkpoint_asked.is_some_and(|asked| asked >= names.last_deleted);
        if settled >= names.last_deleted && !is_asked && !self.owner.is_opening() {
            names.checkpoint_asked = Some(settled);
            self.send_checkpoints(io);
        }
    }

    /// The checkpoints lack what was deleted up to this offset.
    pub(crate) fn checkpointed(&mut self, io: &mut Io<'_>, settled: Offset) {
        self.names.checkpointed = self.names.checkpointed.max(settled);
        // The first one of this process has nothing of logs that are not here any more.
        let is_asked = self.names.checkpoint_asked.is_some();
        if is_asked && !std::mem::replace(&mut self.names.are_clean, true) {
            self.take_in_unplaced(io);
        }
        self.settled(io, settled);
        self.report_settled(io);
    }

    fn settled(&mut self, io: &mut Io<'_>, settled: Offset) {
        if settled > self.names.reported {
            self.names.reported = settled;
            let message = Message::Settled(settled);
            io.effects.push(Effect::Post { to: self.setup.quorum, message });
        }
    }

    fn set_leaders(&mut self, io: &mut Io<'_>, topic: &Topic) {
        for (index, partition) in topic.partitions.iter() {
            let key = PartitionKey { topic: topic.id, partition: *index };
            let (leads, epoch) = (partition.leader == self.setup.node, partition.leader_epoch);
            self.with_owner(io, |owner, desk| owner.set_leader(desk, key, leads, epoch));
        }
    }

    fn change_rules(&mut self, image: &Image, name: &str) {
        let Some(topic) = image.topic_by_name(name) else { return };
        let rules = self.rules_of(image, name);
        for (index, _) in topic.partitions.iter() {
            let key = PartitionKey { topic: topic.id, partition: PartitionIndex(index.0) };
            self.owner.set_rules(key, &rules);
        }
    }

    /// What was altered for all brokers or for this one, and with it every topic's defaults.
    fn change_broker(&mut self, image: &Image) {
        self.read_layers(image);
        let names: Vec<Arc<str>> = image.topic_ids().keys().cloned().collect();
        for name in names {
            self.change_rules(image, &name);
        }
    }

    fn read_layers(&mut self, image: &Image) {
        let cluster = self.overrides(image, &Resource::all_brokers());
        let node = self.setup.node.to_string();
        let own = self.overrides(image, &Resource::new(ResourceType::Broker, node.as_str()));
        self.limit_moves(&cluster, &own);
        match self.layers.alter(cluster, own) {
            Ok(left_out) => {
                for message in left_out {
                    tracing::warn!(%message, "a setting of this broker is ignored");
                }
            }
            Err(error) => tracing::error!(%error, "the altered settings are ignored"),
        }
    }

    /// The rules of a topic: its own settings over the broker's.
    fn rules_of(&self, image: &Image, topic: &str) -> Arc<TopicRules> {
        let config = self.topic_config(image, topic);
        Arc::new(TopicRules::of(&config, self.layers.current()))
    }

    /// The configuration of a topic. Settings that were accepted once are taken as they are; one
    /// that is not understood leaves the topic with the broker's.
    pub(crate) fn topic_config(&self, image: &Image, topic: &str) -> TopicConfig {
        let overrides = self.overrides(image, &Resource::topic(topic));
        let config = self.layers.current();
        config.topic_config(&overrides).unwrap_or_else(|error| {
            tracing::error!(topic, %error, "the topic's settings are ignored");
            config.topic_config(&Pairs::new()).expect("the broker's own have been checked")
        })
    }

    /// What is set for a resource.
    pub(crate) fn overrides(&self, image: &Image, resource: &Resource) -> Pairs {
        let settings = image.configs(resource).into_iter().flat_map(|settings| settings.iter());
        settings.map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }
}
