//! The files that a log directory has for all its logs: the checkpoints and the mark of a clean
//! shutdown; and the folders that get other names, or go, before any log is opened.

use std::collections::BTreeMap;
use std::path::PathBuf;

use api::{FileEffect, FileOutcome, FileRef, IoError, IoErrorKind};
use base::{Offset, TopicId, TopicPartition};

use crate::atomic_file::AtomicFile;
use crate::names::{self, FolderName, parse_folder};
use crate::text;

/// The largest checkpoint that is read, in bytes.
const TEXT_BYTES_MAX: u32 = 64 << 20;
const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";

/// One of the checkpoints of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckpointKind {
    /// `recovery-point-offset-checkpoint`: below it nothing has to be checked after a crash.
    RecoveryPoint,
    /// `log-start-offset-checkpoint`: only logs that do not begin at 0.
    LogStartOffset,
    /// `replication-offset-checkpoint`: the high watermarks.
    Replication,
    /// `cleaner-offset-checkpoint`: below it everything was compacted; only logs of which something
    /// was.
    Cleaner,
}

impl CheckpointKind {
    const ALL: [CheckpointKind; 4] = [
        CheckpointKind::RecoveryPoint,
        CheckpointKind::LogStartOffset,
        CheckpointKind::Replication,
        CheckpointKind::Cleaner,
    ];

    fn file_name(self) -> &'static str {
        match self {
            CheckpointKind::RecoveryPoint => "recovery-point-offset-checkpoint",
            CheckpointKind::LogStartOffset => "log-start-offset-checkpoint",
            CheckpointKind::Replication => "replication-offset-checkpoint",
            CheckpointKind::Cleaner => "cleaner-offset-checkpoint",
        }
    }
}

/// What goes on with a directory when an effect is done; opaque, to be handed back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryStep(Step);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Open,
    Checkpoint(CheckpointKind),
    CleanShutdown,
    SyncDeleted,
    RemoveDeleted,
    Settle,
    /// Whether the log with this index has the mark of a copy.
    CopyMark(usize),
}

/// What a directory says to its owner.
#[derive(Debug)]
pub enum DirectoryEvent {
    /// It is read, and as it was.
    Opened(FoundDirectory),
    /// Which of the logs that were asked for have the mark of a copy.
    CopiesFound(Vec<TopicPartition>),
    /// A checkpoint with at least what was last given is durable.
    CheckpointWritten(CheckpointKind),
    /// Everything is durable, and the mark of a clean shutdown is set; or the disk is too full for
    /// it, and the next start recovers what it finds.
    Closed,
    /// It can no longer be trusted.
    Failed {
        /// What happened.
        cause: IoError,
    },
}

/// What a directory holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundDirectory {
    /// Whether the broker stopped in order.
    pub clean_shutdown: bool,
    /// The epoch that the broker had then, if it is known.
    pub broker_epoch: Option<i64>,
    /// Below them nothing has to be checked.
    pub recovery_points: BTreeMap<TopicPartition, Offset>,
    /// The starts of logs whose first segments begin earlier.
    pub log_start_offsets: BTreeMap<TopicPartition, Offset>,
    /// The high watermarks.
    pub high_watermarks: BTreeMap<TopicPartition, Offset>,
    /// Below them everything was compacted.
    pub first_dirty: BTreeMap<TopicPartition, Offset>,
    /// The logs, each with the topic that its `partition.metadata` names, if it can be read.
    pub logs: Vec<(TopicPartition, Option<TopicId>)>,
    /// Copies of logs that are being moved here.
    pub futures: Vec<FoundFuture>,
}

/// A copy that is to take the place of a log in another directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFuture {
    /// Whose log it copies.
    pub partition: TopicPartition,
    /// The name of its folder.
    pub folder: String,
    /// The topic that its `partition.metadata` names, if it can be read.
    pub topic_id: Option<TopicId>,
}

/// A folder that gets another name before any log is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renaming {
    /// The name that it has.
    pub from: String,
    /// Its new name. Under one of a deleted log it goes at once.
    pub to: String,
    /// What it is, for the broker's log.
    pub what: &'static str,
}

