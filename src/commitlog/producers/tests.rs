//! Producers by rule, against a model, and beside what Apache Kafka 4.4.0 wrote
//! (`testdata/kafka/producers-0`: 18 idempotent producers and three transactional ones, with
//! transactions that were committed, aborted and left open; closed in order).

use std::collections::BTreeMap;

use api::IoErrorKind;
use base::{Offset, ProducerEpoch, ProducerId};
use bytes::Bytes;
use proptest::prelude::*;
use records::{Batch, BatchBuilder, BatchHeader, Batches, Compression, NewRecord};

use super::*;
use crate::testing::{Bench, Disk, FOLDER, appended, clean, kafka_log};
use crate::{Checkpoints, LogConfig};

const SNAPSHOTS: [i64; 7] = [21, 42, 63, 84, 105, 128, 134];
const FIXTURE_END: Offset = Offset(134);

fn fixture() -> Disk {
    kafka_log("producers-0")
}

fn fixture_config() -> LogConfig {
    LogConfig { segment_index_bytes: 64, index_interval_bytes: 512, ..LogConfig::default() }
}

fn snapshot_name(offset: i64) -> String {
    format!("{offset:020}.snapshot")
}

fn fixture_batches() -> Vec<Batch> {
    let mut batches = Vec::new();
    for (path, content) in fixture().files {
        if path.extension().is_some_and(|ending| ending == "log") {
            let read = Batches::new(Bytes::from(content));
            batches.extend(read.map(|batch| batch.expect("Kafka wrote it")));
        }
    }
    batches
}

fn states_of(bench: &Bench) -> Vec<ProducerState> {
    let mut states: Vec<_> = bench.log.producers().collect();
    states.sort_by_key(|state| state.producer_id);
    states
}

fn kafka_states(offset: i64) -> Vec<ProducerState> {
    let content = fixture().files.remove(&Bench::path(&snapshot_name(offset)));
    let content = Bytes::from(content.expect("Kafka wrote it"));
    let mut states = parse_snapshot(&content).expect("Kafka wrote it");
    states.sort_by_key(|state| state.producer_id);
    states
}

fn batch_of(
    base: Offset,
    producer: (i64, i16),
    sequence: i32,
    records: usize,
    timestamp: i64,
) -> Batch {
    let mut builder = BatchBuilder::new(base, Compression::None).producer(
        ProducerId(producer.0),
        ProducerEpoch(producer.1),
        sequence,
    );
    for _ in 0..records {
        builder.append(&NewRecord { timestamp, value: Some(b"v"), ..NewRecord::default() });
    }
    builder.build()
}

fn header_of(producer: (i64, i16), sequence: i32, records: usize) -> BatchHeader {
    *batch_of(Offset(0), producer, sequence, records, 0).header()
}

/// What a check says, as a short word.
fn verdict(checked: Result<Option<EarlierBatch>, ProducerError>) -> String {
    match checked {
        Ok(None) => "new".to_owned(),
        Ok(Some(earlier)) => format!("at {}", earlier.first_offset),
        Err(ProducerError::OutOfOrderSequence { last, .. }) => format!("after {last}"),
        Err(ProducerError::InvalidEpoch { current, .. }) => format!("epoch {current}"),
        Err(ProducerError::InvalidTransactionState { .. }) => "transaction".to_owned(),
    }
}

