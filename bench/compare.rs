//! The comparison: all servers in one run, taking turns, so that what the machine does to one it
//! does to all.

use std::fs;
use std::path::PathBuf;

use crate::beside;
use crate::measure::{self, Measured, Producing};
use crate::plot;
use crate::process::pin_client;
use crate::scenario::{Kind, SCENARIOS, Scenario, Size};
use crate::servers::{Place, Server, Target};
use crate::table::{self, Rounds};
use crate::tools;
use crate::upkeep;

/// What a person asks for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The scenarios, all if there is none.
    pub scenarios: Vec<String>,
    /// The servers that take part.
    pub targets: Vec<Target>,
    /// How often each takes its turn.
    pub rounds: usize,
    /// Short loads.
    pub quick: bool,
    /// In which folder the data is kept while it is measured.
    pub folder: PathBuf,
    /// The server on core 0, the client on core 1.
    pub pinned: bool,
    /// What was typed, for the report.
    pub command: String,
}

/// What a comparison came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// Markdown.
    pub text: String,
    /// Pictures by the name of their file.
    pub pictures: Vec<(String, String)>,
}

struct Comparison<'a> {
    options: &'a Options,
    place: Place,
    size: Size,
    servers: Vec<Server>,
    /// What Kafka takes at most, in bytes a second, once it was measured.
    kafka_peak: Option<f64>,
    /// Topics are never used twice.
    topics: usize,
    say: &'a mut dyn FnMut(&str),
}

/// Runs the scenarios and reports; `say` is told of each step.
///
/// # Errors
/// A sentence: a scenario is unknown, or a server does not come up.
pub fn run(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Report, String> {
    let scenarios = chosen(&options.scenarios)?;
    ring::raise_open_files_limit().map_err(|error| format!("raising a limit: {error}"))?;
    let pinned = options.pinned && pin_client();
    let place = Place { folder: options.folder.clone(), pinned };
    let size = if options.quick { Size::QUICK } else { Size::FULL };
    let (servers, kafka_peak) = (Vec::new(), None);
    let mut comparison = Comparison { options, place, size, servers, kafka_peak, topics: 0, say };
    let mut all = Vec::new();
    for scenario in scenarios {
        all.push(comparison.compare(scenario)?);
    }
    let place = comparison.place.clone();
    drop(comparison);
    let pictures = pictures(&all)?;
    Ok(Report { text: report(options, &place, &all, &pictures), pictures })
}

fn chosen(names: &[String]) -> Result<Vec<Scenario>, String> {
    let find = |name: &String| {
        let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
        let known: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        let unknown = || format!("no scenario is named {name}; there are {}", known.join(", "));
        found.copied().ok_or_else(unknown)
    };
    match names.is_empty() {
        true => Ok(SCENARIOS.to_vec()),
        false => names.iter().map(find).collect(),
    }
}

impl Comparison<'_> {
    fn compare(&mut self, scenario: Scenario) -> Result<Rounds, String> {
        let mut rounds = Rounds { scenario, measured: Vec::new(), failures: Vec::new() };
        if !scenario.kind.has_servers_of_its_own() {
            self.start_servers()?;
        }
        let count = match scenario.kind {
            Kind::Start => self.size.starts,
            _ => self.options.rounds,
        };
        for round in 1..=count {
            for target in self.options.targets.clone() {
                if !scenario.applies_to(target) {
                    continue;
                }
                let name = target.name();
                (self.say)(&format!("{} {round}/{count} {name}", scenario.name));
                match self.measure(&scenario, target) {
                    Ok(measured) => {
                        (self.say)(&format!("    {}", summary(&scenario, &measured)));
                        rounds.measured.push((target, measured));
                    }
                    Err(sentence) => {
                        (self.say)(&format!("    failed: {sentence}"));
                        rounds.failures.push(format!("round {round} of {name}: {sentence}"));
                        self.start_anew(target)?;
                    }
                }
            }
        }
        Ok(rounds)
    }

    fn measure(&mut self, scenario: &Scenario, target: Target) -> Result<Measured, String> {
        self.topics += 1;
        let topic = format!("{}-{}", scenario.name, self.topics);
        let times = self.size.times;
        match scenario.kind {
            Kind::Produce(how) => measure::produce(self.server(target)?, &topic, &how, times),
            Kind::ProduceAtHalfPeak(how) => {
                let half = self.kafka_peak(&how)? / 2.0;
                let how = Producing { bytes_per_second: Some(half), ..how };
                measure::produce(self.server(target)?, &topic, &how, times)
            }
            Kind::Fetch(connections, bytes_max) => {
                measure::fetch(self.server(target)?, &topic, connections, bytes_max, times)
            }
            Kind::LongPoll(how, bytes_max) => {
                measure::long_poll(self.server(target)?, &topic, &how, bytes_max, times)
            }
            Kind::BesideReader(how) => {
                let cold_first = self.topics % 4 < 2;
                beside::produce(self.server(target)?, &topic, &how, cold_first, Size::PAIR)
            }
            Kind::BesideUpkeep(how, upkeep) => {
                upkeep::produce_beside(target, &self.place, upkeep, &how, Size::PAIR)
            }
            Kind::Idle => {
                let server = Server::start(target, &self.place, &[])?;
                measure::idle(&server, self.size.idle_connections)
            }
            Kind::Start => start_times(target, &self.place),
            Kind::Recovery => upkeep::recovery(target, &self.place),
            Kind::Compaction => upkeep::compaction(target, &self.place),
            Kind::KafkaProducer => {
                tools::producer_perf(self.server(target)?, &topic, self.size.tool_records)
            }
            Kind::KafkaConsumer => {
                tools::consumer_perf(self.server(target)?, &topic, self.size.tool_records)
            }
        }
    }

    fn kafka_peak(&mut self, how: &Producing) -> Result<f64, String> {
        if let Some(peak) = self.kafka_peak {
            return Ok(peak);
        }
        let how = Producing { bytes_per_second: None, ..*how };
        self.topics += 1;
        let topic = format!("peak-of-kafka-{}", self.topics);
        let server = self.server(Target::Kafka)?;
        let measured = measure::produce(server, &topic, &how, self.size.times)?;
        let peak = measured.megabytes_per_second.expect("a load has a throughput") * 1e6;
        (self.say)(&format!("    Kafka takes {:.1} MB/s at most", peak / 1e6));
        self.kafka_peak = Some(peak);
        Ok(peak)
    }

    /// All run side by side from the first load on, so that each is as warm as the others.
    fn start_servers(&mut self) -> Result<(), String> {
        for target in self.options.targets.clone() {
            if self.server(target).is_err() {
                self.servers.push(Server::start(target, &self.place, &[])?);
            }
        }
        Ok(())
    }

    /// After a failure nobody knows what state a server is in.
    fn start_anew(&mut self, target: Target) -> Result<(), String> {
        let count = self.servers.len();
        self.servers.retain(|server| server.target != target);
        if self.servers.len() < count {
            self.servers.push(Server::start(target, &self.place, &[])?);
        }
        Ok(())
    }

    fn server(&self, target: Target) -> Result<&Server, String> {
        let found = self.servers.iter().find(|server| server.target == target);
        found.ok_or_else(|| format!("{} does not take part", target.name()))
    }
}

