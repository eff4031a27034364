//! The segment that takes the place of some others, while it is written.

use std::path::{Path, PathBuf};

use api::{FileEffect, FileRef};
use base::Offset;
use bytes::BytesMut;
use records::Batch;

use crate::aborted::{self, AbortedTransaction};
use crate::index::{self, SegmentIndex};
use crate::marks::Mark;
use crate::names;
use crate::segment::Segment;

/// The files of a cleaned segment, in the order in which they get their names. Few have the last.
const ENDINGS: [&str; 4] = [names::LOG, names::INDEX, names::TIME_INDEX, names::TRANSACTION_INDEX];

/// The longest segment that a start takes, in bytes.
const SEGMENT_BYTES_MAX: usize = i32::MAX as usize;

/// The cleaned segment. Its files bear a suffix until it is in its place.
#[derive(Debug)]
pub(crate) struct CleanedSegment {
    segment: Segment,
    index: SegmentIndex,
    first_timestamp: Option<i64>,
    /// The transactions whose abort markers it has, and a batch of which is there.
    aborted: Vec<AbortedTransaction>,
    /// The offset behind its last batch.
    end: Offset,
    /// Copied together: many small batches would be more parts than a system call takes.
    waiting: BytesMut,
    /// How much of it is in the file.
    written: u32,
}

impl CleanedSegment {
    /// One without records yet, which begins at `base`. The files it replaces were last changed at
    /// `modified_ms`, in milliseconds since 1970.
    pub(crate) fn new(folder: &Path, base: Offset, modified_ms: i64) -> Self {
        let mut segment = Segment::empty(folder, base, modified_ms);
        segment.log = FileRef::new(path(folder, base, names::LOG, names::CLEANED));
        segment.is_prepared = true;
        let (index, waiting) = (SegmentIndex::default(), BytesMut::new());
        let (first_timestamp, aborted) = (None, Vec::new());
        Self { segment, index, first_timestamp, aborted, end: base, waiting, written: 0 }
    }

    /// Asks for an empty file. One outcome.
    pub(crate) fn prepare<T: Copy>(&self, token: T, out: &mut Vec<FileEffect<T>>) {
        out.push(FileEffect::Truncate { token, file: self.segment.log.clone(), length: 0 });
    }

    /// Adds a batch behind the last one, unless the segment would be too long: whether it did.
    /// `interval` is `index.interval.bytes`.
    pub(crate) fn push(&mut self, batch: &Batch, interval: u32) -> bool {
        let header = batch.header();
        let (base, position) = (self.segment.base, self.segment.bytes);
        let bytes = position as usize + batch.size();
        if bytes > SEGMENT_BYTES_MAX {
            return false;
        }
        self.index.add(base, header, position, interval);
        if position == 0 {
            self.first_timestamp = Some(header.max_timestamp);
        } else {
            let relative_offset = index::relative(base, self.end);
            self.segment.marks.push(Mark { relative_offset, position });
        }
        self.end = header.next_offset();
        self.segment.bytes = u32::try_from(bytes).expect("a segment is below 2 GB");
        self.waiting.extend_from_slice(batch.bytes());
        true
    }

    /// Its `.txnindex` gets one more entry, whose marker is behind those before.
    pub(crate) fn push_aborted(&mut self, entry: AbortedTransaction) {
        self.aborted.push(entry);
    }

    /// Asks to write what waits, if anything does: how many bytes. One outcome.
    pub(crate) fn write<T: Copy>(&mut self, token: T, out: &mut Vec<FileEffect<T>>) -> Option<u32> {
        if self.waiting.is_empty() {
            return None;
        }
        let file = self.segment.log.clone();
        let parts = vec![std::mem::take(&mut self.waiting).freeze()];
        let position = u64::from(self.written);
        out.push(FileEffect::Write { token, file, position, parts });
        let bytes = self.segment.bytes - self.written;
        self.written = self.segment.bytes;
        Some(bytes)
    }

