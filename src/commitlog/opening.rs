//! Makes a log's files, or finds out what an earlier run left and repairs it (`LogLoader`).
//!
//! `docs/recovery.md` has the table of what is done in which case. In short: a segment is taken
//! over, or it is recovered, which checks every batch and makes its indexes again. A recovered
//! segment ends before its first invalid byte, and with that the log ends: later segments are set
//! aside. What is above the recovery point is synced before the log is open, and so are the names
//! of what was set aside.

mod ending;
mod listing;
mod rebuild;
mod swap;
mod walk;

use std::collections::VecDeque;
use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;

use api::{DirectoryEntry, FileEffect, FileOutcome, FileRef, IoError, IoErrorKind, IoResult};
use base::{Now, Offset};
use bytes::Bytes;
use records::BatchHeader;

use crate::aborted::{self, Aborted};
use crate::atomic_file::AtomicFile;
use crate::case::{Case, Cases};
use crate::config::{Checkpoints, LogParams};
use crate::epochs::Epochs;
use crate::index::SegmentIndex;
use crate::marks::Marks;
use crate::names;
use crate::producers::{Producers, Snapshot};
use crate::scan::{Invalid, Scanner};
use crate::segment::{Segment, SegmentFiles};
use crate::step::{LogStep, Step};
use crate::text;

use rebuild::Rebuild;
use swap::{Swap, SwapProgress};
use walk::Walk;

/// The largest checkpoint or metadata file that is read, in bytes.
const TEXT_BYTES_MAX: u32 = 4 << 20;
/// The largest index file that is loaded, in bytes.
const INDEX_BYTES_MAX: u32 = 64 << 20;
/// The largest index of aborted transactions that is loaded, in bytes: every marker of a segment.
const ABORTED_BYTES_MAX: u32 = 1 << 30;
/// The largest snapshot of producers that is loaded, in bytes: more than a million of them.
const SNAPSHOT_BYTES_MAX: u32 = 64 << 20;
const STEP: LogStep = LogStep(Step::Open);

type Out = Vec<FileEffect<LogStep>>;

/// An open log, as opening found it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) segments: Vec<Segment>,
    /// Of the last segment.
    pub(crate) index: SegmentIndex,
    /// Of the first batch of the last segment.
    pub(crate) first_timestamp: Option<i64>,
    pub(crate) epochs: Epochs,
    pub(crate) producers: Producers,
    pub(crate) aborted: Aborted,
    pub(crate) log_start_offset: Offset,
    pub(crate) end_offset: Offset,
    pub(crate) flushed_end_offset: Offset,
    /// Files with the suffix of deleted ones, to go after a while.
    pub(crate) set_aside: Vec<FileRef>,
    /// What was found.
    pub(crate) cases: Cases,
}

/// How far opening is.
#[derive(Debug)]
pub(crate) enum Progress {
    /// The next outcome will tell.
    Going,
    /// The log is open.
    Done(Box<Opened>),
    /// It holds something that must not be touched.
    Unreadable(String),
    /// The folder was another topic's, and has been renamed.
    Stray,
    /// The disk is full: it begins again later, when nothing is under way any more. What the disk
    /// said comes once.
    NoSpace(Option<IoError>),
}

/// A log that is being made or opened. One effect or one group of effects is under way at a time.
#[derive(Debug)]
pub(crate) struct Opening {
    params: LogParams,
    begins: Begins,
    found: Checkpoints,
    waits_for_space: bool,
    stage: Stage,
    waiting: VecDeque<SegmentFiles>,
    has_metadata: bool,
    has_epochs: bool,
    epochs: Epochs,
    epochs_changed: bool,
    rebuild: Rebuild,
    segments: Vec<Segment>,
    last: Last,
    /// Where the segments begin that were recovered: their `.txnindex` is made again.
    recovered: Vec<Offset>,
    set_aside: Vec<FileRef>,
    /// Files that go before the log is open: a new segment could have their names.
    leftovers: Vec<String>,
    cases: Cases,
}

/// How opening began, to begin again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    /// A new log is made, which begins at this offset.
    Create(Offset),
    /// What is in the folder is opened, with what the checkpoints said.
    Open(Checkpoints),
    /// The same, and the log was open before: files that were set aside have their time yet.
    OpenAgain(Checkpoints),
}

