//! From the files to the image.
//!
//! | stage | goes on when |
//! |---|---|
//! | the folder is listed | its names are known |
//! | `quorum-state`, the newest snapshot and the log are opened | all of them are there |
//! | the log is read from the snapshot on | nothing is left |
//! | the epoch is claimed | the claim is durable |
//! | activation | its records are committed |

use std::sync::Arc;

use api::Effects;
use base::{Now, Offset};
use bytes::Bytes;
use controller::Activation;
use intercom::{Endpoint, Message};
use metadata::{Controller, Image, Resource, SecurityProtocol, Timeline};
use raft::snapshot::{Snapshot, SnapshotId};
use raft::{ElectionState, RaftError};
use records::Batches;

use crate::replay;
use crate::shard::{Loading, Quorum, Stage};
use crate::store::StoreEvent;

/// Whether a topic keeps its older segments elsewhere (KIP-405).
const REMOTE_STORAGE: &str = "remote.storage.enable";

/// Why a node cannot go on with what it found; a sentence for the person who starts it.
type Refusal = String;

/// A topic whose older segments are in a tier is not served without them.
fn refuse_tiered(image: &Image) -> Result<(), Refusal> {
    let is_tiered = |name: &&Arc<str>| {
        let value = image.config(&Resource::topic(Arc::clone(name)), REMOTE_STORAGE);
        value.is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
    };
    let names = image.topic_ids().iter().map(|(name, _)| name);
    names.into_iter().find(is_tiered).map_or(Ok(()), |name| {
        Err(format!(
            "The topic {name} has {REMOTE_STORAGE}=true: what is in a tier could not be read, and \
             nothing was changed"
        ))
    })
}

impl Quorum {
    /// Takes what was read, and asks for what comes next.
    pub(crate) fn load_on(&mut self, now: Now, event: StoreEvent, effects: &mut Effects<Message>) {
        let Stage::Loading(mut loading) = std::mem::replace(&mut self.stage, Stage::Over) else {
            panic!("{event:?} after loading")
        };
        match self.load_step(&mut loading, event, effects) {
            Ok(false) => self.stage = Stage::Loading(loading),
            Ok(true) => self.start_election(now, *loading, effects),
            Err(sentence) => {
                self.stage = Stage::Loading(loading);
                self.fail(sentence, effects);
            }
        }
    }

    /// Says whether everything was loaded.
    fn load_step(
        &mut self,
        loading: &mut Loading,
        event: StoreEvent,
        effects: &mut Effects<Message>,
    ) -> Result<bool, Refusal> {
        match event {
            StoreEvent::Listed(files) => self.take_listing(loading, &files, effects)?,
            StoreEvent::ElectionRead(bytes) => {
                let state = ElectionState::of_text(&bytes).map_err(|error| {
                    let folder = self.store.folder().display();
                    format!("{folder}/quorum-state cannot be read: {error}")
                })?;
                loading.election = Some(Some(state));
            }
            StoreEvent::SnapshotRead(bytes) => self.take_snapshot(loading, bytes)?,
            StoreEvent::Opened => loading.log_is_open = true,
            StoreEvent::Loaded(bytes) if bytes.is_empty() => {
                refuse_tiered(self.timeline.applied())?;
                return Ok(true);
            }
            StoreEvent::Loaded(bytes) => {
                let next = self.take_batches(bytes)?;
                self.store.load_on(next, effects);
                return Ok(false);
            }
            other => panic!("{other:?} is no part of loading"),
        }
        let is_ready =
            loading.election.is_some() && loading.snapshot.is_some() && loading.log_is_open;
        if is_ready {
            self.begin_log(loading, effects)?;
        }
        Ok(false)
    }

    fn take_listing(
        &mut self,
        loading: &mut Loading,
        files: &[(String, u64)],
        effects: &mut Effects<Message>,
    ) -> Result<(), Refusal> {
        let Some((id, length)) = self.found_snapshots(files, effects) else {
            return Err(format!(
                "{} holds no snapshot: format the directory before the node is started",
                self.store.folder().display()
            ));
        };
        loading.snapshot_id = Some(id);
        self.store.read_snapshot(&id.file_name(), length, effects);
        match files.iter().find(|(name, _)| name == "quorum-state") {
            Some((_, length)) => self.store.read_election(*length, effects),
            None => loading.election = Some(None),
        }
        let has_log = files.iter().any(|(name, _)| name.ends_with(".log"));
        // What lies below is in the snapshot. Of segments that were being deleted when the power
        // went, a newer one may be gone and an older one there: the gap is no loss.
        self.store.open_log(has_log, id.end_offset, effects);
        Ok(())
    }

    fn take_snapshot(&mut self, loading: &mut Loading, bytes: Bytes) -> Result<(), Refusal> {
        let id = loading.snapshot_id.expect("it was asked for");
        let path = self.store.folder().join(id.file_name());
        let refuse =
            |error: &dyn std::fmt::Display| format!("{} cannot be read: {error}", path.display());
        let snapshot = Snapshot::of_bytes(bytes).map_err(|error| refuse(&error))?;
        let records = replay::records_of(&snapshot).map_err(|error| refuse(&error))?;
        self.snapshot_is_of(id, Some(snapshot.last_contained_ms));
        let (size, voters) = (self.snapshots.kept[&id].bytes, snapshot.voters.clone());
        self.raft.on_snapshot(id, size, snapshot.kraft_version, voters);
        if id == SnapshotId::BOOTSTRAP {
            // These are written to the log, if it is empty; then the log has them.
            loading.bootstrap = records;
        } else {
            let image = replay::image_of(id, snapshot.last_contained_ms, &records);
            let image = image.map_err(|error| refuse(&error))?;
            self.timeline = Timeline::at(image, id.end_offset);
        }
        loading.snapshot = Some((id, snapshot));
        Ok(())
    }

