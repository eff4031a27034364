//! What a search for an offset finds.

use base::Offset;

/// Why nothing can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The log is not open.
    #[error("the log is not open")]
    NotOpen,
    /// The log does not hold the offset (OFFSET_OUT_OF_RANGE).
    #[error("the offset is not within {log_start_offset} and {end_offset}")]
    OutOfRange {
        /// The first offset that it holds.
        log_start_offset: Offset,
        /// The end of what is written.
        end_offset: Offset,
    },
    /// The file holds something there that is no batch (CORRUPT_MESSAGE).
    #[error("the segment is corrupt there")]
    Corrupt,
}

/// A place that a search found: the first batch that ends at `offset` or behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    pub(super) offset: Offset,
    pub(super) place: Result<FoundBatch, ReadError>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FoundBatch {
    /// The base offset of the segment.
    pub(super) segment: Offset,
    pub(super) position: u32,
    /// The size of the batch; 0 where none is there yet.
    pub(super) bytes: u32,
}
