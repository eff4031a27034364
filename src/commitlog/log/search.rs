//! Searches that take more than one turn: the place of an offset in a file, and the record of a
//! timestamp.

use std::ops::{ControlFlow, Range};

use api::{FileEffect, FileRef, IoResult};
use base::{Offset, Slab, Token};
use bytes::Bytes;
use records::{Batch, BatchError, BatchHeader, NO_TIMESTAMP, RecordSearch, Searched};

use super::place::{FoundBatch, Located, ReadError};
use super::{Log, LogEffects, LogState};
use crate::index::{OFFSET_ENTRY_BYTES, OffsetEntry, TIME_ENTRY_BYTES, TimeEntry};
use crate::names;
use crate::scan::Scanner;
use crate::segment::Segment;
use crate::step::{FoundTimestamp, LogEvent, LogStep, Step, Ticket};

/// Searches of one log at a time.
pub(super) const FLOWS_MAX: usize = 64;
/// What is read of an index at once, in entries, when the search has come down to it.
const BLOCK_ENTRIES: u32 = 2048;
/// A distance between two marks below which the headers are read without asking the index.
const NEAR_BYTES: u32 = 256 << 10;

/// A search that is under way. Each has one read under way at a time.
#[derive(Debug)]
pub(super) enum Flow {
    Locate(Locate),
    Time(TimeSearch),
    Boundary(Boundary),
    /// The segment that it was in was replaced by the cleaner: it begins again, for a timestamp.
    Overtaken(Option<TimeSearch>),
}

/// Reads which offset a batch begins with, ahead of the reader that will ask for it.
#[derive(Debug)]
pub(super) struct Boundary {
    segment: Offset,
    position: u32,
    /// What the index says of the batch.
    last_offset: Offset,
}

/// The part of an index that the last search came down to, of a segment of an earlier run: a
/// sequential reader goes on in it.
#[derive(Debug)]
pub(super) struct IndexWindow {
    segment: Offset,
    entries: Vec<OffsetEntry>,
}

impl Flow {
    /// The offset that it locates, if it does.
    pub(super) fn locates(&self) -> Option<Offset> {
        match self {
            Flow::Locate(locate) => Some(locate.offset),
            Flow::Time(_) | Flow::Boundary(_) | Flow::Overtaken(_) => None,
        }
    }

    /// The base offset of the segment that it is in.
    fn segment(&self) -> Option<Offset> {
        match self {
            Flow::Locate(locate) => Some(locate.segment),
            Flow::Time(search) => Some(search.segment),
            Flow::Boundary(boundary) => Some(boundary.segment),
            Flow::Overtaken(_) => None,
        }
    }
}

/// What a search wants next.
enum Next {
    Read {
        file: FileRef,
        position: u64,
        length: u32,
    },
    Located(Result<FoundBatch, ReadError>),
    Time(Option<FoundTimestamp>),
    /// The turn of its batch, which [`Log::search_on`] gives it.
    Turn,
    /// [`Log::search_on`] has to look through a batch.
    Records,
    /// The segment was deleted meanwhile.
    Gone,
    Failed,
}

/// Looks for the first batch that ends at an offset or behind it.
#[derive(Debug)]
pub(super) struct Locate {
    offset: Offset,
    /// The base offset of the segment that is searched.
    segment: Offset,
    stage: LocateStage,
}

#[derive(Debug)]
enum LocateStage {
    Index(IndexSearch),
    Walk(Box<Scanner>),
}

/// Looks for the first record with a timestamp, or the first with the largest.
#[derive(Debug)]
pub(super) struct TimeSearch {
    /// What was asked for; `None`: the largest of the log.
    asked: Option<i64>,
    /// `None`: the largest of the log is not known yet.
    timestamp: Option<i64>,
    /// The base offset of the segment that is looked at.
    segment: Offset,
    stage: TimeStage,
}

#[derive(Debug)]
enum TimeStage {
    /// Which segment is the first that reaches the timestamp: its last entry was `asked` for.
    Segments {
        asked: bool,
    },
    Times(IndexSearch),
    Offsets(IndexSearch),
    Walk(Box<Scanner>),
    /// A batch may hold the record. It is read when its turn comes: any number may wait for that,
    /// and each holds no more than this.
    Batch {
        position: u32,
        length: u32,
    },
    /// Its records are looked through, by [`Log::search_on`].
    Records(Box<BatchSearch>),
}

