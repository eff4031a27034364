//! How much of the cleaning is done in one turn of the core.

/// What a record costs besides its bytes.
const RECORD_BYTES: u64 = 64;
/// How much dearer it is to compress a byte than to decompress it, about.
const WRITE_FACTOR: u64 = 4;

/// What may still be done in this turn, in uncompressed bytes of records that are read.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes: u64,
}

impl Budget {
    /// So many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { bytes: bytes as u64 }
    }

    /// So much of a record was read, or all of it.
    pub(crate) fn reads(&mut self, bytes: u64) {
        self.spend(RECORD_BYTES.saturating_add(bytes));
    }

    /// So much was read and written.
    pub(crate) fn writes(&mut self, bytes: u64) {
        self.spend(bytes.saturating_mul(1 + WRITE_FACTOR));
    }

    /// How much may be read.
    pub(crate) fn left(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// How much may be read and written: something, while it is not spent.
    pub(crate) fn left_to_write(&self) -> usize {
        usize::try_from(self.bytes.div_ceil(1 + WRITE_FACTOR)).unwrap_or(usize::MAX)
    }

    /// Whether all of it is spent.
    pub(crate) fn is_spent(&self) -> bool {
        self.bytes == 0
    }

    fn spend(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}
