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
/// Checks and searches that are under way at once; others wait. Each may hold a window of
/// [`records::ZSTD_WINDOW_LOG_MAX`], and a check a chunk of what the core receives.
pub(super) const UNDER_WAY_MAX: usize = 4;
/// Decompressed bytes that each of them goes on for in one turn.
pub(super) const BYTES_PER_SLICE: usize = BYTES_PER_TURN / UNDER_WAY_MAX;

/// Something that goes on in the next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// The queue of a partition, whose first batch is being checked.
    Queue(Token),
    /// The searches of a log that have a batch to look through.
    Search(Token),
}

/// What a shard works at, turn by turn.
#[derive(Debug)]
pub(super) struct Line {
    /// Each stands in it once. Only the first [`UNDER_WAY_MAX`] can have begun to decompress.
    work: VecDeque<Work>,
    /// Decompressed bytes that may still be looked at while this turn takes in requests.
    bytes_left: usize,
}

/// How far the queue of a partition has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Nothing waits in it.
    Empty,
    /// The check of its first batch has paused.
    Paused,
    /// It has had its part, and others wait for theirs.
    Shared,
    /// It waits for its directory.
    ForDisk,
}

impl Default for Line {
    fn default() -> Self {
        Self { work: VecDeque::new(), bytes_left: BYTES_PER_TURN }
    }
}

impl Line {
    /// Whether there is anything to do.
    pub(super) fn has_work(&self) -> bool {
        !self.work.is_empty()
    }

    fn has_room(&self) -> bool {
        self.work.len() < UNDER_WAY_MAX
    }
}

impl Owner {
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
        self.line.work.push_back(Work::Queue(token));
    }

    /// Sees to it that the searches of a log go on, if they have a batch to look through.
    pub(super) fn search_later(&mut self, token: Token) {
        let Some(partition) = self.partitions.get_mut(token) else { return };
        if partition.log.batches_to_search() > 0
            && !std::mem::replace(&mut partition.is_searching, true)
        {
            self.line.work.push_back(Work::Search(token));
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
            Progress::Paused | Progress::Shared => self.line.work.push_back(Work::Queue(token)),
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
        self.line.work.retain(|work| *work != Work::Queue(token));
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
        let mut budget = BYTES_PER_TURN;
        let mut paused = 0;
        while budget > 0
            && paused < UNDER_WAY_MAX
            && let Some(&work) = self.line.work.get(paused)
        {
            let shares = self.line.work.len() > UNDER_WAY_MAX;
            let mut slice = budget.min(BYTES_PER_SLICE);
            budget -= slice;
            let progress = match work {
                Work::Queue(token) => self.append_queue(desk, token, &mut slice, shares),
                Work::Search(token) => self.search(desk, token, &mut slice, shares),
            };
            budget += slice;
            if progress == Progress::Paused {
                paused += 1;
                continue;
            }
            self.line.work.retain(|other| *other != work);
            match (progress, work) {
                (Progress::Shared, _) => self.line.work.push_back(work),
                (Progress::ForDisk, Work::Queue(token)) => self.wait_for_disk(token),
                _ => {}
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
            if partition.queue.is_empty() {
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
        let Some(partition) = self.partitions.get(token) else { return Progress::Empty };
        let before = partition.log.batches_to_search();
        self.with_log(desk, token, |log, _, effects, events| {
            log.search_on(budget, effects, events);
        });
        let Some(partition) = self.partitions.get_mut(token) else { return Progress::Empty };
        match partition.log.batches_to_search() {
            0 => {
                partition.is_searching = false;
                Progress::Empty
            }
            left if shares && left < before => Progress::Shared,
            _ => Progress::Paused,
        }
    }
}