/// Looks for a record in a batch.
#[derive(Debug)]
pub(super) struct BatchSearch {
    batch: Batch,
    /// Where the batch behind it begins.
    end: u32,
    /// Once it has begun: its window takes memory.
    records: Option<RecordSearch>,
}

/// A search in the file of an index, for the last entry up to a key.
#[derive(Debug)]
struct IndexSearch {
    file: FileRef,
    entry_bytes: usize,
    key: i64,
    /// The entry looked for, if there is one, is at `low` or behind, and before `high`.
    low: u32,
    high: u32,
}

impl IndexSearch {
    fn reads(&self) -> Next {
        let (position, length) = self.next_read();
        Next::Read { file: self.file.clone(), position, length }
    }

    fn next_read(&self) -> (u64, u32) {
        let (first, entries) = match self.high - self.low {
            few if few <= BLOCK_ENTRIES => (self.low, few),
            many => (self.low + many / 2, 1),
        };
        let bytes = self.entry_bytes as u32;
        (u64::from(first) * u64::from(bytes), entries * bytes)
    }

    /// Takes what was read: the entry that was looked for, `None` for none, when it is over.
    fn feed(&mut self, bytes: &[u8]) -> Option<Option<Vec<u8>>> {
        let up_to_key = |entry: &[u8]| self.key_of(entry).is_some_and(|key| key <= self.key);
        let entries = bytes.chunks_exact(self.entry_bytes);
        if self.high - self.low <= BLOCK_ENTRIES {
            return Some(entries.take_while(|entry| up_to_key(entry)).last().map(<[u8]>::to_vec));
        }
        let middle = self.low + (self.high - self.low) / 2;
        if entries.take(1).any(up_to_key) {
            self.low = middle;
        } else {
            self.high = middle;
        }
        None
    }

    /// The key of an entry; `None` for the padding that Kafka leaves behind the last one.
    fn key_of(&self, entry: &[u8]) -> Option<i64> {
        if let Ok(bytes) = <[u8; OFFSET_ENTRY_BYTES]>::try_from(entry) {
            let entry = OffsetEntry::read(bytes);
            return (entry.position > 0).then_some(i64::from(entry.relative_offset));
        }
        let bytes = <[u8; TIME_ENTRY_BYTES]>::try_from(entry).ok()?;
        let entry = TimeEntry::read(bytes);
        (entry.timestamp != 0 || entry.relative_offset != 0).then_some(entry.timestamp)
    }
}

impl TimeSearch {
    fn new(asked: Option<i64>, segment: Offset) -> Self {
        Self { asked, timestamp: asked, segment, stage: TimeStage::Segments { asked: false } }
    }
}

impl Locate {
    /// Begins in the segment at `place`, or the first one behind it that is not empty.
    fn in_segment(log: &Log, place: usize, offset: Offset) -> Self {
        let behind = place..log.segments.len();
        let place = behind.into_iter().find(|it| log.written_bytes_of(*it) > 0).unwrap_or(place);
        let segment = log.segments[place].base;
        let stage = log.locate_stage(place, offset);
        Self { offset, segment, stage }
    }
}

impl Log {
    /// Looks for the first record whose timestamp is at least `timestamp`, in milliseconds since
    /// 1970, among those that are written. [`LogEvent::TimestampFound`] has the answer. `None`
    /// when too many searches are under way, or the log is not open.
    pub fn find_timestamp(&mut self, timestamp: i64, out: &mut LogEffects) -> Option<Ticket> {
        self.begin_time_search(Some(timestamp), out)
    }

    /// Looks for the first record with the largest timestamp (KIP-734).
    pub fn find_max_timestamp(&mut self, out: &mut LogEffects) -> Option<Ticket> {
        self.begin_time_search(None, out)
    }

