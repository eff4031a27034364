//! An ordered map whose versions share what did not change.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The most entries of one chunk.
const CHUNK_ENTRIES_MAX: usize = 128;
/// Two neighbours that have no more than this many entries together become one.
const CHUNK_ENTRIES_JOIN: usize = CHUNK_ENTRIES_MAX / 2;

type Chunk<K, V> = Arc<Vec<(K, V)>>;

/// An ordered map that is cheap to clone and cheap to change after a clone.
///
/// The entries stand in sorted chunks behind reference counts. A clone shares all of them; the
/// first change after it copies one chunk and the list of chunks, so that at 100,000 entries a
/// change costs some microseconds. [`SharedMap::changes_since`] compares two versions by their
/// chunks, at the cost of what differs.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedMap<K, V> {
    /// Sorted, none of them empty.
    chunks: Arc<Vec<Chunk<K, V>>>,
    entries: usize,
}

/// How one entry differs between two versions of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a, K, V> {
    /// It is only in the newer one.
    Added(&'a K, &'a V),
    /// It is only in the older one.
    Removed(&'a K, &'a V),
    /// It is in both, with other values.
    Changed {
        /// The key.
        key: &'a K,
        /// The value in the older version.
        old: &'a V,
        /// The value in the newer version.
        new: &'a V,
    },
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self { chunks: Arc::default(), entries: 0 }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.chunks.iter().flat_map(|chunk| chunk.iter());
        formatter.debug_map().entries(entries.map(|(key, value)| (key, value))).finish()
    }
}

impl<K, V> SharedMap<K, V> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Every entry, in order of its key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> + Clone {
        self.chunks.iter().flat_map(|chunk| chunk.iter().map(|(key, value)| (key, value)))
    }

    /// Every value, in order of its key.
    pub fn values(&self) -> impl Iterator<Item = &V> + Clone {
        self.iter().map(|(_, value)| value)
    }

    /// Every key, in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> + Clone {
        self.iter().map(|(key, _)| key)
    }
}

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    /// The value of `key`.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        let position = position_in(chunk, key).ok()?;
        chunk.get(position).map(|(_, value)| value)
    }

    /// The value of `key`, to be changed: what other versions share of it is copied first.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let index = self.chunk_of(key);
        let position = position_in(self.chunks.get(index)?, key).ok()?;
        let chunk = Arc::make_mut(&mut Arc::make_mut(&mut self.chunks)[index]);
        Some(&mut chunk[position].1)
    }

    /// Whether there is an entry of `key`.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// The entries whose key is at least `from`, in order.
    pub fn range_from<Q: Ord + ?Sized>(&self, from: &Q) -> impl Iterator<Item = (&K, &V)>
    where
        K: Borrow<Q>,
    {
        let index = self.chunk_of(from);
        let skip = self.chunks.get(index).map_or(0, |chunk| match position_in(chunk, from) {
            Ok(position) | Err(position) => position,
        });
        let chunks = self.chunks.iter().skip(index).flat_map(|chunk| chunk.iter());
        chunks.skip(skip).map(|(key, value)| (key, value))
    }

    /// Sets the value of `key` and returns the one that it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let index = self.chunk_of(&key);
        let chunks = Arc::make_mut(&mut self.chunks);
        if chunks.is_empty() {
            chunks.push(Arc::new(vec![(key, value)]));
            self.entries = 1;
            return None;
        }
        // A key behind the last one goes to the end of the last chunk.
        let index = index.min(chunks.len() - 1);
        let chunk = Arc::make_mut(&mut chunks[index]);
        match position_in(chunk, &key) {
            Ok(position) => Some(std::mem::replace(&mut chunk[position].1, value)),
            Err(position) => {
                chunk.insert(position, (key, value));
                self.entries += 1;
                if chunk.len() > CHUNK_ENTRIES_MAX {
                    let upper = chunk.split_off(CHUNK_ENTRIES_MAX / 2);
                    chunks.insert(index + 1, Arc::new(upper));
                }
                None
            }
        }
    }

    /// Removes the entry of `key` and returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let index = self.chunk_of(key);
        let position = position_in(self.chunks.get(index)?, key).ok()?;
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = Arc::make_mut(&mut chunks[index]);
        let (_, value) = chunk.remove(position);
        self.entries -= 1;
        let left = chunk.len();
        if left == 0 {
            chunks.remove(index);
        } else if chunks.get(index + 1).is_some_and(|next| left + next.len() <= CHUNK_ENTRIES_JOIN)
        {
            let next = chunks.remove(index + 1);
            Arc::make_mut(&mut chunks[index]).extend(next.iter().cloned());
        }
        Some(value)
    }

    /// The chunk that holds `key`, or would hold it; one behind the last where `key` is behind all.
    fn chunk_of<Q: Ord + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.chunks
            .partition_point(|chunk| chunk.last().is_some_and(|(last, _)| last.borrow() < key))
    }
}