/// What is known of the last segment that was loaded.
#[derive(Debug, Default)]
struct Last {
    index: SegmentIndex,
    first_timestamp: Option<i64>,
    end: Offset,
}

#[derive(Debug)]
enum Stage {
    MakingFolder,
    Listing,
    /// The folder belongs to another topic.
    SettingAside,
    /// What the cleaner was about; then the folder is listed anew.
    Swapping(Box<Swap>),
    ReadingEpochs,
    ReadingMetadata,
    WritingMetadata(AtomicFile),
    /// A snapshot of the producers; then the segments, or a walk over their batches once more.
    LoadingSnapshot {
        offset: Offset,
        up_to: Offset,
        replays: bool,
    },
    /// One that belongs to the end of a segment that was recovered, or of the log.
    WritingSnapshot {
        file: AtomicFile,
        replayed: bool,
    },
    Replaying(Box<Replay>),
    LoadingAborted(SegmentFiles),
    LoadingOffsets(SegmentFiles),
    LoadingTimes(SegmentFiles, Bytes),
    LoadingFirst(Box<Walk>),
    Walking(Box<Walk>),
    /// The log ends in this segment, and the ones behind it get the names of deleted ones.
    SettingLaterAside {
        walk: Box<Walk>,
        outstanding: u32,
        /// Whether the names become durable just now.
        syncs: bool,
    },
    /// Effects whose outcomes only have to be good; then the next segment.
    Settling {
        outstanding: u32,
    },
    /// The same, before the log is done.
    Ending {
        outstanding: u32,
    },
    WritingEpochs(AtomicFile),
    /// Nothing is under way: a decision is being made.
    Deciding,
}

/// A walk over batches of open segments that only looks for producers.
#[derive(Debug)]
struct Replay {
    /// The index of the segment.
    place: usize,
    log: FileRef,
    scanner: Scanner,
    follows: bool,
}

impl Opening {
    /// Makes the folder and the files of a new log that begins at `start`.
    pub(crate) fn create(params: LogParams, start: Offset, out: &mut Out) -> Self {
        Self::new(params, Begins::Create(start), out)
    }

    /// Opens the log that is in the folder.
    pub(crate) fn open(params: LogParams, found: Checkpoints, out: &mut Out) -> Self {
        Self::new(params, Begins::Open(found), out)
    }

    /// Opens a log that this process had open, and that was cut.
    pub(crate) fn open_again(params: LogParams, found: Checkpoints, out: &mut Out) -> Self {
        Self::new(params, Begins::OpenAgain(found), out)
    }

    /// Begins anew, after there was no space.
    pub(crate) fn begin_again(&mut self, out: &mut Out) {
        *self = Self::new(self.params.clone(), self.begins, out);
    }

    fn has(&self, case: Case) -> bool {
        self.cases.iter().any(|found| found == case)
    }

    /// Whether the log was open before.
    fn is_again(&self) -> bool {
        matches!(self.begins, Begins::OpenAgain(_))
    }

    /// Whether the disk was full.
    pub(crate) fn waits_for_space(&self) -> bool {
        self.waits_for_space
    }

    fn new(params: LogParams, begins: Begins, out: &mut Out) -> Self {
        let directory = params.directory.clone();
        let (found, stage) = match begins {
            Begins::Create(log_start_offset) => {
                out.push(FileEffect::MakeDirectory { token: STEP, path: directory });
                let found = Checkpoints { log_start_offset, ..Checkpoints::default() };
                (found, Stage::MakingFolder)
            }
            Begins::Open(found) | Begins::OpenAgain(found) => {
                out.push(FileEffect::List { token: STEP, directory });
                (found, Stage::Listing)
            }
        };
        Self {
            params,
            begins,
            found,
            waits_for_space: false,
            stage,
            waiting: VecDeque::new(),
            has_metadata: false,
            has_epochs: false,
            epochs: Epochs::default(),
            epochs_changed: false,
            rebuild: Rebuild::default(),
            segments: Vec::new(),
            last: Last::default(),
            recovered: Vec::new(),
            set_aside: Vec::new(),
            leftovers: Vec::new(),
            cases: Cases::default(),
        }
    }

