//! AlterClientQuotas (`ClientQuotaControlManager`, KIP-546).

use std::fmt;
use std::net::Ipv6Addr;

use metadata::{Image, QuotaEntity, Quotas, VersionedRecord};
use protocol::alter_client_quotas_request::{EntryData as Asked, OpData};
use protocol::alter_client_quotas_response::{EntityData, EntryData as Answered};
use protocol::client_quota_record::EntityData as RecordedEntity;
use protocol::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, ClientQuotaRecord, ErrorCode, Str,
};

use crate::outcome::{code_and_message, v0};
use crate::params::RECORDS_PER_REQUEST_MAX;
use crate::{ApiError, Proposal};

/// The types of entities, in the order in which Kafka writes them.
const ENTITY_TYPES: [&str; 3] = ["client-id", "user", IP];
const IP: &str = "ip";

/// What a quota's value may be.
#[derive(Clone, Copy)]
enum Limit {
    Int,
    Long,
    Double,
}

/// The quotas of users and clients, and those of addresses (`QuotaConfig`).
const OF_CLIENTS: &[(&str, Limit)] = &[
    ("producer_byte_rate", Limit::Long),
    ("consumer_byte_rate", Limit::Long),
    ("request_percentage", Limit::Double),
    ("controller_mutation_rate", Limit::Double),
];
const OF_ADDRESSES: &[(&str, Limit)] = &[("connection_creation_rate", Limit::Int)];
/// What is left of a number that counts as whole.
const FRACTION_MAX: f64 = 1e-6;
/// Two to the power of 63, the first that is too much.
const LONG_END: f64 = 9_223_372_036_854_775_808.0;

/// What AlterClientQuotas leads to. An entity that the request names twice is refused, though what
/// its first mention asks for is done, as by Kafka.
///
/// The names of hosts are not looked up: an `ip` must be an address.
pub fn alter_client_quotas(
    image: &Image,
    request: &AlterClientQuotasRequest,
) -> Proposal<AlterClientQuotasResponse> {
    let mut records = Vec::new();
    let mut results: Vec<(Entity, Result<(), ApiError>)> = Vec::new();
    for asked in &request.entries {
        let entity = Entity::of(asked);
        let named_before = results.iter().position(|(other, _)| *other == entity);
        let result = if named_before.is_some() || names_key_twice(&asked.ops) {
            refuse(format!("Ignoring duplicate entity {entity}"))
        } else {
            alter(image, &entity, &asked.ops).map(|more| records.extend(more))
        };
        match named_before.and_then(|position| results.get_mut(position)) {
            Some((_, before)) => *before = result,
            None => results.push((entity, result)),
        }
    }
    if records.len() > RECORDS_PER_REQUEST_MAX {
        records.clear();
        for (_, result) in &mut results {
            *result = Err(ApiError::plain(ErrorCode::POLICY_VIOLATION));
        }
    }
    let entries = results.into_iter().map(|(entity, result)| entity.answered(result)).collect();
    let response = AlterClientQuotasResponse { entries, ..Default::default() };
    if request.validate_only {
        return Proposal::nothing(response);
    }
    if records.iter().any(sets_a_quota) {
        tracing::warn!("client quotas are kept and listed, but not enforced yet");
    }
    Proposal::new(records, response)
}

/// Whom an entry names: each type once, the last mention counting.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entity(Vec<(Str, Option<Str>)>);

impl Entity {
    fn of(asked: &Asked) -> Self {
        let mut parts: Vec<(Str, Option<Str>)> = Vec::new();
        for part in &asked.entity {
            parts.retain(|(entity_type, _)| *entity_type != part.entity_type);
            parts.push((part.entity_type.clone(), part.entity_name.clone()));
        }
        parts.sort_by_cached_key(|(entity_type, _)| {
            (ENTITY_TYPES.iter().position(|known| **known == **entity_type), entity_type.clone())
        });
        Self(parts)
    }

    fn name_of(&self, entity_type: &str) -> Option<Option<&str>> {
        let found = self.0.iter().find(|(one, _)| **one == *entity_type);
        found.map(|(_, name)| name.as_deref())
    }

