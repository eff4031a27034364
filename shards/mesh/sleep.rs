//! Whether a thread sleeps, so that one that sends to it knows if it must be woken.

use crate::sync::{Apart, AtomicBool, Ordering, fence};

/// The sleep flag of one thread.
///
/// The sleeper announces its sleep and looks once more for messages before it sleeps; a sender
/// publishes its message and then looks at the flag. Both have a full fence in between, so at least
/// one of them sees what the other did: no message is left lying beside a thread that sleeps.
#[derive(Debug)]
pub struct SleepFlag {
    asleep: Apart<AtomicBool>,
}

impl Default for SleepFlag {
    fn default() -> Self {
        Self::new()
    }
}

impl SleepFlag {
    /// The flag of a thread that is awake.
    pub fn new() -> Self {
        Self { asleep: Apart(AtomicBool::new(false)) }
    }

    /// For its thread: it is about to sleep. Whatever was sent before must be looked for after this
    /// call; if there is something, the thread calls [`SleepFlag::awake`] and does not sleep.
    pub fn announce(&self) {
        self.asleep.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// For its thread: it is awake and looks for messages by itself.
    pub fn awake(&self) {
        self.asleep.0.store(false, Ordering::Relaxed);
    }

    /// For a sender, after it has published: whether it must wake the thread. Several senders can
    /// be told so at once; a wake too many is harmless.
    #[must_use = "the thread sleeps on"]
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.asleep.0.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::lane;
    use std::sync::Arc;
    use std::sync::mpsc;

    #[test]
    fn a_thread_that_sleeps_after_each_message_misses_none() {
        let flag = Arc::new(SleepFlag::new());
        let (mut sender, mut receiver) = lane(4);
        let (wake, woken) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let theirs = Arc::clone(&flag);
            scope.spawn(move || {
                for n in 0..100_000_u32 {
                    while sender.put(n).is_err() {
                        std::thread::yield_now();
                    }
                    if theirs.must_wake() {
                        wake.send(()).expect("the sleeper listens");
                    }
                }
            });
            let mut expected = 0;
            while expected < 100_000 {
                while let Some(n) = receiver.take() {
                    assert_eq!(n, expected);
                    expected += 1;
                }
                flag.announce();
                if receiver.is_empty() && expected < 100_000 {
                    woken.recv_timeout(std::time::Duration::from_secs(20)).expect("is woken");
                }
                flag.awake();
            }
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::lane;
    use loom::sync::Arc;
    use loom::sync::Notify;

    #[test]
    fn no_message_is_left_beside_a_sleeper() {
        crate::sync::explore(|| {
            let flag = Arc::new(SleepFlag::new());
            let bell = Arc::new(Notify::new());
            let (mut sender, mut receiver) = lane(2);
            let (their_flag, their_bell) = (Arc::clone(&flag), Arc::clone(&bell));
            let thread = loom::thread::spawn(move || {
                for n in 0..2_u32 {
                    sender.put(n).expect("room");
                    if their_flag.must_wake() {
                        their_bell.notify();
                    }
                }
            });
            let mut taken = 0;
            while taken < 2 {
                while receiver.take().is_some() {
                    taken += 1;
                }
                if taken == 2 {
                    break;
                }
                flag.announce();
                if receiver.is_empty() {
                    // loom reports a deadlock if nobody rings.
                    bell.wait();
                }
                flag.awake();
            }
            thread.join().expect("no panic");
        });
    }
}
