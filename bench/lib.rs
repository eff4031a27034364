//! Measuring: a load generator, the bare ceiling, and the comparison of Corelane with both the
//! ceiling and Apache Kafka.
//!
//! Depends on: `protocol` and `records` for the frames, `ring` for a client that costs little and
//! for the calls that a ceiling needs, `xtask` for Apache Kafka's jars. Deliberately absent: any
//! crate of the broker, since what is measured is the program as people run it, in a process of
//! its own.
#![allow(
    clippy::disallowed_methods,
    reason = "a measurement reads clocks and files, starts threads and processes, and waits"
)]

pub mod bare;
mod beside;
pub mod compare;
mod cursor;
mod frames;
mod latency;
mod load;
mod measure;
mod plot;
mod process;
mod scenario;
mod schedule;
mod servers;
mod table;
mod tools;
mod upkeep;
mod wire;
mod work;

pub use frames::BatchShape;
pub use latency::Latencies;
pub use load::{Answer, Load, Outcome, Pace, Plan, Work};
pub use schedule::Schedule;
pub use servers::Target;
pub use wire::{Client, Topic};
pub use work::{Fetch, FetchFrom, FetchShape, OffsetUnit, Produce};
