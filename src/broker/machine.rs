//! The shard as a machine: its events, taken apart, and the order in which things happen in a
//! step and at the end of a turn.

use api::{Effects, Event, FileOutcome, Machine, SocketId};
use base::{Instant, Now, ShardId, Token};
use bytes::Bytes;
use intercom::{Message, News, Reply, Request};
use network::{REQUEST_BYTES_MAX, Room, STALL_MAX};
use protocol::{ApiKey, RequestFrame};

use crate::apis;
use crate::files::FileStep;
use crate::owner::Asker;
use crate::shard::{Call, Head, Io, Shard, Stage, Timer};

impl Machine for Shard {
    type Message = Message;

    fn step(&mut self, now: Now, event: Event<Message>, effects: &mut Effects<Message>) {
        let io = &mut Io { now, effects };
        match event {
            // The first image begins everything.
            Event::Started => {}
            Event::Listening { token, result } => self.listening(io, token, result),
            Event::Accepted { token, socket, .. } => self.accepted(io, token, socket),
            Event::Opened { socket, listener, peer } => {
                self.connections.open(socket, listener, peer, now.mono);
                self.report_load(io);
            }
            Event::Received { socket, bytes } => {
                if self.connections.received(socket, bytes, now.mono) {
                    self.ready.push_back(socket);
                }
            }
            Event::Sent { socket, bytes } => {
                if self.connections.sent(socket, bytes) {
                    self.connections.touch(socket);
                    self.ready.push_back(socket);
                }
            }
            Event::Closed { socket, .. } => self.closed(io, socket),
            Event::File { token, outcome } => self.on_file(io, token, outcome),
            Event::Mesh { from, message } => self.on_message(io, from, message),
            Event::WakeUp => self.on_time(io),
            Event::Stop => self.stop(io),
            Event::Connected { .. } => unreachable!("a data shard connects to nobody"),
        }
        self.settle(io);
    }

    fn end_of_turn(&mut self, now: Now, effects: &mut Effects<Message>) {
        let io = &mut Io { now, effects };
        self.with_owner(io, |owner, desk| {
            owner.end_of_turn(desk);
            owner.tell_news(desk);
        });
        self.take_notices(io);
        self.assign_directories(io);
        self.settle(io);
        if let Some(favourite) = self.connections.end_of_turn(self.call_bytes, io.effects) {
            self.watch_favourite(io, favourite);
        }
        self.set_wake_up(io);
    }
}

/// Home of connections.
impl Shard {
    /// Sends the answers that are next in order, then starts what may start. Ends when there is
    /// nothing left that this shard can do by itself.
    fn settle(&mut self, io: &mut Io<'_>) {
        // A log can speak in any call: one that has nothing left to write is closed at once.
        self.take_notices(io);
        loop {
            if self.has_room_for_calls() {
                self.ready.append(&mut self.starved);
            }
            while let Some(message) = self.mail.next_local() {
                self.on_message(io, self.setup.shard, message);
            }
            let Some(socket) = self.ready.pop_front() else { break };
            self.release(socket);
            self.start_calls(io, socket);
        }
    }

    /// Puts the answers that are next in order into the connection's outbox.
    fn release(&mut self, socket: SocketId) {
        while let Some(connection) = self.connections.get_mut(socket) {
            let Some(&oldest) = connection.calls.front() else { break };
            let stage = self.calls.get(oldest).map(|call| &call.stage);
            if !matches!(stage, Some(Stage::Answered(_) | Stage::Silent)) {
                break;
            }
            connection.calls.pop_front();
            connection.exclusive &= !connection.calls.is_empty();
            let call = self.calls.remove(oldest).expect("it was looked at a line ago");
            self.call_bytes -= call.bytes;
            connection.slow_calls -= usize::from(call.is_slow);
            if let Stage::Answered(parts) = call.stage {
                self.connections.answer(socket, parts);
            }
        }
    }

