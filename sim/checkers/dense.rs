//! What a fetch brings has no gap and no overlap, and every batch is whole and its own. Of a log
//! that is compacted records are missing, but none has moved.

use base::Offset;
use bytes::Bytes;
use records::Batches;

use crate::history::{RecordId, Violation, ensure};

/// The most that the records of one batch of the workload take.
const RECORD_BYTES_MAX: usize = 1 << 20;

/// What a fetch brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What stands at each offset.
    pub records: Vec<(i64, RecordId)>,
    /// The offset behind the last whole batch, or the one that was asked for.
    pub next: i64,
}

/// Reads the records of a fetch from `fetch_offset`: what stands at each offset from there on.
///
/// The first batch may begin before that offset, since a broker sends batches whole; the last one
/// may be cut where the bytes that were asked for end.
pub fn read(fetch_offset: i64, bytes: &Bytes, is_compacted: bool) -> Result<Found, Violation> {
    let mut found = Vec::new();
    let mut next: Option<Offset> = None;
    for batch in Batches::new(bytes.clone()) {
        let batch = batch.map_err(|error| broken(fetch_offset, &error))?;
        let header = batch.header();
        match next {
            Some(next) if is_compacted => ensure(header.base_offset >= next, || {
                format!("after offset {} comes a batch at {}", next.0 - 1, header.base_offset)
            })?,
            None if is_compacted => ensure(fetch_offset <= header.last_offset().0, || {
                let last = header.last_offset();
                format!("a fetch from {fetch_offset} begins with a batch that ends at {last}")
            })?,
            Some(next) => ensure(header.base_offset == next, || {
                format!("after offset {} comes a batch at {}", next.0 - 1, header.base_offset)
            })?,
            None => ensure(
                header.base_offset.0 <= fetch_offset && fetch_offset <= header.last_offset().0,
                || {
                    let (first, last) = (header.base_offset, header.last_offset());
                    format!("a fetch from {fetch_offset} begins with a batch of {first} to {last}")
                },
            )?,
        }
        next = Some(header.next_offset());
        batch.check_crc().map_err(|error| broken(header.base_offset.0, &error))?;
        read_batch(&batch, is_compacted, &mut found)?;
    }
    found.retain(|(offset, _)| *offset >= fetch_offset);
    let next = next.map_or(fetch_offset, |next| next.0);
    Ok(Found { records: found, next })
}

/// How many bytes the whole batches of a fetch have.
pub fn whole_bytes(bytes: &Bytes) -> u64 {
    Batches::new(bytes.clone()).map_while(Result::ok).map(|batch| batch.size() as u64).sum()
}

fn read_batch(
    batch: &records::Batch,
    is_compacted: bool,
    found: &mut Vec<(i64, RecordId)>,
) -> Result<(), Violation> {
    let header = batch.header();
    let base = header.base_offset.0;
    let mut reader = batch.records(RECORD_BYTES_MAX).map_err(|error| broken(base, &error))?;
    let mut index = 0;
    let mut first = None;
    while let Some(record) = reader.next_record().map_err(|error| broken(base, &error))? {
        let mut headers = record.headers;
        let name = record.value.or_else(|| headers.next()?.value);
        let id = name.and_then(RecordId::read);
        let id = id.filter(|id| id.is_tombstone() == record.value.is_none());
        let id = id.ok_or_else(|| {
            Violation(format!("the record at offset {} was never sent", record.offset))
        })?;
        ensure(record.key == Some(&id.key_bytes()), || {
            format!("{id:?} at offset {} has the key {:?}", record.offset, record.key)
        })?;
        let of = *first.get_or_insert(id.batch);
        if is_compacted {
            let count = header.next_offset().0 - base;
            ensure(id.index >= index && i64::from(id.count) == count, || {
                format!("{id:?} stands behind record {index} of the batch of {count} at {base}")
            })?;
            index = id.index;
        }
        ensure(
            record.offset.0 == base + i64::from(index) && id.index == index && id.batch == of,
            || format!("record {index} of the batch at {base} is {id:?} at {}", record.offset),
        )?;
        ensure(is_compacted || i64::from(id.count) == i64::from(header.record_count), || {
            format!("the batch at {base} has {} records of {}", header.record_count, id.count)
        })?;
        found.push((record.offset.0, id));
        index += 1;
    }
    ensure(is_compacted || i64::from(index) == header.next_offset().0 - base, || {
        format!("the batch at {base} has {index} records up to {}", header.last_offset())
    })
}