    /// The quotas that it can have.
    fn limits(&self) -> Result<&'static [(&'static str, Limit)], ApiError> {
        if self.0.is_empty() {
            return refuse("Invalid empty client quota entity".to_owned());
        }
        for (entity_type, name) in &self.0 {
            if !ENTITY_TYPES.contains(&&**entity_type) {
                return refuse(format!("Unhandled client quota entity type: {entity_type}"));
            }
            if name.as_deref() == Some("") {
                return refuse(format!("Empty {entity_type} not supported"));
            }
        }
        match self.name_of(IP) {
            None => Ok(OF_CLIENTS),
            Some(_) if self.0.len() > 1 => refuse(
                "Invalid quota entity combination, IP entity shouldnot be combined with User or \
                 ClientId"
                    .to_owned(),
            ),
            Some(Some(name)) if !is_address(name) => {
                refuse(format!("{name} is not a valid IP or resolvable host."))
            }
            Some(_) => Ok(OF_ADDRESSES),
        }
    }

    fn in_image(&self) -> QuotaEntity {
        let parts = self.0.iter();
        let mut parts: Vec<_> = parts
            .map(|(entity_type, name)| ((&**entity_type).into(), name.as_deref().map(Into::into)))
            .collect();
        parts.sort_unstable();
        QuotaEntity(parts)
    }

    fn answered(self, result: Result<(), ApiError>) -> Answered {
        let (error_code, error_message) = code_and_message(result);
        let entity = self.0.into_iter().map(|(entity_type, entity_name)| EntityData {
            entity_type,
            entity_name,
            ..EntityData::default()
        });
        Answered { error_code, error_message, entity: entity.collect(), ..Answered::default() }
    }
}

/// As Kafka prints it (`ClientQuotaEntity.toString`).
impl fmt::Display for Entity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.0.iter().map(|(entity_type, name)| {
            format!("{entity_type}={}", name.as_deref().unwrap_or("null"))
        });
        let parts: Vec<String> = parts.collect();
        write!(formatter, "ClientQuotaEntity(entries={{{}}})", parts.join(", "))
    }
}

fn alter(
    image: &Image,
    entity: &Entity,
    operations: &[OpData],
) -> Result<Vec<VersionedRecord>, ApiError> {
    let limits = entity.limits()?;
    let none = Quotas::new();
    let current = image.quotas().get(&entity.in_image()).map_or(&none, |quotas| &**quotas);
    let mut records = Vec::new();
    for operation in operations {
        let (key, set) = (&*operation.key, current.get(&*operation.key));
        let changes = if operation.remove {
            set.is_some()
        } else {
            check(limits, key, operation.value)?;
            set.is_none_or(|set| set.to_bits() != operation.value.to_bits())
        };
        if changes {
            records.push(v0(ClientQuotaRecord {
                entity: entity.0.iter().map(recorded).collect(),
                key: operation.key.clone(),
                value: if operation.remove { 0.0 } else { operation.value },
                remove: operation.remove,
                ..ClientQuotaRecord::default()
            }));
        }
    }
    Ok(records)
}

fn recorded((entity_type, entity_name): &(Str, Option<Str>)) -> RecordedEntity {
    RecordedEntity {
        entity_type: entity_type.clone(),
        entity_name: entity_name.clone(),
        ..RecordedEntity::default()
    }
}

fn check(limits: &[(&str, Limit)], key: &str, value: f64) -> Result<(), ApiError> {
    let Some((_, limit)) = limits.iter().find(|(name, _)| *name == key) else {
        return refuse(format!("Invalid configuration key {key}"));
    };
    if !value.is_finite() {
        return refuse(format!("Quota {key} must be a finite number"));
    }
    if value <= 0.0 {
        return refuse(format!("Quota {key} must be greater than 0"));
    }
    let too_large =
        |what: &str| refuse(format!("Proposed value for {key} is too large for {what}."));
    match limit {
        Limit::Double => Ok(()),
        Limit::Int if value > f64::from(i32::MAX) => too_large("an INT"),
        Limit::Long if value > LONG_END => too_large("a LONG"),
        Limit::Int | Limit::Long if value % 1.0 > FRACTION_MAX => {
            refuse(format!("{key} cannot be a fractional value."))
        }
        Limit::Int | Limit::Long => Ok(()),
    }
}

