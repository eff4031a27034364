//! The life of a data shard: directories, metadata, listeners; then stopping in the reverse order.
//!
//! | stage | what happens | it ends when |
//! |---|---|---|
//! | `Loading` | the metadata log is read, then the directories | both are, and strays set aside |
//! | `Registering` | partitions and listeners open | the controller has unfenced this broker |
//! | `Serving` | | the node is asked to stop |
//! | `ClosingLogs` | every log is synced and trimmed | the last one is closed, or has failed |
//! | `Checkpointing` | the keeper writes the directories' files | they are written |
//! | `Stopped` | | |
//!
//! The *keeper* is the first data shard: it owns what the node has once, the listeners and the
//! files of each log directory.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Effect, FileOutcome, IoResult, SocketEffect, SocketId};
use base::{Duration, Instant, Map, Offset, ShardId, Token, TopicPartition};
use commitlog::{CheckpointKind, Directory, DirectoryEvent, DirectoryStep, FoundDirectory};
use intercom::{
    Endpoint, FoundFuture, FoundLog, LogDirectory, LogPosition, Message, QuorumReply,
    QuorumRequest, Reply, Request,
};
use network::Bound;

use crate::files::FileStep;
use crate::life::LifeStage;
use crate::owner::Notice;
use crate::setup::Setup;
use crate::shard::{Io, Shard, Timer};

/// How long after a cleaning checkpoints are written.
const CLEANED_CHECKPOINT: Duration = Duration::from_secs(5);
/// How often a shard looks for idle connections within `connections.max.idle.ms`.
const IDLE_CHECKS: u32 = 10;
/// Sockets that may be accepted before the node is ready; more wait in the kernel's backlog.
const EARLY_SOCKETS_MAX: usize = 1 << 10;

/// Starting.
impl Shard {
    /// Whether a log directory cannot be used.
    pub(crate) fn is_offline(&self, index: usize) -> bool {
        let found = self.life.found.as_ref().and_then(|found| found.get(index));
        found.is_none_or(|directory| directory.offline.is_some())
    }

    /// Whether partitions are open or opening.
    pub(crate) fn has_begun(&self) -> bool {
        self.life.stage > LifeStage::Loading
    }

    /// Whether the node is being stopped.
    pub(crate) fn is_stopping(&self) -> bool {
        self.life.is_stopping()
    }

    /// As keeper: the metadata is there, and nothing in it is unknown. Only now the directories are
    /// opened.
    pub(crate) fn open_directories(&mut self, io: &mut Io<'_>) {
        if !self.setup.is_keeper() {
            return;
        }
        let directories = self.setup.log_directories.clone();
        for (index, directory) in directories.iter().enumerate() {
            let index = u16::try_from(index).expect("directories are few");
            let (path, mut steps) = (directory.path.clone(), Vec::new());
            let opened = match directory.offline {
                Some(_) => Directory::offline(path),
                None => Directory::open(path, &mut steps),
            };
            self.life.keeper().directories.push(opened);
            self.file_directory_effects(io, index, steps);
            if let Some(sentence) = &directory.offline {
                self.found_offline(io, index, sentence.clone());
            }
        }
    }

    pub(crate) fn on_directory(
        &mut self,
        io: &mut Io<'_>,
        index: u16,
        step: DirectoryStep,
        outcome: FileOutcome,
    ) {
        let (mut steps, mut events) = (Vec::new(), Vec::new());
        let directory = &mut self.life.keeper().directories[usize::from(index)];
        directory.on_file(step, outcome, &mut steps, &mut events);
        self.file_directory_effects(io, index, steps);
        for event in events {
            self.on_directory_event(io, index, event);
        }
        self.begin_without_strays(io);
        self.go_on_when_written(io);
    }

    fn on_directory_event(&mut self, io: &mut Io<'_>, index: u16, event: DirectoryEvent) {
        match event {
            DirectoryEvent::Opened(found) => {
                self.directory_found(io, index, described(&found));
            }
            DirectoryEvent::CopiesFound(copies) => self.copies_found(io, index, &copies),
            DirectoryEvent::CheckpointWritten(_) | DirectoryEvent::Closed => {}
            DirectoryEvent::Failed { cause } => {
                if self.life.keeper().found[usize::from(index)].is_some() {
                    self.directory_failed(io, index, cause.to_string());
                    self.set_strays_aside(io);
                } else {
                    self.found_offline(io, index, cause.to_string());
                }
            }
        }
    }

