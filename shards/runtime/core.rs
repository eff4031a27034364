//! One core: its machines, and the turns that drive them.

use std::sync::Arc;

use api::{Effect, Effects, Event, FileEffect, Instant, Lane, Machine, Now, ShardId, SocketEffect};
use api::{FileSlice, Token};
use base::Duration;
use ring::{Completion, Operation, Ring, Wait};

use crate::clock::Clock;
use crate::counters::Counters;
use crate::files::{self, Files};
use crate::links::{HandedOver, Links};
use crate::network::{self, Network, Next};
use crate::purpose::{Purpose, Seat};
use crate::settings::Settings;
use crate::shared::{RunError, Shared};
use crate::spin::Spinner;

/// Completions handled in one turn; the rest waits for the next.
const COMPLETIONS_A_TURN_MAX: usize = 4096;
/// How often a connection that waits for room on its way to another core tries again.
const HAND_OVER_RETRY: Duration = Duration::from_millis(1);

/// One machine and its place on the core.
struct Seated<M> {
    machine: Box<dyn Machine<Message = M>>,
    effects: Effects<M>,
    wake_at: Instant,
    /// It took a step in this turn.
    stepped: bool,
    stopped: bool,
}

/// The effects of a turn, sorted into the order in which they are performed.
struct Sorted<M> {
    files: Vec<(Seat, FileEffect<Token>)>,
    mesh: Vec<(Seat, MeshEffect<M>)>,
    sockets: Vec<(Seat, SocketEffect)>,
    stopped: Vec<Seat>,
}

enum MeshEffect<M> {
    Send { to: ShardId, lane: Lane, message: M },
    Post { to: ShardId, message: M },
}

/// Everything that one thread drives.
pub(crate) struct Core<M> {
    seats: Vec<Seated<M>>,
    shards: Vec<ShardId>,
    ring: Ring<Purpose>,
    network: Network,
    files: Files,
    links: Links<M>,
    next: Next<M>,
    // Lists that keep their room from turn to turn.
    events: Next<M>,
    sorted: Sorted<M>,
    completions: Vec<Completion<Purpose>>,
    handed_over: Vec<HandedOver>,
    clock: Clock,
    spinner: Spinner,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    stop_told: bool,
    /// How often a core had wanted descriptors when this one last looked.
    descriptors_wanted: u64,
}

