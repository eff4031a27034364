//! Logs that are cleaned, on a disk in memory.

mod transactions;

use std::collections::BTreeMap;

use api::IoErrorKind;
use base::{Duration, LeaderEpoch, Now, Offset, ProducerEpoch, ProducerId, Uuid};
use bytes::Bytes;
use proptest::prelude::*;
use records::{
    BatchBuilder, Compression, GZIP_LEVEL_DEFAULT, HEADER_BYTES, NewRecord, ZSTD_LEVEL_DEFAULT,
    offsets,
};

use crate::testing::{Bench, Disk, FOLDER, appended, clean, params};
use crate::{Checkpoints, CleaningLimits, Log, LogConfig, LogEvent, LogState, Read, ReadRequest};

const LIMITS: CleaningLimits = CleaningLimits {
    map_bytes: 1 << 20,
    map_load_factor: 0.9,
    bytes_per_second: f64::MAX,
    hash_seed: 7,
};
const HOUR_MS: i64 = 3600 * 1000;

/// Segments of a few batches.
fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 400,
        index_interval_bytes: 100,
        compact: true,
        delete_by_retention: false,
        delete_retention_ms: HOUR_MS,
        ..LogConfig::default()
    }
}

type Seen = Vec<(i64, String, Option<String>)>;

#[derive(Clone, Debug)]
struct Given {
    compression: Compression,
    producer: Option<i64>,
    /// Key, and whether there is a value.
    records: Vec<(u8, bool)>,
}

/// What was appended, by offset.
type Model = BTreeMap<i64, (String, Option<String>)>;

fn plain(records: &[(u8, bool)]) -> Given {
    Given { compression: Compression::None, producer: None, records: records.to_vec() }
}

/// Appends and writes; producers number their records by the offsets.
fn append(bench: &mut Bench, model: &mut Model, given: &Given) {
    let base = bench.log.end_offset();
    let mut builder = BatchBuilder::new(base, given.compression).leader_epoch(LeaderEpoch(0));
    if let Some(id) = given.producer {
        builder = builder.producer(ProducerId(id), ProducerEpoch(0), base.0 as i32);
    }
    for (index, (key, has_value)) in given.records.iter().enumerate() {
        let offset = base.0 + index as i64;
        let key = format!("key-{key}");
        let value = has_value.then(|| format!("value-{offset}"));
        let timestamp = bench.now.wall_ms;
        let (key_bytes, value_bytes) = (key.as_bytes(), value.as_deref().map(str::as_bytes));
        let record =
            NewRecord { timestamp, key: Some(key_bytes), value: value_bytes, headers: &[] };
        builder.append(&record);
        model.insert(offset, (key, value));
    }
    let batch = builder.build();
    bench.log.append(bench.now, &[appended(&batch)]).expect("it is open");
    bench.run();
}

/// All records that a consumer sees from the start.
fn seen(bench: &mut Bench) -> Seen {
    let (start, end) = (bench.log.log_start_offset(), bench.log.written_end_offset());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut all: Seen = Vec::new();
    let mut next = start;
    while next < end {
        let request = ReadRequest { offset: next, up_to: end, bytes_max: 300, at_least_one: true };
        let plan = bench.read(request).expect("the log has it");
        let bytes = bench.bytes_of(&plan);
        let batches = records::Batches::new(bytes);
        let before = next;
        for batch in batches {
            let batch = batch.expect("it is whole");
            batch.check_crc().expect("it is whole");
            assert!(batch.header().last_offset() >= next, "behind what was read");
            let mut records = batch.records(1 << 20).expect("readable");
            while let Some(record) = records.next_record().expect("readable") {
                let key = text(record.key.expect("keys were given"));
                if record.offset < start {
                    continue;
                }
                all.push((record.offset.0, key, record.value.map(text)));
            }
            next = batch.header().next_offset();
        }
        if next == before {
            // Nothing is behind the last batch that is there: a consumer waits here.
            break;
        }
    }
    assert!(all.is_sorted_by_key(|record| record.0), "in the order of the offsets: {all:?}");
    all
}

fn last_values(
    seen: impl IntoIterator<Item = (String, Option<String>)>,
) -> BTreeMap<String, String> {
    let mut last = BTreeMap::new();
    for (key, value) in seen {
        match value {
            Some(value) => last.insert(key, value),
            None => last.remove(&key),
        };
    }
    last
}

fn check(bench: &mut Bench, model: &Model) {
    let seen = seen(bench);
    for (offset, key, value) in &seen {
        assert_eq!(model.get(offset), Some(&(key.clone(), value.clone())), "offset {offset}");
    }
    let found = last_values(seen.into_iter().map(|(_, key, value)| (key, value)));
    assert_eq!(found, last_values(model.values().cloned()));
}