#[test]
fn a_batch_is_judged_by_the_latest_of_its_producer() {
    const MAX: i32 = i32::MAX;
    type Row = (&'static [(i16, i32, usize)], (i16, i32, usize), &'static str);
    // What stands in the log (epoch, sequence, records), what comes, what is said.
    let table: &[Row] = &[
        (&[], (0, 0, 3), "new"),
        (&[], (7, 500, 3), "new"),
        (&[(0, 0, 3)], (0, 3, 1), "new"),
        (&[(0, 0, 3)], (0, 0, 3), "at 0"),
        (&[(0, 0, 3)], (0, 0, 2), "after 2"),
        (&[(0, 0, 3)], (0, 5, 1), "after 2"),
        (&[(0, 0, 3)], (0, 2, 1), "after 2"),
        (&[(0, 0, 3), (0, 3, 3), (0, 6, 3), (0, 9, 3), (0, 12, 3)], (0, 0, 3), "at 0"),
        (&[(0, 0, 3), (0, 3, 3), (0, 6, 3), (0, 9, 3), (0, 12, 3)], (0, 12, 3), "at 12"),
        (
            &[(0, 0, 3), (0, 3, 3), (0, 6, 3), (0, 9, 3), (0, 12, 3), (0, 15, 3)],
            (0, 0, 3),
            "after 17",
        ),
        (&[(0, 0, 3), (0, 3, 3), (0, 6, 3), (0, 9, 3), (0, 12, 3), (0, 15, 3)], (0, 3, 3), "at 3"),
        (&[(0, MAX - 1, 2)], (0, 0, 1), "new"),
        (&[(0, MAX - 1, 2)], (0, MAX - 1, 2), "at 0"),
        (&[(0, MAX - 1, 4)], (0, 2, 1), "new"),
        (&[(0, MAX - 1, 4)], (0, MAX - 1, 4), "at 0"),
        (&[(0, MAX - 1, 4)], (0, 0, 1), "after 1"),
        (&[(3, 0, 3)], (2, 3, 1), "epoch 3"),
        (&[(3, 0, 3)], (2, 0, 3), "epoch 3"),
        (&[(3, 0, 3)], (4, 0, 1), "new"),
        (&[(3, 0, 3)], (4, 3, 1), "after -1"),
        (&[(3, 0, 3), (4, 0, 1)], (4, 1, 1), "new"),
        (&[(3, 0, 3), (4, 0, 1)], (3, 0, 3), "epoch 4"),
    ];
    for (before, (epoch, sequence, records), expected) in table {
        let mut producers = Producers::default();
        let mut end = Offset(0);
        for (epoch, sequence, records) in *before {
            let batch = batch_of(end, (9, *epoch), *sequence, *records, 0);
            producers.append(batch.header(), &batch.record_bytes());
            end = batch.header().next_offset();
        }
        let header = header_of((9, *epoch), *sequence, *records);
        let said = verdict(producers.check(&header));
        assert_eq!(said, *expected, "{before:?} {header:?}");
        assert_eq!(verdict(producers.check(&header_of((8, 0), 77, 1))), "new", "another producer");
        assert_eq!(verdict(producers.check(&header_of((-1, -1), -1, 1))), "new", "no producer");
    }
}

#[test]
fn transactions_begin_and_end_by_their_batches() {
    let mut producers = Producers::default();
    let batch = |base: i64, epoch: i16, sequence: i32| {
        let builder = BatchBuilder::new(Offset(base), Compression::None);
        builder.producer(ProducerId(5), ProducerEpoch(epoch), sequence).transactional()
    };
    let mut take = |mut builder: BatchBuilder, key: Option<&[u8]>, value: &[u8]| {
        let record = NewRecord { timestamp: 7, key, value: Some(value), ..NewRecord::default() };
        builder.append(&record);
        let batch = builder.build();
        producers.append(batch.header(), &batch.record_bytes());
        let plain = verdict(producers.check(&header_of((5, 1), 0, 1)));
        (producers.states().next().expect("it is known"), plain)
    };
    take(batch(10, 0, 0), None, b"v");
    let (state, _) = take(batch(11, 0, 1), None, b"v");
    assert_eq!((state.transaction_start, state.last_sequence), (Some(Offset(10)), 1));
    let key = records::ControlKey::new(records::ControlType::Commit).write();
    let marker = records::end_transaction_marker(4);
    let (state, plain) = take(batch(12, 1, -1).control(), Some(&key), &marker);
    let expected = ProducerState {
        producer_id: ProducerId(5),
        producer_epoch: ProducerEpoch(1),
        last_sequence: -1,
        last_offset: Offset(-1),
        offset_delta: 0,
        last_timestamp: 7,
        coordinator_epoch: 4,
        transaction_start: None,
    };
    assert_eq!((state, plain.as_str()), (expected, "new"));
    let (state, plain) = take(batch(13, 1, 0), None, b"v");
    assert_eq!((state.transaction_start, plain.as_str()), (Some(Offset(13)), "at 13"));
    let next = verdict(producers.check(&header_of((5, 1), 1, 1)));
    assert_eq!(next, "transaction");
    producers.take_back();
    assert_eq!(producers.states().count(), 0);
}

