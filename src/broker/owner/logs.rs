//! The logs of the partitions: from the image to open files, and from what the files say to those
//! who wait.

use std::sync::Arc;

use api::{FileEffect, FileOutcome, IoError};
use base::{LeaderEpoch, Now, Offset, Token, TopicPartition, Uuid};
use commitlog::{Checkpoints, Log, LogEvent, LogParams, LogState, LogStep};

use intercom::{LogPosition, PartitionKey};
use protocol::ErrorCode;

use super::{Alarm, Desk, Notice, Owner};
use crate::files::FileStep;
use crate::partition::{Partition, Waiter};
use crate::rules::TopicRules;
use crate::topics::{SHARE_TOPIC, TRANSACTIONS_TOPIC};

/// Which log belongs to a partition that this shard is given.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) key: PartitionKey,
    pub(crate) name: TopicPartition,
    pub(crate) directory: u16,
    /// The folder of the log itself.
    pub(crate) path: std::path::PathBuf,
    pub(crate) rules: Arc<TopicRules>,
    /// Whether this node leads it.
    pub(crate) leads: bool,
    pub(crate) leader_epoch: LeaderEpoch,
    /// What there is of it.
    pub(crate) found: Found,
}

/// What there is of a log when its partition is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Its folder, with what the directory's checkpoints say of it.
    Log(Checkpoints),
    /// Nothing: it is made.
    Nothing,
    /// It lies in a directory that is offline, or may lie there.
    Offline,
}

impl Owner {
    /// Takes a partition in and opens or makes its log.
    pub(crate) fn take_in(&mut self, desk: &mut Desk<'_>, opening: Opening) {
        let params = LogParams {
            directory: opening.path,
            partition: opening.name.clone(),
            topic_id: opening.key.topic,
            sets_strays_aside: true,
            config: opening.rules.log.clone(),
        };
        let known = match opening.found {
            Found::Log(found) => Some(found),
            Found::Nothing | Found::Offline => None,
        };
        let log = match opening.found {
            Found::Log(found) => Log::open(params, found, &mut self.log_effects),
            Found::Nothing => Log::create(params, &mut self.log_effects),
            Found::Offline => Log::offline(params),
        };
        let is_opening = log.state() == LogState::Opening;
        let partition =
            Partition::new(opening.key, opening.name, opening.directory, log, opening.rules)
                .led(opening.leads, opening.leader_epoch)
                .known(known);
        let token = self.partitions.insert(partition).expect("the image's partitions are bounded");
        self.by_key.insert(opening.key, token);
        if is_opening {
            self.opening.insert(token);
        }
        self.file_log_effects(desk, token);
    }

    /// Whether the partition is here.
    pub(crate) fn has(&self, key: PartitionKey) -> bool {
        self.by_key.contains_key(&key)
    }

    /// The rules of a topic have changed.
    pub(crate) fn set_rules(&mut self, key: PartitionKey, rules: &Arc<TopicRules>) {
        let token = self.by_key.get(&key).copied();
        let copy = token.and_then(|token| self.moves.all.get(&token)).and_then(|moved| moved.copy);
        for token in token.into_iter().chain(copy) {
            if let Some(partition) = self.partitions.get_mut(token) {
                partition.set_rules(Arc::clone(rules));
            }
        }
    }

    /// Who leads the partition has changed, or its epoch.
    pub(crate) fn set_leader(
        &mut self,
        desk: &mut Desk<'_>,
        key: PartitionKey,
        leads: bool,
        leader_epoch: LeaderEpoch,
    ) {
        let Some(&token) = self.by_key.get(&key) else { return };
        let partition = self.partitions.get_mut(token).expect("the table is in step");
        partition.set_leader(leads, leader_epoch);
        if !leads {
            self.refuse_queue(desk, token);
        }
        let partition = self.partition(token);
        if leads && !partition.is_opening() && partition.unavailable().is_none() {
            self.with_log(desk, token, |log, now, effects, _| {
                log.assign_leader_epoch(now, leader_epoch, effects);
            });
        }
        self.host_if_led(desk, token);
    }

