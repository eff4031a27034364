//! One producer (`ProducerStateEntry`, `ProducerAppendInfo`).

use base::{Offset, ProducerEpoch, ProducerId};
use bytes::Bytes;
use records::{
    BatchHeader, EndTransaction, NO_SEQUENCE, NO_TIMESTAMP, decrement_sequence, increment_sequence,
};

/// Batches of a producer that are remembered: as many as a client may have in flight.
const BATCHES_MAX: usize = 5;
/// "No coordinator has written a marker", as a snapshot writes it.
const NO_COORDINATOR_EPOCH: i32 = -1;

/// A batch that the log holds already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierBatch {
    /// The offset of its first record.
    pub first_offset: Offset,
    /// The offset of its last record.
    pub last_offset: Offset,
    /// Its largest timestamp, in milliseconds since 1970.
    pub timestamp: i64,
}

/// Why a client's batch is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProducerError {
    /// Batches before it are missing, or it is older than those that are remembered
    /// (OUT_OF_ORDER_SEQUENCE_NUMBER).
    #[error("the sequence {found} of producer {producer_id} does not follow {last}")]
    OutOfOrderSequence {
        /// Whose batch.
        producer_id: ProducerId,
        /// Its first sequence.
        found: i32,
        /// The last sequence in the log, −1 for none in this epoch.
        last: i32,
    },
    /// A later incarnation of the producer has written (INVALID_PRODUCER_EPOCH).
    #[error("the epoch {found} of producer {producer_id} is older than {current}")]
    InvalidEpoch {
        /// Whose batch.
        producer_id: ProducerId,
        /// Its epoch.
        found: ProducerEpoch,
        /// The epoch that wrote last.
        current: ProducerEpoch,
    },
    /// The producer has a transaction open, and the batch is no part of one (INVALID_TXN_STATE).
    #[error("producer {producer_id} has a transaction open")]
    InvalidTransactionState {
        /// Whose batch.
        producer_id: ProducerId,
    },
}

/// What is known of a producer, without all but its last batch: an entry of a snapshot, and what
/// DescribeProducers tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// Who.
    pub producer_id: ProducerId,
    /// The epoch that wrote last, −1 for none.
    pub producer_epoch: ProducerEpoch,
    /// The sequence of its last record, −1 for none in this epoch.
    pub last_sequence: i32,
    /// The offset of its last record, −1 for none in this epoch.
    pub last_offset: Offset,
    /// By how much the last offset of its last batch lies above the first.
    pub offset_delta: i32,
    /// The timestamp of its last batch or marker, in milliseconds since 1970.
    pub last_timestamp: i64,
    /// The epoch of the coordinator that wrote its last marker, −1 for none.
    pub coordinator_epoch: i32,
    /// Where its open transaction begins.
    pub transaction_start: Option<Offset>,
}

/// One batch of a producer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    last_offset: Offset,
    timestamp: i64,
    last_sequence: i32,
    offset_delta: i32,
}

/// What has to be put back when a batch is.
#[derive(Debug)]
pub(super) enum Before {
    /// The producer was not known.
    Absent,
    /// One batch was added in the same epoch.
    Batch {
        /// The oldest one, which made room for it.
        dropped: Option<Span>,
        last_timestamp: i64,
    },
    /// More has changed.
    Entry(Box<Entry>),
}

/// A producer in memory: 160 bytes, whatever it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Oldest first; those from `count` on mean nothing.
    batches: [Span; BATCHES_MAX],
    last_timestamp: i64,
    /// −1 for none.
    transaction_start: i64,
    coordinator_epoch: i32,
    epoch: ProducerEpoch,
    count: u8,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            batches: [Span::default(); BATCHES_MAX],
            last_timestamp: NO_TIMESTAMP,
            transaction_start: -1,
            coordinator_epoch: NO_COORDINATOR_EPOCH,
            epoch: ProducerEpoch::NONE,
            count: 0,
        }
    }
}

impl Span {
    fn first_sequence(&self) -> i32 {
        decrement_sequence(self.last_sequence, self.offset_delta)
    }

    fn first_offset(&self) -> Offset {
        // Wraps on what only a forged snapshot can hold.
        Offset(self.last_offset.0.wrapping_sub(i64::from(self.offset_delta)))
    }
}

impl Entry {
    pub(super) fn of(state: &ProducerState) -> Self {
        let mut entry = Self {
            last_timestamp: state.last_timestamp,
            transaction_start: state.transaction_start.map_or(-1, |offset| offset.0),
            coordinator_epoch: state.coordinator_epoch,
            epoch: state.producer_epoch,
            ..Self::default()
        };
        if state.last_offset.0 >= 0 {
            entry.batches[0] = Span {
                last_offset: state.last_offset,
                timestamp: state.last_timestamp,
                last_sequence: state.last_sequence,
                offset_delta: state.offset_delta,
            };
            entry.count = 1;
        }
        entry
    }