#[test]
fn the_idle_are_forgotten_and_the_memory_is_bounded() {
    let mut producers = Producers::default();
    for id in 0..100 {
        let batch = batch_of(Offset(id), (id, 0), 0, 1, id * 10);
        producers.append(batch.header(), &batch.record_bytes());
    }
    producers.expire(1000, 500);
    assert_eq!(producers.states().map(|it| it.producer_id.0).min(), Some(51));
    for id in 100..PRODUCERS_MAX as i64 + 1000 {
        let batch = batch_of(Offset(id), (id, 0), 0, 1, 0);
        producers.append(batch.header(), &batch.record_bytes());
        producers.written(Offset(id + 1));
    }
    let count = producers.states().count();
    assert!((PRODUCERS_MAX / 4 * 3..=PRODUCERS_MAX).contains(&count), "{count}");
    let oldest = producers.states().map(|it| it.producer_id.0).min();
    assert!(oldest.is_some_and(|id| id > 1000), "{oldest:?}");
    assert!(producers.unwritten.is_empty());
}

#[test]
fn snapshots_are_read_and_written_as_kafka_writes_them() {
    for offset in SNAPSHOTS {
        let content = fixture().files.remove(&Bench::path(&snapshot_name(offset)));
        let content = Bytes::from(content.expect("Kafka wrote it"));
        let states = parse_snapshot(&content).expect("Kafka wrote it");
        assert_eq!(format_snapshot(states), content, "{offset}");
        for at in 0..content.len() {
            let mut broken = content.to_vec();
            broken[at] ^= 1;
            assert!(parse_snapshot(&Bytes::from(broken)).is_err(), "{offset}, byte {at}");
            assert!(parse_snapshot(&content.slice(..at)).is_err(), "{offset}, {at} bytes");
        }
    }
    // The order is that of Java's hash map: 16 buckets for up to 12 producers.
    let states = |ids: &[i64]| {
        ids.iter().map(|id| Entry::default().state(ProducerId(*id))).collect::<Vec<_>>()
    };
    let table: &[(&[i64], &[i64])] = &[
        (&[15, 16, 17], &[16, 17, 15]),
        (&[1, 1 << 32, 1 << 16], &[1, 1 << 16, 1 << 32]),
        (&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16]),
    ];
    for (ids, expected) in table {
        let written = parse_snapshot(&format_snapshot(states(ids))).expect("it was just written");
        assert_eq!(written, states(expected), "{ids:?}");
    }
}

#[test]
fn appending_what_kafka_appended_makes_the_same_snapshots() {
    for turns in [true, false] {
        let mut bench = Bench::create(fixture_config());
        for batch in fixture_batches() {
            bench.log.append(bench.now, &[appended(&batch)]).expect("there is room");
            if turns {
                bench.run();
            }
        }
        bench.run();
        assert_eq!(states_of(&bench), kafka_states(134));
        assert_eq!(bench.close().files, fixture().files);
    }
}

#[test]
fn opens_what_kafka_closed() {
    let bench = Bench::open(fixture(), fixture_config(), clean());
    assert_eq!(states_of(&bench), kafka_states(134));
    assert_eq!((bench.disk.count("write"), bench.disk.count("remove")), (0, 0));
    assert_eq!(bench.close().files, fixture().files);
}

/// Opens the fixture after `damage`: the state is there, and what closing leaves is Kafka's.
fn rebuilds(what: &str, found: Checkpoints, damage: impl FnOnce(&mut Disk)) {
    let mut disk = fixture();
    damage(&mut disk);
    let bench = Bench::open(disk, fixture_config(), found);
    assert_eq!(bench.log.end_offset(), FIXTURE_END, "{what}");
    assert_eq!(states_of(&bench), kafka_states(134), "{what}");
    let names: Vec<_> = bench.disk.files.keys().filter(|path| path.extension().is_none()).collect();
    assert_eq!(names.len(), 1, "only the checkpoint of the epochs has no ending: {names:?}");
    let closed = bench.close();
    for (path, content) in fixture().files {
        match closed.files.get(&path) {
            Some(there) => assert_eq!(*there, content, "{what}: {}", path.display()),
            None => {
                assert!(path.extension().is_some_and(|it| it == "snapshot"), "{what}: {path:?}")
            }
        }
    }
    assert!(closed.files.contains_key(&Bench::path(&snapshot_name(134))), "{what}");
    assert!(closed.files.keys().all(|path| !path.to_string_lossy().ends_with(".tmp")), "{what}");
}

