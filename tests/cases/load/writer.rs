//! One producer and its partition: what it has sent, what was acknowledged, and what must be there.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use blackbox::PAUSE;
use blackbox::wire::{Batch, NONE};
use faultfs::Random;

use super::client::{Client, Record};
use super::{Ending, Signals};

const OUT_OF_RANGE: i16 = 1;
const OUT_OF_ORDER: i16 = 45;
const UNKNOWN_PRODUCER: i16 = 59;
/// What a broker answers that does not lead, does not know yet, or cannot do it just now.
const TRY_AGAIN: [i16; 5] = [3, 5, 6, 7, 56];
/// Keys of a compacted topic.
const KEYS: u64 = 20;
/// Records of one batch, and bytes of one value, at most.
const BATCH_RECORDS_MAX: u64 = 4;
const VALUE_BYTES_MAX: u64 = 600;

/// What a partition promises.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) topic: &'static str,
    pub(crate) partitions: i32,
    pub(crate) settings: &'static [(&'static str, &'static str)],
    /// Its producers have an id, and send again what was not acknowledged.
    pub(crate) is_idempotent: bool,
    /// Only the newest record of each key stays.
    pub(crate) is_compacted: bool,
    /// What is acknowledged is durable.
    pub(crate) is_flushed: bool,
}

/// A batch of records with the numbers from `first` on.
#[derive(Debug, Clone, Copy)]
struct Sent {
    first: u64,
    count: u64,
    sequence: i32,
}

/// One producer and its partition. Its records have numbers, which rise by one.
#[derive(Debug)]
pub(crate) struct Writer {
    plan: Plan,
    partition: i32,
    random: Random,
    /// The number of the next record.
    next: u64,
    id: Option<i64>,
    sequence: i32,
    /// Sent with an id, and not acknowledged.
    in_doubt: Option<Sent>,
    /// What was acknowledged and is to be there, by its first offset.
    acknowledged: BTreeMap<i64, Sent>,
    /// Numbers before which others may be missing, though the producer has an id.
    breaks: BTreeSet<u64>,
    /// Below this offset everything was looked at already.
    checked: i64,
    /// The number of the record below that.
    checked_number: Option<u64>,
}

impl Writer {
    pub(crate) fn new(plan: Plan, partition: i32, seed: u64) -> Writer {
        Writer {
            plan,
            partition,
            random: Random::new(seed),
            next: 0,
            id: None,
            sequence: 0,
            in_doubt: None,
            acknowledged: BTreeMap::new(),
            breaks: BTreeSet::new(),
            checked: 0,
            checked_number: None,
        }
    }

    /// How many batches were acknowledged, of those that are to be there.
    pub(crate) fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    /// Produces until it is told to stop.
    pub(crate) fn run(&mut self, port: u16, signals: &Signals) {
        let mut client = Client::new(port);
        while !signals.has_stopped() {
            if self.plan.is_idempotent && self.id.is_none() {
                self.id = client.producer_id();
                self.sequence = 0;
                self.breaks.insert(self.next);
                if self.id.is_none() {
                    thread::sleep(PAUSE);
                    continue;
                }
            }
            let sent = self.in_doubt.unwrap_or_else(|| self.next_batch());
            let batch = self.encoded(sent);
            match client.produce(self.plan.topic, self.partition, &batch) {
                Some((NONE, offset)) => {
                    self.in_doubt = None;
                    self.acknowledged.insert(offset, sent);
                    signals.count();
                }
                Some((OUT_OF_ORDER | UNKNOWN_PRODUCER, _)) if signals.may_forget(&self.plan) => {
                    (self.in_doubt, self.id) = (None, None);
                }
                Some((error, _)) if !TRY_AGAIN.contains(&error) => {
                    panic!("{}: {sent:?} is refused with {error}", self.name());
                }
                _ => thread::sleep(PAUSE),
            }
        }
    }

    fn next_batch(&mut self) -> Sent {
        let count = 1 + self.random.below(BATCH_RECORDS_MAX);
        let sent = Sent { first: self.next, count, sequence: self.sequence };
        self.next += count;
        if self.plan.is_idempotent {
            self.sequence += i32::try_from(count).expect("few");
            self.in_doubt = Some(sent);
        }
        sent
    }

