//! The log directories as this shard sees them: a fault of one log is a fault of its directory
//! (`LogDirFailureChannel`), and takes all the logs in it offline.

use std::collections::BTreeSet;

use base::Token;
use protocol::ErrorCode;

use super::{Desk, Notice, Owner};

/// What the shard knows of the node's log directories, by their index.
#[derive(Debug, Default)]
pub(super) struct Directories {
    /// Those that have failed.
    offline: BTreeSet<u16>,
    /// Those in which a log could not be closed in order.
    unclosed: BTreeSet<u16>,
}

impl Owner {
    /// A log directory can no longer be trusted, as this shard or another one has found.
    pub(crate) fn fail_directory(&mut self, desk: &mut Desk<'_>, directory: u16) {
        if !self.directories.offline.insert(directory) {
            return;
        }
        let here = self.partitions.iter().filter(|(_, one)| one.directory == directory);
        for token in here.map(|(token, _)| token).collect::<Vec<Token>>() {
            self.partition(token).log.give_up();
            self.log_is_offline(desk, token);
        }
    }

    /// A fault of the disk under one log.
    pub(super) fn disk_failed(&mut self, desk: &mut Desk<'_>, token: Token, sentence: String) {
        let partition = self.partition(token);
        let directory = partition.directory;
        tracing::error!(partition = %partition.name, "the log is offline: {sentence}");
        self.log_is_offline(desk, token);
        if !self.directories.offline.contains(&directory) {
            self.fail_directory(desk, directory);
            self.notices.push(Notice::DirectoryFailed(directory, sentence));
        }
    }

    /// Nothing more comes of a log: who waits for it is told.
    pub(super) fn log_is_offline(&mut self, desk: &mut Desk<'_>, token: Token) {
        self.opening.remove(&token);
        self.end_closing(token);
        self.end_host(desk, token);
        self.refuse_waiting(desk, token);
        self.wake(token);
        let parked = std::mem::take(&mut self.partition(token).parked);
        self.append_parked(desk, token);
        self.ask_again(desk, parked);
        self.end_searches(desk, token, ErrorCode::KAFKA_STORAGE_ERROR);
        let key = self.partition(token).key;
        if self.by_key.get(&key) != Some(&token) {
            // It was being deleted. What is left of its folder goes at a later start.
            self.partitions.remove(token);
        }
    }

    /// The disk was too full for a log to be closed.
    pub(super) fn not_closed(&mut self, desk: &mut Desk<'_>, token: Token, cause: &api::IoError) {
        let partition = self.partition(token);
        let directory = partition.directory;
        tracing::warn!(partition = %partition.name, %cause, "the next start recovers the log");
        self.directories.unclosed.insert(directory);
        self.log_is_offline(desk, token);
    }

    /// One log less is being closed, if it was.
    pub(super) fn end_closing(&mut self, token: Token) {
        if self.closing.remove(&token) && self.closing.is_empty() {
            self.notices.push(Notice::AllClosed);
        }
    }

    /// The directories that must not be marked as closed in order: some of their logs were not, or
    /// were still being opened.
    pub(crate) fn unclosed_directories(&self) -> Vec<u16> {
        let opening = self.opening.iter().filter_map(|token| self.partitions.get(*token));
        let mut all = self.directories.unclosed.clone();
        all.extend(opening.map(|partition| partition.directory));
        all.into_iter().collect()
    }
}
