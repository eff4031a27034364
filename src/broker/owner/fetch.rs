//! Reads: answered at once with what there is, and with a promise of news where that is too
//! little.

use base::Token;
use commitlog::{Read, ReadError, ReadRequest, Ticket};
use intercom::{FetchAnswer, FetchAsk, FetchPartition, Fetched, Reply, Request};
use protocol::ErrorCode;

use super::{Asker, Desk, Owner, Serving, refuse_all};

/// Why a partition has no answer yet.
struct NotYet {
    partition: Token,
    ticket: Option<Ticket>,
}

impl Owner {
    pub(super) fn fetch(&mut self, desk: &mut Desk<'_>, asker: Asker, ask: FetchAsk) {
        let mut budget = ask.bytes_max;
        let (mut partitions, mut failed) = (Vec::with_capacity(ask.partitions.len()), false);
        for part in &ask.partitions {
            // The first batch of a request is returned however large it is.
            let first = budget == ask.bytes_max;
            match self.fetch_one(desk, part, budget, first, ask.read_committed) {
                Ok(fetched) => {
                    failed |= fetched.error != ErrorCode::NONE;
                    budget = budget.saturating_sub(fetched.bytes);
                    partitions.push(fetched);
                }
                Err(not_yet) => return self.fetch_later(desk, asker, ask, &not_yet),
            }
        }
        let found = ask.bytes_max - budget;
        let mut watching = false;
        if let Some(watch) = ask.watch.filter(|watch| found < watch.bytes_min && !failed) {
            watching = self.watch(asker, watch, &ask.partitions);
        }
        desk.reply(asker, Reply::Fetch(FetchAnswer { partitions, watching }));
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
        let up_to = if read_committed {
            partition.last_stable_offset()
        } else {
            partition.high_watermark()
        };
        let request = ReadRequest {
            offset: part.offset,
            up_to,
            bytes_max: part.bytes_max.min(budget),
            at_least_one,
        };
        let mut fetched = Fetched {
            error: ErrorCode::NONE,
            high_watermark: partition.high_watermark(),
            last_stable_offset: partition.last_stable_offset(),
            log_start_offset: partition.log.log_start_offset(),
            parts: Vec::new(),
            bytes: 0,
        };
        let read = partition.log.read(request, &mut self.log_effects);
        self.file_log_effects(desk, token);
        match read {
            Ok(Read::Plan(plan)) => {
                fetched.parts = plan.parts;
                fetched.bytes = plan.bytes;
                Ok(fetched)
            }
            Ok(Read::Locating(ticket)) => Err(NotYet { partition: token, ticket: Some(ticket) }),
            Ok(Read::Busy) => Err(NotYet { partition: token, ticket: None }),
            Err(ReadError::NotOpen | ReadError::Corrupt) => {
                Ok(Fetched::refused(ErrorCode::KAFKA_STORAGE_ERROR))
            }
            Err(ReadError::OutOfRange { .. }) => {
                Ok(Fetched { error: ErrorCode::OFFSET_OUT_OF_RANGE, ..fetched })
            }
        }
    }

    /// The whole ask is repeated once the position is found: what it read so far costs nothing.
    fn fetch_later(&mut self, desk: &mut Desk<'_>, asker: Asker, ask: FetchAsk, not_yet: &NotYet) {
        match self.serving.insert(Serving::Again { asker, request: Request::Fetch(ask) }) {
            Ok(serving) => {
                let key = (not_yet.partition, not_yet.ticket);
                self.locating.entry(key).or_default().push(serving);
            }
            Err(Serving::Again { asker, request }) => {
                desk.reply(asker, refuse_all(&request, ErrorCode::NOT_LEADER_OR_FOLLOWER));
            }
            Err(_) => unreachable!("a slab gives back what it was given"),
        }
    }

    /// Positions have been found: those who waited for this one, or for a free search, ask anew.
    pub(super) fn located(&mut self, desk: &mut Desk<'_>, partition: Token, ticket: Ticket) {
        for key in [(partition, Some(ticket)), (partition, None)] {
            if let Some(waiting) = self.locating.remove(&key) {
                self.ask_again(desk, waiting);
            }
        }
    }

    fn watch(
        &mut self,
        asker: Asker,
        watch: intercom::Watch,
        partitions: &[FetchPartition],
    ) -> bool {
        if let Some(taken) = self.watches.take_of(asker.shard, watch.id) {
            self.unwatch(&taken);
        }
        let tokens = partitions.iter().filter_map(|part| self.by_key.get(&part.key).copied());
        let tokens: Vec<Token> = tokens.collect();
        let Some(set) = self.watches.set(asker.shard, watch, tokens.clone()) else { return false };
        for token in tokens {
            self.partition(token).watches.insert(set);
        }
        true
    }
}
