use std::fmt;

use base::wire::Message;

use crate::messages::*;

/// What a listener is for (`listeners` in the schemas).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// Clients and brokers talk to brokers.
    Broker,
    /// Brokers, controllers and the admin client talk to controllers.
    Controller,
}

/// A message that a client sends, and what answers it.
pub trait Request: Message {
    /// The API.
    const API_KEY: ApiKey;
    /// The answer.
    type Response: Message;
}

struct Facts {
    key: ApiKey,
    name: &'static str,
    versions: Option<(i16, i16)>,
    flexible_first: i16,
    unstable: bool,
    listeners: &'static [Listener],
}

include!(concat!(env!("OUT_DIR"), "/api_keys.rs"));

/// Kafka 4.4.0 still names these versions of Produce, for the sake of old librdkafka, and refuses
/// them (`ApiKeys.PRODUCE_API_VERSIONS_RESPONSE_MIN_VERSION`, KAFKA-18659).
const PRODUCE_ADVERTISED_FIRST: i16 = 0;

impl ApiKey {
    /// The API with this number.
    pub fn from_code(code: i16) -> Option<ApiKey> {
        let index = FACTS.binary_search_by_key(&code, |facts| facts.key.code()).ok()?;
        Some(FACTS.get(index)?.key)
    }

    /// Its number.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Kafka's name, as in `Produce`.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// All APIs, by number; some have no version left.
    pub fn all() -> impl Iterator<Item = ApiKey> {
        FACTS.iter().map(|facts| facts.key)
    }

    /// The first and last version that the schemas have; none for an API that was removed.
    pub fn versions(self) -> Option<(i16, i16)> {
        self.facts().versions
    }

    /// Whether the schemas have the version.
    pub fn supports(self, version: i16) -> bool {
        self.versions().is_some_and(|(first, last)| (first..=last).contains(&version))
    }

    /// The versions that a broker of Kafka 4.4.0 advertises for the API if it advertises it at all:
    /// without the last one while that is unsettled, unless `unstable.api.versions.enable` is set.
    pub fn advertised_versions(self, with_unstable: bool) -> Option<(i16, i16)> {
        let (first, last) = self.versions()?;
        let first = if self == ApiKey::Produce { PRODUCE_ADVERTISED_FIRST } else { first };
        let last = if self.facts().unstable && !with_unstable { last - 1 } else { last };
        if first <= last { Some((first, last)) } else { None }
    }

    /// Whether listeners of this kind take it.
    pub fn is_taken_by(self, listener: Listener) -> bool {
        self.facts().listeners.contains(&listener)
    }

    /// Whether the version has tagged fields and compact lengths.
    pub fn is_flexible(self, version: i16) -> bool {
        version >= self.facts().flexible_first
    }

    /// The version of the header before a request (`ApiKeys.requestHeaderVersion`).
    pub fn request_header_version(self, version: i16) -> i16 {
        if self.is_flexible(version) { 2 } else { 1 }
    }

    /// The version of the header before a response. The answer to ApiVersions always has the first
    /// one, since its reader does not know yet what this broker speaks (KIP-511).
    pub fn response_header_version(self, version: i16) -> i16 {
        i16::from(self != ApiKey::ApiVersions && self.is_flexible(version))
    }

    fn facts(self) -> &'static Facts {
        FACTS
            .binary_search_by_key(&self, |facts| facts.key)
            .ok()
            .and_then(|index| FACTS.get(index))
            .expect("every variant has a row: both are made from the same schema")
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_by_its_number() {
        for key in ApiKey::all() {
            assert_eq!(ApiKey::from_code(key.code()), Some(key));
        }
        assert_eq!(ApiKey::from_code(-1), None);
        assert_eq!(ApiKey::from_code(10_000), None);
        assert_eq!(ApiKey::from_code(18), Some(ApiKey::ApiVersions));
    }

    #[test]
    fn versions_and_headers_are_kafkas() {
        assert_eq!(ApiKey::Produce.versions(), Some((3, 13)));
        assert_eq!(ApiKey::Produce.advertised_versions(false), Some((0, 13)));
        assert_eq!(ApiKey::InitProducerId.advertised_versions(false), Some((0, 5)));
        assert_eq!(ApiKey::InitProducerId.advertised_versions(true), Some((0, 6)));
        assert_eq!(ApiKey::StopReplica.versions(), None);
        assert!(!ApiKey::StopReplica.supports(0));
        assert_eq!(ApiKey::Fetch.request_header_version(11), 1);
        assert_eq!(ApiKey::Fetch.request_header_version(12), 2);
        assert_eq!(ApiKey::Fetch.response_header_version(12), 1);
        assert_eq!(ApiKey::ApiVersions.request_header_version(3), 2);
        assert_eq!(ApiKey::ApiVersions.response_header_version(3), 0);
        assert!(ApiKey::Vote.is_taken_by(Listener::Controller));
        assert!(!ApiKey::Vote.is_taken_by(Listener::Broker));
    }
}
