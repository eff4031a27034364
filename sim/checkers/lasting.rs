//! What was acknowledged or read stays where it was.
//!
//! A loss of power may take the end of a log that was not synced, and only its end: what is there
//! of an earlier life stands before everything that is new.

use crate::checkers::compacted;
use crate::history::{Fate, Life, PartitionHistory, RecordId, Seen, Violation, ensure};

/// Takes down that `record` stood at `offset` in this life, which may be over.
pub fn observe(
    partition: &mut PartitionHistory,
    life: Life,
    offset: i64,
    record: RecordId,
) -> Result<(), Violation> {
    ensure(partition.batches.contains_key(&record.batch), || {
        format!("offset {offset} has {record:?}, which was sent to another partition")
    })?;
    if let Some(seen) = partition.log.get_mut(&offset) {
        if seen.record == record {
            seen.last_life = seen.last_life.max(life);
            return Ok(());
        }
        let before = *seen;
        if !partition.is_synced && life < before.first_life {
            // It was lost with its life, before the word of it arrived.
            return Ok(());
        }
        ensure(may_be_lost(partition, &before, life), || {
            format!("offset {offset} had {:?} and has {record:?} now", before.record)
        })?;
        lose_from(partition, offset, life, before.last_life).map_err(|violation| {
            Violation(format!("{violation}; it had {before:?} and has {record:?} now"))
        })?;
    }
    partition.log.insert(offset, Seen { record, first_life: life, last_life: life });
    Ok(())
}

/// Takes down that the broker acknowledged a batch at `base_offset`.
pub fn acknowledge(
    partition: &mut PartitionHistory,
    life: Life,
    batch: u64,
    base_offset: i64,
) -> Result<(), Violation> {
    let Some(sent) = partition.batches.get_mut(&batch) else {
        return Err(Violation(format!("batch {batch} was acknowledged and never sent")));
    };
    ensure(base_offset >= 0, || format!("batch {batch} was acknowledged at {base_offset}"))?;
    sent.fate = Fate::Acknowledged { base_offset, life };
    let count = sent.count;
    for index in 0..count {
        let record = RecordId { batch, index, count };
        observe(partition, life, base_offset + i64::from(index), record)?;
    }
    if partition.is_synced || life == partition.life {
        partition.end_shown = partition.end_shown.max(base_offset + i64::from(count));
    }
    Ok(())
}

/// Compares everything that is known with the whole log as it is now: how many records had to make
/// room for newer ones of their keys.
pub fn check_whole(
    partition: &mut PartitionHistory,
    log: &[(i64, RecordId)],
) -> Result<u64, Violation> {
    let life = partition.life;
    let start = partition.start;
    // What lies below `start_max` may have been deleted.
    let mut gone = partition.log.range(partition.start_max.min(start)..start);
    if let Some((offset, seen)) = gone.find(|(_, seen)| !may_be_lost(partition, seen, life)) {
        let record = seen.record;
        return Err(Violation(format!(
            "offset {offset} had {record:?}, the log begins at {start}"
        )));
    }
    partition.log.retain(|offset, _| *offset >= start);
    for &(offset, record) in log {
        observe(partition, life, offset, record)?;
    }
    if partition.is_compacted {
        return compacted::check(partition, log);
    }
    let end = log.last().map_or(start, |(offset, _)| offset + 1);
    if let Some((&offset, &seen)) = partition.log.range(end..).next() {
        ensure(may_be_lost(partition, &seen, life), || {
            format!("offset {offset} had {:?} and the log ends at {end} now", seen.record)
        })?;
        lose_from(partition, end, life, seen.last_life)?;
    }
    Ok(0)
}

/// Checks that a log that was cut by its size has as much as it is to keep.
pub fn check_size(partition: &PartitionHistory, bytes: u64) -> Result<(), Violation> {
    let keeps = partition.retention_bytes.filter(|_| partition.start > 0).unwrap_or(0);
    ensure(bytes >= keeps, || {
        format!("the log was cut to {bytes} bytes, and keeps {keeps} at least")
    })
}

fn may_be_lost(partition: &PartitionHistory, seen: &Seen, life: Life) -> bool {
    !partition.is_synced && seen.last_life < life
}

