//! Reads a segment's file batch by batch, in bounded steps.

use std::ops::ControlFlow;

use bytes::{Bytes, BytesMut};
use crc_fast::{CrcAlgorithm, Digest};
use records::{BatchHeader, HEADER_BYTES, MAGIC};

/// What one step reads when it checks every byte.
const CHECKING_READ_BYTES: u32 = 1 << 20;
/// What one step reads when only headers matter.
const HEADERS_READ_BYTES: u32 = 64 << 10;
/// The CRC covers a batch from its attributes on.
const CRC_BEGINS_AT: usize = records::offsets::ATTRIBUTES;
/// In the formats before magic 2 the CRC covers a message from its magic on, and stands before it.
const OLD_CRC_BEGINS_AT: usize = 16;

/// The longest body of a control batch of a producer that is kept, in bytes: a marker has less than
/// 30.
const MARKER_BYTES_MAX: u64 = 1 << 10;

/// Why the bytes at a position are no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// The file ends before the batch does.
    Torn,
    /// A field or the CRC is wrong.
    Corrupt,
    /// A message of magic 0 or 1, unharmed: not understood, and not to be thrown away.
    OldFormat,
}

/// A walk over the batches of a file that has `end` bytes.
#[derive(Debug)]
pub(crate) struct Scanner {
    /// Where the batch begins that is being read.
    position: u64,
    /// Where the bytes begin that are wanted next.
    wanted: u64,
    end: u64,
    checks_crc: bool,
    /// What is there of the header at `position`, while it is not whole.
    partial: Vec<u8>,
    body: Option<Body>,
}

#[derive(Debug)]
struct Body {
    header: BatchHeader,
    /// Bytes of the batch that were not seen yet.
    remaining: u64,
    digest: Option<Digest>,
    /// The records that were seen, of a batch that ends a transaction.
    marker: Option<BytesMut>,
}

impl Scanner {
    /// Walks from the batch at `position` to the end, checking each CRC.
    pub(crate) fn checking(position: u64, end: u64) -> Self {
        Self::new(position, end, true)
    }

    /// Walks from the batch at `position` to the end, reading little but the headers.
    pub(crate) fn headers(position: u64, end: u64) -> Self {
        Self::new(position, end, false)
    }

    fn new(position: u64, end: u64, checks_crc: bool) -> Self {
        let partial = Vec::with_capacity(HEADER_BYTES);
        Self { position, wanted: position, end, checks_crc, partial, body: None }
    }

    /// Where the batch begins that comes next: all before it were taken.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Which bytes to read next; `None` when the walk is over, at the end of a batch or (see
    /// [`Scanner::finish`]) within one.
    pub(crate) fn next_read(&self) -> Option<(u64, u32)> {
        let left = self.end.checked_sub(self.wanted).filter(|left| *left > 0)?;
        let most = if self.checks_crc { CHECKING_READ_BYTES } else { HEADERS_READ_BYTES };
        Some((self.wanted, u32::try_from(left).map_or(most, |left| left.min(most))))
    }

