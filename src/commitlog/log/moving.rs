//! A log that is moved to another directory: the current one is read batch by batch, and its copy
//! takes its name.
//!
//! Who owns the two sees to the order: everything is copied and durable before the current one
//! gives its name away, and that is durable before the copy takes it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use api::{FileEffect, FileRef, IoErrorKind, IoResult};
use base::{Now, Offset};

use super::ending::Removing;
use super::{Log, LogEffects, LogState, RETRY_AFTER, ReadError};
use crate::step::{LogEvent, LogStep, Step};

/// Where the next bytes are that are to be copied of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPlace {
    segment: Offset,
    position: u32,
}

impl CopyPlace {
    /// So many more bytes are copied.
    pub fn advance(&mut self, bytes: u32) {
        self.position += bytes;
    }
}

/// What is to be copied next.
#[derive(Debug)]
pub enum CopyRead {
    /// These bytes, which begin with a batch.
    Next {
        /// Of which file.
        file: FileRef,
        /// The first of them.
        position: u64,
        /// How many.
        length: u32,
    },
    /// Everything that is written is copied.
    End,
    /// The segment was deleted meanwhile.
    Gone,
}

/// The folder gets another name.
#[derive(Debug)]
pub(super) struct Renaming {
    to: PathBuf,
    /// The folder has it, and that is being made durable.
    is_renamed: bool,
    /// It is durable. The log stays still until its owner says otherwise.
    is_done: bool,
    /// There was no space for it: it is tried again.
    waits: bool,
}

/// What is read of the log that is copied.
impl Log {
    /// The first bytes of the log, and where a copy of it begins.
    pub fn copy_begins(&self) -> (CopyPlace, Offset) {
        let segment = self.segments.first().expect("an open log has a segment").base;
        (CopyPlace { segment, position: 0 }, segment)
    }

    /// Where a copy goes on that ends at `offset`; none while it is looked up
    /// ([`LogEvent::Located`] says that it may be known).
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn copy_place(
        &mut self,
        offset: Offset,
        out: &mut LogEffects,
    ) -> Result<Option<CopyPlace>, ReadError> {
        let (log_start_offset, end_offset) = (self.log_start_offset, self.written_end_offset());
        let first = self.segments.first().expect("an open log has a segment").base;
        if offset < first || offset > end_offset {
            return Err(ReadError::OutOfRange { log_start_offset, end_offset });
        }
        let (segment, written_bytes) = self.writer.written_to;
        if offset == end_offset {
            return Ok(Some(CopyPlace { segment, position: written_bytes }));
        }
        if self.is_empty_from(self.segment_of(offset)) {
            let place = self.segment_of(offset);
            let position = self.written_bytes_of(place);
            return Ok(Some(CopyPlace { segment: self.segments[place].base, position }));
        }
        if let Some((place, position)) = self.start_of(offset)? {
            return Ok(Some(CopyPlace { segment: self.segments[place].base, position }));
        }
        self.begin_locate(offset, out);
        Ok(None)
    }

    /// How many bytes there are left to be copied, with those that are not written yet; none where
    /// the place is gone.
    pub fn copy_left(&self, place: &CopyPlace) -> Option<u64> {
        let at = self.place_of(place.segment);
        self.segments.get(at).filter(|it| it.base == place.segment)?;
        let bytes: u64 = self.segments[at..].iter().map(|it| u64::from(it.bytes)).sum();
        Some(bytes.saturating_sub(u64::from(place.position)))
    }

    /// What to copy next, at most `bytes_max` of it. Moves `place` on to the next segment where one
    /// ends.
    pub fn copy_next(&self, place: &mut CopyPlace, bytes_max: u32) -> CopyRead {
        loop {
            let at = self.place_of(place.segment);
            let Some(segment) = self.segments.get(at).filter(|it| it.base == place.segment) else {
                return CopyRead::Gone;
            };
            let length = self.written_bytes_of(at).saturating_sub(place.position).min(bytes_max);
            if length > 0 {
                let (file, position) = (segment.log.clone(), u64::from(place.position));
                return CopyRead::Next { file, position, length };
            }
            match self.segments.get(at + 1) {
                Some(next) if next.base <= self.writer.written_to.0 => {
                    *place = CopyPlace { segment: next.base, position: 0 };
                }
                _ => return CopyRead::End,
            }
        }
    }
}

/// What becomes of the copy.
impl Log {
    /// As much of the log that this one copies was compacted, none where nothing ever was.
    pub fn follow_cleaning(&mut self, first_dirty: Option<Offset>) {
        self.set_first_dirty(first_dirty);
    }

    /// Lets a copy end where its log ends, whose last batches compaction has removed.
    ///
    /// # Panics
    /// If something is on its way to the file.
    pub fn skip_to(&mut self, now: Now, end: Offset, out: &mut LogEffects) {
        if end <= self.writer.end {
            return;
        }
        assert!(self.writer.is_idle(), "a copy ends when all of it is written");
        self.roll(now, end);
        self.writer.end = end;
        self.writer.written_end = end;
        self.writer.written_to = (end, 0);
        let directory = self.directory.clone();
        let token = LogStep(Step::Prepare);
        self.writer.preparing += self.active_mut().prepare(&directory, token, out);
        self.seal_next(out);
    }

