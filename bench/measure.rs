//! One scenario against one server: what came of it, and what it cost the server.

use std::thread;
use std::time::{Duration, Instant};

use crate::frames::BatchShape;
use crate::latency::Latencies;
use crate::load::{Load, Outcome, Pace, Plan};
use crate::servers::{Server, Target};
use crate::wire::{Client, Topic};
use crate::work::{Fetch, FetchFrom, FetchShape, Produce};

/// What is fetched is produced before, in such batches.
pub(crate) const PREFILL_SHAPE: BatchShape =
    BatchShape { batch_bytes: 16 << 10, record_bytes: 1_000, keyed: false, acks: 1 };
/// How much is there to be fetched, in bytes.
const PREFILL_BYTES: u64 = 256 << 20;
/// How long producing that may take.
const PREFILL_TIME_MAX: Duration = Duration::from_secs(60);
/// Where a produce load ends early: beyond it the disk is measured, which throttles all writers
/// once too much of the page cache waits for it.
const PRODUCED_BYTES_MAX: u64 = 2_000_000_000;
/// How long a broker waits for the first byte of a fetch.
pub(crate) const FETCH_WAIT_MAX: Duration = Duration::from_millis(500);
/// How long the memory of a server is let settle.
const SETTLE_TIME: Duration = Duration::from_millis(500);
/// How long a consumer may lag behind the last record that was produced.
const CATCH_UP_TIME: Duration = Duration::from_millis(600);

/// How a produce load is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Producing {
    /// Partitions of the topic.
    pub(crate) partitions: i32,
    /// Connections.
    pub(crate) connections: usize,
    /// Requests in flight on each.
    pub(crate) depth: usize,
    /// Bytes of a batch; 0 for a record each.
    pub(crate) batch_bytes: usize,
    /// Bytes of a record's value.
    pub(crate) record_bytes: usize,
    /// A batch for each partition in each request.
    pub(crate) keyed: bool,
    /// In bytes of batches a second, or `None` to saturate.
    pub(crate) bytes_per_second: Option<f64>,
    /// Nothing is acknowledged before it is synced (`flush.messages=1`).
    pub(crate) synced: bool,
}

/// How long to load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Before anything is counted, so that a virtual machine has compiled what it needs.
    pub(crate) warm_up: Duration,
    /// While it is counted.
    pub(crate) measured: Duration,
}

/// What a round came to. Figures that a scenario does not have are `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// Server CPU seconds for 10⁹ bytes of batches.
    pub(crate) cpu_per_gigabyte: Option<f64>,
    /// Server CPU seconds for 10⁶ requests.
    pub(crate) cpu_per_million: Option<f64>,
    /// Requests for each CPU second of the server.
    pub(crate) requests_per_cpu: Option<f64>,
    /// 10⁶ bytes of batches a second.
    pub(crate) megabytes_per_second: Option<f64>,
    /// Requests a second.
    pub(crate) requests_per_second: Option<f64>,
    /// Requests that could not be sent when they were meant to be, even late.
    pub(crate) unsent: Option<f64>,
    /// Milliseconds from the intended time of a request to its answer: the median.
    pub(crate) p50_ms: Option<f64>,
    /// The 99th percentile.
    pub(crate) p99_ms: Option<f64>,
    /// The 99.9th percentile.
    pub(crate) p999_ms: Option<f64>,
    /// The longest.
    pub(crate) max_ms: Option<f64>,
    /// The 99th percentile beside a reader of what is in the page cache.
    pub(crate) p99_beside_warm_ms: Option<f64>,
    /// That beside a reader of what is not, as a multiple of it.
    pub(crate) cold_to_warm: Option<f64>,
    /// The 99th percentile while the server has nothing else to do.
    pub(crate) p99_alone_ms: Option<f64>,
    /// That while it has, as a multiple of it.
    pub(crate) beside_to_alone: Option<f64>,
    /// All of them, for a picture.
    pub(crate) latencies: Option<Latencies>,
    /// Resident megabytes before any load.
    pub(crate) idle_megabytes: Option<f64>,
    /// Resident megabytes at the end of the load.
    pub(crate) loaded_megabytes: Option<f64>,
    /// Resident kilobytes that each idle connection adds.
    pub(crate) kilobytes_per_connection: Option<f64>,
    /// Milliseconds from the start of the program to its first answer, on a new folder.
    pub(crate) first_start_ms: Option<f64>,
    /// The same on a folder that was used before.
    pub(crate) later_start_ms: Option<f64>,
    /// Milliseconds from the start of the program after a crash until every partition answers.
    pub(crate) recovery_ms: Option<f64>,
}

