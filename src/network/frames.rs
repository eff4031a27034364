//! Cuts the byte stream of a connection into frames: a length of four bytes, then that many bytes.

use bytes::{Buf, Bytes, BytesMut};

/// The bytes of the length in front of every frame.
const LENGTH_BYTES: usize = 4;

/// Why a stream cannot be cut further. Kafka closes the connection for each of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A length below zero.
    #[error("Invalid receive (size = {0})")]
    Negative(i32),
    /// A length above `socket.request.max.bytes`.
    #[error("Invalid receive (size = {length} larger than {limit})")]
    TooLarge {
        /// The length that was claimed.
        length: i32,
        /// What is allowed.
        limit: i32,
    },
}

/// What has arrived on one connection and is no whole frame yet.
///
/// A frame that lies whole in what the core received is a slice of it and is never copied. Only
/// an unfinished rest is copied, into a buffer that grows with the bytes that came and never with
/// the length that was claimed. An idle connection holds nothing.
#[derive(Debug, Default)]
pub struct Frames {
    /// The unfinished frame, with its length in front.
    rest: BytesMut,
    /// What arrived behind `rest`.
    fresh: Bytes,
}

impl Frames {
    /// Takes what arrived.
    pub fn push(&mut self, bytes: Bytes) {
        if self.fresh.is_empty() {
            self.fresh = bytes;
        } else {
            self.rest_of_fresh_is_kept();
            self.fresh = bytes;
        }
    }

    /// The next whole frame without its length, if there is one; `limit` bytes are allowed.
    pub fn next(&mut self, limit: i32) -> Result<Option<Bytes>, FrameError> {
        if self.rest.is_empty() {
            let Some(length) = claimed_length(&self.fresh, limit)? else {
                self.rest_of_fresh_is_kept();
                return Ok(None);
            };
            if self.fresh.len() < LENGTH_BYTES + length {
                self.rest_of_fresh_is_kept();
                return Ok(None);
            }
            self.fresh.advance(LENGTH_BYTES);
            return Ok(Some(self.fresh.split_to(length)));
        }
        self.top_up(LENGTH_BYTES);
        let Some(length) = claimed_length(&self.rest, limit)? else { return Ok(None) };
        self.top_up(LENGTH_BYTES + length);
        if self.rest.len() < LENGTH_BYTES + length {
            return Ok(None);
        }
        let mut frame = self.rest.split_to(LENGTH_BYTES + length).freeze();
        if self.rest.is_empty() {
            // The frame takes the buffer along; an idle connection holds none.
            self.rest = BytesMut::new();
        }
        frame.advance(LENGTH_BYTES);
        Ok(Some(frame))
    }

    /// Lets go of the core's chunk: what is still unread of it is copied. Called at the end of a
    /// turn, so that a connection that has to wait does not keep a whole chunk.
    pub fn settle(&mut self) {
        if !self.fresh.is_empty() {
            self.rest_of_fresh_is_kept();
        }
    }

    /// How many bytes are held.
    pub fn held_bytes(&self) -> usize {
        self.rest.len() + self.fresh.len()
    }

    /// How much memory is taken for them between turns.
    pub fn pinned_bytes(&self) -> usize {
        self.rest.capacity() + self.fresh.len()
    }

    fn rest_of_fresh_is_kept(&mut self) {
        self.rest.extend_from_slice(&self.fresh);
        self.fresh = Bytes::new();
    }

    fn top_up(&mut self, wanted: usize) {
        let missing = wanted.saturating_sub(self.rest.len()).min(self.fresh.len());
        self.rest.extend_from_slice(&self.fresh.split_to(missing));
    }
}

fn claimed_length(bytes: &[u8], limit: i32) -> Result<Option<usize>, FrameError> {
    let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = i32::from_be_bytes(*length);
    if length > limit {
        return Err(FrameError::TooLarge { length, limit });
    }
    usize::try_from(length).map(Some).map_err(|_| FrameError::Negative(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;

    fn framed(payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut stream = Vec::new();
        for payload in payloads {
            let length = i32::try_from(payload.len()).expect("small");
            stream.extend_from_slice(&length.to_be_bytes());
            stream.extend_from_slice(payload);
        }
        stream
    }

    #[test]
    fn any_chopping_of_the_stream_gives_the_same_frames() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let payloads: Vec<Vec<u8>> = (0..20_u8)
                .map(|fill| vec![fill; usize::try_from(random.below(40)).expect("small")])
                .collect();
            let stream = Bytes::from(framed(&payloads));
            let (mut frames, mut got, mut position) = (Frames::default(), Vec::new(), 0);
            while position < stream.len() {
                let length = usize::try_from(1 + random.below(60)).expect("small");
                let end = (position + length).min(stream.len());
                frames.push(stream.slice(position..end));
                position = end;
                // Sometimes the connection has to wait with whole frames unread.
                if random.chance(30) {
                    frames.settle();
                    continue;
                }
                while let Some(frame) = frames.next(100).expect("valid") {
                    got.push(frame.to_vec());
                }
            }
            while let Some(frame) = frames.next(100).expect("valid") {
                got.push(frame.to_vec());
            }
            assert_eq!(got, payloads, "seed {seed}");
            assert_eq!(frames.held_bytes(), 0, "seed {seed}");
        }
    }

    #[test]
    fn a_whole_frame_is_not_copied() {
        let stream = Bytes::from(framed(&[vec![1; 100]]));
        let mut frames = Frames::default();
        frames.push(stream.clone());
        let frame = frames.next(100).expect("valid").expect("whole");
        assert_eq!(frame.as_ptr(), stream[4..].as_ptr());
    }

    #[test]
    fn lengths_that_kafka_refuses_are_refused() {
        let error = |length: i32| {
            let mut frames = Frames::default();
            frames.push(Bytes::copy_from_slice(&length.to_be_bytes()));
            frames.next(100)
        };
        assert_eq!(error(-1), Err(FrameError::Negative(-1)));
        assert_eq!(error(101), Err(FrameError::TooLarge { length: 101, limit: 100 }));
        assert_eq!(error(100), Ok(None));
    }
}
