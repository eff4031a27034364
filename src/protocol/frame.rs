//! Frames: what stands before a request or response on a connection.

use base::wire::{DecodeError, EncodeError, Encoded, Message, Reader, Str, Writer};
use bytes::Bytes;

use crate::{ApiKey, Request, RequestHeader, ResponseHeader};

/// The bytes that stand before every frame and say how long it is.
const LENGTH_BYTES: usize = 4;

/// A request whose header was read: the body is still bytes.
#[derive(Clone, Debug)]
pub struct RequestFrame {
    /// The number of the API, known or not.
    pub api_code: i16,
    /// The API, if 4.4.0 has it.
    pub api_key: Option<ApiKey>,
    /// The version of the API.
    pub version: i16,
    /// What the response repeats.
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<Str>,
    body: Reader,
}

impl RequestFrame {
    /// Reads the header of a frame, from which the four bytes of its length are taken off.
    ///
    /// A header of an unknown API, or of a version that the API does not have, is read as far as
    /// all headers agree, so that the answer can say so; its client id is none and its body empty.
    /// ApiVersions is the API whose unknown versions still have a known header.
    ///
    /// # Errors
    /// If the header is not whole.
    pub fn decode(frame: Bytes) -> Result<Self, DecodeError> {
        let mut peek = Reader::new(frame.clone());
        let (api_code, version) = (peek.i16()?, peek.i16()?);
        let api_key = ApiKey::from_code(api_code);
        let known = api_key.filter(|key| key.supports(version) || *key == ApiKey::ApiVersions);
        let Some(key) = known else {
            let (correlation_id, client_id) = (peek.i32()?, None);
            let body = Reader::new(Bytes::new());
            return Ok(Self { api_code, api_key, version, correlation_id, client_id, body });
        };
        let mut body = Reader::new(frame);
        let header = RequestHeader::decode(&mut body, key.request_header_version(version))?;
        let (correlation_id, client_id) = (header.correlation_id, header.client_id);
        Ok(Self { api_code, api_key, version, correlation_id, client_id, body })
    }

    /// Whether the API exists and has the version.
    pub fn is_supported(&self) -> bool {
        self.api_key.is_some_and(|key| key.supports(self.version))
    }

    /// Reads the body. Bytes that follow it are ignored, as Kafka does.
    ///
    /// # Errors
    /// If the bytes are not such a request in the frame's version.
    ///
    /// # Panics
    /// If the frame is of another API.
    pub fn body<R: Request>(&self) -> Result<R, DecodeError> {
        assert_eq!(self.api_key, Some(R::API_KEY), "the body of another API was asked for");
        R::decode(&mut self.body.clone(), self.version)
    }
}

/// The frame of a response, its length first.
///
/// # Errors
/// If the version cannot carry the response: a bug of who made it, for the client an unknown error.
pub fn encode_response<R: Request>(
    correlation_id: i32,
    version: i16,
    response: &R::Response,
) -> Result<Encoded, EncodeError> {
    let header_version = R::API_KEY.response_header_version(version);
    let header = ResponseHeader { correlation_id, ..ResponseHeader::default() };
    encode_frame(|writer| {
        header.encode(writer, header_version);
        response.encode(writer, version);
    })
}

/// The frame of a request, its length first.
///
/// # Errors
/// If the version cannot carry the request.
pub fn encode_request<R: Request>(
    correlation_id: i32,
    client_id: Option<Str>,
    version: i16,
    request: &R,
) -> Result<Encoded, EncodeError> {
    let header = RequestHeader {
        request_api_key: R::API_KEY.code(),
        request_api_version: version,
        correlation_id,
        client_id,
        ..RequestHeader::default()
    };
    encode_frame(|writer| {
        header.encode(writer, R::API_KEY.request_header_version(version));
        request.encode(writer, version);
    })
}

