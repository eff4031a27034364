//! A whole quorum in one test: replicas on disks that lose what was not synced, over a network that
//! delays, drops, repeats and cuts, with clocks that run unequally. One seed is one run. First a
//! time in which anything breaks, then one in which all is well and the quorum must get on.

mod checks;
mod disk;
mod net;
mod runs;

use std::collections::BTreeMap;

use base::{Duration, Instant, LeaderEpoch, NodeId, Now, Random, Uuid};
use bytes::Bytes;

use self::checks::Checks;
use self::disk::{Disk, Snap};
use crate::replica::Faults;
use crate::snapshot::SnapshotId;
use crate::*;

const MS: u64 = 1_000_000;
/// How long things break, and how long the quorum may take then.
const STORM_MS: u64 = 12_000;
const CALM_MS: u64 = 30_000;
/// More than any run needs: a quorum that never rests is stopped.
const STEPS_MAX: u64 = 400_000;

type NodeAt = usize;

/// What the test does wrong on purpose.
#[derive(Clone, Copy, Debug, Default)]
struct Planted {
    faults: Faults,
    /// What waits for `quorum-state` leaves at once.
    votes_before_sync: bool,
}

/// What happens at some time. `life` tells a replica's starts apart.
#[derive(Debug)]
enum Event {
    Request {
        to: NodeAt,
        from: NodeAt,
        life: u32,
        peer: Peer,
        id: RequestId,
        request: Request,
    },
    Answer {
        to: NodeAt,
        life: u32,
        peer: Peer,
        id: RequestId,
        reply: Option<Reply>,
    },
    ElectionWritten {
        node: NodeAt,
        life: u32,
        state: ElectionState,
        written: ElectionWritten,
    },
    Synced {
        node: NodeAt,
        life: u32,
        operations: u64,
    },
    Truncated {
        node: NodeAt,
        life: u32,
    },
    Installed {
        node: NodeAt,
        life: u32,
        id: SnapshotId,
    },
    Tick {
        node: NodeAt,
        life: u32,
    },
    Gone {
        node: NodeAt,
        life: u32,
        leader: NodeId,
    },
    Start {
        node: NodeAt,
    },
    Propose,
    Trouble,
    /// A new leader loses its power, and others with it.
    Hunt {
        node: NodeAt,
        life: u32,
    },
}

struct Node {
    key: ReplicaKey,
    raft: Option<Raft>,
    disk: Disk,
    life: u32,
    /// How fast its clock runs, in percent.
    pace: u64,
    /// A snapshot that is being fetched, and how much of it is there.
    fetched: Option<(SnapshotId, u64)>,
    tick_at: u64,
    /// Where requests came from that it has not answered.
    inbound: BTreeMap<RequestId, (NodeAt, u32, Peer, RequestId)>,
}

struct Cluster {
    random: Random,
    now: u64,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    nodes: Vec<Node>,
    checks: Checks,
    planted: Planted,
    configured: VoterSet,
    net: net::Net,
    is_storm: bool,
    /// Whether the voters change.
    changes_voters: bool,
    /// Whether leaders live short lives.
    hunts: bool,
    timing: Timing,
    /// All snapshots that were ever taken: equal ids have equal contents.
    snapshots: BTreeMap<SnapshotId, Snap>,
    next_value: u64,
    /// The epochs of the votes that were asked for and are not answered.
    votes_asked: BTreeMap<RequestId, LeaderEpoch>,
    /// A hash of everything that happened, where it is wanted.
    trace: Option<u64>,
}

fn short_times() -> Timing {
    let defaults = Timing::default();
    let tenth = |time: Duration| time / 10;
    Timing {
        election_timeout: tenth(defaults.election_timeout),
        fetch_timeout: tenth(defaults.fetch_timeout),
        election_backoff_max: tenth(defaults.election_backoff_max),
        request_timeout: tenth(defaults.request_timeout),
        retry_backoff: tenth(defaults.retry_backoff),
        fetch_wait: tenth(defaults.fetch_wait),
    }
}

fn own_voter(key: ReplicaKey) -> Voter {
    let port = u16::try_from(key.id.0).expect("small");
    let endpoint = VoterEndpoint { listener: "CONTROLLER".into(), host: "localhost".into(), port };
    Voter { key, endpoints: vec![endpoint], kraft_versions: (0, 1) }
}

