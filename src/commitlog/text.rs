//! The small text files: checkpoints, `partition.metadata`, `.kafka_cleanshutdown` and
//! `meta.properties`, as text alone. `docs/data_format.md` shows each.

use std::fmt::Write;
use std::str::{FromStr, Lines};
use std::sync::Arc;

use base::{LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicPartition, Uuid};

const CHECKPOINT_VERSION: u32 = 0;

/// A text that is not what the file should hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadFile(String);

impl BadFile {
    fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }

    fn line(line: &str) -> Self {
        let shown: String = line.chars().take(80).collect();
        Self(format!("the line '{shown}' is malformed"))
    }
}

/// Writes `recovery-point-offset-checkpoint` and its kind (`OffsetCheckpointFile`).
pub fn format_offsets(entries: &[(TopicPartition, Offset)]) -> String {
    let mut text = format!("{CHECKPOINT_VERSION}\n{}\n", entries.len());
    for (partition, offset) in entries {
        writeln!(text, "{} {} {offset}", partition.topic, partition.partition)
            .expect("a string takes every text");
    }
    text
}

/// Reads what [`format_offsets`] writes. An empty file holds no entries.
pub fn parse_offsets(text: &str) -> Result<Vec<(TopicPartition, Offset)>, BadFile> {
    parse_checkpoint(text, |line| {
        let [topic, partition, offset] = fields(line)?;
        let topic = Arc::from(topic);
        let partition = TopicPartition { topic, partition: PartitionIndex(number(partition)?) };
        Some((partition, Offset(number(offset)?)))
    })
}

/// Writes `leader-epoch-checkpoint` (`LeaderEpochCheckpointFile`).
pub(crate) fn format_epochs(entries: &[(LeaderEpoch, Offset)]) -> String {
    let mut text = format!("{CHECKPOINT_VERSION}\n{}\n", entries.len());
    for (epoch, offset) in entries {
        writeln!(text, "{epoch} {offset}").expect("a string takes every text");
    }
    text
}

/// Reads what [`format_epochs`] writes. An empty file holds no entries.
pub(crate) fn parse_epochs(text: &str) -> Result<Vec<(LeaderEpoch, Offset)>, BadFile> {
    parse_checkpoint(text, |line| {
        let [epoch, offset] = fields(line)?;
        let (epoch, offset): (i32, i64) = (number(epoch)?, number(offset)?);
        (epoch >= 0 && offset >= 0).then_some((LeaderEpoch(epoch), Offset(offset)))
    })
}

/// Writes `partition.metadata` (`PartitionMetadata`).
pub(crate) fn format_partition_metadata(topic_id: TopicId) -> String {
    format!("version: 0\ntopic_id: {topic_id}")
}

/// Reads what [`format_partition_metadata`] writes.
pub(crate) fn parse_partition_metadata(text: &str) -> Result<TopicId, BadFile> {
    let mut lines = text.lines();
    let version = lines.next().and_then(|line| line.strip_prefix("version:")).map(str::trim);
    if version != Some("0") {
        return Err(BadFile::new("the version is not 0"));
    }
    let line = lines.next().unwrap_or_default();
    let id = line.strip_prefix("topic_id:").ok_or_else(|| BadFile::line(line))?;
    let id = id.trim().parse::<Uuid>().map_err(|bad| BadFile::new(bad.to_string()))?;
    if id.is_zero() {
        return Err(BadFile::new("the topic id is all zeros"));
    }
    Ok(id)
}

/// Writes `.kafka_cleanshutdown` (`CleanShutdownFileHandler`).
pub fn format_clean_shutdown(broker_epoch: i64) -> String {
    format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}")
}

/// Reads what [`format_clean_shutdown`] writes: the epoch of the broker that stopped in order. An
/// older Kafka left the file empty: the stop was clean, but its epoch is not known.
pub fn parse_clean_shutdown(text: &str) -> Option<i64> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    value.get("brokerEpoch")?.as_i64()
}

/// The content of `meta.properties`, version 1 (KIP-631, KIP-858): to which cluster and node a
/// log directory belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    /// The id of the cluster, a text.
    pub cluster_id: String,
    /// The id of the node.
    pub node_id: NodeId,
    /// The id of the directory; older directories have none until the node gives them one.
    pub directory_id: Option<Uuid>,
}