#[test]
fn the_state_is_rebuilt_from_the_newest_snapshot_that_can_be_trusted() {
    let remove = |disk: &mut Disk, offsets: &[i64]| {
        for offset in offsets {
            disk.files.remove(&Bench::path(&snapshot_name(*offset)));
        }
    };
    let tear = |disk: &mut Disk, offsets: &[i64]| {
        for offset in offsets {
            let content = disk.files.get_mut(&Bench::path(&snapshot_name(*offset)));
            content.expect("it is there").truncate(20);
        }
    };
    let killed = Checkpoints::default();
    let killed_late = Checkpoints { recovery_point: Offset(110), ..killed };
    rebuilds("killed", killed, |_| {});
    rebuilds("killed, no snapshots", killed, |disk| remove(disk, &SNAPSHOTS));
    rebuilds("killed late", killed_late, |disk| remove(disk, &[134]));
    rebuilds("killed late, no snapshots", killed_late, |disk| remove(disk, &SNAPSHOTS));
    rebuilds("killed late, torn", killed_late, |disk| tear(disk, &SNAPSHOTS));
    rebuilds("killed late, the one needed is torn", killed_late, |disk| tear(disk, &[105]));
    rebuilds("clean, the last is gone", clean(), |disk| remove(disk, &[134]));
    rebuilds("clean, the last two are torn", clean(), |disk| tear(disk, &[134, 128]));
    rebuilds("clean, all are torn", clean(), |disk| tear(disk, &SNAPSHOTS));
    for (what, found) in [("clean", clean()), ("killed", killed), ("killed late", killed_late)] {
        rebuilds(what, found, |disk| {
            // Of the future; of no segment; begun by a writer that was killed.
            let other = disk.files[&Bench::path(&snapshot_name(42))].clone();
            for name in ["500.snapshot", "070.snapshot", "300.snapshot.tmp"] {
                let name = format!("{:0>20}{}", &name[..3], &name[3..]);
                disk.files.insert(Bench::path(&name), other.clone());
            }
        });
    }
    // Without any snapshot a log that was closed in order is not walked over, as in Kafka.
    let mut disk = fixture();
    remove(&mut disk, &SNAPSHOTS);
    let bench = Bench::open(disk, fixture_config(), clean());
    assert_eq!(states_of(&bench), []);
}

const ABORTED: &str = "00000000000000000105.txnindex";

/// What Kafka's index of aborted transactions holds: producer, first, last and stable offset.
fn aborted_of(bench: &Bench) -> Vec<(i64, i64, i64, i64)> {
    let all = bench.log.aborted_transactions(Offset(0), Offset(i64::MAX));
    all.map(|it| (it.producer_id.0, it.first_offset.0, it.last_offset.0, it.last_stable_offset.0))
        .collect()
}

