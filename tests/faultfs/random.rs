//! Choices that follow from a seed.

/// The generator SplitMix64: small, and each seed is as good as any other.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Everything follows from `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    ///
    /// # Panics
    /// When that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