fn begin(bench: &mut Bench) {
    let up_to = bench.log.written_end_offset();
    bench.log.clean(bench.now, up_to, up_to, LIMITS, &mut bench.out, &mut bench.events);
}

fn clean_all(bench: &mut Bench) {
    begin(bench);
    bench.run();
    assert!(!bench.log.is_cleaning());
}

/// A log of several segments whose keys repeat.
fn dirty_log(config: LogConfig) -> (Bench, Model) {
    let (mut bench, mut model) = (Bench::create(config), Model::new());
    for round in 0..12_u8 {
        let records: Vec<_> = (0..4).map(|it| ((round * 3 + it) % 7, round % 5 != 4)).collect();
        append(&mut bench, &mut model, &plain(&records));
    }
    assert!(bench.log.segment_count() > 4);
    (bench, model)
}

fn files(bench: &Bench, ending: &str) -> usize {
    bench.disk.files.keys().filter(|it| it.to_string_lossy().ends_with(ending)).count()
}

#[test]
fn only_the_newest_record_of_a_key_stays() {
    let (mut bench, mut model) = dirty_log(config());
    let bytes = bench.log.size_bytes();
    clean_all(&mut bench);
    assert!(bench.log.size_bytes() < bytes / 2);
    assert!(bench.events.contains(&LogEvent::Cleaned { moved: true }), "{:?}", bench.events);
    check(&mut bench, &model);
    let active = bench.log.first_dirty_offset().expect("it is clean up to the active segment").0;
    let below: Seen = seen(&mut bench).into_iter().filter(|it| it.0 < active).collect();
    let keys: std::collections::BTreeSet<_> = below.iter().map(|record| &record.1).collect();
    assert_eq!(keys.len(), below.len(), "each key once: {below:?}");
    assert_eq!((files(&bench, ".swap"), files(&bench, ".cleaned")), (0, 0));
    assert!(files(&bench, ".log.deleted") > 2);
    // What was replaced goes after the delay; what is there can be opened again.
    bench.now.mono = bench.now.mono + Duration::from_secs(61);
    bench.log.on_timer(bench.now, &mut bench.out, &mut bench.events);
    bench.run();
    assert_eq!(files(&bench, ".deleted"), 0);
    let end = bench.log.end_offset();
    for found in [clean(), Checkpoints { recovery_point: end, ..Checkpoints::default() }] {
        let mut again = Bench::open(bench.disk.clone(), config(), found);
        assert_eq!(again.log.end_offset(), end);
        check(&mut again, &model);
    }
    // Small segments become one.
    let segments = bench.log.segment_count();
    append(&mut bench, &mut model, &plain(&[(1, true); 12]));
    clean_all(&mut bench);
    assert!(bench.log.segment_count() < segments);
    check(&mut bench, &model);
}

#[test]
fn a_log_that_is_clean_is_found_so_until_it_is_dirty_again() {
    let (mut bench, mut model) = dirty_log(config());
    let all = bench.log.end_offset();
    let cleanable = |bench: &mut Bench, up_to| {
        let found = bench.log.cleanable(bench.now, up_to, &mut bench.out);
        bench.run();
        found.map(|it| it.dirty_ratio)
    };
    assert_eq!(cleanable(&mut bench, all), Some(1.0));
    assert_eq!(cleanable(&mut bench, Offset(3)), None, "nothing is decided up to there");
    clean_all(&mut bench);
    assert_eq!(cleanable(&mut bench, all), None);
    append(&mut bench, &mut model, &plain(&[(1, true); 8]));
    append(&mut bench, &mut model, &plain(&[(1, true); 8]));
    append(&mut bench, &mut model, &plain(&[(1, true); 8]));
    let all = bench.log.end_offset();
    let ratio = cleanable(&mut bench, all).expect("it is dirty again");
    assert!((0.5..1.0).contains(&ratio), "{ratio}");
    let rarely = LogConfig { min_cleanable_dirty_ratio: 0.99, ..config() };
    bench.log.set_config(rarely.clone());
    assert_eq!(cleanable(&mut bench, all), None);
    // Whatever the ratio, what is too old is due; and what is too young is not touched.
    bench.now.wall_ms += 1000;
    let max_lag = LogConfig { max_compaction_lag_ms: 1000, ..rarely.clone() };
    for (config, passed_ms, is_due) in [
        (max_lag.clone(), 0, false),
        (max_lag, 1, true),
        (LogConfig { min_compaction_lag_ms: 2000, ..config() }, 0, false),
        (LogConfig { min_compaction_lag_ms: 2000, ..config() }, 2000, true),
        (LogConfig { compact: false, ..config() }, 0, false),
    ] {
        bench.log.set_config(config);
        bench.now.wall_ms += passed_ms;
        let found = cleanable(&mut bench, all).or_else(|| cleanable(&mut bench, all));
        assert_eq!(found.is_some(), is_due, "{passed_ms}");
    }
    // A restart forgets the timestamps, and looks them up.
    let found = Checkpoints { first_dirty: bench.log.first_dirty_offset(), ..clean() };
    let now = bench.now;
    let max_lag = LogConfig { max_compaction_lag_ms: 1000, ..rarely };
    let mut again = Bench::open(bench.close(), max_lag, found);
    again.now = Now { mono: again.now.mono, ..now };
    let due = (0..8).find_map(|_| cleanable(&mut again, all));
    assert!(due.is_some_and(|ratio| ratio < 0.99), "{due:?}");
}

