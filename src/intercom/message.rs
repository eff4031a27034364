//! The two kinds of message, and what they can be about.

use std::sync::Arc;

use api::SocketId;
use base::{LeaderEpoch, Map, NodeId, Offset, Token, TopicId, TopicPartition};
use group::{GroupCall, GroupReply};
use metadata::Image;
use protocol::ErrorCode;

use crate::partition::{
    AppendAnswer, AppendAsk, DeletePartition, Deleted, EpochEnd, EpochEndPartition, FetchAsk,
    Fetched, FoundOffset, FoundProducers, LogSize, News, OffsetsPartition, ProducersPartition,
    WantedDirectory,
};
use crate::placement::{PartitionKey, Placement};
use crate::quorum::{QuorumReply, QuorumRequest};

/// What one shard sends another.
#[derive(Debug)]
pub enum Message {
    /// Asks something; takes a credit, and is answered by exactly one reply.
    Request {
        /// The asker's name for it.
        id: Token,
        /// What is asked.
        body: Request,
    },
    /// Answers a request.
    Reply {
        /// The name that the request had.
        id: Token,
        /// The answer.
        body: Reply,
    },
    /// The newest metadata, for every data shard. It travels in the latest-wins slot.
    Published(Published),
    /// What the log directories held, and which of them are offline now, from the shard that keeps
    /// them to the other data shards. It travels in the latest-wins slot.
    Found(Arc<[LogDirectory]>),
    /// From a data shard to the quorum shard: no folder of a topic that was deleted up to this
    /// offset of the metadata log bears its name any more. It travels in the latest-wins slot.
    Settled(Offset),
    /// How many connections a data shard has, for the shard that hands them out. It travels in
    /// the latest-wins slot.
    Load {
        /// Connections now.
        connections: u32,
    },
}

/// The cluster at one offset of the metadata log, and where its partitions live on this node.
#[derive(Clone, Debug)]
pub struct Published {
    /// The cluster.
    pub image: Arc<Image>,
    /// Which shard owns a partition of this node.
    pub placement: Placement,
    /// The finalised level of `kraft.version`, which is not in the image.
    pub kraft_version: i16,
    /// The active controller, or [`NodeId::NONE`].
    pub leader: NodeId,
    /// Its epoch.
    pub leader_epoch: LeaderEpoch,
}

/// What can be asked.
#[derive(Debug)]
pub enum Request {
    /// Of the quorum shard.
    Quorum(Box<QuorumRequest>),
    /// Append to partitions.
    Append(AppendAsk),
    /// Read partitions.
    Fetch(FetchAsk),
    /// Find offsets.
    Offsets(Vec<OffsetsPartition>),
    /// Find the ends of epochs.
    EpochEnds(Vec<EpochEndPartition>),
    /// Tell who writes to partitions.
    Producers(Vec<ProducersPartition>),
    /// Move log start offsets.
    DeleteRecords(Vec<DeletePartition>),
    /// Of the coordinators of groups.
    Group(Vec<GroupAsk>),
    /// Sizes of all logs of the shard.
    LogSizes,
    /// Keep replicas in other log directories.
    MoveReplicas(Arc<[WantedDirectory]>),
    /// To a home shard: the answer to a question that was answered by [`Reply::Later`]. Answered by
    /// [`Reply::Taken`].
    Late {
        /// The name that the question had.
        id: Token,
        /// The answer.
        body: Box<Reply>,
    },
    /// To the shard that keeps the log directories: where the asker's logs stand. Answered by
    /// [`Reply::Checkpointed`], and by [`Reply::Taken`] where the asker stops.
    Checkpoints {
        /// The asker has no folders of topics that were deleted up to this offset.
        settled: Offset,
        /// Every log that the asker has; none where it stops before it knows them.
        positions: Option<Vec<LogPosition>>,
        /// Whether they are closed: the asker stops.
        closed: bool,
        /// Directories, by index, in which not every log could be closed in order.
        unclosed: Vec<u16>,
    },
    /// To the shard that keeps the log directories: one of them can no longer be trusted. Answered
    /// by [`Reply::Taken`].
    DirectoryFailed {
        /// Which, by index.
        directory: u16,
        /// What happened.
        sentence: String,
    },
    /// To a home shard: what its watches have waited for. Answered by [`Reply::Taken`].
    News(Vec<News>),
    /// To an owner: nobody waits at this connection of the asker any more. Answered by
    /// [`Reply::Taken`].
    Unwatch(SocketId),
}

