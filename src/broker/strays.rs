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
//! | several logs of a partition, all but one marked as a copy | those are set aside |
//! | the same, and more have no mark, or none | nothing is touched, and the node ends |
//! | one log, marked as a copy, while a directory is offline, which may have the log | it waits |
//! | a copy, and its log in another directory | the log goes on moving |
//! | a copy in the directory of its log, or a second copy | it goes |
//! | a copy without its log, in the directory that the metadata name | it becomes the log |
//! | the same in another directory, while one is offline, which may have the log | it stays |
//! | the same while none is | it is set aside |
//! | what is left of deleted logs, and every log is found | it goes |
//! | the same while one is missing, or a directory is offline | it stays |

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use api::Effect;
use base::{Map, NodeId, Random, TopicId, TopicPartition, Uuid};
use commitlog::{Directory, Renaming, deleted_folder, stray_folder};
use intercom::{FoundLog, LogDirectory};
use metadata::{DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Image, Partition};

use crate::files::FileStep;
use crate::life::Folders;
use crate::shard::{Io, Shard};
use crate::topics;

impl Shard {
    /// As keeper: once both the directories are read and the metadata are there, gives folders the
    /// names that they must have (`LogManager.isStrayKraftReplica`, `recoverAbandonedFutureLogs`).
    /// No shard opens or makes a log before that is done.
    pub(crate) fn set_strays_aside(&mut self, io: &mut Io<'_>) {
        if !self.setup.is_keeper() || self.view.is_none() {
            return;
        }
        let keeper = self.life.keeper();
        let is_decided = matches!(keeper.folders, Folders::Known | Folders::Refused);
        if is_decided || keeper.found.iter().any(Option::is_none) {
            return;
        }
        if keeper.found.iter().flatten().all(|one| one.offline.is_some()) {
            return self.spread_directories(io);
        }
        if keeper.folders == Folders::Unknown {
            self.look_for_copies(io);
        }
        let keeper = self.life.keeper();
        let Folders::FindingCopies(left) = &keeper.folders else { return };
        let is_online = |index: &u16| {
            let found = keeper.found[usize::from(*index)].as_ref();
            found.is_some_and(|found| found.offline.is_none())
        };
        if !left.iter().any(is_online) {
            self.name_folders(io);
        }
    }

    /// As keeper: a directory has said which of the logs that it was asked for are copies.
    pub(crate) fn copies_found(&mut self, io: &mut Io<'_>, index: u16, copies: &[TopicPartition]) {
        let keeper = self.life.keeper();
        if let Some(found) = &mut keeper.found[usize::from(index)] {
            for copy in copies {
                found.logs.get_mut(copy).expect("it was asked for").is_copy = true;
            }
        }
        if let Folders::FindingCopies(left) = &mut keeper.folders {
            left.remove(&index);
        }
        self.set_strays_aside(io);
    }

    /// As keeper: tells every shard what the directories hold, once that is only what belongs here.
    pub(crate) fn begin_without_strays(&mut self, io: &mut Io<'_>) {
        let keeper = self.life.keeper();
        let is_known = keeper.folders == Folders::Known;
        let is_over = is_known && keeper.directories.iter().all(Directory::is_idle);
        if is_over && !self.has_begun() {
            self.remove_deleted_logs(io);
            self.spread_directories(io);
        }
    }
}

impl Shard {
    /// Asks which logs are copies, where a partition has more than one, or may have: in a directory
    /// that is offline.
    fn look_for_copies(&mut self, io: &mut Io<'_>) {
        let Some(view) = &self.view else { return };
        let keeper = self.life.keeper.as_mut().expect("only the keeper has to do with this");
        let replicas = Replicas { image: &view.image, node: self.setup.node };
        let found: Vec<&LogDirectory> = keeper.found.iter().flatten().collect();
        let has_offline = found.iter().any(|directory| directory.offline.is_some());
        let mut asked = BTreeMap::new();
        for (index, directory) in (0..).zip(&found) {
            let may_be_copy = |log: &&TopicPartition| {
                let all = replicas.with_log(&found, log);
                all.contains(&usize::from(index)) && (has_offline || all.len() > 1)
            };
            let logs: Vec<TopicPartition> =
                directory.logs.keys().filter(may_be_copy).cloned().collect();
            if !logs.is_empty() {
                asked.insert(index, logs);
            }
        }
        keeper.folders = Folders::FindingCopies(asked.keys().copied().collect());
        for (index, logs) in asked {
            let mut steps = Vec::new();
            keeper.directories[usize::from(index)].find_copies(logs, &mut steps);
            for step in steps {
                self.files.file(io.effects, step, |step| FileStep::Directory(index, step));
            }
        }
    }

