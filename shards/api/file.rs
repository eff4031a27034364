//! Files and directories as a machine sees them.

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

/// What a driver keeps with a file while it is open.
type Handle = Arc<dyn Any + Send + Sync>;

/// A file by name: cheap to clone, opened by the driver at first use, closed by it when idle.
///
/// A machine makes one with [`FileRef::new`] and need not open or close anything; 100,000
/// partitions do not mean 300,000 open files. A clone can go to another core inside a
/// [`FileSlice`]: the open handle is shared then, so that a file that was renamed or removed
/// meanwhile can still be sent to its end.
///
/// Two references are equal when one is a clone of the other.
#[derive(Clone)]
pub struct FileRef(Arc<FileNode>);

#[allow(clippy::disallowed_types)] // The one thing of a node that cores share: a slot that is
// written when a file is opened, closed or renamed, so next to never, and only by drivers.
struct FileNode {
    slot: std::sync::Mutex<Slot>,
}

struct Slot {
    path: Arc<Path>,
    handle: Option<Handle>,
}

impl FileRef {
    /// Names the file at `path`. Nothing is opened or created yet.
    #[allow(clippy::disallowed_types)] // See `FileNode`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let slot = Slot { path: Arc::from(path.into()), handle: None };
        Self(Arc::new(FileNode { slot: std::sync::Mutex::new(slot) }))
    }

    /// Where it is now.
    pub fn path(&self) -> Arc<Path> {
        self.with(|slot| Arc::clone(&slot.path))
    }

    /// For drivers: the file has been moved to `path`.
    pub fn set_path(&self, path: impl Into<PathBuf>) {
        let path = Arc::from(path.into());
        self.with(|slot| slot.path = path);
    }

    /// For drivers: the open handle, if there is one.
    pub fn handle(&self) -> Option<Handle> {
        self.with(|slot| slot.handle.clone())
    }

    /// For drivers: the open handle; if there is none, the one that `open` makes of the path.
    ///
    /// # Errors
    /// What `open` returns.
    pub fn handle_or_open<E>(
        &self,
        open: impl FnOnce(&Path) -> Result<Handle, E>,
    ) -> Result<Handle, E> {
        self.with(|slot| match &slot.handle {
            Some(handle) => Ok(Arc::clone(handle)),
            None => {
                let handle = open(&slot.path)?;
                slot.handle = Some(Arc::clone(&handle));
                Ok(handle)
            }
        })
    }

    /// For drivers: forgets the handle, which is closed when the last use of it ends.
    pub fn close(&self) {
        let handle = self.with(|slot| slot.handle.take());
        drop(handle);
    }

    /// For drivers: a number that is equal for clones and for nothing else that is alive.
    pub fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// For drivers: a reference that does not keep the file open once every machine has let go.
    pub fn downgrade(&self) -> WeakFileRef {
        WeakFileRef(Arc::downgrade(&self.0))
    }

    fn with<R>(&self, f: impl FnOnce(&mut Slot) -> R) -> R {
        // A poisoned lock means that a driver panicked while it held it: the process is ending.
        f(&mut self.0.slot.lock().expect("no driver panics with a file's slot in hand"))
    }
}

/// What a driver remembers of a file that it opened, so that it can close the idlest: the open
/// handle of a file that no machine names any more goes with the last [`FileRef`].
#[derive(Clone)]
pub struct WeakFileRef(std::sync::Weak<FileNode>);

impl WeakFileRef {
    /// The file, if a machine or an effect still names it.
    pub fn upgrade(&self) -> Option<FileRef> {
        self.0.upgrade().map(FileRef)
    }
}

impl fmt::Debug for WeakFileRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "WeakFileRef({:?})", self.upgrade())
    }
}

impl PartialEq for FileRef {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for FileRef {}

impl fmt::Debug for FileRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "FileRef({})", self.path().display())
    }
}

/// A range of a file that is to be sent. It keeps the file from vanishing under the send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSlice {
    /// The file.
    pub file: FileRef,
    /// The first byte of the range.
    pub position: u64,
    /// How many bytes; the file has them all.
    pub length: u32,
}

