//! Logs with transactions.

use records::{Batch, Batches, ControlKey, ControlType, end_transaction_marker};

use super::*;
use crate::{AbortedTransaction, ProducerState};

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Committed,
    Aborted,
}

#[derive(Clone, Debug)]
struct Written {
    key: String,
    value: Option<String>,
    /// Of which transaction, by the offset at which it began.
    transaction: Option<i64>,
}

/// A log, and what was appended to it.
struct Ledger {
    bench: Bench,
    config: LogConfig,
    records: BTreeMap<i64, Written>,
    ends: BTreeMap<i64, End>,
    /// Of each producer: its epoch, its next sequence, and where its open transaction began.
    producers: BTreeMap<i64, (i16, i32, Option<i64>)>,
}

impl Ledger {
    fn new(config: LogConfig) -> Self {
        Self {
            bench: Bench::create(config.clone()),
            config,
            records: BTreeMap::new(),
            ends: BTreeMap::new(),
            producers: BTreeMap::new(),
        }
    }

    /// Appends records of a producer's transaction, which begins where none is open; of none,
    /// outside of transactions.
    fn write(&mut self, producer: Option<i64>, records: &[(u8, bool)]) {
        let base = self.bench.log.end_offset();
        let mut builder = BatchBuilder::new(base, Compression::None).leader_epoch(LeaderEpoch(0));
        let mut transaction = None;
        if let Some(id) = producer {
            let (epoch, sequence, begun) = self.producers.entry(id).or_insert((0, 0, None));
            builder =
                builder.producer(ProducerId(id), ProducerEpoch(*epoch), *sequence).transactional();
            *sequence += records.len() as i32;
            transaction = Some(*begun.get_or_insert(base.0));
            self.ends.entry(begun.expect("it has begun")).or_insert(End::Open);
        }
        for (index, (key, has_value)) in records.iter().enumerate() {
            let offset = base.0 + index as i64;
            let key = format!("key-{key}");
            let value = has_value.then(|| format!("value-{offset}"));
            builder.append(&NewRecord {
                timestamp: self.bench.now.wall_ms,
                key: Some(key.as_bytes()),
                value: value.as_deref().map(str::as_bytes),
                headers: &[],
            });
            self.records.insert(offset, Written { key, value, transaction });
        }
        self.append(&builder.build());
    }

    /// Ends the transaction of a producer; by the newer protocol its epoch rises (KIP-890). A
    /// marker can come where no transaction is open.
    fn end(&mut self, id: i64, is_commit: bool, bumps: bool) {
        let base = self.bench.log.end_offset();
        let (epoch, sequence, begun) = self.producers.entry(id).or_insert((0, 0, None));
        if bumps {
            (*epoch, *sequence) = (*epoch + 1, 0);
        }
        if let Some(begun) = begun.take() {
            self.ends.insert(begun, if is_commit { End::Committed } else { End::Aborted });
        }
        let control = if is_commit { ControlType::Commit } else { ControlType::Abort };
        let mut builder = BatchBuilder::new(base, Compression::None)
            .leader_epoch(LeaderEpoch(0))
            .producer(ProducerId(id), ProducerEpoch(*epoch), -1)
            .transactional()
            .control();
        builder.append(&NewRecord {
            timestamp: self.bench.now.wall_ms,
            key: Some(&ControlKey::new(control).write()),
            value: Some(&end_transaction_marker(3)),
            headers: &[],
        });
        self.append(&builder.build());
    }

    fn append(&mut self, batch: &Batch) {
        self.bench.log.append(self.bench.now, &[appended(batch)]).expect("it is open");
        self.bench.run();
    }

    fn last_stable_offset(&mut self) -> Offset {
        let end = self.bench.log.written_end_offset();
        self.bench.log.first_unstable_offset(end).map_or(end, |first| first.min(end))
    }

    /// Rolls the active segment, whatever is in it.
    fn roll(&mut self) {
        let records = [(99, true); 11];
        self.write(None, &records);
        self.write(None, &records);
    }

    fn begin(&mut self) {
        let (up_to, end) = (self.last_stable_offset(), self.bench.log.written_end_offset());
        let Bench { log, now, out, events, .. } = &mut self.bench;
        log.clean(*now, up_to, end, LIMITS, out, events);
    }

    fn clean(&mut self) {
        self.begin();
        self.bench.run();
        assert!(!self.bench.log.is_cleaning());
    }