fn broken(offset: i64, error: &records::BatchError) -> Violation {
    Violation(format!("what is at offset {offset} is no batch: {error}"))
}

#[cfg(test)]
mod tests {
    use records::{Batch, BatchBuilder, Compression, NewRecord, RetainedRecords, without_records};

    use super::*;

    fn batch(base_offset: i64, batch: u64, count: u32) -> Vec<u8> {
        let mut builder = BatchBuilder::new(Offset(base_offset), Compression::None);
        for index in 0..count {
            let record = RecordId { batch, index, count };
            let (key, value) = (record.key_bytes(), record.value(20));
            let (key, value) = (Some(&key[..]), Some(&value[..]));
            builder.append(&NewRecord { key, value, ..NewRecord::default() });
        }
        builder.build().bytes().to_vec()
    }

    fn check(fetch_offset: i64, batches: &[Vec<u8>]) -> Result<usize, String> {
        let bytes = Bytes::from(batches.concat());
        let found = read(fetch_offset, &bytes, false);
        found.map(|found| found.records.len()).map_err(|violation| violation.0)
    }

    #[test]
    fn compaction_leaves_gaps_and_moves_nothing() {
        let check = |fetch_offset, batches: &[Vec<u8>]| {
            read(fetch_offset, &Bytes::from(batches.concat()), true)
        };
        let whole = Batch::read(&Bytes::from(batch(3, 1, 3))).expect("a batch").expect("whole");
        let mut part = RetainedRecords::new(&whole, None).expect("a known codec");
        assert_eq!(part.advance(usize::MAX, |index| index == 1), Ok(true), "the second of three");
        let part = part.finish().bytes().to_vec();
        let empty = without_records(whole.header()).bytes().to_vec();
        let found = check(1, &[part.clone(), batch(8, 2, 1)]).expect("two gaps");
        assert_eq!(found.records.iter().map(|it| it.0).collect::<Vec<_>>(), [4, 8]);
        assert_eq!(found.next, 9);
        let nothing = Found { records: Vec::new(), next: 6 };
        assert_eq!(check(4, &[empty]), Ok(nothing));
        check(6, &[batch(3, 1, 3)]).expect_err("too early");
        check(3, &[part.clone(), batch(5, 2, 1)]).expect_err("an overlap");
        read(3, &Bytes::from(part), false).expect_err("it is not compacted");
    }

    #[test]
    fn dense_batches_pass_and_the_rest_does_not() {
        assert_eq!(check(4, &[batch(3, 1, 3), batch(6, 2, 1)]), Ok(3));
        assert_eq!(check(0, &[]), Ok(0));
        let mut cut = batch(6, 2, 1);
        cut.pop();
        assert_eq!(check(3, &[batch(3, 1, 3), cut]), Ok(3));
        assert!(check(3, &[batch(3, 1, 3), batch(7, 2, 1)]).expect_err("gap").contains("after"));
        assert!(check(2, &[batch(3, 1, 3)]).expect_err("too late").contains("begins with"));
        assert!(check(6, &[batch(3, 1, 3)]).expect_err("too early").contains("begins with"));
        let mut flipped = batch(0, 1, 1);
        let last = flipped.len() - 3;
        flipped[last] ^= 1;
        assert!(check(0, &[flipped]).expect_err("CRC").contains("no batch"));
    }
}