#[test]
fn aborted_transactions_are_found_again_whatever_is_damaged() {
    let clean_bench = Bench::open(fixture(), fixture_config(), clean());
    let expected = aborted_of(&clean_bench);
    assert_eq!(expected.len(), fixture().files[&Bench::path(ABORTED)].len() / 34);
    assert!(!expected.is_empty());
    let remove = |disk: &mut Disk, name: &str| {
        disk.files.remove(&Bench::path(name)).expect("it is there");
    };
    let killed = Checkpoints::default();
    let killed_late = Checkpoints { recovery_point: Offset(110), ..killed };
    let killed_behind = Checkpoints { recovery_point: Offset(130), ..killed };
    type Damage<'a> = &'a dyn Fn(&mut Disk);
    let torn: Damage<'_> = &|disk| {
        disk.files.get_mut(&Bench::path(ABORTED)).expect("it is there").truncate(33);
    };
    let newer: Damage<'_> =
        &|disk| disk.files.get_mut(&Bench::path(ABORTED)).expect("it is there")[1] = 9;
    let without: Damage<'_> = &|disk| remove(disk, ABORTED);
    let without_snapshots: Damage<'_> = &|disk| {
        remove(disk, ABORTED);
        disk.files.retain(|path, _| path.extension().is_none_or(|it| it != "snapshot"));
    };
    let without_index: Damage<'_> = &|disk| {
        remove(disk, ABORTED);
        remove(disk, "00000000000000000105.index");
    };
    let table: [(&str, Checkpoints, Damage<'_>); 9] = [
        ("killed", killed, &|_| {}),
        ("killed, without", killed, without),
        ("killed, torn", killed, torn),
        ("killed, nothing but batches", killed, without_snapshots),
        ("killed late, nothing but batches", killed_late, without_snapshots),
        ("killed late, torn", killed_late, torn),
        ("killed behind, torn", killed_behind, torn),
        ("clean, of a newer version", clean(), newer),
        ("clean, the segment is recovered", clean(), without_index),
    ];
    for (what, found, damage) in table {
        let mut disk = fixture();
        damage(&mut disk);
        let bench = Bench::open(disk, fixture_config(), found);
        assert_eq!(aborted_of(&bench), expected, "{what}");
        assert_eq!(states_of(&bench), kafka_states(134), "{what}");
        let closed = bench.close();
        let (path, all) = (Bench::path(ABORTED), fixture().files);
        assert_eq!(closed.files.get(&path), all.get(&path), "{what}");
    }
}

#[test]
fn readers_of_committed_records_stop_before_what_is_not_decided() {
    let mut bench = Bench::open(fixture(), fixture_config(), clean());
    let open = kafka_states(134).iter().filter_map(|state| state.transaction_start).min();
    assert!(open.is_some(), "Kafka left one open");
    assert_eq!(bench.log.first_unstable_offset(FIXTURE_END), open);
    // Behind a cut in the middle of one that was aborted it is open again, and not aborted.
    let (producer, first, last, _) = aborted_of(&bench)[0];
    bench.log.truncate_to(bench.now, Offset(last), &mut bench.out, &mut bench.events);
    bench.run();
    assert_eq!(aborted_of(&bench), []);
    let starts: Vec<_> = bench
        .log
        .producers()
        .filter_map(|it| Some((it.producer_id.0, it.transaction_start?.0)))
        .collect();
    assert!(starts.contains(&(producer, first)), "{starts:?}");
    // Its marker comes again, and counts once readers see it.
    let marker = fixture_batches().into_iter().find(|it| it.header().base_offset == Offset(last));
    let marker = marker.expect("Kafka wrote it");
    bench.log.append(bench.now, &[appended(&marker)]).expect("there is room");
    let before = bench.log.first_unstable_offset(Offset(last));
    assert!(before.is_some_and(|offset| offset <= Offset(first)), "{before:?}");
    let behind = bench.log.first_unstable_offset(Offset(last + 1));
    assert!(behind != Some(Offset(first)), "{behind:?}");
    assert_eq!(aborted_of(&bench).len(), 1);
    // A write that fails takes it back.
    bench.disk.failing = Some(("write", IoErrorKind::NoSpace));
    bench.run_some(9);
    bench.disk.failing = None;
    bench.run();
    assert_eq!(aborted_of(&bench), []);
    assert!(bench.log.first_unstable_offset(Offset(last)).is_some_and(|it| it <= Offset(first)));
}

#[test]
fn what_is_taken_back_opens_and_ends_no_transaction() {
    // A transaction of one record, and the marker that aborts it.
    let batches = fixture_batches();
    let of = |offset| {
        let batch = batches.iter().find(|batch| batch.header().base_offset == Offset(offset));
        let batch = batch.expect("Kafka wrote it");
        (batch.header(), batch.record_bytes())
    };
    let ((record, bytes), (marker, marker_bytes)) = (of(119), of(120));
    let (begin, end) = (record.base_offset, marker.next_offset());
    let mut producers = Producers::empty(Offset(0));
    assert_eq!(producers.append(record, &bytes), None);
    assert_eq!(producers.first_unstable(end), Some(begin));
    producers.take_back();
    assert_eq!(producers.first_unstable(begin), None, "it was not begun");

    producers.append(record, &bytes);
    producers.written(marker.base_offset);
    let aborted = producers.append(marker, &marker_bytes).expect("it aborts");
    assert_eq!((aborted.first_offset, aborted.last_offset), (begin, marker.base_offset));
    producers.take_back();
    assert_eq!(producers.first_unstable(end), Some(begin), "it was not ended");

    producers.append(marker, &marker_bytes);
    assert_eq!(producers.first_unstable(marker.base_offset), Some(begin), "nobody reads its end");
    assert_eq!(producers.first_unstable(end), None);

    let mut producers = Producers::empty(Offset(0));
    producers.append(record, &bytes);
    producers.append(marker, &marker_bytes);
    producers.take_back();
    assert_eq!(producers.first_unstable(begin), None, "neither was begun nor ended");
}

