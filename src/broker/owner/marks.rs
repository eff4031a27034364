//! The mark in the folder of a copy that is about to get the name of its log.
//!
//! The disk of the copy can fail just as the copy gets that name: then the log gets it back, and
//! when the disk returns, two folders have it. The mark tells which of them is the copy; it is
//! durable before either folder gets another name, and goes when the copy is in its log's place.
//! Two logs without it are none of a move, and no start uses either.

use std::path::PathBuf;

use api::{FileEffect, FileRef, IoErrorKind, IoResult};
use base::Token;
use commitlog::COPY_MARK;

use super::moves::{Mark, RETRY_AFTER, Stage};
use super::{Alarm, Desk, Owner};
use crate::files::FileStep;

impl Owner {
    /// Begins to put the mark into the folder of a partition's copy.
    pub(super) fn mark_copy(&mut self, desk: &mut Desk<'_>, source: Token) {
        let Some(copy) = self.moves.all.get(&source).and_then(|moved| moved.copy) else { return };
        let path = self.copy_folder(copy).join(COPY_MARK);
        self.moves.set_stage(source, Stage::Marking(Mark::Making));
        let effect = FileEffect::Truncate { token: source, file: FileRef::new(path), length: 0 };
        desk.files.file(desk.effects, effect, |source| FileStep::CopyMark(source, copy));
    }

    /// The file of the mark is made, or its name is durable.
    pub(crate) fn copy_is_marked(
        &mut self,
        desk: &mut Desk<'_>,
        source: Token,
        copy: Token,
        result: IoResult<()>,
    ) {
        // The move may have been given up meanwhile, and its copy renamed; and the partition may
        // move elsewhere by now, where another copy is to be marked.
        let current = self.moves.all.get(&source).filter(|moved| moved.copy == Some(copy));
        let Some(Stage::Marking(mark)) = current.map(|moved| moved.stage) else { return };
        match (result, mark) {
            (Err(cause), _) if cause.kind == IoErrorKind::NoSpace => {
                let partition = &self.partition(source).name;
                tracing::warn!(%partition, %cause, "the partition moves in a moment");
                self.moves.set_stage(source, Stage::Marking(Mark::Waiting));
                self.moves.delay(source, desk.now.mono + RETRY_AFTER);
                self.alarms.set(desk.now.mono + RETRY_AFTER, Alarm::Move(source));
            }
            (Err(cause), _) => self.disk_failed(desk, copy, cause.to_string()),
            (Ok(()), Mark::Making) => {
                let directory = self.copy_folder(copy);
                self.moves.set_stage(source, Stage::Marking(Mark::Syncing));
                let effect = FileEffect::SyncDirectory { token: source, directory };
                desk.files.file(desk.effects, effect, |source| FileStep::CopyMark(source, copy));
            }
            (Ok(()), Mark::Syncing | Mark::Waiting) => {
                self.moves.set_stage(source, Stage::Settling);
                self.moves.wake(source);
            }
        }
    }

    /// The copy is in the place of its log. If the mark outlives this process, it goes when the log
    /// is opened.
    pub(super) fn unmark_copy(&mut self, desk: &mut Desk<'_>, token: Token) {
        let path = self.partition(token).log.path().join(COPY_MARK);
        let effect = FileEffect::Remove { token: (), path, files: Vec::new() };
        desk.files.file(desk.effects, effect, |()| FileStep::Unmarked);
    }

    fn copy_folder(&mut self, copy: Token) -> PathBuf {
        self.partition(copy).log.path().to_path_buf()
    }
}
