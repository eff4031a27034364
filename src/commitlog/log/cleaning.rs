//! A log that is compacted: the way through its files (`Cleaner`, `LocalLog.replaceSegments`).
//!
//! One round notes the newest offset of each key in the dirty segments, then writes all segments
//! below anew, in groups that fit one segment. A group goes through these stages; the last column
//! says what the next start makes of a crash in them (see `opening/swap.rs`).
//!
//! | stage | what happens | after a crash |
//! |---|---|---|
//! | `Copying` | what stays is written to `.log.cleaned` | it is as if nothing had happened |
//! | `Sealing` | its indexes are written, all of it is made durable | the same |
//! | `Swapping` | `.cleaned` becomes `.swap`, durably | once all are: the swap is completed |
//! | `SettingAside` | the old files become `.deleted`, durably | the swap is completed |
//! | `Naming` | `.swap` goes from the names, durably | the swap is completed |
//!
//! On a full disk a group that is copied goes, for a later round; a swap that has begun is
//! completed, as soon as there is space for the names.
//!
//! Readers that hold an old segment finish with it: its file has another name only.

mod due;

use api::{FileEffect, FileOutcome, FileRef, IoErrorKind};
use base::{Duration, Instant, Map, Now, Offset, ProducerId};
use bytes::Bytes;
use records::{Batch, BatchHeader, HEADER_BYTES};

use super::{Log, LogEffects, LogState, RETRY_AFTER};
use crate::cleaner::{
    Budget, CleanedSegment, Damage, Fate, Filter, Filtered, Filtering, LastRecord, OffsetMap,
    OpenTransactions, Ordered, OrderedKeys, check_place,
};
use crate::names;
use crate::segment::Segment;
use crate::step::{LogEvent, LogStep, Step};

/// What one turn of cleaning reads, in bytes, unless a single batch is larger.
const CLEANING_TURN_BYTES: u32 = 128 << 10;
/// What one turn of cleaning unpacks, in bytes: about a millisecond.
const CLEANING_TURN_PLAIN_BYTES: usize = 256 << 10;
/// What is written of a cleaned segment before it is brought to the disk, in bytes: the sync at its
/// end is short, and the kernel has little to write back at once. It takes no sync, which would
/// commit the file system's journal, for which the writes of others would wait.
const CLEANED_DIRTY_BYTES: u32 = 2 << 20;
/// Waits that are shorter are not worth a timer.
const THROTTLE_WAIT_MIN: Duration = Duration::from_millis(1);

const STEP: LogStep = LogStep(Step::Clean);

pub use due::Cleanable;

/// With what a log is cleaned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CleaningLimits {
    /// Memory for the newest offsets, in bytes (`log.cleaner.dedupe.buffer.size`).
    pub map_bytes: usize,
    /// Which part of that is filled (`log.cleaner.io.buffer.load.factor`).
    pub map_load_factor: f64,
    /// Bytes read and written in a second (`log.cleaner.io.max.bytes.per.second`).
    pub bytes_per_second: f64,
    /// Random, so that no client can choose keys that are slow to find.
    pub hash_seed: u64,
}

/// What a log knows of its cleaning.
#[derive(Debug, Default)]
pub(super) struct Cleaner {
    /// Everything below was cleaned once; none where nothing ever was.
    first_dirty: Option<Offset>,
    /// Segments from here on are left as they are, as long as the first of them is there: it is
    /// damaged.
    barrier: Option<Offset>,
    /// The first timestamp of this segment is being read.
    asking: Option<Offset>,
    round: Option<Box<Round>>,
}

/// One round.
#[derive(Debug)]
struct Round {
    began_ms: i64,
    first_dirty: Offset,
    high_watermark: Offset,
    /// No keys are noted from here on, and no segment that begins here or later is touched: the
    /// first one that could not be cleaned when the round began, unless memory or what was found in
    /// a segment says less.
    limit: Offset,
    map: OffsetMap,
    transactions: OpenTransactions,
    limits: CleaningLimits,
    stage: Stage,
    /// Outcomes that are awaited.
    outstanding: u32,
    /// There was no space for a name: what the stage asks for is asked for again.
    lacks_space: bool,
    /// It was: what had its name already is not found.
    is_repeated: bool,
    /// No further keys are noted.
    is_mapped: bool,
    /// It is to stop as soon as it can.
    is_over: bool,
    /// What was read and is not gone over yet; it begins with a batch.
    unread: Bytes,
    /// How far that batch is gone over, if that has begun.
    work: Option<Work>,
    /// When the bytes that were moved so far are paid for.
    paid_at: Instant,
    resume_at: Option<Instant>,
    bytes_read: u64,
    bytes_written: u64,
}

