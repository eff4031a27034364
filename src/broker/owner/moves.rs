//! Replicas that go from one log directory to another (KIP-113, KIP-858).
//!
//! A copy of the log is made beside it, in the other directory, under the name of a future one, and
//! takes its place when it has everything. One log after the other has the name, never two: each
//! step is durable before the next, so that whoever starts on what a crash left, Apache Kafka too,
//! finds one log that has all that was acknowledged.
//!
//! | stage | what happens | it ends when |
//! |---|---|---|
//! | `Opening` | the copy is made, or opened after a restart; cleaning ends | both are open |
//! | `Cutting` | what a restart has left in the copy and not in the log is cut off | it is |
//! | `Copying` | batches are copied | few are left |
//! | `Syncing` | what is there of the copy is made durable | it is |
//! | `Following` | appends are acknowledged when the copy has them too | it has all others |
//! | `Assigning` | the metadata are told the new directory | they say it |
//! | `Marking` | the copy gets a mark, by which a start knows it if there are two logs | it has |
//! | `Settling` | the partition is held, not for long | nothing of either log is under way |
//! | `Leaving` | the folder of the log gets the name of a deleted one | it has it, durably |
//! | `Arriving` | that of the copy gets the name of the log | the same |
//! | `Returning` | the copy's disk failed meanwhile: the log gets its name back | the same |
//! | `Cancelling` | the copy is deleted | its folder has such a name, durably |
//! | `Stalled` | the log's own directory has failed | the next start |
//!
//! From `Assigning` on the metadata may name the directory of the copy. Kafka takes the copy for
//! the log then, after a restart, whatever it lacks (`LogManager.recoverAbandonedFutureLogs`): so
//! it must lack nothing that was acknowledged, and where the move is given up, nothing is
//! acknowledged before the metadata name the old directory again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use api::FileEffect;
use base::{Duration, Instant, Map, Offset, Random, Token, Uuid};
use commitlog::{
    Checkpoints, CopyPlace, Log, LogEvent, LogParams, LogState, deleted_folder, future_folder,
};
use intercom::PartitionKey;
use protocol::ErrorCode;

use super::turns::Turns;
use super::{Alarm, COPIES_MAX, Desk, Notice, Owner};
use crate::files::FileStep;
use crate::partition::Partition;
use crate::setup::LogDirectorySetup;

/// What is copied at a time, in bytes, unless a single batch is larger.
pub(super) const PIECE_BYTES: u32 = 512 << 10;
/// How long a copy waits that did not fit its disk.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How long whatever is asked of a partition waits at most for its two logs to come to rest.
const HOLD_MAX: Duration = Duration::from_secs(2);
/// How long it is served before it waits once more, where they did not.
const SERVE_MIN: Duration = Duration::from_secs(10);

/// How far a move has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Opening,
    Cutting,
    Copying,
    Syncing(Offset),
    Following(Offset),
    Assigning,
    Marking(Mark),
    Settling,
    Leaving,
    Arriving,
    Returning,
    Cancelling,
    Stalled,
}

/// How far the mark of a copy has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// There was no space for it.
    Waiting,
    /// Its file is made.
    Making,
    /// The name of that file is made durable.
    Syncing,
}

impl Stage {
    /// Whether batches are copied.
    pub(super) fn copies(self) -> bool {
        self.is_followed() || matches!(self, Stage::Copying | Stage::Syncing(_))
    }

    /// Whether appends wait for the copy.
    pub(super) fn is_followed(self) -> bool {
        use Stage::{Assigning, Following, Marking, Settling};
        matches!(self, Following(_) | Assigning | Marking(_) | Settling)
    }

    /// Whether folders are getting other names: that cannot be stopped.
    fn renames(self) -> bool {
        matches!(self, Stage::Leaving | Stage::Arriving | Stage::Returning)
    }

    /// Whether whatever is asked of the partition waits, or did.
    fn holds(self) -> bool {
        self == Stage::Settling || self.renames()
    }
}

/// One move.
#[derive(Debug)]
pub(super) struct Move {
    /// The copy, as long as there is one: it goes with its disk, or when it is deleted.
    pub(super) copy: Option<Token>,
    /// The directory that it is in.
    to: u16,
    pub(super) stage: Stage,
    /// What is copied next, once that is known.
    pub(super) place: Option<CopyPlace>,
    /// The copy ends where a batch of the log does, as far as that can be known.
    pub(super) is_in_step: bool,
    /// How much is read at least: the next batch is as long.
    pub(super) bytes_min: u32,
    /// Nothing is copied before, after something went wrong.
    pub(super) not_before: Option<Instant>,
    /// While the partition is held: it is let go then. Else it is not held before.
    turns_at: Instant,
    /// The metadata may name the directory of the copy.
    is_assigned: bool,
    /// The directory to move to afterwards.
    next: Option<u16>,
}

