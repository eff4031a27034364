//! Searches for offsets, by time and by epoch, and moves of the log start offset.

use base::{LeaderEpoch, Offset, Token};
use commitlog::Ticket;
use intercom::{
    DeletePartition, Deleted, EpochEnd, EpochEndPartition, FoundOffset, OffsetsPartition, Reply,
};
use protocol::ErrorCode;

use super::{Asker, Desk, Gathering, Owner, Serving};
use crate::partition::Place;

/// The values of a timestamp that stand for something else (`ListOffsetsRequest`, KIP-734,
/// KIP-405, KIP-1005, KIP-1023).
mod special {
    pub(super) const LATEST: i64 = -1;
    pub(super) const EARLIEST: i64 = -2;
    pub(super) const MAX_TIMESTAMP: i64 = -3;
    pub(super) const EARLIEST_LOCAL: i64 = -4;
    pub(super) const LATEST_TIERED: i64 = -5;
    pub(super) const EARLIEST_PENDING_UPLOAD: i64 = -6;
}

/// An answer that is there, or the search that will bring it.
enum Lookup {
    Found(FoundOffset),
    Searching(Token, Ticket),
}

impl Owner {
    pub(super) fn offsets(&mut self, desk: &mut Desk<'_>, asker: Asker, list: &[OffsetsPartition]) {
        let serving = Serving::Offsets(Gathering::new(asker, list.len()));
        let token = self.serving.insert(serving).expect("there was room");
        for (index, part) in list.iter().enumerate() {
            let place = Place { ask: token, index };
            match self.look_up(desk, part) {
                Ok(Lookup::Found(found)) => self.offset_found(desk, place, found),
                Ok(Lookup::Searching(partition, ticket)) => {
                    self.searches.insert((partition, ticket), (place, part.read_committed));
                }
                Err(code) => self.offset_found(desk, place, FoundOffset::refused(code)),
            }
        }
    }

    fn look_up(
        &mut self,
        desk: &mut Desk<'_>,
        part: &OffsetsPartition,
    ) -> Result<Lookup, ErrorCode> {
        let token = self.find(part.key)?;
        let partition = self.partitions.get_mut(token).expect("it was found a line ago");
        partition.check_leader_epoch(part.leader_epoch)?;
        let found = |offset: Offset, leader_epoch: LeaderEpoch| {
            let error = ErrorCode::NONE;
            Ok(Lookup::Found(FoundOffset { error, offset, timestamp: -1, leader_epoch }))
        };
        let nothing = || found(Offset(-1), LeaderEpoch::NONE);
        let log = &mut partition.log;
        let ticket = match part.timestamp {
            special::LATEST => {
                let epoch = partition.leader_epoch();
                return found(partition.readable_end(part.read_committed), epoch);
            }
            special::EARLIEST | special::EARLIEST_LOCAL => {
                let start = log.log_start_offset();
                let epoch = log.leader_epoch_at(start).unwrap_or(LeaderEpoch::NONE);
                return found(start, epoch);
            }
            // Without tiered storage nothing is in a tier, and nothing waits to be.
            special::LATEST_TIERED | special::EARLIEST_PENDING_UPLOAD => return nothing(),
            special::MAX_TIMESTAMP => log.find_max_timestamp(&mut self.log_effects),
            timestamp if timestamp < 0 => return Err(ErrorCode::UNSUPPORTED_VERSION),
            timestamp => log.find_timestamp(timestamp, &mut self.log_effects),
        };
        self.file_log_effects(desk, token);
        let ticket = ticket.ok_or(ErrorCode::LEADER_NOT_AVAILABLE)?;
        Ok(Lookup::Searching(token, ticket))
    }

    /// A search by timestamp has ended. What those who asked may not read yet is not shown.
    pub(super) fn timestamp_found(
        &mut self,
        desk: &mut Desk<'_>,
        partition: Token,
        ticket: Ticket,
        found: Option<commitlog::FoundTimestamp>,
    ) {
        // The log searches for its own retention too: that is nobody's answer.
        let Some((place, read_committed)) = self.searches.remove(&(partition, ticket)) else {
            return;
        };
        let end = self.partition(partition).readable_end(read_committed);
        let visible = found.filter(|found| found.offset < end);
        let answer = visible.map_or(
            FoundOffset { error: ErrorCode::NONE, ..FoundOffset::refused(ErrorCode::NONE) },
            |found| FoundOffset {
                error: ErrorCode::NONE,
                offset: found.offset,
                timestamp: found.timestamp,
                leader_epoch: found.leader_epoch,
            },
        );
        self.offset_found(desk, place, answer);
    }

    /// A search by timestamp has ended without an answer.
    pub(super) fn search_failed(
        &mut self,
        desk: &mut Desk<'_>,
        partition: Token,
        ticket: Ticket,
        error: ErrorCode,
    ) {
        if let Some((place, _)) = self.searches.remove(&(partition, ticket)) {
            self.offset_found(desk, place, FoundOffset::refused(error));
        }
    }

    fn offset_found(&mut self, desk: &mut Desk<'_>, place: Place, found: FoundOffset) {
        let Some(Serving::Offsets(gathering)) = self.serving.get_mut(place.ask) else {
            unreachable!("a search was answered before all of it was done");
        };
        if gathering.set(place.index, found)
            && let Some(Serving::Offsets(gathering)) = self.serving.remove(place.ask)
        {
            desk.reply(gathering.asker, Reply::Offsets(gathering.into_outcomes()));
        }
    }

    pub(super) fn epoch_ends(
        &mut self,
        desk: &mut Desk<'_>,
        asker: Asker,
        list: &[EpochEndPartition],
    ) {
        let end = |part: &EpochEndPartition| -> Result<EpochEnd, ErrorCode> {
            let token = self.find(part.key)?;
            let partition = self.partitions.get(token).expect("it was found a line ago");
            partition.check_leader_epoch(part.current_epoch)?;
            let (epoch, end_offset) = partition.log.end_offset_for_epoch(part.epoch);
            Ok(EpochEnd { error: ErrorCode::NONE, epoch, end_offset })
        };
        let ends = list.iter().map(|part| end(part).unwrap_or_else(EpochEnd::refused)).collect();
        desk.reply(asker, Reply::EpochEnds(ends));
    }

    pub(super) fn delete_records(
        &mut self,
        desk: &mut Desk<'_>,
        asker: Asker,
        list: &[DeletePartition],
    ) {
        let delete = |part: &DeletePartition| self.delete_one(desk, part);
        let deleted = list.iter().map(delete).map(|result| result.unwrap_or_else(Deleted::refused));
        let deleted = deleted.collect();
        desk.reply(asker, Reply::DeleteRecords(deleted));
    }

    fn delete_one(
        &mut self,
        desk: &mut Desk<'_>,
        part: &DeletePartition,
    ) -> Result<Deleted, ErrorCode> {
        let token = self.find(part.key)?;
        let partition = self.partitions.get_mut(token).expect("it was found a line ago");
        if !partition.deletes_old_records() {
            return Err(ErrorCode::POLICY_VIOLATION);
        }
        let high_watermark = partition.high_watermark();
        let before = if part.before == Offset(-1) { high_watermark } else { part.before };
        if before.0 < 0 || before > high_watermark {
            return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
        }
        let moved = partition.log.delete_records(desk.now, before, &mut self.log_effects);
        let low_watermark = partition.log.log_start_offset();
        self.file_log_effects(desk, token);
        moved.map_err(|_| ErrorCode::OFFSET_OUT_OF_RANGE)?;
        Ok(Deleted { error: ErrorCode::NONE, low_watermark })
    }
}