    fn start_calls(&mut self, io: &mut Io<'_>, socket: SocketId) {
        let limit = self.setup.config.simple.socket_request_max_bytes;
        loop {
            if !self.has_room_for_calls() {
                self.connections.touch(socket);
                return self.starved.push_back(socket);
            }
            let Some(connection) = self.connections.get_mut(socket) else { return };
            match connection.room() {
                Room::Free => {}
                Room::Wait => return self.connections.touch(socket),
                Room::NextTurn => {
                    self.next_turn.push(socket);
                    return self.connections.touch(socket);
                }
            }
            match connection.next_frame(limit) {
                Ok(None) => return self.connections.touch(socket),
                Ok(Some(frame)) => self.start_call(io, socket, frame),
                Err(error) => {
                    return self.close_on(io, socket, &error.to_string());
                }
            }
        }
    }

    /// Whether another call may start: it has a place, and what it asks of others will leave.
    fn has_room_for_calls(&self) -> bool {
        !self.calls.is_full() && self.mail.has_room() && self.call_bytes < REQUEST_BYTES_MAX
    }

    fn start_call(&mut self, io: &mut Io<'_>, socket: SocketId, frame: bytes::Bytes) {
        if let Err(error) = self.try_start_call(io, socket, frame) {
            self.close_on(io, socket, &error);
        }
    }

    /// Closes the connection of a client that misbehaves; the sentence says how.
    pub(crate) fn close_on(&mut self, io: &mut Io<'_>, socket: SocketId, sentence: &str) {
        let Some(connection) = self.connections.get(socket) else { return };
        let (peer, listener) = (connection.peer, connection.listener);
        if let Some(suppressed) = self.complaints.may_say(io.now.mono, listener) {
            let name = self.setup.listeners.get(usize::from(listener));
            let listener = name.map_or("", |listener| &*listener.name);
            tracing::warn!(%peer, listener, suppressed, "closing a connection: {sentence}");
        }
        self.connections.close(socket, io.now.mono, io.effects);
    }

    /// An error is a sentence on why the frame is no request that is served here.
    fn try_start_call(
        &mut self,
        io: &mut Io<'_>,
        socket: SocketId,
        frame: bytes::Bytes,
    ) -> Result<(), String> {
        let bytes = frame.len();
        let frame = RequestFrame::decode(own(frame)).map_err(|error| error.to_string())?;
        let handler = apis::handler_of(&frame)?;
        let head = Head {
            api_key: handler.api_key,
            version: frame.version,
            correlation_id: frame.correlation_id,
        };
        let (stage, is_slow) = (Stage::Started, false);
        let call = Call { socket, head, bytes, is_slow, stage, timer: None };
        let call = self.calls.insert(call).expect("there was room before the frame was cut");
        self.call_bytes += bytes;
        if let Some(connection) = self.connections.get_mut(socket) {
            connection.starts(call, !handler.pipelined);
        }
        (handler.start)(self, io, call, &frame)
            .map_err(|error| format!("{} version {}: {error}", head.api_key, head.version))
    }

    fn closed(&mut self, io: &mut Io<'_>, socket: SocketId) {
        let Some(connection) = self.connections.remove(socket) else { return };
        // What they still wait for will find nobody: an answer that nobody reads is not made.
        for call in connection.calls {
            let Some(call) = self.calls.remove(call) else { continue };
            self.call_bytes -= call.bytes;
            if let Some(timer) = call.timer {
                self.timers.cancel(timer);
            }
            if let Stage::Waiting(waiting) = call.stage {
                waiting.abandoned(self, io, socket);
            }
        }
        self.report_load(io);
    }
}

/// The request as the call may keep it. A slice of what the core received keeps a whole chunk of it
/// from being used again, and a call can last for minutes; only the records of Produce are handed
/// on as they came, and are let go of when they are written.
fn own(frame: Bytes) -> Bytes {
    const PRODUCE: [u8; 2] = (ApiKey::Produce as i16).to_be_bytes();
    if frame.starts_with(&PRODUCE) { frame } else { Bytes::copy_from_slice(&frame) }
}

