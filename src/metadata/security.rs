//! Access rules, credentials, tokens and quotas as the image holds them.
//!
//! They are kept and survive; enforcing them is the business of the brokers.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Uuid;
use bytes::Bytes;

/// One access rule, in the numbers of the protocol (`StandardAcl`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// Its id.
    pub id: Uuid,
    /// `ResourceType`.
    pub resource_type: i8,
    /// The resource's name, or a prefix of it.
    pub resource_name: Arc<str>,
    /// `PatternType`.
    pub pattern_type: i8,
    /// To whom it applies: `User:name`.
    pub principal: Arc<str>,
    /// From where.
    pub host: Arc<str>,
    /// `AclOperation`.
    pub operation: i8,
    /// `AclPermissionType`.
    pub permission_type: i8,
}

/// Whose SCRAM credential, and for which mechanism.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScramUser {
    /// `ScramMechanism`: 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.
    pub mechanism: i8,
    /// The user.
    pub name: Arc<str>,
}

/// What is kept of a password (RFC 5802).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScramCredential {
    /// The salt.
    pub salt: Bytes,
    /// Proves the client.
    pub stored_key: Bytes,
    /// Proves the server.
    pub server_key: Bytes,
    /// Rounds of the hash.
    pub iterations: i32,
}

/// A delegation token (KIP-48), without its secret, which follows from the id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegationToken {
    /// Its id.
    pub token_id: Arc<str>,
    /// For whom it speaks.
    pub owner: Arc<str>,
    /// Who asked for it.
    pub requester: Arc<str>,
    /// Who else may renew it.
    pub renewers: Vec<Arc<str>>,
    /// When it was made, in milliseconds since 1970.
    pub issue_timestamp: i64,
    /// Until when it can be renewed at most.
    pub max_timestamp: i64,
    /// Until when it is good now.
    pub expiration_timestamp: i64,
}

/// Whom a quota binds: pairs of an entity's type (`user`, `client-id`, `ip`) and name, where no
/// name is the default entity; sorted by type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuotaEntity(pub Vec<(Arc<str>, Option<Arc<str>>)>);

/// The limits of one entity by their names.
pub type Quotas = BTreeMap<Arc<str>, f64>;