    fn found_offline(&mut self, io: &mut Io<'_>, index: u16, sentence: String) {
        self.say_offline(index, &sentence);
        let (offline, logs, futures) = (Some(sentence), Map::default(), Vec::new());
        let missing = Map::default();
        let found = LogDirectory { offline, clean_shutdown: None, logs, futures, missing };
        self.directory_found(io, index, found);
    }

    fn directory_found(&mut self, io: &mut Io<'_>, index: u16, found: LogDirectory) {
        self.life.keeper().found[usize::from(index)] = Some(found);
        self.set_strays_aside(io);
    }

    /// As keeper: tells every data shard what the directories held, and which are offline.
    pub(crate) fn spread_directories(&mut self, io: &mut Io<'_>) {
        let found = self.life.keeper().found.iter().flatten();
        let all: Arc<[LogDirectory]> = found.cloned().collect();
        if all.iter().all(|directory| directory.offline.is_some()) {
            let sentence = "Every log directory is offline: see the lines above for why. Mend or \
                            replace the disks that log.dirs names and start again."
                .to_owned();
            return io.effects.push(Effect::Fail { sentence });
        }
        for shard in (0..self.setup.data_shards).map(ShardId) {
            if shard != self.setup.shard {
                let message = Message::Found(Arc::clone(&all));
                io.effects.push(Effect::Post { to: shard, message });
            }
        }
        self.found_directories(io, all);
    }

    /// Both what the directories hold and what the metadata says is needed to open logs.
    pub(crate) fn begin_when_loaded(&mut self, io: &mut Io<'_>) {
        if self.life.stage != LifeStage::Loading || self.view.is_none() {
            return;
        }
        if self.life.found.is_none() {
            return self.set_strays_aside(io);
        }
        self.life.enter(LifeStage::Registering);
        self.open_all_partitions(io);
        self.report_settled(io);
        self.set_timers(io);
        if !self.setup.is_keeper() {
            return self.life.enter(LifeStage::Serving);
        }
        self.life.keeper().listens_since = io.now.mono;
        for index in 0..self.setup.listeners.len() {
            self.listen(io, index);
        }
    }

    /// As keeper: opens a listener.
    pub(crate) fn listen(&self, io: &mut Io<'_>, index: usize) {
        if self.is_stopping() {
            return;
        }
        let token = Token::from_bits(index as u64);
        let backlog = self.setup.config.simple.socket_listen_backlog_size;
        let address = self.setup.listeners[index].address;
        io.effects.socket(SocketEffect::Listen { token, address, backlog });
    }

    fn set_timers(&mut self, io: &Io<'_>) {
        let simple = &self.setup.config.simple;
        let checkpoint = i64::from(simple.log_flush_offset_checkpoint_interval_ms);
        let retention = simple.log_retention_check_interval_ms;
        let idle = simple.connections_max_idle_ms;
        self.timers.set(later(io, checkpoint), Timer::Checkpoint);
        self.timers.set(later(io, retention), Timer::Retention);
        let producers = i64::from(simple.producer_id_expiration_check_interval_ms);
        self.timers.set(later(io, producers), Timer::Producers);
        self.timers.set(later(io, simple.log_cleaner_backoff_ms), Timer::Cleaning);
        if idle > 0 {
            self.timers.set(later(io, idle / i64::from(IDLE_CHECKS)), Timer::Idle);
        }
    }