#[derive(Debug)]
enum Stage {
    /// Keys of the dirty segments are noted.
    Mapping(Place),
    Copying(Box<Group>),
    Sealing(Box<Group>),
    /// The second field: the folder is being synced.
    Swapping(Box<Group>, bool),
    /// With the old files.
    SettingAside(Named, Vec<FileRef>, bool),
    Naming(Named, bool),
    /// Unfinished files go.
    Discarding,
}

/// A batch that is gone over: what it unpacks to may take more than a turn.
#[derive(Debug)]
enum Work {
    Noting(Box<OrderedKeys>),
    Filtering(Box<Filtering>),
}

/// A batch in a segment that is read next.
#[derive(Clone, Copy, Debug)]
struct Place {
    segment: Offset,
    position: u32,
    /// The offset behind the batch before it.
    from: Offset,
    /// How much is read.
    length: u32,
}

/// Segments that become one.
#[derive(Debug)]
struct Group {
    last: Offset,
    place: Place,
    last_records: Map<ProducerId, LastRecord>,
    output: CleanedSegment,
    /// How far it was brought to the disk.
    written_back: u32,
}

/// A segment that is in the list, and whose files have no final names yet.
#[derive(Debug)]
struct Named {
    base: Offset,
    next: Offset,
    offset_entries: u32,
    time_entries: u32,
}

impl Place {
    /// The beginning of a segment.
    fn at(segment: Offset) -> Self {
        Self { segment, position: 0, from: segment, length: CLEANING_TURN_BYTES }
    }
}

impl Stage {
    fn is_swap(&self) -> bool {
        matches!(self, Stage::Swapping(..) | Stage::SettingAside(..) | Stage::Naming(..))
    }

    /// Whether files get other names. A folder that could not be synced is another matter: what is
    /// durable of it is not known.
    fn is_renaming(&self) -> bool {
        use Stage::{Naming, SettingAside, Swapping};
        matches!(self, Swapping(_, false) | SettingAside(_, _, false) | Naming(_, false))
    }
}

/// What is asked of a log, and told.
impl Log {
    /// Everything below it was cleaned, for the checkpoint of the log directory; none of a log that
    /// never was.
    pub fn first_dirty_offset(&self) -> Option<Offset> {
        self.cleaner.first_dirty
    }

    /// Whether it is being cleaned.
    pub fn is_cleaning(&self) -> bool {
        self.cleaner.round.is_some()
    }

    /// Begins to clean what [`Log::cleanable`] found below `up_to`, the last stable offset;
    /// [`LogEvent::Cleaned`] says that it is over. A batch that ends at the high watermark stays,
    /// if only without records: consumers come as far.
    pub fn clean(
        &mut self,
        now: Now,
        up_to: Offset,
        high_watermark: Offset,
        limits: CleaningLimits,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        assert!(
            self.state == LogState::Open && !self.is_cleaning(),
            "it is cleaned once at a time"
        );
        let first_dirty = self.dirty_from();
        let Some(place) = self.uncleanable_from(now, first_dirty, up_to, out) else {
            return events.push(LogEvent::Cleaned { moved: false });
        };
        let limit = self.segments[place].base;
        let records_max = u64::try_from(limit.0 - first_dirty.0).unwrap_or(0);
        let segment = self.segments[self.segment_of(first_dirty)].base;
        self.cleaner.round = Some(Box::new(Round {
            began_ms: now.wall_ms,
            first_dirty,
            high_watermark,
            limit,
            map: OffsetMap::new(limits.map_bytes, limits.map_load_factor, records_max),
            transactions: OpenTransactions::new(segment),
            limits,
            stage: Stage::Mapping(Place::at(segment)),
            outstanding: 0,
            lacks_space: false,
            is_repeated: false,
            is_mapped: false,
            is_over: false,
            unread: Bytes::new(),
            work: None,
            paid_at: now.mono,
            resume_at: None,
            bytes_read: 0,
            bytes_written: 0,
        }));
        let partition = &self.partition;
        tracing::info!(%partition, %first_dirty, %limit, "cleaning the log");
        self.clean_on(now, out, events);
    }

