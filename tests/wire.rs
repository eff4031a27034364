//! Bytes of the protocol written by hand, so that they can also be wrong.
//!
//! Nearly always versions without tagged fields are used: an `i16` length before a string, an
//! `i32` before an array or bytes.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// How long a read waits for a broker that says nothing.
pub const READ_TIME_MAX: Duration = Duration::from_secs(30);
/// No answer to a test of this suite is larger.
const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Keys of requests, as in Kafka's `ApiKeys`.
pub const PRODUCE: i16 = 0;
/// See [`PRODUCE`].
pub const FETCH: i16 = 1;
/// See [`PRODUCE`].
pub const METADATA: i16 = 3;
/// See [`PRODUCE`].
pub const API_VERSIONS: i16 = 18;

/// Connects to a broker on this machine.
///
/// # Errors
/// What the system says.
pub fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(READ_TIME_MAX))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Asks for the versions of version 0 and gives the answer without its correlation id.
///
/// # Errors
/// When the connection is closed or the answer is not to this request.
pub fn api_versions(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    stream.write_all(&request(API_VERSIONS, 0, 7, &[]))?;
    answer(stream, 7)
}

/// A whole request with its length: header version 1 with the client id `blackbox`.
pub fn request(api: i16, version: i16, correlation: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Bytes::default();
    bytes.i16(api).i16(version).i32(correlation).string("blackbox").raw(body);
    frame(&bytes.0)
}

/// As [`request`], of a version with tagged fields: header version 2, without any.
pub fn flexible_request(api: i16, version: i16, correlation: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend_from_slice(body);
    request(api, version, correlation, &bytes)
}

/// A length, then the bytes.
pub fn frame(bytes: &[u8]) -> Vec<u8> {
    let mut framed = Bytes::default();
    framed.bytes(bytes);
    framed.0
}

/// Reads one answer whole.
///
/// # Errors
/// When the connection is closed, nothing comes in time or the length makes no sense.
pub fn read_frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other(format!("an answer of {length} bytes")));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads the answer to one request and gives what follows the correlation id.
///
/// # Errors
/// As [`read_frame`], and when it answers another request.
pub fn answer(stream: &mut TcpStream, correlation: i32) -> io::Result<Vec<u8>> {
    let mut bytes = read_frame(stream)?;
    if !bytes.starts_with(&correlation.to_be_bytes()) {
        return Err(io::Error::other(format!("an answer to another request: {bytes:?}")));
    }
    bytes.drain(..4);
    Ok(bytes)
}

/// Fails unless the broker closes the connection without a word.
///
/// # Panics
/// When it answers or keeps the connection.
#[track_caller]
pub fn assert_closed(stream: &mut TcpStream) {
    match read_frame(stream) {
        Ok(bytes) => panic!("an answer instead of the end: {bytes:?}"),
        Err(error) => {
            let kind = error.kind();
            let closed = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
            assert!(closed.contains(&kind), "the connection is still open: {error}");
        }
    }
}

/// Bytes in the order of the wire.
#[derive(Debug, Default, Clone)]
pub struct Bytes(
    /// What was written so far.
    pub Vec<u8>,
);