/// A piece of a log on its way to the copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// The partition that moves.
    pub(super) source: Token,
    /// Whether it is still being read; else it is being written.
    pub(super) is_read: bool,
}

/// The moves of a shard.
#[derive(Debug)]
pub(super) struct Moves {
    directories: Arc<[LogDirectorySetup]>,
    random: Random,
    /// By the partition that moves.
    pub(super) all: Map<Token, Move>,
    /// By the copy.
    by_copy: Map<Token, Token>,
    /// Moves that something happened to.
    woken: BTreeSet<Token>,
    /// Moves that have something to copy.
    pub(super) turns: Turns,
    /// The piece that is being copied, by the directory that it goes to.
    pub(super) busy: BTreeMap<u16, Piece>,
    /// Bytes in a second that this shard may copy; none for all that it can.
    pub(super) bytes_per_second: Option<u64>,
    /// When what was copied so far is paid for.
    pub(super) paid_at: Instant,
    /// Partitions that acknowledge nothing until the metadata name their own directory again.
    reverting: BTreeSet<Token>,
    /// The shard stops: nothing begins any more.
    is_stopping: bool,
}

impl Moves {
    pub(super) fn new(directories: Arc<[LogDirectorySetup]>, random: Random) -> Self {
        Self {
            directories,
            random,
            all: Map::default(),
            by_copy: Map::default(),
            woken: BTreeSet::new(),
            turns: Turns::default(),
            busy: BTreeMap::new(),
            bytes_per_second: None,
            paid_at: Instant::ZERO,
            reverting: BTreeSet::new(),
            is_stopping: false,
        }
    }

    /// A partition that is being moved has come so far.
    pub(super) fn set_stage(&mut self, source: Token, stage: Stage) {
        self.all.get_mut(&source).expect("it moves").stage = stage;
    }

    /// Nothing is done for a move before this time.
    pub(super) fn delay(&mut self, source: Token, until: Instant) {
        self.all.get_mut(&source).expect("it moves").not_before = Some(until);
    }

    /// Whether the partition is being moved.
    pub(super) fn has(&self, token: Token) -> bool {
        self.all.contains_key(&token)
    }

    /// Whether its copy is taking its place, and nothing of the old log is needed any more.
    pub(super) fn is_arriving(&self, token: Token) -> bool {
        self.all.get(&token).is_some_and(|moved| moved.stage == Stage::Arriving)
    }

    /// The partition whose copy this is.
    pub(super) fn source_of(&self, copy: Token) -> Option<Token> {
        self.by_copy.get(&copy).copied()
    }

    /// The partitions that are moved, and their copies; without those that are being deleted.
    pub(super) fn copies_and_logs(&self) -> impl Iterator<Item = (Token, Token)> {
        let live = self.all.iter().filter(|(_, moved)| moved.stage != Stage::Cancelling);
        live.filter_map(|(log, moved)| Some((*log, moved.copy?)))
    }

    /// Something happened to a partition or a copy.
    pub(super) fn wake(&mut self, token: Token) {
        if self.all.is_empty() {
            return;
        }
        let source = self.source_of(token).unwrap_or(token);
        if self.all.contains_key(&source) {
            self.woken.insert(source);
        }
    }

    /// A move has something to copy.
    pub(super) fn takes_turn(&mut self, source: Token) {
        let is_urgent = self.all.get(&source).is_some_and(|moved| moved.stage.is_followed());
        self.turns.add(source, is_urgent);
    }

    /// The copy of a partition is no more, or not to be heard any more.
    fn lose_copy(&mut self, source: Token) {
        let copy = self.all.get_mut(&source).and_then(|moved| moved.copy.take());
        if let Some(copy) = copy {
            self.by_copy.remove(&copy);
        }
    }

    /// Forgets a move.
    fn take(&mut self, source: Token) -> Option<Move> {
        self.lose_copy(source);
        let moved = self.all.remove(&source)?;
        self.turns.remove(source);
        self.busy.retain(|_, piece| piece.source != source);
        Some(moved)
    }
}

/// What is asked.
impl Owner {
    /// Moves a partition into a directory that is online, or stops moving it elsewhere
    /// (`ReplicaManager.alterReplicaLogDirs`). With a directory that is offline nothing new begins:
    /// a copy may lie there.
    pub(crate) fn move_replica(
        &mut self,
        desk: &mut Desk<'_>,
        key: PartitionKey,
        directory: u16,
        may_begin: bool,
    ) -> ErrorCode {
        if self.moves.is_stopping {
            // A copy that is being closed must not be deleted: whoever stops waits for it.
            return ErrorCode::NOT_LEADER_OR_FOLLOWER;
        }
        let Some(&token) = self.by_key.get(&key) else { return ErrorCode::REPLICA_NOT_AVAILABLE };
        let partition = self.partition(token);
        if partition.log.state() == LogState::Failed {
            return ErrorCode::KAFKA_STORAGE_ERROR;
        }
        let here = partition.directory == directory;
        let Some(moved) = self.moves.all.get_mut(&token) else {
            return match (here, may_begin) {
                (true, _) => ErrorCode::NONE,
                (false, false) => ErrorCode::KAFKA_STORAGE_ERROR,
                (false, true) => self.begin_move(desk, token, directory),
            };
        };
        if moved.stage.renames() || moved.stage == Stage::Cancelling {
            moved.next = Some(directory);
        } else if moved.to != directory {
            moved.next = Some(directory).filter(|_| !here && may_begin);
            self.cancel_move(desk, token);
            if !here && !may_begin {
                return ErrorCode::KAFKA_STORAGE_ERROR;
            }
        }
        ErrorCode::NONE
    }