    /// Whether the largest timestamps of these segments, by their indexes, are known. If not, they
    /// are looked up, by a search whose answer whoever owns the log ignores.
    pub(super) fn knows_timestamps(&mut self, places: Range<usize>, out: &mut LogEffects) -> bool {
        let unknown = |it: &Segment| it.largest_timestamp.is_none() && it.time_entries > 0;
        let known = !self.segments[places].iter().any(unknown);
        if !known {
            self.find_max_timestamp(out);
        }
        known
    }

    fn begin_time_search(
        &mut self,
        timestamp: Option<i64>,
        out: &mut LogEffects,
    ) -> Option<Ticket> {
        if self.state != LogState::Open || self.renaming.is_some() {
            return None;
        }
        let segment = self.segments[0].base;
        let search = TimeSearch::new(timestamp, segment);
        let token = self.flows.insert(Some(Flow::Time(search))).ok()?;
        // The first step always reads, so that the answer is an event like all others.
        let (file, length) = (self.segments[0].log.clone(), 1);
        out.push(FileEffect::Read { token: LogStep(Step::Flow(token)), file, position: 0, length });
        Some(Ticket(token))
    }

    /// The segments from `first` to `last` were replaced: what is searched in them is searched
    /// anew.
    pub(super) fn overtake_flows(&mut self, first: Offset, last: Offset) {
        let segment = self.segments[0].base;
        for (_, slot) in self.flows.iter_mut() {
            let Some(flow) = slot else { continue };
            if flow.segment().is_some_and(|it| (first..=last).contains(&it)) {
                let again = match flow {
                    Flow::Time(search) => Some(TimeSearch::new(search.asked, segment)),
                    _ => None,
                };
                *flow = Flow::Overtaken(again);
            }
        }
    }

    pub(super) fn on_flow(
        &mut self,
        token: Token,
        result: IoResult<Bytes>,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        self.batch_read.take_if(|read| *read == token);
        let Some(mut flow) = self.flows.get_mut(token).and_then(Option::take) else { return };
        let is_removed = self.state == LogState::Removing;
        let is_in = flow.segment().is_some_and(|segment| self.place_in(segment).is_some());
        let is_gone = is_removed || !is_in;
        let next = match (result, &mut flow) {
            (_, Flow::Overtaken(again)) if !is_removed => match again.take() {
                Some(search) => {
                    flow = Flow::Time(search);
                    self.first_read()
                }
                None => Next::Gone,
            },
            _ if is_gone => Next::Gone,
            (Ok(_), Flow::Overtaken(_)) => Next::Gone,
            (Err(cause), _) => return self.fail(cause, events),
            (Ok(bytes), Flow::Locate(locate)) => self.locate_on(locate, &bytes),
            (Ok(bytes), Flow::Boundary(boundary)) => {
                let located = boundary.located(&bytes);
                self.flows.remove(token);
                // Nobody waits for it; a place that is no batch is met by whoever reads there.
                return located.into_iter().for_each(|located| self.remember(located));
            }
            (Ok(bytes), Flow::Time(search)) => self.time_on(search, &bytes),
        };
        match next {
            Next::Turn => self.batch_searches.push_back(token),
            Next::Records => self.batch_searches.push_front(token),
            _ => {}
        }
        self.go_on(token, flow, next, out, events);
    }

    /// The first step of a search for a timestamp, whose answer is an event like all others.
    fn first_read(&self) -> Next {
        Next::Read { file: self.segments[0].log.clone(), position: 0, length: 1 }
    }

    /// How many searches have a batch to look through, which [`Log::search_on`] does.
    pub fn batches_to_search(&self) -> usize {
        self.batch_searches.len() + usize::from(self.batch_read.is_some())
    }

    /// Whether the batch whose turn has come is being read: until it is there, [`Log::search_on`]
    /// does nothing.
    pub fn is_reading_batch(&self) -> bool {
        self.batch_read.is_some()
    }

    /// Whether a batch is in memory, or on its way, to be looked through. There is one at most.
    pub fn holds_batch(&self) -> bool {
        let first = self.batch_searches.front().and_then(|token| self.flows.get(*token));
        let is_begun = matches!(
            first,
            Some(Some(Flow::Time(TimeSearch { stage: TimeStage::Records(_), .. })))
        );
        is_begun || self.is_reading_batch()
    }

