//! What the controller is still to be told of the directories that partitions are in.

use base::Uuid;
use intercom::PartitionKey;

/// Partitions whose directories the controller is told at once: what it writes is one batch.
const ASSIGNED_AT_ONCE_MAX: usize = 2_000;

/// Partitions whose directories the controller does not know yet.
#[derive(Debug, Default)]
pub(crate) struct Assignments {
    waiting: Vec<(PartitionKey, Uuid)>,
    /// What was sent and has no answer yet.
    sent: Vec<(PartitionKey, Uuid)>,
    /// The broker was not registered; a newer image may show it.
    waits_for_view: bool,
}

impl Assignments {
    /// The controller is to be told that a partition is in this directory.
    pub(crate) fn add(&mut self, key: PartitionKey, directory: Uuid) {
        self.waiting.push((key, directory));
    }

    /// What to tell the controller now, if anything; one answer is awaited at a time.
    pub(crate) fn next(&mut self) -> Option<Vec<(PartitionKey, Uuid)>> {
        if self.waiting.is_empty() || !self.sent.is_empty() || self.waits_for_view {
            return None;
        }
        let count = self.waiting.len().min(ASSIGNED_AT_ONCE_MAX);
        self.sent = self.waiting.drain(..count).collect();
        Some(self.sent.clone())
    }

    /// What was told is known, or has to be told again.
    pub(crate) fn answered(&mut self, is_known: bool) {
        let sent = std::mem::take(&mut self.sent);
        if !is_known {
            self.waits_for_view = true;
            self.waiting.extend(sent);
        }
    }

    /// There is a newer image.
    pub(crate) fn view_changed(&mut self) {
        self.waits_for_view = false;
    }
}
