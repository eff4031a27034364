//! Reading a Produce request in place, as cheaply as it can be done.

use std::io;

/// What is left of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a>(&'a [u8]);

/// A Produce request with one topic.
#[derive(Debug)]
pub(crate) struct Produced<'a> {
    pub(crate) correlation_id: i32,
    pub(crate) acks: i16,
    /// Partitions and their batches.
    pub(crate) batches: Vec<(i32, &'a [u8])>,
}

/// A batch is at least as long as its header.
const BATCH_BYTES_MIN: usize = records::HEADER_BYTES;

/// Reads what stands behind the API key of a Produce request of version 13.
///
/// # Errors
/// It is none, or has more than one topic.
pub(crate) fn read_produce(mut cursor: Cursor<'_>) -> io::Result<Produced<'_>> {
    let version = cursor.i16()?;
    let correlation_id = cursor.i32()?;
    let client_id_bytes = cursor.i16()?;
    cursor.take(usize::try_from(client_id_bytes).unwrap_or(0))?;
    let header_tags = cursor.unsigned_varint()?;
    let transactional_id = cursor.unsigned_varint()?;
    let acks = cursor.i16()?;
    let _timeout_ms = cursor.i32()?;
    let topics = cursor.unsigned_varint()?;
    if (version, header_tags, transactional_id, topics) != (13, 0, 0, 2) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let _topic_id = cursor.take(16)?;
    let partitions = cursor.unsigned_varint()?;
    let mut batches = Vec::new();
    for _ in 1..partitions {
        let index = cursor.i32()?;
        let length = cursor.unsigned_varint()?.saturating_sub(1);
        let batch = cursor.take(length as usize)?;
        if batch.len() < BATCH_BYTES_MIN || cursor.unsigned_varint()? != 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        batches.push((index, batch));
    }
    Ok(Produced { correlation_id, acks, batches })
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn i16(&mut self) -> io::Result<i16> {
        self.array().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> io::Result<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn unsigned_varint(&mut self) -> io::Result<u32> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array::<1>()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    fn take(&mut self, length: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(io::ErrorKind::InvalidData)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(io::ErrorKind::InvalidData)?;
        self.0 = rest;
        Ok(*taken)
    }
}