#[test]
fn aborted_transactions_go_with_the_segment_of_their_markers() {
    let mut bench = Bench::open(fixture(), fixture_config(), clean());
    let all = aborted_of(&bench);
    for (start, left) in [(127, all.as_slice()), (128, &[])] {
        bench.log.delete_records(bench.now, Offset(start), &mut bench.out).expect("it is there");
        bench.run();
        assert_eq!(aborted_of(&bench), left, "{start}");
    }
}

#[test]
fn recovered_segments_get_their_snapshots_again() {
    let mut disk = fixture();
    disk.files.retain(|path, _| path.extension().is_none_or(|ending| ending != "snapshot"));
    let bench = Bench::open(disk, fixture_config(), Checkpoints::default());
    assert_eq!(bench.close().files, fixture().files);
}

#[test]
fn a_cut_goes_back_to_the_state_at_its_offset() {
    let batches = fixture_batches();
    for cut in [0, 1, 25, 60, batches.len() - 1] {
        let offset = batches[cut].header().base_offset;
        let mut model = Producers::default();
        for batch in &batches[..cut] {
            model.replay(batch.header(), &batch.record_bytes());
        }
        let mut expected: Vec<_> = model.states().collect();
        expected.sort_by_key(|state| state.producer_id);
        let mut bench = Bench::open(fixture(), fixture_config(), clean());
        bench.log.truncate_to(bench.now, offset, &mut bench.out, &mut bench.events);
        bench.run();
        assert_eq!(states_of(&bench), expected, "cut at {offset}");
        for batch in &batches[cut..] {
            bench.log.append(bench.now, &[appended(batch)]).expect("there is room");
            bench.run();
        }
        assert_eq!(states_of(&bench), kafka_states(134));
    }
}

#[test]
fn snapshots_go_with_their_segments() {
    let mut bench = Bench::open(fixture(), fixture_config(), clean());
    bench.log.delete_records(bench.now, Offset(70), &mut bench.out).expect("it is there");
    bench.run();
    let is_there = |bench: &Bench, name: &str| bench.disk.files.contains_key(&Bench::path(name));
    assert!(is_there(&bench, "00000000000000000042.snapshot.deleted"));
    assert!(is_there(&bench, &snapshot_name(63)));
    assert_eq!(states_of(&bench), kafka_states(134), "what was deleted is remembered");
    bench.now.mono = bench.log.next_timer().expect("files wait");
    bench.log.on_timer(bench.now, &mut bench.out, &mut bench.events);
    bench.run();
    assert!(!bench.disk.files.keys().any(|path| path.to_string_lossy().contains("0042")));
}

#[test]
fn a_file_that_was_not_there_to_be_set_aside_is_not_removed_later() {
    let mut disk = fixture();
    disk.files.remove(&Bench::path(&snapshot_name(42)));
    let mut bench = Bench::open(disk, fixture_config(), clean());
    bench.log.delete_records(bench.now, Offset(70), &mut bench.out).expect("it is there");
    bench.run();
    bench.disk.files.insert(Bench::path(&snapshot_name(42)), b"another's".to_vec());
    bench.now.mono = bench.log.next_timer().expect("files wait");
    bench.log.on_timer(bench.now, &mut bench.out, &mut bench.events);
    bench.run();
    assert_eq!(bench.content(&snapshot_name(42)), b"another's");
}