    /// Makes the copy of a partition.
    fn begin_move(&mut self, desk: &mut Desk<'_>, token: Token, directory: u16) -> ErrorCode {
        let partition = self.partition(token);
        if partition.log.state() != LogState::Open {
            return ErrorCode::REPLICA_NOT_AVAILABLE;
        }
        let name = partition.name.clone();
        let (_, start) = partition.log.copy_begins();
        if !self.has_room_for_copy() {
            tracing::warn!(partition = %name, "too many partitions move already, or just have");
            return ErrorCode::REPLICA_NOT_AVAILABLE;
        }
        let unique = Uuid::random(&mut self.moves.random);
        let Some(folder) = future_folder(&name, unique) else {
            return ErrorCode::INVALID_TOPIC_EXCEPTION;
        };
        tracing::info!(partition = %name, %folder, "the partition moves to another directory");
        let params = self.copy_params(token, directory, &folder);
        let log = Log::create_at(params, start, &mut self.log_effects);
        self.add_copy(desk, token, directory, log, None);
        ErrorCode::NONE
    }

    /// Goes on with a move that an earlier process had begun; `is_assigned` says whether the
    /// metadata name the directory of the copy.
    pub(crate) fn resume_move(
        &mut self,
        desk: &mut Desk<'_>,
        key: PartitionKey,
        directory: u16,
        (folder, found): (&str, Checkpoints),
        is_assigned: bool,
    ) {
        let Some(&token) = self.by_key.get(&key) else { return };
        if self.partition(token).log.state() == LogState::Failed {
            return;
        }
        if is_assigned {
            // Nothing is acknowledged before it is known again where the log is.
            self.moves.reverting.insert(token);
            self.partition(token).follow(Some((Offset(0), Offset(0))));
        }
        let mut params = self.copy_params(token, directory, folder);
        if !self.has_room_for_copy() {
            tracing::warn!(partition = %params.partition, %folder, "it moves on at another start");
            return;
        }
        tracing::info!(partition = %params.partition, %folder, "the partition goes on moving");
        // The power may have taken the middle of the copy. Between two segments of a log that is
        // compacted nothing would be missed: this one ends there, and is copied on.
        params.config.compact = false;
        let found = Checkpoints { first_dirty: None, ..found };
        let log = Log::open(params, found, &mut self.log_effects);
        self.add_copy(desk, token, directory, log, Some(found));
    }

    /// Whether there may be one copy more.
    fn has_room_for_copy(&self) -> bool {
        self.partitions.len() < self.by_key.len() + COPIES_MAX
    }

    fn copy_params(&mut self, token: Token, directory: u16, folder: &str) -> LogParams {
        let path = self.moves.directories[usize::from(directory)].path.join(folder);
        let partition = self.partition(token);
        LogParams {
            directory: path,
            partition: partition.name.clone(),
            topic_id: partition.key.topic,
            sets_strays_aside: false,
            config: partition.rules().log.clone(),
        }
    }

    fn add_copy(
        &mut self,
        desk: &mut Desk<'_>,
        token: Token,
        directory: u16,
        log: Log,
        known: Option<Checkpoints>,
    ) {
        let partition = self.partition(token);
        let (key, name) = (partition.key, partition.name.clone());
        let rules = Arc::clone(partition.rules());
        let copy = Partition::new(key, name, directory, log, rules).known(known);
        let copy = self.partitions.insert(copy).expect("copies are bounded");
        let moved = Move {
            copy: Some(copy),
            to: directory,
            stage: Stage::Opening,
            place: None,
            is_in_step: false,
            bytes_min: 0,
            not_before: None,
            turns_at: Instant::ZERO,
            is_assigned: false,
            next: None,
        };
        self.moves.all.insert(token, moved);
        self.moves.by_copy.insert(copy, token);
        self.file_log_effects(desk, copy);
        self.moves.wake(token);
    }

