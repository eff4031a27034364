//! Completes a swap of the cleaner that was interrupted, or takes it back (`LogLoader`).
//!
//! | there is | what is done |
//! |---|---|
//! | `.cleaned` only | it goes with the leftovers: it was not finished |
//! | `.cleaned`, `.swap` of its base offset or above | the `.swap` go, then the `.cleaned` |
//! | `.log.swap` | the old files that it covers go, then `.swap` is taken from the names |
//! | another `.swap` alone | it gets its name: the log has its own already |
//!
//! A cleaned segment covers the files from its base offset up to its last offset. The snapshot of
//! the producers at its base offset stays: the cleaned segment begins there as well. While there is
//! a `.cleaned`, nothing of what the segment replaces was touched.
//! Every step is made durable before the next, so that a further crash leaves one of these states.

use std::collections::VecDeque;
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use api::{DirectoryEntry, FileEffect, FileOutcome, FileRef, IoResult};
use base::Offset;

use super::{INDEX_BYTES_MAX, Out, STEP, done_or_missing, found_bytes};
use crate::index::SegmentIndex;
use crate::names;
use crate::scan::Scanner;

/// A swap that is being completed.
#[derive(Debug)]
pub(super) struct Swap {
    folder: PathBuf,
    names: Vec<String>,
    /// Whole cleaned segments whose ends are not known yet: base offset and length.
    waiting: VecDeque<(Offset, u64)>,
    /// Files that have to go.
    gone: Vec<PathBuf>,
    /// Files that get their names.
    renamed: Vec<(PathBuf, PathBuf)>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Deciding,
    ReadingIndex(Offset, u64),
    Walking { base: Offset, end: Offset, scanner: Box<Scanner> },
    Removing { outstanding: usize },
    SyncingRemoved,
    Renaming { outstanding: usize },
    SyncingRenamed,
}

/// How far it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SwapProgress {
    Going,
    Done,
    Unreadable(String),
}

impl fmt::Display for Swap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kept, dropped) = (self.renamed.len(), self.gone.len());
        write!(f, "{kept} of its files get their names, {dropped} are removed")
    }
}

impl Swap {
    /// The swap that the files of a folder tell of, if they do.
    pub(super) fn found(folder: &Path, entries: &[DirectoryEntry]) -> Option<Self> {
        let files = entries.iter().filter(|entry| !entry.is_directory);
        let parsed = files.filter_map(|entry| {
            let (base, ending) = names::parse_segment_file(&entry.name)?;
            Some((base, ending, entry))
        });
        let unfinished = parsed.clone().filter(|(_, ending, _)| ending.ends_with(names::CLEANED));
        let unfinished = unfinished.map(|(base, ..)| base).min().unwrap_or(Offset(i64::MAX));
        let mut swap = Self {
            folder: folder.to_path_buf(),
            names: entries.iter().map(|entry| entry.name.clone()).collect(),
            waiting: VecDeque::new(),
            gone: Vec::new(),
            renamed: Vec::new(),
            stage: Stage::Deciding,
        };
        for (base, ending, entry) in parsed {
            let Some(plain) = ending.strip_suffix(names::SWAP) else { continue };
            let path = folder.join(&entry.name);
            if base >= unfinished {
                swap.gone.push(path);
                continue;
            }
            swap.renamed.push((path, names::segment_file(folder, base, plain)));
            if plain == names::LOG {
                swap.waiting.push_back((base, entry.length));
            }
        }
        let is_any = !swap.gone.is_empty() || !swap.renamed.is_empty();
        is_any.then_some(swap)
    }

    /// Asks for what comes first.
    pub(super) fn begin(&mut self, out: &mut Out) {
        self.next_segment(out);
    }

