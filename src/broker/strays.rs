//! Logs in the node's directories that belong to none of its partitions.
//!
//! A topic is deleted while the node is down, while the log's directory is offline, or just before
//! the node ends. Its folder has the name that a new topic's log may need, and the checkpoints
//! speak of it under that name.

use base::{Map, NodeId, TopicPartition, Uuid};
use commitlog::Directory;
use intercom::FoundLog;
use metadata::Image;

use crate::shard::{Io, Shard};
use crate::topics;

impl Shard {
    /// As keeper: once both the directories are read and the metadata are there, gives other names
    /// to the logs that are no replica's of this node (`LogManager.isStrayKraftReplica`). No shard
    /// opens or makes a log before that is done.
    pub(crate) fn set_strays_aside(&mut self, io: &mut Io<'_>) {
        if !self.setup.is_keeper() {
            return;
        }
        let keeper = self.life.keeper();
        if keeper.knows_strays || keeper.found.iter().any(Option::is_none) {
            return;
        }
        if keeper.found.iter().flatten().all(|one| one.offline.is_some()) {
            return self.spread_directories(io);
        }
        let Some(view) = &self.view else { return };
        keeper.knows_strays = true;
        let mut effects = Vec::new();
        let all = keeper.directories.iter_mut().zip(keeper.found.iter_mut().flatten());
        for (index, (directory, found)) in (0..).zip(all) {
            let strays = take_strays(&mut found.logs, &view.image, self.setup.node);
            let named = strays.into_iter().map(|log| (log, Uuid::random(&mut self.random)));
            let mut steps = Vec::new();
            directory.set_aside(named.collect(), &mut steps);
            effects.push((index, steps));
        }
        for (index, steps) in effects {
            self.file_directory_effects(io, index, steps);
        }
        self.begin_without_strays(io);
    }

    /// As keeper: tells every shard what the directories hold, once that is only what belongs here.
    pub(crate) fn begin_without_strays(&mut self, io: &mut Io<'_>) {
        let keeper = self.life.keeper();
        let is_over = keeper.knows_strays && keeper.directories.iter().all(Directory::is_idle);
        if is_over && !self.has_begun() {
            self.spread_directories(io);
        }
    }
}

/// Takes those out of `logs` that are no replica's of this node, in order of their names.
fn take_strays(
    logs: &mut Map<TopicPartition, FoundLog>,
    image: &Image,
    node: NodeId,
) -> Vec<TopicPartition> {
    let strays = logs.iter().filter(|(log, found)| !belongs_here(image, node, log, found));
    let mut strays: Vec<TopicPartition> = strays.map(|(log, _)| log.clone()).collect();
    strays.sort();
    for stray in &strays {
        logs.remove(stray);
    }
    strays
}

/// Whether a log is a replica's of this node. Where its topic is not known its name tells: opening
/// it finds out more.
fn belongs_here(image: &Image, node: NodeId, log: &TopicPartition, found: &FoundLog) -> bool {
    if &*log.topic == topics::METADATA_TOPIC {
        return true;
    }
    let topic = image.topic_by_name(&log.topic);
    let topic = topic.filter(|topic| found.topic_id.is_none_or(|id| id == topic.id));
    let partition = topic.and_then(|topic| topic.partition(log.partition));
    partition.is_some_and(|partition| partition.has_replica(node))
}
