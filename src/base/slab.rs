//! A slab: what is in flight, each named by a token that cannot be mistaken for a later one.

/// Names one entry of a [`Slab`]: its index, and the generation of what stands there.
///
/// A token outlives its entry harmlessly: once the entry is removed the token finds nothing, even
/// when the index is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    index: u32,
    generation: u32,
}

impl Token {
    /// A token for an operation whose end nobody waits for.
    pub const NONE: Token = Token { index: u32::MAX, generation: u32::MAX };

    /// A token made of its two halves, as a driver keeps it across a system call.
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: (bits >> 32) as u32, generation: bits as u32 }
    }

    /// The two halves in one word.
    pub const fn to_bits(self) -> u64 {
        ((self.index as u64) << 32) | self.generation as u64
    }

    /// The index in the slab, small and dense: it can index a table beside the slab.
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

#[derive(Clone, Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// A bounded store of values that are named by [`Token`]s.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    limit: usize,
}

impl<T> Slab<T> {
    /// An empty slab that holds at most `limit` values at once.
    ///
    /// # Panics
    /// If `limit` does not leave [`Token::NONE`] free.
    pub fn new(limit: usize) -> Self {
        assert!(limit < u32::MAX as usize, "a slab of {limit} entries has no room for tokens");
        Self { entries: Vec::new(), free: Vec::new(), limit }
    }

    /// How many values it holds.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a further insert would be refused.
    pub fn is_full(&self) -> bool {
        self.len() == self.limit
    }

    /// Keeps `value`, or gives it back when the slab is full.
    pub fn insert(&mut self, value: T) -> Result<Token, T> {
        if let Some(index) = self.free.pop() {
            let entry = &mut self.entries[index as usize];
            entry.value = Some(value);
            return Ok(Token { index, generation: entry.generation });
        }
        if self.entries.len() == self.limit {
            return Err(value);
        }
        let index = u32::try_from(self.entries.len()).expect("the limit fits a u32");
        self.entries.push(Entry { generation: 0, value: Some(value) });
        Ok(Token { index, generation: 0 })
    }

    /// The value that `token` names, if it is still there.
    pub fn get(&self, token: Token) -> Option<&T> {
        let entry = self.entries.get(token.index())?;
        if entry.generation == token.generation { entry.value.as_ref() } else { None }
    }

    /// The value that `token` names, if it is still there, to be changed.
    pub fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let entry = self.entries.get_mut(token.index())?;
        if entry.generation == token.generation { entry.value.as_mut() } else { None }
    }

    /// Takes out the value that `token` names, if it is still there.
    pub fn remove(&mut self, token: Token) -> Option<T> {
        let entry = self.entries.get_mut(token.index())?;
        if entry.generation != token.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(token.index);
        Some(value)
    }

    /// How many places it has: their indexes lie below.
    pub fn places(&self) -> usize {
        self.entries.len()
    }

    /// The value in a place, if there is one, with its token.
    pub fn at(&self, index: usize) -> Option<(Token, &T)> {
        let entry = self.entries.get(index)?;
        let index = u32::try_from(index).expect("the limit fits a u32");
        let token = Token { index, generation: entry.generation };
        entry.value.as_ref().map(|value| (token, value))
    }

    /// Every value with its token, in order of index.
    pub fn iter(&self) -> impl Iterator<Item = (Token, &T)> {
        (0..self.places()).filter_map(|index| self.at(index))
    }

    /// Every value with its token, in order of index, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Token, &mut T)> {
        self.entries.iter_mut().enumerate().filter_map(|(index, entry)| {
            let index = u32::try_from(index).expect("the limit fits a u32");
            let token = Token { index, generation: entry.generation };
            entry.value.as_mut().map(|value| (token, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_never_finds_a_later_value_at_its_index() {
        let mut slab = Slab::new(1);
        let first = slab.insert("first").expect("room");
        assert_eq!(slab.insert("second"), Err("second"));
        assert_eq!(slab.remove(first), Some("first"));
        assert_eq!((slab.places(), slab.at(0), slab.at(1)), (1, None, None));
        let second = slab.insert("second").expect("room");
        assert_eq!(slab.at(0), Some((second, &"second")));
        assert_eq!(first.index(), second.index());
        assert_eq!((slab.get(first), slab.get(second)), (None, Some(&"second")));
        assert_eq!(slab.remove(first), None);
        assert_eq!(Token::from_bits(second.to_bits()), second);
        assert_eq!(slab.iter().collect::<Vec<_>>(), vec![(second, &"second")]);
    }
}
