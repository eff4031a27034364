//! A listener, as the machines of a node are told of it.

use std::net::SocketAddr;
use std::sync::Arc;

use metadata::SecurityProtocol;

/// A listener of the node, for clients or for the controller.
#[derive(Clone, Debug)]
pub struct ListenerSetup {
    /// Its name, as in `listeners`.
    pub name: Arc<str>,
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// The host that clients are told.
    pub advertised_host: Arc<str>,
    /// The port that clients are told; none for the one that is listened at.
    pub advertised_port: Option<u16>,
    /// Its security protocol.
    pub security_protocol: SecurityProtocol,
}
