//! Sockets as a machine sees them.

use std::net::SocketAddr;

use base::{ShardId, Token};
use bytes::Bytes;

use crate::{FileSlice, IoError};

/// Names one socket of one shard. Dense: [`SocketId::index`] can index a table of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub Token);

impl SocketId {
    /// The index of its slot, small and used again after the socket has closed.
    pub const fn index(self) -> usize {
        self.0.index()
    }
}

/// One part of what is sent.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A range of a file, which goes from the page cache to the socket without entering user
    /// space where the transport allows it.
    File(FileSlice),
}

impl Part {
    /// How many bytes it puts on the wire.
    pub fn len(&self) -> usize {
        match self {
            Part::Bytes(bytes) => bytes.len(),
            Part::File(slice) => slice.length as usize,
        }
    }

    /// Whether it puts nothing on the wire.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps at most the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        match self {
            Part::Bytes(bytes) => bytes.truncate(len),
            Part::File(slice) => {
                slice.length = u32::try_from(len).map_or(slice.length, |len| slice.length.min(len));
            }
        }
    }
}

/// What to do with a socket. A socket that is closed already makes every one of these a no-op.
#[derive(Debug)]
pub enum SocketEffect {
    /// Opens a listening socket; answered by [`crate::Event::Listening`]. Another process that
    /// listens at the same address makes it fail.
    Listen {
        /// Comes back with `Listening` and every `Accepted`.
        token: Token,
        /// Where; port 0 takes a free one.
        address: SocketAddr,
        /// Connections that wait to be accepted, at most.
        backlog: i32,
    },
    /// Stops listening. Nothing answers it.
    StopListening {
        /// The token of the `Listen`.
        token: Token,
    },
    /// Moves an accepted socket to the shard that will serve it, which is told `Opened`. On this
    /// shard the id is void from now on.
    HandOver {
        /// A socket of [`crate::Event::Accepted`].
        socket: SocketId,
        /// To whom; may be the shard itself.
        to: ShardId,
        /// A number that is passed along: which listener it came by.
        listener: u16,
    },
    /// Opens a connection; answered by [`crate::Event::Connected`].
    Connect {
        /// Comes back with `Connected`.
        token: Token,
        /// Where to.
        address: SocketAddr,
    },
    /// Sends `parts`, behind everything that was sent on this socket before.
    Send {
        /// On which socket.
        socket: SocketId,
        /// What, in order.
        parts: Vec<Part>,
    },
    /// Closes the socket: at once, or after everything that was sent has left.
    Close {
        /// Which socket.
        socket: SocketId,
        /// Whether what was sent before leaves first.
        flush: bool,
    },
    /// Stops reading: back-pressure towards the client. Bytes that the driver has taken from the
    /// kernel already in this turn may still arrive.
    PauseRead {
        /// Which socket.
        socket: SocketId,
    },
    /// Reads again.
    ResumeRead {
        /// Which socket.
        socket: SocketId,
    },
}

/// Why a socket closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// This machine closed it.
    Asked,
    /// The peer closed it in order.
    PeerClosed,
    /// The transport failed.
    Failed(IoError),
}
