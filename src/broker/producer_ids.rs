//! Ids for idempotent producers.

use base::ProducerId;

/// The ids that this shard may give out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProducerIds {
    next: i64,
    end: i64,
}

impl ProducerIds {
    /// The ids of a block.
    pub(crate) fn of_block(first: i64, length: i32) -> Self {
        Self { next: first, end: first + i64::from(length) }
    }

    /// The next one, if there is one left.
    pub(crate) fn take(&mut self) -> Option<ProducerId> {
        let id = (self.next < self.end).then_some(ProducerId(self.next));
        self.next += i64::from(id.is_some());
        id
    }
}
