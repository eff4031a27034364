//! What a log does to its files, on a disk in memory; and its files beside those that Apache
//! Kafka 4.4.0 wrote (`testdata/kafka`: a topic with `segment.index.bytes=64` and
//! `index.interval.bytes=2048`, 60 records in each codec, closed in order).

use api::{FileEffect, FileSlice, IoErrorKind, Part};
use base::{Duration, Instant, LeaderEpoch, Now, Offset, Uuid};
use bytes::Bytes;
use proptest::prelude::*;
use records::{Batch, BatchBuilder, Batches, Compression, NewRecord};

use crate::testing::{self, Bench, Disk, appended, batch, clean};
use crate::{
    AppendError, Cases, Checkpoints, CopyPlace, CopyRead, Durability, FoundTimestamp, Log,
    LogConfig, LogEvent, LogState, Read, ReadError, ReadRequest,
};

const FIXTURE_END: Offset = Offset(300);

fn fixture_config() -> LogConfig {
    LogConfig { segment_index_bytes: 64, index_interval_bytes: 2048, ..LogConfig::default() }
}

fn fixture() -> Disk {
    testing::kafka_log("small-0")
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

fn read_at(offset: i64, bytes_max: u32) -> ReadRequest {
    ReadRequest { offset: Offset(offset), up_to: Offset(i64::MAX), bytes_max, at_least_one: true }
}

#[test]
fn appending_what_kafka_appended_makes_the_same_files() {
    let mut bench = Bench::create(fixture_config());
    for batch in fixture_batches() {
        bench.log.append(bench.now, &[appended(&batch)]).expect("there is room");
        bench.run();
    }
    let disk = bench.close();
    assert_eq!(disk.files, fixture().files);
}

#[test]
fn one_turn_with_many_rolls_makes_the_same_files() {
    let mut bench = Bench::create(fixture_config());
    let all: Vec<_> = fixture_batches().iter().map(appended).collect();
    bench.log.append(bench.now, &all).expect("there is room");
    assert_eq!(bench.log.written_end_offset(), Offset(0));
    bench.run();
    assert_eq!(bench.log.written_end_offset(), FIXTURE_END);
    assert_eq!(bench.close().files, fixture().files);
}

#[test]
fn opens_what_kafka_closed_and_leaves_it_as_it_was() {
    let bench = Bench::open(fixture(), fixture_config(), clean());
    let (log_start_offset, cases) = (Offset(0), Cases::default());
    let opened = LogEvent::Opened { log_start_offset, end_offset: FIXTURE_END, cases };
    assert_eq!(bench.events, [opened]);
    assert_eq!(bench.log.flushed_end_offset(), FIXTURE_END);
    assert_eq!(bench.log.latest_leader_epoch(), Some(LeaderEpoch(0)));
    assert_eq!(bench.disk.count("write"), 0);
    assert_eq!(bench.close().files, fixture().files);
}

#[test]
fn recovers_every_index_as_kafka_wrote_it() {
    let mut disk = fixture();
    for (path, content) in &mut disk.files {
        if path.extension().is_some_and(|ending| ending == "index" || ending == "timeindex") {
            content.clear();
            content.resize(64, 0);
        }
    }
    let bench = Bench::open(disk, fixture_config(), Checkpoints::default());
    assert_eq!(bench.log.end_offset(), FIXTURE_END);
    // What was recovered is synced before it can be read.
    assert_eq!(bench.log.flushed_end_offset(), FIXTURE_END);
    assert_eq!(bench.close().files, fixture().files);
}

#[test]
fn a_missing_index_is_made_again_even_after_a_clean_stop() {
    let mut disk = fixture();
    disk.files.remove(&Bench::path("00000000000000000066.index"));
    disk.files.remove(&Bench::path("00000000000000000276.index"));
    let bench = Bench::open(disk, fixture_config(), clean());
    assert_eq!(bench.log.end_offset(), FIXTURE_END);
    assert_eq!(bench.close().files, fixture().files);
}

#[test]
fn a_padded_index_of_kafka_is_no_damage() {
    let mut disk = fixture();
    for name in ["00000000000000000276.index", "00000000000000000276.timeindex"] {
        let content = disk.files.get_mut(&Bench::path(name)).expect("it is there");
        content.resize(1200, 0);
    }
    let bench = Bench::open(disk, fixture_config(), clean());
    assert_eq!(bench.log.end_offset(), FIXTURE_END);
    assert_eq!(bench.disk.count("truncate"), 0);
    assert_eq!(bench.close().files, fixture().files);
}

#[test]
fn recovery_cuts_at_the_first_invalid_byte() {
    let file = Bench::path("00000000000000000276.log");
    let whole = fixture().files[&file].clone();
    let last = fixture_batches().pop().expect("there are some");
    let last_at = whole.len() - last.size();
    let before_last = last.header().base_offset;
    type Damage = fn(&mut Vec<u8>, usize);
    let damages: [(&str, Damage, Offset); 6] = [
        ("zeros behind", |bytes, _| bytes.resize(bytes.len() + 5000, 0), FIXTURE_END),
        ("garbage behind", |bytes, _| bytes.extend([0xa5; 100]), FIXTURE_END),
        ("half a header", |bytes, at| bytes.truncate(at + 30), before_last),
        ("half a batch", |bytes, at| bytes.truncate(at + 100), before_last),
        ("a flipped bit", |bytes, at| bytes[at + 90] ^= 1, before_last),
        ("an old offset", |bytes, at| bytes[at + 7] = 0, before_last),
    ];
    for (name, damage, end) in damages {
        let mut disk = fixture();
        damage(disk.files.get_mut(&file).expect("it is there"), last_at);
        let found = Checkpoints { recovery_point: Offset(280), ..Checkpoints::default() };
        let bench = Bench::open(disk, fixture_config(), found);
        assert_eq!(bench.log.state(), LogState::Open, "{name}");
        assert_eq!(bench.log.end_offset(), end, "{name}");
        let valid = if end == FIXTURE_END { whole.len() } else { last_at };
        assert_eq!(bench.content("00000000000000000276.log"), &whole[..valid], "{name}");
    }
}

#[test]
fn an_index_that_points_behind_the_end_hides_nothing() {
    let mut disk = fixture();
    for (path, content) in &mut disk.files {
        if path.extension().is_some_and(|ending| ending == "index") {
            for entry in content.chunks_exact_mut(8) {
                entry[4..].copy_from_slice(&i32::MAX.to_be_bytes());
            }
        }
    }
    let mut bench = Bench::open(disk, fixture_config(), clean());
    for _ in 0..2 {
        for offset in 0..FIXTURE_END.0 {
            let request = ReadRequest { up_to: FIXTURE_END, ..read_at(offset, 100) };
            let plan = bench.read(request).expect("the log has it");
            let bytes = bench.bytes_of(&plan);
            let first = Batches::new(bytes).next().expect("one").expect("it is whole");
            assert!(first.header().last_offset() >= Offset(offset), "{offset}");
        }
    }
}

#[test]
fn damage_within_sets_later_segments_aside() {
    let mut disk = fixture();
    let file = disk.files.get_mut(&Bench::path("00000000000000000105.log")).expect("there");
    file[200] ^= 1;
    let mut bench = Bench::open(disk, fixture_config(), Checkpoints::default());
    assert_eq!(bench.log.end_offset(), Offset(105));
    assert_eq!(bench.content("00000000000000000105.log"), b"");
    assert!(bench.disk.files.contains_key(&Bench::path("00000000000000000144.log.deleted")));
    let due = bench.log.next_timer().expect("files wait to be removed");
    bench.now.mono = due;
    bench.log.on_timer(bench.now, &mut bench.out, &mut bench.events);
    bench.run();
    assert!(!bench.disk.files.keys().any(|path| path.to_string_lossy().contains("deleted")));
    bench.append(1, 10, 0).expect("it goes on");
    bench.run();
    assert_eq!(bench.log.written_end_offset(), Offset(106));
}

#[test]
fn an_old_format_and_unreadable_metadata_are_refused() {
    let mut disk = fixture();
    let text = b"version: 7\ntopic_id: 9jcF9wv3TpWUT8nwaSgqyg".to_vec();
    disk.files.insert(Bench::path("partition.metadata"), text);
    let before = disk.files.clone();
    let bench = Bench::open(disk, fixture_config(), clean());
    assert!(matches!(&bench.events[..], [LogEvent::Unreadable { .. }]), "{:?}", bench.events);
    assert_eq!(bench.disk.files, before);

    // Messages that are longer and shorter than our header, alone and with others behind.
    for (value_bytes, count) in [(60, 1), (60, 2), (3, 1), (3, 2), (3, 9), (0, 1)] {
        for magic in [0, 1] {
            let log = old_message(magic, value_bytes).repeat(count);
            let mut disk = Disk::default();
            disk.files.insert(Bench::path("00000000000000000000.log"), log.clone());
            let bench = Bench::open(disk, fixture_config(), Checkpoints::default());
            let said = &bench.events[..];
            assert!(matches!(said, [LogEvent::Unreadable { .. }]), "{magic} {count}: {said:?}");
            assert_eq!(bench.content("00000000000000000000.log"), log);
        }
    }
}

/// Offset, size, CRC, magic, attributes, in magic 1 a timestamp, no key, and a value.
fn old_message(magic: u8, value_bytes: usize) -> Vec<u8> {
    let mut body = vec![magic, 0];
    if magic == 1 {
        body.extend(7_i64.to_be_bytes());
    }
    body.extend((-1_i32).to_be_bytes());
    body.extend((value_bytes as i32).to_be_bytes());
    body.extend(vec![b'v'; value_bytes]);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &body) as u32;
    let mut message = 0_i64.to_be_bytes().to_vec();
    message.extend((body.len() as u32 + 4).to_be_bytes());
    message.extend(crc.to_be_bytes());
    message.extend(&body);
    message
}

