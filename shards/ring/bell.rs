//! A bell: how a thread that has no ring wakes one that sleeps in its ring.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::{checked, retry};

/// An event counter of the kernel (`eventfd`). A ring watches it; any thread rings it.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A bell that has not rung.
    ///
    /// # Errors
    /// When the process has as many open files as it may.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes two numbers and touches no memory.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        checked(fd as isize)?;
        // SAFETY: the descriptor was made just now, and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Wakes whoever watches it. A bell that has rung 2⁶⁴ times would ring no more.
    pub fn ring(&self) {
        let one = 1_u64.to_ne_bytes();
        let result = retry(|| {
            // SAFETY: the eight bytes live until the call returns.
            checked(unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) })
        });
        debug_assert!(result.is_ok(), "an eventfd takes a one: {result:?}");
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
