//! ApiVersions: what the broker speaks.

use base::Random;
use bytes::Bytes;
use protocol::{ApiVersionsRequest, ErrorCode};

use super::{frame, reply, version};
use crate::history::{Violation, ensure};

/// One request.
#[derive(Clone, Debug)]
pub struct ApiVersions {
    version: i16,
}

impl ApiVersions {
    /// Draws one.
    pub fn sample(random: &mut Random) -> Self {
        Self { version: version(random, 0..=4) }
    }

    /// The frame of the request.
    pub fn build(&self, correlation_id: i32) -> Bytes {
        let request = ApiVersionsRequest {
            client_software_name: "sim".into(),
            client_software_version: "1".into(),
            ..ApiVersionsRequest::default()
        };
        frame(correlation_id, self.version, &request)
    }

    /// Judges the reply.
    pub fn classify(&self, bytes: &Bytes) -> Result<(), Violation> {
        let response = reply::<ApiVersionsRequest>(bytes, self.version)?;
        ensure(response.error_code == ErrorCode::NONE && !response.api_keys.is_empty(), || {
            format!("ApiVersions was answered with {response:?}")
        })
    }
}
