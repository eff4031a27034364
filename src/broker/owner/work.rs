//! Work that takes longer than a turn may: the checks of compressed batches, of which one of a
//! megabyte can hold gigabytes, and searches through batches for a timestamp. It goes on turn by
//! turn, in slices.

use std::collections::VecDeque;

use base::Token;
use intercom::Appended;
use protocol::ErrorCode;

use super::{Desk, Owner};
use crate::check::Check;
use crate::partition::Append;

/// Decompressed bytes that a shard looks at while it takes in requests; the checks that are left
/// take turns. It is milliseconds of work, and far more than what a producer usually puts into a
/// batch (`batch.size`), so that such a batch is checked in the turn in which it comes.
pub(super) const BYTES_PER_TURN: usize = 2 << 20;
/// Checks that are under way at once; others wait. Each may hold a window of
/// [`records::ZSTD_WINDOW_LOG_MAX`] and a chunk of what the core receives.
pub(super) const CHECKS_MAX: usize = 3;
/// Searches that are under way at once; others wait. Each may hold such a window and its batch.
/// They have a place of their own: who may only read keeps nobody from writing.
pub(super) const SEARCHES_MAX: usize = 1;
/// Decompressed bytes that each of them goes on for in one turn.
pub(super) const BYTES_PER_SLICE: usize = BYTES_PER_TURN / (CHECKS_MAX + SEARCHES_MAX);

/// What a shard works at, turn by turn. A partition stands in each of them once.
#[derive(Debug)]
pub(super) struct Line {
    /// Partitions with a queue whose first batch is being checked. Only the first [`CHECKS_MAX`]
    /// can have begun to decompress.
    checks: VecDeque<Token>,
    /// Partitions whose log has searches with a batch to look through. Only the first
    /// [`SEARCHES_MAX`] can hold one.
    searches: VecDeque<Token>,
    /// Decompressed bytes that may still be looked at while this turn takes in requests.
    bytes_left: usize,
}

/// How far the queue or the searches of a partition have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Nothing waits.
    Empty,
    /// The first check has paused, or the first search; or the batch of that is being read.
    Paused,
    /// It has had its part, and others wait for theirs.
    Shared,
    /// It waits for its directory.
    ForDisk,
}

impl Default for Line {
    fn default() -> Self {
        Self { checks: VecDeque::new(), searches: VecDeque::new(), bytes_left: BYTES_PER_TURN }
    }
}

impl Line {
    fn has_room(&self) -> bool {
        self.checks.len() < CHECKS_MAX
    }
}

impl Owner {
    /// Whether there is work for the next turn, whatever happens.
    pub(crate) fn has_work(&self) -> bool {
        let is_read = |token: &Token| {
            let partition = self.partitions.get(*token);
            partition.is_none_or(|partition| !partition.log.is_reading_batch())
        };
        let mut searches = self.line.searches.iter().take(SEARCHES_MAX);
        !self.line.checks.is_empty()
            || searches.any(is_read)
            || self.looks_for_dirty()
            || self.rounds.are_under_way()
    }

    /// Decompressed bytes that may be looked at now.
    pub(super) fn bytes_to_check(&mut self) -> &mut usize {
        &mut self.line.bytes_left
    }

    /// The check of the first batch in a queue has paused, and goes on in later turns; or it begins
    /// anew, where too many are under way.
    pub(super) fn check_later(&mut self, token: Token, check: Box<Check>) {
        if self.line.has_room() {
            self.partition(token).check = Some(check);
        }
        self.line.checks.push_back(token);
    }

    /// The queue of a partition is not appended for now.
    pub(super) fn stop_checking(&mut self, token: Token) {
        self.line.checks.retain(|other| *other != token);
    }

    /// Sees to it that the searches of a log go on, if they have a batch to look through.
    pub(super) fn search_later(&mut self, token: Token) {
        let Some(partition) = self.partitions.get_mut(token) else { return };
        if partition.log.batches_to_search() > 0
            && !std::mem::replace(&mut partition.is_searching, true)
        {
            self.line.searches.push_back(token);
        }
    }

    /// Appends what waits in the queue of a partition whose log is open, as far as that goes now.
    pub(super) fn move_queue(&mut self, desk: &mut Desk<'_>, token: Token) {
        let may_check = self.line.has_room();
        let mut budget = if may_check { self.line.bytes_left } else { 0 };
        let progress = self.append_queue(desk, token, &mut budget, false);
        if may_check {
            self.line.bytes_left = budget;
        }
        match progress {
            Progress::Empty => {}
            Progress::Paused | Progress::Shared => self.line.checks.push_back(token),
            Progress::ForDisk => self.wait_for_disk(token),
        }
    }

