//! A ring: submission, completion, waiting and waking.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use base::{Slab, Token};
use io_uring::{EnterFlags, IoUring, Probe, cqueue, opcode, squeue, types};

use crate::operation::{Completion, InFlight, Operation, OperationId};

/// Entries of the submission queue; a full one is submitted at once.
const SUBMISSIONS: u32 = 256;
/// Entries of the completion queue. Past them the kernel keeps what fits nowhere, more slowly.
const COMPLETIONS: u32 = 8192;
/// Operations under way on one ring, at most: three for each of a million connections.
const OPERATIONS_MAX: usize = 3_000_000;
/// Kernel threads for operations that must block (of regular files, of everything else).
const WORKERS_MAX: [u32; 2] = [4, 4];
/// How long a ring waits at its end for what it cancelled.
const END_WAIT_MAX: Duration = Duration::from_secs(2);

/// The name of a completion that only wakes. No token has it.
const WAKE: u64 = u64::MAX;
/// The name of a completion that nobody waits for.
const UNNAMED: u64 = u64::MAX - 1;

/// An io_uring of one thread. `U` is what the thread knows an operation by.
///
/// It is made, used and dropped on one thread (`SINGLE_ISSUER`), and completions run only inside
/// that thread's [`Ring::enter`] (`DEFER_TASKRUN`).
pub struct Ring<U: Copy> {
    kernel: IoUring,
    in_flight: Slab<InFlight<U>>,
    /// Completions that were taken out early to make room for submissions.
    early: VecDeque<cqueue::Entry>,
    handle: Arc<RingHandle>,
    /// Whom the queued messages wake: their rings stay open until the queue is submitted.
    waking: Vec<Arc<RingHandle>>,
    enter_flags: EnterFlags,
    can_truncate: bool,
    /// A ring is not `Send`: the kernel refuses every other thread.
    _of_one_thread: std::marker::PhantomData<*const ()>,
}

/// What other threads know of a ring: enough to wake it. It stays valid when the ring has ended.
#[derive(Debug)]
pub struct RingHandle(OwnedFd);

/// How long [`Ring::enter`] waits for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// At most this long.
    AtMost(Duration),
    /// Until there is one.
    Forever,
}

impl<U: Copy> Ring<U> {
    /// Makes the ring of the calling thread.
    ///
    /// # Errors
    /// The kernel has no io_uring, not these modes of it, or does not permit it: see
    /// [`crate::probe`], which says so in a sentence.
    pub fn new() -> io::Result<Self> {
        let kernel = build(SUBMISSIONS, COMPLETIONS)?;
        let mut workers = WORKERS_MAX;
        kernel.submitter().register_iowq_max_workers(&mut workers)?;
        // SAFETY: the ring is open until the end of this statement, which makes an own descriptor.
        let own = unsafe { BorrowedFd::borrow_raw(kernel.as_raw_fd()) }.try_clone_to_owned()?;
        let no_iowait = kernel.params().is_feature_no_iowait();
        let mut supported = Probe::new();
        kernel.submitter().register_probe(&mut supported)?;
        Ok(Self {
            kernel,
            in_flight: Slab::new(OPERATIONS_MAX),
            early: VecDeque::new(),
            handle: Arc::new(RingHandle(own)),
            waking: Vec::new(),
            enter_flags: if no_iowait { EnterFlags::NO_IOWAIT } else { EnterFlags::empty() },
            can_truncate: supported.is_supported(opcode::Ftruncate::CODE),
            _of_one_thread: std::marker::PhantomData,
        })
    }

    /// Whether [`Operation::Truncate`] may be started: kernels before 6.9 lack it.
    pub fn can_truncate(&self) -> bool {
        self.can_truncate
    }

    /// What other threads wake this ring by.
    pub fn handle(&self) -> Arc<RingHandle> {
        Arc::clone(&self.handle)
    }

    /// Begins an operation; the kernel learns of it with the next [`Ring::enter`].
    ///
    /// # Panics
    /// If millions are under way, which the limits of the caller exclude.
    pub fn start(&mut self, operation: Operation, user: U) -> OperationId {
        let in_flight = InFlight { operation, user };
        let Ok(token) = self.in_flight.insert(in_flight) else {
            panic!("{OPERATIONS_MAX} operations are under way on one ring");
        };
        let in_flight = self.in_flight.get_mut(token).expect("it was inserted just now");
        let entry = in_flight.operation.entry().user_data(token.to_bits());
        self.push(&entry);
        OperationId(token)
    }

    /// Asks the kernel to end an operation early. Its last completion arrives all the same, with
    /// `ECANCELED` or with what it had come to.
    pub fn cancel(&mut self, operation: OperationId) {
        if self.in_flight.get(operation.0).is_some() {
            let entry = opcode::AsyncCancel::new(operation.0.to_bits()).build();
            self.push(&entry.user_data(UNNAMED));
        }
    }

    /// Wakes the thread that waits in the ring of `handle`; sent with the next [`Ring::enter`].
    pub fn wake(&mut self, handle: &Arc<RingHandle>) {
        let target = types::Fd(handle.0.as_raw_fd());
        let entry = opcode::MsgRingData::new(target, 0, WAKE, None).build();
        // A ring that has ended answers with an error, which nobody minds.
        self.push(&entry.user_data(UNNAMED).flags(squeue::Flags::SKIP_SUCCESS));
        self.waking.push(Arc::clone(handle));
    }