    /// Goes on with the searches that have a batch to look through, one after the other, for about
    /// `budget` bytes of uncompressed records, and takes from it what it used. What is left waits
    /// for the next call: a small batch can hold gigabytes. A batch is read when its turn has come.
    /// Where other logs share the budget, no search is begun behind one that ends.
    pub fn search_on(
        &mut self,
        budget: &mut usize,
        shares: bool,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        while *budget > 0
            && self.batch_read.is_none()
            && let Some(&token) = self.batch_searches.front()
        {
            let Some(mut flow) = self.flows.get_mut(token).and_then(Option::take) else {
                unreachable!("what is searched has its place")
            };
            let next = match &mut flow {
                Flow::Time(search) => match (self.place_in(search.segment), &search.stage) {
                    (Some(place), TimeStage::Batch { position, length }) => {
                        self.batch_read = Some(token);
                        let file = self.segments[place].log.clone();
                        Next::Read { file, position: u64::from(*position), length: *length }
                    }
                    (Some(place), _) => self.search_batch(search, place, budget),
                    (None, _) => Next::Gone,
                },
                Flow::Overtaken(Some(again)) => {
                    flow = Flow::Time(TimeSearch::new(again.asked, again.segment));
                    self.first_read()
                }
                other => unreachable!("{other:?} looks for no timestamp"),
            };
            let goes_on = matches!(next, Next::Records);
            self.batch_searches.pop_front_if(|_| !goes_on);
            self.go_on(token, flow, next, out, events);
            if shares && !goes_on {
                return;
            }
        }
    }

    /// Does what a search wants next, or says what it has found.
    fn go_on(
        &mut self,
        token: Token,
        flow: Flow,
        next: Next,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        let ticket = Ticket(token);
        let event = match next {
            Next::Read { file, position, length } => {
                self.put_back(token, flow);
                let token = LogStep(Step::Flow(token));
                return out.push(FileEffect::Read { token, file, position, length });
            }
            Next::Turn | Next::Records => return self.put_back(token, flow),
            Next::Located(place) => {
                let offset = flow.locates().expect("only a search for an offset locates");
                self.remember(Located { offset, place });
                LogEvent::Located { ticket }
            }
            Next::Gone if !matches!(flow, Flow::Time(_)) => LogEvent::Located { ticket },
            Next::Failed if let Some(offset) = flow.locates() => {
                self.remember(Located { offset, place: Err(ReadError::Corrupt) });
                LogEvent::Located { ticket }
            }
            Next::Time(found) => LogEvent::TimestampFound { ticket, found },
            Next::Gone => LogEvent::SearchFailed { ticket, is_corrupt: false },
            Next::Failed => LogEvent::SearchFailed { ticket, is_corrupt: true },
        };
        self.flows.remove(token);
        events.push(event);
    }

    fn put_back(&mut self, token: Token, flow: Flow) {
        *self.flows.get_mut(token).expect("the search has its place") = Some(flow);
    }

    /// Nothing is searched any more.
    pub(super) fn forget_searches(&mut self) {
        self.flows = Slab::new(FLOWS_MAX);
        self.batch_searches.clear();
        self.batch_read = None;
    }

    /// Ends the searches that no effect will take on.
    pub(super) fn forget_batch_searches(&mut self) {
        for token in self.batch_searches.drain(..) {
            self.flows.remove(token);
        }
    }

    /// Begins to look for an offset: `None` when too many searches are under way.
    pub(super) fn begin_locate(&mut self, offset: Offset, out: &mut LogEffects) -> Option<Ticket> {
        if self.renaming.is_some() {
            return None;
        }
        let locate = Locate::in_segment(self, self.segment_of(offset), offset);
        let next = self.locate_reads(&locate);
        let token = self.flows.insert(Some(Flow::Locate(locate))).ok()?;
        let Next::Read { file, position, length } = next else {
            panic!("an offset that is written has bytes to be searched: {offset}")
        };
        out.push(FileEffect::Read { token: LogStep(Step::Flow(token)), file, position, length });
        Some(Ticket(token))
    }

