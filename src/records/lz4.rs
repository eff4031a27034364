//! The lz4 frame as Kafka writes and reads it (`Lz4BlockOutputStream`, `Lz4BlockInputStream`):
//! independent blocks only, one frame, no dictionary; a content size is skipped and a content
//! checksum not verified.

use std::hash::Hasher;
use std::io::{self, Read};

use bytes::{Buf, Bytes};
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use twox_hash::XxHash32;

const FRAME_MAGIC: u32 = 0x184D_2204;
/// What stands before the blocks that are written: magic, version 1 with independent blocks,
/// blocks of 64 KB, and the checksum of these two bytes.
const FRAME_HEADER: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
const BLOCK_BYTES: usize = 64 * 1024;
/// The bit of a block's length that says that the block is not compressed.
const UNCOMPRESSED_BIT: u32 = 0x8000_0000;
const END_MARK: u32 = 0;
/// A byte of a compressed block stands for at most this many.
const EXPANSION_MAX: usize = 255;

/// Compresses in blocks.
pub(crate) struct Encoder {
    out: Vec<u8>,
    block: Vec<u8>,
    scratch: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new(mut out: Vec<u8>) -> Self {
        out.extend_from_slice(&FRAME_HEADER);
        Self { out, block: Vec::new(), scratch: Vec::new() }
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
        self.out.extend_from_slice(&END_MARK.to_le_bytes());
        self.out
    }

    fn write_block(&mut self) {
        let plain = self.block.len();
        if plain == 0 {
            return;
        }
        self.scratch.resize(get_maximum_output_size(plain), 0);
        let compressed = compress_into(&self.block, &mut self.scratch)
            .expect("the output has the largest size that a block can compress to");
        let (bytes, flag) = if compressed < plain {
            (&self.scratch[..compressed], 0)
        } else {
            (&self.block[..], UNCOMPRESSED_BIT)
        };
        self.out.extend_from_slice(&(bytes.len() as u32 | flag).to_le_bytes());
        self.out.extend_from_slice(bytes);
        self.block.clear();
    }
}

/// Decompresses block by block.
pub(crate) struct Decoder {
    input: Bytes,
    frame: Option<Frame>,
    ended: bool,
    block: Vec<u8>,
    position: usize,
}

#[derive(Clone, Copy)]
struct Frame {
    block_bytes_max: usize,
    block_checksums: bool,
}

impl Decoder {
    pub(crate) fn new(input: Bytes) -> Self {
        Self { input, frame: None, ended: false, block: Vec::new(), position: 0 }
    }

    fn read_frame_header(&mut self) -> io::Result<Frame> {
        let mut rest = &self.input[..];
        if rest.try_get_u32_le().map_err(|_| ended())? != FRAME_MAGIC {
            return Err(corrupt("not an lz4 frame"));
        }
        let descriptor = rest;
        let flags = rest.try_get_u8().map_err(|_| ended())?;
        let sizes = rest.try_get_u8().map_err(|_| ended())?;
        let (version, independent) = (flags >> 6, flags & 0x20 != 0);
        let (block_checksums, content_size) = (flags & 0x10 != 0, flags & 0x08 != 0);
        if flags & 0x03 != 0 || version != 1 || !independent {
            return Err(corrupt("lz4 frame with unsupported flags"));
        }
        let block_size = sizes >> 4;
        if sizes & 0x8f != 0 || !(4..=7).contains(&block_size) {
            return Err(corrupt("lz4 frame with an invalid block size"));
        }
        if content_size {
            rest.try_get_u64_le().map_err(|_| ended())?;
        }
        let described = descriptor.len() - rest.len();
        let checksum = rest.try_get_u8().map_err(|_| ended())?;
        if checksum != (xxhash(&descriptor[..described]) >> 8) as u8 {
            return Err(corrupt("lz4 frame with a corrupt descriptor"));
        }
        self.input.advance(self.input.len() - rest.len());
        Ok(Frame { block_bytes_max: 1 << (2 * block_size + 8), block_checksums })
    }

    fn read_block(&mut self, frame: Frame) -> io::Result<()> {
        let length = self.input.try_get_u32_le().map_err(|_| ended())?;
        if length == END_MARK {
            self.ended = true;
            return Ok(());
        }
        let bytes = (length & !UNCOMPRESSED_BIT) as usize;
        if bytes > frame.block_bytes_max {
            return Err(corrupt("lz4 block is larger than its frame allows"));
        }
        if bytes > self.input.len() {
            return Err(ended());
        }
        let block = self.input.split_to(bytes);
        if frame.block_checksums
            && self.input.try_get_u32_le().map_err(|_| ended())? != xxhash(&block)
        {
            return Err(corrupt("lz4 block with a wrong checksum"));
        }
        self.position = 0;
        if length & UNCOMPRESSED_BIT != 0 {
            self.block.clear();
            self.block.extend_from_slice(&block);
        } else {
            self.block.resize(frame.block_bytes_max.min(bytes * EXPANSION_MAX), 0);
            let plain = decompress_into(&block, &mut self.block).map_err(io::Error::other)?;
            self.block.truncate(plain);
        }
        Ok(())
    }
}

impl Read for Decoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let frame = match self.frame {
            Some(frame) => frame,
            None => {
                let frame = self.read_frame_header()?;
                self.frame = Some(frame);
                frame
            }
        };
        while self.position == self.block.len() && !self.ended {
            self.read_block(frame)?;
        }
        let count = buffer.len().min(self.block.len() - self.position);
        buffer[..count].copy_from_slice(&self.block[self.position..self.position + count]);
        self.position += count;
        Ok(count)
    }
}

fn xxhash(bytes: &[u8]) -> u32 {
    let mut hasher = XxHash32::with_seed(0);
    hasher.write(bytes);
    hasher.finish() as u32
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "lz4 stream ended prematurely")
}

fn corrupt(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_that_is_written_is_one_that_is_read() {
        let frame = Decoder::new(Bytes::from_static(&FRAME_HEADER)).read_frame_header().unwrap();
        assert_eq!((frame.block_bytes_max, frame.block_checksums), (BLOCK_BYTES, false));
        for index in 0..FRAME_HEADER.len() {
            let mut header = FRAME_HEADER;
            header[index] ^= 0x10;
            let decoder = Decoder::new(Bytes::copy_from_slice(&header)).read_frame_header();
            assert!(decoder.is_err(), "byte {index}");
        }
    }
}
