//! ApiVersions: what is spoken at a listener, and the features of the cluster
//! (`ApiVersionManager`).

use base::NodeId;
use protocol::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use protocol::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, DecodeError, ErrorCode, RequestFrame,
};

use crate::{Image, supported_features};

/// From this version on a name or version of the client software that is not a plain word is
/// refused (`ApiVersionsRequest.isValid`).
const SOFTWARE_NAME_FIRST_VERSION: i16 = 3;
/// From this version on a client can say which cluster and node it means to talk to (KIP-1242).
const NODE_FIRST_VERSION: i16 = 5;
/// Levels of supported features that begin at 0 are left out of answers below this version
/// (KIP-1022: older clients refuse a range that begins at 0).
const ZERO_FEATURE_FIRST_VERSION: i16 = 4;

/// Who answers.
#[derive(Clone, Copy, Debug)]
pub struct Answerer<'a> {
    /// The cluster.
    pub cluster_id: &'a str,
    /// The node.
    pub node: NodeId,
    /// What is known of the metadata, if anything is.
    pub image: Option<&'a Image>,
    /// The version of the quorum's protocol.
    pub kraft_version: i16,
}

/// The answer to ApiVersions, and the version in which it is written: a client that asks in one
/// that is not known cannot know what is spoken here, and is told in the first one. `keys` are the
/// APIs of the listener.
///
/// # Errors
/// If the frame is no such request.
pub fn api_versions(
    frame: &RequestFrame,
    answerer: Answerer<'_>,
    keys: impl Iterator<Item = ApiKey>,
) -> Result<(i16, ApiVersionsResponse), DecodeError> {
    let version = frame.version;
    if !frame.is_supported() {
        let api_keys = advertised(ApiKey::ApiVersions).into_iter().collect();
        let error_code = ErrorCode::UNSUPPORTED_VERSION;
        return Ok((0, ApiVersionsResponse { error_code, api_keys, ..Default::default() }));
    }
    let request: ApiVersionsRequest = frame.body()?;
    let refuse = |error_code| ApiVersionsResponse { error_code, ..Default::default() };
    if version >= SOFTWARE_NAME_FIRST_VERSION
        && !(is_plain(&request.client_software_name) && is_plain(&request.client_software_version))
    {
        return Ok((version, refuse(ErrorCode::INVALID_REQUEST)));
    }
    if version >= NODE_FIRST_VERSION && is_for_another(answerer, &request) {
        return Ok((version, refuse(ErrorCode::REBOOTSTRAP_REQUIRED)));
    }
    let mut response = ApiVersionsResponse {
        api_keys: keys.filter_map(advertised).collect(),
        ..refuse(ErrorCode::NONE)
    };
    for (name, range) in supported_features() {
        if range.min > 0 || version >= ZERO_FEATURE_FIRST_VERSION {
            response.supported_features.push(SupportedFeatureKey {
                name: name.into(),
                min_version: range.min,
                max_version: range.max,
                ..Default::default()
            });
        }
    }
    if let Some(image) = answerer.image {
        response.finalized_features_epoch = image.provenance().last_offset.0;
        let levels = image.features().iter().map(|(name, level)| (&**name, *level));
        let kraft_version = answerer.kraft_version;
        let kraft = (kraft_version > 0).then_some(("kraft.version", kraft_version));
        for (name, level) in levels.chain(kraft) {
            response.finalized_features.push(FinalizedFeatureKey {
                name: name.into(),
                max_version_level: level,
                min_version_level: level,
                ..Default::default()
            });
        }
    }
    Ok((version, response))
}

fn advertised(key: ApiKey) -> Option<ApiVersion> {
    let (min_version, max_version) = key.advertised_versions(false)?;
    Some(ApiVersion { api_key: key.code(), min_version, max_version, ..Default::default() })
}

fn is_for_another(answerer: Answerer<'_>, request: &ApiVersionsRequest) -> bool {
    let cluster = request.cluster_id.as_ref();
    let other_cluster = cluster.is_some_and(|cluster| **cluster != *answerer.cluster_id);
    let other_node = request.node_id >= 0 && request.node_id != answerer.node.0;
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
        let produce = advertised(ApiKey::Produce).expect("it is advertised");
        assert_eq!((produce.min_version, produce.max_version), (0, 13));
    }
}
