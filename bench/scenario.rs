//! What is compared: named after what is to be reached.

use std::time::Duration;

use crate::measure::{Measured, Producing, Times};
use crate::servers::Target;
use crate::upkeep::Upkeep;

/// One comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What is done, in a sentence.
    pub(crate) what: &'static str,
    /// How.
    pub(crate) kind: Kind,
    /// Which figures are shown.
    pub(crate) figures: &'static [Figure],
    /// What is to be reached.
    pub(crate) aims: &'static [Aim],
}

/// What a scenario does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Our generator produces.
    Produce(Producing),
    /// It does so at half of what Kafka takes at most, which is measured first.
    ProduceAtHalfPeak(Producing),
    /// It fetches in circles: connections, bytes of an answer.
    Fetch(usize, i32),
    /// It produces and fetches at the end: bytes of an answer.
    LongPoll(Producing, i32),
    /// It produces beside a reader of an old log, which is in the page cache or not.
    BesideReader(Producing),
    /// It produces while the server works on another log, and while it does not.
    BesideUpkeep(Producing, Upkeep),
    /// It opens connections that stay idle.
    Idle,
    /// Servers are started.
    Start,
    /// A server is killed and started again.
    Recovery,
    /// A log is compacted.
    Compaction,
    /// Kafka's `producer-perf-test`.
    KafkaProducer,
    /// Kafka's `consumer-perf-test`.
    KafkaConsumer,
}

impl Kind {
    /// Whether each round starts a server for itself.
    pub(crate) fn has_servers_of_its_own(self) -> bool {
        use Kind::{BesideUpkeep, Compaction, Idle, Recovery, Start};
        matches!(self, Idle | Start | Recovery | Compaction | BesideUpkeep(..))
    }
}

/// One line of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Server CPU for each gigabyte.
    CpuPerGigabyte,
    /// Server CPU for a million requests.
    CpuPerMillion,
    /// Requests for a second of the server's CPU.
    RequestsPerCpu,
    /// Bytes a second.
    Throughput,
    /// Requests a second.
    Requests,
    /// Requests that fell behind for good.
    Unsent,
    /// Median latency.
    P50,
    /// 99th percentile.
    P99,
    /// 99.9th percentile.
    P999,
    /// Longest latency.
    Max,
    /// 99th percentile beside a reader whose log is in the page cache.
    P99BesideWarm,
    /// 99th percentile beside one whose log is not, as a multiple of that.
    ColdToWarm,
    /// 99th percentile while the server has nothing else to do.
    P99Alone,
    /// 99th percentile while it has, as a multiple of that.
    BesideToAlone,
    /// Memory before any load.
    IdleMemory,
    /// Memory after a load.
    LoadedMemory,
    /// Memory of an idle connection.
    ConnectionMemory,
    /// Time to the first answer on a new folder.
    FirstStart,
    /// The same on a used one.
    LaterStart,
    /// Time from the start after a crash until every partition answers.
    Recovery,
}

/// What is to be reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aim {
    /// By which figure.
    pub(crate) figure: Figure,
    /// Compared with whom; absolute without.
    pub(crate) against: Option<Target>,
    /// Up to or from where.
    pub(crate) bound: Bound,
}

/// A limit of a figure, or of its ratio.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

const WITH_LATENCY: &[Figure] = &[
    Figure::CpuPerGigabyte,
    Figure::CpuPerMillion,
    Figure::Throughput,
    Figure::Unsent,
    Figure::P50,
    Figure::P99,
    Figure::P999,
    Figure::Max,
    Figure::LoadedMemory,
];
const SATURATED: &[Figure] = &[
    Figure::CpuPerGigabyte,
    Figure::CpuPerMillion,
    Figure::Throughput,
    Figure::Requests,
    Figure::RequestsPerCpu,
    Figure::P50,
    Figure::P99,
    Figure::LoadedMemory,
];
const FETCHED: &[Figure] =
    &[Figure::CpuPerGigabyte, Figure::Throughput, Figure::P50, Figure::P99, Figure::LoadedMemory];
const BY_TOOL: &[Figure] = &[
    Figure::CpuPerGigabyte,
    Figure::Throughput,
    Figure::P50,
    Figure::P99,
    Figure::P999,
    Figure::Max,
];

const BATCHES_OF_16K: Producing = Producing {
    partitions: 1,
    connections: 4,
    depth: 5,
    batch_bytes: 16 << 10,
    record_bytes: 1_000,
    keyed: false,
    bytes_per_second: Some(60e6),
    synced: false,
};

