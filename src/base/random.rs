//! Randomness that is a function of its seed.

/// A small seeded generator (xoshiro256++, seeded by SplitMix64).
///
/// Everything that is random in a machine comes from one of these, given at construction, so that
/// a simulation repeats. Each concern takes a stream of its own with [`Random::fork`]: a further
/// draw in one place then changes nothing elsewhere. It is no source of secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// A generator whose whole sequence follows from `seed`.
    pub fn new(seed: u64) -> Self {
        let mut mix = seed;
        let state = std::array::from_fn(|_| {
            mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = mix;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ (word >> 31)
        });
        Self { state }
    }

    /// A stream of its own for the concern called `name`; the parent's sequence is not advanced.
    pub fn fork(&self, name: &str) -> Random {
        let mut seed = self.state[0] ^ self.state[3].rotate_left(17);
        for byte in name.bytes() {
            seed = (seed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Random::new(seed)
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c2, d2) = (c ^ a, d ^ b);
        self.state = [a ^ d2, b ^ c2, c2 ^ (b << 17), d2.rotate_left(45)];
        result
    }

    /// A number from 0 up to, not including, `bound`.
    ///
    /// # Panics
    /// If `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a random number below zero was asked for");
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("the upper half of a u128 fits a u64")
    }

    /// True in `percent` of 100 draws.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_one_sequence_and_forks_differ() {
        let draw = |mut random: Random| -> Vec<u64> { (0..8).map(|_| random.next_u64()).collect() };
        assert_eq!(draw(Random::new(7)), draw(Random::new(7)));
        assert_ne!(draw(Random::new(7)), draw(Random::new(8)));
        let root = Random::new(7);
        assert_ne!(draw(root.fork("disk")), draw(root.fork("network")));
        assert_eq!(draw(root.fork("disk")), draw(root.fork("disk")));
    }

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let mut random = Random::new(1);
        let mut seen = [false; 6];
        for _ in 0..1_000 {
            seen[usize::try_from(random.below(6)).expect("small")] = true;
        }
        assert_eq!(seen, [true; 6]);
    }
}
