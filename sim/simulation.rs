//! One run: clients and faults, then calm, then audits of everything that must still be there.

use std::fmt;
use std::path::Path;

use base::{Duration, Instant, Random};
use fakeworld::{
    Crash, Disk, Exit, FaultPlan, Planted, Seat, Trouble, World, WorldEvent, WorldOptions,
};

use crate::client::{Client, Wish};
use crate::history::{Counts, History, Place, Violation, ensure};
use crate::lie::Lie;
use crate::operations::Operation;
use crate::scenario::{DiskTrouble, Scenario};
use crate::terms::SECOND_DIRECTORY;

/// The port that the node listens at.
pub const PORT: u16 = 9092;
/// How long the node may take, once faults are over, until everything is answered.
const CONVERGES_WITHIN: Duration = Duration::from_secs(60);
/// How long an orderly stop may take.
const STOPS_WITHIN: Duration = Duration::from_secs(60);

/// Makes the machines of a node.
pub trait Node {
    /// What they say to each other.
    type Message: fmt::Debug + Send + 'static;
    /// Slots of a lane between two of them.
    const LANE_SLOTS: usize;
    /// Whether the node does all that the workload knows; else only what a log needs.
    const IS_WHOLE: bool = true;

    /// Formats the disk of a new node.
    fn format(&mut self, disk: &mut Disk, random: &mut Random);

    /// The machines of a process that starts on this disk.
    ///
    /// # Errors
    /// What a real process would say before it ends, where the disk is no good.
    fn seats(
        &mut self,
        disk: &mut Disk,
        random: &mut Random,
    ) -> Result<Vec<Seat<Self::Message>>, String>;
}

/// How a run is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Everything follows from it.
    pub seed: u64,
    /// A fault of the driver that is to be found.
    pub planted: Option<Planted>,
    /// A falsification of the broker's answers that is to be found.
    pub lie: Option<Lie>,
    /// Lines of the trace that are kept.
    pub trace_lines: usize,
}

/// What came of a run.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    /// What happened, or what must not happen and did.
    pub outcome: Result<Counts, Violation>,
    /// The hash over everything: equal for equal runs.
    pub hash: u64,
    /// The last lines of the trace, if lines were kept.
    pub lines: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum Timer {
    Tick(usize),
    Reconnect(usize),
    Resume(usize),
    Crash(usize),
    Cut(usize),
    Clock(usize),
    Restart,
    DiskFills,
    DiskIsEmptied,
    Directory(Option<Trouble>),
}

/// One run.
pub struct Simulation<N: Node> {
    pub(crate) world: World<N::Message>,
    pub(crate) history: History,
    pub(crate) random: Random,
    node: N,
    scenario: Scenario,
    clients: Vec<Client>,
    connections: u64,
    winds_down: bool,
    /// The disk makes no errors any more, and what came of the last one is over.
    is_mended: bool,
    timers: Vec<Timer>,
    pub(crate) exit: Option<Exit>,
}

impl<N: Node> fmt::Debug for Simulation<N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a simulation with {:?}", self.world)
    }
}

/// Runs one seed. A panic of a machine is a violation like any other.
pub fn run<N: Node>(make_node: impl FnOnce(&Scenario) -> N, options: Options) -> Report {
    let random = Random::new(options.seed);
    let (scenario, history) = Scenario::draw(&random, N::IS_WHOLE);
    let mut simulation = Simulation::assemble(scenario, history, make_node, options);
    let outcome = guarded(|| simulation.run());
    simulation.report(outcome)
}

/// Takes a panic of a machine for a violation.
pub(crate) fn guarded<T>(body: impl FnOnce() -> Result<T, Violation>) -> Result<T, Violation> {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    caught.unwrap_or_else(|panic| Err(Violation(panic_sentence(&*panic))))
}

fn panic_sentence(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a machine panicked: {}", text.unwrap_or("without a sentence"))
}

impl<N: Node> Simulation<N> {
    /// A world with the disk of a node, and clients that are not connected.
    pub(crate) fn assemble(
        scenario: Scenario,
        history: History,
        make_node: impl FnOnce(&Scenario) -> N,
        options: Options,
    ) -> Self {
        let random = Random::new(options.seed);
        let history = History { lie: options.lie, ..history };
        let world = World::new(WorldOptions {
            seed: random.fork("world").next_u64(),
            faults: scenario.faults.clone(),
            planted: options.planted,
            lane_slots: N::LANE_SLOTS,
            trace_lines: options.trace_lines,
        });
        let plans = scenario.clients.iter().cloned().enumerate();
        Self {
            world,
            history,
            random: random.fork("workload"),
            node: make_node(&scenario),
            clients: plans.map(|(number, plan)| Client::new(number, plan)).collect(),
            scenario,
            connections: 0,
            winds_down: false,
            is_mended: false,
            timers: Vec::new(),
            exit: None,
        }
    }