    /// Takes the outcome of what is under way and asks for what comes next.
    ///
    /// # Errors
    /// Whatever the disk refused: the log cannot be opened.
    pub(crate) fn on_file(
        &mut self,
        now: Now,
        outcome: FileOutcome,
        out: &mut Out,
    ) -> IoResult<Progress> {
        if self.waits_for_space {
            return Ok(Progress::NoSpace(None));
        }
        match self.go_on(now, outcome, out) {
            Err(cause) if cause.kind == IoErrorKind::NoSpace => {
                self.waits_for_space = true;
                Ok(Progress::NoSpace(Some(cause)))
            }
            progress => progress,
        }
    }

    fn go_on(&mut self, now: Now, outcome: FileOutcome, out: &mut Out) -> IoResult<Progress> {
        match std::mem::replace(&mut self.stage, Stage::Deciding) {
            Stage::MakingFolder => {
                outcome.done()?;
                // The folder of an earlier topic of the name may be there.
                let directory = self.params.directory.clone();
                out.push(FileEffect::List { token: STEP, directory });
                self.stage = Stage::Listing;
            }
            Stage::SettingAside => {
                outcome.done()?;
                return Ok(Progress::Stray);
            }
            Stage::Listing => return self.on_listing(&outcome.listed()?, out),
            Stage::Swapping(swap) => return self.on_swap(swap, outcome, out),
            Stage::ReadingEpochs => {
                self.take_epochs(&found_text(outcome)?);
                self.read_metadata(out);
            }
            Stage::ReadingMetadata => match text::parse_partition_metadata(&found_text(outcome)?) {
                Ok(id) if id == self.params.topic_id => return self.begin_producers(now, out),
                Ok(id) => self.set_aside_stray(id, out),
                Err(bad) => {
                    let path = self.params.directory.join(names::PARTITION_METADATA);
                    let sentence = format!("{} cannot be read: {bad}", path.display());
                    return Ok(Progress::Unreadable(sentence));
                }
            },
            Stage::WritingMetadata(mut file) => {
                if file.on_done(outcome.done(), STEP, out)? {
                    return self.begin_producers(now, out);
                }
                self.stage = Stage::WritingMetadata(file);
            }
            Stage::LoadingAborted(files) => return self.take_aborted(now, files, outcome, out),
            Stage::LoadingOffsets(files) => {
                let offsets = found_bytes(outcome)?;
                self.read(&files, names::TIME_INDEX, INDEX_BYTES_MAX, out);
                self.stage = Stage::LoadingTimes(files, offsets);
            }
            Stage::LoadingTimes(files, offsets) => {
                let index = SegmentIndex::load(&offsets, &found_bytes(outcome)?);
                return self.load_end(now, files, index, out);
            }
            Stage::LoadingFirst(mut walk) => {
                let bytes = outcome.read()?;
                if let Ok(header) = <&[u8; records::HEADER_BYTES]>::try_from(&bytes[..]) {
                    walk.first_timestamp = Some(BatchHeader::read(header).max_timestamp);
                }
                return self.walk_on(now, walk, out);
            }
            Stage::Walking(mut walk) => {
                let bytes = outcome.read()?;
                let (config, epochs) = (&self.params.config, &mut self.epochs);
                self.epochs_changed |= walk.take(&bytes, config, epochs, &mut self.rebuild);
                return self.walk_on(now, walk, out);
            }
            stage @ (Stage::LoadingSnapshot { .. }
            | Stage::WritingSnapshot { .. }
            | Stage::Replaying(_)) => return self.on_producers(now, stage, outcome, out),
            stage => return self.on_end(now, stage, outcome, out),
        }
        Ok(Progress::Going)
    }

    /// Says what was found.
    fn note(&mut self, case: Case, detail: fmt::Arguments<'_>) {
        let (partition, name) = (&self.params.partition, case.name());
        // Of a log that is being moved there are two.
        let folder = self.params.directory.display();
        if case.is_quiet() {
            tracing::debug!(%partition, case = name, %folder, "{detail}");
        } else if case == Case::Unflushed {
            tracing::info!(%partition, case = name, %folder, "{detail}");
        } else {
            tracing::warn!(%partition, case = name, %folder, "{detail}");
        }
        self.cases.insert(case);
    }

