//! The partitions that this shard owns, and what is asked of them.
//!
//! An ask is answered at once where that is possible. An append waits for the disk; a read may
//! have to find a position first; and whatever is asked of a partition whose log is still opening
//! is kept and asked anew when it is open.

mod append;
mod cleaning;
mod copying;
mod directories;
mod fetch;
mod groups;
mod logs;
mod marks;
mod moves;
mod offsets;
mod producers;
mod rounds;
mod turns;
mod work;

pub(crate) use logs::{Found, Opening};

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{Effects, FileEffect};
use base::{Instant, Map, Now, Offset, Random, ShardId, Slab, Timers, Token};
use cleaning::Cleaning;
use commitlog::{LogEvent, LogState, LogStep, Ticket};
use directories::Directories;
use group::{GroupConfig, GroupReply};
use groups::Hosts;
use intercom::{Appended, FoundOffset, GroupAsk, LogSize, Message, PartitionKey, Reply, Request};
use metadata::Image;
use moves::Moves;
use network::Complaints;
use protocol::ErrorCode;
use rounds::Rounds;

use crate::files::Files;
use crate::mail::Mail;
use crate::partition::{Partition, Place};
use crate::setup::Setup;
use crate::watches::Watches;
use work::Line;

/// Partitions of one shard.
const PARTITIONS_MAX: usize = 1 << 20;
/// Logs of a shard beside those of its partitions: copies in other directories, and logs that are
/// deleted or were moved and go after `file.delete.delay.ms`. With more, no further move begins.
const COPIES_MAX: usize = 1 << 16;
/// Asks that wait at once, for each call that a shard may have under way; more are told to try
/// again. They can be more than the calls of those who ask: what a client has asked that goes away
/// waits on.
const SERVING_PER_CALL_MAX: usize = 16;
/// Of them, requests of groups: those may wait for minutes, and are not to keep out the others.
const TICKETS_PER_CALL_MAX: usize = SERVING_PER_CALL_MAX / 2;
/// Asks that may wait for one partition to open; more are told to try again.
const PARKED_MAX: usize = 1 << 12;

/// Whom an answer goes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) shard: ShardId,
    pub(crate) id: Token,
}

/// An ask that could not be answered at once.
#[derive(Debug)]
enum Serving {
    Append {
        asker: Asker,
        outcomes: Vec<Option<Appended>>,
        missing: usize,
        /// Whether the asker was told that it takes a while.
        is_late: bool,
    },
    Offsets(Gathering<FoundOffset>),
    Group {
        gathering: Gathering<GroupReply>,
        /// Whether the asker was told to wait for a [`Request::Late`].
        is_late: bool,
    },
    /// It is asked anew when what it waits for is there.
    Again {
        asker: Asker,
        request: Request,
    },
    /// This watch has news, which is read when what it waits for is there.
    News(Token),
}

/// The outcomes of an ask about several things, as they come.
#[derive(Debug)]
struct Gathering<T> {
    asker: Asker,
    outcomes: Vec<Option<T>>,
    missing: usize,
}

impl<T> Gathering<T> {
    fn new(asker: Asker, count: usize) -> Self {
        Self { asker, outcomes: (0..count).map(|_| None).collect(), missing: count }
    }

    /// Notes one. True when it was the last one that was missing.
    fn set(&mut self, index: usize, outcome: T) -> bool {
        let before = self.outcomes[index].replace(outcome);
        assert!(before.is_none(), "outcome {index} of an ask came twice");
        self.missing -= 1;
        self.missing == 0
    }

    fn into_outcomes(self) -> Vec<T> {
        self.outcomes.into_iter().flatten().collect()
    }
}

/// What is to be done for a partition at a time.
#[derive(Clone, Copy, Debug)]
enum Alarm {
    /// Its log asked to be called.
    Log(Token),
    /// The coordinator on it asked to be called.
    Coordinator(Token),
    /// Records wait for the sync that the topic's `flush.ms` demands.
    Flush(Token),
    /// It may go on moving to another directory.
    Move(Token),
}