#[test]
fn what_comes_in_the_place_of_lost_records_is_dirty() {
    let (bench, mut model) = dirty_log(config());
    let end = bench.log.end_offset();
    let found = Checkpoints { first_dirty: Some(end.plus(20)), ..clean() };
    let mut again = Bench::open(bench.close(), config(), found);
    assert_eq!(again.log.first_dirty_offset(), Some(end));
    for _ in 0..4 {
        append(&mut again, &mut model, &plain(&[(1, true), (2, true), (3, true), (4, true)]));
    }
    for _ in 0..3 {
        append(&mut again, &mut model, &plain(&[(5, true); 12]));
    }
    clean_all(&mut again);
    check(&mut again, &model);
    let lost = end.0..end.0 + 20;
    let of_key_1 = |it: &&(i64, String, _)| lost.contains(&it.0) && it.1 == "key-1";
    assert_eq!(seen(&mut again).iter().filter(of_key_1).count(), 1);
}

#[test]
fn a_tombstone_goes_when_its_time_is_over() {
    let (mut bench, mut model) = (Bench::create(config()), Model::new());
    for given in [&[(1, true), (2, true)][..], &[(1, false)], &[(3, true); 12], &[(4, true); 12]] {
        append(&mut bench, &mut model, &plain(given));
    }
    let tombstones = |bench: &mut Bench| seen(bench).iter().filter(|it| it.2.is_none()).count();
    clean_all(&mut bench);
    assert_eq!(tombstones(&mut bench), 1);
    for (later_ms, left) in [(HOUR_MS - 1, 1), (1, 0)] {
        bench.now.wall_ms += later_ms;
        append(&mut bench, &mut model, &plain(&[(5, true); 12]));
        clean_all(&mut bench);
        assert_eq!(tombstones(&mut bench), left, "{later_ms}");
        check(&mut bench, &model);
    }
}

#[test]
fn producers_are_still_known_when_their_records_are_gone() {
    let (mut bench, mut model) = (Bench::create(config()), Model::new());
    for id in [7, 8] {
        let records = vec![(1, true); 4];
        let given = Given { compression: Compression::Lz4, producer: Some(id), records };
        append(&mut bench, &mut model, &given);
    }
    for _ in 0..3 {
        append(&mut bench, &mut model, &plain(&[(1, true); 12]));
    }
    let known = |bench: &Bench| {
        let mut states: Vec<_> = bench.log.producers().collect();
        states.sort_by_key(|state| state.producer_id);
        states
    };
    let before = known(&bench);
    assert_eq!(before.len(), 2);
    clean_all(&mut bench);
    assert!(seen(&mut bench).iter().all(|record| record.0 >= 8), "their records are gone");
    // Nothing but the batches tells of them.
    bench.disk.files.retain(|path, _| !path.to_string_lossy().ends_with(".snapshot"));
    let found = Checkpoints { recovery_point: bench.log.end_offset(), ..Checkpoints::default() };
    let mut again = Bench::open(bench.disk.clone(), config(), found);
    assert_eq!(known(&again), before);
    check(&mut again, &model);
}

#[test]
fn gaps_of_a_compacted_log_are_no_lost_batches() {
    let (mut bench, mut model) = (Bench::create(config()), Model::new());
    for round in 0..9_u8 {
        // Of every second segment nothing stays.
        append(
            &mut bench,
            &mut model,
            &plain(&[(if round % 2 == 0 { 100 } else { round }, true); 12]),
        );
    }
    clean_all(&mut bench);
    let end = bench.log.end_offset();
    let first_dirty = bench.log.first_dirty_offset();
    let mut disk = Bench::open(bench.close(), config(), clean()).close();
    disk.files.retain(|path, _| !path.to_string_lossy().ends_with("index"));
    let not_compacted = LogConfig { compact: false, ..config() };
    let killed = Checkpoints { first_dirty, ..Checkpoints::default() };
    for (config, found) in [
        (config(), clean()),
        (config(), Checkpoints::default()),
        (not_compacted.clone(), clean()),
        (not_compacted, killed),
    ] {
        let mut again = Bench::open(disk.clone(), config, found);
        assert_eq!(again.log.end_offset(), end, "{found:?}");
        assert_eq!(files(&again, ".deleted"), 0, "{found:?}");
        check(&mut again, &model);
    }
}

