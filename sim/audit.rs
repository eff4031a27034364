//! After the faults: everything that must be there is read and compared, and every partition
//! takes something new.

use base::Duration;

use crate::checkers::{lasting, order};
use crate::history::{History, Place, RecordId, Violation, ensure};
use crate::operations::{CreateTopic, Fetch, ListOffsets, Metadata, Operation, Produce};
use crate::simulation::{Node, Simulation};

/// Bytes that one fetch of an audit asks for.
const FETCH_BYTES_MAX: i32 = 1 << 20;
/// How often a question is repeated, 10 ms apart, until the node has found itself.
const ATTEMPTS_MAX: u32 = 1_000;

impl<N: Node> Simulation<N> {
    /// Audits the node, over a connection of its own.
    pub(crate) fn audit(&mut self) -> Result<(), Violation> {
        self.history.is_calm = false;
        let auditor = self.auditor()?;
        self.find_topics(auditor)?;
        self.history.is_calm = true;
        let places: Vec<Place> = places(&self.history);
        for &place in &places {
            let log = self.read_whole(auditor, place)?;
            let name = self.history.name(place);
            let at = |violation: Violation| Violation(format!("{name}: {violation}"));
            let partition = self.history.partition(place);
            lasting::check_whole(partition, &log).map_err(at)?;
            order::check(partition, &log).map_err(at)?;
        }
        for &place in &places {
            self.append_one(auditor, place)?;
        }
        Ok(())
    }

    /// Creates what is missing, and waits until every partition has a leader.
    fn find_topics(&mut self, auditor: usize) -> Result<(), Violation> {
        for _ in 0..ATTEMPTS_MAX {
            if self.history.topics.iter().any(|topic| !topic.exists) {
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

    /// Reads a partition from its start to its end.
    fn read_whole(
        &mut self,
        auditor: usize,
        place: Place,
    ) -> Result<Vec<(i64, RecordId)>, Violation> {
        let start_of = ListOffsets::start_of(&self.history, place);
        self.call(auditor, Operation::ListOffsets(start_of))?;
        let mut offset = self.history.partition(place).start;
        self.history.collected = Some(Vec::new());
        loop {
            let from = [(place, offset)];
            let fetch = Fetch::new(&self.history, &from, 13, 0, FETCH_BYTES_MAX);
            self.call(auditor, Operation::Fetch(fetch))?;
            let collected = self.history.collected.as_ref();
            let next = collected.and_then(|log| log.last()).map_or(offset, |(last, _)| last + 1);
            if next == offset {
                break;
            }
            offset = next;
        }
        let log = self.history.collected.take().unwrap_or_default();
        let end_shown = self.history.partition(place).end_shown;
        let name = self.history.name(place);
        ensure(offset == end_shown, || {
            format!("{name} was shown up to {end_shown} and can be read up to {offset}")
        })?;
        Ok(log)
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
        self.history.collected = Some(Vec::new());
        let from = [(place, offset)];
        let fetch = Fetch::new(&self.history, &from, 12, 500, FETCH_BYTES_MAX);
        self.call(auditor, Operation::Fetch(fetch))?;
        let found = self.history.collected.take().unwrap_or_default();
        ensure(found.first().is_some_and(|(first, _)| *first == offset), || {
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
