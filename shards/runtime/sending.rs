//! What a connection has yet to send, and how it leaves.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use api::Advice;
use bytes::{Buf, Bytes, BytesMut};
use ring::{OpenFile, Operation, Residency, Socket};

use crate::counters::Counters;
use crate::transport::{Transforming, Transport};

/// How far ahead the page cache is asked about at once.
const RESIDENT_WINDOW_BYTES: u64 = 1 << 20;
/// How much of a file a ring read warms, or a transforming transport reads, at once.
const READ_BYTES_MAX: usize = 128 << 10;
/// How far ahead of the next byte the disk is asked to read, once something was not in the page
/// cache: what keeps it busy, and no more, since others' requests wait behind these.
const AHEAD_BYTES: u64 = 2 << 20;

/// One part of what is to be sent.
pub(crate) enum Pending {
    Bytes(Bytes),
    /// A range of a file that stays open until it has left.
    File {
        file: Arc<OpenFile>,
        position: u64,
        left: u64,
    },
}

/// The parts that a connection has yet to send, in order.
#[derive(Default)]
pub(crate) struct SendQueue {
    parts: VecDeque<Pending>,
    /// Up to here the file in front is known to be in the page cache.
    resident_until: u64,
    /// Up to here the disk was asked to read ahead.
    asked_until: u64,
}

/// Where sending stopped.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// Everything has left.
    Empty,
    /// The kernel takes no more now.
    Blocked,
    /// The next part is a file, and this turn has no bytes left for files.
    FileTurn,
    /// This must be read first; and that is to be read ahead, for which nobody waits.
    Cold(Operation, Option<Operation>),
}

/// What sending may use, and what it did.
pub(crate) struct Budget<'a> {
    /// How many bytes of files may still be sent by this connection now.
    pub(crate) file_bytes: usize,
    /// How many bytes of the machine's the kernel took.
    pub(crate) sent_bytes: u64,
    pub(crate) counters: &'a Counters,
}

impl SendQueue {
    pub(crate) fn push(&mut self, part: Pending) {
        let is_empty = match &part {
            Pending::Bytes(bytes) => bytes.is_empty(),
            Pending::File { left, .. } => *left == 0,
        };
        if !is_empty {
            self.parts.push_back(part);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Sends what can be sent now.
    ///
    /// # Errors
    /// The connection has failed, or a file has fewer bytes than it was said to have.
    pub(crate) fn send(
        &mut self,
        socket: &Socket,
        transport: &mut Transport,
        budget: &mut Budget<'_>,
    ) -> io::Result<Stopped> {
        match transport {
            Transport::Plain => self.send_plain(socket, budget),
            Transport::Transforming(transforming) => {
                self.send_transformed(socket, transforming, budget)
            }
        }
    }

    fn send_plain(&mut self, socket: &Socket, budget: &mut Budget<'_>) -> io::Result<Stopped> {
        loop {
            let stopped = match self.parts.front() {
                None => return Ok(Stopped::Empty),
                Some(Pending::Bytes(_)) => self.send_pieces(socket, budget)?,
                Some(Pending::File { .. }) => self.send_file(socket, budget)?,
            };
            if let Some(stopped) = stopped {
                return Ok(stopped);
            }
        }
    }

    /// Sends the bytes in front, up to the next file, in one call.
    fn send_pieces(
        &mut self,
        socket: &Socket,
        budget: &mut Budget<'_>,
    ) -> io::Result<Option<Stopped>> {
        let pieces = self.parts.iter().map_while(|part| match part {
            Pending::Bytes(bytes) => Some(&bytes[..]),
            Pending::File { .. } => None,
        });
        let mut taken = match socket.send(pieces) {
            Ok(taken) => taken,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Some(Stopped::Blocked));
            }
            Err(error) => return Err(error),
        };
        budget.sent_bytes += taken as u64;
        budget.counters.sent_bytes.add(taken as u64);
        while let Some(Pending::Bytes(bytes)) = self.parts.front_mut()
            && taken > 0
        {
            let here = taken.min(bytes.len());
            bytes.advance(here);
            taken -= here;
            if !bytes.is_empty() {
                // The kernel's room ended within this piece.
                return Ok(Some(Stopped::Blocked));
            }
            self.parts.pop_front();
        }
        Ok(None)
    }

