//! The nodes that this one asks: one connection each, opened when it is needed.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Debug};
use std::net::SocketAddr;

use api::{Effects, IoErrorKind, IoResult, Part, SocketEffect, SocketId};
use base::{Duration, Instant, Random, Slab, Token};
use bytes::Bytes;
use protocol::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, DecodeError, EncodeError, ErrorCode, Message,
    Reader, Request, ResponseHeader, Str, encode_request, static_str,
};

use crate::frames::Frames;

/// Questions to one peer that are not answered yet. What is more fails at once.
pub const PEER_QUESTIONS_MAX: usize = 64;
/// Peers at once, and connections that are being opened.
const PEERS_MAX: usize = 4096;
/// The longest answer that is read, in bytes: somewhat more than the largest request of a broker.
const ANSWER_BYTES_MAX: i32 = 128 << 20;
/// What a peer is asked first, in a version that everybody has whose headers are flexible.
const GREETING_VERSION: i16 = 3;
/// By how much a time to rest may differ, in percent (`RECONNECT_BACKOFF_JITTER`).
const JITTER_PERCENT: u64 = 20;

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// How long a peer is left alone after its connection broke or could not be opened
    /// (`reconnect.backoff.ms`). It doubles with every failure in a row.
    pub rest_min: Duration,
    /// The longest such time (`reconnect.backoff.max.ms`).
    pub rest_max: Duration,
    /// How long a connection may take to open and to be greeted
    /// (`socket.connection.setup.timeout.ms`).
    pub connect_max: Duration,
}

impl Default for PeerSettings {
    /// Those of Kafka's clients.
    fn default() -> Self {
        Self {
            rest_min: Duration::from_millis(50),
            rest_max: Duration::from_millis(1000),
            connect_max: Duration::from_secs(10),
        }
    }
}

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Nobody said where the peer is.
    #[error("its address is not known")]
    Unknown,
    /// Too many questions to it are open.
    #[error("too many requests to it are under way")]
    Busy,
    /// The last connection has just failed, and it is left alone for a while.
    #[error("its last connection has failed a moment ago")]
    Resting,
    /// The connection could not be opened, or broke.
    #[error("there is no connection to it")]
    Disconnected,
    /// It took too long.
    #[error("it did not answer in time")]
    TimedOut,
    /// The peer has no version of this API that this node has.
    #[error("it does not have such requests")]
    Unsupported,
    /// No version of the API that the peer has can carry the question.
    #[error("its versions cannot carry the request")]
    NotCarried,
}

/// An answer whose body is still bytes.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The API that was asked.
    pub api_key: ApiKey,
    /// The version that was spoken.
    pub version: i16,
    body: Reader,
}

/// An answer that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer to {api_key} version {version} cannot be read: {error}")]
pub struct AnswerError {
    api_key: ApiKey,
    version: i16,
    error: DecodeError,
}

impl Answer {
    /// Reads the body.
    ///
    /// # Errors
    /// If the bytes are no such response.
    ///
    /// # Panics
    /// If another API was asked.
    pub fn decode<R: Request>(&self) -> Result<R::Response, AnswerError> {
        assert_eq!(self.api_key, R::API_KEY, "the answer of another API was asked for");
        let (api_key, version) = (self.api_key, self.version);
        R::Response::decode(&mut self.body.clone(), version).map_err(|error| AnswerError {
            api_key,
            version,
            error,
        })
    }
}

/// What happened to a peer.
#[derive(Debug)]
pub enum PeerEvent<P, T> {
    /// It can be asked.
    Connected(P),
    /// The connection to it broke; it may be that it could not be asked yet.
    Lost(P),
    /// Nobody listens where it is.
    Refused(P),
    /// It could not be connected to, for another reason, or not in time.
    Unreachable(P),
    /// It has answered.
    Answered {
        /// Who.
        peer: P,
        /// What was asked.
        token: T,
        /// What it said.
        answer: Answer,
    },
    /// It will not answer.
    Failed {
        /// Who.
        peer: P,
        /// What was asked.
        token: T,
        /// Why there is no answer.
        why: Why,
    },
}

