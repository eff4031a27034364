//! Which transactions of a log are open, and which ended only lately.

use std::collections::{BTreeMap, BTreeSet};

use base::{Offset, ProducerId};
use bytes::Bytes;
use records::{BatchHeader, EndTransaction};

use crate::aborted::AbortedTransaction;

/// What keeps readers of committed records from reading on.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    /// Where those begin that are open, and whose they are.
    open: BTreeSet<(Offset, ProducerId)>,
    /// The markers of those that ended, which not every replica may have yet, and where they began.
    ended: BTreeMap<Offset, Offset>,
}

impl Transactions {
    /// A batch of this producer opened or ended a transaction: what began at `begun` is over, what
    /// begins at `begins` is open. Returns what was aborted.
    pub(super) fn change(
        &mut self,
        header: &BatchHeader,
        records: &Bytes,
        begun: Option<Offset>,
        begins: Option<Offset>,
    ) -> Option<AbortedTransaction> {
        let (producer_id, last_offset) = (header.producer_id, header.last_offset());
        if let Some(offset) = begins {
            self.open.insert((offset, producer_id));
        }
        let first_offset = begun?;
        self.open.remove(&(first_offset, producer_id));
        self.ended.insert(last_offset, first_offset);
        let marker = EndTransaction::read(header, records.clone())?;
        let next = self.open.first().map(|(offset, _)| *offset);
        (!marker.is_commit).then(|| AbortedTransaction {
            producer_id,
            first_offset,
            last_offset,
            last_stable_offset: next.unwrap_or(last_offset.plus(1)),
        })
    }

    /// The batch whose last offset is `last_offset` is taken back: what it changed as well.
    pub(super) fn take_back(
        &mut self,
        producer_id: ProducerId,
        last_offset: Offset,
        begun: Option<Offset>,
        begins: Option<Offset>,
    ) {
        if let Some(offset) = begins {
            self.open.remove(&(offset, producer_id));
        }
        if let Some(offset) = begun {
            self.open.insert((offset, producer_id));
        }
        self.ended.remove(&last_offset);
    }

    /// A snapshot held an open transaction.
    pub(super) fn restore(&mut self, begun: Offset, producer_id: ProducerId) {
        self.open.insert((begun, producer_id));
    }

    /// Where the first one begins that is open, or has its marker at `up_to` or above; those with
    /// a marker below it count no more.
    pub(super) fn first_unstable(&mut self, up_to: Offset) -> Option<Offset> {
        if !self.ended.is_empty() {
            self.ended = self.ended.split_off(&up_to);
        }
        let ended = self.ended.values().min().copied();
        let open = self.open.first().map(|(offset, _)| *offset);
        ended.into_iter().chain(open).min()
    }
}
