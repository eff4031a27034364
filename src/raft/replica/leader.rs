//! The voter that leads its epoch (`LeaderState`): what it knows of every replica, how far a
//! majority has the log, and whether there still is a majority.

use std::collections::{BTreeMap, BTreeSet};

use base::{Duration, Instant, NodeId, Now, Offset};

use super::changes::Change;
use super::fetching::Parked;
use super::{LeaderAt, Raft, Role, Timing, is_due};
use crate::election::ReplicaKey;
use crate::messages::{Peer, RequestBody, RequestId};
use crate::voters::{Voter, VoterSet};

/// How long an observer that fetches no more is remembered
/// (`LeaderState.OBSERVER_SESSION_TIMEOUT_MS`).
const OBSERVER_SESSION: Duration = Duration::from_secs(300);
/// The most observers that are remembered.
const OBSERVERS_MAX: usize = 10_000;

#[derive(Clone, Debug)]
pub(crate) struct Leader {
    pub(super) own: LeaderAt,
    pub(super) epoch_start: Offset,
    pub(super) voters: BTreeMap<NodeId, Progress>,
    pub(super) observers: BTreeMap<ReplicaKey, Progress>,
    /// The voters that have fetched since a majority last had.
    fetched: BTreeSet<NodeId>,
    check_quorum: Duration,
    check_quorum_at: Instant,
    begin_interval: Duration,
    /// The change of the voters that is under way.
    pub(super) change: Option<Change>,
    /// What voters have said of themselves while the log has no voters (`kraft.version` 0).
    pub(super) described: Option<VoterSet>,
    pub(super) parked: Vec<Parked>,
}

/// How far a replica is, as its leader knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The replica.
    pub key: ReplicaKey,
    /// The end of its log, once it is known.
    pub end_offset: Option<Offset>,
    /// When it last fetched.
    pub last_fetch: Option<Now>,
    /// When it last had everything.
    pub last_caught_up: Option<Now>,
    /// The end of the leader's log when it last fetched.
    leader_end_before: Option<Offset>,
    /// Whether it knows its leader.
    knows_leader: bool,
    /// When it is told of its leader again.
    begin_at: Instant,
}

impl Progress {
    fn new(key: ReplicaKey, begin_at: Instant) -> Self {
        Self {
            key,
            end_offset: None,
            last_fetch: None,
            last_caught_up: None,
            leader_end_before: None,
            knows_leader: false,
            begin_at,
        }
    }

    /// A replica that is at the leader's end has everything, and so has one that is where that
    /// was at its last Fetch: it had everything then.
    fn on_fetch(&mut self, now: Now, offset: Offset, leader_end: Offset) {
        if offset >= leader_end {
            self.last_caught_up = Some(now);
        } else if self.leader_end_before.is_some_and(|before| offset >= before) {
            self.last_caught_up = self.last_fetch;
        }
        self.leader_end_before = Some(leader_end);
        self.last_fetch = Some(now);
        self.end_offset = Some(offset);
        self.knows_leader = true;
    }
}

impl Leader {
    pub(super) fn new(
        now: Now,
        own: LeaderAt,
        epoch_start: Offset,
        voters: &VoterSet,
        timing: &Timing,
    ) -> Self {
        let progress = |voter: &Voter| (voter.key.id, Progress::new(voter.key, now.mono));
        let check_quorum = timing.fetch_timeout * 3 / 2;
        Self {
            own,
            epoch_start,
            voters: voters.iter().map(progress).collect(),
            observers: BTreeMap::new(),
            fetched: BTreeSet::new(),
            check_quorum,
            check_quorum_at: now.mono + check_quorum,
            begin_interval: timing.fetch_timeout / 2,
            change: None,
            described: None,
            parked: Vec::new(),
        }
    }

    /// The other voters, the furthest first (`nonLeaderVotersByDescendingFetchOffset`).
    pub(super) fn successors(&self, own: ReplicaKey) -> Vec<ReplicaKey> {
        let mut others: Vec<_> = self.voters.values().filter(|one| one.key.id != own.id).collect();
        others.sort_by_key(|one| (std::cmp::Reverse(one.end_offset), one.key));
        others.into_iter().map(|one| one.key).collect()
    }

