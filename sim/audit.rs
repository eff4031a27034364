//! After the faults: everything that must be there is read and compared, and every partition
//! takes something new.

use std::collections::{BTreeMap, BTreeSet};

use base::{Duration, TopicId};

use crate::checkers::{compacted, lasting, order};
use crate::history::{Collected, History, Place, RecordId, Violation, ensure};
use crate::operations::{
    CreateTopic, DeleteTopic, Fetch, ListOffsets, Membership, Metadata, OffsetFetch, Operation,
    Produce,
};
use crate::simulation::{Node, Simulation};

/// Bytes that one fetch of an audit asks for.
const FETCH_BYTES_MAX: i32 = 1 << 20;
/// From so many offsets an audit reads each log, besides its start.
const PLACES_WITHIN: usize = 4;
/// How often a log is read again because it is cut while it is read.
const READINGS_MAX: u32 = 10;
/// How long it may take until what was written is shown.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);
/// How long partitions may move on after the faults.
const MOVES_WITHIN: Duration = Duration::from_secs(60);
/// How often a question is repeated, 10 ms apart, until the node has found itself.
const ATTEMPTS_MAX: u32 = 1_000;

/// The folder of a log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Folder {
    directory: String,
    name: String,
}

impl<N: Node> Simulation<N> {
    /// Audits the node, over a connection of its own.
    pub(crate) fn audit(&mut self) -> Result<(), Violation> {
        self.history.is_calm = false;
        let auditor = self.auditor()?;
        self.find_topics(auditor)?;
        self.await_moves()?;
        self.history.is_calm = true;
        let metadata = Metadata::new(&self.history, 12, true);
        self.call(auditor, Operation::Metadata(metadata))?;
        self.ask_groups(auditor)?;
        let places: Vec<Place> = places(&self.history);
        let mut logs = BTreeMap::new();
        for &place in &places {
            let mut log = self.read_whole(auditor, place)?;
            if lasting::check_size(self.history.partition(place), log.bytes).is_err() {
                // What is written and not shown yet counts when a log is cut, as in Kafka.
                let pause = self.world.now() + SHOWN_WITHIN;
                self.pump(pause, |_| false)?;
                log = self.read_whole(auditor, place)?;
            }
            let name = self.history.name(place);
            let at = |violation: Violation| Violation(format!("{name}: {violation}"));
            let partition = self.history.partition(place);
            let compacted = lasting::check_whole(partition, &log.records).map_err(at)?;
            lasting::check_size(partition, log.bytes).map_err(at)?;
            order::check(partition, &log.records).map_err(at)?;
            self.history.counts.compacted += compacted;
            self.read_within(auditor, place, &log.records)?;
            logs.insert(place, log.records);
        }
        if self.history.is_whole {
            self.read_in_session(auditor, &places, &logs)?;
        }
        for &place in &places {
            self.append_one(auditor, place)?;
        }
        Ok(())
    }

