//! What the shards of one node say to each other.
//!
//! A shard asks another with a request, which names itself by the asker's token, and gets exactly
//! one reply. [`Credits`] keeps the lanes from overflowing. What an answer must wait for longer
//! than a disk takes (a fetch that waits for records, a member that waits for its group) is told
//! later, by a request in the other direction, so that no slot of a lane is held by a client's
//! patience. Which shard owns a partition stands in the [`Placement`], which is published with the
//! metadata image.
//!
//! Depends on: `base`, `shards/api`, `metadata`, and `protocol` for the requests that are passed
//! on whole. Deliberately absent: what is done with a message.

mod credits;
mod listener;
mod message;
mod partition;
mod placement;
mod quorum;

pub use credits::Credits;
pub use listener::ListenerSetup;
pub use message::{
    FoundFuture, FoundLog, GroupAsk, LogDirectory, LogPosition, Message, Published, Reply, Request,
};
pub use metadata::Endpoint;
pub use partition::{
    ActiveProducer, AppendAnswer, AppendAsk, AppendPartition, Appended, DeletePartition, Deleted,
    EpochEnd, EpochEndPartition, FetchAsk, FetchPartition, Fetched, FoundOffset, FoundProducers,
    LogSize, News, OffsetsPartition, ProducersPartition, WantedDirectory, Watch,
};
pub use placement::{PartitionKey, Placement};
pub use quorum::{ProducerIdBlock, QuorumReply, QuorumRequest};