    /// Gives a move up: the copy goes.
    pub(super) fn cancel_move(&mut self, desk: &mut Desk<'_>, token: Token) {
        let partition = &self.partition(token).name;
        tracing::info!(%partition, "the partition does not move there");
        self.release(desk, token);
        self.revert_assignment(desk, token);
        let unique = Uuid::random(&mut self.moves.random);
        let moved = self.moves.all.get_mut(&token).expect("it is cancelled once");
        (moved.stage, moved.place) = (Stage::Cancelling, None);
        let copy = moved.copy.expect("what is cancelled has a copy");
        self.moves.turns.remove(token);
        self.moves.busy.retain(|_, piece| piece.source != token);
        self.with_log(desk, copy, |log, _, effects, _| log.remove(unique, effects));
        self.count_dirt(copy);
    }

    /// The metadata may name the directory of the copy: nothing is acknowledged before they name
    /// that of the log.
    fn revert_assignment(&mut self, desk: &mut Desk<'_>, token: Token) {
        let Some(moved) = self.moves.all.get_mut(&token) else { return };
        if std::mem::take(&mut moved.is_assigned) {
            self.moves.reverting.insert(token);
            let partition = self.partition(token);
            partition.follow(Some((Offset(0), Offset(0))));
            let (key, directory) = (partition.key, partition.directory);
            self.notices.push(Notice::InDirectory(key, directory));
        } else if !self.moves.reverting.contains(&token) {
            self.partition(token).follow(None);
            // What only the copy lacked is acknowledged.
            self.advanced(desk, token);
        }
    }

    /// The metadata name this directory, by its id, as that of a partition.
    pub(crate) fn assigned(&mut self, desk: &mut Desk<'_>, key: PartitionKey, id: Uuid) {
        let Some(&token) = self.by_key.get(&key) else { return };
        let directory = self.partition(token).directory;
        let own = self.moves.directories[usize::from(directory)].id;
        if own == id && self.moves.reverting.remove(&token) {
            self.partition(token).follow(None);
            self.advanced(desk, token);
        }
        let assigning = self.moves.all.get(&token).filter(|it| it.stage == Stage::Assigning);
        let Some(to) = assigning.map(|moved| moved.to) else { return };
        if self.moves.directories[usize::from(to)].id == id {
            self.mark_copy(desk, token);
        }
    }
}

/// The way from stage to stage.
impl Owner {
    /// Goes on with the moves that something happened to.
    pub(super) fn go_on_moving(&mut self, desk: &mut Desk<'_>) {
        if self.moves.all.is_empty() {
            return;
        }
        loop {
            for token in std::mem::take(&mut self.moves.woken) {
                while self.go_on_with(desk, token) {}
            }
            self.copy_on(desk);
            if self.moves.woken.is_empty() {
                return;
            }
        }
    }

    /// Goes on with a move, if it can; whether it can further.
    fn go_on_with(&mut self, desk: &mut Desk<'_>, token: Token) -> bool {
        let Some(moved) = self.moves.all.get(&token) else { return false };
        if self.moves.is_stopping && !moved.stage.renames() {
            return false;
        }
        let stage = moved.stage;
        let Some(copy) = moved.copy else { return false };
        if stage == Stage::Marking(Mark::Waiting) && moved.not_before.is_none() {
            self.mark_copy(desk, token);
            return false;
        }
        if stage.copies() {
            if moved.place.is_none() {
                return self.look_for_place(desk, token, copy);
            }
            self.line_up(token);
        }
        let next = match stage {
            Stage::Opening => self.both_open(desk, token, copy),
            Stage::Copying => self.nearly_copied(token, copy),
            Stage::Syncing(until) => {
                self.is_durable(copy, until).then(|| self.begin_to_follow(desk, token))
            }
            Stage::Following(until) => {
                let has_all = self.has_all_below(copy, until) || self.has_all_there_is(token, copy);
                has_all.then(|| self.begin_to_assign(token, copy))
            }
            Stage::Settling => self.settled(desk, token, copy),
            Stage::Leaving => self.leaves_later(desk, token),
            Stage::Cutting
            | Stage::Assigning
            | Stage::Marking(_)
            | Stage::Arriving
            | Stage::Returning
            | Stage::Cancelling
            | Stage::Stalled => None,
        };
        let Some(next) = next else { return false };
        let name = &self.partition(token).name;
        tracing::debug!(partition = %name, from = ?stage, to = ?next, "moving");
        self.moves.all.get_mut(&token).expect("it goes on").stage = next;
        true
    }