#[test]
fn reads_every_offset_of_what_kafka_wrote() {
    let batches = fixture_batches();
    let mut bench = Bench::open(fixture(), fixture_config(), clean());
    for offset in 0..FIXTURE_END.0 {
        let plan = bench.read(read_at(offset, 1)).expect("it is there");
        let bytes = bench.bytes_of(&plan);
        let first = Batches::new(bytes).next().expect("one batch").expect("whole");
        let expected = batches.iter().find(|batch| batch.header().last_offset().0 >= offset);
        assert_eq!(Some(&first), expected, "offset {offset}");
    }
    for bytes_max in [1, 5000, 1 << 20] {
        assert_eq!(bench.consume(Offset(0), FIXTURE_END, bytes_max), batches);
    }
    let up_to = batches[20].header().base_offset;
    assert_eq!(bench.consume(Offset(0), up_to, 1 << 20), batches[..20]);
    let end = bench.read(read_at(300, 100)).expect("the end can be read");
    assert_eq!(end.bytes, 0);
    let error = bench.read(read_at(301, 100)).expect_err("it is beyond the end");
    let (log_start_offset, end_offset) = (Offset(0), FIXTURE_END);
    assert_eq!(error, ReadError::OutOfRange { log_start_offset, end_offset });
}

#[test]
fn sequential_readers_of_a_running_log_need_no_effect() {
    let mut bench = Bench::create(LogConfig { segment_bytes: 300_000, ..LogConfig::default() });
    for index in 0..500 {
        bench.append(3, 700, index).expect("there is room");
        bench.run();
    }
    let end = bench.log.written_end_offset();
    let mut next = Offset(0);
    while next < end {
        let request = ReadRequest { bytes_max: 50_000, ..read_at(next.0, 0) };
        let read = bench.log.read(request, &mut bench.out).expect("it is there");
        let Read::Plan(plan) = read else { panic!("{next} had to be looked up") };
        let bytes = bench.bytes_of(&plan);
        let last = Batches::new(bytes).last().expect("one batch").expect("whole");
        next = last.header().next_offset();
    }
    // The newest batches come from memory.
    let read = bench.log.read(read_at(end.0 - 3, 1000), &mut bench.out).expect("it is there");
    assert!(matches!(read, Read::Plan(plan) if matches!(plan.parts[..], [Part::Bytes(_)])));
    assert!(bench.out.is_empty());
}

#[test]
fn large_segments_of_an_earlier_run_are_searched_by_their_indexes() {
    let config =
        LogConfig { segment_bytes: 24 << 20, index_interval_bytes: 1024, ..LogConfig::default() };
    let mut bench = Bench::create(config.clone());
    let mut batches = Vec::new();
    for index in 0..25_000 {
        let records = 1 + (index * 7) % 5;
        let new = batch(bench.log.end_offset(), records, 500, index as i64 * 10);
        bench.log.append(bench.now, &[appended(&new)]).expect("there is room");
        batches.push(new);
        if index % 100 == 0 {
            bench.run();
        }
    }
    bench.run();
    let end = bench.log.end_offset();
    assert_eq!(bench.log.segment_count(), 2);
    let mut bench = Bench::open(bench.close(), config, clean());
    let mut random = base::Random::new(1);
    for _ in 0..300 {
        let offset = random.below(u64::try_from(end.0).expect("not negative")) as i64;
        let plan = bench.read(read_at(offset, 1)).expect("it is there");
        let first = Batches::new(bench.bytes_of(&plan)).next().expect("one").expect("whole");
        let holds = batches.partition_point(|it| it.header().last_offset().0 < offset);
        assert_eq!(first, batches[holds]);
    }
    for place in [0, 1, 9_999, 17_777, 24_999] {
        let wanted = batches[place].header().max_timestamp;
        bench.events.clear();
        bench.log.find_timestamp(wanted, &mut bench.out);
        bench.run();
        let found = bench.events.last().cloned();
        let offset = batches[place].header().last_offset();
        assert!(
            matches!(found, Some(LogEvent::TimestampFound { found: Some(found), .. })
                if found.offset == offset && found.timestamp == wanted),
            "{found:?}"
        );
    }
    let reads = bench.disk.count("read");
    assert_eq!(bench.consume(Offset(0), end, 1 << 20), batches);
    let reads = bench.disk.count("read") - reads;
    assert!(reads < 100, "{reads} reads for {} bytes", bench.log.size_bytes());
}

#[test]
fn nothing_is_shown_before_it_is_written() {
    let mut bench = Bench::create(LogConfig::default());
    bench.append(1, 10, 0).expect("there is room");
    let error = bench.log.read(read_at(1, 100), &mut bench.out).expect_err("beyond the end");
    let (log_start_offset, end_offset) = (Offset(0), Offset(0));
    assert_eq!(error, ReadError::OutOfRange { log_start_offset, end_offset });
    assert!(!bench.log.has_reached(Durability::Written(Offset(1))));
    assert_eq!(bench.log.request_sync(&mut bench.out), Offset(1));
    assert!(bench.out.is_empty(), "nothing is synced before it is written");
    bench.run();
    assert!(bench.log.has_reached(Durability::Synced(Offset(1))));
    let (written, synced) =
        (LogEvent::Written { end_offset: Offset(1) }, LogEvent::Synced { end_offset: Offset(1) });
    assert_eq!(bench.events[1..], [written, synced]);
}

#[test]
fn a_turn_makes_one_write() {
    let mut bench = Bench::create(LogConfig::default());
    let before = bench.disk.count("write");
    for index in 0..200 {
        bench.append(1, index * 50, 0).expect("there is room");
    }
    bench.run();
    assert_eq!(bench.disk.count("write"), before + 1);
}

