//! What a reader of an old log does to those who produce meanwhile.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::load::{Load, Pace, Plan};
use crate::measure::{self, FETCH_WAIT_MAX, Measured, PREFILL_SHAPE, Producing, Times};
use crate::servers::{Server, Target};
use crate::wire::{Client, Topic};
use crate::work::{Fetch, FetchFrom, FetchShape, Produce};

/// The topic with the old log, which stays from round to round. The bare program has it, too.
pub(crate) const OLD_TOPIC: &str = "old-log";
/// How long it is, in bytes: more than is read while somebody produces.
pub(crate) const OLD_BYTES: u64 = 4 << 30;
/// An answer of the reader.
const ANSWER_BYTES: i32 = 1 << 20;
/// How long the reader reads before anything is counted.
const LEAD: Duration = Duration::from_millis(200);
/// How long is waited once the log was taken out of the page cache. A virtual machine may give free
/// memory back to its host (free page reporting): Linux begins 2 s after it became free, takes some
/// 2 s for each 700 MB, and stands still again and again meanwhile, whatever the server does.
const GIVE_BACK_TIME: Duration = Duration::from_secs(14);

/// Produces twice beside a reader at full speed: once the log that it reads is in the page cache,
/// once it is not. `cold_first` says in which order.
///
/// # Errors
/// A sentence: an answer is wrong, or the log cannot be taken out of the cache.
pub(crate) fn produce(
    server: &Server,
    name: &str,
    how: &Producing,
    cold_first: bool,
    times: Times,
) -> Result<Measured, String> {
    let mut client = Client::connect(server.address())?;
    let known = match server.target {
        // It knows every name, and has no log before it is told to make one.
        Target::Bare => None,
        Target::Corelane | Target::Kafka => client.find_topic(OLD_TOPIC, 1)?,
    };
    let old = match known {
        Some(old) => old,
        None => old_log(server, &mut client)?,
    };
    let topic = client.create_topic(name, how.partitions, how.configs())?;
    let work = Produce::new(&client, &topic, &how.shape(), how.connections)?;
    let plan = how.plan(work.payload_bytes(), times.measured);
    let mut load = Load::connect(server.address(), how.connections, work)?;
    load.run(Plan { duration: times.warm_up, ..plan })?;
    let mut measured = Measured::default();
    for cold in [cold_first, !cold_first] {
        set_cache(&server.data().join(format!("{OLD_TOPIC}-0")), cold)?;
        let reader = reader(server, &mut client, &old, times.measured + 2 * LEAD)?;
        thread::sleep(LEAD);
        let figures = measure::run(server, &mut load, plan)?.figures();
        reader.join().map_err(|_| "the reader has failed".to_owned())??;
        if cold {
            let warm = measured.p99_beside_warm_ms;
            measured = Measured { p99_beside_warm_ms: warm, ..figures };
        } else {
            measured.p99_beside_warm_ms = figures.p99_ms;
        }
    }
    let (cold, warm) = (measured.p99_ms, measured.p99_beside_warm_ms);
    measured.cold_to_warm = cold.zip(warm).map(|(cold, warm)| cold / warm);
    client.delete_topic(&topic)?;
    Ok(measured)
}

fn old_log(server: &Server, client: &mut Client) -> Result<Topic, String> {
    let topic = client.create_topic(OLD_TOPIC, 1, &[])?;
    if server.target != Target::Bare {
        measure::prefill(server, client, &topic, OLD_BYTES, &PREFILL_SHAPE)?;
    }
    Ok(topic)
}

/// Brings the files of a log into the page cache, or takes them out of it.
fn set_cache(folder: &Path, cold: bool) -> Result<(), String> {
    // What was not written to the disk stays in the cache.
    let script = match cold {
        true => "sync && for file in \"$1\"/*.log; do dd if=\"$file\" iflag=nocache count=0; done",
        false => "cat \"$1\"/*.log >/dev/null",
    };
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(folder);
    let output = command.output().map_err(|error| format!("starting sh: {error}"))?;
    if !output.status.success() {
        return Err(format!("the page cache: {}", String::from_utf8_lossy(&output.stderr)));
    }
    if cold {
        thread::sleep(GIVE_BACK_TIME);
    }
    Ok(())
}

type Reader = thread::JoinHandle<Result<(), String>>;

fn reader(
    server: &Server,
    client: &mut Client,
    topic: &Topic,
    duration: Duration,
) -> Result<Reader, String> {
    let (from, unit) = (FetchFrom::StartInCircles, server.target.offset_unit());
    let shape = FetchShape { bytes_max: ANSWER_BYTES, wait_max: FETCH_WAIT_MAX, from, unit };
    let work = Fetch::new(client, topic, shape, 1)?;
    let requests_max = u64::MAX;
    let plan = Plan { connections: 1, depth: 1, pace: Pace::Saturate, duration, requests_max };
    let address = server.address();
    let read = move || Load::connect(address, 1, work)?.run(plan).map(drop);
    Ok(thread::spawn(read))
}