    /// Begins to copy once both logs are open.
    fn both_open(&mut self, desk: &mut Desk<'_>, token: Token, copy: Token) -> Option<Stage> {
        let is_open =
            |owner: &mut Self, token| owner.partition(token).log.state() == LogState::Open;
        if !is_open(self, token) || !is_open(self, copy) {
            return None;
        }
        // Segments that a place is in must not be replaced.
        self.with_log(desk, token, |log, _, effects, _| log.stop_cleaning(effects));
        if self.partition(token).log.is_cleaning() {
            return None;
        }
        let first_dirty = self.partition(token).log.first_dirty_offset();
        let copied = self.partition(copy);
        let config = copied.rules().log.clone();
        copied.log.set_config(config);
        copied.log.follow_cleaning(first_dirty);
        let copied = &copied.log;
        let (end, epoch) = (copied.end_offset(), copied.latest_leader_epoch());
        let (start, first) = (copied.log_start_offset(), copied.copy_begins().1);
        let log = &self.partition(token).log;
        // What was written in the newest epoch of the copy, the log may have less of.
        let common = epoch.map_or(end, |epoch| log.end_offset_for_epoch(epoch).1);
        let common = if common.0 < 0 { end } else { end.min(common) };
        let cut = common.min(log.written_end_offset());
        let is_of_use = start <= log.log_start_offset() && cut >= log.copy_begins().1;
        if cut == end && is_of_use {
            return Some(Stage::Copying);
        }
        if cut <= first || !is_of_use {
            self.begin_anew(desk, token);
            return None;
        }
        self.moves.all.get_mut(&token).expect("it is opened").stage = Stage::Cutting;
        self.with_log(desk, copy, |log, now, effects, events| {
            log.truncate_to(now, cut, effects, events);
        });
        None
    }

    /// Nothing of the copy is of use: another one is made.
    pub(super) fn begin_anew(&mut self, desk: &mut Desk<'_>, token: Token) {
        let moved = self.moves.all.get_mut(&token).expect("it moves");
        moved.next = Some(moved.to);
        self.cancel_move(desk, token);
    }

    /// Looks up where the copy goes on. Whether it is known.
    fn look_for_place(&mut self, desk: &mut Desk<'_>, token: Token, copy: Token) -> bool {
        let end = self.partition(copy).log.end_offset();
        let partition = self.partitions.get_mut(token).expect("it moves");
        let (begin, first) = partition.log.copy_begins();
        let place = match end == first {
            true => Ok(Some(begin)),
            false => partition.log.copy_place(end, &mut self.log_effects),
        };
        self.file_log_effects(desk, token);
        match place {
            Ok(Some(place)) => {
                let moved = self.moves.all.get_mut(&token).expect("it moves");
                moved.place = Some(place);
                moved.is_in_step |= end == first;
                self.moves.takes_turn(token);
                true
            }
            Ok(None) => false,
            Err(_) => {
                self.begin_anew(desk, token);
                false
            }
        }
    }

    /// Whether so little is left to copy that appends need not wait long for it.
    fn nearly_copied(&mut self, token: Token, copy: Token) -> Option<Stage> {
        let place = self.moves.all.get(&token)?.place?;
        let left = self.partition(token).log.copy_left(&place)?;
        if left > u64::from(PIECE_BYTES) {
            return None;
        }
        Some(Stage::Syncing(self.partition(copy).log.end_offset()))
    }

    /// Whether everything is copied and written; then the copy begins and ends where its log does.
    fn all_copied(&mut self, desk: &mut Desk<'_>, token: Token, copy: Token) -> bool {
        if !self.is_at_end(token) {
            return false;
        }
        let log = &self.partition(token).log;
        let (start, end) = (log.log_start_offset(), log.end_offset());
        let is_written = log.written_end_offset() == end;
        let copied = &self.partition(copy).log;
        let lacks_end = copied.end_offset() < end;
        if !is_written || (lacks_end && !copied.is_settled()) {
            return false;
        }
        self.with_log(desk, copy, |log, now, effects, _| {
            log.skip_to(now, end, effects);
            if log.log_start_offset() < start {
                let moved = log.delete_records(now, start, effects);
                moved.expect("the copy reaches so far");
            }
        });
        true
    }

    /// Whether the copy is durable up to here; else it is asked to be.
    fn is_durable(&mut self, copy: Token, until: Offset) -> bool {
        let is_durable = self.partition(copy).log.flushed_end_offset() >= until;
        if !is_durable {
            self.sync_copy(copy);
        }
        is_durable
    }

    /// Whether the copy has all up to here, durably.
    fn has_all_below(&mut self, copy: Token, until: Offset) -> bool {
        self.partition(copy).log.written_end_offset() >= until && self.is_durable(copy, until)
    }

    /// Whether the copy has all that the log has, durably: there may be no batch up to where that
    /// ends, since retention or compaction took the last.
    fn has_all_there_is(&mut self, token: Token, copy: Token) -> bool {
        let end = self.partition(copy).log.end_offset();
        self.is_at_end(token) && self.has_all_below(copy, end)
    }

    fn begin_to_follow(&mut self, desk: &mut Desk<'_>, token: Token) -> Stage {
        let until = self.partition(token).high_watermark();
        self.moves.all.get_mut(&token).expect("it moves").stage = Stage::Following(until);
        self.note_copied(desk, token);
        Stage::Following(until)
    }

