//! IncrementalAlterConfigs and AlterConfigs (`ConfigAdminManager`, `ConfigurationControlManager`).

use std::collections::{BTreeMap, BTreeSet};

use config::{AlterError, Altered, Change, Operation, Pairs, Scope};
use metadata::{Image, Resource, ResourceType, VersionedRecord, topic_name_error};
use protocol::alter_configs_response::AlterConfigsResourceResponse as ReplacedResource;
use protocol::incremental_alter_configs_request::AlterableConfig;
use protocol::incremental_alter_configs_response::AlterConfigsResourceResponse as AlteredResource;
use protocol::{
    AlterConfigsRequest, AlterConfigsResponse, ClearElrRecord, ConfigRecord, ErrorCode,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, Str,
};

use crate::outcome::{code_and_message, too_many_records, v0};
use crate::params::{Params, RECORDS_PER_REQUEST_MAX, pairs_of};
use crate::{ApiError, Proposal};

/// The key that decides who is eligible to lead (KIP-966).
pub(crate) const MIN_ISR: &str = "min.insync.replicas";
/// The longest value that a configuration can have (`Short.MAX_VALUE`), in UTF-16 units.
const VALUE_LENGTH_MAX: usize = 32_767;

/// What IncrementalAlterConfigs leads to.
pub fn incremental_alter_configs(
    params: &Params,
    image: &Image,
    request: &IncrementalAlterConfigsRequest,
) -> Proposal<IncrementalAlterConfigsResponse> {
    let resources = request.resources.iter();
    let named = resources.map(|asked| (asked.resource_type, &asked.resource_name, &asked.configs));
    let (records, results) = decide(named, |code, name, configs| {
        let keys = configs.iter().map(|config| {
            let is_null = config.config_operation != DELETE && config.value.is_none();
            (&*config.name, is_null)
        });
        check_keys(keys)?;
        let target = Target::of(params, code, name)?;
        if let Kind::Loggers = target.kind {
            check_loggers(params, name, configs)?;
            return Ok(Vec::new());
        }
        let old = pairs_of(image, &target.resource);
        let changes = configs.iter().map(|config| {
            let (name, value) = (&*config.name, config.value.as_deref());
            let operation = Operation::from_protocol_number(config.config_operation);
            let unknown = config.config_operation;
            operation.map(|operation| Change { name, operation, value }).ok_or(unknown)
        });
        let changes: Vec<Change<'_>> = match (changes.collect(), target.kind) {
            (Ok(changes), _) => changes,
            (Err(unknown), Kind::Broker(_)) => {
                let message = format!("Unknown operations type {unknown}");
                return Err(ApiError::new(ErrorCode::INVALID_REQUEST, message).into());
            }
            (Err(_), _) => return Err(Refusal::OfAll),
        };
        let new = match target.kind {
            Kind::Broker(scope) => {
                let altered = config::alter_broker(&params.layers(image), scope, &changes);
                return finish(image, &target, altered);
            }
            Kind::Topic => config::apply_to_topic(&old, &changes),
            Kind::Group | Kind::ClientMetrics => config::apply_to_values(&old, &changes),
            Kind::Loggers => return Err(unknown_type(code).into()),
        };
        let new = new.map_err(|error| Refusal::ByController(refused(error)))?;
        replace(params, image, &target, &old, &new)
    });
    let responses = results.into_iter().map(|(resource_type, resource_name, result)| {
        let (error_code, error_message) = code_and_message(result);
        AlteredResource {
            error_code,
            error_message,
            resource_type,
            resource_name,
            ..AlteredResource::default()
        }
    });
    let responses = responses.collect();
    let response = IncrementalAlterConfigsResponse { responses, ..Default::default() };
    propose(request.validate_only, records, response)
}

