//! A log in the fake world: written, left in order or not, and opened by what comes after.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use api::{Effect, Effects, Event, Machine};
use base::{
    Instant, LeaderEpoch, Now, Offset, PartitionIndex, ProducerEpoch, ProducerId, Random, Slab,
    TopicPartition, Uuid,
};
use commitlog::{AppendBatch, Cases, Checkpoints, Log, LogConfig, LogEvent, LogParams, LogStep};
use fakeworld::{Exit, FaultPlan, Seat, World, WorldEvent, WorldOptions};
use records::{
    Batch, BatchBuilder, Codec, ControlKey, ControlType, HEADER_BYTES, NewRecord,
    end_transaction_marker,
};

pub(crate) const FOLDER: &str = "/data/t-0";
const STEPS_MAX: usize = 1 << 16;

/// The names and bytes of the files in the folder of a log.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// What a log has said.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Where it began and ended, and what was found, once it was open.
    pub(crate) opened: Option<(Offset, Offset, Cases)>,
    /// Why it could not be opened.
    pub(crate) refused: Option<String>,
}

/// How a log is used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    /// What it has already: it is made if there is nothing.
    pub(crate) files: Files,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) segment_bytes: u32,
    /// What is appended to it. The offsets go on from where it ends.
    pub(crate) batches: VecDeque<Batch>,
    /// Whether it is closed in the end, or left.
    pub(crate) closes: bool,
}

struct Owner {
    run: Run,
    log: Option<Log>,
    steps: Slab<LogStep>,
    report: Rc<RefCell<Report>>,
}

impl Owner {
    fn begin(&self, out: &mut Vec<api::FileEffect<LogStep>>) -> Log {
        let params = LogParams {
            directory: PathBuf::from(FOLDER),
            partition: TopicPartition { topic: Arc::from("t"), partition: PartitionIndex(0) },
            topic_id: Uuid([7; 16]),
            sets_strays_aside: true,
            config: LogConfig {
                segment_bytes: self.run.segment_bytes,
                index_interval_bytes: 100,
                ..LogConfig::default()
            },
        };
        if self.run.files.is_empty() {
            Log::create(params, out)
        } else {
            Log::open(params, self.run.checkpoints, out)
        }
    }

    /// Appends the next batch, or ends.
    fn go_on(
        &mut self,
        now: Now,
        out: &mut Vec<api::FileEffect<LogStep>>,
        events: &mut Vec<LogEvent>,
        effects: &mut Effects<()>,
    ) {
        let log = self.log.as_mut().expect("it was begun");
        if let Some(batch) = self.run.batches.pop_front() {
            let mut header = *batch.bytes().first_chunk::<HEADER_BYTES>().expect("it has one");
            header[..8].copy_from_slice(&log.end_offset().0.to_be_bytes());
            let appended = AppendBatch { header, records: batch.record_bytes() };
            log.append(now, &[appended]).expect("one batch at a time is taken");
        } else if self.run.closes {
            log.close(now, out, events);
        } else {
            effects.push(Effect::Stopped);
        }
    }

    fn hear(&mut self, now: Now, events: Vec<LogEvent>, effects: &mut Effects<()>) {
        for event in events {
            let (mut out, mut more) = (Vec::new(), Vec::new());
            match event {
                LogEvent::Opened { log_start_offset, end_offset, cases } => {
                    self.report.borrow_mut().opened = Some((log_start_offset, end_offset, cases));
                    self.go_on(now, &mut out, &mut more, effects);
                }
                LogEvent::Written { .. } => self.go_on(now, &mut out, &mut more, effects),
                LogEvent::Closed { .. } => effects.push(Effect::Stopped),
                LogEvent::Unreadable { sentence } => self.refuse(sentence, effects),
                LogEvent::Stray => self.refuse("stray".to_owned(), effects),
                LogEvent::Failed { cause } => panic!("no disk failed, but {cause}"),
                _ => {}
            }
            self.ask(out, effects);
            self.hear(now, more, effects);
        }
    }

    fn refuse(&mut self, sentence: String, effects: &mut Effects<()>) {
        self.report.borrow_mut().refused = Some(sentence);
        effects.push(Effect::Stopped);
    }