/// Loads a server with requests to produce, and counts what is there afterwards.
///
/// # Errors
/// A sentence: an answer is wrong, or records are missing.
pub(crate) fn produce(
    server: &Server,
    name: &str,
    how: &Producing,
    times: Times,
) -> Result<Measured, String> {
    let mut client = Client::connect(server.address())?;
    let topic = client.create_topic(name, how.partitions, how.configs())?;
    let work = Produce::new(&client, &topic, &how.shape(), how.connections)?;
    let plan = how.plan(work.payload_bytes(), times.measured);
    let mut load = Load::connect(server.address(), how.connections, work)?;
    let warm_up = load.run(Plan { duration: times.warm_up, ..plan })?;
    let measured = run(server, &mut load, plan)?;
    check_offsets(server, &mut client, &topic, warm_up.records + measured.outcome.records)?;
    drop(load);
    client.delete_topic(&topic)?;
    Ok(measured.figures())
}

/// Loads a server with consumers that read a topic in circles from the page cache.
///
/// # Errors
/// A sentence: an answer is wrong.
pub(crate) fn fetch(
    server: &Server,
    name: &str,
    connections: usize,
    bytes_max: i32,
    times: Times,
) -> Result<Measured, String> {
    let mut client = Client::connect(server.address())?;
    let topic = client.create_topic(name, 1, &[])?;
    if server.target != Target::Bare {
        prefill(server, &client, &topic, PREFILL_BYTES, &PREFILL_SHAPE)?;
    }
    let from = FetchFrom::StartInCircles;
    let unit = server.target.offset_unit();
    let shape = FetchShape { bytes_max, wait_max: FETCH_WAIT_MAX, from, unit };
    let work = Fetch::new(&mut client, &topic, shape, connections)?;
    let mut load = Load::connect(server.address(), connections, work)?;
    let plan = Plan {
        connections,
        depth: 1,
        pace: Pace::Saturate,
        duration: times.measured,
        requests_max: u64::MAX,
    };
    load.run(Plan { duration: times.warm_up, ..plan })?;
    let measured = run(server, &mut load, plan)?;
    drop(load);
    client.delete_topic(&topic)?;
    Ok(measured.figures())
}

/// Loads a server with producers and, at the same time, consumers that wait for each record.
///
/// # Errors
/// A sentence: an answer is wrong, or a consumer did not see all that was produced.
pub(crate) fn long_poll(
    server: &Server,
    name: &str,
    how: &Producing,
    bytes_max: i32,
    times: Times,
) -> Result<Measured, String> {
    let mut client = Client::connect(server.address())?;
    let topic = client.create_topic(name, how.partitions, how.configs())?;
    let work = Produce::new(&client, &topic, &how.shape(), how.connections)?;
    let plan = how.plan(work.payload_bytes(), times.measured);
    let mut load = Load::connect(server.address(), how.connections, work)?;
    load.run(Plan { duration: times.warm_up, ..plan })?;
    let consumers = how.partitions as usize;
    let (from, unit) = (FetchFrom::End, server.target.offset_unit());
    let shape = FetchShape { bytes_max, wait_max: FETCH_WAIT_MAX, from, unit };
    let work = Fetch::new(&mut client, &topic, shape, consumers)?;
    let fetch_plan = Plan {
        connections: consumers,
        depth: 1,
        pace: Pace::Saturate,
        duration: times.measured + CATCH_UP_TIME,
        requests_max: u64::MAX,
    };
    let address = server.address();
    let (measured, fetched) = thread::scope(|scope| {
        let consume = move || Load::connect(address, consumers, work)?.run(fetch_plan);
        let consumer = scope.spawn(consume);
        let measured = run(server, &mut load, plan);
        (measured, consumer.join().map_err(|_| "the consumers have failed".to_owned()))
    });
    let (measured, fetched) = (measured?, fetched??);
    if fetched.records != measured.outcome.records {
        let produced = measured.outcome.records;
        return Err(format!("{} records of {produced} were fetched", fetched.records));
    }
    drop(load);
    client.delete_topic(&topic)?;
    Ok(measured.figures())
}

