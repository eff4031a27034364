//! Changes of the voters, one at a time (KIP-853; `AddVoterHandler`, `RemoveVoterHandler`,
//! `UpdateVoterHandler`), and the way to `kraft.version` 1.
//!
//! | stage of an addition | it ends when |
//! |---|---|
//! | the new voter is asked what it supports | it answers, having fetched all of the log |
//! | its record is appended, and counts from then on | the record is committed |
//!
//! A removal has the second stage only; a leader that removes itself leads until that is committed,
//! without counting itself, and resigns.

use base::{Duration, Instant, LeaderEpoch, NodeId, Now, Offset};

use super::{Raft, Role};
use crate::control;
use crate::election::ReplicaKey;
use crate::messages::{Peer, Refusal, ReplyBody, RequestBody, RequestId};
use crate::voters::{Voter, VoterEndpoint, VoterSet};

/// How long ago a replica may have fetched that is added to the voters.
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(3_600);

/// A change of the voters that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// Who waits for its end.
    request: Option<RequestId>,
    stage: Stage,
    until: Instant,
}

#[derive(Clone, Debug)]
enum Stage {
    Asking { voter: Voter, ack_when_committed: bool },
    Appended { offset: Offset },
}

impl Change {
    pub(super) fn waiting_request(&self) -> Option<RequestId> {
        self.request
    }

    /// Nobody waits for `id` any more.
    pub(super) fn forget(&mut self, id: RequestId) {
        self.request.take_if(|waiting| *waiting == id);
    }

    pub(super) fn joining_voter(&self) -> Option<&Voter> {
        match &self.stage {
            Stage::Asking { voter, .. } => Some(voter),
            Stage::Appended { .. } => None,
        }
    }

    pub(super) fn until(&self) -> Instant {
        self.until
    }
}

impl Raft {
    pub(super) fn on_add_voter(
        &mut self,
        now: Now,
        id: RequestId,
        voter: ReplicaKey,
        endpoints: &[VoterEndpoint],
        ack_when_committed: bool,
    ) {
        if let Err(refusal) = self.check_change(voter, Some(endpoints)) {
            return self.reply(id, Err(refusal));
        }
        if self.voters().get(voter.id).is_some() {
            return self.reply(id, Err(Refusal::DuplicateVoter));
        }
        let peer = Peer::Node(voter.id);
        if !self.peers.is_free(peer, now.mono) {
            return self.reply(id, Err(Refusal::RequestTimedOut));
        }
        let voter = Voter { key: voter, endpoints: endpoints.to_vec(), kraft_versions: (0, 0) };
        let until = now.mono + self.timing.request_timeout;
        let stage = Stage::Asking { voter, ack_when_committed };
        self.set_change(Some(Change { request: Some(id), stage, until }));
        self.send(now, peer, RequestBody::ApiVersions);
    }

    /// The voter to be says what it supports.
    pub(super) fn on_api_versions(&mut self, now: Now, from: Peer, versions: Option<(i16, i16)>) {
        let Some((mut voter, ack_when_committed)) = self.asked_voter(from) else { return };
        voter.kraft_versions = versions.unwrap_or((0, 0));
        if !voter.supports(self.kraft_version()) {
            return self.end_change(Err(Refusal::InvalidRequest));
        }
        if !self.is_caught_up(now, voter.key) {
            tracing::info!(voter = ?voter.key, "a voter is not added: it lags behind");
            return self.end_change(Err(Refusal::RequestTimedOut));
        }
        let voters = self.voters().with(voter);
        let offset = self.append_voters(now, &voters, None);
        let Role::Leader(leader) = &mut self.role else { return };
        let Some(change) = &mut leader.change else { return };
        change.stage = Stage::Appended { offset };
        if !ack_when_committed && let Some(id) = change.request.take() {
            self.reply(id, Ok(ReplyBody::VotersChanged));
        }
        self.update_leader_high_watermark(now);
    }

    pub(super) fn joining_voter_is_silent(&mut self, from: Peer) {
        if self.asked_voter(from).is_some() {
            self.end_change(Err(Refusal::RequestTimedOut));
        }
    }

    pub(super) fn on_remove_voter(&mut self, now: Now, id: RequestId, voter: ReplicaKey) {
        if let Err(refusal) = self.check_change(voter, None) {
            return self.reply(id, Err(refusal));
        }
        let Some(voters) = self.voters().without(voter) else {
            return self.reply(id, Err(Refusal::VoterNotFound));
        };
        let offset = self.append_voters(now, &voters, None);
        let until = now.mono + self.timing.request_timeout;
        let stage = Stage::Appended { offset };
        self.set_change(Some(Change { request: Some(id), stage, until }));
        self.update_leader_high_watermark(now);
    }

