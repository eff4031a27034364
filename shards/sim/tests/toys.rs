//! The fake world tried with machines that are small enough to be known.

use std::collections::BTreeMap;

use api::{
    Effect, Effects, Event, FileEffect, FileRef, FileSlice, Machine, Part, SocketEffect, SocketId,
};
use base::{Instant, Now, Random, ShardId, Token};
use bytes::Bytes;
use fakeworld::{
    ClientSocket, Crash, Exit, FaultPlan, Planted, Seat, World, WorldEvent, WorldOptions,
};

const PORT: u16 = 9092;
const LOG: &str = "/data/log";
/// Every line that the log takes has this many bytes; the last one is a newline.
const LINE_BYTES: usize = 32;
const ACK: &[u8] = b"ok\n";
const LISTEN: Token = Token::from_bits(1);

#[derive(Debug)]
enum Message {
    Append { socket: SocketId, line: Bytes },
    Appended { socket: SocketId },
}

/// Accepts, hands every connection to shard 0 and sends each whole line on to the log.
#[derive(Default)]
struct Front {
    pending: BTreeMap<SocketId, Vec<u8>>,
}

impl Front {
    fn received(&mut self, socket: SocketId, bytes: &[u8], effects: &mut Effects<Message>) {
        let pending = self.pending.entry(socket).or_default();
        pending.extend_from_slice(bytes);
        while pending.len() >= LINE_BYTES {
            let line: Vec<u8> = pending.drain(..LINE_BYTES).collect();
            effects.request(ShardId(1), Message::Append { socket, line: Bytes::from(line) });
        }
    }
}

impl Machine for Front {
    type Message = Message;

    fn step(&mut self, now: Now, event: Event<Message>, effects: &mut Effects<Message>) {
        match event {
            Event::Started | Event::WakeUp => effects.socket(SocketEffect::Listen {
                token: LISTEN,
                address: World::<Message>::address(0, PORT),
                backlog: 8,
            }),
            Event::Listening { result: Ok(_), .. } => {}
            Event::Listening { result: Err(error), .. } => {
                // A process that crashed a moment ago still has it.
                assert_eq!(error.kind, api::IoErrorKind::AddressInUse);
                effects.push(Effect::WakeAt(now.mono + base::Duration::from_millis(10)));
            }
            Event::Accepted { socket, .. } => {
                effects.socket(SocketEffect::HandOver { socket, to: ShardId(0), listener: 0 })
            }
            Event::Received { socket, bytes } => self.received(socket, &bytes, effects),
            Event::Mesh { message: Message::Appended { socket }, .. } => {
                let parts = vec![Part::Bytes(Bytes::from_static(ACK))];
                effects.socket(SocketEffect::Send { socket, parts });
            }
            Event::Closed { socket, .. } => {
                self.pending.remove(&socket);
            }
            Event::Stop => effects.push(Effect::Stopped),
            _ => {}
        }
    }
}

/// Appends lines to one file and answers what is written, or what is durable if it syncs.
struct Log {
    syncs: bool,
    file: FileRef,
    stage: Stage,
    length: u64,
    waiting: Vec<(ShardId, SocketId)>,
    lines: Vec<Bytes>,
    under_way: Vec<(ShardId, SocketId)>,
}

#[derive(Debug, PartialEq)]
enum Stage {
    Making,
    SyncingRoot,
    Reading,
    Cutting,
    SyncingDirectory,
    Idle,
    Writing,
    Syncing,
}

impl Log {
    fn new(syncs: bool) -> Self {
        Self {
            syncs,
            file: FileRef::new(LOG),
            stage: Stage::Making,
            length: 0,
            waiting: Vec::new(),
            lines: Vec::new(),
            under_way: Vec::new(),
        }
    }

    fn file_event(&mut self, outcome: api::FileOutcome, effects: &mut Effects<Message>) {
        let token = Token::NONE;
        let file = self.file.clone();
        let directory = |path: &str| FileEffect::SyncDirectory { token, directory: path.into() };
        self.stage = match self.stage {
            Stage::Making => {
                outcome.done().expect("no faults");
                effects.file(directory("/"));
                Stage::SyncingRoot
            }
            Stage::SyncingRoot => {
                outcome.done().expect("no faults");
                effects.file(FileEffect::Read { token, file, position: 0, length: 1 << 20 });
                Stage::Reading
            }
            Stage::Reading => {
                let bytes = outcome.read().unwrap_or_default();
                let whole = bytes.chunks_exact(LINE_BYTES).take_while(|line| line[31] == b'\n');
                self.length = (whole.count() * LINE_BYTES) as u64;
                effects.file(FileEffect::Truncate { token, file, length: self.length });
                Stage::Cutting
            }
            Stage::Cutting => {
                outcome.done().expect("no faults");
                effects.file(directory("/data"));
                Stage::SyncingDirectory
            }
            Stage::SyncingDirectory => Stage::Idle,
            Stage::Writing if self.syncs => {
                outcome.done().expect("no faults");
                effects.file(FileEffect::Sync { token, file });
                Stage::Syncing
            }
            Stage::Writing | Stage::Syncing => {
                outcome.done().expect("no faults");
                for (shard, socket) in self.under_way.drain(..) {
                    effects.reply(shard, Message::Appended { socket });
                }
                Stage::Idle
            }
            Stage::Idle => panic!("nothing is under way"),
        };
    }
}

