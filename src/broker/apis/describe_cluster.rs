//! DescribeCluster: the brokers, fenced ones too where they are asked for (KIP-700, KIP-1073).

use base::Token;
use protocol::describe_cluster_response::DescribeClusterBroker;
use protocol::{
    DecodeError, DescribeClusterRequest, DescribeClusterResponse, ErrorCode, RequestFrame, Str,
};

use crate::shard::{Io, Shard};

/// `endpoint_type` of brokers; controllers are described by controllers.
const BROKERS: i8 = 1;

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: DescribeClusterRequest = frame.body()?;
    let response = response(shard, call, &request);
    shard.respond::<DescribeClusterRequest>(io, call, &response);
    Ok(())
}

fn response(
    shard: &Shard,
    call: Token,
    request: &DescribeClusterRequest,
) -> DescribeClusterResponse {
    let cluster_id = Str::from(&*shard.setup.cluster_id);
    if request.endpoint_type != BROKERS {
        let error_code = if request.endpoint_type == 2 {
            ErrorCode::MISMATCHED_ENDPOINT_TYPE
        } else {
            ErrorCode::UNSUPPORTED_ENDPOINT_TYPE
        };
        let sentence = if request.endpoint_type == 2 {
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of \
             type CONTROLLER"
                .to_owned()
        } else {
            format!("Unsupported endpoint type {}", request.endpoint_type)
        };
        let error_message = Some(sentence.into());
        return DescribeClusterResponse { error_code, error_message, ..Default::default() };
    }
    let Some(view) = &shard.view else {
        return DescribeClusterResponse { cluster_id, ..Default::default() };
    };
    let listener = shard.listener_of(call);
    let brokers = view.image.brokers().values();
    let brokers = brokers.filter(|broker| !broker.fenced || request.include_fenced_brokers);
    let described = brokers.filter_map(|broker| {
        let endpoint = broker.endpoint(listener)?;
        Some(DescribeClusterBroker {
            broker_id: broker.id.0,
            host: Str::from(&*endpoint.host),
            port: i32::from(endpoint.port),
            rack: broker.rack.as_deref().map(Str::from),
            is_fenced: broker.fenced,
            ..Default::default()
        })
    });
    DescribeClusterResponse {
        cluster_id,
        endpoint_type: BROKERS,
        controller_id: view.image.controller_for_clients().0,
        brokers: described.collect(),
        ..Default::default()
    }
}