    fn begin_to_assign(&mut self, token: Token, copy: Token) -> Stage {
        let directory = self.partition(copy).directory;
        let key = self.partition(token).key;
        self.moves.all.get_mut(&token).expect("it moves").is_assigned = true;
        self.moves.reverting.remove(&token);
        self.notices.push(Notice::InDirectory(key, directory));
        Stage::Assigning
    }

    /// Holds what is asked, and gives the log's name away once nothing is under way.
    fn settled(&mut self, desk: &mut Desk<'_>, token: Token, copy: Token) -> Option<Stage> {
        let (now, is_held) = (desk.now.mono, self.partition(token).is_held);
        let moved = self.moves.all.get_mut(&token).expect("it settles");
        let is_turn = moved.turns_at <= now;
        if is_held && is_turn {
            moved.turns_at = now + SERVE_MIN;
            self.alarms.set(now + SERVE_MIN, Alarm::Move(token));
            let partition = &self.partition(token).name;
            tracing::warn!(%partition, "the partition moves later: its logs do not come to rest");
            self.release(desk, token);
            return None;
        }
        if !is_held {
            // What takes long, or waits for space, would keep everybody waiting.
            let is_calm = |owner: &mut Self, token| owner.partition(token).log.is_calm();
            if !is_turn || !is_calm(self, token) || !is_calm(self, copy) {
                return None;
            }
            self.moves.all.get_mut(&token).expect("it settles").turns_at = now + HOLD_MAX;
            self.alarms.set(now + HOLD_MAX, Alarm::Move(token));
            self.hold(token);
        }
        if !self.all_copied(desk, token, copy) {
            return None;
        }
        let end = self.partition(token).log.end_offset();
        if !self.is_durable(copy, end) {
            return None;
        }
        let partition = self.partition(token);
        let is_idle = !partition.has_waiting() && partition.log.is_settled();
        let start = partition.log.log_start_offset();
        let copied = &self.partition(copy).log;
        let is_same = copied.end_offset() == end && copied.log_start_offset() == start;
        if !is_idle || !is_same || !copied.is_settled() {
            return None;
        }
        let unique = Uuid::random(&mut self.moves.random);
        let folder = deleted_folder(&self.partition(token).name, unique);
        // Its turn comes once the log has that name.
        self.with_log(desk, copy, |log, _, _, _| log.keep_still());
        self.with_log(desk, token, |log, _, effects, _| log.rename(&folder, effects));
        Some(Stage::Leaving)
    }

    /// Lets a log keep its name whose disk has no space for another one.
    fn leaves_later(&mut self, desk: &mut Desk<'_>, token: Token) -> Option<Stage> {
        let is_late = self.moves.all.get(&token).expect("it leaves").turns_at <= desk.now.mono;
        let stays = is_late && self.partition(token).log.stop_renaming();
        if !stays {
            return None;
        }
        if let Some(copy) = self.moves.all.get(&token).and_then(|moved| moved.copy) {
            self.with_log(desk, copy, |log, _, _, _| log.live_on());
        }
        Some(Stage::Settling)
    }

    /// Whatever is asked of the partition waits from now on.
    fn hold(&mut self, token: Token) {
        let partition = self.partition(token);
        partition.is_held = true;
        // A check that has begun begins anew.
        partition.check = None;
        let directory = partition.directory;
        self.opening.insert(token);
        self.stop_checking(token);
        self.forget_to_wait(directory, token);
    }

    /// Nothing has to wait any more.
    fn release(&mut self, desk: &mut Desk<'_>, token: Token) {
        let partition = self.partition(token);
        if !std::mem::take(&mut partition.is_held) {
            return;
        }
        let parked = std::mem::take(&mut partition.parked);
        let led_in = partition.led_in();
        self.opening.remove(&token);
        if let Some(epoch) = led_in.filter(|_| self.partition(token).log.state() == LogState::Open)
        {
            // It may have come meanwhile.
            self.with_log(desk, token, |log, now, effects, _| {
                log.assign_leader_epoch(now, epoch, effects);
            });
        }
        let searching = self.locating.remove(&(token, None)).unwrap_or_default();
        self.ask_again(desk, searching);
        self.call_host(desk, token);
        self.move_queue(desk, token);
        self.ask_again(desk, parked);
        self.wake(token);
        self.notices.push(Notice::Left);
    }
}