/// Performs the next effect; whether there was one. Effects of one turn end in the order that is
/// wanted: the last one first, where `backwards`.
fn step(bench: &mut Bench, backwards: bool) -> bool {
    bench.log.flush_turn(bench.now, &mut bench.out);
    if bench.out.is_empty() {
        return false;
    }
    let index = if backwards { bench.out.len() - 1 } else { 0 };
    let effect = bench.out.remove(index);
    let (step, outcome) = bench.disk.perform(effect).expect("every effect has an outcome");
    bench.log.on_file(bench.now, step, outcome, &mut bench.out, &mut bench.events);
    true
}

#[test]
fn a_crash_after_any_effect_loses_nothing() {
    for backwards in [false, true] {
        let mut ends_with_swap = 0;
        for crash_after in 0.. {
            let (mut bench, model) = dirty_log(config());
            begin(&mut bench);
            let performed = (0..crash_after).take_while(|_| step(&mut bench, backwards)).count();
            if performed < crash_after {
                assert!(crash_after > 40 && ends_with_swap > 10, "{crash_after} {ends_with_swap}");
                break;
            }
            ends_with_swap += usize::from(files(&bench, ".swap") > 0);
            let end = bench.log.end_offset();
            let killed = Checkpoints { recovery_point: end, ..Checkpoints::default() };
            for found in [killed, Checkpoints::default(), clean()] {
                let mut again = Bench::open(bench.disk.clone(), config(), found);
                assert_eq!(again.log.state(), LogState::Open, "{crash_after}: {:?}", again.events);
                assert_eq!(again.log.end_offset(), end, "{crash_after} {found:?}");
                check(&mut again, &model);
                let left = files(&again, ".swap") + files(&again, ".cleaned");
                assert_eq!(left, 0, "{crash_after}");
                clean_all(&mut again);
                check(&mut again, &model);
            }
        }
    }
}

#[test]
fn a_crash_while_a_swap_is_completed_loses_nothing() {
    let (mut bench, model) = dirty_log(config());
    begin(&mut bench);
    while files(&bench, ".log.swap") == 0 || files(&bench, ".cleaned") > 0 {
        assert!(step(&mut bench, false), "a swap begins");
    }
    let end = bench.log.end_offset();
    let mut unfinished = bench.disk.clone();
    // The index was not renamed: what there is of the swap is taken back.
    let index = bench.disk.files.keys().find(|it| it.to_string_lossy().ends_with(".index.swap"));
    let index = index.expect("it is there").clone();
    let content = unfinished.files.remove(&index).expect("it is there");
    unfinished.files.insert(index.with_extension("cleaned"), content);
    for disk in [bench.disk.clone(), unfinished] {
        for crash_after in 0.. {
            let (mut out, mut events, mut disk) = (Vec::new(), Vec::new(), disk.clone());
            let mut log = Log::open(params(config()), clean(), &mut out);
            let mut performed = 0;
            while performed < crash_after && !out.is_empty() {
                let (step, outcome) = disk.perform(out.remove(0)).expect("has an outcome");
                log.on_file(bench.now, step, outcome, &mut out, &mut events);
                performed += 1;
            }
            let mut again = Bench::open(disk, config(), clean());
            assert_eq!(again.log.end_offset(), end, "{crash_after}");
            check(&mut again, &model);
            if performed < crash_after {
                assert!(crash_after > 10, "{crash_after}");
                break;
            }
        }
    }
}

#[test]
fn a_damaged_swap_is_not_touched() {
    let (mut bench, _) = dirty_log(config());
    begin(&mut bench);
    let has_swap = |bench: &Bench| {
        let mut files = bench.disk.files.iter();
        files.any(|(path, content)| {
            path.to_string_lossy().ends_with(".log.swap") && !content.is_empty()
        })
    };
    while !has_swap(&bench) || files(&bench, ".cleaned") > 0 {
        assert!(step(&mut bench, false), "a swap begins");
    }
    let swap = bench.disk.files.iter_mut().find(|it| it.0.to_string_lossy().ends_with(".log.swap"));
    let content = swap.expect("it is there").1;
    content.truncate(content.len() - 1);
    let before = bench.disk.files.clone();
    let again = Bench::open(bench.disk.clone(), config(), clean());
    assert_eq!(again.log.state(), LogState::Failed);
    assert!(matches!(&again.events[..], [LogEvent::Unreadable { .. }]), "{:?}", again.events);
    assert_eq!(again.disk.files, before);
}

/// What else happens to a log while it is cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    DeleteRecords,
    Truncate,
    Close,
    Remove,
    Append,
    Read,
    Timestamp,
}

