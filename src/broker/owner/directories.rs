//! The log directories as this shard sees them: how far their disks are behind; and a fault of one
//! log is a fault of its directory (`LogDirFailureChannel`), and takes all the logs in it offline.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Token;
use bytes::Bytes;
use intercom::AppendPartition;
use protocol::ErrorCode;

use super::{Desk, Notice, Owner};

/// The part of `Setup::dirty_bytes_max` that a shard has at least: a few of the portions that a log
/// brings to the disk itself.
const DIRTY_BYTES_PER_SHARD_MIN: u64 = 32 << 20;
/// Logs of one directory that a shard has brought to the disk at a time because of the directory's
/// dirt. Few, so that the disk gets long runs of bytes.
const WRITE_BACKS_MAX: usize = 4;
/// Bytes of appends that wait in one directory: for its disk to have less dirt, for a log in it to
/// open, or for a check; more are told to try again.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// What the shard knows of the node's log directories, by their index.
#[derive(Debug)]
pub(super) struct Directories {
    /// Those that have failed.
    offline: BTreeSet<u16>,
    /// Those in which a log could not be closed in order.
    unclosed: BTreeSet<u16>,
    disks: BTreeMap<u16, Disk>,
    /// What this shard may have dirty in each.
    dirty_bytes_max: u64,
    /// Whether appends wait for a directory, or would.
    is_any_behind: bool,
}

/// The dirt of one directory.
#[derive(Debug, Default)]
struct Disk {
    dirty_bytes: u64,
    /// Dirty partitions, those first that have been so for the longest.
    dirty: VecDeque<Token>,
    /// Partitions with a write-back under way that was asked for here.
    cleaning: BTreeSet<Token>,
    /// Partitions with appends in their queues that wait until there is less, in order.
    waiting: VecDeque<Token>,
    /// Bytes in the queues of all its partitions, whatever they wait for.
    waiting_bytes: usize,
}

impl Disk {
    /// Counts what waits, and makes it own its bytes: others are received into the same chunk of
    /// the core, and are not to wait as well. False where it would be too much.
    fn keep(&mut self, part: &mut AppendPartition) -> bool {
        if self.waiting_bytes + part.records.len() > WAITING_BYTES_MAX {
            return false;
        }
        part.records = Bytes::copy_from_slice(&part.records);
        self.waiting_bytes += part.records.len();
        true
    }
}

impl Directories {
    pub(super) fn new(data_shards: u16, dirty_bytes_max: u64) -> Self {
        let part = dirty_bytes_max / u64::from(data_shards);
        Self {
            offline: BTreeSet::new(),
            unclosed: BTreeSet::new(),
            disks: BTreeMap::new(),
            dirty_bytes_max: part.max(DIRTY_BYTES_PER_SHARD_MIN),
            is_any_behind: false,
        }
    }

    fn look_behind(&mut self) {
        let max = self.dirty_bytes_max;
        let is_behind = |disk: &Disk| disk.dirty_bytes >= max || !disk.waiting.is_empty();
        self.is_any_behind = self.disks.values().any(is_behind);
    }
}

/// A disk that is slower than what is written to it: its dirt is bounded, and who writes more of it
/// waits and is not read.
impl Owner {
    /// Whether appends have to wait for this directory: its disk is behind, or others wait.
    pub(super) fn is_behind(&self, directory: u16) -> bool {
        let disk = self.directories.is_any_behind.then(|| self.directories.disks.get(&directory));
        disk.flatten().is_some_and(|disk| {
            disk.dirty_bytes >= self.directories.dirty_bytes_max || !disk.waiting.is_empty()
        })
    }

    /// Whether the directory has so much dirt that nothing is appended in it.
    pub(super) fn is_dirty(&self, directory: u16) -> bool {
        let disk = self.directories.disks.get(&directory);
        disk.is_some_and(|disk| disk.dirty_bytes >= self.directories.dirty_bytes_max)
    }

    /// Lets the queue of a partition wait until the directory has less dirt.
    pub(super) fn wait_for_disk(&mut self, token: Token) {
        let directory = self.partition(token).directory;
        self.directories.disks.entry(directory).or_default().waiting.push_back(token);
        self.directories.is_any_behind = true;
    }

    /// The queue of a partition waits for the directory no more.
    pub(super) fn forget_to_wait(&mut self, directory: u16, token: Token) {
        if let Some(disk) = self.directories.disks.get_mut(&directory) {
            disk.waiting.retain(|other| *other != token);
        }
    }

    /// Makes a part of an append ready to wait; false where too much waits already.
    pub(super) fn keep(&mut self, directory: u16, part: &mut AppendPartition) -> bool {
        self.directories.disks.entry(directory).or_default().keep(part)
    }

    /// A part that was kept waits no more.
    pub(super) fn waited(&mut self, directory: u16, part: &AppendPartition) {
        let disk = self.directories.disks.get_mut(&directory).expect("the part was kept");
        disk.waiting_bytes -= part.records.len();
    }

