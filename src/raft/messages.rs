//! What replicas of the metadata log say to each other, free of the wire: one request for each of
//! Kafka's (Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot, AddRaftVoter,
//! RemoveRaftVoter, UpdateRaftVoter, and the part of ApiVersions that a new voter is asked for).

use std::sync::Arc;

use base::{LeaderEpoch, NodeId, Offset};
use bytes::Bytes;

use crate::election::ReplicaKey;
use crate::log::EpochOffset;
use crate::snapshot::SnapshotId;
use crate::voters::{Voter, VoterEndpoint};

/// Whom a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// A node that is known by its number; [`crate::Raft::endpoints_of`] says where it is.
    Node(NodeId),
    /// One of `controller.quorum.bootstrap.servers`, by its place in that list.
    Bootstrap(usize),
}

/// Names a request: the replica names those that it sends, its caller those that come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A request, and the cluster that it is meant for where it says so.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The id of the cluster; none in versions that have no such field.
    pub cluster_id: Option<Arc<str>>,
    /// What is asked.
    pub body: RequestBody,
}

/// What is asked of a replica.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestBody {
    /// Vote.
    Vote(VoteRequest),
    /// A leader has begun its epoch.
    BeginQuorumEpoch {
        /// The epoch.
        epoch: LeaderEpoch,
        /// The leader.
        leader: NodeId,
        /// Where it is reached; empty in version 0.
        endpoints: Vec<VoterEndpoint>,
        /// Who is meant; none in version 0.
        voter: Option<ReplicaKey>,
    },
    /// A leader lets go of its epoch.
    EndQuorumEpoch {
        /// The epoch.
        epoch: LeaderEpoch,
        /// The leader.
        leader: NodeId,
        /// Where it is reached; empty in version 0.
        endpoints: Vec<VoterEndpoint>,
        /// Who should follow it, the best first.
        successors: Vec<ReplicaKey>,
    },
    /// Fetch.
    Fetch(FetchRequest),
    /// A part of a snapshot.
    FetchSnapshot {
        /// The epoch that the replica knows.
        epoch: LeaderEpoch,
        /// Who fetches.
        replica: ReplicaKey,
        /// Which snapshot.
        id: SnapshotId,
        /// From which byte on.
        position: i64,
        /// How many bytes at most.
        bytes_max: i32,
    },
    /// A replica is to vote from now on.
    AddVoter {
        /// Who.
        voter: ReplicaKey,
        /// Where it is reached.
        endpoints: Vec<VoterEndpoint>,
        /// Whether the answer waits for the commit (version 1); version 0 always waits.
        ack_when_committed: bool,
    },
    /// A replica is to vote no more.
    RemoveVoter {
        /// Who.
        voter: ReplicaKey,
    },
    /// A voter says where it is reached now and what it supports.
    UpdateVoter {
        /// The epoch that it knows.
        epoch: LeaderEpoch,
        /// What is true from now on.
        voter: Voter,
    },
    /// What a replica supports, asked before it becomes a voter.
    ApiVersions,
}

/// A candidate asks for a vote, or a replica asks whether it would get one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoteRequest {
    /// The epoch of the election; for a PreVote the one that the replica is in.
    pub epoch: LeaderEpoch,
    /// Who asks.
    pub candidate: ReplicaKey,
    /// Who is asked; none in version 0.
    pub voter: Option<ReplicaKey>,
    /// The end of the candidate's log.
    pub log_end: EpochOffset,
    /// Whether it only asks (KIP-996).
    pub pre_vote: bool,
}

/// A replica asks for what follows its log, and says by that what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// The epoch that the replica knows.
    pub epoch: LeaderEpoch,
    /// Who fetches; the number is −1 where it has none.
    pub replica: ReplicaKey,
    /// The end of its log, and the epoch of its last record.
    pub log_end: EpochOffset,
    /// How long an answer without records may wait, in milliseconds.
    pub max_wait_ms: i32,
    /// What it knows to be committed (KIP-1166): `Some(None)` is nothing, none where the version
    /// cannot say.
    pub high_watermark: Option<Option<Offset>>,
}

/// Who leads, as far as the sender of an answer knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Its epoch.
    pub epoch: LeaderEpoch,
    /// The leader of that epoch.
    pub leader: Option<NodeId>,
    /// Where the leader is reached; empty where that is not known.
    pub endpoints: Vec<VoterEndpoint>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Who leads.
    pub known: Known,
    /// The answer itself.
    pub body: Result<ReplyBody, Refusal>,
}

/// What is answered to a request that was not refused.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplyBody {
    /// To a Vote.
    Vote {
        /// Whether the vote is granted.
        granted: bool,
    },
    /// To a BeginQuorumEpoch.
    BeginQuorumEpoch,
    /// To an EndQuorumEpoch.
    EndQuorumEpoch,
    /// To a Fetch.
    Fetch {
        /// Everything below is committed, where the leader knows it for its epoch.
        high_watermark: Option<Offset>,
        /// The first offset of the leader's log.
        log_start: Offset,
        /// What the replica gets.
        content: FetchContent,
    },
    /// To a FetchSnapshot.
    FetchSnapshot {
        /// The snapshot.
        id: SnapshotId,
        /// Its size in bytes.
        size: u64,
        /// Where `content` begins in it.
        position: u64,
        /// What the replica gets.
        content: SnapshotContent,
    },
    /// To AddVoter, RemoveVoter or UpdateVoter.
    VotersChanged,
    /// To ApiVersions.
    ApiVersions {
        /// The versions of `kraft.version` that are supported; none where that is not said.
        kraft_versions: Option<(i16, i16)>,
    },
}

/// What a Fetch brings.
#[derive(Clone, Debug, PartialEq)]
pub enum FetchContent {
    /// The log of the sender from one offset up to another, to be read by whoever sends the answer,
    /// as much of it as the request allows, at least one batch. Only leaves.
    Range {
        /// The first offset.
        from: Offset,
        /// The offset behind the last.
        up_to: Offset,
    },
    /// Batches, the last of them possibly cut off; none where there is nothing. Only comes in.
    Records(Bytes),
    /// The logs differ: the newest epoch of the leader's log that is not newer than the replica's,
    /// and where it ends.
    Diverging(EpochOffset),
    /// The log does not reach back so far: a snapshot is to be fetched.
    Snapshot(SnapshotId),
}

/// What a FetchSnapshot brings.
#[derive(Clone, Debug, PartialEq)]
pub enum SnapshotContent {
    /// At most so many bytes from the position on, to be read by whoever sends the answer.
    UpTo(u32),
    /// The bytes. Only comes in.
    Bytes(Bytes),
}

/// Why a request is refused; the names are those of Kafka's error codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The request is for another cluster.
    InconsistentClusterId,
    /// It contradicts itself, or what is known of its epoch.
    InvalidRequest,
    /// Its epoch is over.
    FencedLeaderEpoch,
    /// Its epoch is newer than the one known here.
    UnknownLeaderEpoch,
    /// This replica does not lead.
    NotLeaderOrFollower,
    /// It is meant for another directory of this node.
    InvalidVoterKey,
    /// This replica cannot answer now.
    BrokerNotAvailable,
    /// There is no such snapshot.
    SnapshotNotFound,
    /// The snapshot has no such byte.
    PositionOutOfRange,
    /// Another change of the voters is under way, or this one took too long.
    RequestTimedOut,
    /// The `kraft.version` does not know this change.
    UnsupportedVersion,
    /// The node votes already.
    DuplicateVoter,
    /// There is no such voter.
    VoterNotFound,
    /// The `kraft.version` cannot become that one.
    InvalidUpdateVersion,
}
