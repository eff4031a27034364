//! Requests that the controller answers: they are passed on whole, and so are the answers.

use base::{Token, Uuid};
use intercom::{QuorumReply, QuorumRequest};
use protocol::{
    AlterConfigsRequest, AlterPartitionReassignmentsRequest, CreatePartitionsRequest,
    CreateTopicsRequest, DecodeError, DeleteTopicsRequest, DescribeQuorumRequest,
    DescribeQuorumResponse, ElectLeadersRequest, IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest, RequestFrame, UnregisterBrokerRequest,
    UpdateFeaturesRequest,
};

use crate::shard::{Io, Shard};

/// Makes the handler of an API that is passed on: which question the request becomes, and which
/// answer its response is.
macro_rules! forward {
    ($(#[$doc:meta])* $name:ident, $request:ty, $reply:ident,
     |$body:ident, $version:ident| $question:expr) => {
        $(#[$doc])*
        pub(crate) fn $name(
            shard: &mut Shard,
            io: &mut Io<'_>,
            call: Token,
            frame: &RequestFrame,
        ) -> Result<(), DecodeError> {
            let $body: $request = frame.body()?;
            let $version = frame.version;
            let _ = $version;
            shard.ask_quorum(io, call, $question, |shard, io, call, reply| {
                let QuorumReply::$reply(response) = reply else {
                    unreachable!("{} was answered by {reply:?}", stringify!($name));
                };
                shard.respond::<$request>(io, call, &response);
            });
            Ok(())
        }
    };
}

forward!(create_topics, CreateTopicsRequest, CreateTopics, |request, version| {
    QuorumRequest::CreateTopics { request }
});
forward!(delete_topics, DeleteTopicsRequest, DeleteTopics, |request, version| {
    QuorumRequest::DeleteTopics { request, version }
});
forward!(create_partitions, CreatePartitionsRequest, CreatePartitions, |request, version| {
    QuorumRequest::CreatePartitions(request)
});
forward!(elect_leaders, ElectLeadersRequest, ElectLeaders, |request, version| {
    QuorumRequest::ElectLeaders { request, version }
});
forward!(
    alter_partition_reassignments,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignments,
    |request, version| QuorumRequest::AlterPartitionReassignments(request)
);
forward!(
    list_partition_reassignments,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignments,
    |request, version| QuorumRequest::ListPartitionReassignments(request)
);
forward!(
    incremental_alter_configs,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigs,
    |request, version| QuorumRequest::IncrementalAlterConfigs(request)
);
forward!(alter_configs, AlterConfigsRequest, AlterConfigs, |request, version| {
    QuorumRequest::AlterConfigs(request)
});
forward!(update_features, UpdateFeaturesRequest, UpdateFeatures, |request, version| {
    QuorumRequest::UpdateFeatures(request)
});
forward!(unregister_broker, UnregisterBrokerRequest, UnregisterBroker, |request, version| {
    QuorumRequest::UnregisterBroker(request)
});

/// The first version of DescribeQuorum that names directories and nodes (KIP-853).
const DIRECTORIES_FIRST_VERSION: i16 = 2;

pub(crate) fn describe_quorum(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: DescribeQuorumRequest = frame.body()?;
    let request = QuorumRequest::DescribeQuorum(request);
    shard.ask_quorum(io, call, request, |shard, io, call, reply| {
        let QuorumReply::DescribeQuorum(mut response) = reply else {
            unreachable!("DescribeQuorum was answered by {reply:?}");
        };
        if shard.head(call).version < DIRECTORIES_FIRST_VERSION {
            leave_out_directories(&mut response);
        }
        shard.respond::<DescribeQuorumRequest>(io, call, &response);
    });
    Ok(())
}

/// Older versions cannot carry what newer ones tell.
fn leave_out_directories(response: &mut DescribeQuorumResponse) {
    response.nodes.clear();
    for partition in response.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        let replicas = partition.current_voters.iter_mut().chain(&mut partition.observers);
        replicas.for_each(|replica| replica.replica_directory_id = Uuid::ZERO);
    }
}