#[test]
fn whatever_happens_during_a_cleaning_finds_the_log_whole() {
    use Meanwhile::{Append, Close, DeleteRecords, Read as Reads, Remove, Timestamp, Truncate};
    for meanwhile in [DeleteRecords, Truncate, Close, Remove, Append, Reads, Timestamp] {
        for after in 0.. {
            let (mut bench, mut model) = dirty_log(config());
            begin(&mut bench);
            let performed = (0..after).take_while(|_| step(&mut bench, false)).count();
            if performed < after {
                assert!(after > 40, "{after}");
                break;
            }
            disturb(&mut bench, &mut model, meanwhile);
            bench.run();
            assert!(!bench.log.is_cleaning(), "{meanwhile:?} after {after}");
            if matches!(meanwhile, Remove) {
                assert!(bench.events.contains(&LogEvent::Renamed), "after {after}");
                assert!(!bench.disk.files.keys().any(|path| path.starts_with(FOLDER)));
                continue;
            }
            let end_offset = bench.log.end_offset();
            if matches!(meanwhile, Close) {
                assert_eq!(bench.events.last(), Some(&LogEvent::Closed { end_offset }));
                let mut again = Bench::open(bench.disk, config(), clean());
                check(&mut again, &model);
                continue;
            }
            check(&mut bench, &model);
            let killed = Checkpoints {
                recovery_point: bench.log.flushed_end_offset(),
                log_start_offset: bench.log.log_start_offset(),
                first_dirty: bench.log.first_dirty_offset(),
                clean_shutdown: false,
            };
            let mut again = Bench::open(bench.disk, config(), killed);
            assert_eq!(again.log.end_offset(), end_offset, "{meanwhile:?} after {after}");
            check(&mut again, &model);
            clean_all(&mut again);
            check(&mut again, &model);
        }
    }
}

fn disturb(bench: &mut Bench, model: &mut Model, meanwhile: Meanwhile) {
    let (now, out, events) = (bench.now, &mut bench.out, &mut bench.events);
    match meanwhile {
        Meanwhile::DeleteRecords => {
            bench.log.delete_records(now, Offset(21), out).expect("it reaches so far");
            bench.run();
            assert!(bench.log.segment_count() == 1 || bench.log.log_start_offset() == Offset(21));
            model.retain(|offset, _| *offset >= 21);
        }
        Meanwhile::Truncate => {
            bench.log.truncate_to(now, Offset(24), out, events);
            bench.run();
            // Where nothing stayed right below, the log ends earlier.
            let end_offset = bench.log.end_offset();
            assert!(end_offset <= Offset(24));
            assert!(bench.events.contains(&LogEvent::Truncated { end_offset }));
            assert!(bench.log.first_dirty_offset() <= Some(Offset(24)));
            // What superseded them is gone: Kafka's followers alone cut so, and fetch it anew.
            model.retain(|offset, _| *offset < 24);
            let left: Vec<i64> = seen(bench).iter().map(|record| record.0).collect();
            model.retain(|offset, _| left.contains(offset));
        }
        Meanwhile::Close => bench.log.close(now, out, events),
        Meanwhile::Remove => bench.log.remove(Uuid([3; 16]), out),
        Meanwhile::Append => append(bench, model, &plain(&[(3, true), (2, false)])),
        Meanwhile::Read => {
            let request = ReadRequest {
                offset: Offset(0),
                up_to: Offset(30),
                bytes_max: 1 << 20,
                at_least_one: true,
            };
            let Ok(Read::Plan(plan)) = bench.log.read(request, out) else { return };
            bench.run();
            // The slice holds its file, which may have another name by now.
            assert_eq!(bench.bytes_of(&plan).len(), plan.bytes as usize);
        }
        Meanwhile::Timestamp => {
            let ticket = bench.log.find_timestamp(now.wall_ms, out).expect("none is under way");
            let offset = Offset(25);
            let request =
                ReadRequest { offset, up_to: Offset(30), bytes_max: 1, at_least_one: true };
            let located = bench.log.read(request, out);
            bench.run();
            let found = bench.events.iter().find_map(|event| match event {
                LogEvent::TimestampFound { ticket: of, found } if *of == ticket => Some(*found),
                _ => None,
            });
            assert!(found.flatten().is_some(), "{:?}", bench.events);
            if let Ok(Read::Locating(ticket)) = located {
                assert!(bench.events.contains(&LogEvent::Located { ticket }));
                assert!(bench.read(request).is_ok());
            }
        }
    }
}