const BESIDE_UPKEEP: &[Figure] = &[
    Figure::P50,
    Figure::P99,
    Figure::P999,
    Figure::Max,
    Figure::P99Alone,
    Figure::BesideToAlone,
    Figure::LoadedMemory,
];
const SIX_AT_20_MB: Producing =
    Producing { partitions: 6, bytes_per_second: Some(20e6), ..BATCHES_OF_16K };

const fn aim(figure: Figure, against: Option<Target>, bound: Bound) -> Aim {
    Aim { figure, against, bound }
}

const BARE: Option<Target> = Some(Target::Bare);
const KAFKA: Option<Target> = Some(Target::Kafka);

/// All of them.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "produce-16k-1-partition",
        what: "Batches of 16 KB (records of 1,000 B) at 60 MB/s to one partition: 4 connections, \
               at most 5 requests in flight on each.",
        kind: Kind::Produce(BATCHES_OF_16K),
        figures: WITH_LATENCY,
        aims: &[
            aim(Figure::CpuPerGigabyte, BARE, Bound::AtMost(1.2)),
            aim(Figure::CpuPerGigabyte, KAFKA, Bound::AtMost(1.0 / 6.0)),
        ],
    },
    Scenario {
        name: "produce-16k-6-partitions",
        what: "The same to six partitions, one after the other.",
        kind: Kind::Produce(Producing { partitions: 6, ..BATCHES_OF_16K }),
        figures: WITH_LATENCY,
        aims: &[
            aim(Figure::CpuPerGigabyte, BARE, Bound::AtMost(1.2)),
            aim(Figure::CpuPerGigabyte, KAFKA, Bound::AtMost(1.0 / 4.0)),
        ],
    },
    Scenario {
        name: "produce-16k-100-partitions",
        what: "The same to 100 partitions.",
        kind: Kind::Produce(Producing { partitions: 100, ..BATCHES_OF_16K }),
        figures: WITH_LATENCY,
        aims: &[],
    },
    Scenario {
        name: "produce-16k-5000-partitions",
        what: "The same to 5,000 partitions: a few batches for each.",
        kind: Kind::Produce(Producing { partitions: 5_000, ..BATCHES_OF_16K }),
        figures: WITH_LATENCY,
        aims: &[],
    },
    Scenario {
        name: "produce-96k-6-partitions",
        what: "Batches of 96 KB at 60 MB/s to six partitions: 4 connections, at most 5 requests in \
               flight on each.",
        kind: Kind::Produce(Producing { partitions: 6, batch_bytes: 96 << 10, ..BATCHES_OF_16K }),
        figures: WITH_LATENCY,
        aims: &[aim(Figure::CpuPerGigabyte, BARE, Bound::AtMost(1.2))],
    },
    Scenario {
        name: "produce-small-unbatched",
        what: "One record of 100 B in each request (about 240 B on the wire), as fast as answers \
               come: 4 connections to six partitions, 5 requests in flight on each.",
        kind: Kind::Produce(Producing {
            partitions: 6,
            batch_bytes: 0,
            record_bytes: 100,
            bytes_per_second: None,
            ..BATCHES_OF_16K
        }),
        figures: SATURATED,
        aims: &[aim(Figure::CpuPerMillion, BARE, Bound::AtMost(1.3))],
    },
    Scenario {
        name: "produce-saturation",
        what: "Batches of 16 KB as fast as answers come: 4 connections to six partitions, 5 \
               requests in flight on each.",
        kind: Kind::Produce(Producing { partitions: 6, bytes_per_second: None, ..BATCHES_OF_16K }),
        figures: SATURATED,
        aims: &[aim(Figure::Throughput, BARE, Bound::AtLeast(0.8))],
    },
    Scenario {
        name: "fetch-cached",
        what: "256 MB of batches of 16 KB, in the page cache, read in circles: 4 connections, \
               answers of 1 MB. The bare program sends them in turns of 256 KB.",
        kind: Kind::Fetch(4, 1 << 20),
        figures: FETCHED,
        aims: &[
            aim(Figure::CpuPerGigabyte, BARE, Bound::AtMost(1.2)),
            aim(Figure::CpuPerGigabyte, KAFKA, Bound::AtMost(0.5)),
        ],
    },
    Scenario {
        name: "fetch-long-poll",
        what: "Six consumers, a connection and a partition each, wait for records while 4 \
               connections produce batches of 16 KB at 20 MB/s. All records must arrive. Latencies \
               are those of producing. The bare program cannot wait.",
        kind: Kind::LongPoll(SIX_AT_20_MB, 1 << 20),
        figures: WITH_LATENCY,
        aims: &[],
    },
    Scenario {
        name: "produce-p999-half-peak",
        what: "Batches of 16 KB to six partitions at half of the rate that Kafka takes at most in \
               the same run: 4 connections, at most 5 requests in flight on each.",
        kind: Kind::ProduceAtHalfPeak(Producing { partitions: 6, ..BATCHES_OF_16K }),
        figures: WITH_LATENCY,
        aims: &[aim(Figure::P999, KAFKA, Bound::AtMost(0.1))],
    },
    Scenario {
        name: "produce-500-keyed",
        what: "500 connections, one request in flight on each, as fast as answers come. Each \
               request carries a batch of one keyed record of 100 B for each of six partitions.",
        kind: Kind::Produce(Producing {
            partitions: 6,
            connections: 500,
            depth: 1,
            batch_bytes: 0,
            record_bytes: 100,
            keyed: true,
            bytes_per_second: None,
            synced: false,
        }),
        figures: SATURATED,
        aims: &[aim(Figure::RequestsPerCpu, KAFKA, Bound::AtLeast(5.0))],
    },
    Scenario {
        name: "produce-synced",
        what: "64 connections, one request of one record of 1,000 B in flight on each, as fast as \
               answers come, to six partitions with `flush.messages=1`: nothing is acknowledged \
               before it is on the disk. The bare program syncs nothing.",
        kind: Kind::Produce(Producing {
            partitions: 6,
            connections: 64,
            depth: 1,
            batch_bytes: 0,
            bytes_per_second: None,
            synced: true,
            ..BATCHES_OF_16K
        }),
        figures: SATURATED,
        aims: &[],
    },
    Scenario {
        name: "produce-beside-cold-reader",
        what: "Batches of 16 KB at 20 MB/s to six partitions beside one reader at full speed, \
               answers of 1 MB, of a log of 4 GB that is not in the page cache; in pairs with the \
               same reader of the same log in the page cache.",
        kind: Kind::BesideReader(SIX_AT_20_MB),
        figures: &[
            Figure::P50,
            Figure::P99,
            Figure::P999,
            Figure::P99BesideWarm,
            Figure::ColdToWarm,
            Figure::LoadedMemory,
        ],
        aims: &[aim(Figure::ColdToWarm, None, Bound::AtMost(1.25))],
    },
    Scenario {
        name: "produce-beside-cleaner",
        what: "Batches of 16 KB at 20 MB/s to six partitions while the server compacts 4 GB, in \
               batches of 16 KB of records of 100 B, in which the same 8,000 keys or so come again \
               and again; in pairs with the same load before that.",
        kind: Kind::BesideUpkeep(SIX_AT_20_MB, Upkeep::Cleaning),
        figures: BESIDE_UPKEEP,
        aims: &[],
    },
    Scenario {
        name: "produce-beside-deletion",
        what: "The same while retention gives up 4 GB in segments of 64 MB, with \
               `file.delete.delay.ms=0`.",
        kind: Kind::BesideUpkeep(SIX_AT_20_MB, Upkeep::Deleting),
        figures: BESIDE_UPKEEP,
        aims: &[],
    },
    Scenario {
        name: "recovery",
        what: "From the start of a server that was killed, with 1 GB in batches of 16 KB in 100 \
               partitions that nobody has synced and that are in the page cache, until every \
               partition says where it ends.",
        kind: Kind::Recovery,
        figures: &[Figure::Recovery, Figure::CpuPerGigabyte],
        aims: &[],
    },
    Scenario {
        name: "compaction",
        what: "1 GB in batches of 16 KB of records of 100 B, in which the same 8,000 keys or so \
               come again and again, is compacted: from the change of `min.compaction.lag.ms` that \
               lets it be until less than a quarter is left, with `log.cleaner.backoff.ms=100`.",
        kind: Kind::Compaction,
        figures: &[Figure::Throughput, Figure::CpuPerGigabyte, Figure::LoadedMemory],
        aims: &[],
    },
    Scenario {
        name: "idle-memory",
        what: "Memory of a server that was just started, and what 2,000 connections add that have \
               asked for the versions and stay idle (200 with `--quick`).",
        kind: Kind::Idle,
        figures: &[Figure::IdleMemory, Figure::ConnectionMemory],
        aims: &[
            aim(Figure::IdleMemory, None, Bound::AtMost(30.0)),
            aim(Figure::ConnectionMemory, None, Bound::AtMost(8.0)),
        ],
    },
    Scenario {
        name: "start",
        what: "From the start of the program to its first answer to ApiVersions, on a folder that \
               is new, and again on the same one. Corelane formats a new folder within that time; \
               Kafka's is formatted before. The bare program has nothing to start.",
        kind: Kind::Start,
        figures: &[Figure::FirstStart, Figure::LaterStart],
        aims: &[
            aim(Figure::FirstStart, None, Bound::AtMost(50.0)),
            aim(Figure::LaterStart, None, Bound::AtMost(50.0)),
        ],
    },
    Scenario {
        name: "kafka-producer-perf-test",
        what: "Kafka's own tool: records of 1,000 B to one partition, acks=1, its defaults \
               otherwise. It counts its own start and warming up.",
        kind: Kind::KafkaProducer,
        figures: BY_TOOL,
        aims: &[],
    },
    Scenario {
        name: "kafka-consumer-perf-test",
        what: "Kafka's own tool reads those records again.",
        kind: Kind::KafkaConsumer,
        figures: &[Figure::CpuPerGigabyte, Figure::Throughput],
        aims: &[],
    },
];

