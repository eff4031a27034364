//! Access rules and delegation tokens, of which a broker without an authorizer and without SASL
//! knows none: what Kafka answers then (`AclApis`, `KafkaApis.allowTokenRequests`).

use base::Token;
use bytes::Bytes;
use protocol::create_acls_request::AclCreation;
use protocol::create_acls_response::AclCreationResult;
use protocol::delete_acls_request::DeleteAclsFilter;
use protocol::delete_acls_response::DeleteAclsFilterResult;
use protocol::{
    CreateAclsRequest, CreateAclsResponse, CreateDelegationTokenRequest,
    CreateDelegationTokenResponse, DecodeError, DeleteAclsRequest, DeleteAclsResponse,
    DescribeAclsRequest, DescribeAclsResponse, DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse, ErrorCode, ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse, RenewDelegationTokenRequest, RenewDelegationTokenResponse,
    RequestFrame, Str,
};

use crate::shard::{Io, Shard};

/// Who every client of a connection without authentication is (`KafkaPrincipal.ANONYMOUS`).
const ANONYMOUS: (&str, &str) = ("User", "ANONYMOUS");
/// The first version of CreateDelegationToken that tells for whom and by whom (KIP-373).
const REQUESTER_FIRST_VERSION: i16 = 3;
/// The highest numbers that stand for something; those above and 0 are unknown elements, with
/// which a request is none.
const RESOURCE_TYPE_MAX: i8 = 7;
const PATTERN_TYPE_MAX: i8 = 4;
const OPERATION_MAX: i8 = 15;
const PERMISSION_TYPE_MAX: i8 = 3;

pub(crate) fn describe_acls(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let asked: DescribeAclsRequest = frame.body()?;
    let pattern = asked.pattern_type_filter;
    check(asked.resource_type_filter, pattern, asked.operation, asked.permission_type)?;
    let response = DescribeAclsResponse {
        error_code: ErrorCode::SECURITY_DISABLED,
        error_message: Some("No Authorizer is configured on the broker".into()),
        ..DescribeAclsResponse::default()
    };
    shard.respond::<DescribeAclsRequest>(io, call, &response);
    Ok(())
}

pub(crate) fn create_acls(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: CreateAclsRequest = frame.body()?;
    for AclCreation { resource_type, resource_pattern_type, operation, permission_type, .. } in
        &request.creations
    {
        check(*resource_type, *resource_pattern_type, *operation, *permission_type)?;
    }
    let refused = AclCreationResult {
        error_code: ErrorCode::SECURITY_DISABLED,
        error_message: Some(no_authorizer()),
        ..AclCreationResult::default()
    };
    let results = vec![refused; request.creations.len()];
    let response = CreateAclsResponse { results, ..CreateAclsResponse::default() };
    shard.respond::<CreateAclsRequest>(io, call, &response);
    Ok(())
}

pub(crate) fn delete_acls(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: DeleteAclsRequest = frame.body()?;
    for DeleteAclsFilter {
        resource_type_filter,
        pattern_type_filter,
        operation,
        permission_type,
        ..
    } in &request.filters
    {
        check(*resource_type_filter, *pattern_type_filter, *operation, *permission_type)?;
    }
    let refused = DeleteAclsFilterResult {
        error_code: ErrorCode::SECURITY_DISABLED,
        error_message: Some(no_authorizer()),
        ..DeleteAclsFilterResult::default()
    };
    let filter_results = vec![refused; request.filters.len()];
    let response = DeleteAclsResponse { filter_results, ..DeleteAclsResponse::default() };
    shard.respond::<DeleteAclsRequest>(io, call, &response);
    Ok(())
}

fn no_authorizer() -> Str {
    "No Authorizer is configured.".into()
}

/// An element that is unknown makes a request none, for Kafka too: the connection is closed.
fn check(
    resource_type: i8,
    pattern_type: i8,
    operation: i8,
    permission_type: i8,
) -> Result<(), DecodeError> {
    let elements = [
        ("resource type", resource_type, RESOURCE_TYPE_MAX),
        ("pattern type", pattern_type, PATTERN_TYPE_MAX),
        ("operation", operation, OPERATION_MAX),
        ("permission type", permission_type, PERMISSION_TYPE_MAX),
    ];
    match elements.into_iter().find(|(_, number, max)| !(1..=*max).contains(number)) {
        None => Ok(()),
        Some((what, number, _)) => Err(DecodeError::UnknownElement { what, number }),
    }
}

pub(crate) fn create_token(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: CreateDelegationTokenRequest = frame.body()?;
    let (kind, name) = ANONYMOUS;
    let named = |text: &Option<Str>| text.clone().filter(|text| !text.is_empty());
    let owner = named(&request.owner_principal_type).zip(named(&request.owner_principal_name));
    let (principal_type, principal_name) = owner.unwrap_or((kind.into(), name.into()));
    let mut response = CreateDelegationTokenResponse {
        error_code: ErrorCode::DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type,
        principal_name,
        issue_timestamp_ms: -1,
        expiry_timestamp_ms: -1,
        max_timestamp_ms: -1,
        hmac: Bytes::new(),
        ..CreateDelegationTokenResponse::default()
    };
    if frame.version >= REQUESTER_FIRST_VERSION {
        response.token_requester_principal_type = kind.into();
        response.token_requester_principal_name = name.into();
    }
    shard.respond::<CreateDelegationTokenRequest>(io, call, &response);
    Ok(())
}

pub(crate) fn renew_token(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let _: RenewDelegationTokenRequest = frame.body()?;
    let response = RenewDelegationTokenResponse {
        error_code: ErrorCode::DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        expiry_timestamp_ms: -1,
        ..RenewDelegationTokenResponse::default()
    };
    shard.respond::<RenewDelegationTokenRequest>(io, call, &response);
    Ok(())
}

pub(crate) fn expire_token(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let _: ExpireDelegationTokenRequest = frame.body()?;
    let response = ExpireDelegationTokenResponse {
        error_code: ErrorCode::DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        expiry_timestamp_ms: -1,
        ..ExpireDelegationTokenResponse::default()
    };
    shard.respond::<ExpireDelegationTokenRequest>(io, call, &response);
    Ok(())
}

pub(crate) fn describe_tokens(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let _: DescribeDelegationTokenRequest = frame.body()?;
    let response = DescribeDelegationTokenResponse {
        error_code: ErrorCode::DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        ..DescribeDelegationTokenResponse::default()
    };
    shard.respond::<DescribeDelegationTokenRequest>(io, call, &response);
    Ok(())
}