/// Memory of requests.
impl Shard {
    /// An answer takes a while. A producer whose disk is behind is not read meanwhile: more from it
    /// would only wait as well. Other calls that wait long are known to.
    fn is_told_later(&mut self, ask: Token) {
        let Some(ask) = self.asks.get(ask) else { return };
        let Some(call) = self.calls.get_mut(ask.call) else { return };
        if call.head.api_key != ApiKey::Produce || std::mem::replace(&mut call.is_slow, true) {
            return;
        }
        let socket = call.socket;
        if let Some(connection) = self.connections.get_mut(socket) {
            connection.slow_calls += 1;
            self.connections.touch(socket);
        }
    }

    fn watch_favourite(&mut self, io: &Io<'_>, socket: SocketId) {
        self.timers.set(io.now.mono + STALL_MAX, Timer::Favourite(socket));
    }

    /// The one connection that is still read has to send something, or it stands in everybody's
    /// way.
    fn check_favourite(&mut self, io: &mut Io<'_>, socket: SocketId) {
        if !self.connections.is_favourite(socket) {
            return;
        }
        if self.connections.favourite_stalls() {
            let sentence = "the memory for requests is full, and it does not send the rest of its \
                            own, or too slowly";
            return self.close_on(io, socket, sentence);
        }
        self.watch_favourite(io, socket);
    }
}

/// Messages, files and time.
impl Shard {
    fn on_file(&mut self, io: &mut Io<'_>, token: Token, outcome: FileOutcome) {
        match self.files.done(token) {
            FileStep::Log(partition, step) => {
                self.with_owner(io, |owner, desk| owner.on_file(desk, partition, step, outcome));
            }
            FileStep::Load(partition) => {
                self.with_owner(io, |owner, desk| owner.load_read(desk, partition, outcome));
            }
            FileStep::Copy(partition, copy) => {
                self.with_owner(io, |owner, desk| {
                    owner.piece_read(desk, partition, copy, outcome);
                });
            }
            FileStep::Cancelled(partition, copy) => {
                let result = outcome.done();
                self.with_owner(io, |owner, desk| {
                    owner.copy_is_cancelled(desk, partition, copy, result);
                });
            }
            FileStep::CopyMark(partition, copy) => {
                let result = outcome.done();
                self.with_owner(io, |owner, desk| {
                    owner.copy_is_marked(desk, partition, copy, result);
                });
            }
            FileStep::Unmarked => {}
            FileStep::Directory(index, step) => self.on_directory(io, index, step, outcome),
            FileStep::Space(call, index) => {
                let space = outcome.space().ok();
                if let Some(waiting) = self.take_waiting(call) {
                    waiting.measured(self, io, call, index, space);
                }
            }
        }
    }

    fn on_message(&mut self, io: &mut Io<'_>, from: ShardId, message: Message) {
        match message {
            Message::Request { id, body } => self.on_request(io, Asker { shard: from, id }, body),
            Message::Reply { id, body } => {
                self.mail.replied(io.effects, from);
                self.on_reply(io, id, body);
            }
            Message::Published(published) => self.published(io, published),
            Message::Found(found) => self.found_directories(io, found),
            Message::Load { connections } => self.life.note_load(from, connections),
            Message::Settled(_) => unreachable!("shard {from} took a data shard for the quorum"),
        }
    }

    /// There is a newer image.
    pub(crate) fn view_changed(&mut self, io: &mut Io<'_>) {
        for call in std::mem::take(&mut self.awaiting_view) {
            if let Some(waiting) = self.take_waiting(call) {
                waiting.view_changed(self, io, call);
            }
        }
    }

