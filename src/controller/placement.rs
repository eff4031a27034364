//! Which brokers get the replicas of a new partition (`StripedReplicaPlacer`).
//!
//! Replicas are striped over the racks, so that the loss of one rack takes as few of a partition's
//! replicas as possible, and over the brokers of a rack in turn. Brokers that are fenced come last,
//! and never first, since the first replica is to lead.

use std::collections::BTreeMap;

use base::{NodeId, Random};
use metadata::{Broker, Image};

/// A list of brokers from which each round takes in turn, beginning one further on.
#[derive(Clone, Debug, Default)]
struct Ring {
    brokers: Vec<NodeId>,
    start: usize,
    taken: usize,
    round: usize,
}

impl Ring {
    fn begin(&mut self, random: &mut Random) {
        if !self.brokers.is_empty() {
            self.start = draw(random, self.brokers.len());
        }
    }

    fn next(&mut self, round: usize) -> Option<NodeId> {
        let count = self.brokers.len();
        if count == 0 {
            return None;
        }
        if self.round != round {
            (self.round, self.taken, self.start) = (round, 0, (self.start + 1) % count);
        }
        if self.taken == count {
            return None;
        }
        let broker = self.brokers.get((self.start + self.taken) % count).copied();
        self.taken += 1;
        broker
    }
}

#[derive(Clone, Debug, Default)]
struct Rack {
    unfenced: Ring,
    fenced: Ring,
}

impl Rack {
    fn next(&mut self, round: usize) -> Option<NodeId> {
        self.unfenced.next(round).or_else(|| self.fenced.next(round))
    }
}

/// Places the replicas of new partitions.
#[derive(Debug)]
pub(crate) struct Placer<'a> {
    random: &'a mut Random,
    /// Racks by name, in an order that changes when every broker has had its turn.
    racks: Vec<Rack>,
    brokers: usize,
    unfenced_brokers: usize,
    round: usize,
    /// How many partitions were placed since the last shuffle.
    placed: usize,
    /// Which rack the next partition begins with.
    first_rack: usize,
}

impl<'a> Placer<'a> {
    pub(crate) fn new(image: &Image, random: &'a mut Random) -> Self {
        let mut racks: BTreeMap<Option<&str>, Rack> = BTreeMap::new();
        let usable = image.brokers().values().filter(|broker| can_take_partitions(broker));
        for broker in usable.clone() {
            let rack = racks.entry(broker.rack.as_deref()).or_default();
            let ring = if broker.fenced { &mut rack.fenced } else { &mut rack.unfenced };
            ring.brokers.push(broker.id);
        }
        let mut racks: Vec<Rack> = racks.into_values().collect();
        for rack in &mut racks {
            rack.unfenced.begin(random);
            rack.fenced.begin(random);
        }
        let first_rack = if racks.is_empty() { 0 } else { draw(random, racks.len()) };
        let unfenced_brokers = usable.clone().filter(|broker| !broker.fenced).count();
        let brokers = usable.count();
        Self { random, racks, brokers, unfenced_brokers, round: 0, placed: 0, first_rack }
    }

    /// The replicas of the next partition.
    ///
    /// # Errors
    /// Why there can be none, in Kafka's words; the code is INVALID_REPLICATION_FACTOR.
    pub(crate) fn place(&mut self, replication_factor: i16) -> Result<Vec<NodeId>, String> {
        let Some(replicas) = usize::try_from(replication_factor).ok().filter(|count| *count > 0)
        else {
            return Err(format!(
                "Invalid replication factor {replication_factor}: the replication factor must be \
                 positive."
            ));
        };
        if self.unfenced_brokers == 0 {
            return Err("All brokers are currently fenced, or have all their log directories \
                        cordoned."
                .to_owned());
        }
        if replicas > self.brokers {
            return Err(format!(
                "The target replication factor of {replicas} cannot be reached because only {} \
                 broker(s) are registered or some brokers have all their log directories \
                 cordoned.",
                self.brokers
            ));
        }
        if self.placed == self.unfenced_brokers {
            self.shuffle();
        }
        let placed = self.stripe(replicas);
        self.round += 1;
        self.placed += 1;
        self.first_rack = (self.first_rack + 1) % self.racks.len();
        Ok(placed)
    }

