//! One partition that this shard owns: its log, its high watermark, and who waits for either.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use base::{Duration, LeaderEpoch, Now, Offset, Token, TopicPartition};
use bytes::Bytes;
use commitlog::{
    AppendBatch, AppendError, Checkpoints, Durability, EarlierBatch, Log, LogState, ProducerError,
};
use intercom::{AppendPartition, Appended, LogPosition, PartitionKey};
use protocol::ErrorCode;
use records::{Batch, BatchError, MaxTimestamp, Stamp};

use crate::check::Check;
use crate::rules::TopicRules;

/// Who waits for an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// An ask of a home shard.
    Ask(Place),
    /// The coordinator that is hosted on the partition, if it is still this one.
    Coordinator(Incarnation),
}

/// Numbers the coordinators that a shard hosts, one after the other: a later one of the same
/// partition takes for its own nothing that an earlier one has appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Incarnation(pub(crate) u64);

/// An append that was accepted and waits to be as durable as its topic demands.
#[derive(Debug)]
struct Waiting {
    /// The offset of its first record.
    base_offset: Offset,
    durability: Durability,
    /// The offset behind its last record: the high watermark when it is done.
    end_offset: Offset,
    waiter: Waiter,
    log_append_time_ms: i64,
}

/// Where the result of an append belongs: an ask, and which of its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) ask: Token,
    pub(crate) index: usize,
}

/// One partition.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) key: PartitionKey,
    pub(crate) name: TopicPartition,
    /// In which of the node's log directories, by index.
    pub(crate) directory: u16,
    pub(crate) log: Log,
    rules: Arc<TopicRules>,
    /// Whether this node leads it.
    leads: bool,
    leader_epoch: LeaderEpoch,
    high_watermark: Offset,
    last_stable_offset: Offset,
    waiting: VecDeque<Waiting>,
    /// Records that were appended since a sync was last demanded by `flush.messages`.
    unflushed_records: i64,
    /// Of its dirty bytes, what its directory has counted.
    counted_dirt: u64,
    /// Whether it stands in its directory's list of dirty partitions.
    pub(crate) is_listed_dirty: bool,
    /// Whether a sync by `flush.ms` is on its way.
    flush_timer: bool,
    /// Fetches that want to be told of news.
    pub(crate) watches: BTreeSet<Token>,
    /// What the checkpoints said of the log, until it is open.
    known: Option<Checkpoints>,
    has_opened: bool,
    /// Asks that came while the log was still opening.
    pub(crate) parked: Vec<Token>,
    /// Parts of appends that wait, in order: for the log to open, for the disk, or for a check.
    pub(crate) queue: VecDeque<(AppendPartition, Place)>,
    /// The check of the first of them, if it has begun.
    pub(crate) check: Option<Box<Check>>,
    /// Whether a search of its log waits to look through a batch.
    pub(crate) is_searching: bool,
    /// While its log moves to another directory, near the end: up to where the copy is written, and
    /// durable. Nothing is acknowledged that the copy lacks.
    copied: Option<(Offset, Offset)>,
    /// Whether whatever is asked waits a moment, since the copy takes the log's place.
    pub(crate) is_held: bool,
    /// Of a copy: whether it is to be durable.
    pub(crate) wants_copy_synced: bool,
}

/// How far an append has come.
#[derive(Debug)]
pub(crate) enum Append {
    /// It is done: with an answer that can be given at once, which is a refusal or where the batch
    /// stands already, or it was accepted, or is on its way already, and is answered by
    /// [`Partition::progress`].
    Done(Option<Box<Appended>>),
    /// Its check goes on another time.
    Paused(Box<Check>),
}

/// What became of the offsets when the log had news.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Appends that are done.
    pub(crate) done: Vec<(Waiter, Appended)>,
    /// The offset of the last record that is done.
    pub(crate) last_offset: Offset,
    /// Whether the high watermark moved.
    pub(crate) moved: bool,
}

impl Partition {
    /// A partition whose log is opening.
    pub(crate) fn new(
        key: PartitionKey,
        name: TopicPartition,
        directory: u16,
        log: Log,
        rules: Arc<TopicRules>,
    ) -> Self {
        Self {
            key,
            name,
            directory,
            log,
            rules,
            leads: false,
            leader_epoch: LeaderEpoch::NONE,
            high_watermark: Offset(0),
            last_stable_offset: Offset(0),
            waiting: VecDeque::new(),
            unflushed_records: 0,
            counted_dirt: 0,
            is_listed_dirty: false,
            flush_timer: false,
            watches: BTreeSet::new(),
            known: None,
            has_opened: false,
            parked: Vec::new(),
            queue: VecDeque::new(),
            check: None,
            is_searching: false,
            copied: None,
            is_held: false,
            wants_copy_synced: false,
        }
    }