    fn ask(&mut self, out: Vec<api::FileEffect<LogStep>>, effects: &mut Effects<()>) {
        for effect in out {
            let steps = &mut self.steps;
            effects.file(effect.map(|step| steps.insert(step).expect("few are under way")));
        }
    }
}

impl Machine for Owner {
    type Message = ();

    fn step(&mut self, now: Now, event: Event<()>, effects: &mut Effects<()>) {
        let (mut out, mut events) = (Vec::new(), Vec::new());
        match event {
            Event::Started => self.log = Some(self.begin(&mut out)),
            Event::File { token, outcome } => {
                let step = self.steps.remove(token).expect("it was asked for");
                let log = self.log.as_mut().expect("it was begun");
                log.on_file(now, step, outcome, &mut out, &mut events);
            }
            other => panic!("{other:?}"),
        }
        self.ask(out, effects);
        self.hear(now, events, effects);
    }

    fn end_of_turn(&mut self, now: Now, effects: &mut Effects<()>) {
        let mut out = Vec::new();
        self.log.as_mut().expect("it was begun").flush_turn(now, &mut out);
        self.ask(out, effects);
    }
}

/// Runs a log until it is closed, left or refused. Returns what it said, and what is in its folder,
/// whatever that is called by then.
///
/// # Panics
/// If it does not come to an end, or fails on a disk that does not.
pub(crate) fn run(seed: u64, run: Run) -> (Report, Files) {
    let faults = FaultPlan::calm();
    let options = WorldOptions { seed, faults, planted: None, lane_slots: 1, trace_lines: 0 };
    let mut world = World::new(options);
    let node = world.add_node();
    world.disk(node).install_directory(Path::new("/data"));
    for (name, bytes) in &run.files {
        world.disk(node).install(&Path::new(FOLDER).join(name), bytes);
    }
    let report = Rc::new(RefCell::new(Report::default()));
    let owner = Owner { run, log: None, steps: Slab::new(STEPS_MAX), report: Rc::clone(&report) };
    world.start(node, vec![Seat { core: 0, machine: Box::new(owner) }]);
    match world.next_event(Instant::FAR_FUTURE) {
        Some(WorldEvent::Exited(_, Exit::Stopped)) => {}
        other => panic!("the log came to {other:?}"),
    }
    let disk = world.disk(node);
    let mut files = Files::new();
    for path in disk.files() {
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        files.insert(name, disk.peek(&path).expect("it was listed").to_vec());
    }
    drop(world);
    let report = Rc::into_inner(report).expect("the machine is gone").into_inner();
    (report, files)
}

/// Batches of every kind that a log may hold, in an order that makes sense.
pub(crate) fn some_batches(random: &mut Random) -> VecDeque<Batch> {
    let mut epoch = 0;
    let mut sequence = 0;
    let mut is_open = false;
    let count = 5 + random.below(30);
    (0..count)
        .map(|_| {
            epoch += i32::from(random.chance(10));
            let codec = Codec::from_id(random.below(5) as u8).expect("five codecs");
            let mut builder = BatchBuilder::new(Offset(0), codec.into());
            builder = builder.leader_epoch(LeaderEpoch(epoch));
            let (id, producer_epoch) = (ProducerId(5), ProducerEpoch(0));
            if is_open && random.chance(30) {
                is_open = false;
                let ends = [ControlType::Commit, ControlType::Abort];
                let end = ends[random.below(2) as usize];
                let mut builder = BatchBuilder::new(Offset(0), Codec::None.into())
                    .leader_epoch(LeaderEpoch(epoch))
                    .producer(id, producer_epoch, -1)
                    .transactional()
                    .control();
                let (key, value) = (ControlKey::new(end).write(), end_transaction_marker(0));
                let (key, value) = (Some(&key[..]), Some(&value[..]));
                builder.append(&NewRecord { timestamp: 9, key, value, headers: &[] });
                return builder.build();
            }
            let records = 1 + random.below(5) as i32;
            if random.chance(40) {
                builder = builder.producer(id, producer_epoch, sequence).transactional();
                sequence += records;
                is_open = true;
            }
            for _ in 0..records {
                let mut value = vec![0; random.below(200) as usize];
                random.fill(&mut value);
                let timestamp = random.below(1000) as i64;
                builder.append(&NewRecord {
                    timestamp,
                    value: Some(&value),
                    ..NewRecord::default()
                });
            }
            builder.build()
        })
        .collect()
}