    fn on_listing(&mut self, entries: &[DirectoryEntry], out: &mut Out) -> IoResult<Progress> {
        if let Some(mut swap) = Swap::found(&self.params.directory, entries) {
            self.note(Case::CompactionInterrupted, format_args!("{swap}"));
            swap.begin(out);
            self.stage = Stage::Swapping(Box::new(swap));
        } else if let Some(sentence) = self.take_listing(entries) {
            return Ok(Progress::Unreadable(sentence));
        } else {
            self.read_epochs(out);
        }
        Ok(Progress::Going)
    }

    fn on_swap(
        &mut self,
        mut swap: Box<Swap>,
        outcome: FileOutcome,
        out: &mut Out,
    ) -> IoResult<Progress> {
        match swap.on_file(outcome, out)? {
            SwapProgress::Going => self.stage = Stage::Swapping(swap),
            SwapProgress::Unreadable(sentence) => return Ok(Progress::Unreadable(sentence)),
            SwapProgress::Done => {
                let directory = self.params.directory.clone();
                out.push(FileEffect::List { token: STEP, directory });
                self.stage = Stage::Listing;
            }
        }
        Ok(Progress::Going)
    }

    /// Takes the outcome of what finds the state of the producers.
    fn on_producers(
        &mut self,
        now: Now,
        stage: Stage,
        outcome: FileOutcome,
        out: &mut Out,
    ) -> IoResult<Progress> {
        match stage {
            Stage::LoadingSnapshot { offset, up_to, replays } => {
                let bytes = found_bytes(outcome)?;
                let expiration_ms = self.params.config.producer_id_expiration_ms;
                if let Err(bad) = self.rebuild.load(now, expiration_ms, offset, &bytes) {
                    self.note(Case::SnapshotUnreadable, format_args!("that at {offset}: {bad}"));
                    return self.load_snapshot(now, up_to, replays, out);
                }
                if replays {
                    return self.replay_from(now, 0, out);
                }
                return self.next_segment(now, out);
            }
            Stage::WritingSnapshot { mut file, replayed } => {
                if !file.on_done(outcome.done(), STEP, out)? {
                    self.stage = Stage::WritingSnapshot { file, replayed };
                } else if replayed {
                    return self.end(now, out);
                } else {
                    return self.next_segment(now, out);
                }
            }
            Stage::Replaying(mut replay) => {
                let bytes = outcome.read()?;
                let (rebuild, follows) = (&mut self.rebuild, &mut replay.follows);
                let walked = replay.scanner.feed(&bytes, |_, header, records| {
                    rebuild.take(header, &records, follows);
                    ControlFlow::Continue(())
                });
                if let Err(invalid) = walked {
                    let (partition, log) = (&self.params.partition, replay.log.path());
                    tracing::warn!(%partition, ?invalid, log = %log.display(), "no batch");
                    return self.replay_from(now, replay.place + 1, out);
                }
                return self.replay_on(now, replay, bytes.is_empty(), out);
            }
            stage => panic!("an outcome came in the stage {stage:?}"),
        }
        Ok(Progress::Going)
    }

    /// Takes the outcome of what ends a segment, or the whole.
    fn on_end(
        &mut self,
        now: Now,
        stage: Stage,
        outcome: FileOutcome,
        out: &mut Out,
    ) -> IoResult<Progress> {
        match stage {
            Stage::Settling { outstanding } => {
                done_or_missing(outcome)?;
                if outstanding == 1 {
                    return self.next_segment(now, out);
                }
                self.stage = Stage::Settling { outstanding: outstanding - 1 };
            }
            Stage::SettingLaterAside { walk, outstanding, syncs } => {
                done_or_missing(outcome)?;
                if outstanding > 1 {
                    let outstanding = outstanding - 1;
                    self.stage = Stage::SettingLaterAside { walk, outstanding, syncs };
                } else if syncs {
                    return self.set_later_aside(now, walk, out);
                } else {
                    let directory = self.params.directory.clone();
                    out.push(FileEffect::SyncDirectory { token: STEP, directory });
                    self.stage = Stage::SettingLaterAside { walk, outstanding: 1, syncs: true };
                }
            }
            Stage::Ending { outstanding } => {
                done_or_missing(outcome)?;
                if outstanding == 1 {
                    return Ok(self.write_epochs(out));
                }
                self.stage = Stage::Ending { outstanding: outstanding - 1 };
            }
            Stage::WritingEpochs(mut file) => {
                if file.on_done(outcome.done(), STEP, out)? {
                    return Ok(self.done());
                }
                self.stage = Stage::WritingEpochs(file);
            }
            stage => panic!("an outcome came in the stage {stage:?}"),
        }
        Ok(Progress::Going)
    }

