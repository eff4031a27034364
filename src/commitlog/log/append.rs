//! Batches come in, are gathered for the turn, written, and made durable.

use std::collections::VecDeque;

use api::{FileEffect, IoErrorKind, IoResult};
use base::{Duration, Instant, Now, Offset};
use bytes::{BufMut, Bytes, BytesMut};
use records::{BatchHeader, HEADER_BYTES};

use super::producers::SnapshotFile;
use super::write_back::WriteBack;
use super::{Log, LogEffects, LogState};
use crate::index::{self, IndexState, SegmentIndex};
use crate::marks::Mark;
use crate::opening::Opened;
use crate::segment::Segment;
use crate::step::{LogEvent, LogStep, Step};
use crate::tail::TAIL_BATCH_BYTES_MAX;

/// What a log takes before it was written, in bytes; then [`AppendError::Busy`].
pub const UNWRITTEN_BYTES_MAX: usize = 64 << 20;
/// What one write takes, in bytes, unless a single batch is larger.
const WRITE_BYTES_MAX: u32 = 8 << 20;
/// What one write takes, in parts: a system call takes no more.
const WRITE_PARTS_MAX: usize = 1024;

/// Space that is taken ahead of the end, at most.
const ALLOCATE_BYTES_MAX: u64 = 64 << 20;
/// A log that would take less than this ahead takes nothing: it is quiet.
const ALLOCATE_BYTES_MIN: u64 = 1 << 20;
/// How much of its recent rate a log takes ahead, in seconds.
const ALLOCATE_AHEAD_S: u64 = 1;
/// Over how long the rate is measured.
const RATE_WINDOW: Duration = Duration::from_millis(250);

/// A batch as it is to stand in the file.
#[derive(Clone, Debug)]
pub struct AppendBatch {
    /// Its header, with the offset, epoch, timestamps and CRC that it keeps
    /// ([`records::Batch::stamp`]).
    pub header: [u8; HEADER_BYTES],
    /// The bytes behind the header.
    pub records: Bytes,
}

/// Where appended batches stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendInfo {
    /// The offset of the first record.
    pub base_offset: Offset,
    /// The offset of the last record.
    pub last_offset: Offset,
}

/// Why batches were not taken; none of them was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The log is not open.
    #[error("the log is not open")]
    NotOpen,
    /// A failed write is being taken back, or too much waits to be written: in a later turn.
    #[error("the log waits for its disk")]
    Busy,
    /// A batch is larger than a segment can be (RECORD_LIST_TOO_LARGE).
    #[error("a batch of {bytes} bytes is larger than a segment of {segment_bytes}")]
    TooLarge {
        /// The size of the batch.
        bytes: usize,
        /// The size of a segment.
        segment_bytes: u32,
    },
}

/// The end of the log, on its way to the disk.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// The next offset to be given out.
    pub(super) end: Offset,
    pub(super) written_end: Offset,
    pub(super) flushed_end: Offset,
    /// Of the segment that is written.
    pub(super) index: SegmentIndex,
    pub(super) first_timestamp: Option<i64>,
    pub(super) created_ms: i64,
    /// Up to where what is written reaches: the base offset of the segment, and its length.
    pub(super) written_to: (Offset, u32),
    pub(super) waiting: VecDeque<Run>,
    pub(super) writing: Option<Run>,
    unwritten_bytes: usize,
    /// A failed write is being taken back.
    undoing: bool,
    /// The disk was too full even for that: it is tried again.
    undo_failed: bool,
    /// Outcomes that are awaited of the making of a segment's files.
    pub(super) preparing: u32,
    pub(super) sync: SyncState,
    pub(super) write_back: WriteBack,
    /// Bytes of the segments before the one that is written, since the log was opened.
    pub(super) rolled_bytes: u64,
    /// So many of the bytes that the log took since it was opened, the oldest, are on the disk.
    pub(super) clean_bytes: u64,
    /// Segments that were rolled and are not sealed yet, oldest first.
    pub(super) sealing: VecDeque<Sealing>,
    space: Space,
}