/// A log directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    reading: Option<Reading>,
    found: FoundDirectory,
    /// Folders of deleted logs, which an earlier process did not come to remove.
    deleted: Vec<PathBuf>,
    /// Those that go as soon as their names are durable.
    going: Vec<PathBuf>,
    settling: SettlingStage,
    marks: Marks,
    writing: BTreeMap<CheckpointKind, AtomicFile>,
    /// What came while a checkpoint was being written: the newest is written next.
    next: BTreeMap<CheckpointKind, Vec<(TopicPartition, Offset)>>,
    closing: Option<Closing>,
    has_failed: bool,
}

/// Whether the directory becomes what logs can be opened in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SettlingStage {
    /// It is that, or nobody has asked yet.
    Idle,
    /// So many folders still have their old names; the mark of a clean shutdown counts as one.
    Renaming(usize),
    /// All have their new names, which are not durable yet.
    Syncing,
}

/// The search for copies that have the names of logs.
#[derive(Debug, Default)]
struct Marks {
    logs: Vec<TopicPartition>,
    found: Vec<TopicPartition>,
    /// How many logs are still to be looked at.
    left: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Folder,
    /// The topic of the log with this index; the copies come behind the logs.
    TopicId(usize),
    CleanShutdown,
    Checkpoint(CheckpointKind),
}

#[derive(Debug)]
struct Closing {
    broker_epoch: i64,
    mark: Option<AtomicFile>,
    is_over: bool,
}

type Out = Vec<FileEffect<DirectoryStep>>;

impl Directory {
    /// Reads the directory at `path`, and changes nothing.
    pub fn open(path: PathBuf, out: &mut Out) -> Self {
        let directory = path.clone();
        out.push(FileEffect::List { token: DirectoryStep(Step::Open), directory });
        Self {
            path,
            reading: Some(Reading::Folder),
            found: FoundDirectory::default(),
            deleted: Vec::new(),
            going: Vec::new(),
            settling: SettlingStage::Idle,
            marks: Marks::default(),
            writing: BTreeMap::new(),
            next: BTreeMap::new(),
            closing: None,
            has_failed: false,
        }
    }

    /// A directory that could not be read: it takes nothing, and says nothing.
    pub fn offline(path: PathBuf) -> Self {
        Self { reading: None, has_failed: true, ..Self::open(path, &mut Vec::new()) }
    }

    /// Takes the outcome of one of its effects.
    pub fn on_file(
        &mut self,
        step: DirectoryStep,
        outcome: FileOutcome,
        out: &mut Out,
        events: &mut Vec<DirectoryEvent>,
    ) {
        if self.has_failed {
            return;
        }
        let result = match step.0 {
            Step::Open => self.read_on(outcome, out, events),
            Step::Checkpoint(kind) => self.on_checkpoint(kind, outcome, out, events),
            Step::CleanShutdown => self.on_mark(outcome, out, events),
            Step::SyncDeleted => outcome.done().map(|()| self.remove_going(out)),
            Step::RemoveDeleted => outcome.done(),
            Step::Settle => self.on_settled(outcome, out),
            Step::CopyMark(index) => self.on_copy_mark(index, outcome, events),
        };
        if let Err(cause) = result {
            self.has_failed = true;
            events.push(DirectoryEvent::Failed { cause });
        }
    }

    /// Writes a checkpoint: all its entries, also those of other shards. While one is being
    /// written, only the newest that comes is kept.
    pub fn write_checkpoint(
        &mut self,
        kind: CheckpointKind,
        entries: Vec<(TopicPartition, Offset)>,
        out: &mut Out,
    ) {
        if self.has_failed {
            return;
        }
        if self.writing.contains_key(&kind) {
            self.next.insert(kind, entries);
            return;
        }
        let path = self.path.join(kind.file_name());
        let token = DirectoryStep(Step::Checkpoint(kind));
        let file = AtomicFile::replace(path, text::format_offsets(&entries), token, out);
        self.writing.insert(kind, file);
    }