    /// What came of it.
    pub(crate) fn report(&self, outcome: Result<(), Violation>) -> Report {
        let trace = self.world.trace();
        let lines = trace.lines().map(str::to_owned).collect();
        Report { outcome: outcome.map(|()| self.history.counts), hash: trace.hash(), lines }
    }

    /// Formats a node and starts it, in a world without clients and faults of its own.
    pub(crate) fn begin_calmly(&mut self) -> Result<(), Violation> {
        self.winds_down = true;
        self.begin()
    }

    fn begin(&mut self) -> Result<(), Violation> {
        self.world.add_node();
        let mut random = self.random.fork("node");
        self.node.format(self.world.disk(0), &mut random);
        self.start_node()
    }

    fn run(&mut self) -> Result<(), Violation> {
        self.begin()?;
        self.schedule();
        self.pump(Instant::ZERO + self.scenario.length, |_| false)?;
        self.calm_down()?;
        self.audit()?;
        match self.scenario.last_crash {
            Some(crash) => {
                self.world.crash(0, crash);
                self.pump(self.world.now(), |_| false)?;
            }
            None => self.stop_in_order()?,
        }
        self.start_if_down()?;
        self.audit()
    }

    fn schedule(&mut self) {
        let mut timers: Vec<(Instant, Timer)> = Vec::new();
        for client in 0..self.clients.len() {
            let at = Instant::from_nanos(self.random.below(50_000_000));
            timers.push((at, Timer::Reconnect(client)));
            timers.push((at, Timer::Tick(client)));
        }
        let scenario = &self.scenario;
        let crashes = scenario.crashes.iter().enumerate();
        timers.extend(crashes.map(|(index, crash)| (crash.at, Timer::Crash(index))));
        let cuts = scenario.cuts.iter().enumerate();
        timers.extend(cuts.map(|(index, cut)| (cut.0, Timer::Cut(index))));
        let changes = scenario.clock_changes.iter().enumerate();
        timers.extend(changes.map(|(index, change)| (change.0, Timer::Clock(index))));
        let nanos = scenario.length.as_nanos() as u64;
        let from = self.random.below(nanos);
        let until = from + self.random.below(nanos - from);
        let (begins, ends) = match scenario.trouble {
            DiskTrouble::Full => (Some(Timer::DiskFills), Some(Timer::DiskIsEmptied)),
            DiskTrouble::DeadDirectory => (Some(Timer::Directory(Some(Trouble::Broken))), None),
            DiskTrouble::FullDirectory => {
                let begins = Timer::Directory(Some(Trouble::Full));
                (Some(begins), Some(Timer::Directory(None)))
            }
            _ => (None, None),
        };
        timers.extend(begins.map(|timer| (Instant::from_nanos(from), timer)));
        timers.extend(ends.map(|timer| (Instant::from_nanos(until), timer)));
        for (at, timer) in timers {
            self.set_timer(at, timer);
        }
    }

    fn set_timer(&mut self, at: Instant, timer: Timer) {
        self.world.wake_at(at, self.timers.len() as u64);
        self.timers.push(timer);
    }

    fn set_timer_in_us(&mut self, us: u64, timer: Timer) {
        let at = self.world.now() + Duration::from_micros(us);
        self.set_timer(at, timer);
    }

    /// Lets time pass until `enough` says so or it is `until`. True if it was enough.
    pub(crate) fn pump(
        &mut self,
        until: Instant,
        enough: impl Fn(&Self) -> bool,
    ) -> Result<bool, Violation> {
        loop {
            if enough(self) {
                return Ok(true);
            }
            let Some(event) = self.world.next_event(until) else { return Ok(false) };
            self.handle(event)?;
        }
    }

    fn handle(&mut self, event: WorldEvent) -> Result<(), Violation> {
        match event {
            WorldEvent::Connected(socket) => {
                self.connections += 1;
                let number = self.connections;
                let mut clients = self.clients.iter_mut();
                if let Some(client) = clients.find(|client| client.socket() == Some(socket)) {
                    client.connected(number);
                }
                Ok(())
            }
            WorldEvent::Received(socket, bytes) => {
                let mut clients = self.clients.iter_mut();
                match clients.find(|client| client.socket() == Some(socket)) {
                    Some(client) => client.received(&bytes, &mut self.history),
                    None => Ok(()),
                }
            }
            WorldEvent::Closed(socket, reason) => {
                let mut clients = self.clients.iter_mut();
                let client = clients.find(|client| client.socket() == Some(socket));
                let Some(client) = client else { return Ok(()) };
                let number = client.number;
                let result = client.closed(&reason);
                let us = 1_000 + self.random.below(30_000);
                self.set_timer_in_us(us, Timer::Reconnect(number));
                // A node that is stopping closes its connections, and may.
                if self.winds_down { Ok(()) } else { result }
            }
            WorldEvent::Timer(index) => self.timer(self.timers[index as usize]),
            WorldEvent::Exited(_, exit) => self.exited(exit),
        }
    }

