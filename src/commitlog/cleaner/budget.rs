//! How much of the cleaning is done in one turn of the core.

use records::Record;

/// What a record costs besides its bytes.
const RECORD_BYTES: usize = 64;
/// How much dearer it is to compress a byte than to decompress it, about.
const WRITE_FACTOR: usize = 4;

/// What may still be done in this turn, in uncompressed bytes of records that are read.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes: usize,
}

impl Budget {
    /// So many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { bytes }
    }

    /// A record was read: whether there is budget left.
    pub(crate) fn reads(&mut self, record: &Record<'_>) -> bool {
        self.spend(bytes_of(record))
    }

    /// A record was read and written: whether there is budget left.
    pub(crate) fn writes(&mut self, record: &Record<'_>) -> bool {
        self.spend(bytes_of(record).saturating_mul(1 + WRITE_FACTOR))
    }

    /// Whether all of it is spent.
    pub(crate) fn is_spent(&self) -> bool {
        self.bytes == 0
    }

    fn spend(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.bytes > 0
    }
}

fn bytes_of(record: &Record<'_>) -> usize {
    RECORD_BYTES + record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len)
}
