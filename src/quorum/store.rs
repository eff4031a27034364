//! The files of the metadata log: its segments, through `commitlog`, and `quorum-state`.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use api::{Effects, FileEffect, FileOutcome, FileRef, IoError, IoErrorKind, IoResult, Part};
use base::{Duration, Instant, Now, Offset, PartitionIndex, Slab, Token, TopicPartition, Uuid};
use bytes::{Bytes, BytesMut};
use commitlog::{
    AppendBatch, AppendError, AtomicFile, Checkpoints, Log, LogConfig, LogEvent, LogParams,
    LogStep, Read, ReadRequest,
};
use intercom::Message;
use raft::snapshot::SnapshotId;
use records::Batch;

use crate::snapshots::SnapshotStep;

/// The most effects that are under way at once: those of the log and a few of the quorum's own.
const STEPS_MAX: usize = 1 << 16;
/// How much of the log is read at once when it is loaded.
const LOAD_BYTES_MAX: u32 = 4 << 20;
/// How much of a snapshot is read to see its first batch, which names the voters.
const SNAPSHOT_HEAD_BYTES: u32 = 64 << 10;
/// How long what did not fit the disk waits before it is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// `quorum-state`, in the folder of the log.
const ELECTION_FILE: &str = "quorum-state";

/// What goes on when an effect on a file is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Log(LogStep),
    /// The folder is listed, before anything is opened.
    Listing,
    /// The content of `quorum-state`.
    Election,
    /// The content of a snapshot.
    Snapshot,
    /// The beginning of an older one.
    SnapshotHead(SnapshotId),
    /// A snapshot is written or removed.
    Snapshots(SnapshotStep),
    /// A stage of the replacement of `quorum-state`.
    Replacing,
    /// A part of the log that is being loaded.
    Part(usize),
}

/// What the store tells the quorum.
#[derive(Debug)]
pub(crate) enum StoreEvent {
    /// The folder holds these files: name and length.
    Listed(Vec<(String, u64)>),
    /// `quorum-state` was read.
    ElectionRead(Bytes),
    /// A snapshot was read.
    SnapshotRead(Bytes),
    /// The beginning of an older one was read, and is empty if it could not be.
    SnapshotHeadRead(SnapshotId, Bytes),
    /// A step of writing or removing a snapshot is done, or has failed.
    Snapshots(SnapshotStep, IoResult<()>),
    /// `quorum-state` is replaced and durable.
    ElectionWritten,
    /// The log can be read and appended to.
    Opened,
    /// A part of the log; nothing is left when it is empty.
    Loaded(Bytes),
    /// Everything below is durable.
    Synced(Offset),
    /// The log is closed in order.
    Closed,
    /// The disk failed, or something in the folder cannot be used.
    Failed(String),
}

/// The files of the metadata log.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    election: FileRef,
    /// The replacement of that file which is under way.
    replacing: Option<Replacing>,
    log: Option<Log>,
    log_config: LogConfig,
    steps: Slab<Step>,
    effects: Vec<FileEffect<LogStep>>,
    log_events: Vec<LogEvent>,
    events: Vec<StoreEvent>,
    load: Option<Load>,
    /// Whether something was appended that no sync was asked for.
    unsynced: bool,
    /// The bytes of what was loaded and appended so far.
    appended_bytes: u64,
    /// What was appended and is not in the file yet, in order.
    unwritten: VecDeque<Batch>,
    /// The disk was full: when what is unwritten is given to the log again.
    again_at: Option<Instant>,
}

/// A replacement of `quorum-state`.
#[derive(Debug)]
struct Replacing {
    text: String,
    file: AtomicFile,
    /// The disk was full: when it begins again.
    again_at: Option<Instant>,
    /// There was a line about that.
    is_told: bool,
}

/// A read of the whole log, part by part.
#[derive(Debug)]
struct Load {
    next: Offset,
    parts: Vec<Option<Bytes>>,
}

impl Store {
    pub(crate) fn new(folder: PathBuf, log_config: LogConfig) -> Self {
        let election = FileRef::new(folder.join(ELECTION_FILE));
        Self {
            folder,
            election,
            replacing: None,
            log: None,
            log_config,
            steps: Slab::new(STEPS_MAX),
            effects: Vec::new(),
            log_events: Vec::new(),
            events: Vec::new(),
            load: None,
            unsynced: false,
            appended_bytes: 0,
            unwritten: VecDeque::new(),
            again_at: None,
        }
    }

