//! One partition's log as a state machine.

mod append;
mod cleaning;
mod ending;
mod moving;
mod place;
mod producers;
mod read;
mod search;
mod write_back;

use std::collections::VecDeque;
use std::path::PathBuf;

use api::{FileEffect, FileOutcome, FileRef, IoError, IoErrorKind};
use base::{Duration, Instant, LeaderEpoch, Now, Offset, Slab, Token, TopicId, TopicPartition};

use crate::aborted::Aborted;
use crate::atomic_file::AtomicFile;
use crate::config::{Checkpoints, LogConfig, LogParams};
use crate::epochs::Epochs;
use crate::names;
use crate::opening::{Opened, Opening, Progress};
use crate::producers::Producers;
use crate::segment::Segment;
use crate::step::{LogEvent, LogStep, Step};
use crate::tail::Tail;
use crate::text;

use append::Writer;
use cleaning::Cleaner;
use place::Located;
use search::{FLOWS_MAX, Flow, IndexWindow};

pub use append::{AppendBatch, AppendError, AppendInfo, UNWRITTEN_BYTES_MAX};
pub use cleaning::{Cleanable, CleaningLimits};
pub use ending::OffsetOutOfRange;
pub use moving::{CopyPlace, CopyRead};
pub use place::ReadError;
pub use read::{Read, ReadPlan, ReadRequest};

/// How long something that did not fit the disk waits before it is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The effects of a log, under the names of its steps.
pub type LogEffects = Vec<FileEffect<LogStep>>;

/// What a log can do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// It is made or recovered; nothing can be asked of it yet.
    Opening,
    /// It takes appends and reads.
    Open,
    /// It brings everything to disk; reads go on until it is closed.
    Closing,
    /// It is closed in order.
    Closed,
    /// It is being deleted.
    Removing,
    /// Its disk failed, or it was found unreadable.
    Failed,
}

/// Up to which offset everything must be written, or durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// All below the offset is in the file, and survives the end of this process.
    Written(Offset),
    /// All below the offset is durable, and survives a loss of power.
    Synced(Offset),
}

/// One partition's log.
///
/// Its owner performs the effects that it appends to a list, and brings every outcome back with
/// [`Log::on_file`]. Within a turn appends are gathered; [`Log::flush_turn`] makes one write of
/// them. There is one write under way at a time, so that one that fails can be taken back.
#[derive(Debug)]
pub struct Log {
    directory: PathBuf,
    partition: TopicPartition,
    topic_id: TopicId,
    config: LogConfig,
    state: LogState,
    opening: Option<Box<Opening>>,
    /// Effects of opening that are under way.
    opening_effects: usize,
    log_start_offset: Offset,
    /// In order; the last one is written.
    segments: Vec<Segment>,
    writer: Writer,
    tail: Tail,
    epochs: Epochs,
    epochs_file: EpochsFile,
    producers: Producers,
    aborted: Aborted,
    /// Searches; one that is being advanced is taken out of its place.
    flows: Slab<Option<Flow>>,
    /// Those of them that have a batch to look through, in order. Only the first can have begun.
    batch_searches: VecDeque<Token>,
    /// The one whose turn it is, while its batch is read; it stands before them.
    batch_read: Option<Token>,
    located: VecDeque<Located>,
    window: Option<IndexWindow>,
    /// Files that go when their time has come, in that order.
    set_aside: VecDeque<(Instant, FileRef)>,
    retry_at: Option<Instant>,
    cleaner: Cleaner,
    cutting: Option<ending::Cutting>,
    dropping: Option<ending::Dropping>,
    removing: Option<ending::Removing>,
    renaming: Option<moving::Renaming>,
    /// It is about to be renamed: nothing begins meanwhile by itself.
    keeps_still: bool,
    /// Files of deleted segments that are being removed.
    removals: u32,
    /// The last segment was sealed too: the log closes.
    is_sealed: bool,
}

/// The file of the leader epochs.
#[derive(Debug, Default)]
struct EpochsFile {
    writing: Option<AtomicFile>,
    /// Whether the file lacks something that is in memory.
    stale: bool,
    /// Where the first epoch begins that may be missing in the file.
    stale_from: Option<Offset>,
    /// The same for the write that is under way.
    writing_from: Option<Offset>,
}

impl Log {
    /// Makes the folder and files of a new log. [`LogEvent::Opened`] says that it is done.
    pub fn create(params: LogParams, out: &mut LogEffects) -> Self {
        Self::create_at(params, Offset(0), out)
    }

    /// The same for a log that begins at `start`: a copy of one that begins there.
    pub fn create_at(params: LogParams, start: Offset, out: &mut LogEffects) -> Self {
        let before = out.len();
        let opening = Opening::create(params.clone(), start, out);
        Self::new(params, Some(opening), out.len() - before)
    }