impl Cluster {
    fn new(seed: u64, planted: Planted) -> Self {
        let root = Random::new(seed);
        let mut shape = root.fork("shape");
        let voter_count = [1, 3, 3, 3, 5][usize::try_from(shape.below(5)).expect("small")];
        let count = voter_count + usize::try_from(shape.below(3)).expect("small");
        let is_static = shape.chance(30);
        let hunts = shape.chance(40);
        let key = |at: usize| ReplicaKey {
            id: NodeId(i32::try_from(at + 1).expect("small")),
            directory: Uuid([u8::try_from(at + 1).expect("small"); 16]),
        };
        let voters = VoterSet::new((0..voter_count).map(|at| own_voter(key(at))).collect());
        let bootstrap = Snap {
            id: SnapshotId::BOOTSTRAP,
            kraft_version: i16::from(!is_static),
            voters: (!is_static).then(|| voters.clone()),
        };
        let node = |at: usize| Node {
            key: key(at),
            raft: None,
            disk: Disk::new(bootstrap.clone()),
            life: 0,
            pace: 80 + Random::new(seed ^ at as u64).below(40),
            fetched: None,
            tick_at: 0,
            inbound: BTreeMap::new(),
        };
        let nodes: Vec<Node> = (0..count).map(node).collect();
        let mut cluster = Self {
            random: root.fork("events"),
            now: 0,
            events: BTreeMap::new(),
            sequence: 0,
            checks: Checks::default(),
            planted,
            configured: if is_static { voters } else { VoterSet::default() },
            net: net::Net::new(shape.chance(70)),
            is_storm: true,
            changes_voters: shape.chance(50),
            hunts,
            timing: if hunts { short_times() } else { Timing::default() },
            snapshots: BTreeMap::new(),
            next_value: 0,
            votes_asked: BTreeMap::new(),
            trace: None,
            nodes,
        };
        for node in 0..cluster.nodes.len() {
            cluster.start(node);
        }
        cluster.later(50, Event::Propose);
        cluster.later(100, Event::Trouble);
        cluster
    }