    pub(crate) fn listening(
        &mut self,
        io: &mut Io<'_>,
        token: Token,
        result: IoResult<std::net::SocketAddr>,
    ) {
        let index = token.to_bits() as usize;
        let listener = &self.setup.listeners[index];
        let since = self.life.keeper().listens_since;
        let address = match network::bound(io.now.mono, since, listener.address, result) {
            Bound::At(address) => address,
            Bound::Again(at) => {
                tracing::debug!(listener = %listener.name, "the address is in use; trying again");
                self.timers.set(at, Timer::Listen(index));
                return;
            }
            Bound::Refused(sentence) => return io.effects.push(Effect::Fail { sentence }),
        };
        let endpoint = Endpoint {
            name: Arc::clone(&listener.name),
            host: Arc::clone(&listener.advertised_host),
            port: listener.advertised_port.unwrap_or(address.port()),
            security_protocol: listener.security_protocol,
        };
        tracing::info!(listener = %listener.name, %address, "listening");
        let keeper = self.life.keeper();
        keeper.endpoints[index] = Some(endpoint);
        if keeper.endpoints.iter().any(Option::is_none) {
            return;
        }
        let endpoints = keeper.endpoints.iter().flatten().cloned().collect();
        let previous_epoch = self.previous_broker_epoch();
        let directories = self.online_directories();
        let request = QuorumRequest::BrokerReady { endpoints, previous_epoch, directories };
        self.ask_quorum_for_shard(io, request);
    }

    /// The epoch that this broker had when it last stopped in order, or −1.
    fn previous_broker_epoch(&self) -> i64 {
        let found = self.life.found.iter().flat_map(|found| found.iter());
        let epochs = found.map(|directory| directory.clean_shutdown.unwrap_or(-1));
        epochs.min().unwrap_or(-1)
    }

    pub(crate) fn ask_quorum_for_shard(&mut self, io: &mut Io<'_>, request: QuorumRequest) {
        let body = Request::Quorum(Box::new(request));
        self.mail.request(io.effects, self.setup.quorum, Token::NONE, body);
    }

    pub(crate) fn on_quorum_reply(&mut self, io: &mut Io<'_>, reply: QuorumReply) {
        match reply {
            QuorumReply::BrokerReady(Ok(epoch)) => self.registered(io, epoch),
            QuorumReply::BrokerReady(Err(sentence)) => {
                io.effects.push(Effect::Fail { sentence });
            }
            QuorumReply::BrokerStopping => self.close_logs(io),
            QuorumReply::DirectoriesFailed => {}
            QuorumReply::AssignDirectories(is_known) => {
                let known = self.assignments.answered(is_known);
                self.directories_assigned(io, known);
            }
            other => unreachable!("{other:?} answers no question of the keeper"),
        }
    }

    fn registered(&mut self, io: &mut Io<'_>, broker_epoch: i64) {
        self.life.keeper().broker_epoch = broker_epoch;
        self.report_failed_directories(io);
        self.serve_when_unfenced(io);
    }

    /// As keeper: begins to serve once the image shows clients this broker. The controller's answer
    /// may come before the image that it speaks of.
    pub(crate) fn serve_when_unfenced(&mut self, io: &mut Io<'_>) {
        if self.life.stage != LifeStage::Registering || self.life.keeper().broker_epoch < 0 {
            return;
        }
        let image = self.view.as_ref().map(|view| &view.image);
        let broker = image.and_then(|image| image.broker(self.setup.node));
        if broker.is_none_or(|broker| broker.fenced) {
            return;
        }
        self.life.enter(LifeStage::Serving);
        let keeper = self.life.keeper();
        let broker_epoch = keeper.broker_epoch;
        let early = std::mem::take(&mut keeper.early);
        tracing::info!(node = %self.setup.node, broker_epoch, "the broker is running");
        for (token, socket) in early {
            self.accepted(io, token, socket);
        }
    }

    /// Gives a new connection to the data shard that has the fewest.
    pub(crate) fn accepted(&mut self, io: &mut Io<'_>, token: Token, socket: SocketId) {
        let stage = self.life.stage;
        let keeper = self.life.keeper();
        let early = stage < LifeStage::Serving && keeper.early.len() < EARLY_SOCKETS_MAX;
        if early {
            return keeper.early.push((token, socket));
        }
        if stage != LifeStage::Serving {
            return io.effects.socket(SocketEffect::Close { socket, flush: false });
        }
        let loads = keeper.loads.iter_mut().enumerate();
        let Some((shard, load)) = loads.min_by_key(|(_, load)| **load) else { return };
        *load += 1;
        let to = ShardId(u16::try_from(shard).expect("shards are counted by a u16"));
        let listener = u16::try_from(token.to_bits()).expect("listeners are few");
        io.effects.socket(SocketEffect::HandOver { socket, to, listener });
    }