/// What goes into one write.
#[derive(Debug)]
pub(super) struct Run {
    /// The base offset of the segment.
    segment: Offset,
    position: u32,
    bytes: u32,
    parts: Vec<Bytes>,
    first: Offset,
    next: Offset,
    /// How things stood before it.
    index_before: IndexState,
    first_timestamp_before: Option<i64>,
}

/// What was asked for and done about durability of the segment that is written.
#[derive(Debug, Default)]
pub(super) struct SyncState {
    /// Someone waits until everything below it is durable.
    target: Offset,
    /// Everything of this segment below it is durable.
    done: Offset,
    /// What the sync that is under way will have made durable, and of which segment.
    pub(super) under_way: Option<(Offset, Offset)>,
    /// How many bytes will be clean then.
    cleans: u64,
    outstanding: u32,
    /// Whether the names of the segment's files are durable.
    folder_done: bool,
}

impl SyncState {
    /// Whether somebody waits until something from `offset` on is durable.
    pub(super) fn is_wanted_from(&self, offset: Offset) -> bool {
        self.target > offset
    }
}

/// A segment that was rolled.
#[derive(Debug)]
pub(super) struct Sealing {
    pub(super) base: Offset,
    index: SegmentIndex,
    created_ms: i64,
    /// What was known of producers behind it; none once that is written.
    pub(super) snapshot: Option<SnapshotFile>,
    /// Outcomes that are awaited; none before it has begun.
    outstanding: Option<u32>,
    /// The disk was full: it has to be done again.
    failed: bool,
}

/// Disk space ahead of the end, and the rate that it follows.
#[derive(Debug, Default)]
struct Space {
    allocated_to: u64,
    refused: bool,
    window_start: Instant,
    window_bytes: u64,
    bytes_per_s: u64,
}

impl Writer {
    pub(super) fn adopted(now: Now, opened: &Opened, active: &Segment) -> Self {
        let done = opened.flushed_end_offset.max(active.base);
        Self {
            end: opened.end_offset,
            written_end: opened.end_offset,
            flushed_end: opened.flushed_end_offset,
            index: opened.index.clone(),
            first_timestamp: opened.first_timestamp,
            created_ms: now.wall_ms,
            written_to: (active.base, active.bytes),
            sync: SyncState { done, ..SyncState::default() },
            write_back: WriteBack::behind(active.base, active.bytes),
            clean_bytes: u64::from(active.bytes),
            ..Self::default()
        }
    }

    /// Forgets what is under way: the log has failed, and outcomes mean nothing any more.
    pub(super) fn give_up(&mut self) {
        let (end, written_end, flushed_end) = (self.end, self.written_end, self.flushed_end);
        *self = Self { end, written_end, flushed_end, ..Self::default() };
    }

    /// Whether nothing is on its way to the file.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && !self.is_under_way()
    }

    /// Whether a write, or what belongs to one, is under way.
    fn is_under_way(&self) -> bool {
        self.writing.is_some() || self.undoing || self.preparing > 0
    }

    /// Whether any effect on the files of the newest segments is under way.
    pub(super) fn has_effects(&self) -> bool {
        let seals = self.sealing.front().is_some_and(|sealing| {
            let snapshot = sealing.snapshot.as_ref();
            sealing.outstanding.is_some() || snapshot.is_some_and(SnapshotFile::is_under_way)
        });
        let goes_to_disk = self.sync.under_way.is_some() || self.write_back.is_under_way();
        self.is_under_way() || goes_to_disk || seals
    }

    fn oldest_run_of(&self, segment: Offset) -> bool {
        self.writing.iter().chain(&self.waiting).any(|run| run.segment == segment)
    }
}

impl Log {
    /// Takes batches, which [`Log::flush_turn`] will write. The first one begins at or behind
    /// [`Log::end_offset`], each other one behind the one before it.
    ///
    /// # Errors
    /// Nothing was taken; see [`AppendError`].
    ///
    /// # Panics
    /// If the offsets do not rise, or a header does not fit its records: the caller stamped them.
    pub fn append(&mut self, now: Now, batches: &[AppendBatch]) -> Result<AppendInfo, AppendError> {
        self.append_up_to(now, batches, self.config.segment_bytes)
    }

