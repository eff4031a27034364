//! What a leader answers to those that fetch its log or a snapshot.

use base::{Duration, Instant, LeaderEpoch, Now};

use super::{Raft, Role};
use crate::election::ReplicaKey;
use crate::log::Position;
use crate::messages::{FetchContent, FetchRequest, Refusal, ReplyBody, RequestId, SnapshotContent};
use crate::snapshot::SnapshotId;

/// The most Fetches that wait for records at once; more are answered at once.
const PARKED_MAX: usize = 10_000;

/// A Fetch that waits for records, or for a higher high watermark.
#[derive(Clone, Debug)]
pub(crate) struct Parked {
    pub(super) id: RequestId,
    pub(super) fetch: FetchRequest,
    pub(super) until: Instant,
}

impl Raft {
    pub(super) fn on_fetch_request(&mut self, now: Now, id: RequestId, fetch: FetchRequest) {
        let end = fetch.log_end;
        let is_possible = fetch.max_wait_ms >= 0
            && end.offset.0 >= 0
            && end.epoch.0 >= 0
            && end.epoch <= fetch.epoch;
        if !is_possible {
            return self.reply(id, Err(Refusal::InvalidRequest));
        }
        let wait_ms = u64::try_from(fetch.max_wait_ms).unwrap_or(0);
        // Whoever waits longer than this has given its leader up before.
        let wait = Duration::from_millis(wait_ms).min(self.timing.fetch_timeout);
        let until = now.mono + wait;
        self.answer_fetch(now, Parked { id, fetch, until });
    }

    /// Answers, or parks a Fetch that has all there is (`tryCompleteFetchRequest`).
    fn answer_fetch(&mut self, now: Now, parked: Parked) {
        let Parked { id, fetch, until } = parked;
        if let Err(refusal) = self.check_leader_request(fetch.epoch) {
            return self.reply(id, Err(refusal));
        }
        let own_end = self.log.end().offset;
        let from = fetch.log_end.offset;
        let content = match self.log.position_of(fetch.log_end) {
            Position::Snapshot(snapshot) => FetchContent::Snapshot(snapshot),
            Position::Diverging(end) => FetchContent::Diverging(end),
            Position::Valid => {
                self.replica_has(now, fetch.replica, from);
                // That may have made this leader resign.
                if let Err(refusal) = self.check_leader_request(fetch.epoch) {
                    return self.reply(id, Err(refusal));
                }
                FetchContent::Range { from, up_to: own_end }
            }
        };
        let high_watermark = self.established_high_watermark();
        let has_news = !matches!(content, FetchContent::Range { .. })
            || from < own_end
            || fetch.high_watermark.is_some_and(|known| known < high_watermark);
        let Role::Leader(leader) = &mut self.role else { return };
        if !has_news && until > now.mono && leader.parked.len() < PARKED_MAX {
            return leader.parked.push(Parked { id, fetch, until });
        }
        let log_start = self.log.start().offset;
        self.reply(id, Ok(ReplyBody::Fetch { high_watermark, log_start, content }));
    }

    /// Nobody waits for the answer to a request any more, since its connection has closed. What was
    /// begun for it goes on.
    pub fn forget(&mut self, id: RequestId) {
        let Role::Leader(leader) = &mut self.role else { return };
        leader.parked.retain(|parked| parked.id != id);
        if let Some(change) = &mut leader.change {
            change.forget(id);
        }
    }

    /// Looks again at the Fetches that wait.
    pub(super) fn answer_parked(&mut self, now: Now) {
        let end = self.log.end().offset;
        let high_watermark = self.established_high_watermark();
        let Role::Leader(leader) = &mut self.role else { return };
        let is_ready = |parked: &mut Parked| {
            parked.until <= now.mono
                || parked.fetch.log_end.offset < end
                || parked.fetch.high_watermark.is_some_and(|known| known < high_watermark)
        };
        let ready: Vec<Parked> = leader.parked.extract_if(.., is_ready).collect();
        for parked in ready {
            self.answer_fetch(now, parked);
        }
    }

    pub(super) fn on_fetch_snapshot_request(
        &mut self,
        now: Now,
        id: RequestId,
        epoch: LeaderEpoch,
        replica: ReplicaKey,
        (snapshot, position, bytes_max): (SnapshotId, i64, i32),
    ) {
        if let Err(refusal) = self.check_leader_request(epoch) {
            return self.reply(id, Err(refusal));
        }
        let Some(size) = self.log.snapshot_bytes(snapshot) else {
            return self.reply(id, Err(Refusal::SnapshotNotFound));
        };
        let Some(position) = u64::try_from(position).ok().filter(|position| *position < size)
        else {
            return self.reply(id, Err(Refusal::PositionOutOfRange));
        };
        self.replica_follows(now, replica);
        let bytes_max = u32::try_from(bytes_max).unwrap_or(0);
        let content = SnapshotContent::UpTo(bytes_max);
        self.reply(id, Ok(ReplyBody::FetchSnapshot { id: snapshot, size, position, content }));
    }
}
