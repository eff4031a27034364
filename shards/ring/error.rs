//! What the operating system says, in the words of the seam.

use std::fmt::Display;
use std::io;

use api::{IoError, IoErrorKind};

/// Says what was tried (`action`, a verb phrase), with what, and why it failed.
pub fn io_error(action: &'static str, subject: impl Display, cause: &io::Error) -> IoError {
    IoError { kind: kind(cause), action, subject: subject.to_string(), cause: cause.to_string() }
}

fn kind(cause: &io::Error) -> IoErrorKind {
    match cause.raw_os_error() {
        Some(libc::ENOENT) => IoErrorKind::NotFound,
        Some(libc::ENOSPC | libc::EDQUOT) => IoErrorKind::NoSpace,
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => IoErrorKind::Permission,
        Some(libc::EADDRINUSE) => IoErrorKind::AddressInUse,
        Some(libc::EMFILE | libc::ENFILE) => IoErrorKind::TooManyFiles,
        Some(libc::ECONNREFUSED) => IoErrorKind::Refused,
        Some(
            libc::ECONNRESET
            | libc::ECONNABORTED
            | libc::EPIPE
            | libc::ETIMEDOUT
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::ENETDOWN
            | libc::EHOSTDOWN,
        ) => IoErrorKind::Connection,
        _ => IoErrorKind::Other,
    }
}

/// Turns the −1 of a system call into the error that `errno` tells.
pub(crate) fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Calls again while a signal interrupts.
pub(crate) fn retry<R>(mut call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