impl Machine for Log {
    type Message = Message;

    fn step(&mut self, _now: Now, event: Event<Message>, effects: &mut Effects<Message>) {
        match event {
            Event::Started => {
                effects.file(FileEffect::MakeDirectory { token: Token::NONE, path: "/data".into() })
            }
            Event::File { outcome, .. } => self.file_event(outcome, effects),
            Event::Mesh { from, message: Message::Append { socket, line } } => {
                self.waiting.push((from, socket));
                self.lines.push(line);
            }
            Event::Stop => effects.push(Effect::Stopped),
            _ => {}
        }
    }

    fn end_of_turn(&mut self, _now: Now, effects: &mut Effects<Message>) {
        if self.stage == Stage::Idle && !self.lines.is_empty() {
            self.stage = Stage::Writing;
            self.under_way = std::mem::take(&mut self.waiting);
            let parts = std::mem::take(&mut self.lines);
            let (file, position) = (self.file.clone(), self.length);
            self.length += (parts.len() * LINE_BYTES) as u64;
            effects.file(FileEffect::Write { token: Token::NONE, file, position, parts });
        }
    }
}

fn seats(syncs: bool) -> Vec<Seat<Message>> {
    vec![
        Seat { core: 0, machine: Box::new(Front::default()) },
        Seat { core: 1, machine: Box::new(Log::new(syncs)) },
    ]
}

fn world(seed: u64, planted: Option<Planted>) -> World<Message> {
    let faults = FaultPlan::rough(&mut Random::new(seed).fork("plan"));
    let options = WorldOptions { seed, faults, planted, lane_slots: 4_096, trace_lines: 0 };
    let mut world = World::new(options);
    world.add_node();
    world
}

/// What a run came to.
#[derive(Debug, PartialEq)]
struct Run {
    hash: u64,
    acknowledged: usize,
    lost: usize,
    stuck: bool,
}

/// One client that sends lines, waits for each answer and connects again after every crash.
struct Writer {
    socket: Option<ClientSocket>,
    sent: u32,
    answer: Vec<u8>,
    acknowledged: Vec<String>,
}

const RECONNECT: u64 = 1;
const RESTART: u64 = 2;
const CRASH: u64 = 3;
const LINES_MAX: usize = 60;

impl Writer {
    fn send(&mut self, world: &mut World<Message>) {
        self.sent += 1;
        if let Some(socket) = self.socket {
            world.send(socket, Bytes::from(self.line()));
        }
    }

    fn line(&self) -> String {
        format!("{:031}\n", self.sent)
    }
}

fn run(seed: u64, syncs: bool, crash: Crash, planted: Option<Planted>) -> Run {
    let mut world = world(seed, planted);
    let mut random = Random::new(seed).fork("crashes");
    world.start(0, seats(syncs));
    let mut writer = Writer { socket: None, sent: 0, answer: Vec::new(), acknowledged: Vec::new() };
    world.wake_at(Instant::from_nanos(1_000_000), RECONNECT);
    world.wake_at(Instant::from_nanos(random.below(400_000_000)), CRASH);
    let until = Instant::from_nanos(20_000_000_000);
    while let Some(event) = world.next_event(until) {
        match event {
            WorldEvent::Connected(_) => writer.send(&mut world),
            WorldEvent::Received(_, bytes) => {
                writer.answer.extend_from_slice(&bytes);
                if writer.answer == ACK {
                    writer.answer.clear();
                    writer.acknowledged.push(writer.line());
                    if writer.acknowledged.len() == LINES_MAX {
                        break;
                    }
                    writer.send(&mut world);
                }
            }
            WorldEvent::Closed(..) => {
                writer.answer.clear();
                writer.socket = None;
                world.wake_at(world.now() + base::Duration::from_millis(5), RECONNECT);
            }
            WorldEvent::Timer(RECONNECT) => writer.socket = Some(world.connect(0, PORT)),
            WorldEvent::Timer(CRASH) => world.crash_after_effects(0, random.below(20), crash),
            WorldEvent::Timer(_) => world.start(0, seats(syncs)),
            WorldEvent::Exited(..) => {
                world.wake_at(world.now() + base::Duration::from_millis(3), RESTART);
                if random.chance(70) {
                    let at = world.now() + base::Duration::from_millis(random.below(300));
                    world.wake_at(at, CRASH);
                }
            }
        }
    }
    let stuck = writer.acknowledged.len() < LINES_MAX;
    world.crash(0, crash);
    let log = world.disk(0).peek(LOG.as_ref()).unwrap_or_default().to_vec();
    let lines: Vec<&[u8]> = log.chunks(LINE_BYTES).collect();
    let lost = writer.acknowledged.iter().filter(|line| !lines.contains(&line.as_bytes())).count();
    Run { hash: world.trace().hash(), acknowledged: writer.acknowledged.len(), lost, stuck }
}

