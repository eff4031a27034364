//! Which snapshots there are, which one is written, and when the next is due.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::FileRef;
use base::{Duration, Instant, Now};
use bytes::Bytes;
use config::SimpleSettings;
use metadata::{Image, ImageRecords};
use raft::VoterSet;
use raft::snapshot::{Snapshot, SnapshotId, SnapshotWriter};

/// The steps of writing a snapshot, and of removing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotStep {
    /// What an earlier attempt left in the file is gone.
    Emptied,
    /// A piece is written.
    Written,
    Synced,
    Renamed,
    FolderSynced,
    /// A file that nobody needs any more is gone.
    Removed,
}

/// When there is to be a snapshot, and how many.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// `metadata.log.max.record.bytes.between.snapshots`.
    bytes_between: u64,
    /// `metadata.log.max.snapshot.interval.ms`; none where time alone makes none due.
    interval: Option<Duration>,
    /// `metadata.max.retention.bytes`, of the log and its snapshots; none without a limit.
    retention_bytes: Option<u64>,
    /// `metadata.max.retention.ms`; none without a limit.
    retention_ms: Option<i64>,
}

impl Rules {
    fn new(settings: &SimpleSettings) -> Self {
        let interval = u64::try_from(settings.metadata_log_max_snapshot_interval_ms).unwrap_or(0);
        Self {
            bytes_between: u64::try_from(settings.metadata_log_max_record_bytes_between_snapshots)
                .unwrap_or(u64::MAX),
            interval: (interval > 0).then(|| Duration::from_millis(interval)),
            retention_bytes: u64::try_from(settings.metadata_max_retention_bytes).ok(),
            retention_ms: Some(settings.metadata_max_retention_ms).filter(|ms| *ms >= 0),
        }
    }
}

/// A snapshot in the folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) bytes: u64,
    /// When the last record in it was written, where that is known.
    pub(crate) last_contained_ms: Option<i64>,
}

/// A snapshot that is being written.
#[derive(Debug)]
pub(crate) struct Writing {
    pub(crate) id: SnapshotId,
    pub(crate) last_contained_ms: i64,
    pub(crate) file: FileRef,
    /// The length of what was written.
    pub(crate) bytes: u64,
    writer: SnapshotWriter,
    /// The rest of the image; none once the end was written.
    records: Option<ImageRecords>,
}

impl Writing {
    /// A snapshot of `image`, written at `now_ms` to `file`, and its first piece. `voters` are
    /// those of a quorum that keeps them itself.
    pub(crate) fn begin(
        id: SnapshotId,
        image: Arc<Image>,
        (kraft_version, voters): (i16, Option<&VoterSet>),
        file: FileRef,
        now_ms: i64,
    ) -> (Self, Vec<Bytes>) {
        let head = Snapshot {
            last_contained_ms: image.provenance().last_timestamp_ms,
            kraft_version,
            voters: voters.filter(|_| kraft_version > 0).cloned(),
            values: Vec::new(),
        };
        let mut writer = SnapshotWriter::new(id.epoch, now_ms);
        let parts = vec![writer.begin(&head)];
        let last_contained_ms = head.last_contained_ms;
        let records = Some(ImageRecords::new(image));
        (Self { id, last_contained_ms, file, bytes: 0, writer, records }, parts)
    }

    /// The next piece of the file; nothing behind the last one.
    pub(crate) fn next_piece(&mut self) -> Option<Vec<Bytes>> {
        let Some(portion) = self.records.as_mut()?.next() else {
            self.records = None;
            return Some(vec![self.writer.end()]);
        };
        let encode = |record: &metadata::VersionedRecord| {
            record.encode().expect("what was replayed can be written")
        };
        let values: Vec<Bytes> = portion.iter().map(encode).collect();
        let (mut rest, mut pieces) = (&*values, Vec::new());
        while !rest.is_empty() {
            let (bytes, count) = self.writer.batch(rest);
            pieces.push(bytes);
            rest = &rest[count..];
        }
        Some(pieces)
    }
}

/// The snapshots of the metadata log.
#[derive(Debug)]
pub(crate) struct Snapshots {
    rules: Rules,
    pub(crate) kept: BTreeMap<SnapshotId, Kept>,
    /// What the log had taken when the newest snapshot was begun, in bytes.
    pub(crate) appended_before: u64,
    /// No snapshot is due for its age before this.
    pub(crate) due_at: Instant,
    /// None is begun before this, since the last one could not be written.
    pub(crate) again_at: Instant,
    pub(crate) writing: Option<Writing>,
}

impl Snapshots {
    pub(crate) fn new(settings: &SimpleSettings) -> Self {
        Self {
            rules: Rules::new(settings),
            kept: BTreeMap::new(),
            appended_before: 0,
            due_at: Instant::FAR_FUTURE,
            again_at: Instant::ZERO,
            writing: None,
        }
    }

    /// A snapshot was found in the folder, or written.
    pub(crate) fn keep(&mut self, id: SnapshotId, bytes: u64, last_contained_ms: Option<i64>) {
        self.kept.insert(id, Kept { bytes, last_contained_ms });
    }

    /// The newest snapshot.
    pub(crate) fn newest(&self) -> Option<SnapshotId> {
        self.kept.last_key_value().map(|(id, _)| *id)
    }

    /// Time counts from now on.
    pub(crate) fn wind_up(&mut self, now: Now) {
        self.due_at = self.rules.interval.map_or(Instant::FAR_FUTURE, |it| now.mono + it);
    }

    /// Whether a snapshot is to be made, with so many bytes appended to the log in all.
    pub(crate) fn is_due(&self, now: Now, appended_bytes: u64) -> bool {
        let grown = appended_bytes.saturating_sub(self.appended_before);
        self.writing.is_none()
            && self.again_at <= now.mono
            && (grown >= self.rules.bytes_between || self.due_at <= now.mono)
    }

    /// The oldest snapshot, if it is to go: never the only one.
    pub(crate) fn surplus(&self, now: Now, log_bytes: u64) -> Option<SnapshotId> {
        let (oldest, kept) = self.kept.first_key_value().filter(|_| self.kept.len() > 1)?;
        let bytes = log_bytes + self.kept.values().map(|kept| kept.bytes).sum::<u64>();
        let is_much = self.rules.retention_bytes.is_some_and(|most| bytes > most);
        let age_ms = kept.last_contained_ms.map(|last_ms| now.wall_ms.saturating_sub(last_ms));
        let is_old = self.rules.retention_ms.is_some_and(|most| age_ms.is_some_and(|it| it > most));
        (is_much || is_old).then_some(*oldest)
    }
}