    /// What the checkpoint of the directory said.
    pub(super) fn set_first_dirty(&mut self, first_dirty: Option<Offset>) {
        self.cleaner.first_dirty = first_dirty;
    }

    /// The log ends at `offset`: what may come behind it was never cleaned.
    pub(super) fn dirty_at_most_from(&mut self, offset: Offset) {
        self.cleaner.first_dirty = self.cleaner.first_dirty.map(|from| from.min(offset));
        self.cleaner.barrier = self.cleaner.barrier.filter(|barrier| *barrier < offset);
    }

    /// Forgets what is under way: the log has failed.
    pub(super) fn give_up_cleaning(&mut self) {
        self.cleaner.round = None;
        self.cleaner.asking = None;
    }

    /// Whether segments are being replaced: they must not be deleted now.
    pub(super) fn is_swapping(&self) -> bool {
        self.cleaner.round.as_ref().is_some_and(|round| round.stage.is_swap())
    }

    /// Whether an effect of the cleaning is under way.
    pub(super) fn has_cleaning_effects(&self) -> bool {
        self.is_cleaning() || self.cleaner.asking.is_some()
    }

    /// Stops the cleaning, at once or as soon as the segments that are being replaced are.
    pub fn stop_cleaning(&mut self, out: &mut LogEffects) {
        let Some(round) = &mut self.cleaner.round else { return };
        round.is_over = true;
        if round.stage.is_swap() && self.removing.is_none() {
            return;
        }
        let Some(resume_at) = round.resume_at.take() else { return };
        // Nothing is under way. Nobody has to be told: who owns the log knows why it stops.
        match &mut round.stage {
            Stage::Copying(group) => {
                round.outstanding = group.output.discard(&self.directory, STEP, out);
                round.stage = Stage::Discarding;
                return;
            }
            Stage::SettingAside(_, old, _) => {
                // They go with the folder.
                self.set_aside.extend(old.drain(..).map(|file| (resume_at, file)));
            }
            _ => {}
        }
        self.cleaner.round = None;
    }

    /// When the cleaning wants to go on.
    pub(super) fn cleaning_resumes_at(&self) -> Option<Instant> {
        self.cleaner.round.as_ref()?.resume_at
    }

    /// Goes on when it is time.
    pub(super) fn resume_cleaning(
        &mut self,
        now: Now,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        if self.cleaning_resumes_at().is_some_and(|at| at <= now.mono) {
            self.clean_on(now, out, events);
        }
    }
}

/// The stages.
impl Log {
    /// Takes an outcome of the cleaning.
    pub(super) fn on_cleaning(
        &mut self,
        now: Now,
        outcome: FileOutcome,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        let Some(mut round) = self.cleaner.round.take() else { return };
        round.outstanding = round.outstanding.saturating_sub(1);
        let result = match outcome {
            FileOutcome::Read(result) => result.map(Some),
            outcome => outcome.done().map(|()| None),
        };
        let may_lack =
            matches!(round.stage, Stage::SettingAside(..) | Stage::Discarding) || round.is_repeated;
        match result {
            Ok(Some(bytes)) => {
                round.bytes_read += bytes.len() as u64;
                self.pay(now, &mut round, bytes.len() as u64);
                round.unread = bytes;
            }
            Err(cause) if may_lack && cause.kind == IoErrorKind::NotFound => {}
            Err(cause) if cause.kind == IoErrorKind::NoSpace && !round.stage.is_swap() => {
                tracing::warn!(partition = %self.partition, %cause, "the log is cleaned later");
                round.is_over = true;
            }
            Err(cause) if round.stage.is_renaming() => {
                if !self.retries(now, cause, events) {
                    return;
                }
                round.lacks_space = true;
            }
            Err(cause) => return self.fail(cause, events),
            Ok(None) => {}
        }
        let waits = round.outstanding > 0;
        self.cleaner.round = Some(round);
        if !waits {
            self.clean_on(now, out, events);
        }
        if !self.is_cleaning() {
            // What DeleteRecords gave up while segments were being replaced.
            self.delete_below_start(now, out);
        }
    }

