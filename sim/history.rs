//! What the clients know: what was sent, what was acknowledged, and what was read where.
//!
//! It is plain memory. Whether something that came is allowed is decided in `checkers`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base::{TopicId, Uuid};

use crate::commits::{Clock, Commits};
use crate::generations::Generations;
use crate::lie::Lie;
pub use crate::terms::{BatchId, Boot, Incarnation, Life, Place, Violation, ensure};

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

/// The keys that the records of a partition share.
const KEYS: u64 = 9;

/// Whether a batch can hold tombstones.
pub fn deletes(batch: BatchId) -> bool {
    batch % 5 == 3
}

impl RecordId {
    /// The number of its key: the records of a partition share a few.
    pub fn key(self) -> u64 {
        (self.batch + u64::from(self.index)) % KEYS
    }

    /// Whether it deletes its key: it has no value, and its name stands in a header.
    pub fn is_tombstone(self) -> bool {
        deletes(self.batch) && self.index % 2 == 1
    }

    /// Its key.
    pub fn key_bytes(self) -> Vec<u8> {
        format!("key{}", self.key()).into_bytes()
    }

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
    /// Whether only the newest record of each key need be kept.
    pub is_compacted: bool,
    /// Whether tombstones are kept longer than any run lasts.
    pub keeps_tombstones: bool,
    /// The offsets of tombstones that compaction has taken, by key: nothing older of these keys
    /// comes back.
    pub deleted: BTreeMap<u64, i64>,
    /// What was sent to it.
    pub batches: BTreeMap<BatchId, SentBatch>,
    /// What is known to be in the log, by offset.
    pub log: BTreeMap<i64, Seen>,
    /// Which start of the node it is.
    pub boot: Boot,
    /// Which topic of this name it belongs to.
    pub incarnation: Incarnation,
    /// Its topic is to be deleted, and nobody has said that it is: there may be the next one.
    pub is_doomed: bool,
    /// Where the log begins, as far as is known. In the same boot it never goes back.
    pub start: i64,
    /// The log does not begin behind this, unless a loss of power took a first segment of which
    /// nothing was synced yet: what DeleteRecords was asked for, or anything where segments are
    /// deleted by age or size.
    pub start_max: i64,
    /// Bytes below which the log is not cut by its size, where it is cut by nothing else.
    pub retention_bytes: Option<u64>,
    /// The end of the log that was shown so far; it must not be less later in the same life.
    pub end_shown: i64,
}

impl PartitionHistory {
    /// The keys that a tombstone may have deleted of which nobody knows whether it was written:
    /// gone with the older records, it cannot be missed.
    pub fn perhaps_deleted(&self) -> BTreeSet<u64> {
        if self.keeps_tombstones {
            return BTreeSet::new();
        }
        let known: BTreeSet<RecordId> = self.log.values().map(|seen| seen.record).collect();
        let unknown = self.batches.iter().filter(|(_, sent)| sent.fate == Fate::Unknown);
        let records = unknown.flat_map(|(&batch, sent)| {
            let count = sent.count;
            (0..count).map(move |index| RecordId { batch, index, count })
        });
        let tombstones = records.filter(|record| record.is_tombstone() && !known.contains(record));
        tombstones.map(RecordId::key).collect()
    }
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
    /// Whether clients may delete it.
    pub may_be_deleted: bool,
    /// Whether records of it are deleted, by request, age or size. A broker that starts anew may
    /// then forget, as Kafka does, what a producer wrote last: idempotent producers keep away.
    pub is_cut: bool,
    /// Whether its deletion was asked for and not acknowledged yet: nothing else is done with it.
    pub is_doomed: bool,
    /// Which topic of this name it is.
    pub incarnation: Incarnation,
    /// The ids of those that were deleted.
    pub past_ids: Vec<TopicId>,
    /// The settings that it is created with.
    pub configs: Vec<(&'static str, String)>,
    /// Its partitions.
    pub partitions: Vec<PartitionHistory>,
}

/// What is known of a consumer group.
#[derive(Clone, Debug, Default)]
pub struct GroupHistory {
    /// Its name.
    pub name: String,
    /// What its members share.
    pub places: Vec<Place>,
    /// Whether what is committed is synced before it is acknowledged.
    pub is_synced: bool,
    /// Whether its coordinator may go back to what is written: a disk may refuse what is not.
    pub may_forget: bool,
    /// What was committed.
    pub commits: BTreeMap<Place, Commits>,
    /// Its leaders and assignments.
    pub generations: Generations,
}

/// What the clients know.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The topics of the workload.
    pub topics: Vec<TopicHistory>,
    /// Its groups.
    pub groups: Vec<GroupHistory>,
    /// Counts the requests and answers of groups.
    pub clock: Clock,
    /// Which life it is.
    pub life: Life,
    /// Which start of the node it is.
    pub boot: Boot,
    /// The next batch.
    pub next_batch: BatchId,
    /// Producer ids that were given out.
    pub producer_ids: BTreeSet<i64>,
    /// Whether faults are over: from then on nothing may be refused.
    pub is_calm: bool,
    /// How often something was refused that a client tries again.
    pub refusals: u64,
    /// What was refused last.
    pub last_refusal: String,
    /// Where an audit collects what is read, if there is one.
    pub collected: Option<BTreeMap<Place, Collected>>,
    /// Whether the broker does all that the workload knows; else only what a log needs.
    pub is_whole: bool,
    /// Whether partitions can move to another log directory.
    pub has_second_directory: bool,
    /// How the broker's answers are falsified, to see whether it is noticed.
    pub lie: Option<Lie>,
    /// How many of these happened: a run in which nothing happens proves nothing.
    pub counts: Counts,
}

