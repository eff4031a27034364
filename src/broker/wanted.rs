//! In which directories partitions are wanted that are not made yet.

use std::collections::BTreeMap;

use base::TopicPartition;

/// Partitions whose directory is remembered until they are made; more are forgotten.
const WANTED_MAX: usize = 10_000;

/// Where partitions are wanted that are not made yet (`LogManager.preferredLogDirs`).
#[derive(Debug, Default)]
pub(crate) struct WantedDirectories(BTreeMap<TopicPartition, u16>);

impl WantedDirectories {
    /// A partition is wanted there, in a directory of this index.
    pub(crate) fn add(&mut self, partition: &TopicPartition, directory: u16) {
        if self.0.len() < WANTED_MAX || self.0.contains_key(partition) {
            self.0.insert(partition.clone(), directory);
        }
    }

    /// Where a partition is wanted.
    pub(crate) fn get(&self, partition: &TopicPartition) -> Option<u16> {
        self.0.get(partition).copied()
    }

    /// It is made.
    pub(crate) fn forget(&mut self, partition: &TopicPartition) {
        self.0.remove(partition);
    }
}
