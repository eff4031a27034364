//! Fetch: the owners say what they have, this shard spends the request's bytes in its order, and
//! where there is too little it waits for news.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Part, SocketId};
use base::{Duration, Instant, LeaderEpoch, Offset, PartitionIndex, ShardId, Token};
use intercom::{FetchAsk, FetchPartition, Fetched, PartitionKey, Reply, Request, Watch};
use protocol::fetch_response::{AbortedTransaction, FetchableTopicResponse, PartitionData};
use protocol::{DecodeError, ErrorCode, FetchRequest, FetchResponse, Records, RequestFrame, Str};

use crate::sessions::{Context, FetchKey, NO_SESSION, SessionError, Told, TopicKey, Wanted};
use crate::shard::{Io, Shard, Waiting};

/// The first version that names topics by id (KIP-516).
const TOPIC_ID_FIRST_VERSION: i16 = 13;
/// `isolation_level` of a consumer that reads only what was committed.
const READ_COMMITTED: i8 = 1;

/// One partition of the request, and where it is.
#[derive(Debug)]
struct Entry {
    key: FetchKey,
    wanted: Wanted,
    place: Result<(PartitionKey, ShardId), ErrorCode>,
    fetched: Option<Fetched>,
}

impl Entry {
    fn owner(&self) -> Option<ShardId> {
        self.place.as_ref().ok().map(|(_, owner)| *owner)
    }
}

/// A Fetch request under way.
#[derive(Debug)]
struct State {
    context: Context,
    by_id: bool,
    entries: Vec<Entry>,
    bytes_min: u32,
    bytes_max: u32,
    read_committed: bool,
    /// When an answer leaves whatever there is.
    until: Instant,
    timed_out: bool,
    /// Owners that were asked and have not answered yet.
    awaited: Vec<ShardId>,
    /// Owners that have told news since they were asked: their watch is spent.
    told: Vec<ShardId>,
}

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: FetchRequest = frame.body()?;
    let by_id = frame.version >= TOPIC_ID_FIRST_VERSION;
    let (changed, forgotten) = (wanted_of(&request, by_id), forgotten_of(&request, by_id));
    let (id, epoch) = (request.session_id, request.session_epoch);
    let opened = shard.sessions.open(id, epoch, by_id, &changed, &forgotten, io.now.mono);
    let context = match opened {
        Ok(context) => context,
        Err(error) => {
            let response = FetchResponse { error_code: code_of(error), ..Default::default() };
            shard.respond::<FetchRequest>(io, call, &response);
            return Ok(());
        }
    };
    let list = match context {
        Context::Incremental { id } => shard.sessions.wanted(id),
        Context::Full | Context::Sessionless => changed,
    };
    let entries = list.into_iter().map(|(key, wanted)| {
        let place = locate(shard, &key);
        Entry { key, wanted, place, fetched: None }
    });
    let entries: Vec<Entry> = entries.collect();
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let bytes_max = request.max_bytes.min(shard.layers.current().simple.fetch_max_bytes);
    let state = State {
        context,
        by_id,
        entries,
        bytes_min: u32::try_from(request.min_bytes).unwrap_or(0),
        bytes_max: u32::try_from(bytes_max).unwrap_or(0),
        read_committed: request.isolation_level == READ_COMMITTED,
        until: io.now.mono + wait,
        timed_out: wait.is_zero(),
        awaited: Vec::new(),
        told: Vec::new(),
    };
    Box::new(state).ask(shard, io, call, |_| true);
    Ok(())
}

impl Waiting for State {
    fn answered(
        mut self: Box<Self>,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        from: ShardId,
        reply: Reply,
    ) {
        let Reply::Fetch(fetched) = reply else { unreachable!("answered by {reply:?}") };
        self.awaited.retain(|owner| *owner != from);
        // News takes another lane than answers. What overtook the answer is newer.
        if !self.told.contains(&from) {
            self.take(from, fetched);
        }
        self.decide(shard, io, call);
    }

    fn told(
        mut self: Box<Self>,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        from: ShardId,
        fetched: Vec<Fetched>,
    ) {
        self.told.push(from);
        self.take(from, fetched);
        self.decide(shard, io, call);
    }

    fn timed_out(mut self: Box<Self>, shard: &mut Shard, io: &mut Io<'_>, call: Token) {
        self.timed_out = true;
        // Owners say nothing of what is less than they were asked to wait for. It is answered now,
        // as Kafka's delayed fetch reads again when its time is over.
        if self.awaited.is_empty() && self.bytes_min > 1 {
            return self.ask(shard, io, call, |_| true);
        }
        self.decide(shard, io, call);
    }