/// What logs say.
impl Owner {
    /// A copy has said something.
    pub(super) fn on_copy_event(
        &mut self,
        desk: &mut Desk<'_>,
        copy: Token,
        source: Token,
        event: LogEvent,
    ) {
        match event {
            LogEvent::Opened { .. } => self.partition(copy).opened(),
            LogEvent::Written { .. } | LogEvent::Synced { .. } => self.note_copied(desk, source),
            LogEvent::Truncated { .. } => {
                let moved = self.moves.all.get_mut(&source).expect("its copy speaks");
                moved.stage = Stage::Copying;
            }
            LogEvent::Moved => self.copy_has_name(desk, copy, source),
            LogEvent::Renamed => self.copy_is_deleted(desk, copy, source),
            LogEvent::Refused { cause, .. } => self.copy_refused(desk, source, &cause),
            LogEvent::NoSpace { cause } => {
                let partition = &self.partition(copy).name;
                tracing::warn!(%partition, %cause, "the copy is made in a moment");
            }
            LogEvent::Closed { .. } => self.end_closing(copy),
            LogEvent::NotClosed { cause } => {
                let partition = &self.partition(copy).name;
                tracing::warn!(%partition, %cause, "the next start recovers the copy");
                self.has_unclosed_log(copy);
                self.end_closing(copy);
            }
            LogEvent::Failed { cause } => self.disk_failed(desk, copy, cause.to_string()),
            LogEvent::Unreadable { sentence } => {
                let partition = &self.partition(copy).name;
                tracing::error!(%partition, "the copy cannot be used: {sentence}");
                self.has_unclosed_log(copy);
                self.copy_has_failed(desk, source);
                self.partitions.remove(copy);
            }
            LogEvent::Removed => {
                self.moves.lose_copy(source);
                self.partitions.remove(copy);
            }
            LogEvent::Located { .. }
            | LogEvent::TimestampFound { .. }
            | LogEvent::SearchFailed { .. }
            | LogEvent::StartMoved { .. }
            | LogEvent::Cleaned { .. }
            | LogEvent::Stray => {}
        }
        self.moves.wake(source);
    }

    /// The current log has the name of a deleted one, or its own again.
    pub(super) fn source_has_name(&mut self, desk: &mut Desk<'_>, source: Token) {
        let Some(moved) = self.moves.all.get_mut(&source) else { return };
        let copy = moved.copy;
        let is_returning = moved.stage == Stage::Returning;
        let partition = self.partition(source);
        let name = partition.name.to_string();
        if is_returning && partition.log.folder() == name.as_str() {
            partition.log.live_on();
            self.revert_assignment(desk, source);
            self.moves.take(source);
            self.touch(source);
            self.release(desk, source);
            return self.close_if_stopping(desk, source);
        }
        if is_returning {
            return self.with_log(desk, source, |log, _, effects, _| log.rename(&name, effects));
        }
        let copy = copy.expect("where the copy is lost, the log returns");
        self.moves.all.get_mut(&source).expect("it is leaving").stage = Stage::Arriving;
        self.with_log(desk, copy, |log, _, effects, _| log.rename(&name, effects));
    }

    /// The copy has the name of its log, and takes its place.
    fn copy_has_name(&mut self, desk: &mut Desk<'_>, copy: Token, source: Token) {
        let moved = self.moves.take(source).expect("its copy speaks");
        for token in [source, copy] {
            self.uncount_dirt(token);
            self.log_alarms.remove(&token);
        }
        let mut old = self.partitions.remove(copy).expect("it speaks");
        let partition = self.partitions.get_mut(source).expect("it moves");
        let from = partition.directory;
        partition.replace_log(&mut old);
        let (to, name) = (partition.directory, partition.name.clone());
        partition.log.succeed(desk.now, &mut old.log, &mut self.log_effects);
        old.log.remove_renamed(desk.now);
        self.file_log_effects(desk, source);
        self.unmark_copy(desk, source);
        self.moves_waiting_bytes(source, from, to);
        let old = self.partitions.insert(old).expect("there was room for it");
        self.set_log_alarm(old);
        self.set_log_alarm(source);
        let directory = self.moves.directories[usize::from(to)].path.display();
        tracing::info!(partition = %name, %directory, "the partition has moved");
        self.notices.push(Notice::Moved);
        self.release(desk, source);
        self.touch(source);
        self.move_further(desk, source, moved.next);
        self.close_if_stopping(desk, source);
    }

    /// Moves a partition to where it was wanted while the last move could not be ended.
    fn move_further(&mut self, desk: &mut Desk<'_>, token: Token, next: Option<u16>) {
        let here = self.partition(token).directory;
        let Some(next) = next.filter(|next| *next != here && !self.moves.is_stopping) else {
            return;
        };
        let code = self.begin_move(desk, token, next);
        if code != ErrorCode::NONE {
            let partition = &self.partition(token).name;
            tracing::warn!(%partition, %code, "the partition does not move any further");
        }
    }

    /// The folder of a copy that nobody wants has the name of a deleted one: now durably.
    fn copy_is_deleted(&mut self, desk: &mut Desk<'_>, copy: Token, source: Token) {
        let directory = usize::from(self.partition(copy).directory);
        let directory: PathBuf = self.moves.directories[directory].path.clone();
        let effect = FileEffect::SyncDirectory { token: source, directory };
        desk.files.file(desk.effects, effect, |source| FileStep::Cancelled(source, copy));
    }

