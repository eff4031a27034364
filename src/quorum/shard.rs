//! What the shard is made of.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use base::{Duration, Instant, NodeId, Now, Offset, Random, ShardId, Token, Uuid};
use commitlog::LogConfig;
use config::BrokerConfig;
use intercom::{ListenerSetup, QuorumReply, QuorumRequest};
use metadata::{Image, Timeline, VersionedRecord};
use raft::snapshot::{Snapshot, SnapshotId};
use raft::{
    ElectionState, ElectionWritten, Raft, ReplicaKey, Timing, Voter, VoterEndpoint, VoterSet,
};

use crate::clients::Clients;
use crate::owners::Owners;
use crate::snapshots::Snapshots;
use crate::store::Store;

/// How long the shard stays for a broker that was registered and is to stop.
const BROKER_STOP_MAX: Duration = Duration::from_secs(60);
/// How long it stays for one that never came up.
const SILENT_BROKER_STOP_MAX: Duration = Duration::from_secs(1);

/// What the quorum shard is made of.
#[derive(Clone, Debug)]
pub struct QuorumParams {
    /// The id of the cluster, from `meta.properties`.
    pub cluster_id: String,
    /// The node's configuration file.
    pub config: Arc<BrokerConfig>,
    /// The directory that holds the metadata log's folder.
    pub directory: PathBuf,
    /// The id of that directory.
    pub directory_id: Uuid,
    /// The data shards of the node, which are the shards from 0 on. This shard is the next one.
    pub data_shards: u16,
    /// The listeners of the controller.
    pub listeners: Arc<[ListenerSetup]>,
    /// Where ids and placements come from.
    pub random: Random,
}

/// Where the shard is in its life.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The disk is read.
    Loading(Box<Loading>),
    /// The epoch is claimed.
    Electing,
    /// It leads.
    Leading {
        /// The offset behind everything that activation wrote: from there on others may know.
        activated: Offset,
    },
    /// The log is closed.
    Closing,
    /// Nothing more happens.
    Over,
}

/// Who has asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    /// A data shard of this node.
    Shard {
        /// Which one.
        shard: ShardId,
        /// Its name for the question.
        id: Token,
    },
    /// A call on a connection to the controller.
    Client(Token),
}

/// An answer that waits for its records.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Everything below is to be committed first.
    pub(crate) offset: Offset,
    pub(crate) to: Asker,
    pub(crate) reply: QuorumReply,
}

/// A request that waits until this node leads, or until the disk has caught up.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) from: Asker,
    pub(crate) request: Box<QuorumRequest>,
}

/// The quorum shard.
#[derive(Debug)]
pub struct Quorum {
    pub(crate) params: QuorumParams,
    pub(crate) controller: controller::Params,
    pub(crate) clients: Clients,
    pub(crate) store: Store,
    pub(crate) snapshots: Snapshots,
    pub(crate) raft: Raft,
    pub(crate) timeline: Timeline,
    pub(crate) random: Random,
    pub(crate) stage: Stage,
    pub(crate) life: Life,
    pub(crate) owners: Owners,
    /// The last high watermark that raft has let out; it may know of a higher one already.
    pub(crate) committed: Option<Offset>,
    /// The image of the last publication.
    pub(crate) published: Option<Arc<Image>>,
    /// In order of their offsets.
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) waiting: VecDeque<Waiting>,
    pub(crate) no_op_at: Instant,
}

impl Quorum {
    /// The quorum shard of a node whose directory was formatted.
    pub fn new(params: QuorumParams) -> Self {
        let config = &params.config;
        let node = config.node_id;
        let voters = static_voters(config);
        let controller = controller::Params {
            cluster_id: params.cluster_id.clone(),
            node,
            quorum_nodes: voters.ids(),
            config: Arc::clone(config),
        };
        let folder = params.directory.join(format!("{}-0", controller::METADATA_TOPIC));
        let mut random = params.random.fork("quorum");
        let raft = Raft::new(raft::Params {
            own: own_voter(config, params.directory_id),
            cluster_id: params.cluster_id.as_str().into(),
            configured_voters: voters,
            bootstrap_servers: config.quorum_bootstrap_servers.len(),
            timing: Timing::default(),
            random: params.random.fork("raft"),
        });
        let life = Life::new(&mut random);
        Self {
            controller,
            clients: Clients::new(
                ShardId(params.data_shards),
                Arc::clone(&params.listeners),
                &config.simple,
            ),
            store: Store::new(folder, log_config(config)),
            snapshots: Snapshots::new(&config.simple),
            raft,
            timeline: Timeline::default(),
            stage: Stage::Loading(Box::default()),
            life,
            owners: Owners::new(params.data_shards),
            committed: None,
            published: None,
            pending: VecDeque::new(),
            waiting: VecDeque::new(),
            no_op_at: Instant::FAR_FUTURE,
            random,
            params,
        }
    }

