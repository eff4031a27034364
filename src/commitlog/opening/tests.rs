//! Every case of `docs/recovery.md`, on a log that Apache Kafka 4.4.0 wrote.

use std::path::{Path, PathBuf};

use super::*;
use crate::testing::{Bench, Disk, FOLDER, clean, kafka_log};
use crate::{LogConfig, LogEvent};

const END: i64 = 134;

fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

fn file<'a>(disk: &'a mut Disk, name: &str) -> &'a mut Vec<u8> {
    disk.files.get_mut(&path(name)).expect("Kafka wrote it")
}

fn put(disk: &mut Disk, name: &str, content: &[u8]) {
    disk.files.insert(path(name), content.to_vec());
}

fn remove_segment(disk: &mut Disk, base: &str) {
    let is_its = |path: &Path| path.to_string_lossy().contains(&format!("/{base}."));
    disk.files
        .retain(|path, _| !is_its(path) || path.extension().is_some_and(|it| it == "snapshot"));
}

fn remove(disk: &mut Disk, ending: &str) {
    disk.files.retain(|path, _| !path.to_string_lossy().ends_with(ending));
}

/// Where the last batch of a `.log` begins.
fn last_batch(log: &[u8]) -> usize {
    let read = records::Batches::new(Bytes::copy_from_slice(log));
    log.len() - read.map(|batch| batch.expect("it is whole").size()).last().expect("there is one")
}

fn opened(bench: &Bench) -> (Vec<Case>, Offset, Offset) {
    match &bench.events[..] {
        [LogEvent::Opened { log_start_offset, end_offset, cases }] => {
            (cases.iter().collect(), *log_start_offset, *end_offset)
        }
        other => panic!("{other:?}"),
    }
}

#[derive(Clone)]
struct Row {
    found: Checkpoints,
    damage: fn(&mut Disk),
    cases: &'static [Case],
    start: i64,
    end: i64,
}

fn killed() -> Checkpoints {
    Checkpoints { recovery_point: Offset(110), ..Checkpoints::default() }
}

fn row(found: Checkpoints, damage: fn(&mut Disk), cases: &'static [Case]) -> Row {
    Row { found, damage, cases, start: 0, end: END }
}

/// Files that are there or not, and what is in those that are no segment's.
fn rows_of_folders() -> Vec<Row> {
    use Case::*;
    vec![
        row(clean(), |_| {}, &[]),
        row(clean(), |disk| put(disk, "00000000000000000500.log.deleted", b""), &[Leftover]),
        row(clean(), |disk| put(disk, "00000000000000000500.index", b""), &[IndexAlone]),
        row(
            clean(),
            |disk| {
                put(disk, "00000000000000000021.log.cleaned", b"");
                put(disk, "00000000000000000021.index.swap", b"");
            },
            &[Leftover, CompactionInterrupted],
        ),
        row(clean(), |disk| put(disk, "leader-epoch-checkpoint", b"no"), &[EpochsUnreadable]),
        row(
            clean(),
            |disk| put(disk, "leader-epoch-checkpoint", b"0\n2\n0 0\n1 135\n"),
            &[EpochsAboveEnd],
        ),
        // As every leader leaves it that has written nothing.
        row(clean(), |disk| put(disk, "leader-epoch-checkpoint", b"0\n2\n0 0\n1 134\n"), &[]),
        row(clean(), |disk| remove(disk, "partition.metadata"), &[MetadataMissing]),
        Row {
            end: 0,
            ..row(
                clean(),
                |disk| disk.files.retain(|path, _| path.ends_with("partition.metadata")),
                &[SegmentMissing],
            )
        },
        Row {
            start: 500,
            end: 500,
            ..row(
                Checkpoints { log_start_offset: Offset(500), ..clean() },
                |_| {},
                &[EndsBeforeStart],
            )
        },
        Row {
            start: 21,
            ..row(
                Checkpoints { log_start_offset: Offset(5), ..clean() },
                |disk| remove_segment(disk, "00000000000000000000"),
                &[StartMissing],
            )
        },
        Row {
            end: 128,
            ..row(
                Checkpoints { recovery_point: Offset(END), ..clean() },
                |disk| remove_segment(disk, "00000000000000000128"),
                &[SnapshotMissing, SnapshotNeedless, EndMissing],
            )
        },
    ]
}

