//! How the files and folders of a log are called (`LogFileUtils`, `UnifiedLog`, `LocalLog`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Offset, PartitionIndex, TopicPartition, Uuid};

/// The records of a segment.
pub(crate) const LOG: &str = ".log";
/// The sparse index from offsets to positions.
pub(crate) const INDEX: &str = ".index";
/// The sparse index from timestamps to offsets.
pub(crate) const TIME_INDEX: &str = ".timeindex";
/// The aborted transactions of a segment.
pub(crate) const TRANSACTION_INDEX: &str = ".txnindex";
/// What the log knew of producers at an offset.
pub(crate) const SNAPSHOT: &str = ".snapshot";
/// Appended to the name of a file that is about to be removed.
pub(crate) const DELETED: &str = ".deleted";
/// Appended to what a cleaner has not finished.
pub(crate) const CLEANED: &str = ".cleaned";
/// Appended to what a cleaner has finished, and is putting in place.
pub(crate) const SWAP: &str = ".swap";
/// Appended to a file that is written beside the one that it will replace.
pub(crate) const TEMPORARY: &str = ".tmp";

/// Where the epochs of the leaders stand, in a log's folder.
pub(crate) const LEADER_EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";
/// Where the id of the topic stands, in a log's folder.
pub(crate) const PARTITION_METADATA: &str = "partition.metadata";

/// Stands in the folder of a copy from just before it gets the name of its log until it is in that
/// log's place. Whoever opens the log, Apache Kafka too, takes it for what is left of a deletion.
pub const COPY_MARK: &str = "00000000000000000000.moving.deleted";

const DELETE_ENDING: &str = "-delete";
const FUTURE_ENDING: &str = "-future";
const STRAY_ENDING: &str = "-stray";
const OFFSET_DIGITS: usize = 20;
/// The longest name of a file that Kafka takes, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The file of the segment that begins at `base` with the given ending, in `folder`.
pub(crate) fn segment_file(folder: &Path, base: Offset, ending: &str) -> PathBuf {
    folder.join(format!("{:020}{ending}", base.0))
}

/// Takes the name of a segment's file apart: where the segment begins, and the ending.
pub fn parse_segment_file(name: &str) -> Option<(Offset, &str)> {
    let (digits, ending) = name.split_at_checked(OFFSET_DIGITS)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((Offset(digits.parse().ok()?), ending))
}

/// What the name of a folder in a log directory says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FolderName {
    /// The log of a partition: `topic-3`.
    Log(TopicPartition),
    /// A log that was deleted, and whose files are about to go: `topic-3.<32 digits>-delete`.
    Deleted,
    /// A copy of a log that is being moved here from another directory: `topic-3.<…>-future`.
    Future(TopicPartition),
    /// A log that belongs to no partition that is known: `topic-3.<…>-stray`.
    Stray,
    /// No log.
    Other,
}

/// Reads the name of a folder.
pub fn parse_folder(name: &str) -> FolderName {
    let aside = |ending: &str| name.strip_suffix(ending)?.rsplit_once('.').map(|(log, _)| log);
    if aside(DELETE_ENDING).is_some() {
        return FolderName::Deleted;
    }
    if aside(STRAY_ENDING).is_some() {
        return FolderName::Stray;
    }
    if let Some(log) = aside(FUTURE_ENDING) {
        return parse_log(log).map_or(FolderName::Other, FolderName::Future);
    }
    parse_log(name).map_or(FolderName::Other, FolderName::Log)
}

fn parse_log(name: &str) -> Option<TopicPartition> {
    let (topic, partition) = name.rsplit_once('-')?;
    let is_number = !partition.is_empty() && partition.bytes().all(|byte| byte.is_ascii_digit());
    let partition = partition.parse().ok().filter(|_| is_number && !topic.is_empty())?;
    Some(TopicPartition { topic: Arc::from(topic), partition: PartitionIndex(partition) })
}

/// The name of the folder into which a deleted log is renamed: the topic is cut so that the whole
/// is no longer than a file system takes (`LocalLog.logDeleteDirName`).
pub fn deleted_folder(partition: &TopicPartition, unique: Uuid) -> String {
    folder_aside(partition, unique, DELETE_ENDING)
}

