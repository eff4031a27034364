//! Log directories that fail, and what the controller has to know of those that do not.
//!
//! Whoever meets a fault of the disk says so to the keeper, which tells the other shards and the
//! controller. The node goes on as long as one directory is online and it is not the metadata log's
//! that failed (`ReplicaManager.handleLogDirFailure`).

use std::sync::Arc;

use api::Effect;
use base::{Token, Uuid};
use intercom::{LogDirectory, PartitionKey, QuorumRequest, Request};

use crate::setup::Setup;
use crate::shard::{Io, Shard};

/// Directories that fail.
impl Shard {
    /// A log of this shard met a fault of its disk.
    pub(crate) fn log_failed_directory(
        &mut self,
        io: &mut Io<'_>,
        directory: u16,
        sentence: String,
    ) {
        if self.setup.is_keeper() {
            return self.directory_failed(io, directory, sentence);
        }
        let body = Request::DirectoryFailed { directory, sentence };
        self.mail.request(io.effects, Setup::KEEPER, Token::NONE, body);
    }

    /// As keeper: a directory can no longer be trusted.
    pub(crate) fn directory_failed(&mut self, io: &mut Io<'_>, index: u16, sentence: String) {
        let found = &mut self.life.keeper().found[usize::from(index)];
        let Some(found) = found.as_mut().filter(|found| found.offline.is_none()) else { return };
        found.offline = Some(sentence.clone());
        self.say_offline(index, &sentence);
        let path = &self.setup.log_directories[usize::from(index)].path;
        if path.as_os_str() == self.setup.config.metadata_log_dir.as_str() {
            let sentence = format!(
                "The directory of the metadata log, {}, has failed, and a node cannot run without: \
                 {sentence}. Mend or replace the disk and start again.",
                path.display()
            );
            return io.effects.push(Effect::Fail { sentence });
        }
        if self.has_begun() {
            self.spread_directories(io);
        }
        self.report_failed_directories(io);
    }

    /// One line, for the operator.
    pub(crate) fn say_offline(&self, index: u16, sentence: &str) {
        let directory = self.setup.log_directories[usize::from(index)].path.display();
        tracing::error!(%directory, "a log directory is offline: {sentence}");
    }

    /// What the directories held, before logs are opened; later, which of them are offline.
    pub(crate) fn found_directories(&mut self, io: &mut Io<'_>, found: Arc<[LogDirectory]>) {
        if !self.has_begun() {
            self.life.found = Some(found);
            return self.begin_when_loaded(io);
        }
        self.life.found = Some(found.iter().map(LogDirectory::without_logs).collect());
        for (index, directory) in (0..).zip(found.iter()) {
            if directory.offline.is_some() {
                self.with_owner(io, |owner, desk| owner.fail_directory(desk, index));
            }
        }
    }

    /// As keeper: tells the controller of directories that have failed since this broker
    /// registered.
    pub(crate) fn report_failed_directories(&mut self, io: &mut Io<'_>) {
        let keeper = self.life.keeper();
        if keeper.broker_epoch < 0 {
            return;
        }
        let found = (0..).zip(keeper.found.iter().flatten());
        let offline = found.filter(|(_, directory)| directory.offline.is_some());
        let offline: Vec<u16> = offline.map(|(index, _)| index).collect();
        let news = offline.into_iter().filter(|index| keeper.reported.insert(*index));
        let ids = news.map(|index| self.setup.log_directories[usize::from(index)].id);
        let ids: Vec<Uuid> = ids.collect();
        if !ids.is_empty() {
            self.ask_quorum_for_shard(io, QuorumRequest::DirectoriesFailed(ids));
        }
    }

    /// The ids of the directories that are online.
    pub(crate) fn online_directories(&self) -> Vec<Uuid> {
        let all = self.setup.log_directories.iter().enumerate();
        all.filter(|(index, _)| !self.is_offline(*index)).map(|(_, one)| one.id).collect()
    }
}

/// Directories of partitions.
impl Shard {
    /// A log is open: whether the metadata know where it is.
    pub(crate) fn log_opened(&mut self, key: PartitionKey, directory: u16) {
        let image = self.view.as_ref().map(|view| &view.image);
        let topic = image.and_then(|image| image.topic(key.topic));
        let partition = topic.and_then(|topic| topic.partition(key.partition));
        let known = partition.and_then(|partition| partition.directory_of(self.setup.node));
        let id = self.setup.log_directories[usize::from(directory)].id;
        if known.is_some_and(|known| known != id) {
            self.assignments.add(key, id);
        }
    }

    /// Tells the controller the directories that it does not know.
    pub(crate) fn assign_directories(&mut self, io: &mut Io<'_>) {
        if self.life.is_stopping() {
            return;
        }
        if let Some(assigned) = self.assignments.next() {
            self.ask_quorum_for_shard(io, QuorumRequest::AssignDirectories(assigned));
        }
    }
}