#[test]
fn a_full_disk_ends_the_cleaning_and_not_the_log() {
    for kind in ["write", "truncate", "sync"] {
        let (mut bench, mut model) = dirty_log(config());
        bench.disk.failing = Some((kind, IoErrorKind::NoSpace));
        clean_all(&mut bench);
        bench.disk.failing = None;
        assert_eq!(bench.log.state(), LogState::Open, "{kind}");
        assert_eq!(bench.log.first_dirty_offset(), None, "{kind}");
        assert_eq!(files(&bench, ".cleaned"), 0, "{kind}");
        append(&mut bench, &mut model, &plain(&[(1, true)]));
        check(&mut bench, &model);
        clean_all(&mut bench);
        check(&mut bench, &model);
    }
    let (mut bench, _) = dirty_log(config());
    bench.disk.failing = Some(("sync", IoErrorKind::Other));
    begin(&mut bench);
    bench.run();
    assert_eq!(bench.log.state(), LogState::Failed, "a failed sync ends the directory");
}

#[test]
fn a_swap_waits_for_space() {
    for meanwhile in [None, Some(Meanwhile::Close), Some(Meanwhile::Remove)] {
        let mut waited = 0;
        for after in 0.. {
            let (mut bench, model) = dirty_log(config());
            begin(&mut bench);
            let performed = (0..after).take_while(|_| step(&mut bench, false)).count();
            if performed < after {
                assert!(waited > 20, "{waited}");
                break;
            }
            bench.disk.failing = Some(("rename", IoErrorKind::NoSpace));
            bench.run();
            assert_eq!(bench.log.state(), LogState::Open, "after {after}");
            if !bench.log.is_cleaning() {
                // All swaps had their names.
                continue;
            }
            waited += 1;
            let again_at = bench.now.mono + Duration::from_secs(1);
            assert_eq!(bench.log.next_timer(), Some(again_at), "after {after}");
            match meanwhile {
                Some(Meanwhile::Close) => {
                    bench.log.close(bench.now, &mut bench.out, &mut bench.events);
                    bench.run_timer();
                    let is_told = |it: &LogEvent| matches!(it, LogEvent::NotClosed { .. });
                    assert!(bench.events.iter().any(is_told), "after {after}");
                    bench = Bench::open(Disk { failing: None, ..bench.disk }, config(), clean());
                }
                Some(_) => {
                    bench.disk.failing = None;
                    bench.log.remove(Uuid([3; 16]), &mut bench.out);
                    bench.run();
                    assert!(bench.events.contains(&LogEvent::Renamed), "after {after}");
                    assert!(!bench.disk.files.keys().any(|path| path.starts_with(FOLDER)));
                    continue;
                }
                None => {
                    bench.run_timer();
                    assert!(bench.log.is_cleaning(), "after {after}");
                    check(&mut bench, &model);
                    bench.disk.failing = None;
                    bench.run_timer();
                    assert!(bench.events.contains(&LogEvent::Cleaned { moved: true }));
                    assert!(files(&bench, ".log.deleted") > 2, "after {after}");
                    bench.now.mono = bench.now.mono + Duration::from_secs(61);
                    bench.log.on_timer(bench.now, &mut bench.out, &mut bench.events);
                    bench.run();
                    assert_eq!(files(&bench, ".deleted"), 0, "after {after}");
                }
            }
            assert_eq!((files(&bench, ".swap"), files(&bench, ".cleaned")), (0, 0), "{after}");
            check(&mut bench, &model);
            let mut again = Bench::open(bench.disk, config(), clean());
            check(&mut again, &model);
        }
    }
}

#[test]
fn the_throttle_lets_the_cleaner_wait() {
    let (mut bench, model) = dirty_log(config());
    let up_to = bench.log.written_end_offset();
    let limits = CleaningLimits { bytes_per_second: 1000.0, ..LIMITS };
    let bytes = bench.log.size_bytes();
    let began = bench.now.mono;
    bench.log.clean(bench.now, up_to, up_to, limits, &mut bench.out, &mut bench.events);
    bench.run();
    let mut waits = 0;
    while bench.log.is_cleaning() {
        bench.now.mono = bench.log.next_timer().expect("it wants to go on");
        bench.log.on_timer(bench.now, &mut bench.out, &mut bench.events);
        bench.run();
        waits += 1;
    }
    let seconds = bench.now.mono.since(began).as_millis() as f64 / 1000.0;
    // All was read twice but for the active segment, and what stays was written.
    assert!(seconds > bytes as f64 * 1.5 / 1000.0, "{seconds} s for {bytes} bytes");
    assert!(waits > 5 && seconds < bytes as f64 * 3.0 / 1000.0, "{waits} waits, {seconds} s");
    check(&mut bench, &model);
}

