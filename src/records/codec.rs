//! The compression of a batch's records (`CompressionType`): streams in both directions.
//!
//! Decompressing takes memory by what the stream really holds, up to a window: 32 KB for gzip, a
//! block of at most 4 MB for lz4, of at most 22 times its compressed size for snappy, and
//! 2^[`ZSTD_WINDOW_LOG_MAX`] bytes for zstd.

use std::fmt;
use std::io::{self, Read, Write};

use bytes::Buf;
use bytes::Bytes;
use bytes::buf::Reader;

use crate::{lz4, snappy};

/// The lowest gzip level.
pub const GZIP_LEVEL_MIN: i32 = 1;
/// The highest gzip level.
pub const GZIP_LEVEL_MAX: i32 = 9;
/// zlib's own choice, as the configuration writes it.
pub const GZIP_LEVEL_DEFAULT: i32 = -1;
/// The lowest lz4 level.
pub const LZ4_LEVEL_MIN: i32 = 1;
/// The highest lz4 level.
pub const LZ4_LEVEL_MAX: i32 = 17;
/// The lz4 level that Kafka's producer uses; it selects the fast compressor.
pub const LZ4_LEVEL_DEFAULT: i32 = 9;
/// The lowest zstd level.
pub const ZSTD_LEVEL_MIN: i32 = -131_072;
/// The highest zstd level.
pub const ZSTD_LEVEL_MAX: i32 = 22;
/// The zstd level that Kafka's producer uses.
pub const ZSTD_LEVEL_DEFAULT: i32 = 3;
/// The largest zstd window that is accepted, as a power of two: what zstd accepts by default and
/// level 22 writes. Memory for it is touched only as the decompressed data arrives.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// A compression algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Codec {
    /// Records stand as they are.
    #[default]
    None,
    /// One or more gzip members.
    Gzip,
    /// snappy-java's framing of snappy blocks, or one bare block.
    Snappy,
    /// One lz4 frame of independent blocks.
    Lz4,
    /// Zstandard frames.
    Zstd,
}

impl Codec {
    /// By its number in a batch's attributes.
    pub fn from_id(id: u8) -> Option<Self> {
        Some(match id {
            0 => Codec::None,
            1 => Codec::Gzip,
            2 => Codec::Snappy,
            3 => Codec::Lz4,
            4 => Codec::Zstd,
            _ => return None,
        })
    }

    /// Its number in a batch's attributes.
    pub fn id(self) -> u8 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::Snappy => 2,
            Codec::Lz4 => 3,
            Codec::Zstd => 4,
        }
    }

    /// By its name in a configuration (`compression.type`): none, gzip, snappy, lz4 or zstd.
    pub fn from_name(name: &str) -> Option<Self> {
        (0..=4).filter_map(Codec::from_id).find(|codec| codec.name() == name)
    }

    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// How to compress: an algorithm with its level.
///
/// There is no lz4 level: one compressor serves all. Kafka's levels choose between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// With [`GZIP_LEVEL_MIN`] to [`GZIP_LEVEL_MAX`], or [`GZIP_LEVEL_DEFAULT`].
    Gzip {
        /// The level; one out of range means the default.
        level: i32,
    },
    /// In blocks of 32 KB.
    Snappy,
    /// In blocks of 64 KB.
    Lz4,
    /// With [`ZSTD_LEVEL_MIN`] to [`ZSTD_LEVEL_MAX`].
    Zstd {
        /// The level; one out of range means the nearest.
        level: i32,
    },
}

impl From<Codec> for Compression {
    /// With the default level.
    fn from(codec: Codec) -> Self {
        match codec {
            Codec::None => Compression::None,
            Codec::Gzip => Compression::Gzip { level: GZIP_LEVEL_DEFAULT },
            Codec::Snappy => Compression::Snappy,
            Codec::Lz4 => Compression::Lz4,
            Codec::Zstd => Compression::Zstd { level: ZSTD_LEVEL_DEFAULT },
        }
    }
}

impl Compression {
    /// The algorithm.
    pub fn codec(self) -> Codec {
        match self {
            Compression::None => Codec::None,
            Compression::Gzip { .. } => Codec::Gzip,
            Compression::Snappy => Codec::Snappy,
            Compression::Lz4 => Codec::Lz4,
            Compression::Zstd { .. } => Codec::Zstd,
        }
    }
}