    /// Goes on, when nothing is under way.
    fn clean_on(&mut self, now: Now, out: &mut LogEffects, events: &mut Vec<LogEvent>) {
        let Some(mut round) = self.cleaner.round.take() else { return };
        round.is_repeated = round.resume_at.take().is_some() && round.stage.is_swap();
        if std::mem::take(&mut round.lacks_space) {
            round.resume_at = Some(now.mono + RETRY_AFTER);
            self.cleaner.round = Some(round);
            if self.removing.is_some() {
                self.stop_cleaning(out);
            }
            return;
        }
        let is_idle_stage = matches!(round.stage, Stage::Mapping(_) | Stage::Copying(_));
        if is_idle_stage && !round.is_over && round.paid_at > now.mono + THROTTLE_WAIT_MIN {
            round.resume_at = Some(round.paid_at);
            self.cleaner.round = Some(round);
            return;
        }
        self.take_unread(&mut round);
        if !round.unread.is_empty() {
            // The next turn goes on.
            round.resume_at = Some(now.mono);
            self.cleaner.round = Some(round);
            return;
        }
        let before = out.len();
        let stage = std::mem::replace(&mut round.stage, Stage::Discarding);
        let next = match round.is_repeated {
            true => Some(stage),
            false => self.next_stage(now, &mut round, stage, out),
        };
        self.ask_for_swap(next.as_ref(), out);
        round.outstanding = u32::try_from(out.len() - before).expect("a handful of effects");
        match next {
            Some(stage) => {
                round.stage = stage;
                self.cleaner.round = Some(round);
            }
            None => self.end_round(&round, events),
        }
    }

    /// Asks for what a stage of a swap needs.
    fn ask_for_swap(&self, stage: Option<&Stage>, out: &mut LogEffects) {
        let rename = |segment: &Segment, suffixes: (&str, &str), out: &mut LogEffects| {
            CleanedSegment::rename(&self.directory, segment, suffixes, STEP, out);
        };
        match stage {
            Some(Stage::Swapping(group, false)) => {
                rename(group.output.segment(), (names::CLEANED, names::SWAP), out);
            }
            Some(Stage::SettingAside(_, old, false)) => {
                old.iter().for_each(|file| crate::segment::set_file_aside(file, STEP, out));
            }
            Some(Stage::Naming(named, false)) => {
                rename(&self.segments[self.place_of(named.base)], (names::SWAP, ""), out);
            }
            Some(stage) if stage.is_swap() => {
                let directory = self.directory.clone();
                out.push(FileEffect::SyncDirectory { token: STEP, directory });
            }
            _ => {}
        }
    }

    /// Asks for what comes next, but for a swap; `None` when the round is over.
    fn next_stage(
        &mut self,
        now: Now,
        round: &mut Round,
        stage: Stage,
        out: &mut LogEffects,
    ) -> Option<Stage> {
        match stage {
            Stage::Mapping(_) if round.is_over => None,
            Stage::Mapping(place) => match self.next_to_map(place, round) {
                Some(place) => {
                    self.read_at(place, out);
                    Some(Stage::Mapping(place))
                }
                None => {
                    // What no batch holds any more, up to the limit, was looked at as well.
                    round.map.reach(Offset(round.limit.0 - 1));
                    let first = self.segments[0].base;
                    round.transactions = OpenTransactions::new(first);
                    self.begin_group(round, first, out)
                }
            },
            Stage::Copying(group) | Stage::Sealing(group) if round.is_over => {
                group.output.discard(&self.directory, STEP, out);
                Some(Stage::Discarding)
            }
            Stage::Copying(group) => Some(self.copy_on(now, round, group, out)),
            Stage::Sealing(group) => Some(Stage::Swapping(group, false)),
            Stage::Swapping(group, false) => Some(Stage::Swapping(group, true)),
            Stage::Swapping(group, true) => {
                let (named, old) = self.replace(*group);
                Some(Stage::SettingAside(named, old, false))
            }
            Stage::SettingAside(named, old, false) => {
                let due = now.mono + self.config.file_delete_delay;
                self.set_aside.extend(old.into_iter().map(|file| (due, file)));
                Some(Stage::SettingAside(named, Vec::new(), true))
            }
            Stage::SettingAside(named, _, true) => Some(Stage::Naming(named, false)),
            Stage::Naming(named, false) => Some(Stage::Naming(named, true)),
            Stage::Naming(named, true) => {
                let place = self.place_of(named.base);
                self.segments[place].offset_entries = named.offset_entries;
                self.segments[place].time_entries = named.time_entries;
                self.begin_group(round, named.next, out)
            }
            Stage::Discarding => None,
        }
    }

