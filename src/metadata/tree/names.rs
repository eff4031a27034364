//! Names that are made of several things: configured resources and entities of quotas.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{QuotaEntity, Resource, ResourceType};

/// What a type of resource is called (`ConfigResource.Type`).
const RESOURCE_TYPES: [(&str, ResourceType); 5] = [
    ("BROKER", ResourceType::Broker),
    ("BROKER_LOGGER", ResourceType::BrokerLogger),
    ("CLIENT_METRICS", ResourceType::ClientMetrics),
    ("GROUP", ResourceType::Group),
    ("TOPIC", ResourceType::Topic),
];
/// What a part of an entity is called in records and in names, in the order of the names
/// (`ClientQuotasImageNode`).
const ENTITY_PARTS: [(&str, &str); 3] = [("client-id", "clientId"), ("ip", "ip"), ("user", "user")];

/// `TOPIC:orders`; `BROKER` alone for what holds for every broker.
pub(super) fn of_resource(resource: &Resource) -> String {
    let is_own = |(_, resource_type): &&(_, _)| *resource_type == resource.resource_type;
    let (name, _) = RESOURCE_TYPES.iter().find(is_own).expect("every type has a name");
    match &*resource.name {
        "" => (*name).to_owned(),
        own => format!("{name}:{own}"),
    }
}

pub(super) fn resource_of(name: &str) -> Option<Resource> {
    let (wanted, own) = name.split_once(':').unwrap_or((name, ""));
    let (_, resource_type) = RESOURCE_TYPES.iter().find(|(name, _)| *name == wanted)?;
    Some(Resource::new(*resource_type, own))
}

/// `clientId(one)_user(alice)`. A default has no part in it, as with Kafka.
pub(super) fn of_entity(entity: &QuotaEntity) -> String {
    let mut parts = Vec::new();
    for (entity_type, shown) in ENTITY_PARTS {
        let part = entity.0.iter().find(|(own, _)| **own == *entity_type);
        if let Some((_, Some(name))) = part {
            let escaped = name.replace('\\', "\\\\").replace('(', "\\(").replace(')', "\\)");
            parts.push(format!("{shown}({escaped})"));
        }
    }
    parts.join("_")
}

pub(super) fn entity_of(name: &str) -> Option<QuotaEntity> {
    let mut parts = BTreeMap::new();
    let mut rest = name;
    loop {
        let (entity_type, value) = ENTITY_PARTS.iter().find_map(|(entity_type, shown)| {
            Some((*entity_type, rest.strip_prefix(shown)?.strip_prefix('(')?))
        })?;
        let (value, behind) = unescaped(value)?;
        parts.insert(Arc::from(entity_type), Some(Arc::from(value)));
        if behind.is_empty() {
            return Some(QuotaEntity(parts.into_iter().collect()));
        }
        rest = behind.strip_prefix('_')?;
    }
}

/// The text up to the parenthesis that closes it, and what stands behind that.
fn unescaped(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text.chars();
    loop {
        match rest.next()? {
            ')' => return Some((value, rest.as_str())),
            '\\' => value.push(rest.next()?),
            other => value.push(other),
        }
    }
}