    /// Whether compaction left nothing from the segment at `place` on.
    pub(super) fn is_empty_from(&self, place: usize) -> bool {
        (place..self.segments.len()).all(|place| self.written_bytes_of(place) == 0)
    }

    /// Where the next batch will stand.
    fn end_place(&self) -> FoundBatch {
        let last = self.segments.len() - 1;
        let (segment, position) = (self.segments[last].base, self.written_bytes_of(last));
        FoundBatch { segment, position, bytes: 0 }
    }

    /// How to look for an offset in the segment at `place`: from the last boundary that is known,
    /// or by the index where that lies far before.
    fn locate_stage(&self, place: usize, offset: Offset) -> LocateStage {
        let segment = &self.segments[place];
        let end = self.written_bytes_of(place);
        let relative = (offset.0 - segment.base.0).clamp(0, i64::from(i32::MAX));
        let relative_offset = u32::try_from(relative).expect("clamped");
        let mark = segment.marks.floor(relative_offset);
        let behind = segment.marks.first_behind(mark.position).map_or(end, |it| it.position);
        let is_far = behind.saturating_sub(mark.position) > NEAR_BYTES;
        let is_active = place + 1 == self.segments.len();
        let window = self.window.as_ref().filter(|window| window.segment == segment.base);
        let entry = window.and_then(|window| window.floor(relative_offset));
        // An index that points behind the end is damaged; the boundary that is known is not.
        if let Some(entry) = entry.filter(|entry| entry.position < end) {
            return LocateStage::Walk(scan_from(entry.position.max(mark.position), end));
        }
        if is_far && !is_active && segment.offset_entries > 0 {
            return LocateStage::Index(self.offset_search(place, relative));
        }
        let entries = if is_active { self.writer.index.offsets() } else { &[] };
        let above = entries.partition_point(|entry| entry.relative_offset <= relative_offset);
        let entry = above.checked_sub(1).map_or(0, |index| entries[index].position);
        LocateStage::Walk(scan_from(entry.max(mark.position), end))
    }

    fn offset_search(&self, place: usize, key: i64) -> IndexSearch {
        let segment = &self.segments[place];
        IndexSearch {
            file: FileRef::new(names::segment_file(&self.directory, segment.base, names::INDEX)),
            entry_bytes: OFFSET_ENTRY_BYTES,
            key,
            low: 0,
            high: segment.offset_entries,
        }
    }

    fn locate_reads(&self, locate: &Locate) -> Next {
        match &locate.stage {
            LocateStage::Index(search) => search.reads(),
            LocateStage::Walk(scanner) => self.walk_reads(locate.segment, scanner),
        }
    }

    /// What a walk reads next; [`Next::Failed`] when it is over.
    fn walk_reads(&self, segment: Offset, scanner: &Scanner) -> Next {
        let place = self.place_in(segment);
        match (place, scanner.next_read()) {
            (Some(place), Some((position, length))) => {
                let file = self.segments[place].log.clone();
                Next::Read { file, position, length }
            }
            _ => Next::Failed,
        }
    }

    fn locate_on(&mut self, locate: &mut Locate, bytes: &[u8]) -> Next {
        let Some(place) = self.place_in(locate.segment) else { return Next::Gone };
        match &mut locate.stage {
            LocateStage::Index(search) => {
                if let Some(entry) = search.feed(bytes) {
                    self.window = Some(IndexWindow::of(locate.segment, bytes));
                    let begin = self.segments[place].marks.floor(relative_key(search.key)).position;
                    let end = self.written_bytes_of(place);
                    let entry = Some(position_in(entry.as_deref())).filter(|entry| *entry < end);
                    let begin = entry.map_or(begin, |entry| entry.max(begin));
                    locate.stage = LocateStage::Walk(scan_from(begin, end));
                }
                self.locate_reads(locate)
            }
            LocateStage::Walk(scanner) => {
                let offset = locate.offset;
                let found = walk(scanner, bytes, |header| header.last_offset() >= offset);
                match found {
                    Walked::Found(position, bytes) => {
                        let segment = locate.segment;
                        Next::Located(Ok(FoundBatch { segment, position, bytes }))
                    }
                    Walked::On => self.locate_reads(locate),
                    Walked::Over if place + 1 < self.segments.len() => {
                        // The offset lies in the gap behind this segment.
                        if self.is_empty_from(place + 1) {
                            return Next::Located(Ok(self.end_place()));
                        }
                        *locate = Locate::in_segment(self, place + 1, offset);
                        match self.locate_reads(locate) {
                            Next::Failed => Next::Located(Err(ReadError::Corrupt)),
                            next => next,
                        }
                    }
                    Walked::Over | Walked::Corrupt => Next::Located(Err(ReadError::Corrupt)),
                }
            }
        }
    }

