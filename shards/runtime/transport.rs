//! What stands between what a machine sends and what the wire carries.

use bytes::Bytes;

/// Turns plain bytes into what goes over the wire and back, as TLS does.
///
/// One belongs to one connection. A plain connection has none: its file slices go from the page
/// cache to the socket; a transforming one reads them into memory first.
pub trait Transform: Send {
    /// What goes over the wire for `plain`, behind everything sealed before.
    fn seal(&mut self, plain: &[u8]) -> Bytes;

    /// The plain bytes that `received` completes; none if more must arrive first.
    ///
    /// # Errors
    /// What arrived cannot be what a peer that keeps the rules sends: the connection is closed.
    fn open(&mut self, received: Bytes) -> Result<Bytes, BadTransport>;
}

/// Why what arrived cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadTransport(pub String);

/// The transport of one connection.
pub(crate) enum Transport {
    Plain,
    Transforming(Transforming),
}

pub(crate) struct Transforming {
    pub(crate) transform: Box<dyn Transform>,
    /// What is sealed and has not left yet.
    pub(crate) sealed: Bytes,
    /// How many plain bytes that stands for: they count as sent when all of it has left.
    pub(crate) plain_bytes: u64,
}

impl Transport {
    pub(crate) fn new(transform: Option<Box<dyn Transform>>) -> Self {
        match transform {
            None => Self::Plain,
            Some(transform) => {
                Self::Transforming(Transforming { transform, sealed: Bytes::new(), plain_bytes: 0 })
            }
        }
    }

    pub(crate) fn open(&mut self, received: Bytes) -> Result<Bytes, BadTransport> {
        match self {
            Self::Plain => Ok(received),
            Self::Transforming(transforming) => transforming.transform.open(received),
        }
    }

    /// Whether everything that was given to it has left.
    pub(crate) fn is_drained(&self) -> bool {
        match self {
            Self::Plain => true,
            Self::Transforming(transforming) => transforming.sealed.is_empty(),
        }
    }
}
