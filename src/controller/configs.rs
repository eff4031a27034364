//! IncrementalAlterConfigs and AlterConfigs (`ConfigAdminManager`, `ConfigurationControlManager`).

use std::collections::BTreeMap;

use config::{AlterError, Altered, Change, Operation, Pairs, Scope};
use metadata::{Image, Resource, ResourceType, VersionedRecord};
use protocol::alter_configs_response::AlterConfigsResourceResponse as ReplacedResource;
use protocol::incremental_alter_configs_response::AlterConfigsResourceResponse as AlteredResource;
use protocol::{
    AlterConfigsRequest, AlterConfigsResponse, ClearElrRecord, ConfigRecord, ErrorCode,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, Str,
};

use crate::outcome::{code_and_message, too_many_records, v0};
use crate::params::{Params, RECORDS_PER_REQUEST_MAX, pairs_of};
use crate::topic_name::topic_name_error;
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
        let changes = configs.iter().map(|config| {
            let value = config.value.as_deref();
            let operation = Operation::from_protocol_number(config.config_operation);
            let operation = operation.ok_or_else(|| {
                let message = format!("Unknown operation {}", config.config_operation);
                ApiError::new(ErrorCode::INVALID_REQUEST, message)
            })?;
            Ok(Change { name: &config.name, operation, value })
        });
        let changes = changes.collect::<Result<Vec<Change<'_>>, ApiError>>()?;
        alter(params, image, code, name, &changes)
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
        let new = not_null(configs.iter().map(|config| (&config.name, &config.value)))?;
        replace(params, image, code, name, &new)
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

/// What becomes of each resource, in the order of the request.
type Results = Vec<(i8, Str, Result<(), ApiError>)>;

/// Decides about the resources of a request, each by itself. One that the request names several
/// times is refused once; and where there would be too many records, all are refused.
fn decide<'a, C: Copy>(
    resources: impl Iterator<Item = (i8, &'a Str, C)> + Clone,
    change: impl Fn(i8, &str, C) -> Result<Vec<VersionedRecord>, ApiError>,
) -> (Vec<VersionedRecord>, Results) {
    let mut times_named: BTreeMap<(i8, &str), usize> = BTreeMap::new();
    for (code, name, _) in resources.clone() {
        *times_named.entry((code, &**name)).or_default() += 1;
    }
    let (mut records, mut results) = (Vec::new(), Results::new());
    for (code, name, configs) in resources {
        // What was decided about is taken out: the next mention finds nothing.
        let result = match times_named.remove(&(code, &**name)) {
            None => continue,
            Some(1) => change(code, name, configs).map(|more| records.extend(more)),
            Some(_) => {
                let message = "Each resource must appear at most once.";
                Err(ApiError::new(ErrorCode::INVALID_REQUEST, message))
            }
        };
        results.push((code, name.clone(), result));
    }
    if records.len() > RECORDS_PER_REQUEST_MAX {
        records.clear();
        for (_, _, result) in &mut results {
            *result = Err(too_many_records());
        }
    }
    (records, results)
}

fn propose<R>(validate_only: bool, records: Vec<VersionedRecord>, response: R) -> Proposal<R> {
    if validate_only { Proposal::nothing(response) } else { Proposal::new(records, response) }
}

fn alter(
    params: &Params,
    image: &Image,
    code: i8,
    name: &str,
    changes: &[Change<'_>],
) -> Result<Vec<VersionedRecord>, ApiError> {
    let target = Target::of(params, code, name)?;
    let old = pairs_of(image, &target.resource);
    let altered = match target.kind {
        Kind::Topic => config::alter_topic(&params.config, &old, changes),
        Kind::Broker(scope) => config::alter_broker(&params.layers(image), scope, changes),
        Kind::Group => config::alter_group(&params.config, &old, changes),
        Kind::ClientMetrics => config::alter_client_metrics(name, &old, changes),
    };
    finish(image, &target.resource, altered)
}

fn replace(
    params: &Params,
    image: &Image,
    code: i8,
    name: &str,
    new: &Pairs,
) -> Result<Vec<VersionedRecord>, ApiError> {
    let target = Target::of(params, code, name)?;
    let old = pairs_of(image, &target.resource);
    let altered = match target.kind {
        Kind::Topic => config::replace_topic(&params.config, &old, new),
        Kind::Broker(scope) => config::replace_broker(&params.layers(image), scope, new),
        Kind::Group => config::replace_group(&params.config, &old, new),
        Kind::ClientMetrics => config::replace_client_metrics(name, &old, new),
    };
    finish(image, &target.resource, altered)
}

/// What is altered.
struct Target {
    resource: Resource,
    kind: Kind,
}

/// By whose rules.
enum Kind {
    Topic,
    Broker(Scope),
    Group,
    ClientMetrics,
}

impl Target {
    fn of(params: &Params, code: i8, name: &str) -> Result<Self, ApiError> {
        let refuse = |message: String| Err(ApiError::new(ErrorCode::INVALID_REQUEST, message));
        let Some(resource_type) = ResourceType::of_code(code) else {
            return refuse(format!("Unknown resource type {code}"));
        };
        let kind = match (resource_type, name) {
            (ResourceType::Topic, "") => {
                return refuse("Default topic resources are not allowed.".to_owned());
            }
            (ResourceType::Topic, _) => Kind::Topic,
            (ResourceType::Broker, "") => Kind::Broker(Scope::AllBrokers),
            (ResourceType::Broker, _) => match name.parse::<i32>() {
                Ok(id) if id == params.node.0 => Kind::Broker(Scope::ThisBroker),
                Ok(_) => {
                    return refuse(format!(
                        "Unexpected broker id, expected {}, but received {name}",
                        params.node
                    ));
                }
                Err(_) => {
                    return refuse(format!("Broker id must be an integer, but it is: {name}"));
                }
            },
            (ResourceType::Group, "") => {
                return refuse("Default group resources are not allowed.".to_owned());
            }
            (ResourceType::Group, _) => Kind::Group,
            (ResourceType::ClientMetrics, _) => Kind::ClientMetrics,
            (ResourceType::BrokerLogger, _) => {
                return refuse("Log levels cannot be altered on this broker.".to_owned());
            }
        };
        Ok(Self { resource: Resource::new(resource_type, name), kind })
    }
}

/// The rules of the controller, and the records.
fn finish(
    image: &Image,
    resource: &Resource,
    altered: Result<Altered, AlterError>,
) -> Result<Vec<VersionedRecord>, ApiError> {
    let altered = altered.map_err(refused)?;
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
    if let Some(message) = topic_name_error(name) {
        return Err(ApiError::new(ErrorCode::INVALID_TOPIC_EXCEPTION, message));
    }
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

fn not_null<'a>(
    values: impl Iterator<Item = (&'a Str, &'a Option<Str>)> + Clone,
) -> Result<Pairs, ApiError> {
    let nulls = values.clone().filter(|(_, value)| value.is_none()).map(|(name, _)| &**name);
    let nulls: Vec<&str> = nulls.collect();
    if !nulls.is_empty() {
        let message = format!("Null value not supported for : {}", nulls.join(","));
        return Err(ApiError::new(ErrorCode::INVALID_REQUEST, message));
    }
    let set =
        values.filter_map(|(name, value)| Some((name.to_string(), value.as_ref()?.to_string())));
    Ok(set.collect())
}