    fn end_round(&mut self, round: &Round, events: &mut Vec<LogEvent>) {
        let (read, written, keys) = (round.bytes_read, round.bytes_written, round.map.keys());
        let partition = &self.partition;
        let latest = round.map.latest().filter(|_| !round.is_over);
        let moved = latest.is_some_and(|latest| latest >= round.first_dirty);
        if let Some(latest) = latest.filter(|_| moved) {
            self.cleaner.first_dirty = Some(latest.plus(1).min(round.limit));
            tracing::info!(%partition, %latest, keys, read, written, "the log is clean");
        } else {
            tracing::info!(%partition, keys, read, written, "the log was not cleaned to an end");
        }
        events.push(LogEvent::Cleaned { moved });
    }

    /// Counts bytes against `log.cleaner.io.max.bytes.per.second`.
    fn pay(&self, now: Now, round: &mut Round, bytes: u64) {
        let seconds = bytes as f64 / round.limits.bytes_per_second.max(1.0);
        let nanoseconds = (seconds * 1e9) as u64;
        round.paid_at = round.paid_at.max(now.mono) + Duration::from_nanos(nanoseconds);
    }

    /// The place to read at, or the beginning of the next segment that has something, below
    /// `limit`.
    fn next_read(&self, place: Place, limit: Offset) -> Option<Place> {
        let index = self.place_of(place.segment);
        let here = self.segments.get(index)?;
        if here.base < limit && place.position < here.bytes {
            return Some(place);
        }
        let behind = self.segments[index + 1..].iter().take_while(|segment| segment.base < limit);
        behind.into_iter().find(|segment| segment.bytes > 0).map(|it| Place::at(it.base))
    }

    fn next_to_map(&self, place: Place, round: &Round) -> Option<Place> {
        if round.is_mapped { None } else { self.next_read(place, round.limit) }
    }

    fn read_at(&self, place: Place, out: &mut LogEffects) {
        let segment = &self.segments[self.place_of(place.segment)];
        let length = place.length.min(segment.bytes - place.position);
        let (file, position) = (segment.log.clone(), u64::from(place.position));
        out.push(FileEffect::Read { token: STEP, file, position, length });
    }