    /// Sends from the file in front, as far as this turn and the page cache go.
    fn send_file(
        &mut self,
        socket: &Socket,
        budget: &mut Budget<'_>,
    ) -> io::Result<Option<Stopped>> {
        let Some(Pending::File { file, position, left }) = self.parts.front_mut() else {
            return Ok(None);
        };
        if budget.file_bytes == 0 {
            return Ok(Some(Stopped::FileTurn));
        }
        let mut wanted = usize::try_from(*left).unwrap_or(usize::MAX).min(budget.file_bytes);
        if self.resident_until <= *position {
            match resident_until(file, *position, *left, wanted as u64) {
                Some(until) => self.resident_until = until,
                None => {
                    budget.counters.cold_ranges.add(1);
                    let ahead = read_ahead(file, *position, &mut self.asked_until);
                    return Ok(Some(Stopped::Cold(read(file, *position, wanted), ahead)));
                }
            }
        }
        let resident = usize::try_from(self.resident_until - *position).unwrap_or(usize::MAX);
        wanted = wanted.min(resident);
        let sent = match socket.send_file(file, *position, wanted) {
            Ok(0) => return Err(shrunk()),
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Some(Stopped::Blocked));
            }
            Err(error) => return Err(error),
        };
        *position += sent as u64;
        *left -= sent as u64;
        budget.file_bytes -= sent;
        budget.sent_bytes += sent as u64;
        budget.counters.sent_bytes.add(sent as u64);
        budget.counters.sent_file_bytes.add(sent as u64);
        if *left == 0 {
            self.parts.pop_front();
            self.resident_until = 0;
        } else if sent < wanted {
            return Ok(Some(Stopped::Blocked));
        }
        Ok(None)
    }

    /// What was to be read of the file in front has been read.
    ///
    /// # Errors
    /// The file has fewer bytes than it was said to have.
    pub(crate) fn warmed(&mut self, transport: &mut Transport, buffer: BytesMut) -> io::Result<()> {
        let Some(Pending::File { position, .. }) = self.parts.front() else { return Ok(()) };
        if buffer.is_empty() {
            return Err(shrunk());
        }
        match transport {
            // Once it was read it is sent without a further look: if memory is so short that it is
            // gone again, then sending waits for the disk, but goes on.
            Transport::Plain => self.resident_until = *position + buffer.len() as u64,
            Transport::Transforming(transforming) => self.seal_file(transforming, &buffer),
        }
        Ok(())
    }

    fn send_transformed(
        &mut self,
        socket: &Socket,
        transforming: &mut Transforming,
        budget: &mut Budget<'_>,
    ) -> io::Result<Stopped> {
        loop {
            if transforming.sealed.is_empty()
                && let Some(stopped) = self.seal_next(transforming, budget)?
            {
                return Ok(stopped);
            }
            let taken = match socket.send(std::iter::once(&transforming.sealed[..])) {
                Ok(taken) => taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Stopped::Blocked);
                }
                Err(error) => return Err(error),
            };
            budget.counters.sent_bytes.add(taken as u64);
            transforming.sealed.advance(taken);
            if !transforming.sealed.is_empty() {
                return Ok(Stopped::Blocked);
            }
            budget.sent_bytes += std::mem::take(&mut transforming.plain_bytes);
        }
    }

    /// Seals what comes next.
    fn seal_next(
        &mut self,
        transforming: &mut Transforming,
        budget: &mut Budget<'_>,
    ) -> io::Result<Option<Stopped>> {
        match self.parts.front_mut() {
            None => Ok(Some(Stopped::Empty)),
            Some(Pending::Bytes(bytes)) => {
                let plain = bytes.split_to(bytes.len().min(READ_BYTES_MAX));
                if bytes.is_empty() {
                    self.parts.pop_front();
                }
                transforming.plain_bytes = plain.len() as u64;
                transforming.sealed = transforming.transform.seal(&plain);
                Ok(None)
            }
            Some(Pending::File { .. }) if budget.file_bytes == 0 => Ok(Some(Stopped::FileTurn)),
            Some(Pending::File { file, position, left }) => {
                let wanted = usize::try_from(*left).unwrap_or(usize::MAX);
                let wanted = wanted.min(READ_BYTES_MAX).min(budget.file_bytes);
                let mut plain = BytesMut::with_capacity(wanted);
                match file.read_cached(&mut plain, *position, wanted) {
                    Ok(0) => return Err(shrunk()),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        budget.counters.cold_ranges.add(1);
                        let ahead = read_ahead(file, *position, &mut self.asked_until);
                        return Ok(Some(Stopped::Cold(read(file, *position, wanted), ahead)));
                    }
                    Err(error) => return Err(error),
                }
                budget.file_bytes -= plain.len();
                self.seal_file(transforming, &plain);
                Ok(None)
            }
        }
    }

    fn seal_file(&mut self, transforming: &mut Transforming, plain: &[u8]) {
        let Some(Pending::File { position, left, .. }) = self.parts.front_mut() else { return };
        *position += plain.len() as u64;
        *left -= plain.len() as u64;
        if *left == 0 {
            self.parts.pop_front();
        }
        transforming.plain_bytes = plain.len() as u64;
        transforming.sealed = transforming.transform.seal(plain);
    }
}

