//! A replica that fetches from its leader (`FollowerState`).
//!
//! It claims only what is durable here: the next Fetch leaves when everything that the last one
//! brought is. Where its log differs from the leader's it is cut off, never below what is known to
//! be committed; where the leader's log begins later, a snapshot takes its place:
//!
//! | stage | it ends when |
//! |---|---|
//! | the snapshot is fetched part by part | its last byte is there |
//! | it is checked, made durable and takes the place of the log (`installing`) | that is done |

use base::{Instant, Now, Offset};
use bytes::Bytes;
use records::Batches;

use super::{LeaderAt, Raft, Role, is_due};
use crate::election::ReplicaKey;
use crate::log::EpochOffset;
use crate::messages::{FetchContent, FetchRequest, Peer, RequestBody, SnapshotContent};
use crate::outbox::Output;
use crate::snapshot::SnapshotId;
use crate::voters::VoterSet;

/// The most bytes of one part of a snapshot (`KafkaRaftClient.MAX_FETCH_SIZE_BYTES`).
const SNAPSHOT_PART_BYTES_MAX: i32 = 8 * 1024 * 1024;
/// The largest snapshot that is fetched, in bytes.
const SNAPSHOT_BYTES_MAX: u64 = 1 << 40;

#[derive(Clone, Debug)]
pub(crate) struct Follower {
    pub(super) leader: LeaderAt,
    pub(super) voted: Option<ReplicaKey>,
    /// When it does without the leader, unless that answers before.
    pub(super) fetch_until: Instant,
    /// Whether the leader has answered a Fetch.
    has_fetched: bool,
    /// Whether the leader has let go, or cannot be reached.
    has_left: bool,
    /// Whether it is the latter: then it cannot vote either.
    is_gone: bool,
    /// The snapshot that is being fetched, and how much of it is there.
    fetching: Option<(SnapshotId, u64)>,
    /// When it looks next whether the leader has to be told what is true of this voter.
    update_at: Instant,
    /// Whether the leader knows what this voter can do (`kraft.version` 0).
    has_updated: bool,
}

impl Follower {
    pub(super) fn new(
        leader: LeaderAt,
        voted: Option<ReplicaKey>,
        fetch_until: Instant,
        update_at: Instant,
    ) -> Self {
        Self {
            leader,
            voted,
            fetch_until,
            has_fetched: false,
            has_left: false,
            is_gone: false,
            fetching: None,
            update_at,
            has_updated: false,
        }
    }

    /// Whether it would rather have another leader.
    pub(super) fn would_let_go(&self) -> bool {
        !self.has_fetched || self.has_left
    }

    /// The leader has let go, or has gone: it is waited for only until `at`.
    pub(super) fn leave_at(&mut self, at: Instant, is_gone: bool) {
        self.has_left = true;
        self.is_gone |= is_gone;
        self.fetch_until = self.fetch_until.min(at);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    pub(super) fn heard_from_leader(&mut self, fetch_until: Instant) {
        self.has_fetched = true;
        self.has_left = false;
        self.is_gone = false;
        self.fetch_until = fetch_until;
    }

    pub(super) fn snapshot_is_gone(&mut self) {
        self.fetching = None;
    }

    pub(super) fn next_timer(&self) -> Instant {
        self.fetch_until.min(self.update_at)
    }
}

impl Raft {
    pub(super) fn act_follower(&mut self, now: Now) -> bool {
        let may_stand = self.may_stand();
        let Role::Follower(role) = &mut self.role else { return false };
        if is_due(role.fetch_until, now) {
            if may_stand {
                let is_gone = role.is_gone;
                self.become_prospective(now, is_gone);
                return true;
            }
            // It goes on asking: whoever answers knows the leader.
            role.fetch_until = now.mono + self.timing.fetch_timeout;
            self.fetch_from_anyone(now);
            return false;
        }
        let leader = Self::peer_of(&role.leader);
        if is_due(role.update_at, now) {
            self.update_voter(now, leader);
        }
        if self.peers.is_pausing(leader, now.mono) || self.peers.forget_late(leader, now.mono) {
            self.fetch_from_anyone(now);
        }
        self.fetch_from(now, leader);
        false
    }