    fn stripe(&mut self, replicas: usize) -> Vec<NodeId> {
        let (count, round) = (self.racks.len(), self.round);
        let mut placed = Vec::with_capacity(replicas);
        // The leader: of the first rack with an unfenced broker, from the one whose turn it is.
        let mut leading = None;
        for step in 0..count {
            let index = (self.first_rack + step) % count;
            if let Some(leader) =
                self.racks.get_mut(index).and_then(|rack| rack.unfenced.next(round))
            {
                placed.push(leader);
                leading = Some(index);
                break;
            }
        }
        // The others: rack by rack; the leader's rack is left out once.
        let mut index = self.first_rack;
        while placed.len() < replicas {
            if leading == Some(index) {
                leading = None;
            } else if let Some(broker) = self.racks.get_mut(index).and_then(|rack| rack.next(round))
            {
                placed.push(broker);
            }
            index = (index + 1) % count;
        }
        placed
    }

    /// Every broker has led once: another order, so that the same sets do not come again.
    fn shuffle(&mut self) {
        self.placed = 0;
        shuffle(&mut self.racks, self.random);
        for rack in &mut self.racks {
            shuffle(&mut rack.unfenced.brokers, self.random);
            shuffle(&mut rack.fenced.brokers, self.random);
        }
    }
}

/// Whether a broker has a log directory that takes new partitions.
pub(crate) fn can_take_partitions(broker: &Broker) -> bool {
    let cordoned = broker.cordoned_directories.as_deref().unwrap_or_default();
    broker.directories.is_empty()
        || broker.directories.iter().any(|directory| !cordoned.contains(directory))
}

fn draw(random: &mut Random, bound: usize) -> usize {
    let bound = u64::try_from(bound).expect("a length fits a u64");
    usize::try_from(random.below(bound)).expect("it is below a length")
}

fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for index in (1..items.len()).rev() {
        items.swap(index, draw(random, index + 1));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::image_with_brokers;

    proptest! {
        #[test]
        fn replicas_are_distinct_and_spread(
            seed: u64,
            racks in proptest::collection::vec((0_u8..4, proptest::bool::weighted(0.2)), 1..12),
            replication_factor in 1_i16..12,
        ) {
            let brokers: Vec<(i32, Option<String>, bool)> = racks
                .iter()
                .zip(0..)
                .map(|((rack, fenced), id)| (id, Some(format!("r{rack}")), *fenced))
                .collect();
            let image = image_with_brokers(&brokers);
            let mut random = Random::new(seed);
            let mut placer = Placer::new(&image, &mut random);
            let unfenced = brokers.iter().filter(|(_, _, fenced)| !fenced).count();
            for _ in 0..30 {
                let placed = placer.place(replication_factor);
                let possible = unfenced > 0
                    && usize::try_from(replication_factor).expect("small") <= brokers.len();
                prop_assert_eq!(placed.is_ok(), possible);
                let Ok(placed) = placed else { return Ok(()) };
                let distinct: BTreeSet<_> = placed.iter().collect();
                prop_assert_eq!(distinct.len(), placed.len());
                prop_assert!(!image.broker(placed[0]).expect("is registered").fenced);
                // One rack has two only where every other rack with a broker left has one.
                let racks_all: BTreeSet<_> = brokers.iter().map(|(_, rack, _)| rack).collect();
                let racks_used: BTreeSet<_> = placed
                    .iter()
                    .map(|id| image.broker(*id).expect("is registered").rack.clone())
                    .collect();
                prop_assert_eq!(racks_used.len(), racks_all.len().min(placed.len()));
            }
        }
    }

    #[test]
    fn leaders_are_spread_evenly() {
        let brokers: Vec<_> = (0..3).map(|id| (id, None, false)).collect();
        let image = image_with_brokers(&brokers);
        let mut random = Random::new(5);
        let mut placer = Placer::new(&image, &mut random);
        let mut leaders = [0; 3];
        for _ in 0..30 {
            let placed = placer.place(2).expect("can be placed");
            leaders[usize::try_from(placed[0].0).expect("small")] += 1;
        }
        assert_eq!(leaders, [10, 10, 10]);
    }

    #[test]
    fn what_cannot_be_is_refused_in_the_words_of_kafka() {
        let one = image_with_brokers(&[(1, None, false)]);
        let fenced = image_with_brokers(&[(1, None, true)]);
        let cases = [
            (&one, 0, "Invalid replication factor 0: the replication factor must be positive."),
            (
                &one,
                2,
                "The target replication factor of 2 cannot be reached because only 1 broker(s) \
                 are registered or some brokers have all their log directories cordoned.",
            ),
            (
                &fenced,
                1,
                "All brokers are currently fenced, or have all their log directories cordoned.",
            ),
        ];
        for (image, replication_factor, message) in cases {
            let mut random = Random::new(1);
            let placed = Placer::new(image, &mut random).place(replication_factor);
            assert_eq!(placed, Err(message.to_owned()));
        }
    }
}
