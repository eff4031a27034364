//! Snapshots of the metadata: when one is due, how it is written, and what of the log goes for it
//! (KIP-630; `SnapshotGenerator` and `KafkaRaftLog` in Kafka).
//!
//! A snapshot is due when so much was appended, or so long ago was the last one, as the settings
//! say.
//!
//! | stage | it ends when |
//! |---|---|
//! | the image's records are written to a file beside, a portion at a time | the last one is |
//! | the file is synced, takes its name, and the folder is synced | that is done |
//! | snapshots that are too old or too many go, and what of the log lies below the rest | |
//!
//! A snapshot that cannot be written is no harm: the log has all of it. It is tried again later.

use std::sync::Arc;

use api::{Effects, FileEffect, FileRef, IoError, IoResult};
use base::{Duration, LeaderEpoch, Now};
use bytes::Bytes;
use intercom::Message;
use raft::snapshot::SnapshotId;

use crate::shard::{Quorum, Stage};
use crate::snapshots::{SnapshotStep, Writing};

/// How long a snapshot that could not be written waits before it is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What Kafka adds to the name of a snapshot that is being written, and we too.
const UNFINISHED: &str = ".part";
/// What Kafka adds to the name of a snapshot that it is about to delete.
const DELETED: &str = ".deleted";

impl Quorum {
    /// Takes note of the snapshots in the folder, and removes what a crash left of others. Returns
    /// the newest one and its length.
    pub(crate) fn found_snapshots(
        &mut self,
        files: &[(String, u64)],
        effects: &mut Effects<Message>,
    ) -> Option<(SnapshotId, u64)> {
        for (name, length) in files {
            let whole = name.strip_suffix(UNFINISHED).or_else(|| name.strip_suffix(DELETED));
            // The unfinished ones of Kafka have more in their names than their ids.
            if whole.is_some_and(|whole| whole.ends_with(SnapshotId::SUFFIX)) {
                self.remove_file(FileRef::new(self.store.folder().join(name)), effects);
            } else if let Some(id) = SnapshotId::of_file_name(name) {
                self.snapshots.keep(id, *length, None);
            }
        }
        let newest = self.snapshots.newest()?;
        for id in self.snapshots.kept.keys().filter(|id| **id != newest) {
            self.store.read_snapshot_head(*id, effects);
        }
        Some((newest, self.snapshots.kept[&newest].bytes))
    }

    /// A snapshot was read, or its beginning.
    pub(crate) fn snapshot_is_of(&mut self, id: SnapshotId, last_contained_ms: Option<i64>) {
        if let Some(kept) = self.snapshots.kept.get_mut(&id) {
            kept.last_contained_ms = last_contained_ms;
        }
    }

    /// The node leads: its snapshots begin to age.
    pub(crate) fn start_snapshots(&mut self, now: Now, effects: &mut Effects<Message>) {
        self.snapshots.wind_up(now);
        self.clean_snapshots(now, effects);
    }

    /// Begins a snapshot of what is committed, if one is due.
    pub(crate) fn snapshot_when_due(&mut self, now: Now, effects: &mut Effects<Message>) {
        let leads = matches!(self.stage, Stage::Leading { .. });
        if !leads || !self.snapshots.is_due(now, self.store.appended_bytes()) {
            return;
        }
        let image = Arc::clone(self.timeline.stable());
        let last = image.provenance();
        let epoch = LeaderEpoch(last.last_epoch);
        let id = SnapshotId { end_offset: last.last_offset.plus(1), epoch };
        if self.snapshots.newest().is_some_and(|newest| id.end_offset <= newest.end_offset) {
            return;
        }
        self.snapshots.appended_before = self.store.appended_bytes();
        self.snapshots.wind_up(now);
        let name = format!("{}{UNFINISHED}", id.file_name());
        let file = FileRef::new(self.store.folder().join(name));
        let quorum = self.raft.voters_before(id.end_offset);
        let (writing, parts) = Writing::begin(id, image, quorum, file.clone(), now.wall_ms);
        self.snapshots.writing = Some(writing);
        let empty = FileEffect::Truncate { token: SnapshotStep::Emptied, file, length: 0 };
        self.store.snapshot_effect(empty, effects);
        self.write_piece(parts, effects);
    }

