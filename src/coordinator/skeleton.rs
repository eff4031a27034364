//! The coordinator of one partition: loading, active, unloaded.

use base::{Instant, Now, Offset, ProducerId, Token};
use bytes::Bytes;
use records::{Batch, BatchError, Batches, ControlKey, ControlType};

use crate::journal::{Journal, Output, Turn, WriteRules};

/// Records of one compressed batch, opened while loading. Kafka has no such limit; its batches in
/// these topics are far smaller.
const LOADED_BATCH_BYTES_MAX: usize = 128 << 20;

/// What a coordinator does with calls.
///
/// | from | event | to |
/// |---|---|---|
/// | Loading | `loaded` | Active |
/// | Active | `appended(Err)` | Loading, with [`Output::Reload`] |
/// | any | `unload` | Unloaded |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The log is being replayed; calls are refused.
    Loading,
    /// Calls are handled.
    Active,
    /// The partition is led elsewhere; calls are refused.
    Unloaded,
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The log is still being loaded.
    Loading,
    /// This is not, or no longer, the coordinator.
    NotCoordinator,
    /// The append failed with this code of the wire.
    AppendFailed(i16),
}

/// A record of the log.
#[derive(Clone, Copy, Debug)]
pub struct Replayed<'a> {
    /// Where it stands.
    pub offset: Offset,
    /// Its key, empty for none.
    pub key: &'a [u8],
    /// Its value; none is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Whose transaction it belongs to, which has not ended yet.
    pub transaction: Option<ProducerId>,
}

/// The state of one partition and its rules.
pub trait Machine {
    /// What is asked.
    type Call;
    /// What is answered.
    type Reply;
    /// What calls are judged by besides, such as the metadata image.
    type Context;

