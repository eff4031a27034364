//! A place for the newest of what was posted.

use std::fmt;
use std::ptr;

use crate::sync::{Arc, AtomicPtr, Ordering};

struct Shared<T> {
    /// Null, or a boxed value that nobody else points at.
    newest: AtomicPtr<T>,
    /// The slot owns a `T`, which is dropped with it.
    _owns: std::marker::PhantomData<T>,
}

// SAFETY: a value is reached through the pointer by whoever swapped it out, and by nobody else, so
// a slot only moves values between threads: it shares none.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Shared<T> {}

/// The end of a slot that posts.
pub struct SlotSender<T>(Arc<Shared<T>>);

/// The end of a slot that takes.
pub struct SlotReceiver<T>(Arc<Shared<T>>);

/// A slot in which a later value replaces one that was not taken yet.
pub fn slot<T: Send>() -> (SlotSender<T>, SlotReceiver<T>) {
    let shared = Arc::new(Shared {
        newest: AtomicPtr::new(ptr::null_mut()),
        _owns: std::marker::PhantomData,
    });
    (SlotSender(Arc::clone(&shared)), SlotReceiver(shared))
}

impl<T> SlotSender<T> {
    /// Puts `value` in the place of what was there.
    pub fn post(&mut self, value: T) {
        drop(self.0.swap(Some(value)));
    }
}

impl<T> SlotReceiver<T> {
    /// Whether nothing is there now.
    pub fn is_empty(&self) -> bool {
        self.0.newest.load(Ordering::Acquire).is_null()
    }

    /// Takes the newest, if something was posted since the last time.
    pub fn take(&mut self) -> Option<T> {
        if self.is_empty() { None } else { self.0.swap(None) }
    }
}

impl<T> Shared<T> {
    fn swap(&self, value: Option<T>) -> Option<T> {
        let new = value.map_or(ptr::null_mut(), |value| Box::into_raw(Box::new(value)));
        let old = self.newest.swap(new, Ordering::AcqRel);
        if old.is_null() {
            return None;
        }
        // SAFETY: the pointer came from `Box::into_raw` here, and the swap took it out of the slot,
        // so it is turned back exactly once. AcqRel makes the value visible with the pointer.
        Some(*unsafe { Box::from_raw(old) })
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        drop(self.swap(None));
    }
}

impl<T> fmt::Debug for SlotSender<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SlotSender")
    }
}

impl<T> fmt::Debug for SlotReceiver<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SlotReceiver")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_newest_wins_and_is_taken_once() {
        let (mut sender, mut receiver) = slot();
        assert_eq!(receiver.take(), None);
        sender.post("old".to_owned());
        sender.post("new".to_owned());
        assert!(!receiver.is_empty());
        assert_eq!(receiver.take().as_deref(), Some("new"));
        assert_eq!(receiver.take(), None);
        sender.post("left behind".to_owned());
    }

    #[test]
    fn between_threads_values_never_go_back() {
        let (mut sender, mut receiver) = slot();
        std::thread::scope(|scope| {
            scope.spawn(move || (1..=200_000_u64).for_each(|n| sender.post(Box::new(n))));
            let mut last = 0;
            while last < 200_000 {
                match receiver.take() {
                    Some(value) => {
                        assert!(*value > last);
                        last = *value;
                    }
                    None => std::thread::yield_now(),
                }
            }
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn every_value_is_taken_or_replaced_once() {
        crate::sync::explore(|| {
            let (mut sender, mut receiver) = slot();
            let thread = loom::thread::spawn(move || {
                sender.post(loom::sync::Arc::new(1));
                sender.post(loom::sync::Arc::new(2));
            });
            let first = receiver.take().map_or(0, |value| *value);
            let second = receiver.take().map_or(0, |value| *value);
            assert!(second == 0 || second > first);
            thread.join().expect("no panic");
            let last = receiver.take().map_or(0, |value| *value);
            assert_eq!(first.max(second).max(last), 2);
        });
    }
}
