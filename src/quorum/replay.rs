//! From the bytes of a snapshot and of the log to the image: for the machine that goes on with
//! them, and for whoever only looks at a node's files.

use std::sync::Arc;

use base::Offset;
use base::wire::DecodeError;
use bytes::Bytes;
use metadata::{Batch, Image, Provenance, ReplayError, Timeline, VersionedRecord};
use raft::snapshot::{Snapshot, SnapshotId};
use records::Batches;

/// Why a batch of the log cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    /// Where in the log.
    pub(crate) offset: Offset,
    /// What is wrong there.
    pub(crate) error: String,
}

/// The records of a snapshot.
pub(crate) fn records_of(snapshot: &Snapshot) -> Result<Vec<VersionedRecord>, DecodeError> {
    snapshot.values.iter().map(VersionedRecord::decode).collect()
}

/// The image that the records of the snapshot `id` make.
pub(crate) fn image_of(
    id: SnapshotId,
    last_contained_ms: i64,
    records: &[VersionedRecord],
) -> Result<Image, ReplayError> {
    let mut image = Image::default();
    for record in records {
        image.replay(&record.record)?;
    }
    image.set_provenance(Provenance {
        last_offset: id.end_offset.plus(-1),
        last_epoch: id.epoch.0,
        last_timestamp_ms: last_contained_ms,
    });
    Ok(image)
}

/// Applies a batch that was checked and lies behind what `timeline` has. The quorum's own records
/// change no image.
pub(crate) fn apply(timeline: &mut Timeline, batch: &records::Batch) -> Result<(), Unusable> {
    let header = *batch.header();
    let unusable = |offset: Offset, error: &dyn std::fmt::Display| Unusable {
        offset,
        error: error.to_string(),
    };
    let at_batch = |error: &dyn std::fmt::Display| unusable(header.base_offset, error);
    if header.is_control() {
        timeline.skip_to(header.next_offset());
        return Ok(());
    }
    let mut reader = batch.records(usize::MAX).map_err(|error| at_batch(&error))?;
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().map_err(|error| at_batch(&error))? {
        let value = Bytes::copy_from_slice(record.value.unwrap_or_default());
        let decoded = VersionedRecord::decode(&value);
        records.push(decoded.map_err(|error| unusable(record.offset, &error))?);
    }
    let batch = Batch {
        base_offset: header.base_offset,
        epoch: header.leader_epoch.0,
        timestamp_ms: header.max_timestamp,
        records: &records,
    };
    timeline.apply(&batch).map_err(|failure| unusable(failure.offset, &failure.error))
}

/// The files of a metadata log, read one after the other by someone who does not run the node.
///
/// Everything that is in them counts, whether the quorum has committed it or not: no file says
/// how far that goes. A transaction (KIP-868) that has not ended yet is not in the image.
#[derive(Debug, Default)]
pub struct OfflineLog {
    timeline: Timeline,
}

/// Where the reading of some bytes ended.
#[derive(Debug)]
pub struct OfflineRead {
    /// How many of them were taken.
    pub bytes: usize,
    /// Whether what follows is no batch, or a broken one; without it, it is a part of one.
    pub broken: Option<String>,
}

impl OfflineLog {
    /// From a whole snapshot, as a node loads it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of_snapshot(id: SnapshotId, bytes: Bytes) -> Result<Self, String> {
        let snapshot = Snapshot::of_bytes(bytes).map_err(|error| error.to_string())?;
        let records = records_of(&snapshot).map_err(|error| error.to_string())?;
        let image = image_of(id, snapshot.last_contained_ms, &records);
        let image = image.map_err(|error| error.to_string())?;
        Ok(Self { timeline: Timeline::at(image, id.end_offset) })
    }

    /// The offset behind everything that was read.
    pub fn end_offset(&self) -> Offset {
        self.timeline.end_offset()
    }

    /// Applies the batches at the beginning of `bytes`; those that it has already are passed over.
    ///
    /// # Errors
    /// If a batch is whole and cannot follow what was read before.
    pub fn read(&mut self, bytes: Bytes) -> Result<OfflineRead, String> {
        let length = bytes.len();
        let mut batches = Batches::new(bytes);
        let mut taken = 0;
        while let Some(batch) = batches.next() {
            let checked = batch.and_then(|batch| batch.check_crc().map(|()| batch));
            let batch = match checked {
                Ok(batch) => batch,
                Err(error) => {
                    return Ok(OfflineRead { bytes: taken, broken: Some(error.to_string()) });
                }
            };
            taken = length - batches.rest().len();
            let (begin, end) = (batch.header().base_offset, self.end_offset());
            if batch.header().next_offset() <= end {
                continue;
            }
            if begin < end {
                return Err(format!("the batch at offset {begin} lies across offset {end}"));
            }
            let applied = apply(&mut self.timeline, &batch);
            applied.map_err(|Unusable { offset, error }| {
                format!("it cannot be used at offset {offset}: {error}")
            })?;
            self.timeline.commit(batch.header().next_offset());
        }
        Ok(OfflineRead { bytes: taken, broken: None })
    }

    /// The image of what was read.
    pub fn image(&self) -> &Arc<Image> {
        self.timeline.stable()
    }
}