impl<M: Send + 'static> Core<M> {
    /// Takes a core's machines, in the order of the seats that `links` gives them.
    pub(crate) fn new(
        machines: Vec<(ShardId, Box<dyn Machine<Message = M>>)>,
        ring: Ring<Purpose>,
        links: Links<M>,
        settings: &Settings,
        shared: Arc<Shared>,
    ) -> Self {
        let counters = shared.counters(links.thread());
        let (shards, machines): (Vec<ShardId>, Vec<_>) = machines.into_iter().unzip();
        let seats: Vec<Seated<M>> = machines
            .into_iter()
            .map(|machine| Seated {
                machine,
                effects: Effects::new(),
                wake_at: Instant::FAR_FUTURE,
                stepped: false,
                stopped: false,
            })
            .collect();
        let next = (0..seats.len()).map(|seat| (seat as Seat, Event::Started)).collect();
        Self {
            network: Network::new(settings, seats.len(), Arc::clone(&counters)),
            files: Files::new(shared.open_count(), shared.open_files_max(), Arc::clone(&counters)),
            seats,
            shards,
            ring,
            links,
            next,
            events: Vec::new(),
            sorted: Sorted {
                files: Vec::new(),
                mesh: Vec::new(),
                sockets: Vec::new(),
                stopped: Vec::new(),
            },
            completions: Vec::new(),
            handed_over: Vec::new(),
            clock: shared.clock(),
            spinner: Spinner::new(settings.spin),
            shared,
            counters,
            stop_told: false,
            descriptors_wanted: 0,
        }
    }

    /// Turns until every machine of the node has stopped, or the node has failed.
    ///
    /// # Errors
    /// The ring is unusable.
    pub(crate) fn run(&mut self) -> Result<(), RunError> {
        let bell = Arc::clone(self.shared.bell(self.links.thread()));
        self.ring.start(Operation::WatchBell(bell), Purpose::Bell);
        while !self.shared.is_over() {
            self.turn();
            self.rest().map_err(|error| RunError::Ring { cause: error.to_string() })?;
        }
        Ok(())
    }

    fn turn(&mut self) {
        self.counters.turns.add(1);
        let now = self.clock.now();
        self.gather(now);
        let mut events = std::mem::take(&mut self.events);
        for (seat, event) in events.drain(..) {
            step(&mut self.seats, &self.counters, seat, now, event);
        }
        self.events = events;
        self.receive(now);
        let now = self.clock.now();
        for seated in self.seats.iter_mut().filter(|seated| seated.stepped) {
            seated.machine.end_of_turn(now, &mut seated.effects);
            seated.stepped = false;
        }
        self.sort();
        if self.shared.failure().is_some() {
            // After a failure nothing is done any more: not even an answer leaves.
            return;
        }
        self.perform(now.mono);
        self.end_of_turn();
    }

    /// Gathers the events of this turn, but for what is received: that is stepped as it comes.
    fn gather(&mut self, now: Now) {
        std::mem::swap(&mut self.events, &mut self.next);
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.take_completions(&mut completions, COMPLETIONS_A_TURN_MAX);
        for completion in completions.drain(..) {
            self.completed(completion, now.mono);
        }
        self.completions = completions;
        self.network.accept_again(&mut self.ring, now.mono);
        let mut handed_over = std::mem::take(&mut self.handed_over);
        self.links.take_handed_over(&mut handed_over);
        for given in handed_over.drain(..) {
            self.take_over(given, now.mono);
        }
        self.handed_over = handed_over;
        // What completions led to is of this turn.
        self.events.append(&mut self.next);
        self.links.take_messages(&mut self.events);
        for (seat, seated) in self.seats.iter_mut().enumerate() {
            if seated.wake_at <= now.mono {
                seated.wake_at = Instant::FAR_FUTURE;
                self.events.push((seat as Seat, Event::WakeUp));
            }
        }
        if self.shared.is_stopping() && !self.stop_told {
            self.stop_told = true;
            self.events.extend((0..self.seats.len()).map(|seat| (seat as Seat, Event::Stop)));
        }
    }

    fn completed(&mut self, completion: Completion<Purpose>, now: Instant) {
        let mut tools = network::Tools { ring: &mut self.ring, next: &mut self.next, now };
        match completion.user {
            Purpose::Bell => {
                if !completion.more {
                    let bell = Arc::clone(self.shared.bell(self.links.thread()));
                    self.ring.start(Operation::WatchBell(bell), Purpose::Bell);
                }
            }
            Purpose::Accept(number) => self.network.accepted(number, completion, &mut tools),
            Purpose::Readable(seat, socket) => {
                self.network.readable((seat, socket), &completion, &mut tools);
            }
            Purpose::Writable(seat, socket) => {
                self.network.writable((seat, socket), &completion, &mut tools);
            }
            Purpose::Warmed(seat, socket) => {
                self.network.warmed((seat, socket), completion, &mut tools);
            }
            Purpose::File(name) => {
                let mut tools = files::Tools { ring: tools.ring, next: tools.next, now };
                self.files.completed(name, completion, &mut tools);
            }
            Purpose::Nobody => {}
        }
    }

    fn take_over(&mut self, given: HandedOver, now: Instant) {
        if !self.seats[usize::from(given.seat)].stopped {
            let mut tools = network::Tools { ring: &mut self.ring, next: &mut self.next, now };
            self.network.take_over(given, &mut tools);
        }
    }

    fn receive(&mut self, now: Now) {
        let Self { network, ring, next, seats, counters, .. } = self;
        let mut tools = network::Tools { ring, next, now: now.mono };
        network.receive(&mut tools, |seat, event| step(seats, counters, seat, now, event));
    }

    /// Sorts what the machines asked for, keeping the order within each kind.
    fn sort(&mut self) {
        for (seat, seated) in self.seats.iter_mut().enumerate() {
            let number = seat as Seat;
            for effect in seated.effects.drain() {
                match effect {
                    Effect::File(effect) => self.sorted.files.push((number, effect)),
                    Effect::Socket(effect) => self.sorted.sockets.push((number, effect)),
                    Effect::Mesh { to, lane, message } => {
                        self.sorted.mesh.push((number, MeshEffect::Send { to, lane, message }));
                    }
                    Effect::Post { to, message } => {
                        self.sorted.mesh.push((number, MeshEffect::Post { to, message }));
                    }
                    Effect::WakeAt(at) => seated.wake_at = at,
                    Effect::Stopped => self.sorted.stopped.push(number),
                    Effect::Fail { sentence } => self.shared.fail(RunError::Failed { sentence }),
                }
            }
        }
    }

    /// Performs what was sorted: files, then mesh, then sockets.
    fn perform(&mut self, now: Instant) {
        let Self { ring, next, files, network, links, sorted, .. } = self;
        let mut tools = files::Tools { ring, next, now };
        files.try_again(&mut tools);
        for (seat, effect) in sorted.files.drain(..) {
            files.perform(seat, effect, &mut tools);
        }
        for (seat, effect) in sorted.mesh.drain(..) {
            match effect {
                MeshEffect::Send { to, lane, message } => {
                    let from = self.shards[usize::from(seat)];
                    links.send((seat, from), to, lane, message, next);
                }
                MeshEffect::Post { to, message } => links.post(seat, to, message),
            }
        }
        let mut open = |slice: &FileSlice| files.open_to_send(&slice.file, now);
        let mut tools = network::Tools { ring, next, now };
        for (seat, effect) in sorted.sockets.drain(..) {
            match effect {
                SocketEffect::HandOver { socket, to, listener } => {
                    let place = links.place(to);
                    let Some(connection) = network.release(seat, socket) else { continue };
                    let (socket, peer) = (connection.socket, connection.peer);
                    let given = HandedOver { seat: place.seat, socket, listener, peer };
                    if place.thread == links.thread() {
                        self.handed_over.push(given);
                    } else {
                        links.hand_over(place.thread, given);
                    }
                }
                effect => network.perform(seat, effect, &mut open, &mut tools),
            }
        }
        network.send(&mut tools);
        for seat in sorted.stopped.drain(..) {
            let seated = &mut self.seats[usize::from(seat)];
            assert!(!seated.stopped, "a machine stopped twice");
            seated.stopped = true;
            seated.wake_at = Instant::FAR_FUTURE;
            network.close_all(seat, &mut tools);
            self.shared.machine_stopped();
        }
    }

    fn end_of_turn(&mut self) {
        let Self { links, shards, next, ring, shared, counters, .. } = self;
        links.end_of_turn(shards, next, |thread| {
            if shared.must_wake(thread) {
                counters.wakes_sent.add(1);
                match shared.ring(thread) {
                    Some(handle) => ring.wake(handle),
                    None => shared.bell(thread).ring(),
                }
            }
        });
        self.network.end_of_turn();
        self.share_descriptors();
    }

    /// A core that finds no descriptor asks the others for theirs: each closes its idlest files.
    fn share_descriptors(&mut self) {
        if self.files.wants_descriptors() {
            self.shared.want_descriptors();
        }
        let wanted = self.shared.descriptors_wanted();
        if std::mem::replace(&mut self.descriptors_wanted, wanted) != wanted {
            self.files.close_idlest();
        }
    }

    /// Enters the ring; with nothing to do, spins for a while and then sleeps in it.
    fn rest(&mut self) -> std::io::Result<()> {
        if self.is_busy() {
            return self.ring.enter(Wait::No);
        }
        let deadline = self.deadline();
        let spin = self.spinner.time();
        if !spin.is_zero() {
            self.ring.enter(Wait::No)?;
            let end = self.clock.mono() + spin;
            loop {
                if self.ring.has_news() || !self.links.is_empty() {
                    self.spinner.won();
                    self.counters.spins_won.add(1);
                    return self.ring.enter(Wait::No);
                }
                let now = self.clock.mono();
                if now >= deadline {
                    return Ok(());
                }
                if now >= end {
                    break;
                }
                std::hint::spin_loop();
            }
            self.spinner.lost();
        }
        self.sleep(deadline)
    }

    fn is_busy(&self) -> bool {
        !self.next.is_empty() || !self.handed_over.is_empty() || self.network.is_busy()
    }

    /// When this core must be awake by itself.
    fn deadline(&self) -> Instant {
        let now = self.clock.mono();
        let retry = self.links.is_hand_over_waiting().then(|| now + HAND_OVER_RETRY);
        let wakes = self.seats.iter().map(|seated| seated.wake_at);
        let others = [self.network.look_again_at(now), self.files.try_again_at()];
        wakes.chain(retry).chain(others).min().unwrap_or(now)
    }

    fn sleep(&mut self, deadline: Instant) -> std::io::Result<()> {
        let thread = self.links.thread();
        self.shared.announce_sleep(thread);
        let now = self.clock.mono();
        let wait = match deadline {
            _ if !self.links.is_empty() || self.shared.is_over() => Wait::No,
            _ if self.shared.is_stopping() && !self.stop_told => Wait::No,
            Instant::FAR_FUTURE => Wait::Forever,
            deadline if deadline <= now => Wait::No,
            deadline => Wait::AtMost(deadline.since(now)),
        };
        if wait != Wait::No {
            self.counters.sleeps.add(1);
        }
        let result = self.ring.enter(wait);
        self.shared.awake(thread);
        if wait != Wait::No {
            self.spinner.slept(now, self.clock.mono());
        }
        result
    }
}

fn step<M: Send + 'static>(
    seats: &mut [Seated<M>],
    counters: &Counters,
    seat: Seat,
    now: Now,
    event: Event<M>,
) {
    let seated = &mut seats[usize::from(seat)];
    if !seated.stopped {
        counters.events.add(1);
        seated.stepped = true;
        seated.machine.step(now, event, &mut seated.effects);
    }
}
