//! AlterReplicaLogDirs: some partitions are wanted in another log directory.

use base::Random;
use bytes::Bytes;
use protocol::alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic};
use protocol::{AlterReplicaLogDirsRequest, ErrorCode};

use super::{frame, reply, sample_places, tolerate, version};
use crate::history::{History, TopicHistory, Violation, ensure};
use crate::terms::{FIRST_DIRECTORY, SECOND_DIRECTORY};

/// The topic that groups are kept in. Its partitions move too.
const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// One request.
#[derive(Clone, Debug)]
pub struct MoveReplica {
    version: i16,
    /// By name, in order.
    partitions: Vec<(String, i32)>,
    request: AlterReplicaLogDirsRequest,
}

impl MoveReplica {
    /// Draws partitions and a directory, which may be the one that they are in.
    pub fn sample(random: &mut Random, history: &History) -> Self {
        // The request can only name topics by name.
        let fits = |topic: &TopicHistory| topic.incarnation == 0;
        let places = sample_places(random, history, 2, fits).into_iter();
        let mut partitions: Vec<(String, i32)> = places
            .map(|(topic, partition)| (history.topics[topic].name.clone(), partition as i32))
            .collect();
        if random.chance(30) {
            partitions.push((OFFSETS_TOPIC.to_owned(), random.below(2) as i32));
        }
        let directory = if random.chance(50) { FIRST_DIRECTORY } else { SECOND_DIRECTORY };
        Self::new(version(random, 1..=2), partitions, directory)
    }

    /// Asks for these partitions, by name, in a directory.
    pub fn new(version: i16, mut partitions: Vec<(String, i32)>, directory: &str) -> Self {
        let topics = partitions.iter().map(|(name, partition)| AlterReplicaLogDirTopic {
            name: name.as_str().into(),
            partitions: vec![*partition],
            ..AlterReplicaLogDirTopic::default()
        });
        let directory = AlterReplicaLogDir {
            path: directory.into(),
            topics: topics.collect(),
            ..AlterReplicaLogDir::default()
        };
        let request = AlterReplicaLogDirsRequest { dirs: vec![directory], ..Default::default() };
        partitions.sort();
        Self { version, partitions, request }
    }

    /// The frame of the request.
    pub fn build(&self, correlation_id: i32) -> Bytes {
        frame(correlation_id, self.version, &self.request)
    }

    /// Judges the reply: each partition has its outcome. What becomes of the logs is told by
    /// everything that is read of them.
    pub fn classify(&self, bytes: &Bytes, history: &mut History) -> Result<(), Violation> {
        let response = reply::<AlterReplicaLogDirsRequest>(bytes, self.version)?;
        let mut answered = Vec::new();
        for topic in &response.results {
            for partition in &topic.partitions {
                answered.push((topic.topic_name.to_string(), partition.partition_index));
                match partition.error_code {
                    ErrorCode::NONE => history.counts.moves += 1,
                    // It is not made yet, or not open.
                    ErrorCode::REPLICA_NOT_AVAILABLE | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {}
                    code => tolerate(history, "AlterReplicaLogDirs", code)?,
                }
            }
        }
        answered.sort();
        ensure(answered == self.partitions, || {
            format!("of {:?} AlterReplicaLogDirs answered {answered:?}", self.partitions)
        })
    }
}