    /// Goes over what was read, as far as a turn may. Nothing is left of it where the rest has to
    /// be read anew.
    fn take_unread(&mut self, round: &mut Round) {
        let mut rest = std::mem::take(&mut round.unread);
        let (bytes, mut budget) = (rest.len(), Budget::new(CLEANING_TURN_PLAIN_BYTES));
        while !rest.is_empty() && !round.has_enough() {
            if budget.is_spent() {
                round.unread = rest;
                return;
            }
            let Some(place) = round.place() else { return };
            let segment = place.segment;
            let batch = match Batch::read(&rest) {
                Ok(Some(batch)) => batch,
                Ok(None) => return self.read_more(round, &rest, rest.len() < bytes),
                Err(error) => return self.leave(round, segment, &error.to_string()),
            };
            match self.take_batch(round, &batch, &mut budget) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => return self.leave(round, segment, &error.to_string()),
            }
            rest = rest.slice(batch.size()..);
            if let Some(place) = round.place() {
                place.position += u32::try_from(batch.size()).expect("a segment is below 2 GB");
                place.from = batch.header().next_offset();
                place.length = CLEANING_TURN_BYTES;
            }
        }
    }

    /// A batch is not whole in what was read: the next read begins with it, and has all of it.
    fn read_more(&mut self, round: &mut Round, rest: &Bytes, has_moved: bool) {
        let Some(place) = round.place() else { return };
        let header = rest.first_chunk::<HEADER_BYTES>().map(BatchHeader::read);
        let size = header.and_then(|header| header.batch_bytes()).unwrap_or(0);
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let (segment, before) = (place.segment, place.length);
        place.length = size.max(CLEANING_TURN_BYTES);
        let left = self.segments[self.place_of(segment)].bytes - place.position;
        let is_torn = size > left || (!has_moved && place.length <= before);
        if is_torn {
            self.leave(round, segment, "a batch is not whole");
        }
    }

    /// A segment is not what the cleaner understands: it stays as it is from now on, with all
    /// behind it.
    fn leave(&mut self, round: &mut Round, segment: Offset, why: &str) {
        tracing::warn!(partition = %self.partition, %segment, why, "not cleaned from here on");
        self.cleaner.barrier = Some(segment);
        round.work = None;
        match &mut round.stage {
            // What was noted of it only says that there are newer records.
            Stage::Mapping(_) if segment > round.first_dirty => {
                round.limit = segment;
                round.is_mapped = true;
            }
            _ => round.is_over = true,
        }
    }

    /// Whether a batch that was read has offsets of its segment, behind those before it.
    fn check_place(&self, round: &mut Round, batch: &Batch) -> Result<(), Damage> {
        let Some(place) = round.place() else { return Ok(()) };
        let next = self.segments.get(self.place_of(place.segment) + 1);
        let end = next.map_or(self.writer.end, |next| next.base);
        check_place(batch, place.segment, place.from, end)
    }

    /// Notes the keys of a batch, or copies what stays of it: whether it is done with it.
    fn take_batch(
        &mut self,
        round: &mut Round,
        batch: &Batch,
        budget: &mut Budget,
    ) -> Result<bool, Damage> {
        let header = batch.header();
        let work = match round.work.take() {
            Some(work) => work,
            None => {
                batch.check_crc()?;
                self.check_place(round, batch)?;
                let fate = round.transactions.pass(batch, &self.aborted)?;
                let seed = round.limits.hash_seed;
                if round.is_mapping() {
                    if fate != Fate::Records || header.last_offset() < round.first_dirty {
                        round.map.reach(header.last_offset());
                        return Ok(true);
                    }
                    Work::Noting(Box::new(OrderedKeys::new(batch, seed)?))
                } else {
                    Work::Filtering(Box::new(Filtering::new(batch, fate, seed)?))
                }
            }
        };
        match work {
            Work::Noting(keys) => round.note(batch, keys, budget),
            Work::Filtering(filtering) => self.filter(round, batch, filtering, budget),
        }
    }

    /// Copies what stays of a batch.
    fn filter(
        &mut self,
        round: &mut Round,
        batch: &Batch,
        mut filtering: Box<Filtering>,
        budget: &mut Budget,
    ) -> Result<bool, Damage> {
        let Stage::Copying(group) = &mut round.stage else { return Ok(true) };
        let filter = Filter {
            map: &round.map,
            now_ms: round.began_ms,
            delete_retention_ms: self.config.delete_retention_ms,
            last_records: &group.last_records,
            high_watermark: round.high_watermark,
        };
        let left = match filter.advance(batch, &mut filtering, budget)? {
            None => {
                round.work = Some(Work::Filtering(filtering));
                return Ok(false);
            }
            Some(Filtered::Nothing) => return Ok(true),
            Some(Filtered::All) => batch.clone(),
            Some(Filtered::Part(left)) => left,
        };
        if let Fate::Marker(Some(entry)) = filtering.fate() {
            group.output.push_aborted(entry);
        }
        if !group.output.push(&left, self.config.index_interval_bytes) {
            // Its clients compress better than this broker does.
            let segment = group.place.segment;
            self.leave(round, segment, "what is left of it does not fit a segment");
        }
        Ok(true)
    }

    /// Begins with the segments from `base` on: `None` when all are done.
    fn begin_group(
        &mut self,
        round: &mut Round,
        base: Offset,
        out: &mut LogEffects,
    ) -> Option<Stage> {
        let latest = round.map.latest().filter(|latest| *latest >= round.first_dirty)?;
        let end = round.limit.min(latest.plus(1));
        let places = self.place_of(base)..self.segments.partition_point(|it| it.base < end);
        if places.is_empty() || round.is_over {
            return None;
        }
        let last = self.group_from(places.start, places.end);
        let modified_ms = self.segments[last].modified_ms;
        let last_records =
            self.producers.states().map(|state| (state.producer_id, LastRecord::of(&state)));
        let first = self.segments[places.start].base;
        let output = CleanedSegment::new(&self.directory, first, modified_ms);
        output.prepare(STEP, out);
        Some(Stage::Copying(Box::new(Group {
            last: self.segments[last].base,
            place: Place::at(first),
            last_records: last_records.collect(),
            output,
            written_back: 0,
        })))
    }

    /// Writes what stays, or reads on; ends the group when all of it was read.
    fn copy_on(
        &mut self,
        now: Now,
        round: &mut Round,
        mut group: Box<Group>,
        out: &mut LogEffects,
    ) -> Stage {
        if let Some(bytes) = group.output.write(STEP, out) {
            round.bytes_written += u64::from(bytes);
            self.pay(now, round, u64::from(bytes));
        } else if group.output.bytes() - group.written_back >= CLEANED_DIRTY_BYTES {
            group.output.write_back(group.written_back, STEP, out);
            group.written_back = group.output.bytes();
        } else if let Some(place) = self.next_read(group.place, group.last.plus(1)) {
            group.place = place;
            self.read_at(place, out);
        } else {
            group.output.seal(&self.directory, STEP, out);
            return Stage::Sealing(group);
        }
        Stage::Copying(group)
    }

    /// Puts the cleaned segment in the place of those of its group. Returns their files too, which
    /// have to be set aside.
    fn replace(&mut self, group: Group) -> (Named, Vec<FileRef>) {
        let base = group.output.segment().base;
        let (first, last) = (self.place_of(base), self.place_of(group.last));
        let next = self.segments[last + 1].base;
        self.aborted.replace(base, next, group.output.aborted());
        let (segment, offset_entries, time_entries) = group.output.into_segment();
        let bytes = segment.bytes;
        let old: Vec<Segment> = self.segments.splice(first..=last, [segment]).collect();
        let before: u64 = old.iter().map(|segment| u64::from(segment.bytes)).sum();
        let partition = &self.partition;
        tracing::debug!(%partition, %base, segments = old.len(), before, bytes, "cleaned");
        self.overtake_flows(base, group.last);
        self.forget_places();
        self.tail.forget_below(next);
        // A snapshot of the producers stays where the new segment begins.
        let files = old.iter().flat_map(|it| it.files(&self.directory, it.base != base));
        let files = files.map(|(_, file)| file).collect();
        (Named { base, next, offset_entries, time_entries }, files)
    }
}

