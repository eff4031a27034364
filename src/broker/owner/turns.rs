//! The moves that have something to copy, in the order of their turns.

use std::collections::BTreeMap;

use base::{Map, Token};

/// Each stands here once. Those that appends wait for come before all others.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// By whether it can wait, and when it came.
    order: BTreeMap<(bool, u64), Token>,
    places: Map<Token, (bool, u64)>,
    next: u64,
}

impl Turns {
    /// A move has its turn after the others, unless it waits for one already.
    pub(super) fn add(&mut self, token: Token, is_urgent: bool) {
        if self.places.get(&token).is_some_and(|(can_wait, _)| *can_wait != is_urgent) {
            return;
        }
        self.remove(token);
        let place = (!is_urgent, self.next);
        self.next += 1;
        self.order.insert(place, token);
        self.places.insert(token, place);
    }

    /// It has nothing to copy for now.
    pub(super) fn remove(&mut self, token: Token) {
        if let Some(place) = self.places.remove(&token) {
            self.order.remove(&place);
        }
    }

    /// The next ones, at most so many.
    pub(super) fn take(&mut self, count: usize) -> Vec<Token> {
        let next: Vec<Token> = self.order.values().take(count).copied().collect();
        next.iter().for_each(|token| self.remove(*token));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_turn_once_and_the_urgent_ones_are_first() {
        let [a, b, c, d] = [1, 2, 3, 4].map(Token::from_bits);
        let mut turns = Turns::default();
        for (token, is_urgent) in [(a, false), (b, false), (a, false), (c, true), (d, false)] {
            turns.add(token, is_urgent);
        }
        // It has become urgent.
        turns.add(b, true);
        turns.remove(d);
        assert_eq!(turns.take(2), [c, b]);
        turns.add(c, true);
        turns.add(b, false);
        assert_eq!(turns.take(9), [c, a, b]);
        assert_eq!(turns.take(9), []);
    }
}
