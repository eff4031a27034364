//! A log that is compacted keeps the newest record of each key where it was.

use std::collections::BTreeMap;

use crate::history::{PartitionHistory, RecordId, Violation};

/// Compares what is known to have been in a log with the whole of it as it is now, and forgets what
/// had to make room: how many records.
///
/// What has the log in `partition` has been taken down before.
pub fn check(partition: &mut PartitionHistory, log: &[(i64, RecordId)]) -> Result<u64, Violation> {
    let before = partition.log.iter().map(|(offset, seen)| (*offset, seen.record));
    let before: Vec<(i64, RecordId)> = before.collect();
    is_left(&before, log)?;
    let now: BTreeMap<i64, RecordId> = log.iter().copied().collect();
    partition.log.retain(|offset, _| now.contains_key(offset));
    Ok((before.len() - partition.log.len()) as u64)
}

/// Checks that `after` has all of `before`, but for records that have a newer one of their key.
pub fn is_left(before: &[(i64, RecordId)], after: &[(i64, RecordId)]) -> Result<(), Violation> {
    let now: BTreeMap<i64, RecordId> = after.iter().copied().collect();
    let newest: BTreeMap<u64, i64> = after.iter().map(|(at, record)| (record.key(), *at)).collect();
    for (offset, record) in before {
        let newer = newest.get(&record.key()).is_some_and(|newest| newest > offset);
        if !newer && now.get(offset) != Some(record) {
            return Err(Violation(format!(
                "offset {offset} had {record:?}, the newest of key {}, which is gone",
                record.key()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::history::Seen;

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
}
