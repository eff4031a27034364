//! The coordinator of one partition of `__consumer_offsets`, as the broker hosts it.

use base::{Instant, Now, Offset, Random, Token};
use bytes::Bytes;
use coordinator::{Coordinator, LoadError, Phase};
use metadata::Image;
use protocol::{ErrorCode, Str};

use crate::call::{GroupCall, GroupReply};
use crate::config::GroupConfig;
use crate::machine::Groups;

/// What the host has to do.
pub type Output = coordinator::Output<GroupReply>;

/// The coordinator of one partition.
///
/// The host reads the partition's log from its start and gives it to [`Self::load`], says
/// [`Self::loaded`], then hands over calls. At the end of each turn in which it called anything it
/// takes the outputs: it appends what is to be appended and says what came of it, and how far the
/// high watermark is.
#[derive(Debug)]
pub struct GroupCoordinator {
    inner: Coordinator<Groups>,
}

impl GroupCoordinator {
    /// A coordinator that has to be loaded. `random` makes members' ids.
    pub fn new(config: GroupConfig, random: Random) -> Self {
        let rules = config.write;
        Self { inner: Coordinator::new(Groups::new(config, random), rules) }
    }

    /// What it does now.
    pub fn phase(&self) -> Phase {
        self.inner.phase()
    }

    /// Replays consecutive batches and says which offset comes next. A torn one at the end is left
    /// out, and one that was replayed already is passed over.
    ///
    /// # Errors
    /// When the log cannot be read; the coordinator is of no use then.
    pub fn load(&mut self, batches: Bytes) -> Result<Offset, LoadError> {
        self.inner.load(batches)
    }

    /// The whole log was replayed.
    pub fn loaded(&mut self, now: Now) {
        self.inner.loaded(now);
    }

    /// What the log has of groups that are not served, in words; none where there are none.
    pub fn unserved(&self) -> Option<String> {
        self.inner.machine().unserved.summary()
    }

    /// Handles a call. The reply comes with `ticket` at any later time, in any phase.
    pub fn handle(&mut self, now: Now, image: &Image, call: GroupCall, ticket: Token) {
        self.inner.handle(now, image, call, ticket);
    }

    /// What came of the last [`Output::Append`]: the offset of the batch's last record, or why
    /// there is none.
    pub fn appended(&mut self, now: Now, outcome: Result<Offset, ErrorCode>) {
        self.inner.appended(now, outcome.map_err(|error| error.0));
    }

    /// Everything below `end` is committed. It may be said before or after [`Self::appended`].
    pub fn high_watermark(&mut self, end: Offset) {
        self.inner.high_watermark(end);
    }

    /// When [`Self::on_timer`] is to be called next.
    pub fn next_timer(&self) -> Option<Instant> {
        self.inner.next_timer()
    }

    /// Does what is due.
    pub fn on_timer(&mut self, now: Now) {
        self.inner.on_timer(now);
    }

    /// These partitions of topics are gone: their offsets go too.
    pub fn partitions_deleted(&mut self, now: Now, partitions: &[(Str, i32)]) {
        self.inner.act(now, |groups, turn| groups.partitions_deleted(turn, partitions));
    }

    /// The partition is led elsewhere: everyone who waits is told.
    pub fn unload(&mut self, now: Now) {
        self.inner.unload(now);
    }

    /// Gives what is to be done.
    pub fn end_of_turn(&mut self, out: &mut Vec<Output>) {
        self.inner.end_of_turn(out);
    }

    #[cfg(test)]
    pub(crate) fn groups(&self) -> &Groups {
        self.inner.machine()
    }
}