/// The name of the folder into which a log is renamed that belongs to another topic than its name
/// says (`LocalLog.logStrayDirName`).
pub fn stray_folder(partition: &TopicPartition, unique: Uuid) -> String {
    folder_aside(partition, unique, STRAY_ENDING)
}

/// The name of the folder of a copy that will take a log's place (`LocalLog.logFutureDirName`).
/// `None` where it would be longer than Kafka lets it be: the topic is not cut in it, since it is
/// all that tells whose copy it is.
pub fn future_folder(partition: &TopicPartition, unique: Uuid) -> Option<String> {
    let name = format!("{partition}.{}{FUTURE_ENDING}", hex(unique));
    (name.len() <= NAME_BYTES_MAX).then_some(name)
}

fn hex(unique: Uuid) -> String {
    unique.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn folder_aside(partition: &TopicPartition, unique: Uuid, ending: &str) -> String {
    let tail = format!("-{}.{}{ending}", partition.partition, hex(unique));
    let room = NAME_BYTES_MAX.saturating_sub(tail.len());
    let topic: String = partition.topic.chars().take(room).collect();
    format!("{topic}{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_names_come_back() {
        let path = segment_file(Path::new("t-0"), Offset(42), INDEX);
        assert_eq!(path.to_str(), Some("t-0/00000000000000000042.index"));
        let table = [
            ("00000000000000000042.index", Some((Offset(42), ".index"))),
            ("00000000000000000042.log.deleted", Some((Offset(42), ".log.deleted"))),
            (
                "00000000000000000000-0000000000.checkpoint",
                Some((Offset(0), "-0000000000.checkpoint")),
            ),
            ("99999999999999999999.log", None),
            ("leader-epoch-checkpoint", None),
            ("+0000000000000000042.log", None),
            ("quorum-state", None),
        ];
        for (name, parsed) in table {
            assert_eq!(parse_segment_file(name), parsed, "{name}");
        }
    }

    #[test]
    fn the_mark_of_a_copy_goes_when_its_log_is_opened() {
        let (base, ending) = parse_segment_file(COPY_MARK).expect("it looks like a segment's");
        assert!(base == Offset(0) && ending.ends_with(DELETED));
    }

    #[test]
    fn folders_are_told_apart() {
        let log = |topic: &str, partition| {
            let partition = PartitionIndex(partition);
            FolderName::Log(TopicPartition { topic: Arc::from(topic), partition })
        };
        let future = |topic: &str, partition| {
            let partition = PartitionIndex(partition);
            FolderName::Future(TopicPartition { topic: Arc::from(topic), partition })
        };
        let table = [
            ("orders-0", log("orders", 0)),
            ("a-b-12", log("a-b", 12)),
            ("orders", FolderName::Other),
            ("-1", FolderName::Other),
            ("orders-x", FolderName::Other),
            ("orders-+1", FolderName::Other),
            ("orders-0.0123456789abcdef0123456789abcdef-delete", FolderName::Deleted),
            ("a.b-3.0123456789abcdef0123456789abcdef-future", future("a.b", 3)),
            ("orders.0123456789abcdef0123456789abcdef-future", FolderName::Other),
            ("orders-0.0123456789abcdef0123456789abcdef-stray", FolderName::Stray),
        ];
        for (name, parsed) in table {
            assert_eq!(parse_folder(name), parsed, "{name}");
        }
        let partition =
            TopicPartition { topic: Arc::from("t".repeat(249)), partition: PartitionIndex(7) };
        let name = deleted_folder(&partition, Uuid([0xab; 16]));
        assert_eq!(name.len(), NAME_BYTES_MAX);
        assert_eq!(parse_folder(&name), FolderName::Deleted);
    }

    #[test]
    fn a_copy_has_the_whole_name_of_its_topic_or_none() {
        let partition = |length: usize| {
            let topic = Arc::from("t".repeat(length));
            TopicPartition { topic, partition: PartitionIndex(0) }
        };
        // The longest that Kafka moves.
        let longest = partition(213);
        let name = future_folder(&longest, Uuid([0xab; 16])).expect("it fits");
        assert_eq!(name.len(), NAME_BYTES_MAX);
        assert_eq!(parse_folder(&name), FolderName::Future(longest));
        assert_eq!(future_folder(&partition(214), Uuid([0xab; 16])), None);
    }
}