    fn reopen(&mut self, disk: Disk, found: Checkpoints) {
        let now = self.bench.now;
        self.bench = Bench::open(disk, self.config.clone(), found);
        self.bench.now = now;
    }

    fn batches(&mut self, up_to: Offset) -> Vec<Batch> {
        let start = self.bench.log.log_start_offset();
        let mut all: Vec<Batch> = Vec::new();
        let mut next = start;
        while next < up_to {
            let request = ReadRequest { offset: next, up_to, bytes_max: 300, at_least_one: true };
            let plan = self.bench.read(request).expect("the log has it");
            let found: Vec<Batch> =
                Batches::new(self.bench.bytes_of(&plan)).map(|it| it.expect("whole")).collect();
            let Some(last) = found.last() else { break };
            next = last.header().next_offset();
            found.iter().for_each(|it| it.check_crc().expect("whole"));
            all.extend(found);
        }
        all
    }

    /// What a consumer of committed records makes of the log, as Kafka's own does: offset, key and
    /// value.
    fn committed(&mut self) -> Seen {
        let (start, up_to) = (self.bench.log.log_start_offset(), self.last_stable_offset());
        let batches = self.batches(up_to);
        let mut ahead: Vec<_> = self.bench.log.aborted_transactions(start, up_to).collect();
        ahead.sort_by_key(|entry| std::cmp::Reverse(entry.first_offset));
        let mut aborted = BTreeMap::new();
        let mut seen = Seen::new();
        for batch in batches {
            let header = batch.header();
            while let Some(entry) = ahead.pop_if(|it| it.first_offset <= header.last_offset()) {
                aborted.insert(entry.producer_id, entry.last_offset);
            }
            if header.is_control() {
                let marker = records::EndTransaction::read(header, batch.record_bytes());
                if marker.is_some_and(|marker| !marker.is_commit) {
                    aborted.remove(&header.producer_id);
                }
            } else if !(header.is_transactional() && aborted.contains_key(&header.producer_id)) {
                seen.extend(records_of(&batch));
            }
        }
        let ends = aborted.values().all(|marker| *marker >= up_to);
        assert!(ends, "what follows would be taken for aborted: {aborted:?}");
        seen
    }

    /// Whether consumers see what they should: nothing that was aborted, and the last value of
    /// each key.
    fn check(&mut self) {
        let up_to = self.last_stable_offset();
        let is_committed =
            |it: &Written| it.transaction.is_none_or(|begun| self.ends[&begun] == End::Committed);
        let expected: BTreeMap<i64, Written> = self
            .records
            .range(..up_to.0)
            .filter(|(_, written)| is_committed(written))
            .map(|(offset, written)| (*offset, written.clone()))
            .collect();
        let seen = self.committed();
        for (offset, key, value) in &seen {
            let written = expected.get(offset).unwrap_or_else(|| panic!("{offset} is not seen"));
            assert_eq!((&written.key, &written.value), (key, value), "offset {offset}");
        }
        let found = last_values(seen.into_iter().map(|(_, key, value)| (key, value)));
        let pairs = expected.into_values().map(|written| (written.key, written.value));
        assert_eq!(found, last_values(pairs));
    }

    /// What is left below `end`, in short: offsets of records; of markers with C or A, and h where
    /// they have a horizon; ranges of batches without records.
    fn left(&mut self, end: i64) -> String {
        let mut words = Vec::new();
        for batch in self.batches(Offset(end)) {
            let header = batch.header();
            let horizon = if header.delete_horizon_ms().is_some() { "h" } else { "" };
            if header.record_count == 0 {
                let kind = if header.is_control() { "-" } else { "" };
                words.push(format!("[{kind}{}]", header.last_offset()));
                continue;
            }
            if !header.is_control() {
                words.extend(records_of(&batch).iter().map(|(it, ..)| format!("{it}{horizon}")));
                continue;
            }
            let marker = records::EndTransaction::read(header, batch.record_bytes());
            let is_commit = marker.expect("it is one").is_commit;
            let letter = if is_commit { "C" } else { "A" };
            words.push(format!("{letter}{}{horizon}", header.last_offset()));
        }
        words.join(" ")
    }

    fn aborted(&self) -> Vec<(i64, i64)> {
        let all = self.bench.log.aborted_transactions(Offset(0), Offset(i64::MAX));
        all.map(|entry| (entry.first_offset.0, entry.last_offset.0)).collect()
    }