    /// The number of this node.
    pub(crate) fn node(&self) -> NodeId {
        self.controller.node
    }
}

/// What was found so far.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    /// `quorum-state`; none where there is no such file.
    pub(crate) election: Option<Option<ElectionState>>,
    /// The newest snapshot, once it was read.
    pub(crate) snapshot: Option<(SnapshotId, Snapshot)>,
    /// Which snapshot is the newest.
    pub(crate) snapshot_id: Option<SnapshotId>,
    /// Whether the log is open and is not being read yet.
    pub(crate) log_is_open: bool,
    /// The records that an empty log begins with.
    pub(crate) bootstrap: Vec<VersionedRecord>,
}

/// What the shard knows of its own life and of its broker's.
#[derive(Debug)]
pub(crate) struct Life {
    /// Differs for every start of the broker.
    pub(crate) broker_incarnation: Uuid,
    /// Differs for every start of the controller.
    pub(crate) controller_incarnation: Uuid,
    /// The records that an empty log begins with.
    pub(crate) bootstrap: Vec<VersionedRecord>,
    /// What goes back to raft when the claim of an epoch is durable.
    pub(crate) election_written: Option<ElectionWritten>,
    /// The epoch of the registered broker.
    pub(crate) broker_epoch: Option<i64>,
    /// Whether the broker has asked to be fenced.
    pub(crate) broker_stops: bool,
    /// When the shard stops, whatever its broker does; set when the node is asked to stop.
    pub(crate) stop_at: Option<Instant>,
}

impl Life {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self {
            broker_incarnation: Uuid::random(random),
            controller_incarnation: Uuid::random(random),
            bootstrap: Vec::new(),
            election_written: None,
            broker_epoch: None,
            broker_stops: false,
            stop_at: None,
        }
    }

    /// The epoch of the registered broker; −1 where it is not registered.
    pub(crate) fn broker_epoch(&self) -> i64 {
        self.broker_epoch.unwrap_or(-1)
    }

    /// The node is asked to stop: the broker goes first.
    pub(crate) fn stop(&mut self, now: Now) {
        let patience = match self.broker_epoch {
            Some(_) => BROKER_STOP_MAX,
            None => SILENT_BROKER_STOP_MAX,
        };
        self.stop_at.get_or_insert(now.mono + patience);
    }

    pub(crate) fn next_timer(&self) -> Instant {
        self.stop_at.unwrap_or(Instant::FAR_FUTURE)
    }
}

/// This node, as a voter of its quorum.
fn own_voter(config: &BrokerConfig, directory: Uuid) -> Voter {
    let listeners = config.advertised_controller_listeners.iter();
    let endpoints = listeners.map(|listener| VoterEndpoint {
        listener: listener.name.as_str().into(),
        host: listener.host.as_str().into(),
        port: listener.port,
    });
    Voter {
        key: ReplicaKey { id: config.node_id, directory },
        endpoints: endpoints.collect(),
        kraft_versions: (0, 1),
    }
}

/// The voters of `controller.quorum.voters`.
fn static_voters(config: &BrokerConfig) -> VoterSet {
    let voters = config.quorum_voters.iter().map(|voter| Voter {
        key: ReplicaKey { id: voter.id, directory: Uuid::ZERO },
        endpoints: vec![VoterEndpoint {
            listener: config.controller_listener_names.first().map_or("", String::as_str).into(),
            host: voter.endpoint.host.as_str().into(),
            port: voter.endpoint.port,
        }],
        kraft_versions: (0, 1),
    });
    VoterSet::new(voters.collect())
}

/// The settings of the metadata log, which is never deleted by age or size: what a snapshot holds
/// may go, and nothing else (`KafkaMetadataLog`).
fn log_config(config: &BrokerConfig) -> LogConfig {
    let (simple, defaults) = (&config.simple, LogConfig::default());
    let segment_bytes = match config.settings().get("internal.metadata.log.segment.bytes") {
        Some(config::Value::Integer(bytes)) => u32::try_from(*bytes),
        _ => u32::try_from(simple.metadata_log_segment_bytes),
    };
    LogConfig {
        segment_bytes: segment_bytes.unwrap_or(defaults.segment_bytes),
        segment_ms: simple.metadata_log_segment_ms,
        retention_ms: None,
        retention_bytes: None,
        delete_by_retention: false,
        ..defaults
    }
}
