//! What a server does with its logs on its own: recovering them after a crash, compacting them.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::frames::BatchShape;
use crate::measure::{self, Measured, PREFILL_SHAPE};
use crate::servers::{Place, Server, Target};
use crate::wire::Client;

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
    let mut bytes = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".cleaned") || name.ends_with(".swap") {
            return false;
        }
        if name.ends_with(".log") {
            // A file that is gone by now is of another moment: look again.
            let Ok(metadata) = entry.metadata() else { return false };
            bytes += metadata.len();
        }
    }
    bytes < BYTES / 4
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