    /// Tells the leader what is true of this voter, if it does not know.
    fn update_voter(&mut self, now: Now, leader: Peer) {
        let needs_update = self.voter_needs_update();
        let can_send = self.peers.is_free(leader, now.mono);
        if needs_update && can_send {
            let body = RequestBody::UpdateVoter { epoch: self.epoch, voter: self.own.clone() };
            self.send(now, leader, body);
        }
        let Role::Follower(role) = &mut self.role else { return };
        role.update_at = now.mono
            + match needs_update && !can_send {
                true => self.timing.retry_backoff,
                false => self.timing.fetch_timeout,
            };
    }

    /// Whether the leader has to be told what is true of this voter. With `kraft.version` 0 that
    /// is told once: nothing in the log says it.
    fn voter_needs_update(&self) -> bool {
        let Role::Follower(role) = &self.role else { return false };
        let Some(known) = self.voters().get(self.own.key.id) else { return false };
        if !self.is_voter() || self.own.endpoints.is_empty() {
            return false;
        }
        if self.kraft_version() == 0 { !role.has_updated } else { *known != self.own }
    }

    pub(super) fn voter_update_is_known(&mut self) {
        if let Role::Follower(role) = &mut self.role {
            role.has_updated = true;
        }
    }

    pub(super) fn fetch_from_anyone(&mut self, now: Now) {
        if !self.peers.is_any_under_way(now.mono)
            && let Some(peer) = self.any_free_peer(now)
        {
            self.fetch_from(now, peer);
        }
    }

    /// Fetches on, if the peer is free and all that was fetched is durable.
    ///
    /// A peer that says nothing does not keep a follower from its leader: a request to another one
    /// is overtaken. Of several only the newest answer may change the log, since the others start
    /// from where it ended before.
    fn fetch_from(&mut self, now: Now, peer: Peer) {
        #[cfg(test)]
        let is_settled = self.log.is_settled() || self.faults.claims_unsynced;
        #[cfg(not(test))]
        let is_settled = self.log.is_settled();
        if !is_settled || self.installing.is_some() || !self.peers.is_free(peer, now.mono) {
            return;
        }
        let fetching = match &self.role {
            Role::Follower(role) if Self::peer_of(&role.leader) == peer => role.fetching,
            _ => None,
        };
        let body = match fetching {
            Some((id, position)) => RequestBody::FetchSnapshot {
                epoch: self.epoch,
                replica: self.own.key,
                id,
                position: i64::try_from(position).unwrap_or(i64::MAX),
                bytes_max: SNAPSHOT_PART_BYTES_MAX,
            },
            None => RequestBody::Fetch(FetchRequest {
                epoch: self.epoch,
                replica: self.own.key,
                log_end: self.log.end(),
                max_wait_ms: i32::try_from(self.timing.fetch_wait.as_millis()).unwrap_or(i32::MAX),
                high_watermark: Some(self.high_watermark),
            }),
        };
        self.peers.overtake();
        self.send(now, peer, body);
    }

    /// Says whether the answer was a good one.
    pub(super) fn on_fetch_response(
        &mut self,
        now: Now,
        high_watermark: Option<Offset>,
        content: FetchContent,
    ) -> bool {
        if !matches!(self.role, Role::Follower(_)) {
            return true;
        }
        let is_good = match content {
            FetchContent::Diverging(diverging) => self.cut_off(diverging),
            FetchContent::Snapshot(id) => self.begin_snapshot(id),
            FetchContent::Records(bytes) => {
                let is_good = self.append_fetched(bytes);
                if let Some(high_watermark) = high_watermark.filter(|_| is_good) {
                    self.raise_high_watermark(high_watermark.min(self.log.end().offset));
                }
                is_good
            }
            FetchContent::Range { .. } => panic!("a range is what leaves, not what comes in"),
        };
        if let Role::Follower(role) = &mut self.role
            && is_good
        {
            role.heard_from_leader(now.mono + self.timing.fetch_timeout);
        }
        is_good
    }