/// Segments that are not taken over, and what is found in them.
fn rows_of_segments() -> Vec<Row> {
    use Case::*;
    let cut = |damage, cases, end| Row { end, ..row(killed(), damage, cases) };
    vec![
        row(killed(), |_| {}, &[Unflushed, EndUnflushed]),
        row(clean(), |disk| remove(disk, "042.index"), &[IndexMissing, SnapshotMissing]),
        row(
            clean(),
            |disk| file(disk, "00000000000000000105.txnindex").truncate(33),
            &[AbortedUnreadable, SnapshotMissing],
        ),
        Row {
            end: 133,
            ..row(
                clean(),
                |disk| {
                    let log = file(disk, "00000000000000000128.log");
                    // Its magic.
                    let place = last_batch(log) + 16;
                    log[place] = 9;
                },
                &[EndUnreadable, Corrupt, SnapshotMissing, SnapshotNeedless],
            )
        },
        cut(
            |disk| assert!(file(disk, "00000000000000000128.log").pop().is_some()),
            &[Unflushed, Torn, SnapshotNeedless, EndUnflushed],
            133,
        ),
        cut(
            |disk| *file(disk, "00000000000000000128.log").last_mut().expect("it has bytes") ^= 1,
            &[Unflushed, Corrupt, SnapshotNeedless, EndUnflushed],
            133,
        ),
        cut(
            |disk| {
                let log = file(disk, "00000000000000000105.log");
                log.truncate(last_batch(log));
            },
            &[Unflushed, BatchesMissing, SnapshotNeedless, EndUnflushed],
            127,
        ),
    ]
}

/// Segments that are gone, below the recovery point or after an orderly stop.
fn rows_of_gaps() -> Vec<Row> {
    use Case::*;
    vec![row(
        clean(),
        |disk| {
            remove_segment(disk, "00000000000000000105");
            remove(disk, "00000000000000000084.index");
        },
        &[IndexMissing, Gap, SnapshotMissing, SnapshotNeedless],
    )]
}

fn rows_of_producers() -> Vec<Row> {
    use Case::*;
    vec![
        row(clean(), |disk| remove(disk, ".snapshot"), &[ProducersUnknown]),
        row(
            clean(),
            |disk| file(disk, "00000000000000000134.snapshot")[9] ^= 1,
            &[SnapshotUnreadable, SnapshotMissing],
        ),
        row(
            clean(),
            |disk| {
                let content = file(disk, "00000000000000000042.snapshot").clone();
                put(disk, "00000000000000000050.snapshot", &content);
            },
            &[SnapshotNeedless],
        ),
    ]
}

#[test]
fn every_case_has_its_name_and_leaves_a_log_in_order() {
    let mut seen = Vec::new();
    for Row { found, damage, cases, start, end } in
        [rows_of_folders(), rows_of_segments(), rows_of_gaps(), rows_of_producers()].concat()
    {
        let mut disk = kafka_log("producers-0");
        damage(&mut disk);
        let bench = Bench::open(disk, LogConfig::default(), found);
        assert_eq!(opened(&bench), (cases.to_vec(), Offset(start), Offset(end)));
        seen.extend_from_slice(cases);
        let found = Checkpoints { log_start_offset: Offset(start), ..clean() };
        let again = Bench::open(bench.close(), LogConfig::default(), found);
        let (left, start_again, end_again) = opened(&again);
        assert_eq!((start_again, end_again), (Offset(start), Offset(end)), "after {cases:?}");
        // What was set aside has its time yet, and a log without producers has no snapshot.
        let is_left = |case: &Case| matches!(case, Case::Leftover | Case::ProducersUnknown);
        assert!(left.iter().all(is_left), "after {cases:?}: {left:?}");
    }
    let missing: Vec<_> = Case::ALL.iter().filter(|case| !seen.contains(case)).collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
}

#[test]
fn what_was_set_aside_is_not_back_after_a_loss_of_power() {
    let mut disk = kafka_log("producers-0");
    file(&mut disk, "00000000000000000000.log").truncate(1);
    // Nothing is above the recovery point and no epoch is left to be forgotten, so that nothing
    // else needs a sync.
    remove(&mut disk, "leader-epoch-checkpoint");
    let later =
        disk.files.keys().filter(|path| path.extension() == Some("log".as_ref())).count() - 1;
    let bench = Bench::open(disk, LogConfig::default(), Checkpoints::default());
    let (cases, _, end) = opened(&bench);
    assert!(cases.contains(&Case::Torn) && end == Offset(0), "{cases:?}, {end}");
    assert_eq!((bench.disk.count("sync"), bench.disk.count("sync directory")), (0, later));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test reads the page")]
fn the_page_has_every_case() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/recovery.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let tables = page.split("\n\n").filter(|text| text.starts_with("| case |"));
    let rows = tables.flat_map(|table| table.lines().skip(2));
    let listed: Vec<_> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    let names: Vec<_> = Case::ALL.iter().map(|case| case.name()).collect();
    assert_eq!(listed, names);
}
