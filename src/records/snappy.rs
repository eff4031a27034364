//! Snappy in the framing of snappy-java, which Kafka uses (`SnappyOutputStream`,
//! `SnappyInputStream`): a header, then blocks with their compressed length in front. A stream
//! without the header is one bare block.

use std::io::{self, Read};

use bytes::{Buf, Bytes};

const STREAM_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const STREAM_HEADER_BYTES: usize = 16;
/// The version that is written, and the oldest reader that can read it.
const VERSION: u32 = 1;
const BLOCK_BYTES: usize = 32 * 1024;
/// Three bytes of a compressed block stand for at most 64.
const EXPANSION_MAX: usize = 22;

/// Compresses in blocks.
pub(crate) struct Encoder {
    out: Vec<u8>,
    block: Vec<u8>,
    scratch: Vec<u8>,
    encoder: snap::raw::Encoder,
}

impl Encoder {
    pub(crate) fn new(mut out: Vec<u8>) -> Self {
        out.extend_from_slice(&STREAM_MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&VERSION.to_be_bytes());
        Self { out, block: Vec::new(), scratch: Vec::new(), encoder: snap::raw::Encoder::new() }
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) {
        while self.block.len() + bytes.len() > BLOCK_BYTES {
            let (now, later) = bytes.split_at(BLOCK_BYTES - self.block.len());
            self.block.extend_from_slice(now);
            self.write_block();
            bytes = later;
        }
        self.block.extend_from_slice(bytes);
    }

    pub(crate) fn written(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.write_block();
        self.out
    }

    fn write_block(&mut self) {
        if self.block.is_empty() {
            return;
        }
        self.scratch.resize(snap::raw::max_compress_len(self.block.len()), 0);
        let compressed = self
            .encoder
            .compress(&self.block, &mut self.scratch)
            .expect("the output has the largest size that a block can compress to");
        self.out.extend_from_slice(&(compressed as u32).to_be_bytes());
        self.out.extend_from_slice(&self.scratch[..compressed]);
        self.block.clear();
    }
}

/// Decompresses block by block.
pub(crate) struct Decoder {
    input: Bytes,
    framing: Framing,
    decoder: snap::raw::Decoder,
    block: Vec<u8>,
    position: usize,
}

enum Framing {
    Unknown,
    Framed,
    Bare,
}

impl Decoder {
    pub(crate) fn new(input: Bytes) -> Self {
        let decoder = snap::raw::Decoder::new();
        Self { input, framing: Framing::Unknown, decoder, block: Vec::new(), position: 0 }
    }

    /// Decompresses the next block; says whether there was one.
    fn read_block(&mut self) -> io::Result<bool> {
        match self.framing {
            Framing::Bare => return Ok(false),
            Framing::Framed if self.input.is_empty() => return Ok(false),
            Framing::Unknown if self.input.is_empty() => {
                return Err(corrupt("cannot decompress an empty snappy stream"));
            }
            Framing::Unknown | Framing::Framed => {}
        }
        // Streams follow each other where a producer wrote several.
        if self.skip_stream_header()? {
            self.framing = Framing::Framed;
            return Ok(true);
        }
        let block = if let Framing::Framed = self.framing {
            let length = self.input.try_get_u32().map_err(|_| ended())? as usize;
            if length > self.input.len() {
                return Err(ended());
            }
            self.input.split_to(length)
        } else {
            self.framing = Framing::Bare;
            std::mem::take(&mut self.input)
        };
        self.decompress(&block)?;
        Ok(true)
    }

    fn skip_stream_header(&mut self) -> io::Result<bool> {
        if self.input.len() < STREAM_HEADER_BYTES || !self.input.starts_with(&STREAM_MAGIC) {
            return Ok(false);
        }
        self.input.advance(STREAM_MAGIC.len());
        let (_version, oldest_reader) = (self.input.get_u32(), self.input.get_i32());
        if oldest_reader < VERSION as i32 {
            return Err(corrupt("snappy stream of an incompatible version"));
        }
        Ok(true)
    }

    fn decompress(&mut self, block: &[u8]) -> io::Result<()> {
        let length = snap::raw::decompress_len(block).map_err(io::Error::other)?;
        if length > block.len().saturating_mul(EXPANSION_MAX) {
            return Err(corrupt("snappy block claims more than it can hold"));
        }
        self.block.resize(length, 0);
        self.position = 0;
        self.decoder.decompress(block, &mut self.block).map_err(io::Error::other)?;
        Ok(())
    }
}

impl Read for Decoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.position == self.block.len() {
            if !self.read_block()? {
                return Ok(0);
            }
        }
        let count = buffer.len().min(self.block.len() - self.position);
        buffer[..count].copy_from_slice(&self.block[self.position..self.position + count]);
        self.position += count;
        Ok(count)
    }
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "snappy stream ended prematurely")
}

fn corrupt(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Decoder::new(Bytes::copy_from_slice(bytes)).read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn a_bare_block_and_streams_in_a_row_are_read() {
        let bare = snap::raw::Encoder::new().compress_vec(b"bare bare bare bare").unwrap();
        assert_eq!(read(&bare).unwrap(), b"bare bare bare bare");
        let mut framed = Encoder::new(Vec::new());
        framed.write(b"first");
        let mut twice = framed.finish();
        twice.extend_from_slice(&twice.clone());
        assert_eq!(read(&twice).unwrap(), b"firstfirst");
    }

    #[test]
    fn a_claimed_length_takes_no_memory() {
        // 2^32 − 1 bytes, in five bytes.
        let error = read(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0]).unwrap_err();
        assert!(error.to_string().contains("claims more"), "{error}");
    }
}