    fn on_request(&mut self, io: &mut Io<'_>, asker: Asker, body: Request) {
        match body {
            Request::News(news) => {
                self.mail.reply(io.effects, asker.shard, asker.id, Reply::Taken);
                for News { call, partitions } in news {
                    if let Some(waiting) = self.take_waiting(call) {
                        waiting.told(self, io, call, asker.shard, partitions);
                    }
                }
            }
            Request::Unwatch(connection) => {
                self.mail.reply(io.effects, asker.shard, asker.id, Reply::Taken);
                self.owner.unwatch_connection(asker.shard, connection);
            }
            Request::Checkpoints { settled, positions, closed, unclosed } => {
                if closed {
                    self.mail.reply(io.effects, asker.shard, asker.id, Reply::Taken);
                } else {
                    let keeper = self.life.keeper();
                    let round = keeper.checkpoint_round + 1;
                    keeper.checkpoint_asks.push((asker, settled, round));
                }
                self.note_checkpoints(io, asker.shard, positions, closed, unclosed);
            }
            Request::DirectoryFailed { directory, sentence } => {
                self.mail.reply(io.effects, asker.shard, asker.id, Reply::Taken);
                self.directory_failed(io, directory, sentence);
            }
            Request::MoveReplicas(all) => self.move_replicas(io, asker, &all),
            Request::Late { id, body } => {
                self.mail.reply(io.effects, asker.shard, asker.id, Reply::Taken);
                self.on_reply(io, id, *body);
            }
            Request::Quorum(_) => unreachable!("a data shard is asked nothing of the quorum"),
            body => self.with_owner(io, |owner, desk| owner.ask(desk, asker, body)),
        }
    }

    fn on_reply(&mut self, io: &mut Io<'_>, id: Token, reply: Reply) {
        if matches!(reply, Reply::Later) {
            // The lane's slot is free again; the question stays open.
            return self.is_told_later(id);
        }
        if id == Token::NONE {
            return self.on_reply_to_shard(io, reply);
        }
        // Nobody needs the answer if the question was forgotten.
        let Some(ask) = self.asks.remove(id) else { return };
        if let Some(waiting) = self.take_waiting(ask.call) {
            waiting.answered(self, io, ask.call, ask.to, reply);
        }
    }

    /// A reply to what the shard asked for itself and not for a call.
    fn on_reply_to_shard(&mut self, io: &mut Io<'_>, reply: Reply) {
        match reply {
            Reply::Taken => {}
            Reply::Checkpointed(settled) => self.checkpointed(io, settled),
            Reply::Quorum(reply) => self.on_quorum_reply(io, *reply),
            other => unreachable!("{other:?} answers no question of this shard"),
        }
    }

    fn on_time(&mut self, io: &mut Io<'_>) {
        self.wake_at = Instant::FAR_FUTURE;
        self.ready.extend(self.next_turn.drain(..));
        self.with_owner(io, |owner, desk| owner.on_time(desk));
        while let Some(timer) = self.timers.expired(io.now.mono) {
            match timer {
                Timer::Call(call) => {
                    if let Some(waiting) = self.take_waiting(call) {
                        waiting.timed_out(self, io, call);
                    }
                }
                Timer::Checkpoint => self.checkpoints_are_due(io),
                Timer::Cleaned => self.cleaned_checkpoints_are_due(io),
                Timer::Retention => self.look_for_retention(io),
                Timer::Cleaning => self.look_for_cleaning(io),
                Timer::Producers => self.expire_producers(io),
                Timer::Listen(index) => self.listen(io, index),
                Timer::Idle => self.close_idle(io),
                Timer::Favourite(socket) => self.check_favourite(io, socket),
            }
        }
    }

    fn set_wake_up(&mut self, io: &mut Io<'_>) {
        let next = self.timers.next_at().into_iter().chain(self.owner.next_alarm()).min();
        let next = if self.next_turn.is_empty() && !self.owner.has_work() {
            next.unwrap_or(Instant::FAR_FUTURE)
        } else {
            io.now.mono
        };
        if next != self.wake_at {
            self.wake_at = next;
            io.effects.push(api::Effect::WakeAt(next));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_produce_keeps_what_the_core_received() {
        let is_kept = |frame: &'static [u8]| {
            let frame = Bytes::from_static(frame);
            own(frame.clone()).as_ptr() == frame.as_ptr()
        };
        assert!(is_kept(&[0, 0, 0, 9, 1]));
        assert!(!is_kept(&[0, 1, 0, 9, 1]) && !is_kept(&[1, 0, 0, 9]) && !is_kept(&[0]));
    }
}