    /// Begins to find the state of the producers, then treats the segments.
    fn begin_producers(&mut self, now: Now, out: &mut Out) -> IoResult<Progress> {
        let first = self.waiting.front().map_or(Offset(0), |files| files.base);
        let is_clean = self.found.clean_shutdown;
        let skips = is_clean && !self.is_again() && self.rebuild.found.is_empty();
        if skips && !self.waiting.is_empty() {
            self.note(Case::ProducersUnknown, format_args!("there is no snapshot of them"));
        }
        self.rebuild.begin(self.found.log_start_offset.max(first), skips);
        let up_to = if is_clean { None } else { self.recovers_from().or(Some(first)) };
        self.load_snapshot(now, up_to.unwrap_or(Offset(i64::MAX)), false, out)
    }

    /// Loads the newest snapshot up to an offset, if there is one, then goes on.
    fn load_snapshot(
        &mut self,
        now: Now,
        up_to: Offset,
        replays: bool,
        out: &mut Out,
    ) -> IoResult<Progress> {
        if let Some(offset) = self.rebuild.newest(up_to) {
            let path = names::segment_file(&self.params.directory, offset, names::SNAPSHOT);
            let (file, length) = (FileRef::new(path), SNAPSHOT_BYTES_MAX);
            out.push(FileEffect::Read { token: STEP, file, position: 0, length });
            self.stage = Stage::LoadingSnapshot { offset, up_to, replays };
            return Ok(Progress::Going);
        }
        if replays { self.replay_from(now, 0, out) } else { self.next_segment(now, out) }
    }

    /// Walks over the segments from the one at `place` on that the state does not cover yet.
    fn replay_from(&mut self, now: Now, place: usize, out: &mut Out) -> IoResult<Progress> {
        let covered = |place: &usize| {
            let next = self.segments.get(place + 1);
            self.segments[*place].bytes == 0 || next.is_some_and(|it| it.base <= self.rebuild.end)
        };
        let Some(place) = (place..self.segments.len()).find(|place| !covered(place)) else {
            self.rebuild.end = self.last.end;
            let snapshot = self.rebuild.producers.snapshot(self.last.end);
            let Some(snapshot) = snapshot else { return self.end(now, out) };
            self.write_snapshot(snapshot, true, out);
            return Ok(Progress::Going);
        };
        let segment = &self.segments[place];
        let scanner = Scanner::headers(0, u64::from(segment.bytes));
        // Between two segments there can only be what compaction removed.
        let replay = Replay { place, log: segment.log.clone(), scanner, follows: true };
        self.replay_on(now, Box::new(replay), false, out)
    }

    fn replay_on(
        &mut self,
        now: Now,
        replay: Box<Replay>,
        is_short: bool,
        out: &mut Out,
    ) -> IoResult<Progress> {
        match replay.scanner.next_read() {
            Some((position, length)) if !is_short => {
                let file = replay.log.clone();
                out.push(FileEffect::Read { token: STEP, file, position, length });
                self.stage = Stage::Replaying(replay);
                Ok(Progress::Going)
            }
            _ => self.replay_from(now, replay.place + 1, out),
        }
    }

    fn write_snapshot(&mut self, snapshot: Snapshot, replayed: bool, out: &mut Out) {
        let Snapshot { offset, content, .. } = snapshot;
        self.rebuild.replaces(offset);
        let path = names::segment_file(&self.params.directory, offset, names::SNAPSHOT);
        let file = AtomicFile::replace(path, content, STEP, out);
        self.stage = Stage::WritingSnapshot { file, replayed };
    }