fn names_key_twice(operations: &[OpData]) -> bool {
    let mut keys: Vec<&str> = operations.iter().map(|operation| &*operation.key).collect();
    keys.sort_unstable();
    !keys.is_sorted_by(|left, right| left < right)
}

fn sets_a_quota(record: &VersionedRecord) -> bool {
    matches!(&record.record, metadata::Record::ClientQuota(quota) if !quota.remove)
}

fn refuse<T>(message: String) -> Result<T, ApiError> {
    Err(ApiError::new(ErrorCode::INVALID_REQUEST, message))
}

/// Whether a text is an address as Java reads it (`InetAddress.getByName`): of IPv4 with one to
/// four numbers, of IPv6 also in brackets or with a zone; or this machine by its usual name.
fn is_address(text: &str) -> bool {
    if text == "localhost" {
        return true;
    }
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let without_zone = inner.split_once('%').map_or(inner, |(address, _)| address);
    is_ipv4(text) || without_zone.parse::<Ipv6Addr>().is_ok()
}

/// The last of fewer than four numbers stands for all the bytes that are left.
fn is_ipv4(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    let Some((last, first)) = parts.split_last() else { return false };
    let is_number = |part: &str, max: u64| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && part.parse::<u64>().is_ok_and(|number| number <= max)
    };
    let last_max = match first.len() {
        0 => 0xffff_ffff,
        1 => 0x00ff_ffff,
        2 => 0xffff,
        3 => 0xff,
        _ => return false,
    };
    first.iter().all(|part| is_number(part, 0xff)) && is_number(last, last_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{after, image_with_brokers};
    use protocol::alter_client_quotas_request::EntityData as AskedEntity;

    fn entry(entity: &[(&str, Option<&str>)], operations: &[(&str, Option<f64>)]) -> Asked {
        let entity = entity.iter().map(|(entity_type, name)| AskedEntity {
            entity_type: (*entity_type).into(),
            entity_name: name.map(Into::into),
            ..AskedEntity::default()
        });
        let ops = operations.iter().map(|(key, value)| OpData {
            key: (*key).into(),
            value: value.unwrap_or_default(),
            remove: value.is_none(),
            ..OpData::default()
        });
        Asked { entity: entity.collect(), ops: ops.collect(), ..Asked::default() }
    }

    fn ask(image: &Image, entries: Vec<Asked>) -> Proposal<AlterClientQuotasResponse> {
        let request = AlterClientQuotasRequest { entries, ..Default::default() };
        alter_client_quotas(image, &request)
    }

    /// What Kafka 4.4.0 said in each of these cases.
    #[test]
    fn what_is_refused() {
        let (alice, any) = (Some("alice"), None);
        let bytes = "producer_byte_rate";
        type Parts<'a> = &'a [(&'a str, Option<&'a str>)];
        let cases: &[(Parts<'_>, &str, f64, &str)] = &[
            (&[("user", alice)], bytes, 1.0, ""),
            (&[("user", any)], bytes, 1e-7, ""),
            (&[("user", alice), ("client-id", any)], "controller_mutation_rate", 0.5, ""),
            (&[("ip", any)], "connection_creation_rate", 2_147_483_647.0, ""),
            (&[("ip", Some("10.1"))], "connection_creation_rate", 1.0, ""),
            (&[("user", any), ("user", alice)], bytes, 1.0, ""),
            (&[], bytes, 1.0, "Invalid empty client quota entity"),
            (&[("other", alice)], bytes, 1.0, "Unhandled client quota entity type: other"),
            (&[("user", Some(""))], bytes, 1.0, "Empty user not supported"),
            (
                &[("user", alice), ("ip", any)],
                bytes,
                1.0,
                "Invalid quota entity combination, IP entity shouldnot be combined with User or \
                 ClientId",
            ),
            (
                &[("ip", Some("300.1.1.1"))],
                "connection_creation_rate",
                1.0,
                "300.1.1.1 is not a valid IP or resolvable host.",
            ),
            (&[("ip", any)], bytes, 1.0, "Invalid configuration key producer_byte_rate"),
            (&[("user", alice)], "", 1.0, "Invalid configuration key "),
            (&[("user", alice)], bytes, 0.0, "Quota producer_byte_rate must be greater than 0"),
            (
                &[("user", alice)],
                bytes,
                f64::NAN,
                "Quota producer_byte_rate must be a finite number",
            ),
            (
                &[("user", alice)],
                bytes,
                1e300,
                "Proposed value for producer_byte_rate is too large for a LONG.",
            ),
            (
                &[("ip", any)],
                "connection_creation_rate",
                2_147_483_648.0,
                "Proposed value for connection_creation_rate is too large for an INT.",
            ),
            (&[("user", alice)], bytes, 50.25, "producer_byte_rate cannot be a fractional value."),
        ];
        let image = image_with_brokers(&[]);
        for (entity, key, value, message) in cases {
            let proposal = ask(&image, vec![entry(entity, &[(key, Some(*value))])]);
            let [answer] = &proposal.response.entries[..] else { panic!("one answer") };
            assert_eq!(answer.error_message.as_deref().unwrap_or_default(), *message);
            let code =
                if message.is_empty() { ErrorCode::NONE } else { ErrorCode::INVALID_REQUEST };
            assert_eq!(answer.error_code, code, "{message}");
            assert_eq!(proposal.records.len(), usize::from(message.is_empty()), "{message}");
        }
    }

    #[test]
    fn only_what_changes_is_written() {
        let (entity, key) = ([("user", Some("alice"))], "producer_byte_rate");
        let mut image = image_with_brokers(&[]);
        let cases =
            [(None, 0), (Some(5.0), 1), (Some(5.0), 0), (Some(6.0), 1), (None, 1), (None, 0)];
        for (value, written) in cases {
            let proposal = ask(&image, vec![entry(&entity, &[(key, value)])]);
            assert_eq!(proposal.records.len(), written, "{value:?}");
            image = after(&image, &proposal.records);
        }
        assert!(image.quotas().is_empty());
    }

    #[test]
    fn an_entity_is_named_once() {
        let image = image_with_brokers(&[]);
        let entity = [("user", Some("alice")), ("client-id", None)];
        let of = |value| entry(&entity, &[("consumer_byte_rate", Some(value))]);
        let proposal = ask(&image, vec![of(1.0), of(2.0)]);
        let [answer] = &proposal.response.entries[..] else { panic!("one answer") };
        assert_eq!(
            answer.error_message.as_deref(),
            Some(
                "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=null, user=alice})"
            )
        );
        // What the first mention asks for is done all the same.
        assert_eq!(proposal.records.len(), 1);
        let twice = [("consumer_byte_rate", Some(1.0)), ("consumer_byte_rate", None)];
        let proposal = ask(&image, vec![entry(&entity, &twice)]);
        assert_eq!(proposal.response.entries.len(), 1);
        assert_eq!(proposal.response.entries[0].error_code, ErrorCode::INVALID_REQUEST);
        assert!(proposal.records.is_empty());
    }

    #[test]
    fn too_many_changes_are_none() {
        let many = (0..=RECORDS_PER_REQUEST_MAX).map(|number| {
            entry(&[("user", Some(&number.to_string()))], &[("consumer_byte_rate", Some(1.0))])
        });
        let proposal = ask(&image_with_brokers(&[]), many.collect());
        assert!(proposal.records.is_empty());
        let mut answers = proposal.response.entries.iter();
        assert!(answers.all(|answer| answer.error_code == ErrorCode::POLICY_VIOLATION));
    }

    #[test]
    fn addresses_are_those_of_java() {
        for (text, expected) in [
            ("10.0.0.1", true),
            ("10.1", true),
            ("4294967295", true),
            ("4294967296", false),
            ("1.2.3.256", false),
            ("1.2.3.4.5", false),
            ("1..2", false),
            ("::1", true),
            ("[::1]", true),
            ("fe80::1%eth0", true),
            ("not an ip", false),
            ("localhost", true),
        ] {
            assert_eq!(is_address(text), expected, "{text}");
        }
    }
}