    /// Runs to the end; the first thing that must not be is the error.
    fn run(&mut self) -> Result<(), String> {
        let mut steps = 0;
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.now = at;
            steps += 1;
            if self.is_storm && self.now > STORM_MS * MS {
                self.heal();
            }
            if self.now > (STORM_MS + CALM_MS) * MS || (!self.is_storm && self.has_converged()) {
                break;
            }
            if steps > STEPS_MAX {
                return Err(format!("{STEPS_MAX} steps took {} ms", self.now / MS));
            }
            self.mix(&event);
            self.take(event);
            if let Some(found) = self.checks.found.take() {
                return Err(format!("{} ms: {found}", self.now / MS));
            }
        }
        if self.has_converged() { Ok(()) } else { Err(self.stuck()) }
    }

    /// Kills whoever leads a quorum in which all is well, for good, and returns how many
    /// milliseconds later another one leads; `is_refused` says that the others learn of it by their
    /// connections. Nothing where no leader comes.
    fn succession_ms(&mut self, is_refused: bool) -> Option<u64> {
        self.is_storm = false;
        self.net.heal();
        let leads = |node: &Node| node.raft.as_ref().is_some_and(Raft::is_leader);
        self.run_until(5_000, |_| false);
        let leader = self.nodes.iter().position(leads)?;
        let id = self.nodes[leader].key.id;
        self.nodes[leader].raft = None;
        for node in (0..self.nodes.len()).filter(|_| is_refused) {
            let (life, wait) = (self.nodes[node].life, self.between(200, 4_000));
            self.after(wait, Event::Gone { node, life, leader: id });
        }
        let died_at = self.now;
        let has_leader = |cluster: &Self| cluster.nodes.iter().any(leads);
        self.run_until(25_000, has_leader).then(|| (self.now - died_at) / MS)
    }

    /// Says whether it is done in time.
    fn run_until(&mut self, until_ms: u64, is_done: impl Fn(&Self) -> bool) -> bool {
        while self.now < until_ms * MS && !is_done(self) {
            let ((at, _), event) = self.events.pop_first().expect("a quorum never rests");
            self.now = at;
            self.take(event);
        }
        is_done(self)
    }

    /// All is well from here on.
    fn heal(&mut self) {
        self.is_storm = false;
        self.net.heal();
        for node in 0..self.nodes.len() {
            if self.nodes[node].raft.is_none() {
                self.start(node);
            }
        }
        self.checks.healed_at = Some(self.checks.committed_end());
    }

    /// Whether there is one leader, something was committed since, and everybody has everything.
    fn has_converged(&self) -> bool {
        let ends: Vec<_> = self.nodes.iter().filter_map(|node| node.raft.as_ref()).collect();
        let leaders = ends.iter().filter(|raft| raft.is_leader()).count();
        let high_watermarks: Vec<_> = ends.iter().map(|raft| raft.high_watermark()).collect();
        let progressed = self.checks.healed_at.is_some_and(|at| at < self.checks.committed_end());
        leaders == 1
            && progressed
            && ends.len() == self.nodes.len()
            && high_watermarks.iter().all(|offset| *offset == Some(ends[0].end_offset()))
            && ends.iter().all(|raft| raft.end_offset() == ends[0].end_offset())
            && ends.iter().all(|raft| raft.voters() == ends[0].voters())
    }

    fn stuck(&self) -> String {
        let state = |node: &Node| {
            let raft = node.raft.as_ref().expect("all are up");
            let (end, high_watermark) = (raft.end_offset(), raft.high_watermark());
            let voters = raft.voters().ids();
            format!(
                "\n  {:?} {:?} {end} {high_watermark:?} {voters:?}",
                node.key.id,
                raft.election()
            )
        };
        if std::env::var("RAFT_DEBUG").is_ok() {
            for node in &self.nodes {
                println!("{:#?}", node.raft);
            }
        }
        let states: String = self.nodes.iter().map(state).collect();
        format!("the quorum does not get on: {states}")
    }

    fn later(&mut self, ms: u64, event: Event) {
        self.after(ms * MS, event);
    }

    fn after(&mut self, nanos: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now + nanos, self.sequence), event);
    }

    fn between(&mut self, from_us: u64, to_us: u64) -> u64 {
        (from_us + self.random.below(to_us - from_us)) * 1_000
    }

    /// What the clocks of a node show.
    fn clock(&self, node: NodeAt) -> Now {
        let mono = Instant::from_nanos(self.now / 100 * self.nodes[node].pace);
        Now { mono, wall_ms: i64::try_from(self.now / MS).expect("small") }
    }

    fn mix(&mut self, event: &Event) {
        let Some(trace) = &mut self.trace else { return };
        for byte in format!("{} {event:?}", self.now).bytes() {
            *trace = (*trace ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn is_alive(&self, node: NodeAt, life: u32) -> bool {
        self.nodes[node].life == life && self.nodes[node].raft.is_some()
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Start { node } if self.nodes[node].raft.is_none() => self.start(node),
            Event::Propose => self.propose(),
            Event::Trouble => self.trouble(),
            Event::Hunt { node, life } if self.is_storm && self.is_alive(node, life) => {
                self.crash(node);
                for other in 0..self.nodes.len() {
                    if self.nodes[other].raft.is_some() && self.random.chance(25) {
                        self.crash(other);
                    }
                }
            }
            Event::Request { to, from, life, peer, id, request } => {
                self.request_arrives(to, (from, life, peer, id), &request);
            }
            Event::Answer { to, life, peer, id, reply } if self.is_alive(to, life) => {
                self.step(to, |raft, now, out| raft.on_response(now, peer, id, reply, out));
            }
            Event::ElectionWritten { node, life, state, written } if self.is_alive(node, life) => {
                self.nodes[node].disk.election = Some(state);
                self.step(node, |raft, now, out| raft.on_election_written(now, written, out));
            }
            Event::Synced { node, life, operations } if self.is_alive(node, life) => {
                if let Some(offset) = self.nodes[node].disk.synced(operations) {
                    self.step(node, |raft, now, out| raft.on_synced(now, offset, out));
                }
            }
            Event::Truncated { node, life } if self.is_alive(node, life) => {
                self.step(node, |raft, now, out| raft.on_truncated(now, out));
            }
            Event::Installed { node, life, id } if self.is_alive(node, life) => {
                let snap = self.snapshots[&id].clone();
                self.nodes[node].disk.install(snap.clone());
                self.step(node, |raft, now, out| {
                    let found = (id, net::SNAPSHOT_BYTES);
                    raft.on_snapshot_installed(now, found, snap.kraft_version, snap.voters, out);
                });
            }
            Event::Tick { node, life } if self.is_alive(node, life) => {
                self.step(node, |raft, now, out| raft.on_tick(now, out));
            }
            Event::Gone { node, life, leader } if self.is_alive(node, life) => {
                self.step(node, |raft, now, out| raft.leader_gone(now, leader, out));
            }
            // Of an earlier life.
            _ => {}
        }
    }

    // The life of a replica.

    fn start(&mut self, node: NodeAt) {
        let now = self.clock(node);
        let seed = self.random.next_u64();
        let timing = self.timing;
        let bootstrap_servers = if self.configured.is_empty() { self.nodes.len() } else { 0 };
        let it = &mut self.nodes[node];
        let mut raft = Raft::new(Params {
            own: own_voter(it.key),
            cluster_id: "cluster".into(),
            configured_voters: self.configured.clone(),
            bootstrap_servers,
            timing,
            random: Random::new(seed),
        });
        it.disk.load_into(&mut raft);
        raft.faults = self.planted.faults;
        raft.leak_before_sync(self.planted.votes_before_sync);
        let mut out = Vec::new();
        if let Err(error) = raft.start(now, it.disk.election, &mut out) {
            return self.checks.fail(format!("a replica cannot start: {error}"));
        }
        it.life += 1;
        it.raft = Some(raft);
        it.fetched = None;
        it.tick_at = 0;
        it.inbound.clear();
        self.checks.starts(it.key);
        self.perform(node, out);
    }

    fn crash(&mut self, node: NodeAt) {
        let it = &mut self.nodes[node];
        let leads = it.raft.as_ref().is_some_and(Raft::is_leader);
        it.raft = None;
        it.disk.crash(&mut self.random);
        let leader = it.key.id;
        let back = 50 + self.random.below(if self.hunts { 400 } else { 3_000 });
        self.later(back, Event::Start { node });
        // The others see at once that its sockets are closed; not where the machine is lost.
        if leads && self.random.chance(60) {
            for other in 0..self.nodes.len() {
                let life = self.nodes[other].life;
                let wait = self.between(200, 4_000);
                self.after(wait, Event::Gone { node: other, life, leader });
            }
        }
    }

    fn step(&mut self, node: NodeAt, act: impl FnOnce(&mut Raft, Now, &mut Vec<Output>)) {
        let now = self.clock(node);
        let mut out = Vec::new();
        let raft = self.nodes[node].raft.as_mut().expect("it is up");
        act(raft, now, &mut out);
        self.perform(node, out);
    }

    fn perform(&mut self, node: NodeAt, out: Vec<Output>) {
        let life = self.nodes[node].life;
        for output in out {
            match output {
                Output::WriteElection(state, written) => {
                    let wait = self.between(300, 30_000);
                    self.after(wait, Event::ElectionWritten { node, life, state, written });
                }
                Output::Append(batch) => {
                    let operations = self.nodes[node].disk.append(batch);
                    let wait = self.between(300, 20_000);
                    self.after(wait, Event::Synced { node, life, operations });
                }
                Output::Truncate(offset) => {
                    self.nodes[node].disk.truncate(offset);
                    let wait = self.between(100, 3_000);
                    self.after(wait, Event::Truncated { node, life });
                }
                Output::Send { to, id, request } => self.send(node, to, id, request),
                Output::Reply { id, reply } => self.answer(node, id, reply),
                Output::Leading(epoch) => self.leads(node, epoch),
                Output::Following { .. } => {}
                Output::HighWatermark(offset) => {
                    let it = &self.nodes[node];
                    let raft = it.raft.as_ref().expect("it is up");
                    let epoch = raft.election().epoch;
                    self.checks.high_watermark(it.key, &it.disk, epoch, offset);
                }
                Output::SnapshotPart { id, position, bytes } => {
                    let there = position + bytes.len() as u64;
                    assert!(position == 0 || self.nodes[node].fetched == Some((id, position)));
                    self.nodes[node].fetched = Some((id, there));
                }
                Output::InstallSnapshot(id) => {
                    assert_eq!(self.nodes[node].fetched.take(), Some((id, net::SNAPSHOT_BYTES)));
                    let wait = self.between(300, 20_000);
                    self.after(wait, Event::Installed { node, life, id });
                }
            }
        }
        if let Some(wrong) = self.nodes[node].disk.wrong.take() {
            self.checks.fail(wrong);
        }
        self.wind(node);
    }

    fn leads(&mut self, node: NodeAt, epoch: LeaderEpoch) {
        let it = &self.nodes[node];
        self.checks.leads(it.key, &it.disk, epoch);
        if self.hunts {
            let (life, longest) =
                (it.life, if self.random.chance(80) { 30_000 } else { 2_000_000 });
            let wait = self.between(100, longest);
            self.after(wait, Event::Hunt { node, life });
        }
    }

    /// Sets when the replica wants to be woken.
    fn wind(&mut self, node: NodeAt) {
        let now = self.clock(node).mono;
        let it = &self.nodes[node];
        let Some(raft) = &it.raft else { return };
        let timer = raft.next_timer(now);
        if timer == Instant::FAR_FUTURE {
            return;
        }
        let at = (timer.as_nanos() / it.pace + 1) * 100;
        let (life, wait) = (it.life, at.saturating_sub(self.now));
        // An earlier tick is there already; a later one does no harm.
        if it.tick_at > self.now && it.tick_at <= at {
            return;
        }
        self.nodes[node].tick_at = at.max(self.now + 1);
        self.after(wait.max(1), Event::Tick { node, life });
    }

    // What happens to it.

    fn propose(&mut self) {
        let wait = 10 + self.random.below(if self.is_storm { 150 } else { 400 });
        self.later(wait, Event::Propose);
        let leads = |node: &Node| node.raft.as_ref().is_some_and(Raft::is_leader);
        for node in 0..self.nodes.len() {
            if !leads(&self.nodes[node]) || (!self.is_storm && self.has_progressed()) {
                continue;
            }
            self.next_value += 1;
            let value = Bytes::copy_from_slice(&self.next_value.to_be_bytes());
            let values = vec![value; 1 + usize::try_from(self.random.below(3)).expect("small")];
            self.step(node, |raft, now, out| {
                raft.append(now, &values, out).expect("it leads");
            });
        }
    }

    fn has_progressed(&self) -> bool {
        self.checks.healed_at.is_some_and(|at| at < self.checks.committed_end())
    }

    fn trouble(&mut self) {
        if !self.is_storm {
            return;
        }
        let wait = 20 + self.random.below(500);
        self.later(wait, Event::Trouble);
        let count = self.nodes.len() as u64;
        let node = usize::try_from(self.random.below(count)).expect("small");
        let other = usize::try_from(self.random.below(count)).expect("small");
        match self.random.below(100) {
            0..20 if self.nodes[node].raft.is_some() => self.crash(node),
            20..40 => self.net.cut(node, other),
            40..50 => self.net.heal_cuts(),
            50..58 if self.nodes[node].raft.is_some() => {
                let leader = self.nodes[other].key.id;
                self.step(node, |raft, now, out| raft.leader_gone(now, leader, out));
            }
            58..62 if self.nodes[node].raft.is_some() => {
                self.step(node, |raft, now, out| raft.resign(now, out));
            }
            62..85 if self.nodes[node].raft.is_some() => self.take_snapshot(node),
            85..100 if self.changes_voters => self.change_voters(other),
            _ => {}
        }
    }

    /// Keeps a snapshot of what is committed, and often drops what lies below it.
    fn take_snapshot(&mut self, node: NodeAt) {
        let drops = self.random.chance(60);
        let it = &mut self.nodes[node];
        let raft = it.raft.as_mut().expect("it is up");
        // What raft knows may still wait for the disk.
        let Some(high_watermark) = self.checks.told_high_watermark(it.key) else { return };
        let Some(snap) = it.disk.snapshot_at(high_watermark) else { return };
        raft.keep_snapshot(snap.id, net::SNAPSHOT_BYTES);
        if drops {
            for id in it.disk.drop_old_snapshots() {
                raft.drop_snapshot(id);
            }
        }
        let known = self.snapshots.entry(snap.id).or_insert_with(|| snap.clone());
        if *known != snap {
            self.checks.fail(format!("two snapshots {:?} differ", snap.id));
        }
    }

    /// Asks whoever leads for a change.
    fn change_voters(&mut self, node: NodeAt) {
        let voter = self.nodes[node].key;
        let leads = |node: &Node| node.raft.as_ref().is_some_and(Raft::is_leader);
        let Some(leader) = self.nodes.iter().position(leads) else { return };
        let raft = self.nodes[leader].raft.as_ref().expect("it leads");
        if raft.kraft_version() == 0 {
            return self.step(leader, |raft, now, out| {
                let _ = raft.upgrade_kraft_version(now, 1, false, out);
            });
        }
        let body = match raft.voters().get(voter.id) {
            Some(_) if raft.voters().len() <= 2 => return,
            Some(_) => RequestBody::RemoveVoter { voter },
            None => {
                let endpoints = own_voter(voter).endpoints;
                RequestBody::AddVoter { voter, endpoints, ack_when_committed: true }
            }
        };
        let request = Request { cluster_id: None, body };
        let id = self.net.next_id();
        self.step(leader, |raft, now, out| raft.on_request(now, id, &request, out));
    }
}
