//! One replica of the metadata log: its doors, and what all its roles share.
//!
//! Every door takes what happened, lets the role do whatever is due ([`Raft::settle`]), and hands
//! out what may leave. The roles stand in the files below, the ways between them in `transitions`.

mod ballots;
mod candidate;
mod changes;
mod epochs;
mod fetching;
mod follower;
mod leader;
mod prospective;
mod requests;
mod resigned;
#[cfg(test)]
mod tests;
mod transitions;
mod unattached;
mod votes;

use std::sync::Arc;

use base::{Duration, Instant, LeaderEpoch, NodeId, Now, Offset, Random};
use bytes::Bytes;
use records::{Batch, BatchBuilder, Compression, NewRecord};

use self::candidate::Candidate;
use self::follower::Follower;
use self::leader::Leader;
pub use self::leader::Progress;
use self::prospective::Prospective;
use self::resigned::Resigned;
use self::unattached::Unattached;
use crate::control::control_records;
use crate::election::{ElectionState, ReplicaKey};
use crate::history::VoterHistory;
use crate::log::{BatchError, LogView};
use crate::messages::{Known, Peer, Reply, Request, RequestBody, RequestId};
use crate::outbox::{ElectionWritten, Outbox, Output};
use crate::peers::Peers;
use crate::snapshot::SnapshotId;
use crate::voters::{Voter, VoterEndpoint, VoterSet};

/// How often a role may lead to another one before something must come from outside.
const ROLES_AT_ONCE_MAX: usize = 8;

/// The times of the quorum (`QuorumConfig`).
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// `controller.quorum.election.timeout.ms`: how long an election may take; up to as much again
    /// is added by chance.
    pub election_timeout: Duration,
    /// `controller.quorum.fetch.timeout.ms`: how long a follower does without its leader, and 1.5
    /// times as long a leader without a majority.
    pub fetch_timeout: Duration,
    /// `controller.quorum.election.backoff.max.ms`: how long the last of the successors that a
    /// leader names lets the others go first.
    pub election_backoff_max: Duration,
    /// `controller.quorum.request.timeout.ms`.
    pub request_timeout: Duration,
    /// `controller.quorum.retry.backoff.ms`.
    pub retry_backoff: Duration,
    /// How long a Fetch waits for records (`KafkaRaftClient.MAX_FETCH_WAIT_MS`).
    pub fetch_wait: Duration,
}

impl Default for Timing {
    /// Kafka's defaults.
    fn default() -> Self {
        Self {
            election_timeout: Duration::from_millis(1_000),
            fetch_timeout: Duration::from_millis(2_000),
            election_backoff_max: Duration::from_millis(1_000),
            request_timeout: Duration::from_millis(2_000),
            retry_backoff: Duration::from_millis(20),
            fetch_wait: Duration::from_millis(500),
        }
    }
}

/// Who a replica is and what its configuration says.
#[derive(Clone, Debug)]
pub struct Params {
    /// The replica: its number and directory, where it is reached as a controller, and the versions
    /// of `kraft.version` that it can do. A broker has no endpoints.
    pub own: Voter,
    /// The id of the cluster.
    pub cluster_id: Arc<str>,
    /// The voters of `controller.quorum.voters`; none where the log names them.
    pub configured_voters: VoterSet,
    /// How many `controller.quorum.bootstrap.servers` there are.
    pub bootstrap_servers: usize,
    /// Its times.
    pub timing: Timing,
    /// Where its chance comes from.
    pub random: Random,
}

/// Why a replica cannot take part in its quorum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RaftError {
    /// Nobody has said who votes, nor whom to ask.
    #[error(
        "the quorum has no voters: format the node with --standalone, or name it in \
         controller.quorum.voters"
    )]
    NoVoters,
    /// The log is ahead of what this voter remembers of elections.
    #[error(
        "the log has records of epoch {log}, but quorum-state knows only epoch {state}: \
         quorum-state was lost or is of another log"
    )]
    ElectionLost {
        /// The epoch of the last record.
        log: LeaderEpoch,
        /// The epoch of `quorum-state`.
        state: LeaderEpoch,
    },
}

/// Records can only be appended by the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node does not lead the quorum")]
pub struct NotLeader;

/// A leader that is known, and where it is reached, if that is known too.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeaderAt {
    pub(crate) id: NodeId,
    pub(crate) endpoints: Vec<VoterEndpoint>,
}

/// What a replica is; `transitions` says how it becomes something else.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    Unattached(Unattached),
    Prospective(Prospective),
    Candidate(Candidate),
    Leader(Box<Leader>),
    Follower(Follower),
    Resigned(Resigned),
}

