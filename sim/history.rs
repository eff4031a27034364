//! What the clients know: what was sent, what was acknowledged, and what was read where.
//!
//! It is plain memory. Whether something that came is allowed is decided in `checkers`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base::{TopicId, Uuid};

/// Something that must not happen, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A violation, unless `holds`.
pub fn ensure(holds: bool, sentence: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation(sentence())) }
}

/// A batch of the workload, never sent twice.
pub type BatchId = u64;

/// Counts the losses of power: what was not synced may be gone in the next life.
pub type Life = u32;

/// What a record says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordId {
    /// Its batch.
    pub batch: BatchId,
    /// Which record of the batch it is, from 0.
    pub index: u32,
    /// How many the batch has.
    pub count: u32,
}

impl RecordId {
    /// The value of a record: its name, and padding up to `bytes`.
    pub fn value(self, bytes: usize) -> Vec<u8> {
        let mut value = format!("{}:{}:{}:", self.batch, self.index, self.count).into_bytes();
        // The padding differs from batch to batch, so that mixed-up bytes do not go unnoticed.
        let letter = b'a' + (self.batch % 26) as u8;
        value.resize(value.len().max(bytes), letter);
        value
    }

    /// Reads the name back, and checks the padding.
    pub fn read(value: &[u8]) -> Option<Self> {
        let mut fields = value.splitn(4, |&byte| byte == b':');
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<u64>().ok();
        let (batch, index, count) = (number()?, number()?, number()?);
        let letter = b'a' + (batch % 26) as u8;
        let padding = fields.next()?;
        let (index, count) = (u32::try_from(index).ok()?, u32::try_from(count).ok()?);
        padding.iter().all(|&byte| byte == letter).then_some(Self { batch, index, count })
    }
}

/// What became of a batch that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It may be in the log, or come there yet.
    Unknown,
    /// The broker said that it has it, from this offset on.
    Acknowledged {
        /// The offset of its first record.
        base_offset: i64,
        /// The life in which it said so.
        life: Life,
    },
}

/// A batch that was sent.
#[derive(Clone, Debug)]
pub struct SentBatch {
    /// How many records it has.
    pub count: u32,
    /// The connection that it was sent on, or the producer that sends it again on any: their order
    /// is the order of their numbers there.
    pub connection: u64,
    /// The one before it, of an idempotent producer: it is not written without that.
    pub after: Option<BatchId>,
    /// What became of it.
    pub fate: Fate,
}

/// A record that is known to have been in the log.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// What it says of itself.
    pub record: RecordId,
    /// The life in which it was first known to be there.
    pub first_life: Life,
    /// The life in which it was last known to be there.
    pub last_life: Life,
}

/// What is known of one partition.
#[derive(Clone, Debug, Default)]
pub struct PartitionHistory {
    /// Which life it is. What was said in an earlier one can arrive late.
    pub life: Life,
    /// Whether every batch is synced before it is acknowledged.
    pub is_synced: bool,
    /// What was sent to it.
    pub batches: BTreeMap<BatchId, SentBatch>,
    /// What is known to be in the log, by offset.
    pub log: BTreeMap<i64, Seen>,
    /// Where the log begins: 0, unless a loss of power took a first segment of which nothing was
    /// synced yet.
    pub start: i64,
    /// The end of the log that was shown so far; it must not be less later in the same life.
    pub end_shown: i64,
}

/// A topic of the workload.
#[derive(Clone, Debug)]
pub struct TopicHistory {
    /// Its name.
    pub name: String,
    /// Its id, once it is known.
    pub id: Option<TopicId>,
    /// Whether its creation was acknowledged, or it was seen.
    pub exists: bool,
    /// The settings that it is created with.
    pub configs: Vec<(&'static str, String)>,
    /// Its partitions.
    pub partitions: Vec<PartitionHistory>,
}

/// Which partition of which topic of the workload.
pub type Place = (usize, usize);

/// What the clients know.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The topics of the workload.
    pub topics: Vec<TopicHistory>,
    /// Which life it is.
    pub life: Life,
    /// The next batch.
    pub next_batch: BatchId,
    /// Whether clients have idempotent producers.
    pub has_producers: bool,
    /// Producer ids that were given out.
    pub producer_ids: BTreeSet<i64>,
    /// Whether faults are over: from then on nothing may be refused.
    pub is_calm: bool,
    /// How often something was refused that a client tries again.
    pub refusals: u64,
    /// What was refused last.
    pub last_refusal: String,
    /// Where an audit collects what is read, if there is one.
    pub collected: Option<Vec<(i64, RecordId)>>,
    /// How many of these happened: a run in which nothing happens proves nothing.
    pub counts: Counts,
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were sent.
    pub requests: u64,
    /// Batches that were acknowledged.
    pub acknowledged: u64,
    /// Records that were read.
    pub read: u64,
    /// Processes that were killed or failed.
    pub crashes: u64,
    /// Losses of power.
    pub power_losses: u64,
}

impl Counts {
    /// Adds those of another run.
    pub fn add(&mut self, other: Counts) {
        self.requests += other.requests;
        self.acknowledged += other.acknowledged;
        self.read += other.read;
        self.crashes += other.crashes;
        self.power_losses += other.power_losses;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, acknowledged, read, crashes, power_losses } = self;
        write!(
            formatter,
            "{requests} requests, {acknowledged} batches acknowledged, {read} records read, \
             {crashes} crashes, {power_losses} losses of power"
        )
    }
}

impl PartitionHistory {
    /// Whether the power was lost, and the log may begin later since. That nothing is lost with
    /// its start that was acknowledged is for `lasting` to check.
    pub fn may_begin_later(&self) -> bool {
        self.life > 0
    }
}

impl History {
    /// A partition.
    pub fn partition(&mut self, place: Place) -> &mut PartitionHistory {
        &mut self.topics[place.0].partitions[place.1]
    }

    /// The topics that exist, by index.
    pub fn existing(&self) -> Vec<usize> {
        (0..self.topics.len()).filter(|&topic| self.topics[topic].exists).collect()
    }

    /// The name of a partition, for sentences.
    pub fn name(&self, place: Place) -> String {
        format!("{}-{}", self.topics[place.0].name, place.1)
    }

    /// The topic of this name.
    pub fn by_name(&self, name: &str) -> Option<usize> {
        self.topics.iter().position(|topic| topic.name == name)
    }

    /// The topic of this id.
    pub fn by_id(&self, id: Uuid) -> Option<usize> {
        self.topics.iter().position(|topic| topic.id == Some(id))
    }

    /// The power was lost: a new life begins, and what was not synced need not be there any more.
    pub fn power_is_lost(&mut self) {
        self.life += 1;
        self.counts.power_losses += 1;
        for topic in &mut self.topics {
            for partition in &mut topic.partitions {
                partition.life = self.life;
                if !partition.is_synced {
                    partition.end_shown = 0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_knows_its_name_and_notices_foreign_bytes() {
        let id = RecordId { batch: 27, index: 3, count: 9 };
        let mut value = id.value(40);
        assert_eq!((value.len(), RecordId::read(&value)), (40, Some(id)));
        assert_eq!(RecordId::read(&id.value(0)), Some(id));
        value[39] = b'a';
        assert_eq!(RecordId::read(&value), None);
        assert_eq!(RecordId::read(b"27:x:9:"), None);
    }
}
