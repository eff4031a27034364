//! What the controller is still to be told of the directories that partitions are in.

use std::collections::BTreeMap;

use base::Uuid;
use intercom::PartitionKey;

/// Partitions whose directories the controller is told at once: what it writes is one batch.
const ASSIGNED_AT_ONCE_MAX: usize = 2_000;

/// Partitions whose directories the controller does not know yet.
#[derive(Debug, Default)]
pub(crate) struct Assignments {
    waiting: BTreeMap<PartitionKey, Uuid>,
    /// What was sent and has no answer yet.
    sent: Vec<(PartitionKey, Uuid)>,
    /// The broker was not registered; a newer image may show it.
    waits_for_view: bool,
}

impl Assignments {
    /// The controller is to be told that a partition is in this directory, and not in one that it
    /// was to be told before.
    pub(crate) fn add(&mut self, key: PartitionKey, directory: Uuid) {
        self.waiting.insert(key, directory);
    }

    /// What to tell the controller now, if anything; one answer is awaited at a time.
    pub(crate) fn next(&mut self) -> Option<Vec<(PartitionKey, Uuid)>> {
        if self.waiting.is_empty() || !self.sent.is_empty() || self.waits_for_view {
            return None;
        }
        while self.sent.len() < ASSIGNED_AT_ONCE_MAX
            && let Some(first) = self.waiting.pop_first()
        {
            self.sent.push(first);
        }
        Some(self.sent.clone())
    }

    /// What was told is known, and returned; or it has to be told again, unless there is newer.
    pub(crate) fn answered(&mut self, is_known: bool) -> Vec<(PartitionKey, Uuid)> {
        let sent = std::mem::take(&mut self.sent);
        if is_known {
            return sent;
        }
        self.waits_for_view = true;
        for (key, directory) in sent {
            self.waiting.entry(key).or_insert(directory);
        }
        Vec::new()
    }

    /// There is a newer image.
    pub(crate) fn view_changed(&mut self) {
        self.waits_for_view = false;
    }
}