#[test]
fn a_full_disk_takes_the_batches_back() {
    let mut bench = Bench::create(LogConfig { segment_bytes: 2000, ..LogConfig::default() });
    bench.append(10, 100, 5).expect("there is room");
    bench.run();
    let before = bench.disk.files.clone();
    bench.events.clear();
    for _ in 0..4 {
        // These roll the segment too.
        bench.append(10, 100, 9).expect("there is room");
    }
    bench.disk.failing = Some(("write", IoErrorKind::NoSpace));
    bench.run();
    let cause = testing::io_error(IoErrorKind::NoSpace);
    assert_eq!(bench.events, [LogEvent::Refused { from: Offset(10), cause }]);
    assert_eq!(bench.log.end_offset(), Offset(10));
    bench.disk.failing = None;
    for (path, content) in before {
        if path.extension().is_some_and(|ending| ending == "log") {
            assert_eq!(bench.disk.files[&path], content, "{path:?}");
        }
    }
    bench.append(10, 100, 7).expect("there is room again");
    bench.run();
    assert_eq!(bench.log.written_end_offset(), Offset(20));
    let batches = bench.consume(Offset(0), Offset(20), 100);
    assert_eq!(batches, [batch(Offset(0), 10, 100, 5), batch(Offset(10), 10, 100, 7)]);
    let disk = bench.close();
    let bench = Bench::open(disk, LogConfig::default(), Checkpoints::default());
    assert_eq!(bench.log.end_offset(), Offset(20));
}

#[test]
fn a_disk_too_full_to_take_a_write_back_is_tried_again() {
    let mut bench = Bench::create(LogConfig::default());
    bench.append(10, 100, 5).expect("there is room");
    bench.run();
    bench.append(10, 100, 6).expect("there is room");
    bench.disk.failing = Some(("write", IoErrorKind::NoSpace));
    bench.run_some(1);
    bench.disk.failing = Some(("truncate", IoErrorKind::NoSpace));
    bench.run();
    assert_eq!(bench.log.state(), LogState::Open);
    assert_eq!(bench.append(10, 100, 6), Err(AppendError::Busy));
    bench.run_timer();
    assert_eq!(bench.append(10, 100, 6), Err(AppendError::Busy), "it is still full");
    bench.disk.failing = None;
    bench.run_timer();
    bench.append(10, 100, 7).expect("there is room again");
    bench.run();
    let batches = bench.consume(Offset(0), Offset(20), 100);
    assert_eq!(batches, [batch(Offset(0), 10, 100, 5), batch(Offset(10), 10, 100, 7)]);
}

/// Names that were changed and not synced can come back after a loss of power, any of them: if
/// these are of one segment at a time, none comes back before one that is gone.
#[test]
fn an_older_segment_is_durably_gone_before_a_newer_one_goes() {
    let config =
        LogConfig { retention_bytes: Some(20_000), retention_ms: None, ..fixture_config() };
    let mut bench = Bench::open(fixture(), config, Checkpoints::default());
    bench.log.apply_retention(bench.now, FIXTURE_END, &mut bench.out, &mut bench.events);
    let start = bench.log.log_start_offset();
    let mut gone = Vec::new();
    let mut is_synced = true;
    while !bench.out.is_empty() {
        for effect in std::mem::take(&mut bench.out) {
            match &effect {
                FileEffect::Rename { from, to, .. }
                    if to.extension() == Some("deleted".as_ref()) =>
                {
                    let name = from.file_name().expect("a file has a name").to_string_lossy();
                    let base: i64 = name[..20].parse().expect("is an offset");
                    if gone.last() != Some(&base) {
                        assert!(is_synced, "{gone:?} may come back, and {base} goes");
                        gone.push(base);
                    }
                    is_synced = false;
                }
                FileEffect::SyncDirectory { .. } => is_synced = true,
                _ => {}
            }
            let (step, outcome) = bench.disk.perform(effect).expect("every effect has an outcome");
            bench.log.on_file(bench.now, step, outcome, &mut bench.out, &mut bench.events);
        }
    }
    assert!(gone.len() > 2 && gone.is_sorted() && is_synced, "{gone:?}");
    let first = format!("{:020}.log", start.0);
    assert!(bench.disk.files.contains_key(&Bench::path(&first)), "{first} stays");
}

#[test]
fn a_full_disk_hinders_no_segment_from_going() {
    let config =
        LogConfig { retention_bytes: Some(60_000), retention_ms: None, ..fixture_config() };
    let mut bench = Bench::open(fixture(), config, clean());
    bench.disk.failing = Some(("rename", IoErrorKind::NoSpace));
    bench.log.apply_retention(bench.now, FIXTURE_END, &mut bench.out, &mut bench.events);
    bench.run();
    assert_eq!(bench.log.state(), LogState::Open);
    let start = bench.log.log_start_offset();
    assert!(start > Offset(66), "{start}");
    let begin = |path: &std::path::Path| {
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        name.get(..20).and_then(|digits| digits.parse::<i64>().ok())
    };
    let first = bench.disk.files.keys().filter_map(|path| begin(path)).min();
    assert_eq!(first, Some(start.0), "nothing is left of what was deleted");
}

#[test]
fn where_an_older_segment_cannot_go_no_newer_one_goes() {
    let config =
        LogConfig { retention_bytes: Some(20_000), retention_ms: None, ..fixture_config() };
    let mut bench = Bench::open(fixture(), config, Checkpoints::default());
    let logs = |bench: &Bench| {
        let names = bench.disk.files.keys().filter(|path| path.extension() == Some("log".as_ref()));
        names.count()
    };
    let before = logs(&bench);
    bench.disk.failing = Some(("names", IoErrorKind::NoSpace));
    bench.log.apply_retention(bench.now, FIXTURE_END, &mut bench.out, &mut bench.events);
    bench.run();
    for _ in 0..3 {
        bench.run_timer();
        assert_eq!((logs(&bench), bench.log.state()), (before, LogState::Open));
    }
    bench.disk.failing = None;
    bench.run_timer();
    assert_eq!(logs(&bench), bench.log.segment_count());
    assert!(bench.log.segment_count() < before - 2);
    let start = bench.log.log_start_offset();
    let bench = Bench::open(bench.disk, fixture_config(), Checkpoints::default());
    assert_eq!((bench.log.log_start_offset(), bench.log.end_offset()), (start, FIXTURE_END));
}

#[test]
fn a_log_that_cannot_be_renamed_on_a_full_disk_is_deleted_later() {
    let mut bench = Bench::create(LogConfig::default());
    bench.append(10, 100, 5).expect("there is room");
    bench.run();
    bench.events.clear();
    bench.disk.failing = Some(("rename", IoErrorKind::NoSpace));
    bench.log.remove(Uuid([7; 16]), &mut bench.out);
    bench.run();
    bench.run_timer();
    assert_eq!((bench.log.state(), &bench.events[..]), (LogState::Removing, &[][..]));
    bench.disk.failing = None;
    bench.run_timer();
    assert_eq!(bench.events, [LogEvent::Renamed]);
    bench.disk.failing = Some(("remove", IoErrorKind::NoSpace));
    bench.run_timer();
    assert_eq!(bench.events, [LogEvent::Renamed]);
    bench.disk.failing = None;
    bench.run_timer();
    assert_eq!(bench.events, [LogEvent::Renamed, LogEvent::Removed]);
}

#[test]
fn a_log_that_was_not_closed_asks_for_the_epochs_that_its_file_lacks() {
    let mut bench = Bench::create(LogConfig::default());
    bench.append(10, 100, 5).expect("there is room");
    bench.run();
    bench.disk.failing = Some(("rename", IoErrorKind::NoSpace));
    bench.log.assign_leader_epoch(bench.now, LeaderEpoch(3), &mut bench.out);
    bench.append(10, 100, 5).expect("there is room");
    bench.log.request_sync(&mut bench.out);
    bench.run();
    assert_eq!(bench.log.flushed_end_offset(), Offset(20));
    assert!(bench.log.recovery_point() <= Offset(10));
    bench.log.close(bench.now, &mut bench.out, &mut bench.events);
    bench.run();
    bench.run_timer();
    assert!(matches!(bench.events.last(), Some(LogEvent::NotClosed { .. })));
    assert!(bench.log.recovery_point() <= Offset(10), "the next start finds the epoch there");
}

