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

/// The code of an answer that has no error.
pub const NONE: i16 = 0;

/// Keys of requests, as in Kafka's `ApiKeys`.
pub const PRODUCE: i16 = 0;
/// See [`PRODUCE`].
pub const FETCH: i16 = 1;
/// See [`PRODUCE`].
pub const LIST_OFFSETS: i16 = 2;
/// See [`PRODUCE`].
pub const METADATA: i16 = 3;
/// See [`PRODUCE`].
pub const OFFSET_COMMIT: i16 = 8;
/// See [`PRODUCE`].
pub const OFFSET_FETCH: i16 = 9;
/// See [`PRODUCE`].
pub const FIND_COORDINATOR: i16 = 10;
/// See [`PRODUCE`].
pub const API_VERSIONS: i16 = 18;
/// See [`PRODUCE`].
pub const CREATE_TOPICS: i16 = 19;
/// See [`PRODUCE`].
pub const DELETE_TOPICS: i16 = 20;
/// See [`PRODUCE`].
pub const INIT_PRODUCER_ID: i16 = 22;
/// See [`PRODUCE`].
pub const DESCRIBE_PRODUCERS: i16 = 61;

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
    /// Keys of the first records; the others have none.
    pub keys: Vec<Vec<u8>>,
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
    /// The time of the records, in milliseconds since 1970.
    pub timestamp: i64,
    /// Id and epoch of the producer, and the sequence of the first record.
    pub producer: (i64, i16, i32),
    /// Bits flipped in the right checksum.
    pub checksum_flip: u32,
    /// Bytes that stand in the place of the records.
    pub records: Option<Vec<u8>>,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch {
            values: vec![b"value".to_vec()],
            keys: Vec::new(),
            count: None,
            last_offset_delta: None,
            length: None,
            magic: 2,
            attributes: 0,
            timestamp: 1_700_000_000_000,
            producer: (-1, -1, -1),
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
        summed.i64(self.timestamp).i64(self.timestamp);
        let (id, epoch, sequence) = self.producer;
        summed.i64(id).i16(epoch).i32(sequence).i32(count);
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
            record.i8(0).varint(0).varint(delta);
            match usize::try_from(delta).ok().and_then(|index| self.keys.get(index)) {
                Some(key) => record.varint(i32::try_from(key.len()).expect("a short key")).raw(key),
                None => record.varint(-1),
            };
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
    let produced = Produced::read(answer, topic);
    (produced.error, produced.base_offset)
}

/// What an answer to [`produce_body`] says of the partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Produced {
    /// 0, or why nothing was written.
    pub error: i16,
    /// The offset of the first record, −1 with an error.
    pub base_offset: i64,
    /// The time that the broker gave the records, −1 for none.
    pub log_append_time: i64,
    /// The first offset of the log, −1 with an error.
    pub log_start_offset: i64,
    /// A sentence.
    pub message: Option<String>,
}

impl Produced {
    /// Reads an answer for one partition, without errors of records.
    ///
    /// # Panics
    /// When it is something else.
    #[track_caller]
    pub fn read(answer: &[u8], topic: &str) -> Produced {
        let mut rest = Rest(answer.get(4 + 2 + topic.len() + 4 + 4..).unwrap_or_default());
        let error = rest.i16();
        let (base_offset, log_append_time) = (rest.i64(), rest.i64());
        let log_start_offset = rest.i64();
        assert_eq!(rest.i32(), 0, "errors of records: {answer:?}");
        let message = usize::try_from(rest.i16()).ok();
        let message = message.map(|length| String::from_utf8_lossy(rest.take(length)).into());
        Produced { error, base_offset, log_append_time, log_start_offset, message }
    }
}

/// Bytes that are still to be read.
#[derive(Debug, Clone, Copy)]
pub struct Rest<'a>(
    /// What was not read yet.
    pub &'a [u8],
);

impl<'a> Rest<'a> {
    /// The next bytes.
    ///
    /// # Panics
    /// When there are fewer; so do the others.
    #[track_caller]
    pub fn take(&mut self, length: usize) -> &'a [u8] {
        let Some((taken, rest)) = self.0.split_at_checked(length) else {
            panic!("only {:?} where {length} bytes are wanted", self.0)
        };
        self.0 = rest;
        taken
    }
    #[track_caller]
    fn array<const LENGTH: usize>(&mut self) -> [u8; LENGTH] {
        self.take(LENGTH).try_into().expect("it has this length")
    }
    /// One byte.
    #[track_caller]
    pub fn u8(&mut self) -> u8 {
        u8::from_be_bytes(self.array())
    }
    /// Two bytes.
    #[track_caller]
    pub fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.array())
    }
    /// Four bytes.
    #[track_caller]
    pub fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.array())
    }
    /// Eight bytes.
    #[track_caller]
    pub fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.array())
    }
    /// A number in zigzag, seven bits a byte.
    #[track_caller]
    pub fn varint(&mut self) -> i64 {
        let (mut bits, mut shift) = (0_u64, 0);
        loop {
            let byte = u64::from(self.u8());
            bits |= (byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return (bits >> 1).cast_signed() ^ -(bits & 1).cast_signed();
            }
        }
    }
    /// A text with a length of two bytes; none where that is negative.
    #[track_caller]
    pub fn string(&mut self) -> Option<String> {
        let length = usize::try_from(self.i16()).ok()?;
        Some(String::from_utf8_lossy(self.take(length)).into())
    }
    /// A text with a length of one byte, which is one more; none for 0.
    #[track_caller]
    pub fn compact_string(&mut self) -> Option<String> {
        let length = usize::from(self.u8()).checked_sub(1)?;
        Some(String::from_utf8_lossy(self.take(length)).into())
    }
}

/// The checksum of a batch: CRC-32C, bit by bit.
pub fn crc32c(bytes: &[u8]) -> u32 {
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