    /// Sets the mark of a clean shutdown, after the checkpoints that are being written. All logs
    /// must be closed.
    pub fn close(&mut self, broker_epoch: i64, out: &mut Out) {
        self.closing = Some(Closing { broker_epoch, mark: None, is_over: false });
        self.mark_when_idle(out);
    }

    /// Looks for copies among logs: [`DirectoryEvent::CopiesFound`] says which are.
    pub fn find_copies(&mut self, logs: Vec<TopicPartition>, out: &mut Out) {
        let left = logs.len();
        for (index, log) in logs.iter().enumerate() {
            let file = FileRef::new(self.path.join(log.to_string()).join(names::COPY_MARK));
            let token = DirectoryStep(Step::CopyMark(index));
            out.push(FileEffect::Read { token, file, position: 0, length: TEXT_BYTES_MAX });
        }
        self.marks = Marks { logs, found: Vec::new(), left };
    }

    /// Takes the mark of a clean shutdown away, and gives folders other names: logs can be opened
    /// in the directory once it is idle. All that is durable then.
    pub fn settle(&mut self, folders: Vec<Renaming>, out: &mut Out) {
        if self.has_failed {
            return;
        }
        self.settling = SettlingStage::Renaming(folders.len() + 1);
        let (token, path) = (DirectoryStep(Step::Settle), self.path.join(CLEAN_SHUTDOWN));
        out.push(FileEffect::Remove { token, path, files: Vec::new() });
        for Renaming { from, to, what } in folders {
            let (from, path) = (self.path.join(from), self.path.join(&to));
            tracing::warn!(from = %from.display(), to = %path.display(), "{what}");
            if parse_folder(&to) == FolderName::Deleted {
                self.going.push(path.clone());
            }
            out.push(FileEffect::Rename { token, from, to: path, files: Vec::new() });
        }
    }

    /// Removes what an earlier process left of deleted logs. Nothing may be renamed meanwhile.
    pub fn remove_deleted(&mut self, out: &mut Out) {
        self.going.append(&mut self.deleted);
        // Their names must not come to be those of logs again when what is in them is gone in part:
        // after a kill they need not be durable.
        if !self.has_failed && !self.going.is_empty() {
            let token = DirectoryStep(Step::SyncDeleted);
            out.push(FileEffect::SyncDirectory { token, directory: self.path.clone() });
        }
    }

    /// Whether nothing is being written or renamed, or waits to be; nothing ever is after a
    /// failure.
    pub fn is_idle(&self) -> bool {
        let closes = self.closing.as_ref().is_some_and(|closing| !closing.is_over);
        let settled = self.writing.is_empty() && self.settling == SettlingStage::Idle;
        self.has_failed || (settled && !closes)
    }

    fn read_on(
        &mut self,
        outcome: FileOutcome,
        out: &mut Out,
        events: &mut Vec<DirectoryEvent>,
    ) -> Result<(), IoError> {
        let reading = self.reading.expect("the directory is being read");
        let next = match reading {
            Reading::Folder => {
                self.take_listing(outcome)?;
                self.topic_id_from(0)
            }
            Reading::TopicId(index) => {
                let text = found_text(outcome)?;
                let topic_id = text.and_then(|text| text::parse_partition_metadata(&text).ok());
                match index.checked_sub(self.found.logs.len()) {
                    None => self.found.logs[index].1 = topic_id,
                    Some(index) => self.found.futures[index].topic_id = topic_id,
                }
                self.topic_id_from(index + 1)
            }
            Reading::CleanShutdown => {
                let text = found_text(outcome)?;
                self.found.clean_shutdown = text.is_some();
                self.found.broker_epoch = text.as_deref().and_then(text::parse_clean_shutdown);
                Reading::Checkpoint(CheckpointKind::RecoveryPoint)
            }
            Reading::Checkpoint(kind) => {
                self.take_checkpoint(kind, &found_text(outcome)?.unwrap_or_default());
                let behind = CheckpointKind::ALL.into_iter().find(|other| *other > kind);
                let Some(next) = behind else {
                    self.reading = None;
                    events.push(DirectoryEvent::Opened(std::mem::take(&mut self.found)));
                    return Ok(());
                };
                Reading::Checkpoint(next)
            }
        };
        self.reading = Some(next);
        self.read_next(next, out);
        Ok(())
    }

