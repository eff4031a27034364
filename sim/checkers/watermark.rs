//! The end of a log that was shown never goes back while the machine keeps its power, and its
//! start never while the node runs.

use crate::history::{Boot, Incarnation, Life, PartitionHistory, Violation, ensure};

/// What was known when a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    life: Life,
    boot: Boot,
    incarnation: Incarnation,
    start: i64,
    end: i64,
}

impl Floor {
    /// What is known of a partition now.
    pub fn of(partition: &PartitionHistory) -> Self {
        Self {
            life: partition.life,
            boot: partition.boot,
            incarnation: partition.incarnation,
            start: partition.start,
            end: partition.end_shown,
        }
    }

    /// Whether the topic was deleted since, or may have been: nobody knows which one an answer
    /// speaks of.
    pub fn is_of_another_topic(self, partition: &PartitionHistory) -> bool {
        self.incarnation != partition.incarnation || partition.is_doomed
    }

    /// Whether the node was started anew since.
    pub fn is_of_earlier_boot(self, partition: &PartitionHistory) -> bool {
        self.boot != partition.boot
    }

    /// The end of the log that answers must not fall behind, if there is one.
    pub fn end(self, partition: &PartitionHistory) -> Option<i64> {
        self.binds(partition).then_some(self.end)
    }

    /// Takes down the start of the log that an answer shows. True if it has moved.
    pub fn check_start(
        self,
        partition: &mut PartitionHistory,
        start: i64,
    ) -> Result<bool, Violation> {
        let start_max = partition.start_max;
        ensure(start <= start_max || partition.may_begin_later(), || {
            format!("the log begins at {start}, and nothing was deleted from {start_max} on")
        })?;
        if self.boot != partition.boot {
            return Ok(false);
        }
        ensure(start >= self.start, || {
            format!("the log began at {} and begins at {start} now", self.start)
        })?;
        let moved = start > partition.start;
        partition.start = partition.start.max(start);
        Ok(moved)
    }

    /// Takes down the end of the log that an answer shows.
    pub fn check(self, partition: &mut PartitionHistory, end: i64) -> Result<(), Violation> {
        let binds = self.binds(partition);
        ensure(!binds || end >= self.end, || {
            format!("the log was shown up to {} and ends at {end} now", self.end)
        })?;
        if binds {
            partition.end_shown = partition.end_shown.max(end);
        }
        Ok(())
    }

    /// Checks that a broker may say that `offset` is not in the log.
    pub fn check_out_of_range(
        self,
        partition: &PartitionHistory,
        offset: i64,
    ) -> Result<(), Violation> {
        // The start of the log may have been deleted, or lost with the power.
        let is_gone = offset < partition.start_max || partition.may_begin_later();
        ensure(is_gone || !self.binds(partition) || offset > self.end, || {
            format!("offset {offset} is out of range, and the log was shown up to {}", self.end)
        })
    }

    /// Checks that a new batch was appended behind everything that was shown.
    pub fn check_new(
        self,
        partition: &PartitionHistory,
        base_offset: i64,
    ) -> Result<(), Violation> {
        ensure(!self.binds(partition) || base_offset >= self.end, || {
            format!("a new batch is at {base_offset}, and the log was shown up to {}", self.end)
        })
    }

    fn binds(self, partition: &PartitionHistory) -> bool {
        partition.is_synced || self.life == partition.life
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_goes_back_only_with_the_node_and_moves_only_where_it_may() {
        let mut log = PartitionHistory { start_max: 5, ..PartitionHistory::default() };
        let floor = Floor::of(&log);
        floor.check_start(&mut log, 6).expect_err("nobody deleted that much");
        assert_eq!(floor.check_start(&mut log, 5), Ok(true));
        floor.check_out_of_range(&log, 4).expect("it was deleted");
        assert_eq!(floor.check_start(&mut log, 4), Ok(false), "it was asked for before");
        let floor = Floor::of(&log);
        floor.check_start(&mut log, 4).expect_err("went back");
        (log.boot, log.start) = (1, 0);
        floor.check_start(&mut log, 4).expect("is said of an earlier boot");
        assert_eq!(log.start, 0);
    }

    #[test]
    fn the_end_goes_back_only_with_the_power_and_without_syncs() {
        let mut unsynced = PartitionHistory { end_shown: 5, ..PartitionHistory::default() };
        let floor = Floor::of(&unsynced);
        floor.check(&mut unsynced, 4).expect_err("went back");
        floor.check_out_of_range(&unsynced, 5).expect_err("5 is the end");
        floor.check_out_of_range(&unsynced, 6).expect("is behind the end");
        unsynced.life = 1;
        floor.check(&mut unsynced, 4).expect("the power was lost");
        let mut synced = PartitionHistory { is_synced: true, ..unsynced };
        floor.check(&mut synced, 4).expect_err("it was synced");
    }
}
