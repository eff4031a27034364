//! A log that is compacted keeps the newest record of each key where it was. Only one that deletes
//! the key may be gone, once its time is over and nothing older of the key is left; and nothing
//! older comes back.

use std::collections::BTreeMap;

use crate::history::{PartitionHistory, RecordId, Violation, ensure};

/// Compares what is known to have been in a log with the whole of it as it is now, and forgets what
/// had to make room: how many records.
///
/// What has the log in `partition` has been taken down before.
pub fn check(partition: &mut PartitionHistory, log: &[(i64, RecordId)]) -> Result<u64, Violation> {
    let before = partition.log.iter().map(|(offset, seen)| (*offset, seen.record));
    let before: Vec<(i64, RecordId)> = before.collect();
    none_is_back(partition, log)?;
    let gone = is_left(partition, &before, log)?;
    partition.deleted.extend(gone);
    let now: BTreeMap<i64, RecordId> = log.iter().copied().collect();
    partition.log.retain(|offset, _| now.contains_key(offset));
    Ok((before.len() - partition.log.len()) as u64)
}

/// Checks that nothing is in a log that is older than a tombstone of its key which has gone.
pub fn none_is_back(
    partition: &PartitionHistory,
    log: &[(i64, RecordId)],
) -> Result<(), Violation> {
    for (offset, record) in log {
        let deleted = partition.deleted.get(&record.key());
        ensure(deleted.is_none_or(|deleted| deleted < offset), || {
            format!("{record:?} at {offset} is back, whose key was deleted at {deleted:?}")
        })?;
    }
    Ok(())
}

/// Checks that `after` has all of `before`, but for records that have a newer one of their key, and
/// for tombstones that need not be kept once nothing is left that they delete: the keys of those,
/// and their offsets.
pub fn is_left(
    partition: &PartitionHistory,
    before: &[(i64, RecordId)],
    after: &[(i64, RecordId)],
) -> Result<BTreeMap<u64, i64>, Violation> {
    let perhaps_deleted = partition.perhaps_deleted();
    let mut gone = BTreeMap::new();
    let now: BTreeMap<i64, RecordId> = after.iter().copied().collect();
    let mut newest: BTreeMap<u64, (i64, RecordId)> = BTreeMap::new();
    for &(offset, record) in before.iter().chain(after) {
        let of_key = newest.entry(record.key()).or_insert((offset, record));
        *of_key = (*of_key).max((offset, record));
    }
    for (offset, record) in newest.into_values() {
        let key = record.key();
        if now.get(&offset) == Some(&record) {
            continue;
        }
        if record.is_tombstone() {
            ensure(!partition.keeps_tombstones, || {
                format!("{record:?} at {offset} deletes key {key}, is to be kept, and is gone")
            })?;
            gone.insert(key, offset);
            let older = after.iter().find(|(_, older)| older.key() == key);
            ensure(older.is_none(), || {
                format!("{record:?} at {offset} deleted {older:?} of key {key}, and is gone")
            })?;
        } else if !perhaps_deleted.contains(&key) {
            return Err(Violation(format!(
                "offset {offset} had {record:?}, the newest of key {key}, which is gone"
            )));
        }
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use crate::history::{Fate, Seen, SentBatch};

    use super::*;

    #[test]
    fn only_what_has_a_newer_record_of_its_key_may_go() {
        let one = |batch| RecordId { batch, index: 0, count: 1 };
        let other = |batch| (0..).find(|other| one(*other).key() != one(batch).key());
        let (a, newer_a) = (one(1), RecordId { batch: 0, index: 1, count: 2 });
        assert_eq!(a.key(), newer_a.key());
        let b = one(other(1).expect("there are several keys"));
        let mut partition = PartitionHistory { is_compacted: true, ..PartitionHistory::default() };
        for (offset, record) in [(0, a), (1, b), (2, newer_a)] {
            partition.log.insert(offset, Seen { record, first_life: 0, last_life: 0 });
        }
        let all = [(0, a), (1, b), (2, newer_a)];
        assert_eq!(check(&mut partition.clone(), &all), Ok(0));
        assert_eq!(check(&mut partition.clone(), &all[1..]), Ok(1));
        check(&mut partition.clone(), &all[..2]).expect_err("the newest is gone");
        check(&mut partition, &[(0, a), (2, newer_a)]).expect_err("the only one is gone");
    }

    #[test]
    fn a_tombstone_goes_with_what_it_deletes_and_not_before() {
        let tombstone = RecordId { batch: 3, index: 1, count: 2 };
        let older = RecordId { batch: 4, index: 0, count: 1 };
        assert!(tombstone.is_tombstone() && !older.is_tombstone());
        assert_eq!(tombstone.key(), older.key());
        let both = [(0, older), (1, tombstone)];
        let mut log = PartitionHistory { is_compacted: true, ..PartitionHistory::default() };
        is_left(&log, &both, &both[1..]).expect("what it deletes goes first");
        is_left(&log, &both, &[]).expect("then it goes");
        is_left(&log, &both, &both[..1]).expect_err("it comes back");
        is_left(&log, &both[..1], &[]).expect_err("nothing deletes it");
        let keeps = PartitionHistory { keeps_tombstones: true, ..log.clone() };
        is_left(&keeps, &both, &both[1..]).expect("the tombstone is there");
        is_left(&keeps, &both, &[]).expect_err("its time is not over");
        let sent = SentBatch { count: 2, connection: 0, after: None, fate: Fate::Unknown };
        log.batches.insert(tombstone.batch, sent);
        is_left(&log, &both[..1], &[]).expect("something may have deleted it");
    }

    #[test]
    fn what_was_deleted_does_not_come_back() {
        let tombstone = RecordId { batch: 3, index: 1, count: 2 };
        let older = RecordId { batch: 4, index: 0, count: 1 };
        let mut log = PartitionHistory { is_compacted: true, ..PartitionHistory::default() };
        for (offset, record) in [(0, older), (1, tombstone)] {
            log.log.insert(offset, Seen { record, first_life: 0, last_life: 0 });
        }
        assert_eq!(check(&mut log, &[]), Ok(2), "both are gone");
        check(&mut log.clone(), &[(2, older)]).expect("it is written again");
        check(&mut log, &[(0, older)]).expect_err("it is back");
    }
}
