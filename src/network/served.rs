//! What is common to whoever listens: which requests are taken, and when an address is given up.

use std::net::SocketAddr;

use api::{IoErrorKind, IoResult};
use base::{Duration, Instant};
use protocol::{ApiKey, RequestFrame};

/// How long a listener's address may be in use before the start fails: the kernel lets go of the
/// sockets of a process that was killed a moment after the process has gone.
const ADDRESS_IN_USE_MAX: Duration = Duration::from_secs(2);
/// How long to wait before an address is tried again.
const ADDRESS_RETRY: Duration = Duration::from_millis(20);

/// The API of a request, if those that are `taken` include it, in a version that there is. Else a
/// sentence on why the connection is closed. ApiVersions answers every version.
///
/// # Errors
/// That sentence, in Kafka's words.
pub fn taken_api(
    frame: &RequestFrame,
    taken: impl IntoIterator<Item = ApiKey>,
) -> Result<ApiKey, String> {
    let Some(key) = taken.into_iter().find(|key| Some(*key) == frame.api_key) else {
        let code = frame.api_code;
        return Err(frame.api_key.map_or_else(
            || format!("Unknown API key {code}"),
            |key| format!("Received request api key {key} which is not enabled"),
        ));
    };
    if frame.is_supported() || key == ApiKey::ApiVersions {
        return Ok(key);
    }
    let version = frame.version;
    Err(format!(
        "Received request for api with key {} ({key}) and unsupported version {version}",
        key.code()
    ))
}

/// What came of listening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// This is where connections come in.
    At(SocketAddr),
    /// The address is in use, perhaps by what is ending: it is tried again at this time.
    Again(Instant),
    /// There is no listening there, and this sentence says why.
    Refused(String),
}

/// Decides what is done when listening at `address`, which is tried `since` then, had this result.
pub fn bound(
    now: Instant,
    since: Instant,
    address: SocketAddr,
    result: IoResult<SocketAddr>,
) -> Bound {
    match result {
        Ok(address) => Bound::At(address),
        Err(error)
            if error.kind == IoErrorKind::AddressInUse && now < since + ADDRESS_IN_USE_MAX =>
        {
            Bound::Again(now + ADDRESS_RETRY)
        }
        Err(error) => Bound::Refused(format!(
            "Socket server failed to bind to {address}: {}. Stop what listens there, or choose \
             another port in 'listeners' (--port of dev).",
            error.cause
        )),
    }
}