    /// Changes the state by a record of the log.
    ///
    /// # Errors
    /// A sentence when the record cannot be read; loading fails then.
    fn replay(&mut self, record: &Replayed<'_>) -> Result<(), String>;

    /// A transaction in the log ended.
    fn end_transaction(&mut self, producer: ProducerId, committed: bool);

    /// The log is loaded: set timers.
    fn loaded(&mut self, turn: &mut Turn<'_, Self::Reply>);

    /// Handles a call; the reply may come in a later turn.
    fn handle(
        &mut self,
        turn: &mut Turn<'_, Self::Reply>,
        context: &Self::Context,
        call: Self::Call,
        ticket: Token,
    );

    /// When `on_timer` is to be called next.
    fn next_timer(&self) -> Option<Instant>;

    /// Does what is due.
    fn on_timer(&mut self, turn: &mut Turn<'_, Self::Reply>);

    /// Answers everyone who still waits, and forgets all state and timers.
    fn forget(&mut self, turn: &mut Turn<'_, Self::Reply>);

    /// The refusal of a call.
    fn refuse(call: &Self::Call, refusal: Refusal) -> Self::Reply;

    /// What becomes of a reply whose records were not written.
    fn retract(reply: Self::Reply, refusal: Refusal) -> Self::Reply;
}

/// Why a log cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A batch is damaged.
    #[error("a batch at or behind offset {} cannot be read: {error}", offset.0)]
    Batch {
        /// Where.
        offset: Offset,
        /// Why.
        error: BatchError,
    },
    /// A record says nothing that can be understood.
    #[error("the record at offset {} cannot be read: {reason}", offset.0)]
    Record {
        /// Where.
        offset: Offset,
        /// Why.
        reason: String,
    },
}

/// A machine with its log.
#[derive(Debug)]
pub struct Coordinator<M: Machine> {
    phase: Phase,
    machine: M,
    journal: Journal<M::Reply>,
    /// Where loading goes on.
    next_offset: Offset,
}

impl<M: Machine> Coordinator<M> {
    /// A coordinator that has to be loaded first.
    pub fn new(machine: M, rules: WriteRules) -> Self {
        let journal = Journal::new(rules);
        Self { phase: Phase::Loading, machine, journal, next_offset: Offset(0) }
    }

    /// What it does now.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Its state.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Replays consecutive batches of the log and says which offset comes next. A batch at the end
    /// that is not whole is left out, and one that was replayed already is passed over.
    ///
    /// # Errors
    /// When a batch or a record cannot be read: the state is of no use then.
    pub fn load(&mut self, batches: Bytes) -> Result<Offset, LoadError> {
        assert_eq!(self.phase, Phase::Loading, "only a coordinator that loads is given batches");
        for batch in Batches::new(batches) {
            let batch = batch.map_err(|error| self.damaged(error))?;
            if batch.header().next_offset() <= self.next_offset {
                continue;
            }
            batch.check_crc().map_err(|error| self.damaged(error))?;
            self.replay(&batch)?;
            self.next_offset = batch.header().next_offset();
        }
        Ok(self.next_offset)
    }

    fn damaged(&self, error: BatchError) -> LoadError {
        LoadError::Batch { offset: self.next_offset, error }
    }

    fn replay(&mut self, batch: &Batch) -> Result<(), LoadError> {
        let header = *batch.header();
        let transaction = header.is_transactional().then_some(header.producer_id);
        let damaged = |error| LoadError::Batch { offset: header.base_offset, error };
        let mut reader = batch.records(LOADED_BATCH_BYTES_MAX).map_err(damaged)?;
        while let Some(record) = reader.next_record().map_err(damaged)? {
            let key = record.key.unwrap_or_default();
            if header.is_control() {
                match ControlKey::read(key).map(|key| key.control_type) {
                    Some(ControlType::Commit) => {
                        self.machine.end_transaction(header.producer_id, true);
                    }
                    Some(ControlType::Abort) => {
                        self.machine.end_transaction(header.producer_id, false);
                    }
                    _ => {}
                }
                continue;
            }
            let (offset, value) = (record.offset, record.value);
            let replayed = Replayed { offset, key, value, transaction };
            let unread = |reason| LoadError::Record { offset, reason };
            self.machine.replay(&replayed).map_err(unread)?;
        }
        Ok(())
    }

    /// The whole log was replayed.
    pub fn loaded(&mut self, now: Now) {
        assert_eq!(self.phase, Phase::Loading, "only a coordinator that loads becomes loaded");
        self.phase = Phase::Active;
        self.machine.loaded(&mut Turn { now, journal: &mut self.journal });
    }

    /// Handles a call. Its reply comes with `ticket`, at any later time.
    pub fn handle(&mut self, now: Now, context: &M::Context, call: M::Call, ticket: Token) {
        let refusal = match self.phase {
            Phase::Active => {
                let mut turn = Turn { now, journal: &mut self.journal };
                return self.machine.handle(&mut turn, context, call, ticket);
            }
            Phase::Loading => Refusal::Loading,
            Phase::Unloaded => Refusal::NotCoordinator,
        };
        let reply = M::refuse(&call, refusal);
        self.journal.push(Output::Reply { ticket, reply });
    }

    /// Lets the machine do something that no client asked for. Nothing while it is not active.
    pub fn act(&mut self, now: Now, action: impl FnOnce(&mut M, &mut Turn<'_, M::Reply>)) {
        if self.phase == Phase::Active {
            action(&mut self.machine, &mut Turn { now, journal: &mut self.journal });
        }
    }

    /// What came of the batch in flight: the offset of its last record, or a code of the wire.
    /// After a failure nothing that was written since is sure, so all state is forgotten and the
    /// log is to be loaded again.
    pub fn appended(&mut self, now: Now, outcome: Result<Offset, i16>) {
        match outcome {
            Ok(last) => self.journal.appended(last),
            Err(code) if self.journal.is_writing() => {
                self.give_up(now, Refusal::AppendFailed(code));
                self.phase = Phase::Loading;
                self.next_offset = Offset(0);
                self.journal.push(Output::Reload);
            }
            // The answer crossed an unload.
            Err(_) => {}
        }
    }

    /// Everything below `end` is committed.
    pub fn high_watermark(&mut self, end: Offset) {
        self.journal.high_watermark(end);
    }

    /// When [`Self::on_timer`] is to be called next.
    pub fn next_timer(&self) -> Option<Instant> {
        self.machine.next_timer()
    }

    /// Does what is due.
    pub fn on_timer(&mut self, now: Now) {
        self.act(now, |machine, turn| machine.on_timer(turn));
    }

    /// The partition is led elsewhere from now on: everyone who waits is told.
    pub fn unload(&mut self, now: Now) {
        self.give_up(now, Refusal::NotCoordinator);
        self.phase = Phase::Unloaded;
    }

    fn give_up(&mut self, now: Now, refusal: Refusal) {
        for (ticket, reply) in self.journal.give_up() {
            self.journal.push(Output::Reply { ticket, reply: M::retract(reply, refusal) });
        }
        self.machine.forget(&mut Turn { now, journal: &mut self.journal });
    }

    /// Gives what is to be done. Called at the end of a turn, so that what was written in it goes
    /// into one append.
    pub fn end_of_turn(&mut self, out: &mut Vec<Output<M::Reply>>) {
        self.journal.flush();
        self.journal.take_outputs(out);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
