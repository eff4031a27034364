//! Which offset is the newest of each key, in a bounded piece of memory (`SkimpyOffsetMap`).

use base::Offset;

use super::KeyHash;

/// What a key takes, in bytes: 16 of its hash, and its offset.
const SLOT_BYTES: usize = 24;

/// The newest offsets by hash of the key. Two keys with the same 128 bits of hash would be taken
/// for one; so they are in Kafka, whose hash is MD5.
#[derive(Debug)]
pub(crate) struct OffsetMap {
    /// The halves of the hash, and the offset plus one: all zero is an empty slot.
    slots: Vec<[u64; 3]>,
    used: usize,
    used_max: usize,
    latest: Option<Offset>,
}

impl OffsetMap {
    /// Takes at most `bytes_max` of memory, of which it fills the part `load_factor`, and no more
    /// than `records_max` records need.
    pub(crate) fn new(bytes_max: usize, load_factor: f64, records_max: u64) -> Self {
        let load_factor = load_factor.clamp(0.1, 0.95);
        let most = (bytes_max / SLOT_BYTES).max(2);
        let needed = (records_max as f64 / load_factor) as usize + 2;
        let slots = most.min(needed);
        let used_max = ((slots as f64 * load_factor) as usize).clamp(1, slots - 1);
        Self { slots: vec![[0; 3]; slots], used: 0, used_max, latest: None }
    }

    /// Notes that `key` stands at `offset`, which rises from call to call. False, and nothing is
    /// noted, when there is no room for a further key.
    pub(crate) fn put(&mut self, key: KeyHash, offset: Offset) -> bool {
        let place = self.place(key);
        if self.slots[place][2] == 0 {
            if self.used >= self.used_max {
                return false;
            }
            self.used += 1;
        }
        self.slots[place] = [key.low, key.high, offset.0 as u64 + 1];
        self.latest = Some(offset);
        true
    }

    /// The newest offset of `key`.
    pub(crate) fn get(&self, key: KeyHash) -> Option<Offset> {
        let found = self.slots[self.place(key)][2];
        found.checked_sub(1).map(|offset| Offset(offset as i64))
    }

    /// Everything up to here was noted, whether it had a key or not.
    pub(crate) fn reach(&mut self, offset: Offset) {
        self.latest = self.latest.max(Some(offset));
    }

    /// Up to where records were noted, if any were.
    pub(crate) fn latest(&self) -> Option<Offset> {
        self.latest
    }

    /// How many keys were noted.
    pub(crate) fn keys(&self) -> usize {
        self.used
    }

    /// Where a hash stands, or belongs: there is always an empty slot.
    fn place(&self, KeyHash { low, high }: KeyHash) -> usize {
        let count = self.slots.len();
        let mut place = ((u128::from(low) * count as u128) >> 64) as usize;
        loop {
            let [found_low, found_high, offset] = self.slots[place];
            if offset == 0 || (found_low == low && found_high == high) {
                return place;
            }
            place = if place + 1 == count { 0 } else { place + 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(key: &[u8]) -> KeyHash {
        KeyHash::of(7, key)
    }

    #[test]
    fn the_newest_offset_of_a_key_is_found() {
        let mut map = OffsetMap::new(1 << 20, 0.9, 1000);
        for offset in 0..1000_i64 {
            assert!(map.put(hash(format!("k{}", offset % 300).as_bytes()), Offset(offset)));
        }
        for key in 0..300_i64 {
            let newest = if key < 100 { 900 + key } else { 600 + key };
            assert_eq!(map.get(hash(format!("k{key}").as_bytes())), Some(Offset(newest)), "{key}");
        }
        assert_eq!(map.get(hash(b"other")), None);
        assert_eq!((map.keys(), map.latest()), (300, Some(Offset(999))));
    }

    #[test]
    fn keys_that_meet_in_one_place_do_not_with_another_seed() {
        let map = OffsetMap::new(1 << 20, 0.9, 1 << 16);
        let place = |seed, key: &[u8]| map.place(KeyHash::of(seed, key));
        let (known, other) = (0, 1);
        let keys: Vec<[u8; 8]> = (0..1_000_000_u64).map(u64::to_be_bytes).collect();
        let chosen: Vec<_> = keys.iter().filter(|key| place(known, *key) < 8).collect();
        assert!(chosen.len() > 100, "{}", chosen.len());
        let meeting = chosen.iter().filter(|key| place(other, **key) < 8).count();
        assert!(meeting < 5, "{meeting} of {}", chosen.len());
    }

    #[test]
    fn memory_bounds_the_keys() {
        let mut map = OffsetMap::new(100 * SLOT_BYTES, 0.9, 1 << 40);
        let taken =
            (0..200_i64).take_while(|it| map.put(hash(&it.to_be_bytes()), Offset(*it))).count();
        assert_eq!(taken, 90);
        assert!(
            map.put(hash(&5_i64.to_be_bytes()), Offset(300)),
            "a key that is there needs no room"
        );
        assert_eq!(map.get(hash(&5_i64.to_be_bytes())), Some(Offset(300)));
        let small = OffsetMap::new(1 << 30, 0.9, 10);
        assert!(small.slots.len() < 20, "no more than the records need");
    }
}