/// Faults on purpose, which the checkers of the tests must find.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// What earlier leaders wrote counts as committed as soon as a majority has it.
    pub(crate) commits_older_epochs: bool,
    /// A diverging end of the log stays.
    pub(crate) loses_truncations: bool,
    /// A Fetch claims what is not durable.
    pub(crate) claims_unsynced: bool,
}

/// One replica of the metadata log.
#[derive(Clone, Debug)]
pub struct Raft {
    own: Voter,
    cluster_id: Arc<str>,
    bootstrap_servers: usize,
    timing: Timing,
    random: Random,
    epoch: LeaderEpoch,
    role: Role,
    log: LogView,
    voters: VoterHistory,
    outbox: Outbox,
    peers: Peers,
    high_watermark: Option<Offset>,
    /// The fetched snapshot that takes the place of the log. Until it has, this replica does not
    /// stand for election; it votes by the log that it had.
    installing: Option<SnapshotId>,
    is_started: bool,
    #[cfg(test)]
    pub(crate) faults: Faults,
}

// Life.

impl Raft {
    /// A replica that has not looked at its disk yet.
    pub fn new(params: Params) -> Self {
        let Params { own, cluster_id, configured_voters, bootstrap_servers, timing, random } =
            params;
        Self {
            own,
            cluster_id,
            bootstrap_servers,
            timing,
            random,
            epoch: LeaderEpoch(0),
            role: Role::Unattached(Unattached::default()),
            log: LogView::default(),
            voters: VoterHistory::new(&configured_voters),
            outbox: Outbox::default(),
            peers: Peers::new(timing.request_timeout, timing.retry_backoff),
            high_watermark: None,
            installing: None,
            is_started: false,
            #[cfg(test)]
            faults: Faults::default(),
        }
    }

    /// Learns the newest snapshot, behind which the log is read.
    pub fn on_snapshot(
        &mut self,
        id: SnapshotId,
        bytes: u64,
        kraft_version: i16,
        voters: Option<VoterSet>,
    ) {
        self.log.reset_to(id);
        self.voters.reset(id.end_offset, kraft_version, voters);
        self.keep_snapshot(id, bytes);
    }

    /// Learns a batch of the log, in their order.
    ///
    /// # Errors
    /// If it does not go on from the one before it, or is a control batch that cannot be read: the
    /// disk is not as a replica left it.
    pub fn on_batch(&mut self, batch: &Batch) -> Result<(), BatchError> {
        assert!(!self.is_started, "the log is read before the start");
        self.append_to_view(batch)
    }

    /// Begins, with the whole log seen and durable. `election` is the content of `quorum-state`,
    /// where there is one.
    ///
    /// # Errors
    /// If this replica cannot take part in its quorum.
    pub fn start(
        &mut self,
        now: Now,
        election: Option<ElectionState>,
        out: &mut Vec<Output>,
    ) -> Result<(), RaftError> {
        assert!(!self.is_started, "a replica starts once");
        let mut election = election.unwrap_or(ElectionState::NONE);
        let log_epoch = self.log.end().epoch;
        if self.voters.voters().is_empty() && self.bootstrap_servers == 0 {
            return Err(RaftError::NoVoters);
        }
        if log_epoch > election.epoch {
            if self.is_voter() {
                // A vote may be lost that was given in an epoch since.
                return Err(RaftError::ElectionLost { log: log_epoch, state: election.epoch });
            }
            election = ElectionState { epoch: log_epoch, ..ElectionState::NONE };
        }
        self.is_started = true;
        self.log.loaded();
        self.begin_as(now, election);
        self.settle(now, out);
        Ok(())
    }

    /// The state of the election that came with `written` is durable.
    pub fn on_election_written(
        &mut self,
        now: Now,
        written: ElectionWritten,
        out: &mut Vec<Output>,
    ) {
        self.outbox.on_written(written);
        self.settle(now, out);
    }

    /// Everything below `offset` is durable here.
    pub fn on_synced(&mut self, now: Now, offset: Offset, out: &mut Vec<Output>) {
        self.log.on_synced(offset);
        self.update_leader_high_watermark(now);
        self.settle(now, out);
    }

    /// The log is cut off as it was asked for.
    pub fn on_truncated(&mut self, now: Now, out: &mut Vec<Output>) {
        self.log.on_truncated();
        self.settle(now, out);
    }

    /// A snapshot of this many bytes is durable here, and what it holds is committed.
    pub fn keep_snapshot(&mut self, id: SnapshotId, bytes: u64) {
        self.log.keep_snapshot(id, bytes);
        self.voters.forget_before(id.end_offset);
    }

