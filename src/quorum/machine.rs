//! The machine, and the way from what is proposed to what is published.

use std::sync::Arc;

use api::{Effect, Effects, Event, Machine};
use base::{Duration, Instant, Now, Offset, ShardId};
use bytes::Bytes;
use intercom::{Message, Published, QuorumReply, QuorumRequest, Reply, Request};
use metadata::{Answerer, Batch, TopicChange, VersionedRecord};
use protocol::{ApiKey, ApiVersionsRequest, RequestFrame};
use raft::Output;
use raft::snapshot::Snapshot;

use crate::apis;
use crate::shard::{Asker, Pending, Quorum, Stage, Waiting};
use crate::store::StoreEvent;

impl Quorum {
    /// Appends the records of a proposal as one batch and applies them at once. Returns the offset
    /// below which everything must be committed before its answer may leave.
    pub(crate) fn propose(&mut self, now: Now, records: &[VersionedRecord]) -> Offset {
        if records.is_empty() {
            // The answer is based on what was applied before, committed or not.
            return self.timeline.end_offset();
        }
        let encode = |record: &VersionedRecord| {
            record.encode().expect("the controller writes what its version can carry")
        };
        let values: Vec<Bytes> = records.iter().map(encode).collect();
        let mut outputs = Vec::new();
        let base_offset = self
            .raft
            .append(now, &values, &mut outputs)
            .expect("proposals are made by the leader only");
        let batch = Batch {
            base_offset,
            epoch: self.raft.election().epoch.0,
            timestamp_ms: now.wall_ms,
            records,
        };
        self.timeline.apply(&batch).expect("the controller proposes what can be replayed");
        for output in outputs {
            let Output::Append(batch) = output else { panic!("an append leads to {output:?}") };
            self.store.append(now, &batch);
        }
        self.timeline.end_offset()
    }

    /// Answers when everything below `offset` is committed.
    pub(crate) fn answer_at(&mut self, offset: Offset, to: Asker, reply: QuorumReply) {
        self.pending.push_back(Pending { offset, to, reply });
    }

