//! What a request does to the cluster: the rules of the active controller.
//!
//! Every function here is a `handle`: it takes the image of everything that was decided before, and
//! a request, and returns a [`Proposal`]: the records to write and what to answer once they are
//! committed. It changes nothing. What the records do is [`metadata::Image::replay`], the same on
//! every node. One file a concern, its rules and the sentences of its errors as Kafka has them.
//!
//! Depends on: `base`, `config` (what a configuration may be), `metadata`, `protocol`. Deliberately
//! absent: the log, its offsets and its leader (`raft`), waiting for a commit (`quorum`), and who
//! may ask (the connection's shard authorises).

mod activation;
mod assignment;
mod brokers;
mod configs;
mod controllers;
mod directories;
mod elections;
mod features;
mod leaders;
mod outcome;
mod params;
mod partition_change;
mod partitions;
mod placement;
mod producer_ids;
mod quotas;
mod reassignments;
mod scram;
mod topics;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use activation::{Activation, activation_records};
pub use brokers::{HeartbeatAnswer, heartbeat, register_broker, unregister_broker};
pub use configs::{alter_configs, incremental_alter_configs};
pub use controllers::register_controller;
pub use directories::assign_replicas;
pub use elections::elect_leaders;
pub use features::update_features;
pub use metadata::METADATA_TOPIC;
pub use outcome::{ApiError, Proposal};
pub use params::{PARTITIONS_PER_REQUEST_MAX, Params, RECORDS_PER_REQUEST_MAX};
pub use partitions::create_partitions;
pub use producer_ids::{PRODUCER_IDS_PER_BLOCK, allocate_producer_ids};
pub use quotas::alter_client_quotas;
pub use reassignments::alter_partition_reassignments;
pub use scram::{
    SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN, ScramMechanism, alter_scram_credentials,
};
pub use topics::{create_topics, delete_topics};
