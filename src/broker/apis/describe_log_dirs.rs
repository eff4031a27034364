//! DescribeLogDirs: the sizes of the logs, by directory.

use std::collections::{BTreeMap, BTreeSet};

use api::Space;
use base::{PartitionIndex, ShardId, Token};
use intercom::{LogSize, Reply, Request};
use protocol::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use protocol::{
    DecodeError, DescribeLogDirsRequest, DescribeLogDirsResponse, ErrorCode, RequestFrame, Str,
};

use crate::calls::Stage;
use crate::shard::{Io, Shard};

/// A DescribeLogDirs request under way.
#[derive(Debug)]
pub(crate) struct State {
    /// The partitions that are asked for, by topic; none for all.
    wanted: Option<BTreeMap<Str, BTreeSet<i32>>>,
    sizes: Vec<LogSize>,
    spaces: BTreeMap<u16, Space>,
    missing: usize,
}

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: DescribeLogDirsRequest = frame.body()?;
    let wanted = request.topics.map(|topics| {
        let entry = |topic: protocol::describe_log_dirs_request::DescribableLogDirTopic| {
            (topic.topic, topic.partitions.into_iter().collect())
        };
        topics.into_iter().map(entry).collect()
    });
    let shards = shard.setup.data_shards;
    let directories = shard.setup.log_directories.len();
    let missing = usize::from(shards) + directories;
    let state = State { wanted, sizes: Vec::new(), spaces: BTreeMap::new(), missing };
    shard.wait(call, Stage::DescribeLogDirs(state));
    for to in (0..shards).map(ShardId) {
        shard.ask(io, call, to, Vec::new(), Request::LogSizes);
    }
    for index in 0..directories {
        shard.ask_space(io, call, u16::try_from(index).expect("directories are few"));
    }
    Ok(())
}

/// A shard has answered.
pub(crate) fn answered(shard: &mut Shard, io: &mut Io<'_>, call: Token, reply: Reply) {
    let Reply::LogSizes(sizes) = reply else { unreachable!("sizes were answered by {reply:?}") };
    let Some(Stage::DescribeLogDirs(state)) = shard.stage_mut(call) else { return };
    state.sizes.extend(sizes);
    one_less(shard, io, call);
}

/// The size of a directory's file system is known, or could not be found out.
pub(crate) fn measured(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    index: u16,
    space: Option<Space>,
) {
    let Some(Stage::DescribeLogDirs(state)) = shard.stage_mut(call) else { return };
    state.spaces.extend(space.map(|space| (index, space)));
    one_less(shard, io, call);
}

fn one_less(shard: &mut Shard, io: &mut Io<'_>, call: Token) {
    let Some(Stage::DescribeLogDirs(state)) = shard.stage_mut(call) else { return };
    state.missing -= 1;
    if state.missing > 0 {
        return;
    }
    let Some(Stage::DescribeLogDirs(state)) = shard.take_stage(call) else { return };
    let directories = 0..shard.setup.log_directories.len();
    let results = directories.map(|index| result(shard, &state, index)).collect();
    let response = DescribeLogDirsResponse { results, ..Default::default() };
    shard.respond::<DescribeLogDirsRequest>(io, call, &response);
}

fn result(shard: &Shard, state: &State, index: usize) -> DescribeLogDirsResult {
    let log_dir = shard.setup.log_directories[index].path.display().to_string().into();
    if shard.is_offline(index) {
        let error_code = ErrorCode::KAFKA_STORAGE_ERROR;
        return DescribeLogDirsResult { error_code, log_dir, ..Default::default() };
    }
    let here = state.sizes.iter().filter(|size| usize::from(size.directory) == index);
    let mut topics: BTreeMap<Str, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for size in here {
        let Some(name) = shard.topic_name(size.key.topic) else { continue };
        let PartitionIndex(partition_index) = size.key.partition;
        let wanted = state.wanted.as_ref().is_none_or(|wanted| {
            wanted.get(&name).is_some_and(|partitions| partitions.contains(&partition_index))
        });
        if wanted {
            topics.entry(name).or_default().push(DescribeLogDirsPartition {
                partition_index,
                partition_size: i64::try_from(size.size_bytes).unwrap_or(i64::MAX),
                ..Default::default()
            });
        }
    }
    let topics = topics.into_iter().map(|(name, mut partitions)| {
        partitions.sort_by_key(|partition| partition.partition_index);
        DescribeLogDirsTopic { name, partitions, ..Default::default() }
    });
    let space = u16::try_from(index).ok().and_then(|index| state.spaces.get(&index));
    let bytes = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    DescribeLogDirsResult {
        log_dir,
        topics: topics.collect(),
        total_bytes: space.map_or(-1, |space| bytes(space.total_bytes)),
        usable_bytes: space.map_or(-1, |space| bytes(space.usable_bytes)),
        ..Default::default()
    }
}