    /// Tells the keeper how many connections there are.
    pub(crate) fn report_load(&mut self, io: &mut Io<'_>) {
        let connections = self.connections.count();
        if self.setup.is_keeper() {
            self.life.note_load(self.setup.shard, connections);
        } else {
            let message = Message::Load { connections };
            io.effects.push(Effect::Post { to: Setup::KEEPER, message });
        }
    }
}

/// Stopping.
impl Shard {
    pub(crate) fn stop(&mut self, io: &mut Io<'_>) {
        if std::mem::replace(&mut self.life.was_asked_to_stop, true) || self.life.is_stopping() {
            return;
        }
        let never_served = self.life.stage == LifeStage::Loading;
        if !self.setup.is_keeper() || never_served {
            return self.close_logs(io);
        }
        for index in 0..self.setup.listeners.len() {
            io.effects
                .socket(SocketEffect::StopListening { token: Token::from_bits(index as u64) });
        }
        self.ask_quorum_for_shard(io, QuorumRequest::BrokerStopping);
    }

    fn close_logs(&mut self, io: &mut Io<'_>) {
        if self.life.is_stopping() {
            return;
        }
        self.life.enter(LifeStage::ClosingLogs);
        self.with_owner(io, |owner, desk| owner.close_all(desk));
    }

    /// Takes note of what happened to logs.
    pub(crate) fn take_notices(&mut self, io: &mut Io<'_>) {
        for notice in self.owner.take_notices() {
            match notice {
                Notice::AllClosed => self.logs_closed(io),
                Notice::Left => self.report_settled(io),
                Notice::Stray(key) => {
                    self.unplaced.insert(key.topic);
                    self.take_in_unplaced(io);
                    self.report_settled(io);
                }
                Notice::Opened(key, directory) => {
                    self.log_opened(key, directory);
                    self.report_settled(io);
                }
                Notice::InDirectory(key, directory) => {
                    let id = self.setup.log_directories[usize::from(directory)].id;
                    self.assignments.add(key, id);
                }
                // What is said last has it, too.
                Notice::Moved if self.is_stopping() => {}
                Notice::Moved => self.send_checkpoints(io),
                Notice::Cleaned => self.checkpoints_soon(io),
                Notice::DirectoryFailed(directory, sentence) => {
                    self.log_failed_directory(io, directory, sentence);
                }
            }
        }
    }

    fn logs_closed(&mut self, io: &mut Io<'_>) {
        self.life.enter(LifeStage::Checkpointing);
        // Only now: what was being written when the node was asked to stop has been answered.
        for socket in self.connections.all() {
            self.connections.close(socket, io.now.mono, io.effects);
        }
        self.send_checkpoints(io);
        if !self.setup.is_keeper() {
            self.life.enter(LifeStage::Stopped);
            io.effects.push(Effect::Stopped);
        }
    }

    /// Says to the keeper where this shard's logs stand.
    pub(crate) fn send_checkpoints(&mut self, io: &mut Io<'_>) {
        let positions = self.life.has_forgotten_logs.then(|| self.owner.positions());
        // A shard says it once: the keeper counts.
        let closed = self.life.stage == LifeStage::Checkpointing;
        let unclosed = if closed { self.owner.unclosed_directories() } else { Vec::new() };
        let settled = self.settled_offset();
        let body = Request::Checkpoints { settled, positions, closed, unclosed };
        self.mail.request(io.effects, Setup::KEEPER, Token::NONE, body);
    }

    /// It is time for checkpoints. A shard that stops says once where its logs stand, when they
    /// are closed.
    pub(crate) fn checkpoints_are_due(&mut self, io: &mut Io<'_>) {
        if self.life.is_stopping() {
            return;
        }
        self.send_checkpoints(io);
        let interval = self.setup.config.simple.log_flush_offset_checkpoint_interval_ms;
        self.timers.set(later(io, i64::from(interval)), Timer::Checkpoint);
    }

    /// A log was cleaned: sees that checkpoints are written before long, so that a crash does not
    /// have it cleaned again. Kafka writes `cleaner-offset-checkpoint` after each cleaning; with
    /// many logs that are cleaned one after the other this comes to the same, and costs less.
    fn checkpoints_soon(&mut self, io: &mut Io<'_>) {
        if !std::mem::replace(&mut self.checkpoints_are_soon, true) {
            self.timers.set(io.now.mono + CLEANED_CHECKPOINT, Timer::Cleaned);
        }
    }