    /// The requests that wait for something.
    pub(super) fn waiting_requests(&self) -> Vec<RequestId> {
        let change = self.change.as_ref().and_then(Change::waiting_request);
        self.parked.iter().map(|parked| parked.id).chain(change).collect()
    }

    pub(super) fn joining_voter(&self) -> Option<&Voter> {
        self.change.as_ref().and_then(Change::joining_voter)
    }

    pub(super) fn next_timer(&self, voter_count: usize) -> Instant {
        let check = (voter_count > 1).then_some(self.check_quorum_at);
        let others = self.voters.values().filter(|one| one.key.id != self.own.id);
        let begin = others.map(|one| one.begin_at);
        let parked = self.parked.iter().map(|parked| parked.until);
        let change = self.change.as_ref().map(Change::until);
        check
            .into_iter()
            .chain(begin)
            .chain(parked)
            .chain(change)
            .min()
            .unwrap_or(Instant::FAR_FUTURE)
    }

    pub(super) fn is_voter(&self, key: ReplicaKey) -> bool {
        let voter = self.voters.get(&key.id).map(|one| one.key);
        voter.is_some_and(|voter| voter.directory.is_zero() || voter.directory == key.directory)
    }

    /// A replica has shown that it follows.
    fn count_fetch(&mut self, now: Now, key: ReplicaKey) {
        if !self.is_voter(key) {
            return;
        }
        self.fetched.insert(key.id);
        let voters = self.voters.len();
        let own = usize::from(self.voters.contains_key(&self.own.id));
        if self.fetched.len() >= (voters / 2 + 1).saturating_sub(own) {
            self.fetched.clear();
            self.check_quorum_at = now.mono + self.check_quorum;
        }
    }

    /// The offset that a majority of the voters has, `own_end` being the leader's.
    fn majority_has(&self, own_end: Offset) -> Option<Offset> {
        let end = |one: &Progress| match one.key.id == self.own.id {
            true => Some(own_end),
            false => one.end_offset,
        };
        let mut ends: Vec<Option<Offset>> = self.voters.values().map(end).collect();
        ends.sort_by_key(|end| std::cmp::Reverse(*end));
        ends.get(ends.len() / 2).copied().flatten()
    }
}

impl Raft {
    pub(super) fn act_leader(&mut self, now: Now) -> bool {
        let voter_count = self.voters().len();
        let Role::Leader(leader) = &self.role else { return false };
        if voter_count > 1 && is_due(leader.check_quorum_at, now) {
            tracing::warn!("no majority of the voters has fetched for long enough");
            let successors = leader.successors(self.own.key);
            self.become_resigned(now, successors);
            return true;
        }
        self.expire_change(now);
        self.tell_voters_of_epoch(now);
        self.answer_parked(now);
        false
    }

    /// Tells every voter that does not fetch who leads.
    fn tell_voters_of_epoch(&mut self, now: Now) {
        let Role::Leader(leader) = &mut self.role else { return };
        let (own, interval) = (leader.own.clone(), leader.begin_interval);
        let mut silent = Vec::new();
        for one in leader.voters.values_mut() {
            if one.key.id == own.id || !is_due(one.begin_at, now) {
                continue;
            }
            let is_free = self.peers.is_free(Peer::Node(one.key.id), now.mono);
            one.begin_at = now.mono + if is_free { interval } else { self.timing.retry_backoff };
            if is_free {
                silent.push(one.key);
            }
        }
        for key in silent {
            let body = RequestBody::BeginQuorumEpoch {
                epoch: self.epoch,
                leader: own.id,
                endpoints: own.endpoints.clone(),
                voter: Some(key),
            };
            self.send(now, Peer::Node(key.id), body);
        }
    }

    pub(super) fn leadership_is_known_to(&mut self, id: NodeId) {
        if let Role::Leader(leader) = &mut self.role
            && let Some(one) = leader.voters.get_mut(&id)
        {
            one.knows_leader = true;
        }
    }

    /// A voter that has not heard of its leader is told again soon.
    pub(super) fn leadership_is_unknown_to(&mut self, peer: Peer, now: Now) {
        let again_at = now.mono + self.timing.retry_backoff;
        if let (Role::Leader(leader), Peer::Node(id)) = (&mut self.role, peer)
            && let Some(one) = leader.voters.get_mut(&id)
            && !one.knows_leader
        {
            one.begin_at = one.begin_at.min(again_at);
        }
    }

