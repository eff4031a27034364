//! Answers that consist of what the image holds, for whoever is asked.

use std::sync::Arc;

use protocol::describe_client_quotas_request::ComponentData;
use protocol::describe_client_quotas_response::{EntityData, EntryData, ValueData};
use protocol::describe_user_scram_credentials_response::{
    CredentialInfo, DescribeUserScramCredentialsResult,
};
use protocol::list_config_resources_response::ConfigResource;
use protocol::{
    DescribeClientQuotasRequest, DescribeClientQuotasResponse, DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse, ErrorCode, ListConfigResourcesRequest,
    ListConfigResourcesResponse,
};

use crate::{Image, QuotaEntity, ResourceType};

/// `DescribeClientQuotasRequest.MATCH_TYPE_EXACT`, `_DEFAULT` and `_SPECIFIED`.
const MATCH_EXACT: i8 = 0;
const MATCH_DEFAULT: i8 = 1;
const MATCH_SPECIFIED: i8 = 2;

impl Image {
    /// The answer to DescribeClientQuotas (`ClientQuotasImage.describe`).
    pub fn describe_client_quotas(
        &self,
        request: &DescribeClientQuotasRequest,
    ) -> DescribeClientQuotasResponse {
        if let Err((error_code, message)) = check_components(&request.components) {
            return DescribeClientQuotasResponse {
                error_code,
                error_message: Some(message.into()),
                entries: None,
                ..DescribeClientQuotasResponse::default()
            };
        }
        let matching = self.quotas().iter().filter(|(entity, _)| matches(entity, request));
        let entries = matching.map(|(entity, quotas)| EntryData {
            entity: entity
                .0
                .iter()
                .map(|(entity_type, name)| EntityData {
                    entity_type: (&**entity_type).into(),
                    entity_name: name.as_deref().map(Into::into),
                    ..EntityData::default()
                })
                .collect(),
            values: quotas
                .iter()
                .map(|(key, value)| ValueData {
                    key: (&**key).into(),
                    value: *value,
                    ..ValueData::default()
                })
                .collect(),
            ..EntryData::default()
        });
        DescribeClientQuotasResponse {
            // Kafka's success has an empty message here and no null; so below.
            error_message: Some("".into()),
            entries: Some(entries.collect()),
            ..DescribeClientQuotasResponse::default()
        }
    }

    /// The answer to DescribeUserScramCredentials (`ScramImage.describe`).
    pub fn describe_scram_credentials(
        &self,
        request: &DescribeUserScramCredentialsRequest,
    ) -> DescribeUserScramCredentialsResponse {
        let mut asked: Vec<(Arc<str>, usize)> = Vec::new();
        match request.users.as_deref() {
            Some(users) if !users.is_empty() => {
                for user in users {
                    match asked.iter_mut().find(|(name, _)| **name == *user.name) {
                        Some((_, times)) => *times += 1,
                        None => asked.push((Arc::from(&*user.name), 1)),
                    }
                }
            }
            // No user is named: all are meant.
            _ => {
                for user in self.credentials().keys() {
                    if asked.iter().all(|(name, _)| *name != user.name) {
                        asked.push((Arc::clone(&user.name), 1));
                    }
                }
            }
        }
        let results = asked.into_iter().map(|(name, times)| self.scram_of(&name, times));
        DescribeUserScramCredentialsResponse {
            error_message: Some("".into()),
            results: results.collect(),
            ..DescribeUserScramCredentialsResponse::default()
        }
    }

    fn scram_of(&self, user: &Arc<str>, times: usize) -> DescribeUserScramCredentialsResult {
        let refuse = |code: ErrorCode, message: String| DescribeUserScramCredentialsResult {
            user: (&**user).into(),
            error_code: code,
            error_message: Some(message.into()),
            ..DescribeUserScramCredentialsResult::default()
        };
        if times > 1 {
            return refuse(
                ErrorCode::DUPLICATE_RESOURCE,
                format!(
                    "Cannot describe SCRAM credentials for the same user twice in a single \
                     request: {user}"
                ),
            );
        }
        let own = self.credentials().iter().filter(|(one, _)| one.name == *user);
        let infos: Vec<CredentialInfo> = own
            .map(|(one, credential)| CredentialInfo {
                mechanism: one.mechanism,
                iterations: credential.iterations,
                ..CredentialInfo::default()
            })
            .collect();
        if infos.is_empty() {
            return refuse(
                ErrorCode::RESOURCE_NOT_FOUND,
                format!("Attempt to describe a user credential that does not exist: {user}"),
            );
        }
        DescribeUserScramCredentialsResult {
            user: (&**user).into(),
            error_message: Some("".into()),
            credential_infos: infos,
            ..DescribeUserScramCredentialsResult::default()
        }
    }