/// What the shard has to know of its logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The folder of a deleted one has another name, or one that was opening is offline.
    Left,
    /// The folder of this one was another topic's: it has to be made anew.
    Stray(PartitionKey),
    /// One is open, in this log directory.
    Opened(PartitionKey, u16),
    /// The metadata are to name this directory, by its index, as that of a partition.
    InDirectory(PartitionKey, u16),
    /// One has taken the place of one in another directory: the checkpoints are to say so.
    Moved,
    /// One was cleaned: the checkpoints are to say so soon.
    Cleaned,
    /// All that were being closed are, or never will be.
    AllClosed,
    /// A log directory, by its index, cannot be used any more; the sentence says why.
    DirectoryFailed(u16, String),
}

/// What an owner works with while it handles one event.
pub(crate) struct Desk<'a> {
    pub(crate) now: Now,
    pub(crate) effects: &'a mut Effects<Message>,
    pub(crate) mail: &'a mut Mail,
    pub(crate) files: &'a mut Files,
    /// The newest metadata.
    pub(crate) image: Option<&'a Image>,
}

impl Desk<'_> {
    fn reply(&mut self, asker: Asker, body: Reply) {
        self.mail.reply(self.effects, asker.shard, asker.id, body);
    }

    /// Answers what was answered by "later" before.
    fn reply_late(&mut self, asker: Asker, body: Reply) {
        let request = Request::Late { id: asker.id, body: Box::new(body) };
        self.mail.request(self.effects, asker.shard, Token::NONE, request);
    }
}

/// The partitions of a shard.
#[derive(Debug)]
pub(crate) struct Owner {
    partitions: Slab<Partition>,
    by_key: Map<PartitionKey, Token>,
    /// What was said of appends that a full disk refused, by directory.
    refusals: Complaints,
    /// Partitions whose log is still opening.
    opening: BTreeSet<Token>,
    /// Logs that are being deleted and whose folder still has their name, with the offset of the
    /// image that lacks them.
    leaving: Map<Token, Offset>,
    /// Partitions whose log is being closed, or deleted.
    closing: BTreeSet<Token>,
    directories: Directories,
    moves: Moves,
    cleaning: Cleaning,
    rounds: Rounds,
    serving: Slab<Serving>,
    line: Line,
    /// Whom a search by timestamp is for, and whether they read only what was committed.
    searches: Map<(Token, Ticket), (Place, bool)>,
    /// Which asks wait for a position to be found; without a ticket, for any search to end.
    locating: Map<(Token, Option<Ticket>), Vec<Token>>,
    watches: Watches,
    /// Watches that had news in this turn.
    news: Vec<Token>,
    /// Which coordinators wait for a position to be found, as in `locating`.
    locating_loads: Map<(Token, Option<Ticket>), ()>,
    hosts: Hosts,
    group_config: GroupConfig,
    random: Random,
    alarms: Timers<Alarm>,
    /// When the alarm of a log is set.
    log_alarms: Map<Token, Instant>,
    /// Partitions that have something to write at the end of the turn.
    touched: Vec<Token>,
    notices: Vec<Notice>,
    /// Scratch lists, empty between calls.
    log_effects: Vec<FileEffect<LogStep>>,
    log_events: Vec<LogEvent>,
}

impl Owner {
    /// No partitions yet.
    pub(crate) fn new(setup: &Setup, group_config: GroupConfig, random: Random) -> Self {
        Self {
            locating_loads: Map::default(),
            hosts: Hosts::new(setup.calls_max * TICKETS_PER_CALL_MAX),
            group_config,
            partitions: Slab::new(PARTITIONS_MAX + COPIES_MAX),
            by_key: Map::default(),
            refusals: Complaints::default(),
            opening: BTreeSet::new(),
            leaving: Map::default(),
            closing: BTreeSet::new(),
            directories: Directories::new(setup.data_shards, setup.dirty_bytes_max),
            moves: Moves::new(Arc::clone(&setup.log_directories), random.fork("moves")),
            cleaning: Cleaning::new(&setup.config, setup.data_shards, random.fork("cleaning")),
            rounds: Rounds::default(),
            random,
            serving: Slab::new(setup.calls_max * SERVING_PER_CALL_MAX),
            line: Line::default(),
            searches: Map::default(),
            locating: Map::default(),
            watches: Watches::default(),
            news: Vec::new(),
            alarms: Timers::default(),
            log_alarms: Map::default(),
            touched: Vec::new(),
            notices: Vec::new(),
            log_effects: Vec::new(),
            log_events: Vec::new(),
        }
    }
}

