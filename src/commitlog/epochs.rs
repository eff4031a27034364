//! Which leader epoch each part of a log was written in (`LeaderEpochFileCache`, KIP-101,
//! KIP-279): the epochs with the offset at which each began.

use base::{LeaderEpoch, Offset};

/// The epochs of a log, both epochs and offsets rising.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Epochs {
    entries: Vec<(LeaderEpoch, Offset)>,
}

impl Epochs {
    /// Takes over what a checkpoint held. Entries that contradict later ones are dropped.
    pub(crate) fn from_entries(entries: Vec<(LeaderEpoch, Offset)>) -> Self {
        let mut epochs = Self::default();
        for (epoch, start) in entries {
            epochs.assign(epoch, start);
        }
        epochs
    }

    /// The entries, oldest first.
    pub(crate) fn entries(&self) -> &[(LeaderEpoch, Offset)] {
        &self.entries
    }

    /// The latest epoch.
    pub(crate) fn latest(&self) -> Option<LeaderEpoch> {
        self.entries.last().map(|(epoch, _)| *epoch)
    }

    /// Says that `epoch` began at `start`: whether anything changed. What contradicts it goes.
    pub(crate) fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        if let Some(&(latest, latest_start)) = self.entries.last()
            && latest == epoch
            && start >= latest_start
        {
            return false;
        }
        while self.entries.pop_if(|(other, at)| *other >= epoch || *at >= start).is_some() {}
        self.entries.push((epoch, start));
        true
    }

    /// Drops the epochs that began at `end` or later: whether anything changed.
    pub(crate) fn truncate_from_end(&mut self, end: Offset) -> bool {
        let before = self.entries.len();
        self.entries.retain(|(_, start)| *start < end);
        self.entries.len() != before
    }

    /// Drops the epochs that ended before `start`; the one that reaches into it begins there
    /// from now on. Returns whether anything changed.
    pub(crate) fn truncate_from_start(&mut self, start: Offset) -> bool {
        let covered = self.entries.iter().take_while(|(_, at)| *at <= start).count();
        if covered == 0 || (covered == 1 && self.entries[0].1 == start) {
            return false;
        }
        self.entries.drain(..covered - 1);
        self.entries[0].1 = start;
        true
    }

    /// Forgets everything: whether there was anything.
    pub(crate) fn clear(&mut self) -> bool {
        let any = !self.entries.is_empty();
        self.entries.clear();
        any
    }

    /// The epoch in which the record at `offset` was written, as far as it is known.
    pub(crate) fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let reached = self.entries.partition_point(|(_, start)| *start <= offset);
        Some(self.entries.get(reached.checked_sub(1)?)?.0)
    }

    /// Where `epoch` ended, with the largest epoch up to it that the log knows; `None` for an
    /// epoch that is unknown. The latest one ends at `log_end` (`endOffsetFor`).
    pub(crate) fn end_offset_for(
        &self,
        epoch: LeaderEpoch,
        log_end: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        if epoch == LeaderEpoch::NONE {
            return None;
        }
        if self.latest() == Some(epoch) {
            return Some((epoch, log_end));
        }
        let above = self.entries.partition_point(|(other, _)| *other <= epoch);
        let (_, end) = self.entries.get(above)?;
        // An epoch before the first known one ends where that one begins: what lay between is
        // gone from the log.
        let floor = above.checked_sub(1).map_or(epoch, |index| self.entries[index].0);
        Some((floor, *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Entries = &'static [(i32, i64)];

    fn epochs(entries: &[(i32, i64)]) -> Epochs {
        let entries = entries.iter().map(|(epoch, at)| (LeaderEpoch(*epoch), Offset(*at)));
        Epochs::from_entries(entries.collect())
    }

    #[test]
    fn a_new_epoch_drops_what_contradicts_it() {
        let table: &[(Entries, (i32, i64), Entries)] = &[
            (&[], (0, 0), &[(0, 0)]),
            (&[(0, 0)], (0, 5), &[(0, 0)]),
            (&[(1, 5)], (1, 3), &[(1, 3)]),
            (&[(0, 0), (1, 5)], (2, 5), &[(0, 0), (2, 5)]),
            (&[(0, 0), (1, 5), (2, 9)], (3, 4), &[(0, 0), (3, 4)]),
            (&[(0, 0), (2, 9)], (1, 12), &[(0, 0), (1, 12)]),
        ];
        for (before, (epoch, start), after) in table {
            let mut all = epochs(before);
            let changed = all.assign(LeaderEpoch(*epoch), Offset(*start));
            assert_eq!(all, epochs(after), "{before:?}");
            assert_eq!(changed, before != after);
        }
    }

    #[test]
    fn truncation_at_both_ends() {
        let mut all = epochs(&[(0, 0), (1, 5), (3, 9)]);
        assert!(!all.truncate_from_end(Offset(10)));
        assert!(all.truncate_from_end(Offset(9)));
        assert_eq!(all, epochs(&[(0, 0), (1, 5)]));
        assert!(!all.truncate_from_start(Offset(0)));
        assert!(all.truncate_from_start(Offset(4)));
        assert_eq!(all, epochs(&[(0, 4), (1, 5)]));
        assert!(all.truncate_from_start(Offset(7)));
        assert_eq!(all, epochs(&[(1, 7)]));
        assert!(all.clear());
    }

    #[test]
    fn end_offsets_as_kafka_answers() {
        let all = epochs(&[(2, 10), (4, 20), (7, 30)]);
        let table = [
            (-1, None),
            (0, Some((0, 10))),
            (2, Some((2, 20))),
            (3, Some((2, 20))),
            (4, Some((4, 30))),
            (6, Some((4, 30))),
            (7, Some((7, 42))),
            (8, None),
        ];
        for (epoch, expected) in table {
            let expected = expected.map(|(epoch, end)| (LeaderEpoch(epoch), Offset(end)));
            let found = all.end_offset_for(LeaderEpoch(epoch), Offset(42));
            assert_eq!(found, expected, "epoch {epoch}");
        }
        assert_eq!(all.epoch_at(Offset(9)), None);
        assert_eq!(all.epoch_at(Offset(25)), Some(LeaderEpoch(4)));
    }
}