    /// Takes batches of the log that this one copies: what stands there is taken, however small a
    /// segment may be by now.
    ///
    /// # Errors
    /// Nothing was taken; see [`AppendError`].
    ///
    /// # Panics
    /// As [`Log::append`].
    pub fn append_copied(
        &mut self,
        now: Now,
        batches: &[AppendBatch],
    ) -> Result<AppendInfo, AppendError> {
        self.append_up_to(now, batches, u32::MAX)
    }

    fn append_up_to(
        &mut self,
        now: Now,
        batches: &[AppendBatch],
        segment_bytes: u32,
    ) -> Result<AppendInfo, AppendError> {
        if self.state != LogState::Open {
            return Err(AppendError::NotOpen);
        }
        let full = self.writer.unwritten_bytes >= UNWRITTEN_BYTES_MAX;
        let is_cut = self.cutting.is_some();
        if self.writer.undoing || is_cut || self.renaming.is_some() || full {
            return Err(AppendError::Busy);
        }
        for batch in batches {
            let bytes = HEADER_BYTES + batch.records.len();
            let claimed = BatchHeader::read(&batch.header).batch_bytes();
            assert_eq!(claimed, Some(bytes), "a header says the length of its batch");
            if bytes > segment_bytes as usize {
                return Err(AppendError::TooLarge { bytes, segment_bytes });
            }
        }
        let first = batches.first().map(|batch| BatchHeader::read(&batch.header).base_offset);
        let base_offset = first.unwrap_or(self.writer.end);
        for batch in batches {
            self.append_one(now, batch);
        }
        Ok(AppendInfo { base_offset, last_offset: Offset(self.writer.end.0 - 1) })
    }

    /// Whether [`Log::flush_turn`] has something to do at the end of this turn.
    pub fn needs_flush(&self) -> bool {
        let is_free = self.writer.writing.is_none() && !self.writer.undoing;
        is_free && !self.writer.waiting.is_empty() && self.state != LogState::Removing
    }

    /// How much was appended and is not written yet, in bytes.
    pub fn unwritten_bytes(&self) -> usize {
        self.writer.unwritten_bytes
    }

    /// Makes one write of what was gathered, unless one is under way: call it at the end of every
    /// turn in which something was appended, or [`Log::on_file`] left [`Log::needs_flush`] true.
    pub fn flush_turn(&mut self, now: Now, out: &mut LogEffects) {
        self.write_epochs(now, out);
        self.seal_next(out);
        if !self.needs_flush() {
            return;
        }
        let Some(mut run) = self.writer.waiting.pop_front() else { return };
        let place = self.place_of(run.segment);
        let segment = &mut self.segments[place];
        let file = segment.log.clone();
        if !segment.is_prepared {
            let token = LogStep(Step::Prepare);
            self.writer.preparing += segment.prepare(&self.directory, token, out);
        }
        if let Some((position, length)) = self.space_ahead(now, &run) {
            let token = LogStep(Step::Allocate);
            out.push(FileEffect::Allocate { token, file: file.clone(), position, length });
        }
        let parts = std::mem::take(&mut run.parts);
        let position = u64::from(run.position);
        out.push(FileEffect::Write { token: LogStep(Step::Write), file, position, parts });
        self.writer.writing = Some(run);
    }

    /// Asks for durability of everything that was appended, written or not. Returns the offset
    /// that [`LogEvent::Synced`] will reach.
    pub fn request_sync(&mut self, out: &mut LogEffects) -> Offset {
        if self.state != LogState::Open {
            return self.writer.end;
        }
        self.writer.sync.target = self.writer.end;
        self.seal_next(out);
        self.sync_on(out);
        self.writer.end
    }

    /// Gives the memory and the disk space back that only a busy log needs.
    pub fn release_memory(&mut self, out: &mut LogEffects) {
        self.tail.clear();
        self.forget_places();
        self.producers.release_memory();
        if self.state == LogState::Open
            && self.writer.is_idle()
            && std::mem::take(&mut self.writer.space.allocated_to) > 0
        {
            let (file, length) = (self.active().log.clone(), u64::from(self.active().bytes));
            out.push(FileEffect::Truncate { token: LogStep(Step::Allocate), file, length });
        }
    }

