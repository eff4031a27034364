//! Brokers: how they register, come and go (`ClusterControlManager`, `BrokerHeartbeatManager`).

use std::collections::BTreeSet;

use base::{NodeId, Uuid};
use metadata::{
    Broker, DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Image, METADATA_VERSION,
    VersionedRecord,
};
use protocol::broker_registration_request::Feature;
use protocol::register_broker_record::{BrokerEndpoint, BrokerFeature};
use protocol::{
    BrokerHeartbeatRequest, BrokerRegistrationChangeRecord, BrokerRegistrationRequest, ErrorCode,
    RegisterBrokerRecord, UnregisterBrokerRecord, UnregisterBrokerRequest,
    UnregisterBrokerResponse,
};

use crate::leaders::{Move, partition_changes};
use crate::outcome::{v0, versioned};
use crate::params::Params;
use crate::{ApiError, Proposal};

/// What a registration leads to; the answer is the broker's epoch. `new_epoch` is the offset that
/// the first record of the proposal will have, and `has_session` whether another process with the
/// broker's number was heard of lately.
///
/// # Errors
/// Why the broker may not register.
pub fn register_broker(
    params: &Params,
    image: &Image,
    request: &BrokerRegistrationRequest,
    new_epoch: i64,
    has_session: bool,
) -> Result<Proposal<i64>, ApiError> {
    let id = NodeId(request.broker_id);
    let existing = image.broker(id);
    let is_amended = existing.is_some_and(|broker| broker.incarnation == request.incarnation_id);
    check_registration(params, image, request, has_session && !is_amended)?;
    let mut record = RegisterBrokerRecord {
        broker_id: request.broker_id,
        incarnation_id: request.incarnation_id,
        broker_epoch: new_epoch,
        rack: request.rack.clone(),
        end_points: request.listeners.iter().map(endpoint).collect(),
        features: supported_features(image, request)?,
        ..RegisterBrokerRecord::default()
    };
    let version = image.metadata_version();
    if version.has_directories() {
        record.log_dirs.clone_from(&request.log_dirs);
    }
    let mut records = Vec::new();
    match existing {
        Some(broker) if is_amended => {
            record.fenced = broker.fenced;
            record.in_controlled_shutdown = broker.in_controlled_shutdown;
            record.broker_epoch = broker.epoch;
        }
        _ => {
            // Only who says which epoch it went down with has everything that it had then.
            let was_clean =
                existing.is_some_and(|broker| broker.epoch == request.previous_broker_epoch);
            let clean_up =
                if image.has_elr() && !was_clean { Move::Died(id) } else { Move::Leaves(id) };
            partition_changes(params, image, clean_up, &mut records);
        }
    }
    let epoch = record.broker_epoch;
    tracing::info!("registering broker {id} at epoch {epoch}, after {} changes", records.len());
    records.push(versioned(record, version.register_broker_record()));
    Ok(Proposal::new(records, epoch))
}

fn check_registration(
    params: &Params,
    image: &Image,
    request: &BrokerRegistrationRequest,
    is_taken: bool,
) -> Result<(), ApiError> {
    if *params.cluster_id != *request.cluster_id {
        let message = format!(
            "Expected cluster ID {}, but got cluster ID {}",
            params.cluster_id, request.cluster_id
        );
        return Err(ApiError::new(ErrorCode::INCONSISTENT_CLUSTER_ID, message));
    }
    if is_taken {
        let message = "Another broker is registered with that broker id. If the broker was \
                       recently restarted this should self-resolve once the heartbeat manager \
                       expires the broker's session.";
        return Err(ApiError::new(ErrorCode::DUPLICATE_BROKER_REGISTRATION, message));
    }
    if request.is_migrating_zk_broker {
        let message = "Controller does not support registering ZK brokers.";
        return Err(ApiError::new(ErrorCode::BROKER_ID_NOT_REGISTERED, message));
    }
    if !image.metadata_version().has_directories() {
        return Ok(());
    }
    let refuse = |message: String| Err(ApiError::new(ErrorCode::INVALID_REGISTRATION, message));
    if request.log_dirs.is_empty() {
        return refuse("No directories specified in request".to_owned());
    }
    let reserved = [DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING, DIRECTORY_LOST];
    if request.log_dirs.iter().any(|directory| reserved.contains(directory)) {
        return refuse("Reserved directory ID in request".to_owned());
    }
    let distinct: BTreeSet<_> = request.log_dirs.iter().collect();
    if distinct.len() != request.log_dirs.len() {
        return refuse("Duplicate directory ID in request".to_owned());
    }
    for broker in image.brokers().values().filter(|broker| broker.id.0 != request.broker_id) {
        if let Some(taken) = broker.directories.iter().find(|taken| distinct.contains(taken)) {
            return refuse(format!(
                "Broker {} is already registered with directory {taken}",
                broker.id
            ));
        }
    }
    Ok(())
}

