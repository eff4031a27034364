//! A bounded queue from one thread to one other.

use std::fmt;
use std::mem::MaybeUninit;

use crate::sync::{Apart, Arc, AtomicUsize, Ordering, UnsafeCell};

struct Shared<T> {
    /// Slot `n & mask` holds the message numbered `n`, for the numbers from `taken` to `put`.
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    mask: usize,
    /// How many messages were taken so far; only the receiver writes it.
    taken: Apart<AtomicUsize>,
    /// How many messages were put so far; only the sender writes it.
    put: Apart<AtomicUsize>,
}

// SAFETY: a slot is touched by one side at a time: by the sender while its number is not below
// `put`, by the receiver from then on until it advances `taken` past it. Both counters are
// published with Release and read with Acquire. So a lane only moves values between two threads.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as above; what is still in the slots at the end is dropped by whoever drops last.
unsafe impl<T: Send> Send for Shared<T> {}

/// The end of a lane that puts.
pub struct LaneSender<T> {
    shared: Arc<Shared<T>>,
    slots: usize,
    put: usize,
    taken_seen: usize,
}

/// The end of a lane that takes.
pub struct LaneReceiver<T> {
    shared: Arc<Shared<T>>,
    taken: usize,
    put_seen: usize,
}

/// The lane has no free slot; the message comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);

/// A lane of `slots` messages. Slots that were never used take no memory.
///
/// # Panics
/// If there is no slot.
pub fn lane<T: Send>(slots: usize) -> (LaneSender<T>, LaneReceiver<T>) {
    assert!(slots > 0, "a lane has at least one slot");
    let capacity = slots.next_power_of_two();
    let cells = (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
    let shared = Arc::new(Shared {
        slots: cells,
        mask: capacity - 1,
        taken: Apart(AtomicUsize::new(0)),
        put: Apart(AtomicUsize::new(0)),
    });
    let sender = LaneSender { shared: Arc::clone(&shared), slots, put: 0, taken_seen: 0 };
    (sender, LaneReceiver { shared, taken: 0, put_seen: 0 })
}

impl<T> LaneSender<T> {
    /// Puts a message behind those that are there.
    ///
    /// # Errors
    /// The lane is full.
    pub fn put(&mut self, message: T) -> Result<(), Full<T>> {
        if self.put.wrapping_sub(self.taken_seen) == self.slots {
            self.taken_seen = self.shared.taken.0.load(Ordering::Acquire);
            if self.put.wrapping_sub(self.taken_seen) == self.slots {
                return Err(Full(message));
            }
        }
        self.shared.slots[self.put & self.shared.mask].with_mut(|slot| {
            // SAFETY: the receiver has taken what was here (`taken`, read with Acquire, says so),
            // and looks again only when `put` is advanced below.
            unsafe { (*slot).write(message) };
        });
        self.put = self.put.wrapping_add(1);
        self.shared.put.0.store(self.put, Ordering::Release);
        Ok(())
    }
}

impl<T> LaneReceiver<T> {
    /// How many messages are there now.
    pub fn len(&mut self) -> usize {
        self.put_seen = self.shared.put.0.load(Ordering::Acquire);
        self.put_seen.wrapping_sub(self.taken)
    }

    /// Whether there is none now.
    pub fn is_empty(&mut self) -> bool {
        self.len() == 0
    }

    /// Takes the oldest message.
    pub fn take(&mut self) -> Option<T> {
        if self.taken == self.put_seen && self.is_empty() {
            return None;
        }
        let message = self.shared.slots[self.taken & self.shared.mask].with_mut(|slot| {
            // SAFETY: the sender has filled the slot (`put`, read with Acquire, is past it), and
            // touches it again only when `taken` is advanced below, so it is read exactly once.
            unsafe { (*slot).assume_init_read() }
        });
        self.taken = self.taken.wrapping_add(1);
        self.shared.taken.0.store(self.taken, Ordering::Release);
        Some(message)
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let mut taken = self.taken.0.load(Ordering::Acquire);
        let put = self.put.0.load(Ordering::Acquire);
        while taken != put {
            self.slots[taken & self.mask].with_mut(|slot| {
                // SAFETY: the slot is filled, and both ends are gone.
                unsafe { (*slot).assume_init_drop() };
            });
            taken = taken.wrapping_add(1);
        }
    }
}

impl<T> fmt::Debug for LaneSender<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LaneSender").field("put", &self.put).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for LaneReceiver<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LaneReceiver").field("taken", &self.taken).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_lane_holds_so_many_slots_and_keeps_the_order() {
        let (mut sender, mut receiver) = lane(3);
        for round in 0..10 {
            for n in 0..3 {
                assert_eq!(sender.put(round * 3 + n), Ok(()));
            }
            assert_eq!(sender.put(99), Err(Full(99)));
            assert_eq!(receiver.len(), 3);
            for n in 0..3 {
                assert_eq!(receiver.take(), Some(round * 3 + n));
            }
            assert_eq!(receiver.take(), None);
        }
    }

    #[test]
    fn what_is_never_taken_is_dropped_once() {
        let held = std::sync::Arc::new(());
        let (mut sender, mut receiver) = lane(8);
        for _ in 0..5 {
            sender.put(std::sync::Arc::clone(&held)).expect("room");
        }
        drop(receiver.take());
        drop(receiver);
        assert_eq!(std::sync::Arc::strong_count(&held), 5);
        drop(sender);
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
    }

    #[test]
    fn two_threads_exchange_a_million_messages_in_order() {
        let (mut sender, mut receiver) = lane(64);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for n in 0..1_000_000_u64 {
                    let mut message = Box::new(n);
                    while let Err(Full(back)) = sender.put(message) {
                        message = back;
                        std::thread::yield_now();
                    }
                }
            });
            let mut expected = 0;
            while expected < 1_000_000 {
                match receiver.take() {
                    Some(message) => {
                        assert_eq!(*message, expected);
                        expected += 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
        });
        assert_eq!(receiver.take(), None);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_and_in_order_through_a_lane_that_wraps() {
        crate::sync::explore(|| {
            let (mut sender, mut receiver) = lane(2);
            let thread = loom::thread::spawn(move || {
                for n in 0..3_u32 {
                    let mut message = Box::new(n);
                    while let Err(Full(back)) = sender.put(message) {
                        message = back;
                        loom::thread::yield_now();
                    }
                }
            });
            let mut expected = 0;
            while expected < 3 {
                match receiver.take() {
                    Some(message) => {
                        assert_eq!(*message, expected);
                        expected += 1;
                    }
                    None => loom::thread::yield_now(),
                }
            }
            thread.join().expect("no panic");
        });
    }

    #[test]
    fn what_is_left_in_a_lane_is_dropped_whoever_ends_first() {
        crate::sync::explore(|| {
            let (mut sender, mut receiver) = lane(2);
            let thread = loom::thread::spawn(move || {
                sender.put(loom::sync::Arc::new(1)).expect("room");
                sender.put(loom::sync::Arc::new(2)).expect("room");
            });
            drop(receiver.take());
            drop(receiver);
            // loom reports an `Arc` that is leaked.
            thread.join().expect("no panic");
        });
    }
}
