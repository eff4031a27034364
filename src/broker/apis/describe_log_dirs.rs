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

use crate::shard::{Io, Shard, Waiting};

/// A DescribeLogDirs request under way.
#[derive(Debug)]
struct DescribeLogDirs {
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
    let waiting = DescribeLogDirs { wanted, sizes: Vec::new(), spaces: BTreeMap::new(), missing };
    shard.wait(call, Box::new(waiting));
    for to in (0..shards).map(ShardId) {
        shard.ask(io, call, to, Request::LogSizes);
    }
    for index in 0..directories {
        shard.ask_space(io, call, u16::try_from(index).expect("directories are few"));
    }
    Ok(())
}

impl Waiting for DescribeLogDirs {
    fn answered(
        mut self: Box<Self>,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        _: ShardId,
        reply: Reply,
    ) {
        let Reply::LogSizes(sizes) = reply else { unreachable!("answered by {reply:?}") };
        self.sizes.extend(sizes);
        self.one_less(shard, io, call);
    }

    fn measured(
        mut self: Box<Self>,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        directory: u16,
        space: Option<Space>,
    ) {
        self.spaces.extend(space.map(|space| (directory, space)));
        self.one_less(shard, io, call);
    }
}

impl DescribeLogDirs {
    fn one_less(mut self: Box<Self>, shard: &mut Shard, io: &mut Io<'_>, call: Token) {
        self.missing -= 1;
        if self.missing > 0 {
            return shard.wait(call, self);
        }
        let directories = 0..shard.setup.log_directories.len();
        let results = directories.map(|index| result(shard, &self, index)).collect();
        let response = DescribeLogDirsResponse { results, ..Default::default() };
        shard.respond::<DescribeLogDirsRequest>(io, call, &response);
    }
}

fn result(shard: &Shard, state: &DescribeLogDirs, index: usize) -> DescribeLogDirsResult {
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
                offset_lag: size.offset_lag,
                is_future_key: size.is_future,
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
