//! What a core counts about itself.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread adds to and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds, by the only thread that does: without a locked instruction.
    pub(crate) fn add(&self, more: u64) {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(more);
        self.0.store(sum, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one core, added to by its thread alone.
        #[derive(Debug, Default)]
        pub struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        /// The counters of one core at one time.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CountersSnapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// The counters as they are now; each by itself, not all at one instant.
            pub fn read(&self) -> CountersSnapshot {
                CountersSnapshot { $($name: self.$name.read(),)* }
            }
        }
    };
}

counters! {
    /// Turns of the loop.
    turns,
    /// Events given to machines.
    events,
    /// Times that the thread slept in the ring.
    sleeps,
    /// Times that spinning found something before the thread slept.
    spins_won,
    /// Threads woken by this one.
    wakes_sent,
    /// Connections accepted.
    accepted,
    /// Connections that were opened or connected and are gone.
    closed,
    /// Bytes received from sockets.
    received_bytes,
    /// Bytes sent to sockets, those of files included.
    sent_bytes,
    /// Bytes sent from files by `sendfile`.
    sent_file_bytes,
    /// Times that a range was not in the page cache before it was sent.
    cold_ranges,
    /// Bytes read from files for machines.
    file_read_bytes,
    /// Bytes written to files.
    file_written_bytes,
    /// Files synced.
    syncs,
    /// Turns in which reading paused because slices held all chunks.
    receive_budget_reached,
    /// Times that accepting paused because no file descriptor was left.
    accept_paused,
}
