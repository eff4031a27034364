//! Snapshots of the metadata: files `OFFSET-EPOCH.checkpoint` (KIP-630).

use base::{LeaderEpoch, Offset};
use bytes::{Bytes, BytesMut};
use records::{Batch, BatchBuilder, BatchError, Batches, Compression, NewRecord};

use crate::control::{self, ControlError, ControlRecord, control_records};
use crate::voters::VoterSet;

/// The end of a snapshot's file name.
const SUFFIX: &str = ".checkpoint";
/// The most bytes that one batch of a snapshot has (`KafkaRaftClient.MAX_BATCH_SIZE_BYTES`).
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Up to where a snapshot reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotId {
    /// The offset behind the last record that it contains.
    pub end_offset: Offset,
    /// The epoch of that record.
    pub epoch: LeaderEpoch,
}

impl SnapshotId {
    /// The snapshot that formatting writes: it holds the records to begin with.
    pub const BOOTSTRAP: SnapshotId = SnapshotId { end_offset: Offset(0), epoch: LeaderEpoch(0) };

    /// Its file name.
    pub fn file_name(self) -> String {
        format!("{:020}-{:010}{SUFFIX}", self.end_offset.0, self.epoch.0)
    }

    /// The snapshot of a file name, if it is one.
    pub fn of_file_name(name: &str) -> Option<Self> {
        let (offset, epoch) = name.strip_suffix(SUFFIX)?.split_once('-')?;
        let digits =
            |text: &str, length| text.len() == length && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(offset, 20) || !digits(epoch, 10) {
            return None;
        }
        Some(Self {
            end_offset: Offset(offset.parse().ok()?),
            epoch: LeaderEpoch(epoch.parse().ok()?),
        })
    }
}

/// What a snapshot holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// When the last record that it contains was written, in milliseconds since 1970.
    pub last_contained_ms: i64,
    /// The version of the quorum's protocol; 0 where it does not say.
    pub kraft_version: i16,
    /// Who votes, where it says so.
    pub voters: Option<VoterSet>,
    /// The values of its other records.
    pub values: Vec<Bytes>,
}

/// A snapshot that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// A batch is broken.
    #[error("{0}")]
    Batch(#[from] BatchError),
    /// A control record is broken.
    #[error("{0}")]
    Control(#[from] ControlError),
    /// It does not begin as a snapshot does.
    #[error("it has no header")]
    NoHeader,
    /// It does not end as a snapshot does.
    #[error("it is cut off")]
    NoFooter,
}

impl Snapshot {
    /// The content of the file, written at `now_ms` by a leader of `epoch`.
    pub fn to_bytes(&self, epoch: LeaderEpoch, now_ms: i64) -> Bytes {
        let mut out = BytesMut::new();
        let header = control::snapshot_header(
            now_ms,
            self.last_contained_ms,
            epoch,
            self.kraft_version,
            self.voters.as_ref(),
        );
        let mut next = push(&mut out, &header);
        let mut values = self.values.iter().peekable();
        while values.peek().is_some() {
            let mut builder = BatchBuilder::new(next, Compression::None).leader_epoch(epoch);
            while let Some(value) = values.peek() {
                let record =
                    NewRecord { timestamp: now_ms, value: Some(value), ..NewRecord::default() };
                let grown = builder.plain_bytes() + builder.record_bytes(&record);
                if builder.record_count() > 0 && grown > BATCH_BYTES_MAX {
                    break;
                }
                builder.append(&record);
                values.next();
            }
            next = push(&mut out, &builder.build());
        }
        push(&mut out, &control::snapshot_footer(next, epoch, now_ms));
        out.freeze()
    }

    /// Reads the content of the file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of_bytes(bytes: Bytes) -> Result<Self, SnapshotError> {
        let mut snapshot = Snapshot::default();
        let (mut has_header, mut has_footer) = (false, false);
        for batch in Batches::new(bytes) {
            let batch = batch?;
            batch.check_crc()?;
            if has_footer {
                return Err(SnapshotError::NoFooter);
            }
            if !batch.header().is_control() {
                let mut reader = batch.records(usize::MAX)?;
                while let Some(record) = reader.next_record()? {
                    let value = Bytes::copy_from_slice(record.value.unwrap_or_default());
                    snapshot.values.push(value);
                }
                continue;
            }
            for record in control_records(&batch)? {
                match record {
                    ControlRecord::SnapshotHeader(time) => {
                        snapshot.last_contained_ms = time;
                        has_header = true;
                    }
                    ControlRecord::SnapshotFooter => has_footer = true,
                    ControlRecord::KraftVersion(version) => snapshot.kraft_version = version,
                    ControlRecord::Voters(voters) => snapshot.voters = Some(voters),
                    ControlRecord::LeaderChange(_) | ControlRecord::Unknown(_) => {}
                }
            }
        }
        match (has_header, has_footer) {
            (false, _) => Err(SnapshotError::NoHeader),
            (true, false) => Err(SnapshotError::NoFooter),
            (true, true) => Ok(snapshot),
        }
    }
}

/// Appends a batch and returns the offset behind it.
fn push(out: &mut BytesMut, batch: &Batch) -> Offset {
    out.extend_from_slice(batch.bytes());
    batch.header().next_offset()
}