    fn timer(&mut self, timer: Timer) -> Result<(), Violation> {
        match timer {
            Timer::Tick(client) => {
                if self.winds_down {
                    return Ok(());
                }
                let state = &mut self.clients[client];
                let wish = state.tick(&mut self.world, &mut self.history, &mut self.random);
                let pace_us = state.pace_us(&mut self.random);
                match wish {
                    Wish::GoOn => {}
                    Wish::PauseReading => {
                        let us = self.random.below(100_000);
                        self.set_timer_in_us(us, Timer::Resume(client));
                    }
                    Wish::Reconnect => {
                        let us = self.random.below(10_000);
                        self.set_timer_in_us(us, Timer::Reconnect(client));
                    }
                }
                self.set_timer_in_us(pace_us, Timer::Tick(client));
            }
            Timer::Reconnect(client) => {
                let state = &mut self.clients[client];
                if state.socket().is_none() && !self.winds_down {
                    state.connect(&mut self.world, PORT);
                }
            }
            Timer::Resume(client) => {
                if let Some(socket) = self.clients[client].socket() {
                    self.world.set_paused(socket, false);
                }
            }
            Timer::Crash(index) => {
                let crash = self.scenario.crashes[index];
                if !self.winds_down {
                    self.world.crash_after_effects(0, crash.after_effects, crash.crash);
                }
            }
            Timer::Cut(index) => self.world.cut(0, self.scenario.cuts[index].1),
            Timer::Clock(index) => {
                self.world.set_wall_clock(0, self.scenario.clock_changes[index].1);
            }
            Timer::Restart => self.start_if_down()?,
            Timer::DiskFills => {
                let room_bytes = self.random.below(10_000);
                let used_bytes = self.world.disk(0).used_bytes();
                self.world.disk(0).set_capacity_bytes(used_bytes + room_bytes);
            }
            Timer::DiskIsEmptied => self.world.disk(0).set_capacity_bytes(u64::MAX),
            Timer::Directory(trouble) => {
                self.world.set_trouble(0, Path::new(SECOND_DIRECTORY), trouble);
            }
        }
        Ok(())
    }

    fn exited(&mut self, exit: Exit) -> Result<(), Violation> {
        match &exit {
            Exit::Crashed(Crash::Process) => self.history.counts.crashes += 1,
            Exit::Crashed(Crash::Machine) => self.history.power_is_lost(),
            Exit::Failed(sentence) => {
                // Between an error of the disk and the end of the node some time passes.
                let is_excused = self.scenario.trouble.excuses_an_end() && !self.is_mended;
                ensure(is_excused, || format!("the node gave up: {sentence}"))?;
                self.history.counts.crashes += 1;
                // After an error of the disk nobody knows what is in its cache: only a new boot
                // makes it tell the truth.
                self.world.crash(0, Crash::Machine);
                self.history.power_is_lost();
            }
            Exit::Stopped => {}
        }
        self.exit = Some(exit);
        if !self.winds_down {
            let us = 1_000 + self.random.below(100_000);
            self.set_timer_in_us(us, Timer::Restart);
        }
        Ok(())
    }

    fn start_node(&mut self) -> Result<(), Violation> {
        let mut random = self.random.fork("node").fork(&self.world.now().as_nanos().to_string());
        let seats = self.node.seats(self.world.disk(0), &mut random);
        let seats = seats.map_err(|sentence| {
            Violation(format!("the node does not start on its own disk: {sentence}"))
        })?;
        self.exit = None;
        self.history.node_starts();
        self.world.start(0, seats);
        Ok(())
    }

    pub(crate) fn start_if_down(&mut self) -> Result<(), Violation> {
        if self.world.is_running(0) { Ok(()) } else { self.start_node() }
    }

