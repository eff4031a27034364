//! What is looked at in every log from time to time: some logs each turn, since there may be many.

use base::Token;

use super::{Desk, Owner};

/// Logs that one turn looks at.
pub(super) const LOGS_A_TURN: usize = 128;

/// The rounds that are under way: the place of the partition that each looks at next.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    retention: Option<usize>,
    producers: Option<usize>,
}

impl Rounds {
    /// Whether there is one: the next turn goes on.
    pub(super) fn are_under_way(&self) -> bool {
        self.retention.is_some() || self.producers.is_some()
    }
}

impl Owner {
    /// Begins to look for segments that a topic's retention gives up, unless that is under way.
    pub(crate) fn apply_retention(&mut self) {
        self.rounds.retention.get_or_insert(0);
    }

    /// Begins to forget the producers that have written nothing for too long, unless that is under
    /// way.
    pub(crate) fn expire_producers(&mut self) {
        self.rounds.producers.get_or_insert(0);
    }

    /// Looks at some logs.
    pub(super) fn go_round(&mut self, desk: &mut Desk<'_>) {
        let retention = self.rounds.retention.take();
        self.rounds.retention = self.go_on_round(retention, |owner, token| {
            let up_to = owner.partition(token).high_watermark();
            owner.with_log(desk, token, |log, now, effects, events| {
                log.apply_retention(now, up_to, effects, events);
            });
            owner.touch(token);
        });
        let now = desk.now;
        let producers = self.rounds.producers.take();
        self.rounds.producers = self.go_on_round(producers, |owner, token| {
            owner.partition(token).log.expire_producers(now);
        });
    }

    /// Goes on with a round, and returns where it goes on in the next turn. Copies that are filled,
    /// and logs that are deleted, are left out.
    fn go_on_round(
        &mut self,
        next: Option<usize>,
        mut look: impl FnMut(&mut Self, Token),
    ) -> Option<usize> {
        let next = next?;
        let end = next.saturating_add(LOGS_A_TURN).min(self.partitions.places());
        for place in next..end {
            let Some((token, partition)) = self.partitions.at(place) else { continue };
            if self.by_key.get(&partition.key) == Some(&token) {
                look(self, token);
            }
        }
        (end < self.partitions.places()).then_some(end)
    }
}
