//! AlterReplicaLogDirs: each partition's owner moves it into another log directory.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{PartitionIndex, ShardId, Token, TopicPartition, Uuid};
use commitlog::future_folder;
use intercom::{Reply, Request, WantedDirectory};
use protocol::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use protocol::{
    AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, DecodeError, ErrorCode, RequestFrame,
    Str,
};

use crate::shard::{Io, Shard, Waiting};
use crate::topics::is_valid_name;

/// A request under way.
#[derive(Debug)]
struct AlterReplicaLogDirs {
    /// The outcome of each replica; that of those who are asked is yet to come.
    outcomes: BTreeMap<(Str, i32), ErrorCode>,
    /// Those that are asked for, in the order of the question.
    asked: Vec<(Str, i32)>,
    missing: usize,
}

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: AlterReplicaLogDirsRequest = frame.body()?;
    // As in Kafka, a replica that is named twice goes where it is named last.
    let mut wanted: BTreeMap<(Str, i32), Str> = BTreeMap::new();
    for directory in request.dirs {
        for topic in directory.topics {
            for partition in topic.partitions {
                wanted.insert((topic.name.clone(), partition), directory.path.clone());
            }
        }
    }
    let (mut outcomes, mut asked, mut question) = (BTreeMap::new(), Vec::new(), Vec::new());
    for ((topic, partition), path) in wanted {
        let (outcome, part) = take_apart(shard, &topic, partition, &path);
        outcomes.insert((topic.clone(), partition), outcome);
        if let Some(part) = part {
            question.push(part);
            asked.push((topic, partition));
        }
    }
    let missing = usize::from(shard.setup.data_shards);
    let waiting = AlterReplicaLogDirs { outcomes, asked, missing };
    if question.is_empty() {
        waiting.respond(shard, io, call);
        return Ok(());
    }
    shard.wait(call, Box::new(waiting));
    let question: Arc<[WantedDirectory]> = question.into();
    for to in (0..missing).map(|to| ShardId(u16::try_from(to).expect("shards are few"))) {
        shard.ask(io, call, to, Request::MoveReplicas(Arc::clone(&question)));
    }
    Ok(())
}

/// What comes of a replica if nobody says anything else, and what its owner is asked
/// (`ReplicaManager.alterReplicaLogDirs`).
fn take_apart(
    shard: &Shard,
    topic: &Str,
    partition: i32,
    path: &str,
) -> (ErrorCode, Option<WantedDirectory>) {
    let index = PartitionIndex(partition);
    let name = TopicPartition { topic: Arc::from(&**topic), partition: index };
    if future_folder(&name, Uuid::ZERO).is_none() {
        return (ErrorCode::INVALID_TOPIC_EXCEPTION, None);
    }
    let mut directories = shard.setup.log_directories.iter();
    let directory = directories.position(|one| one.path.to_str() == Some(path));
    let Some(directory) = directory else { return (ErrorCode::LOG_DIR_NOT_FOUND, None) };
    if shard.is_offline(directory) {
        return (ErrorCode::KAFKA_STORAGE_ERROR, None);
    }
    let directory = u16::try_from(directory).expect("directories are few");
    let (outcome, owned) = match shard.locate(topic, index) {
        Ok(owned) => (ErrorCode::REPLICA_NOT_AVAILABLE, Some(owned)),
        Err(ErrorCode::NOT_LEADER_OR_FOLLOWER) => (ErrorCode::REPLICA_NOT_AVAILABLE, None),
        Err(_) => (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, None),
    };
    let may_exist = is_valid_name(topic) && partition >= 0;
    let part = WantedDirectory { partition: name, owned, directory };
    (outcome, may_exist.then_some(part))
}

impl Waiting for AlterReplicaLogDirs {
    fn answered(
        mut self: Box<Self>,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        _: ShardId,
        reply: Reply,
    ) {
        let Reply::MoveReplicas(outcomes) = reply else { unreachable!("answered by {reply:?}") };
        for (index, outcome) in outcomes {
            let replica = self.asked.get(index).expect("an owner answers what it was asked");
            self.outcomes.insert(replica.clone(), outcome);
        }
        self.missing -= 1;
        if self.missing > 0 {
            return shard.wait(call, self);
        }
        self.respond(shard, io, call);
    }
}

impl AlterReplicaLogDirs {
    fn respond(self, shard: &mut Shard, io: &mut Io<'_>, call: Token) {
        let mut results: Vec<AlterReplicaLogDirTopicResult> = Vec::new();
        for ((topic_name, partition_index), error_code) in self.outcomes {
            let row = AlterReplicaLogDirPartitionResult {
                partition_index,
                error_code,
                ..Default::default()
            };
            match results.last_mut().filter(|last| last.topic_name == topic_name) {
                Some(last) => last.partitions.push(row),
                None => results.push(AlterReplicaLogDirTopicResult {
                    topic_name,
                    partitions: vec![row],
                    ..Default::default()
                }),
            }
        }
        let response = AlterReplicaLogDirsResponse { results, ..Default::default() };
        shard.respond::<AlterReplicaLogDirsRequest>(io, call, &response);
    }
}