    /// Whether an answer still waits for its commit.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(crate) fn close_store(&mut self, now: Now, effects: &mut Effects<Message>) {
        self.store.close(now, effects);
        self.take_store_events(now, effects);
    }

    pub(crate) fn fail(&mut self, sentence: String, effects: &mut Effects<Message>) {
        if !matches!(self.stage, Stage::Over) {
            self.stage = Stage::Over;
            effects.push(Effect::Fail { sentence });
        }
    }

    /// Performs what raft asks for.
    pub(crate) fn take_outputs(
        &mut self,
        now: Now,
        outputs: Vec<Output>,
        effects: &mut Effects<Message>,
    ) {
        for output in outputs {
            match output {
                Output::WriteElection(state, written) => {
                    self.life.election_written = Some(written);
                    let text = self.raft.election_text(state);
                    self.store.write_election(text, effects);
                }
                Output::Append(batch) => {
                    self.timeline.skip_to(batch.header().next_offset());
                    self.store.append(now, &batch);
                }
                Output::Leading(_) => self.activate(now, effects),
                Output::HighWatermark(offset) => {
                    self.committed = Some(offset);
                    self.commit(now, offset, effects);
                }
                Output::Following { epoch, .. } => {
                    tracing::debug!(epoch = epoch.0, "this node does not lead the quorum");
                }
                Output::Truncate(_)
                | Output::Send { .. }
                | Output::Reply { .. }
                | Output::SnapshotPart { .. }
                | Output::InstallSnapshot(_) => {
                    panic!("a quorum of one voter leads to {output:?}")
                }
            }
        }
    }

    fn commit(&mut self, now: Now, high_watermark: Offset, effects: &mut Effects<Message>) {
        self.timeline.commit(high_watermark);
        let Stage::Leading { activated } = self.stage else { return };
        if high_watermark < activated {
            return;
        }
        self.publish(effects);
        while self.pending.front().is_some_and(|pending| pending.offset <= high_watermark) {
            let Pending { to, reply, .. } = self.pending.pop_front().expect("it was seen");
            self.reply(now, to, reply, effects);
        }
    }

    fn reply(&mut self, now: Now, to: Asker, reply: QuorumReply, effects: &mut Effects<Message>) {
        match (to, reply) {
            (Asker::Shard { shard, id }, reply) => {
                let body = Reply::Quorum(Box::new(reply));
                effects.reply(shard, Message::Reply { id, body });
            }
            (Asker::Client(call), QuorumReply::Api(Ok(frame))) => self.clients.answer(call, frame),
            (Asker::Client(call), QuorumReply::Api(Err(sentence))) => {
                self.clients.refuse(now, call, &sentence, effects);
            }
            (Asker::Client(_), reply) => unreachable!("a client was answered by {reply:?}"),
        }
    }

    /// Starts the requests that have come in by the controller's listeners.
    fn take_requests(&mut self, now: Now, effects: &mut Effects<Message>) {
        while let Some((call, frame)) = self.clients.next_request(now, effects) {
            match network::taken_api(&frame, apis::taken()) {
                Ok(ApiKey::ApiVersions) => match self.api_versions(&frame) {
                    Ok(response) => self.clients.answer(call, response),
                    Err(sentence) => self.clients.refuse(now, call, &sentence, effects),
                },
                Ok(_) => {
                    let request = Box::new(QuorumRequest::Api(frame));
                    self.waiting.push_back(Waiting { from: Asker::Client(call), request });
                }
                Err(sentence) => self.clients.refuse(now, call, &sentence, effects),
            }
        }
    }

    /// What the controller speaks. Nobody waits for a leader to know that.
    fn api_versions(&self, frame: &RequestFrame) -> Result<Bytes, String> {
        let image = self.published.as_deref();
        let answerer = Answerer {
            cluster_id: &self.controller.cluster_id,
            node: self.node(),
            image,
            kraft_version: self.raft.kraft_version(),
        };
        let answer = metadata::api_versions(frame, answerer, apis::taken());
        let (version, response) = answer.map_err(|error| format!("ApiVersions: {error}"))?;
        let id = frame.correlation_id;
        let frame = protocol::encode_response::<ApiVersionsRequest>(id, version, &response);
        Ok(frame.map_err(|error| format!("ApiVersions: {error}"))?.into_bytes())
    }

    /// Posts the stable image to every data shard, if it is not the one that they have.
    fn publish(&mut self, effects: &mut Effects<Message>) {
        let image = Arc::clone(self.timeline.stable());
        if self.published.as_ref().is_some_and(|published| Arc::ptr_eq(published, &image)) {
            return;
        }
        let before = self.published.take().unwrap_or_default();
        let changes = image.topics_changed_since(&before);
        let offset = image.provenance().last_offset;
        for change in &changes {
            if let TopicChange::Removed(topic) = change {
                self.owners.topic_removed(topic, offset);
            }
        }
        let node = self.controller.node;
        for change in &changes {
            if let TopicChange::Added(topic) | TopicChange::Changed { new: topic, .. } = change
                && topic.partitions.values().any(|one| one.has_replica(node))
            {
                self.owners.topic_is_here(topic);
            }
        }
        self.published = Some(image);
        self.post_image(effects);
    }

    /// A data shard has no more folders of topics that were deleted up to an offset: topics that
    /// wait for these names get their owners.
    fn settled(&mut self, shard: ShardId, offset: Offset, effects: &mut Effects<Message>) {
        let Some(image) = &self.published else { return };
        if self.owners.settled(shard, offset, image) {
            self.post_image(effects);
        }
    }

    fn post_image(&self, effects: &mut Effects<Message>) {
        let Some(image) = &self.published else { return };
        let published = Published {
            image: Arc::clone(image),
            placement: self.owners.placement().clone(),
            kraft_version: self.raft.kraft_version(),
            leader: self.raft.election().leader,
            leader_epoch: self.raft.election().epoch,
        };
        for shard in 0..self.params.data_shards {
            let message = Message::Published(published.clone());
            effects.push(Effect::Post { to: ShardId(shard), message });
        }
    }

    fn take_store_events(&mut self, now: Now, effects: &mut Effects<Message>) {
        loop {
            let events = self.store.take_events();
            if events.is_empty() {
                return;
            }
            for event in events {
                self.take_store_event(now, event, effects);
            }
        }
    }

    fn take_store_event(&mut self, now: Now, event: StoreEvent, effects: &mut Effects<Message>) {
        match event {
            StoreEvent::Failed(sentence) => self.fail(sentence, effects),
            StoreEvent::SnapshotHeadRead(id, head) => {
                self.snapshot_is_of(id, Snapshot::last_contained_ms_of(head));
            }
            StoreEvent::Snapshots(step, result) => self.snapshot_on(now, step, result, effects),
            StoreEvent::ElectionWritten => {
                let written = self.life.election_written.take().expect("it was handed out");
                let mut outputs = Vec::new();
                if matches!(self.stage, Stage::Electing) {
                    self.raft.on_election_written(now, written, &mut outputs);
                }
                self.take_outputs(now, outputs, effects);
            }
            StoreEvent::Synced(offset) => {
                let mut outputs = Vec::new();
                self.raft.on_synced(now, offset, &mut outputs);
                self.take_outputs(now, outputs, effects);
            }
            StoreEvent::Closed => {
                if matches!(self.stage, Stage::Closing) {
                    self.stage = Stage::Over;
                    effects.push(Effect::Stopped);
                }
            }
            StoreEvent::Listed(_)
            | StoreEvent::ElectionRead(_)
            | StoreEvent::SnapshotRead(_)
            | StoreEvent::Opened
            | StoreEvent::Loaded(_) => {
                // A node that is stopped while it loads has no use for the rest.
                if matches!(self.stage, Stage::Loading(_)) {
                    self.load_on(now, event, effects);
                }
            }
        }
    }

    /// Takes requests, as long as this node leads and its disk keeps up.
    fn serve(&mut self, now: Now, effects: &mut Effects<Message>) {
        if self.store.is_full() {
            return self.let_the_broker_stop(now, effects);
        }
        while matches!(self.stage, Stage::Leading { .. }) && !self.store.is_congested() {
            let Some(waiting) = self.waiting.pop_front() else { return };
            self.handle(now, waiting);
            // An answer that needs no commit leaves at once.
            if let Some(committed) = self.committed {
                self.commit(now, committed, effects);
            }
        }
    }

    /// The disk is full: no request can be decided, but nobody waits for space to stop.
    fn let_the_broker_stop(&mut self, now: Now, effects: &mut Effects<Message>) {
        let stops = |waiting: &Waiting| matches!(*waiting.request, QuorumRequest::BrokerStopping);
        let Some(place) = self.waiting.iter().position(stops) else { return };
        let Some(Waiting { from, .. }) = self.waiting.remove(place) else { return };
        self.life.broker_stops = true;
        self.reply(now, from, QuorumReply::BrokerStopping, effects);
    }

    fn wake(&mut self, now: Now, effects: &mut Effects<Message>) {
        if self.store.next_timer().is_some_and(|at| at <= now.mono) {
            self.store.on_timer(now, effects);
        }
        if self.no_op_at <= now.mono {
            self.write_no_op(now);
        }
        self.clients.on_time(now, effects);
        self.stop_when_due(now, effects);
    }

    /// The log moves on even when nothing happens, so that those who follow it can tell
    /// (`QuorumController.registerWriteNoOpRecord`).
    fn write_no_op(&mut self, now: Now) {
        self.no_op_at = Instant::FAR_FUTURE;
        if matches!(self.stage, Stage::Leading { .. }) && !self.store.is_full() {
            let record = protocol::NoOpRecord::default();
            self.propose(now, &[VersionedRecord { record: record.into(), version: 0 }]);
        }
        if matches!(self.stage, Stage::Leading { .. }) {
            self.start_no_ops(now);
        }
    }

    /// Sets when the log is moved on next; never, if `metadata.max.idle.interval.ms` is 0.
    pub(crate) fn start_no_ops(&mut self, now: Now) {
        let interval = self.params.config.simple.metadata_max_idle_interval_ms;
        let interval = u64::try_from(interval).unwrap_or(0);
        self.no_op_at = match interval {
            0 => Instant::FAR_FUTURE,
            ms => now.mono + Duration::from_millis(ms),
        };
    }
}

