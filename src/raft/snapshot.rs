//! Snapshots of the metadata: files `OFFSET-EPOCH.checkpoint` (KIP-630).

use base::{LeaderEpoch, Offset};
use bytes::{Bytes, BytesMut};
use records::{Batch, BatchBuilder, BatchError, Batches, Compression, NewRecord};

use crate::control::{self, ControlError, ControlRecord, control_records};
use crate::voters::VoterSet;

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

    /// The end of a snapshot's file name.
    pub const SUFFIX: &str = ".checkpoint";

    /// Its file name.
    pub fn file_name(self) -> String {
        format!("{:020}-{:010}{}", self.end_offset.0, self.epoch.0, Self::SUFFIX)
    }

    /// The snapshot of a file name, if it is one.
    pub fn of_file_name(name: &str) -> Option<Self> {
        let (offset, epoch) = name.strip_suffix(Self::SUFFIX)?.split_once('-')?;
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

/// Writes the content of a snapshot's file piece by piece, so that nobody has to hold it whole.
#[derive(Clone, Debug)]
pub struct SnapshotWriter {
    epoch: LeaderEpoch,
    now_ms: i64,
    /// The offset of the next record within the file.
    next: Offset,
}

impl SnapshotWriter {
    /// For a leader of `epoch` who writes at `now_ms`, in milliseconds since 1970.
    pub fn new(epoch: LeaderEpoch, now_ms: i64) -> Self {
        Self { epoch, now_ms, next: Offset(0) }
    }

    /// The first piece. `head` has what it says; its values come afterwards.
    pub fn begin(&mut self, head: &Snapshot) -> Bytes {
        let header = control::snapshot_header(
            self.now_ms,
            head.last_contained_ms,
            self.epoch,
            head.kraft_version,
            head.voters.as_ref(),
        );
        self.push(&header)
    }

    /// The next piece: as many of `values` as one batch holds; says how many those are, which is
    /// at least one.
    ///
    /// # Panics
    /// If there is no value.
    pub fn batch(&mut self, values: &[Bytes]) -> (Bytes, usize) {
        let mut builder = BatchBuilder::new(self.next, Compression::None).leader_epoch(self.epoch);
        let mut count = 0;
        for value in values {
            let record =
                NewRecord { timestamp: self.now_ms, value: Some(value), ..NewRecord::default() };
            let grown = builder.plain_bytes() + builder.record_bytes(&record);
            if count > 0 && grown > BATCH_BYTES_MAX {
                break;
            }
            builder.append(&record);
            count += 1;
        }
        assert!(count > 0, "a batch has at least one record");
        (self.push(&builder.build()), count)
    }

    /// The last piece.
    pub fn end(&mut self) -> Bytes {
        let footer = control::snapshot_footer(self.next, self.epoch, self.now_ms);
        self.push(&footer)
    }

    fn push(&mut self, batch: &Batch) -> Bytes {
        self.next = batch.header().next_offset();
        batch.bytes().clone()
    }
}

impl Snapshot {
    /// The content of the file, written at `now_ms` by a leader of `epoch`.
    pub fn to_bytes(&self, epoch: LeaderEpoch, now_ms: i64) -> Bytes {
        let mut writer = SnapshotWriter::new(epoch, now_ms);
        let mut out = BytesMut::from(&*writer.begin(self));
        let mut values = &*self.values;
        while !values.is_empty() {
            let (bytes, count) = writer.batch(values);
            out.extend_from_slice(&bytes);
            values = &values[count..];
        }
        out.extend_from_slice(&writer.end());
        out.freeze()
    }

    /// When the last record that a snapshot contains was written, from the first bytes of its
    /// file; nothing where they do not say.
    pub fn last_contained_ms_of(head: Bytes) -> Option<i64> {
        let first = Batches::new(head).next()?.ok()?;
        first.check_crc().ok()?;
        let records = first.header().is_control().then(|| control_records(&first))?.ok()?;
        records.iter().find_map(|record| match record {
            ControlRecord::SnapshotHeader(time) => Some(*time),
            _ => None,
        })
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