/// What AlterConfigs leads to: what a resource has set and the request does not name is removed.
pub fn alter_configs(
    params: &Params,
    image: &Image,
    request: &AlterConfigsRequest,
) -> Proposal<AlterConfigsResponse> {
    let resources = request.resources.iter();
    let named = resources.map(|asked| (asked.resource_type, &asked.resource_name, &asked.configs));
    let (records, results) = decide(named, |code, name, configs| {
        check_keys(configs.iter().map(|config| (&*config.name, config.value.is_none())))?;
        // Kafka alters log levels with the other API only.
        if code == ResourceType::BrokerLogger.code() {
            return Err(Refusal::ByBroker(unknown_type(code)));
        }
        let target = Target::of(params, code, name)?;
        let old = pairs_of(image, &target.resource);
        let new = configs.iter().filter_map(|config| {
            Some((config.name.to_string(), config.value.as_deref()?.to_owned()))
        });
        let new: Pairs = new.collect();
        replace(params, image, &target, &old, &new)
    });
    let responses = results.into_iter().map(|(resource_type, resource_name, result)| {
        let (error_code, error_message) = code_and_message(result);
        ReplacedResource {
            error_code,
            error_message,
            resource_type,
            resource_name,
            ..ReplacedResource::default()
        }
    });
    let responses = responses.collect();
    let response = AlterConfigsResponse { responses, ..Default::default() };
    propose(request.validate_only, records, response)
}

/// The operation that needs no value.
const DELETE: i8 = 1;

/// Why a resource stays as it is.
enum Refusal {
    /// Found by the broker, which passes the others on to its controller.
    ByBroker(ApiError),
    /// Found by the controller.
    ByController(ApiError),
    /// What Kafka's controller cannot read: it answers nothing of what was passed on to it.
    OfAll,
}

/// What is checked first is the broker's.
impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::ByBroker(error)
    }
}

/// What becomes of each resource, in the order of the request.
type Results = Vec<(i8, Str, Result<(), ApiError>)>;

/// Decides about the resources of a request, each by itself. One that the request names several
/// times is refused each time; where there would be too many records, all are refused.
fn decide<'a, C: Copy>(
    resources: impl Iterator<Item = (i8, &'a Str, C)> + Clone,
    change: impl Fn(i8, &str, C) -> Result<Vec<VersionedRecord>, Refusal>,
) -> (Vec<VersionedRecord>, Results) {
    let mut times_named: BTreeMap<(i8, &str), usize> = BTreeMap::new();
    for (code, name, _) in resources.clone() {
        *times_named.entry((code, &**name)).or_default() += 1;
    }
    let (mut records, mut results) = (Vec::new(), Vec::new());
    for (code, name, configs) in resources {
        let result = if times_named.get(&(code, &**name)).is_some_and(|times| *times > 1) {
            let message = "Each resource must appear at most once.";
            Err(ApiError::new(ErrorCode::INVALID_REQUEST, message).into())
        } else {
            change(code, name, configs).map(|more| records.extend(more))
        };
        results.push((code, name.clone(), result));
    }
    let is_of_all = |(_, _, result): &(i8, Str, _)| matches!(result, Err(Refusal::OfAll));
    let for_all = if results.iter().any(is_of_all) {
        Some(ApiError::silent(ErrorCode::UNKNOWN_SERVER_ERROR))
    } else if records.len() > RECORDS_PER_REQUEST_MAX {
        Some(too_many_records())
    } else {
        None
    };
    if for_all.is_some() {
        records.clear();
    }
    let results = results.into_iter().map(|(code, name, result)| {
        let result = match (result, &for_all) {
            (Err(Refusal::ByBroker(error)), _) => Err(error),
            (_, Some(error)) => Err(error.clone()),
            (Err(Refusal::ByController(error)), None) => Err(error),
            (Ok(()), None) => Ok(()),
            (Err(Refusal::OfAll), None) => unreachable!("there is an error for all"),
        };
        (code, name, result)
    });
    (records, results.collect())
}

fn propose<R>(validate_only: bool, records: Vec<VersionedRecord>, response: R) -> Proposal<R> {
    if validate_only { Proposal::nothing(response) } else { Proposal::new(records, response) }
}

/// What makes a resource's part of a request wrong, whatever the resource: keys, each with whether
/// it lacks a value.
fn check_keys<'a>(keys: impl Iterator<Item = (&'a str, bool)> + Clone) -> Result<(), ApiError> {
    let refuse = |message: String| Err(ApiError::new(ErrorCode::INVALID_REQUEST, message));
    let mut seen = BTreeSet::new();
    if !keys.clone().all(|(name, _)| seen.insert(name)) {
        return refuse("Error due to duplicate config keys".to_owned());
    }
    let nulls: Vec<&str> = keys.filter(|(_, is_null)| *is_null).map(|(name, _)| name).collect();
    if nulls.is_empty() {
        return Ok(());
    }
    refuse(format!("Null value not supported for : {}", nulls.join(", ")))
}