    /// What its topic says of it.
    pub(crate) fn rules(&self) -> &Arc<TopicRules> {
        &self.rules
    }

    /// Acknowledges nothing from now on that a copy lacks, which is written and durable up to here.
    pub(crate) fn follow(&mut self, copied: Option<(Offset, Offset)>) {
        self.copied = copied;
    }

    /// As a copy: the high watermark of its log, as far as the copy reaches.
    pub(crate) fn follow_high_watermark(&mut self, high_watermark: Offset) {
        self.high_watermark = high_watermark;
    }

    /// Whether appends wait to be acknowledged.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether one of them waits for a sync.
    pub(crate) fn awaits_sync(&self) -> bool {
        self.waiting.iter().any(|one| matches!(one.durability, Durability::Synced(_)))
    }

    /// Takes the log of a copy in another directory for its own, and gives it the old one.
    pub(crate) fn replace_log(&mut self, copy: &mut Partition) {
        std::mem::swap(&mut self.log, &mut copy.log);
        std::mem::swap(&mut self.directory, &mut copy.directory);
        self.copied = None;
        // All of it is durable.
        self.unflushed_records = 0;
    }

    fn is_copied(&self, durability: Durability) -> bool {
        self.copied.is_none_or(|(written, durable)| match durability {
            Durability::Written(offset) => written >= offset,
            Durability::Synced(offset) => durable >= offset,
        })
    }

    /// Whether its topic is compacted.
    pub(crate) fn compacts(&self) -> bool {
        self.rules.compacted
    }

    /// Offsets below it can be read.
    pub(crate) fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// Offsets below it belong to decided transactions, and can be read.
    pub(crate) fn last_stable_offset(&self) -> Offset {
        self.last_stable_offset.max(self.log.log_start_offset())
    }

    /// Up to where a client may read.
    pub(crate) fn readable_end(&self, read_committed: bool) -> Offset {
        if read_committed { self.last_stable_offset() } else { self.high_watermark }
    }

    fn set_high_watermark(&mut self, offset: Offset) {
        self.high_watermark = offset;
        let unstable = self.log.first_unstable_offset(offset);
        self.last_stable_offset = unstable.map_or(offset, |first| first.min(offset));
    }

    /// The newest epoch of its leaders.
    pub(crate) fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// The epoch in which this node leads it, if it does.
    pub(crate) fn led_in(&self) -> Option<LeaderEpoch> {
        self.leads.then_some(self.leader_epoch)
    }

    /// The same partition, led by this node or not.
    pub(crate) fn led(mut self, leads: bool, leader_epoch: LeaderEpoch) -> Self {
        self.set_leader(leads, leader_epoch);
        self
    }

    /// The same partition, of whose log the checkpoints say something.
    pub(crate) fn known(mut self, known: Option<Checkpoints>) -> Self {
        self.known = known;
        self
    }

    /// Who leads it has changed.
    pub(crate) fn set_leader(&mut self, leads: bool, leader_epoch: LeaderEpoch) {
        self.leads = leads;
        self.leader_epoch = leader_epoch;
    }

    /// The rules of its topic have changed.
    pub(crate) fn set_rules(&mut self, rules: Arc<TopicRules>) {
        self.log.set_config(rules.log.clone());
        self.rules = rules;
    }

    /// Whether its topic lets old records go at all (`delete` in `cleanup.policy`).
    pub(crate) fn deletes_old_records(&self) -> bool {
        self.rules.log.delete_by_retention
    }

    /// The log is open: what it has was acknowledged, or may have been, and can be read.
    pub(crate) fn opened(&mut self) {
        self.set_high_watermark(self.log.written_end_offset());
        self.has_opened = true;
        self.known = None;
    }

    /// Where the log stands, for the checkpoints: of one that was never open what they said before;
    /// nothing where they said nothing.
    pub(crate) fn position(&self) -> Option<LogPosition> {
        let (recovery_point, log_start_offset, high_watermark) = if self.has_opened {
            (self.log.recovery_point(), self.log.log_start_offset(), self.high_watermark)
        } else {
            let known = self.known?;
            (known.recovery_point, known.log_start_offset, known.recovery_point)
        };
        let first_dirty = self.log.first_dirty_offset();
        Some(LogPosition {
            directory: self.directory,
            partition: self.name.clone(),
            recovery_point,
            log_start_offset,
            high_watermark,
            first_dirty,
        })
    }

