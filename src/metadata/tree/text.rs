//! What stands in the files of the tree, as Kafka's classes print themselves.

use std::fmt::{Display, Write};

use base::{Uuid, java_double};
use time::OffsetDateTime;

use crate::{
    Acl, Broker, Controller, DelegationToken, Endpoint, FeatureRanges, LeaderRecovery,
    MetadataVersion, Partition, Provenance, ScramCredential, VersionRange,
};

/// The names of the protocol's numbers, each at its number; any other number is the first one.
const RESOURCE_TYPES: [&str; 8] =
    ["UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"];
const PATTERN_TYPES: [&str; 5] = ["UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED"];
const PERMISSION_TYPES: [&str; 4] = ["UNKNOWN", "ANY", "DENY", "ALLOW"];
const OPERATIONS: [&str; 16] = [
    "UNKNOWN",
    "ANY",
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
    "TWO_PHASE_COMMIT",
];
/// `SecurityProtocol`, where any other number is none.
const SECURITY_PROTOCOLS: [&str; 4] = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"];

/// What a file shows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    Text(&'a str),
    Number(i64),
    Quota(f64),
    Id(Uuid),
    Provenance(Provenance),
    MetadataVersion(Option<MetadataVersion>),
    Broker(&'a Broker),
    Controller(&'a Controller),
    Partition(&'a Partition),
    Acl(&'a Acl),
    Credential(&'a ScramCredential),
    Token(&'a DelegationToken),
}

impl Content<'_> {
    pub(super) fn text(&self) -> String {
        match self {
            Content::Text(text) => (*text).to_owned(),
            Content::Number(number) => number.to_string(),
            Content::Quota(value) => java_double(*value),
            Content::Id(id) => id.to_string(),
            Content::Provenance(provenance) => of_provenance(provenance),
            Content::MetadataVersion(version) => optional(version.map(MetadataVersion::name)),
            Content::Broker(broker) => of_broker(broker),
            Content::Controller(controller) => of_controller(controller),
            Content::Partition(partition) => of_partition(partition),
            Content::Acl(acl) => of_acl(acl),
            Content::Credential(credential) => of_credential(credential),
            Content::Token(token) => of_token(token),
        }
    }
}

fn of_provenance(provenance: &Provenance) -> String {
    let time = date_and_time(provenance.last_timestamp_ms);
    format!("offset {}, epoch {}, time {time}", provenance.last_offset, provenance.last_epoch)
}

/// `DateTimeFormatter.ISO_ZONED_DATE_TIME`, which leaves out zeros at the end of a second's
/// fraction.
fn date_and_time(milliseconds: i64) -> String {
    let nanoseconds = i128::from(milliseconds) * 1_000_000;
    let Ok(time) = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds) else {
        // No record that a clock was right for is from before the year −9999 or after 9999.
        return format!("{milliseconds} ms after 1970");
    };
    let (date, fraction) = (time.date(), format!(".{:03}", time.millisecond()));
    format!(
        "{}-{:02}-{:02}T{:02}:{:02}:{:02}{}Z[UTC]",
        if date.year() < 0 { format!("{:05}", date.year()) } else { format!("{:04}", date.year()) },
        u8::from(date.month()),
        date.day(),
        time.hour(),
        time.minute(),
        time.second(),
        fraction.trim_end_matches('0').trim_end_matches('.'),
    )
}

fn of_broker(broker: &Broker) -> String {
    format!(
        "BrokerRegistration(id={}, epoch={}, incarnationId={}, listeners={}, supportedFeatures={}, \
         rack={}, fenced={}, inControlledShutdown={}, isMigratingZkBroker={}, directories={}, \
         cordonedDirectories={})",
        broker.id,
        broker.epoch,
        broker.incarnation,
        listeners(&broker.endpoints),
        features(&broker.features),
        optional(broker.rack.as_deref()),
        broker.fenced,
        broker.in_controlled_shutdown,
        broker.is_migrating,
        list(&broker.directories),
        broker.cordoned_directories.as_deref().map_or_else(|| "null".to_owned(), list),
    )
}

fn of_controller(controller: &Controller) -> String {
    format!(
        "ControllerRegistration(id={}, incarnationId={}, zkMigrationReady={}, listeners={}, \
         supportedFeatures={})",
        controller.id,
        controller.incarnation,
        controller.zk_migration_ready,
        listeners(&controller.endpoints),
        features(&controller.features),
    )
}

/// The endpoints, in order of their names.
fn listeners(endpoints: &[Endpoint]) -> String {
    let mut sorted: Vec<&Endpoint> = endpoints.iter().collect();
    sorted.sort_by(|one, other| one.name.cmp(&other.name));
    let shown = sorted.into_iter().map(|endpoint| {
        let protocol = usize::try_from(endpoint.security_protocol.0).ok();
        let protocol = protocol.and_then(|number| SECURITY_PROTOCOLS.get(number));
        format!(
            "Endpoint(listenerName='{}', securityProtocol={}, host='{}', port={})",
            endpoint.name,
            protocol.unwrap_or(&"null"),
            endpoint.host,
            endpoint.port,
        )
    });
    list(&shown.collect::<Vec<_>>())
}

fn features(ranges: &FeatureRanges) -> String {
    let shown = ranges.iter().map(|(name, range)| format!("{name}: {}", of_range(*range)));
    format!("{{{}}}", shown.collect::<Vec<_>>().join(", "))
}

fn of_range(range: VersionRange) -> String {
    match range {
        VersionRange { min, max } if min == max => min.to_string(),
        VersionRange { min, max: i16::MAX } => format!("{min}+"),
        VersionRange { min, max } => format!("{min}-{max}"),
    }
}

fn of_partition(partition: &Partition) -> String {
    let recovery = match partition.leader_recovery {
        LeaderRecovery::Recovered => "RECOVERED",
        LeaderRecovery::Recovering => "RECOVERING",
    };
    format!(
        "PartitionRegistration(replicas={}, directories={}, isr={}, removingReplicas={}, \
         addingReplicas={}, elr={}, lastKnownElr={}, leader={}, leaderRecoveryState={recovery}, \
         leaderEpoch={}, partitionEpoch={})",
        list(&partition.replicas),
        list(&partition.directories),
        list(&partition.isr),
        list(&partition.removing_replicas),
        list(&partition.adding_replicas),
        list(&partition.elr),
        list(&partition.last_known_elr),
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
    )
}

fn of_acl(acl: &Acl) -> String {
    format!(
        "StandardAcl[resourceType={}, resourceName={}, patternType={}, principal={}, host={}, \
         operation={}, permissionType={}]",
        name_of(&RESOURCE_TYPES, acl.resource_type),
        acl.resource_name,
        name_of(&PATTERN_TYPES, acl.pattern_type),
        acl.principal,
        acl.host,
        name_of(&OPERATIONS, acl.operation),
        name_of(&PERMISSION_TYPES, acl.permission_type),
    )
}

fn of_credential(credential: &ScramCredential) -> String {
    format!(
        "ScramCredentialData(salt={}, storedKey={}, serverKey={}, iterations={})",
        hexadecimal(&credential.salt),
        hexadecimal(&credential.stored_key),
        hexadecimal(&credential.server_key),
        credential.iterations,
    )
}

/// The parentheses do not pair: they stand as Kafka prints them.
fn of_token(token: &DelegationToken) -> String {
    format!(
        "DelegationTokenDatatokenId={}(owner={}(tokenRequester={}(renewers={}, issueTimestamp={}, \
         maxTimestamp={}), expiryTimestamp={}",
        token.token_id,
        token.owner,
        token.requester,
        token.renewers.join(" "),
        token.issue_timestamp,
        token.max_timestamp,
        token.expiration_timestamp,
    )
}

/// `Optional.toString`.
fn optional(value: Option<&str>) -> String {
    value.map_or_else(|| "Optional.empty".to_owned(), |value| format!("Optional[{value}]"))
}

/// `List.toString` and `Arrays.toString`.
fn list<T: Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    format!("[{}]", items.join(", "))
}

fn name_of<'a>(names: &[&'a str], number: i8) -> &'a str {
    let name = usize::try_from(number).ok().and_then(|number| names.get(number));
    name.copied().unwrap_or("UNKNOWN")
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a text takes everything");
    }
    text
}