/// The features that the broker can do, which must include every finalised level.
fn supported_features(
    image: &Image,
    request: &BrokerRegistrationRequest,
) -> Result<Vec<BrokerFeature>, ApiError> {
    let of = |name: &str| request.features.iter().find(|feature| &*feature.name == name);
    if of(METADATA_VERSION).is_none() {
        let message = "Request features do not contain 'metadata.version'";
        return Err(ApiError::new(ErrorCode::INVALID_REGISTRATION, message));
    }
    for (name, level) in image.features() {
        let (min, max) = of(name).map_or((0, 0), |feature| {
            (feature.min_supported_version, feature.max_supported_version)
        });
        if !(min..=max).contains(level) {
            let message = format!(
                "Unable to register because the broker does not support finalized version {level} \
                 of {name}. The broker wants a version between {min} and {max}, inclusive."
            );
            return Err(ApiError::new(ErrorCode::UNSUPPORTED_VERSION, message));
        }
    }
    let supported = request.features.iter().map(|feature: &Feature| BrokerFeature {
        name: feature.name.clone(),
        min_supported_version: feature.min_supported_version,
        max_supported_version: feature.max_supported_version,
        ..BrokerFeature::default()
    });
    Ok(supported.collect())
}

fn endpoint(listener: &protocol::broker_registration_request::Listener) -> BrokerEndpoint {
    BrokerEndpoint {
        name: listener.name.clone(),
        host: listener.host.clone(),
        port: listener.port,
        security_protocol: listener.security_protocol,
        ..BrokerEndpoint::default()
    }
}

/// What a broker is told about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatAnswer {
    /// It has seen its own registration.
    pub is_caught_up: bool,
    /// It may not lead.
    pub is_fenced: bool,
    /// It can go down: nothing is led by it any more.
    pub should_shut_down: bool,
}

/// The states of a broker, as the controller sees them.
///
/// | is | wants | becomes |
/// |---|---|---|
/// | fenced | to shut down | fenced, may go |
/// | fenced | to be unfenced, and has seen its registration | unfenced |
/// | unfenced | to be fenced and to shut down | fenced, may go |
/// | unfenced | to be fenced | fenced |
/// | unfenced | to shut down, and leads | on its way down |
/// | unfenced | to shut down, and leads nothing | fenced, may go |
/// | on its way down | whatever, and leads nothing | fenced, may go |
///
/// Everything else stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Fenced,
    Unfenced,
    GoingDown,
    MayGo,
}

/// What a heartbeat leads to.
///
/// # Errors
/// If the broker is not registered with the epoch that it names.
pub fn heartbeat(
    params: &Params,
    image: &Image,
    request: &BrokerHeartbeatRequest,
) -> Result<Proposal<HeartbeatAnswer>, ApiError> {
    let id = NodeId(request.broker_id);
    let broker = check_epoch(image, id, request.broker_epoch)?;
    // The record of the registration is the last of the batch that its epoch begins.
    let is_caught_up = request.current_metadata_offset >= broker.epoch;
    let current = match (broker.fenced, broker.in_controlled_shutdown) {
        (true, _) => State::Fenced,
        (false, true) => State::GoingDown,
        (false, false) => State::Unfenced,
    };
    let leads = || {
        let mut partitions = image.topics().values().flat_map(|topic| topic.partitions.values());
        partitions.any(|partition| partition.leader == id)
    };
    let next = match (current, request.want_shut_down, request.want_fence) {
        (State::Fenced, true, _) | (State::Unfenced, true, true) => State::MayGo,
        (State::Fenced, false, false) if is_caught_up => State::Unfenced,
        (State::Unfenced, false, true) => State::Fenced,
        (State::Unfenced, true, false) if leads() => State::GoingDown,
        (State::Unfenced, true, false) => State::MayGo,
        (State::GoingDown, _, _) if !leads() => State::MayGo,
        _ => current,
    };
    let mut records = Vec::new();
    if next != current {
        tracing::info!("broker {id} goes from {current:?} to {next:?}");
        write_transition(params, image, broker, next, &mut records);
    }
    lose_directories(params, image, broker, request, &mut records);
    let cordoned = request.cordoned_log_dirs.as_ref();
    if let Some(cordoned) = cordoned
        && image.metadata_version().has_cordoned_directories()
        && broker.cordoned_directories.as_ref() != Some(cordoned)
    {
        let mut change = change_of(broker);
        change.cordoned_log_dirs = Some(cordoned.clone());
        records.push(versioned(change, 3));
    }
    let is_fenced = matches!(next, State::Fenced | State::MayGo);
    let should_shut_down = next == State::MayGo;
    Ok(Proposal::new(records, HeartbeatAnswer { is_caught_up, is_fenced, should_shut_down }))
}