impl Machine for Quorum {
    type Message = Message;

    fn step(&mut self, now: Now, event: Event<Message>, effects: &mut Effects<Message>) {
        if matches!(self.stage, Stage::Over) {
            return;
        }
        match event {
            Event::Started => {
                self.clients.listen(now, effects);
                self.store.list(effects);
            }
            Event::File { token, outcome } => self.store.on_file(now, token, outcome, effects),
            Event::WakeUp => self.wake(now, effects),
            Event::Stop => {
                self.clients.stop_listening(effects);
                self.life.stop(now);
            }
            Event::Mesh {
                from,
                message: Message::Request { id, body: Request::Quorum(request) },
            } => {
                let from = Asker::Shard { shard: from, id };
                self.waiting.push_back(Waiting { from, request });
            }
            Event::Mesh { from, message: Message::Settled(offset) } => {
                self.settled(from, offset, effects);
            }
            Event::Mesh { from, message } => panic!("shard {from} sent the quorum {message:?}"),
            Event::Listening { token, result } => {
                self.clients.listening(now, token, result, effects);
            }
            Event::Accepted { token, socket, .. } => self.clients.accepted(token, socket, effects),
            Event::Opened { socket, listener, peer } => {
                self.clients.opened(now, socket, listener, peer);
            }
            Event::Received { socket, bytes } => self.clients.received(now, socket, bytes),
            Event::Sent { socket, bytes } => self.clients.sent(socket, bytes),
            Event::Closed { socket, .. } => {
                // What they asked and nobody has looked at would else be kept for as long as the
                // disk is full.
                let gone = self.clients.closed(socket);
                let is_gone = |from| matches!(from, Asker::Client(call) if gone.contains(&call));
                self.waiting.retain(|waiting| !is_gone(waiting.from));
            }
            Event::Connected { .. } => unreachable!("the quorum connects to nobody yet"),
        }
        self.take_requests(now, effects);
        self.take_store_events(now, effects);
        self.serve(now, effects);
        self.take_store_events(now, effects);
        self.stop_when_due(now, effects);
    }

    fn end_of_turn(&mut self, now: Now, effects: &mut Effects<Message>) {
        if matches!(self.stage, Stage::Over) {
            return;
        }
        self.snapshot_when_due(now, effects);
        self.store.end_of_turn(now, effects);
        self.take_store_events(now, effects);
        self.clients.end_of_turn(now, effects);
        let timers = [self.no_op_at, self.life.next_timer()];
        let others = [self.store.next_timer(), self.clients.next_timer(now)];
        let at = timers.into_iter().chain(others.into_iter().flatten()).min();
        effects.push(Effect::WakeAt(at.unwrap_or(Instant::FAR_FUTURE)));
    }
}