    pub(super) fn state(&self, producer_id: ProducerId) -> ProducerState {
        let last = self.last();
        ProducerState {
            producer_id,
            producer_epoch: self.epoch,
            last_sequence: last.map_or(NO_SEQUENCE, |span| span.last_sequence),
            last_offset: last.map_or(Offset(-1), |span| span.last_offset),
            offset_delta: last.map_or(0, |span| span.offset_delta),
            last_timestamp: self.last_timestamp,
            coordinator_epoch: self.coordinator_epoch,
            transaction_start: self.transaction_start(),
        }
    }

    /// Judges a client's batch, in Kafka's order: one that is there already is no error, whatever
    /// else it is.
    pub(super) fn check(
        &self,
        header: &BatchHeader,
    ) -> Result<Option<EarlierBatch>, ProducerError> {
        let producer_id = header.producer_id;
        if header.producer_epoch == self.epoch
            && let Some(span) = self.find(header.base_sequence, header.last_sequence())
        {
            return Ok(Some(EarlierBatch {
                first_offset: span.first_offset(),
                last_offset: span.last_offset,
                timestamp: span.timestamp,
            }));
        }
        if header.producer_epoch < self.epoch {
            let (found, current) = (header.producer_epoch, self.epoch);
            return Err(ProducerError::InvalidEpoch { producer_id, found, current });
        }
        let last = if header.producer_epoch == self.epoch {
            self.last().map_or(NO_SEQUENCE, |span| span.last_sequence)
        } else {
            NO_SEQUENCE
        };
        let (found, knows_epoch) = (header.base_sequence, self.epoch != ProducerEpoch::NONE);
        if knows_epoch && found != increment_sequence(last, 1) {
            return Err(ProducerError::OutOfOrderSequence { producer_id, found, last });
        }
        if self.transaction_start >= 0 && !header.is_transactional() {
            return Err(ProducerError::InvalidTransactionState { producer_id });
        }
        Ok(None)
    }

    /// Takes a batch in that stands in the log from now on; nothing is judged.
    pub(super) fn append(&mut self, header: &BatchHeader, records: &Bytes) -> Before {
        if header.is_control() {
            let before = Before::Entry(Box::new(*self));
            if let Some(marker) = EndTransaction::read(header, records.clone()) {
                self.set_epoch(header.producer_epoch);
                self.coordinator_epoch = marker.coordinator_epoch;
                self.last_timestamp = marker.timestamp;
                self.transaction_start = -1;
            }
            return before;
        }
        let begins = header.is_transactional() && self.transaction_start < 0;
        let before = if begins || header.producer_epoch != self.epoch {
            Before::Entry(Box::new(*self))
        } else {
            let dropped = (usize::from(self.count) == BATCHES_MAX).then(|| self.batches[0]);
            Before::Batch { dropped, last_timestamp: self.last_timestamp }
        };
        self.set_epoch(header.producer_epoch);
        self.push(Span {
            last_offset: header.last_offset(),
            timestamp: header.max_timestamp,
            last_sequence: header.last_sequence(),
            offset_delta: header.last_offset_delta,
        });
        self.last_timestamp = header.max_timestamp;
        if begins {
            self.transaction_start = header.base_offset.0;
        }
        before
    }

    /// Puts back what the last batch changed.
    pub(super) fn take_back(&mut self, dropped: Option<Span>, last_timestamp: i64) {
        self.last_timestamp = last_timestamp;
        if let Some(dropped) = dropped {
            self.batches.rotate_right(1);
            self.batches[0] = dropped;
        } else {
            self.count -= 1;
        }
    }

    pub(super) fn is_expired(&self, now_ms: i64, expiration_ms: i64) -> bool {
        self.transaction_start < 0 && now_ms.saturating_sub(self.last_timestamp) >= expiration_ms
    }

    /// Where its open transaction begins.
    pub(super) fn transaction_start(&self) -> Option<Offset> {
        (self.transaction_start >= 0).then_some(Offset(self.transaction_start))
    }

    /// Where it wrote last, if it has no transaction open.
    pub(super) fn idle_since(&self) -> Option<Offset> {
        let end = self.last().map_or(Offset(-1), |span| span.last_offset);
        (self.transaction_start < 0).then_some(end)
    }

    fn last(&self) -> Option<&Span> {
        self.batches[..usize::from(self.count)].last()
    }

    fn find(&self, first_sequence: i32, last_sequence: i32) -> Option<&Span> {
        self.batches[..usize::from(self.count)].iter().find(|span| {
            span.last_sequence == last_sequence && span.first_sequence() == first_sequence
        })
    }

    /// A new epoch knows nothing of the batches of the one before it.
    fn set_epoch(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.count = 0;
        }
    }

    fn push(&mut self, span: Span) {
        if usize::from(self.count) == BATCHES_MAX {
            self.batches.rotate_left(1);
        } else {
            self.count += 1;
        }
        self.batches[usize::from(self.count) - 1] = span;
    }
}