    /// Takes the bytes of [`Scanner::next_read`], and calls `take` with each batch that is whole:
    /// its position and header, and the records where they may end a transaction. `take` can end
    /// the walk.
    ///
    /// # Errors
    /// The first thing at [`Scanner::position`] that is no batch.
    pub(crate) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(u64, &BatchHeader, Bytes) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Invalid> {
        while !bytes.is_empty() {
            let Some(body) = &mut self.body else {
                let missing = HEADER_BYTES - self.partial.len();
                let (head, rest) = bytes.split_at(missing.min(bytes.len()));
                self.partial.extend_from_slice(head);
                self.wanted += head.len() as u64;
                bytes = rest;
                if let Ok(header) = <&[u8; HEADER_BYTES]>::try_from(self.partial.as_slice()) {
                    self.body = Some(self.begin(header)?);
                    self.partial.clear();
                    if self.ends_batch(&mut take)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                continue;
            };
            let seen = usize::try_from(body.remaining).map_or(bytes.len(), |n| n.min(bytes.len()));
            let (part, rest) = bytes.split_at(seen);
            if let Some(digest) = &mut body.digest {
                digest.update(part);
            }
            if let Some(marker) = &mut body.marker {
                marker.extend_from_slice(part);
            }
            body.remaining -= seen as u64;
            self.wanted += seen as u64;
            bytes = rest;
            if self.ends_batch(&mut take)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        if let Some(body) = &mut self.body
            && body.digest.is_none()
            && body.marker.is_none()
        {
            // Only headers matter: the rest of this body is not read at all.
            self.wanted += std::mem::take(&mut body.remaining);
            return self.ends_batch(&mut take);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Whether the walk ended at the end of a batch, once nothing is left to be read.
    pub(crate) fn finish(&self) -> Result<(), Invalid> {
        let between = self.body.is_none() && self.partial.is_empty() && self.position == self.end;
        match between {
            true => Ok(()),
            // It can be shorter than our header.
            false if self.checks_crc && is_old_message(&self.partial) => Err(Invalid::OldFormat),
            false => Err(Invalid::Torn),
        }
    }

    fn begin(&self, bytes: &[u8; HEADER_BYTES]) -> Result<Body, Invalid> {
        let header = BatchHeader::read(bytes);
        let whole = header.batch_bytes().ok_or(Invalid::Corrupt)?;
        if (0..MAGIC).contains(&header.magic) && self.checks_crc {
            return self.begin_old(header, bytes, whole);
        }
        let plausible = whole >= HEADER_BYTES
            && header.magic == MAGIC
            && header.base_offset.0 >= 0
            && header.last_offset_delta >= 0
            && header.base_offset.0.checked_add(i64::from(header.last_offset_delta) + 1).is_some();
        if !plausible {
            return Err(Invalid::Corrupt);
        }
        if whole as u64 > self.end - self.position {
            return Err(Invalid::Torn);
        }
        let digest = self.checks_crc.then(|| {
            let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
            digest.update(&bytes[CRC_BEGINS_AT..]);
            digest
        });
        let remaining = (whole - HEADER_BYTES) as u64;
        let ends = header.is_control() && header.has_producer_id();
        let marker = (ends && remaining <= MARKER_BYTES_MAX).then(BytesMut::new);
        Ok(Body { header, remaining, digest, marker })
    }

    /// A message of an old format is told from garbage by its CRC. It can be shorter than our
    /// header.
    fn begin_old(
        &self,
        header: BatchHeader,
        bytes: &[u8; HEADER_BYTES],
        whole: usize,
    ) -> Result<Body, Invalid> {
        if whole < HEADER_BYTES {
            return Err(if is_old_message(bytes) { Invalid::OldFormat } else { Invalid::Corrupt });
        }
        if whole as u64 > self.end - self.position {
            return Err(Invalid::Torn);
        }
        let mut digest = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
        digest.update(&bytes[OLD_CRC_BEGINS_AT..]);
        let remaining = (whole - HEADER_BYTES) as u64;
        Ok(Body { header, remaining, digest: Some(digest), marker: None })
    }

    fn ends_batch(
        &mut self,
        take: &mut impl FnMut(u64, &BatchHeader, Bytes) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Invalid> {
        let Some(body) = self.body.take_if(|body| body.remaining == 0) else {
            return Ok(ControlFlow::Continue(()));
        };
        if let Some(digest) = &body.digest {
            let found = digest.finalize();
            if body.header.magic < MAGIC {
                // The CRC of an old message stands where the leader epoch stands now.
                let old = found == u64::from(body.header.leader_epoch.0 as u32);
                return Err(if old { Invalid::OldFormat } else { Invalid::Corrupt });
            }
            if found != u64::from(body.header.crc) {
                return Err(Invalid::Corrupt);
            }
        }
        let begins = self.position;
        self.position = self.wanted;
        let marker = body.marker.map(BytesMut::freeze).unwrap_or_default();
        Ok(take(begins, &body.header, marker))
    }
}

/// Whether bytes begin with a whole and unharmed message of magic 0 or 1.
fn is_old_message(bytes: &[u8]) -> bool {
    const LENGTH_AT: usize = 8;
    const CRC_AT: usize = LENGTH_AT + 4;
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let read = || {
        let end = CRC_AT + usize::try_from(number(LENGTH_AT)?).ok()?;
        let (covered, crc) = (bytes.get(OLD_CRC_BEGINS_AT..end)?, number(CRC_AT)?);
        let is_old = (0..MAGIC).contains(&(*covered.first()? as i8));
        Some(is_old && crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, covered) == u64::from(crc))
    };
    read().unwrap_or(false)
}
