//! The check of one batch of a Produce request. A batch of one megabyte can hold gigabytes of
//! records, so that a check pauses where a turn of the core has no more time for it.

use base::Now;
use bytes::Bytes;
use records::{
    Batch, BatchError, CheckedRecords, Compression, MaxTimestamp, Rebuild, RecordsCheck,
    TimestampType,
};

use crate::rules::TopicRules;

/// How much longer a byte takes to be compressed than to be looked at.
const REBUILD_COST: usize = 8;

/// The check of one batch.
#[derive(Debug)]
pub(crate) struct Check {
    batch: Batch,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Its header and checksum are right.
    Begun,
    /// Its records are walked over.
    Records(Box<RecordsCheck>),
    /// It is written anew, with the offsets or the compression that it should have.
    Rebuild(Box<Rebuild>, MaxTimestamp),
}

impl Check {
    /// Begins with what is cheap: the header and the checksum.
    pub(crate) fn begin(rules: &TopicRules, now: Now, records: &Bytes) -> Result<Self, BatchError> {
        // Zstandard is refused below version 7 of Produce where the request is decoded.
        let batch = records::single_batch(records, true)?;
        batch.check_produced(&rules.produce(now.wall_ms))?;
        Ok(Self { batch, stage: Stage::Begun })
    }

    /// Goes on for as many decompressed bytes as `budget` has, and takes from it what it used.
    /// `None` says that there is more to do, else the batch is accepted, and this is what its
    /// header has to say of its timestamps. What is not compressed and stays so costs nothing: it
    /// is no longer than what was received. After a result it must not be called again.
    pub(crate) fn advance(
        &mut self,
        rules: &TopicRules,
        now: Now,
        budget: &mut usize,
    ) -> Result<Option<MaxTimestamp>, BatchError> {
        if matches!(self.stage, Stage::Begun) {
            let is_plain = !self.batch.header().is_compressed();
            if !is_plain && *budget == 0 {
                return Ok(None);
            }
            let mut records = self.batch.check_records(&rules.produce(now.wall_ms))?;
            let walked = records.advance(if is_plain { usize::MAX } else { *budget });
            if !is_plain {
                spend(budget, records.plain_bytes());
            }
            match walked? {
                Some(walked) if self.stays(rules, &walked) => {
                    return Ok(Some(max_timestamp(rules, now, &walked)));
                }
                Some(walked) => self.rebuild(rules, now, &walked)?,
                None => self.stage = Stage::Records(Box::new(records)),
            }
        }
        self.advance_long(rules, now, budget)
    }

    /// The batch as it is to be appended, once it is accepted.
    pub(crate) fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Whether it has begun to decompress.
    #[cfg(test)]
    pub(crate) fn has_window(&self) -> bool {
        !matches!(self.stage, Stage::Begun)
    }

    fn advance_long(
        &mut self,
        rules: &TopicRules,
        now: Now,
        budget: &mut usize,
    ) -> Result<Option<MaxTimestamp>, BatchError> {
        if let Stage::Records(records) = &mut self.stage {
            let before = records.plain_bytes();
            let walked = records.advance(*budget);
            spend(budget, records.plain_bytes() - before);
            let Some(walked) = walked? else { return Ok(None) };
            if self.stays(rules, &walked) {
                return Ok(Some(max_timestamp(rules, now, &walked)));
            }
            self.rebuild(rules, now, &walked)?;
        }
        let Stage::Rebuild(rebuild, _) = &mut self.stage else {
            unreachable!("what is not walked over is written anew")
        };
        let before = rebuild.plain_bytes();
        let is_done = rebuild.advance(*budget / REBUILD_COST);
        spend(budget, (rebuild.plain_bytes() - before) * REBUILD_COST as u64);
        if !is_done? {
            return Ok(None);
        }
        let Stage::Rebuild(rebuild, max_timestamp) =
            std::mem::replace(&mut self.stage, Stage::Begun)
        else {
            unreachable!("it was written anew a moment ago")
        };
        self.batch = rebuild.finish()?;
        Ok(Some(max_timestamp))
    }

    /// Whether a batch whose records are right is appended as it came.
    fn stays(&self, rules: &TopicRules, walked: &CheckedRecords) -> bool {
        walked.offsets_contiguous && self.other_compression(rules).is_none()
    }

    /// The compression that the topic wants and the batch has not.
    fn other_compression(&self, rules: &TopicRules) -> Option<Compression> {
        rules.compression.filter(|wanted| self.batch.header().codec() != Ok(wanted.codec()))
    }

