//! What a data shard knows of its own life; `lifecycle` has the way from stage to stage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::SocketId;
use base::{Instant, Offset, ShardId, Token};
use commitlog::Directory;
use intercom::{Endpoint, LogDirectory, LogPosition};

use crate::owner::Asker;
use crate::setup::Setup;

/// Where the shard is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LifeStage {
    Loading,
    Registering,
    Serving,
    ClosingLogs,
    Checkpointing,
    Stopped,
}

/// What a shard knows of its own life.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) stage: LifeStage,
    /// The node was asked to stop: once more changes nothing.
    pub(crate) was_asked_to_stop: bool,
    /// What the directories held, once the keeper has read them.
    pub(crate) found: Option<Arc<[LogDirectory]>>,
    /// The logs that were there have been opened: every other one is new.
    pub(crate) has_forgotten_logs: bool,
    pub(crate) keeper: Option<Keeper>,
}

/// What is known of the folders in the directories (`strays`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Folders {
    /// Nothing was decided yet.
    Unknown,
    /// A partition has several logs. These directories, by index, are still to say which of theirs
    /// are copies.
    FindingCopies(BTreeSet<u16>),
    /// Each has its name once no directory has anything to do.
    Known,
    /// Nobody can tell which one of two logs is to be used: the node ends.
    Refused,
}

/// What only the keeper has.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) directories: Vec<Directory>,
    pub(crate) found: Vec<Option<LogDirectory>>,
    pub(crate) folders: Folders,
    /// What is left of deleted logs stays: a log was not found.
    pub(crate) keeps_deleted: bool,
    /// When the listeners were first tried.
    pub(crate) listens_since: Instant,
    /// Each listener, once it is open.
    pub(crate) endpoints: Vec<Option<Endpoint>>,
    /// The epoch that the controller gave this broker.
    pub(crate) broker_epoch: i64,
    pub(crate) early: Vec<(Token, SocketId)>,
    /// Connections of each data shard.
    pub(crate) loads: Vec<u32>,
    /// Who waits until checkpoints are written, and by which round.
    pub(crate) checkpoint_asks: Vec<(Asker, Offset, u64)>,
    /// Counts the rounds of writing checkpoints that have begun.
    pub(crate) checkpoint_round: u64,
    /// Another round is due when this one is over. Begun within it, rounds that come faster than
    /// the disk writes would never end.
    pub(crate) checkpoints_again: bool,
    /// Where the logs of the node stood when their shards last said so; none of a shard that stops
    /// before it knows its logs.
    pub(crate) positions: BTreeMap<ShardId, Option<Vec<LogPosition>>>,
    /// Data shards whose logs are all closed.
    pub(crate) shards_closed: u16,
    /// Directories, by index, in which not every log could be closed in order.
    pub(crate) unclosed: BTreeSet<u16>,
    /// Directories, by index, whose failure the controller has been told.
    pub(crate) reported: BTreeSet<u16>,
}

impl Life {
    pub(crate) fn new(setup: &Setup) -> Self {
        let keeper = setup.is_keeper().then(|| Keeper {
            directories: Vec::new(),
            found: setup.log_directories.iter().map(|_| None).collect(),
            folders: Folders::Unknown,
            keeps_deleted: false,
            listens_since: Instant::default(),
            endpoints: setup.listeners.iter().map(|_| None).collect(),
            broker_epoch: -1,
            early: Vec::new(),
            loads: vec![0; usize::from(setup.data_shards)],
            checkpoint_asks: Vec::new(),
            checkpoint_round: 0,
            checkpoints_again: false,
            positions: BTreeMap::new(),
            shards_closed: 0,
            unclosed: BTreeSet::new(),
            reported: BTreeSet::new(),
        });
        Self {
            stage: LifeStage::Loading,
            was_asked_to_stop: false,
            found: None,
            has_forgotten_logs: false,
            keeper,
        }
    }

    /// What the log directories held, once it is known.
    pub(crate) fn found(&self) -> Option<&Arc<[LogDirectory]>> {
        self.found.as_ref()
    }

    /// The logs that were there have been opened.
    pub(crate) fn forget_logs(&mut self) {
        let found = self.found.iter().flat_map(|found| found.iter());
        self.found = Some(found.map(LogDirectory::without_logs).collect());
        self.has_forgotten_logs = true;
    }

    /// Whether the node is being stopped.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stage >= LifeStage::ClosingLogs
    }

    /// A data shard says how many connections it has.
    pub(crate) fn note_load(&mut self, shard: ShardId, connections: u32) {
        if let Some(load) = self.keeper().loads.get_mut(usize::from(shard.0)) {
            *load = connections;
        }
    }

    /// What only the keeper has.
    pub(crate) fn keeper(&mut self) -> &mut Keeper {
        self.keeper.as_mut().expect("only the keeper has to do with this")
    }

    /// Goes on to another stage.
    pub(crate) fn enter(&mut self, stage: LifeStage) {
        tracing::debug!(from = ?self.stage, to = ?stage, "life");
        self.stage = stage;
    }
}
