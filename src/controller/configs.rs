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
    let names = request.resources.iter().map(|one| (one.resource_type, &one.resource_name));
    let occurrences = count(names);
    let mut records = Vec::new();
    let mut results: Vec<_> = request
        .resources
        .iter()
        .filter_map(|asked| {
            let key = (asked.resource_type, &*asked.resource_name);
            let change = || {
                let named = asked.configs.iter().map(|config| {
                    let value = config.value.as_deref();
                    let operation = Operation::from_protocol_number(config.config_operation);
                    let operation = operation.ok_or_else(|| {
                        let message = format!("Unknown operation {}", config.config_operation);
                        ApiError::new(ErrorCode::INVALID_REQUEST, message)
                    })?;
                    Ok(Change { name: &config.name, operation, value })
                });
                let changes = named.collect::<Result<Vec<Change<'_>>, ApiError>>()?;
                alter(params, image, asked.resource_type, &asked.resource_name, &changes)
            };
            let result = once(&occurrences, key, change)?;
            Some((asked.resource_type, asked.resource_name.clone(), keep(result, &mut records)))
        })
        .collect();
    limit(&mut records, &mut results);
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
    let response = IncrementalAlterConfigsResponse {
        responses: responses.collect(),
        ..IncrementalAlterConfigsResponse::default()
    };
    if request.validate_only {
        Proposal::nothing(response)
    } else {
        Proposal::new(records, response)
    }
}

/// What AlterConfigs leads to: what a resource has set and the request does not name is removed.
pub fn alter_configs(
    params: &Params,
    image: &Image,
    request: &AlterConfigsRequest,
) -> Proposal<AlterConfigsResponse> {
    let names = request.resources.iter().map(|one| (one.resource_type, &one.resource_name));
    let occurrences = count(names);
    let mut records = Vec::new();
    let mut results: Vec<_> = request
        .resources
        .iter()
        .filter_map(|asked| {
            let key = (asked.resource_type, &*asked.resource_name);
            let change = || {
                let values = asked.configs.iter().map(|config| (&config.name, &config.value));
                let new = not_null(values)?;
                replace(params, image, asked.resource_type, &asked.resource_name, &new)
            };
            let result = once(&occurrences, key, change)?;
            Some((asked.resource_type, asked.resource_name.clone(), keep(result, &mut records)))
        })
        .collect();
    limit(&mut records, &mut results);
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
    let response =
        AlterConfigsResponse { responses: responses.collect(), ..AlterConfigsResponse::default() };
    if request.validate_only {
        Proposal::nothing(response)
    } else {
        Proposal::new(records, response)
    }
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

fn count<'a>(
    names: impl Iterator<Item = (i8, &'a Str)>,
) -> BTreeMap<(i8, &'a str), (usize, std::cell::Cell<bool>)> {
    let mut occurrences: BTreeMap<_, (usize, std::cell::Cell<bool>)> = BTreeMap::new();
    for (code, name) in names {
        occurrences.entry((code, &**name)).or_default().0 += 1;
    }
    occurrences
}

/// Decides about a resource that the request names once; one that it names several times is
/// refused once.
fn once<'a, R>(
    occurrences: &BTreeMap<(i8, &'a str), (usize, std::cell::Cell<bool>)>,
    key: (i8, &'a str),
    decide: impl FnOnce() -> Result<R, ApiError>,
) -> Option<Result<R, ApiError>> {
    let (times, refused) = occurrences.get(&key)?;
    if *times == 1 {
        return Some(decide());
    }
    let message = "Each resource must appear at most once.";
    let error = ApiError::new(ErrorCode::INVALID_REQUEST, message);
    (!refused.replace(true)).then_some(Err(error))
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

fn keep(
    result: Result<Vec<VersionedRecord>, ApiError>,
    records: &mut Vec<VersionedRecord>,
) -> Result<(), ApiError> {
    result.map(|more| records.extend(more))
}

fn limit(records: &mut Vec<VersionedRecord>, results: &mut [(i8, Str, Result<(), ApiError>)]) {
    if records.len() > RECORDS_PER_REQUEST_MAX {
        records.clear();
        for (_, _, result) in results {
            *result = Err(too_many_records());
        }
    }
}
