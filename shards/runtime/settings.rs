//! Limits and modes of a node.

use std::fmt;
use std::sync::Arc;

use crate::spin::Spin;
use crate::transport::Transform;

/// Limits and modes of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Messages in one lane between two machines, at most: what a machine's credits must fit.
    pub lane_slots: usize,
    /// Sockets of one machine, at most; a connection beyond is dropped.
    pub connections_max: usize,
    /// The size of the chunks that a core receives into: two or three largest frames at least.
    pub receive_chunk_bytes: usize,
    /// Bytes of such chunks on one core, at most: at that limit its reading pauses.
    pub receive_bytes_max: usize,
    /// Bytes of files that a core sends in one turn, over all connections. More costs less CPU,
    /// and makes everything else of the core wait longer.
    pub send_file_turn_bytes: usize,
    /// What a core does when it has nothing to do.
    pub spin: Spin,
    /// What stands between the machines' bytes and the wire.
    pub transport: TransportChoice,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lane_slots: 1024,
            connections_max: 100_000,
            receive_chunk_bytes: 512 << 10,
            receive_bytes_max: 64 << 20,
            send_file_turn_bytes: 256 << 10,
            spin: Spin::Adaptive,
            transport: TransportChoice::Plain,
        }
    }
}

type TransformFactory = Arc<dyn Fn(u16) -> Option<Box<dyn Transform>> + Send + Sync>;

/// The transport of the connections that clients open.
#[derive(Clone, Default)]
pub enum TransportChoice {
    /// Bytes go as they are.
    #[default]
    Plain,
    /// By the number of the listener (see [`api::SocketEffect::HandOver`]); `None` is plain.
    ByListener(TransformFactory),
}

impl TransportChoice {
    pub(crate) fn make(&self, listener: u16) -> Option<Box<dyn Transform>> {
        match self {
            Self::Plain => None,
            Self::ByListener(factory) => factory(listener),
        }
    }
}

impl fmt::Debug for TransportChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Plain => "Plain",
            Self::ByListener(_) => "ByListener",
        })
    }
}