    fn cut_off(&mut self, diverging: EpochOffset) -> bool {
        let offset = self.log.agrees_up_to(diverging);
        let floor = self.high_watermark.unwrap_or(self.log.start().offset);
        if offset < floor.max(self.log.start().offset) {
            tracing::error!(
                "the leader's log ends at {diverging:?}, but everything below {floor} is \
                 committed: committed records were lost"
            );
            return false;
        }
        tracing::info!("the log is cut off at {offset}: the leader's has {diverging:?}");
        #[cfg(test)]
        let offset = match self.faults.loses_truncations {
            true => diverging.offset.min(self.log.end().offset),
            false => offset,
        };
        self.voters.truncate(offset);
        self.log.truncate(offset);
        #[cfg(test)]
        if self.faults.loses_truncations {
            self.log.forge_epochs(diverging.epoch);
        }
        self.outbox.push(Output::Truncate(offset));
        true
    }

    /// Appends what goes on from the end of the log, up to the first batch that is not whole or
    /// does not fit.
    fn append_fetched(&mut self, bytes: Bytes) -> bool {
        for batch in Batches::new(bytes) {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => return refused(&error),
            };
            if let Err(error) = batch.check_crc() {
                return refused(&error);
            }
            if batch.header().leader_epoch > self.epoch {
                return refused(&"its epoch is newer than the leader's");
            }
            if let Err(error) = self.append_to_view(&batch) {
                return refused(&error);
            }
            self.outbox.push(Output::Append(batch));
        }
        true
    }

    fn begin_snapshot(&mut self, id: SnapshotId) -> bool {
        let is_later = EpochOffset::from(id) > self.log.end();
        let is_committed_here = self.high_watermark.is_some_and(|offset| id.end_offset < offset);
        let Role::Follower(role) = &mut self.role else { return true };
        if id.epoch.0 < 0 || id.end_offset.0 <= 0 || !is_later || is_committed_here {
            tracing::error!(?id, end = ?self.log.end(), "the leader sends back to a snapshot");
            return false;
        }
        tracing::info!(snapshot = id.file_name(), "the log begins later: its snapshot is fetched");
        role.fetching = Some((id, 0));
        true
    }

    /// Says whether the answer was a good one.
    pub(super) fn on_fetch_snapshot_response(
        &mut self,
        now: Now,
        id: SnapshotId,
        size: u64,
        position: u64,
        content: SnapshotContent,
    ) -> bool {
        let SnapshotContent::Bytes(bytes) = content else {
            panic!("a length is what leaves, not what comes in")
        };
        let Role::Follower(role) = &mut self.role else { return true };
        let Some((fetching, there)) = &mut role.fetching else { return true };
        let end = position + bytes.len() as u64;
        let fits = *fetching == id
            && *there == position
            && end <= size
            && size <= SNAPSHOT_BYTES_MAX
            && (!bytes.is_empty() || end == size);
        if !fits {
            tracing::error!(?id, position, size, "a part of a snapshot does not fit");
            role.fetching = None;
            return false;
        }
        *there = end;
        self.outbox.push(Output::SnapshotPart { id, position, bytes });
        if end == size {
            role.fetching = None;
            self.installing = Some(id);
            self.outbox.push(Output::InstallSnapshot(id));
        }
        role.heard_from_leader(now.mono + self.timing.fetch_timeout);
        true
    }

    /// A fetched snapshot has taken the place of the log, and everything that it holds is
    /// committed.
    pub fn on_snapshot_installed(
        &mut self,
        now: Now,
        (id, bytes): (SnapshotId, u64),
        kraft_version: i16,
        voters: Option<VoterSet>,
        out: &mut Vec<Output>,
    ) {
        assert_eq!(self.installing.take(), Some(id), "another snapshot was installed");
        self.log.reset_to(id);
        self.voters.reset(id.end_offset, kraft_version, voters);
        self.keep_snapshot(id, bytes);
        self.raise_high_watermark(id.end_offset);
        self.settle(now, out);
    }

    /// A fetched snapshot cannot be used; the log is as it was.
    pub fn on_snapshot_refused(&mut self, now: Now, id: SnapshotId, out: &mut Vec<Output>) {
        assert_eq!(self.installing.take(), Some(id), "another snapshot was refused");
        if let Role::Follower(role) = &self.role {
            let leader = Self::peer_of(&role.leader);
            self.peers.pause(leader, now.mono);
        }
        self.settle(now, out);
    }
}

fn refused(why: &dyn std::fmt::Display) -> bool {
    tracing::error!("a batch of the leader is not appended: {why}");
    false
}