/// Up to where the page cache has what comes next, if that is at least `wanted` bytes. It asks
/// about a large window first, so that a cached file is asked about once a megabyte.
fn resident_until(file: &OpenFile, position: u64, left: u64, wanted: u64) -> Option<u64> {
    let window = left.min(RESIDENT_WINDOW_BYTES).max(wanted);
    if file.residency(position, window) == Residency::Resident {
        return Some(position + window);
    }
    let resident = file.residency(position, wanted) == Residency::Resident;
    resident.then_some(position + wanted)
}

fn read(file: &Arc<OpenFile>, position: u64, wanted: usize) -> Operation {
    let length = wanted.min(READ_BYTES_MAX);
    Operation::Read {
        file: Arc::clone(file),
        buffer: BytesMut::with_capacity(length),
        position,
        length: length as u32,
    }
}

/// What is to be read ahead of `position`, unless most of that was asked for already.
fn read_ahead(file: &Arc<OpenFile>, position: u64, asked_until: &mut u64) -> Option<Operation> {
    // Of another file nothing was asked for, most likely; if it is taken for this one, what is sent
    // is warmed all the same.
    let is_asked = position + AHEAD_BYTES / 2..=position + AHEAD_BYTES;
    if is_asked.contains(asked_until) {
        return None;
    }
    *asked_until = position + AHEAD_BYTES;
    let (file, length) = (Arc::clone(file), AHEAD_BYTES);
    Some(Operation::Advise { file, position, length, advice: Advice::WillNeed })
}

fn shrunk() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file has fewer bytes than were to be sent")
}

#[cfg(test)]
mod tests {
    use ring::OpenCount;

    use super::*;

    #[test]
    fn the_disk_is_asked_ahead_again_when_half_of_that_is_sent() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = OpenFile::open(&folder.path().join("f"), true, &OpenCount::default());
        let (file, mut asked_until) = (Arc::new(file.expect("opens")), 0);
        let mut asked_at = Vec::new();
        let step = READ_BYTES_MAX as u64;
        let sent = (0..32).map(|n| n * step);
        // It goes on somewhere else, and begins anew.
        for position in sent.chain([1 << 30, 0]) {
            match read_ahead(&file, position, &mut asked_until) {
                None => {}
                Some(Operation::Advise { position: from, length: AHEAD_BYTES, .. }) => {
                    assert_eq!(from, position);
                    asked_at.push(from);
                }
                Some(other) => panic!("{other:?}"),
            }
        }
        let half = AHEAD_BYTES / 2;
        let again = half + step;
        assert_eq!(asked_at, [0, again, 2 * again, 3 * again, 1 << 30, 0]);
    }
}