impl Scenario {
    /// Whether it can be done with a server.
    pub(crate) fn applies_to(&self, target: Target) -> bool {
        let bare_can = match self.kind {
            Kind::Produce(how) => !how.synced,
            Kind::ProduceAtHalfPeak(_) | Kind::Fetch(..) | Kind::BesideReader(_) | Kind::Idle => {
                true
            }
            _ => false,
        };
        target != Target::Bare || bare_can
    }
}

/// How large the scenarios are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// How long each load takes.
    pub(crate) times: Times,
    /// How many idle connections.
    pub(crate) idle_connections: usize,
    /// How often each server is started.
    pub(crate) starts: usize,
    /// Records that Kafka's tools send.
    pub(crate) tool_records: u64,
}

impl Size {
    /// For a look.
    pub(crate) const QUICK: Size = Size {
        times: Times { warm_up: Duration::from_secs(1), measured: Duration::from_secs(3) },
        idle_connections: 200,
        starts: 3,
        tool_records: 200_000,
    };
    /// For loads that are compared in many pairs, whatever the size of the rest.
    pub(crate) const PAIR: Times =
        Times { warm_up: Duration::from_secs(1), measured: Duration::from_secs(3) };
    /// For figures that are kept.
    pub(crate) const FULL: Size = Size {
        times: Times { warm_up: Duration::from_secs(5), measured: Duration::from_secs(15) },
        idle_connections: 2_000,
        starts: 11,
        tool_records: 2_000_000,
    };
}

