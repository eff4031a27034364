//! Reads by offset: from memory or as a slice of a file, at once wherever the way is known.

use std::collections::VecDeque;

use api::{FileSlice, Part};
use base::Offset;

use super::place::{FoundBatch, Located, ReadError};
use super::search::Flow;
use super::{Log, LogEffects, LogState};
use crate::index;
use crate::step::Ticket;

/// Places that searches found, and that are remembered, at most.
const LOCATED_MAX: usize = 128;
/// By how much a read of at least one batch may go beyond its limit to the next known boundary,
/// rather than look up where the first batch ends, in bytes.
const OVERSHOOT_BYTES_MAX: u32 = 128 << 10;

/// What is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The first offset.
    pub offset: Offset,
    /// Records from here on are not shown: the high watermark or the last stable offset. It is
    /// the base offset of a batch, or the end of the log.
    pub up_to: Offset,
    /// How many bytes, at most.
    pub bytes_max: u32,
    /// Whether the first batch is wanted whatever its size (KIP-74).
    pub at_least_one: bool,
}

/// How a read goes on.
#[derive(Debug)]
pub enum Read {
    /// This is it.
    Plan(ReadPlan),
    /// A place in a file has to be looked up: after [`crate::LogEvent::Located`] with this ticket
    /// the same read will succeed.
    Locating(Ticket),
    /// Too many places are looked up already: try again after any of them.
    Busy,
}

/// What to send.
#[derive(Clone, Debug, Default)]
pub struct ReadPlan {
    /// Batches in order. The first one holds the first offset, or is the first one behind it. The
    /// last one can be cut off, as Kafka's can.
    pub parts: Vec<Part>,
    /// How many bytes they have; 0 when there is nothing to be shown yet.
    pub bytes: u32,
    /// As many of them hold at least the first batch whole.
    pub first_bytes: u32,
    /// No batch of them begins here or above.
    pub below: Offset,
}

