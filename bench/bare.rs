//! The ceiling: what any broker must pay at least, on the same frames and connections.
//!
//! One blocking thread a connection receives, checks the CRC of each batch, writes it with one
//! `pwrite` into a file whose space is allocated, and sends a small valid answer. A fetch is
//! answered with `sendfile` from the page cache. It keeps no offsets, no index and no state of
//! topics, syncs nothing, and forgets all at its end.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use base::Uuid;
use bytes::Bytes;
use protocol::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, ErrorCode, FetchRequest, FetchResponse,
    ListOffsetsRequest, ListOffsetsResponse, MetadataRequest, MetadataResponse, Part,
    ProduceRequest, ProduceResponse, Records, Request, RequestFrame, Str, encode_response,
    static_str,
};
use protocol::{
    api_versions_response, create_topics_response, delete_topics_response, fetch_response,
    list_offsets_response, metadata_response, produce_response,
};
use ring::{OpenCount, OpenFile, Socket};

use crate::beside::{OLD_BYTES, OLD_TOPIC};
use crate::cursor::{self, Cursor};

/// Bytes that one receive takes at most.
const RECEIVE_BYTES: usize = 128 << 10;
/// The largest request that is believed.
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// How much space a file takes ahead of what is written: as much again as it has, within these.
const ALLOCATION_BYTES_MIN: u64 = 1 << 20;
const ALLOCATION_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a `sendfile`, as a broker sends them so that other connections get their turn.
const SEND_FILE_BYTES: usize = 256 << 10;
/// The only version of Produce that is understood: that of Kafka's own client.
const PRODUCE_VERSION: i16 = 13;
/// The id of every topic but one.
const TOPIC_ID: Uuid = Uuid([7; 16]);
/// What can be fetched of these.
const SHORT: Fetchable = Fetchable { topic_id: TOPIC_ID, file: "fetch.log", bytes: 256 << 20 };
/// What can be fetched of the one with the old log, where a broker would keep it.
const OLD: Fetchable =
    Fetchable { topic_id: Uuid([8; 16]), file: "old-log-0/0.log", bytes: OLD_BYTES };
/// The only node.
const NODE_ID: i32 = 1;

/// A file that is fetched from, made once.
#[derive(Clone, Copy, Debug)]
struct Fetchable {
    topic_id: Uuid,
    file: &'static str,
    bytes: u64,
}

/// What every connection knows.
#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    port: u16,
    files: AtomicU64,
    /// How many partitions a topic has that was created.
    partitions: AtomicU64,
}

/// Listens on 127.0.0.1 until the process ends.
///
/// # Errors
/// A sentence: the port is taken, or the folder cannot be written.
pub fn serve(folder: &Path, port: u16) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("making {}: {error}", folder.display()))?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = TcpListener::bind(address).map_err(|error| format!("{address}: {error}"))?;
    serve_on(&listener, folder)
}

/// The same on a socket that listens already.
///
/// # Errors
/// A sentence: nothing more can be accepted.
pub fn serve_on(listener: &TcpListener, folder: &Path) -> Result<(), String> {
    let address = listener.local_addr().map_err(|error| format!("the listener: {error}"))?;
    let shared = Arc::new(Shared {
        folder: folder.to_path_buf(),
        port: address.port(),
        files: AtomicU64::new(0),
        partitions: AtomicU64::new(1),
    });
    loop {
        let (stream, _) = listener.accept().map_err(|error| format!("accepting: {error}"))?;
        let shared = Arc::clone(&shared);
        let serve = move || {
            // A client that goes away is none of a ceiling's business.
            let _ = Session::new(stream, shared).and_then(Session::serve);
        };
        let thread = thread::Builder::new().stack_size(128 << 10).spawn(serve);
        thread.map_err(|error| format!("starting a thread: {error}"))?;
    }
}

/// One connection.
#[derive(Debug)]
struct Session {
    stream: TcpStream,
    /// The same connection, for `sendfile`.
    socket: Socket,
    shared: Arc<Shared>,
    log: Option<Log>,
    fetched: Option<OpenFile>,
    answers: Answers,
    output: Vec<u8>,
}

/// A file that is appended to and removed at its end.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: File,
    space: OpenFile,
    length: u64,
    allocated: u64,
}

/// Answers to Produce by the partitions that were written, all but the correlation id.
#[derive(Debug, Default)]
struct Answers {
    made: BTreeMap<Vec<i32>, Bytes>,
}