/// All bytes of the records are durable, and not the indexes: a crash while they are written leaves
/// anything in them, and the segment has to be recovered.
#[test]
fn a_segment_whose_indexes_are_not_written_is_above_the_recovery_point() {
    let mut bench = Bench::create(LogConfig { segment_bytes: 1_500, ..LogConfig::default() });
    bench.append(10, 100, 7_000).expect("there is room");
    bench.log.request_sync(&mut bench.out);
    bench.run();
    assert_eq!(bench.log.flushed_end_offset(), Offset(10));
    let recovery_point = bench.log.recovery_point();
    bench.append(10, 100, 9_000).expect("it rolls");
    bench.run();
    let mut disk = bench.disk;
    disk.files.insert(Bench::path("00000000000000000000.timeindex"), vec![0; 24]);
    let found = Checkpoints { recovery_point, ..Checkpoints::default() };
    let bench = Bench::open(disk, LogConfig::default(), found);
    let times = bench.content("00000000000000000000.timeindex");
    assert_eq!(times[..8], 7_009_i64.to_be_bytes(), "it was made again");
}

#[test]
fn a_failed_sync_ends_the_log() {
    let mut bench = Bench::create(LogConfig::default());
    bench.append(1, 10, 0).expect("there is room");
    bench.log.request_sync(&mut bench.out);
    bench.disk.failing = Some(("sync", IoErrorKind::Other));
    bench.run();
    assert_eq!(bench.log.state(), LogState::Failed);
    let cause = testing::io_error(IoErrorKind::Other);
    assert_eq!(bench.events.last(), Some(&LogEvent::Failed { cause }));
    assert_eq!(bench.append(1, 10, 0), Err(AppendError::NotOpen));
    let read = bench.log.read(read_at(0, 100), &mut bench.out);
    assert_eq!(read.expect_err("the log has failed"), ReadError::NotOpen);
}

/// Of the write-backs among the effects: where each begins, and how long it is.
fn write_backs(bench: &Bench) -> Vec<(u64, u32)> {
    let of = |effect: &FileEffect<_>| match effect {
        FileEffect::WriteBack { position, length, .. } => Some((*position, *length)),
        _ => None,
    };
    bench.out.iter().filter_map(of).collect()
}

fn write_back_ends(bench: &mut Bench) {
    let effect = bench.out.pop().expect("a write-back");
    let (step, outcome) = bench.disk.perform(effect).expect("it is answered");
    bench.log.on_file(bench.now, step, outcome, &mut bench.out, &mut bench.events);
}

const MIB: u64 = 1 << 20;

/// Appends so many mebibytes and performs everything but write-backs.
fn append_mebibytes(bench: &mut Bench, mebibytes: usize) {
    for _ in 0..mebibytes {
        // What one write takes is less than all of it, so that there are several.
        bench.append(1, (1 << 20) - 200, 0).expect("there is room");
    }
    bench.log.flush_turn(bench.now, &mut bench.out);
    let waits = |effect: &FileEffect<_>| !matches!(effect, FileEffect::WriteBack { .. });
    while let Some(place) = bench.out.iter().position(waits) {
        let effect = bench.out.remove(place);
        if let Some((step, outcome)) = bench.disk.perform(effect) {
            bench.log.on_file(bench.now, step, outcome, &mut bench.out, &mut bench.events);
        }
        bench.log.flush_turn(bench.now, &mut bench.out);
    }
}

fn forty_mebibytes() -> LogConfig {
    LogConfig { segment_bytes: 40 << 20, ..LogConfig::default() }
}

#[test]
fn a_rolled_segment_goes_to_the_disk_in_portions_before_it_is_sealed() {
    let mut bench = Bench::create(forty_mebibytes());
    append_mebibytes(&mut bench, 40);
    assert_eq!(write_backs(&bench), [], "the kernel does it, there is no hurry");
    let rolled = bench.log.size_bytes();
    append_mebibytes(&mut bench, 10);
    for portion in 0..rolled.div_ceil(2 * MIB) {
        assert_eq!(bench.log.recovery_point(), Offset(0), "it is not sealed yet");
        let (begin, rest) = (portion * 2 * MIB, rolled - portion * 2 * MIB);
        let length = u32::try_from(rest.min(2 * MIB)).expect("small");
        assert_eq!(write_backs(&bench), [(begin, length)], "one at a time");
        write_back_ends(&mut bench);
    }
    append_mebibytes(&mut bench, 1);
    assert!(bench.log.recovery_point() > Offset(0), "it is sealed");
    assert_eq!(write_backs(&bench), [], "and the next one is left to the kernel");
}

#[test]
fn who_waits_for_a_sync_does_not_wait_for_portions() {
    let mut bench = Bench::create(forty_mebibytes());
    append_mebibytes(&mut bench, 49);
    assert_eq!(write_backs(&bench).len(), 1);
    let end = bench.log.request_sync(&mut bench.out);
    append_mebibytes(&mut bench, 0);
    assert_eq!(bench.log.flushed_end_offset(), end);
    assert_eq!(write_backs(&bench).len(), 1, "the one that was under way");
    write_back_ends(&mut bench);
    assert_eq!(write_backs(&bench), []);
}

#[test]
fn all_that_was_written_goes_to_the_disk_when_it_is_asked_for() {
    let mut bench = Bench::create(forty_mebibytes());
    append_mebibytes(&mut bench, 5);
    bench.log.write_back(&mut bench.out);
    // What comes later was not asked for.
    append_mebibytes(&mut bench, 5);
    let mut begins = Vec::new();
    while let [(begin, _)] = write_backs(&bench)[..] {
        begins.push(begin / MIB);
        write_back_ends(&mut bench);
    }
    assert_eq!(begins, [0, 2, 4]);
    assert_eq!(bench.log.dirty_bytes() / MIB, 4);
    bench.log.write_back(&mut bench.out);
    bench.disk.failing = Some(("write back", IoErrorKind::Other));
    bench.run();
    assert_eq!(bench.log.state(), LogState::Failed, "a sync would not tell of it again");
}

#[test]
fn a_batch_larger_than_a_segment_is_refused() {
    let mut bench = Bench::create(LogConfig { segment_bytes: 1000, ..LogConfig::default() });
    let refused = bench.append(1, 1000, 0).expect_err("it is too large");
    assert!(matches!(refused, AppendError::TooLarge { segment_bytes: 1000, .. }));
    assert_eq!(bench.log.end_offset(), Offset(0));
}

#[test]
fn segments_roll_by_size_time_and_offset() {
    let config = LogConfig { segment_bytes: 10_000, segment_ms: 1000, ..LogConfig::default() };
    let mut bench = Bench::create(config);
    let mut bases = vec![0];
    for (timestamp, value_bytes, rolls) in [
        (0, 4000, false),
        (1000, 4000, false),
        (1001, 10, true),
        (900, 9000, false),
        (900, 9000, true),
        (900, 700, false),
        (900, 700, true),
    ] {
        let base = bench.log.end_offset();
        bench.append(1, value_bytes, timestamp).expect("there is room");
        bench.run();
        if rolls {
            bases.push(base.0);
        }
        assert_eq!(bench.log.segment_count(), bases.len(), "behind {base}");
    }
    let far = batch(Offset(i64::from(i32::MAX) + 5 + bases[3]), 1, 10, 900);
    bench.log.append(bench.now, &[appended(&far)]).expect("there is room");
    bench.run();
    assert_eq!(bench.log.segment_count(), bases.len() + 1);
    let gap = bench.read(read_at(100, 1000)).expect("the gap can be read");
    assert_eq!(&bench.bytes_of(&gap)[..], &far.bytes()[..]);
}