impl Figure {
    /// What it is called in a table, with its unit.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Figure::CpuPerGigabyte => "server CPU, s per GB",
            Figure::CpuPerMillion => "server CPU, s per million requests",
            Figure::RequestsPerCpu => "requests per CPU second",
            Figure::Throughput => "throughput, MB/s",
            Figure::Requests => "requests/s",
            Figure::Unsent => "requests that could not be sent",
            Figure::P50 => "latency p50, ms",
            Figure::P99 => "latency p99, ms",
            Figure::P999 => "latency p99.9, ms",
            Figure::Max => "latency max, ms",
            Figure::P99BesideWarm => "latency p99 with the log in the page cache, ms",
            Figure::ColdToWarm => "p99 without / with it there",
            Figure::P99Alone => "latency p99 without that, ms",
            Figure::BesideToAlone => "p99 with / without it",
            Figure::IdleMemory => "memory idle, MB",
            Figure::LoadedMemory => "memory under load, MB",
            Figure::ConnectionMemory => "memory per idle connection, KB",
            Figure::FirstStart => "first start, ms",
            Figure::LaterStart => "later start, ms",
            Figure::Recovery => "all partitions online, ms",
        }
    }

    /// Its value in what was measured.
    pub(crate) fn of(self, measured: &Measured) -> Option<f64> {
        match self {
            Figure::CpuPerGigabyte => measured.cpu_per_gigabyte,
            Figure::CpuPerMillion => measured.cpu_per_million,
            Figure::RequestsPerCpu => measured.requests_per_cpu,
            Figure::Throughput => measured.megabytes_per_second,
            Figure::Requests => measured.requests_per_second,
            Figure::Unsent => measured.unsent,
            Figure::P50 => measured.p50_ms,
            Figure::P99 => measured.p99_ms,
            Figure::P999 => measured.p999_ms,
            Figure::Max => measured.max_ms,
            Figure::P99BesideWarm => measured.p99_beside_warm_ms,
            Figure::ColdToWarm => measured.cold_to_warm,
            Figure::P99Alone => measured.p99_alone_ms,
            Figure::BesideToAlone => measured.beside_to_alone,
            Figure::IdleMemory => measured.idle_megabytes,
            Figure::LoadedMemory => measured.loaded_megabytes,
            Figure::ConnectionMemory => measured.kilobytes_per_connection,
            Figure::FirstStart => measured.first_start_ms,
            Figure::LaterStart => measured.later_start_ms,
            Figure::Recovery => measured.recovery_ms,
        }
    }
}
