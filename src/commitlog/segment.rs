//! One segment of a log.

use std::path::Path;

use api::{DirectoryEntry, FileEffect, FileRef};
use base::Offset;
use bytes::Bytes;

use crate::aborted::{self, AbortedTransaction};
use crate::index::{OFFSET_ENTRY_BYTES, SegmentIndex, TIME_ENTRY_BYTES};
use crate::marks::Marks;
use crate::names;

/// A segment as the log keeps it in memory, whether it is written or not.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) base: Offset,
    pub(crate) log: FileRef,
    /// The length of the records, with those that are not written yet.
    pub(crate) bytes: u32,
    pub(crate) marks: Marks,
    /// The entries in the files of the indexes, when the segment is not written any more.
    pub(crate) offset_entries: u32,
    pub(crate) time_entries: u32,
    /// The largest timestamp, when it was looked up; −1 for none.
    pub(crate) largest_timestamp: Option<i64>,
    /// The largest timestamp of the first batch, when it is known.
    pub(crate) first_timestamp: Option<i64>,
    /// When the file was last changed, in milliseconds since 1970.
    pub(crate) modified_ms: i64,
    /// Whether its files were made.
    pub(crate) is_prepared: bool,
    /// Whether it has a `.txnindex`.
    pub(crate) has_aborted: bool,
}

impl Segment {
    /// A segment without records, in `folder`.
    pub(crate) fn empty(folder: &Path, base: Offset, now_ms: i64) -> Self {
        Self {
            base,
            log: FileRef::new(names::segment_file(folder, base, names::LOG)),
            bytes: 0,
            marks: Marks::default(),
            offset_entries: 0,
            time_entries: 0,
            largest_timestamp: None,
            first_timestamp: None,
            modified_ms: now_ms,
            is_prepared: false,
            has_aborted: false,
        }
    }

    /// Asks for the (empty) files of a new segment; what an earlier one of that name left goes.
    pub(crate) fn prepare<T: Copy>(
        &mut self,
        folder: &Path,
        token: T,
        out: &mut Vec<FileEffect<T>>,
    ) -> u32 {
        self.is_prepared = true;
        let index = FileRef::new(names::segment_file(folder, self.base, names::INDEX));
        let times = FileRef::new(names::segment_file(folder, self.base, names::TIME_INDEX));
        for file in [self.log.clone(), index, times] {
            out.push(FileEffect::Truncate { token, file, length: 0 });
        }
        3
    }

    /// Asks for everything that ends a segment: its indexes are written, space beyond its records
    /// is given back, all of it is made durable. Returns the number of outcomes.
    pub(crate) fn seal<T: Copy>(
        &mut self,
        folder: &Path,
        index: &SegmentIndex,
        token: T,
        out: &mut Vec<FileEffect<T>>,
    ) -> u32 {
        let before = out.len();
        self.is_prepared = true;
        self.offset_entries = u32::try_from(index.offsets().len()).expect("indexes fit 2 GB");
        self.time_entries = u32::try_from(index.times().len()).expect("indexes fit 2 GB");
        self.largest_timestamp = Some(index.largest().map_or(-1, |entry| entry.timestamp));
        let length = u64::from(self.bytes);
        out.push(FileEffect::Truncate { token, file: self.log.clone(), length });
        out.push(FileEffect::Sync { token, file: self.log.clone() });
        for (ending, content) in
            [(names::INDEX, index.offset_bytes()), (names::TIME_INDEX, index.time_bytes())]
        {
            let file = FileRef::new(names::segment_file(folder, self.base, ending));
            write_whole(file, content, token, out);
        }
        out.push(FileEffect::SyncDirectory { token, directory: folder.to_path_buf() });
        u32::try_from(out.len() - before).expect("a handful of effects")
    }

    /// Asks for a `.txnindex` with these aborted transactions: none where it has none and there is
    /// no file either, as most segments. Returns the number of outcomes.
    pub(crate) fn write_aborted<T: Copy>(
        &mut self,
        folder: &Path,
        aborted: &[AbortedTransaction],
        token: T,
        out: &mut Vec<FileEffect<T>>,
    ) -> u32 {
        self.has_aborted |= !aborted.is_empty();
        if !self.has_aborted {
            return 0;
        }
        let before = out.len();
        let path = names::segment_file(folder, self.base, names::TRANSACTION_INDEX);
        write_whole(FileRef::new(path), aborted::format(aborted), token, out);
        u32::try_from(out.len() - before).expect("a handful of effects")
    }