impl Bytes {
    /// Appends one byte.
    pub fn i8(&mut self, value: i8) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }
    /// Appends two bytes.
    pub fn i16(&mut self, value: i16) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }
    /// Appends four bytes.
    pub fn i32(&mut self, value: i32) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }
    /// Appends eight bytes.
    pub fn i64(&mut self, value: i64) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }
    /// Appends a length of two bytes and the text.
    pub fn string(&mut self, text: &str) -> &mut Self {
        self.i16(i16::try_from(text.len()).expect("a short text")).raw(text.as_bytes())
    }
    /// Appends a length of four bytes and the bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.i32(i32::try_from(bytes.len()).expect("less than 2 GB")).raw(bytes)
    }
    /// Appends a number in zigzag, seven bits a byte.
    pub fn varint(&mut self, value: i32) -> &mut Self {
        let mut rest = (value << 1).cast_unsigned() ^ (value >> 31).cast_unsigned();
        while rest >= 0x80 {
            self.0.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        self.raw(&[rest as u8])
    }
    /// Appends bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// A record batch whose fields may lie. `Default` is an honest batch of one record.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Values of the records that it really holds.
    pub values: Vec<Vec<u8>>,
    /// Number of records that it claims; by default the real one.
    pub count: Option<i32>,
    /// Delta of the last offset; by default fitting the count.
    pub last_offset_delta: Option<i32>,
    /// Length that it claims; by default the real one.
    pub length: Option<i32>,
    /// Version of the format: 2 is the only one that is still written.
    pub magic: i8,
    /// Codec and flags.
    pub attributes: i16,
    /// Bits flipped in the right checksum.
    pub checksum_flip: u32,
    /// Bytes that stand in the place of the records.
    pub records: Option<Vec<u8>>,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch {
            values: vec![b"value".to_vec()],
            count: None,
            last_offset_delta: None,
            length: None,
            magic: 2,
            attributes: 0,
            checksum_flip: 0,
            records: None,
        }
    }
}

impl Batch {
    /// The batch as it stands in a Produce request.
    pub fn encode(&self) -> Vec<u8> {
        let real = i32::try_from(self.values.len()).expect("few records");
        let count = self.count.unwrap_or(real);
        let mut summed = Bytes::default();
        summed.i16(self.attributes).i32(self.last_offset_delta.unwrap_or(real - 1));
        summed.i64(1_700_000_000_000).i64(1_700_000_000_000);
        summed.i64(-1).i16(-1).i32(-1).i32(count);
        match &self.records {
            Some(records) => summed.raw(records),
            None => summed.raw(&self.encode_records()),
        };
        let length = i32::try_from(summed.0.len() + 9).expect("a small batch");
        let mut bytes = Bytes::default();
        bytes.i64(0).i32(self.length.unwrap_or(length)).i32(-1).i8(self.magic);
        let checksum = crc32c(&summed.0) ^ self.checksum_flip;
        bytes.i32(checksum.cast_signed()).raw(&summed.0);
        bytes.0
    }

    fn encode_records(&self) -> Vec<u8> {
        let mut records = Bytes::default();
        for (delta, value) in (0..).zip(&self.values) {
            let mut record = Bytes::default();
            record.i8(0).varint(0).varint(delta).varint(-1);
            record.varint(i32::try_from(value.len()).expect("a short value")).raw(value).varint(0);
            records.varint(i32::try_from(record.0.len()).expect("short")).raw(&record.0);
        }
        records.0
    }
}

/// The body of Produce version 8 for partition 0 of one topic.
pub fn produce_body(topic: &str, acks: i16, records: &[u8]) -> Vec<u8> {
    let mut body = Bytes::default();
    body.i16(-1).i16(acks).i32(10_000);
    body.i32(1).string(topic).i32(1).i32(0).bytes(records);
    body.0
}

/// The error code and base offset of an answer to [`produce_body`].
///
/// # Panics
/// When the answer is something else.
#[track_caller]
pub fn produce_result(answer: &[u8], topic: &str) -> (i16, i64) {
    let start = 4 + 2 + topic.len() + 4 + 4;
    let field = |at: usize, length: usize| answer.get(start + at..start + at + length);
    let error = field(0, 2).and_then(|bytes| bytes.try_into().ok()).map(i16::from_be_bytes);
    let offset = field(2, 8).and_then(|bytes| bytes.try_into().ok()).map(i64::from_be_bytes);
    error.zip(offset).unwrap_or_else(|| panic!("not an answer to Produce: {answer:?}"))
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_checksum() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn numbers_in_zigzag() {
        let check = |value, expected: &[u8]| assert_eq!(Bytes::default().varint(value).0, expected);
        check(0, &[0]);
        check(-1, &[1]);
        check(63, &[126]);
        check(64, &[128, 1]);
        check(i32::MIN, &[255, 255, 255, 255, 15]);
    }
}
