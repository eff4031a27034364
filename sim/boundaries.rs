//! Crashes that are not left to chance: a short course of a node in a calm world, once for each
//! change of its disk, with a crash before it, within it or after it.
#![allow(clippy::disallowed_types, reason = "a subscriber is shared, if by one thread only")]

use std::fmt;
use std::sync::{Arc, Mutex};

use base::Duration;
use fakeworld::{Change, Crash, CrashPoint, FaultPlan, Moment, Rest};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::history::{History, PartitionHistory, Place, TopicHistory, Violation, ensure};
use crate::operations::{CreateTopic, DeleteRecords, DeleteTopic, MoveReplica, Operation, Produce};
use crate::scenario::{DiskTrouble, Scenario};
use crate::simulation::{Node, Options, Report, Simulation, guarded};
use crate::terms::{FIRST_DIRECTORY, SECOND_DIRECTORY};

/// How long the node works on by itself after the last request of a course.
const WORKS_ON_FOR: Duration = Duration::from_millis(400);
/// Between two requests, so long that a segment is full of age.
const SEGMENT_TIME: Duration = Duration::from_millis(25);
/// So many changes of its disk a start of the node makes at least, mostly.
const STARTS_WITH_CHANGES: u64 = 40;
/// How long after its second start the node may take to remove what was deleted.
const TIDIES_WITHIN: Duration = Duration::from_millis(600);

/// What a node does while it crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// Segments are rolled, with and without syncs, with and without producers.
    Roll,
    /// A log is cleaned, several times, and its segments are replaced.
    Cleaning,
    /// Topics are made, and the metadata log has snapshots and is cut.
    Metadata,
    /// Segments are deleted by size.
    Retention,
    /// Records are deleted as somebody asks for it.
    DeleteRecords,
    /// A log moves to another directory and back.
    Move,
    /// A topic is deleted and made again.
    Deletion,
}

impl Course {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Roll,
        Self::Cleaning,
        Self::Metadata,
        Self::Retention,
        Self::DeleteRecords,
        Self::Move,
        Self::Deletion,
    ];

    fn topics(self) -> Vec<TopicHistory> {
        let synced = topic("synced", true, &[]);
        let unsynced = topic("unsynced", false, &[]);
        match self {
            Self::Roll => vec![synced, unsynced],
            Self::Cleaning => {
                let mut cleaned = topic(
                    "cleaned",
                    true,
                    &[
                        ("cleanup.policy", "compact"),
                        ("min.cleanable.dirty.ratio", "0"),
                        ("delete.retention.ms", "30"),
                    ],
                );
                cleaned.partitions[0].is_compacted = true;
                vec![cleaned]
            }
            Self::Metadata => vec![synced, topic("one", true, &[]), topic("two", true, &[])],
            Self::Retention => {
                let mut cut = topic("cut", true, &[("retention.bytes", "600")]);
                cut.is_cut = true;
                cut.partitions[0].start_max = i64::MAX;
                cut.partitions[0].retention_bytes = Some(600);
                vec![cut]
            }
            Self::DeleteRecords => {
                let cut = |topic: TopicHistory| TopicHistory { is_cut: true, ..topic };
                vec![cut(synced), cut(unsynced)]
            }
            Self::Move => vec![synced],
            Self::Deletion => {
                let doomed = TopicHistory { may_be_deleted: true, ..unsynced };
                vec![synced, doomed]
            }
        }
    }

    fn settings(self) -> Vec<(&'static str, String)> {
        let all = [
            ("log.cleaner.backoff.ms", "20"),
            ("log.retention.check.interval.ms", "30"),
            ("log.flush.offset.checkpoint.interval.ms", "200"),
            ("log.segment.delete.delay.ms", "40"),
            ("metadata.log.max.record.bytes.between.snapshots", "300"),
            ("metadata.max.retention.bytes", "3000"),
            ("internal.metadata.log.segment.bytes", "8000"),
            ("offsets.topic.num.partitions", "1"),
            ("offsets.topic.replication.factor", "1"),
        ];
        let is_needed =
            |name: &str| self == Self::Metadata || !name.contains("metadata") && !name.is_empty();
        let needed = all.into_iter().filter(|(name, _)| is_needed(name));
        needed.map(|(name, value)| (name, value.to_owned())).collect()
    }
}