/// Appends compressed bytes to a buffer that holds something else already.
pub(crate) enum Compressor {
    None(Vec<u8>),
    Gzip(Box<flate2::write::GzEncoder<Vec<u8>>>),
    Snappy(Box<snappy::Encoder>),
    Lz4(lz4::Encoder),
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
}

const INTO_MEMORY: &str = "compressing into memory fails only when there is none";

impl Compressor {
    pub(crate) fn new(compression: Compression, out: Vec<u8>) -> Self {
        match compression {
            Compression::None => Compressor::None(out),
            Compression::Gzip { level } => {
                let level = match u32::try_from(level) {
                    Ok(level @ 1..=9) => flate2::Compression::new(level),
                    _ => flate2::Compression::default(),
                };
                Compressor::Gzip(Box::new(flate2::write::GzEncoder::new(out, level)))
            }
            Compression::Snappy => Compressor::Snappy(Box::new(snappy::Encoder::new(out))),
            Compression::Lz4 => Compressor::Lz4(lz4::Encoder::new(out)),
            Compression::Zstd { level } => {
                let level = level.clamp(ZSTD_LEVEL_MIN, ZSTD_LEVEL_MAX);
                let encoder = zstd::stream::write::Encoder::new(out, level).expect(INTO_MEMORY);
                Compressor::Zstd(Box::new(encoder))
            }
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        match self {
            Compressor::None(out) => out.extend_from_slice(bytes),
            Compressor::Gzip(encoder) => encoder.write_all(bytes).expect(INTO_MEMORY),
            Compressor::Snappy(encoder) => encoder.write(bytes),
            Compressor::Lz4(encoder) => encoder.write(bytes),
            Compressor::Zstd(encoder) => encoder.write_all(bytes).expect(INTO_MEMORY),
        }
    }

    /// Bytes in the buffer so far; what the codec holds back is not counted.
    pub(crate) fn written(&self) -> usize {
        match self {
            Compressor::None(out) => out.len(),
            Compressor::Gzip(encoder) => encoder.get_ref().len(),
            Compressor::Snappy(encoder) => encoder.written(),
            Compressor::Lz4(encoder) => encoder.written(),
            Compressor::Zstd(encoder) => encoder.get_ref().len(),
        }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        match self {
            Compressor::None(out) => out,
            Compressor::Gzip(encoder) => encoder.finish().expect(INTO_MEMORY),
            Compressor::Snappy(encoder) => encoder.finish(),
            Compressor::Lz4(encoder) => encoder.finish(),
            Compressor::Zstd(encoder) => encoder.finish().expect(INTO_MEMORY),
        }
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Compressor({} bytes)", self.written())
    }
}

/// Decompresses a stream piece by piece. Errors are those of the stream: it reads from memory.
pub(crate) enum Decompressor {
    None(Reader<Bytes>),
    Gzip(Box<flate2::bufread::MultiGzDecoder<Reader<Bytes>>>),
    Snappy(Box<snappy::Decoder>),
    Lz4(lz4::Decoder),
    Zstd(Box<zstd::stream::read::Decoder<'static, Reader<Bytes>>>),
}

impl Decompressor {
    pub(crate) fn new(codec: Codec, input: Bytes) -> io::Result<Self> {
        Ok(match codec {
            Codec::None => Decompressor::None(input.reader()),
            Codec::Gzip => {
                let decoder = flate2::bufread::MultiGzDecoder::new(input.reader());
                Decompressor::Gzip(Box::new(decoder))
            }
            Codec::Snappy => Decompressor::Snappy(Box::new(snappy::Decoder::new(input))),
            Codec::Lz4 => Decompressor::Lz4(lz4::Decoder::new(input)),
            // zstd-jni takes no bytes for no frames, where the other codecs ask for a header.
            Codec::Zstd if input.is_empty() => Decompressor::None(input.reader()),
            Codec::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(input.reader())?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Decompressor::Zstd(Box::new(decoder))
            }
        })
    }
}

impl Read for Decompressor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Decompressor::None(reader) => reader.read(buffer),
            Decompressor::Gzip(decoder) => decoder.read(buffer),
            Decompressor::Snappy(decoder) => decoder.read(buffer),
            Decompressor::Lz4(decoder) => decoder.read(buffer),
            Decompressor::Zstd(decoder) => decoder.read(buffer),
        }
    }
}

/// A stretch of a decompressed stream in memory: as long as is asked for, else a chunk.
pub(crate) struct Window {
    stream: Decompressor,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    ended: bool,
}