    fn killed(&self) -> Checkpoints {
        Checkpoints {
            recovery_point: self.bench.log.flushed_end_offset(),
            log_start_offset: self.bench.log.log_start_offset(),
            first_dirty: self.bench.log.first_dirty_offset(),
            clean_shutdown: false,
        }
    }
}

fn records_of(batch: &Batch) -> Seen {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut seen = Seen::new();
    let mut records = batch.records(1 << 20).expect("readable");
    while let Some(record) = records.next_record().expect("readable") {
        let key = text(record.key.expect("keys were given"));
        seen.push((record.offset.0, key, record.value.map(text)));
    }
    seen
}

/// So many transactions of several producers, interleaved, over several segments.
fn interleaved() -> Ledger {
    let mut ledger = Ledger::new(config());
    for round in 0..6_u8 {
        ledger.write(Some(1), &[(1, true), (round, true)]);
        ledger.write(Some(2), &[(2, true), (round, true)]);
        ledger.write(None, &[(3, true)]);
        ledger.write(Some(1), &[(4, round % 2 == 0)]);
        ledger.end(1, round % 2 == 0, round % 3 == 0);
        ledger.write(Some(2), &[(5, true)]);
        if round % 3 == 2 {
            ledger.end(2, round == 2, true);
        }
    }
    ledger.roll();
    assert!(ledger.bench.log.segment_count() > 4);
    ledger
}

#[test]
fn aborted_records_go_and_markers_follow_when_their_time_is_over() {
    let mut ledger = Ledger::new(config());
    ledger.write(None, &[(1, true), (2, true)]);
    ledger.write(Some(7), &[(1, true), (3, true)]);
    ledger.end(7, false, false);
    ledger.write(Some(8), &[(2, true)]);
    ledger.end(8, true, false);
    ledger.roll();
    // What was aborted supersedes nothing. The last batch of a producer that wrote something in its
    // epoch stays without records, and with it the marker.
    ledger.clean();
    assert_eq!(ledger.left(7), "0 [3] A4 5 C6");
    assert_eq!(ledger.aborted(), [(2, 4)]);
    ledger.check();
    // It writes again.
    ledger.write(Some(7), &[(4, true)]);
    ledger.end(7, true, false);
    ledger.write(Some(8), &[(2, true)]);
    ledger.end(8, true, false);
    ledger.roll();
    // The batches that were there in this round keep their markers for another one.
    ledger.clean();
    assert_eq!(ledger.left(7), "0 A4 C6");
    assert_eq!(ledger.aborted(), [(2, 4)]);
    ledger.bench.now.wall_ms += HOUR_MS;
    ledger.roll();
    ledger.clean();
    assert_eq!(ledger.left(7), "0 A4h C6h");
    assert_eq!(ledger.aborted(), []);
    assert_eq!(files(&ledger.bench, ".txnindex"), 0);
    for (later_ms, left) in [(HOUR_MS - 1, "0 A4h C6h"), (1, "0")] {
        ledger.bench.now.wall_ms += later_ms;
        ledger.roll();
        ledger.clean();
        assert_eq!(ledger.left(7), left, "{later_ms}");
        ledger.check();
    }
}

#[test]
fn the_last_marker_of_an_epoch_keeps_it() {
    let mut ledger = Ledger::new(config());
    ledger.write(Some(7), &[(1, true)]);
    ledger.end(7, false, true);
    ledger.write(Some(8), &[(1, true)]);
    ledger.end(8, true, true);
    ledger.roll();
    let known = |ledger: &Ledger| {
        let mut states: Vec<ProducerState> = ledger.bench.log.producers().collect();
        states.sort_by_key(|state| state.producer_id);
        states
    };
    let before = known(&ledger);
    ledger.clean();
    // In its new epoch the producer has written nothing: the old one's batch need not stay.
    assert_eq!(ledger.left(4), "A1 2 C3");
    for left in ["A1h 2 C3", "A1h 2 C3", "[-1] 2 C3", "[-1] 2 C3"] {
        ledger.roll();
        ledger.clean();
        assert_eq!(ledger.left(4), left);
        ledger.bench.now.wall_ms += HOUR_MS / 2;
    }
    assert_eq!(known(&ledger), before);
    ledger.check();
}