    /// It is time for checkpoints since a log was cleaned.
    pub(crate) fn cleaned_checkpoints_are_due(&mut self, io: &mut Io<'_>) {
        self.checkpoints_are_soon = false;
        if !self.life.is_stopping() {
            self.send_checkpoints(io);
        }
    }

    /// As keeper: a shard says where its logs stand.
    pub(crate) fn note_checkpoints(
        &mut self,
        io: &mut Io<'_>,
        shard: ShardId,
        positions: Option<Vec<LogPosition>>,
        closed: bool,
        unclosed: Vec<u16>,
    ) {
        let keeper = self.life.keeper();
        keeper.positions.insert(shard, positions);
        keeper.unclosed.extend(unclosed);
        keeper.shards_closed += u16::from(closed);
        let last = keeper.shards_closed == self.setup.data_shards;
        let all_known = keeper.positions.len() == usize::from(self.setup.data_shards);
        if !keeper.positions.values().all(Option::is_some) {
            // What is on the disk says more. As after a crash, the next start checks the logs.
            keeper.checkpoint_round += 1;
            self.go_on_when_written(io);
        } else if last {
            self.write_checkpoints(io, true);
        } else if !closed && all_known {
            keeper.checkpoints_again = true;
            self.go_on_when_written(io);
        }
    }

    fn write_checkpoints(&mut self, io: &mut Io<'_>, last: bool) {
        let keeper = self.life.keeper();
        keeper.checkpoint_round += 1;
        keeper.checkpoints_again = false;
        for index in 0..self.setup.log_directories.len() {
            let index = u16::try_from(index).expect("directories are few");
            let keeper = self.life.keeper();
            if keeper.found[usize::from(index)].as_ref().is_none_or(|one| one.offline.is_some()) {
                continue;
            }
            let all = keeper.positions.values().flatten().flatten();
            let here: Vec<&LogPosition> = all.filter(|one| one.directory == index).collect();
            let mut steps = Vec::new();
            for kind in [
                CheckpointKind::RecoveryPoint,
                CheckpointKind::LogStartOffset,
                CheckpointKind::Replication,
                CheckpointKind::Cleaner,
            ] {
                let entries = here.iter().filter_map(|position| entry(kind, position)).collect();
                let directory = &mut keeper.directories[usize::from(index)];
                directory.write_checkpoint(kind, entries, &mut steps);
            }
            if last && !keeper.unclosed.contains(&index) {
                let epoch = keeper.broker_epoch;
                keeper.directories[usize::from(index)].close(epoch, &mut steps);
            }
            self.file_directory_effects(io, index, steps);
        }
        self.go_on_when_written(io);
    }

    /// As keeper: answers when no directory is being written, and stops when every shard's logs are
    /// closed besides, or begins another round that is due.
    fn go_on_when_written(&mut self, io: &mut Io<'_>) {
        let keeper = self.life.keeper();
        let all_known = keeper.positions.len() == usize::from(self.setup.data_shards);
        if !all_known || !keeper.directories.iter().all(Directory::is_idle) {
            return;
        }
        let round = keeper.checkpoint_round;
        let written = keeper.checkpoint_asks.extract_if(.., |(.., needed)| *needed <= round);
        let written: Vec<_> = written.collect();
        let (stops, again) =
            (keeper.shards_closed == self.setup.data_shards, keeper.checkpoints_again);
        for (asker, settled, _) in written {
            let reply = Reply::Checkpointed(settled);
            self.mail.reply(io.effects, asker.shard, asker.id, reply);
        }
        if stops {
            self.keeper_stopped(io);
        } else if again {
            self.write_checkpoints(io, false);
        }
    }

    fn keeper_stopped(&mut self, io: &mut Io<'_>) {
        if self.life.stage != LifeStage::Stopped {
            self.life.enter(LifeStage::Stopped);
            io.effects.push(Effect::Stopped);
        }
    }

    /// Closes connections that were idle for `connections.max.idle.ms`.
    pub(crate) fn close_idle(&mut self, io: &mut Io<'_>) {
        let idle_ms = self.setup.config.simple.connections_max_idle_ms;
        let idle = Duration::from_millis(u64::try_from(idle_ms).unwrap_or(0));
        self.connections.close_idle(io.now.mono, idle, io.effects);
        self.timers.set(later(io, idle_ms / i64::from(IDLE_CHECKS)), Timer::Idle);
    }

