//! The end of a log that was shown never goes back while the machine keeps its power.

use crate::history::{Life, PartitionHistory, Violation, ensure};

/// What was known when a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    life: Life,
    end: i64,
}

impl Floor {
    /// What is known of a partition now.
    pub fn of(partition: &PartitionHistory) -> Self {
        Self { life: partition.life, end: partition.end_shown }
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
        // The start of the log may have been lost with the power, too.
        let is_lost = partition.may_begin_later();
        ensure(is_lost || !self.binds(partition) || offset > self.end, || {
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
