//! What the shards of one node say to each other.
//!
//! A shard asks another with a request, which names itself by the asker's token, and gets exactly
//! one reply. [`Credits`] keeps the lanes from overflowing. What an answer must wait for longer
//! than a disk takes (a fetch that waits for records, a member that waits for its group) is told
//! later, by a request in the other direction, so that no slot of a lane is held by a client's
//! patience. Which shard owns a partition stands in the [`Placement`], which is published with the
//! metadata image.
//!
//! Depends on: `base`, `shards/api`. Deliberately absent: what is done with a message.

mod credits;
mod placement;

pub use credits::Credits;
pub use placement::{PartitionKey, Placement};