/// A question that can be written once it is known which versions the peer has.
trait Question: Debug {
    fn api_key(&self) -> ApiKey;
    fn write(
        &self,
        correlation_id: i32,
        client_id: &Str,
        version: i16,
    ) -> Result<Bytes, EncodeError>;
}

impl<R: Request + Debug> Question for R {
    fn api_key(&self) -> ApiKey {
        R::API_KEY
    }

    fn write(
        &self,
        correlation_id: i32,
        client_id: &Str,
        version: i16,
    ) -> Result<Bytes, EncodeError> {
        let frame = encode_request(correlation_id, Some(client_id.clone()), version, self)?;
        Ok(frame.into_bytes())
    }
}

/// A question that has not left yet.
#[derive(Debug)]
struct Unsent<T> {
    token: T,
    deadline: Instant,
    question: Box<dyn Question>,
}

/// A question that is to be answered next, or after those before it.
#[derive(Debug)]
struct Sent<T> {
    token: T,
    deadline: Instant,
    correlation_id: i32,
    api_key: ApiKey,
    version: i16,
}

/// How a peer is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// The next question opens a connection.
    None,
    /// No question does before this time.
    Resting { until: Instant },
    /// The connection is being opened.
    Connecting { token: Token, deadline: Instant },
    /// It is open, and the peer is asked which versions it has.
    Greeting { socket: SocketId, deadline: Instant, correlation_id: i32 },
    /// It can be asked.
    Open { socket: SocketId },
}

#[derive(Debug)]
struct Peer<T> {
    address: SocketAddr,
    link: Link,
    frames: Frames,
    /// The versions that it has, by the number of the API.
    versions: BTreeMap<i16, (i16, i16)>,
    next_correlation: i32,
    /// Connections that failed since the last one that was open.
    failures: u32,
    unsent: VecDeque<Unsent<T>>,
    sent: VecDeque<Sent<T>>,
}

/// The nodes that are asked. `P` names a peer, `T` a question.
///
/// Answers come in the order of the questions, and one that is overdue ends the connection: whoever
/// asks for different purposes, of which one must not wait for another, names a node once for each.
pub struct Peers<P, T> {
    client_id: Str,
    settings: PeerSettings,
    random: Random,
    peers: BTreeMap<P, Peer<T>>,
    sockets: BTreeMap<SocketId, P>,
    connecting: Slab<P>,
    events: VecDeque<PeerEvent<P, T>>,
}

impl<P: Debug, T: Debug> Debug for Peers<P, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Peers").field("peers", &self.peers).finish_non_exhaustive()
    }
}

impl<P: Copy + Ord, T> Peers<P, T> {
    /// Nobody yet. `client_id` is what this node calls itself; `random` spreads the times at which
    /// it comes back.
    pub fn new(client_id: Str, settings: PeerSettings, random: Random) -> Self {
        Self {
            client_id,
            settings,
            random,
            peers: BTreeMap::new(),
            sockets: BTreeMap::new(),
            connecting: Slab::new(PEERS_MAX),
            events: VecDeque::new(),
        }
    }

    /// What has happened, oldest first.
    pub fn next_event(&mut self) -> Option<PeerEvent<P, T>> {
        self.events.pop_front()
    }

    /// Says where a peer is. One that has moved is connected to anew.
    ///
    /// # Panics
    /// If there are too many.
    pub fn place<M>(&mut self, peer: P, address: SocketAddr, effects: &mut Effects<M>) {
        match self.peers.get(&peer) {
            Some(known) if known.address == address => return,
            Some(_) => self.forget(peer, effects),
            None => assert!(self.peers.len() < PEERS_MAX, "a cluster has fewer nodes"),
        }
        let fresh = Peer {
            address,
            link: Link::None,
            frames: Frames::default(),
            versions: BTreeMap::new(),
            next_correlation: 0,
            failures: 0,
            unsent: VecDeque::new(),
            sent: VecDeque::new(),
        };
        self.peers.insert(peer, fresh);
    }

    /// The peer is asked nothing more. What it was asked fails.
    pub fn forget<M>(&mut self, peer: P, effects: &mut Effects<M>) {
        self.unlink(peer, Why::Disconnected, effects);
        self.peers.remove(&peer);
    }