fn start_times(target: Target, place: &Place) -> Result<Measured, String> {
    let milliseconds = |server: &Server| Some(server.process().start_time.as_secs_f64() * 1e3);
    let mut server = Server::start(target, place, &[])?;
    let first_start_ms = milliseconds(&server);
    server.stop();
    server.start_again()?;
    let later_start_ms = milliseconds(&server);
    Ok(Measured { first_start_ms, later_start_ms, ..Measured::default() })
}

/// The first figures of a round, for who watches.
fn summary(scenario: &Scenario, measured: &Measured) -> String {
    let figure = |figure: &crate::scenario::Figure| {
        figure.of(measured).map(|value| format!("{} {value:.3}", figure.name()))
    };
    scenario.figures.iter().filter_map(figure).collect::<Vec<_>>().join("; ")
}

fn pictures(all: &[Rounds]) -> Result<Vec<(String, String)>, String> {
    let mut pictures = Vec::new();
    for rounds in all {
        if !matches!(rounds.scenario.kind, Kind::Produce(_) | Kind::ProduceAtHalfPeak(_)) {
            continue;
        }
        let mut lines = Vec::new();
        for target in Target::ALL {
            let mut of_target = rounds.measured.iter().filter(|(whose, _)| *whose == target);
            let first = of_target.next().and_then(|(_, measured)| measured.latencies.clone());
            let Some(mut merged) = first else { continue };
            for latencies in of_target.filter_map(|(_, measured)| measured.latencies.as_ref()) {
                merged.merge(latencies);
            }
            lines.push((target, merged));
        }
        let name = rounds.scenario.name;
        pictures.push((format!("{name}.svg"), plot::percentiles(name, &lines)?));
    }
    Ok(pictures)
}

fn report(
    options: &Options,
    place: &Place,
    all: &[Rounds],
    pictures: &[(String, String)],
) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let processor = read("/proc/cpuinfo");
    let models: Vec<&str> =
        processor.lines().filter_map(|line| line.strip_prefix("model name\t: ")).collect();
    let pinned = match place.pinned {
        true => "The server has core 0, the client core 1.",
        false => "Server and client share all cores.",
    };
    let pictures: String =
        pictures.iter().map(|(file, _)| format!("![{file}](benchmarks/{file})\n\n")).collect();
    let Options { command, rounds, .. } = options;
    format!(
        "# Benchmarks\n\n\
         Made by `{command}`: medians of {rounds} rounds in which the servers take turns, on one \
         disk, with one client. {pinned} Latencies count from the time at which a request was \
         meant to be sent. GB and MB are 10⁹ and 10⁶ bytes of record batches; CPU is user and \
         system time of the server's process. *bare* is the ceiling: one blocking thread a \
         connection that receives, checks the CRC, writes into allocated space and answers, and \
         does nothing else. A load ends after 2 GB, before the disk holds everybody back. Servers \
         run with their defaults, `acks=1`, without compression; all run side by side and are idle \
         while another has its turn.\n\n\
         Machine: {} cores ({}), Linux {}.\n\n{}{pictures}",
        models.len(),
        models.first().unwrap_or(&"unknown"),
        kernel.trim(),
        table::markdown(all),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_chosen_by_name() {
        assert_eq!(chosen(&[]).expect("all").len(), SCENARIOS.len());
        let some = chosen(&["start".to_owned()]).expect("there is one");
        assert_eq!(some[0].name, "start");
        let sentence = chosen(&["starts".to_owned()]).expect_err("there is none");
        assert!(sentence.contains("no scenario is named starts; there are produce-16k-1"));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SCENARIOS.len());
    }
}