    fn abandoned(self: Box<Self>, shard: &mut Shard, io: &mut Io<'_>, connection: SocketId) {
        let mut owners: Vec<ShardId> = self.entries.iter().filter_map(Entry::owner).collect();
        owners.sort_unstable();
        owners.dedup();
        for owner in owners {
            shard.mail.request(io.effects, owner, Token::NONE, Request::Unwatch(connection));
        }
    }
}

impl State {
    /// Asks the owners that are wanted for what they have of their partitions.
    fn ask(
        mut self: Box<Self>,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        wanted: impl Fn(ShardId) -> bool,
    ) {
        let mut by_owner: BTreeMap<ShardId, Vec<FetchPartition>> = BTreeMap::new();
        let mut is_shared = false;
        for entry in &mut self.entries {
            match entry.place {
                Ok((key, owner)) if wanted(owner) => {
                    by_owner.entry(owner).or_default().push(part_of(key, &entry.wanted));
                }
                Ok(_) => is_shared = true,
                Err(code) => entry.fetched = Some(Fetched::refused(code)),
            }
        }
        is_shared |= by_owner.len() > 1;
        let State { bytes_max, bytes_min, read_committed, until, .. } = *self;
        let connection = shard.socket(call).filter(|_| !self.timed_out);
        let watch =
            connection.map(|connection| Watch { call, connection, bytes_min, is_shared, until });
        self.told.retain(|owner| !by_owner.contains_key(owner));
        for (owner, partitions) in by_owner {
            self.awaited.push(owner);
            let ask = FetchAsk { partitions, bytes_max, read_committed, watch };
            shard.ask(io, call, owner, Request::Fetch(ask));
        }
        if self.awaited.is_empty() {
            return (*self).finish(shard, io, call);
        }
        shard.wait(call, self);
    }

    fn take(&mut self, from: ShardId, fetched: Vec<Fetched>) {
        let asked = self.entries.iter_mut().filter(|entry| entry.owner() == Some(from));
        for (entry, fetched) in asked.zip(fetched) {
            entry.fetched = Some(fetched);
        }
    }

    /// When all owners have answered: is it enough, or does the client wait?
    fn decide(self: Box<Self>, shard: &mut Shard, io: &mut Io<'_>, call: Token) {
        if !self.awaited.is_empty() {
            return shard.wait(call, self);
        }
        let fetched = || self.entries.iter().filter_map(|entry| entry.fetched.as_ref());
        let bytes: u64 = fetched().map(|fetched| u64::from(fetched.bytes)).sum();
        let failed = fetched().any(|fetched| fetched.error.is_error());
        if self.timed_out || failed || bytes >= u64::from(self.bytes_min) {
            return (*self).finish(shard, io, call);
        }
        shard.set_timer(call, self.until);
        if self.told.is_empty() {
            return shard.wait(call, self);
        }
        let told = self.told.clone();
        self.ask(shard, io, call, |owner| told.contains(&owner));
    }

    fn finish(self, shard: &mut Shard, io: &mut Io<'_>, call: Token) {
        let State { context, by_id, mut entries, bytes_max, read_committed, .. } = self;
        spend(&mut entries, bytes_max);
        let session_id = session_of(shard, io, &context, by_id, &entries);
        let mut response = FetchResponse { session_id, ..Default::default() };
        let mut gaps = Vec::new();
        for entry in entries {
            let fetched = entry.fetched.expect("every owner has answered");
            let told = told_of(&fetched);
            if let Context::Incremental { id } = context {
                let has_records = fetched.bytes > 0;
                if !shard.sessions.is_news(id, &entry.key, told, has_records) {
                    continue;
                }
            }
            let index = entry.key.partition;
            let data = data_of(index, fetched, read_committed, &mut gaps);
            push(&mut response, &entry.key.topic, data);
        }
        shard.respond_with_gaps::<FetchRequest>(io, call, &response, gaps);
    }
}

/// Spends the request's bytes in its order. The first partition that has records keeps a first
/// batch however large it is; a later one keeps what fits.
fn spend(entries: &mut [Entry], bytes_max: u32) {
    let (mut left, mut is_first) = (bytes_max, true);
    for fetched in entries.iter_mut().filter_map(|entry| entry.fetched.as_mut()) {
        if !is_first {
            fetched.cut_to(left);
        }
        is_first &= fetched.bytes == 0;
        left = left.saturating_sub(fetched.bytes);
    }
}