/// Cleans a log that begins with a batch of these records, of so many zeros each, of which those
/// up to `superseded` are superseded. Returns in how many turns.
fn clean_in_turns(records: i64, value_bytes: usize, superseded: u8) -> usize {
    let config = LogConfig { segment_bytes: 20_000, ..config() };
    let (mut bench, mut model) = (Bench::create(config), Model::new());
    let zeros = "0".repeat(value_bytes);
    let zstd = Compression::Zstd { level: ZSTD_LEVEL_DEFAULT };
    let mut builder = BatchBuilder::new(Offset(0), zstd).leader_epoch(LeaderEpoch(0));
    for key in 0..records {
        let (key_text, value) = (format!("key-{key}"), Some(zeros.as_bytes()));
        let (timestamp, key_bytes) = (bench.now.wall_ms, Some(key_text.as_bytes()));
        builder.append(&NewRecord { timestamp, key: key_bytes, value, headers: &[] });
        model.insert(key, (key_text, Some(zeros.clone())));
    }
    bench.log.append(bench.now, &[appended(&builder.build())]).expect("it is open");
    for key in 0..superseded {
        append(&mut bench, &mut model, &plain(&[(key, true)]));
    }
    append(&mut bench, &mut model, &plain(&[(9, true); 500]));
    append(&mut bench, &mut model, &plain(&[(9, true); 500]));
    begin(&mut bench);
    bench.run();
    let mut turns = 1;
    while bench.log.is_cleaning() {
        assert_eq!(bench.log.next_timer(), Some(bench.now.mono), "it goes on at once");
        bench.log.on_timer(bench.now, &mut bench.out, &mut bench.events);
        bench.run();
        turns += 1;
    }
    let name = "00000000000000000000.log";
    let first = records::Batch::read(&Bytes::copy_from_slice(bench.content(name)));
    let first = first.expect("it is whole").expect("it is whole");
    first.check_crc().expect("it is whole");
    let mut left = first.records(usize::MAX).expect("readable");
    for key in i64::from(superseded)..records {
        let record = left.next_record().expect("readable").expect("it stays");
        assert_eq!((record.offset, record.value), (Offset(key), Some(zeros.as_bytes())));
    }
    assert_eq!(left.next_record(), Ok(None));
    turns
}

#[test]
fn what_unpacks_to_much_is_gone_over_in_turns() {
    // Each of the eight is noted, looked at and copied; to compress is dearer.
    let turns = clean_in_turns(8, 1 << 19, 3);
    assert!((80..130).contains(&turns), "{turns} turns");
    // However large a record is.
    let turns = clean_in_turns(2, 150 << 20, 1);
    assert!(turns > 6000, "{turns} turns");
}

#[test]
fn little_memory_cleans_a_log_in_several_rounds() {
    let (mut bench, mut model) = (Bench::create(config()), Model::new());
    for round in 0..20_u8 {
        let records: Vec<_> = (0..6).map(|it| (round / 4 * 6 + it, true)).collect();
        append(&mut bench, &mut model, &plain(&records));
    }
    let limits = CleaningLimits { map_bytes: 24 * 10, ..LIMITS };
    let up_to = bench.log.written_end_offset();
    let mut rounds = 0;
    while bench.log.cleanable(bench.now, up_to, &mut bench.out).is_some() {
        let before = bench.log.first_dirty_offset();
        bench.log.clean(bench.now, up_to, up_to, limits, &mut bench.out, &mut bench.events);
        bench.run();
        assert!(bench.log.first_dirty_offset() > before, "each round gets on");
        check(&mut bench, &model);
        rounds += 1;
    }
    assert!(rounds > 1, "{rounds}");
}

#[test]
fn damage_is_not_copied() {
    let (mut bench, _) = dirty_log(config());
    let name = "00000000000000000000.log";
    let mut damaged = bench.disk.files[&Bench::path(name)].clone();
    *damaged.last_mut().expect("it has records") ^= 1;
    bench.disk.files.insert(Bench::path(name), damaged.clone());
    clean_all(&mut bench);
    assert_eq!(bench.content(name), damaged, "the segment is as it was");
    assert_eq!((bench.log.state(), files(&bench, ".cleaned")), (LogState::Open, 0));
    let up_to = bench.log.written_end_offset();
    assert_eq!(bench.log.cleanable(bench.now, up_to, &mut bench.out), None);
}

#[test]
fn a_batch_with_another_base_offset_is_not_cleaned() {
    let name = "00000000000000000000.log";
    let (bench, _) = dirty_log(config());
    let first = records::Batch::read(&Bytes::copy_from_slice(bench.content(name)));
    let second = first.expect("it is whole").expect("it is whole").size();
    for bit in 0..64 {
        // Before the keys are noted, and before what stays is copied.
        for is_noted in [false, true] {
            let (mut bench, _) = dirty_log(config());
            begin(&mut bench);
            while is_noted && files(&bench, ".cleaned") == 0 {
                assert!(step(&mut bench, false), "something is copied");
            }
            let mut damaged = bench.content(name).to_vec();
            damaged[second + bit / 8] ^= 1 << (bit % 8);
            bench.disk.files.insert(Bench::path(name), damaged.clone());
            bench.run();
            let state = (bench.log.state(), bench.log.is_cleaning(), files(&bench, ".cleaned"));
            assert_eq!(state, (LogState::Open, false, 0), "bit {bit} {is_noted}");
            assert_eq!(bench.content(name), damaged, "bit {bit} {is_noted}");
            assert_eq!(bench.log.first_dirty_offset(), None, "bit {bit} {is_noted}");
        }
    }
}