/// What an audit has read of a partition.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    /// The records, in the order in which they came.
    pub records: Vec<(i64, RecordId)>,
    /// The bytes of their batches.
    pub bytes: u64,
    /// Where reading goes on: behind the last batch, of which compaction may have left nothing.
    pub next: i64,
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
    /// Times that a log was found to begin later than before.
    pub starts_moved: u64,
    /// Topics that were deleted.
    pub topics_deleted: u64,
    /// Answers in fetch sessions.
    pub session_answers: u64,
    /// Generations of groups.
    pub generations: u64,
    /// Offsets that were committed.
    pub commits: u64,
    /// Records that were known and had to make room for newer ones of their keys.
    pub compacted: u64,
    /// Partitions that were wanted in a log directory, and may have moved.
    pub moves: u64,
}

impl Counts {
    /// Adds those of another run.
    pub fn add(&mut self, other: Counts) {
        self.requests += other.requests;
        self.acknowledged += other.acknowledged;
        self.read += other.read;
        self.crashes += other.crashes;
        self.power_losses += other.power_losses;
        self.starts_moved += other.starts_moved;
        self.topics_deleted += other.topics_deleted;
        self.session_answers += other.session_answers;
        self.generations += other.generations;
        self.commits += other.commits;
        self.compacted += other.compacted;
        self.moves += other.moves;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, acknowledged, read, crashes, power_losses, .. } = self;
        let Self { starts_moved, topics_deleted, session_answers, .. } = self;
        let Self { generations, commits, compacted, moves, .. } = self;
        write!(
            formatter,
            "{requests} requests, {acknowledged} batches acknowledged, {read} records read, \
             {starts_moved} starts of logs moved, {topics_deleted} topics deleted, \
             {session_answers} answers in sessions, {generations} generations, {commits} commits, \
             {compacted} records compacted, {moves} moves between directories, \
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

    /// The same partition of the next topic of its name. What is still on its way to the old one
    /// may come to the new one, as a request of an older version names a topic by its name.
    fn reborn(&self, incarnation: Incarnation) -> Self {
        let on_their_way = self.batches.iter().filter(|(_, sent)| sent.fate == Fate::Unknown);
        Self {
            life: self.life,
            boot: self.boot,
            incarnation,
            is_synced: self.is_synced,
            is_compacted: self.is_compacted,
            keeps_tombstones: self.keeps_tombstones,
            start_max: if self.start_max == i64::MAX { i64::MAX } else { 0 },
            retention_bytes: self.retention_bytes,
            batches: on_their_way.map(|(id, sent)| (*id, sent.clone())).collect(),
            ..Self::default()
        }
    }
}

impl History {
    /// A partition.
    pub fn partition(&mut self, place: Place) -> &mut PartitionHistory {
        &mut self.topics[place.0].partitions[place.1]
    }

    /// The topics that exist and are not to be deleted, by index.
    pub fn existing(&self) -> Vec<usize> {
        let exists = |topic: &TopicHistory| topic.exists && !topic.is_doomed;
        (0..self.topics.len()).filter(|&topic| exists(&self.topics[topic])).collect()
    }

    /// The next reading of the clock of groups.
    pub fn tick(&mut self) -> Clock {
        self.clock += 1;
        self.clock
    }

    /// A topic was deleted: the next one of its name begins anew.
    pub fn topic_is_gone(&mut self, topic: usize) {
        self.counts.topics_deleted += 1;
        let topic = &mut self.topics[topic];
        topic.past_ids.extend(topic.id.take());
        (topic.exists, topic.is_doomed) = (false, false);
        topic.incarnation += 1;
        for partition in &mut topic.partitions {
            *partition = partition.reborn(topic.incarnation);
        }
    }

    /// The node starts anew: what it only remembered is gone.
    pub fn node_starts(&mut self) {
        self.boot += 1;
        let is_first = self.boot == 1;
        for partition in self.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            partition.boot = self.boot;
            // Where a log begins is only written down now and then.
            partition.start = 0;
            // What its size was cut by may be gone with what was not written yet.
            partition.retention_bytes = partition.retention_bytes.filter(|_| is_first);
        }
    }

    /// The name of a partition, for sentences.
    pub fn name(&self, place: Place) -> String {
        format!("{}-{}", self.topics[place.0].name, place.1)
    }

    /// The topic of this name.
    pub fn by_name(&self, name: &str) -> Option<usize> {
        self.topics.iter().position(|topic| topic.name == name)
    }

    /// The topic that an answer names by its id or by its name. The id can be of one that has been
    /// deleted since.
    pub fn by_name_or_id(&self, by_id: bool, name: &str, id: Uuid) -> Option<usize> {
        if !by_id {
            return self.by_name(name);
        }
        let has_id = |topic: &TopicHistory| topic.id == Some(id) || topic.past_ids.contains(&id);
        self.topics.iter().position(has_id)
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