    /// Whether the client's idea of who leads is this one; the code to answer with if not.
    pub(crate) fn check_leader_epoch(&self, known: LeaderEpoch) -> Result<(), ErrorCode> {
        if known == LeaderEpoch::NONE || known == self.leader_epoch {
            return Ok(());
        }
        let older = known < self.leader_epoch;
        Err(if older { ErrorCode::FENCED_LEADER_EPOCH } else { ErrorCode::UNKNOWN_LEADER_EPOCH })
    }

    /// Checks the one batch of a Produce request, for as many decompressed bytes as `budget` has,
    /// and appends it.
    pub(crate) fn append(
        &mut self,
        now: Now,
        records: &Bytes,
        place: Place,
        budget: &mut usize,
    ) -> Append {
        let mut check = match Check::begin(&self.rules, now, records) {
            Ok(check) => check,
            Err(error) => return Append::Done(Some(Box::new(refusal(&self.name, &error)))),
        };
        match self.go_on(now, &mut check, place, budget) {
            Some(answer) => Append::Done(answer),
            None => Append::Paused(Box::new(check)),
        }
    }

    /// Goes on with the first append in the queue. Only one that is done leaves it.
    pub(crate) fn append_first(&mut self, now: Now, budget: &mut usize) -> Append {
        let (part, place) = self.queue.front().expect("something is in the queue");
        let (records, place) = (part.records.clone(), *place);
        match self.check.take() {
            None => self.append(now, &records, place, budget),
            Some(mut check) => match self.go_on(now, &mut check, place, budget) {
                Some(answer) => Append::Done(answer),
                None => Append::Paused(check),
            },
        }
    }

    /// Goes on with an append: the inner option is an answer that can be given at once.
    fn go_on(
        &mut self,
        now: Now,
        check: &mut Check,
        place: Place,
        budget: &mut usize,
    ) -> Option<Option<Box<Appended>>> {
        let max_timestamp = match check.advance(&self.rules, now, budget) {
            Ok(done) => done?,
            Err(error) => return Some(Some(Box::new(refusal(&self.name, &error)))),
        };
        let batch = check.batch();
        let waiter = Waiter::Ask(place);
        let answer = match self.log.check_producer(batch.header()) {
            Ok(None) => self
                .append_checked(now, batch, max_timestamp, waiter)
                .err()
                .map(|error| self.not_appended(&error)),
            Ok(Some(earlier)) => self.await_earlier(&earlier, waiter),
            Err(error) => {
                tracing::debug!(partition = %self.name, %error, "a producer's batch is refused");
                let log_start_offset = self.log.log_start_offset();
                let refused = Appended::refused(code_of(&error), None);
                Some(Appended { log_start_offset, ..refused })
            }
        };
        Some(answer.map(Box::new))
    }

    /// A batch is in the log already. It is answered as the first one was, and no sooner: at once
    /// if that one is, else behind it.
    fn await_earlier(&mut self, earlier: &EarlierBatch, waiter: Waiter) -> Option<Appended> {
        let end_offset = earlier.last_offset.plus(1);
        if end_offset <= self.high_watermark {
            return Some(Appended {
                error: ErrorCode::NONE,
                message: None,
                base_offset: earlier.first_offset,
                log_append_time_ms: earlier.timestamp,
                log_start_offset: self.log.log_start_offset(),
                record_errors: Vec::new(),
            });
        }
        let behind = self.waiting.partition_point(|other| other.end_offset <= end_offset);
        let first = behind.checked_sub(1).and_then(|first| self.waiting.get(first));
        let first = first.filter(|first| first.end_offset == end_offset);
        let waiting = Waiting {
            base_offset: earlier.first_offset,
            durability: first.expect("what is not acknowledged yet is awaited").durability,
            end_offset,
            waiter,
            // Kafka gives the batch's timestamp here, whoever set it.
            log_append_time_ms: earlier.timestamp,
        };
        self.waiting.insert(behind, waiting);
        None
    }

    /// Appends a batch that this shard has built itself.
    pub(crate) fn append_own(
        &mut self,
        now: Now,
        batch: &Bytes,
        waiter: Waiter,
    ) -> Result<(), ErrorCode> {
        let batch = Batch::read(batch).ok().flatten().expect("it was built by this shard");
        self.append_checked(now, &batch, MaxTimestamp::Keep, waiter)
            .map_err(|error| self.not_appended(&error).error)
    }