    fn read_next(&self, reading: Reading, out: &mut Out) {
        let token = DirectoryStep(Step::Open);
        let read = |name: &str| FileEffect::Read {
            token,
            file: FileRef::new(self.path.join(name)),
            position: 0,
            length: TEXT_BYTES_MAX,
        };
        out.push(match reading {
            Reading::Folder => FileEffect::List { token, directory: self.path.clone() },
            Reading::TopicId(index) => {
                let folder = match index.checked_sub(self.found.logs.len()) {
                    None => self.found.logs[index].0.to_string(),
                    Some(index) => self.found.futures[index].folder.clone(),
                };
                read(&format!("{folder}/{}", names::PARTITION_METADATA))
            }
            Reading::CleanShutdown => read(CLEAN_SHUTDOWN),
            Reading::Checkpoint(kind) => read(kind.file_name()),
        });
    }

    fn take_listing(&mut self, outcome: FileOutcome) -> Result<(), IoError> {
        for entry in outcome.listed()?.into_iter().filter(|entry| entry.is_directory) {
            match parse_folder(&entry.name) {
                FolderName::Log(partition) => self.found.logs.push((partition, None)),
                FolderName::Deleted => self.deleted.push(self.path.join(&entry.name)),
                FolderName::Future(partition) => {
                    let (folder, topic_id) = (entry.name, None);
                    self.found.futures.push(FoundFuture { partition, folder, topic_id });
                }
                FolderName::Stray => {
                    let folder = self.path.join(&entry.name);
                    tracing::warn!(folder = %folder.display(), "a stray log is left as it is");
                }
                FolderName::Other => {}
            }
        }
        Ok(())
    }

    /// What is read of the logs from this one on.
    fn topic_id_from(&self, index: usize) -> Reading {
        let count = self.found.logs.len() + self.found.futures.len();
        if index < count { Reading::TopicId(index) } else { Reading::CleanShutdown }
    }

    /// Nobody reads them any more. Given their time anew, they would stay where the node never runs
    /// for so long.
    fn remove_going(&mut self, out: &mut Out) {
        for path in self.going.drain(..) {
            tracing::info!(path = %path.display(), "what is left of a deleted log is removed");
            let token = DirectoryStep(Step::RemoveDeleted);
            out.push(FileEffect::Remove { token, path, files: Vec::new() });
        }
    }

    fn on_settled(&mut self, outcome: FileOutcome, out: &mut Out) -> Result<(), IoError> {
        outcome.done()?;
        self.settling = match self.settling {
            // Once anything is appended, no crash may bring the mark back.
            SettlingStage::Renaming(1) => {
                let token = DirectoryStep(Step::Settle);
                out.push(FileEffect::SyncDirectory { token, directory: self.path.clone() });
                SettlingStage::Syncing
            }
            SettlingStage::Renaming(left) => SettlingStage::Renaming(left - 1),
            SettlingStage::Syncing | SettlingStage::Idle => {
                self.remove_going(out);
                SettlingStage::Idle
            }
        };
        Ok(())
    }

    fn on_copy_mark(
        &mut self,
        index: usize,
        outcome: FileOutcome,
        events: &mut Vec<DirectoryEvent>,
    ) -> Result<(), IoError> {
        let marks = &mut self.marks;
        if found_text(outcome)?.is_some() {
            marks.found.push(marks.logs[index].clone());
        }
        marks.left -= 1;
        if marks.left == 0 {
            events.push(DirectoryEvent::CopiesFound(std::mem::take(&mut marks.found)));
        }
        Ok(())
    }