/// Measures first, so that the length can stand in front and the memory is exactly what is needed.
fn encode_frame(write: impl Fn(&mut Writer)) -> Result<Encoded, EncodeError> {
    let mut counter = Writer::counting();
    write(&mut counter);
    if let Some(error) = counter.error() {
        return Err(error);
    }
    let length = i32::try_from(counter.len())
        .map_err(|_| EncodeError::TooLong { field: "a frame", bytes: counter.len() })?;
    let mut writer = Writer::with_capacity(LENGTH_BYTES + counter.buffered_bytes());
    writer.i32(length);
    write(&mut writer);
    assert_eq!(writer.len(), LENGTH_BYTES + counter.len(), "a message was measured wrong");
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch_response::{FetchableTopicResponse, PartitionData};
    use crate::{
        ApiVersionsRequest, FetchRequest, FetchResponse, Part, Records, fetch_request, static_str,
    };

    fn without_length(frame: Bytes) -> Bytes {
        let (length, frame) = (frame.slice(..LENGTH_BYTES), frame.slice(LENGTH_BYTES..));
        assert_eq!(length.as_ref(), (frame.len() as u32).to_be_bytes());
        frame
    }

    #[test]
    fn a_request_comes_back_in_every_version() {
        for version in FetchRequest::VERSIONS {
            let request = FetchRequest {
                max_wait_ms: 500,
                topics: vec![fetch_request::FetchTopic {
                    partitions: vec![fetch_request::FetchPartition::default(); 3],
                    ..Default::default()
                }],
                ..Default::default()
            };
            let client = Some(static_str("client"));
            let frame = encode_request(7, client.clone(), version, &request).expect("carried");
            let frame = RequestFrame::decode(without_length(frame.into_bytes())).expect("whole");
            assert_eq!(frame.api_key, Some(ApiKey::Fetch));
            assert_eq!((frame.correlation_id, frame.client_id.clone()), (7, client));
            assert!(frame.is_supported());
            assert_eq!(frame.body(), Ok(request));
        }
    }

    #[test]
    fn headers_of_what_is_not_known_are_read_as_far_as_they_agree() {
        let decode = |bytes: &'static [u8]| RequestFrame::decode(Bytes::from_static(bytes));
        let unknown_api = decode(&[0x7f, 0, 0, 9, 0, 0, 0, 5]).expect("a header");
        assert_eq!((unknown_api.api_key, unknown_api.correlation_id), (None, 5));
        assert!(!unknown_api.is_supported());
        let old_fetch = decode(&[0, 1, 0, 0, 0, 0, 0, 6, 0, 1, b'c']).expect("a header");
        assert_eq!((old_fetch.correlation_id, old_fetch.is_supported()), (6, false));
        let new_versions = decode(&[0, 18, 0, 99, 0, 0, 0, 7, 0, 1, b'c', 0]).expect("a header");
        assert_eq!(new_versions.client_id.as_deref(), Some("c"));
        assert!(!new_versions.is_supported());
        assert!(new_versions.body::<ApiVersionsRequest>().is_err());
        assert!(decode(&[0, 18, 0]).is_err());
    }

    #[test]
    fn a_response_leaves_gaps_for_files() {
        let partition = PartitionData {
            records: Some(Records::Elsewhere { length: 1_000_000, slot: 2 }),
            ..Default::default()
        };
        let response = FetchResponse {
            responses: vec![FetchableTopicResponse {
                partitions: vec![partition],
                ..Default::default()
            }],
            ..Default::default()
        };
        let encoded = encode_response::<FetchRequest>(9, 17, &response).expect("carried");
        let [Part::Bytes(head), gap, Part::Bytes(tail)] = encoded.parts.as_slice() else {
            panic!("{encoded:?}");
        };
        assert_eq!(gap, &Part::Gap { length: 1_000_000, slot: 2 });
        assert_eq!(encoded.length, head.len() + 1_000_000 + tail.len());
        assert_eq!(head[..4], (encoded.length as u32 - 4).to_be_bytes());
        assert_eq!(head[4..8], [0, 0, 0, 9]);
        assert_eq!(tail.as_ref(), [0, 0, 0]);
    }
}
