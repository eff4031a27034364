//! Signals as something to wait for.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::bell::Bell;
use crate::error::{checked, retry};

/// The signals that ask a process to end (SIGTERM, SIGINT, SIGHUP), kept from ending it.
///
/// They are blocked in the thread that makes this and in every thread that it starts afterwards.
#[derive(Debug)]
pub struct Signals {
    descriptor: OwnedFd,
    before: libc::sigset_t,
}

/// What [`Signals::wait`] waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The process is asked to end.
    Signal,
    /// The bell rang.
    Bell,
}

impl Signals {
    /// Blocks the signals and makes them something to wait for.
    ///
    /// # Errors
    /// When the process has as many open files as it may.
    pub fn block() -> io::Result<Self> {
        // SAFETY: all zeros is a value of this type, which `sigemptyset` then initialises; the
        // calls take the addresses of two sets that outlive them.
        unsafe {
            let mut asked: libc::sigset_t = mem::zeroed();
            let mut before: libc::sigset_t = mem::zeroed();
            libc::sigemptyset(&mut asked);
            libc::sigaddset(&mut asked, libc::SIGTERM);
            libc::sigaddset(&mut asked, libc::SIGINT);
            libc::sigaddset(&mut asked, libc::SIGHUP);
            let code = libc::pthread_sigmask(libc::SIG_BLOCK, &asked, &mut before);
            if code != 0 {
                return Err(io::Error::from_raw_os_error(code));
            }
            let fd = libc::signalfd(-1, &asked, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            checked(fd as isize)?;
            Ok(Self { descriptor: OwnedFd::from_raw_fd(fd), before })
        }
    }

    /// Waits for a signal or for `bell`.
    ///
    /// # Errors
    /// None that is known; the kernel is out of memory.
    pub fn wait(&self, bell: &Bell) -> io::Result<Waited> {
        let watch = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut watched = [watch(self.descriptor.as_raw_fd()), watch(bell.as_fd().as_raw_fd())];
        retry(|| {
            // SAFETY: the array has two entries and outlives the call.
            checked(unsafe { libc::poll(watched.as_mut_ptr(), 2, -1) } as isize)
        })?;
        if watched[0].revents == 0 {
            return Ok(Waited::Bell);
        }
        let mut told = [0_u8; mem::size_of::<libc::signalfd_siginfo>()];
        retry(|| {
            // SAFETY: the kernel writes one record at most into the array that is as long.
            checked(unsafe {
                libc::read(self.descriptor.as_raw_fd(), told.as_mut_ptr().cast(), told.len())
            })
        })?;
        Ok(Waited::Signal)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the set was filled in by the kernel and outlives the call.
        let code =
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
        debug_assert_eq!(code, 0, "the former set of blocked signals is a valid one");
    }
}
