//! What the files in the folder of a log are.

use std::collections::BTreeMap;

use api::DirectoryEntry;

use super::Opening;
use crate::names;
use crate::segment::SegmentFiles;

impl Opening {
    /// Sorts the files of the folder: a sentence when there is something that is not understood.
    pub(super) fn take_listing(&mut self, entries: &[DirectoryEntry]) -> Option<String> {
        let mut segments = BTreeMap::new();
        let mut leftovers = Vec::new();
        for entry in entries.iter().filter(|entry| !entry.is_directory) {
            self.has_epochs |= entry.name == names::LEADER_EPOCH_CHECKPOINT;
            self.has_metadata |= entry.name == names::PARTITION_METADATA;
            let Some((base, ending)) = names::parse_segment_file(&entry.name) else { continue };
            if ending == names::SNAPSHOT {
                self.rebuild.found.insert(base);
            } else if ending.strip_suffix(names::TEMPORARY) == Some(names::SNAPSHOT) {
                leftovers.push(entry.name.clone());
            } else if ending == names::LOG {
                segments.insert(base, SegmentFiles::new(base, entry));
            } else if ending.ends_with(names::DELETED) || ending.ends_with(names::CLEANED) {
                leftovers.push(entry.name.clone());
            }
        }
        for entry in entries {
            let Some((base, ending)) = names::parse_segment_file(&entry.name) else { continue };
            let segment = segments.get_mut(&base);
            match (ending, segment) {
                (names::INDEX, Some(segment)) => segment.index_bytes = Some(entry.length),
                (names::TIME_INDEX, Some(segment)) => segment.time_index_bytes = entry.length,
                (names::TRANSACTION_INDEX, Some(segment)) => {
                    segment.has_aborted = true;
                    segment.aborted_bytes = Some(entry.length).filter(|length| *length > 0);
                }
                (names::INDEX | names::TIME_INDEX | names::TRANSACTION_INDEX, None) => {
                    tracing::warn!(file = entry.name, "an index without its log is removed");
                    leftovers.push(entry.name.clone());
                }
                _ => {}
            }
        }
        if !self.is_again() {
            self.leftovers = leftovers;
        }
        let too_long = segments.values().find(|files| files.log_bytes > i32::MAX as u64);
        if let Some(files) = too_long {
            let name = names::segment_file(&self.params.directory, files.base, names::LOG);
            return Some(format!("{} is longer than a segment can be", name.display()));
        }
        self.waiting = segments.into_values().collect();
        None
    }
}