#[test]
fn timestamps_are_found_as_kafka_finds_them() {
    let batches = fixture_batches();
    let mut all = Vec::new();
    for batch in &batches {
        let mut reader = batch.records(1 << 20).expect("its codec is known");
        while let Some(record) = reader.next_record().expect("Kafka wrote it") {
            all.push((record.timestamp, record.offset));
        }
    }
    let mut bench = Bench::open(fixture(), fixture_config(), clean());
    let mut find = |timestamp: Option<i64>| {
        bench.events.clear();
        let ticket = match timestamp {
            Some(timestamp) => bench.log.find_timestamp(timestamp, &mut bench.out),
            None => bench.log.find_max_timestamp(&mut bench.out),
        };
        bench.run();
        match &bench.events[..] {
            [LogEvent::TimestampFound { ticket: answered, found }] => {
                assert_eq!(Some(*answered), ticket);
                *found
            }
            other => panic!("{other:?}"),
        }
    };
    let found = |(timestamp, offset): &(i64, Offset)| {
        let (timestamp, offset, leader_epoch) = (*timestamp, *offset, LeaderEpoch(0));
        FoundTimestamp { timestamp, offset, leader_epoch }
    };
    for (timestamp, _) in &all {
        for wanted in [timestamp - 1, *timestamp, timestamp + 1] {
            let expected = all.iter().find(|(timestamp, _)| *timestamp >= wanted).map(found);
            assert_eq!(find(Some(wanted)), expected, "{wanted}");
        }
    }
    let largest = all.iter().map(|(timestamp, _)| *timestamp).max().expect("some");
    let expected = all.iter().find(|(timestamp, _)| *timestamp == largest).map(found);
    assert_eq!(find(None), expected);
    assert_eq!(find(Some(i64::MIN)), all.first().map(found));
}

/// A log with a batch of two records, the first of which is large without compression.
fn log_with_large_record(bytes: usize) -> Bench {
    let mut bench = Bench::create(LogConfig::default());
    let mut builder = BatchBuilder::new(Offset(0), Compression::Zstd { level: 1 });
    let value = vec![0; bytes];
    for (value, timestamp) in [(&value[..], 10), (b"small", 20)] {
        builder.append(&NewRecord { value: Some(value), timestamp, ..NewRecord::default() });
    }
    bench.log.append(bench.now, &[appended(&builder.build())]).expect("there is room");
    bench.run();
    bench.events.clear();
    bench
}

#[test]
fn a_batch_that_holds_much_is_searched_in_portions() {
    const VALUE_BYTES: usize = 140 << 20;
    const PORTION_BYTES: usize = VALUE_BYTES / 10;
    let mut bench = log_with_large_record(VALUE_BYTES);
    let first = bench.log.find_timestamp(11, &mut bench.out).expect("there is room");
    let second = bench.log.find_timestamp(10, &mut bench.out).expect("there is room");
    bench.run_files();
    let mut answered_after = Vec::new();
    let mut portions = 0;
    while bench.log.batches_to_search() > 0 {
        portions += usize::from(bench.log.holds_batch());
        bench.log.search_on(&mut PORTION_BYTES.clone(), false, &mut bench.out, &mut bench.events);
        bench.run_files();
        answered_after.resize(bench.events.len(), portions);
    }
    assert!(matches!(answered_after[..], [9..=11, 19..=22]), "{answered_after:?}");
    let found = |ticket, timestamp, offset| {
        let (offset, leader_epoch) = (Offset(offset), LeaderEpoch::NONE);
        let found = FoundTimestamp { timestamp, offset, leader_epoch };
        LogEvent::TimestampFound { ticket, found: Some(found) }
    };
    assert_eq!(bench.events, [found(first, 20, 1), found(second, 10, 0)]);
}

#[test]
fn a_batch_is_read_when_its_turn_comes_and_let_go_when_others_share() {
    let mut bench = log_with_large_record(100);
    for _ in 0..2 {
        bench.log.find_timestamp(11, &mut bench.out).expect("there is room");
    }
    bench.run_files();
    assert_eq!((bench.log.batches_to_search(), bench.log.holds_batch()), (2, false));
    for left in [1, 0] {
        // It is read once, however often it is asked to go on meanwhile.
        for _ in 0..2 {
            bench.log.search_on(&mut 1_000.clone(), true, &mut bench.out, &mut bench.events);
            assert_eq!(bench.out.len(), 1);
            assert!(bench.log.is_reading_batch() && bench.log.holds_batch());
        }
        bench.run_files();
        assert!(!bench.log.is_reading_batch() && bench.log.holds_batch());
        bench.log.search_on(&mut 1_000.clone(), true, &mut bench.out, &mut bench.events);
        assert_eq!((bench.log.batches_to_search(), bench.log.holds_batch()), (left, false));
        assert!(bench.out.is_empty(), "the next one waits for another turn");
    }
    assert_eq!(bench.events.len(), 2);
}

#[test]
fn a_log_that_goes_while_a_batch_is_read_waits_for_the_read() {
    let mut bench = log_with_large_record(100);
    bench.log.find_timestamp(11, &mut bench.out).expect("there is room");
    bench.run_files();
    bench.log.search_on(&mut 1_000.clone(), false, &mut bench.out, &mut bench.events);
    let read = std::mem::take(&mut bench.out);
    bench.log.remove(Uuid([7; 16]), &mut bench.out);
    assert!(bench.out.is_empty(), "its file is read");
    bench.out = read;
    bench.run();
    assert_eq!(bench.log.batches_to_search(), 0);
    let [LogEvent::SearchFailed { is_corrupt: false, .. }, LogEvent::Renamed] = bench.events[..]
    else {
        panic!("{:?}", bench.events)
    };
}

#[test]
fn a_log_that_goes_waits_for_no_search_through_a_batch() {
    let mut bench = log_with_large_record(100);
    bench.log.find_timestamp(11, &mut bench.out).expect("there is room");
    bench.run_files();
    assert_eq!(bench.log.batches_to_search(), 1);
    bench.log.remove(Uuid([7; 16]), &mut bench.out);
    assert_eq!(bench.log.batches_to_search(), 0);
    bench.run();
    assert_eq!(bench.events, [LogEvent::Renamed]);
}

#[test]
fn records_are_deleted_from_the_start() {
    let mut bench = Bench::open(fixture(), fixture_config(), clean());
    assert!(bench.log.delete_records(bench.now, Offset(301), &mut bench.out).is_err());
    bench.log.delete_records(bench.now, Offset(110), &mut bench.out).expect("it is there");
    bench.run();
    assert_eq!(bench.log.log_start_offset(), Offset(110));
    assert_eq!(bench.log.segment_count(), 6);
    assert!(bench.disk.files.contains_key(&Bench::path("00000000000000000066.log.deleted")));
    assert!(bench.disk.files.contains_key(&Bench::path("00000000000000000105.log")));
    assert_eq!(bench.content("leader-epoch-checkpoint"), b"0\n1\n0 110\n");
    assert!(matches!(bench.read(read_at(109, 1)), Err(ReadError::OutOfRange { .. })));
    assert!(bench.read(read_at(110, 1)).is_ok());

    // The start is in the middle of a segment: only its checkpoint knows.
    let found = Checkpoints { log_start_offset: Offset(110), ..clean() };
    let bench = Bench::open(bench.close(), fixture_config(), found);
    assert_eq!(bench.log.log_start_offset(), Offset(110));
    assert!(!bench.disk.files.contains_key(&Bench::path("00000000000000000066.log")));
}

#[test]
fn retention_by_size_and_by_age() {
    let config =
        LogConfig { retention_bytes: Some(60_000), retention_ms: None, ..fixture_config() };
    let mut bench = Bench::open(fixture(), config, clean());
    bench.log.apply_retention(bench.now, Offset(100), &mut bench.out, &mut bench.events);
    bench.run();
    assert_eq!(bench.log.log_start_offset(), Offset(66), "the high watermark holds the rest");
    bench.log.apply_retention(bench.now, FIXTURE_END, &mut bench.out, &mut bench.events);
    bench.run();
    assert!((60_000..75_000).contains(&bench.log.size_bytes()), "{}", bench.log.size_bytes());
    let start = bench.log.log_start_offset();
    assert_eq!(bench.events.last(), Some(&LogEvent::StartMoved { log_start_offset: start }));

    let config = LogConfig { retention_ms: Some(1000), ..fixture_config() };
    let mut bench = Bench::open(fixture(), config, clean());
    bench.now.wall_ms = i64::MAX;
    for _ in 0..4 {
        bench.log.apply_retention(bench.now, FIXTURE_END, &mut bench.out, &mut bench.events);
        bench.run();
    }
    assert_eq!(bench.log.log_start_offset(), FIXTURE_END, "the last segment was rolled");
    assert_eq!(bench.log.size_bytes(), 0);
    bench.append(1, 10, 0).expect("it goes on");
    bench.run();
    assert_eq!(bench.log.written_end_offset(), Offset(301));
    let bench = Bench::open(bench.close(), fixture_config(), Checkpoints::default());
    assert_eq!((bench.log.log_start_offset(), bench.log.end_offset()), (FIXTURE_END, Offset(301)));
}