    /// Asks to bring what was written from `position` on to the disk, which promises nothing. One
    /// outcome.
    pub(crate) fn write_back<T: Copy>(
        &self,
        position: u32,
        token: T,
        out: &mut Vec<FileEffect<T>>,
    ) {
        let (file, length) = (self.segment.log.clone(), self.written - position);
        out.push(FileEffect::WriteBack { token, file, position: u64::from(position), length });
    }

    /// How long it is so far, in bytes.
    pub(crate) fn bytes(&self) -> u32 {
        self.segment.bytes
    }

    /// Asks for its indexes, and to make all of it durable. Returns the number of outcomes.
    pub(crate) fn seal<T: Copy>(
        &mut self,
        folder: &Path,
        token: T,
        out: &mut Vec<FileEffect<T>>,
    ) -> u32 {
        let before = out.len();
        self.index.add_largest_time();
        self.segment.marks.settle();
        self.segment.largest_timestamp =
            Some(self.index.largest().map_or(-1, |entry| entry.timestamp));
        self.segment.first_timestamp = self.first_timestamp;
        out.push(FileEffect::Sync { token, file: self.segment.log.clone() });
        for (ending, content) in [
            (names::INDEX, self.index.offset_bytes()),
            (names::TIME_INDEX, self.index.time_bytes()),
        ] {
            let file = FileRef::new(path(folder, self.segment.base, ending, names::CLEANED));
            crate::segment::write_whole(file, content, token, out);
        }
        if !self.aborted.is_empty() {
            self.segment.has_aborted = true;
            let path = path(folder, self.segment.base, names::TRANSACTION_INDEX, names::CLEANED);
            let content = aborted::format(&self.aborted);
            crate::segment::write_whole(FileRef::new(path), content, token, out);
        }
        u32::try_from(out.len() - before).expect("a handful of effects")
    }

    /// Asks to put one suffix of its files in the place of the other. Returns the number of
    /// outcomes.
    pub(crate) fn rename<T: Copy>(
        folder: &Path,
        segment: &Segment,
        (from, to): (&str, &str),
        token: T,
        out: &mut Vec<FileEffect<T>>,
    ) -> u32 {
        let before = out.len();
        for ending in endings(segment) {
            let files = if ending == names::LOG { vec![segment.log.clone()] } else { Vec::new() };
            let (from, to) =
                (path(folder, segment.base, ending, from), path(folder, segment.base, ending, to));
            out.push(FileEffect::Rename { token, from, to, files });
        }
        u32::try_from(out.len() - before).expect("a handful of effects")
    }

    /// Asks to remove its files, which bear the suffix of unfinished ones. Returns the number of
    /// outcomes.
    pub(crate) fn discard<T: Copy>(
        &self,
        folder: &Path,
        token: T,
        out: &mut Vec<FileEffect<T>>,
    ) -> u32 {
        let before = out.len();
        for ending in endings(&self.segment) {
            let path = path(folder, self.segment.base, ending, names::CLEANED);
            let files =
                if ending == names::LOG { vec![self.segment.log.clone()] } else { Vec::new() };
            out.push(FileEffect::Remove { token, path, files });
        }
        u32::try_from(out.len() - before).expect("a handful of effects")
    }

    /// The segment, and how many entries its indexes have. Until its files have their names, none
    /// are in the segment: its marks and its largest timestamp serve.
    pub(crate) fn into_segment(self) -> (Segment, u32, u32) {
        let count = |entries: usize| u32::try_from(entries).expect("indexes fit 2 GB");
        (self.segment, count(self.index.offsets().len()), count(self.index.times().len()))
    }

    /// The entries of its `.txnindex`.
    pub(crate) fn aborted(&self) -> &[AbortedTransaction] {
        &self.aborted
    }

    /// The segment as it is so far.
    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }
}

/// The files that it has.
fn endings(segment: &Segment) -> impl Iterator<Item = &'static str> {
    let has_aborted = segment.has_aborted;
    let is_there = move |ending: &&str| has_aborted || *ending != names::TRANSACTION_INDEX;
    ENDINGS.into_iter().filter(is_there)
}

fn path(folder: &Path, base: Offset, ending: &str, suffix: &str) -> PathBuf {
    let mut path = names::segment_file(folder, base, ending).into_os_string();
    path.push(suffix);
    path.into()
}