    /// Asks to give the segment's files the suffix of deleted ones, so that they are not taken for
    /// the log's any more. One outcome for each file that is returned, under a token that is made
    /// of its ending.
    pub(crate) fn set_aside<T: Copy>(
        &self,
        folder: &Path,
        token: impl Fn(&'static str) -> T,
        out: &mut Vec<FileEffect<T>>,
    ) -> Vec<FileRef> {
        let files = self.files(folder, true).into_iter();
        let aside = files.map(|(ending, file)| {
            set_file_aside(&file, token(ending), out);
            file
        });
        aside.collect()
    }

    /// Its files, with their endings; the snapshot of the producers only if it is wanted.
    pub(crate) fn files(&self, folder: &Path, with_snapshot: bool) -> Vec<(&'static str, FileRef)> {
        let mut files = vec![(names::LOG, self.log.clone())];
        let snapshot = with_snapshot.then_some(names::SNAPSHOT);
        let indexes = [names::INDEX, names::TIME_INDEX, names::TRANSACTION_INDEX];
        for ending in indexes.into_iter().chain(snapshot) {
            files.push((ending, FileRef::new(names::segment_file(folder, self.base, ending))));
        }
        files
    }

    /// The last mark that a slice from `position` can end at, when it may have `bytes_max`.
    pub(crate) fn cut_up_to(&self, position: u32, bytes_max: u32) -> Option<u32> {
        let mark = self.marks.last_up_to(position.saturating_add(bytes_max))?;
        (mark.position > position).then_some(mark.position)
    }
}

/// Asks to give a file the suffix of those that go, unless it has it.
pub(crate) fn set_file_aside<T>(file: &FileRef, token: T, out: &mut Vec<FileEffect<T>>) {
    let from = file.path().to_path_buf();
    let mut to = from.clone().into_os_string();
    if to.as_encoded_bytes().ends_with(names::DELETED.as_bytes()) {
        return;
    }
    to.push(names::DELETED);
    out.push(FileEffect::Rename { token, from, to: to.into(), files: vec![file.clone()] });
}

/// What a listing says of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentFiles {
    pub(crate) base: Offset,
    pub(crate) log_bytes: u64,
    pub(crate) modified_ms: i64,
    pub(crate) index_bytes: Option<u64>,
    pub(crate) time_index_bytes: u64,
    /// Of the `.txnindex`, while it is not read.
    pub(crate) aborted_bytes: Option<u64>,
    pub(crate) has_aborted: bool,
}

impl SegmentFiles {
    /// What the `.log` of the segment at `base` says.
    pub(crate) fn new(base: Offset, log: &DirectoryEntry) -> Self {
        let (log_bytes, modified_ms) = (log.length, log.modified_ms);
        Self { base, log_bytes, modified_ms, ..Self::default() }
    }

    /// The segment, with records of `bytes`.
    pub(crate) fn segment(&self, folder: &Path, bytes: u32) -> Segment {
        let entries = |bytes: u64, entry_bytes: usize| {
            u32::try_from(bytes / entry_bytes as u64).unwrap_or(u32::MAX)
        };
        Segment {
            bytes,
            offset_entries: entries(self.index_bytes.unwrap_or(0), OFFSET_ENTRY_BYTES),
            time_entries: entries(self.time_index_bytes, TIME_ENTRY_BYTES),
            is_prepared: true,
            has_aborted: self.has_aborted,
            ..Segment::empty(folder, self.base, self.modified_ms)
        }
    }
}

/// Asks for a durable file with just this content; every effect has an outcome.
pub(crate) fn write_whole<T: Copy>(
    file: FileRef,
    content: Bytes,
    token: T,
    out: &mut Vec<FileEffect<T>>,
) {
    let length = content.len() as u64;
    if length > 0 {
        let parts = vec![content];
        out.push(FileEffect::Write { token, file: file.clone(), position: 0, parts });
    }
    out.push(FileEffect::Truncate { token, file: file.clone(), length });
    out.push(FileEffect::Sync { token, file });
}