#[test]
fn a_log_that_syncs_loses_nothing_whatever_crashes() {
    for seed in 0..25 {
        for (syncs, crash) in
            [(true, Crash::Process), (true, Crash::Machine), (false, Crash::Process)]
        {
            let run = run(seed, syncs, crash, None);
            assert_eq!((run.lost, run.stuck), (0, false), "seed {seed} {crash:?}: {run:?}");
        }
    }
}

#[test]
fn one_seed_is_one_run() {
    for seed in 0..5 {
        assert_eq!(run(seed, true, Crash::Machine, None), run(seed, true, Crash::Machine, None));
    }
    assert_ne!(run(1, true, Crash::Machine, None).hash, run(2, true, Crash::Machine, None).hash);
}

#[test]
fn planted_faults_show() {
    let lost = |syncs, crash, planted| -> usize {
        (0..25).map(|seed| run(seed, syncs, crash, planted).lost).sum()
    };
    assert!(lost(true, Crash::Machine, Some(Planted::SkipSync)) > 0);
    assert_eq!(lost(true, Crash::Process, Some(Planted::SkipSync)), 0, "the page cache stays");
    assert!(lost(false, Crash::Process, Some(Planted::SendBeforeWrite)) > 0);
    assert!(lost(false, Crash::Machine, None) > 0, "nothing is durable without a sync");
    let stuck = |seed: &u64| run(*seed, true, Crash::Process, Some(Planted::LoseMesh)).stuck;
    assert!((0..25).filter(stuck).count() > 0);
}

/// Sends the whole of a file to whoever connects, removes it meanwhile, and closes.
struct Giver;

impl Machine for Giver {
    type Message = Message;

    fn step(&mut self, now: Now, event: Event<Message>, effects: &mut Effects<Message>) {
        match event {
            Event::Started => effects.push(Effect::WakeAt(now.mono + base::Duration::from_secs(1))),
            Event::WakeUp => Front::default().step(now, Event::Started, effects),
            Event::Accepted { socket, .. } => {
                effects.socket(SocketEffect::HandOver { socket, to: ShardId(0), listener: 3 });
            }
            Event::Opened { socket, listener, .. } => {
                assert_eq!(listener, 3);
                let file = FileRef::new("/data/gift");
                let length = 100_000;
                let slice = Part::File(FileSlice { file: file.clone(), position: 0, length });
                let parts = vec![Part::Bytes(Bytes::from_static(b"head")), slice];
                effects.socket(SocketEffect::Send { socket, parts });
                effects.socket(SocketEffect::Close { socket, flush: true });
                let token = Token::NONE;
                effects.file(FileEffect::Read { token, file, position: 0, length: 1 });
            }
            Event::File { outcome: api::FileOutcome::Read(_), .. } => {
                let path = "/data/gift".into();
                effects.file(FileEffect::Remove { token: Token::NONE, path, files: Vec::new() });
            }
            Event::Closed { reason, .. } => assert_eq!(reason, api::CloseReason::Asked),
            Event::Stop => effects.push(Effect::Stopped),
            _ => {}
        }
    }
}

#[test]
fn a_slice_is_sent_to_its_end_though_the_reader_is_slow_and_the_file_is_removed() {
    let faults = FaultPlan::calm();
    let options = WorldOptions { seed: 1, faults, planted: None, lane_slots: 4, trace_lines: 9 };
    let mut world = World::new(options);
    let node = world.add_node();
    let gift: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    world.disk(node).install("/data/gift".as_ref(), &gift);
    world.start(node, vec![Seat { core: 0, machine: Box::new(Giver) }]);
    let mut faults = FaultPlan::calm();
    faults.network.window_bytes = 1_000;
    world.set_faults(faults);
    world.wake_at(Instant::from_nanos(2_000_000_000), 0);
    let mut got = Vec::new();
    let mut exit = None;
    while let Some(event) = world.next_event(Instant::from_nanos(9_000_000_000)) {
        match event {
            WorldEvent::Timer(0) => {
                world.connect(node, PORT);
            }
            WorldEvent::Connected(client) => {
                world.set_paused(client, true);
                world.wake_at(world.now() + base::Duration::from_secs(1), 1 + client.0);
            }
            WorldEvent::Timer(client) => {
                assert!(got.is_empty());
                assert!(world.disk(node).files().is_empty(), "the file has no name any more");
                world.set_paused(ClientSocket(client - 1), false);
            }
            WorldEvent::Received(_, bytes) => got.extend_from_slice(&bytes),
            WorldEvent::Closed(..) => world.stop(node),
            WorldEvent::Exited(_, how) => exit = Some(how),
        }
    }
    assert_eq!(got.len(), 100_004);
    assert!(got[4..] == gift[..]);
    assert_eq!(exit, Some(Exit::Stopped));
    assert_eq!(world.trace().lines().count(), 9);
}
