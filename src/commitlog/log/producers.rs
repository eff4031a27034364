//! The producers of an open log: what they may append, and the snapshots that are written of them.

use std::path::Path;

use api::IoResult;
use base::{Now, Offset};
use records::BatchHeader;

use super::{Log, LogEffects};
use crate::aborted::AbortedTransaction;
use crate::atomic_file::AtomicFile;
use crate::names;
use crate::producers::{EarlierBatch, ProducerError, ProducerState, Snapshot};
use crate::step::{LogEvent, LogStep, Step};

/// A snapshot that waits for the end of its segment to be written, or is being written.
#[derive(Debug)]
pub(super) struct SnapshotFile {
    snapshot: Snapshot,
    writing: Option<AtomicFile>,
}

impl SnapshotFile {
    pub(super) fn new(snapshot: Snapshot) -> Self {
        Self { snapshot, writing: None }
    }

    /// Where the snapshot before it stands.
    pub(super) fn before(&self) -> Offset {
        self.snapshot.before
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.writing.is_some()
    }

    /// Begins to write it, unless that has begun.
    pub(super) fn write(&mut self, folder: &Path, token: LogStep, out: &mut LogEffects) {
        let Snapshot { offset, content, .. } = &self.snapshot;
        let path = names::segment_file(folder, *offset, names::SNAPSHOT);
        self.writing.get_or_insert_with(|| AtomicFile::replace(path, content.clone(), token, out));
    }
}

impl Log {
    /// What a batch that a client sends is to this log: `None` for a new one, which may be
    /// appended, or where it stands already, written or on its way. Batches that others send, a
    /// leader or a coordinator, are not asked about.
    ///
    /// # Errors
    /// It must not be appended; see [`ProducerError`].
    pub fn check_producer(
        &self,
        header: &BatchHeader,
    ) -> Result<Option<EarlierBatch>, ProducerError> {
        self.producers.check(header)
    }

    /// The producers that have written and are remembered, in no particular order.
    pub fn producers(&self) -> impl Iterator<Item = ProducerState> {
        self.producers.states()
    }

    /// Forgets the producers that have expired (`producer.id.expiration.ms`). Call it from time to
    /// time (`producer.id.expiration.check.interval.ms`).
    pub fn expire_producers(&mut self, now: Now) {
        self.producers.expire(now.wall_ms, self.config.producer_id_expiration_ms);
    }

    /// Where the first transaction begins that is not decided as far as readers below `up_to`, the
    /// high watermark, can know: it is open, or its marker lies at `up_to` or above. Offsets that
    /// are asked about must rise: what lies below is settled.
    pub fn first_unstable_offset(&mut self, up_to: Offset) -> Option<Offset> {
        let first = self.producers.first_unstable(up_to)?;
        Some(first.max(self.log_start_offset))
    }

    /// The aborted transactions that have records between two offsets, the second one excluded.
    pub fn aborted_transactions(
        &self,
        from: Offset,
        to: Offset,
    ) -> impl Iterator<Item = AbortedTransaction> {
        self.aborted.overlapping(from, to)
    }

    pub(super) fn on_snapshot(
        &mut self,
        now: Now,
        base: Offset,
        result: IoResult<()>,
        out: &mut LogEffects,
        events: &mut Vec<LogEvent>,
    ) {
        let sealing = self.writer.sealing.front_mut().filter(|sealing| sealing.base == base);
        let Some(sealing) = sealing else { return };
        let file = sealing.snapshot.as_mut().and_then(|snapshot| snapshot.writing.as_mut());
        let Some(file) = file else { return };
        match file.on_done(result, LogStep(Step::Snapshot(base)), out) {
            Ok(false) => {}
            Ok(true) => {
                sealing.snapshot = None;
                self.seal_next(out);
            }
            Err(cause) => {
                if let Some(snapshot) = &mut sealing.snapshot {
                    snapshot.writing = None;
                }
                self.retries(now, cause, events);
            }
        }
    }
}
