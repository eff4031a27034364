//! What becomes of one batch.
//!
//! | record | stays |
//! |---|---|
//! | behind what the offset map covers | yes |
//! | without a key | no |
//! | with a key that has a newer record | no |
//! | newest of its key, with a value | yes |
//! | newest of its key, a tombstone | until the delete horizon of its batch has passed |
//!
//! | of a transaction that was aborted | no |
//! | a marker | as long as a batch of its transaction is there, then until the delete horizon |
//!
//! A batch gets its delete horizon, `delete.retention.ms` from now, when it is cleaned with a
//! tombstone or a needless marker in it for the first time (KIP-534): then what the tombstone
//! deletes is gone, and every consumer that began before has that long to see it. A batch that lost
//! all its records goes, or stays as an empty one where it is the last of its producer, whose
//! sequence or epoch it holds, or ends at the high watermark, which consumers must reach.

use base::{Map, Offset, ProducerEpoch, ProducerId};
use records::{Batch, BatchError, RetainedRecords, without_records};

use super::{Budget, Damage, Fate, KeyedRecord, OffsetMap, Ordered, OrderedKeys};
use crate::producers::ProducerState;

/// What decides.
#[derive(Debug)]
pub(crate) struct Filter<'a> {
    pub(crate) map: &'a OffsetMap,
    /// When the cleaning began, in milliseconds since 1970.
    pub(crate) now_ms: i64,
    pub(crate) delete_retention_ms: i64,
    /// Of each producer that is remembered.
    pub(crate) last_records: &'a Map<ProducerId, LastRecord>,
    pub(crate) high_watermark: Offset,
}

/// What the log must go on to know of a producer (`LastRecord`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastRecord {
    /// The batch that ends here has its sequence.
    Data(Offset),
    /// It wrote nothing in this epoch, which its markers have.
    Marker(ProducerEpoch),
}

/// What is left of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filtered {
    Nothing,
    All,
    Part(Batch),
}

/// How far a batch is gone over. Its records are read twice where some of them go: most batches
/// stay as they are, and need not be compressed again.
#[derive(Debug)]
pub(crate) struct Filtering {
    pass: Pass,
    fate: Fate,
    tally: Tally,
    /// Whether something in it goes when its time is over.
    wants_horizon: bool,
}

/// One at a time: each has a decompressor.
#[derive(Debug)]
enum Pass {
    Judging(OrderedKeys),
    Writing(RetainedRecords),
    Done,
}

impl Filtering {
    /// Begins with a batch, of which transactions say this.
    ///
    /// # Errors
    /// The batch is damaged.
    pub(crate) fn new(batch: &Batch, fate: Fate, hash_seed: u64) -> Result<Self, BatchError> {
        let pass = Pass::Judging(OrderedKeys::new(batch, hash_seed)?);
        let wants_horizon = fate == Fate::NeedlessMarker;
        Ok(Self { pass, fate, tally: Tally::default(), wants_horizon })
    }

    pub(crate) fn fate(&self) -> Fate {
        self.fate
    }
}

/// Which records of a batch stay.
#[derive(Debug, Default)]
struct Tally {
    kept: u32,
    dropped: u32,
    /// One bit for each record.
    bits: Vec<u64>,
}

impl Tally {
    /// Notes whether the next record stays.
    fn add(&mut self, stays: bool) {
        let index = self.kept + self.dropped;
        if index.is_multiple_of(u64::BITS) {
            self.bits.push(0);
        }
        if let Some(bits) = self.bits.last_mut() {
            *bits |= u64::from(stays) << (index % u64::BITS);
        }
        *(if stays { &mut self.kept } else { &mut self.dropped }) += 1;
    }

    fn stays(&self, index: u32) -> bool {
        let bits = self.bits.get((index / u64::BITS) as usize);
        bits.is_some_and(|bits| bits >> (index % u64::BITS) & 1 == 1)
    }
}