/// What to do with a file or directory.
///
/// `T` is what names the effect when its outcome comes back. A machine's own parts use small types
/// of their own (a step of a flow), which the machine maps to the one [`base::Token`] of the
/// driver with [`FileEffect::map`]; so a part needs no slab, and cannot confuse its steps with
/// those of another. Every effect but `Advise` is answered by exactly one [`FileOutcome`].
/// Effects on one file take effect in the order they were asked for, with the exception that a
/// `Sync` covers at least what was written before it was asked for.
#[derive(Clone, Debug)]
pub enum FileEffect<T> {
    /// Reads up to `length` bytes; fewer only where the file ends. → [`FileOutcome::Read`]
    Read {
        /// Comes back.
        token: T,
        /// From which file; one that does not exist is `NotFound`.
        file: FileRef,
        /// The first byte.
        position: u64,
        /// At most this many bytes.
        length: u32,
    },
    /// Writes `parts` one behind the other at `position`, creating the file where there is none.
    /// On an error any part of it may have been written. → [`FileOutcome::Done`]
    Write {
        /// Comes back.
        token: T,
        /// To which file.
        file: FileRef,
        /// Where the first byte goes.
        position: u64,
        /// The bytes.
        parts: Vec<Bytes>,
    },
    /// Makes everything written to the file durable. → `Done`
    Sync {
        /// Comes back.
        token: T,
        /// Which file.
        file: FileRef,
    },
    /// Brings what was written to a range to the disk, with no claim that it can be found there
    /// after a loss of power: that takes a `Sync`. It keeps the share of memory small that waits
    /// for the disk, without the commit of a journal, behind which writes would queue. An error
    /// means what that of a `Sync` means. → `Done`
    WriteBack {
        /// Comes back.
        token: T,
        /// Which file.
        file: FileRef,
        /// The first byte.
        position: u64,
        /// How many bytes.
        length: u32,
    },
    /// Makes creations, renames and removals in a directory durable. → `Done`
    SyncDirectory {
        /// Comes back.
        token: T,
        /// Which directory.
        directory: PathBuf,
    },
    /// Takes disk space for a range without changing the file's length (`FALLOC_FL_KEEP_SIZE`).
    /// A file system that cannot do it answers success. → `Done`
    Allocate {
        /// Comes back.
        token: T,
        /// Which file; created where there is none.
        file: FileRef,
        /// The first byte.
        position: u64,
        /// How many bytes.
        length: u64,
    },
    /// Sets the length of a file and gives back the space beyond it. → `Done`
    Truncate {
        /// Comes back.
        token: T,
        /// Which file; created where there is none.
        file: FileRef,
        /// The new length.
        length: u64,
    },
    /// Renames a file or directory, replacing a file that is there. → `Done`
    Rename {
        /// Comes back.
        token: T,
        /// The old path.
        from: PathBuf,
        /// The new path.
        to: PathBuf,
        /// The references whose paths lie at or below `from`: they follow.
        files: Vec<FileRef>,
    },
    /// Removes a file, or a directory with all that is in it; one that is not there is a success.
    /// → `Done`
    Remove {
        /// Comes back.
        token: T,
        /// What.
        path: PathBuf,
        /// The references whose paths lie at or below `path`. They are closed first: whoever
        /// closes a removed file last waits until the file system has given its space back, which
        /// takes a tenth of a second for a gigabyte.
        files: Vec<FileRef>,
    },
    /// Makes a directory and those above it; one that is there is a success. → `Done`
    MakeDirectory {
        /// Comes back.
        token: T,
        /// Which.
        path: PathBuf,
    },
    /// Lists a directory, in order of name. → [`FileOutcome::Listed`]
    List {
        /// Comes back.
        token: T,
        /// Which.
        directory: PathBuf,
    },
    /// Asks for the size of the file system. → [`FileOutcome::Space`]
    Space {
        /// Comes back.
        token: T,
        /// A path on it.
        path: PathBuf,
    },
    /// Tells the kernel what a range will be used for. Nothing comes back.
    Advise {
        /// Which file.
        file: FileRef,
        /// The first byte.
        position: u64,
        /// How many bytes; 0 for all from there on.
        length: u64,
        /// What for.
        advice: Advice,
    },
}

impl<T> FileEffect<T> {
    /// The same effect under another name. `name` is not called for `Advise`, which has none.
    pub fn map<U>(self, name: impl FnOnce(T) -> U) -> FileEffect<U> {
        match self {
            Self::Read { token, file, position, length } => {
                FileEffect::Read { token: name(token), file, position, length }
            }
            Self::Write { token, file, position, parts } => {
                FileEffect::Write { token: name(token), file, position, parts }
            }
            Self::Sync { token, file } => FileEffect::Sync { token: name(token), file },
            Self::WriteBack { token, file, position, length } => {
                FileEffect::WriteBack { token: name(token), file, position, length }
            }
            Self::SyncDirectory { token, directory } => {
                FileEffect::SyncDirectory { token: name(token), directory }
            }
            Self::Allocate { token, file, position, length } => {
                FileEffect::Allocate { token: name(token), file, position, length }
            }
            Self::Truncate { token, file, length } => {
                FileEffect::Truncate { token: name(token), file, length }
            }
            Self::Rename { token, from, to, files } => {
                FileEffect::Rename { token: name(token), from, to, files }
            }
            Self::Remove { token, path, files } => {
                FileEffect::Remove { token: name(token), path, files }
            }
            Self::MakeDirectory { token, path } => {
                FileEffect::MakeDirectory { token: name(token), path }
            }
            Self::List { token, directory } => FileEffect::List { token: name(token), directory },
            Self::Space { token, path } => FileEffect::Space { token: name(token), path },
            Self::Advise { file, position, length, advice } => {
                FileEffect::Advise { file, position, length, advice }
            }
        }
    }
}