impl Owner {
    /// Handles a request of a home shard.
    pub(crate) fn ask(&mut self, desk: &mut Desk<'_>, asker: Asker, request: Request) {
        if !self.opening.is_empty()
            && let Some(token) = self.first_opening(&request)
        {
            return self.park(desk, token, asker, request);
        }
        if !self.has_room_for(&request) {
            return desk.reply(asker, refuse_all(&request, ErrorCode::NOT_LEADER_OR_FOLLOWER));
        }
        match request {
            Request::Append(ask) => self.append(desk, asker, ask),
            Request::Fetch(ask) => self.fetch(desk, asker, ask),
            Request::Offsets(list) => self.offsets(desk, asker, &list),
            Request::EpochEnds(list) => self.epoch_ends(desk, asker, &list),
            Request::Producers(list) => self.producers(desk, asker, &list),
            Request::DeleteRecords(list) => self.delete_records(desk, asker, &list),
            Request::Group(asks) => self.ask_groups(desk, asker, asks),
            Request::LogSizes => {
                let sizes = self.log_sizes();
                desk.reply(asker, Reply::LogSizes(sizes));
            }
            Request::Quorum(_)
            | Request::News(_)
            | Request::Unwatch(_)
            | Request::Late { .. }
            | Request::DirectoryFailed { .. }
            | Request::MoveReplicas(_)
            | Request::Checkpoints { .. } => {
                unreachable!("a request that is for others reached the partitions")
            }
        }
    }

    /// Whether a log is still opening.
    pub(crate) fn is_opening(&self) -> bool {
        !self.opening.is_empty()
    }

    /// The offset of the first image whose deleted logs still have their folders, if any.
    pub(crate) fn leaving_since(&self) -> Option<Offset> {
        self.leaving.values().min().copied()
    }

    /// Whether the request may wait for what it needs.
    fn has_room_for(&self, request: &Request) -> bool {
        match request {
            Request::Append(_) | Request::Offsets(_) => !self.serving.is_full(),
            Request::Group(asks) => !self.serving.is_full() && self.hosts.has_room(asks.len()),
            // What else waits finds out when it has to.
            _ => true,
        }
    }

    /// What happened to logs since the last call.
    pub(crate) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// When this wants to be called next.
    pub(crate) fn next_alarm(&self) -> Option<Instant> {
        let watches = self.watches.next_at();
        self.alarms.next_at().into_iter().chain(watches).min()
    }

    /// The partition that `key` names, or the code to answer with.
    fn find(&self, key: PartitionKey) -> Result<Token, ErrorCode> {
        let token = *self.by_key.get(&key).ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
        let partition = self.partitions.get(token).ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
        partition.unavailable().map_or(Ok(token), Err)
    }

    /// A partition whose log lies open for use.
    fn partition(&mut self, token: Token) -> &mut Partition {
        self.partitions.get_mut(token).expect("a partition stays while something is done with it")
    }

