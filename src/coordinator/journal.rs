//! What a coordinator writes, and the replies that wait for it.

use std::collections::VecDeque;

use base::{Now, Offset, Token};
use bytes::Bytes;
use records::{BatchBuilder, Compression, HEADER_BYTES, NewRecord};

/// By how much a record may become longer than estimated, since the deltas of its offset and its
/// time are not known yet.
const RECORD_SLACK_BYTES: usize = 16;

/// How batches are written.
#[derive(Clone, Copy, Debug)]
pub struct WriteRules {
    /// `offsets.topic.compression.codec` and its like.
    pub compression: Compression,
    /// The largest batch that the partition takes (`max.message.bytes` of its topic).
    pub batch_bytes_max: usize,
}

impl Default for WriteRules {
    /// Kafka's defaults: no compression, and batches of 1 MiB with their frame.
    fn default() -> Self {
        Self { compression: Compression::None, batch_bytes_max: (1 << 20) + 12 }
    }
}

/// A record to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// The value; none is a tombstone.
    pub value: Option<Bytes>,
}

/// Why records were not written: they do not fit into one batch, which must hold them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the records are larger than the largest batch")]
pub struct NotWritten;

/// What the host of a coordinator has to do.
#[derive(Debug)]
pub enum Output<R> {
    /// Append this batch, whose base offset is 0. One is outstanding at a time; the host answers
    /// with [`Coordinator::appended`](crate::Coordinator::appended).
    Append {
        /// The batch.
        batch: Bytes,
    },
    /// Send a reply.
    Reply {
        /// What was given with the call.
        ticket: Token,
        /// The reply.
        reply: R,
    },
    /// An append failed and the state is forgotten: read the log again, from its start.
    Reload,
}

/// Batches on their way into the log. `written` counts records; a position in that count is known
/// before an offset is.
#[derive(Debug)]
pub(crate) struct Journal<R> {
    rules: WriteRules,
    written: u64,
    committed: u64,
    high_watermark: Offset,
    open: Option<BatchBuilder>,
    /// Full batches that wait for the one in flight, with the position behind them.
    sealed: VecDeque<(u64, Bytes)>,
    in_flight: Option<u64>,
    /// Positions behind appended batches with their last offsets, still above the watermark.
    appended: VecDeque<(u64, Offset)>,
    /// Replies in the order of the positions that they wait for.
    parked: VecDeque<(u64, Token, R)>,
    outputs: Vec<Output<R>>,
}

impl<R> Journal<R> {
    pub(crate) fn new(rules: WriteRules) -> Self {
        Self {
            rules,
            written: 0,
            committed: 0,
            high_watermark: Offset(0),
            open: None,
            sealed: VecDeque::new(),
            in_flight: None,
            appended: VecDeque::new(),
            parked: VecDeque::new(),
            outputs: Vec::new(),
        }
    }

    fn write(&mut self, now: Now, records: &[KeyValue]) -> Result<(), NotWritten> {
        let new = |record: &KeyValue| -> usize {
            record.key.len() + record.value.as_ref().map_or(0, Bytes::len) + 2 * RECORD_SLACK_BYTES
        };
        let bytes: usize = records.iter().map(new).sum();
        let room = self.rules.batch_bytes_max.saturating_sub(HEADER_BYTES);
        if bytes > room {
            return Err(NotWritten);
        }
        if self.open.as_ref().is_some_and(|open| open.plain_bytes() + bytes > room) {
            self.seal();
        }
        let compression = self.rules.compression;
        let open = self.open.get_or_insert_with(|| BatchBuilder::new(Offset(0), compression));
        for record in records {
            open.append(&NewRecord {
                timestamp: now.wall_ms,
                key: Some(&record.key),
                value: record.value.as_deref(),
                headers: &[],
            });
            self.written += 1;
        }
        Ok(())
    }

    fn seal(&mut self) {
        if let Some(open) = self.open.take() {
            self.sealed.push_back((self.written, open.build().bytes().clone()));
        }
    }

    fn park(&mut self, ticket: Token, reply: R) {
        if self.committed == self.written {
            self.outputs.push(Output::Reply { ticket, reply });
        } else {
            self.parked.push_back((self.written, ticket, reply));
        }
    }

    /// Sends the next batch on its way, unless one is.
    pub(crate) fn flush(&mut self) {
        if self.in_flight.is_some() {
            return;
        }
        if self.sealed.is_empty() {
            self.seal();
        }
        if let Some((position, batch)) = self.sealed.pop_front() {
            self.in_flight = Some(position);
            self.outputs.push(Output::Append { batch });
        }
    }

    pub(crate) fn appended(&mut self, last: Offset) {
        // None after an unload that crossed the answer.
        if let Some(position) = self.in_flight.take() {
            self.appended.push_back((position, last));
            self.release();
        }
    }

    pub(crate) fn high_watermark(&mut self, end: Offset) {
        self.high_watermark = self.high_watermark.max(end);
        self.release();
    }

    fn release(&mut self) {
        while let Some((position, last)) = self.appended.front() {
            if *last >= self.high_watermark {
                break;
            }
            self.committed = *position;
            self.appended.pop_front();
        }
        while self.parked.front().is_some_and(|(position, ..)| *position <= self.committed) {
            if let Some((_, ticket, reply)) = self.parked.pop_front() {
                self.outputs.push(Output::Reply { ticket, reply });
            }
        }
    }

    /// Forgets everything on its way, and gives the replies that waited for it.
    pub(crate) fn give_up(&mut self) -> Vec<(Token, R)> {
        self.open = None;
        self.sealed.clear();
        self.in_flight = None;
        self.appended.clear();
        self.committed = self.written;
        self.parked.drain(..).map(|(_, ticket, reply)| (ticket, reply)).collect()
    }

    pub(crate) fn push(&mut self, output: Output<R>) {
        self.outputs.push(output);
    }

    pub(crate) fn take_outputs(&mut self, out: &mut Vec<Output<R>>) {
        out.append(&mut self.outputs);
    }

    pub(crate) fn is_writing(&self) -> bool {
        self.in_flight.is_some()
    }
}

/// What a machine has in hand while it handles something.
#[derive(Debug)]
pub struct Turn<'a, R> {
    /// The time of this turn.
    pub now: Now,
    pub(crate) journal: &'a mut Journal<R>,
}

impl<R> Turn<'_, R> {
    /// Writes records that stand or fall together: they go into one batch. The machine changes its
    /// state by them at once; should the append fail, all state is forgotten and loaded anew.
    ///
    /// # Errors
    /// When they are too large for a batch; nothing is written then.
    pub fn write(&mut self, records: &[KeyValue]) -> Result<(), NotWritten> {
        self.journal.write(self.now, records)
    }

    /// Replies when everything that was written so far is committed: what the reply says was read
    /// from state that rests on it.
    pub fn reply(&mut self, ticket: Token, reply: R) {
        self.journal.park(ticket, reply);
    }

    /// Replies with what rests on no record.
    pub fn reply_at_once(&mut self, ticket: Token, reply: R) {
        self.journal.push(Output::Reply { ticket, reply });
    }
}