fn session_of(
    shard: &mut Shard,
    io: &Io<'_>,
    context: &Context,
    by_id: bool,
    entries: &[Entry],
) -> i32 {
    match context {
        Context::Sessionless => NO_SESSION,
        Context::Incremental { id } => *id,
        Context::Full => {
            let partitions = entries.iter().map(|entry| {
                let told = entry.fetched.as_ref().and_then(told_of);
                (entry.key.clone(), entry.wanted, told)
            });
            shard.sessions.create(by_id, partitions.collect(), io.now.mono)
        }
    }
}

fn told_of(fetched: &Fetched) -> Option<Told> {
    (!fetched.error.is_error()).then_some(Told {
        high_watermark: fetched.high_watermark.0,
        log_start_offset: fetched.log_start_offset.0,
    })
}

fn data_of(
    partition_index: i32,
    fetched: Fetched,
    read_committed: bool,
    gaps: &mut Vec<Vec<Part>>,
) -> PartitionData {
    let records = if fetched.bytes == 0 {
        Records::Bytes(bytes::Bytes::new())
    } else {
        let slot = u32::try_from(gaps.len()).expect("a request has fewer partitions");
        gaps.push(fetched.parts);
        Records::Elsewhere { length: fetched.bytes, slot }
    };
    let aborted = fetched.aborted.into_iter().map(|(producer_id, first_offset)| {
        let (producer_id, first_offset) = (producer_id.0, first_offset.0);
        AbortedTransaction { producer_id, first_offset, ..Default::default() }
    });
    PartitionData {
        partition_index,
        error_code: fetched.error,
        high_watermark: fetched.high_watermark.0,
        last_stable_offset: fetched.last_stable_offset.0,
        log_start_offset: fetched.log_start_offset.0,
        aborted_transactions: read_committed.then(|| aborted.collect()),
        records: Some(records),
        ..Default::default()
    }
}

fn push(response: &mut FetchResponse, topic: &TopicKey, data: PartitionData) {
    let (name, topic_id) = match topic {
        TopicKey::Name(name) => (Str::from(name.as_ref()), base::Uuid::ZERO),
        TopicKey::Id(id) => (Str::default(), *id),
    };
    if let Some(last) = response.responses.last_mut()
        && last.topic == name
        && last.topic_id == topic_id
    {
        return last.partitions.push(data);
    }
    response.responses.push(FetchableTopicResponse {
        topic: name,
        topic_id,
        partitions: vec![data],
        ..Default::default()
    });
}

fn locate(shard: &Shard, key: &FetchKey) -> Result<(PartitionKey, ShardId), ErrorCode> {
    let index = PartitionIndex(key.partition);
    match &key.topic {
        TopicKey::Name(name) => shard.locate(name, index),
        TopicKey::Id(id) => shard.locate_by_id(*id, index),
    }
}

fn part_of(key: PartitionKey, wanted: &Wanted) -> FetchPartition {
    FetchPartition {
        key,
        offset: Offset(wanted.offset),
        bytes_max: u32::try_from(wanted.max_bytes).unwrap_or(0),
        leader_epoch: LeaderEpoch(wanted.leader_epoch),
    }
}

fn topic_key(name: &Str, id: base::Uuid, by_id: bool) -> TopicKey {
    if by_id { TopicKey::Id(id) } else { TopicKey::Name(Arc::from(&**name)) }
}

fn wanted_of(request: &FetchRequest, by_id: bool) -> Vec<(FetchKey, Wanted)> {
    let mut wanted = Vec::new();
    for topic in &request.topics {
        let name = topic_key(&topic.topic, topic.topic_id, by_id);
        for part in &topic.partitions {
            let key = FetchKey { topic: name.clone(), partition: part.partition };
            let what = Wanted {
                offset: part.fetch_offset,
                max_bytes: part.partition_max_bytes,
                leader_epoch: part.current_leader_epoch,
                last_fetched_epoch: part.last_fetched_epoch,
            };
            wanted.push((key, what));
        }
    }
    wanted
}

fn forgotten_of(request: &FetchRequest, by_id: bool) -> Vec<FetchKey> {
    let mut forgotten = Vec::new();
    for topic in &request.forgotten_topics_data {
        let name = topic_key(&topic.topic, topic.topic_id, by_id);
        for partition in &topic.partitions {
            forgotten.push(FetchKey { topic: name.clone(), partition: *partition });
        }
    }
    forgotten
}

fn code_of(error: SessionError) -> ErrorCode {
    match error {
        SessionError::NotFound => ErrorCode::FETCH_SESSION_ID_NOT_FOUND,
        SessionError::InvalidEpoch => ErrorCode::INVALID_FETCH_SESSION_EPOCH,
        SessionError::TopicIdMismatch => ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR,
    }
}