    fn append_one(&mut self, now: Now, batch: &AppendBatch) {
        let AppendBatch { header: header_bytes, records } = batch;
        let header = BatchHeader::read(header_bytes);
        let before = self.writer.end;
        assert!(
            header.base_offset >= before && header.last_offset() >= header.base_offset,
            "{} appends {} to {} behind {before}",
            self.partition,
            header.base_offset,
            header.last_offset()
        );
        if header.leader_epoch > self.epochs.latest().unwrap_or(base::LeaderEpoch::NONE) {
            self.note_epoch(header.leader_epoch, header.base_offset);
        }
        let bytes = u32::try_from(HEADER_BYTES + records.len()).expect("a segment is below 2 GB");
        if self.must_roll(now, &header, bytes) {
            self.roll(now, header.base_offset);
        }
        if let Some(aborted) = self.producers.append(&header, records) {
            self.aborted.insert(aborted);
        }
        let position = self.active().bytes;
        self.begin_run(position, bytes, header.base_offset);
        let run = self.writer.waiting.back_mut().expect("a run was begun");
        if bytes as usize <= TAIL_BATCH_BYTES_MAX {
            let mut whole = BytesMut::with_capacity(bytes as usize);
            whole.put_slice(header_bytes);
            whole.put_slice(records);
            let whole = whole.freeze();
            self.tail.push(before.max(header.base_offset), header.next_offset(), whole.clone());
            run.parts.push(whole);
        } else {
            self.tail.clear();
            run.parts.push(Bytes::copy_from_slice(header_bytes));
            run.parts.push(records.clone());
        }
        run.bytes += bytes;
        run.next = header.next_offset();
        let interval = self.config.index_interval_bytes;
        let segment = self.segments.last_mut().expect("an open log has a segment");
        self.writer.index.add(segment.base, &header, position, interval);
        if position == 0 {
            self.writer.first_timestamp = Some(header.max_timestamp);
        } else {
            let relative_offset = index::relative(segment.base, before);
            segment.marks.push(Mark { relative_offset, position });
        }
        segment.bytes += bytes;
        self.writer.end = header.next_offset();
        self.writer.unwritten_bytes += bytes as usize;
    }

    /// Whether the batch belongs into a new segment (`LogSegment.shouldRoll`).
    fn must_roll(&self, now: Now, header: &BatchHeader, bytes: u32) -> bool {
        let segment = self.active();
        if !index::fits(segment.base, header.last_offset()) {
            return true;
        }
        if segment.bytes == 0 {
            return false;
        }
        let waited_ms = match self.writer.first_timestamp {
            Some(first) if first >= 0 => header.max_timestamp.saturating_sub(first),
            _ => now.wall_ms.saturating_sub(self.writer.created_ms),
        };
        u64::from(segment.bytes) + u64::from(bytes) > u64::from(self.config.segment_bytes)
            || waited_ms > self.config.segment_ms.saturating_sub(self.config.segment_jitter_ms)
            || self.writer.index.is_full(self.config.segment_index_bytes)
    }

    pub(super) fn roll(&mut self, now: Now, base: Offset) {
        let segment = self.active_mut();
        assert!(base > segment.base, "a segment rolls to a later offset");
        segment.marks.settle();
        segment.modified_ms = now.wall_ms;
        let (old, bytes) = (segment.base, u64::from(segment.bytes));
        let first_timestamp = self.writer.first_timestamp;
        self.active_mut().first_timestamp = first_timestamp;
        self.writer.rolled_bytes += bytes;
        let mut index = std::mem::take(&mut self.writer.index);
        index.add_largest_time();
        self.writer.sealing.push_back(Sealing {
            base: old,
            index,
            created_ms: self.writer.created_ms,
            snapshot: self.producers.snapshot(base).map(SnapshotFile::new),
            outstanding: None,
            failed: false,
        });
        self.segments.push(Segment::empty(&self.directory, base, now.wall_ms));
        self.writer.created_ms = now.wall_ms;
        self.writer.first_timestamp = None;
        self.writer.space.allocated_to = 0;
        // The disk may have room again by now.
        self.writer.space.refused = false;
        self.writer.sync.done = base;
        self.writer.sync.folder_done = false;
        tracing::debug!(partition = %self.partition, %base, "rolled a new segment");
    }