/// What stood at `offset` was there in the life `known` and is gone: so is everything behind it
/// that was known in that life.
fn lose_from(
    partition: &mut PartitionHistory,
    offset: i64,
    life: Life,
    known: Life,
) -> Result<(), Violation> {
    let survivor = partition
        .log
        .range(offset..)
        .find(|(_, seen)| seen.last_life == life && seen.first_life <= known);
    if let Some((&survivor, seen)) = survivor {
        return Err(Violation(format!(
            "offset {offset} lost what it had, while {survivor} still has {seen:?}",
        )));
    }
    let lost: Vec<i64> = partition
        .log
        .range(offset..)
        .filter(|(_, seen)| seen.last_life < life && seen.first_life <= known)
        .map(|(&offset, _)| offset)
        .collect();
    for offset in lost {
        partition.log.remove(&offset);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::history::SentBatch;

    use super::*;

    fn partition(is_synced: bool) -> PartitionHistory {
        let mut partition = PartitionHistory { is_synced, ..PartitionHistory::default() };
        for batch in 0..9 {
            let sent = SentBatch { count: 1, connection: 0, after: None, fate: Fate::Unknown };
            partition.batches.insert(batch, sent);
        }
        partition
    }

    fn one(batch: u64) -> RecordId {
        RecordId { batch, index: 0, count: 1 }
    }

    #[test]
    fn what_was_acknowledged_must_be_in_the_log() {
        let mut synced = partition(true);
        acknowledge(&mut synced, 0, 1, 0).expect("the first");
        acknowledge(&mut synced, 0, 2, 1).expect("the second");
        check_whole(&mut synced, &[(0, one(1)), (1, one(2))]).expect("both are there");
        synced.life = 1;
        check_whole(&mut synced, &[(0, one(1))]).expect_err("one is lost");
        check_whole(&mut synced, &[(0, one(1)), (1, one(3))]).expect_err("one was replaced");
    }

    #[test]
    fn without_a_sync_only_a_loss_of_power_takes_something() {
        let mut log = partition(false);
        acknowledge(&mut log, 0, 1, 0).expect("the first");
        check_whole(&mut log.clone(), &[]).expect_err("the power was not lost");
        log.life = 1;
        check_whole(&mut log, &[]).expect("the power was lost");
        assert!(log.log.is_empty());
    }

    #[test]
    fn what_was_deleted_may_be_gone_and_no_more() {
        let mut log = partition(true);
        for (offset, batch) in [(0, 1), (1, 2), (2, 3)] {
            acknowledge(&mut log, 0, batch, offset).expect("in order");
        }
        (log.start, log.start_max) = (1, 1);
        check_whole(&mut log.clone(), &[(1, one(2)), (2, one(3))]).expect("as was asked for");
        log.start = 2;
        check_whole(&mut log.clone(), &[(2, one(3))]).expect_err("one too many");
        log.retention_bytes = Some(10);
        check_size(&log, 10).expect("enough is left");
        check_size(&log, 9).expect_err("too much is gone");
    }

    #[test]
    fn a_loss_of_power_takes_the_end_and_no_hole() {
        let mut log = partition(false);
        for (offset, batch) in [(0, 1), (1, 2), (2, 3)] {
            acknowledge(&mut log, 0, batch, offset).expect("in order");
        }
        log.life = 1;
        let mut end_lost = log.clone();
        check_whole(&mut end_lost, &[(0, one(1)), (1, one(4)), (2, one(5))]).expect("the end");
        observe(&mut log, 1, 2, one(3)).expect("the last is still there");
        observe(&mut log, 1, 1, one(4)).expect_err("so the middle must be");
    }

    #[test]
    fn what_came_after_a_loss_may_stay() {
        let mut log = partition(false);
        acknowledge(&mut log, 0, 1, 0).expect("is lost, and nobody notices");
        log.life = 1;
        acknowledge(&mut log, 1, 3, 1).expect("stands behind its replacement");
        log.life = 2;
        check_whole(&mut log, &[(0, one(2)), (1, one(3))]).expect("of the second life");
    }

    #[test]
    fn word_of_an_earlier_life_can_come_late() {
        let mut log = partition(false);
        log.life = 1;
        observe(&mut log, 1, 0, one(4)).expect("new");
        acknowledge(&mut log, 0, 1, 0).expect("is lost already");
        assert_eq!((log.log[&0].record, log.end_shown), (one(4), 0));
    }
}