    /// Gives folders their names, or ends the node where nobody can tell which.
    fn name_folders(&mut self, io: &mut Io<'_>) {
        let Some(view) = &self.view else { return };
        let keeper = self.life.keeper.as_mut().expect("only the keeper has to do with this");
        let directories = &self.setup.log_directories;
        let mut names = Names {
            replicas: Replicas { image: &view.image, node: self.setup.node },
            ids: directories.iter().map(|directory| directory.id).collect(),
            paths: directories.iter().map(|directory| directory.path.clone()).collect(),
            random: &mut self.random,
            renamings: vec![Vec::new(); keeper.found.len()],
        };
        let mut found: Vec<LogDirectory> = keeper.found.drain(..).flatten().collect();
        if let Err(sentence) = names.decide(&mut found) {
            keeper.folders = Folders::Refused;
            return io.effects.push(Effect::Fail { sentence });
        }
        keeper.folders = Folders::Known;
        let missing = names.missing(&found);
        keeper.keeps_deleted = lacks_logs(&found, &missing);
        names.tell_missing(&found, &missing);
        let renamings = names.renamings;
        keeper.found = found.into_iter().map(Some).collect();
        let mut effects = Vec::new();
        let all = keeper.directories.iter_mut().zip(renamings);
        for (index, (directory, renamings)) in (0..).zip(all) {
            let mut steps = Vec::new();
            directory.settle(renamings, &mut steps);
            effects.push((index, steps));
        }
        for (index, steps) in effects {
            self.file_directory_effects(io, index, steps);
        }
        self.begin_without_strays(io);
    }

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

/// Whether a log may be missing whose only remains are those of a deleted one: it was not found, or
/// a directory could not be read.
fn lacks_logs(found: &[LogDirectory], missing: &BTreeMap<TopicPartition, Option<Uuid>>) -> bool {
    !missing.is_empty() || found.iter().any(|directory| directory.offline.is_some())
}

/// Whether the metadata name a directory by this id, and not that they do not know one.
fn is_of_a_directory(id: Uuid) -> bool {
    ![DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED].contains(&id)
}

/// What the metadata say of this node's replicas.
#[derive(Clone, Copy)]
struct Replicas<'a> {
    image: &'a Image,
    node: NodeId,
}

impl<'a> Replicas<'a> {
    /// Whether a log is a replica's of this node. Where its topic is not known its name tells:
    /// opening it finds out more.
    fn has(self, log: &TopicPartition, topic_id: Option<TopicId>) -> bool {
        &*log.topic == topics::METADATA_TOPIC || self.get(log, topic_id).is_some()
    }

    /// The partition of a replica of this node.
    fn get(self, log: &TopicPartition, topic_id: Option<TopicId>) -> Option<&'a Partition> {
        let topic = self.image.topic_by_name(&log.topic);
        let topic = topic.filter(|topic| topic_id.is_none_or(|id| id == topic.id));
        let partition = topic.and_then(|topic| topic.partition(log.partition));
        partition.map(|partition| &**partition).filter(|partition| partition.has_replica(self.node))
    }

    /// The directories that are online and have a log of a replica, by index.
    fn with_log(self, found: &[impl Borrow<LogDirectory>], log: &TopicPartition) -> Vec<usize> {
        let has_log = |directory: &LogDirectory| {
            let found = directory.logs.get(log).filter(|_| directory.offline.is_none());
            found.is_some_and(|found| self.get(log, found.topic_id).is_some())
        };
        (0..found.len()).filter(|index| has_log(found[*index].borrow())).collect()
    }
}