    /// A snapshot is removed; with the oldest one goes what of the log lies below the next.
    pub fn drop_snapshot(&mut self, id: SnapshotId) {
        self.log.drop_snapshot(id);
    }

    /// Time has passed: [`Raft::next_timer`] says when that matters.
    pub fn on_tick(&mut self, now: Now, out: &mut Vec<Output>) {
        self.settle(now, out);
    }

    /// Appends records as one batch and returns the offset of the first. They are sent on at once;
    /// whoever calls decides what waits for what (`controller.quorum.append.linger.ms` is an upper
    /// limit that this keeps).
    ///
    /// # Errors
    /// If this replica does not lead.
    ///
    /// # Panics
    /// If there is no record.
    pub fn append(
        &mut self,
        now: Now,
        values: &[Bytes],
        out: &mut Vec<Output>,
    ) -> Result<Offset, NotLeader> {
        assert!(!values.is_empty(), "a batch has at least one record");
        if !self.is_leader() {
            return Err(NotLeader);
        }
        let base_offset = self.log.end().offset;
        let mut builder =
            BatchBuilder::new(base_offset, Compression::None).leader_epoch(self.epoch);
        for value in values {
            builder.append(&NewRecord {
                timestamp: now.wall_ms,
                value: Some(value),
                ..NewRecord::default()
            });
        }
        self.append_own(builder.build());
        self.settle(now, out);
        Ok(base_offset)
    }

    /// Lets go of the leadership, if it has it, and names its successors to the others.
    pub fn resign(&mut self, now: Now, out: &mut Vec<Output>) {
        if let Role::Leader(leader) = &self.role {
            let successors = leader.successors(self.own.key);
            self.become_resigned(now, successors);
        }
        self.settle(now, out);
    }

    /// When [`Raft::on_tick`] is to be called.
    pub fn next_timer(&self, now: Instant) -> Instant {
        let role = match &self.role {
            Role::Unattached(role) => role.next_timer(),
            Role::Prospective(role) => role.next_timer(),
            Role::Candidate(role) => role.next_timer(),
            Role::Leader(role) => role.next_timer(self.voters.voters().len()),
            Role::Follower(role) => role.next_timer(),
            Role::Resigned(role) => role.next_timer(),
        };
        role.min(self.peers.next_timer(now).unwrap_or(Instant::FAR_FUTURE))
    }
}

// What is known.

impl Raft {
    /// Whether this replica leads, and its claim to that is durable.
    pub fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader(_)) && self.outbox.is_durable()
    }

    /// Whether this replica votes.
    pub fn is_voter(&self) -> bool {
        self.voters.voters().contains(self.own.key)
    }

    /// The newest epoch that is known, with its leader or the vote that was given in it.
    pub fn election(&self) -> ElectionState {
        let leader = self.leader().map_or(NodeId::NONE, |leader| leader.id);
        ElectionState { epoch: self.epoch, leader, voted: self.voted() }
    }

    /// The voters.
    pub fn voters(&self) -> &VoterSet {
        self.voters.voters()
    }

    /// The version of the quorum's protocol.
    pub fn kraft_version(&self) -> i16 {
        self.voters.kraft_version()
    }

    /// What a snapshot that ends at `offset` says of the quorum: the version, and the voters where
    /// the log names them. `offset` is not below the newest snapshot's.
    pub fn voters_before(&self, offset: Offset) -> (i16, Option<&VoterSet>) {
        self.voters.before(offset)
    }

    /// The offset that the next record gets.
    pub fn end_offset(&self) -> Offset {
        self.log.end().offset
    }

    /// The epoch of the last record.
    pub fn last_epoch(&self) -> LeaderEpoch {
        self.log.end().epoch
    }

    /// Everything below it is committed; nothing where that is not known. What was appended below
    /// it may still wait to be handed out: [`Output::HighWatermark`] says when it was.
    pub fn high_watermark(&self) -> Option<Offset> {
        self.high_watermark
    }

    /// The content of `quorum-state` for a state of the election.
    pub fn election_text(&self, state: ElectionState) -> String {
        state.to_text(self.kraft_version(), &self.voters().ids())
    }

    /// Where a node is reached that requests go to.
    pub fn endpoints_of(&self, id: NodeId) -> &[VoterEndpoint] {
        let leader = self.leader().filter(|leader| leader.id == id && !leader.endpoints.is_empty());
        if let Some(leader) = leader {
            return &leader.endpoints;
        }
        let voter = self.voters().get(id);
        let joining = || match &self.role {
            Role::Leader(leader) => leader.joining_voter().filter(|voter| voter.key.id == id),
            _ => None,
        };
        voter.or_else(joining).map_or(&[], |voter| &voter.endpoints)
    }

    fn leader(&self) -> Option<&LeaderAt> {
        match &self.role {
            Role::Unattached(role) => role.leader.as_ref(),
            Role::Prospective(role) => role.leader.as_ref(),
            Role::Candidate(_) => None,
            Role::Leader(role) => Some(&role.own),
            Role::Follower(role) => Some(&role.leader),
            Role::Resigned(role) => Some(&role.own),
        }
    }

    fn voted(&self) -> Option<ReplicaKey> {
        match &self.role {
            Role::Unattached(role) => role.voted,
            Role::Prospective(role) => role.voted,
            Role::Candidate(_) => Some(self.own.key),
            Role::Follower(role) => role.voted,
            Role::Leader(_) | Role::Resigned(_) => None,
        }
    }

    fn known(&self) -> Known {
        let leader = self.leader();
        Known {
            epoch: self.epoch,
            leader: leader.map(|leader| leader.id),
            endpoints: leader.map_or(&[][..], |leader| self.endpoints_of(leader.id)).to_vec(),
        }
    }

    #[cfg(test)]
    pub(crate) fn leak_before_sync(&mut self, leaks: bool) {
        self.outbox.leaks = leaks;
    }

    /// Whether this replica may ask for votes.
    fn may_stand(&self) -> bool {
        self.is_voter() && self.installing.is_none()
    }

    fn election_timeout(&mut self) -> Duration {
        let timeout = self.timing.election_timeout;
        let extra = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX).max(1);
        timeout + Duration::from_nanos(self.random.below(extra))
    }
}