    /// Treats the next segment that was listed, as the table at the top says.
    fn next_segment(&mut self, now: Now, out: &mut Out) -> IoResult<Progress> {
        if let Some(snapshot) = self.rebuild.pending.take() {
            self.write_snapshot(snapshot, false, out);
            return Ok(Progress::Going);
        }
        let leftovers = std::mem::take(&mut self.leftovers);
        if !leftovers.is_empty() {
            let outstanding = u32::try_from(leftovers.len()).expect("a folder has few files");
            for name in leftovers {
                let path = self.params.directory.join(name);
                out.push(FileEffect::Remove { token: STEP, path, files: Vec::new() });
            }
            self.stage = Stage::Settling { outstanding };
            return Ok(Progress::Going);
        }
        let recovers_from = self.recovers_from();
        while let Some(files) = self.waiting.pop_front() {
            let unchecked =
                !self.found.clean_shutdown && recovers_from.is_none_or(|from| files.base >= from);
            if unchecked || files.index_bytes.is_none() {
                let case = if unchecked { Case::Unflushed } else { Case::IndexMissing };
                self.note(case, format_args!("the segment {} is recovered", files.base));
                let walk = self.recovering(files);
                return self.walk_on(now, walk, out);
            }
            if let Some(bytes) = files.aborted_bytes {
                let length = u32::try_from(bytes).unwrap_or(u32::MAX).min(ABORTED_BYTES_MAX);
                self.read(&files, names::TRANSACTION_INDEX, length, out);
                self.stage = Stage::LoadingAborted(files);
                return Ok(Progress::Going);
            }
            if self.waiting.is_empty() && self.is_again() {
                // Its indexes may name what was cut off.
                return self.load_end(now, files, SegmentIndex::default(), out);
            }
            if self.waiting.is_empty() {
                self.read(&files, names::INDEX, INDEX_BYTES_MAX, out);
                self.stage = Stage::LoadingOffsets(files);
                return Ok(Progress::Going);
            }
            let bytes = u32::try_from(files.log_bytes).expect("longer ones were refused");
            self.segments.push(files.segment(&self.params.directory, bytes));
        }
        self.end_producers(now, out)
    }

    /// Every segment was treated: finds what the state of the producers still lacks.
    fn end_producers(&mut self, now: Now, out: &mut Out) -> IoResult<Progress> {
        let (start, end) = (self.found.log_start_offset, self.last.end);
        if self.segments.is_empty() || end < start {
            self.rebuild.restart(start);
            return self.end(now, out);
        }
        let needed = self.rebuild.needs(end, self.found.clean_shutdown);
        let Some(up_to) = needed else { return self.end(now, out) };
        let known = self.rebuild.end;
        self.note(
            Case::SnapshotMissing,
            format_args!("producers are known up to {known}, the log ends at {end}"),
        );
        self.rebuild.restart(start.max(self.segments[0].base));
        self.load_snapshot(now, up_to, true, out)
    }

    /// The segment that holds the recovery point: from it on all is checked. `None` for the first.
    fn recovers_from(&self) -> Option<Offset> {
        let loaded = self.segments.iter().map(|segment| segment.base);
        let waiting = self.waiting.iter().map(|files| files.base);
        loaded.chain(waiting).take_while(|base| *base <= self.found.recovery_point).last()
    }

    /// Loads the last segment of a clean log: its end lies behind the last entry of its index.
    fn load_end(
        &mut self,
        now: Now,
        files: SegmentFiles,
        index: SegmentIndex,
        out: &mut Out,
    ) -> IoResult<Progress> {
        let entry = index.offsets().last();
        let begin = entry.map_or(0, |entry| u64::from(entry.position));
        let scanner = Scanner::headers(begin, files.log_bytes);
        let walk = self.walk(files, scanner, index, false);
        if begin == 0 {
            return self.walk_on(now, walk, out);
        }
        let length = records::HEADER_BYTES as u32;
        out.push(FileEffect::Read { token: STEP, file: walk.log.clone(), position: 0, length });
        self.stage = Stage::LoadingFirst(walk);
        Ok(Progress::Going)
    }