    /// The answer to ListConfigResources, `version` being that of the request
    /// (`KafkaApis.handleListConfigResources`, KIP-1142): topics, brokers, log levels of brokers,
    /// and what has a configuration of groups and client metrics.
    pub fn list_config_resources(
        &self,
        request: &ListConfigResourcesRequest,
        version: i16,
    ) -> ListConfigResourcesResponse {
        let supported: &[ResourceType] = match version {
            0 => &[ResourceType::ClientMetrics],
            _ => &[
                ResourceType::Group,
                ResourceType::ClientMetrics,
                ResourceType::BrokerLogger,
                ResourceType::Broker,
                ResourceType::Topic,
            ],
        };
        let asked = &request.resource_types;
        let is_supported = |code: &i8| supported.iter().any(|one| one.code() == *code);
        if !asked.iter().all(is_supported) {
            return ListConfigResourcesResponse {
                error_code: ErrorCode::UNSUPPORTED_VERSION,
                ..ListConfigResourcesResponse::default()
            };
        }
        let is_asked = |one: &&ResourceType| asked.is_empty() || asked.contains(&one.code());
        let types = supported.iter().copied().filter(|one| is_asked(&one));
        let named = types.flat_map(|resource_type| {
            let names = self.names_of(resource_type).into_iter();
            names.map(move |name| ConfigResource {
                resource_name: (&*name).into(),
                resource_type: resource_type.code(),
                ..ConfigResource::default()
            })
        });
        ListConfigResourcesResponse {
            config_resources: named.collect(),
            ..ListConfigResourcesResponse::default()
        }
    }

    fn names_of(&self, resource_type: ResourceType) -> Vec<Arc<str>> {
        match resource_type {
            ResourceType::Topic => self.topic_ids().keys().cloned().collect(),
            ResourceType::Broker | ResourceType::BrokerLogger => {
                self.alive_brokers().map(|broker| Arc::from(broker.id.to_string())).collect()
            }
            ResourceType::ClientMetrics | ResourceType::Group => {
                let all = self.all_configs().keys();
                let of_type = all.filter(|resource| resource.resource_type == resource_type);
                of_type.map(|resource| Arc::clone(&resource.name)).collect()
            }
        }
    }
}

fn check_components(components: &[ComponentData]) -> Result<(), (ErrorCode, String)> {
    let refuse = |message: &str| Err((ErrorCode::INVALID_REQUEST, message.to_owned()));
    for (index, component) in components.iter().enumerate() {
        let entity_type = &*component.entity_type;
        if entity_type.is_empty() {
            return refuse("Invalid empty entity type.");
        }
        if components.iter().take(index).any(|other| *other.entity_type == *entity_type) {
            return refuse(&format!(
                "Entity type {entity_type} cannot appear more than once in the filter."
            ));
        }
        if !matches!(entity_type, "ip" | "user" | "client-id") {
            let message = format!("Unsupported entity type {entity_type}");
            return Err((ErrorCode::UNSUPPORTED_VERSION, message));
        }
        match (component.match_type, component.r#match.is_some()) {
            (MATCH_EXACT, true) | (MATCH_DEFAULT | MATCH_SPECIFIED, false) => {}
            (MATCH_EXACT, false) => {
                return refuse("Request specified MATCH_TYPE_EXACT, but set match string to null.");
            }
            (MATCH_DEFAULT, true) => {
                return refuse(
                    "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
                );
            }
            (MATCH_SPECIFIED, true) => {
                return refuse(
                    "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
                );
            }
            (other, _) => return refuse(&format!("Unknown match type {other}")),
        }
    }
    let has_ip = components.iter().any(|component| &*component.entity_type == "ip");
    if has_ip && components.len() > 1 {
        return refuse(
            "Invalid entity filter component combination. IP filter component should not be used \
             with user or clientId filter component.",
        );
    }
    Ok(())
}

fn matches(entity: &QuotaEntity, request: &DescribeClientQuotasRequest) -> bool {
    if request.strict && entity.0.len() != request.components.len() {
        return false;
    }
    request.components.iter().all(|component| {
        let part = entity.0.iter().find(|(entity_type, _)| **entity_type == *component.entity_type);
        match (part, component.match_type) {
            (None, _) => false,
            (Some((_, name)), MATCH_EXACT) => name.as_deref() == component.r#match.as_deref(),
            (Some((_, name)), MATCH_DEFAULT) => name.is_none(),
            (Some(_), _) => true,
        }
    })
}