impl LastRecord {
    /// Of a producer that is remembered.
    pub(crate) fn of(state: &ProducerState) -> Self {
        match state.last_offset {
            Offset(0..) => Self::Data(state.last_offset),
            _ => Self::Marker(state.producer_epoch),
        }
    }
}

impl Filter<'_> {
    /// Goes on with a batch as far as the budget goes: what is left of it, when it is done.
    ///
    /// # Errors
    /// The batch is damaged.
    pub(crate) fn advance(
        &self,
        batch: &Batch,
        filtering: &mut Filtering,
        budget: &mut Budget,
    ) -> Result<Option<Filtered>, Damage> {
        let (fate, horizon) = (filtering.fate, batch.header().delete_horizon_ms());
        if self.is_gone(fate, horizon) {
            return Ok(Some(self.without_records(batch)));
        }
        if let Pass::Judging(keys) = &mut filtering.pass {
            loop {
                match keys.advance(budget)? {
                    Ordered::Paused => return Ok(None),
                    Ordered::Over => break,
                    Ordered::Record(record) => {
                        let stays = self.keeps(fate, record, horizon);
                        filtering.tally.add(stays);
                        filtering.wants_horizon |= stays && !record.has_value;
                    }
                }
            }
            if let Some(whole) = self.decide(batch, filtering) {
                return Ok(Some(whole));
            }
            let begins = filtering.wants_horizon && horizon.is_none();
            let horizon = begins.then(|| self.now_ms.saturating_add(self.delete_retention_ms));
            filtering.pass = Pass::Writing(RetainedRecords::new(batch, horizon)?);
        }
        let Filtering { pass: Pass::Writing(writing), tally, .. } = filtering else {
            return Ok(None);
        };
        if budget.is_spent() {
            return Ok(None);
        }
        let before = writing.plain_bytes();
        let is_done = writing.advance(budget.left_to_write(), |index| tally.stays(index))?;
        budget.writes(writing.plain_bytes() - before);
        if !is_done {
            return Ok(None);
        }
        match std::mem::replace(&mut filtering.pass, Pass::Done) {
            Pass::Writing(writing) => Ok(Some(Filtered::Part(writing.finish()))),
            _ => Ok(None),
        }
    }

    /// What becomes of a batch of which all is known, unless it has to be written anew.
    fn decide(&self, batch: &Batch, filtering: &Filtering) -> Option<Filtered> {
        let has_horizon = batch.header().delete_horizon_ms().is_some();
        match (filtering.tally.kept, filtering.tally.dropped) {
            (0, _) => Some(self.without_records(batch)),
            (_, 0) if !filtering.wants_horizon || has_horizon => Some(Filtered::All),
            _ => None,
        }
    }

    /// Whether all records go, without a look at them.
    fn is_gone(&self, fate: Fate, horizon: Option<i64>) -> bool {
        match fate {
            Fate::Records | Fate::Marker(_) => false,
            Fate::Aborted => true,
            Fate::NeedlessMarker => horizon.is_some_and(|horizon| horizon <= self.now_ms),
        }
    }

    /// What is left of a batch all of whose records go.
    fn without_records(&self, batch: &Batch) -> Filtered {
        let header = batch.header();
        match header.record_count {
            _ if !self.keeps_empty(batch) => Filtered::Nothing,
            0 => Filtered::All,
            _ => Filtered::Part(without_records(header)),
        }
    }

    fn keeps(&self, fate: Fate, record: KeyedRecord, horizon: Option<i64>) -> bool {
        if fate != Fate::Records || self.map.latest().is_none_or(|latest| record.offset > latest) {
            return true;
        }
        let Some(key) = record.key else { return false };
        let is_newest = self.map.get(key).is_none_or(|newest| record.offset >= newest);
        let has_time = horizon.is_none_or(|horizon| self.now_ms < horizon);
        is_newest && (record.has_value || has_time)
    }

    fn keeps_empty(&self, batch: &Batch) -> bool {
        let header = batch.header();
        let last_record = self.last_records.get(&header.producer_id);
        let is_last_of_producer = match last_record.filter(|_| header.has_producer_id()) {
            None => false,
            Some(LastRecord::Data(offset)) => header.last_offset() == *offset,
            Some(LastRecord::Marker(epoch)) => {
                header.is_control() && header.producer_epoch == *epoch
            }
        };
        is_last_of_producer || header.next_offset() == self.high_watermark
    }
}

