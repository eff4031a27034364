//! FindCoordinator.

use protocol::find_coordinator_response::Coordinator;
use protocol::{ErrorCode, FindCoordinatorRequest, FindCoordinatorResponse, Str, static_str};

use crate::placement::coordinator_partition;

/// From this version on a request asks for several keys.
const VERSION_KEYS: i16 = 4;
/// From this version on there are coordinators of share groups.
const VERSION_SHARE: i16 = 6;

/// What a key names.
const KEY_GROUP: i8 = 0;
const KEY_TRANSACTION: i8 = 1;
const KEY_SHARE: i8 = 2;

/// Where a coordinator is, as the client's listener has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorNode {
    /// The node's id.
    pub id: i32,
    /// Its host.
    pub host: Str,
    /// Its port.
    pub port: i32,
}

/// Answers for all keys of the request. `locate` says where the leader of a partition of
/// `__consumer_offsets`, which has `partitions`, is; an error when that is not known (yet).
/// Coordinators of transactions and share groups do not exist, and the client is told so with an
/// error that it does not try again.
pub fn find_coordinator(
    request: &FindCoordinatorRequest,
    version: i16,
    partitions: i32,
    locate: &dyn Fn(i32) -> Result<CoordinatorNode, ErrorCode>,
) -> FindCoordinatorResponse {
    let find = |key: &Str| -> Coordinator {
        let found = refuse_type(request.key_type, version)
            .and_then(|()| locate(coordinator_partition(key, partitions)).map_err(with_message));
        match found {
            Ok(node) => Coordinator {
                key: key.clone(),
                node_id: node.id,
                host: node.host,
                port: node.port,
                ..Default::default()
            },
            Err((error_code, message)) => Coordinator {
                key: key.clone(),
                node_id: -1,
                port: -1,
                error_code,
                error_message: Some(static_str(message)),
                ..Default::default()
            },
        }
    };
    if version >= VERSION_KEYS {
        let coordinators = request.coordinator_keys.iter().map(find).collect();
        return FindCoordinatorResponse { coordinators, ..Default::default() };
    }
    let found = find(&request.key);
    let none = || static_str(ErrorCode::NONE.message());
    FindCoordinatorResponse {
        error_code: found.error_code,
        error_message: Some(found.error_message.unwrap_or_else(none)),
        node_id: found.node_id,
        host: found.host,
        port: found.port,
        ..Default::default()
    }
}

type Refused = (ErrorCode, &'static str);

fn with_message(error: ErrorCode) -> Refused {
    (error, error.message())
}

fn refuse_type(key_type: i8, version: i16) -> Result<(), Refused> {
    match key_type {
        KEY_GROUP => Ok(()),
        KEY_TRANSACTION => Err((
            ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "This broker has no transaction coordinator: transactional ids cannot be used.",
        )),
        KEY_SHARE if version >= VERSION_SHARE => Err((
            ErrorCode::INVALID_REQUEST,
            "This broker has no share coordinator: share groups cannot be used.",
        )),
        _ => Err(with_message(ErrorCode::INVALID_REQUEST)),
    }
}
