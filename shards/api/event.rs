//! What a driver tells a machine.

use std::net::SocketAddr;

use base::{ShardId, Token};
use bytes::Bytes;

use crate::{CloseReason, FileOutcome, IoResult, SocketId};

/// Something that happened. Events of one socket, of one lane and of one file arrive in order.
#[derive(Debug)]
pub enum Event<M> {
    /// The first event of a machine.
    Started,

    /// A listening socket is open (with the port that was really taken), or could not be opened.
    Listening {
        /// The token of the [`crate::SocketEffect::Listen`].
        token: Token,
        /// The local address, or why there is none.
        result: IoResult<SocketAddr>,
    },
    /// A client connected. The socket is not read yet: the machine hands it over to a shard
    /// (which may be itself) with [`crate::SocketEffect::HandOver`], or closes it.
    Accepted {
        /// The token of the [`crate::SocketEffect::Listen`].
        token: Token,
        /// The new socket, known to this shard only.
        socket: SocketId,
        /// Where it comes from.
        peer: SocketAddr,
    },
    /// A socket was handed to this shard. It is read from now on.
    Opened {
        /// The socket, under the id that this shard uses for it.
        socket: SocketId,
        /// The number that [`crate::SocketEffect::HandOver`] passed along.
        listener: u16,
        /// Where it comes from.
        peer: SocketAddr,
    },
    /// A connection that this machine asked for is there, and read from now on, or failed.
    Connected {
        /// The token of the [`crate::SocketEffect::Connect`].
        token: Token,
        /// The socket, or why there is none.
        result: IoResult<SocketId>,
    },
    /// Bytes arrived. They are a slice of a chunk that the whole core receives into: a slice that
    /// is kept keeps the chunk. What should stay for long is copied out.
    Received {
        /// Where they arrived.
        socket: SocketId,
        /// The bytes, never empty.
        bytes: Bytes,
    },
    /// The kernel took `bytes` more of what was to be sent on this socket.
    Sent {
        /// On which socket.
        socket: SocketId,
        /// How many bytes since the last such event.
        bytes: u64,
    },
    /// The socket is gone; this is its last event, and it comes exactly once for every socket
    /// that was opened or connected.
    Closed {
        /// Which socket.
        socket: SocketId,
        /// Why.
        reason: CloseReason,
    },

    /// A file effect is done.
    File {
        /// The token of the effect.
        token: Token,
        /// What came of it.
        outcome: FileOutcome,
    },

    /// Another machine of this node says something.
    Mesh {
        /// Who.
        from: ShardId,
        /// What.
        message: M,
    },

    /// The time asked for with [`crate::Effect::WakeAt`] has come.
    WakeUp,
    /// The process is asked to stop in order (SIGTERM, SIGINT). The machine finishes what was
    /// acknowledged, closes its files cleanly and answers [`crate::Effect::Stopped`].
    Stop,
}
