//! What a machine asks a driver to do.

use base::{Instant, ShardId, Token};

use crate::{FileEffect, SocketEffect};

/// Which of the two queues between a pair of shards a message takes.
///
/// They are apart so that a burst of requests never takes the room of a reply. A machine keeps
/// account of its credits: it has at most as many requests under way to one peer as that lane has
/// slots, and every request is answered by exactly one reply, so that neither lane ever overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Asks something of the peer.
    Request,
    /// Answers a request of the peer.
    Reply,
}

/// One thing to do.
#[derive(Debug)]
pub enum Effect<M> {
    /// Something with a file or directory.
    File(FileEffect<Token>),
    /// Something with a socket.
    Socket(SocketEffect),
    /// Sends `message` to another machine of the node (or to this one).
    ///
    /// A lane that overflows is a bug of the sender's accounting, and ends the process.
    Mesh {
        /// To whom.
        to: ShardId,
        /// By which queue.
        lane: Lane,
        /// What.
        message: M,
    },
    /// Puts `message` into the latest-wins slot towards another machine: what was posted before
    /// and not yet taken is dropped. For immutable images, of which only the newest counts.
    Post {
        /// To whom.
        to: ShardId,
        /// What.
        message: M,
    },
    /// Asks for [`crate::Event::WakeUp`] at this time. A machine has one wake-up: a later call
    /// replaces an earlier one, and [`Instant::FAR_FUTURE`] cancels it.
    WakeAt(Instant),
    /// This machine has stopped; the process ends when all of them have.
    Stopped,
    /// Something happened after which this node must not go on. The process says the sentence and
    /// ends with exit code 1, at once.
    Fail {
        /// What happened and what to do, for the person who reads the log.
        sentence: String,
    },
}

/// The list that a step appends to.
#[derive(Debug)]
pub struct Effects<M> {
    list: Vec<Effect<M>>,
}

impl<M> Default for Effects<M> {
    fn default() -> Self {
        Self { list: Vec::new() }
    }
}

impl<M> Effects<M> {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends one effect.
    pub fn push(&mut self, effect: Effect<M>) {
        self.list.push(effect);
    }

    /// Appends a file effect.
    pub fn file(&mut self, effect: FileEffect<Token>) {
        self.push(Effect::File(effect));
    }

    /// Appends a socket effect.
    pub fn socket(&mut self, effect: SocketEffect) {
        self.push(Effect::Socket(effect));
    }

    /// Sends `message` to `to` by the request lane.
    pub fn request(&mut self, to: ShardId, message: M) {
        self.push(Effect::Mesh { to, lane: Lane::Request, message });
    }

    /// Sends `message` to `to` by the reply lane.
    pub fn reply(&mut self, to: ShardId, message: M) {
        self.push(Effect::Mesh { to, lane: Lane::Reply, message });
    }

    /// Takes everything out, in order, keeping the list's room for the next turn.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Effect<M>> {
        self.list.drain(..)
    }

    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The effects so far.
    pub fn as_slice(&self) -> &[Effect<M>] {
        &self.list
    }
}