impl Log {
    /// Reads from an offset on. What was written lately, and what follows an earlier read, is
    /// found without an effect.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(&mut self, request: ReadRequest, out: &mut LogEffects) -> Result<Read, ReadError> {
        if !matches!(self.state, LogState::Open | LogState::Closing) {
            return Err(ReadError::NotOpen);
        }
        let (log_start_offset, end_offset) = (self.log_start_offset, self.written_end_offset());
        let offset = request.offset;
        if offset < log_start_offset || offset > end_offset {
            return Err(ReadError::OutOfRange { log_start_offset, end_offset });
        }
        let up_to = request.up_to.min(end_offset);
        let nothing = request.bytes_max == 0 && !request.at_least_one;
        if offset >= up_to || nothing {
            return Ok(Read::Plan(ReadPlan::default()));
        }
        let bytes_max = request.bytes_max as usize;
        if let Some(found) = self.tail.read(offset, up_to, bytes_max, request.at_least_one) {
            let bytes = found.iter().map(|part| part.len() as u32).sum();
            let first_bytes = found.first().map_or(0, |part| part.len() as u32);
            let parts = found.into_iter().map(Part::Bytes).collect();
            return Ok(Read::Plan(ReadPlan { parts, bytes, first_bytes, below: up_to }));
        }
        self.read_file(request, up_to, out)
    }

    fn read_file(
        &mut self,
        request: ReadRequest,
        up_to: Offset,
        out: &mut LogEffects,
    ) -> Result<Read, ReadError> {
        if self.is_empty_from(self.segment_of(request.offset)) {
            return Ok(Read::Plan(ReadPlan::default()));
        }
        let Some((place, start)) = self.start_of(request.offset)? else {
            return Ok(self.locate(request.offset, out));
        };
        let Some(limit) = self.limit_of(place, up_to)? else {
            return Ok(self.locate(up_to, out));
        };
        if limit <= start {
            return Ok(Read::Plan(ReadPlan::default()));
        }
        let segment = &self.segments[place];
        let bytes_max = request.bytes_max;
        let first_bytes =
            self.located_at(request.offset)?.map(|found| found.bytes).filter(|it| *it > 0);
        let end = if limit - start <= bytes_max {
            limit
        } else if let Some(cut) = segment.cut_up_to(start, bytes_max) {
            cut
        } else if let Some(bytes) = first_bytes {
            match bytes {
                bytes if bytes <= bytes_max => {
                    let up_to = start.saturating_add(bytes_max).min(limit);
                    self.cut_by_index(place, start, up_to, out).unwrap_or(up_to)
                }
                bytes if request.at_least_one => start + bytes,
                _ => start,
            }
        } else {
            let next = segment.marks.first_behind(start);
            match next {
                Some(mark)
                    if request.at_least_one
                        && mark.position - start <= bytes_max.max(OVERSHOOT_BYTES_MAX) =>
                {
                    mark.position
                }
                _ => return Ok(self.locate(request.offset, out)),
            }
        };
        let segment = &self.segments[place];
        let length = end.min(limit) - start;
        if length == 0 {
            return Ok(Read::Plan(ReadPlan::default()));
        }
        // Where the first batch ends is not looked up for this: the next known boundary will do.
        let boundary = || segment.marks.first_behind(start).map(|mark| mark.position - start);
        let first_bytes = first_bytes.or_else(boundary).unwrap_or(length).min(length);
        let behind = segment.marks.first_behind((start + length).saturating_sub(1));
        let below = behind
            .map_or(up_to, |mark| up_to.min(segment.base.plus(i64::from(mark.relative_offset))));
        let (file, position) = (segment.log.clone(), u64::from(start));
        let parts = vec![Part::File(FileSlice { file, position, length })];
        Ok(Read::Plan(ReadPlan { parts, bytes: length, first_bytes, below }))
    }

    /// The segment and position at which reading from `offset` begins, if they are known.
    pub(super) fn start_of(&self, offset: Offset) -> Result<Option<(usize, u32)>, ReadError> {
        let place = self.segment_of(offset);
        let segment = &self.segments[place];
        if index::fits(segment.base, offset)
            && let Some(position) = segment.marks.position_of(index::relative(segment.base, offset))
            && position < self.written_bytes_of(place)
        {
            return Ok(Some((place, position)));
        }
        let found = self.located_at(offset)?;
        Ok(found.map(|found| (self.place_of(found.segment), found.position)))
    }

    /// Where reading of the segment at `place` has to end, so that nothing from `up_to` on is
    /// shown, if that is known.
    fn limit_of(&self, place: usize, up_to: Offset) -> Result<Option<u32>, ReadError> {
        let segment = &self.segments[place];
        let reaches_next = self.segments.get(place + 1).is_some_and(|next| next.base <= up_to);
        if reaches_next || up_to >= self.written_end_offset() {
            return Ok(Some(self.written_bytes_of(place)));
        }
        if self.is_empty_from(self.segment_of(up_to)) {
            return Ok(Some(self.written_bytes_of(place)));
        }
        if up_to <= segment.base {
            return Ok(Some(0));
        }
        if index::fits(segment.base, up_to)
            && let Some(position) = segment.marks.position_of(index::relative(segment.base, up_to))
        {
            return Ok(Some(position));
        }
        let Some(found) = self.located_at(up_to)? else { return Ok(None) };
        let ends_here = found.segment == segment.base;
        Ok(Some(if ends_here { found.position } else { self.written_bytes_of(place) }))
    }

    /// The index of the last segment that begins at or before `offset`.
    pub(super) fn segment_of(&self, offset: Offset) -> usize {
        let behind = self.segments.partition_point(|segment| segment.base <= offset);
        behind.saturating_sub(1)
    }

    fn located_at(&self, offset: Offset) -> Result<Option<FoundBatch>, ReadError> {
        let located = self.located.iter().find(|located| located.offset == offset);
        located.map(|located| located.place).transpose()
    }

    /// Looks up where reading from `offset` begins; one search serves all who ask for it.
    fn locate(&mut self, offset: Offset, out: &mut LogEffects) -> Read {
        let same = self
            .flows
            .iter()
            .find(|(_, flow)| flow.as_ref().and_then(Flow::locates) == Some(offset));
        if let Some((token, _)) = same {
            return Read::Locating(Ticket(token));
        }
        self.begin_locate(offset, out).map_or(Read::Busy, Read::Locating)
    }

    /// Remembers what a search found.
    pub(super) fn remember(&mut self, located: Located) {
        self.located.retain(|other| other.offset != located.offset);
        if self.located.len() >= LOCATED_MAX {
            self.located.pop_front();
        }
        self.located.push_back(located);
    }

    /// Forgets the places: files were cut or went.
    pub(super) fn forget_places(&mut self) {
        self.located = VecDeque::new();
        self.window = None;
    }
}