    fn encoded(&self, sent: Sent) -> Vec<u8> {
        let numbers = sent.first..sent.first + sent.count;
        let values = numbers.clone().map(value_of).collect();
        let keys = match self.plan.is_compacted {
            true => numbers.map(|number| key_of(number).into_bytes()).collect(),
            false => Vec::new(),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        let timestamp = i64::try_from(now.as_millis()).expect("it is before the year 292 million");
        let producer = self.id.map_or((-1, -1, -1), |id| (id, 0, sent.sequence));
        Batch { values, keys, producer, timestamp, ..Batch::default() }.encode()
    }

    /// Checks what is there after an end of the broker, and goes on from that. `durable_end` is
    /// where the broker has noted that everything below is durable.
    pub(crate) fn check(
        &mut self,
        client: &mut Client,
        ending: Ending,
        durable_end: i64,
        in_full: bool,
    ) {
        let (topic, partition) = (self.plan.topic, self.partition);
        let (start, end) = client.insist("lead", |client| client.bounds(topic, partition));
        self.check_bounds(ending, start, end, durable_end);
        if in_full || self.plan.is_compacted || end < self.checked {
            (self.checked, self.checked_number) = (0, None);
        }
        let records = loop {
            let (start, _) = client.insist("lead", |client| client.bounds(topic, partition));
            if start > self.checked {
                (self.checked, self.checked_number) = (start, None);
            }
            // The log may begin later meanwhile.
            if let Some(records) = self.read(client, self.checked, end) {
                break records;
            }
        };
        self.check_order(&records, end);
        self.check_acknowledged(&records, end);
        self.checked = end;
        if let Some(last) = records.last() {
            self.checked_number = Some(self.number(last));
        }
    }

    fn check_bounds(&mut self, ending: Ending, start: i64, end: i64, durable_end: i64) {
        assert!(start <= end, "{}: from {start} to {end}", self.name());
        assert!(end >= durable_end, "{}: ends at {end}, not {durable_end}", self.name());
        if ending == Ending::PowerLoss && !self.plan.is_flushed {
            self.acknowledged.split_off(&end);
            self.breaks.insert(self.in_doubt.map_or(self.next, |sent| sent.first));
        }
    }

    /// All records of a range; none where it begins below the log.
    fn read(&self, client: &mut Client, from: i64, end: i64) -> Option<Vec<Record>> {
        let mut records: Vec<Record> = Vec::new();
        let mut at = from;
        while at < end {
            let (topic, partition) = (self.plan.topic, self.partition);
            let some = client.insist("fetch", |client| {
                let fetched = client.fetch(topic, partition, at)?;
                fetched.map_or_else(
                    |error| (error == OUT_OF_RANGE).then_some(None),
                    |some| Some(Some(some)),
                )
            })?;
            match some.last() {
                Some(last) => at = last.offset + 1,
                // The end of a compacted log may have no record.
                None if self.plan.is_compacted => break,
                None => panic!("{}: nothing from {at} to {end}", self.name()),
            }
            records.extend(some);
        }
        Some(records)
    }

    /// Offsets and numbers rise, by one where nothing takes any away.
    fn check_order(&self, records: &[Record], end: i64) {
        let (mut before, mut at) = (self.checked_number, self.checked);
        for record in records {
            let number = self.number(record);
            let name = || format!("{}: {number} at {}", self.name(), record.offset);
            let is_next = record.offset == at || (self.plan.is_compacted && record.offset > at);
            assert!(is_next, "{}, after {at}", name());
            assert!(number < self.next, "{}: nobody has sent it", name());
            assert_eq!(record.value, value_of(number), "{}", name());
            if let Some(before) = before {
                let is_dense = self.plan.is_idempotent && !self.plan.is_compacted;
                let may_skip = !is_dense || self.breaks.range(before + 1..=number).next().is_some();
                assert!(
                    number == before + 1 || (may_skip && number > before),
                    "{}, behind {before}; {:?} may follow others",
                    name(),
                    self.breaks
                );
            }
            (before, at) = (Some(number), record.offset + 1);
        }
        let is_whole = at == end || self.plan.is_compacted;
        assert!(is_whole, "{}: ends at {at}, not {end}", self.name());
    }

    fn check_acknowledged(&self, records: &[Record], end: i64) {
        let found: BTreeMap<i64, u64> =
            records.iter().map(|record| (record.offset, self.number(record))).collect();
        let newest: BTreeMap<&[u8], i64> = records
            .iter()
            .filter_map(|record| Some((record.key.as_deref()?, record.offset)))
            .collect();
        for (base, sent) in &self.acknowledged {
            for (offset, number) in (*base..).zip(sent.first..sent.first + sent.count) {
                if offset < self.checked {
                    continue;
                }
                let is_there = match found.get(&offset) {
                    Some(found) => *found == number,
                    None if self.plan.is_compacted => {
                        newest.get(key_of(number).as_bytes()).is_some_and(|newer| *newer > offset)
                    }
                    None => false,
                };
                assert!(
                    is_there,
                    "{}: {number} was acknowledged at {offset}, where {:?} is; the end is {end}",
                    self.name(),
                    found.get(&offset)
                );
            }
        }
    }

    fn number(&self, record: &Record) -> u64 {
        let digits = record.value.split(|byte| *byte == b'.').next().unwrap_or_default();
        let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        number.unwrap_or_else(|| panic!("{}: {record:?} is nobody's", self.name()))
    }

    pub(crate) fn name(&self) -> String {
        format!("{}-{}", self.plan.topic, self.partition)
    }
}

fn key_of(number: u64) -> String {
    format!("key{}", number % KEYS)
}

/// Its number, and as many dots as follow from it.
fn value_of(number: u64) -> Vec<u8> {
    let mut value = format!("{number}.").into_bytes();
    value.resize(value.len() + Random::new(number).below(VALUE_BYTES_MAX) as usize, b'.');
    value
}