impl Round {
    fn is_mapping(&self) -> bool {
        matches!(self.stage, Stage::Mapping(_))
    }

    /// Whether nothing more of what was read is looked at.
    fn has_enough(&self) -> bool {
        self.is_over || (self.is_mapping() && self.is_mapped)
    }

    /// Where the walk is, while there is one.
    fn place(&mut self) -> Option<&mut Place> {
        match &mut self.stage {
            Stage::Mapping(place) => Some(place),
            Stage::Copying(group) => Some(&mut group.place),
            _ => None,
        }
    }

    /// Notes the keys of a batch: whether all are. When there is no room for one, the map ends
    /// before it.
    fn note(
        &mut self,
        batch: &Batch,
        mut keys: Box<OrderedKeys>,
        budget: &mut Budget,
    ) -> Result<bool, Damage> {
        loop {
            let record = match keys.advance(budget)? {
                Ordered::Paused => {
                    self.work = Some(Work::Noting(keys));
                    return Ok(false);
                }
                Ordered::Over => break,
                Ordered::Record(record) => record,
            };
            let key = record.key.filter(|_| record.offset >= self.first_dirty);
            if key.is_some_and(|key| !self.map.put(key, record.offset)) {
                // The round ends with what was noted.
                self.is_mapped = true;
                self.limit = self.limit.min(record.offset);
                return Ok(true);
            }
        }
        self.map.reach(batch.header().last_offset());
        Ok(true)
    }
}
