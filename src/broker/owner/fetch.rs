//! Reads: answered at once with what there is. Where that is too little, whoever asked waits, and
//! is told when there is enough.

use api::SocketId;
use base::{Instant, Map, ShardId, Token};
use commitlog::{Read, ReadError, ReadRequest, Ticket};
use intercom::{FetchAsk, FetchPartition, Fetched, News, Reply, Request, Watch};
use protocol::ErrorCode;

use super::{Asker, Desk, Owner, Serving, refuse_all};
use crate::watches::Watches;

/// Why a partition has no answer yet.
struct NotYet {
    partition: Token,
    ticket: Option<Ticket>,
}

/// What the partitions of an ask have.
struct Found {
    partitions: Vec<Fetched>,
    bytes: u32,
    failed: bool,
}

impl Owner {
    pub(super) fn fetch(&mut self, desk: &mut Desk<'_>, asker: Asker, ask: FetchAsk) {
        if let Some(watch) = ask.watch {
            self.unwatch_connection(asker.shard, watch.connection);
        }
        match self.read(desk, &ask) {
            Ok(found) => {
                desk.reply(asker, Reply::Fetch(found.partitions));
                let waits = |watch: &Watch| !found.failed && found.bytes < watch.bytes_min;
                if let Some(watch) = ask.watch.filter(waits) {
                    self.watch(asker.shard, watch, ask, found.bytes);
                }
            }
            Err(not_yet) => {
                let request = Request::Fetch(ask);
                self.read_later(desk, &not_yet, Serving::Again { asker, request });
            }
        }
    }

    /// Tells what those have waited for whose partitions had news in this turn. Where it is not
    /// enough yet they wait on.
    pub(crate) fn tell_news(&mut self, desk: &mut Desk<'_>) {
        let mut by_home: Map<ShardId, Vec<News>> = Map::default();
        let mut watches = std::mem::take(&mut self.watches);
        for token in std::mem::take(&mut self.news) {
            let Some(waiter) = watches.look(token) else { continue };
            match self.read(desk, &waiter.ask) {
                Ok(found) if found.failed || found.bytes >= waiter.bytes_enough => {
                    let news = News { call: waiter.watch.call, partitions: found.partitions };
                    by_home.entry(waiter.home).or_default().push(news);
                    self.unwatch(&mut watches, token);
                }
                Ok(_) => {}
                Err(not_yet) => self.read_later(desk, &not_yet, Serving::News(token)),
            }
        }
        self.watches = watches;
        for (home, news) in by_home {
            desk.mail.request(desk.effects, home, Token::NONE, Request::News(news));
        }
    }

    /// Reads the partitions of an ask in their order, as far as its bytes go.
    fn read(&mut self, desk: &mut Desk<'_>, ask: &FetchAsk) -> Result<Found, NotYet> {
        let mut budget = ask.bytes_max;
        let (mut partitions, mut failed) = (Vec::with_capacity(ask.partitions.len()), false);
        for part in &ask.partitions {
            // The first batch of a request is returned however large it is.
            let first = budget == ask.bytes_max;
            let fetched = self.fetch_one(desk, part, budget, first, ask.read_committed)?;
            failed |= fetched.error != ErrorCode::NONE;
            budget = budget.saturating_sub(fetched.bytes);
            partitions.push(fetched);
        }
        Ok(Found { partitions, bytes: ask.bytes_max - budget, failed })
    }