    /// The same is durable.
    pub(crate) fn copy_is_cancelled(
        &mut self,
        desk: &mut Desk<'_>,
        source: Token,
        copy: Token,
        result: api::IoResult<()>,
    ) {
        let cancelling = |moved: &&Move| moved.stage == Stage::Cancelling;
        let Some(moved) = self.moves.all.get(&source).filter(cancelling) else { return };
        // Its disk may have failed meanwhile, and another copy been made and given up.
        let current = moved.copy;
        if current.is_some_and(|current| current != copy) {
            return;
        }
        if let Err(cause) = result
            && let Some(copy) = current
        {
            return self.disk_failed(desk, copy, cause.to_string());
        }
        let moved = self.moves.take(source).expect("it is cancelled");
        self.move_further(desk, source, moved.next);
    }

    /// The disk is too full for the copy. One that holds up appends is given up.
    fn copy_refused(&mut self, desk: &mut Desk<'_>, source: Token, cause: &api::IoError) {
        let name = self.partition(source).name.clone();
        let moved = self.moves.all.get_mut(&source).expect("its copy speaks");
        moved.not_before = Some(desk.now.mono + RETRY_AFTER);
        moved.place = None;
        let is_followed = moved.stage.is_followed();
        self.moves.busy.retain(|_, piece| piece.source != source);
        tracing::warn!(partition = %name, %cause, "the copy does not fit its disk");
        if is_followed {
            self.cancel_move(desk, source);
        }
    }

    /// The directory of the copy has failed, or the copy cannot be used.
    pub(super) fn copy_has_failed(&mut self, desk: &mut Desk<'_>, source: Token) {
        let stage = self.moves.all.get(&source).expect("it moves").stage;
        if self.partition(source).log.state() == LogState::Failed {
            // Both directories have failed. The log may have lost its name before: the metadata go
            // on naming the copy, if they do, which has everything then.
            self.moves.take(source);
            self.moves.reverting.remove(&source);
            self.partition(source).is_held = false;
            return self.log_is_offline(desk, source);
        }
        if !stage.renames() {
            self.revert_assignment(desk, source);
            self.moves.take(source);
            return self.release(desk, source);
        }
        // The log gets its name back; nothing was appended meanwhile. Until it has it, the metadata
        // name the copy: whoever starts then must not make an empty log.
        self.moves.lose_copy(source);
        self.moves.all.get_mut(&source).expect("it moves").stage = Stage::Returning;
        if stage == Stage::Arriving {
            let name = self.partition(source).name.to_string();
            self.with_log(desk, source, |log, _, effects, _| log.rename(&name, effects));
        }
    }

    /// The directory of the current log has failed: the copy stays as it is.
    pub(super) fn source_has_failed(&mut self, source: Token) {
        if self.partition(source).is_held {
            self.partition(source).is_held = false;
        }
        self.moves.reverting.remove(&source);
        let moved = self.moves.all.get_mut(&source).expect("it moves");
        moved.stage = Stage::Stalled;
        self.moves.turns.remove(source);
        self.moves.busy.retain(|_, piece| piece.source != source);
    }

    /// The topic is deleted: the copy goes as well.
    pub(super) fn delete_copy(&mut self, desk: &mut Desk<'_>, source: Token, offset: Offset) {
        self.moves.reverting.remove(&source);
        self.partition(source).is_held = false;
        let copy = self.moves.all.get(&source).and_then(|moved| moved.copy);
        let Some(moved) = self.moves.take(source) else { return };
        let Some(copy) = copy else { return };
        let partition = self.partition(copy);
        if partition.log.state() == LogState::Failed || moved.stage == Stage::Cancelling {
            return;
        }
        self.leaving.insert(copy, offset);
        let unique = Uuid::random(&mut self.moves.random);
        self.with_log(desk, copy, |log, _, effects, _| log.remove(unique, effects));
    }

    /// The shard stops. Folders that are getting their names get them; returns the partitions that
    /// are closed behind that, and the copies to close.
    pub(super) fn stop_moving(&mut self, desk: &mut Desk<'_>) -> (Vec<Token>, Vec<Token>) {
        self.moves.is_stopping = true;
        let (mut later, mut copies) = (Vec::new(), Vec::new());
        for token in self.moves.all.keys().copied().collect::<Vec<Token>>() {
            let moved = &self.moves.all[&token];
            let (copy, stage) = (moved.copy, moved.stage);
            if stage.renames() {
                later.push(token);
                continue;
            }
            if stage.holds() {
                self.release(desk, token);
            }
            let Some(copy) = copy else { continue };
            match self.partition(copy).log.state() {
                LogState::Open => copies.push(copy),
                LogState::Opening => self.has_unclosed_log(copy),
                _ => {}
            }
        }
        (later, copies)
    }

    fn close_if_stopping(&mut self, desk: &mut Desk<'_>, token: Token) {
        if self.moves.is_stopping && self.closing.contains(&token) {
            self.close_one(desk, token);
        }
    }
}