    /// Appends what waited for a directory that has less dirt now.
    pub(super) fn append_what_waited(&mut self, desk: &mut Desk<'_>) {
        if !self.directories.is_any_behind {
            return;
        }
        for touched in 0..self.touched.len() {
            self.count_dirt(self.touched[touched]);
        }
        for directory in self.directories.disks.keys().copied().collect::<Vec<u16>>() {
            while !self.is_dirty(directory)
                && let Some(disk) = self.directories.disks.get_mut(&directory)
                && let Some(token) = disk.waiting.pop_front()
            {
                self.move_queue(desk, token);
            }
        }
        self.directories.look_behind();
    }

    /// Counts the dirt of a partition anew.
    pub(super) fn count_dirt(&mut self, token: Token) {
        let Some(partition) = self.partitions.get_mut(token) else { return };
        let (before, now) = partition.recount_dirt();
        let disk = self.directories.disks.entry(partition.directory).or_default();
        disk.dirty_bytes = disk.dirty_bytes + now - before;
        if now == 0 || !partition.log.is_writing_back() {
            disk.cleaning.remove(&token);
        }
        if now > 0 && !std::mem::replace(&mut partition.is_listed_dirty, true) {
            disk.dirty.push_back(token);
        }
        self.directories.is_any_behind |= disk.dirty_bytes >= self.directories.dirty_bytes_max;
    }

    /// A partition gets another log: what was counted of the old one counts no more.
    pub(super) fn uncount_dirt(&mut self, token: Token) {
        let partition = self.partition(token);
        let (directory, counted) = (partition.directory, partition.uncount_dirt());
        partition.is_listed_dirty = false;
        let disk = self.directories.disks.entry(directory).or_default();
        disk.dirty_bytes -= counted;
        disk.cleaning.remove(&token);
        disk.dirty.retain(|other| *other != token);
    }

    /// What waits in the queue of a partition waits for another directory from now on.
    pub(super) fn moves_waiting_bytes(&mut self, token: Token, from: u16, to: u16) {
        let parts = self.partition(token).queue.iter();
        let bytes: usize = parts.map(|(part, _)| part.records.len()).sum();
        self.directories.disks.entry(from).or_default().waiting_bytes -= bytes;
        self.directories.disks.entry(to).or_default().waiting_bytes += bytes;
    }

    /// Brings to the disk what has been dirty for the longest, where a directory has much dirt.
    pub(super) fn clean_early(&mut self, desk: &mut Desk<'_>) {
        let clean_at = self.directories.dirty_bytes_max / 2;
        let much = |(_, disk): &(&u16, &Disk)| disk.dirty_bytes >= clean_at;
        let full: Vec<u16> = self.directories.disks.iter().filter(much).map(|it| *it.0).collect();
        for directory in full {
            while let Some(disk) = self.directories.disks.get_mut(&directory)
                && disk.cleaning.len() < WRITE_BACKS_MAX
                && let Some(token) = disk.dirty.pop_front()
            {
                let Some(partition) = self.partitions.get_mut(token) else { continue };
                partition.is_listed_dirty = false;
                partition.log.write_back(&mut self.log_effects);
                if partition.log.is_writing_back() {
                    disk.cleaning.insert(token);
                }
                self.file_log_effects(desk, token);
            }
        }
    }
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
        if let Some(source) = self.moves.source_of(token) {
            self.copy_has_failed(desk, source);
        } else if self.moves.is_arriving(token) {
            // The copy has everything, and is taking its place.
            return;
        } else if self.moves.has(token) {
            self.source_has_failed(token);
        }
        self.opening.remove(&token);
        self.has_left(token);
        self.end_host(desk, token);
        self.refuse_waiting(desk, token);
        self.wake(token);
        let parked = std::mem::take(&mut self.partition(token).parked);
        self.refuse_queue(desk, token);
        self.ask_again(desk, parked);
        self.end_searches(desk, token, ErrorCode::KAFKA_STORAGE_ERROR);
        self.count_dirt(token);
        let key = self.partition(token).key;
        if self.by_key.get(&key) != Some(&token) {
            // It was being deleted. What is left of its folder goes at a later start.
            self.partitions.remove(token);
        }
    }

    /// The disk was too full for a log to be closed.
    pub(super) fn not_closed(&mut self, desk: &mut Desk<'_>, token: Token, cause: &api::IoError) {
        let partition = &self.partition(token).name;
        tracing::warn!(%partition, %cause, "the next start recovers the log");
        self.has_unclosed_log(token);
        self.log_is_offline(desk, token);
    }

    /// The next start has to recover the directory of the log.
    pub(super) fn has_unclosed_log(&mut self, token: Token) {
        let directory = self.partition(token).directory;
        self.directories.unclosed.insert(directory);
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
        // One that is held only waits for another log.
        let opening = opening.filter(|partition| !partition.is_held);
        all.extend(opening.map(|partition| partition.directory));
        all.into_iter().collect()
    }
}