#[test]
fn what_is_not_decided_is_not_cleaned() {
    let mut ledger = Ledger::new(config());
    ledger.roll();
    let begins = ledger.bench.log.end_offset();
    ledger.write(Some(7), &[(1, true)]);
    for _ in 0..3 {
        ledger.roll();
    }
    ledger.clean();
    let clean_to = ledger.bench.log.first_dirty_offset().expect("something is clean");
    assert!(clean_to <= begins && clean_to > Offset(0), "{clean_to}");
    let up_to = ledger.last_stable_offset();
    assert_eq!(ledger.bench.log.cleanable(ledger.bench.now, up_to, &mut ledger.bench.out), None);
    ledger.check();
    ledger.end(7, true, false);
    ledger.roll();
    ledger.clean();
    assert!(ledger.bench.log.first_dirty_offset() > Some(begins));
    ledger.check();
    assert_eq!(ledger.left(begins.0 + 1), format!("{begins}"));
}

#[test]
fn the_end_that_consumers_come_to_stays() {
    let mut ledger = Ledger::new(config());
    ledger.write(None, &[(1, true); 12]);
    ledger.write(Some(7), &[(2, true); 12]);
    ledger.write(None, &[(1, true)]);
    ledger.end(7, false, true);
    let end = ledger.bench.log.end_offset();
    for (high_watermark, left) in [(Offset(24), "[23] 24 A25"), (Offset(25), "24 A25")] {
        let mut ledger = interrupted(&ledger);
        let Bench { log, now, out, events, .. } = &mut ledger.bench;
        log.clean(*now, Offset(i64::MAX), high_watermark, LIMITS, out, events);
        ledger.bench.run();
        assert_eq!(ledger.left(end.0), left);
    }
}

/// The same log, as if its process had been killed now.
fn interrupted(ledger: &Ledger) -> Ledger {
    let mut again = Ledger {
        bench: Bench::create(ledger.config.clone()),
        config: ledger.config.clone(),
        records: ledger.records.clone(),
        ends: ledger.ends.clone(),
        producers: ledger.producers.clone(),
    };
    again.bench.now = ledger.bench.now;
    again.reopen(ledger.bench.disk.clone(), ledger.killed());
    again
}

#[test]
fn an_index_that_the_markers_contradict_cleans_nothing() {
    // Whether it was committed, and between which offsets the index has an aborted transaction.
    for (is_commit, entry) in [(false, None), (true, Some((2, 4))), (false, Some((2, 5)))] {
        let mut ledger = with_index(is_commit, entry);
        ledger.clean();
        assert_eq!(ledger.bench.log.state(), LogState::Open);
        assert_eq!(ledger.bench.log.first_dirty_offset(), None, "{entry:?}");
        assert!(ledger.left(5).starts_with("0 1 2 3 "), "{entry:?}");
    }
}

#[test]
fn an_entry_whose_marker_is_not_there_says_nothing_of_what_follows() {
    let mut ledger = with_index(true, Some((0, 1)));
    ledger.clean();
    assert_eq!(ledger.left(5), "1 2 3 C4");
}

/// A log with a transaction, and with an index that has one of the same producer.
fn with_index(is_commit: bool, entry: Option<(i64, i64)>) -> Ledger {
    let mut ledger = Ledger::new(config());
    ledger.write(None, &[(1, true), (2, true)]);
    ledger.write(Some(7), &[(1, true), (3, true)]);
    ledger.end(7, is_commit, false);
    ledger.roll();
    ledger.roll();
    ledger.check();
    let entries = entry.map(|(first, last)| AbortedTransaction {
        producer_id: ProducerId(7),
        first_offset: Offset(first),
        last_offset: Offset(last),
        last_stable_offset: Offset(last + 1),
    });
    let content = crate::aborted::format(entries.as_slice()).to_vec();
    let mut disk = ledger.bench.disk.clone();
    disk.files.insert(Bench::path("00000000000000000000.txnindex"), content);
    let end = ledger.bench.log.end_offset();
    ledger.reopen(disk, Checkpoints { recovery_point: end, ..ledger.killed() });
    ledger
}

