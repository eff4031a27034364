//! What a data shard is told when it is made.

use std::path::PathBuf;
use std::sync::Arc;

use base::{NodeId, ShardId, Uuid};
use config::BrokerConfig;
use intercom::ListenerSetup;

/// One of the node's log directories.
#[derive(Clone, Debug)]
pub struct LogDirectorySetup {
    /// Where it is.
    pub path: PathBuf,
    /// Its id, from its `meta.properties`.
    pub id: Uuid,
    /// Why it could not even be read, if so; its id is `DirectoryId.LOST` then.
    pub offline: Option<String>,
}

/// What a data shard is told when it is made.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Which of the node's machines it is. Data shards are `0..data_shards`.
    pub shard: ShardId,
    /// How many data shards the node has.
    pub data_shards: u16,
    /// The quorum shard.
    pub quorum: ShardId,
    /// Slots of a lane between two machines.
    pub lane_slots: u32,
    /// The node.
    pub node: NodeId,
    /// Its cluster.
    pub cluster_id: Arc<str>,
    /// Its configuration.
    pub config: Arc<BrokerConfig>,
    /// Its log directories, in the order of `log.dirs`.
    pub log_directories: Arc<[LogDirectorySetup]>,
    /// Bytes that the node may have written into one of its log directories and not brought to the
    /// disk. A disk that is slower than the network would else be covered by the page cache until
    /// the kernel's limit of dirty memory stalls every write of a core, to any disk.
    pub dirty_bytes_max: u64,
    /// Calls of one shard at once; at the limit no connection starts another one. What may wait at
    /// an owner is bounded by it too, since a client that goes away leaves there what it asked.
    pub calls_max: usize,
    /// The listeners for clients. The first data shard opens them; the others know their names.
    pub listeners: Arc<[ListenerSetup]>,
}

impl Setup {
    /// The data shard that accepts connections and keeps the log directories' own files.
    pub const KEEPER: ShardId = ShardId(0);
    /// What [`Setup::calls_max`] is in production.
    pub const CALLS_MAX: usize = 1 << 16;

    /// Whether this shard is that one.
    pub fn is_keeper(&self) -> bool {
        self.shard == Self::KEEPER
    }
}