    fn begin_log(
        &mut self,
        loading: &mut Loading,
        effects: &mut Effects<Message>,
    ) -> Result<(), Refusal> {
        let (start, end) = self.store.offsets();
        let from = self.timeline.end_offset();
        if start > from || end < from {
            return Err(format!(
                "{} holds the log from {start} to {end}, which does not go on from the snapshot \
                 that ends at {from}: some of its files are missing",
                self.store.folder().display()
            ));
        }
        loading.log_is_open = false;
        self.store.load_from(from, effects);
        Ok(())
    }

    /// Applies a part of the log and returns the offset behind it.
    fn take_batches(&mut self, bytes: Bytes) -> Result<Offset, Refusal> {
        let folder = self.store.folder().display().to_string();
        let mut next = self.timeline.end_offset();
        let refuse = |offset: Offset, error: &dyn std::fmt::Display| {
            format!("The metadata log {folder} cannot be used at offset {offset}: {error}")
        };
        let mut batches = Batches::new(bytes);
        for batch in batches.by_ref() {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => return Err(refuse(next, &error)),
            };
            batch.check_crc().map_err(|error| refuse(next, &error))?;
            let header = *batch.header();
            if header.next_offset() <= next {
                continue;
            }
            self.store.count(&batch);
            self.raft.on_batch(&batch).map_err(|error| refuse(next, &error))?;
            replay::apply(&mut self.timeline, &batch)
                .map_err(|unusable| refuse(unusable.offset, &unusable.error))?;
            next = header.next_offset();
            // The only voter has it, so that it is committed as soon as this node leads; and
            // nothing is told to anyone before.
            self.timeline.commit(next);
        }
        Ok(next)
    }

    fn start_election(&mut self, now: Now, loading: Loading, effects: &mut Effects<Message>) {
        let (end, known) = (self.store.offsets().1, self.raft.end_offset());
        assert_eq!(end, known, "raft has seen the whole log");
        self.stage = Stage::Electing;
        let mut outputs = Vec::new();
        let started = self.check_voters().and_then(|()| {
            let started = self.raft.start(now, loading.election.flatten(), &mut outputs);
            started.map_err(|error| error.to_string())
        });
        match started {
            Ok(()) => {
                self.controller.quorum_nodes = self.raft.voters().ids();
                self.life.bootstrap = loading.bootstrap;
                self.take_outputs(now, outputs, effects);
            }
            Err(error) => self.fail(format!("This node cannot start: {error}"), effects),
        }
    }

    /// This shard has no way to other nodes yet, so that it can only be the one voter.
    fn check_voters(&self) -> Result<(), Refusal> {
        let (voters, own) = (self.raft.voters(), self.params.directory_id);
        if voters.is_empty() {
            return Err(RaftError::NoVoters.to_string());
        }
        if !self.raft.is_voter() {
            let keys: Vec<_> = voters.iter().map(|voter| voter.key).collect();
            return Err(format!(
                "node {} with the directory {own} is not a voter of the quorum {keys:?}",
                self.node()
            ));
        }
        match voters.len() {
            1 => Ok(()),
            several => Err(format!(
                "the quorum has {several} voters, and only one of a single voter can be led so far"
            )),
        }
    }

    /// Writes what an active controller writes first.
    pub(crate) fn activate(&mut self, now: Now, effects: &mut Effects<Message>) {
        let image = self.timeline.applied();
        let min_isr = self.params.config.settings().get("min.insync.replicas");
        let bootstrap = std::mem::take(&mut self.life.bootstrap);
        let records = controller::activation_records(&Activation {
            log_is_empty: image.provenance().last_offset < Offset(0),
            open_transaction: self.timeline.transaction_start(),
            bootstrap: &bootstrap,
            metadata_version: image.metadata_version(),
            min_insync_replicas: match min_isr {
                Some(config::Value::Integer(value)) => i32::try_from(*value).unwrap_or(1),
                _ => 1,
            },
        });
        self.propose(now, &records);
        let registration =
            controller::register_controller(self.timeline.applied(), &self.own_controller());
        let activated = self.propose(now, &registration.records);
        self.stage = Stage::Leading { activated };
        self.start_no_ops(now);
        self.start_snapshots(now, effects);
    }

    fn own_controller(&self) -> Controller {
        let config = &self.params.config;
        let endpoints = config.advertised_controller_listeners.iter().map(|listener| Endpoint {
            name: listener.name.as_str().into(),
            host: listener.host.as_str().into(),
            port: listener.port,
            security_protocol: SecurityProtocol(listener.protocol.protocol_number()),
        });
        let supported = metadata::supported_features().into_iter();
        Controller {
            id: self.node(),
            incarnation: self.life.controller_incarnation,
            zk_migration_ready: false,
            endpoints: endpoints.collect(),
            features: supported.map(|(name, range)| (name.into(), range)).collect(),
        }
    }
}