    fn time_on(&mut self, search: &mut TimeSearch, bytes: &Bytes) -> Next {
        let Some(place) = self.place_in(search.segment) else { return Next::Gone };
        match &mut search.stage {
            TimeStage::Segments { asked } => {
                if *asked {
                    let entry = <[u8; TIME_ENTRY_BYTES]>::try_from(&bytes[..]).map(TimeEntry::read);
                    let largest = entry.map_or(NO_TIMESTAMP, |entry| entry.timestamp);
                    self.segments[place].largest_timestamp = Some(largest);
                }
                self.choose_segment(search)
            }
            TimeStage::Times(times) => match times.feed(bytes) {
                None => times.reads(),
                Some(entry) => {
                    let entry = entry.and_then(|bytes| bytes.try_into().ok()).map(TimeEntry::read);
                    let relative_offset = entry.map_or(0, |entry| entry.relative_offset);
                    self.search_from(search, place, relative_offset)
                }
            },
            TimeStage::Offsets(offsets) => match offsets.feed(bytes) {
                None => offsets.reads(),
                Some(entry) => self.walk_from(search, place, position_in(entry.as_deref())),
            },
            TimeStage::Walk(scanner) => {
                let (timestamp, start) = (search.timestamp, self.log_start_offset);
                let reaches = |header: &BatchHeader| {
                    timestamp.is_some_and(|wanted| header.max_timestamp >= wanted)
                        && header.last_offset() >= start
                };
                match walk(scanner, bytes, reaches) {
                    Walked::Found(position, length) => {
                        search.stage = TimeStage::Batch { position, length };
                        Next::Turn
                    }
                    Walked::On => self.walk_reads(search.segment, scanner),
                    Walked::Over => Next::Time(None),
                    Walked::Corrupt => Next::Failed,
                }
            }
            TimeStage::Batch { position, length } => {
                let end = position.checked_add(*length).expect("a segment is below 2 GB");
                match Batch::read(bytes) {
                    Ok(Some(batch)) => {
                        let batch = BatchSearch { batch, end, records: None };
                        search.stage = TimeStage::Records(Box::new(batch));
                        Next::Records
                    }
                    Ok(None) | Err(_) => Next::Failed,
                }
            }
            TimeStage::Records(_) => unreachable!("nothing is read for it"),
        }
    }

    /// Goes on looking through a batch.
    fn search_batch(&self, search: &mut TimeSearch, place: usize, budget: &mut usize) -> Next {
        let TimeStage::Records(batch) = &mut search.stage else {
            unreachable!("{search:?} has no batch")
        };
        let (wanted, start) = (search.timestamp.unwrap_or(NO_TIMESTAMP), self.log_start_offset);
        let leader_epoch = batch.batch.header().leader_epoch;
        match batch.advance(budget, |offset, timestamp| timestamp >= wanted && offset >= start) {
            Ok(Searched::Paused) => Next::Records,
            Ok(Searched::Over) => {
                let end = batch.end;
                self.walk_from(search, place, end)
            }
            Ok(Searched::Found { offset, timestamp }) => {
                Next::Time(Some(FoundTimestamp { timestamp, offset, leader_epoch }))
            }
            Err(error) => {
                tracing::warn!(partition = %self.partition, %error, "a batch cannot be searched");
                Next::Failed
            }
        }
    }

