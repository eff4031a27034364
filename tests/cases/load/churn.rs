//! Topics that are made, deleted and made again under the same names, and a group that commits.

use std::thread;

use blackbox::PAUSE;
use blackbox::wire::{Batch, NONE};
use faultfs::Random;

use super::client::{Client, UNKNOWN_TOPIC};
use super::{Ending, Signals};

const NAMES: [&str; 4] = ["churn-a", "churn-b", "churn-c", "churn-d"];
/// What was acknowledged to them is durable. Their records are years old, and are to stay.
const SETTINGS: &[(&str, &str)] =
    &[("flush.messages", "1"), ("internal.segment.bytes", "2000"), ("retention.ms", "-1")];
const ALREADY_EXISTS: i16 = 36;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    Present,
    /// Nobody knows whether it was made.
    Made,
    /// Nobody knows whether it was deleted.
    Deleted,
}

/// One name. Each topic of the name is a generation.
#[derive(Debug)]
struct Name {
    name: &'static str,
    state: State,
    generation: u64,
    /// How many records were sent to the generation, each in a batch of its own.
    sent: u64,
    /// Which of them were acknowledged, with their offsets.
    acknowledged: Vec<(i64, u64)>,
}

/// Topics that come and go.
#[derive(Debug)]
pub(crate) struct Churn {
    names: Vec<Name>,
    random: Random,
}

impl Churn {
    pub(crate) fn new(seed: u64) -> Churn {
        let name = |name| {
            let (state, acknowledged) = (State::Absent, Vec::new());
            Name { name, state, generation: 0, sent: 0, acknowledged }
        };
        Churn { names: NAMES.map(name).into(), random: Random::new(seed) }
    }

    /// Makes, fills and deletes topics until it is told to stop.
    pub(crate) fn run(&mut self, port: u16, signals: &Signals) {
        let mut client = Client::new(port);
        while !signals.has_stopped() {
            let index = self.random.below(NAMES.len() as u64) as usize;
            let deletes = self.random.below(4) == 0;
            let Some(name) = self.names.get_mut(index) else { continue };
            match name.state {
                State::Absent => name.create(&mut client),
                State::Present if deletes => name.delete(&mut client),
                State::Present => name.produce(&mut client),
                // Only a check can tell.
                State::Made | State::Deleted => thread::sleep(PAUSE),
            }
        }
    }

    /// Checks what is there. All that was acknowledged is to be, however the broker ended.
    pub(crate) fn check(&mut self, client: &mut Client) {
        for name in &mut self.names {
            name.check(client);
        }
    }
}

impl Name {
    fn create(&mut self, client: &mut Client) {
        self.generation += 1;
        (self.sent, self.acknowledged) = (0, Vec::new());
        self.state = match client.create_topic(self.name, 1, SETTINGS) {
            Some(NONE) => State::Present,
            Some(ALREADY_EXISTS) => panic!("{}: is there, though it was deleted", self.name),
            _ => State::Made,
        };
    }

    fn delete(&mut self, client: &mut Client) {
        self.state = match client.delete_topic(self.name) {
            Some(NONE) => State::Absent,
            Some(UNKNOWN_TOPIC) => panic!("{}: is gone, though it was made", self.name),
            _ => State::Deleted,
        };
    }

    fn produce(&mut self, client: &mut Client) {
        let number = self.sent;
        self.sent += 1;
        let values = vec![self.value(number)];
        match client.produce(self.name, 0, &Batch { values, ..Batch::default() }.encode()) {
            Some((NONE, offset)) => self.acknowledged.push((offset, number)),
            // It is not led yet.
            _ => thread::sleep(PAUSE),
        }
    }

    fn value(&self, number: u64) -> Vec<u8> {
        format!("{}:{number}", self.generation).into_bytes()
    }

    fn check(&mut self, client: &mut Client) {
        let name = self.name;
        let error = client.insist("answer", |client| client.topic_error(name));
        let is_there = error != UNKNOWN_TOPIC;
        self.state = match self.state {
            State::Absent => {
                assert!(!is_there, "{name}: is back, though it was deleted");
                State::Absent
            }
            State::Present => {
                assert!(is_there, "{name}: is gone, though it was made");
                State::Present
            }
            State::Made | State::Deleted if is_there => State::Present,
            State::Made | State::Deleted => State::Absent,
        };
        if self.state == State::Absent {
            return;
        }
        let (_, end) = client.insist("lead", |client| client.bounds(name, 0));
        let mut found = Vec::new();
        while (found.len() as i64) < end {
            let from = found.len() as i64;
            let some = client.insist("fetch", |client| client.fetch(name, 0, from)?.ok());
            assert!(!some.is_empty(), "{name}: nothing from {from} to {end}");
            found.extend(some);
        }
        for record in &found {
            let generation = format!("{}:", self.generation);
            let is_ours = record.value.starts_with(generation.as_bytes());
            assert!(is_ours, "{name}: {record:?} is not of generation {}", self.generation);
        }
        for (offset, number) in &self.acknowledged {
            let record = found.iter().find(|record| record.offset == *offset);
            let is_there = record.is_some_and(|record| record.value == self.value(*number));
            assert!(is_there, "{name}: {number} was acknowledged at {offset}: {record:?}");
        }
    }
}

/// A group of which somebody commits offsets that rise by one.
#[derive(Debug)]
pub(crate) struct Committer {
    topic: &'static str,
    sent: i64,
    acknowledged: i64,
    /// What was acknowledged is durable.
    is_flushed: bool,
}

impl Committer {
    pub(crate) fn new(topic: &'static str, is_flushed: bool) -> Committer {
        Committer { topic, sent: -1, acknowledged: -1, is_flushed }
    }

    /// Commits until it is told to stop.
    pub(crate) fn run(&mut self, port: u16, signals: &Signals) {
        let mut client = Client::new(port);
        while !signals.has_stopped() {
            self.sent += 1;
            if client.commit(GROUP, self.topic, self.sent) == Some(NONE) {
                self.acknowledged = self.sent;
            } else {
                client.find_coordinator(GROUP);
                thread::sleep(PAUSE);
            }
        }
    }

    pub(crate) fn check(&mut self, client: &mut Client, ending: Ending) {
        let topic = self.topic;
        let found = client.insist("know the group", |client| {
            let found = client.committed(GROUP, topic);
            if found.is_none() {
                client.find_coordinator(GROUP);
            }
            found
        });
        let may_forget = ending == Ending::PowerLoss && !self.is_flushed;
        let least = if may_forget { -1 } else { self.acknowledged };
        assert!(
            (least..=self.sent).contains(&found),
            "the group is at {found}; {} was acknowledged, {} sent",
            self.acknowledged,
            self.sent
        );
        self.acknowledged = found;
    }
}

const GROUP: &str = "committer";