/// How much of a stream is decompressed at once, in bytes.
const WINDOW_BYTES: usize = 16 * 1024;

impl Window {
    pub(crate) fn new(codec: Codec, input: Bytes) -> io::Result<Self> {
        let stream = Decompressor::new(codec, input)?;
        Ok(Self { stream, buffer: vec![0; WINDOW_BYTES], start: 0, end: 0, ended: false })
    }

    /// The next bytes of the stream, at least `wanted` of them unless it ends before.
    ///
    /// A hostile `wanted` takes no memory: the buffer doubles only when it is full of data.
    #[inline]
    pub(crate) fn peek(&mut self, wanted: usize) -> io::Result<&[u8]> {
        if self.end - self.start < wanted && !self.ended {
            self.fill(wanted)?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Steps over `count` bytes that [`Window::peek`] has shown.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "only bytes that were seen are stepped over");
        self.start += count;
    }

    /// How much memory it takes, in bytes; that of the codec comes on top of it.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The last `count` bytes that were stepped over by the latest [`Window::consume`].
    pub(crate) fn before(&self, count: usize) -> &[u8] {
        &self.buffer[self.start - count..self.start]
    }

    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < wanted {
            if self.end == self.buffer.len() {
                let doubled = self.buffer.len() * 2;
                self.buffer.resize(doubled.min(wanted.next_multiple_of(WINDOW_BYTES)), 0);
            }
            match self.stream.read(&mut self.buffer[self.end..])? {
                0 => {
                    self.ended = true;
                    break;
                }
                read => self.end += read,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Window({} bytes, ended: {})", self.end - self.start, self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Compression; 7] = [
        Compression::None,
        Compression::Gzip { level: GZIP_LEVEL_DEFAULT },
        Compression::Gzip { level: 9 },
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd { level: ZSTD_LEVEL_DEFAULT },
        Compression::Zstd { level: -5 },
    ];

    fn compress(compression: Compression, pieces: &[Vec<u8>]) -> Vec<u8> {
        let mut compressor = Compressor::new(compression, b"head".to_vec());
        pieces.iter().for_each(|piece| compressor.write(piece));
        compressor.finish()
    }

    fn decompress(codec: Codec, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Decompressor::new(codec, Bytes::copy_from_slice(bytes))?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn large_pieces_and_small_ones_come_back() {
        let noise = |length: u32| -> Vec<u8> {
            (0..length).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
        };
        let pieces = [b"a".repeat(200_000), noise(100_000), vec![], noise(1), vec![7; 65_536]];
        for compression in ALL {
            let compressed = compress(compression, &pieces);
            assert_eq!(&compressed[..4], b"head");
            let plain = decompress(compression.codec(), &compressed[4..]).unwrap();
            assert_eq!(plain, pieces.concat(), "{compression:?}");
        }
    }

    #[test]
    fn a_cut_stream_is_an_error_and_never_a_shorter_one() {
        let pieces = [b"some words, some words, some words".repeat(10)];
        for compression in &ALL[1..] {
            let compressed = compress(*compression, &pieces);
            for length in 5..compressed.len() {
                let plain = decompress(compression.codec(), &compressed[4..length]);
                if let Ok(plain) = plain {
                    // Snappy's framing has no end mark, so a cut between two blocks is not seen.
                    assert_eq!(*compression, Compression::Snappy, "cut at {length}");
                    assert!(plain.len() < pieces[0].len());
                }
            }
        }
    }

    proptest! {
        // A compressor's context takes longer to make than to use.
        #![proptest_config(ProptestConfig::with_cases(50))]

        #[test]
        fn any_pieces_come_back(pieces: Vec<Vec<u8>>) {
            for compression in ALL {
                let compressed = compress(compression, &pieces);
                prop_assert_eq!(
                    decompress(compression.codec(), &compressed[4..]).unwrap(),
                    pieces.concat()
                );
            }
        }

        #[test]
        fn any_bytes_are_decompressed_or_refused(bytes: Vec<u8>, flip in 0_usize..1000, to: u8) {
            for compression in &ALL[1..] {
                let _ = decompress(compression.codec(), &bytes);
                let mut compressed = compress(*compression, &[b"words and words".repeat(20)]);
                let at = 4 + flip % (compressed.len() - 4);
                compressed[at] = to;
                let _ = decompress(compression.codec(), &compressed[4..]);
            }
        }
    }
}
