//! The images that lie between what is committed and what is applied.

use std::collections::VecDeque;
use std::sync::Arc;

use base::Offset;

use crate::{Image, Provenance, Record, ReplayError, VersionedRecord};

/// One batch of the metadata log.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    /// The offset of its first record.
    pub base_offset: Offset,
    /// The epoch of the leader that wrote it.
    pub epoch: i32,
    /// When it was written, in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Its records, never none.
    pub records: &'a [VersionedRecord],
}

impl Batch<'_> {
    /// The offset behind its last record.
    pub fn end_offset(&self) -> Offset {
        self.base_offset.plus(i64::try_from(self.records.len()).expect("a batch is in memory"))
    }
}

/// A record that could not be replayed, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the metadata record at offset {offset} cannot be applied: {error}")]
pub struct ReplayFailure {
    /// The offset of the record.
    pub offset: Offset,
    /// What is wrong with it.
    pub error: ReplayError,
}

/// The image behind one batch, and the transaction that is open there.
#[derive(Clone, Debug)]
struct Version {
    end_offset: Offset,
    image: Image,
    transaction: Option<Transaction>,
}

#[derive(Clone, Debug)]
struct Transaction {
    start: Offset,
    /// What an abort goes back to.
    before: Image,
}

/// The state of a controller, or of a broker's loader, over time.
///
/// A leader applies records before they are committed, so that the next request sees them; whoever
/// loses the leadership takes back what was not committed. As an image is a value that shares its
/// structure with the next one, every batch that is not committed yet simply keeps its own, and to
/// roll back is to drop them (Kafka's `SnapshotRegistry` and timeline collections do the same by
/// keeping the overwritten entries). A metadata transaction (KIP-868) is seen by nobody before it
/// has ended.
#[derive(Clone, Debug)]
pub struct Timeline {
    committed: Version,
    /// In order of their offsets.
    uncommitted: VecDeque<Version>,
    stable: Arc<Image>,
}

impl Default for Timeline {
    fn default() -> Self {
        let image = Image::default();
        let committed = Version { end_offset: Offset(0), image: image.clone(), transaction: None };
        Self { committed, uncommitted: VecDeque::new(), stable: Arc::new(image) }
    }
}

impl Timeline {
    /// A timeline that goes on from a snapshot, whose image ends below `end_offset`.
    pub fn at(image: Image, end_offset: Offset) -> Self {
        let stable = Arc::new(image.clone());
        let committed = Version { end_offset, image, transaction: None };
        Self { committed, uncommitted: VecDeque::new(), stable }
    }

    /// Everything that was applied, committed or not: what decisions are based on.
    pub fn applied(&self) -> &Image {
        &self.latest().image
    }

    /// What is committed and not inside of a transaction: what may be told to others.
    pub fn stable(&self) -> &Arc<Image> {
        &self.stable
    }

    /// The offset behind everything that was applied.
    pub fn end_offset(&self) -> Offset {
        self.latest().end_offset
    }

    /// Where the open transaction began, if one is open.
    pub fn transaction_start(&self) -> Option<Offset> {
        self.latest().transaction.as_ref().map(|transaction| transaction.start)
    }

    /// Applies one batch.
    ///
    /// # Errors
    /// If a record cannot be replayed; nothing is applied then.
    ///
    /// # Panics
    /// If the batch does not follow what was applied before.
    pub fn apply(&mut self, batch: &Batch<'_>) -> Result<(), ReplayFailure> {
        let end = self.end_offset();
        assert!(batch.base_offset >= end, "batch {} after {end}", batch.base_offset);
        let mut version = self.latest().clone();
        let mut offset = batch.base_offset;
        for record in batch.records {
            match &record.record {
                Record::BeginTransaction(_) => {
                    let before = version.image.clone();
                    version.transaction = Some(Transaction { start: offset, before });
                }
                Record::EndTransaction(_) => version.transaction = None,
                Record::AbortTransaction(_) => {
                    if let Some(transaction) = version.transaction.take() {
                        version.image = transaction.before;
                    }
                }
                other => {
                    let replayed = version.image.replay(other);
                    replayed.map_err(|error| ReplayFailure { offset, error })?;
                }
            }
            offset = offset.plus(1);
        }
        version.end_offset = offset;
        version.image.set_provenance(Provenance {
            last_offset: offset.plus(-1),
            last_epoch: batch.epoch,
            last_timestamp_ms: batch.timestamp_ms,
        });
        self.uncommitted.push_back(version);
        Ok(())
    }

    /// Skips records that change no image: control records of the quorum.
    pub fn skip_to(&mut self, end_offset: Offset) {
        let mut version = self.latest().clone();
        assert!(end_offset >= version.end_offset, "cannot skip back to {end_offset}");
        version.end_offset = end_offset;
        self.uncommitted.push_back(version);
    }

    /// Takes note that everything below `high_watermark` is committed. Says whether the stable
    /// image is another one now.
    pub fn commit(&mut self, high_watermark: Offset) -> bool {
        let mut moved = false;
        while self.uncommitted.front().is_some_and(|next| next.end_offset <= high_watermark) {
            self.committed = self.uncommitted.pop_front().expect("it was seen above");
            moved = true;
        }
        let moved = moved
            && self.committed.transaction.is_none()
            && self.committed.image.provenance != self.stable.provenance;
        if moved {
            self.stable = Arc::new(self.committed.image.clone());
        }
        moved
    }

    /// Takes back everything that is not committed.
    pub fn roll_back(&mut self) {
        self.uncommitted.clear();
    }

    fn latest(&self) -> &Version {
        self.uncommitted.back().unwrap_or(&self.committed)
    }
}