#[test]
fn the_end_is_cut_off_at_any_batch() {
    let batches = fixture_batches();
    for cut in [0, 1, 7, 30, batches.len() - 1] {
        let offset = batches[cut].header().base_offset;
        let mut bench = Bench::open(fixture(), fixture_config(), clean());
        bench.append(5, 100, 0).expect("there is room");
        bench.log.truncate_to(bench.now, offset, &mut bench.out, &mut bench.events);
        bench.run();
        assert_eq!(bench.events.last(), Some(&LogEvent::Truncated { end_offset: offset }));
        assert_eq!(bench.consume(Offset(0), offset, 1 << 20), batches[..cut]);
        for batch in &batches[cut..] {
            bench.log.append(bench.now, &[appended(batch)]).expect("there is room");
            bench.run();
        }
        assert_eq!(bench.consume(Offset(0), FIXTURE_END, 3000), batches);
        let bench = Bench::open(bench.close(), fixture_config(), Checkpoints::default());
        assert_eq!(bench.log.end_offset(), FIXTURE_END);
    }
}

#[test]
fn a_log_is_deleted_with_a_delay() {
    let mut bench = Bench::open(fixture(), fixture_config(), clean());
    let plan = bench.read(read_at(0, 1 << 20)).expect("it is there");
    bench.log.remove(Uuid([0xab; 16]), &mut bench.out);
    bench.run();
    assert_eq!(bench.events.last(), Some(&LogEvent::Renamed));
    assert!(bench.disk.files.keys().all(|path| path.to_string_lossy().contains("-delete/")));
    assert_eq!(bench.bytes_of(&plan).len(), plan.bytes as usize, "a slice stays readable");
    bench.now.mono = bench.log.next_timer().expect("the folder waits");
    bench.log.on_timer(bench.now, &mut bench.out, &mut bench.events);
    let first = &bench.out[..];
    assert!(matches!(first, [FileEffect::SyncDirectory { .. }]), "nothing goes before: {first:?}");
    bench.run();
    assert_eq!(bench.events.last(), Some(&LogEvent::Removed));
    assert!(bench.disk.files.is_empty());
}

#[test]
fn a_busy_log_is_deleted_once_its_effects_are_over() {
    let mut bench = Bench::create(fixture_config());
    let all: Vec<_> = fixture_batches().iter().map(appended).collect();
    bench.log.append(bench.now, &all).expect("there is room");
    bench.log.flush_turn(bench.now, &mut bench.out);
    let under_way = bench.out.len();
    bench.log.remove(Uuid([1; 16]), &mut bench.out);
    assert_eq!(bench.out.len(), under_way, "the folder keeps its name while it is written");
    assert!(!bench.log.needs_flush());
    bench.run();
    assert_eq!(bench.events.last(), Some(&LogEvent::Renamed));
    assert!(bench.disk.files.keys().all(|path| path.to_string_lossy().contains("-delete/")));

    // One that was not open yet goes when it is, and one that failed goes at once.
    let mut bench = Bench::create(fixture_config());
    let mut out = Vec::new();
    bench.log = crate::Log::open(testing::params(fixture_config()), clean(), &mut bench.out);
    bench.log.remove(Uuid([1; 16]), &mut bench.out);
    bench.run();
    assert_eq!(bench.events.last(), Some(&LogEvent::Renamed));
    let mut log = crate::Log::open(testing::params(fixture_config()), clean(), &mut out);
    let failed = api::FileOutcome::Listed(Err(testing::io_error(IoErrorKind::Other)));
    log.on_file(
        bench.now,
        crate::step::LogStep(crate::step::Step::Open),
        failed,
        &mut out,
        &mut bench.events,
    );
    out.clear();
    log.remove(Uuid([2; 16]), &mut out);
    assert_eq!(out.len(), 1);
}

#[test]
fn a_file_left_by_a_crash_never_takes_a_new_one_along() {
    let mut disk = fixture();
    disk.files.insert(Bench::path("00000000000000000300.index"), vec![0; 16]);
    disk.files.insert(Bench::path("00000000000000000300.log.deleted"), vec![0; 16]);
    let mut bench = Bench::open(disk, fixture_config(), clean());
    let mut names = bench.disk.files.keys().map(|path| path.to_string_lossy());
    assert!(!names.any(|name| name.contains("0300") && !name.ends_with("0300.snapshot")));
    assert_eq!(bench.log.next_timer(), None);
    bench.append(1, 10, i64::MAX / 2).expect("it rolls by time");
    bench.run();
    assert!(bench.disk.files.contains_key(&Bench::path("00000000000000000300.index")));
}

#[test]
fn epochs_are_kept_in_their_file_and_found_by_recovery() {
    let mut bench = Bench::create(LogConfig::default());
    bench.log.assign_leader_epoch(bench.now, LeaderEpoch(3), &mut bench.out);
    bench.run();
    assert_eq!(bench.content("leader-epoch-checkpoint"), b"0\n1\n3 0\n");
    let mut stamped = batch(Offset(0), 4, 10, 0);
    for epoch in [3, 5, 9] {
        let stamp = records::Stamp {
            base_offset: bench.log.end_offset(),
            leader_epoch: LeaderEpoch(epoch),
            max_timestamp: records::MaxTimestamp::Keep,
        };
        let (header, records) = (stamped.stamp(&stamp), stamped.record_bytes());
        bench.log.append(bench.now, &[crate::AppendBatch { header, records }]).expect("room");
        stamped = batch(Offset(0), 4, 10, 0);
    }
    bench.run();
    assert_eq!(bench.content("leader-epoch-checkpoint"), b"0\n3\n3 0\n5 4\n9 8\n");
    assert_eq!(bench.log.end_offset_for_epoch(LeaderEpoch(6)), (LeaderEpoch(5), Offset(8)));
    assert_eq!(bench.log.end_offset_for_epoch(LeaderEpoch(10)), (LeaderEpoch(-1), Offset(-1)));
    let mut disk = bench.disk;
    disk.files.remove(&Bench::path("leader-epoch-checkpoint"));
    let bench = Bench::open(disk, LogConfig::default(), Checkpoints::default());
    assert_eq!(bench.content("leader-epoch-checkpoint"), b"0\n3\n3 0\n5 4\n9 8\n");
}

#[test]
fn a_busy_log_takes_space_ahead_and_a_quiet_one_gives_it_back() {
    let mut bench = Bench::create(LogConfig::default());
    for turn in 0..100_u64 {
        bench.now.mono = base::Instant::ZERO + Duration::from_millis(turn * 10);
        for _ in 0..10 {
            bench.append(1, 100_000, 0).expect("there is room");
        }
        bench.run();
    }
    assert!((1..10).contains(&bench.disk.count("allocate")), "{}", bench.disk.count("allocate"));
    let before = bench.disk.count("truncate");
    bench.log.release_memory(&mut bench.out);
    bench.run();
    assert_eq!(bench.disk.count("truncate"), before + 1);
    let size = bench.log.size_bytes();
    assert_eq!(bench.content("00000000000000000000.log").len() as u64, size);
}