    /// Asks. An answer or a failure is an event, within `patience`.
    pub fn ask<R: Request + Debug + 'static, M>(
        &mut self,
        now: Instant,
        peer: P,
        (token, request): (T, R),
        patience: Duration,
        effects: &mut Effects<M>,
    ) {
        let why = match self.peers.get_mut(&peer) {
            None => Why::Unknown,
            Some(known) if known.unsent.len() + known.sent.len() >= PEER_QUESTIONS_MAX => Why::Busy,
            Some(Peer { link: Link::Resting { until }, .. }) if *until > now => Why::Resting,
            Some(known) => {
                let deadline = now + patience;
                known.unsent.push_back(Unsent { token, deadline, question: Box::new(request) });
                return self.go_on(now, peer, effects);
            }
        };
        self.events.push_back(PeerEvent::Failed { peer, token, why });
    }

    /// Connects to the peer if there is no connection, even if the last one failed a moment ago:
    /// whoever has lost it finds out whether it is still there.
    pub fn probe<M>(&mut self, now: Instant, peer: P, effects: &mut Effects<M>) {
        if let Some(known) = self.peers.get_mut(&peer)
            && matches!(known.link, Link::None | Link::Resting { .. })
        {
            known.link = Link::None;
            self.connect(now, peer, effects);
        }
    }

    /// When [`Peers::on_time`] is to be called next.
    pub fn next_timer(&self) -> Option<Instant> {
        let of_links = self.peers.values().filter_map(|peer| match peer.link {
            Link::Connecting { deadline, .. } | Link::Greeting { deadline, .. } => Some(deadline),
            Link::None | Link::Resting { .. } | Link::Open { .. } => None,
        });
        of_links.chain(self.peers.values().filter_map(Peer::next_deadline)).min()
    }

    /// Gives up what took too long. A peer that does not answer in time is connected to anew, since
    /// its later answers could not be waited for.
    pub fn on_time<M>(&mut self, now: Instant, effects: &mut Effects<M>) {
        let peers: Vec<P> = self.peers.keys().copied().collect();
        for peer in peers {
            let known = self.peers.get_mut(&peer).expect("it was listed");
            match known.link {
                Link::Connecting { deadline, .. } if deadline <= now => {
                    self.fail(now, peer, Why::TimedOut, effects);
                    self.events.push_back(PeerEvent::Unreachable(peer));
                    continue;
                }
                Link::Greeting { deadline, .. } if deadline <= now => {
                    self.fail(now, peer, Why::TimedOut, effects);
                    continue;
                }
                _ => {}
            }
            if known.sent.iter().any(|sent| sent.deadline <= now) {
                self.fail(now, peer, Why::TimedOut, effects);
                continue;
            }
            let (overdue, unsent) =
                known.unsent.drain(..).partition(|unsent| unsent.deadline <= now);
            known.unsent = unsent;
            let overdue: VecDeque<Unsent<T>> = overdue;
            let failed = overdue.into_iter().map(|unsent| PeerEvent::Failed {
                peer,
                token: unsent.token,
                why: Why::TimedOut,
            });
            self.events.extend(failed);
        }
    }

    /// A connection is there, or could not be opened.
    pub fn on_connected<M>(
        &mut self,
        now: Instant,
        token: Token,
        result: IoResult<SocketId>,
        effects: &mut Effects<M>,
    ) {
        let peer = self.connecting.remove(token);
        let waited = peer.and_then(|peer| self.peers.get(&peer).map(|known| (peer, known.link)));
        let waiting = waited.and_then(|(peer, link)| match link {
            Link::Connecting { token: of_link, deadline } if of_link == token => {
                Some((peer, deadline))
            }
            _ => None,
        });
        match (waiting, result) {
            (Some((peer, deadline)), Ok(socket)) => {
                self.sockets.insert(socket, peer);
                self.greet(peer, socket, deadline, effects);
            }
            (Some((peer, _)), Err(error)) => {
                let event = match error.kind {
                    IoErrorKind::Refused => PeerEvent::Refused(peer),
                    _ => PeerEvent::Unreachable(peer),
                };
                self.fail(now, peer, Why::Disconnected, effects);
                self.events.push_back(event);
            }
            // Nobody waits for it any more.
            (None, Ok(socket)) => effects.socket(SocketEffect::Close { socket, flush: false }),
            (None, Err(_)) => {}
        }
    }

    /// Bytes arrived. False where the socket is not of a peer.
    pub fn on_received<M>(
        &mut self,
        now: Instant,
        socket: SocketId,
        bytes: Bytes,
        effects: &mut Effects<M>,
    ) -> bool {
        let Some(&peer) = self.sockets.get(&socket) else { return false };
        let known = self.peers.get_mut(&peer).expect("a socket belongs to a peer");
        known.frames.push(bytes);
        loop {
            let Some(known) = self.peers.get_mut(&peer) else { return true };
            let address = known.address;
            let taken = match known.frames.next(ANSWER_BYTES_MAX) {
                Ok(None) => {
                    known.frames.settle();
                    self.go_on(now, peer, effects);
                    return true;
                }
                Ok(Some(frame)) => self.take_frame(peer, frame),
                Err(error) => Err(error.to_string()),
            };
            if let Err(sentence) = taken {
                tracing::warn!(peer = %address, "closing a connection: {sentence}");
                self.fail(now, peer, Why::Disconnected, effects);
                return true;
            }
        }
    }

    /// A socket is gone. False where it is not of a peer.
    pub fn on_closed<M>(
        &mut self,
        now: Instant,
        socket: SocketId,
        effects: &mut Effects<M>,
    ) -> bool {
        let Some(peer) = self.sockets.get(&socket).copied() else { return false };
        self.fail(now, peer, Why::Disconnected, effects);
        true
    }

    /// Lets every connection go, and everything that was asked fail.
    pub fn close<M>(&mut self, effects: &mut Effects<M>) {
        let peers: Vec<P> = self.peers.keys().copied().collect();
        peers.into_iter().for_each(|peer| self.forget(peer, effects));
    }

    fn connect<M>(&mut self, now: Instant, peer: P, effects: &mut Effects<M>) {
        let known = self.peers.get_mut(&peer).expect("it was looked up");
        let Ok(token) = self.connecting.insert(peer) else {
            known.link = Link::Resting { until: now + self.settings.rest_max };
            return;
        };
        known.link = Link::Connecting { token, deadline: now + self.settings.connect_max };
        effects.socket(SocketEffect::Connect { token, address: known.address });
    }

    fn greet<M>(&mut self, peer: P, socket: SocketId, deadline: Instant, effects: &mut Effects<M>) {
        let known = self.peers.get_mut(&peer).expect("it was looked up");
        let correlation_id = known.correlate();
        known.link = Link::Greeting { socket, deadline, correlation_id };
        let greeting = ApiVersionsRequest {
            client_software_name: static_str("corelane"),
            client_software_version: static_str(env!("CARGO_PKG_VERSION")),
            ..ApiVersionsRequest::default()
        };
        let frame = greeting.write(correlation_id, &self.client_id, GREETING_VERSION);
        let parts = vec![Part::Bytes(frame.expect("its version carries it"))];
        effects.socket(SocketEffect::Send { socket, parts });
    }

    /// Opens a connection if something is to be asked, and asks.
    fn go_on<M>(&mut self, now: Instant, peer: P, effects: &mut Effects<M>) {
        let Some(known) = self.peers.get_mut(&peer) else { return };
        match known.link {
            Link::None | Link::Resting { .. } => {
                if !known.unsent.is_empty() {
                    self.connect(now, peer, effects);
                }
            }
            Link::Connecting { .. } | Link::Greeting { .. } => {}
            Link::Open { socket } => {
                let mut parts = Vec::new();
                while let Some(unsent) = known.unsent.pop_front() {
                    match known.write(unsent, &self.client_id) {
                        Ok(frame) => parts.push(Part::Bytes(frame)),
                        Err((token, why)) => {
                            self.events.push_back(PeerEvent::Failed { peer, token, why });
                        }
                    }
                }
                if !parts.is_empty() {
                    effects.socket(SocketEffect::Send { socket, parts });
                }
            }
        }
    }

    /// Takes one answer. An error is a sentence on what is wrong with it.
    fn take_frame(&mut self, peer: P, frame: Bytes) -> Result<(), String> {
        let known = self.peers.get_mut(&peer).expect("it was looked up");
        let mut body = Reader::new(frame);
        if let Link::Greeting { socket, correlation_id, .. } = known.link {
            known.versions = take_greeting(&mut body, correlation_id)?;
            known.link = Link::Open { socket };
            known.failures = 0;
            self.events.push_back(PeerEvent::Connected(peer));
            return Ok(());
        }
        let sent = known.sent.front().ok_or("an answer came to no request")?;
        let (api_key, version) = (sent.api_key, sent.version);
        let header = ResponseHeader::decode(&mut body, api_key.response_header_version(version));
        let answered = header.map_err(|error| error.to_string())?.correlation_id;
        if answered != sent.correlation_id {
            return Err(format!("request {} was answered as {answered}", sent.correlation_id));
        }
        let token = known.sent.pop_front().expect("it was looked at").token;
        let answer = Answer { api_key, version, body };
        self.events.push_back(PeerEvent::Answered { peer, token, answer });
        Ok(())
    }

    /// The connection is gone or of no use any more: the peer is left alone for a while.
    fn fail<M>(&mut self, now: Instant, peer: P, why: Why, effects: &mut Effects<M>) {
        let link = self.peers[&peer].link;
        self.unlink(peer, why, effects);
        let known = self.peers.get_mut(&peer).expect("it was looked up");
        let doubled = self.settings.rest_min.saturating_mul(1 << known.failures.min(16));
        let rest = doubled.min(self.settings.rest_max);
        known.failures = known.failures.saturating_add(1);
        let percent = 100 - JITTER_PERCENT + self.random.below(2 * JITTER_PERCENT + 1);
        let percent = u32::try_from(percent).expect("it is less than 200");
        known.link = Link::Resting { until: now + rest * percent / 100 };
        if matches!(link, Link::Greeting { .. } | Link::Open { .. }) {
            self.events.push_back(PeerEvent::Lost(peer));
        }
    }

    /// Lets the connection go. What was asked by it fails.
    fn unlink<M>(&mut self, peer: P, why: Why, effects: &mut Effects<M>) {
        let Some(known) = self.peers.get_mut(&peer) else { return };
        match std::mem::replace(&mut known.link, Link::None) {
            Link::None | Link::Resting { .. } => {}
            // When it is there nobody will wait for it.
            Link::Connecting { token, .. } => drop(self.connecting.remove(token)),
            Link::Greeting { socket, .. } | Link::Open { socket } => {
                self.sockets.remove(&socket);
                effects.socket(SocketEffect::Close { socket, flush: false });
            }
        }
        known.frames = Frames::default();
        let sent = std::mem::take(&mut known.sent).into_iter().map(|sent| sent.token);
        let unsent = std::mem::take(&mut known.unsent).into_iter().map(|unsent| unsent.token);
        let failed = sent.chain(unsent).map(|token| PeerEvent::Failed { peer, token, why });
        self.events.extend(failed);
    }
}

