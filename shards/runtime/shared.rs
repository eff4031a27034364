//! What the threads of a node share, and how a node ends.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use mesh::SleepFlag;
use ring::{Bell, OpenCount, RingHandle};

use crate::clock::Clock;
use crate::counters::{Counters, CountersSnapshot};

/// Why a node did not start, or ended other than in order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The kernel or a limit does not allow it; the sentences say how to.
    #[error("{0}")]
    Missing(#[from] ring::Missing),
    /// A machine said that the node must not go on.
    #[error("{sentence}")]
    Failed {
        /// Its words.
        sentence: String,
    },
    /// A thread of the node panicked: a bug.
    #[error("thread {thread} panicked: {message}")]
    Panicked {
        /// Which.
        thread: String,
        /// What it said.
        message: String,
    },
    /// A thread could not be started.
    #[error("cannot start thread {thread}: {cause}")]
    Thread {
        /// Which.
        thread: String,
        /// In the words of the operating system.
        cause: String,
    },
    /// The ring of a thread cannot be made or used.
    #[error("cannot use io_uring: {cause}")]
    Ring {
        /// In the words of the operating system.
        cause: String,
    },
    /// Signals cannot be waited for.
    #[error("cannot wait for signals: {cause}")]
    Signals {
        /// In the words of the operating system.
        cause: String,
    },
}

/// What the threads of a node share: next to nothing, and written next to never.
pub(crate) struct Shared {
    threads: Vec<SharedThread>,
    stopping: AtomicBool,
    /// Machines that have not stopped.
    running: AtomicUsize,
    failure: OnceLock<RunError>,
    /// Rung when the node is over.
    over: Bell,
    clock: Clock,
    open_count: OpenCount,
    open_files_max: usize,
    /// How often a core found no descriptor.
    descriptors_wanted: AtomicU64,
}

struct SharedThread {
    name: String,
    sleep: SleepFlag,
    bell: Arc<Bell>,
    ring: OnceLock<Arc<RingHandle>>,
    counters: Arc<Counters>,
}

impl Shared {
    /// What threads with these names share, that run so many machines.
    ///
    /// # Errors
    /// When the process has as many open files as it may.
    pub(crate) fn new(
        names: Vec<String>,
        machines: usize,
        open_files_max: usize,
    ) -> Result<Self, RunError> {
        let bell = || Bell::new().map_err(|error| RunError::Ring { cause: error.to_string() });
        let threads = names
            .into_iter()
            .map(|name| {
                Ok(SharedThread {
                    name,
                    sleep: SleepFlag::new(),
                    bell: Arc::new(bell()?),
                    ring: OnceLock::new(),
                    counters: Arc::default(),
                })
            })
            .collect::<Result<_, RunError>>()?;
        Ok(Self {
            threads,
            stopping: AtomicBool::new(false),
            running: AtomicUsize::new(machines),
            failure: OnceLock::new(),
            over: bell()?,
            clock: Clock::start(),
            open_count: OpenCount::default(),
            open_files_max,
            descriptors_wanted: AtomicU64::new(0),
        })
    }

    /// The name and the counters of each thread.
    pub(crate) fn all_counters(&self) -> Vec<(String, CountersSnapshot)> {
        let threads = self.threads.iter();
        threads.map(|thread| (thread.name.clone(), thread.counters.read())).collect()
    }

    /// Lets other threads wake this one by its ring.
    pub(crate) fn set_ring(&self, thread: usize, handle: Arc<RingHandle>) {
        self.threads[thread].ring.set(handle).expect("a thread makes its ring once");
    }

    /// Rung when the node is over.
    pub(crate) fn over(&self) -> &Bell {
        &self.over
    }

    /// Why the node has failed, if it has.
    pub(crate) fn failure(&self) -> Option<&RunError> {
        self.failure.get()
    }

    pub(crate) fn counters(&self, thread: usize) -> Arc<Counters> {
        Arc::clone(&self.threads[thread].counters)
    }

    pub(crate) fn bell(&self, thread: usize) -> &Arc<Bell> {
        &self.threads[thread].bell
    }

    pub(crate) fn ring(&self, thread: usize) -> Option<&Arc<RingHandle>> {
        self.threads[thread].ring.get()
    }

    pub(crate) fn must_wake(&self, thread: usize) -> bool {
        self.threads[thread].sleep.must_wake()
    }

    pub(crate) fn announce_sleep(&self, thread: usize) {
        self.threads[thread].sleep.announce();
    }

    pub(crate) fn awake(&self, thread: usize) {
        self.threads[thread].sleep.awake();
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn open_count(&self) -> OpenCount {
        Arc::clone(&self.open_count)
    }

    pub(crate) fn open_files_max(&self) -> usize {
        self.open_files_max
    }

    /// Asks every core to close files that are idle.
    pub(crate) fn want_descriptors(&self) {
        self.descriptors_wanted.fetch_add(1, Ordering::Relaxed);
        self.ring_all();
    }

    /// How often a core has asked for that.
    pub(crate) fn descriptors_wanted(&self) -> u64 {
        self.descriptors_wanted.load(Ordering::Relaxed)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Whether there is nothing more to run.
    pub(crate) fn is_over(&self) -> bool {
        self.running.load(Ordering::SeqCst) == 0 || self.failure.get().is_some()
    }

    /// Asks all machines to stop.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.ring_all();
    }

    pub(crate) fn machine_stopped(&self) {
        if self.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.ring_all();
        }
    }

    /// Ends the node at once; the first failure is the one that is told.
    pub(crate) fn fail(&self, error: RunError) {
        // A later failure follows from the first, which whoever waits for the node gets.
        if let Err(error) = self.failure.set(error) {
            tracing::debug!("and then: {error}");
        }
        self.ring_all();
    }

    fn ring_all(&self) {
        for thread in &self.threads {
            thread.bell.ring();
        }
        if self.is_over() {
            self.over.ring();
        }
    }
}
