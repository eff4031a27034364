//! Replaces a small file so that a crash leaves the old one or the new one, whole.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use api::{FileEffect, FileRef, IoError, IoResult};
use bytes::Bytes;

use crate::names;

/// Truncate, write and sync of the file beside it, which are asked for together.
const PREPARING_EFFECTS: u8 = 3;

/// The stages of one replacement: the new content is written beside the file and synced, then
/// renamed over it, then the folder is synced.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    beside: FileRef,
    stage: Stage,
    error: Option<IoError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Preparing { outstanding: u8 },
    Renaming,
    SyncingFolder,
}

impl AtomicFile {
    /// Begins to replace the file at `path`. Every effect carries `token`.
    pub fn replace<T: Copy>(
        path: PathBuf,
        content: impl Into<Bytes>,
        token: T,
        out: &mut Vec<FileEffect<T>>,
    ) -> Self {
        let mut name = OsString::from(&path);
        name.push(names::TEMPORARY);
        let beside = FileRef::new(name);
        // What a crash left there could be longer than what is written now.
        out.push(FileEffect::Truncate { token, file: beside.clone(), length: 0 });
        out.push(FileEffect::Write {
            token,
            file: beside.clone(),
            position: 0,
            parts: vec![content.into()],
        });
        out.push(FileEffect::Sync { token, file: beside.clone() });
        Self {
            path,
            beside,
            stage: Stage::Preparing { outstanding: PREPARING_EFFECTS },
            error: None,
        }
    }

    /// Takes the outcome of one of its effects: whether the new file is in place and durable.
    ///
    /// # Errors
    /// That of the effect; the replacement is over then, and the old file may still be there.
    pub fn on_done<T: Copy>(
        &mut self,
        result: IoResult<()>,
        token: T,
        out: &mut Vec<FileEffect<T>>,
    ) -> IoResult<bool> {
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
        match self.stage {
            // An error is told when nothing of the replacement is under way any more.
            Stage::Preparing { outstanding } if outstanding > 1 => {
                self.stage = Stage::Preparing { outstanding: outstanding - 1 };
                return Ok(false);
            }
            _ => {}
        }
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        match self.stage {
            Stage::Preparing { .. } => {
                self.stage = Stage::Renaming;
                out.push(FileEffect::Rename {
                    token,
                    from: self.beside.path().to_path_buf(),
                    to: self.path.clone(),
                    files: vec![self.beside.clone()],
                });
            }
            Stage::Renaming => {
                self.stage = Stage::SyncingFolder;
                let directory = self.path.parent().map(Path::to_path_buf).unwrap_or_default();
                out.push(FileEffect::SyncDirectory { token, directory });
            }
            Stage::SyncingFolder => return Ok(true),
        }
        Ok(false)
    }
}