impl<T> Peer<T> {
    fn correlate(&mut self) -> i32 {
        let id = self.next_correlation;
        self.next_correlation = id.wrapping_add(1) & i32::MAX;
        id
    }

    fn next_deadline(&self) -> Option<Instant> {
        let sent = self.sent.iter().map(|sent| sent.deadline);
        sent.chain(self.unsent.iter().map(|unsent| unsent.deadline)).min()
    }

    /// The question in the highest version that both have. It is waited for from now on.
    fn write(&mut self, unsent: Unsent<T>, client_id: &Str) -> Result<Bytes, (T, Why)> {
        let Unsent { token, deadline, question } = unsent;
        let api_key = question.api_key();
        let theirs = self.versions.get(&api_key.code());
        let Some(version) = theirs.and_then(|theirs| highest_common(api_key, *theirs)) else {
            return Err((token, Why::Unsupported));
        };
        let correlation_id = self.correlate();
        let Ok(frame) = question.write(correlation_id, client_id, version) else {
            return Err((token, Why::NotCarried));
        };
        self.sent.push_back(Sent { token, deadline, correlation_id, api_key, version });
        Ok(frame)
    }
}

fn highest_common(api_key: ApiKey, (first, last): (i16, i16)) -> Option<i16> {
    let (own_first, own_last) = api_key.versions()?;
    let version = own_last.min(last);
    (version >= own_first.max(first)).then_some(version)
}