/// What can be answered.
#[derive(Debug)]
pub enum Reply {
    /// Of the quorum shard.
    Quorum(Box<QuorumReply>),
    /// To an append.
    Append(AppendAnswer),
    /// To a read, in its order.
    Fetch(Vec<Fetched>),
    /// To a search for offsets, in its order.
    Offsets(Vec<FoundOffset>),
    /// To a search for the ends of epochs, in its order.
    EpochEnds(Vec<EpochEnd>),
    /// Who writes to partitions, in the order of the question.
    Producers(Vec<FoundProducers>),
    /// To a move of log start offsets, in its order.
    DeleteRecords(Vec<Deleted>),
    /// Of the coordinators, in the order of what they were asked.
    Group(Vec<GroupReply>),
    /// Not yet: the question stays open and is answered by [`Request::Late`].
    Later,
    /// The sizes.
    LogSizes(Vec<LogSize>),
    /// What comes of the moves of those replicas that the answering shard owns, by their indexes in
    /// the request.
    MoveReplicas(Vec<(usize, ErrorCode)>),
    /// The checkpoints are written; the offset is that of the request.
    Checkpointed(Offset),
    /// The news has arrived.
    Taken,
}

/// A question to the coordinator on one partition of the offsets topic.
#[derive(Debug)]
pub struct GroupAsk {
    /// Which partition.
    pub key: PartitionKey,
    /// What is asked, and by which client.
    pub call: GroupCall,
}

/// What a log directory held when the node started.
#[derive(Clone, Debug)]
pub struct LogDirectory {
    /// Why it cannot be used, if so.
    pub offline: Option<String>,
    /// The epoch that the broker had when it closed the directory in order; none where it did not.
    pub clean_shutdown: Option<i64>,
    /// The logs that are in it, with where its checkpoints say that they stand.
    pub logs: Map<TopicPartition, FoundLog>,
    /// Copies that are to take the places of logs in other directories.
    pub futures: Vec<FoundFuture>,
    /// The recovery points of logs whose folders are not there.
    pub missing: Map<TopicPartition, Offset>,
}

impl LogDirectory {
    /// The same directory, once its logs have been opened.
    pub fn without_logs(&self) -> Self {
        Self {
            offline: self.offline.clone(),
            clean_shutdown: self.clean_shutdown,
            logs: Map::default(),
            futures: Vec::new(),
            missing: Map::default(),
        }
    }
}

/// What a directory says of a log; of its offsets its checkpoints, 0 where they say nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoundLog {
    /// The topic that it belongs to, if that can be read.
    pub topic_id: Option<TopicId>,
    /// Everything below is durable.
    pub recovery_point: Offset,
    /// The first offset that the log still has.
    pub log_start_offset: Offset,
    /// Everything below was compacted; none of a log that never was.
    pub first_dirty: Option<Offset>,
    /// It was taking the place of a log in another directory when that was last heard of, and that
    /// log may still be there, in a directory that is offline: this one must not be used.
    pub is_copy: bool,
}

/// A copy of a log that was being made when the node ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFuture {
    /// Whose log it copies.
    pub partition: TopicPartition,
    /// The name of its folder.
    pub folder: String,
    /// What the directory says of it.
    pub log: FoundLog,
}

/// Where the log of a partition stands, for the checkpoints of its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// In which directory, by index.
    pub directory: u16,
    /// Which partition.
    pub partition: TopicPartition,
    /// Everything below is durable.
    pub recovery_point: Offset,
    /// The first offset that the log still has.
    pub log_start_offset: Offset,
    /// Offsets below it can be read.
    pub high_watermark: Offset,
    /// Everything below was compacted; none of a log that never was.
    pub first_dirty: Option<Offset>,
}