    fn rebuild(
        &mut self,
        rules: &TopicRules,
        now: Now,
        walked: &CheckedRecords,
    ) -> Result<(), BatchError> {
        let compression = self.other_compression(rules);
        let compression = compression.unwrap_or_else(|| rules.same_compression(&self.batch));
        let rebuild = Rebuild::new(&self.batch, compression, rules.batch_bytes_max)?;
        self.stage = Stage::Rebuild(Box::new(rebuild), max_timestamp(rules, now, walked));
        Ok(())
    }
}

fn max_timestamp(rules: &TopicRules, now: Now, walked: &CheckedRecords) -> MaxTimestamp {
    match rules.timestamp_type {
        TimestampType::CreateTime => MaxTimestamp::CreateTime(walked.max_timestamp),
        TimestampType::LogAppendTime => MaxTimestamp::LogAppendTime(now.wall_ms),
    }
}

fn spend(budget: &mut usize, bytes: u64) {
    *budget = budget.saturating_sub(usize::try_from(bytes).unwrap_or(usize::MAX));
}

#[cfg(test)]
mod tests {
    use base::{Instant, Offset};
    use config::{BrokerConfig, Pairs};
    use records::{BatchBuilder, NewRecord};

    use super::*;

    const NOW: Now = Now { mono: Instant::ZERO, wall_ms: 1_000 };
    const RECORDS: usize = 500;
    const RECORD_BYTES: usize = 100;

    fn batch(compression: Compression) -> Bytes {
        let mut builder = BatchBuilder::new(Offset(0), compression);
        for _ in 0..RECORDS {
            let value = Some(&[7; RECORD_BYTES][..]);
            builder.append(&NewRecord { value, timestamp: 900, ..NewRecord::default() });
        }
        builder.build().bytes().clone()
    }

    fn rules(wanted: Option<Compression>) -> TopicRules {
        let text = "process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://:9092\n\
                    controller.listener.names=C\ncontroller.quorum.voters=7@c:9093\n\
                    listener.security.protocol.map=PLAINTEXT:PLAINTEXT,C:PLAINTEXT\n";
        let broker = BrokerConfig::parse(text.as_bytes()).expect("it is valid");
        let topic = broker.topic_config(&Pairs::new()).expect("defaults are valid");
        TopicRules { compression: wanted, ..TopicRules::of(&topic, &broker) }
    }

    /// What a check says that has so much of a budget each time, and how often it paused.
    fn check(rules: &TopicRules, records: &Bytes, portion: usize) -> (Batch, MaxTimestamp, usize) {
        let mut check = Check::begin(rules, NOW, records).expect("it is right");
        let mut pauses = 0;
        loop {
            let mut budget = portion;
            match check.advance(rules, NOW, &mut budget).expect("it is right") {
                Some(max_timestamp) => return (check.batch, max_timestamp, pauses),
                None => pauses += 1,
            }
        }
    }

    #[test]
    fn a_check_that_pauses_says_what_one_says_that_does_not() {
        const PORTION: usize = 8_000;
        let plain_bytes = RECORDS * RECORD_BYTES;
        let (gzip, zstd) = (Compression::Gzip { level: 1 }, Compression::Zstd { level: 1 });
        let walk = plain_bytes / PORTION;
        for (sent, wanted, pauses_min) in [
            (Compression::None, None, 0),
            (zstd, None, walk),
            (zstd, Some(gzip), walk + walk * REBUILD_COST),
            (Compression::None, Some(gzip), walk * REBUILD_COST),
        ] {
            let (rules, records) = (rules(wanted), batch(sent));
            let (whole, whole_timestamp, none) = check(&rules, &records, usize::MAX);
            let (paused, timestamp, pauses) = check(&rules, &records, PORTION);
            assert_eq!((paused.bytes(), timestamp), (whole.bytes(), whole_timestamp));
            assert_eq!(paused.header().codec(), Ok(wanted.unwrap_or(sent).codec()));
            assert_eq!(none, 0, "{sent:?} to {wanted:?}");
            // A portion ends behind a record, so that there are somewhat fewer.
            let expected = pauses_min * 7 / 10..=pauses_min * 13 / 10;
            assert!(expected.contains(&pauses), "{sent:?} to {wanted:?}: {pauses}");
        }
    }

    #[test]
    fn without_a_budget_only_what_costs_nothing_is_done() {
        let rules = rules(None);
        let mut plain = Check::begin(&rules, NOW, &batch(Compression::None)).expect("right");
        assert!(plain.advance(&rules, NOW, &mut 0).expect("right").is_some());
        let mut packed = Check::begin(&rules, NOW, &batch(Compression::Lz4)).expect("right");
        assert!(packed.advance(&rules, NOW, &mut 0).expect("right").is_none());
        assert!(matches!(packed.stage, Stage::Begun), "it has no window yet");
    }
}