    /// Sees to it that the last waiting run can take a batch of `bytes` at `position`.
    fn begin_run(&mut self, position: u32, bytes: u32, first: Offset) {
        let segment = self.active().base;
        let goes_on = self.writer.waiting.back().is_some_and(|run| {
            run.segment == segment
                && run.bytes.saturating_add(bytes) <= WRITE_BYTES_MAX
                && run.parts.len() + 2 <= WRITE_PARTS_MAX
        });
        if !goes_on {
            self.writer.waiting.push_back(Run {
                segment,
                position,
                bytes: 0,
                parts: Vec::new(),
                first,
                next: first,
                index_before: self.writer.index.state(),
                first_timestamp_before: self.writer.first_timestamp,
            });
        }
    }

    /// Which range of disk space to take before the run is written, if any.
    fn space_ahead(&mut self, now: Now, run: &Run) -> Option<(u64, u64)> {
        let space = &mut self.writer.space;
        space.window_bytes += u64::from(run.bytes);
        let elapsed = now.mono.since(space.window_start);
        if elapsed >= RATE_WINDOW {
            let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
            space.bytes_per_s = space.window_bytes.saturating_mul(1000) / elapsed_ms;
            space.window_start = now.mono;
            space.window_bytes = 0;
        }
        let (begin, end) = (u64::from(run.position), u64::from(run.position + run.bytes));
        if space.refused || end <= space.allocated_to {
            return None;
        }
        let room = u64::from(self.config.segment_bytes).saturating_sub(end);
        let ahead = (space.bytes_per_s * ALLOCATE_AHEAD_S).min(ALLOCATE_BYTES_MAX).min(room);
        if ahead < ALLOCATE_BYTES_MIN {
            return None;
        }
        space.allocated_to = end + ahead;
        Some((begin, end + ahead - begin))
    }

    pub(super) fn on_allocated(&mut self, taken: bool) {
        // Space ahead is a favour: a write that has none of it will tell if there is none at all.
        self.writer.space.refused |= !taken;
    }

    pub(super) fn on_prepared(
        &mut self,
        result: IoResult<()>,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        self.writer.preparing = self.writer.preparing.saturating_sub(1);
        match result {
            Err(cause) if cause.kind != IoErrorKind::NoSpace => self.fail(cause, events),
            // Empty indexes are no loss, and a write that has no space tells itself.
            _ => self.seal_next(out),
        }
    }

    pub(super) fn on_written(
        &mut self,
        result: IoResult<()>,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        let Some(run) = self.writer.writing.take() else { return };
        match result {
            Ok(()) => {
                self.writer.written_end = run.next;
                self.producers.written(run.next);
                self.writer.written_to = (run.segment, run.position + run.bytes);
                self.writer.unwritten_bytes -= run.bytes as usize;
                events.push(LogEvent::Written { end_offset: run.next });
                self.seal_next(out);
                self.sync_on(out);
            }
            Err(cause) if cause.kind == IoErrorKind::NoSpace => {
                let from = run.first;
                self.take_back(run, out);
                events.push(LogEvent::Refused { from, cause });
            }
            Err(cause) => self.fail(cause, events),
        }
    }

    /// Forgets the run whose write failed, and all behind it.
    fn take_back(&mut self, run: Run, out: &mut LogEffects) {
        self.writer.waiting.clear();
        self.writer.unwritten_bytes = 0;
        let taken = self.taken_bytes_at(run.segment, run.position);
        self.writer.rolled_bytes = taken - u64::from(run.position);
        self.writer.clean_bytes = self.writer.clean_bytes.min(taken);
        self.segments.retain(|segment| segment.base <= run.segment);
        while let Some(sealing) = self.writer.sealing.pop_back_if(|it| it.base >= run.segment) {
            self.writer.index = sealing.index;
            self.writer.created_ms = sealing.created_ms;
            if let Some(snapshot) = sealing.snapshot {
                self.producers.set_snapshot_end(snapshot.before());
            }
        }
        self.writer.index.restore(run.index_before);
        self.writer.first_timestamp = run.first_timestamp_before;
        self.writer.end = self.writer.written_end;
        self.producers.take_back();
        self.aborted.truncate_from_end(self.writer.end);
        self.forget_places();
        self.writer.sync.target = self.writer.sync.target.min(self.writer.end);
        self.writer.sync.done = self.writer.flushed_end.max(run.segment);
        self.writer.space = Space { refused: true, ..Space::default() };
        self.tail.truncate_to(self.writer.end);
        self.writer.undoing = true;
        let segment = self.active_mut();
        segment.bytes = run.position;
        segment.marks.truncate_to(run.position.saturating_sub(1));
        self.undo(out);
    }

