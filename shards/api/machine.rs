//! What every shard is.

use crate::{Effects, Event};
use base::Now;

/// A state machine: everything that Corelane decides, it decides inside one of these.
///
/// A machine is a function of its construction (with its random seed), the times and the events it
/// was given. It may not ask a clock, start a thread, or touch a file or socket.
pub trait Machine {
    /// What the machines of one node say to each other.
    type Message: Send + 'static;

    /// Takes one event. The first one is [`Event::Started`], the last one it can count on is
    /// [`Event::Stop`], which it answers in the end with [`crate::Effect::Stopped`].
    fn step(&mut self, now: Now, event: Event<Self::Message>, effects: &mut Effects<Self::Message>);

    /// Called once at the end of a turn in which `step` was called: the place to join what the
    /// turn gathered (one write a partition, one send a connection).
    fn end_of_turn(&mut self, now: Now, effects: &mut Effects<Self::Message>) {
        let _ = (now, effects);
    }
}