    /// Chooses the segment that holds the record, asking for the largest timestamps that are not
    /// known yet one by one.
    fn choose_segment(&mut self, search: &mut TimeSearch) -> Next {
        let mut largest_of_all = None;
        for place in 0..self.segments.len() {
            let is_active = place + 1 == self.segments.len();
            let segment = &mut self.segments[place];
            if is_active {
                let largest = self.writer.index.largest();
                segment.largest_timestamp = Some(largest.map_or(NO_TIMESTAMP, |it| it.timestamp));
            } else if segment.time_entries == 0 {
                segment.largest_timestamp.get_or_insert(NO_TIMESTAMP);
            }
            let Some(largest) = segment.largest_timestamp else {
                search.segment = segment.base;
                search.stage = TimeStage::Segments { asked: true };
                let position = u64::from(segment.time_entries - 1) * TIME_ENTRY_BYTES as u64;
                let file = names::segment_file(&self.directory, segment.base, names::TIME_INDEX);
                let (file, length) = (FileRef::new(file), TIME_ENTRY_BYTES as u32);
                return Next::Read { file, position, length };
            };
            match search.timestamp {
                Some(wanted) if largest >= wanted => return self.search_times(search, place),
                None if largest > largest_of_all.map_or(NO_TIMESTAMP, |(_, largest)| largest) => {
                    largest_of_all = Some((place, largest));
                }
                _ => {}
            }
        }
        let Some((place, largest)) = largest_of_all else { return Next::Time(None) };
        search.timestamp = Some(largest);
        self.search_times(search, place)
    }

    /// Asks the time index of the segment at `place` where to begin.
    fn search_times(&self, search: &mut TimeSearch, place: usize) -> Next {
        let segment = &self.segments[place];
        search.segment = segment.base;
        let wanted = search.timestamp.unwrap_or(NO_TIMESTAMP);
        if place + 1 == self.segments.len() {
            let times = self.writer.index.times();
            let above = times.partition_point(|entry| entry.timestamp <= wanted);
            let floor = above.checked_sub(1).map_or(0, |index| times[index].relative_offset);
            return self.search_from(search, place, floor);
        }
        if segment.time_entries == 0 {
            return self.search_from(search, place, 0);
        }
        let file = names::segment_file(&self.directory, segment.base, names::TIME_INDEX);
        let times = IndexSearch {
            file: FileRef::new(file),
            entry_bytes: TIME_ENTRY_BYTES,
            key: wanted,
            low: 0,
            high: segment.time_entries,
        };
        let next = times.reads();
        search.stage = TimeStage::Times(times);
        next
    }

    /// Goes to the batch of a relative offset in the segment at `place`, or before it.
    fn search_from(&self, search: &mut TimeSearch, place: usize, relative_offset: u32) -> Next {
        let segment = &self.segments[place];
        let start = (self.log_start_offset.0 - segment.base.0).clamp(0, i64::from(i32::MAX));
        let key = start.max(i64::from(relative_offset));
        let is_active = place + 1 == self.segments.len();
        if is_active || segment.offset_entries == 0 {
            let entries = if is_active { self.writer.index.offsets() } else { &[] };
            let above = entries.partition_point(|it| i64::from(it.relative_offset) <= key);
            let position = above.checked_sub(1).map_or(0, |index| entries[index].position);
            return self.walk_from(search, place, position);
        }
        let offsets = self.offset_search(place, key);
        let next = offsets.reads();
        search.stage = TimeStage::Offsets(offsets);
        next
    }

    fn walk_from(&self, search: &mut TimeSearch, place: usize, position: u32) -> Next {
        let scanner = scan_from(position, self.written_bytes_of(place));
        if scanner.next_read().is_none() {
            return Next::Time(None);
        }
        let next = self.walk_reads(search.segment, &scanner);
        search.stage = TimeStage::Walk(scanner);
        next
    }

    /// The last boundary behind `start` up to `up_to` that the index knows, in the segment at
    /// `place`; what stands there is read ahead, for the reader that comes back.
    pub(super) fn cut_by_index(
        &mut self,
        place: usize,
        start: u32,
        up_to: u32,
        out: &mut LogEffects,
    ) -> Option<u32> {
        let segment = &self.segments[place];
        let window = self.window.as_ref().filter(|window| window.segment == segment.base)?;
        let above = window.entries.partition_point(|entry| entry.position <= up_to);
        let entry = window.entries.get(above.checked_sub(1)?)?;
        let position = Some(entry.position).filter(|position| *position > start)?;
        let last_offset = segment.base.plus(i64::from(entry.relative_offset));
        let boundary = Boundary { segment: segment.base, position, last_offset };
        let (file, length) = (segment.log.clone(), records::HEADER_BYTES as u32);
        if let Ok(token) = self.flows.insert(Some(Flow::Boundary(boundary))) {
            let (token, position) = (LogStep(Step::Flow(token)), u64::from(position));
            out.push(FileEffect::Read { token, file, position, length });
        }
        Some(position)
    }

