//! One socket as the driver keeps it.

use std::net::SocketAddr;
use std::sync::Arc;

use api::Token;
use ring::{OperationId, Socket};

use crate::sending::SendQueue;
use crate::transport::Transport;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A client opened it; it is not read yet, and its end is not told.
    Accepted,
    /// This side opens it; the token is that of the effect.
    Connecting(Token),
    /// It is read and written.
    Open,
    /// It closes when everything has been sent, and is not read any more.
    Flushing,
}

/// Why sending does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// It can: there is nothing to send, or it is in the list of those that will.
    Ready,
    /// The kernel takes no more; the operation tells when it does.
    Blocked(OperationId),
    /// A range of a file is read first.
    Warming,
}

pub(crate) struct Connection {
    pub(crate) socket: Arc<Socket>,
    pub(crate) peer: SocketAddr,
    pub(crate) stage: Stage,
    pub(crate) transport: Transport,
    /// Tells when something arrives; there while the connection is open.
    pub(crate) watch: Option<OperationId>,
    /// Something may be there to receive.
    pub(crate) readable: bool,
    /// The peer has ended its side: receiving goes on until that shows.
    pub(crate) ended: bool,
    /// It is in the list of those that are received from.
    pub(crate) listed_to_receive: bool,
    pub(crate) paused: bool,
    pub(crate) queue: SendQueue,
    pub(crate) sending: Sending,
    /// It is in the list of those that send in this turn.
    pub(crate) listed_to_send: bool,
}

impl Connection {
    pub(crate) fn new(
        socket: Arc<Socket>,
        peer: SocketAddr,
        stage: Stage,
        transport: Transport,
    ) -> Self {
        Self {
            socket,
            peer,
            stage,
            transport,
            watch: None,
            readable: false,
            ended: false,
            listed_to_receive: false,
            paused: false,
            queue: SendQueue::default(),
            sending: Sending::Ready,
            listed_to_send: false,
        }
    }

    /// Whether it is to be received from now.
    pub(crate) fn wants_to_receive(&self) -> bool {
        self.stage == Stage::Open && self.readable && !self.paused
    }

    /// Whether everything that was to be sent has left.
    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.transport.is_drained()
    }
}
