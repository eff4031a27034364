//! Folders in the node's directories that must have other names before a log is opened or made.
//!
//! A topic is deleted while the node is down, while the log's directory is offline, or just before
//! the node ends. Its folder has the name that a new topic's log may need, and the checkpoints
//! speak of it under that name. And a node ends while a log moves to another directory
//! (`owner/moves`).
//!
//! | found | done |
//! |---|---|
//! | a log or a copy that is no replica's of this node | it is set aside |
//! | two logs of a partition | the one that the metadata do not name is set aside, or the second |
//! | a copy, and its log in another directory | the log goes on moving |
//! | a copy in the directory of its log, or a second copy | it goes |
//! | a copy without its log, in the directory that the metadata name | it becomes the log |
//! | the same in another directory, while one is offline, which may have the log | it stays |
//! | the same while none is | it is set aside |
//! | what is left of deleted logs, and every log is found | it goes |
//! | the same while one is missing, or a directory is offline | it stays |

use base::{Map, NodeId, Random, TopicId, TopicPartition, Uuid};
use commitlog::{Directory, Renaming, deleted_folder, stray_folder};
use intercom::LogDirectory;
use metadata::{Image, Partition};

use crate::shard::{Io, Shard};
use crate::topics;

impl Shard {
    /// As keeper: once both the directories are read and the metadata are there, gives folders the
    /// names that they must have (`LogManager.isStrayKraftReplica`, `recoverAbandonedFutureLogs`).
    /// No shard opens or makes a log before that is done.
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
        let mut names = Names {
            image: &view.image,
            node: self.setup.node,
            ids: self.setup.log_directories.iter().map(|directory| directory.id).collect(),
            random: &mut self.random,
            renamings: vec![Vec::new(); keeper.found.len()],
        };
        let mut found: Vec<LogDirectory> = keeper.found.drain(..).flatten().collect();
        names.decide(&mut found);
        keeper.keeps_deleted = names.lacks_logs(&found);
        let renamings = names.renamings;
        keeper.found = found.into_iter().map(Some).collect();
        let mut effects = Vec::new();
        let all = keeper.directories.iter_mut().zip(renamings);
        for (index, (directory, renamings)) in (0..).zip(all) {
            let mut steps = Vec::new();
            directory.rename(renamings, &mut steps);
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
            self.remove_deleted_logs(io);
            self.spread_directories(io);
        }
    }
}

impl Shard {
    /// As keeper: removes what is left of deleted logs, unless a log is missing whose only remains
    /// they could be.
    fn remove_deleted_logs(&mut self, io: &mut Io<'_>) {
        let keeper = self.life.keeper();
        if keeper.keeps_deleted {
            return tracing::info!("what is left of deleted logs stays until all logs are found");
        }
        let mut effects = Vec::new();
        for (index, directory) in (0..).zip(&mut keeper.directories) {
            let mut steps = Vec::new();
            directory.remove_deleted(&mut steps);
            effects.push((index, steps));
        }
        for (index, steps) in effects {
            self.file_directory_effects(io, index, steps);
        }
    }
}

/// Which folders get which names.
struct Names<'a> {
    image: &'a Image,
    node: NodeId,
    /// Of the directories, in their order.
    ids: Vec<Uuid>,
    random: &'a mut Random,
    /// By directory.
    renamings: Vec<Vec<Renaming>>,
}