    /// A replica has fetched from `offset` on: it has everything before.
    pub(super) fn replica_has(&mut self, now: Now, key: ReplicaKey, offset: Offset) {
        let leader_end = self.log.end().offset;
        let Role::Leader(leader) = &mut self.role else { return };
        if key.id.0 < 0 || key.id == leader.own.id {
            return;
        }
        let begin_at = now.mono + leader.begin_interval;
        let progress = if leader.is_voter(key) {
            leader.voters.get_mut(&key.id).expect("it votes")
        } else {
            leader.forget_observers(now);
            if leader.observers.len() >= OBSERVERS_MAX && !leader.observers.contains_key(&key) {
                return;
            }
            let new = || Progress::new(key, Instant::FAR_FUTURE);
            leader.observers.entry(key).or_insert_with(new)
        };
        progress.on_fetch(now, offset, leader_end);
        if progress.begin_at != Instant::FAR_FUTURE {
            progress.begin_at = begin_at;
        }
        leader.count_fetch(now, key);
        self.update_leader_high_watermark(now);
    }

    /// A replica fetches a snapshot: it follows, whatever it has.
    pub(super) fn replica_follows(&mut self, now: Now, key: ReplicaKey) {
        let Role::Leader(leader) = &mut self.role else { return };
        let begin_at = now.mono + leader.begin_interval;
        if leader.is_voter(key)
            && let Some(one) = leader.voters.get_mut(&key.id)
        {
            one.begin_at = begin_at;
            one.knows_leader = true;
        }
        leader.count_fetch(now, key);
    }

    /// Raises the high watermark to what a majority has, if a record of this epoch lies below:
    /// what earlier leaders wrote is committed only together with one, since another voter could
    /// still be elected without it (Raft, 5.4.2).
    pub(super) fn update_leader_high_watermark(&mut self, now: Now) {
        let synced = self.log.synced();
        let Role::Leader(leader) = &self.role else { return };
        let Some(offset) = leader.majority_has(synced) else { return };
        #[cfg(test)]
        let is_of_epoch = offset > leader.epoch_start || self.faults.commits_older_epochs;
        #[cfg(not(test))]
        let is_of_epoch = offset > leader.epoch_start;
        if is_of_epoch {
            self.raise_high_watermark(offset);
            self.change_may_be_committed(now);
        }
    }

    /// The high watermark, if it is one of this leader's epoch.
    pub(super) fn established_high_watermark(&self) -> Option<Offset> {
        let Role::Leader(leader) = &self.role else { return None };
        self.high_watermark.filter(|offset| *offset > leader.epoch_start)
    }

    /// The voters may have changed: each is known by what it had before.
    pub(super) fn update_progress(&mut self) {
        let voters = self.voters.voters().clone();
        let Role::Leader(leader) = &mut self.role else { return };
        let mut before = std::mem::take(&mut leader.voters);
        for voter in voters.iter() {
            let key = voter.key;
            let known = before.remove(&key.id);
            let same = known.filter(|one| one.key.directory.is_zero() || one.key == key);
            let progress = same.or_else(|| leader.observers.remove(&key));
            let mut progress = progress.unwrap_or_else(|| Progress::new(key, Instant::ZERO));
            progress.key = key;
            if progress.begin_at == Instant::FAR_FUTURE {
                progress.begin_at = Instant::ZERO;
            }
            leader.voters.insert(key.id, progress);
        }
        for (_, mut progress) in before {
            if progress.key.id != leader.own.id {
                progress.begin_at = Instant::FAR_FUTURE;
                leader.observers.insert(progress.key, progress);
            }
        }
        leader.fetched.retain(|id| leader.voters.contains_key(id));
    }

    /// The voters and the observers as this leader knows them; nothing where it does not lead. Of
    /// the leader itself only its key is meant.
    pub fn progress(&self) -> Option<(Vec<&Progress>, Vec<&Progress>)> {
        let Role::Leader(leader) = &self.role else { return None };
        Some((leader.voters.values().collect(), leader.observers.values().collect()))
    }
}

impl Leader {
    fn forget_observers(&mut self, now: Now) {
        if self.observers.len() >= OBSERVERS_MAX {
            self.observers.retain(|_, one| {
                one.last_fetch.is_some_and(|at| now.mono.since(at.mono) < OBSERVER_SESSION)
            });
        }
    }
}
