//! What stands for a key: 128 bits of hash, made of its pieces as they come.

use twox_hash::XxHash3_128;
use twox_hash::xxhash3_128::Hasher;

/// The hash of a key. Made with a seed that nobody knows, nobody can choose keys that come to stand
/// in one place of a map, where each is found behind all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyHash {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl KeyHash {
    /// Of a whole key.
    pub(crate) fn of(seed: u64, key: &[u8]) -> Self {
        Self::from(XxHash3_128::oneshot_with_seed(seed, key))
    }
}

impl From<u128> for KeyHash {
    fn from(hash: u128) -> Self {
        Self { low: hash as u64, high: (hash >> 64) as u64 }
    }
}

/// Hashes one key after the other. Nearly all come in one piece.
pub(crate) struct KeyHasher {
    seed: u64,
    whole: Option<KeyHash>,
    pieces: Option<Box<Hasher>>,
}

impl KeyHasher {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, whole: None, pieces: None }
    }

    /// Takes a piece; `left` bytes of the key are to come.
    pub(crate) fn push(&mut self, piece: &[u8], left: u64) {
        match &mut self.pieces {
            None if left == 0 => self.whole = Some(KeyHash::of(self.seed, piece)),
            pieces => {
                let begin = || Box::new(Hasher::with_seed(self.seed));
                pieces.get_or_insert_with(begin).write(piece);
            }
        }
    }

    /// The hash of the key that was taken; the next one begins.
    pub(crate) fn take(&mut self) -> KeyHash {
        let whole = self.whole.take();
        match self.pieces.take() {
            Some(pieces) => KeyHash::from(pieces.finish_128()),
            // No piece at all is an empty key.
            None => whole.unwrap_or_else(|| KeyHash::of(self.seed, &[])),
        }
    }
}

impl std::fmt::Debug for KeyHasher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "KeyHasher({:?})", self.whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_of_a_key_have_the_hash_of_the_whole() {
        let key: Vec<u8> = (0..5000_u32).map(|it| (it * 7) as u8).collect();
        let mut hasher = KeyHasher::new(3);
        for length in [0, 1, 100, 5000] {
            let key = &key[..length];
            for piece_bytes in [1, 7, 240, 5000] {
                let mut left = length as u64;
                for piece in key.chunks(piece_bytes) {
                    left -= piece.len() as u64;
                    hasher.push(piece, left);
                }
                assert_eq!(hasher.take(), KeyHash::of(3, key), "{length} {piece_bytes}");
            }
        }
        assert_ne!(KeyHash::of(3, &key), KeyHash::of(4, &key));
    }
}