/// Log directories of a broker have failed: it leaves the partitions that it has there.
fn lose_directories(
    params: &Params,
    image: &Image,
    broker: &Broker,
    request: &BrokerHeartbeatRequest,
    records: &mut Vec<VersionedRecord>,
) {
    let is_lost = |directory: &&Uuid| request.offline_log_dirs.contains(directory);
    let lost: Vec<Uuid> = broker.directories.iter().filter(is_lost).copied().collect();
    if lost.is_empty() || !image.metadata_version().has_directories() {
        return;
    }
    for directory in &lost {
        tracing::info!("broker {} has lost its log directory {directory}", broker.id);
        partition_changes(params, image, Move::LosesDirectory(broker.id, *directory), records);
    }
    let mut change = change_of(broker);
    change.log_dirs = broker.directories.clone();
    change.log_dirs.retain(|directory| !lost.contains(directory));
    records.push(versioned(change, 2));
}

fn write_transition(
    params: &Params,
    image: &Image,
    broker: &Broker,
    next: State,
    records: &mut Vec<VersionedRecord>,
) {
    let mut change = change_of(broker);
    match next {
        State::Unfenced => {
            change.fenced = -1;
            records.push(v0(change));
            partition_changes(params, image, Move::Returns(broker.id), records);
        }
        State::GoingDown => {
            change.in_controlled_shutdown = 1;
            records.push(versioned(change, 1));
            partition_changes(params, image, Move::Leaves(broker.id), records);
        }
        State::Fenced | State::MayGo if !broker.fenced => {
            partition_changes(params, image, Move::Leaves(broker.id), records);
            change.fenced = 1;
            records.push(v0(change));
        }
        State::Fenced | State::MayGo => {}
    }
}

fn change_of(broker: &Broker) -> BrokerRegistrationChangeRecord {
    BrokerRegistrationChangeRecord {
        broker_id: broker.id.0,
        broker_epoch: broker.epoch,
        ..BrokerRegistrationChangeRecord::default()
    }
}

/// What UnregisterBroker leads to.
pub fn unregister_broker(
    params: &Params,
    image: &Image,
    request: &UnregisterBrokerRequest,
) -> Proposal<UnregisterBrokerResponse> {
    let id = NodeId(request.broker_id);
    let Some(broker) = image.broker(id) else {
        let message = format!("Broker ID {id} is not currently registered");
        return Proposal::nothing(UnregisterBrokerResponse {
            error_code: ErrorCode::BROKER_ID_NOT_REGISTERED,
            error_message: Some(message.into()),
            ..UnregisterBrokerResponse::default()
        });
    };
    let mut records = Vec::new();
    partition_changes(params, image, Move::Leaves(id), &mut records);
    records.push(v0(UnregisterBrokerRecord {
        broker_id: id.0,
        broker_epoch: broker.epoch,
        ..UnregisterBrokerRecord::default()
    }));
    Proposal::new(records, UnregisterBrokerResponse::default())
}

/// The broker, if it is registered with that epoch.
pub(crate) fn check_epoch(image: &Image, id: NodeId, epoch: i64) -> Result<&Broker, ApiError> {
    let stale = |message: String| Err(ApiError::new(ErrorCode::STALE_BROKER_EPOCH, message));
    match image.broker(id) {
        None => stale(format!("No broker registration found for broker id {id}")),
        Some(broker) if broker.epoch != epoch => {
            stale(format!("Expected broker epoch {}, but got broker epoch {epoch}", broker.epoch))
        }
        Some(broker) => Ok(broker),
    }
}