/// What is altered.
struct Target {
    resource: Resource,
    kind: Kind,
}

/// By whose rules.
#[derive(Clone, Copy)]
enum Kind {
    Topic,
    Broker(Scope),
    Group,
    ClientMetrics,
    Loggers,
}

impl Target {
    fn of(params: &Params, code: i8, name: &str) -> Result<Self, ApiError> {
        let resource_type = ResourceType::of_code(code).ok_or_else(|| unknown_type(code))?;
        let kind = match (resource_type, name) {
            (ResourceType::Topic, _) => Kind::Topic,
            (ResourceType::Broker, "") => Kind::Broker(Scope::AllBrokers),
            (ResourceType::Broker, _) => {
                check_node(params, name, "Unexpected broker id, expected")?;
                Kind::Broker(Scope::ThisBroker)
            }
            (ResourceType::Group, _) => Kind::Group,
            (ResourceType::ClientMetrics, _) => Kind::ClientMetrics,
            (ResourceType::BrokerLogger, _) => Kind::Loggers,
        };
        Ok(Self { resource: Resource::new(resource_type, name), kind })
    }
}

/// Gives a resource what stands in `new` and nothing else.
fn replace(
    params: &Params,
    image: &Image,
    target: &Target,
    old: &Pairs,
    new: &Pairs,
) -> Result<Vec<VersionedRecord>, Refusal> {
    let name = &*target.resource.name;
    let no_default = |what: &str| {
        let message = format!("Default {what} resources are not allowed.");
        let error = ApiError::new(ErrorCode::INVALID_REQUEST, message);
        Err(Refusal::ByController(error))
    };
    let altered = match target.kind {
        Kind::Topic if name.is_empty() => return no_default("topic"),
        Kind::Topic => {
            if let Some(message) = topic_name_error(name) {
                let error = ApiError::new(ErrorCode::INVALID_TOPIC_EXCEPTION, message);
                return Err(Refusal::ByController(error));
            }
            config::replace_topic(&params.config, old, new)
        }
        Kind::Broker(scope) => config::replace_broker(&params.layers(image), scope, old, new),
        Kind::Group if name.is_empty() => return no_default("group"),
        Kind::Group => config::replace_group(&params.config, old, new),
        Kind::ClientMetrics => config::replace_client_metrics(name, old, new),
        Kind::Loggers => return Err(unknown_type(target.resource.resource_type.code()).into()),
    };
    finish(image, target, altered)
}

/// Why the levels of loggers cannot be altered: none of Kafka's loggers is here
/// (`RuntimeLoggerManager`). What is logged is chosen by an environment variable at the start.
fn check_loggers(params: &Params, name: &str, configs: &[AlterableConfig]) -> Result<(), ApiError> {
    check_node(params, name, "Unexpected node id. Expected")?;
    let refuse = |code: ErrorCode, message: String| Err(ApiError::new(code, message));
    let not_allowed = |what: String| {
        let message = format!("{what} is not allowed for the BROKER_LOGGER resource");
        refuse(ErrorCode::INVALID_REQUEST, message)
    };
    let Some(first) = configs.first() else { return Ok(()) };
    match Operation::from_protocol_number(first.config_operation) {
        Some(Operation::Set | Operation::Delete) => {
            let message = format!("Logger {} does not exist!", first.name);
            refuse(ErrorCode::INVALID_CONFIG, message)
        }
        Some(Operation::Append) => not_allowed("APPEND operation".to_owned()),
        Some(Operation::Subtract) => not_allowed("SUBTRACT operation".to_owned()),
        None => not_allowed(format!("Unknown operation type {}", first.config_operation)),
    }
}

fn unknown_type(code: i8) -> ApiError {
    ApiError::new(ErrorCode::INVALID_REQUEST, format!("Unknown resource type {code}"))
}