/// Memory before any load, and what idle connections add to it.
///
/// # Errors
/// A sentence: a connection is refused.
pub(crate) fn idle(server: &Server, connections: usize) -> Result<Measured, String> {
    thread::sleep(SETTLE_TIME);
    let before = server.process().resident_bytes()?;
    let clients: Result<Vec<Client>, String> =
        (0..connections).map(|_| Client::connect(server.address())).collect();
    let clients = clients?;
    thread::sleep(SETTLE_TIME);
    let after = server.process().resident_bytes()?;
    drop(clients);
    let added = after.saturating_sub(before) as f64 / 1024.0;
    Ok(Measured {
        idle_megabytes: Some(before as f64 / 1e6),
        kilobytes_per_connection: Some(added / connections as f64),
        ..Measured::default()
    })
}

/// What a load came to, with the server's share.
pub(crate) struct Run {
    outcome: Outcome,
    cpu_seconds: f64,
    loaded_bytes: u64,
}

pub(crate) fn run<W: crate::load::Work>(
    server: &Server,
    load: &mut Load<W>,
    plan: Plan,
) -> Result<Run, String> {
    let before = server.process().cpu_seconds()?;
    let outcome = load.run(plan)?;
    let cpu_seconds = server.process().cpu_seconds()? - before;
    if outcome.requests == 0 {
        return Err("not one request was answered".to_owned());
    }
    Ok(Run { outcome, cpu_seconds, loaded_bytes: server.process().resident_bytes()? })
}

impl Run {
    pub(crate) fn figures(self) -> Measured {
        let Run { outcome, cpu_seconds, loaded_bytes } = self;
        let percentile = |percent| Some(outcome.latencies.percentile_ms(percent));
        Measured {
            cpu_per_gigabyte: Some(cpu_seconds / (outcome.bytes as f64 / 1e9)),
            cpu_per_million: Some(cpu_seconds / (outcome.requests as f64 / 1e6)),
            requests_per_cpu: Some(outcome.requests as f64 / cpu_seconds.max(0.01)),
            megabytes_per_second: Some(outcome.megabytes_per_second()),
            requests_per_second: Some(outcome.requests_per_second()),
            unsent: Some(outcome.unsent as f64),
            p50_ms: percentile(50.0),
            p99_ms: percentile(99.0),
            p999_ms: percentile(99.9),
            max_ms: percentile(100.0),
            latencies: Some(outcome.latencies),
            loaded_megabytes: Some(loaded_bytes as f64 / 1e6),
            ..Measured::default()
        }
    }
}

impl Producing {
    /// The settings of the topic.
    pub(crate) fn configs(&self) -> &'static [(&'static str, &'static str)] {
        if self.synced { &[("flush.messages", "1")] } else { &[] }
    }

    pub(crate) fn shape(&self) -> BatchShape {
        let Self { batch_bytes, record_bytes, keyed, .. } = *self;
        BatchShape { batch_bytes, record_bytes, keyed, acks: 1 }
    }

    pub(crate) fn plan(&self, payload_bytes: usize, duration: Duration) -> Plan {
        let pace = match self.bytes_per_second {
            Some(bytes) => Pace::Rate(bytes / payload_bytes as f64),
            None => Pace::Saturate,
        };
        let Self { connections, depth, .. } = *self;
        let requests_max = PRODUCED_BYTES_MAX / payload_bytes as u64;
        Plan { connections, depth, pace, duration, requests_max }
    }
}

/// Every record that was acknowledged must have an offset. The bare program has none.
fn check_offsets(
    server: &Server,
    client: &mut Client,
    topic: &Topic,
    records: u64,
) -> Result<(), String> {
    if server.target == Target::Bare {
        return Ok(());
    }
    let found: i64 = client.end_offsets(topic)?.iter().sum();
    match u64::try_from(found) == Ok(records) {
        true => Ok(()),
        false => Err(format!("{records} records were acknowledged, the offsets say {found}")),
    }
}

/// Produces what is there before something is measured.
///
/// # Errors
/// A sentence: it is refused, or takes too long.
pub(crate) fn prefill(
    server: &Server,
    client: &Client,
    topic: &Topic,
    bytes: u64,
    shape: &BatchShape,
) -> Result<(), String> {
    let connections = 2;
    let work = Produce::new(client, topic, shape, connections)?;
    let requests_max = bytes / work.payload_bytes() as u64;
    let mut load = Load::connect(server.address(), connections, work)?;
    let plan = Plan {
        connections,
        depth: 5,
        pace: Pace::Saturate,
        duration: PREFILL_TIME_MAX,
        requests_max,
    };
    let started = Instant::now();
    let outcome = load.run(plan)?;
    match outcome.requests == requests_max {
        true => Ok(()),
        false => Err(format!("producing what has to be there took {:?}", started.elapsed())),
    }
}
