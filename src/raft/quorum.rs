//! The role of one replica.

use base::{LeaderEpoch, Offset};
use bytes::Bytes;
use records::{Batch, BatchBuilder, Compression, NewRecord};

use crate::control::{self, ControlRecord};
use crate::election::{ElectionState, ReplicaKey};
use crate::voters::{VoterEndpoint, VoterSet};

/// What a replica is (`QuorumState`).
///
/// | from | when | to |
/// |---|---|---|
/// | unattached | it starts, and is the only voter | candidate, of the next epoch |
/// | candidate | its claim is durable | leader |
/// | leader | it is asked to stop | resigned |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It knows no leader.
    Unattached,
    /// It claims an epoch; nothing of it may leave before that is durable.
    Candidate { claims: ElectionState },
    /// It leads; its first record stands at `epoch_start`.
    Leader { epoch_start: Offset },
    /// It has led and lets go.
    Resigned,
}

/// What the disk of a replica holds when it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The content of `quorum-state`, where there is one.
    pub election: Option<ElectionState>,
    /// The offset behind the last record of the log.
    pub end_offset: Offset,
    /// The epoch of the last record of the log.
    pub last_epoch: LeaderEpoch,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// `quorum-state` is to be replaced and made durable; then [`Raft::on_election_written`] is
    /// told so with the token.
    WriteElection(ElectionState, ElectionWritten),
    /// Batches are to be appended to the log, in this order, and made durable; then
    /// [`Raft::on_synced`] is told so.
    Append(Batch),
    /// This replica leads from now on, in this epoch.
    Leading(LeaderEpoch),
    /// Everything below is committed.
    HighWatermark(Offset),
}

/// Proof that one state of the election was handed out to be written. It goes back when that is
/// durable, and nothing else moves the candidate on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionWritten(LeaderEpoch);

/// Why a replica cannot take part in its quorum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RaftError {
    /// Nobody has said who votes.
    #[error(
        "the quorum has no voters: format the node with --standalone, or name it in \
         controller.quorum.voters"
    )]
    NoVoters,
    /// The voters are others.
    #[error(
        "node {id} with the directory {directory} is not a voter of the quorum {voters:?}",
        id = replica.id, directory = replica.directory
    )]
    NotAVoter {
        /// This replica.
        replica: ReplicaKey,
        /// The voters.
        voters: Vec<ReplicaKey>,
    },
    /// There are several voters.
    #[error("the quorum has {0} voters, and only one of a single voter can be led so far")]
    SeveralVoters(usize),
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

/// One replica of the metadata log.
#[derive(Clone, Debug)]
pub struct Raft {
    replica: ReplicaKey,
    voters: VoterSet,
    kraft_version: i16,
    /// Whether the log itself says who votes.
    log_has_voters: bool,
    election: ElectionState,
    role: Role,
    end_offset: Offset,
    /// Everything below it is durable.
    synced: Offset,
    high_watermark: Option<Offset>,
}

impl Raft {
    /// A replica that has not looked at its disk yet. `voters` are those of the configuration
    /// (`controller.quorum.voters`), none where the quorum keeps them itself.
    pub fn new(replica: ReplicaKey, voters: VoterSet) -> Self {
        Self {
            replica,
            voters: voters.without_directories(),
            kraft_version: 0,
            log_has_voters: false,
            election: ElectionState::NONE,
            role: Role::Unattached,
            end_offset: Offset(0),
            synced: Offset(0),
            high_watermark: None,
        }
    }

    /// Learns the voters of a snapshot that the log begins with.
    pub fn on_snapshot(&mut self, kraft_version: i16, voters: Option<VoterSet>) {
        self.kraft_version = kraft_version;
        if let Some(voters) = voters {
            self.voters = voters;
        }
    }

    /// Learns from a control record of the log, in their order.
    pub fn on_control_record(&mut self, record: &ControlRecord) {
        match record {
            ControlRecord::KraftVersion(version) => self.kraft_version = *version,
            ControlRecord::Voters(voters) => {
                self.voters.clone_from(voters);
                self.log_has_voters = true;
            }
            _ => {}
        }
    }

    /// Begins, with the whole log seen.
    ///
    /// # Errors
    /// If this replica cannot lead its quorum.
    pub fn start(&mut self, found: &Found, out: &mut Vec<Output>) -> Result<(), RaftError> {
        assert_eq!(self.role, Role::Unattached, "a replica starts once");
        let election = found.election.unwrap_or(ElectionState::NONE);
        if found.last_epoch > election.epoch {
            let (log, state) = (found.last_epoch, election.epoch);
            return Err(RaftError::ElectionLost { log, state });
        }
        if self.voters.is_empty() {
            return Err(RaftError::NoVoters);
        }
        if !self.voters.contains(self.replica) {
            let voters = self.voters.iter().map(|voter| voter.key).collect();
            return Err(RaftError::NotAVoter { replica: self.replica, voters });
        }
        if self.voters.len() > 1 {
            return Err(RaftError::SeveralVoters(self.voters.len()));
        }
        self.election = election;
        self.end_offset = found.end_offset;
        self.synced = found.end_offset;
        // The vote of the only voter is its own: the claim and the election are one write.
        let epoch = LeaderEpoch(election.epoch.0 + 1);
        let claims = ElectionState { epoch, leader: self.replica.id, voted: None };
        self.role = Role::Candidate { claims };
        out.push(Output::WriteElection(claims, ElectionWritten(epoch)));
        Ok(())
    }