    fn take_checkpoint(&mut self, kind: CheckpointKind, text: &str) {
        let entries = text::parse_offsets(text).unwrap_or_else(|bad| {
            // As Kafka does: without recovery points all is checked, without starts the first
            // segments tell.
            let file = self.path.join(kind.file_name());
            tracing::warn!(file = %file.display(), %bad, "an unreadable checkpoint is ignored");
            Vec::new()
        });
        let map = match kind {
            CheckpointKind::RecoveryPoint => &mut self.found.recovery_points,
            CheckpointKind::LogStartOffset => &mut self.found.log_start_offsets,
            CheckpointKind::Replication => &mut self.found.high_watermarks,
            CheckpointKind::Cleaner => &mut self.found.first_dirty,
        };
        map.extend(entries);
    }

    fn on_checkpoint(
        &mut self,
        kind: CheckpointKind,
        outcome: FileOutcome,
        out: &mut Out,
        events: &mut Vec<DirectoryEvent>,
    ) -> Result<(), IoError> {
        let file = self.writing.get_mut(&kind).expect("the checkpoint is being written");
        match file.on_done(outcome.done(), DirectoryStep(Step::Checkpoint(kind)), out) {
            Ok(false) => return Ok(()),
            Ok(true) => events.push(DirectoryEvent::CheckpointWritten(kind)),
            Err(cause) if cause.kind == IoErrorKind::NoSpace => {
                // The old checkpoint is still there, and the next one comes soon.
                tracing::warn!(%cause, "a checkpoint did not fit the disk");
            }
            Err(cause) => return Err(cause),
        }
        self.writing.remove(&kind);
        if let Some(entries) = self.next.remove(&kind) {
            self.write_checkpoint(kind, entries, out);
        }
        self.mark_when_idle(out);
        Ok(())
    }

    fn mark_when_idle(&mut self, out: &mut Out) {
        let Some(closing) = &mut self.closing else { return };
        if !self.writing.is_empty() || closing.mark.is_some() {
            return;
        }
        let path = self.path.join(CLEAN_SHUTDOWN);
        let content = text::format_clean_shutdown(closing.broker_epoch);
        let token = DirectoryStep(Step::CleanShutdown);
        closing.mark = Some(AtomicFile::replace(path, content, token, out));
    }

    fn on_mark(
        &mut self,
        outcome: FileOutcome,
        out: &mut Out,
        events: &mut Vec<DirectoryEvent>,
    ) -> Result<(), IoError> {
        let closing = self.closing.as_mut().expect("the directory is being closed");
        let mark = closing.mark.as_mut().expect("the mark is being written");
        match mark.on_done(outcome.done(), DirectoryStep(Step::CleanShutdown), out) {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(cause) if cause.kind == IoErrorKind::NoSpace => {
                tracing::warn!(%cause, "the mark of a clean shutdown did not fit the disk");
            }
            Err(cause) => return Err(cause),
        }
        closing.is_over = true;
        events.push(DirectoryEvent::Closed);
        Ok(())
    }
}

