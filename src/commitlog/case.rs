//! What can be found when a log is opened, by the names that `docs/recovery.md` and the log lines
//! use. The page says what is done in each case.

use std::fmt;

macro_rules! cases {
    ($($(#[$comment:meta])* $case:ident = $name:literal,)*) => {
        /// Something that opening found, but for a log that is whole.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Case { $($(#[$comment])* $case,)* }

        impl Case {
            /// Every case, in the order of the page.
            pub const ALL: &[Self] = &[$(Self::$case,)*];

            /// Its name on the page and in log lines.
            pub fn name(self) -> &'static str {
                match self { $(Self::$case => $name,)* }
            }
        }
    };
}

cases! {
    /// Files that an earlier run did not come to remove.
    Leftover = "leftover",
    /// An index without the segment that it belongs to.
    IndexAlone = "index-alone",
    /// A compaction that had begun to put its files in place.
    CompactionInterrupted = "compaction-interrupted",
    /// Leader epochs that are not readable.
    EpochsUnreadable = "epochs-unreadable",
    /// Leader epochs at or above the end of the log.
    EpochsAboveEnd = "epochs-above-end",
    /// No `partition.metadata`.
    MetadataMissing = "metadata-missing",
    /// After a crash, a segment that may not be durable.
    Unflushed = "unflushed",
    /// A segment without its `.index`.
    IndexMissing = "index-missing",
    /// A `.txnindex` that is not readable.
    AbortedUnreadable = "txnindex-unreadable",
    /// A last segment that ends in no batch where all should be in order.
    EndUnreadable = "end-unreadable",
    /// A segment that ends within a batch.
    Torn = "torn",
    /// Bytes that are no batch, or not the right one.
    Corrupt = "corrupt",
    /// Batches that are missing between two segments.
    BatchesMissing = "batches-missing",
    /// A gap between two segments that no crash explains.
    Gap = "gap",
    /// Nothing is known of the producers, and nobody looks.
    ProducersUnknown = "producers-unknown",
    /// A snapshot of the producers that is not readable.
    SnapshotUnreadable = "snapshot-unreadable",
    /// No snapshot of the producers at the end, or at a segment that is recovered.
    SnapshotMissing = "snapshot-missing",
    /// A snapshot of the producers that belongs to no segment and not to the end.
    SnapshotNeedless = "snapshot-needless",
    /// A log that ends before its start offset.
    EndsBeforeStart = "ends-before-start",
    /// After an orderly stop, a log that begins above its start offset.
    StartMissing = "start-missing",
    /// A log that ends below its recovery point.
    EndMissing = "end-missing",
    /// A folder without a segment.
    SegmentMissing = "segment-missing",
    /// After a crash, an end that may not be durable.
    EndUnflushed = "end-unflushed",
}

impl Case {
    /// Whether it stands in every start after a crash, or needs nobody's attention.
    pub(crate) fn is_quiet(self) -> bool {
        matches!(
            self,
            Self::Leftover | Self::ProducersUnknown | Self::SnapshotNeedless | Self::EndUnflushed
        )
    }
}

/// The cases that one log was in.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Cases(u32);

impl Cases {
    /// In the order of the page.
    pub fn iter(self) -> impl Iterator<Item = Case> {
        Case::ALL.iter().copied().filter(move |case| self.0 & bit(*case) != 0)
    }

    pub(crate) fn insert(&mut self, case: Case) {
        self.0 |= bit(case);
    }
}

impl fmt::Debug for Cases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

fn bit(case: Case) -> u32 {
    1 << case as u32
}