    /// What the `.txnindex` of a segment holds; without it the segment is recovered.
    fn take_aborted(
        &mut self,
        now: Now,
        mut files: SegmentFiles,
        outcome: FileOutcome,
        out: &mut Out,
    ) -> IoResult<Progress> {
        files.aborted_bytes = None;
        match aborted::parse(&found_bytes(outcome)?, files.base) {
            Ok(entries) => entries.into_iter().for_each(|it| self.rebuild.aborted.insert(it)),
            Err(bad) => {
                let segment = files.base;
                self.note(Case::AbortedUnreadable, format_args!("of the segment {segment}: {bad}"));
                let walk = self.recovering(files);
                return self.walk_on(now, walk, out);
            }
        }
        self.waiting.push_front(files);
        self.next_segment(now, out)
    }

    /// A walk that checks a segment from its start.
    fn recovering(&mut self, files: SegmentFiles) -> Box<Walk> {
        self.rebuild.recovers(files.base, self.found.log_start_offset);
        self.recovered.push(files.base);
        let scanner = Scanner::checking(0, files.log_bytes);
        self.walk(files, scanner, SegmentIndex::default(), true)
    }

    fn walk(
        &self,
        files: SegmentFiles,
        scanner: Scanner,
        index: SegmentIndex,
        recovers: bool,
    ) -> Box<Walk> {
        let follows = scanner.position() == 0 && files.base <= self.rebuild.end;
        Box::new(Walk {
            log: FileRef::new(names::segment_file(&self.params.directory, files.base, names::LOG)),
            end: files.base,
            valid_bytes: scanner.position(),
            files,
            scanner,
            recovers,
            index,
            marks: Marks::default(),
            first_timestamp: None,
            invalid: None,
            follows,
        })
    }

    /// Reads on in a segment, or ends it.
    fn walk_on(&mut self, now: Now, mut walk: Box<Walk>, out: &mut Out) -> IoResult<Progress> {
        if walk.invalid.is_none() {
            if let Some((position, length)) = walk.scanner.next_read() {
                let file = walk.log.clone();
                out.push(FileEffect::Read { token: STEP, file, position, length });
                self.stage = Stage::Walking(walk);
                return Ok(Progress::Going);
            }
            walk.invalid = walk.scanner.finish().err();
        }
        if walk.invalid == Some(Invalid::OldFormat) {
            return Ok(Progress::Unreadable(format!(
                "{} holds records of an older message format at byte {}",
                walk.log.path().display(),
                walk.valid_bytes
            )));
        }
        if walk.invalid.is_some() && !walk.recovers {
            // What should be in order is not: check it from its start.
            let segment = walk.files.base;
            self.note(Case::EndUnreadable, format_args!("the segment {segment} is recovered"));
            let walk = self.recovering(walk.files);
            return self.walk_on(now, walk, out);
        }
        self.end_segment(now, walk, out)
    }

    /// Ends a segment, and with it the log, where what follows does not belong to it.
    fn end_segment(&mut self, now: Now, walk: Box<Walk>, out: &mut Out) -> IoResult<Progress> {
        let end = walk.end;
        if let Some(invalid) = walk.invalid {
            let lost = walk.files.log_bytes - walk.valid_bytes;
            let case = if invalid == Invalid::Torn { Case::Torn } else { Case::Corrupt };
            self.note(case, format_args!("the log ends at {end}, {lost} bytes go"));
        } else if walk.recovers && self.waiting.front().is_some_and(|next| self.lacks(end, next)) {
            // The end of the segment was lost with the power, whole batches of it, while what was
            // written to the next one later was not.
            self.note(Case::BatchesMissing, format_args!("the log ends at {end}"));
        } else {
            let next = self.waiting.front().map_or(end, |next| next.base);
            if walk.recovers && next > end && !self.is_compacted() {
                self.note(Case::Gap, format_args!("records from {end} up to {next} are missing"));
            }
            return self.take_segment(now, *walk, out);
        }
        self.set_later_aside(now, walk, out)
    }