    /// The topic was deleted, as the image at `offset` says: its log goes, and who waits for it is
    /// told.
    pub(crate) fn delete(
        &mut self,
        desk: &mut Desk<'_>,
        key: PartitionKey,
        offset: Offset,
        random: Uuid,
    ) {
        let Some(token) = self.by_key.remove(&key) else { return };
        if self.partition(token).log.state() != LogState::Failed {
            self.leaving.insert(token, offset);
        }
        self.opening.remove(&token);
        self.delete_copy(desk, token, offset);
        self.end_host(desk, token);
        self.refuse_waiting(desk, token);
        self.wake(token);
        self.with_log(desk, token, |log, _, effects, _| log.remove(random, effects));
        let parked = std::mem::take(&mut self.partition(token).parked);
        self.refuse_queue(desk, token);
        self.ask_again(desk, parked);
        self.end_searches(desk, token, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }

    /// Begins to close every log in order; [`Notice::AllClosed`] comes at the end. A deleted one
    /// whose folder still has its name is waited for too: the next start would find a stray.
    pub(crate) fn close_all(&mut self, desk: &mut Desk<'_>) {
        let (later, copies) = self.stop_moving(desk);
        let open = |token: &Token| {
            let partition = self.partitions.get(*token);
            partition.is_some_and(|partition| partition.log.state() == LogState::Open)
        };
        let removing = |token: &Token| {
            let partition = self.partitions.get(*token);
            partition.is_some_and(|partition| partition.log.state() == LogState::Removing)
        };
        let open: Vec<Token> = self.by_key.values().copied().filter(open).collect();
        let leaving = self.leaving.keys().copied().filter(removing);
        self.closing = open.iter().chain(&later).chain(&copies).copied().chain(leaving).collect();
        if self.closing.is_empty() {
            return self.notices.push(Notice::AllClosed);
        }
        for token in open.into_iter().chain(copies) {
            if !later.contains(&token) {
                self.close_one(desk, token);
            }
        }
    }

    /// Begins to close a log.
    pub(super) fn close_one(&mut self, desk: &mut Desk<'_>, token: Token) {
        self.end_host(desk, token);
        self.with_log(desk, token, |log, now, effects, events| {
            log.flush_turn(now, effects);
            log.close(now, effects, events);
        });
        self.refuse_queue(desk, token);
    }

    /// Where each log stands, for the checkpoints of its directory.
    pub(crate) fn positions(&self) -> Vec<LogPosition> {
        // A deleted log has given its name away.
        let here = self.by_key.values().copied();
        let copies = self.moves.copies_and_logs().map(|(_, copy)| copy);
        let all = here.chain(copies).filter_map(|token| self.partitions.get(token));
        all.filter_map(Partition::position).collect()
    }

    /// Something of a log's files is done.
    pub(crate) fn on_file(
        &mut self,
        desk: &mut Desk<'_>,
        token: Token,
        step: LogStep,
        outcome: FileOutcome,
    ) {
        if self.partitions.get(token).is_none() {
            return;
        }
        self.with_log(desk, token, |log, now, effects, events| {
            log.on_file(now, step, outcome, effects, events);
        });
        self.search_later(token);
        self.touch(token);
        self.moves.wake(token);
    }

    /// Does what has come due.
    pub(crate) fn on_time(&mut self, desk: &mut Desk<'_>) {
        self.end_watches(desk.now.mono);
        self.look_for_dirty(desk);
        self.go_round(desk);
        while let Some(alarm) = self.alarms.expired(desk.now.mono) {
            match alarm {
                Alarm::Log(token) => {
                    self.log_alarms.remove(&token);
                    if self.partitions.get(token).is_some() {
                        self.with_log(desk, token, |log, now, effects, events| {
                            log.on_timer(now, effects, events);
                        });
                        self.touch(token);
                    }
                }
                Alarm::Coordinator(token) => self.coordinator_alarm(desk, token),
                Alarm::Move(token) => self.move_alarm(token),
                Alarm::Flush(token) => {
                    let Some(partition) = self.partitions.get_mut(token) else { continue };
                    partition.flushed_by_time();
                    self.with_log(desk, token, |log, _, effects, _| {
                        log.request_sync(effects);
                    });
                }
            }
        }
    }

    /// One write a partition, and a sync where the topic demands one.
    pub(crate) fn end_of_turn(&mut self, desk: &mut Desk<'_>) {
        self.go_on_moving(desk);
        self.end_group_turn(desk);
        self.append_what_waited(desk);
        self.go_on_working(desk);
        // The list keeps its room from turn to turn; nothing that is done here touches a log.
        let mut touched = std::mem::take(&mut self.touched);
        for token in touched.drain(..) {
            let Some(partition) = self.partitions.get_mut(token) else { continue };
            if partition.log.needs_flush() {
                partition.log.flush_turn(desk.now, &mut self.log_effects);
            }
            let copy_is_due = std::mem::take(&mut partition.wants_copy_synced);
            if partition.wants_sync() || copy_is_due {
                partition.log.request_sync(&mut self.log_effects);
            } else if let Some(flush_ms) = partition.starts_flush_timer() {
                self.alarms.set(desk.now.mono + flush_ms, Alarm::Flush(token));
            }
            self.set_log_alarm(token);
            self.count_dirt(token);
            self.file_log_effects(desk, token);
        }
        debug_assert!(self.touched.is_empty(), "what is touched now would wait for the next turn");
        self.touched = touched;
        self.clean_early(desk);
    }

    /// Sees to it that the partition's log is looked at when the turn ends.
    pub(super) fn touch(&mut self, token: Token) {
        if self.touched.last() != Some(&token) {
            self.touched.push(token);
        }
    }

    /// Passes on what a log wants done, under tokens of the shard.
    pub(super) fn file_log_effects(&mut self, desk: &mut Desk<'_>, token: Token) {
        for effect in self.log_effects.drain(..) {
            desk.files.file(desk.effects, effect, |step| FileStep::Log(token, step));
        }
    }

    /// Lets a log do something, passes on its effects and heeds what it says.
    pub(super) fn with_log(
        &mut self,
        desk: &mut Desk<'_>,
        token: Token,
        work: impl FnOnce(&mut Log, Now, &mut Vec<FileEffect<LogStep>>, &mut Vec<LogEvent>),
    ) {
        let partition = self.partitions.get_mut(token).expect("a log is used while it is there");
        let mut events = std::mem::take(&mut self.log_events);
        work(&mut partition.log, desk.now, &mut self.log_effects, &mut events);
        self.file_log_effects(desk, token);
        for event in events.drain(..) {
            self.on_log_event(desk, token, event);
        }
        self.log_events = events;
    }

    /// The log does not search any more: whoever waits for it asks anew, or is refused.
    pub(super) fn end_searches(&mut self, desk: &mut Desk<'_>, token: Token, code: ErrorCode) {
        let tickets = self.searches.keys().filter(|(partition, _)| *partition == token);
        for (_, ticket) in tickets.copied().collect::<Vec<_>>() {
            self.search_failed(desk, token, ticket, code);
        }
        let waiting = self.locating.keys().filter(|(partition, _)| *partition == token);
        for key in waiting.copied().collect::<Vec<_>>() {
            let asks = self.locating.remove(&key).unwrap_or_default();
            self.ask_again(desk, asks);
        }
    }

    fn on_log_event(&mut self, desk: &mut Desk<'_>, token: Token, event: LogEvent) {
        if let Some(source) = self.moves.source_of(token) {
            return self.on_copy_event(desk, token, source, event);
        }
        self.moves.wake(token);
        match event {
            LogEvent::Opened { .. } => self.opened(desk, token),
            LogEvent::Written { .. } | LogEvent::Synced { .. } => self.advanced(desk, token),
            LogEvent::Refused { from, cause, .. } => {
                let partition = self.partition(token);
                let (name, directory) = (partition.name.clone(), partition.directory);
                if let Some(suppressed) = self.refusals.may_say(desk.now.mono, directory) {
                    tracing::warn!(
                        partition = %name, %cause, suppressed,
                        "an append is refused until there is space again"
                    );
                }
                self.refuse_from(desk, token, from);
            }
            LogEvent::Located { ticket } => {
                self.located(desk, token, ticket);
                self.load_located(desk, token, ticket);
            }
            LogEvent::TimestampFound { ticket, found } => {
                self.timestamp_found(desk, token, ticket, found);
            }
            LogEvent::SearchFailed { ticket, is_corrupt } => {
                let code = match is_corrupt {
                    true => ErrorCode::CORRUPT_MESSAGE,
                    false => ErrorCode::LEADER_NOT_AVAILABLE,
                };
                self.search_failed(desk, token, ticket, code);
            }
            LogEvent::Truncated { .. } | LogEvent::StartMoved { .. } => {}
            LogEvent::Renamed => self.has_left(token),
            LogEvent::Moved => self.source_has_name(desk, token),
            LogEvent::Cleaned { moved } => {
                if moved {
                    self.notices.push(Notice::Cleaned);
                    self.clean_next();
                }
            }
            LogEvent::Closed { .. } => {
                self.refuse_waiting(desk, token);
                self.end_closing(token);
            }
            LogEvent::Removed => {
                self.partitions.remove(token);
            }
            LogEvent::NoSpace { cause } => self.no_space_to_open(desk, token, &cause),
            LogEvent::NotClosed { cause } => self.not_closed(desk, token, &cause),
            LogEvent::Failed { cause } => self.disk_failed(desk, token, cause.to_string()),
            LogEvent::Stray => {
                let key = self.partition(token).key;
                self.by_key.remove(&key);
                self.log_is_offline(desk, token);
                self.notices.push(Notice::Stray(key));
            }
            LogEvent::Unreadable { sentence } => {
                let partition = &self.partition(token).name;
                tracing::error!(%partition, "the log is offline: {sentence}");
                // Whoever mends it wants it recovered: the directory does not count as clean.
                self.has_unclosed_log(token);
                self.log_is_offline(desk, token);
            }
        }
    }

    /// The folder of a deleted log has another name, or the log's directory is offline.
    pub(super) fn has_left(&mut self, token: Token) {
        self.leaving.remove(&token);
        self.notices.push(Notice::Left);
        self.end_closing(token);
    }

    fn opened(&mut self, desk: &mut Desk<'_>, token: Token) {
        self.opening.remove(&token);
        let partition = self.partition(token);
        partition.opened();
        let led_in = partition.led_in();
        let (key, directory) = (partition.key, partition.directory);
        let parked = std::mem::take(&mut partition.parked);
        let (committed, stable) = (partition.high_watermark(), partition.last_stable_offset());
        if stable < committed {
            tracing::warn!(
                partition = %partition.name, offset = %stable,
                "Apache Kafka left a transaction open, and readers of committed records wait at \
                 its beginning. To end it, stop this node, start Apache Kafka on these log.dirs, \
                 and stop it in order"
            );
        }
        warn_of_unserved(self.partition(token));
        if let Some(epoch) = led_in {
            self.with_log(desk, token, |log, now, effects, _| {
                log.assign_leader_epoch(now, epoch, effects);
            });
        }
        self.notices.push(Notice::Opened(key, directory));
        self.host_if_led(desk, token);
        self.move_queue(desk, token);
        self.ask_again(desk, parked);
    }

    pub(super) fn advanced(&mut self, desk: &mut Desk<'_>, token: Token) {
        let progress = self.partition(token).progress();
        for (waiter, appended) in progress.done {
            match waiter {
                Waiter::Ask(place) => self.appended(desk, place, appended),
                Waiter::Coordinator(host) => {
                    self.coordinator_appended(desk, token, host, Ok(progress.last_offset));
                }
            }
        }
        if progress.moved {
            self.coordinator_advanced(token);
            self.wake(token);
        }
    }

    /// A log cannot be opened until there is space: who waits for it is told so.
    fn no_space_to_open(&mut self, desk: &mut Desk<'_>, token: Token, cause: &IoError) {
        let partition = self.partition(token);
        tracing::warn!(partition = %partition.name, %cause, "the log is opened in a moment");
        let parked = std::mem::take(&mut partition.parked);
        self.refuse_queue(desk, token);
        self.ask_again(desk, parked);
    }

    pub(super) fn refuse_waiting(&mut self, desk: &mut Desk<'_>, token: Token) {
        self.refuse_from(desk, token, Offset(0));
    }

    fn refuse_from(&mut self, desk: &mut Desk<'_>, token: Token, from: Offset) {
        for (waiter, appended) in self.partition(token).refuse_from(from) {
            match waiter {
                Waiter::Ask(place) => self.appended(desk, place, appended),
                Waiter::Coordinator(host) => {
                    self.coordinator_appended(desk, token, host, Err(appended.error));
                }
            }
        }
    }

    pub(super) fn set_log_alarm(&mut self, token: Token) {
        let Some(at) = self.partitions.get(token).and_then(|part| part.log.next_timer()) else {
            return;
        };
        let set = self.log_alarms.get(&token);
        if set.is_none_or(|set| at < *set) {
            self.log_alarms.insert(token, at);
            self.alarms.set(at, Alarm::Log(token));
        }
    }
}

/// What other versions keep in topics of their own stays as it is: whoever took the directory over
/// should know.
fn warn_of_unserved(partition: &Partition) {
    let what = match &*partition.name.topic {
        TRANSACTIONS_TOPIC => "transactions",
        SHARE_TOPIC => "the state of share groups",
        _ => return,
    };
    let records = partition.log.end_offset().0 - partition.log.log_start_offset().0;
    if records > 0 {
        tracing::warn!(
            partition = %partition.name,
            "kept, but not served by this version: {what} ({records} records)"
        );
    }
}
