//! A walk over the batches of one segment when a log is opened.

use std::ops::ControlFlow;

use api::FileRef;
use base::{LeaderEpoch, Offset};

use super::rebuild::Rebuild;
use crate::config::LogConfig;
use crate::epochs::Epochs;
use crate::index::{self, SegmentIndex};
use crate::marks::{Mark, Marks};
use crate::scan::{Invalid, Scanner};
use crate::segment::SegmentFiles;

/// A walk over the batches of one segment, to its end.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) files: SegmentFiles,
    pub(super) log: FileRef,
    pub(super) scanner: Scanner,
    pub(super) recovers: bool,
    pub(super) index: SegmentIndex,
    pub(super) marks: Marks,
    pub(super) first_timestamp: Option<i64>,
    pub(super) end: Offset,
    pub(super) valid_bytes: u64,
    pub(super) invalid: Option<Invalid>,
    /// Whether the state of the producers covers the batches up to here.
    pub(super) follows: bool,
}

impl Walk {
    /// Takes bytes of the segment: whether an epoch came up that was not known.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        config: &LogConfig,
        epochs: &mut Epochs,
        rebuild: &mut Rebuild,
    ) -> bool {
        if bytes.is_empty() {
            // The file is shorter than its listing said.
            self.invalid = Some(Invalid::Torn);
            return false;
        }
        let base = self.files.base;
        let loaded = (!self.recovers).then(|| self.index.offsets().last().copied()).flatten();
        let mut new_epoch = false;
        let (end, valid_bytes, follows) = (&mut self.end, &mut self.valid_bytes, &mut self.follows);
        let mut in_order = true;
        let walked = self.scanner.feed(bytes, |position, header, records| {
            let next = header.next_offset();
            in_order = header.base_offset >= *end && index::fits(base, header.last_offset());
            if !in_order {
                return ControlFlow::Break(());
            }
            let at = u32::try_from(position).expect("longer files were refused");
            if position == 0 {
                self.first_timestamp = Some(header.max_timestamp);
            } else {
                // Behind a loaded entry the first batch is not known to follow without a gap.
                let from = if *end == base { header.base_offset } else { *end };
                let relative_offset = index::relative(base, from);
                if relative_offset > 0 {
                    self.marks.push(Mark { relative_offset, position: at });
                }
            }
            // The batch of the last entry that was loaded is in the index already.
            if loaded.is_none_or(|entry| at > entry.position) {
                self.index.add(base, header, at, config.index_interval_bytes);
            } else {
                let size = header.batch_bytes().unwrap_or(0);
                self.index.set_bytes_since_entry(size as u64);
                self.index.raise_largest(base, header);
            }
            if header.leader_epoch > epochs.latest().unwrap_or(LeaderEpoch::NONE) {
                new_epoch |= epochs.assign(header.leader_epoch, header.base_offset);
            }
            rebuild.take(header, &records, follows);
            *end = next;
            *valid_bytes = position + header.batch_bytes().unwrap_or(0) as u64;
            ControlFlow::Continue(())
        });
        self.invalid = match walked {
            Err(invalid) => Some(invalid),
            Ok(_) if !in_order => Some(Invalid::Corrupt),
            Ok(_) => None,
        };
        new_epoch
    }
}