    fn append_checked(
        &mut self,
        now: Now,
        batch: &Batch,
        max_timestamp: MaxTimestamp,
        waiter: Waiter,
    ) -> Result<(), AppendError> {
        let base_offset = self.log.end_offset();
        let stamp = Stamp { base_offset, leader_epoch: self.leader_epoch, max_timestamp };
        let header = batch.stamp(&stamp);
        let batches = [AppendBatch { header, records: batch.record_bytes() }];
        let info = self.log.append(now, &batches)?;
        let end_offset = info.last_offset.plus(1);
        self.unflushed_records += end_offset.0 - base_offset.0;
        let durability = if self.unflushed_records >= self.rules.flush_messages {
            Durability::Synced(end_offset)
        } else {
            Durability::Written(end_offset)
        };
        let log_append_time_ms = match max_timestamp {
            MaxTimestamp::LogAppendTime(time) => time,
            MaxTimestamp::CreateTime(_) | MaxTimestamp::Keep => -1,
        };
        self.waiting.push_back(Waiting {
            base_offset,
            durability,
            end_offset,
            waiter,
            log_append_time_ms,
        });
        Ok(())
    }

    /// Whether the log should be synced now that the turn's batches are being written.
    pub(crate) fn wants_sync(&mut self) -> bool {
        let demanded = self.unflushed_records >= self.rules.flush_messages;
        if demanded {
            self.unflushed_records = 0;
        }
        demanded
    }

    /// When to call [`Partition::flushed_by_time`] and sync, if records wait for nothing but the
    /// topic's `flush.ms` and no such time is set yet.
    pub(crate) fn starts_flush_timer(&mut self) -> Option<Duration> {
        let flush_after = self.rules.flush_after?;
        if self.unflushed_records == 0 || self.flush_timer {
            return None;
        }
        self.flush_timer = true;
        Some(flush_after)
    }

    /// The time that `flush.ms` gives has passed: the caller syncs the log.
    pub(crate) fn flushed_by_time(&mut self) {
        self.flush_timer = false;
        self.unflushed_records = 0;
    }

    /// What its directory has counted of its dirt, and what there is now, which it will count.
    pub(crate) fn recount_dirt(&mut self) -> (u64, u64) {
        let now = self.log.dirty_bytes();
        (std::mem::replace(&mut self.counted_dirt, now), now)
    }

    /// What its directory has counted of its dirt, and is to count no more.
    pub(crate) fn uncount_dirt(&mut self) -> u64 {
        std::mem::take(&mut self.counted_dirt)
    }

    /// The log has written or synced more: whose appends are done, and whether there is news for
    /// those who read.
    pub(crate) fn progress(&mut self) -> Progress {
        let mut progress = Progress::default();
        let log_start_offset = self.log.log_start_offset();
        while let Some(waiting) = self.waiting.front() {
            let durability = waiting.durability;
            if !self.log.has_reached(durability) || !self.is_copied(durability) {
                break;
            }
            let waiting = self.waiting.pop_front().expect("there is a front");
            self.set_high_watermark(waiting.end_offset);
            progress.moved = true;
            let appended = Appended {
                error: ErrorCode::NONE,
                message: None,
                base_offset: waiting.base_offset,
                log_append_time_ms: waiting.log_append_time_ms,
                log_start_offset,
                record_errors: Vec::new(),
            };
            progress.last_offset = Offset(waiting.end_offset.0 - 1);
            progress.done.push((waiting.waiter, appended));
        }
        progress
    }

    /// Takes back the appends from `from` on: they were not written. Kafka answers
    /// `KAFKA_STORAGE_ERROR` for every fault of the disk.
    pub(crate) fn refuse_from(&mut self, from: Offset) -> Vec<(Waiter, Appended)> {
        let keep = self.waiting.iter().take_while(|waiting| waiting.base_offset < from).count();
        let refused: Vec<Waiting> = self.waiting.drain(keep..).collect();
        refused.into_iter().map(|waiting| (waiting.waiter, storage_error())).collect()
    }

    fn not_appended(&self, error: &AppendError) -> Appended {
        match error {
            AppendError::TooLarge { .. } => Appended::refused(
                ErrorCode::RECORD_LIST_TOO_LARGE,
                Some(format!(
                    "the batch is larger than a segment of {} may be (segment.bytes)",
                    self.name
                )),
            ),
            AppendError::Busy => Appended::refused(ErrorCode::NOT_LEADER_OR_FOLLOWER, None),
            AppendError::NotOpen => storage_error(),
        }
    }

