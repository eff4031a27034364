//! The words that every other crate speaks: identifiers, offsets, time, seeded randomness and
//! bounded containers.
//!
//! Depends on: nothing of this workspace. Deliberately absent: I/O, clocks, threads, errors of the
//! Kafka protocol, and anything that only one crate needs (an item enters when two crates use it).

mod double;
mod ids;
mod map;
mod random;
mod slab;
mod time;
mod timers;
pub mod varint;
pub mod wire;

pub use double::java_double;
pub use ids::{
    LeaderEpoch, NodeId, NotAUuid, Offset, PartitionIndex, ProducerEpoch, ProducerId, ShardId,
    TopicId, TopicPartition, Uuid,
};
pub use map::{Map, Set};
pub use random::Random;
pub use slab::{Slab, Token};
pub use time::{Duration, Instant, Now};
pub use timers::{TimerId, Timers};