/// A broker alters its own configuration only; `unexpected` begins what is said of another's.
fn check_node(params: &Params, name: &str, unexpected: &str) -> Result<(), ApiError> {
    let message = match name.parse::<i32>() {
        Ok(id) if id == params.node.0 => return Ok(()),
        Ok(_) => format!("{unexpected} {}, but received {name}", params.node),
        Err(_) => format!("Node id must be an integer, but it is: {name}"),
    };
    Err(ApiError::new(ErrorCode::INVALID_REQUEST, message))
}

/// The rules of the controller, and the records.
fn finish(
    image: &Image,
    target: &Target,
    altered: Result<Altered, AlterError>,
) -> Result<Vec<VersionedRecord>, Refusal> {
    let altered = altered.map_err(|error| match target.kind {
        Kind::Broker(_) => Refusal::ByBroker(refused(error)),
        Kind::Topic | Kind::Group | Kind::ClientMetrics | Kind::Loggers => {
            Refusal::ByController(refused(error))
        }
    })?;
    records_of(image, &target.resource, altered).map_err(Refusal::ByController)
}

fn records_of(
    image: &Image,
    resource: &Resource,
    altered: Altered,
) -> Result<Vec<VersionedRecord>, ApiError> {
    for (key, value) in &altered {
        check_min_isr(image, resource, key, value.as_deref())?;
    }
    check_sizes(altered.iter().filter_map(|(_, value)| value.as_ref()))?;
    if resource.resource_type == ResourceType::Topic {
        check_topic(image, &resource.name)?;
    }
    let changes_min_isr = altered.iter().any(|(key, _)| key == MIN_ISR);
    let mut records: Vec<VersionedRecord> = altered
        .into_iter()
        .map(|(key, value)| {
            v0(ConfigRecord {
                resource_type: resource.resource_type.code(),
                resource_name: (&*resource.name).into(),
                name: key.into(),
                value: value.map(Into::into),
                ..ConfigRecord::default()
            })
        })
        .collect();
    if changes_min_isr && image.has_elr() {
        let topic = match resource.resource_type {
            ResourceType::Topic => (&*resource.name).into(),
            _ => Str::new(),
        };
        records.push(clear_elr(&topic));
    }
    Ok(records)
}

/// A topic whose configuration is altered must exist.
fn check_topic(image: &Image, name: &str) -> Result<(), ApiError> {
    if image.topic_id(name).is_none() {
        let message = format!("The topic '{name}' does not exist.");
        return Err(ApiError::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, message));
    }
    Ok(())
}

/// Who is eligible to lead depends on the minimum, so that it cannot change at one broker only.
fn check_min_isr(
    image: &Image,
    resource: &Resource,
    key: &str,
    value: Option<&str>,
) -> Result<(), ApiError> {
    if key != MIN_ISR || resource.resource_type != ResourceType::Broker || !image.has_elr() {
        return Ok(());
    }
    let message = if !resource.name.is_empty() {
        "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    } else if value.is_none() {
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    } else {
        return Ok(());
    };
    Err(ApiError::new(ErrorCode::INVALID_CONFIG, message))
}

/// No value may be too long for a record.
pub(crate) fn check_sizes<'a>(values: impl Iterator<Item = &'a String>) -> Result<(), ApiError> {
    for value in values {
        if value.encode_utf16().count() > VALUE_LENGTH_MAX || value.len() > VALUE_LENGTH_MAX {
            let message = "The configuration value cannot be added because it exceeds the maximum \
                           value size of 32767 bytes.";
            return Err(ApiError::new(ErrorCode::INVALID_CONFIG, message));
        }
    }
    Ok(())
}

/// Forgets who was eligible by an older minimum; an empty name is every topic.
pub(crate) fn clear_elr(topic: &Str) -> VersionedRecord {
    v0(ClearElrRecord { topic_name: topic.clone(), ..ClearElrRecord::default() })
}

/// The error of a change that crate `config` refuses.
pub(crate) fn refused(error: AlterError) -> ApiError {
    match error {
        AlterError::InvalidConfig(message) => ApiError::new(ErrorCode::INVALID_CONFIG, message),
        AlterError::InvalidRequest(message) => ApiError::new(ErrorCode::INVALID_REQUEST, message),
    }
}