/// Which folders get which names.
struct Names<'a> {
    replicas: Replicas<'a>,
    /// Of the directories, in their order.
    ids: Vec<Uuid>,
    paths: Vec<PathBuf>,
    random: &'a mut Random,
    /// By directory.
    renamings: Vec<Vec<Renaming>>,
}

impl Names<'_> {
    /// Leaves in `found` what belongs here, under the names that it will have; or says in a
    /// sentence why nobody can tell what does.
    fn decide(&mut self, found: &mut [LogDirectory]) -> Result<(), String> {
        for (index, directory) in found.iter_mut().enumerate() {
            self.take_strays(index, &mut directory.logs);
        }
        self.take_seconds(found)?;
        let has_offline = found.iter().any(|directory| directory.offline.is_some());
        self.let_copies_wait(found, has_offline);
        let mut moving: Vec<TopicPartition> = Vec::new();
        for index in 0..found.len() {
            for future in std::mem::take(&mut found[index].futures) {
                let partition = &future.partition;
                let replica = self.replicas.get(partition, future.log.topic_id);
                let directory = replica.map(|replica| replica.directory_of(self.replicas.node));
                let Some(directory) = directory else {
                    self.set_aside(index, &future.folder, partition, "a stray copy is set aside");
                    continue;
                };
                let current = found.iter().position(|one| one.logs.contains_key(partition));
                let is_second = moving.contains(partition) || current == Some(index);
                match current {
                    Some(current) if found[current].logs[partition].is_copy => {}
                    _ if is_second => self.delete(index, &future.folder, partition),
                    Some(_) => {
                        moving.push(partition.clone());
                        found[index].futures.push(future);
                    }
                    None if directory == Some(self.ids[index]) => {
                        let what = "a copy becomes the log whose name it was to get";
                        self.rename(index, &future.folder, partition.to_string(), what);
                        let log = FoundLog { is_copy: false, ..future.log };
                        found[index].logs.insert(future.partition, log);
                    }
                    None if has_offline => {}
                    None => {
                        let what = "a copy without its log is set aside";
                        self.set_aside(index, &future.folder, partition, what);
                    }
                }
            }
        }
        Ok(())
    }

    /// The replicas of this node whose logs were not found, each with the directory that the
    /// metadata name. A move that was broken off can have left the log as a deleted one.
    fn missing(&self, found: &[LogDirectory]) -> BTreeMap<TopicPartition, Option<Uuid>> {
        let Replicas { image, node } = self.replicas;
        let is_found = |log: &TopicPartition| found.iter().any(|one| one.logs.contains_key(log));
        let mut missing = BTreeMap::new();
        for topic in image.topics().values() {
            for (index, partition) in topic.partitions.iter() {
                let log = TopicPartition { topic: topic.name.clone(), partition: *index };
                if partition.has_replica(node) && !is_found(&log) {
                    missing.insert(log, partition.directory_of(node));
                }
            }
        }
        missing
    }

    /// Says which logs are missing that were there once, as far as anybody knows: empty ones are
    /// made for them, as in Apache Kafka. One that may be in a directory that is offline is not
    /// missing.
    fn tell_missing(
        &self,
        found: &[LogDirectory],
        missing: &BTreeMap<TopicPartition, Option<Uuid>>,
    ) {
        if found.iter().any(|directory| directory.offline.is_some()) {
            return;
        }
        let mut elsewhere: BTreeMap<Uuid, Vec<&TopicPartition>> = BTreeMap::new();
        for (log, named) in missing {
            let known =
                (0..).zip(found).find_map(|(index, it)| Some((index, *it.missing.get(log)?)));
            if let Some((index, offset)) = known {
                let folder = self.paths[index].join(log.to_string());
                tracing::warn!(
                    partition = %log, folder = %folder.display(), below = %offset,
                    "the folder of a log is missing, with what was in it: an empty log is made"
                );
            } else if let Some(id) =
                named.filter(|id| is_of_a_directory(*id) && !self.ids.contains(id))
            {
                elsewhere.entry(id).or_default().push(log);
            }
        }
        for (directory_id, logs) in elsewhere {
            tracing::warn!(
                %directory_id, first = %logs[0], partitions = logs.len(),
                "logs were in a directory that log.dirs does not name any more: empty ones are \
                 made. To have the old ones back, stop this node, remove the empty ones, and name \
                 that directory again"
            );
        }
    }

    /// Takes those out of `logs` that are no replica's of this node, in order of their names.
    fn take_strays(&mut self, index: usize, logs: &mut Map<TopicPartition, FoundLog>) {
        let strays = logs.iter().filter(|(log, found)| !self.replicas.has(log, found.topic_id));
        let mut strays: Vec<TopicPartition> = strays.map(|(log, _)| log.clone()).collect();
        strays.sort();
        for stray in &strays {
            logs.remove(stray);
            self.set_aside(index, &stray.to_string(), stray, "a stray log is set aside");
        }
    }

    /// Where two directories have a log of a partition, all but one must be copies that were taking
    /// its place, as far as anybody heard: those are set aside (`LogManager.loadLog`).
    fn take_seconds(&mut self, found: &mut [LogDirectory]) -> Result<(), String> {
        let logs = found.iter().flat_map(|directory| directory.logs.keys());
        let twice = logs.filter(|log| self.replicas.with_log(found, log).len() > 1).cloned();
        let twice: BTreeSet<TopicPartition> = twice.collect();
        let mut seconds: Vec<(usize, &TopicPartition)> = Vec::new();
        for log in &twice {
            let all = self.replicas.with_log(found, log);
            let (copies, logs): (Vec<usize>, Vec<usize>) =
                all.iter().partition(|index| found[**index].logs[log].is_copy);
            if logs.len() != 1 {
                return Err(self.refusal(log, &all, twice.len() - 1));
            }
            seconds.extend(copies.into_iter().map(|index| (index, log)));
        }
        for (index, log) in seconds {
            found[index].logs.remove(log);
            let what = "a copy whose log went on without it is set aside";
            self.set_aside(index, &log.to_string(), log, what);
        }
        Ok(())
    }

    /// A copy that is alone counts as the log, unless a directory is offline: the log can have got
    /// its name back there, and gone on without the copy. The directory that the metadata name does
    /// not tell: a log that was opened takes appends before they name its directory.
    fn let_copies_wait(&self, found: &mut [LogDirectory], has_offline: bool) {
        let mut waiting = Vec::new();
        for (index, directory) in found.iter_mut().enumerate() {
            for (log, one) in &mut directory.logs {
                one.is_copy &= has_offline;
                if one.is_copy && directory.offline.is_none() {
                    waiting.push(self.paths[index].join(log.to_string()));
                }
            }
        }
        waiting.sort();
        for folder in waiting {
            tracing::warn!(
                folder = %folder.display(),
                "a copy is not used while a directory is offline that may have its log: mend that \
                 disk, or take it out of log.dirs, and start again"
            );
        }
    }

    fn refusal(&self, log: &TopicPartition, directories: &[usize], others: usize) -> String {
        let folders = directories.iter().map(|index| self.paths[*index].join(log.to_string()));
        let folders: Vec<String> = folders.map(|folder| folder.display().to_string()).collect();
        let others = match others {
            0 => String::new(),
            others => format!(" (and so it is with {others} other partitions)"),
        };
        format!(
            "Duplicate log directories for {log} are found in {}{others}: one of them may be from \
             before its directory was taken out of log.dirs and put back. Look at both (`kafka-\
             dump-log`), move the one that you do not need out of its directory, and start again. \
             No log was changed",
            folders.join(" and ")
        )
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
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::PartitionIndex;
    use intercom::FoundFuture;
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

    /// What is in one directory: `t` is its log, `m` one with the mark of a copy, `f` its copy, `g`
    /// another one, `s` the log of a topic that is gone and `c` its copy, `o` the log of an older
    /// topic of its name, `-` that it is offline.
    fn directory(content: &str) -> LogDirectory {
        let mut found = LogDirectory {
            offline: content.contains('-').then(|| "it is broken".to_owned()),
            clean_shutdown: None,
            logs: Map::default(),
            futures: Vec::new(),
            missing: Map::default(),
        };
        for kind in content.chars().filter(|kind| *kind != '-') {
            let (topic, id) = match kind {
                's' | 'c' => ("s", Uuid([2; 16])),
                'o' => ("t", Uuid([3; 16])),
                _ => ("t", TOPIC),
            };
            let is_copy = kind == 'm';
            let log =
                |topic_id| FoundLog { topic_id: Some(topic_id), is_copy, ..FoundLog::default() };
            if matches!(kind, 't' | 'm' | 's' | 'o') {
                found.logs.insert(name(topic), log(id));
            } else {
                let (partition, folder) = (name(topic), format!("{kind}-future"));
                found.futures.push(FoundFuture { partition, folder, log: log(id) });
            }
        }
        found
    }

    /// What is left and renamed in each directory: `t` and `f`, `m` for a copy that waits for its
    /// log, and `x>y` for a folder and the kind of its new name; and whether a log is missing. Or
    /// why the node does not start.
    fn decided(contents: &[&str]) -> Result<(Vec<String>, bool), String> {
        let image = image();
        let mut random = Random::new(1);
        let mut found: Vec<LogDirectory> = contents.iter().map(|it| directory(it)).collect();
        let mut names = Names {
            replicas: Replicas { image: &image, node: NODE },
            ids: IDS[..contents.len()].to_vec(),
            paths: ["a", "b", "c"][..contents.len()].iter().map(PathBuf::from).collect(),
            random: &mut random,
            renamings: vec![Vec::new(); contents.len()],
        };
        names.decide(&mut found)?;
        let lacks_logs = lacks_logs(&found, &names.missing(&found));
        let kept = found.iter().zip(names.renamings).map(|(found, renamings)| {
            let logs = found.logs.iter().map(|(log, found)| match found.is_copy {
                true => "m".to_owned(),
                false => log.topic.to_string(),
            });
            let futures = found.futures.iter().map(|it| it.folder.replace("-future", ""));
            let renamed = renamings.into_iter().map(|it| {
                let from = it.from.replace("-future", "").replace("-0", "");
                let kind = ["-stray", "-delete"].into_iter().find(|end| it.to.ends_with(end));
                format!("{from}>{}", kind.unwrap_or(&it.to))
            });
            let words: Vec<String> = logs.chain(futures).chain(renamed).collect();
            words.join(" ")
        });
        Ok((kept.collect(), lacks_logs))
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
            // The disk of the copy failed just as that got its name, and has come back.
            (&["t", "m"], &["t", "t>-stray"]),
            (&["m", "t"], &["t>-stray", "t"]),
            (&["m", "m", "t"], &["t>-stray", "t>-stray", "t"]),
            (&["t", "m", "f"], &["t", "t>-stray", "f"]),
            // The copy has its name, and nobody came to take its mark away.
            (&["", "m"], &["", "t"]),
            // The same, or the log went on without it where nobody can look.
            (&["-", "m"], &["", "m"]),
            (&["m", "-"], &["m", ""]),
            (&["t-", "m"], &["t", "m"]),
            (&["-", "mf"], &["", "m"]),
            (&["-", "m", "f"], &["", "m", ""]),
            (&["-", "m", "t"], &["", "t>-stray", "t"]),
            // Only one belongs here.
            (&["t", "o"], &["t", "t>-stray"]),
            // What no move leaves.
            (&["tf", ""], &["t f>-delete", ""]),
            (&["t", "f", "g"], &["t", "f", "g>-delete"]),
            (&["t", "fg"], &["t", "f g>-delete"]),
        ];
        for (contents, expected) in table {
            let decided = decided(contents).expect("they can be told apart");
            assert_eq!(decided.0, *expected, "{contents:?}");
        }
    }

    #[test]
    fn of_two_logs_that_nobody_can_tell_apart_none_is_used() {
        for contents in [&["t", "t"][..], &["", "t", "t"], &["m", "m"], &["t", "tf"]] {
            let sentence = decided(contents).expect_err("it is refused");
            let (first, second) = if contents[0].is_empty() { ("b", "c") } else { ("a", "b") };
            let both = format!("for t-0 are found in {first}/t-0 and {second}/t-0: ");
            assert!(sentence.contains(&both), "{sentence}");
        }
        assert!(decided(&["t", "t-"]).is_ok(), "one that is offline is not there");
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
            let decided = decided(contents).expect("they can be told apart");
            assert_eq!(decided.1, *lacks_logs, "{contents:?}");
        }
    }
}