    /// The copy takes the place of its log: it knows what that knows and no batch says.
    ///
    /// # Panics
    /// If it does not hold the same.
    pub fn succeed(&mut self, now: Now, old: &mut Log, out: &mut LogEffects) {
        assert_eq!(self.end_offset(), old.end_offset(), "{}: all is copied", self.partition);
        assert_eq!(self.log_start_offset, old.log_start_offset, "{}", self.partition);
        self.epochs_file.stale |= self.epochs != old.epochs;
        self.epochs = old.epochs.clone();
        let snapshot_end = self.producers.snapshot_end();
        self.producers = std::mem::take(&mut old.producers);
        self.producers.set_snapshot_end(snapshot_end);
        self.set_first_dirty(old.first_dirty_offset());
        self.live_on();
        self.write_epochs(now, out);
    }
}

/// Names.
impl Log {
    /// Whether nothing of the log is under way, or waits to be: its folder can get another name.
    pub fn is_settled(&self) -> bool {
        let writes = !self.writer.is_idle() || self.writer.has_effects();
        self.is_calm() && !writes && self.flows.is_empty()
    }

    /// Whether nothing is under way, or waits to be, but appends and searches: those end soon, once
    /// no more are asked for, while a sync can take long, and a full disk longer.
    pub fn is_calm(&self) -> bool {
        let epochs = self.epochs_file.writing.is_some() || self.epochs_file.stale;
        let drops = self.dropping.is_some() || self.removals > 0;
        let names = drops || self.renaming.is_some();
        let waits = self.retry_at.is_some() || self.cutting.is_some();
        let busy = epochs || names || waits || self.has_cleaning_effects();
        self.state == LogState::Open && self.writer.sealing.is_empty() && !busy
    }

    /// The name of the folder.
    pub fn folder(&self) -> &OsStr {
        self.directory.file_name().expect("a log has a folder")
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Gives the folder another name, in the same directory. [`LogEvent::Moved`] says that it has
    /// it, durably. The log is still from now on, until it is renamed again or [`Log::live_on`].
    ///
    /// # Panics
    /// If something is under way ([`Log::is_settled`]).
    pub fn rename(&mut self, folder: &str, out: &mut LogEffects) {
        self.live_on();
        assert!(self.is_settled(), "{}: its files are used", self.partition);
        let to = self.directory.with_file_name(folder);
        self.renaming = Some(Renaming { to, is_renamed: false, is_done: false, waits: false });
        self.rename_on(out);
    }

    /// Gives up a name that there is no space for; whether the log has its old one for good.
    pub fn stop_renaming(&mut self) -> bool {
        self.renaming.take_if(|renaming| renaming.waits).is_some()
    }

    /// Removes no deleted files until it was renamed, or [`Log::live_on`]: it stays settled while
    /// something else is awaited.
    pub fn keep_still(&mut self) {
        self.keeps_still = true;
    }

    /// A log that has another name does what logs do.
    pub fn live_on(&mut self) {
        self.keeps_still = false;
        self.renaming.take_if(|renaming| renaming.is_done);
    }

    /// Lets a log go whose folder has the name of a deleted one: it is removed after a while
    /// ([`LogEvent::Removed`]).
    pub fn remove_renamed(&mut self, now: Now) {
        self.live_on();
        self.tail.clear();
        self.forget_places();
        let due = now.mono + self.config.file_delete_delay;
        self.removing = Some(Removing::renamed(self.directory.clone(), due));
        self.state = LogState::Removing;
    }

    /// Tries again what there was no space for.
    pub(super) fn rename_again(&mut self, out: &mut LogEffects) {
        if self.renaming.as_mut().is_some_and(|renaming| std::mem::take(&mut renaming.waits)) {
            self.rename_on(out);
        }
    }

    fn rename_on(&mut self, out: &mut LogEffects) {
        let Some(renaming) = &self.renaming else { return };
        let token = LogStep(Step::Rename);
        if renaming.is_renamed {
            let directory = renaming.to.parent().expect("a log is in a directory").to_path_buf();
            out.push(FileEffect::SyncDirectory { token, directory });
            return;
        }
        let aside = self.set_aside.iter().map(|(_, file)| file.clone());
        let files = self.segments.iter().map(|it| it.log.clone()).chain(aside).collect();
        let (from, to) = (self.directory.clone(), renaming.to.clone());
        out.push(FileEffect::Rename { token, from, to, files });
    }

    pub(super) fn on_renamed(
        &mut self,
        now: Now,
        result: IoResult<()>,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        let Some(renaming) = &mut self.renaming else { return };
        match result {
            Err(cause) if cause.kind == IoErrorKind::NoSpace && !renaming.is_renamed => {
                tracing::warn!(partition = %self.partition, %cause, "renamed in a moment");
                renaming.waits = true;
                self.retry_at = Some(now.mono + RETRY_AFTER);
            }
            Err(cause) => self.fail(cause, events),
            Ok(()) if renaming.is_renamed => {
                renaming.is_done = true;
                if self.removing.is_some() {
                    self.live_on();
                }
                events.push(LogEvent::Moved);
            }
            Ok(()) => {
                renaming.is_renamed = true;
                self.directory = renaming.to.clone();
                self.rename_on(out);
            }
        }
    }
}