    fn first_opening(&self, request: &Request) -> Option<Token> {
        let keys: Box<dyn Iterator<Item = PartitionKey> + '_> = match request {
            // An append waits part by part, so that the batches of one connection keep their order.
            Request::Append(_) => return None,
            Request::Fetch(ask) => Box::new(ask.partitions.iter().map(|part| part.key)),
            Request::Offsets(list) => Box::new(list.iter().map(|part| part.key)),
            Request::EpochEnds(list) => Box::new(list.iter().map(|part| part.key)),
            Request::Producers(list) => Box::new(list.iter().map(|part| part.key)),
            Request::DeleteRecords(list) => Box::new(list.iter().map(|part| part.key)),
            Request::Group(list) => Box::new(list.iter().map(|part| part.key)),
            Request::LogSizes
            | Request::Quorum(_)
            | Request::News(_)
            | Request::Unwatch(_)
            | Request::Late { .. }
            | Request::DirectoryFailed { .. }
            | Request::MoveReplicas(_)
            | Request::Checkpoints { .. } => return None,
        };
        keys.filter_map(|key| self.by_key.get(&key).copied())
            .find(|token| self.partitions.get(*token).is_some_and(Partition::is_opening))
    }

    /// Keeps an ask until the partition is open.
    fn park(&mut self, desk: &mut Desk<'_>, token: Token, asker: Asker, request: Request) {
        if self.partition(token).parked.len() >= PARKED_MAX {
            return desk.reply(asker, refuse_all(&request, ErrorCode::NOT_LEADER_OR_FOLLOWER));
        }
        match self.serving.insert(Serving::Again { asker, request }) {
            Ok(serving) => self.partition(token).parked.push(serving),
            Err(Serving::Again { asker, request }) => {
                desk.reply(asker, refuse_all(&request, ErrorCode::NOT_LEADER_OR_FOLLOWER));
            }
            Err(_) => unreachable!("a slab gives back what it was given"),
        }
    }

    /// Asks anew what waited.
    fn ask_again(&mut self, desk: &mut Desk<'_>, parked: Vec<Token>) {
        for token in parked {
            match self.serving.remove(token) {
                Some(Serving::Again { asker, request }) => self.ask(desk, asker, request),
                Some(Serving::News(watch)) => {
                    if self.watches.has_news(watch) {
                        self.news.push(watch);
                    }
                }
                other => unreachable!("{other:?} waits for nothing to be asked anew"),
            }
        }
    }

    /// How many logs each of the node's directories holds of this shard.
    pub(crate) fn logs_per_directory(&self, directories: usize) -> Vec<usize> {
        let mut counts = vec![0; directories];
        for (_, partition) in self.partitions.iter() {
            if let Some(count) = counts.get_mut(usize::from(partition.directory)) {
                *count += 1;
            }
        }
        counts
    }

    fn log_sizes(&self) -> Vec<LogSize> {
        let size = |partition: &Partition, offset_lag: i64, is_future: bool| LogSize {
            key: partition.key,
            directory: partition.directory,
            size_bytes: partition.log.size_bytes(),
            offset_lag,
            is_future,
        };
        let logs = self.by_key.values().filter_map(|token| self.partitions.get(*token));
        let logs = logs.map(|partition| size(partition, 0, false));
        let copies = self.moves.copies_and_logs().filter_map(|(log, copy)| {
            let (log, copy) = (self.partitions.get(log)?, self.partitions.get(copy)?);
            let lag = match log.log.state() {
                // As in Kafka, it is not known.
                LogState::Failed => -1,
                _ => log.log.end_offset().0 - copy.log.end_offset().0,
            };
            Some(size(copy, lag, true))
        });
        logs.chain(copies).collect()
    }
}

/// The answer to an ask none of whose partitions can be asked.
fn refuse_all(request: &Request, error: ErrorCode) -> Reply {
    use intercom::{AppendAnswer, Deleted, EpochEnd, Fetched, FoundProducers};
    match request {
        Request::Append(ask) => {
            let refused = || Appended::refused(error, None);
            let partitions = ask.partitions.iter().map(|_| refused()).collect();
            Reply::Append(AppendAnswer { partitions })
        }
        Request::Fetch(ask) => {
            let partitions = ask.partitions.iter().map(|_| Fetched::refused(error)).collect();
            Reply::Fetch(partitions)
        }
        Request::Offsets(list) => {
            Reply::Offsets(list.iter().map(|_| FoundOffset::refused(error)).collect())
        }
        Request::EpochEnds(list) => {
            Reply::EpochEnds(list.iter().map(|_| EpochEnd::refused(error)).collect())
        }
        Request::Producers(list) => {
            Reply::Producers(list.iter().map(|_| FoundProducers::refused(error)).collect())
        }
        Request::DeleteRecords(list) => {
            Reply::DeleteRecords(list.iter().map(|_| Deleted::refused(error)).collect())
        }
        Request::Group(list) => {
            let refused = |ask: &GroupAsk| ask.call.refuse(ErrorCode::NOT_COORDINATOR);
            Reply::Group(list.iter().map(refused).collect())
        }
        Request::LogSizes
        | Request::Quorum(_)
        | Request::News(_)
        | Request::Unwatch(_)
        | Request::Late { .. }
        | Request::DirectoryFailed { .. }
        | Request::MoveReplicas(_)
        | Request::Checkpoints { .. } => {
            unreachable!("this ask waits for no partition")
        }
    }
}