    /// Why nothing can be asked of this partition now, if so.
    pub(crate) fn unavailable(&self) -> Option<ErrorCode> {
        match self.log.state() {
            LogState::Opening if self.log.waits_for_space() => Some(ErrorCode::KAFKA_STORAGE_ERROR),
            LogState::Open | LogState::Opening if self.leads => None,
            LogState::Open | LogState::Opening => Some(ErrorCode::NOT_LEADER_OR_FOLLOWER),
            LogState::Failed => Some(ErrorCode::KAFKA_STORAGE_ERROR),
            LogState::Closing | LogState::Closed | LogState::Removing => {
                Some(ErrorCode::NOT_LEADER_OR_FOLLOWER)
            }
        }
    }

    /// Whether an append has to wait for others that came before it.
    pub(crate) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether its log is still opening, or another one takes its place.
    pub(crate) fn is_opening(&self) -> bool {
        self.is_held || (self.log.state() == LogState::Opening && !self.log.waits_for_space())
    }
}

fn code_of(error: &ProducerError) -> ErrorCode {
    match error {
        ProducerError::OutOfOrderSequence { .. } => ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
        ProducerError::InvalidEpoch { .. } => ErrorCode::INVALID_PRODUCER_EPOCH,
        ProducerError::InvalidTransactionState { .. } => ErrorCode::INVALID_TXN_STATE,
    }
}

fn storage_error() -> Appended {
    Appended::refused(ErrorCode::KAFKA_STORAGE_ERROR, None)
}

fn refusal(name: &TopicPartition, error: &BatchError) -> Appended {
    let code = ErrorCode(error.code());
    let BatchError::Rejected(errors) = error else {
        return Appended::refused(code, Some(error.to_string()));
    };
    let name = name.to_string();
    let index = |index: u32| i32::try_from(index).unwrap_or(i32::MAX);
    let sentences = errors.first.iter().map(|it| (index(it.index), it.why.sentence(&name)));
    let record_errors = sentences.collect();
    Appended { record_errors, ..Appended::refused(code, Some(errors.sentence(&name))) }
}

#[cfg(test)]
mod tests {
    use api::{FileEffect, FileOutcome, IoError, IoErrorKind};
    use base::{Instant, PartitionIndex, ProducerEpoch, ProducerId, Uuid};
    use commitlog::{LogEvent, LogParams, LogStep};
    use config::{BrokerConfig, Pairs};
    use records::{BatchBuilder, Compression, NewRecord};

    use super::*;

    const NOW: Now = Now { mono: Instant::ZERO, wall_ms: 1_000_000 };

    /// A partition whose effects end when the test says so.
    struct Bench {
        partition: Partition,
        effects: Vec<FileEffect<LogStep>>,
        events: Vec<LogEvent>,
    }

    impl Bench {
        fn new(flush_messages: i64) -> Self {
            let file = "process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://:9092\nlog.dirs=/a\n\
                        controller.listener.names=C\ncontroller.quorum.voters=7@c:9093\n\
                        listener.security.protocol.map=PLAINTEXT:PLAINTEXT,C:PLAINTEXT\n";
            let broker = BrokerConfig::parse(file.as_bytes()).expect("it is valid");
            let topic = broker.topic_config(&Pairs::new()).expect("defaults are valid");
            let rules = TopicRules { flush_messages, ..TopicRules::of(&topic, &broker) };
            let index = PartitionIndex(0);
            let name = TopicPartition { topic: Arc::from("t"), partition: index };
            let key = PartitionKey { topic: Uuid([1; 16]), partition: index };
            let params = LogParams {
                directory: "/a/t-0".into(),
                partition: name.clone(),
                topic_id: key.topic,
                sets_strays_aside: true,
                config: rules.log.clone(),
            };
            let mut effects = Vec::new();
            let log = Log::create(params, &mut effects);
            let partition = Partition::new(key, name, 0, log, Arc::new(rules));
            let partition = partition.led(true, LeaderEpoch(0));
            let mut bench = Self { partition, effects, events: Vec::new() };
            bench.end_all();
            bench.partition.opened();
            bench
        }

