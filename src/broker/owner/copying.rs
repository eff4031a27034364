//! How a log that moves is copied: a piece at a time for each directory, read beside everything
//! else, checked, appended to the copy and written before the next one is read.

use api::{FileEffect, FileOutcome, IoErrorKind};
use base::{Duration, Instant, Offset, Token};
use bytes::Bytes;
use commitlog::{AppendBatch, CopyRead};
use records::{Batch, BatchError, HEADER_BYTES};

use super::moves::{PIECE_BYTES, Piece, RETRY_AFTER};
use super::{Alarm, Desk, Owner};
use crate::files::FileStep;

/// How many moves a turn looks at for one that has something to copy.
const LOOKS_PER_TURN: usize = 16;
/// The largest batch that is copied, in bytes: it is read at once. No request has room for more.
const BATCH_BYTES_MAX: u32 = 128 << 20;
/// How long a move waits whose log cannot be read, or is damaged.
const STUCK_FOR: Duration = Duration::from_secs(60);

impl Owner {
    /// Bytes in a second that this shard may copy, if that is limited.
    pub(crate) fn limit_moves(&mut self, bytes_per_second: Option<u64>) {
        if bytes_per_second == self.moves.bytes_per_second {
            return;
        }
        self.moves.bytes_per_second = bytes_per_second;
        self.moves.paid_at = Instant::ZERO;
        for token in self.moves.all.keys().copied().collect::<Vec<Token>>() {
            self.move_alarm(token);
        }
    }

    /// Reads the next pieces.
    pub(super) fn copy_on(&mut self, desk: &mut Desk<'_>) {
        for token in self.moves.turns.take(LOOKS_PER_TURN) {
            if self.moves.all.get(&token).is_some_and(|moved| moved.stage.copies()) {
                self.moves.takes_turn(token);
                self.read_piece(desk, token);
            }
        }
    }

    /// Reads the next piece for a move, if it has one and may.
    fn read_piece(&mut self, desk: &mut Desk<'_>, token: Token) {
        let moved = self.moves.all.get_mut(&token).expect("it has its turn");
        let stage = moved.stage;
        let Some(copy) = moved.copy else { return };
        let directory = self.partition(copy).directory;
        let is_busy = self.moves.busy.contains_key(&directory);
        if is_busy || self.is_dirty(directory) || self.partition(copy).log.unwritten_bytes() > 0 {
            return;
        }
        let moved = self.moves.all.get_mut(&token).expect("it has its turn");
        if moved.place.is_none() {
            return;
        }
        let paid_at = if stage.is_followed() { Instant::ZERO } else { self.moves.paid_at };
        let not_before = moved.not_before.unwrap_or(Instant::ZERO).max(paid_at);
        if desk.now.mono < not_before {
            moved.not_before = Some(not_before);
            self.alarms.set(not_before, Alarm::Move(token));
            // It has another turn by the alarm.
            self.moves.turns.remove(token);
            return;
        }
        moved.not_before = None;
        let bytes_max = PIECE_BYTES.max(moved.bytes_min);
        let place = moved.place.as_mut().expect("it copies");
        let partition = self.partitions.get(token).expect("it moves");
        match partition.log.copy_next(place, bytes_max) {
            CopyRead::Next { file, position, length } => {
                self.moves.busy.insert(directory, Piece { source: token, is_read: true });
                let effect = FileEffect::Read { token, file, position, length };
                desk.files.file(desk.effects, effect, |token| FileStep::Copy(token, copy));
            }
            CopyRead::End => {
                self.moves.turns.remove(token);
                self.moves.wake(token);
            }
            CopyRead::Gone => self.place_anew(token),
        }
    }

    /// Whether nothing is left to copy of what is written, and the copy is.
    pub(super) fn is_at_end(&mut self, token: Token) -> bool {
        let Some(moved) = self.moves.all.get(&token) else { return false };
        let place = moved.place;
        let Some(copy) = moved.copy else { return false };
        let is_busy = self.moves.busy.values().any(|piece| piece.source == token);
        let is_written = self.partition(copy).log.unwritten_bytes() == 0;
        let log = &self.partition(token).log;
        let is_end =
            place.is_some_and(|mut place| matches!(log.copy_next(&mut place, 1), CopyRead::End));
        is_end && is_written && !is_busy
    }

    /// A move that has something to copy has its turn.
    pub(super) fn line_up(&mut self, token: Token) {
        let Some(moved) = self.moves.all.get(&token) else { return };
        let (place, waits) = (moved.place, moved.not_before.is_some());
        let log = &self.partition(token).log;
        let is_end =
            place.is_none_or(|mut place| matches!(log.copy_next(&mut place, 1), CopyRead::End));
        if !is_end && !waits {
            self.moves.takes_turn(token);
        }
    }