    fn place_in(&self, base: Offset) -> Option<usize> {
        let place = self.place_of(base);
        self.segments.get(place).filter(|segment| segment.base == base).map(|_| place)
    }
}

impl BatchSearch {
    fn advance(
        &mut self,
        budget: &mut usize,
        is_wanted: impl Fn(Offset, i64) -> bool,
    ) -> Result<Searched, BatchError> {
        let records = match &mut self.records {
            Some(records) => records,
            empty => empty.insert(RecordSearch::new(&self.batch)?),
        };
        let before = records.plain_bytes();
        let searched = records.advance(*budget, is_wanted);
        let used = usize::try_from(records.plain_bytes() - before).unwrap_or(usize::MAX);
        *budget = budget.saturating_sub(used);
        searched
    }
}

impl Boundary {
    fn located(&self, bytes: &Bytes) -> Option<Located> {
        let header = BatchHeader::read(bytes.first_chunk()?);
        let is_there = header.magic == records::MAGIC && header.last_offset() == self.last_offset;
        let bytes = u32::try_from(header.batch_bytes().filter(|_| is_there)?).ok()?;
        let found = FoundBatch { segment: self.segment, position: self.position, bytes };
        Some(Located { offset: header.base_offset, place: Ok(found) })
    }
}

impl IndexWindow {
    fn of(segment: Offset, bytes: &[u8]) -> Self {
        let entries = bytes.as_chunks::<OFFSET_ENTRY_BYTES>().0.iter();
        let entries = entries.map(|entry| OffsetEntry::read(*entry));
        Self { segment, entries: entries.take_while(|entry| entry.position > 0).collect() }
    }

    /// The last entry up to `relative_offset`, if a later one shows that it is the last.
    fn floor(&self, relative_offset: u32) -> Option<OffsetEntry> {
        let above = self.entries.partition_point(|it| it.relative_offset <= relative_offset);
        self.entries.get(above)?;
        Some(self.entries[above.checked_sub(1)?])
    }
}

enum Walked {
    /// A batch at this position, with this many bytes.
    Found(u32, u32),
    On,
    Over,
    Corrupt,
}

fn scan_from(position: u32, end: u32) -> Box<Scanner> {
    Box::new(Scanner::headers(u64::from(position), u64::from(end)))
}

fn walk(scanner: &mut Scanner, bytes: &[u8], is_wanted: impl Fn(&BatchHeader) -> bool) -> Walked {
    if bytes.is_empty() {
        return Walked::Corrupt;
    }
    let mut found = None;
    let walked = scanner.feed(bytes, |position, header, _| {
        if !is_wanted(header) {
            return ControlFlow::Continue(());
        }
        let bytes = header.batch_bytes().unwrap_or(0);
        found = u32::try_from(position).ok().zip(u32::try_from(bytes).ok());
        ControlFlow::Break(())
    });
    match (walked, found) {
        (Err(_), _) => Walked::Corrupt,
        (Ok(_), Some((position, bytes))) => Walked::Found(position, bytes),
        (Ok(_), None) if scanner.next_read().is_some() => Walked::On,
        (Ok(_), None) if scanner.finish().is_ok() => Walked::Over,
        (Ok(_), None) => Walked::Corrupt,
    }
}

fn position_in(entry: Option<&[u8]>) -> u32 {
    let bytes = entry.and_then(|bytes| <[u8; OFFSET_ENTRY_BYTES]>::try_from(bytes).ok());
    bytes.map_or(0, |bytes| OffsetEntry::read(bytes).position)
}

fn relative_key(key: i64) -> u32 {
    u32::try_from(key).unwrap_or(u32::MAX)
}
