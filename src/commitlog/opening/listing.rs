//! What the files in the folder of a log are, and those that say whose log it is.

use std::collections::BTreeMap;

use api::{DirectoryEntry, FileEffect};
use base::Uuid;

use super::{Begins, Opening, Out, STEP, Stage};
use crate::atomic_file::AtomicFile;
use crate::case::Case;
use crate::epochs::Epochs;
use crate::names;
use crate::segment::SegmentFiles;
use crate::text;

impl Opening {
    /// Sorts the files of the folder: a sentence when there is something that is not understood.
    pub(super) fn take_listing(&mut self, entries: &[DirectoryEntry]) -> Option<String> {
        let mut segments = BTreeMap::new();
        let (mut leftovers, mut alone) = (Vec::new(), Vec::new());
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
                    alone.push(entry.name.clone());
                }
                _ => {}
            }
        }
        if !self.is_again() {
            if let Some(first) = leftovers.first() {
                self.note(Case::Leftover, format_args!("{first} and such are removed"));
            }
            for name in &alone {
                let detail = format_args!("{name} is removed: its segment is not there");
                self.note(Case::IndexAlone, detail);
            }
            leftovers.append(&mut alone);
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

    pub(super) fn read_epochs(&mut self, out: &mut Out) {
        if !self.has_epochs {
            return self.read_metadata(out);
        }
        self.read_file(self.params.directory.join(names::LEADER_EPOCH_CHECKPOINT), out);
        self.stage = Stage::ReadingEpochs;
    }

    pub(super) fn take_epochs(&mut self, text: &str) {
        match text::parse_epochs(text) {
            Ok(entries) => self.epochs = Epochs::from_entries(entries),
            Err(bad) => {
                // Recovery finds the epochs of what it checks; older ones are only missed by
                // followers that ask for them.
                self.note(Case::EpochsUnreadable, format_args!("{bad}"));
                self.epochs_changed = true;
            }
        }
    }

    pub(super) fn read_metadata(&mut self, out: &mut Out) {
        if self.has_metadata {
            self.read_file(self.params.directory.join(names::PARTITION_METADATA), out);
            self.stage = Stage::ReadingMetadata;
        } else if self.params.sets_strays_aside
            && matches!(self.begins, Begins::Create(_))
            && !self.waiting.is_empty()
        {
            // A new log has no segments yet. Nobody can tell whose these are.
            self.set_aside_stray(self.params.topic_id, out);
        } else {
            if !matches!(self.begins, Begins::Create(_)) {
                self.note(Case::MetadataMissing, format_args!("it is written again"));
            }
            self.write_metadata(out);
        }
    }

    /// Renames a folder that belongs to an earlier topic of the same name, whose deletion had not
    /// reached this folder when the node ended. As in Kafka (`LogManager`, stray logs), what was
    /// found is kept until somebody removes it.
    pub(super) fn set_aside_stray(&mut self, unique: Uuid, out: &mut Out) {
        let from = self.params.directory.clone();
        let to = from.with_file_name(names::stray_folder(&self.params.partition, unique));
        let partition = &self.params.partition;
        let folder = to.display();
        tracing::warn!(%partition, topic_id = %unique, %folder, "a stray log is set aside");
        out.push(FileEffect::Rename { token: STEP, from, to, files: Vec::new() });
        self.stage = Stage::SettingAside;
    }

    fn write_metadata(&mut self, out: &mut Out) {
        let path = self.params.directory.join(names::PARTITION_METADATA);
        let content = text::format_partition_metadata(self.params.topic_id);
        self.stage = Stage::WritingMetadata(AtomicFile::replace(path, content, STEP, out));
    }
}