    /// The place is looked for again: segments went, or batches did not get into the copy.
    fn place_anew(&mut self, token: Token) {
        let moved = self.moves.all.get_mut(&token).expect("it moves");
        moved.place = None;
        self.moves.turns.remove(token);
        self.moves.wake(token);
    }

    /// A piece has been read.
    pub(crate) fn piece_read(
        &mut self,
        desk: &mut Desk<'_>,
        token: Token,
        copy: Token,
        outcome: FileOutcome,
    ) {
        let current = self.moves.all.get(&token).filter(|moved| moved.copy == Some(copy));
        if !current.is_some_and(|moved| moved.stage.copies()) {
            return;
        }
        let directory = self.partition(copy).directory;
        let piece = self.moves.busy.get_mut(&directory);
        let Some(piece) = piece.filter(|piece| piece.source == token && piece.is_read) else {
            return;
        };
        piece.is_read = false;
        match outcome.read() {
            Ok(bytes) => self.append_piece(desk, token, copy, &bytes),
            Err(cause) => {
                self.moves.busy.remove(&directory);
                if cause.kind == IoErrorKind::NotFound {
                    return self.file_is_missing(desk, token);
                }
                self.disk_failed(desk, token, cause.to_string());
            }
        }
        self.moves.wake(token);
    }

    /// Appends the whole batches of a piece to the copy.
    fn append_piece(&mut self, desk: &mut Desk<'_>, token: Token, copy: Token, bytes: &Bytes) {
        let directory = self.partition(copy).directory;
        let from = self.partition(copy).log.end_offset();
        let piece = match Batches::read(bytes, from) {
            Ok(piece) => piece,
            Err(BadPiece::Overlaps) => {
                self.moves.busy.remove(&directory);
                if self.moves.all.get(&token).is_some_and(|moved| moved.is_in_step) {
                    return self.is_stuck(desk, token, "a batch begins within the one before it");
                }
                // The copy ends within a batch of the log: it is no copy of this one.
                return self.begin_anew(desk, token);
            }
            Err(BadPiece::Damaged(why)) => {
                self.moves.busy.remove(&directory);
                return self.is_stuck(desk, token, &why);
            }
        };
        if piece.batches.is_empty() {
            self.moves.busy.remove(&directory);
            return match self.bytes_of_next(token, bytes.len(), piece.next_bytes) {
                Ok(next_bytes) => {
                    self.moves.all.get_mut(&token).expect("it copies").bytes_min = next_bytes;
                }
                Err(why) => self.is_stuck(desk, token, &why),
            };
        }
        let moved = self.moves.all.get_mut(&token).expect("it copies");
        moved.bytes_min = 0;
        moved.is_in_step = true;
        moved.place.as_mut().expect("it copies").advance(piece.bytes);
        let mut appended = None;
        self.with_log(desk, copy, |log, now, _, _| {
            appended = Some(log.append_copied(now, &piece.batches));
        });
        if let Some(Err(error)) = appended {
            // It is being taken back what did not fit the disk.
            tracing::debug!(%error, "the copy goes on in a moment");
            self.moves.busy.remove(&directory);
            let moved = self.moves.all.get_mut(&token).expect("it copies");
            moved.not_before = Some(desk.now.mono + RETRY_AFTER);
            return self.place_anew(token);
        }
        self.pay(desk.now.mono, piece.bytes);
        self.touch(copy);
    }

    /// What was copied has to be paid for, where bytes in a second are limited.
    fn pay(&mut self, now: Instant, bytes: u32) {
        let Some(bytes_per_second) = self.moves.bytes_per_second else { return };
        let nanos = u64::from(bytes).saturating_mul(1_000_000_000) / bytes_per_second.max(1);
        self.moves.paid_at = self.moves.paid_at.max(now) + Duration::from_nanos(nanos);
    }

    /// How much has to be read of the next batch, which says that it is so long, and of which as
    /// much was read as is there or was asked for. A sentence says why it can never be read whole.
    fn bytes_of_next(&mut self, token: Token, read: usize, bytes: u32) -> Result<u32, String> {
        let moved = self.moves.all.get(&token).expect("it copies");
        let asked = PIECE_BYTES.max(moved.bytes_min);
        let mut place = moved.place.expect("it copies");
        let CopyRead::Next { length: left, .. } =
            self.partition(token).log.copy_next(&mut place, u32::MAX)
        else {
            // It was deleted meanwhile, which the next read finds.
            return Ok(0);
        };
        if read < left.min(asked) as usize {
            return Err("the file of a segment is shorter than the segment".to_owned());
        }
        if bytes > left {
            return Err(format!("a batch of {bytes} bytes in a segment that has {left} left"));
        }
        if bytes > BATCH_BYTES_MAX {
            return Err(format!("a batch of {bytes} bytes, which is more than {BATCH_BYTES_MAX}"));
        }
        Ok(bytes)
    }

