//! ApiVersions: what this broker speaks, and the features of its cluster.

use base::Token;
use protocol::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use protocol::{ApiVersionsRequest, ApiVersionsResponse, DecodeError, ErrorCode, RequestFrame};

use crate::shard::{Io, Shard};

/// From this version on a name or version of the client software that is not a plain word is
/// refused (`ApiVersionsRequest.isValid`).
const SOFTWARE_NAME_FIRST_VERSION: i16 = 3;
/// From this version on a client can say which cluster and node it means to talk to (KIP-1242).
const NODE_FIRST_VERSION: i16 = 5;
/// Levels of supported features that begin at 0 are left out of answers below this version
/// (KIP-1022: older clients refuse a range that begins at 0).
const ZERO_FEATURE_FIRST_VERSION: i16 = 4;

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    if !frame.is_supported() {
        // The client cannot know yet what is spoken here: it is told in the first version.
        shard.answer_in_version(call, 0);
        refuse(shard, io, call, ErrorCode::UNSUPPORTED_VERSION, listed_versions());
        return Ok(());
    }
    let request: ApiVersionsRequest = frame.body()?;
    if frame.version >= SOFTWARE_NAME_FIRST_VERSION
        && !(is_plain(&request.client_software_name) && is_plain(&request.client_software_version))
    {
        refuse(shard, io, call, ErrorCode::INVALID_REQUEST, Vec::new());
        return Ok(());
    }
    if frame.version >= NODE_FIRST_VERSION && is_for_another(shard, &request) {
        refuse(shard, io, call, ErrorCode::REBOOTSTRAP_REQUIRED, Vec::new());
        return Ok(());
    }
    let response = response(shard, frame.version);
    shard.respond::<ApiVersionsRequest>(io, call, &response);
    Ok(())
}

fn refuse(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    error_code: ErrorCode,
    api_keys: Vec<ApiVersion>,
) {
    let response = ApiVersionsResponse { error_code, api_keys, ..Default::default() };
    shard.respond::<ApiVersionsRequest>(io, call, &response);
}

fn response(shard: &Shard, version: i16) -> ApiVersionsResponse {
    let mut response = ApiVersionsResponse { api_keys: all_versions(), ..Default::default() };
    for (name, range) in metadata::supported_features() {
        if range.min > 0 || version >= ZERO_FEATURE_FIRST_VERSION {
            response.supported_features.push(SupportedFeatureKey {
                name: name.into(),
                min_version: range.min,
                max_version: range.max,
                ..Default::default()
            });
        }
    }
    if let Some(view) = &shard.view {
        response.finalized_features_epoch = view.image.provenance().last_offset.0;
        let levels = view.image.features().iter().map(|(name, level)| (&**name, *level));
        let kraft = (view.kraft_version > 0).then_some(("kraft.version", view.kraft_version));
        for (name, level) in levels.chain(kraft) {
            response.finalized_features.push(FinalizedFeatureKey {
                name: name.into(),
                max_version_level: level,
                min_version_level: level,
                ..Default::default()
            });
        }
    }
    response
}

fn all_versions() -> Vec<ApiVersion> {
    super::handled().filter_map(advertised).collect()
}

/// What goes with `UNSUPPORTED_VERSION`: the versions of ApiVersions alone.
fn listed_versions() -> Vec<ApiVersion> {
    advertised(protocol::ApiKey::ApiVersions).into_iter().collect()
}

fn advertised(key: protocol::ApiKey) -> Option<ApiVersion> {
    let (min_version, max_version) = key.advertised_versions(false)?;
    Some(ApiVersion { api_key: key.code(), min_version, max_version, ..Default::default() })
}

fn is_for_another(shard: &Shard, request: &ApiVersionsRequest) -> bool {
    let cluster = request.cluster_id.as_ref();
    let other_cluster = cluster.is_some_and(|cluster| **cluster != *shard.setup.cluster_id);
    let other_node = request.node_id >= 0 && request.node_id != shard.setup.node.0;
    other_cluster || other_node
}

/// Letters, digits, dots and dashes, beginning and ending with a letter or digit
/// (`ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN`).
fn is_plain(word: &str) -> bool {
    let bytes = word.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    ends.is_some_and(|(first, last)| first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names_are_plain_words() {
        for plain in ["apache-kafka-java", "4.4.0", "x"] {
            assert!(is_plain(plain), "{plain}");
        }
        for odd in ["", "-x", "x-", "a b", "ä", "a_b"] {
            assert!(!is_plain(odd), "{odd}");
        }
    }

    #[test]
    fn the_versions_are_those_of_a_running_kafka() {
        let produce = advertised(protocol::ApiKey::Produce).expect("it is advertised");
        assert_eq!((produce.min_version, produce.max_version), (0, 13));
        assert!(super::super::handled().is_sorted_by_key(protocol::ApiKey::code));
    }
}