#[derive(Clone, Debug)]
enum Act {
    /// The next batch of a producer: which, how many records.
    Next(i64, usize),
    /// One of its last batches again: which, how far back.
    Again(i64, usize),
    /// One that leaves a gap.
    Gap(i64),
    /// A new epoch, from sequence 0.
    Bump(i64),
    /// One of the epoch before.
    Old(i64),
    Turn,
    Some(usize),
    Full,
    Close,
    Kill,
    Cut(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let producer = 0..4_i64;
    prop_oneof![
        12 => (producer.clone(), 1..5_usize).prop_map(|(id, records)| Act::Next(id, records)),
        6 => (producer.clone(), 0..7_usize).prop_map(|(id, back)| Act::Again(id, back)),
        2 => producer.clone().prop_map(Act::Gap),
        1 => producer.clone().prop_map(Act::Bump),
        1 => producer.prop_map(Act::Old),
        6 => Just(Act::Turn),
        4 => (1..4_usize).prop_map(Act::Some),
        1 => Just(Act::Full),
        1 => Just(Act::Close),
        1 => Just(Act::Kill),
        1 => (0..10_usize).prop_map(Act::Cut),
    ]
}

/// Every batch that is in the log, and nothing else.
#[derive(Debug, Default)]
struct Model {
    batches: Vec<BatchHeader>,
    /// Batches below were appended before the log was opened last.
    opened_at: Offset,
    epochs: BTreeMap<i64, i16>,
}

impl Model {
    fn of(&self, id: i64) -> Vec<BatchHeader> {
        let epoch = ProducerEpoch(*self.epochs.get(&id).unwrap_or(&0));
        let own = self.batches.iter().filter(|batch| batch.producer_id == ProducerId(id));
        let own: Vec<BatchHeader> = own.copied().collect();
        let newest = own.last().map_or(epoch, |batch| batch.producer_epoch);
        own.into_iter().filter(|batch| batch.producer_epoch == newest).collect()
    }

    /// The epoch and sequence that the producer goes on with; sequences begin short of their end.
    fn next(&self, id: i64) -> (i16, i32) {
        let own = self.of(id);
        own.last().map_or((0, i32::MAX - 5), |batch| {
            (batch.producer_epoch.0, records::increment_sequence(batch.last_sequence(), 1))
        })
    }