    /// Opens the log that is in the folder, and recovers it where it was not closed in order.
    /// [`LogEvent::Opened`] says that it is done.
    pub fn open(params: LogParams, found: Checkpoints, out: &mut LogEffects) -> Self {
        let before = out.len();
        let opening = Opening::open(params.clone(), found, out);
        let mut log = Self::new(params, Some(opening), out.len() - before);
        log.set_first_dirty(found.first_dirty);
        log
    }

    /// A log in a directory that is offline: it has failed before it was opened.
    pub fn offline(params: LogParams) -> Self {
        let mut log = Self::new(params, None, 0);
        log.state = LogState::Failed;
        log
    }

    fn new(params: LogParams, opening: Option<Opening>, opening_effects: usize) -> Self {
        Self {
            directory: params.directory,
            partition: params.partition,
            topic_id: params.topic_id,
            config: params.config,
            state: LogState::Opening,
            opening: opening.map(Box::new),
            opening_effects,
            log_start_offset: Offset(0),
            segments: Vec::new(),
            writer: Writer::default(),
            tail: Tail::default(),
            epochs: Epochs::default(),
            epochs_file: EpochsFile::default(),
            producers: Producers::default(),
            aborted: Aborted::default(),
            flows: Slab::new(FLOWS_MAX),
            batch_searches: VecDeque::new(),
            batch_read: None,
            located: VecDeque::new(),
            window: None,
            set_aside: VecDeque::new(),
            retry_at: None,
            cleaner: Cleaner::default(),
            cutting: None,
            dropping: None,
            removing: None,
            renaming: None,
            keeps_still: false,
            removals: 0,
            is_sealed: false,
        }
    }

    /// Takes the outcome of one of the log's effects.
    pub fn on_file(
        &mut self,
        now: Now,
        step: LogStep,
        outcome: FileOutcome,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        if matches!(self.state, LogState::Failed | LogState::Closed) {
            return;
        }
        match step.0 {
            Step::Open => self.on_opening(now, outcome, out, events),
            Step::Write => self.on_written(outcome.done(), out, events),
            Step::Prepare => self.on_prepared(outcome.done(), out, events),
            Step::Allocate => self.on_allocated(outcome.done().is_ok()),
            Step::Sync => self.on_synced(outcome.done(), out, events),
            Step::WriteBack => self.on_written_back(outcome.done(), out, events),
            Step::Seal(base) => self.on_sealed(now, base, outcome.done(), out, events),
            Step::Snapshot(base) => self.on_snapshot(now, base, outcome.done(), out, events),
            Step::Undo => self.on_undone(now, outcome.done(), events),
            Step::Epochs => self.on_epochs_written(now, outcome.done(), out, events),
            Step::Flow(token) => self.on_flow(token, outcome.read(), out, events),
            Step::Clean => self.on_cleaning(now, outcome, out, events),
            Step::Age => self.on_age(outcome.read(), events),
            Step::SetAside(base, ending) => {
                self.on_set_aside(now, (base, ending), outcome.done(), out, events);
            }
            Step::Dropped => self.on_dropped(now, outcome.done(), out, events),
            Step::Delete => {
                self.removals -= 1;
                self.on_deleted(outcome.done(), events);
            }
            Step::Rename => self.on_renamed(now, outcome.done(), out, events),
            Step::Truncate => self.on_cut(now, outcome.done(), out, events),
            Step::Remove => self.on_removed(now, outcome.done(), out, events),
        }
        match self.state {
            LogState::Closing => self.close_on(now, out, events),
            LogState::Open => self.cut_on(now, out, events),
            LogState::Removing => self.remove_on(out),
            _ => {}
        }
    }

    /// What the log can do now.
    pub fn state(&self) -> LogState {
        self.state
    }

    /// Whether opening it waits for space on the disk.
    pub fn waits_for_space(&self) -> bool {
        self.opening.as_ref().is_some_and(|opening| opening.waits_for_space())
    }

    /// Whose log it is.
    pub fn partition(&self) -> &TopicPartition {
        &self.partition
    }

    /// Obeys other settings from now on.
    pub fn set_config(&mut self, config: LogConfig) {
        self.config = config;
    }

    /// The first offset that may be read.
    pub fn log_start_offset(&self) -> Offset {
        self.log_start_offset
    }

    /// The offset that the next record gets. What lies right below it may not be written yet.
    pub fn end_offset(&self) -> Offset {
        self.writer.end
    }

    /// The end of what is written: the log end offset that others may see.
    pub fn written_end_offset(&self) -> Offset {
        self.writer.written_end
    }

    /// The end of what is durable.
    pub fn flushed_end_offset(&self) -> Offset {
        self.writer.flushed_end
    }