impl<K: Ord, V: PartialEq> SharedMap<K, V> {
    /// What differs between `old` and this version, in order of the keys.
    pub fn changes_since<'a>(&'a self, old: &'a Self) -> Vec<Change<'a, K, V>> {
        let mut changes = Vec::new();
        if Arc::ptr_eq(&self.chunks, &old.chunks) {
            return changes;
        }
        let (mut olds, mut news) = (Cursor::new(&old.chunks), Cursor::new(&self.chunks));
        loop {
            if olds.at_same_chunk(&news) {
                olds.skip_chunk();
                news.skip_chunk();
                continue;
            }
            match (olds.entry(), news.entry()) {
                (None, None) => return changes,
                (Some((key, value)), None) => {
                    changes.push(Change::Removed(key, value));
                    olds.step();
                }
                (None, Some((key, value))) => {
                    changes.push(Change::Added(key, value));
                    news.step();
                }
                (Some((old_key, old)), Some((new_key, new))) => match old_key.cmp(new_key) {
                    Ordering::Less => {
                        changes.push(Change::Removed(old_key, old));
                        olds.step();
                    }
                    Ordering::Greater => {
                        changes.push(Change::Added(new_key, new));
                        news.step();
                    }
                    Ordering::Equal => {
                        if old != new {
                            changes.push(Change::Changed { key: new_key, old, new });
                        }
                        olds.step();
                        news.step();
                    }
                },
            }
        }
    }
}

fn position_in<K, V, Q>(chunk: &[(K, V)], key: &Q) -> Result<usize, usize>
where
    K: Borrow<Q>,
    Q: Ord + ?Sized,
{
    chunk.binary_search_by(|(entry, _)| entry.borrow().cmp(key))
}

/// A place in a list of chunks.
struct Cursor<'a, K, V> {
    chunks: &'a [Chunk<K, V>],
    position: usize,
}

impl<'a, K, V> Cursor<'a, K, V> {
    fn new(chunks: &'a [Chunk<K, V>]) -> Self {
        Self { chunks, position: 0 }
    }

    /// Whether both stand at the beginning of one chunk that their maps share.
    fn at_same_chunk(&self, other: &Self) -> bool {
        match (self.chunks.first(), other.chunks.first()) {
            (Some(mine), Some(theirs)) => {
                self.position == 0 && other.position == 0 && Arc::ptr_eq(mine, theirs)
            }
            _ => false,
        }
    }

    fn entry(&self) -> Option<(&'a K, &'a V)> {
        let (key, value) = self.chunks.first()?.get(self.position)?;
        Some((key, value))
    }

    fn step(&mut self) {
        self.position += 1;
        if self.chunks.first().is_some_and(|chunk| self.position == chunk.len()) {
            self.skip_chunk();
        }
    }

    fn skip_chunk(&mut self) {
        self.chunks = self.chunks.get(1..).unwrap_or_default();
        self.position = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn changes_by_comparison(
        old: &BTreeMap<u16, u8>,
        new: &BTreeMap<u16, u8>,
    ) -> Vec<(u16, Option<u8>, Option<u8>)> {
        let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).copied().collect();
        let pairs =
            keys.into_iter().map(|key| (key, old.get(&key).copied(), new.get(&key).copied()));
        pairs.filter(|(_, before, after)| before != after).collect()
    }

    fn flat(change: &Change<'_, u16, u8>) -> (u16, Option<u8>, Option<u8>) {
        match *change {
            Change::Added(key, new) => (*key, None, Some(*new)),
            Change::Removed(key, old) => (*key, Some(*old), None),
            Change::Changed { key, old, new } => (*key, Some(*old), Some(*new)),
        }
    }

    proptest! {
        #[test]
        fn it_is_a_map_and_its_versions_stay(
            before: Vec<(u16, Option<u8>)>,
            after: Vec<(u16, Option<u8>)>,
            probe: u16,
        ) {
            let (mut map, mut model) = (SharedMap::default(), BTreeMap::new());
            let mut apply = |steps: Vec<(u16, Option<u8>)>| {
                for (key, value) in steps {
                    // Few keys, so that they meet, over enough chunks to split and join them.
                    let key = key % 1_000;
                    match value {
                        Some(value) => {
                            prop_assert_eq!(map.insert(key, value), model.insert(key, value));
                        }
                        None => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    }
                }
                Ok((map.clone(), model.clone()))
            };
            let (old, old_model) = apply(before)?;
            let (new, new_model) = apply(after)?;
            for (map, model) in [(&old, &old_model), (&new, &new_model)] {
                prop_assert_eq!(map.len(), model.len());
                prop_assert!(map.iter().eq(model.iter()));
                prop_assert_eq!(map.get(&probe), model.get(&probe));
                prop_assert!(map.range_from(&probe).eq(model.range(probe..)));
            }
            let changes: Vec<_> = new.changes_since(&old).iter().map(flat).collect();
            prop_assert_eq!(changes, changes_by_comparison(&old_model, &new_model));
        }
    }

    #[test]
    fn a_small_change_copies_one_chunk() {
        let mut map: SharedMap<u32, u32> = SharedMap::default();
        for key in 0..100_000 {
            map.insert(key, key);
        }
        let old = map.clone();
        map.insert(50_000, 0);
        let shared = map.chunks.iter().filter(|chunk| Arc::strong_count(chunk) == 1).count();
        assert_eq!(shared, 1, "one chunk is not shared with the older version");
        assert_eq!(
            map.changes_since(&old),
            [Change::Changed { key: &50_000, old: &50_000, new: &0 }]
        );
        for key in 0..100_000 {
            assert!(map.remove(&key).is_some());
        }
        assert!(map.is_empty() && map.chunks.is_empty());
        assert_eq!(old.len(), 100_000);
    }
}