/// What came of a [`FileEffect`].
#[derive(Debug)]
pub enum FileOutcome {
    /// An effect that has nothing to return is done.
    Done(IoResult<()>),
    /// The bytes of a `Read`.
    Read(IoResult<Bytes>),
    /// The entries of a `List`.
    Listed(IoResult<Vec<DirectoryEntry>>),
    /// The answer to `Space`.
    Space(IoResult<Space>),
}

impl FileOutcome {
    /// The outcome of an effect that returns nothing.
    ///
    /// # Panics
    /// If it belongs to an effect that returns something: the machine mixed up its tokens.
    pub fn done(self) -> IoResult<()> {
        match self {
            Self::Done(result) => result,
            other => panic!("expected a plain outcome, got {other:?}"),
        }
    }

    /// The outcome of a `Read`.
    ///
    /// # Panics
    /// If it belongs to another effect.
    pub fn read(self) -> IoResult<Bytes> {
        match self {
            Self::Read(result) => result,
            other => panic!("expected the outcome of a read, got {other:?}"),
        }
    }

    /// The outcome of a `Space`.
    ///
    /// # Panics
    /// If it belongs to another effect.
    pub fn space(self) -> IoResult<Space> {
        match self {
            Self::Space(result) => result,
            other => panic!("expected the size of a file system, got {other:?}"),
        }
    }

    /// The outcome of a `List`.
    ///
    /// # Panics
    /// If it belongs to another effect.
    pub fn listed(self) -> IoResult<Vec<DirectoryEntry>> {
        match self {
            Self::Listed(result) => result,
            other => panic!("expected the outcome of a list, got {other:?}"),
        }
    }
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name, without the directory's.
    pub name: String,
    /// Whether it is a directory itself.
    pub is_directory: bool,
    /// Its length in bytes, 0 for a directory.
    pub length: u64,
    /// When it was last changed, in milliseconds since 1970.
    pub modified_ms: i64,
}

/// The size of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes that an unprivileged process can still write.
    pub usable_bytes: u64,
}

/// What a range of a file will be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It will be read soon.
    WillNeed,
    /// It will not be read soon: its pages can go.
    DontNeed,
}

/// The result of something that the environment can refuse.
pub type IoResult<T> = Result<T, IoError>;

/// Why the environment refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {action} {subject}: {cause}")]
pub struct IoError {
    /// What a machine can tell apart.
    pub kind: IoErrorKind,
    /// What was tried, as a verb phrase ("write to").
    pub action: &'static str,
    /// With what: a path or an address.
    pub subject: String,
    /// In the words of the operating system.
    pub cause: String,
}

/// The causes that a machine treats in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoErrorKind {
    /// There is no such file or directory.
    NotFound,
    /// The file system is full, or the quota of the user.
    NoSpace,
    /// The process may not.
    Permission,
    /// The address is taken.
    AddressInUse,
    /// Nobody listens there.
    Refused,
    /// The peer reset the connection, timed out or is not to be reached.
    Connection,
    /// The process has as many open files as it may.
    TooManyFiles,
    /// Everything else; for a file, the directory can no longer be trusted.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_handle_and_follow_a_rename() {
        let file = FileRef::new("a/0.log");
        let clone = file.clone();
        let opened = file.handle_or_open(|_| Ok::<Handle, ()>(Arc::new(7_u32))).expect("opens");
        let again = clone.handle_or_open(|_| Err("opened twice")).expect("is open already");
        assert!(Arc::ptr_eq(&opened, &again));
        clone.set_path("a/0.log.deleted");
        assert_eq!(file.path().to_str(), Some("a/0.log.deleted"));
        file.close();
        assert!(clone.handle().is_none());
        assert_ne!(file, FileRef::new("a/0.log.deleted"));
        let weak = file.downgrade();
        assert_eq!(weak.upgrade(), Some(clone.clone()));
        drop((file, clone));
        assert_eq!(weak.upgrade(), None);
    }

    #[test]
    fn mapping_a_token_keeps_the_effect() {
        let effect = FileEffect::Truncate { token: 1_u8, file: FileRef::new("f"), length: 9 };
        match effect.map(|token| u64::from(token) + 1) {
            FileEffect::Truncate { token: 2, length: 9, .. } => {}
            other => panic!("became {other:?}"),
        }
    }
}