        /// Sends a batch of two records with this sequence; the answer, if it comes at once.
        fn send(&mut self, index: usize, sequence: i32) -> Option<Box<Appended>> {
            let builder = BatchBuilder::new(Offset(0), Compression::None);
            let mut builder = builder.producer(ProducerId(5), ProducerEpoch(0), sequence);
            for _ in 0..2 {
                builder.append(&NewRecord { timestamp: 7, ..NewRecord::default() });
            }
            let batch = builder.build();
            let place = Place { ask: Token::NONE, index };
            match self.partition.append(NOW, batch.bytes(), place, &mut 0) {
                Append::Done(answer) => answer,
                Append::Paused(check) => panic!("{check:?} has nothing to decompress"),
            }
        }

        fn turn(&mut self) {
            self.partition.log.flush_turn(NOW, &mut self.effects);
            if self.partition.wants_sync() {
                self.partition.log.request_sync(&mut self.effects);
            }
        }

        /// Ends the effects that are under way, but not those that follow from them.
        fn end(&mut self, result: &Result<(), IoError>) {
            for effect in std::mem::take(&mut self.effects) {
                let lists = matches!(effect, FileEffect::List { .. });
                let mut step = None;
                let _ = effect.map(|token| step = Some(token));
                let step = step.expect("a log advises nothing");
                let outcome = match lists {
                    true => FileOutcome::Listed(Ok(Vec::new())),
                    false => FileOutcome::Done(result.clone()),
                };
                let log = &mut self.partition.log;
                log.on_file(NOW, step, outcome, &mut self.effects, &mut self.events);
            }
        }

        fn end_all(&mut self) {
            while !self.effects.is_empty() {
                self.end(&Ok(()));
            }
        }

        /// Which appends are done, and with which base offset.
        fn done(&mut self) -> Vec<(usize, i64)> {
            let done = self.partition.progress().done.into_iter();
            done.map(|(waiter, appended)| match waiter {
                Waiter::Ask(place) => (place.index, appended.base_offset.0),
                Waiter::Coordinator(_) => unreachable!("there is none"),
            })
            .collect()
        }
    }

    #[test]
    fn a_batch_that_comes_again_is_answered_when_the_first_one_is() {
        for (flush_messages, after_write) in [(1, 0), (i64::MAX, 4)] {
            let mut bench = Bench::new(flush_messages);
            assert_eq!(bench.send(0, 0), None);
            assert_eq!(bench.send(1, 2), None);
            assert_eq!(bench.send(2, 0), None, "it is on its way already");
            bench.turn();
            assert_eq!(bench.send(3, 0), None, "it is being written");
            bench.end(&Ok(()));
            let mut done = bench.done();
            assert_eq!(done.len(), after_write, "with flush.messages {flush_messages}");
            bench.end_all();
            done.extend(bench.done());
            assert_eq!(done, [(0, 0), (2, 0), (3, 0), (1, 2)]);
            let again = bench.send(4, 2).expect("it is acknowledged");
            assert_eq!((again.error, again.base_offset.0), (ErrorCode::NONE, 2));
            assert_eq!((again.log_append_time_ms, again.log_start_offset.0), (7, 0));
            assert_eq!(bench.partition.high_watermark(), Offset(4));
            let lost = bench.send(5, 8).expect("it is refused");
            assert_eq!(lost.error, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
        }
    }

    #[test]
    fn what_was_not_written_is_refused_with_what_came_again_and_taken_later() {
        let mut bench = Bench::new(i64::MAX);
        assert_eq!(bench.send(0, 0), None);
        bench.turn();
        bench.end_all();
        assert_eq!(bench.done(), [(0, 0)]);
        assert_eq!(bench.send(1, 2), None);
        assert_eq!(bench.send(2, 2), None);
        bench.turn();
        let full = IoError {
            kind: IoErrorKind::NoSpace,
            action: "write",
            subject: "a file".to_owned(),
            cause: "full".to_owned(),
        };
        bench.end(&Err(full));
        let from = match bench.events.last() {
            Some(LogEvent::Refused { from, .. }) => *from,
            other => panic!("{other:?}"),
        };
        let refused = bench.partition.refuse_from(from);
        assert_eq!(refused.len(), 2);
        assert!(refused.iter().all(|(_, it)| it.error == ErrorCode::KAFKA_STORAGE_ERROR));
        bench.end_all();
        assert_eq!(bench.send(3, 2), None, "it is a new batch");
        assert_eq!(bench.send(4, 0).expect("it is there").base_offset, Offset(0));
        bench.turn();
        bench.end_all();
        assert_eq!(bench.done(), [(3, 2)]);
    }
}