    /// Cuts off what a write that did not fit has left behind the end.
    fn undo(&mut self, out: &mut LogEffects) {
        let segment = self.active();
        let (file, length) = (segment.log.clone(), u64::from(segment.bytes));
        out.push(FileEffect::Truncate { token: LogStep(Step::Undo), file, length });
    }

    pub(super) fn undo_again(&mut self, out: &mut LogEffects) {
        if std::mem::take(&mut self.writer.undo_failed) {
            self.undo(out);
        }
    }

    pub(super) fn on_undone(&mut self, now: Now, result: IoResult<()>, events: &mut Vec<LogEvent>) {
        match result {
            // What is deleted goes with all that it has.
            Err(cause)
                if self.state == LogState::Removing && cause.kind == IoErrorKind::NoSpace =>
            {
                self.writer.undoing = false;
            }
            Err(cause) => self.writer.undo_failed = self.retries(now, cause, events),
            Ok(()) => {
                self.writer.undoing = false;
                self.writer.space.refused = false;
            }
        }
    }

    /// Nothing that was refused by a full disk is tried again: the log is deleted.
    pub(super) fn retry_nothing(&mut self) {
        self.retry_at = None;
        if std::mem::take(&mut self.writer.undo_failed) {
            self.writer.undoing = false;
        }
    }

    /// Syncs the segment that is written, if someone waits for it and none is under way.
    pub(super) fn sync_on(&mut self, out: &mut LogEffects) {
        if self.state == LogState::Removing {
            return;
        }
        let active = self.active();
        let (base, file) = (active.base, active.log.clone());
        let covers = self.writer.written_end;
        let sync = &self.writer.sync;
        if sync.under_way.is_some() || sync.target <= sync.done || covers <= sync.done {
            return;
        }
        let (segment, position) = self.writer.written_to;
        let cleans = self.taken_bytes_at(segment, position);
        let sync = &mut self.writer.sync;
        sync.under_way = Some((base, covers));
        sync.cleans = cleans;
        sync.outstanding = 1;
        out.push(FileEffect::Sync { token: LogStep(Step::Sync), file });
        if !sync.folder_done {
            sync.outstanding = 2;
            let directory = self.directory.clone();
            out.push(FileEffect::SyncDirectory { token: LogStep(Step::Sync), directory });
        }
    }

    pub(super) fn on_synced(
        &mut self,
        result: IoResult<()>,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        if let Err(cause) = result {
            // What a failed sync left in the page cache is not known: nothing is acknowledged
            // after it.
            return self.fail(cause, events);
        }
        let sync = &mut self.writer.sync;
        sync.outstanding = sync.outstanding.saturating_sub(1);
        if sync.outstanding > 0 {
            return;
        }
        let Some((segment, covers)) = sync.under_way.take() else { return };
        let cleans = sync.cleans;
        self.is_clean_to(cleans);
        if segment == self.active().base {
            let sync = &mut self.writer.sync;
            sync.folder_done = true;
            sync.done = sync.done.max(covers.min(self.writer.end));
        }
        self.note_flushed(events);
        self.sync_on(out);
    }

