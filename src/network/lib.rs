//! What a machine of this system makes of sockets: requests on connections.
//!
//! [`Connections`] are those that others have opened to it: streams are cut into requests
//! ([`Frames`]), answers leave in their order, and memory has its limits. [`Peers`] are those that
//! it has opened itself, one a node: questions leave by them, and answers or failures come back.
//!
//! Depends on: `base`, `protocol`, `shards/api`. Deliberately absent: what a request means.

mod complaints;
mod connections;
mod frames;
mod peers;
mod served;

pub use complaints::Complaints;
pub use connections::{
    CALLS_PER_CONNECTION_MAX, Connection, Connections, REQUEST_BYTES_MAX, Room, STALL_MAX,
    UNSENT_BYTES_MAX,
};
pub use frames::{FrameError, Frames};
pub use peers::{Answer, AnswerError, PEER_QUESTIONS_MAX, PeerEvent, PeerSettings, Peers, Why};
pub use served::{Bound, bound, taken_api};
