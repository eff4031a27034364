//! The chunks that a core receives into.

use std::collections::VecDeque;

use bytes::BytesMut;

/// How many idle chunks are kept for the next burst.
const SPARES_MAX: usize = 2;
/// How many lent chunks one call looks at for one that has come back.
const LENT_LOOKED_AT_MAX: usize = 8;

/// Memory that sockets are read into, one chunk after the other, within a budget.
///
/// All connections of a core receive into one chunk, each behind what the one before it left; what
/// they got are slices of it. At the end of a turn the chunk is used again from its start when
/// nobody holds a slice any more. A chunk of which a slice is held counts against the budget until
/// the slice is dropped; at the budget [`ChunkPool::room`] has none, and reading pauses.
#[derive(Debug)]
pub struct ChunkPool {
    chunk_bytes: usize,
    chunks_max: usize,
    current: Option<BytesMut>,
    /// Chunks without room, of which somebody holds slices.
    lent: VecDeque<BytesMut>,
    spare: Vec<BytesMut>,
}

impl ChunkPool {
    /// A pool of chunks of `chunk_bytes` that together stay within `bytes_max`, but at least one.
    ///
    /// # Panics
    /// If a chunk has no bytes.
    pub fn new(chunk_bytes: usize, bytes_max: usize) -> Self {
        assert!(chunk_bytes > 0, "a chunk has room");
        Self {
            chunk_bytes,
            chunks_max: (bytes_max / chunk_bytes).max(1),
            current: None,
            lent: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// An empty buffer with at least an eighth of a chunk of room, or `None` at the budget. What is
    /// received is taken from it with `split()`.
    pub fn room(&mut self) -> Option<&mut BytesMut> {
        let room_min = (self.chunk_bytes / 8).max(1);
        let usable = self.current.as_mut().is_some_and(|current| {
            debug_assert!(current.is_empty(), "what was received has been split off");
            current.capacity() >= room_min || current.try_reclaim(self.chunk_bytes)
        });
        if !usable {
            self.lent.extend(self.current.take());
            self.current = self.next();
        }
        self.current.as_mut()
    }

    /// Takes back what nobody holds any more, and frees what the next burst will not need.
    pub fn end_of_turn(&mut self) {
        if let Some(current) = &mut self.current {
            // A chunk that is still held keeps the room that it has left.
            let _ = current.try_reclaim(self.chunk_bytes);
        }
        if let Some(chunk) = self.returned()
            && self.spare.len() < SPARES_MAX
        {
            self.spare.push(chunk);
        }
    }

    /// The chunks without room that slices keep from being used again, in bytes.
    #[cfg(test)]
    fn lent_bytes(&self) -> usize {
        self.lent.len() * self.chunk_bytes
    }

    fn next(&mut self) -> Option<BytesMut> {
        if let Some(chunk) = self.spare.pop().or_else(|| self.returned()) {
            return Some(chunk);
        }
        (self.lent.len() < self.chunks_max).then(|| BytesMut::with_capacity(self.chunk_bytes))
    }

    fn returned(&mut self) -> Option<BytesMut> {
        for _ in 0..self.lent.len().min(LENT_LOOKED_AT_MAX) {
            let mut chunk = self.lent.pop_front()?;
            if chunk.try_reclaim(self.chunk_bytes) {
                return Some(chunk);
            }
            self.lent.push_back(chunk);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn receive(pool: &mut ChunkPool, length: usize) -> Option<Bytes> {
        let room = pool.room()?;
        let length = length.min(room.capacity());
        room.resize(length, 7);
        Some(room.split().freeze())
    }

    #[test]
    fn a_chunk_without_slices_is_used_again_from_its_start() {
        let mut pool = ChunkPool::new(1024, 1024);
        let first = receive(&mut pool, 500).expect("room");
        let address = first.as_ptr();
        drop(first);
        pool.end_of_turn();
        let second = receive(&mut pool, 1024).expect("room");
        assert_eq!((second.as_ptr(), second.len()), (address, 1024));
    }

    #[test]
    fn at_the_budget_there_is_no_room_until_a_slice_returns() {
        let mut pool = ChunkPool::new(1024, 2048);
        let mut held: Vec<Bytes> = Vec::new();
        while let Some(slice) = receive(&mut pool, 600) {
            held.push(slice);
            pool.end_of_turn();
        }
        // Two chunks, each of them filled to less than an eighth.
        assert_eq!(held.len(), 4);
        assert_eq!(pool.lent_bytes(), 2048);
        let last = held.pop();
        assert!(receive(&mut pool, 1).is_none(), "the other slice of that chunk is still held");
        held.pop();
        assert!(receive(&mut pool, 1).is_none(), "a clone counts as well: {last:?}");
        drop(last);
        assert!(receive(&mut pool, 1).is_some());
    }

    #[test]
    fn an_idle_pool_keeps_few_chunks() {
        let mut pool = ChunkPool::new(1024, 1 << 20);
        let held: Vec<Bytes> = (0..100).filter_map(|_| receive(&mut pool, 1024)).collect();
        assert_eq!(held.len(), 100);
        drop(held);
        for _ in 0..200 {
            pool.end_of_turn();
        }
        assert_eq!((pool.lent.len(), pool.spare.len()), (0, SPARES_MAX));
    }
}