    /// Refuses what waits in the queue of a partition: its log is gone, or is led by another node.
    pub(super) fn refuse_queue(&mut self, desk: &mut Desk<'_>, token: Token) {
        let partition = self.partition(token);
        partition.check = None;
        let queue = std::mem::take(&mut partition.queue);
        if queue.is_empty() {
            return;
        }
        let (key, directory) = (partition.key, partition.directory);
        self.line.checks.retain(|other| *other != token);
        self.forget_to_wait(directory, token);
        let code = self.find(key).err().unwrap_or(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        for (part, place) in queue {
            self.waited(directory, &part);
            self.appended(desk, place, Appended::refused(code, None));
        }
    }

    /// Goes on with what is under way, each for its slice of the turn.
    pub(super) fn go_on_working(&mut self, desk: &mut Desk<'_>) {
        self.line.bytes_left = BYTES_PER_TURN;
        self.go_on_in_line(desk, CHECKS_MAX, |line| &mut line.checks, Self::append_queue);
        self.go_on_in_line(desk, SEARCHES_MAX, |line| &mut line.searches, Self::search);
    }

    /// Goes on with the first ones in a line, of which so many can be under way.
    fn go_on_in_line(
        &mut self,
        desk: &mut Desk<'_>,
        under_way_max: usize,
        line: impl Fn(&mut Line) -> &mut VecDeque<Token>,
        go_on: impl Fn(&mut Self, &mut Desk<'_>, Token, &mut usize, bool) -> Progress,
    ) {
        let mut budget = under_way_max * BYTES_PER_SLICE;
        let mut paused = 0;
        while budget > 0
            && paused < under_way_max
            && let Some(&token) = line(&mut self.line).get(paused)
        {
            let shares = line(&mut self.line).len() > under_way_max;
            let mut slice = budget.min(BYTES_PER_SLICE);
            budget -= slice;
            let progress = go_on(self, desk, token, &mut slice, shares);
            budget += slice;
            if progress == Progress::Paused {
                paused += 1;
                continue;
            }
            line(&mut self.line).retain(|other| *other != token);
            match progress {
                Progress::Shared => line(&mut self.line).push_back(token),
                Progress::ForDisk => self.wait_for_disk(token),
                Progress::Empty | Progress::Paused => {}
            }
        }
    }

    /// Appends what waits in a queue, for so many bytes of checks.
    fn append_queue(
        &mut self,
        desk: &mut Desk<'_>,
        token: Token,
        budget: &mut usize,
        shares: bool,
    ) -> Progress {
        let bytes = *budget;
        loop {
            let partition = self.partition(token);
            let directory = partition.directory;
            if partition.queue.is_empty() || partition.is_held {
                return Progress::Empty;
            }
            if partition.check.is_none() {
                if shares && *budget < bytes {
                    return Progress::Shared;
                }
                if self.is_dirty(directory) {
                    return Progress::ForDisk;
                }
            }
            let partition = self.partition(token);
            match partition.append_first(desk.now, budget) {
                Append::Paused(check) => {
                    partition.check = Some(check);
                    return Progress::Paused;
                }
                Append::Done(answer) => {
                    let (part, place) = partition.queue.pop_front().expect("it was appended");
                    self.waited(directory, &part);
                    self.count_dirt(token);
                    self.touch(token);
                    if let Some(answer) = answer {
                        self.appended(desk, place, *answer);
                    }
                }
            }
        }
    }

    /// Goes on with the searches of a log, for so many bytes.
    fn search(
        &mut self,
        desk: &mut Desk<'_>,
        token: Token,
        budget: &mut usize,
        shares: bool,
    ) -> Progress {
        if self.partitions.get(token).is_none() {
            return Progress::Empty;
        }
        self.with_log(desk, token, |log, _, effects, events| {
            log.search_on(budget, shares, effects, events);
        });
        let Some(partition) = self.partitions.get_mut(token) else { return Progress::Empty };
        match partition.log.batches_to_search() {
            0 => {
                partition.is_searching = false;
                Progress::Empty
            }
            _ if partition.log.holds_batch() => Progress::Paused,
            _ => Progress::Shared,
        }
    }
}