/// The text that was read; `None` where there is no file.
fn found_text(outcome: FileOutcome) -> Result<Option<String>, IoError> {
    match outcome.read() {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind == IoErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use base::{PartitionIndex, Uuid};

    use super::*;
    use crate::testing::{Disk, io_error};

    struct Bench {
        disk: Disk,
        directory: Directory,
        out: Out,
        events: Vec<DirectoryEvent>,
    }

    impl Bench {
        fn open(disk: Disk) -> (Self, FoundDirectory) {
            let mut out = Vec::new();
            let directory = Directory::open(PathBuf::from("data"), &mut out);
            let mut bench = Self { disk, directory, out, events: Vec::new() };
            bench.run();
            match bench.events.remove(0) {
                DirectoryEvent::Opened(found) => (bench, found),
                other => panic!("{other:?}"),
            }
        }

        fn run(&mut self) {
            while !self.out.is_empty() {
                for effect in std::mem::take(&mut self.out) {
                    let Some((step, outcome)) = self.disk.perform(effect) else { continue };
                    self.directory.on_file(step, outcome, &mut self.out, &mut self.events);
                }
            }
        }

        fn content(&self, name: &str) -> &str {
            let content = &self.disk.files[&Path::new("data").join(name)];
            std::str::from_utf8(content).expect("it is text")
        }
    }

    fn partition(topic: &str) -> TopicPartition {
        TopicPartition { topic: Arc::from(topic), partition: PartitionIndex(0) }
    }

    #[test]
    fn reads_what_kafka_left_and_takes_the_mark_away() {
        let mut disk = Disk::default();
        for (name, content) in [
            (".kafka_cleanshutdown", "{\"version\":0,\"brokerEpoch\":11}"),
            ("recovery-point-offset-checkpoint", "0\n2\nidle 0 0\nsmall 0 300\n"),
            ("log-start-offset-checkpoint", "0\n0\n"),
            ("replication-offset-checkpoint", "not a checkpoint"),
            ("cleaner-offset-checkpoint", ""),
            ("small-0/00000000000000000000.log", ""),
            ("small-0/partition.metadata", "version: 0\ntopic_id: 9jcF9wv3TpWUT8nwaSgqyg"),
            ("torn-0/partition.metadata", "version: 0\nto"),
            ("bare-0/00000000000000000000.log", ""),
        ] {
            disk.files.insert(Path::new("data").join(name), content.as_bytes().to_vec());
        }
        let (mut bench, found) = Bench::open(disk);
        assert_eq!((found.clean_shutdown, found.broker_epoch), (true, Some(11)));
        assert_eq!(found.recovery_points.get(&partition("small")), Some(&Offset(300)));
        assert!(found.log_start_offsets.is_empty() && found.high_watermarks.is_empty());
        let id = "9jcF9wv3TpWUT8nwaSgqyg".parse().expect("an id");
        let logs = [("bare", None), ("small", Some(id)), ("torn", None)];
        assert_eq!(found.logs, logs.map(|(topic, id)| (partition(topic), id)));
        let mark = Path::new("data/.kafka_cleanshutdown");
        assert!(bench.disk.files.contains_key(mark), "reading changes nothing");
        bench.directory.settle(Vec::new(), &mut bench.out);
        assert!(!bench.directory.is_idle());
        bench.run();
        assert!(bench.directory.is_idle() && !bench.disk.files.contains_key(mark));
        let (_, found) = Bench::open(bench.disk);
        assert_eq!((found.clean_shutdown, found.broker_epoch), (false, None));
    }

    #[test]
    fn what_is_left_of_deleted_logs_goes_and_strays_are_renamed_and_kept() {
        let mut disk = Disk::default();
        for name in [
            "gone-0.0123456789abcdef0123456789abcdef-delete/00000000000000000000.log",
            "gone-1.0123456789abcdef0123456789abcdef-delete/00000000000000000000.log",
            "a-0/00000000000000000000.log",
            "b-0/00000000000000000000.log",
            "c-0/00000000000000000000.log",
            "d-0.0123456789abcdef0123456789abcdef-stray/00000000000000000000.log",
            "e-0.0123456789abcdef0123456789abcdef-future/00000000000000000000.log",
        ] {
            disk.files.insert(Path::new("data").join(name), Vec::new());
        }
        let (mut bench, found) = Bench::open(disk);
        assert_eq!(found.logs, ["a", "b", "c"].map(|topic| (partition(topic), None)));
        let future = FoundFuture {
            partition: partition("e"),
            folder: "e-0.0123456789abcdef0123456789abcdef-future".to_owned(),
            topic_id: None,
        };
        assert_eq!(found.futures, [future]);
        let unique = Uuid([0xab; 16]);
        let stray = |topic| Renaming {
            from: partition(topic).to_string(),
            to: names::stray_folder(&partition(topic), unique),
            what: "a stray log",
        };
        let gone = Renaming {
            to: names::deleted_folder(&partition("e"), unique),
            from: "e-0.0123456789abcdef0123456789abcdef-future".to_owned(),
            what: "a copy that nobody wants",
        };
        assert!(bench.directory.is_idle());
        let is_deleted = |path: &&PathBuf| path.display().to_string().contains("-delete");
        assert_eq!(bench.disk.files.keys().filter(is_deleted).count(), 2, "nobody has said so");
        bench.directory.remove_deleted(&mut bench.out);
        bench.run();
        bench.directory.settle(vec![stray("a"), stray("b"), gone], &mut bench.out);
        assert!(!bench.directory.is_idle());
        bench.run();
        assert!(bench.directory.is_idle());
        let unique = "ab".repeat(16);
        let expected = [
            format!("a-0.{unique}-stray/00000000000000000000.log"),
            format!("b-0.{unique}-stray/00000000000000000000.log"),
            "c-0/00000000000000000000.log".to_owned(),
            "d-0.0123456789abcdef0123456789abcdef-stray/00000000000000000000.log".to_owned(),
        ];
        let expected = expected.map(|name| Path::new("data").join(name));
        assert_eq!(bench.disk.files.keys().cloned().collect::<Vec<_>>(), expected);
        // Where the disk refuses, nothing waits for it.
        bench.disk.failing = Some(("rename", IoErrorKind::Other));
        bench.directory.settle(vec![stray("c")], &mut bench.out);
        bench.run();
        assert!(bench.directory.is_idle());
        assert!(matches!(bench.events[..], [DirectoryEvent::Failed { .. }]));
    }

    #[test]
    fn copies_that_have_the_names_of_logs_are_found() {
        let mut disk = Disk::default();
        for name in ["a-0/00000000000000000000.log", &format!("b-0/{}", names::COPY_MARK)] {
            disk.files.insert(Path::new("data").join(name), Vec::new());
        }
        let (mut bench, _) = Bench::open(disk);
        let logs = vec![partition("a"), partition("b")];
        bench.directory.find_copies(logs, &mut bench.out);
        bench.run();
        match bench.events.pop() {
            Some(DirectoryEvent::CopiesFound(found)) => assert_eq!(found, [partition("b")]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn of_checkpoints_in_a_row_the_newest_is_written_and_the_mark_comes_last() {
        let (mut bench, _) = Bench::open(Disk::default());
        let kind = CheckpointKind::RecoveryPoint;
        for offset in 1..=3 {
            let entries = vec![(partition("t"), Offset(offset))];
            bench.directory.write_checkpoint(kind, entries, &mut bench.out);
        }
        bench.directory.close(7, &mut bench.out);
        bench.run();
        assert_eq!(bench.content("recovery-point-offset-checkpoint"), "0\n1\nt 0 3\n");
        assert_eq!(bench.content(".kafka_cleanshutdown"), "{\"version\":0,\"brokerEpoch\":7}");
        let told: Vec<String> = bench.events.iter().map(|event| format!("{event:?}")).collect();
        let written = "CheckpointWritten(RecoveryPoint)";
        assert_eq!(told, [written, written, "Closed"]);
        assert!(bench.disk.files.keys().all(|path| path.extension().is_none_or(|it| it != "tmp")));
    }

    #[test]
    fn a_full_disk_keeps_the_old_checkpoint_and_a_broken_one_ends_the_directory() {
        let (mut bench, _) = Bench::open(Disk::default());
        let kind = CheckpointKind::Replication;
        let write = |bench: &mut Bench, offset| {
            let entries = vec![(partition("t"), Offset(offset))];
            bench.directory.write_checkpoint(kind, entries, &mut bench.out);
            bench.run();
        };
        write(&mut bench, 1);
        bench.disk.failing = Some(("write", IoErrorKind::NoSpace));
        write(&mut bench, 2);
        assert_eq!(bench.content("replication-offset-checkpoint"), "0\n1\nt 0 1\n");
        bench.disk.failing = None;
        write(&mut bench, 3);
        assert_eq!(bench.content("replication-offset-checkpoint"), "0\n1\nt 0 3\n");
        bench.disk.failing = Some(("sync", IoErrorKind::Other));
        write(&mut bench, 4);
        let failed = bench.events.pop().expect("it says so");
        match failed {
            DirectoryEvent::Failed { cause } => assert_eq!(cause, io_error(IoErrorKind::Other)),
            other => panic!("{other:?}"),
        }
    }
}
