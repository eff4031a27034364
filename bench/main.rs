//! `cargo run --release -p bench`: load a broker, be the ceiling, or compare.
#![allow(clippy::disallowed_methods, reason = "a command writes files and ends with its code")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to a person")]

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bench::compare::{self, Report};
use bench::{
    BatchShape, Client, Fetch, FetchFrom, FetchShape, Load, OffsetUnit, Outcome, Pace, Plan,
    Produce, Target, Topic, bare,
};
use clap::{Args, Parser, Subcommand};

#[derive(Parser)]
#[command(name = "bench", about = "Load a broker, be the ceiling, or compare")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Load a broker with requests to produce, or to fetch what this has produced.
    Load(LoadOptions),
    /// Be the ceiling: what any broker must pay at least.
    Bare {
        /// The port on 127.0.0.1.
        #[arg(long)]
        port: u16,
        /// Where the files are kept.
        #[arg(long)]
        data: PathBuf,
    },
    /// Compare Corelane with the ceiling and with Apache Kafka, in one run.
    Compare(CompareOptions),
}

#[derive(Args)]
struct LoadOptions {
    /// Where the broker listens.
    #[arg(long, default_value = "127.0.0.1:9092")]
    address: SocketAddr,
    /// The topic, which must not exist yet.
    #[arg(long, default_value = "bench")]
    topic: String,
    /// Its partitions.
    #[arg(long, default_value_t = 6)]
    partitions: i32,
    /// Connections.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Requests in flight on each.
    #[arg(long, default_value_t = 5)]
    depth: usize,
    /// Bytes of a batch; 0 for one record in each.
    #[arg(long, default_value_t = 16 << 10)]
    batch_bytes: usize,
    /// Bytes of a record's value.
    #[arg(long, default_value_t = 1_000)]
    record_bytes: usize,
    /// Keyed records: a batch for each partition in each request.
    #[arg(long)]
    keyed: bool,
    /// 0, 1, or -1 for all.
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    acks: i16,
    /// Requests in a second; without it, as many as are answered.
    #[arg(long)]
    rate: Option<f64>,
    /// For how long.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Fetch in circles for as long again, with answers of this size.
    #[arg(long, value_name = "BYTES")]
    fetch_bytes: Option<i32>,
    /// Leave the topic there.
    #[arg(long)]
    keep: bool,
}

#[derive(Args)]
struct CompareOptions {
    /// Only this scenario; may be given several times.
    #[arg(long = "scenario", value_name = "NAME")]
    scenarios: Vec<String>,
    /// Who takes part.
    #[arg(long, value_delimiter = ',', default_value = "bare,corelane,kafka")]
    targets: Vec<String>,
    /// How often each takes its turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Loads of 3 seconds instead of 15.
    #[arg(long)]
    quick: bool,
    /// In which folder data is kept meanwhile: it decides which disk is measured.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Let server and client share all cores.
    #[arg(long)]
    not_pinned: bool,
    /// Write docs/benchmarks.md and its pictures, instead of printing.
    #[arg(long)]
    write: bool,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Load(options) => load(&options),
        Command::Bare { port, data } => bare::serve(&data, port),
        Command::Compare(options) => compare(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("bench: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn load(options: &LoadOptions) -> Result<(), String> {
    let LoadOptions { connections, depth, .. } = *options;
    let mut client = Client::connect(options.address)?;
    let topic = client.create_topic(&options.topic, options.partitions, &[])?;
    let shape = BatchShape {
        batch_bytes: options.batch_bytes,
        record_bytes: options.record_bytes,
        keyed: options.keyed,
        acks: options.acks,
    };
    let work = Produce::new(&client, &topic, &shape, connections)?;
    let pace = options.rate.map_or(Pace::Saturate, Pace::Rate);
    let duration = Duration::from_secs_f64(options.seconds);
    let plan = Plan { connections, depth, pace, duration, requests_max: u64::MAX };
    let outcome = Load::connect(options.address, connections, work)?.run(plan)?;
    print("produced", &outcome);
    println!("end offsets: {:?}", client.end_offsets(&topic)?);
    if let Some(bytes_max) = options.fetch_bytes {
        fetch(options, &mut client, &topic, bytes_max)?;
    }
    if options.keep { Ok(()) } else { client.delete_topic(&topic) }
}

fn fetch(
    options: &LoadOptions,
    client: &mut Client,
    topic: &Topic,
    bytes_max: i32,
) -> Result<(), String> {
    let shape = FetchShape {
        bytes_max,
        wait_max: Duration::from_millis(500),
        from: FetchFrom::StartInCircles,
        unit: OffsetUnit::Records,
    };
    let work = Fetch::new(client, topic, shape, options.connections)?;
    let plan = Plan {
        connections: options.connections,
        depth: 1,
        pace: Pace::Saturate,
        duration: Duration::from_secs_f64(options.seconds),
        requests_max: u64::MAX,
    };
    let outcome = Load::connect(options.address, options.connections, work)?.run(plan)?;
    print("fetched", &outcome);
    Ok(())
}

fn print(what: &str, outcome: &Outcome) {
    let percentile = |percent| outcome.latencies.percentile_ms(percent);
    println!(
        "{what} {} records in {} requests in {:.2} s: {:.1} MB/s, {:.0} requests/s; p50 {:.3} ms, \
         p99 {:.3} ms, p99.9 {:.3} ms, max {:.3} ms; {} could not be sent",
        outcome.records,
        outcome.requests,
        outcome.elapsed.as_secs_f64(),
        outcome.megabytes_per_second(),
        outcome.requests_per_second(),
        percentile(50.0),
        percentile(99.0),
        percentile(99.9),
        percentile(100.0),
        outcome.unsent
    );
}

fn compare(options: &CompareOptions) -> Result<(), String> {
    let target = |name: &String| {
        let named = |target: &Target| target.name().eq_ignore_ascii_case(name);
        Target::ALL.into_iter().find(named).ok_or_else(|| format!("who is {name}?"))
    };
    let typed: Vec<String> = env::args().skip(1).collect();
    let options_of_run = compare::Options {
        scenarios: options.scenarios.clone(),
        targets: options.targets.iter().map(target).collect::<Result<_, _>>()?,
        rounds: options.rounds,
        quick: options.quick,
        folder: options.folder.clone().unwrap_or_else(env::temp_dir),
        pinned: !options.not_pinned,
        command: format!("cargo run --release -p bench -- {}", typed.join(" ")),
    };
    let report = compare::run(&options_of_run, &mut |line| eprintln!("{line}"))?;
    if options.write {
        return write(&xtask::workspace_root().join("docs"), &report);
    }
    println!("{}", report.text);
    Ok(())
}

fn write(docs: &Path, report: &Report) -> Result<(), String> {
    let pictures = docs.join("benchmarks");
    let fail = |error| format!("writing to docs: {error}");
    fs::create_dir_all(&pictures).map_err(fail)?;
    for (name, picture) in &report.pictures {
        fs::write(pictures.join(name), picture).map_err(fail)?;
    }
    fs::write(docs.join("benchmarks.md"), &report.text).map_err(fail)
}