impl Session {
    fn new(stream: TcpStream, shared: Arc<Shared>) -> io::Result<Self> {
        let socket = Socket::accepted(OwnedFd::from(stream.try_clone()?))?;
        let (log, fetched, answers) = (None, None, Answers::default());
        Ok(Self { stream, socket, shared, log, fetched, answers, output: Vec::new() })
    }

    fn serve(mut self) -> io::Result<()> {
        let mut input = vec![0; RECEIVE_BYTES];
        let mut end = 0;
        loop {
            let received = self.stream.read(&mut input[end..])?;
            if received == 0 {
                return Ok(());
            }
            end += received;
            let mut begin = 0;
            let missing = loop {
                let Some(length) = input[begin..end].first_chunk::<4>() else { break 4 };
                let length = u32::from_be_bytes(*length) as usize;
                if length > REQUEST_BYTES_MAX {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                if end - begin < 4 + length {
                    break 4 + length;
                }
                self.handle(&input[begin + 4..begin + 4 + length])?;
                begin += 4 + length;
            };
            self.flush()?;
            input.copy_within(begin..end, 0);
            end -= begin;
            if missing > input.len() {
                input.resize(missing.next_power_of_two(), 0);
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.output.is_empty() {
            self.stream.write_all(&self.output)?;
            self.output.clear();
        }
        Ok(())
    }

    fn handle(&mut self, frame: &[u8]) -> io::Result<()> {
        let mut cursor = Cursor::new(frame);
        let api = cursor.i16()?;
        if api != ApiKey::Produce.code() {
            return self.handle_rare(frame);
        }
        let produced = cursor::read_produce(cursor)?;
        let log = match &mut self.log {
            Some(log) => log,
            None => self.log.insert(Log::create(&self.shared)?),
        };
        for (_, batch) in &produced.batches {
            log.append(batch)?;
        }
        if produced.acks == 0 {
            return Ok(());
        }
        let answer = self.answers.get(&produced)?;
        self.output.extend_from_slice(&answer[..4]);
        self.output.extend_from_slice(&produced.correlation_id.to_be_bytes());
        self.output.extend_from_slice(&answer[8..]);
        Ok(())
    }

    fn handle_rare(&mut self, frame: &[u8]) -> io::Result<()> {
        let frame = RequestFrame::decode(Bytes::copy_from_slice(frame)).map_err(invalid)?;
        let shared = &self.shared;
        match frame.api_key {
            Some(ApiKey::ApiVersions) => {
                self.answer::<ApiVersionsRequest>(&frame, &api_versions(), |_| Ok(()))
            }
            Some(ApiKey::Metadata) => {
                let response = metadata(shared, &frame.body().map_err(invalid)?);
                self.answer::<MetadataRequest>(&frame, &response, |_| Ok(()))
            }
            Some(ApiKey::CreateTopics) => {
                let response = create_topics(shared, &frame.body().map_err(invalid)?)?;
                self.answer::<CreateTopicsRequest>(&frame, &response, |_| Ok(()))
            }
            Some(ApiKey::DeleteTopics) => {
                let response = delete_topics(&frame.body().map_err(invalid)?);
                self.answer::<DeleteTopicsRequest>(&frame, &response, |_| Ok(()))
            }
            Some(ApiKey::ListOffsets) => {
                let response = list_offsets(&frame.body().map_err(invalid)?);
                self.answer::<ListOffsetsRequest>(&frame, &response, |_| Ok(()))
            }
            Some(ApiKey::Fetch) => {
                let request = frame.body().map_err(invalid)?;
                let from = fetched_from(&request);
                let (position, length, response) = fetch(from, &request);
                if self.fetched.is_none() {
                    self.fetched = Some(from.make(&self.shared.folder)?);
                }
                self.answer::<FetchRequest>(&frame, &response, |session| {
                    session.send_file(position, length)
                })
            }
            _ => Err(invalid("an API that nobody needs here")),
        }
    }

    fn answer<R: Request>(
        &mut self,
        frame: &RequestFrame,
        response: &R::Response,
        send_gap: impl Fn(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let encoded = encode_response::<R>(frame.correlation_id, frame.version, response);
        for part in encoded.map_err(invalid)?.parts {
            match part {
                Part::Bytes(bytes) => self.output.extend_from_slice(&bytes),
                Part::Gap { .. } => {
                    self.flush()?;
                    send_gap(self)?;
                }
            }
        }
        self.flush()
    }

    fn send_file(&mut self, position: u64, length: usize) -> io::Result<()> {
        let file = self.fetched.as_ref().expect("it was opened before the answer was made");
        let mut sent = 0;
        while sent < length {
            let turn = SEND_FILE_BYTES.min(length - sent);
            match self.socket.send_file(file, position + sent as u64, turn)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                some => sent += some,
            }
        }
        Ok(())
    }
}

impl Log {
    fn create(shared: &Shared) -> io::Result<Self> {
        let number = shared.files.fetch_add(1, Ordering::Relaxed);
        let path = shared.folder.join(format!("{number}.log"));
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
        let space = OpenFile::open(&path, false, &OpenCount::default())?;
        Ok(Self { path, file, space, length: 0, allocated: 0 })
    }

    fn append(&mut self, batch: &[u8]) -> io::Result<()> {
        let (stored, checked) = batch.split_at(records::offsets::ATTRIBUTES);
        let crc = stored.get(records::offsets::CRC..).and_then(<[u8]>::first_chunk::<4>);
        if crc != Some(&records::crc_of(checked).to_be_bytes()) {
            return Err(invalid("a batch with another CRC"));
        }
        if self.length + batch.len() as u64 > self.allocated {
            let again = self.length.max(batch.len() as u64);
            let more = again.clamp(ALLOCATION_BYTES_MIN, ALLOCATION_BYTES_MAX);
            self.space.allocate(self.allocated, more)?;
            self.allocated += more;
        }
        self.file.write_all_at(batch, self.length)?;
        self.length += batch.len() as u64;
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // If it stays, it goes with its folder.
        let _ = fs::remove_file(&self.path);
    }
}

impl Answers {
    fn get(&mut self, produced: &cursor::Produced<'_>) -> io::Result<Bytes> {
        let partitions: Vec<i32> = produced.batches.iter().map(|(index, _)| *index).collect();
        if let Some(answer) = self.made.get(&partitions) {
            return Ok(answer.clone());
        }
        let partition = |index: &i32| produce_response::PartitionProduceResponse {
            index: *index,
            log_start_offset: 0,
            ..Default::default()
        };
        let topic = produce_response::TopicProduceResponse {
            topic_id: TOPIC_ID,
            partition_responses: partitions.iter().map(partition).collect(),
            ..Default::default()
        };
        let response = ProduceResponse { responses: vec![topic], ..Default::default() };
        let encoded = encode_response::<ProduceRequest>(0, PRODUCE_VERSION, &response);
        let answer = encoded.map_err(invalid)?.into_bytes();
        self.made.insert(partitions, answer.clone());
        Ok(answer)
    }
}

fn api_versions() -> ApiVersionsResponse {
    let api = |api: ApiKey, min_version, max_version| api_versions_response::ApiVersion {
        api_key: api.code(),
        min_version,
        max_version,
        ..Default::default()
    };
    let api_keys = vec![
        api(ApiKey::Produce, PRODUCE_VERSION, PRODUCE_VERSION),
        api(ApiKey::Fetch, 13, 17),
        api(ApiKey::ListOffsets, 1, 9),
        api(ApiKey::Metadata, 12, 12),
        api(ApiKey::ApiVersions, 0, 3),
        api(ApiKey::CreateTopics, 5, 7),
        api(ApiKey::DeleteTopics, 6, 6),
    ];
    ApiVersionsResponse { api_keys, ..Default::default() }
}

fn metadata(shared: &Shared, request: &MetadataRequest) -> MetadataResponse {
    let partition = |partition_index| metadata_response::MetadataResponsePartition {
        partition_index,
        leader_id: NODE_ID,
        leader_epoch: 0,
        replica_nodes: vec![NODE_ID],
        isr_nodes: vec![NODE_ID],
        ..Default::default()
    };
    let partitions = 0..shared.partitions.load(Ordering::Relaxed) as i32;
    let topic = |name: Option<Str>| metadata_response::MetadataResponseTopic {
        topic_id: name.as_ref().map_or(TOPIC_ID, |name| Fetchable::of(name).topic_id),
        name,
        partitions: partitions.clone().map(partition).collect(),
        ..Default::default()
    };
    let broker = metadata_response::MetadataResponseBroker {
        node_id: NODE_ID,
        host: static_str("127.0.0.1"),
        port: i32::from(shared.port),
        ..Default::default()
    };
    let topics = request.topics.iter().flatten().map(|asked| topic(asked.name.clone()));
    MetadataResponse {
        brokers: vec![broker],
        controller_id: NODE_ID,
        topics: topics.collect(),
        ..Default::default()
    }
}

fn create_topics(
    shared: &Shared,
    request: &CreateTopicsRequest,
) -> io::Result<CreateTopicsResponse> {
    let create = |topic: &protocol::create_topics_request::CreatableTopic| {
        let fetched = Fetchable::of(&topic.name);
        if fetched.topic_id == OLD.topic_id {
            fetched.make(&shared.folder)?;
        }
        let partitions = u64::try_from(topic.num_partitions).unwrap_or(1);
        shared.partitions.store(partitions, Ordering::Relaxed);
        Ok(create_topics_response::CreatableTopicResult {
            name: topic.name.clone(),
            topic_id: fetched.topic_id,
            ..Default::default()
        })
    };
    let topics: io::Result<Vec<_>> = request.topics.iter().map(create).collect();
    Ok(CreateTopicsResponse { topics: topics?, ..Default::default() })
}

fn delete_topics(request: &DeleteTopicsRequest) -> DeleteTopicsResponse {
    let delete = |topic: &protocol::delete_topics_request::DeleteTopicState| {
        delete_topics_response::DeletableTopicResult {
            name: topic.name.clone(),
            topic_id: TOPIC_ID,
            error_code: ErrorCode::NONE,
            ..Default::default()
        }
    };
    let responses = request.topics.iter().map(delete).collect();
    DeleteTopicsResponse { responses, ..Default::default() }
}

fn list_offsets(request: &ListOffsetsRequest) -> ListOffsetsResponse {
    let topic = |asked: &protocol::list_offsets_request::ListOffsetsTopic| {
        let offset = Fetchable::of(&asked.name).bytes as i64;
        let partition = |asked: &protocol::list_offsets_request::ListOffsetsPartition| {
            list_offsets_response::ListOffsetsPartitionResponse {
                partition_index: asked.partition_index,
                offset,
                ..Default::default()
            }
        };
        list_offsets_response::ListOffsetsTopicResponse {
            name: asked.name.clone(),
            partitions: asked.partitions.iter().map(partition).collect(),
            ..Default::default()
        }
    };
    let topics = request.topics.iter().map(topic).collect();
    ListOffsetsResponse { topics, ..Default::default() }
}

/// What is fetched from.
fn fetched_from(request: &FetchRequest) -> Fetchable {
    let topic_id = request.topics.first().map(|topic| topic.topic_id);
    if topic_id == Some(OLD.topic_id) { OLD } else { SHORT }
}

/// Where in the file the answer lies, how long it is, and what stands around it.
fn fetch(from: Fetchable, request: &FetchRequest) -> (u64, usize, FetchResponse) {
    let asked = request.topics.first().and_then(|topic| topic.partitions.first());
    let (index, offset, bytes_max) = asked.map_or((0, 0, 0), |partition| {
        (partition.partition, partition.fetch_offset, partition.partition_max_bytes)
    });
    let position = u64::try_from(offset).unwrap_or(0).min(from.bytes);
    let bytes_max = u64::try_from(bytes_max.min(request.max_bytes)).unwrap_or(0);
    let length = bytes_max.min(from.bytes - position) as u32;
    let partition = fetch_response::PartitionData {
        partition_index: index,
        high_watermark: from.bytes as i64,
        last_stable_offset: from.bytes as i64,
        log_start_offset: 0,
        records: Some(Records::Elsewhere { length, slot: 0 }),
        ..Default::default()
    };
    let topic = fetch_response::FetchableTopicResponse {
        topic_id: from.topic_id,
        partitions: vec![partition],
        ..Default::default()
    };
    let response = FetchResponse { responses: vec![topic], ..Default::default() };
    (position, length as usize, response)
}

impl Fetchable {
    fn of(name: &Str) -> Self {
        if &**name == OLD_TOPIC { OLD } else { SHORT }
    }

    /// Opens the file, written once so that the page cache has it.
    fn make(self, folder: &Path) -> io::Result<OpenFile> {
        let path = folder.join(self.file);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
        // One of several connections writes it, the others wait.
        file.lock()?;
        let piece = vec![1; 1 << 20];
        let mut position = file.metadata()?.len();
        while position < self.bytes {
            file.write_all_at(&piece, position)?;
            position += piece.len() as u64;
        }
        OpenFile::open(&path, false, &OpenCount::default())
    }
}

fn invalid(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}
