//! What a server does with its logs on its own: recovering them after a crash, compacting them,
//! deleting old segments; and what the latter two do to those who produce meanwhile.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::frames::BatchShape;
use crate::load::Load;
use crate::measure::{self, Measured, PREFILL_SHAPE, Producing, Times};
use crate::servers::{Place, Server, Target};
use crate::wire::Client;
use crate::work::Produce;

/// How much is produced before, in bytes: less than any broker syncs by itself.
const BYTES: u64 = 1 << 30;
/// The batches of the log that is compacted.
const KEYED: BatchShape = BatchShape { record_bytes: 100, keyed: true, ..PREFILL_SHAPE };
/// What holds compaction back until it is changed.
const LAG: (&str, &str) = ("min.compaction.lag.ms", "3600000");
/// Partitions of the topic that is recovered.
const PARTITIONS: i32 = 100;
/// How long either may take.
const TIME_MAX: Duration = Duration::from_secs(120);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// How much a server works on while somebody produces, in bytes: for longer than is measured.
const BESIDE_BYTES: u64 = 4 << 30;
/// Settings of a server that looks often for something to do.
const EAGER: &[(&str, &str)] =
    &[("log.cleaner.backoff.ms", "100"), ("log.retention.check.interval.ms", "100")];

/// What a server does with a log on its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Upkeep {
    /// It compacts it.
    Cleaning,
    /// It deletes the segments that retention gives up.
    Deleting,
}

impl Upkeep {
    /// The log's settings until it begins.
    fn configs(self) -> [(&'static str, &'static str); 4] {
        let size = ("segment.bytes", "67108864");
        let delay = ("file.delete.delay.ms", "0");
        match self {
            Upkeep::Cleaning => [("cleanup.policy", "compact"), size, delay, LAG],
            Upkeep::Deleting => {
                [("cleanup.policy", "delete"), size, delay, ("retention.bytes", "-1")]
            }
        }
    }

    /// The setting that begins it.
    fn begins_with(self) -> (&'static str, &'static str) {
        match self {
            Upkeep::Cleaning => (LAG.0, "0"),
            Upkeep::Deleting => ("retention.bytes", "1"),
        }
    }
}

/// Produces twice on a server of its own: while it has nothing else to do, and while it compacts
/// a long log or deletes it.
///
/// # Errors
/// A sentence: it is refused, or the server does nothing.
pub(crate) fn produce_beside(
    target: Target,
    place: &Place,
    upkeep: Upkeep,
    how: &Producing,
    times: Times,
) -> Result<Measured, String> {
    let server = Server::start(target, place, EAGER)?;
    let mut client = Client::connect(server.address())?;
    let old = client.create_topic("kept-up", 1, &upkeep.configs())?;
    measure::prefill(&server, &client, &old, BESIDE_BYTES, &KEYED)?;
    sync()?;
    let topic = client.create_topic("produced", how.partitions, how.configs())?;
    let work = Produce::new(&client, &topic, &how.shape(), how.connections)?;
    let plan = how.plan(work.payload_bytes(), times.measured);
    let mut load = Load::connect(server.address(), how.connections, work)?;
    load.run(crate::load::Plan { duration: times.warm_up, ..plan })?;
    let alone = measure::run(&server, &mut load, plan)?.figures();
    let folder = server.data().join("kept-up-0");
    let before = bytes_in(&folder);
    let (setting, value) = upkeep.begins_with();
    client.set_config(&old, setting, value)?;
    let beside = measure::run(&server, &mut load, plan)?.figures();
    wait_until(|| Ok(bytes_in(&folder) < before / 2))?;
    let (p99_alone_ms, p99_ms) = (alone.p99_ms, beside.p99_ms);
    let beside_to_alone = p99_ms.zip(p99_alone_ms).map(|(beside, alone)| beside / alone);
    Ok(Measured { p99_alone_ms, beside_to_alone, ..beside })
}

/// Brings what was written to the disk, so that it does not get there while something is measured.
fn sync() -> Result<(), String> {
    let status = std::process::Command::new("sync").status();
    status.map(drop).map_err(|error| format!("starting sync: {error}"))
}

/// The time from the start of a server whose log was not closed, and is in the page cache, to the
/// first answer that knows the end of every partition.
///
/// # Errors
/// A sentence: it does not come up, or records are missing.
pub(crate) fn recovery(target: Target, place: &Place) -> Result<Measured, String> {
    let mut server = Server::start(target, place, &[])?;
    let mut client = Client::connect(server.address())?;
    let topic = client.create_topic("recovered", PARTITIONS, &[])?;
    measure::prefill(&server, &client, &topic, BYTES, &PREFILL_SHAPE)?;
    let ends = client.end_offsets(&topic)?;
    drop(client);
    server.kill();
    server.start_again()?;
    let (started, before) = (Instant::now(), server.process().start_time);
    let mut client = Client::connect(server.address())?;
    wait_until(|| Ok(client.end_offsets(&topic).is_ok_and(|found| found == ends)))?;
    let recovered = before + started.elapsed();
    Ok(Measured {
        recovery_ms: Some(recovered.as_secs_f64() * 1e3),
        cpu_per_gigabyte: Some(server.process().cpu_seconds()? / (BYTES as f64 / 1e9)),
        ..Measured::default()
    })
}

/// What it costs to compact a log in which the same keys come again and again.
///
/// # Errors
/// A sentence: it takes too long.
pub(crate) fn compaction(target: Target, place: &Place) -> Result<Measured, String> {
    let server = Server::start(target, place, &[("log.cleaner.backoff.ms", "100")])?;
    let mut client = Client::connect(server.address())?;
    // While it is filled nothing is due.
    let configs = [("cleanup.policy", "compact"), ("segment.bytes", "67108864"), LAG];
    let topic = client.create_topic("compacted", 1, &configs)?;
    measure::prefill(&server, &client, &topic, BYTES, &KEYED)?;
    let (before, started) = (server.process().cpu_seconds()?, Instant::now());
    client.set_config(&topic, LAG.0, "0")?;
    let folder = server.data().join(format!("{}-0", topic.name));
    wait_until(|| Ok(is_compacted(&folder)))?;
    let seconds = started.elapsed().as_secs_f64();
    let cpu = server.process().cpu_seconds()? - before;
    Ok(Measured {
        megabytes_per_second: Some(BYTES as f64 / 1e6 / seconds),
        cpu_per_gigabyte: Some(cpu / (BYTES as f64 / 1e9)),
        loaded_megabytes: Some(server.process().resident_bytes()? as f64 / 1e6),
        ..Measured::default()
    })
}

/// Whether little is left of the log, and nothing is being replaced.
fn is_compacted(folder: &Path) -> bool {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_replacing = names.any(|name| name.ends_with(".cleaned") || name.ends_with(".swap"));
    !is_replacing && bytes_in(folder) < BYTES / 4
}

/// The bytes of the segments in a folder. One that is gone by the time it is looked at makes it too
/// many: look again.
fn bytes_in(folder: &Path) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().ends_with(".log") {
            let Ok(metadata) = entry.metadata() else { return u64::MAX };
            bytes += metadata.len();
        }
    }
    bytes
}

fn wait_until(mut holds: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    let started = Instant::now();
    while !holds()? {
        if started.elapsed() > TIME_MAX {
            return Err(format!("it takes longer than {TIME_MAX:?}"));
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}
