//! What an operation of the ring is for.

use api::{SocketId, Token};

/// The index of a machine on its thread.
pub(crate) type Seat = u16;

/// Goes with an operation through the ring and comes back with its completion.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// The bell of the thread rang.
    Bell,
    /// A client connected to the listener that this core knows by the number.
    Accept(u32),
    /// There is something to receive.
    Readable(Seat, SocketId),
    /// The kernel takes more to send, or the outcome of connecting is there.
    Writable(Seat, SocketId),
    /// A range of a file that is to be sent is in memory now.
    Warmed(Seat, SocketId),
    /// A file operation is done.
    File(Token),
    /// Nobody waits for it.
    Nobody,
}