    fn cut(&mut self, end: Offset) {
        self.batches.retain(|batch| batch.next_offset() <= end);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever happens to the log: the next batch is taken, the last one is a duplicate, a gap
    /// and an old epoch are refused, and no batch that is in the log is ever taken again.
    #[test]
    fn no_batch_stands_twice(acts in proptest::collection::vec(act(), 1..80)) {
        let config = LogConfig { segment_bytes: 700, ..LogConfig::default() };
        let mut bench = Bench::create(config.clone());
        let mut model = Model::default();
        for act in acts {
            match act {
                Act::Next(id, records) => {
                    let (epoch, sequence) = model.next(id);
                    offer(&mut bench, &mut model, (id, epoch), sequence, records)?;
                }
                Act::Bump(id) => {
                    let (epoch, _) = model.next(id);
                    offer(&mut bench, &mut model, (id, epoch + 1), 0, 2)?;
                }
                Act::Again(id, back) => {
                    let own = model.of(id);
                    let Some(batch) = own.iter().rev().nth(back) else { continue };
                    let said = verdict(bench.log.check_producer(batch));
                    let exact = format!("at {}", batch.base_offset);
                    let refused = said.starts_with("after");
                    // Of those that were there when the log was opened a snapshot has the last.
                    let known = back == 0 || back < 5 && batch.base_offset >= model.opened_at;
                    prop_assert!(said == exact || refused && !known, "{said} {back} {batch:?}");
                }
                Act::Gap(id) => {
                    let (epoch, sequence) = model.next(id);
                    let later = records::increment_sequence(sequence, 1);
                    let header = header_of((id, epoch), later, 1);
                    let said = verdict(bench.log.check_producer(&header));
                    let known = !model.of(id).is_empty();
                    prop_assert!(said.starts_with("after") == known, "{said}");
                }
                Act::Old(id) => {
                    let Some(last) = model.of(id).last().copied() else { continue };
                    let header = header_of((id, last.producer_epoch.0 - 1), 0, 1);
                    let said = verdict(bench.log.check_producer(&header));
                    prop_assert!(said.starts_with("epoch"), "{said}");
                }
                Act::Turn => bench.run(),
                Act::Some(count) => bench.run_some(count),
                Act::Full => {
                    bench.disk.failing = Some(("write", IoErrorKind::NoSpace));
                    bench.run();
                    bench.disk.failing = None;
                    if let Some(at) = bench.log.next_timer() {
                        bench.now.mono = bench.now.mono.max(at);
                        bench.log.on_timer(bench.now, &mut bench.out, &mut bench.events);
                    }
                    bench.run();
                    model.cut(bench.log.end_offset());
                }
                Act::Close => {
                    bench.run();
                    let found = Checkpoints { recovery_point: bench.log.end_offset(), ..clean() };
                    bench = Bench::open(bench.close(), config.clone(), found);
                    model.opened_at = bench.log.end_offset();
                }
                Act::Kill => {
                    let recovery_point = bench.log.recovery_point();
                    let found = Checkpoints { recovery_point, ..Checkpoints::default() };
                    bench = Bench::open(bench.disk, config.clone(), found);
                    model.cut(bench.log.end_offset());
                    model.opened_at = bench.log.end_offset();
                }
                Act::Cut(back) => {
                    let Some(batch) = model.batches.iter().rev().nth(back) else { continue };
                    let offset = batch.base_offset;
                    bench.log.truncate_to(bench.now, offset, &mut bench.out, &mut bench.events);
                    bench.run();
                    model.cut(offset);
                    model.opened_at = offset;
                }
            }
        }
        for id in 0..4 {
            let (epoch, sequence) = model.next(id);
            let next = header_of((id, epoch), sequence, 1);
            prop_assert_eq!(verdict(bench.log.check_producer(&next)), "new");
        }
    }
}

/// Appends a batch that must be taken.
fn offer(
    bench: &mut Bench,
    model: &mut Model,
    producer: (i64, i16),
    sequence: i32,
    records: usize,
) -> Result<(), TestCaseError> {
    let batch = batch_of(bench.log.end_offset(), producer, sequence, records, 0);
    let said = verdict(bench.log.check_producer(batch.header()));
    prop_assert_eq!(said, "new", "{:?}", batch.header());
    if bench.log.append(bench.now, &[appended(&batch)]).is_ok() {
        model.batches.push(*batch.header());
        model.epochs.insert(producer.0, producer.1);
    }
    Ok(())
}

fn forged() -> impl Strategy<Value = ProducerState> {
    let odd = prop_oneof![Just(i64::MIN), Just(i64::MAX), -3..3_i64];
    let sequence = prop_oneof![Just(i32::MIN), Just(i32::MAX), -3..3_i32];
    (0..3_i64, -1..2_i16, sequence.clone(), odd.clone(), sequence, odd.clone(), odd).prop_map(
        |(id, epoch, last_sequence, last_offset, offset_delta, last_timestamp, start)| {
            ProducerState {
                producer_id: ProducerId(id),
                producer_epoch: ProducerEpoch(epoch),
                last_sequence,
                last_offset: Offset(last_offset),
                offset_delta,
                last_timestamp,
                coordinator_epoch: 0,
                transaction_start: (start >= 0).then_some(Offset(start)),
            }
        },
    )
}

proptest! {
    /// A snapshot that somebody made up, with a right CRC, does no harm.
    #[test]
    fn no_snapshot_makes_a_log_panic(
        states in proptest::collection::vec(forged(), 0..4),
        sent in proptest::collection::vec((0..3_i64, -1..2_i16, 0..3_i32, 1..4_usize), 0..10),
        now_ms in prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(0)],
    ) {
        let mut producers = Producers::from_snapshot(Offset(7), states, now_ms, 1_000);
        for (index, (id, epoch, sequence, records)) in (0..).zip(sent) {
            let batch = batch_of(Offset(index * 10), (id, epoch), sequence, records, 0);
            let _ = producers.check(batch.header());
            producers.append(batch.header(), &batch.record_bytes());
        }
        producers.take_back();
        let states: Vec<_> = producers.states().collect();
        let content = format_snapshot(states.clone());
        prop_assert_eq!(parse_snapshot(&content).map(|read| read.len()), Ok(states.len()));
    }
}

#[test]
fn the_fixture_lies_where_the_tests_look() {
    assert!(fixture().files.keys().all(|path| path.starts_with(FOLDER)));
    assert_eq!(kafka_states(134).len(), 21);
}