    /// Answers at once: the change needs no majority other than before.
    pub(super) fn on_update_voter(
        &mut self,
        now: Now,
        id: RequestId,
        epoch: LeaderEpoch,
        voter: &Voter,
    ) {
        let body = self.update_voter_record(now, epoch, voter).map(|()| ReplyBody::VotersChanged);
        self.reply(id, body);
    }

    fn update_voter_record(
        &mut self,
        now: Now,
        epoch: LeaderEpoch,
        voter: &Voter,
    ) -> Result<(), Refusal> {
        self.check_leader_request(epoch)?;
        let (min, max) = voter.kraft_versions;
        let is_whole = !voter.key.directory.is_zero() && !voter.endpoints.is_empty();
        if !is_whole || min < 0 || max < min {
            return Err(Refusal::InvalidRequest);
        }
        if self.kraft_version() == 0 {
            self.check_no_change()?;
            if !voter.supports(0) {
                return Err(Refusal::InvalidRequest);
            }
            return self.describe_voter(voter);
        }
        self.check_change(voter.key, Some(&voter.endpoints))?;
        if !voter.supports(self.kraft_version()) {
            return Err(Refusal::InvalidRequest);
        }
        let voters = self.voters().updated(voter).ok_or(Refusal::VoterNotFound)?;
        if voters != *self.voters() {
            self.append_voters(now, &voters, None);
        }
        Ok(())
    }

    /// Keeps what a voter says while the log has no voters: the upgrade needs it.
    fn describe_voter(&mut self, voter: &Voter) -> Result<(), Refusal> {
        let known = self.described_voters();
        let voters = known.updated(voter).ok_or(Refusal::VoterNotFound)?;
        if let Role::Leader(leader) = &mut self.role {
            leader.described = Some(voters);
        }
        Ok(())
    }

    fn described_voters(&self) -> VoterSet {
        let described = match &self.role {
            Role::Leader(leader) => leader.described.clone(),
            _ => None,
        };
        let known = described.unwrap_or_else(|| self.voters().clone());
        known.updated(&self.own).unwrap_or(known)
    }

    /// Raises the version of the quorum's protocol, which puts the voters into the log
    /// (`LeaderState.maybeAppendUpgradedKRaftVersion`). Says whether something was appended.
    ///
    /// # Errors
    /// [`Refusal::NotLeaderOrFollower`]; [`Refusal::InvalidUpdateVersion`] for an older version, or
    /// if a voter cannot do it or has not said so; [`Refusal::RequestTimedOut`] while the epoch is
    /// not established.
    pub fn upgrade_kraft_version(
        &mut self,
        now: Now,
        version: i16,
        validate_only: bool,
        out: &mut Vec<crate::Output>,
    ) -> Result<bool, Refusal> {
        if !self.is_leader() {
            return Err(Refusal::NotLeaderOrFollower);
        }
        if version == self.kraft_version() {
            return Ok(false);
        }
        self.check_no_change()?;
        let voters = self.described_voters();
        let can_all = voters.iter().all(|voter| voter.supports(version));
        let are_known = voters.iter().all(|voter| !voter.key.directory.is_zero());
        if version < self.kraft_version() || !can_all || !are_known {
            return Err(Refusal::InvalidUpdateVersion);
        }
        if !validate_only {
            self.append_voters(now, &voters, Some(version));
            self.update_leader_high_watermark(now);
        }
        self.settle(now, out);
        Ok(!validate_only)
    }

    /// What the first batch of an epoch says of the voters: that which only the snapshot of the
    /// formatting says so far, or what has changed for this leader.
    pub(super) fn voters_to_begin_with(&self) -> Option<(i16, VoterSet)> {
        let version = self.kraft_version();
        let own = self.voters().get(self.own.key.id);
        let is_changed =
            !self.own.endpoints.is_empty() && own.is_some_and(|known| *known != self.own);
        let is_new = self.voters.voters_offset() == Some(Offset(-1));
        if version == 0 || !(is_new || is_changed) {
            return None;
        }
        let updated = if is_changed { self.voters().updated(&self.own) } else { None };
        Some((version, updated.unwrap_or_else(|| self.voters().clone())))
    }

