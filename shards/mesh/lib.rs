//! What two cores of one node say to each other, without locks.
//!
//! A [`lane`] is a bounded queue from one thread to one other; a pair of machines has one for
//! requests and one for replies, so that a burst of requests never takes the room of a reply. A
//! [`slot`] holds only the newest of what was posted. A [`SleepFlag`] tells whether the receiving
//! thread must be woken; how, is the caller's business.
//!
//! Depends on: nothing (under `--cfg loom`, on the model checker that its tests run under).
//! Deliberately absent: threads, rings, messages, any policy.

mod lane;
mod sleep;
mod slot;
mod sync;

pub use lane::{Full, LaneReceiver, LaneSender, lane};
pub use sleep::SleepFlag;
pub use slot::{SlotReceiver, SlotSender, slot};
