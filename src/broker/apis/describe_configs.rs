//! DescribeConfigs: every key of a topic or broker, with where its value comes from.

use ::metadata::{Image, Resource, ResourceType};
use base::Token;
use config::{Entry, Pairs, Source};
use protocol::describe_configs_request::DescribeConfigsResource;
use protocol::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use protocol::{
    DecodeError, DescribeConfigsRequest, DescribeConfigsResponse, ErrorCode, RequestFrame, Str,
};

use crate::shard::{Io, Shard};

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: DescribeConfigsRequest = frame.body()?;
    let view = shard.view.as_ref().expect("there is an image before there are connections");
    let results =
        request.resources.iter().map(|resource| match describe(shard, &view.image, resource) {
            Ok(configs) => result(&request, resource, ErrorCode::NONE, None, configs),
            Err((code, message)) => result(&request, resource, code, Some(message), Vec::new()),
        });
    let response = DescribeConfigsResponse { results: results.collect(), ..Default::default() };
    shard.respond::<DescribeConfigsRequest>(io, call, &response);
    Ok(())
}

type Described = Result<Vec<DescribeConfigsResourceResult>, (ErrorCode, String)>;

fn describe(shard: &Shard, image: &Image, resource: &DescribeConfigsResource) -> Described {
    let name = &*resource.resource_name;
    match ResourceType::of_code(resource.resource_type) {
        Some(ResourceType::Topic) => describe_topic(shard, image, name),
        Some(ResourceType::Broker) => describe_broker(shard, name),
        Some(ResourceType::ClientMetrics) => describe_client_metrics(shard, image, name),
        Some(ResourceType::Group) => describe_group(shard, image, name),
        _ => Err((ErrorCode::INVALID_REQUEST, ErrorCode::INVALID_REQUEST.message().to_owned())),
    }
}

fn describe_client_metrics(shard: &Shard, image: &Image, name: &str) -> Described {
    if name.is_empty() {
        let message = "Client metrics subscription name must not be empty".to_owned();
        return Err((ErrorCode::INVALID_REQUEST, message));
    }
    let overrides = shard.overrides(image, &Resource::new(ResourceType::ClientMetrics, name));
    let entries = config::describe_client_metrics(&shard.layers, &overrides);
    Ok(entries.into_iter().map(entry).collect())
}

fn describe_group(shard: &Shard, image: &Image, name: &str) -> Described {
    if name.is_empty() {
        return Err((ErrorCode::INVALID_REQUEST, "Group name must not be empty".to_owned()));
    }
    let overrides = shard.overrides(image, &Resource::new(ResourceType::Group, name));
    let entries = config::describe_group(&shard.layers, &overrides);
    Ok(entries.into_iter().map(entry).collect())
}

fn describe_topic(shard: &Shard, image: &Image, name: &str) -> Described {
    if let Some(message) = metadata::topic_name_error(name) {
        return Err((ErrorCode::INVALID_TOPIC_EXCEPTION, message));
    }
    if image.topic_id(name).is_none() {
        // Kafka has no sentence for it here.
        return Err((ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, String::new()));
    }
    let overrides: Pairs = shard.overrides(image, &Resource::topic(name));
    let entries = config::describe_topic(&shard.layers, &overrides);
    let entries = entries.map_err(|error| (ErrorCode::INVALID_CONFIG, error.to_string()))?;
    Ok(entries.into_iter().map(entry).collect())
}

fn describe_broker(shard: &Shard, name: &str) -> Described {
    if name.is_empty() {
        return Ok(config::describe_all_brokers(&shard.layers).into_iter().map(entry).collect());
    }
    let node = shard.setup.node;
    match name.parse::<i32>() {
        Ok(id) if id == node.0 => {
            Ok(config::describe_broker(&shard.layers).into_iter().map(entry).collect())
        }
        Ok(_) => {
            let message = format!(
                "Unexpected broker id, expected {node} or empty string, but received {name}"
            );
            Err((ErrorCode::INVALID_REQUEST, message))
        }
        Err(_) => {
            let message = format!("Broker id must be an integer, but it is: {name}");
            Err((ErrorCode::INVALID_REQUEST, message))
        }
    }
}

fn entry(entry: Entry) -> DescribeConfigsResourceResult {
    let synonyms = entry.synonyms.into_iter().map(|synonym| DescribeConfigsSynonym {
        name: synonym.name.into(),
        value: synonym.value.map(Str::from),
        source: synonym.source.protocol_number(),
        ..Default::default()
    });
    DescribeConfigsResourceResult {
        name: entry.name.into(),
        value: entry.value.map(Str::from),
        read_only: entry.is_read_only,
        config_source: Source::protocol_number(entry.source),
        is_sensitive: entry.is_sensitive,
        synonyms: synonyms.collect(),
        config_type: entry.kind.map_or(0, |kind| kind.protocol_number()),
        documentation: None,
        ..Default::default()
    }
}

fn result(
    request: &DescribeConfigsRequest,
    resource: &DescribeConfigsResource,
    error_code: ErrorCode,
    error_message: Option<String>,
    mut configs: Vec<DescribeConfigsResourceResult>,
) -> DescribeConfigsResult {
    // No keys at all stand for every key.
    let wanted = resource.configuration_keys.as_ref().filter(|wanted| !wanted.is_empty());
    if let Some(wanted) = wanted {
        configs.retain(|config| wanted.contains(&config.name));
    }
    for config in &mut configs {
        if !request.include_synonyms {
            config.synonyms.clear();
        }
        if request.include_documentation {
            config.documentation = config::documentation(&config.name).map(Str::from);
        }
    }
    DescribeConfigsResult {
        error_code,
        // Kafka's success has an empty message and no null.
        error_message: Some(error_message.unwrap_or_default().into()),
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.clone(),
        configs,
        ..Default::default()
    }
}
