//! What a node is made of: its machines, each with its shard id.
//!
//! The server puts them on pinned threads, the simulator into its fake world (decision 0005); both
//! get the same machines from the same plan.
//!
//! Depends on: `broker`, `quorum`, `config`. Deliberately absent: files, threads, and where a
//! machine runs.

use std::path::PathBuf;
use std::sync::Arc;

use api::Machine;
use base::{NodeId, Random, ShardId, Uuid};
use broker::{Setup, Shard};
use config::{BrokerConfig, Value};
use quorum::{Quorum, QuorumParams};

pub use broker::LogDirectorySetup;
pub use intercom::{ListenerSetup, Message};
pub use metadata::{DIRECTORY_LOST, SecurityProtocol};
pub use quorum::{OfflineLog, OfflineRead, SnapshotId, format};

/// Everything that was read of configuration, directories and machine before a node starts.
#[derive(Clone, Debug)]
pub struct NodePlan {
    /// Its configuration.
    pub config: Arc<BrokerConfig>,
    /// Its cluster, as its directories say.
    pub cluster_id: Arc<str>,
    /// Its log directories, in the order of `log.dirs`.
    pub log_directories: Arc<[LogDirectorySetup]>,
    /// Bytes that it may have written into one of them and not brought to the disk
    /// ([`broker::Setup::dirty_bytes_max`]).
    pub dirty_bytes_max: u64,
    /// Where its metadata log is.
    pub metadata_directory: PathBuf,
    /// The id of that directory.
    pub metadata_directory_id: Uuid,
    /// The listeners for clients.
    pub listeners: Arc<[ListenerSetup]>,
    /// The listeners of the controller.
    pub controller_listeners: Arc<[ListenerSetup]>,
    /// How many data shards it has.
    pub data_shards: u16,
    /// Slots of a lane between two machines.
    pub lane_slots: u32,
    /// Everything random in it follows from this.
    pub seed: u64,
}

/// What a machine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It owns connections and partitions.
    Data,
    /// It owns the metadata log.
    Quorum,
}

/// Makes a machine on the thread that it will run on.
pub type Build = Box<dyn FnOnce() -> Box<dyn Machine<Message = Message>> + Send>;

/// One machine of a node.
pub struct NodeMachine {
    /// Its id; they are dense, the quorum shard's is the last.
    pub shard: ShardId,
    /// What it does.
    pub role: Role,
    /// Makes it.
    pub build: Build,
}

impl std::fmt::Debug for NodeMachine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:?} machine {}", self.role, self.shard)
    }
}

/// The machines of a node, in order of their ids.
///
/// # Errors
/// A sentence, if the configuration asks for a node that cannot be made yet.
pub fn machines(plan: &NodePlan) -> Result<Vec<NodeMachine>, String> {
    check(&plan.config)?;
    let random = Random::new(plan.seed);
    let quorum = ShardId(plan.data_shards);
    let mut machines = Vec::new();
    for shard in (0..plan.data_shards).map(ShardId) {
        let setup = setup(plan, shard, quorum);
        let random = random.fork(&format!("data {shard}"));
        let build: Build = Box::new(move || Box::new(Shard::new(setup, random)));
        machines.push(NodeMachine { shard, role: Role::Data, build });
    }
    let params = QuorumParams {
        cluster_id: plan.cluster_id.to_string(),
        config: Arc::clone(&plan.config),
        directory: plan.metadata_directory.clone(),
        directory_id: plan.metadata_directory_id,
        data_shards: plan.data_shards,
        listeners: Arc::clone(&plan.controller_listeners),
        random: random.fork("quorum"),
    };
    let build: Build = Box::new(move || Box::new(Quorum::new(params)));
    machines.push(NodeMachine { shard: quorum, role: Role::Quorum, build });
    Ok(machines)
}

fn setup(plan: &NodePlan, shard: ShardId, quorum: ShardId) -> Setup {
    Setup {
        shard,
        data_shards: plan.data_shards,
        quorum,
        lane_slots: plan.lane_slots,
        node: plan.config.node_id,
        cluster_id: Arc::clone(&plan.cluster_id),
        config: Arc::clone(&plan.config),
        log_directories: Arc::clone(&plan.log_directories),
        dirty_bytes_max: plan.dirty_bytes_max,
        calls_max: Setup::CALLS_MAX,
        listeners: Arc::clone(&plan.listeners),
    }
}

/// Refuses what would be started as something else than it was meant.
fn check(config: &BrokerConfig) -> Result<(), String> {
    if !(config.roles.broker && config.roles.controller) {
        return Err("process.roles: only a combined node (broker,controller) can be started yet; \
                    a broker or controller alone needs a cluster of several nodes"
            .to_owned());
    }
    let others = config.quorum_voters.iter().filter(|voter| voter.id != config.node_id);
    let others: Vec<NodeId> = others.map(|voter| voter.id).collect();
    if let Some(other) = others.first() {
        return Err(format!(
            "controller.quorum.voters names node {other}: a quorum of several voters cannot be \
             started yet. Name this node ({}) alone",
            config.node_id
        ));
    }
    if config.settings().originals().contains_key("authorizer.class.name") {
        return Err("authorizer.class.name: ACLs are not enforced yet, and a node that ignores \
                    them would let everybody in. Remove the setting to start without"
            .to_owned());
    }
    let tiered = config.settings().get("remote.log.storage.system.enable");
    if tiered == Some(&Value::Boolean(true)) {
        return Err(
            "remote.log.storage.system.enable: there is no tiered storage yet, and what is \
                    in a tier could not be read. Remove the setting to start without"
                .to_owned(),
        );
    }
    Ok(())
}