// What roles do.

impl Raft {
    /// Does whatever is due or has become possible, and hands out what may leave.
    fn settle(&mut self, now: Now, out: &mut Vec<Output>) {
        for _ in 0..ROLES_AT_ONCE_MAX {
            let has_changed = match self.role {
                Role::Unattached(_) => self.act_unattached(now),
                Role::Prospective(_) => self.act_prospective(now),
                Role::Candidate(_) => self.act_candidate(now),
                Role::Leader(_) => self.act_leader(now),
                Role::Follower(_) => self.act_follower(now),
                Role::Resigned(_) => self.act_resigned(now),
            };
            if !has_changed {
                break;
            }
        }
        self.outbox.drain(out);
    }

    fn send(&mut self, now: Now, to: Peer, body: RequestBody) -> RequestId {
        let id = self.peers.begin(to, now.mono);
        let request = Request { cluster_id: Some(Arc::clone(&self.cluster_id)), body };
        self.outbox.push(Output::Send { to, id, request });
        id
    }

    fn reply(&mut self, id: RequestId, body: Result<crate::ReplyBody, crate::Refusal>) {
        let reply = Reply { known: self.known(), body };
        self.outbox.push(Output::Reply { id, reply });
    }

    /// Takes a batch of this leader into its log.
    fn append_own(&mut self, batch: Batch) {
        self.append_to_view(&batch).expect("what was built here goes on");
        self.outbox.push(Output::Append(batch));
    }

    fn append_to_view(&mut self, batch: &Batch) -> Result<(), BatchError> {
        let header = batch.header();
        let records = if header.is_control() { control_records(batch)? } else { Vec::new() };
        self.log.append(header)?;
        for (place, record) in (0i64..).zip(&records) {
            self.voters.append(header.base_offset.plus(place), record);
        }
        Ok(())
    }

    fn raise_high_watermark(&mut self, offset: Offset) {
        if self.high_watermark.is_none_or(|before| before < offset) {
            self.high_watermark = Some(offset);
            self.outbox.push(Output::HighWatermark(offset));
        }
    }

    fn peer_of(leader: &LeaderAt) -> Peer {
        Peer::Node(leader.id)
    }

    /// Someone who may know the leader and is free: a bootstrap server, or else a voter.
    fn any_free_peer(&mut self, now: Now) -> Option<Peer> {
        let own = self.own.key.id;
        let peers: Vec<Peer> = match self.bootstrap_servers {
            0 => self.voters().ids().into_iter().filter(|id| *id != own).map(Peer::Node).collect(),
            count => (0..count).map(Peer::Bootstrap).collect(),
        };
        let free = peers.into_iter().filter(|peer| self.peers.is_free(*peer, now.mono));
        let free: Vec<Peer> = free.collect();
        let count = u64::try_from(free.len()).unwrap_or(0);
        let at = (count > 0).then(|| self.random.below(count))?;
        free.get(usize::try_from(at).ok()?).copied()
    }
}

/// Whether `at` has come.
fn is_due(at: Instant, now: Now) -> bool {
    at <= now.mono
}