    /// Ends all faults; then everything in flight must be answered.
    fn calm_down(&mut self) -> Result<(), Violation> {
        self.world.note(format_args!("faults are over"), &[]);
        self.winds_down = true;
        self.world.set_faults(FaultPlan::calm());
        self.world.disk(0).set_capacity_bytes(u64::MAX);
        self.world.set_trouble(0, Path::new(SECOND_DIRECTORY), None);
        self.world.crash_after_effects(0, u64::MAX, Crash::Process);
        for client in &self.clients {
            if let Some(socket) = client.socket() {
                self.world.set_paused(socket, false);
            }
        }
        self.start_if_down()?;
        let until = self.world.now() + CONVERGES_WITHIN;
        let all_answered = |simulation: &Self| {
            simulation.clients.iter().all(|client| client.waits_for().is_none())
        };
        if self.pump(until, all_answered)? {
            return self.replace_bad_disk();
        }
        let mut waiting = self.clients.iter();
        let waiting = waiting.find_map(|client| Some((client.number, client.waits_for()?)));
        Err(Violation(format!("faults are over and a client has no answer: {waiting:?}")))
    }

    /// Where the disk made errors, logs may be offline, and nobody knows what is in its cache: the
    /// machine is started anew, as its administrator would.
    fn replace_bad_disk(&mut self) -> Result<(), Violation> {
        if self.scenario.trouble != DiskTrouble::None {
            self.world.crash(0, Crash::Machine);
            self.pump(self.world.now(), |_| false)?;
        }
        self.is_mended = true;
        self.start_if_down()
    }

    pub(crate) fn stop_in_order(&mut self) -> Result<(), Violation> {
        self.world.stop(0);
        let until = self.world.now() + STOPS_WITHIN;
        self.pump(until, |simulation| simulation.exit.is_some())?;
        ensure(self.exit == Some(Exit::Stopped), || {
            format!("the node was asked to stop in order and came to {:?}", self.exit)
        })
    }

    /// A client of its own for an audit.
    pub(crate) fn auditor(&mut self) -> Result<usize, Violation> {
        let plan = crate::client::ClientPlan {
            depth: 1,
            pace_us_max: 1,
            drops_per_thousand: 0,
            pauses_per_thousand: 0,
            group: None,
        };
        let number = self.clients.len();
        self.clients.push(Client::new(number, plan));
        let until = self.world.now() + CONVERGES_WITHIN;
        while !self.clients[number].is_connected() {
            ensure(self.world.now() < until, || "the node accepts no connection".to_owned())?;
            if self.clients[number].socket().is_none() {
                self.clients[number].connect(&mut self.world, PORT);
            }
            let pause = self.world.now() + Duration::from_millis(10);
            self.pump(pause, |simulation| simulation.clients[number].is_connected())?;
        }
        Ok(number)
    }

    /// Sends an operation and waits for its answer, which is judged.
    pub(crate) fn call(&mut self, auditor: usize, operation: Operation) -> Result<(), Violation> {
        let sentence = format!("the node does not answer {operation:?}");
        let client = &mut self.clients[auditor];
        ensure(client.is_connected(), || format!("the node closed on an auditor: {sentence}"))?;
        client.send(&mut self.world, &mut self.history, operation);
        let until = self.world.now() + CONVERGES_WITHIN;
        let answered = |simulation: &Self| {
            let client = &simulation.clients[auditor];
            !client.is_connected() || client.waits_for().is_none()
        };
        let is_answered = self.pump(until, answered)?;
        ensure(is_answered && self.clients[auditor].is_connected(), || sentence)
    }

    /// Sends an operation and waits for its answer, which is judged, or for the crash of the node.
    pub(crate) fn call_or_crash(
        &mut self,
        auditor: usize,
        operation: Operation,
    ) -> Result<(), Violation> {
        let sentence = format!("the node does not answer {operation:?}");
        self.clients[auditor].send(&mut self.world, &mut self.history, operation);
        let until = self.world.now() + CONVERGES_WITHIN;
        let is_over = |simulation: &Self| {
            let client = &simulation.clients[auditor];
            simulation.exit.is_some() || client.is_connected() && client.waits_for().is_none()
        };
        let is_over = self.pump(until, is_over)?;
        ensure(is_over, || sentence)
    }

    /// What the idempotent producer of a client sends next, if anything.
    pub(crate) fn idempotent(&mut self, client: usize) -> Option<Operation> {
        self.clients[client].idempotent(&mut self.random, &mut self.history)
    }

    /// The next request of the auditor's session about these partitions.
    pub(crate) fn session_fetch(&mut self, auditor: usize, places: &[Place]) -> Operation {
        self.clients[auditor].session_fetch(&self.history, places)
    }

    /// The number of the auditor's connection.
    pub(crate) fn auditor_connection(&self, auditor: usize) -> u64 {
        self.clients[auditor].connection_number().unwrap_or(0)
    }
}