#[cfg(test)]
mod tests {
    use base::ProducerEpoch;
    use records::{BatchBuilder, Compression, GZIP_LEVEL_DEFAULT, NewRecord, Record};

    use super::*;
    use crate::cleaner::KeyHash;

    const SEED: u64 = 7;

    type Pair = (Option<&'static str>, Option<&'static str>);

    fn batch(base: i64, compression: Compression, pairs: &[Pair]) -> BatchBuilder {
        let mut builder = BatchBuilder::new(Offset(base), compression);
        for (index, (key, value)) in pairs.iter().enumerate() {
            let (key, value) = (key.map(str::as_bytes), value.map(str::as_bytes));
            let timestamp = 1000 + index as i64;
            builder.append(&NewRecord { timestamp, key, value, ..NewRecord::default() });
        }
        builder
    }

    fn map(newest: &[(&str, i64)], latest: i64) -> OffsetMap {
        let mut map = OffsetMap::new(1 << 16, 0.9, 100);
        newest.iter().for_each(|(key, offset)| {
            assert!(map.put(KeyHash::of(SEED, key.as_bytes()), Offset(*offset)));
        });
        map.reach(Offset(latest));
        map
    }

    /// Cleans at 5000 with `delete.retention.ms` of 100.
    fn filtered(map: &OffsetMap, batch: &Batch) -> Filtered {
        filtered_at(map, batch, 5000, Offset(1 << 40))
    }

    fn filtered_at(map: &OffsetMap, batch: &Batch, now_ms: i64, end: Offset) -> Filtered {
        filtered_as(Fate::Records, map, batch, now_ms, end)
    }

    fn filtered_as(
        fate: Fate,
        map: &OffsetMap,
        batch: &Batch,
        now_ms: i64,
        high_watermark: Offset,
    ) -> Filtered {
        let last_records = [
            (ProducerId(7), LastRecord::Data(Offset(11))),
            (ProducerId(9), LastRecord::Marker(ProducerEpoch(4))),
        ];
        let last_records = &last_records.into_iter().collect();
        let filter = Filter { map, now_ms, delete_retention_ms: 100, last_records, high_watermark };
        let mut filtering = Filtering::new(batch, fate, SEED).expect("it is whole");
        loop {
            // A record at a time: nothing depends on where it pauses.
            let left = filter.advance(batch, &mut filtering, &mut Budget::new(1));
            if let Some(left) = left.expect("it is whole") {
                return left;
            }
        }
    }

    fn content(batch: &Batch) -> Vec<(i64, i64, Option<String>, Option<String>)> {
        let text = |it: Option<&[u8]>| it.map(|it| String::from_utf8_lossy(it).into_owned());
        let mut found = Vec::new();
        let mut records = batch.records(1 << 20).expect("readable");
        while let Some(record) = records.next_record().expect("readable") {
            let Record { offset, timestamp, key, value, .. } = record;
            found.push((offset.0, timestamp, text(key), text(value)));
        }
        found
    }

    const A1: Pair = (Some("a"), Some("1"));
    const B2: Pair = (Some("b"), Some("2"));
    const DELETE_A: Pair = (Some("a"), None);