fn topic(name: &str, is_synced: bool, more: &[(&'static str, &str)]) -> TopicHistory {
    let configs =
        [("segment.ms", "20"), ("file.delete.delay.ms", "40"), ("index.interval.bytes", "1")];
    let mut configs: Vec<_> = configs.map(|(name, value)| (name, value.to_owned())).into();
    if is_synced {
        configs.push(("flush.messages", "1".to_owned()));
    }
    configs.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
    TopicHistory {
        name: name.to_owned(),
        id: None,
        exists: false,
        may_be_deleted: false,
        is_cut: false,
        is_doomed: false,
        incarnation: 0,
        past_ids: Vec::new(),
        configs,
        partitions: vec![PartitionHistory { is_synced, ..PartitionHistory::default() }],
    }
}

/// Goes through a course without a crash: the changes of the disk that it makes.
///
/// # Errors
/// What must not happen, and did.
pub fn changes<N: Node>(
    make_node: impl FnOnce(&Scenario) -> N,
    course: Course,
    options: Options,
) -> Result<Vec<Change>, Violation> {
    let heard = Heard::default();
    let mut simulation = simulation(make_node, course, options);
    heard.listen(|| guarded(|| simulation.go_through(course, None, 0, &heard)))
}

/// Goes through a course up to a crash, starts the node twice, and sees each time that all is
/// there, and the second time that nothing is amiss. With an odd seed it crashes once more while it
/// starts.
pub fn crash_at<N: Node>(
    make_node: impl FnOnce(&Scenario) -> N,
    course: Course,
    point: CrashPoint,
    options: Options,
) -> Report {
    let heard = Heard::default();
    let mut simulation = simulation(make_node, course, options);
    let outcome = heard
        .listen(|| guarded(|| simulation.go_through(course, Some(point), options.seed, &heard)));
    simulation.report(outcome.map(drop))
}

/// The crashes at the boundaries of these changes: with `all` in every way, else one for each state
/// of the disk. A kill leaves the same before and after a sync; a loss of power that keeps nothing
/// leaves the same before and after everything else.
pub fn points(changes: &[Change], all: bool) -> Vec<CrashPoint> {
    let mut points = Vec::new();
    for (number, &kind) in (0..).zip(changes) {
        for crash in [Crash::Process, Crash::Machine] {
            // A kill leaves all that was performed.
            let rests = match crash {
                _ if !all => &[Rest::Nothing][..],
                Crash::Process => &[Rest::Nothing, Rest::Drawn],
                Crash::Machine => &[Rest::Nothing, Rest::Names, Rest::Bytes, Rest::Drawn],
            };
            let moments = match (all, crash, kind) {
                (true, _, Change::Write) => &[Moment::Before, Moment::Within, Moment::After][..],
                (true, ..) => &[Moment::Before, Moment::After],
                (false, Crash::Process, Change::Write) => &[Moment::Before, Moment::Within],
                (false, Crash::Process, Change::Other) => &[Moment::Before],
                (false, Crash::Machine, Change::Sync) => &[Moment::Before],
                (false, ..) => &[],
            };
            for &moment in moments {
                let point = |&rest| CrashPoint { change: number, moment, crash, rest };
                points.extend(rests.iter().map(point));
            }
        }
    }
    points
}

fn simulation<N: Node>(
    make_node: impl FnOnce(&Scenario) -> N,
    course: Course,
    options: Options,
) -> Simulation<N> {
    let scenario = Scenario {
        length: Duration::from_secs(1),
        faults: FaultPlan::calm(),
        trouble: DiskTrouble::None,
        has_second_directory: course == Course::Move,
        crashes: Vec::new(),
        cuts: Vec::new(),
        clock_changes: Vec::new(),
        clients: Vec::new(),
        data_shards: 1,
        cores: 1,
        settings: course.settings(),
        last_crash: None,
    };
    let history = History {
        topics: course.topics(),
        is_whole: true,
        has_second_directory: scenario.has_second_directory,
        ..History::default()
    };
    Simulation::assemble(scenario, history, make_node, options)
}

impl<N: Node> Simulation<N> {
    fn go_through(
        &mut self,
        course: Course,
        point: Option<CrashPoint>,
        seed: u64,
        heard: &Heard,
    ) -> Result<Vec<Change>, Violation> {
        self.begin_calmly()?;
        let client = self.auditor()?;
        if course != Course::Metadata {
            self.find_topics(client)?;
        }
        self.history.is_calm = course != Course::Metadata;
        self.world.watch_changes(0, point);
        self.walk(course, client)?;
        let changes = self.world.watched_changes(0);
        ensure(self.exit.is_some() == point.is_some(), || {
            format!("it was to crash at {point:?} and came to {:?}", self.exit)
        })?;
        if point.is_some() && seed % 2 == 1 {
            self.crash_while_it_starts()?;
        }
        self.start_if_down()?;
        self.audit()?;
        self.stop_in_order()?;
        heard.forget();
        self.start_if_down()?;
        let pause = self.world.now() + TIDIES_WITHIN;
        self.pump(pause, |_| false)?;
        self.is_tidy(course)?;
        self.audit()?;
        let mut complaints = heard.take();
        complaints.retain(|it| !(course == Course::Deletion && it.contains("-stray")));
        ensure(complaints.is_empty(), || format!("its second start says: {complaints:?}"))?;
        Ok(changes)
    }

    /// Starts the node, which crashes at a change of its disk that is drawn, if it comes so far.
    fn crash_while_it_starts(&mut self) -> Result<(), Violation> {
        self.start_if_down()?;
        let crash = [Crash::Process, Crash::Machine][self.random.below(2) as usize];
        let change = self.random.below(STARTS_WITH_CHANGES);
        let (moment, rest) = (Moment::Within, Rest::Drawn);
        self.world.watch_changes(0, Some(CrashPoint { change, moment, crash, rest }));
        self.work_on(WORKS_ON_FOR)?;
        self.world.watched_changes(0);
        Ok(())
    }

    /// The requests of a course, up to the crash.
    fn walk(&mut self, course: Course, client: usize) -> Result<(), Violation> {
        let both: &[Place] = &[(0, 0), (1, 0)];
        match course {
            Course::Roll => {
                self.produce(client, both)?;
                self.produce_again(client)?;
                self.produce(client, both)?;
            }
            Course::Cleaning | Course::Retention => {
                for _ in 0..5 {
                    self.produce(client, &both[..1])?;
                }
            }
            Course::Metadata => {
                while self.exit.is_none() && self.history.topics.iter().any(|it| !it.exists) {
                    let create = CreateTopic::sample(&mut self.random, &self.history);
                    self.ask(client, Operation::CreateTopic(create))?;
                }
            }
            Course::DeleteRecords => {
                for before in [1, 4] {
                    self.produce(client, both)?;
                    self.produce(client, &both[..1])?;
                    let places = both.iter().map(|&place| (place, before));
                    let delete = DeleteRecords::new(&mut self.history, 2, places.collect());
                    self.ask(client, Operation::DeleteRecords(delete))?;
                }
            }
            Course::Move => {
                for directory in [SECOND_DIRECTORY, FIRST_DIRECTORY] {
                    self.produce(client, &both[..1])?;
                    let names = vec![(self.history.topics[0].name.clone(), 0)];
                    let to = MoveReplica::new(2, names, directory);
                    self.ask(client, Operation::MoveReplica(to))?;
                    self.work_on(WORKS_ON_FOR)?;
                }
            }
            Course::Deletion => {
                self.produce(client, both)?;
                if let Some(id) = self.history.topics[1].id.filter(|_| self.exit.is_none()) {
                    let delete = DeleteTopic::new(&mut self.history, 1, id);
                    self.ask(client, Operation::DeleteTopic(delete))?;
                }
                self.produce(client, &both[..1])?;
                if self.exit.is_none() {
                    let create = CreateTopic::sample(&mut self.random, &self.history);
                    self.ask(client, Operation::CreateTopic(create))?;
                }
            }
        }
        self.work_on(WORKS_ON_FOR)
    }

    /// Appends a batch to each of these partitions, and waits until its segment is full of age.
    fn produce(&mut self, client: usize, places: &[Place]) -> Result<(), Violation> {
        if self.exit.is_some() {
            return Ok(());
        }
        let connection = self.auditor_connection(client);
        let (random, history) = (&mut self.random, &mut self.history);
        let produce = Produce::new(random, history, connection, places, 9, -1);
        self.ask(client, Operation::Produce(produce))?;
        self.work_on(SEGMENT_TIME)
    }

    /// Appends what an idempotent producer sends.
    fn produce_again(&mut self, client: usize) -> Result<(), Violation> {
        // The first request asks for its id.
        for _ in 0..3 {
            if self.exit.is_some() {
                return Ok(());
            }
            if let Some(operation) = self.idempotent(client) {
                self.ask(client, operation)?;
            }
        }
        self.work_on(SEGMENT_TIME)
    }

    /// Sends an operation, and waits for its answer or the crash.
    fn ask(&mut self, client: usize, operation: Operation) -> Result<(), Violation> {
        if self.exit.is_some() { Ok(()) } else { self.call_or_crash(client, operation) }
    }

    /// Lets time pass, up to the crash.
    fn work_on(&mut self, time: Duration) -> Result<(), Violation> {
        let until = self.world.now() + time;
        self.pump(until, |simulation| simulation.exit.is_some()).map(drop)
    }

    /// Sees that the folders hold logs, and nothing that is half done.
    fn is_tidy(&mut self, course: Course) -> Result<(), Violation> {
        let endings = [".log", ".index", ".timeindex", ".txnindex", ".snapshot"];
        for path in self.world.disk(0).files() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let folder = path.parent().unwrap_or(&path).to_string_lossy().into_owned();
            let is_log = folder.split('/').count() > 2 && !folder.contains("__cluster_metadata");
            let is_of_segment = endings
                .iter()
                .any(|ending| name.len() == 20 + ending.len() && name.ends_with(ending));
            let is_known =
                ["partition.metadata", "leader-epoch-checkpoint"].contains(&name.as_str());
            // A log of no topic is kept, as in Kafka.
            let is_good = (is_of_segment || is_known) && !folder.contains('.')
                || folder.ends_with("-stray") && course == Course::Deletion;
            ensure(is_good || !is_log, || format!("{} is left", path.display()))?;
        }
        Ok(())
    }
}

/// What the node warns of.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    fn listen<T>(&self, body: impl FnOnce() -> T) -> T {
        tracing::subscriber::with_default(self.clone(), body)
    }

    fn forget(&self) {
        self.take();
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("one thread listens"))
    }
}

impl Subscriber for Heard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut sentence = Sentence(String::new());
        event.record(&mut sentence);
        self.0.lock().expect("one thread listens").push(sentence.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Sentence(String);

impl Visit for Sentence {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}