/// The versions that a peer has.
fn take_greeting(
    body: &mut Reader,
    correlation_id: i32,
) -> Result<BTreeMap<i16, (i16, i16)>, String> {
    let header_version = ApiKey::ApiVersions.response_header_version(GREETING_VERSION);
    let header = ResponseHeader::decode(body, header_version);
    let answered = header.map_err(|error| error.to_string())?.correlation_id;
    if answered != correlation_id {
        return Err(format!("request {correlation_id} was answered as {answered}"));
    }
    let response = ApiVersionsResponse::decode(body, GREETING_VERSION);
    let response = response.map_err(|error| format!("its versions cannot be read: {error}"))?;
    if response.error_code != ErrorCode::NONE {
        return Err(format!("it does not say which versions it has: {}", response.error_code));
    }
    let versions = response.api_keys.into_iter();
    Ok(versions.map(|one| (one.api_key, (one.min_version, one.max_version))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{Effect, IoError};
    use protocol::api_versions_response::ApiVersion;
    use protocol::{DescribeClusterRequest, DescribeClusterResponse, RequestFrame};
    use protocol::{VoteRequest, encode_response};

    const PEER: u8 = 7;
    const SOCKET: SocketId = SocketId(Token::from_bits(3));
    const PATIENCE: Duration = Duration::from_secs(2);

    /// A peer on the other end of the only connection, by hand.
    struct Bench {
        peers: Peers<u8, &'static str>,
        effects: Effects<()>,
        now: Instant,
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    impl Bench {
        fn new() -> Self {
            let settings = PeerSettings::default();
            let mut peers = Peers::new(static_str("node-1"), settings, Random::new(1));
            let mut effects = Effects::new();
            peers.place(PEER, "127.0.0.1:9093".parse().expect("an address"), &mut effects);
            Self { peers, effects, now: at(0) }
        }

        fn ask(&mut self, token: &'static str) {
            let question = (token, DescribeClusterRequest::default());
            self.peers.ask(self.now, PEER, question, PATIENCE, &mut self.effects);
        }

        fn events(&mut self) -> Vec<String> {
            let mut said = Vec::new();
            while let Some(event) = self.peers.next_event() {
                said.push(match event {
                    PeerEvent::Connected(_) => "connected".to_owned(),
                    PeerEvent::Lost(_) => "lost".to_owned(),
                    PeerEvent::Refused(_) => "refused".to_owned(),
                    PeerEvent::Unreachable(_) => "unreachable".to_owned(),
                    PeerEvent::Answered { token, answer, .. } => {
                        let read = answer.decode::<DescribeClusterRequest>();
                        let id = read.map_or("?".into(), |response| response.cluster_id);
                        format!("{token}: {id}")
                    }
                    PeerEvent::Failed { token, why, .. } => format!("{token}: {why:?}"),
                });
            }
            said
        }

        /// The token of the connection that is to be opened.
        fn connecting(&mut self) -> Token {
            let asked = self.effects.drain().find_map(|effect| match effect {
                Effect::Socket(SocketEffect::Connect { token, .. }) => Some(token),
                _ => None,
            });
            asked.expect("a connection is to be opened")
        }

        fn refuse(&mut self) {
            let token = self.connecting();
            let error = IoError {
                kind: IoErrorKind::Refused,
                action: "connect to",
                subject: String::new(),
                cause: String::new(),
            };
            self.peers.on_connected(self.now, token, Err(error), &mut self.effects);
        }

        fn connect(&mut self) {
            let token = self.connecting();
            self.peers.on_connected(self.now, token, Ok(SOCKET), &mut self.effects);
        }

        /// What has left since the last call.
        fn requests(&mut self) -> Vec<RequestFrame> {
            let mut stream = Vec::new();
            for effect in self.effects.drain() {
                if let Effect::Socket(SocketEffect::Send { parts, .. }) = effect {
                    for part in parts {
                        let Part::Bytes(bytes) = part else { panic!("a request has no file") };
                        stream.extend_from_slice(&bytes);
                    }
                }
            }
            let mut frames = Frames::default();
            frames.push(stream.into());
            let mut requests = Vec::new();
            while let Some(frame) = frames.next(i32::MAX).expect("whole frames leave") {
                requests.push(RequestFrame::decode(frame).expect("they have headers"));
            }
            requests
        }

        fn receive(&mut self, bytes: &[u8]) {
            let bytes = Bytes::copy_from_slice(bytes);
            assert!(self.peers.on_received(self.now, SOCKET, bytes, &mut self.effects));
        }

        /// The peer says which versions it has of the API that the tests ask.
        fn greet(&mut self, versions: Option<(i16, i16)>) {
            let [greeting] = &self.requests()[..] else { panic!("one greeting leaves") };
            assert_eq!(greeting.api_key, Some(ApiKey::ApiVersions));
            let listed = |(min_version, max_version)| ApiVersion {
                api_key: ApiKey::DescribeCluster.code(),
                min_version,
                max_version,
                ..ApiVersion::default()
            };
            let api_keys = versions.map(listed).into_iter().collect();
            let response = ApiVersionsResponse { api_keys, ..ApiVersionsResponse::default() };
            let (id, version) = (greeting.correlation_id, greeting.version);
            let frame = encode_response::<ApiVersionsRequest>(id, version, &response);
            self.receive(&frame.expect("it is carried").into_bytes());
        }

        fn open() -> Self {
            let mut bench = Self::new();
            bench.ask("first");
            bench.connect();
            bench.greet(Some((0, 1)));
            assert_eq!(bench.events(), ["connected"]);
            bench
        }
    }

    fn answer(request: &RequestFrame, cluster: &'static str) -> Vec<u8> {
        let response = DescribeClusterResponse {
            cluster_id: static_str(cluster),
            ..DescribeClusterResponse::default()
        };
        let (id, version) = (request.correlation_id, request.version);
        let frame = encode_response::<DescribeClusterRequest>(id, version, &response);
        frame.expect("it is carried").into_bytes().to_vec()
    }

    #[test]
    fn a_question_opens_a_connection_and_leaves_in_the_highest_common_version() {
        let mut bench = Bench::open();
        let requests = bench.requests();
        let [request] = &requests[..] else { panic!("one question leaves") };
        assert_eq!((request.version, request.client_id.as_deref()), (1, Some("node-1")));
        bench.receive(&answer(request, "here"));
        assert_eq!(bench.events(), ["first: here"]);
        assert_eq!(bench.peers.next_timer(), None, "nothing is waited for");
    }

    #[test]
    fn answers_belong_to_questions_in_their_order_however_they_arrive() {
        let mut bench = Bench::open();
        bench.ask("second");
        let requests = bench.requests();
        let [first, second] = &requests[..] else { panic!("two questions leave") };
        let stream = [answer(first, "a"), answer(second, "b")].concat();
        for byte in &stream {
            bench.receive(std::slice::from_ref(byte));
        }
        assert_eq!(bench.events(), ["first: a", "second: b"]);
    }

    #[test]
    fn an_answer_to_something_else_closes_the_connection() {
        let mut bench = Bench::open();
        bench.ask("second");
        let requests = bench.requests();
        bench.receive(&answer(&requests[1], "b"));
        assert_eq!(bench.events(), ["first: Disconnected", "second: Disconnected", "lost"]);
        let mut left = bench.effects.drain();
        assert!(matches!(left.next(), Some(Effect::Socket(SocketEffect::Close { .. }))));
    }

    #[test]
    fn what_the_peer_does_not_have_is_not_asked() {
        let mut bench = Bench::new();
        bench.ask("first");
        bench.connect();
        bench.greet(None);
        assert_eq!(bench.events(), ["connected", "first: Unsupported"]);
        let question = ("vote", VoteRequest::default());
        bench.peers.ask(bench.now, PEER, question, PATIENCE, &mut bench.effects);
        assert_eq!(bench.events(), ["vote: Unsupported"]);
        assert!(bench.requests().is_empty());
    }

    #[test]
    fn a_peer_that_refuses_is_left_alone_for_a_while_that_doubles() {
        let mut bench = Bench::new();
        for rest in [50, 100, 200, 400, 800, 1000, 1000] {
            bench.ask("first");
            bench.refuse();
            assert_eq!(bench.events(), ["first: Disconnected", "refused"]);
            let before = bench.now;
            bench.now = before + Duration::from_millis(rest * 79 / 100);
            bench.ask("too soon");
            assert_eq!(bench.events(), ["too soon: Resting"]);
            bench.now = before + Duration::from_millis(rest * 121 / 100);
        }
        bench.ask("first");
        bench.connect();
        bench.greet(Some((0, 1)));
        assert!(bench.peers.on_closed(bench.now, SOCKET, &mut bench.effects));
        assert_eq!(bench.events(), ["connected", "first: Disconnected", "lost"]);
        bench.effects.drain();
        bench.ask("too soon");
        assert_eq!(bench.events(), ["too soon: Resting"]);
        bench.peers.probe(bench.now, PEER, &mut bench.effects);
        bench.refuse();
        assert_eq!(bench.events(), ["refused"]);

        // One that closes without a word listens.
        bench.peers.probe(bench.now, PEER, &mut bench.effects);
        bench.connect();
        assert!(bench.peers.on_closed(bench.now, SOCKET, &mut bench.effects));
        assert_eq!(bench.events(), ["lost"]);
    }

    #[test]
    fn what_takes_too_long_fails() {
        let mut bench = Bench::open();
        bench.now = at(1000);
        bench.ask("later");
        let due = bench.peers.next_timer().expect("answers are waited for");
        assert_eq!(due, at(2000));
        bench.now = due;
        bench.peers.on_time(due, &mut bench.effects);
        assert_eq!(bench.events(), ["first: TimedOut", "later: TimedOut", "lost"]);

        // A connection that does not open: the question waits as long as it may, and no longer.
        let mut bench = Bench::new();
        bench.ask("first");
        let token = bench.connecting();
        assert_eq!(bench.peers.next_timer(), Some(at(2000)));
        bench.peers.on_time(at(2000), &mut bench.effects);
        assert_eq!(bench.events(), ["first: TimedOut"]);
        bench.peers.on_time(at(10_000), &mut bench.effects);
        assert_eq!(bench.events(), ["unreachable"]);
        bench.peers.on_connected(at(10_001), token, Ok(SOCKET), &mut bench.effects);
        let mut left = bench.effects.drain();
        assert!(matches!(left.next(), Some(Effect::Socket(SocketEffect::Close { .. }))));
    }

    #[test]
    fn questions_have_a_limit_and_a_known_peer() {
        let mut bench = Bench::new();
        for _ in 0..PEER_QUESTIONS_MAX {
            bench.ask("one of many");
        }
        bench.ask("one too many");
        assert_eq!(bench.events(), ["one too many: Busy"]);
        let question = ("who", DescribeClusterRequest::default());
        bench.peers.ask(bench.now, 9, question, PATIENCE, &mut bench.effects);
        assert_eq!(bench.events(), ["who: Unknown"]);
    }

    #[test]
    fn a_peer_that_moves_is_connected_to_anew() {
        let mut bench = Bench::open();
        bench.requests();
        let elsewhere = "127.0.0.1:9094".parse().expect("an address");
        bench.peers.place(PEER, elsewhere, &mut bench.effects);
        assert_eq!(bench.events(), ["first: Disconnected"]);
        bench.ask("second");
        let address = bench.effects.drain().find_map(|effect| match effect {
            Effect::Socket(SocketEffect::Connect { address, .. }) => Some(address),
            _ => None,
        });
        assert_eq!(address, Some(elsewhere));
        assert!(!bench.peers.on_closed(bench.now, SOCKET, &mut bench.effects));
    }
}