#[test]
fn a_batch_whose_record_offsets_do_not_rise_is_not_cleaned() {
    // Kafka stores an uncompressed batch with the offsets that its client gave the records.
    for deltas in [[1, 0, 2], [0, 0, 2], [0, 1, 3], [-1, 1, 2]] {
        let (mut bench, mut model) = (Bench::create(config()), Model::new());
        let mut builder = BatchBuilder::new(Offset(0), Compression::None);
        for key in [&b"key-0"[..], b"key-2", b"key-1"] {
            let value = Some(&b"value"[..]);
            builder.append(&NewRecord { key: Some(key), value, ..NewRecord::default() });
        }
        let mut bytes = builder.build().bytes().to_vec();
        let mut record = HEADER_BYTES;
        for delta in deltas {
            // Behind the length, the attributes and the timestamp, each of one byte.
            bytes[record + 3] = ((delta << 1) ^ (delta >> 7)) as u8;
            record += 1 + usize::from(bytes[record] / 2);
        }
        let crc = records::crc_of(&bytes[offsets::ATTRIBUTES..]);
        bytes[offsets::CRC..][..4].copy_from_slice(&crc.to_be_bytes());
        let batch = records::Batch::read(&Bytes::from(bytes)).expect("whole").expect("whole");
        bench.log.append(bench.now, &[appended(&batch)]).expect("it is open");
        bench.run();
        for _ in 0..3 {
            append(&mut bench, &mut model, &plain(&[(1, true); 12]));
        }
        let name = "00000000000000000000.log";
        let before = bench.content(name).to_vec();
        clean_all(&mut bench);
        assert_eq!(bench.log.state(), LogState::Open);
        assert_eq!(bench.content(name), before, "{deltas:?}");
        assert_eq!(bench.log.first_dirty_offset(), None, "{deltas:?}");
    }
}

fn given() -> impl Strategy<Value = Given> {
    let compression = prop_oneof![
        Just(Compression::None),
        Just(Compression::Gzip { level: GZIP_LEVEL_DEFAULT }),
        Just(Compression::Snappy),
        Just(Compression::Lz4),
        Just(Compression::Zstd { level: ZSTD_LEVEL_DEFAULT }),
    ];
    let records = prop::collection::vec((0..12_u8, prop::bool::weighted(0.8)), 1..6);
    let producer = prop::option::weighted(0.3, 1..3_i64);
    (compression, records, producer).prop_map(|(compression, records, producer)| Given {
        compression,
        producer,
        records,
    })
}

#[derive(Clone, Debug)]
enum Action {
    Append(Given),
    Clean { map_bytes: usize },
    Pass(i64),
    Restart { is_clean: bool },
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => given().prop_map(Action::Append),
        2 => (24..2000_usize).prop_map(|map_bytes| Action::Clean { map_bytes }),
        1 => (0..2 * HOUR_MS).prop_map(Action::Pass),
        1 => any::<bool>().prop_map(|is_clean| Action::Restart { is_clean }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// A consumer from the start always ends with the last value of each key.
    #[test]
    fn a_consumer_sees_the_last_value_of_each_key(
        actions in prop::collection::vec(action(), 1..80)
    ) {
        let (mut bench, mut model) = (Bench::create(config()), Model::new());
        for action in actions {
            match action {
                Action::Append(given) => append(&mut bench, &mut model, &given),
                Action::Pass(ms) => bench.now.wall_ms += ms,
                Action::Clean { map_bytes } => {
                    let limits = CleaningLimits { map_bytes, ..LIMITS };
                    let up_to = bench.log.written_end_offset();
                    let Bench { log, now, out, events, .. } = &mut bench;
                    log.clean(*now, up_to, up_to, limits, out, events);
                    bench.run();
                }
                Action::Restart { is_clean } => {
                    let (now, end) = (bench.now, bench.log.end_offset());
                    let first_dirty = bench.log.first_dirty_offset();
                    let recovery_point = bench.log.flushed_end_offset();
                    let found = Checkpoints {
                        clean_shutdown: is_clean,
                        recovery_point,
                        first_dirty,
                        ..Checkpoints::default()
                    };
                    let disk: Disk = if is_clean { bench.close() } else { bench.disk };
                    bench = Bench::open(disk, config(), found);
                    bench.now = now;
                    prop_assert_eq!(bench.log.end_offset(), end);
                }
            }
            check(&mut bench, &model);
        }
    }
}