impl Names<'_> {
    /// Leaves in `found` what belongs here, under the names that it will have.
    fn decide(&mut self, found: &mut [LogDirectory]) {
        for (index, directory) in found.iter_mut().enumerate() {
            self.take_strays(index, &mut directory.logs);
        }
        self.take_seconds(found);
        let has_offline = found.iter().any(|directory| directory.offline.is_some());
        let mut moving: Vec<TopicPartition> = Vec::new();
        for index in 0..found.len() {
            for future in std::mem::take(&mut found[index].futures) {
                let partition = &future.partition;
                let replica = self.replica(partition, future.log.topic_id);
                let Some(directory) = replica.map(|replica| replica.directory_of(self.node)) else {
                    self.set_aside(index, &future.folder, partition, "a stray copy is set aside");
                    continue;
                };
                let current = found.iter().position(|one| one.logs.contains_key(partition));
                let is_second = moving.contains(partition) || current == Some(index);
                match current {
                    _ if is_second => self.delete(index, &future.folder, partition),
                    Some(_) => {
                        moving.push(partition.clone());
                        found[index].futures.push(future);
                    }
                    None if directory == Some(self.ids[index]) => {
                        let what = "a copy becomes the log whose name it was to get";
                        self.rename(index, &future.folder, partition.to_string(), what);
                        found[index].logs.insert(future.partition, future.log);
                    }
                    None if has_offline => {}
                    None => {
                        let what = "a copy without its log is set aside";
                        self.set_aside(index, &future.folder, partition, what);
                    }
                }
            }
        }
    }

    /// Whether a directory could not be read, or the log of a replica of this node was not found. A
    /// move that was broken off can have left it as a deleted one.
    fn lacks_logs(&self, found: &[LogDirectory]) -> bool {
        if found.iter().any(|directory| directory.offline.is_some()) {
            return true;
        }
        let is_found = |log: &TopicPartition| found.iter().any(|one| one.logs.contains_key(log));
        self.image.topics().values().any(|topic| {
            let own = topic.partitions.iter().filter(|(_, it)| it.has_replica(self.node));
            let mut logs = own
                .map(|(index, _)| TopicPartition { topic: topic.name.clone(), partition: *index });
            logs.any(|log| !is_found(&log))
        })
    }

    /// Takes those out of `logs` that are no replica's of this node, in order of their names.
    fn take_strays(&mut self, index: usize, logs: &mut Map<TopicPartition, intercom::FoundLog>) {
        let strays = logs.iter().filter(|(log, found)| !self.belongs_here(log, found.topic_id));
        let mut strays: Vec<TopicPartition> = strays.map(|(log, _)| log.clone()).collect();
        strays.sort();
        for stray in &strays {
            logs.remove(stray);
            self.set_aside(index, &stray.to_string(), stray, "a stray log is set aside");
        }
    }

    /// Where two directories have a log of the same partition, one stays. Apache Kafka leaves two
    /// if it ends between the two renames of a move, and does not start on them; both have all
    /// that was acknowledged then.
    fn take_seconds(&mut self, found: &mut [LogDirectory]) {
        let mut seconds: Vec<(usize, TopicPartition)> = Vec::new();
        for (index, directory) in found.iter().enumerate() {
            for log in directory.logs.keys() {
                let others = (0..found.len()).filter(|other| found[*other].logs.contains_key(log));
                let others: Vec<usize> = others.collect();
                let replica = self.replica(log, None);
                let named = replica.and_then(|replica| replica.directory_of(self.node));
                let named = others.iter().find(|other| Some(self.ids[**other]) == named);
                let stays = named.or(others.first());
                if stays != Some(&index) {
                    seconds.push((index, log.clone()));
                }
            }
        }
        seconds.sort();
        for (index, log) in seconds {
            if &*log.topic == topics::METADATA_TOPIC {
                continue;
            }
            found[index].logs.remove(&log);
            self.set_aside(index, &log.to_string(), &log, "a second log is set aside");
        }
    }

    fn set_aside(
        &mut self,
        index: usize,
        folder: &str,
        partition: &TopicPartition,
        what: &'static str,
    ) {
        let to = stray_folder(partition, Uuid::random(self.random));
        self.rename(index, folder, to, what);
    }

    fn delete(&mut self, index: usize, folder: &str, partition: &TopicPartition) {
        let to = deleted_folder(partition, Uuid::random(self.random));
        self.rename(index, folder, to, "a copy that nobody needs is deleted");
    }

    fn rename(&mut self, index: usize, folder: &str, to: String, what: &'static str) {
        self.renamings[index].push(Renaming { from: folder.to_owned(), to, what });
    }

    /// Whether a log is a replica's of this node. Where its topic is not known its name tells:
    /// opening it finds out more.
    fn belongs_here(&self, log: &TopicPartition, topic_id: Option<TopicId>) -> bool {
        &*log.topic == topics::METADATA_TOPIC || self.replica(log, topic_id).is_some()
    }

    /// The partition of a replica of this node.
    fn replica(&self, log: &TopicPartition, topic_id: Option<TopicId>) -> Option<&Partition> {
        let topic = self.image.topic_by_name(&log.topic);
        let topic = topic.filter(|topic| topic_id.is_none_or(|id| id == topic.id));
        let partition = topic.and_then(|topic| topic.partition(log.partition));
        partition.map(|partition| &**partition).filter(|partition| partition.has_replica(self.node))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::PartitionIndex;
    use intercom::{FoundFuture, FoundLog};
    use protocol::{PartitionRecord, TopicRecord};

    use super::*;

    const NODE: NodeId = NodeId(1);
    const TOPIC: TopicId = Uuid([1; 16]);
    /// The directories; the first one is that of the partition.
    const IDS: [Uuid; 3] = [Uuid([9; 16]), Uuid([10; 16]), Uuid([11; 16])];

    fn image() -> Image {
        let mut image = Image::default();
        let topic = TopicRecord { name: "t".into(), topic_id: TOPIC, ..Default::default() };
        let partition = PartitionRecord {
            partition_id: 0,
            topic_id: TOPIC,
            replicas: vec![NODE.0],
            isr: vec![NODE.0],
            leader: NODE.0,
            directories: vec![IDS[0]],
            ..Default::default()
        };
        image.replay(&topic.into()).expect("it is new");
        image.replay(&partition.into()).expect("it is new");
        image
    }

    fn name(topic: &str) -> TopicPartition {
        TopicPartition { topic: Arc::from(topic), partition: PartitionIndex(0) }
    }

    /// What is in one directory: `t` is its log, `f` its copy, `g` another one, `s` the log of a
    /// topic that is gone and `c` its copy, `o` the log of an older topic of its name, `-` that it
    /// is offline.
    fn directory(content: &str) -> LogDirectory {
        let mut found = LogDirectory {
            offline: content.contains('-').then(|| "it is broken".to_owned()),
            clean_shutdown: None,
            logs: Map::default(),
            futures: Vec::new(),
        };
        let log = |topic_id| FoundLog { topic_id: Some(topic_id), ..FoundLog::default() };
        for kind in content.chars().filter(|kind| *kind != '-') {
            let (topic, id) = match kind {
                's' | 'c' => ("s", Uuid([2; 16])),
                'o' => ("t", Uuid([3; 16])),
                _ => ("t", TOPIC),
            };
            if matches!(kind, 't' | 's' | 'o') {
                found.logs.insert(name(topic), log(id));
            } else {
                let (partition, folder) = (name(topic), format!("{kind}-future"));
                found.futures.push(FoundFuture { partition, folder, log: log(id) });
            }
        }
        found
    }

    /// What is left and renamed in each directory: `t` and `f`, and `x>y` for a folder and the
    /// kind of its new name; and whether a log is missing.
    fn decided(contents: &[&str]) -> (Vec<String>, bool) {
        let image = image();
        let mut random = Random::new(1);
        let mut found: Vec<LogDirectory> = contents.iter().map(|it| directory(it)).collect();
        let mut names = Names {
            image: &image,
            node: NODE,
            ids: IDS[..contents.len()].to_vec(),
            random: &mut random,
            renamings: vec![Vec::new(); contents.len()],
        };
        names.decide(&mut found);
        let lacks_logs = names.lacks_logs(&found);
        let kept = found.iter().zip(names.renamings).map(|(found, renamings)| {
            let logs = found.logs.keys().map(|log| log.topic.to_string());
            let futures = found.futures.iter().map(|it| it.folder.replace("-future", ""));
            let renamed = renamings.into_iter().map(|it| {
                let from = it.from.replace("-future", "").replace("-0", "");
                let kind = ["-stray", "-delete"].into_iter().find(|end| it.to.ends_with(end));
                format!("{from}>{}", kind.unwrap_or(&it.to))
            });
            let words: Vec<String> = logs.chain(futures).chain(renamed).collect();
            words.join(" ")
        });
        (kept.collect(), lacks_logs)
    }

    #[test]
    fn folders_get_the_names_that_the_metadata_give_them() {
        // The metadata name the first directory.
        let table: &[(&[&str], &[&str])] = &[
            (&["t", ""], &["t", ""]),
            (&["ts", "c"], &["t s>-stray", "c>-stray"]),
            (&["o", ""], &["t>-stray", ""]),
            // A move that goes on, whichever directory the metadata name.
            (&["t", "f"], &["t", "f"]),
            (&["f", "t"], &["f", "t"]),
            // A move whose log has gone already, and whose copy has not arrived.
            (&["f", ""], &["t f>t-0", ""]),
            // A copy of which nobody knows whether it is whole.
            (&["", "f"], &["", "f>-stray"]),
            (&["-", "f"], &["", ""]),
            (&["f", "-"], &["t f>t-0", ""]),
            // Apache Kafka ended between its two renames.
            (&["t", "t"], &["t", "t>-stray"]),
            (&["", "t", "t"], &["", "t", "t>-stray"]),
            // What no move leaves.
            (&["tf", ""], &["t f>-delete", ""]),
            (&["t", "f", "g"], &["t", "f", "g>-delete"]),
            (&["t", "fg"], &["t", "f g>-delete"]),
        ];
        for (contents, expected) in table {
            assert_eq!(decided(contents).0, *expected, "{contents:?}");
        }
    }

    #[test]
    fn what_is_left_of_deleted_logs_stays_while_a_log_is_missing() {
        let table: &[(&[&str], bool)] = &[
            (&["t", ""], false),
            (&["", "t"], false),
            (&["f", ""], false),
            (&["", ""], true),
            (&["o", ""], true),
            (&["", "f"], true),
            (&["t", "-"], true),
        ];
        for (contents, lacks_logs) in table {
            assert_eq!(decided(contents).1, *lacks_logs, "{contents:?}");
        }
    }
}
