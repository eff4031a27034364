//! Kafka's own perf tools, run against a server from outside.

use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use xtask::kafka;

use crate::measure::Measured;
use crate::servers::Server;
use crate::wire::Client;

/// Bytes of a record's value.
const RECORD_BYTES: u64 = 1_000;
/// What the tools call a megabyte, in bytes.
const TOOL_MEGABYTE: f64 = 1_048_576.0;
/// How long a tool may take.
const TOOL_TIME_MAX: Duration = Duration::from_secs(180);

/// Lets `producer-perf-test` send so many records of 1,000 bytes, without a throttle.
///
/// # Errors
/// A sentence: the tool fails or says what cannot be understood.
pub(crate) fn producer_perf(server: &Server, name: &str, records: u64) -> Result<Measured, String> {
    let mut client = Client::connect(server.address())?;
    let topic = client.create_topic(name, 1, &[])?;
    let measured = run_producer(server, name, records)?;
    client.delete_topic(&topic)?;
    Ok(measured)
}

/// Lets `consumer-perf-test` read what `producer-perf-test` has sent before.
///
/// # Errors
/// A sentence: a tool fails or says what cannot be understood.
pub(crate) fn consumer_perf(server: &Server, name: &str, records: u64) -> Result<Measured, String> {
    let mut client = Client::connect(server.address())?;
    let topic = client.create_topic(name, 1, &[])?;
    run_producer(server, name, records)?;
    let mut command = kafka::tool("consumer-perf-test")?;
    let address = server.address().to_string();
    command.args(["--bootstrap-server", &address, "--topic", name]);
    command.args(["--num-records", &records.to_string(), "--timeout", "20000"]);
    let before = server.process().cpu_seconds()?;
    let text = output_of(command)?;
    let cpu_seconds = server.process().cpu_seconds()? - before;
    let fields = read_consumer(&text).ok_or_else(|| format!("consumer-perf-test said:\n{text}"))?;
    client.delete_topic(&topic)?;
    Ok(Measured {
        cpu_per_gigabyte: Some(cpu_seconds / (fields.megabytes / 1e3)),
        megabytes_per_second: Some(fields.megabytes_per_second),
        ..Measured::default()
    })
}

fn run_producer(server: &Server, topic: &str, records: u64) -> Result<Measured, String> {
    let mut command = kafka::tool("producer-perf-test")?;
    let address = server.address().to_string();
    command.args(["--bootstrap-server", &address, "--topic", topic, "--throughput", "-1"]);
    command.args(["--num-records", &records.to_string()]);
    command.args(["--record-size", &RECORD_BYTES.to_string()]);
    command.args(["--command-property", "acks=1"]);
    let before = server.process().cpu_seconds()?;
    let text = output_of(command)?;
    let cpu_seconds = server.process().cpu_seconds()? - before;
    let said = read_producer(&text).ok_or_else(|| format!("producer-perf-test said:\n{text}"))?;
    if said.records != records {
        return Err(format!("{} records of {records} were sent", said.records));
    }
    let bytes = (records * RECORD_BYTES) as f64;
    Ok(Measured {
        cpu_per_gigabyte: Some(cpu_seconds / (bytes / 1e9)),
        megabytes_per_second: Some(said.records_per_second * RECORD_BYTES as f64 / 1e6),
        p50_ms: Some(said.p50_ms),
        p99_ms: Some(said.p99_ms),
        p999_ms: Some(said.p999_ms),
        max_ms: Some(said.max_ms),
        ..Measured::default()
    })
}

/// What a tool prints; it is killed when it takes too long.
fn output_of(mut command: Command) -> Result<String, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| format!("starting java: {error}"))?;
    let pid = child.id().to_string();
    let (done, finished) = mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        if finished.recv_timeout(TOOL_TIME_MAX) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").args(["-KILL", &pid]).status();
        }
    });
    let output = child.wait_with_output().map_err(|error| format!("awaiting a tool: {error}"));
    drop(done);
    let _ = watch.join();
    let output = output?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(text),
        false => Err(format!("a tool failed: {text}{}", String::from_utf8_lossy(&output.stderr))),
    }
}

#[derive(Debug, PartialEq)]
struct ProducerSaid {
    records: u64,
    records_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    max_ms: f64,
}

/// Reads the last line, which sums up; lines before it report on the way.
fn read_producer(text: &str) -> Option<ProducerSaid> {
    let line = text.lines().rfind(|line| line.contains("99.9th"))?;
    let before = |mark: &str| -> Option<f64> {
        let (left, _) = line.split_once(mark)?;
        left.rsplit([' ', ',']).next()?.parse().ok()
    };
    Some(ProducerSaid {
        records: line.split_once(" records sent")?.0.trim().parse().ok()?,
        records_per_second: before(" records/sec")?,
        p50_ms: before(" ms 50th")?,
        p99_ms: before(" ms 99th")?,
        p999_ms: before(" ms 99.9th")?,
        max_ms: before(" ms max latency")?,
    })
}

#[derive(Debug, PartialEq)]
struct ConsumerSaid {
    megabytes: f64,
    megabytes_per_second: f64,
}

/// Reads the figures by the names in the line above them.
fn read_consumer(text: &str) -> Option<ConsumerSaid> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("start.time"));
    let names: Vec<&str> = lines.next()?.split(", ").collect();
    let figures: Vec<&str> = lines.next()?.split(", ").collect();
    let figure = |name: &str| -> Option<f64> {
        let index = names.iter().position(|known| *known == name)?;
        Some(figures.get(index)?.trim().parse::<f64>().ok()? * TOOL_MEGABYTE / 1e6)
    };
    Some(ConsumerSaid {
        megabytes: figure("data.consumed.in.MB")?,
        megabytes_per_second: figure("fetch.MB.sec")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_producers_last_line_is_read() {
        let text = "39995 records sent, 7999.0 records/sec (7.63 MB/sec), 9.4 ms avg latency, \
                    351.0 ms max latency.\n50000 records sent, 9982.031 records/sec (9.52 MB/sec), \
                    1.87 ms avg latency, 352.00 ms max latency, 1 ms 50th, 4 ms 95th, 29 ms 99th, \
                    58 ms 99.9th.\n";
        let said = read_producer(text).expect("it is what the tool prints");
        assert_eq!((said.records, said.records_per_second), (50_000, 9_982.031));
        assert_eq!((said.p50_ms, said.p99_ms, said.p999_ms), (1.0, 29.0, 58.0));
        assert_eq!((said.max_ms, read_producer("nothing")), (352.0, None));
    }

    #[test]
    fn the_consumers_figures_are_found_by_name() {
        let text = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, \
                    nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n\
                    2026-01-01 00:00:00:000, 2026-01-01 00:00:01:000, 100.0000, 90.0, 1000, 999.0, \
                    10, 500, 200.0000, 1.0\n";
        let said = read_consumer(text).expect("it is what the tool prints");
        assert_eq!((said.megabytes, said.megabytes_per_second), (104.8576, 209.7152));
        assert_eq!(read_consumer("WARN nothing"), None);
    }
}