    /// Takes an outcome, and asks for what comes next.
    pub(super) fn on_file(
        &mut self,
        outcome: FileOutcome,
        out: &mut Out,
    ) -> IoResult<SwapProgress> {
        match std::mem::replace(&mut self.stage, Stage::Deciding) {
            Stage::ReadingIndex(base, length) => {
                let index = SegmentIndex::load(&found_bytes(outcome)?, &[]);
                let begin = index.offsets().last().map_or(0, |entry| u64::from(entry.position));
                let scanner = Box::new(Scanner::headers(begin.min(length), length));
                return Ok(self.walk_on(base, base, scanner, out));
            }
            Stage::Walking { base, mut end, mut scanner } => {
                let bytes = outcome.read()?;
                let walked = scanner.feed(&bytes, |_, header, _| {
                    end = header.next_offset();
                    ControlFlow::Continue(())
                });
                if bytes.is_empty() || walked.is_err() {
                    return Ok(SwapProgress::Unreadable(self.damaged(base)));
                }
                return Ok(self.walk_on(base, end, scanner, out));
            }
            Stage::Removing { outstanding } => {
                done_or_missing(outcome)?;
                if outstanding > 1 {
                    self.stage = Stage::Removing { outstanding: outstanding - 1 };
                } else {
                    self.sync(out);
                    self.stage = Stage::SyncingRemoved;
                }
            }
            Stage::SyncingRemoved => {
                outcome.done()?;
                return Ok(self.rename(out));
            }
            Stage::Renaming { outstanding } => {
                outcome.done()?;
                if outstanding > 1 {
                    self.stage = Stage::Renaming { outstanding: outstanding - 1 };
                } else {
                    self.sync(out);
                    self.stage = Stage::SyncingRenamed;
                }
            }
            Stage::SyncingRenamed => {
                outcome.done()?;
                return Ok(SwapProgress::Done);
            }
            Stage::Deciding => panic!("an outcome came while nothing was under way"),
        }
        Ok(SwapProgress::Going)
    }

    /// Looks for the end of the next cleaned segment; then the files go.
    fn next_segment(&mut self, out: &mut Out) -> SwapProgress {
        if let Some((base, length)) = self.waiting.pop_front() {
            let path = self.swap_file(base, names::INDEX);
            let (file, length_max) = (FileRef::new(path), INDEX_BYTES_MAX);
            out.push(FileEffect::Read { token: STEP, file, position: 0, length: length_max });
            self.stage = Stage::ReadingIndex(base, length);
            return SwapProgress::Going;
        }
        if self.gone.is_empty() {
            return self.rename(out);
        }
        for path in &self.gone {
            out.push(FileEffect::Remove { token: STEP, path: path.clone(), files: Vec::new() });
        }
        self.stage = Stage::Removing { outstanding: self.gone.len() };
        SwapProgress::Going
    }

    fn walk_on(
        &mut self,
        base: Offset,
        end: Offset,
        scanner: Box<Scanner>,
        out: &mut Out,
    ) -> SwapProgress {
        if let Some((position, length)) = scanner.next_read() {
            let file = FileRef::new(self.swap_file(base, names::LOG));
            out.push(FileEffect::Read { token: STEP, file, position, length });
            self.stage = Stage::Walking { base, end, scanner };
            return SwapProgress::Going;
        }
        if scanner.finish().is_err() {
            return SwapProgress::Unreadable(self.damaged(base));
        }
        for name in &self.names {
            let Some((found, ending)) = names::parse_segment_file(name) else { continue };
            let is_first = found == base;
            let is_old = is_first || (found > base && found < end);
            let is_known = match ending {
                names::LOG | names::INDEX | names::TIME_INDEX | names::TRANSACTION_INDEX => true,
                names::SNAPSHOT => !is_first,
                _ => false,
            };
            if is_old && is_known {
                self.gone.push(self.folder.join(name));
            }
        }
        self.next_segment(out)
    }

    fn rename(&mut self, out: &mut Out) -> SwapProgress {
        for (from, to) in &self.renamed {
            let (from, to) = (from.clone(), to.clone());
            out.push(FileEffect::Rename { token: STEP, from, to, files: Vec::new() });
        }
        if self.renamed.is_empty() {
            return SwapProgress::Done;
        }
        self.stage = Stage::Renaming { outstanding: self.renamed.len() };
        SwapProgress::Going
    }

    fn sync(&self, out: &mut Out) {
        let directory = self.folder.clone();
        out.push(FileEffect::SyncDirectory { token: STEP, directory });
    }

    fn swap_file(&self, base: Offset, ending: &str) -> PathBuf {
        let mut path = names::segment_file(&self.folder, base, ending).into_os_string();
        path.push(names::SWAP);
        path.into()
    }

    fn damaged(&self, base: Offset) -> String {
        let path = self.swap_file(base, names::LOG);
        format!("{} was left by a compaction, and is damaged", path.display())
    }
}