    /// Begins to let go of segments that their topic's retention gives up.
    pub(crate) fn look_for_retention(&mut self, io: &mut Io<'_>) {
        self.owner.apply_retention();
        let interval = self.setup.config.simple.log_retention_check_interval_ms;
        self.timers.set(later(io, interval), Timer::Retention);
    }

    /// Begins to look for the dirtiest log of those that are compacted.
    pub(crate) fn look_for_cleaning(&mut self, io: &mut Io<'_>) {
        if self.life.is_stopping() {
            return;
        }
        self.owner.clean_next();
        let backoff = self.setup.config.simple.log_cleaner_backoff_ms;
        self.timers.set(later(io, backoff), Timer::Cleaning);
    }

    /// Begins to forget the producers that have expired.
    pub(crate) fn expire_producers(&mut self, io: &mut Io<'_>) {
        self.owner.expire_producers();
        let interval = self.setup.config.simple.producer_id_expiration_check_interval_ms;
        self.timers.set(later(io, i64::from(interval)), Timer::Producers);
    }

    pub(crate) fn file_directory_effects(
        &mut self,
        io: &mut Io<'_>,
        index: u16,
        steps: Vec<api::FileEffect<DirectoryStep>>,
    ) {
        for step in steps {
            self.files.file(io.effects, step, |step| FileStep::Directory(index, step));
        }
    }
}

fn described(found: &FoundDirectory) -> LogDirectory {
    let at = |map: &BTreeMap<TopicPartition, Offset>, log: &TopicPartition| {
        map.get(log).copied().unwrap_or_default()
    };
    let logs = found.logs.iter().map(|(log, topic_id)| {
        let recovery_point = at(&found.recovery_points, log);
        let log_start_offset = at(&found.log_start_offsets, log);
        let first_dirty = found.first_dirty.get(log).copied();
        let topic_id = *topic_id;
        let is_copy = false;
        let found = FoundLog { topic_id, recovery_point, log_start_offset, first_dirty, is_copy };
        (log.clone(), found)
    });
    let futures = found.futures.iter().map(|future| {
        let log = &future.partition;
        // What the checkpoint says may be of an earlier log of the name, which has moved away.
        let recovery_point = Offset(0);
        let log = FoundLog {
            topic_id: future.topic_id,
            recovery_point: if found.clean_shutdown {
                at(&found.recovery_points, log)
            } else {
                recovery_point
            },
            log_start_offset: at(&found.log_start_offsets, log),
            first_dirty: found.first_dirty.get(log).copied(),
            is_copy: true,
        };
        FoundFuture { partition: future.partition.clone(), folder: future.folder.clone(), log }
    });
    let logs: Map<TopicPartition, FoundLog> = logs.collect();
    let missing = found.recovery_points.iter().filter(|(log, _)| !logs.contains_key(*log));
    LogDirectory {
        offline: None,
        clean_shutdown: found.clean_shutdown.then(|| found.broker_epoch.unwrap_or(-1)),
        missing: missing.map(|(log, offset)| (log.clone(), *offset)).collect(),
        logs,
        futures: futures.collect(),
    }
}

fn later(io: &Io<'_>, interval_ms: i64) -> Instant {
    io.now.mono + Duration::from_millis(u64::try_from(interval_ms).unwrap_or(1).max(1))
}

/// What a checkpoint says of a log. Kafka leaves out log start offsets that are the base offset of
/// the first segment. Here only 0 is: a crash can undo the deletion of a segment, and what was
/// deleted is not to come back.
fn entry(kind: CheckpointKind, position: &LogPosition) -> Option<(TopicPartition, base::Offset)> {
    let offset = match kind {
        CheckpointKind::RecoveryPoint => position.recovery_point,
        CheckpointKind::LogStartOffset if position.log_start_offset.0 == 0 => return None,
        CheckpointKind::LogStartOffset => position.log_start_offset,
        CheckpointKind::Replication => position.high_watermark,
        CheckpointKind::Cleaner => position.first_dirty?,
    };
    Some((position.partition.clone(), offset))
}