#[derive(Clone, Debug)]
enum Act {
    Append {
        records: usize,
        value_bytes: usize,
    },
    Turn,
    /// A turn in which only so many effects come to an end.
    Some(usize),
    Sync,
    Ask,
    Close,
    /// Kills the process, and loses or tears what was not synced.
    Crash {
        keep_percent: usize,
        garbage: usize,
    },
    Full,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (1..20_usize, 0..3000_usize)
            .prop_map(|(records, value_bytes)| Act::Append { records, value_bytes }),
        6 => Just(Act::Turn),
        6 => (1..4_usize).prop_map(Act::Some),
        2 => Just(Act::Sync),
        2 => Just(Act::Ask),
        1 => Just(Act::Close),
        1 => (0..=100_usize, 0..200_usize)
            .prop_map(|(keep_percent, garbage)| Act::Crash { keep_percent, garbage }),
        1 => Just(Act::Full),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever happens, the log holds a prefix of what was appended: all that was synced, and
    /// all that was written as long as the process was not killed.
    #[test]
    fn a_log_is_a_prefix_of_what_was_appended(
        acts in proptest::collection::vec(act(), 1..60),
        interval in 0..6000_u32,
    ) {
        let config = LogConfig {
            segment_bytes: 100_000,
            index_interval_bytes: interval,
            segment_index_bytes: 200,
            ..LogConfig::default()
        };
        let mut bench = Bench::create(config.clone());
        let mut model: Vec<Batch> = Vec::new();
        for act in acts {
            match act {
                Act::Append { records, value_bytes } => {
                    let timestamp = (model.len() as i64 * 7919) % 1000;
                    let new = batch(bench.log.end_offset(), records, value_bytes, timestamp);
                    let taken = bench.log.append(bench.now, &[appended(&new)]);
                    if taken == Err(AppendError::Busy) {
                        continue;
                    }
                    prop_assert!(taken.is_ok());
                    model.push(new);
                }
                Act::Turn => bench.run(),
                Act::Some(count) => bench.run_some(count),
                Act::Ask => {
                    bench.log.request_sync(&mut bench.out);
                }
                Act::Sync => {
                    let target = bench.log.request_sync(&mut bench.out);
                    bench.run();
                    prop_assert!(bench.log.has_reached(Durability::Synced(target)));
                }
                Act::Close => {
                    bench.run();
                    let found = Checkpoints {
                        clean_shutdown: true,
                        recovery_point: bench.log.end_offset(),
                        ..Checkpoints::default()
                    };
                    bench = Bench::open(bench.close(), config.clone(), found);
                }
                Act::Crash { keep_percent, garbage } => {
                    let recovery_point = bench.log.recovery_point();
                    bench = crash(bench, &config, recovery_point, keep_percent, garbage);
                    prop_assert!(bench.log.end_offset() >= recovery_point);
                    model.retain(|batch| batch.header().next_offset() <= bench.log.end_offset());
                }
                Act::Full => {
                    bench.disk.failing = Some(("write", IoErrorKind::NoSpace));
                    bench.run();
                    bench.disk.failing = None;
                    let retry = bench.log.next_timer();
                    if let Some(at) = retry {
                        bench.now.mono = bench.now.mono.max(at);
                        bench.log.on_timer(bench.now, &mut bench.out, &mut bench.events);
                    }
                    bench.run();
                    model.retain(|batch| batch.header().next_offset() <= bench.log.end_offset());
                }
            }
            prop_assert_eq!(bench.log.state(), LogState::Open);
        }
        bench.run();
        let end = bench.log.end_offset();
        prop_assert_eq!(bench.log.written_end_offset(), end);
        prop_assert_eq!(model.last().map_or(Offset(0), |it| it.header().next_offset()), end);
        for bytes_max in [1, 4000, 1 << 20] {
            prop_assert_eq!(&bench.consume(Offset(0), end, bytes_max), &model);
        }
        let disk = bench.close();
        let mut bench = Bench::open(disk, config, clean());
        prop_assert_eq!(bench.log.end_offset(), end);
        for bytes_max in [1, 4000] {
            prop_assert_eq!(&bench.consume(Offset(0), end, bytes_max), &model);
        }
    }
}

/// Opens the log again after its process was killed: of what lies above the recovery point a part
/// is lost, and garbage can stand in its place.
fn crash(
    bench: Bench,
    config: &LogConfig,
    recovery_point: Offset,
    keep_percent: usize,
    garbage: usize,
) -> Bench {
    let mut disk = bench.disk;
    disk.failing = None;
    let logs = disk.files.keys().filter(|path| path.extension().is_some_and(|it| it == "log"));
    let last = logs.max().expect("a log has a segment").clone();
    let content = disk.files.get_mut(&last).expect("it is there");
    let mut durable = 0;
    for batch in Batches::new(Bytes::from(content.clone())).map_while(Result::ok) {
        if batch.header().next_offset() <= recovery_point {
            durable += batch.size();
        }
    }
    let keep = durable + (content.len() - durable) * keep_percent / 100;
    content.truncate(keep);
    content
        .extend((0..garbage).map(|index| if garbage.is_multiple_of(2) { 0 } else { index as u8 }));
    let found = Checkpoints { recovery_point, ..Checkpoints::default() };
    Bench::open(disk, config.clone(), found)
}

#[test]
fn a_folder_of_another_topic_is_set_aside_and_kept() {
    let mut bench = Bench::create(LogConfig::default());
    bench.append(3, 10, 1).expect("it is open");
    bench.run();
    let old = bench.close();
    let stray = |disk: &Disk| -> Vec<String> {
        let paths = disk.files.keys().map(|path| path.display().to_string());
        paths.filter(|path| path.contains("-stray/")).collect()
    };
    let metadata = Bench::path("partition.metadata");
    for has_metadata in [true, false] {
        for is_found in [true, false] {
            let mut disk = old.clone();
            let other = format!("version: 0\ntopic_id: {}", Uuid([9; 16]));
            match has_metadata {
                true => drop(disk.files.insert(metadata.clone(), other.into_bytes())),
                false => drop(disk.files.remove(&metadata)),
            }
            let config = LogConfig::default();
            let bench = match is_found {
                true => Bench::open(disk, config, clean()),
                false => Bench::make(disk, config),
            };
            // A log that was there before may have no metadata: older brokers wrote none.
            let is_stray = has_metadata || !is_found;
            let told = bench.events.first() == Some(&LogEvent::Stray);
            assert_eq!(told, is_stray, "{has_metadata} {is_found} {:?}", bench.events);
            let aside = stray(&bench.disk);
            let log = aside.iter().any(|path| path.ends_with("00000000000000000000.log"));
            assert_eq!(log, is_stray, "{has_metadata} {is_found} {aside:?}");
        }
    }
}

/// Copies what is left of a log, and writes it; how many pieces that took.
fn copy_rest(from: &Bench, place: &mut CopyPlace, to: &mut Bench) -> usize {
    let mut pieces = 0;
    while let CopyRead::Next { file, position, length } = from.log.copy_next(place, 1_000) {
        let slice = FileSlice { file, position, length };
        let batches = Batches::new(from.disk.bytes_of(&slice));
        let whole: Vec<Batch> = batches.map_while(Result::ok).collect();
        assert!(!whole.is_empty(), "a batch fits a piece");
        let all: Vec<_> = whole.iter().map(appended).collect();
        to.log.append_copied(to.now, &all).expect("there is room");
        to.run();
        place.advance(whole.iter().map(|batch| batch.size() as u32).sum());
        pieces += 1;
    }
    pieces
}