    /// What every change of the voters needs.
    fn check_change(
        &self,
        voter: ReplicaKey,
        endpoints: Option<&[VoterEndpoint]>,
    ) -> Result<(), Refusal> {
        self.check_leader_request(self.epoch)?;
        let can_be_reached = endpoints.is_none_or(|endpoints| self.names_listener(endpoints));
        if voter.id.0 < 0 || voter.directory.is_zero() || !can_be_reached {
            return Err(Refusal::InvalidRequest);
        }
        self.check_no_change()?;
        if self.kraft_version() == 0 {
            return Err(Refusal::UnsupportedVersion);
        }
        let high_watermark = self.established_high_watermark().ok_or(Refusal::RequestTimedOut)?;
        match self.voters.voters_offset() {
            Some(offset) if offset < high_watermark => Ok(()),
            _ => Err(Refusal::RequestTimedOut),
        }
    }

    /// No change is under way, and the epoch is established: the last change of an earlier leader
    /// is settled.
    fn check_no_change(&self) -> Result<(), Refusal> {
        match &self.role {
            Role::Leader(leader) if leader.change.is_none() => {}
            _ => return Err(Refusal::RequestTimedOut),
        }
        self.established_high_watermark().map(|_| ()).ok_or(Refusal::RequestTimedOut)
    }

    /// Whether a voter is reached by the listener that this quorum uses.
    fn names_listener(&self, endpoints: &[VoterEndpoint]) -> bool {
        let own = self.own.endpoints.first().map(|endpoint| &endpoint.listener);
        endpoints.iter().any(|endpoint| own.is_none_or(|own| endpoint.listener == *own))
    }

    /// Appends a record of the voters and returns its offset.
    fn append_voters(&mut self, now: Now, voters: &VoterSet, version: Option<i16>) -> Offset {
        let base = self.log.end().offset;
        let batch = control::voters_change(base, self.epoch, now.wall_ms, version, voters);
        let last = batch.header().next_offset().plus(-1);
        self.append_own(batch);
        self.update_progress();
        last
    }

    fn is_caught_up(&self, now: Now, key: ReplicaKey) -> bool {
        let Role::Leader(leader) = &self.role else { return false };
        leader.observers.get(&key).is_some_and(|one| {
            let is_recent =
                one.last_fetch.is_some_and(|at| now.mono.since(at.mono) < CAUGHT_UP_WITHIN);
            one.last_caught_up.is_some() && is_recent
        })
    }

    fn asked_voter(&self, from: Peer) -> Option<(Voter, bool)> {
        let Role::Leader(leader) = &self.role else { return None };
        match &leader.change.as_ref()?.stage {
            Stage::Asking { voter, ack_when_committed } if from == Peer::Node(voter.key.id) => {
                Some((voter.clone(), *ack_when_committed))
            }
            _ => None,
        }
    }

    fn set_change(&mut self, change: Option<Change>) -> Option<Change> {
        let Role::Leader(leader) = &mut self.role else { return None };
        std::mem::replace(&mut leader.change, change)
    }

    fn end_change(&mut self, result: Result<(), Refusal>) {
        let change = self.set_change(None);
        if let Some(id) = change.and_then(|change| change.request) {
            self.reply(id, result.map(|()| ReplyBody::VotersChanged));
        }
    }

    /// Nobody waits longer for a change than a request may take; its record stays in the log.
    pub(super) fn expire_change(&mut self, now: Now) {
        let Role::Leader(leader) = &self.role else { return };
        if leader.change.as_ref().is_some_and(|change| change.until <= now.mono) {
            self.end_change(Err(Refusal::RequestTimedOut));
        }
    }

    /// The high watermark rose.
    pub(super) fn change_may_be_committed(&mut self, now: Now) {
        let Some(high_watermark) = self.high_watermark else { return };
        let Role::Leader(leader) = &self.role else { return };
        let appended = leader.change.as_ref().and_then(|change| match change.stage {
            Stage::Appended { offset } => Some(offset),
            Stage::Asking { .. } => None,
        });
        if appended.is_some_and(|offset| offset < high_watermark) {
            self.end_change(Ok(()));
        }
        let is_committed = self.voters.voters_offset().is_some_and(|at| at < high_watermark);
        if is_committed && !self.is_voter() {
            tracing::info!("this leader has committed that it votes no more");
            let Role::Leader(leader) = &self.role else { return };
            let successors = leader.successors(self.own.key);
            self.become_resigned(now, successors);
        }
    }

    /// The node that is asked to become a voter.
    pub fn joining(&self) -> Option<NodeId> {
        let Role::Leader(leader) = &self.role else { return None };
        leader.joining_voter().map(|voter| voter.key.id)
    }
}