    /// Sets the segments behind the end of the log aside, the newest first, and each durably before
    /// anything else is done: after a loss of power none may be back behind what the log has by
    /// then, and none where the one before it is gone.
    fn set_later_aside(&mut self, now: Now, walk: Box<Walk>, out: &mut Out) -> IoResult<Progress> {
        let Some(files) = self.waiting.pop_back() else {
            return self.take_segment(now, *walk, out);
        };
        let segment = files.segment(&self.params.directory, 0);
        let outstanding = self.set_segment_aside(&segment, out);
        self.stage = Stage::SettingLaterAside { walk, outstanding, syncs: false };
        Ok(Progress::Going)
    }

    /// Takes a segment over, cut to what is valid.
    fn take_segment(&mut self, now: Now, mut walk: Walk, out: &mut Out) -> IoResult<Progress> {
        let bytes = u32::try_from(walk.valid_bytes).expect("longer ones were refused");
        let mut segment = walk.files.segment(&self.params.directory, bytes);
        segment.log = walk.log;
        let mut outstanding = 0;
        if walk.invalid.is_some() {
            let length = walk.valid_bytes;
            out.push(FileEffect::Truncate { token: STEP, file: segment.log.clone(), length });
            outstanding += 1;
        }
        if !self.waiting.is_empty() {
            walk.marks.settle();
            walk.index.add_largest_time();
            outstanding += segment.seal(&self.params.directory, &walk.index, STEP, out);
        }
        segment.marks = walk.marks;
        self.segments.push(segment);
        let first_timestamp = walk.first_timestamp;
        self.last = Last { index: walk.index, first_timestamp, end: walk.end };
        self.snapshot_between(walk.recovers && walk.follows);
        if outstanding == 0 {
            return self.next_segment(now, out);
        }
        self.stage = Stage::Settling { outstanding };
        Ok(Progress::Going)
    }

    /// Whether batches are missing between a segment and the next one. Where compaction was at
    /// work, where all of them were to be deleted, or no crash can have taken anything, they are
    /// not.
    fn lacks(&self, end: Offset, next: &SegmentFiles) -> bool {
        let needed_from = self.found.recovery_point.max(self.found.log_start_offset);
        let may_be_lost = !self.found.clean_shutdown && next.base > needed_from;
        next.base > end && may_be_lost && !self.is_compacted()
    }

    /// Whether gaps are no damage.
    fn is_compacted(&self) -> bool {
        self.params.config.compact || self.found.first_dirty.is_some()
    }

    /// A segment that was recovered ends where the next one begins: the snapshot that belongs there
    /// is made again if it is missing.
    fn snapshot_between(&mut self, is_covered: bool) {
        if let Some(next) = self.waiting.front().filter(|_| is_covered) {
            self.rebuild.reach(next.base);
        }
    }

    /// Gives the files of a segment the suffix of deleted ones. Returns the number of outcomes.
    fn set_segment_aside(&mut self, segment: &Segment, out: &mut Out) -> u32 {
        let files = segment.set_aside(&self.params.directory, |_| STEP, out);
        let outstanding = u32::try_from(files.len()).expect("a segment has few files");
        self.set_aside.extend(files);
        outstanding
    }

    fn read(&self, files: &SegmentFiles, ending: &str, length: u32, out: &mut Out) {
        let path = names::segment_file(&self.params.directory, files.base, ending);
        let file = FileRef::new(path);
        out.push(FileEffect::Read { token: STEP, file, position: 0, length });
    }

    fn read_file(&self, path: PathBuf, out: &mut Out) {
        let (file, length) = (FileRef::new(path), TEXT_BYTES_MAX);
        out.push(FileEffect::Read { token: STEP, file, position: 0, length });
    }
}

fn found_text(outcome: FileOutcome) -> IoResult<String> {
    Ok(String::from_utf8_lossy(&found_bytes(outcome)?).into_owned())
}

/// A file that is not there need not be set aside.
fn done_or_missing(outcome: FileOutcome) -> IoResult<()> {
    match outcome.done() {
        Err(error) if error.kind == IoErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The bytes that were read; none where there is no file.
fn found_bytes(outcome: FileOutcome) -> IoResult<Bytes> {
    match outcome.read() {
        Err(error) if error.kind == IoErrorKind::NotFound => Ok(Bytes::new()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