    /// Ends the oldest segment that was rolled, once all of it is written.
    pub(super) fn seal_next(&mut self, out: &mut LogEffects) {
        if self.state == LogState::Removing {
            return;
        }
        let Some(sealing) = self.writer.sealing.front() else { return };
        let base = sealing.base;
        // The files are made empty by other references than those that fill them: one after the
        // other.
        let waits = self.retry_at.is_some() || self.writer.preparing > 0;
        if waits || sealing.outstanding.is_some() || self.writer.oldest_run_of(base) {
            return;
        }
        if !self.is_brought_to_disk(base, out) {
            return;
        }
        let place = self.place_of(base);
        let next = self.segments.get(place + 1).map_or(self.writer.end, |next| next.base);
        let sealing = self.writer.sealing.front_mut().expect("there is one");
        let Some(segment) = self.segments.get_mut(place).filter(|segment| segment.base == base)
        else {
            // It was deleted meanwhile.
            self.writer.sealing.pop_front();
            return self.seal_next(out);
        };
        if let Some(snapshot) = &mut sealing.snapshot {
            return snapshot.write(&self.directory, LogStep(Step::Snapshot(base)), out);
        }
        let token = LogStep(Step::Seal(base));
        sealing.failed = false;
        let aborted = self.aborted.between(base, next);
        let outstanding = segment.write_aborted(&self.directory, aborted, token, out);
        let sealed = segment.seal(&self.directory, &sealing.index, token, out);
        sealing.outstanding = Some(outstanding + sealed);
    }

    /// Puts the segment that is written at the end of those that are sealed: the log closes.
    pub(super) fn seal_active(&mut self, out: &mut LogEffects) {
        let mut index = self.writer.index.clone();
        index.add_largest_time();
        let base = self.active().base;
        self.writer.sealing.push_back(Sealing {
            base,
            index,
            created_ms: self.writer.created_ms,
            snapshot: self.producers.snapshot(self.writer.end).map(SnapshotFile::new),
            outstanding: None,
            failed: false,
        });
        self.seal_next(out);
    }

    pub(super) fn on_sealed(
        &mut self,
        now: Now,
        base: Offset,
        result: IoResult<()>,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        let deleted = self.segments.iter().all(|segment| segment.base != base);
        let refused = match result {
            Err(cause) if deleted && cause.kind == IoErrorKind::NotFound => false,
            Err(cause) => {
                if !self.retries(now, cause, events) {
                    return;
                }
                true
            }
            Ok(()) => false,
        };
        let Some(sealing) = self.writer.sealing.front_mut().filter(|it| it.base == base) else {
            return;
        };
        sealing.failed |= refused;
        let outstanding = sealing.outstanding.unwrap_or(0);
        if outstanding > 1 {
            sealing.outstanding = Some(outstanding - 1);
            return;
        }
        if std::mem::take(&mut sealing.failed) {
            sealing.outstanding = None;
            return;
        }
        self.writer.sealing.pop_front();
        let place = self.place_of(base);
        if let Some(sealed) = self.segments.get(place).filter(|segment| segment.base == base) {
            let bytes = sealed.bytes;
            self.is_clean_to(self.taken_bytes_at(base, bytes));
        }
        if base == self.active().base {
            self.writer.sync.done = self.writer.end;
        }
        self.note_flushed(events);
        // Whoever waits for more may have been forgotten with a write that was taken back.
        self.sync_on(out);
        self.seal_next(out);
        self.delete_below_start(now, out);
    }

    fn note_flushed(&mut self, events: &mut Vec<LogEvent>) {
        let reached = match self.writer.sealing.front() {
            Some(sealing) => sealing.base,
            None => self.writer.sync.done,
        };
        if reached > self.writer.flushed_end {
            self.writer.flushed_end = reached;
            events.push(LogEvent::Synced { end_offset: reached });
        }
    }

    /// How many bytes of the segment at `place` are written.
    pub(super) fn written_bytes_of(&self, place: usize) -> u32 {
        let segment = &self.segments[place];
        let (last, bytes) = self.writer.written_to;
        match segment.base.cmp(&last) {
            std::cmp::Ordering::Less => segment.bytes,
            std::cmp::Ordering::Equal => bytes,
            std::cmp::Ordering::Greater => 0,
        }
    }

    /// The index of the segment that begins at `base`, or would stand there.
    pub(super) fn place_of(&self, base: Offset) -> usize {
        self.segments.partition_point(|segment| segment.base < base)
    }
}