    /// The offset below which nothing needs to be checked after a crash, for the checkpoint of the
    /// log directory. It lies in the segment that is written, whatever of it is durable: its
    /// indexes are not, until it is sealed, and a crash in the middle of that leaves any bytes in
    /// them.
    pub fn recovery_point(&self) -> Offset {
        let EpochsFile { stale_from, writing_from, .. } = &self.epochs_file;
        let stale = stale_from.iter().chain(writing_from).min().copied();
        let is_closed = self.state == LogState::Closed;
        let unsealed = self.segments.last().filter(|_| !is_closed).map(|active| active.base);
        let limits = stale.into_iter().chain(unsealed);
        limits.fold(self.writer.flushed_end, Offset::min)
    }

    /// Whether everything below an offset is written, or durable.
    pub fn has_reached(&self, durability: Durability) -> bool {
        match durability {
            Durability::Written(offset) => self.writer.written_end >= offset,
            Durability::Synced(offset) => self.writer.flushed_end >= offset,
        }
    }

    /// The size of all records, in bytes, with those that are not written yet.
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.bytes)).sum()
    }

    /// How many segments there are.
    #[cfg(test)]
    pub(crate) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Says that `epoch` begins at the end of the log: this node became the leader.
    pub fn assign_leader_epoch(&mut self, now: Now, epoch: LeaderEpoch, out: &mut LogEffects) {
        self.note_epoch(epoch, self.writer.end);
        self.write_epochs(now, out);
    }

    /// The latest leader epoch.
    pub fn latest_leader_epoch(&self) -> Option<LeaderEpoch> {
        self.epochs.latest()
    }

    /// The epoch in which the record at `offset` was written, as far as the log knows it.
    pub fn leader_epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        self.epochs.epoch_at(offset)
    }

    /// Where `epoch` ended, with the largest epoch up to it that the log knows; (−1, −1) for
    /// one that it does not know (KIP-101, KIP-279).
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> (LeaderEpoch, Offset) {
        let found = self.epochs.end_offset_for(epoch, self.writer.end);
        found.unwrap_or((LeaderEpoch::NONE, Offset(-1)))
    }

    /// When [`Log::on_timer`] wants to be called.
    pub fn next_timer(&self) -> Option<Instant> {
        let is_still = self.renaming.is_some() || self.keeps_still;
        let first_file = self.set_aside.front().filter(|_| !is_still).map(|(due, _)| *due);
        let folder = self.removing.as_ref().and_then(|removing| removing.due);
        let cleaning = self.cleaning_resumes_at();
        [first_file, self.retry_at, folder, cleaning].into_iter().flatten().min()
    }

    /// Does what had to wait: old files go, a log is cleaned further, and what did not fit the disk
    /// is tried again.
    pub fn on_timer(&mut self, now: Now, out: &mut LogEffects, events: &mut Vec<LogEvent>) {
        if self.state == LogState::Failed {
            return;
        }
        self.remove_due(now, out);
        self.resume_cleaning(now, out, events);
        if self.retry_at.is_some_and(|at| at <= now.mono) {
            self.retry_at = None;
            if let Some(opening) = &mut self.opening {
                let before = out.len();
                opening.begin_again(out);
                self.opening_effects = out.len() - before;
                return;
            }
            self.rename_again(out);
            self.undo_again(out);
            self.write_epochs(now, out);
            self.seal_next(out);
            self.drop_again(out);
            if self.state == LogState::Removing {
                self.remove_on(out);
            }
        }
    }

    fn on_opening(
        &mut self,
        now: Now,
        outcome: FileOutcome,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        let Some(opening) = self.opening.as_mut() else { return };
        let before = out.len();
        let progress = opening.on_file(now, outcome, out);
        self.opening_effects += out.len() - before;
        self.opening_effects -= 1;
        match progress {
            Ok(Progress::Going) => {}
            Ok(Progress::NoSpace(cause)) => {
                if let Some(cause) = cause {
                    events.push(LogEvent::NoSpace { cause });
                }
                if self.opening_effects > 0 {
                    return;
                }
                if self.removing.is_some() {
                    self.opening = None;
                    self.state = LogState::Removing;
                } else {
                    self.retry_at = Some(now.mono + RETRY_AFTER);
                }
            }
            Ok(Progress::Done(opened)) => {
                self.opening = None;
                let mut opened = *opened;
                let (log_start_offset, end_offset) = (opened.log_start_offset, opened.end_offset);
                let cases = opened.cases;
                let event = self.keep_over_cut(&mut opened);
                self.adopt(now, opened);
                if self.removing.is_some() {
                    self.state = LogState::Removing;
                    return;
                }
                let opened = LogEvent::Opened { log_start_offset, end_offset, cases };
                events.push(event.unwrap_or(opened));
                self.write_epochs(now, out);
            }
            Ok(Progress::Stray) => {
                self.opening = None;
                if self.removing.is_some() {
                    self.state = LogState::Removing;
                } else {
                    self.state = LogState::Closed;
                    events.push(LogEvent::Stray);
                }
            }
            Ok(Progress::Unreadable(sentence)) => {
                self.opening = None;
                self.state = LogState::Failed;
                events.push(LogEvent::Unreadable { sentence });
            }
            Err(cause) => self.fail(cause, events),
        }
    }

    fn adopt(&mut self, now: Now, opened: Opened) {
        let active = opened.segments.last().expect("an open log has a segment");
        self.writer = Writer::adopted(now, &opened, active);
        self.log_start_offset = opened.log_start_offset;
        self.segments = opened.segments;
        self.epochs = opened.epochs;
        self.producers = opened.producers;
        self.aborted = opened.aborted;
        let due = now.mono + self.config.file_delete_delay;
        self.set_aside.extend(opened.set_aside.into_iter().map(|file| (due, file)));
        self.dirty_at_most_from(self.writer.end);
        self.state = LogState::Open;
    }

    /// The log takes nothing from now on.
    fn fail(&mut self, cause: IoError, events: &mut Vec<LogEvent>) {
        self.give_up();
        events.push(LogEvent::Failed { cause });
    }

    /// The directory has failed: the log takes nothing from now on, and says no more.
    pub fn give_up(&mut self) {
        self.state = LogState::Failed;
        self.opening = None;
        self.forget_searches();
        self.forget_places();
        self.tail.clear();
        self.set_aside.clear();
        self.dropping = None;
        self.retry_at = None;
        self.renaming = None;
        self.give_up_cleaning();
        self.writer.give_up();
        // What the file lacks is still asked for, by the last checkpoint.
        self.epochs_file.writing = None;
    }

    /// A disk that is full is no reason to give the directory up: the thing is tried again.
    /// Returns whether that is so; else the log has ended.
    fn retries(&mut self, now: Now, cause: IoError, events: &mut Vec<LogEvent>) -> bool {
        if cause.kind == IoErrorKind::NoSpace && self.state == LogState::Closing {
            // Nobody waits for a stop that waits for space: the next start recovers the log.
            self.give_up();
            events.push(LogEvent::NotClosed { cause });
            return false;
        }
        if cause.kind == IoErrorKind::NoSpace {
            tracing::warn!(partition = %self.partition, %cause, "tried again in a moment");
            self.retry_at = Some(now.mono + RETRY_AFTER);
            return true;
        }
        self.fail(cause, events);
        false
    }

    fn note_epoch(&mut self, epoch: LeaderEpoch, start: Offset) {
        if self.epochs.assign(epoch, start) {
            self.epochs_file.stale = true;
            let from = self.epochs_file.stale_from.get_or_insert(start);
            *from = start.min(*from);
        }
    }

    /// Writes the checkpoint of the epochs, if it lacks something and no write is under way.
    fn write_epochs(&mut self, now: Now, out: &mut LogEffects) {
        let waits = self.retry_at.is_some_and(|at| at > now.mono)
            || self.state == LogState::Removing
            || self.renaming.is_some();
        if !self.epochs_file.stale || self.epochs_file.writing.is_some() || waits {
            return;
        }
        let path = self.directory.join(names::LEADER_EPOCH_CHECKPOINT);
        let content = text::format_epochs(self.epochs.entries());
        let file = AtomicFile::replace(path, content, LogStep(Step::Epochs), out);
        self.epochs_file = EpochsFile {
            writing: Some(file),
            stale: false,
            stale_from: None,
            writing_from: self.epochs_file.stale_from,
        };
    }

    fn on_epochs_written(
        &mut self,
        now: Now,
        result: api::IoResult<()>,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        let Some(file) = &mut self.epochs_file.writing else { return };
        match file.on_done(result, LogStep(Step::Epochs), out) {
            Ok(false) => {}
            Ok(true) => {
                self.epochs_file.writing = None;
                self.epochs_file.writing_from = None;
                self.write_epochs(now, out);
            }
            Err(cause) => {
                let from = self.epochs_file.writing_from.take();
                let stale = from.iter().chain(&self.epochs_file.stale_from).min().copied();
                self.epochs_file =
                    EpochsFile { stale: true, stale_from: stale, ..EpochsFile::default() };
                self.retries(now, cause, events);
            }
        }
    }

    fn active(&self) -> &Segment {
        self.segments.last().expect("an open log has a segment")
    }

    fn active_mut(&mut self) -> &mut Segment {
        self.segments.last_mut().expect("an open log has a segment")
    }
}