    /// A file is not there. Its segment may have been deleted meanwhile.
    fn file_is_missing(&mut self, desk: &mut Desk<'_>, token: Token) {
        let place = self.moves.all.get(&token).expect("it copies").place;
        let log = &self.partition(token).log;
        let is_gone =
            place.is_none_or(|mut place| matches!(log.copy_next(&mut place, 1), CopyRead::Gone));
        if is_gone {
            return self.place_anew(token);
        }
        self.is_stuck(desk, token, "the file of a segment is missing");
    }

    /// A log cannot be copied further for now. A move that holds up appends is given up.
    fn is_stuck(&mut self, desk: &mut Desk<'_>, token: Token, why: &str) {
        let partition = &self.partition(token).name;
        tracing::error!(%partition, "the log cannot be copied to another directory: {why}");
        let moved = self.moves.all.get_mut(&token).expect("it copies");
        moved.not_before = Some(desk.now.mono + STUCK_FOR);
        if moved.stage.is_followed() {
            return self.cancel_move(desk, token);
        }
        self.moves.wake(token);
    }

    /// It is time to go on with a move.
    pub(super) fn move_alarm(&mut self, token: Token) {
        let Some(moved) = self.moves.all.get_mut(&token) else { return };
        moved.not_before = None;
        if moved.stage.copies() && moved.place.is_some() {
            self.moves.takes_turn(token);
        }
        self.moves.wake(token);
    }

    /// More of the copy is written, or durable: appends may have waited for that.
    pub(super) fn note_copied(&mut self, desk: &mut Desk<'_>, token: Token) {
        let Some(moved) = self.moves.all.get(&token) else { return };
        let is_followed = moved.stage.is_followed();
        let Some(copy) = moved.copy else { return };
        let copied = self.partition(copy);
        let (written, flushed) = (copied.log.written_end_offset(), copied.log.flushed_end_offset());
        let is_written = copied.log.unwritten_bytes() == 0;
        let directory = copied.directory;
        let piece = self.moves.busy.get(&directory);
        if is_written && piece.is_some_and(|piece| piece.source == token && !piece.is_read) {
            self.moves.busy.remove(&directory);
        }
        let source_end = self.partition(token).high_watermark();
        self.partition(copy).follow_high_watermark(source_end.min(written));
        if is_followed {
            let partition = self.partition(token);
            partition.follow(Some((written, flushed)));
            if partition.awaits_sync() && flushed < written {
                self.sync_copy(copy);
            }
            self.advanced(desk, token);
        }
        self.moves.wake(token);
    }

    /// Asks for all of a copy to be durable; the effects leave at the end of the turn.
    pub(super) fn sync_copy(&mut self, copy: Token) {
        self.partition(copy).wants_copy_synced = true;
        self.touch(copy);
    }
}

/// What cannot be copied.
enum BadPiece {
    /// The first batch begins below the end of the copy.
    Overlaps,
    /// Something that is no whole batch; a sentence says what.
    Damaged(String),
}

/// The whole batches in some bytes.
struct Batches {
    batches: Vec<AppendBatch>,
    bytes: u32,
    /// How long the batch is that was not whole.
    next_bytes: u32,
}

impl Batches {
    /// None of them begins below `from`.
    fn read(bytes: &Bytes, from: Offset) -> Result<Self, BadPiece> {
        let damaged = |error: BatchError| BadPiece::Damaged(error.to_string());
        let mut piece = Self { batches: Vec::new(), bytes: 0, next_bytes: 0 };
        let mut next = from;
        loop {
            let rest = bytes.slice(piece.bytes as usize..);
            let batch = match Batch::read(&rest) {
                Ok(Some(batch)) => batch,
                Ok(None) => {
                    piece.next_bytes = batch_bytes(&rest);
                    return Ok(piece);
                }
                Err(error) => return Err(damaged(error)),
            };
            batch.check_crc().map_err(damaged)?;
            if batch.header().base_offset < next && piece.batches.is_empty() {
                return Err(BadPiece::Overlaps);
            }
            if batch.header().base_offset < next {
                return Err(BadPiece::Damaged("a batch begins within the one before it".into()));
            }
            next = batch.header().next_offset();
            let header = *batch.bytes().first_chunk::<HEADER_BYTES>().expect("it was read");
            piece.batches.push(AppendBatch { header, records: batch.record_bytes() });
            piece.bytes += u32::try_from(batch.size()).expect("a segment is below 2 GB");
        }
    }
}

/// How long the batch is that begins here, as far as it says so already.
fn batch_bytes(bytes: &Bytes) -> u32 {
    const LENGTH_AT: usize = 8;
    let length = bytes.get(LENGTH_AT..).and_then(|rest| rest.first_chunk::<4>());
    let length = length.map_or(0, |length| u32::from_be_bytes(*length));
    length.saturating_add(LENGTH_AT as u32 + 4)
}