    fn fetch_one(
        &mut self,
        desk: &mut Desk<'_>,
        part: &FetchPartition,
        budget: u32,
        at_least_one: bool,
        read_committed: bool,
    ) -> Result<Fetched, NotYet> {
        let token = match self.find(part.key) {
            Ok(token) => token,
            Err(code) => return Ok(Fetched::refused(code)),
        };
        let partition = self.partitions.get_mut(token).expect("it was found a line ago");
        if let Err(code) = partition.check_leader_epoch(part.leader_epoch) {
            return Ok(Fetched::refused(code));
        }
        let up_to = partition.readable_end(read_committed);
        let request = ReadRequest {
            offset: part.offset,
            up_to,
            bytes_max: part.bytes_max.min(budget),
            at_least_one,
        };
        let mut fetched = Fetched {
            high_watermark: partition.high_watermark(),
            last_stable_offset: partition.last_stable_offset(),
            log_start_offset: partition.log.log_start_offset(),
            ..Fetched::refused(ErrorCode::NONE)
        };
        let read = partition.log.read(request, &mut self.log_effects);
        self.file_log_effects(desk, token);
        match read {
            Ok(Read::Plan(plan)) => {
                fetched.parts = plan.parts;
                fetched.bytes = plan.bytes;
                fetched.bytes_uncut = plan.first_bytes;
                if read_committed {
                    let log = &self.partition(token).log;
                    let aborted = log.aborted_transactions(part.offset, plan.below);
                    fetched.aborted = aborted.map(|it| (it.producer_id, it.first_offset)).collect();
                }
                Ok(fetched)
            }
            Ok(Read::Locating(ticket)) => Err(NotYet { partition: token, ticket: Some(ticket) }),
            Ok(Read::Busy) => Err(NotYet { partition: token, ticket: None }),
            Err(error) => Ok(Fetched::refused(match error {
                ReadError::NotOpen => ErrorCode::KAFKA_STORAGE_ERROR,
                ReadError::Corrupt => ErrorCode::CORRUPT_MESSAGE,
                ReadError::OutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
            })),
        }
    }

    /// The whole ask is read again once the position is found: what it read so far costs nothing.
    fn read_later(&mut self, desk: &mut Desk<'_>, not_yet: &NotYet, serving: Serving) {
        match self.serving.insert(serving) {
            Ok(serving) => {
                let key = (not_yet.partition, not_yet.ticket);
                self.locating.entry(key).or_default().push(serving);
            }
            Err(Serving::Again { asker, request }) => {
                desk.reply(asker, refuse_all(&request, ErrorCode::NOT_LEADER_OR_FOLLOWER));
            }
            // Whoever watches is answered when its time is over.
            Err(_) => {}
        }
    }

    /// Positions have been found: those who waited for this one, or for a free search, read again.
    pub(super) fn located(&mut self, desk: &mut Desk<'_>, partition: Token, ticket: Ticket) {
        for key in [(partition, Some(ticket)), (partition, None)] {
            if let Some(waiting) = self.locating.remove(&key) {
                self.ask_again(desk, waiting);
            }
        }
    }

    /// The partition has news for everyone who watches it.
    pub(super) fn wake(&mut self, partition: Token) {
        let Some(partition) = self.partitions.get(partition) else { return };
        for watch in &partition.watches {
            if self.watches.has_news(*watch) {
                self.news.push(*watch);
            }
        }
    }

    /// Nobody waits at this connection any more.
    pub(crate) fn unwatch_connection(&mut self, home: ShardId, connection: SocketId) {
        if let Some(token) = self.watches.of_connection(home, connection) {
            let mut watches = std::mem::take(&mut self.watches);
            self.unwatch(&mut watches, token);
            self.watches = watches;
        }
    }

    /// Takes out the watches whose time is over.
    pub(super) fn end_watches(&mut self, now: Instant) {
        let mut watches = std::mem::take(&mut self.watches);
        while let Some(token) = watches.expired(now) {
            self.unwatch(&mut watches, token);
        }
        self.watches = watches;
    }

    fn watch(&mut self, home: ShardId, watch: Watch, ask: FetchAsk, bytes_found: u32) {
        let keys = ask.partitions.iter().filter_map(|part| self.by_key.get(&part.key).copied());
        let partitions: Vec<Token> = keys.collect();
        if let Some(token) = self.watches.set(home, watch, ask, bytes_found) {
            for partition in partitions {
                self.partition(partition).watches.insert(token);
            }
        }
    }

    fn unwatch(&mut self, watches: &mut Watches, token: Token) {
        let Some(waiter) = watches.take(token) else { return };
        for part in &waiter.ask.partitions {
            let partition = self.by_key.get(&part.key).copied();
            if let Some(partition) = partition.and_then(|token| self.partitions.get_mut(token)) {
                partition.watches.remove(&token);
            }
        }
    }
}