    /// How many operations are under way.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether there are completions to take, or some that [`Ring::enter`] would bring. It asks
    /// memory only, so it can be asked in a spin.
    pub fn has_news(&mut self) -> bool {
        let submission = self.kernel.submission();
        if submission.taskrun() || submission.cq_overflow() {
            return true;
        }
        drop(submission);
        !self.early.is_empty() || !self.kernel.completion().is_empty()
    }

    /// Hands over what was started, lets completions run, and waits for one if asked to.
    ///
    /// # Errors
    /// The ring is unusable: a bug, or a kernel out of memory.
    pub fn enter(&mut self, wait: Wait) -> io::Result<()> {
        if wait == Wait::No {
            let submission = self.kernel.submission();
            let idle = submission.is_empty() && !submission.taskrun() && !submission.cq_overflow();
            drop(submission);
            if idle {
                return Ok(());
            }
        }
        let result = match wait {
            Wait::No => self.kernel.submit(),
            Wait::Forever => self.kernel.submitter().submit_with_args_and_flags(
                1,
                &types::SubmitArgs::new(),
                self.enter_flags,
            ),
            Wait::AtMost(time) => {
                let time = types::Timespec::from(time);
                let args = types::SubmitArgs::new().timespec(&time);
                self.kernel.submitter().submit_with_args_and_flags(1, &args, self.enter_flags)
            }
        };
        match result {
            Ok(_) => {}
            // A signal, the time, or completions that must be taken first.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN)
                ) => {}
            Err(error) => return Err(error),
        }
        if self.kernel.submission().is_empty() {
            self.waking.clear();
        }
        Ok(())
    }

    /// Takes the completions that are there, at most `count_max`, and appends them to `list`.
    pub fn take_completions(&mut self, list: &mut Vec<Completion<U>>, count_max: usize) {
        let early = self.early.len().min(count_max);
        let queue = self.kernel.completion().take(count_max - early);
        for entry in self.early.drain(..early).chain(queue) {
            list.extend(complete(&mut self.in_flight, &entry));
        }
    }

    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: what the entry points at is owned by the operation in `in_flight` under the
            // entry's name (and the entries without a name point at nothing). It is neither
            // dropped nor touched before the operation's last completion, at the end of the ring
            // too (see `Drop`).
            if unsafe { self.kernel.submission().push(entry) }.is_ok() {
                return;
            }
            self.enter_full();
        }
    }

    fn enter_full(&mut self) {
        match self.kernel.submit() {
            Ok(_) => self.waking.clear(),
            Err(error) => {
                let passing = [libc::EINTR, libc::EBUSY, libc::EAGAIN];
                let passes = error.raw_os_error().is_some_and(|code| passing.contains(&code));
                assert!(passes, "the ring takes no more operations: {error}");
                // Completions that nobody takes can be what stands in the way.
                self.early.extend(self.kernel.completion());
            }
        }
    }
}

impl<U: Copy> Drop for Ring<U> {
    fn drop(&mut self) {
        // The kernel may still write into the buffers of reads: they outlive it or are leaked.
        let deadline = std::time::Instant::now() + END_WAIT_MAX;
        let everything = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build();
        self.push(&everything.user_data(UNNAMED));
        let _ = self.kernel.submit();
        while !self.in_flight.is_empty() {
            let queue: Vec<cqueue::Entry> =
                self.early.drain(..).chain(self.kernel.completion()).collect();
            if queue.is_empty() {
                let left = deadline.saturating_duration_since(std::time::Instant::now());
                if left.is_zero() {
                    break;
                }
                let time = types::Timespec::from(left.min(Duration::from_millis(100)));
                let args = types::SubmitArgs::new().timespec(&time);
                let _ = self.kernel.submitter().submit_with_args(1, &args);
            }
            for entry in queue {
                drop(complete(&mut self.in_flight, &entry).map(|completion| completion.accepted));
            }
        }
        if !self.in_flight.is_empty() {
            mem::forget(mem::replace(&mut self.in_flight, Slab::new(1)));
        }
    }
}

impl<U: Copy> std::fmt::Debug for Ring<U> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Ring").field("in_flight", &self.in_flight.len()).finish()
    }
}

/// Builds a ring with the modes that everything here relies on.
pub(crate) fn build(submissions: u32, completions: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_cqsize(completions)
        .dontfork()
        .build(submissions)
}

fn complete<U: Copy>(
    in_flight: &mut Slab<InFlight<U>>,
    entry: &cqueue::Entry,
) -> Option<Completion<U>> {
    if entry.user_data() == WAKE || entry.user_data() == UNNAMED {
        return None;
    }
    let token = Token::from_bits(entry.user_data());
    let more = cqueue::more(entry.flags());
    let result = u32::try_from(entry.result())
        .map_err(|_| io::Error::from_raw_os_error(entry.result().wrapping_neg()));
    let found = in_flight.get(token).expect("an operation stays until its last completion");
    let user = found.user;
    let accepted = match (&found.operation, &result) {
        (Operation::Accept(_), Ok(_)) => {
            // SAFETY: the kernel made this descriptor for us, and nobody else knows it.
            Some(unsafe { OwnedFd::from_raw_fd(entry.result()) })
        }
        _ => None,
    };
    let mut buffer = None;
    if !more
        && let Some(InFlight { operation: Operation::Read { buffer: mut read, .. }, .. }) =
            in_flight.remove(token)
    {
        let bytes = *result.as_ref().unwrap_or(&0) as usize;
        // SAFETY: the kernel has initialised so many bytes behind the buffer's length, and the
        // operation asked for no more than there was room for.
        unsafe { read.set_len(read.len() + bytes) };
        buffer = Some(read);
    }
    Some(Completion { user, result, accepted, buffer, more })
}
