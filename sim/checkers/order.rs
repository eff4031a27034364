//! Batches of one connection, or of one idempotent producer, stand in the log in the order they
//! were sent, each of them once; those of a producer without a gap.

use std::collections::BTreeMap;

use crate::history::{BatchId, PartitionHistory, RecordId, Violation, ensure};

/// Checks the whole log of a partition.
pub fn check(partition: &PartitionHistory, log: &[(i64, RecordId)]) -> Result<(), Violation> {
    let mut offsets: BTreeMap<BatchId, i64> = BTreeMap::new();
    let mut last_of_connection: BTreeMap<u64, (BatchId, i64)> = BTreeMap::new();
    for &(offset, record) in log {
        // Compaction may have taken the first records of a batch.
        let offset = offset - i64::from(record.index);
        if let Some(first) = offsets.insert(record.batch, offset) {
            let batch = record.batch;
            ensure(first == offset, || format!("batch {batch} stands at {first} and at {offset}"))?;
            continue;
        }
        let Some(sent) = partition.batches.get(&record.batch) else { continue };
        let before = last_of_connection.insert(sent.connection, (record.batch, offset));
        if let Some((batch, at)) = before {
            ensure(batch < record.batch, || {
                format!("batch {} was sent before {batch}, which is at {at}", record.batch)
            })?;
            let follows = sent.after.is_none_or(|after| after == batch);
            ensure(follows || partition.is_compacted, || {
                format!("between batch {batch} at {at} and {} one is missing", record.batch)
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::history::{Fate, SentBatch};

    use super::*;

    #[test]
    fn order_and_doubles() {
        let mut partition = PartitionHistory::default();
        for (batch, connection) in [(1, 7), (2, 7), (3, 8)] {
            let sent = SentBatch { count: 1, connection, after: None, fate: Fate::Unknown };
            partition.batches.insert(batch, sent);
        }
        for (batch, after) in [(4, None), (5, Some(4)), (6, Some(5))] {
            let sent = SentBatch { count: 1, connection: 9, after, fate: Fate::Unknown };
            partition.batches.insert(batch, sent);
        }
        let log = |batches: &[u64]| -> Vec<(i64, RecordId)> {
            let record = |&batch| RecordId { batch, index: 0, count: 1 };
            (0..).zip(batches.iter().map(record)).collect()
        };
        check(&partition, &log(&[3, 1, 2])).expect("in order on each connection");
        check(&partition, &log(&[1, 3])).expect("one was lost");
        check(&partition, &log(&[2, 3, 1])).expect_err("out of order");
        check(&partition, &log(&[1, 1])).expect_err("twice");
        check(&partition, &log(&[4, 1, 5, 2, 6])).expect("none of the producer's is missing");
        check(&partition, &log(&[5, 6])).expect("the first was lost with what was known of it");
        check(&partition, &log(&[4, 6])).expect_err("a gap");
    }
}
