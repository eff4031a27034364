//! What a ring does for its thread, and what comes of it.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use api::Advice;
use base::Token;
use bytes::BytesMut;
use io_uring::{opcode, squeue, types};

use crate::bell::Bell;
use crate::file::OpenFile;
use crate::socket::{Listener, Socket};

/// One thing that the kernel does while the thread goes on. It owns what it works on until its
/// completion arrives, after a cancellation too.
#[derive(Debug)]
pub enum Operation {
    /// Completes each time that something arrives, or the peer ends or resets the connection; the
    /// result is a mask of `POLL…` bits. An edge: what is there stays there until it is read, and
    /// is not told again.
    WatchReadable(Arc<Socket>),
    /// Completes once, when the kernel takes more to send, or the connection has failed.
    AwaitWritable(Arc<Socket>),
    /// Completes each time that a bell rings.
    WatchBell(Arc<Bell>),
    /// Completes with each connection that a client opens.
    Accept(Arc<Listener>),
    /// Appends to `buffer` up to `length` bytes from `position` on, as far as it has room.
    Read {
        /// From where.
        file: Arc<OpenFile>,
        /// To where; comes back with the completion.
        buffer: BytesMut,
        /// The first byte.
        position: u64,
        /// At most this many.
        length: u32,
    },
    /// Makes the data of a file durable, and of its metadata what is needed to find it.
    SyncData(Arc<OpenFile>),
    /// Brings what was written to a range to the disk, without a commit of the journal.
    WriteBack {
        /// Of which file.
        file: Arc<OpenFile>,
        /// The first byte.
        position: u64,
        /// How many bytes.
        length: u32,
    },
    /// Takes disk space for a range and leaves the length as it is. The kernel may have to read
    /// where there is some; meanwhile it lets nobody write to the file.
    Allocate {
        /// For which file.
        file: Arc<OpenFile>,
        /// The first byte.
        position: u64,
        /// How many bytes.
        length: u64,
    },
    /// Sets the length of a file and gives back the space beyond it, which can wait for the disk.
    Truncate {
        /// Of which file.
        file: Arc<OpenFile>,
        /// The length in bytes.
        length: u64,
    },
    /// Makes creations, renames and removals in an open directory durable.
    SyncDirectory(File),
    /// Removes a file, or a directory that is empty. The kernel gives a large file's space back
    /// before this completes, unless it is open.
    Remove {
        /// Which.
        path: CString,
        /// Whether it is a directory.
        is_directory: bool,
    },
    /// Closes a descriptor on another thread: the last one of a file without a name gives its space
    /// back then, which can wait for the disk. Made by [`Operation::close`].
    Close(RawFd),
    /// Tells the kernel what a range will be used for.
    Advise {
        /// Of which file.
        file: Arc<OpenFile>,
        /// The first byte.
        position: u64,
        /// How many bytes; 0 for all from there on.
        length: u64,
        /// What for.
        advice: Advice,
    },
}

/// Names an operation under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationId(pub(crate) Token);

/// What came of an operation, once or, for those that complete each time, one of many.
#[derive(Debug)]
pub struct Completion<U> {
    /// What the operation was started with.
    pub user: U,
    /// The result: a count of bytes, a mask, or why it failed (`ECANCELED` or
    /// `EINTR` if cancelled).
    pub result: io::Result<u32>,
    /// The connection that was accepted.
    pub accepted: Option<OwnedFd>,
    /// The buffer of a read, with what was read appended.
    pub buffer: Option<BytesMut>,
    /// Whether more completions of the operation follow. If not, its name is void.
    pub more: bool,
}

/// An operation as it waits for its completion.
#[derive(Debug)]
pub(crate) struct InFlight<U> {
    pub(crate) operation: Operation,
    pub(crate) user: U,
}

impl Operation {
    /// Closes a file on another thread. The descriptor is the kernel's from now on.
    pub fn close(file: File) -> Self {
        Self::Close(file.into_raw_fd())
    }

    /// In the mask of [`Operation::WatchReadable`]: the connection is gone, in both directions.
    pub const BROKEN: u32 = (libc::POLLERR | libc::POLLHUP) as u32;
    /// In the mask of [`Operation::WatchReadable`]: the peer sends no more, or is gone.
    pub const ENDED: u32 = libc::POLLRDHUP as u32 | Self::BROKEN;

    /// The entry for the submission queue. It points at what `self` owns: `self` must not be
    /// dropped, nor its buffer changed, before the last completion.
    pub(crate) fn entry(&mut self) -> squeue::Entry {
        match self {
            Self::WatchReadable(socket) => watch(&**socket, libc::POLLIN | libc::POLLRDHUP, true),
            Self::AwaitWritable(socket) => watch(&**socket, libc::POLLOUT, false),
            Self::WatchBell(bell) => watch(&**bell, libc::POLLIN, true),
            Self::Accept(listener) => opcode::AcceptMulti::new(fd(&**listener))
                .flags(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)
                .build(),
            Self::Read { file, buffer, position, length } => {
                let room = buffer.spare_capacity_mut();
                let length = u32::try_from(room.len()).unwrap_or(u32::MAX).min(*length);
                opcode::Read::new(fd(&**file), room.as_mut_ptr().cast(), length)
                    .offset(*position)
                    .build()
            }
            Self::SyncData(file) => {
                opcode::Fsync::new(fd(&**file)).flags(types::FsyncFlags::DATASYNC).build()
            }
            Self::WriteBack { file, position, length } => {
                let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
                    | libc::SYNC_FILE_RANGE_WRITE
                    | libc::SYNC_FILE_RANGE_WAIT_AFTER;
                opcode::SyncFileRange::new(fd(&**file), *length)
                    .offset(*position)
                    .flags(flags)
                    .build()
            }
            Self::Allocate { file, position, length } => {
                opcode::Fallocate::new(fd(&**file), *length)
                    .offset(*position)
                    .mode(libc::FALLOC_FL_KEEP_SIZE)
                    .build()
            }
            Self::Truncate { file, length } => opcode::Ftruncate::new(fd(&**file), *length).build(),
            Self::SyncDirectory(directory) => opcode::Fsync::new(fd(directory)).build(),
            Self::Remove { path, is_directory } => {
                let flags = if *is_directory { libc::AT_REMOVEDIR } else { 0 };
                let here = types::Fd(libc::AT_FDCWD);
                opcode::UnlinkAt::new(here, path.as_ptr()).flags(flags).build()
            }
            Self::Close(descriptor) => {
                opcode::Close::new(types::Fd(*descriptor)).build().flags(squeue::Flags::ASYNC)
            }
            Self::Advise { file, position, length, advice } => {
                let advice = match advice {
                    Advice::WillNeed => libc::POSIX_FADV_WILLNEED,
                    Advice::DontNeed => libc::POSIX_FADV_DONTNEED,
                };
                // The kernel's entry has 32 bits for the length: more is told in part, and 0 is
                // all that follows.
                let length = i64::from(u32::try_from(*length).unwrap_or(u32::MAX));
                opcode::Fadvise::new(fd(&**file), length, advice).offset(*position).build()
            }
        }
    }
}

fn fd(what: &impl AsFd) -> types::Fd {
    types::Fd(what.as_fd().as_raw_fd())
}

fn watch(what: &impl AsFd, mask: libc::c_short, each: bool) -> squeue::Entry {
    opcode::PollAdd::new(fd(what), mask as u32).multi(each).build()
}