    /// The state of the election is durable: its epoch begins with a record of its own, since
    /// what earlier leaders wrote is committed only together with one.
    pub fn on_election_written(
        &mut self,
        now_ms: i64,
        written: ElectionWritten,
        out: &mut Vec<Output>,
    ) {
        let Role::Candidate { claims } = self.role else {
            panic!("an election was written in the role {:?}", self.role)
        };
        assert_eq!(claims.epoch, written.0, "another election was written");
        self.election = claims;
        let epoch_start = self.end_offset;
        self.role = Role::Leader { epoch_start };
        tracing::info!("leading the metadata quorum in epoch {} from {epoch_start}", claims.epoch);
        let says_voters = self.kraft_version > 0 && !self.log_has_voters;
        let batch = control::leader_change(
            epoch_start,
            claims.epoch,
            now_ms,
            self.replica.id,
            &self.voters,
            says_voters.then_some(self.kraft_version),
        );
        self.log_has_voters |= says_voters;
        self.end_offset = batch.header().next_offset();
        out.push(Output::Append(batch));
        out.push(Output::Leading(claims.epoch));
    }

    /// Appends records as one batch and returns the offset of the first.
    ///
    /// # Errors
    /// If this replica does not lead.
    ///
    /// # Panics
    /// If there is no record.
    pub fn append(
        &mut self,
        now_ms: i64,
        values: &[Bytes],
        out: &mut Vec<Output>,
    ) -> Result<Offset, NotLeader> {
        assert!(!values.is_empty(), "a batch has at least one record");
        let Role::Leader { .. } = self.role else { return Err(NotLeader) };
        let base_offset = self.end_offset;
        let mut builder =
            BatchBuilder::new(base_offset, Compression::None).leader_epoch(self.election.epoch);
        for value in values {
            builder.append(&NewRecord {
                timestamp: now_ms,
                value: Some(value),
                ..NewRecord::default()
            });
        }
        let batch = builder.build();
        self.end_offset = batch.header().next_offset();
        out.push(Output::Append(batch));
        Ok(base_offset)
    }

    /// Tells the quorum where this voter is reached, if the voters say something else
    /// (`UpdateVoterHandler`). A quorum of `kraft.version` 0 reads that from its configuration.
    pub fn update_own_endpoints(
        &mut self,
        now_ms: i64,
        endpoints: &[VoterEndpoint],
        out: &mut Vec<Output>,
    ) {
        let can_say = self.is_leader() && self.kraft_version > 0 && !endpoints.is_empty();
        if !can_say || !self.voters.set_endpoints(self.replica, endpoints) {
            return;
        }
        let epoch = self.election.epoch;
        let batch = control::voters_change(self.end_offset, epoch, now_ms, &self.voters);
        self.end_offset = batch.header().next_offset();
        out.push(Output::Append(batch));
    }

    /// Everything below `offset` is durable here.
    pub fn on_synced(&mut self, offset: Offset, out: &mut Vec<Output>) {
        self.synced = self.synced.max(offset);
        let Role::Leader { epoch_start } = self.role else { return };
        // The majority of one voter is itself; but an offset counts only once a record of this
        // epoch lies below it.
        let committed = self.synced;
        if committed > epoch_start && self.high_watermark.is_none_or(|before| before < committed) {
            self.high_watermark = Some(committed);
            out.push(Output::HighWatermark(committed));
        }
    }

    /// Lets go of the leadership, if it has it.
    pub fn resign(&mut self) {
        if let Role::Leader { .. } = self.role {
            self.role = Role::Resigned;
        }
    }

    /// Whether this replica leads.
    pub fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader { .. })
    }

    /// The newest epoch that is known, with its leader.
    pub fn election(&self) -> ElectionState {
        self.election
    }

    /// The voters.
    pub fn voters(&self) -> &VoterSet {
        &self.voters
    }

    /// The version of the quorum's protocol.
    pub fn kraft_version(&self) -> i16 {
        self.kraft_version
    }

    /// The offset that the next record gets.
    pub fn end_offset(&self) -> Offset {
        self.end_offset
    }

    /// Everything below it is committed; nothing where that is not known.
    pub fn high_watermark(&self) -> Option<Offset> {
        self.high_watermark
    }

    /// The content of `quorum-state` for a state of the election.
    pub fn election_text(&self, state: ElectionState) -> String {
        state.to_text(self.kraft_version, &self.voters.ids())
    }
}