    #[test]
    fn superseded_records_go_and_the_rest_keeps_its_place() {
        let gzip = Compression::Gzip { level: GZIP_LEVEL_DEFAULT };
        for compression in [Compression::None, gzip, Compression::Snappy, Compression::Lz4] {
            let given = batch(10, compression, &[A1, B2, (None, Some("3"))]).build();
            let Filtered::Part(left) = filtered(&map(&[("a", 20), ("b", 11)], 20), &given) else {
                panic!("part of it stays")
            };
            left.check_crc().expect("it was computed");
            let b = (11, 1001, Some("b".to_owned()), Some("2".to_owned()));
            assert_eq!(content(&left), [b], "{compression:?}");
            let (before, after) = (given.header(), left.header());
            assert_eq!(after.base_offset, before.base_offset);
            assert_eq!(after.last_offset(), before.last_offset());
            assert_eq!((after.codec(), after.record_count), (before.codec(), 1));
            assert_eq!(after.max_timestamp, 1001);
            assert_eq!(filtered(&map(&[("a", 20), ("b", 11)], 20), &left), Filtered::All);
        }
    }

    #[test]
    fn what_the_map_does_not_cover_stays() {
        let given = batch(10, Compression::None, &[A1, B2, (None, Some("3"))]).build();
        assert_eq!(filtered(&map(&[("a", 5)], 9), &given), Filtered::All);
        assert_eq!(filtered(&OffsetMap::new(1 << 10, 0.9, 10), &given), Filtered::All);
        let Filtered::Part(left) = filtered(&map(&[("a", 11)], 11), &given) else {
            panic!("part of it stays")
        };
        assert_eq!(content(&left).iter().map(|it| it.0).collect::<Vec<_>>(), [11, 12]);
    }

    #[test]
    fn a_tombstone_gets_a_horizon_and_goes_when_it_has_passed() {
        let given = batch(10, Compression::None, &[DELETE_A, B2]).build();
        let newest = map(&[("a", 10), ("b", 11)], 11);
        let Filtered::Part(marked) = filtered(&newest, &given) else { panic!("it is marked") };
        assert_eq!(marked.header().delete_horizon_ms(), Some(5100));
        assert_eq!(content(&marked).iter().map(|it| it.1).collect::<Vec<_>>(), [1000, 1001]);
        let at = |now_ms| filtered_at(&newest, &marked, now_ms, Offset(1 << 40));
        assert_eq!(at(5099), Filtered::All);
        let Filtered::Part(left) = at(5100) else { panic!("the tombstone goes") };
        assert_eq!(content(&left).iter().map(|it| it.0).collect::<Vec<_>>(), [11]);
        assert_eq!(left.header().delete_horizon_ms(), Some(5100), "a horizon stays");
    }

    #[test]
    fn an_empty_batch_stays_for_its_producer_or_at_the_end() {
        let gone = map(&[("a", 20), ("b", 21)], 21);
        let table = [
            (7, 10, 1 << 40, true),
            (8, 10, 1 << 40, false),
            (7, 12, 1 << 40, false),
            (-1, 10, 12, true),
            (-1, 10, 13, false),
        ];
        for (producer, base, end, stays) in table {
            let builder = batch(base, Compression::Lz4, &[A1, B2]);
            let given = builder.producer(ProducerId(producer), ProducerEpoch(3), 40).build();
            let left = filtered_at(&gone, &given, 5000, Offset(end));
            if !stays {
                assert_eq!(left, Filtered::Nothing, "{producer} {base}");
                continue;
            }
            let Filtered::Part(left) = left else { panic!("{producer} {base} stays") };
            left.check_crc().expect("it was computed");
            let (before, after) = (given.header(), left.header());
            assert_eq!((left.size(), after.record_count), (records::HEADER_BYTES, 0));
            assert_eq!((after.base_offset, after.last_offset()), (Offset(10), Offset(11)));
            assert_eq!(after.last_sequence(), before.last_sequence());
            assert_eq!(after.max_timestamp, before.max_timestamp);
            let again = filtered_at(&gone, &left, 5000, Offset(end));
            assert_eq!(again, Filtered::All, "it is empty already");
        }
    }
}