    /// Creates what is missing, and waits until every partition has a leader.
    pub(crate) fn find_topics(&mut self, auditor: usize) -> Result<(), Violation> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some((topic, id)) = self.doomed() {
                let delete = DeleteTopic::new(&mut self.history, topic, id);
                self.call(auditor, Operation::DeleteTopic(delete))?;
            } else if self.history.topics.iter().any(|topic| !topic.exists) {
                let create = CreateTopic::sample(&mut self.random, &self.history);
                self.call(auditor, Operation::CreateTopic(create))?;
            } else {
                let before = self.history.refusals;
                let metadata = Metadata::new(&self.history, 12, true);
                self.call(auditor, Operation::Metadata(metadata))?;
                for place in places(&self.history) {
                    let start = self.history.partition(place).start;
                    let fetch =
                        Fetch::new(&self.history, &[(place, start)], 12, 0, FETCH_BYTES_MAX);
                    self.call(auditor, Operation::Fetch(fetch))?;
                }
                self.ask_groups(auditor)?;
                if self.history.refusals == before {
                    return Ok(());
                }
            }
            let pause = self.world.now() + Duration::from_millis(10);
            self.pump(pause, |_| false)?;
        }
        let refusal = &self.history.last_refusal;
        Err(Violation(format!("the node does not come to lead its partitions: {refusal}")))
    }

    /// Waits until no partition moves any more, and sees that each has one log.
    fn await_moves(&mut self) -> Result<(), Violation> {
        let until = self.world.now() + MOVES_WITHIN;
        loop {
            let folders = self.folders();
            let moving = folders.iter().find(|folder| folder.name.ends_with("-future"));
            let Some(moving) = moving else { break };
            ensure(self.world.now() < until, || format!("{moving:?} never takes its place"))?;
            let pause = self.world.now() + Duration::from_millis(10);
            self.pump(pause, |_| false)?;
        }
        let mut known = BTreeMap::new();
        for Folder { directory, name } in self.folders() {
            let other = known.insert(name.clone(), directory.clone());
            let is_log = !name.contains('.');
            ensure(other.is_none() || !is_log, || {
                format!("{name} is in {directory} and in {}", other.unwrap_or_default())
            })?;
        }
        Ok(())
    }

    /// The folders in the log directories.
    fn folders(&mut self) -> BTreeSet<Folder> {
        let files = self.world.disk(0).files();
        let folders = files.iter().filter_map(|file| {
            let folder = file.parent().filter(|folder| folder.components().count() == 3)?;
            let directory = folder.parent()?.display().to_string();
            Some(Folder { directory, name: folder.file_name()?.to_string_lossy().into_owned() })
        });
        folders.collect()
    }

    /// Asks what every group has committed.
    fn ask_groups(&mut self, auditor: usize) -> Result<(), Violation> {
        for group in 0..self.history.groups.len() {
            let find = Membership::find(&mut self.random, &self.history, group);
            self.call(auditor, Operation::Membership(find))?;
            let places = self.history.groups[group].places.clone();
            let fetch = OffsetFetch::new(&mut self.random, &mut self.history, group, &places);
            self.call(auditor, Operation::OffsetFetch(fetch))?;
        }
        Ok(())
    }

    /// A session brings the same records as requests without one.
    fn read_in_session(
        &mut self,
        auditor: usize,
        places: &[Place],
        logs: &BTreeMap<Place, Vec<(i64, RecordId)>>,
    ) -> Result<(), Violation> {
        self.history.collected = Some(BTreeMap::new());
        let count = |history: &History| -> i64 {
            history.collected.iter().flat_map(|all| all.values()).map(|log| log.next).sum()
        };
        loop {
            let before = count(&self.history);
            let fetch = self.session_fetch(auditor, places);
            self.call(auditor, fetch)?;
            // Where it began to read may be gone by then, and it asks where the log begins now, as
            // every consumer does.
            if count(&self.history) == before && !self.find_starts(auditor, places)? {
                break;
            }
        }
        let mut collected = self.history.collected.take().unwrap_or_default();
        for (place, log) in logs {
            let name = self.history.name(*place);
            // What is cut by age or size may have been cut since; and what was sent without acks
            // may have come.
            let is_cut = self.history.partition(*place).start_max == i64::MAX;
            let read = collected.remove(place).unwrap_or_default().records;
            let partition = self.history.partition(*place);
            if partition.is_compacted {
                // More of it may have gone since.
                compacted::none_is_back(partition, &read)
                    .and_then(|()| compacted::is_left(partition, log, &read))
                    .map_err(|violation| Violation(format!("{name} in a session: {violation}")))?;
                continue;
            }
            // And DeleteRecords, of which nobody waits for the answer, may have been performed.
            let start = partition.start;
            let left = |records: &[(i64, RecordId)]| -> Vec<(i64, RecordId)> {
                records.iter().filter(|(at, _)| *at >= start).copied().collect()
            };
            ensure(is_cut || left(&read).starts_with(&left(log)), || {
                let (read, all) = (read.len(), log.len());
                format!("{name} has {all} records, and a session brings {read} of them")
            })?;
        }
        Ok(())
    }

    /// Asks where these logs begin. Whether one begins later than was known.
    fn find_starts(&mut self, auditor: usize, places: &[Place]) -> Result<bool, Violation> {
        let mut has_moved = false;
        for &place in places {
            let before = self.history.partition(place).start;
            let start_of = ListOffsets::start_of(&self.history, place);
            self.call(auditor, Operation::ListOffsets(start_of))?;
            has_moved |= self.history.partition(place).start > before;
        }
        Ok(has_moved)
    }

    /// A topic whose deletion nobody has acknowledged.
    fn doomed(&self) -> Option<(usize, TopicId)> {
        let mut topics = self.history.topics.iter().enumerate();
        topics.find_map(|(index, topic)| topic.id.filter(|_| topic.is_doomed).map(|id| (index, id)))
    }

    /// Reads a partition from its start to its end, and again where its start moves meanwhile.
    fn read_whole(&mut self, auditor: usize, place: Place) -> Result<Collected, Violation> {
        for _ in 0..READINGS_MAX {
            let log = self.try_read_whole(auditor, place)?;
            let partition = self.history.partition(place);
            // What a loss of power took of a log that is compacted may look as if compaction had
            // taken it, to its very end.
            if log.next.max(partition.start) == partition.end_shown || partition.is_compacted {
                return Ok(log);
            }
        }
        let name = self.history.name(place);
        let partition = self.history.partition(place);
        let (start, end_shown) = (partition.start, partition.end_shown);
        Err(Violation(format!(
            "{name} was shown up to {end_shown} and cannot be read up to there from {start} on"
        )))
    }

    fn try_read_whole(&mut self, auditor: usize, place: Place) -> Result<Collected, Violation> {
        let start_of = ListOffsets::start_of(&self.history, place);
        self.call(auditor, Operation::ListOffsets(start_of))?;
        let mut offset = self.history.partition(place).start;
        self.history.collected = Some(BTreeMap::new());
        loop {
            let from = [(place, offset)];
            let fetch = Fetch::new(&self.history, &from, 13, 0, FETCH_BYTES_MAX);
            self.call(auditor, Operation::Fetch(fetch))?;
            let collected = self.history.collected.as_ref().and_then(|all| all.get(&place));
            let next = collected.map_or(offset, |log| log.next);
            if next == offset {
                break;
            }
            offset = next;
        }
        let collected = self.history.collected.take().unwrap_or_default();
        Ok(collected.into_values().next().unwrap_or_default())
    }

    /// Reads from some offsets all over a log, which its indexes find.
    fn read_within(
        &mut self,
        auditor: usize,
        place: Place,
        log: &[(i64, RecordId)],
    ) -> Result<(), Violation> {
        for turn in 0..PLACES_WITHIN.min(log.len()) {
            let drawn = self.random.below(log.len() as u64) as usize;
            let index = (turn * log.len() + drawn) / PLACES_WITHIN.min(log.len());
            let (offset, record) = log[index];
            self.history.collected = Some(BTreeMap::new());
            let fetch = Fetch::new(&self.history, &[(place, offset)], 13, 0, 1);
            self.call(auditor, Operation::Fetch(fetch))?;
            let found = self.history.collected.take().unwrap_or_default();
            let found = found.get(&place).and_then(|read| read.records.first()).copied();
            let name = self.history.name(place);
            let partition = self.history.partition(place);
            // It may have been deleted since, or have made room for a newer one of its key.
            let is_cut = partition.start_max > offset;
            let newer = log[index + 1..].iter().any(|(_, newer)| newer.key() == record.key());
            let may_go = partition.is_compacted && (newer || record.is_tombstone());
            ensure(is_cut || may_go || found == Some((offset, record)), || {
                format!("{name} has {record:?} at {offset}, and a fetch from there {found:?}")
            })?;
        }
        Ok(())
    }

    /// A partition that is whole takes a batch, and gives it back.
    fn append_one(&mut self, auditor: usize, place: Place) -> Result<(), Violation> {
        let connection = self.auditor_connection(auditor);
        let offset = self.history.partition(place).end_shown;
        let history = &mut self.history;
        let places = [place];
        let produce = Produce::new(&mut self.random, history, connection, &places, 9, -1);
        self.call(auditor, Operation::Produce(produce))?;
        let end_shown = self.history.partition(place).end_shown;
        ensure(end_shown > offset, || "a batch was acknowledged and adds nothing".to_owned())?;
        self.history.collected = Some(BTreeMap::new());
        let from = [(place, offset)];
        let fetch = Fetch::new(&self.history, &from, 12, 500, FETCH_BYTES_MAX);
        self.call(auditor, Operation::Fetch(fetch))?;
        let found = self.history.collected.take().unwrap_or_default();
        let first = found.get(&place).and_then(|log| log.records.first());
        // It may be too old to be kept.
        let is_gone = self.history.partition(place).start_max > offset;
        ensure(is_gone || first.is_some_and(|(first, _)| *first == offset), || {
            format!("a batch was acknowledged at {offset} and a fetch from there is empty")
        })
    }
}

fn places(history: &History) -> Vec<Place> {
    let topics = history.topics.iter().enumerate();
    topics
        .flat_map(|(topic, plan)| {
            (0..plan.partitions.len()).map(move |partition| (topic, partition))
        })
        .collect()
}