#[test]
fn a_crash_after_any_effect_leaves_transactions_whole() {
    for backwards in [false, true] {
        let mut ends_with_swap = 0;
        for crash_after in 0.. {
            let mut ledger = interleaved();
            ledger.begin();
            let performed =
                (0..crash_after).take_while(|_| step(&mut ledger.bench, backwards)).count();
            if performed < crash_after {
                assert!(crash_after > 40 && ends_with_swap > 3, "{crash_after} {ends_with_swap}");
                break;
            }
            ends_with_swap += usize::from(files(&ledger.bench, ".txnindex.swap") > 0);
            let (end, disk) = (ledger.bench.log.end_offset(), ledger.bench.disk.clone());
            let first_dirty = ledger.bench.log.first_dirty_offset();
            let killed = Checkpoints { recovery_point: end, ..ledger.killed() };
            for found in [killed, Checkpoints::default(), Checkpoints { first_dirty, ..clean() }] {
                ledger.reopen(disk.clone(), found);
                assert_eq!(ledger.bench.log.end_offset(), end, "{crash_after} {found:?}");
                ledger.check();
                let left = files(&ledger.bench, ".swap") + files(&ledger.bench, ".cleaned");
                assert_eq!(left, 0, "{crash_after}");
                ledger.clean();
                ledger.check();
            }
        }
    }
}

#[test]
fn a_cleaned_segment_has_the_index_of_what_is_left() {
    let mut ledger = interleaved();
    let before = ledger.aborted();
    assert!(before.len() > 3, "{before:?}");
    ledger.clean();
    assert_eq!(ledger.aborted(), before, "all had batches");
    ledger.roll();
    ledger.clean();
    let after = ledger.aborted();
    assert!(after.len() < before.len(), "{after:?}");
    let (disk, end) = (ledger.bench.disk.clone(), ledger.bench.log.end_offset());
    ledger.reopen(disk, Checkpoints { recovery_point: end, ..ledger.killed() });
    assert_eq!(ledger.aborted(), after, "it is in the files");
    ledger.check();
}

#[derive(Clone, Debug)]
enum Action {
    Write(Option<i64>, Vec<(u8, bool)>),
    End { producer: i64, is_commit: bool, bumps: bool },
    Clean { map_bytes: usize },
    Pass(i64),
    Restart { is_clean: bool },
}

fn action() -> impl Strategy<Value = Action> {
    let records = || prop::collection::vec((0..8_u8, prop::bool::weighted(0.8)), 1..4);
    prop_oneof![
        4 => records().prop_map(|records| Action::Write(None, records)),
        10 => (1..4_i64, records()).prop_map(|(id, it)| Action::Write(Some(id), it)),
        6 => (1..4_i64, any::<bool>(), any::<bool>()).prop_map(|(producer, is_commit, bumps)| {
            Action::End { producer, is_commit, bumps }
        }),
        3 => (24..2000_usize).prop_map(|map_bytes| Action::Clean { map_bytes }),
        1 => (0..2 * HOUR_MS).prop_map(Action::Pass),
        1 => any::<bool>().prop_map(|is_clean| Action::Restart { is_clean }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// A consumer of committed records sees nothing else, and ends with the last value of each key.
    #[test]
    fn a_consumer_sees_the_last_committed_value_of_each_key(
        actions in prop::collection::vec(action(), 1..100)
    ) {
        let mut ledger = Ledger::new(config());
        for action in actions {
            match action {
                Action::Write(producer, records) => ledger.write(producer, &records),
                Action::End { producer, is_commit, bumps } => {
                    ledger.end(producer, is_commit, bumps);
                }
                Action::Pass(ms) => ledger.bench.now.wall_ms += ms,
                Action::Clean { map_bytes } => {
                    let limits = CleaningLimits { map_bytes, ..LIMITS };
                    let up_to = ledger.last_stable_offset();
                    let Bench { log, now, out, events, .. } = &mut ledger.bench;
                    let end = log.written_end_offset();
                    log.clean(*now, up_to, end, limits, out, events);
                    ledger.bench.run();
                }
                Action::Restart { is_clean } => {
                    let stable = ledger.last_stable_offset();
                    let killed = ledger.killed();
                    if is_clean {
                        let found = Checkpoints { clean_shutdown: true, ..killed };
                        let fresh = Bench::create(config());
                        let now = ledger.bench.now;
                        let disk = std::mem::replace(&mut ledger.bench, fresh).close();
                        ledger.bench.now = now;
                        ledger.reopen(disk, found);
                    } else {
                        ledger.reopen(ledger.bench.disk.clone(), killed);
                    }
                    prop_assert_eq!(ledger.last_stable_offset(), stable);
                }
            }
            ledger.check();
        }
    }
}