    /// Where the log is.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What has happened since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<StoreEvent> {
        std::mem::take(&mut self.events)
    }

    // Reading what is there.

    pub(crate) fn list(&mut self, effects: &mut Effects<Message>) {
        let directory = self.folder.clone();
        self.ask(effects, Step::Listing, |token| FileEffect::List { token, directory });
    }

    pub(crate) fn read_election(&mut self, length: u64, effects: &mut Effects<Message>) {
        let file = self.election.clone();
        self.read_whole(Step::Election, file, length, effects);
    }

    pub(crate) fn read_snapshot(
        &mut self,
        name: &str,
        length: u64,
        effects: &mut Effects<Message>,
    ) {
        let file = FileRef::new(self.folder.join(name));
        self.read_whole(Step::Snapshot, file, length, effects);
    }

    /// Reads what says when the last record of a snapshot was written.
    pub(crate) fn read_snapshot_head(&mut self, id: SnapshotId, effects: &mut Effects<Message>) {
        let file = FileRef::new(self.folder.join(id.file_name()));
        self.ask(effects, Step::SnapshotHead(id), |token| FileEffect::Read {
            token,
            file,
            position: 0,
            length: SNAPSHOT_HEAD_BYTES,
        });
    }

    /// Does something with the file of a snapshot.
    pub(crate) fn snapshot_effect(
        &mut self,
        effect: FileEffect<SnapshotStep>,
        effects: &mut Effects<Message>,
    ) {
        let steps = &mut self.steps;
        effects.file(effect.map(|step| new_token(steps, Step::Snapshots(step))));
    }

    fn read_whole(
        &mut self,
        step: Step,
        file: FileRef,
        length: u64,
        effects: &mut Effects<Message>,
    ) {
        let Ok(length) = u32::try_from(length) else {
            let sentence = format!("{} is too long to be read", file.path().display());
            return self.events.push(StoreEvent::Failed(sentence));
        };
        self.ask(effects, step, |token| FileEffect::Read { token, file, position: 0, length });
    }

    /// Opens the log, or makes it where the folder has none.
    pub(crate) fn open_log(&mut self, exists: bool, start: Offset, effects: &mut Effects<Message>) {
        let params = LogParams {
            directory: self.folder.clone(),
            partition: TopicPartition {
                topic: controller::METADATA_TOPIC.into(),
                partition: PartitionIndex(0),
            },
            topic_id: Uuid::METADATA_TOPIC,
            sets_strays_aside: false,
            config: self.log_config.clone(),
        };
        // As in Kafka the whole log is recovered at every start: its end decides elections.
        let found = Checkpoints {
            clean_shutdown: false,
            recovery_point: Offset(0),
            log_start_offset: start,
            first_dirty: None,
        };
        let log = if exists {
            Log::open(params, found, &mut self.effects)
        } else {
            Log::create(params, &mut self.effects)
        };
        self.log = Some(log);
        self.pass_effects(effects);
    }

    /// Begins to read the log from `from` on; [`StoreEvent::Loaded`] brings it, part by part.
    pub(crate) fn load_from(&mut self, from: Offset, effects: &mut Effects<Message>) {
        self.load = Some(Load { next: from, parts: Vec::new() });
        self.load_next(effects);
    }

    /// Goes on reading, behind what was taken.
    pub(crate) fn load_on(&mut self, next: Offset, effects: &mut Effects<Message>) {
        let load = self.load.as_mut().expect("a part was loaded");
        assert!(next > load.next, "the load of the log does not get on at {next}");
        load.next = next;
        self.load_next(effects);
    }

    fn load_next(&mut self, effects: &mut Effects<Message>) {
        let Some(load) = &mut self.load else { return };
        let log = self.log.as_mut().expect("the log is open");
        let request = ReadRequest {
            offset: load.next,
            up_to: log.end_offset(),
            bytes_max: LOAD_BYTES_MAX,
            at_least_one: true,
        };
        let plan = match log.read(request, &mut self.effects) {
            Ok(Read::Plan(plan)) => plan,
            // `Located` brings it on.
            Ok(Read::Locating(_) | Read::Busy) => return self.pass_effects(effects),
            Err(error) => {
                let (folder, next) = (self.folder.display(), load.next);
                let sentence = format!("{folder} cannot be read at offset {next}: {error}");
                return self.events.push(StoreEvent::Failed(sentence));
            }
        };
        load.parts = plan.parts.iter().map(|_| None).collect();
        for (index, part) in plan.parts.into_iter().enumerate() {
            match part {
                Part::Bytes(bytes) => self.take_part(index, bytes),
                Part::File(slice) => {
                    self.ask(effects, Step::Part(index), |token| FileEffect::Read {
                        token,
                        file: slice.file,
                        position: slice.position,
                        length: slice.length,
                    })
                }
            }
        }
        self.finish_part();
        self.pass_effects(effects);
    }

    fn take_part(&mut self, index: usize, bytes: Bytes) {
        let load = self.load.as_mut().expect("a part was asked for");
        load.parts[index] = Some(bytes);
    }

    fn finish_part(&mut self) {
        let Some(load) = &mut self.load else { return };
        if load.parts.iter().any(Option::is_none) {
            return;
        }
        let mut whole = BytesMut::new();
        for part in load.parts.drain(..).flatten() {
            whole.extend_from_slice(&part);
        }
        if whole.is_empty() {
            self.load = None;
        }
        self.events.push(StoreEvent::Loaded(whole.freeze()));
    }

    // Writing.

    /// Replaces `quorum-state`, while the disk is full as soon as there is space;
    /// [`StoreEvent::ElectionWritten`] says that it is durable.
    ///
    /// # Panics
    /// If the last replacement is still under way.
    pub(crate) fn write_election(&mut self, text: String, effects: &mut Effects<Message>) {
        assert!(self.replacing.is_none(), "one state is made durable after the other");
        self.replace(text, false, effects);
    }

    fn replace(&mut self, text: String, is_told: bool, effects: &mut Effects<Message>) {
        let mut out = Vec::new();
        let path = self.folder.join(ELECTION_FILE);
        let file = AtomicFile::replace(path, text.clone(), Step::Replacing, &mut out);
        self.replacing = Some(Replacing { text, file, again_at: None, is_told });
        self.replace_by(out, effects);
    }

    fn replace_on(&mut self, now: Now, result: IoResult<()>, effects: &mut Effects<Message>) {
        let mut out = Vec::new();
        let replacing = self.replacing.as_mut().expect("the file is being replaced");
        let replaced = replacing.file.on_done(result, Step::Replacing, &mut out);
        match replaced {
            // What a full disk refused was not synced: it can be written again.
            Err(cause) if cause.kind == IoErrorKind::NoSpace => {
                if !std::mem::replace(&mut replacing.is_told, true) {
                    tracing::warn!(%cause, "the metadata quorum waits for space");
                }
                replacing.again_at = Some(now.mono + AGAIN_AFTER);
            }
            replaced => {
                if self.good(replaced) == Some(true) {
                    self.replacing = None;
                    self.events.push(StoreEvent::ElectionWritten);
                }
            }
        }
        self.replace_by(out, effects);
    }

    fn replace_again(&mut self, effects: &mut Effects<Message>) {
        if let Some(Replacing { text, is_told, .. }) = self.replacing.take() {
            self.replace(text, is_told, effects);
        }
    }

    fn replace_by(&mut self, out: Vec<FileEffect<Step>>, effects: &mut Effects<Message>) {
        for effect in out {
            effects.file(effect.map(|step| new_token(&mut self.steps, step)));
        }
    }

    /// Appends a batch, which is made durable at the end of the turn; while the disk is full, as
    /// soon as there is space.
    pub(crate) fn append(&mut self, now: Now, batch: &Batch) {
        self.count(batch);
        self.unwritten.push_back(batch.clone());
        if self.again_at.is_none() {
            self.give(now, batch);
        }
    }

    fn give(&mut self, now: Now, batch: &Batch) {
        let log = self.log.as_mut().expect("a leader has its log");
        let append = AppendBatch { header: batch.header().write(), records: batch.record_bytes() };
        match log.append(now, &[append]) {
            Ok(info) => assert_eq!(info.base_offset, batch.header().base_offset),
            // What did not fit the disk is still being taken back.
            Err(AppendError::Busy) if !self.is_congested() => {
                self.again_at = Some(now.mono + AGAIN_AFTER);
            }
            Err(error) => {
                let sentence = append_failure(&self.folder, &error);
                return self.events.push(StoreEvent::Failed(sentence));
            }
        }
        self.unsynced = true;
    }

    /// Gives the log again what did not fit the disk.
    fn give_again(&mut self, now: Now) {
        self.again_at = None;
        for batch in self.unwritten.clone() {
            if self.again_at.is_none() {
                self.give(now, &batch);
            }
        }
    }

    /// A batch was loaded or appended.
    pub(crate) fn count(&mut self, batch: &Batch) {
        self.appended_bytes += batch.bytes().len() as u64;
    }

    /// The bytes of what was loaded and appended so far.
    pub(crate) fn appended_bytes(&self) -> u64 {
        self.appended_bytes
    }

    /// The length of the log's files.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log.as_ref().map_or(0, Log::size_bytes)
    }

    /// Deletes what lies below `start`, as far as whole segments do.
    pub(crate) fn begin_log_at(&mut self, now: Now, start: Offset, effects: &mut Effects<Message>) {
        let log = self.log.as_mut().expect("the log is open");
        log.delete_records(now, start, &mut self.effects)
            .expect("a snapshot holds what is committed, and that is in the log");
        self.pass_effects(effects);
    }

    /// Whether the disk was full when something was last written: nothing is committed until there
    /// is space.
    pub(crate) fn is_full(&self) -> bool {
        self.again_at.is_some()
    }

    /// Whether so much waits to be written that nothing more should be appended now.
    pub(crate) fn is_congested(&self) -> bool {
        let unwritten = self.log.as_ref().map_or(0, Log::unwritten_bytes);
        unwritten >= commitlog::UNWRITTEN_BYTES_MAX / 2
    }

    /// Writes what the turn has appended, and asks for its durability.
    pub(crate) fn end_of_turn(&mut self, now: Now, effects: &mut Effects<Message>) {
        let Some(log) = &mut self.log else { return };
        if log.needs_flush() {
            log.flush_turn(now, &mut self.effects);
        }
        if std::mem::take(&mut self.unsynced) {
            log.request_sync(&mut self.effects);
        }
        self.pass_effects(effects);
    }

    /// Brings everything to disk; [`StoreEvent::Closed`] says that it is done.
    pub(crate) fn close(&mut self, now: Now, effects: &mut Effects<Message>) {
        match &mut self.log {
            Some(log) if log.state() == commitlog::LogState::Open => {
                log.flush_turn(now, &mut self.effects);
                log.close(now, &mut self.effects, &mut self.log_events);
                self.pass_effects(effects);
                self.take_log_events(now, effects);
            }
            // Nothing was acknowledged that could be lost.
            _ => self.events.push(StoreEvent::Closed),
        }
    }

    /// When the log wants [`Store::on_timer`] to be called.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        let log = self.log.as_ref().and_then(Log::next_timer);
        log.into_iter().chain(self.again_at).chain(self.replace_again_at()).min()
    }

    fn replace_again_at(&self) -> Option<Instant> {
        self.replacing.as_ref().and_then(|replacing| replacing.again_at)
    }

    pub(crate) fn on_timer(&mut self, now: Now, effects: &mut Effects<Message>) {
        if self.replace_again_at().is_some_and(|at| at <= now.mono) {
            self.replace_again(effects);
        }
        if self.again_at.is_some_and(|at| at <= now.mono) {
            self.give_again(now);
        }
        if let Some(log) = &mut self.log {
            log.on_timer(now, &mut self.effects, &mut self.log_events);
            self.pass_effects(effects);
        }
    }

    // Outcomes.

    pub(crate) fn on_file(
        &mut self,
        now: Now,
        token: Token,
        outcome: FileOutcome,
        effects: &mut Effects<Message>,
    ) {
        let step = self.steps.remove(token).expect("every effect has one outcome");
        match step {
            Step::Log(step) => {
                let log = self.log.as_mut().expect("the log asked for it");
                log.on_file(now, step, outcome, &mut self.effects, &mut self.log_events);
                self.pass_effects(effects);
                self.take_log_events(now, effects);
            }
            Step::Listing => {
                if let Some(entries) = self.good(outcome.listed()) {
                    let files = entries.into_iter().filter(|entry| !entry.is_directory);
                    let files = files.map(|entry| (entry.name, entry.length)).collect();
                    self.events.push(StoreEvent::Listed(files));
                }
            }
            Step::Election => {
                if let Some(bytes) = self.good(outcome.read()) {
                    self.events.push(StoreEvent::ElectionRead(bytes));
                }
            }
            Step::Snapshot => {
                if let Some(bytes) = self.good(outcome.read()) {
                    self.events.push(StoreEvent::SnapshotRead(bytes));
                }
            }
            Step::SnapshotHead(id) => {
                let head = outcome.read().unwrap_or_default();
                self.events.push(StoreEvent::SnapshotHeadRead(id, head));
            }
            Step::Snapshots(step) => {
                self.events.push(StoreEvent::Snapshots(step, outcome.done()));
            }
            Step::Replacing => self.replace_on(now, outcome.done(), effects),
            Step::Part(index) => {
                if let Some(bytes) = self.good(outcome.read()) {
                    self.take_part(index, bytes);
                    self.finish_part();
                }
            }
        }
    }

    fn good<T>(&mut self, result: IoResult<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.events.push(StoreEvent::Failed(disk_failure(&error)));
                None
            }
        }
    }

    fn take_log_events(&mut self, now: Now, effects: &mut Effects<Message>) {
        for event in std::mem::take(&mut self.log_events) {
            match event {
                LogEvent::Opened { .. } => self.events.push(StoreEvent::Opened),
                LogEvent::Synced { end_offset } => self.events.push(StoreEvent::Synced(end_offset)),
                LogEvent::Located { .. } => self.load_next(effects),
                LogEvent::Written { end_offset } => {
                    let is_written = |batch: &mut Batch| batch.header().next_offset() <= end_offset;
                    while self.unwritten.pop_front_if(is_written).is_some() {}
                }
                LogEvent::Refused { cause, .. } => {
                    tracing::warn!(%cause, "the metadata log waits for space");
                    self.again_at = Some(now.mono + AGAIN_AFTER);
                }
                LogEvent::NoSpace { cause } => {
                    tracing::warn!(%cause, "the metadata log is opened when there is space");
                }
                // As always, the next start recovers it.
                LogEvent::Closed { .. } | LogEvent::NotClosed { .. } => {
                    self.events.push(StoreEvent::Closed);
                }
                LogEvent::Failed { cause } => {
                    self.events.push(StoreEvent::Failed(disk_failure(&cause)));
                }
                LogEvent::Unreadable { sentence } => {
                    self.events.push(StoreEvent::Failed(sentence));
                }
                _ => {}
            }
        }
    }

    fn pass_effects(&mut self, effects: &mut Effects<Message>) {
        for effect in self.effects.drain(..) {
            let steps = &mut self.steps;
            effects.file(effect.map(|step| new_token(steps, Step::Log(step))));
        }
    }

    fn ask(
        &mut self,
        effects: &mut Effects<Message>,
        step: Step,
        effect: impl FnOnce(Token) -> FileEffect<Token>,
    ) {
        effects.file(effect(new_token(&mut self.steps, step)));
    }

    /// The first offset of the log, and the one behind its end.
    pub(crate) fn offsets(&self) -> (Offset, Offset) {
        let log = self.log.as_ref().expect("the log is open");
        (log.log_start_offset(), log.end_offset())
    }
}

fn new_token(steps: &mut Slab<Step>, step: Step) -> Token {
    steps.insert(step).expect("a log has few effects under way")
}

fn disk_failure(error: &IoError) -> String {
    format!("The metadata log cannot be kept: {error}")
}

fn append_failure(folder: &Path, error: &AppendError) -> String {
    format!("The metadata log {} takes no more records: {error}", folder.display())
}