impl MetaProperties {
    /// Reads the file: Java properties of one line each.
    pub fn parse(text: &str) -> Result<Self, BadFile> {
        let value = |key: &str| text.lines().filter_map(property).rfind(|(name, _)| *name == key);
        let required =
            |key: &str| value(key).ok_or_else(|| BadFile::new(format!("'{key}' is missing")));
        let (_, version) = required("version")?;
        if version != "1" {
            return Err(BadFile::new(format!("version {version} is not known, only 1 is")));
        }
        let (_, cluster_id) = required("cluster.id")?;
        let (_, node) = required("node.id")?;
        let node_id = number(node).ok_or_else(|| BadFile::new("'node.id' is no number"))?;
        let directory_id = match value("directory.id") {
            Some((_, id)) => Some(id.parse().map_err(|_| BadFile::new("'directory.id' is no id"))?),
            None => None,
        };
        Ok(Self { cluster_id: cluster_id.to_owned(), node_id: NodeId(node_id), directory_id })
    }

    /// Writes the file; `date` is a comment for people.
    pub fn format(&self, date: &str) -> String {
        let mut text = format!("#\n#{date}\nnode.id={}\n", self.node_id);
        if let Some(id) = self.directory_id {
            writeln!(text, "directory.id={id}").expect("a string takes every text");
        }
        writeln!(text, "version=1\ncluster.id={}", self.cluster_id)
            .expect("a string takes every text");
        text
    }
}

fn property(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    if line.starts_with(['#', '!']) {
        return None;
    }
    let (key, value) = line.split_once(['=', ':'])?;
    Some((key.trim_end(), value.trim()))
}

fn parse_checkpoint<T>(text: &str, entry: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, BadFile> {
    let mut lines = text.lines();
    let Some(version) = lines.next() else { return Ok(Vec::new()) };
    if number::<u32>(version) != Some(CHECKPOINT_VERSION) {
        return Err(BadFile::new(format!("version '{version}' is not known, only 0 is")));
    }
    let count = count_of(&mut lines)?;
    let mut entries = Vec::new();
    for line in lines {
        entries.push(entry(line).ok_or_else(|| BadFile::line(line))?);
    }
    if entries.len() != count {
        let found = entries.len();
        return Err(BadFile::new(format!("it holds {found} entries where it says {count}")));
    }
    Ok(entries)
}

fn count_of(lines: &mut Lines<'_>) -> Result<usize, BadFile> {
    let line = lines.next().unwrap_or_default();
    number(line).ok_or_else(|| BadFile::line(line))
}

fn fields<const COUNT: usize>(line: &str) -> Option<[&str; COUNT]> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    fields.try_into().ok()
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition { topic: Arc::from(topic), partition: PartitionIndex(partition) }
    }

    #[test]
    fn reads_and_writes_what_kafka_wrote() {
        let text = "0\n3\nidle 0 0\nfix 0 0\nsmall 0 300\n";
        let entries = parse_offsets(text).expect("Kafka wrote it");
        assert_eq!(entries[2], (partition("small", 0), Offset(300)));
        assert_eq!(format_offsets(&entries), text);

        let text = "0\n2\n0 0\n3 180\n";
        let entries = parse_epochs(text).expect("Kafka wrote it");
        assert_eq!(entries, [(LeaderEpoch(0), Offset(0)), (LeaderEpoch(3), Offset(180))]);
        assert_eq!(format_epochs(&entries), text);

        let text = "version: 0\ntopic_id: 9jcF9wv3TpWUT8nwaSgqyg";
        let id = parse_partition_metadata(text).expect("Kafka wrote it");
        assert_eq!(format_partition_metadata(id), text);

        let text = "{\"version\":0,\"brokerEpoch\":11}";
        assert_eq!(parse_clean_shutdown(text), Some(11));
        assert_eq!(format_clean_shutdown(11), text);
        assert_eq!(parse_clean_shutdown(""), None);

        let text = "#\n#Mon Nov 30 23:56:09 UTC 2026\nnode.id=1\n\
                    directory.id=K5aDrr4_bN0eq_cg-8VeAw\nversion=1\n\
                    cluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n";
        let properties = MetaProperties::parse(text).expect("Kafka wrote it");
        assert_eq!(properties.node_id, NodeId(1));
        assert_eq!(properties.format("Mon Nov 30 23:56:09 UTC 2026"), text);
    }

    #[test]
    fn refuses_what_is_malformed() {
        assert_eq!(parse_offsets(""), Ok(Vec::new()));
        for text in ["1\n0\n", "0\n", "0\nx\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na x 1\n"] {
            assert!(parse_offsets(text).is_err(), "{text:?}");
        }
        for text in ["0\n1\n-1 0\n", "0\n1\n0 -1\n", "0\n0\n0 0\n"] {
            assert!(parse_epochs(text).is_err(), "{text:?}");
        }
        for text in ["", "version: 1\ntopic_id: x", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"]
        {
            assert!(parse_partition_metadata(text).is_err(), "{text:?}");
        }
        for text in ["version=0\n", "version=1\nnode.id=x\ncluster.id=c\n", "node.id=1\n"] {
            assert!(MetaProperties::parse(text).is_err(), "{text:?}");
        }
    }
}