    fn write_piece(&mut self, parts: Vec<Bytes>, effects: &mut Effects<Message>) {
        let Some(writing) = &mut self.snapshots.writing else { return };
        let (file, position) = (writing.file.clone(), writing.bytes);
        writing.bytes += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        let token = SnapshotStep::Written;
        self.store.snapshot_effect(FileEffect::Write { token, file, position, parts }, effects);
    }

    /// A step is done, or has failed.
    pub(crate) fn snapshot_on(
        &mut self,
        now: Now,
        step: SnapshotStep,
        result: IoResult<()>,
        effects: &mut Effects<Message>,
    ) {
        if let Err(error) = result {
            return self.snapshot_failed(now, step, &error, effects);
        }
        let Some(writing) = &mut self.snapshots.writing else { return };
        let file = writing.file.clone();
        match step {
            SnapshotStep::Emptied | SnapshotStep::Removed => {}
            SnapshotStep::Written => match writing.next_piece() {
                Some(parts) => self.write_piece(parts, effects),
                None => {
                    let token = SnapshotStep::Synced;
                    self.store.snapshot_effect(FileEffect::Sync { token, file }, effects);
                }
            },
            SnapshotStep::Synced => {
                let to = self.store.folder().join(writing.id.file_name());
                let (token, from) = (SnapshotStep::Renamed, file.path().to_path_buf());
                let rename = FileEffect::Rename { token, from, to, files: vec![file] };
                self.store.snapshot_effect(rename, effects);
            }
            SnapshotStep::Renamed => {
                let directory = self.store.folder().to_owned();
                let token = SnapshotStep::FolderSynced;
                self.store.snapshot_effect(FileEffect::SyncDirectory { token, directory }, effects);
            }
            SnapshotStep::FolderSynced => {
                let Writing { id, bytes, last_contained_ms, .. } = *writing;
                self.snapshots.writing = None;
                self.snapshots.keep(id, bytes, Some(last_contained_ms));
                self.raft.keep_snapshot(id, bytes);
                tracing::info!(snapshot = id.file_name(), bytes, "the metadata are in a snapshot");
                self.clean_snapshots(now, effects);
            }
        }
    }

    fn snapshot_failed(
        &mut self,
        now: Now,
        step: SnapshotStep,
        error: &IoError,
        effects: &mut Effects<Message>,
    ) {
        if step == SnapshotStep::Removed {
            tracing::warn!(%error, "a snapshot of the metadata that is not needed stays");
            return;
        }
        // Of several effects that fail the first one counts.
        let Some(writing) = self.snapshots.writing.take() else { return };
        tracing::warn!(%error, "the metadata cannot be put into a snapshot; it is tried again");
        self.snapshots.again_at = now.mono + AGAIN_AFTER;
        self.snapshots.due_at = self.snapshots.again_at;
        self.remove_file(writing.file, effects);
    }

    /// Removes the oldest snapshots as far as the limits say, and what of the log lies below the
    /// first that stays.
    fn clean_snapshots(&mut self, now: Now, effects: &mut Effects<Message>) {
        while let Some(id) = self.snapshots.surplus(now, self.store.log_bytes()) {
            self.snapshots.kept.remove(&id);
            self.raft.drop_snapshot(id);
            let (first, _) = self.snapshots.kept.first_key_value().expect("one stays");
            self.store.begin_log_at(now, first.end_offset, effects);
            self.remove_file(FileRef::new(self.store.folder().join(id.file_name())), effects);
        }
    }

    fn remove_file(&mut self, file: FileRef, effects: &mut Effects<Message>) {
        let (token, path) = (SnapshotStep::Removed, file.path().to_path_buf());
        let remove = FileEffect::Remove { token, path, files: vec![file] };
        self.store.snapshot_effect(remove, effects);
    }
}