#[test]
fn a_copy_that_takes_the_place_of_its_log_has_what_that_had() {
    let config = LogConfig { segment_bytes: 2_000, ..LogConfig::default() };
    let mut old = Bench::create(config.clone());
    for index in 0..20 {
        old.append(3, 100, 1_000 + index).expect("there is room");
        old.run();
    }
    old.log.delete_records(old.now, Offset(31), &mut old.out).expect("it is there");
    old.run();
    let (mut place, start) = old.log.copy_begins();
    assert!(start <= Offset(31) && start > Offset(0), "segments below the start are gone");
    let mut out = Vec::new();
    // A topic whose segments may be no larger than a batch by now.
    let config = LogConfig { segment_bytes: 100, ..config };
    let log = Log::create_at(testing::params(config), start, &mut out);
    let mut copy = Bench::of(log, out);
    assert_eq!(copy.log.end_offset(), start);
    assert!(copy_rest(&old, &mut place, &mut copy) > 1);
    // It goes on where the log does.
    old.append(3, 100, 2_000).expect("there is room");
    old.run();
    assert_eq!(copy_rest(&old, &mut place, &mut copy), 1);
    assert!(matches!(old.log.copy_next(&mut place, 1), CopyRead::End));
    assert_eq!(old.log.copy_left(&place), Some(0));
    copy.log.delete_records(copy.now, Offset(31), &mut copy.out).expect("it reaches so far");
    copy.log.request_sync(&mut copy.out);
    copy.run();
    assert!(copy.log.is_settled() && old.log.is_settled());
    old.log.assign_leader_epoch(old.now, LeaderEpoch(7), &mut old.out);
    assert!(!old.log.is_settled(), "its epochs are being written");
    old.run();
    copy.log.rename("u-0", &mut copy.out);
    assert_eq!(copy.log.append(copy.now, &[]), Err(AppendError::Busy));
    copy.run();
    assert_eq!(copy.events.last(), Some(&LogEvent::Moved));
    assert!(copy.disk.count("sync directory") > 0);
    copy.log.succeed(copy.now, &mut old.log, &mut copy.out);
    copy.run();
    assert_eq!(copy.log.latest_leader_epoch(), Some(LeaderEpoch(7)));
    assert_eq!(copy.log.log_start_offset(), Offset(31));
    let end = old.log.end_offset();
    let read = |bench: &mut Bench| bench.consume(Offset(31), end, 1_000);
    assert_eq!(read(&mut copy), read(&mut old));
    assert!(copy.disk.files.keys().all(|path| path.starts_with("data/u-0")));
    old.log.remove_renamed(old.now);
    old.run_timer();
    assert_eq!(old.events.last(), Some(&LogEvent::Removed));
    assert!(old.disk.files.is_empty());
}

#[test]
fn a_copy_ends_where_its_log_does_whose_last_batches_are_gone() {
    let mut copy = Bench::create(LogConfig::default());
    copy.append(3, 100, 1_000).expect("there is room");
    copy.run();
    copy.log.skip_to(copy.now, Offset(9), &mut copy.out);
    copy.run();
    assert_eq!(copy.log.written_end_offset(), Offset(9));
    copy.append(1, 100, 1_000).expect("there is room");
    copy.run();
    let disk = copy.close();
    let mut again = Bench::open(disk, LogConfig::default(), clean());
    assert_eq!(again.log.end_offset(), Offset(10));
    let read = again.consume(Offset(0), Offset(10), 1_000);
    assert_eq!(read.len(), 2);
    assert_eq!(again.log.copy_place(Offset(4), &mut again.out), Ok(None));
    again.run();
    let place = again.log.copy_place(Offset(4), &mut again.out).expect("it is there");
    let CopyRead::Next { length, .. } =
        again.log.copy_next(&mut place.expect("it was found"), u32::MAX)
    else {
        panic!("there is a batch")
    };
    assert_eq!(length as usize, read[1].size());
}

#[test]
fn a_name_that_there_is_no_space_for_is_tried_again() {
    let mut bench = Bench::create(LogConfig::default());
    bench.append(1, 10, 1_000).expect("there is room");
    bench.run();
    bench.disk.failing = Some(("rename", IoErrorKind::NoSpace));
    bench.log.rename("u-0", &mut bench.out);
    bench.run();
    assert_eq!(bench.log.state(), LogState::Open);
    assert_eq!(bench.append(1, 10, 1_000), Err(AppendError::Busy));
    assert!(bench.log.stop_renaming() && !bench.log.stop_renaming());
    assert!(!bench.log.is_calm(), "the disk is full");
    bench.run_timer();
    assert!(bench.log.is_calm());
    bench.log.rename("u-0", &mut bench.out);
    bench.run();
    bench.disk.failing = None;
    bench.run_timer();
    assert_eq!(bench.events.last(), Some(&LogEvent::Moved));
    assert!(!bench.log.stop_renaming(), "it has the name");
    assert_eq!(bench.append(1, 10, 1_000), Err(AppendError::Busy));
    bench.log.live_on();
    bench.append(1, 10, 1_000).expect("it goes on");
    bench.run();
    let consumed = bench.consume(Offset(0), Offset(2), 1_000);
    assert_eq!(consumed.len(), 2);
    // A disk that fails ends it.
    bench.disk.failing = Some(("sync directory", IoErrorKind::Other));
    bench.log.rename("t-0", &mut bench.out);
    bench.run();
    assert_eq!(bench.log.state(), LogState::Failed);
}

/// Performs effects until nothing is left to do, and takes down in order which names of `.log`
/// files change, that they are made durable, and which are cut.
fn names_and_cuts(bench: &mut Bench) -> Vec<String> {
    let mut taken = Vec::new();
    while !bench.out.is_empty() {
        for effect in std::mem::take(&mut bench.out) {
            taken.extend(match &effect {
                FileEffect::Rename { from, .. } if from.extension() == Some("log".as_ref()) => {
                    Some(format!("set aside {}", base_of(from)))
                }
                FileEffect::Truncate { file, .. }
                    if file.path().extension() == Some("log".as_ref()) =>
                {
                    Some(format!("cut {}", base_of(&file.path())))
                }
                FileEffect::SyncDirectory { .. } => Some("sync names".to_owned()),
                _ => None,
            });
            let (step, outcome) = bench.disk.perform(effect).expect("it has an outcome");
            bench.log.on_file(bench.now, step, outcome, &mut bench.out, &mut bench.events);
        }
    }
    taken
}

fn base_of(path: &std::path::Path) -> i64 {
    let stem = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
    stem.parse().expect("it is an offset")
}

/// After a loss of power a segment must not be back behind what was appended since, nor be there
/// without the one before it.
#[test]
fn segments_behind_the_end_go_durably_one_by_one_before_anything_else() {
    let bases: Vec<i64> = {
        let bench = Bench::open(fixture(), fixture_config(), clean());
        let logs = bench.disk.files.keys().filter(|path| path.extension() == Some("log".as_ref()));
        logs.map(|path| base_of(path)).collect()
    };
    assert!(bases.len() >= 4, "{bases:?}");
    let (cut, later) = (bases[1], &bases[2..]);
    let mut wanted: Vec<String> = Vec::new();
    for base in later.iter().rev() {
        wanted.extend([format!("set aside {base}"), "sync names".to_owned()]);
    }
    wanted.push(format!("cut {cut}"));

    let mut disk = fixture();
    let log = Bench::path(&format!("{cut:020}.log"));
    disk.files.get_mut(&log).expect("there")[200] ^= 1;
    let mut out = Vec::new();
    let params = testing::params(fixture_config());
    let found = Checkpoints { recovery_point: Offset(cut), ..Checkpoints::default() };
    let log = Log::open(params, found, &mut out);
    let now = Now { mono: Instant::from_nanos(1), wall_ms: 1_000_000 };
    let mut bench = Bench { disk, log, out, events: Vec::new(), now };
    let taken = names_and_cuts(&mut bench);
    assert_eq!(taken[..wanted.len()], wanted[..], "when it is recovered");

    let mut bench = Bench::open(fixture(), fixture_config(), clean());
    let batches = fixture_batches().into_iter().map(|batch| batch.header().base_offset);
    let within = batches.filter(|base| *base > Offset(cut)).min().expect("it has several");
    bench.log.truncate_to(bench.now, within, &mut bench.out, &mut bench.events);
    let taken = names_and_cuts(&mut bench);
    assert_eq!(taken[..wanted.len()], wanted[..], "when its end is cut off");
}

#[test]
fn a_log_that_keeps_still_removes_nothing_and_stays_settled() {
    let mut bench = Bench::open(fixture(), fixture_config(), clean());
    bench.log.truncate_to(bench.now, Offset(33), &mut bench.out, &mut bench.events);
    bench.run();
    let due = bench.log.next_timer().expect("segments were set aside");
    bench.log.keep_still();
    assert_eq!(bench.log.next_timer(), None);
    bench.now.mono = due;
    bench.log.on_timer(bench.now, &mut bench.out, &mut bench.events);
    assert!(bench.out.is_empty() && bench.log.is_settled(), "{:?}", bench.out);
    bench.log.live_on();
    bench.run_timer();
    assert!(!bench.disk.files.keys().any(|path| path.to_string_lossy().contains("deleted")));
}
