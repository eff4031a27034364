//! Requests to a broker and its answers, one at a time: what prepares and judges a load.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, Instant};

use base::Uuid;
use bytes::Bytes;
use protocol::{
    ApiKey, ApiVersionsRequest, CreateTopicsRequest, DeleteTopicsRequest, ErrorCode,
    IncrementalAlterConfigsRequest, ListOffsetsRequest, Message, MetadataRequest, Reader, Request,
    Str, UnknownTags, static_str,
};
use protocol::{create_topics_request, delete_topics_request, list_offsets_request};
use protocol::{encode_request, incremental_alter_configs_request, metadata_request};

/// The client id of every request: its length is part of what a frame weighs.
pub(crate) const CLIENT_ID: &str = "bench";
/// How long a broker may take for an answer that prepares a load.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);
/// How long a new topic may take until it has leaders.
const TOPIC_TIME_MAX: Duration = Duration::from_secs(60);
/// Between two questions whether it has.
const TOPIC_PAUSE: Duration = Duration::from_millis(20);
/// The largest answer that is believed.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// What a topic is called where settings are changed (`ConfigResource.Type`).
const TOPIC_RESOURCE: i8 = 2;

/// A topic as a load names it.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Its name, used by old versions.
    pub name: String,
    /// Its id, used by new ones.
    pub id: Uuid,
    /// How many partitions it has.
    pub partitions: i32,
}

/// A connection that asks and waits.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    versions: Vec<(i16, RangeInclusive<i16>)>,
    correlation_id: i32,
}

impl Client {
    /// Connects and asks which versions the broker speaks.
    ///
    /// # Errors
    /// A sentence: nobody listens, or the answer is none.
    pub fn connect(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).map_err(|error| format!("connecting: {error}"))?;
        stream.set_nodelay(true).map_err(|error| format!("setting TCP_NODELAY: {error}"))?;
        let time = stream.set_read_timeout(Some(ANSWER_TIME_MAX));
        time.map_err(|error| format!("setting a read timeout: {error}"))?;
        let mut client = Self { stream, versions: Vec::new(), correlation_id: 0 };
        let request = ApiVersionsRequest {
            client_software_name: static_str("corelane-bench"),
            client_software_version: static_str("1"),
            ..Default::default()
        };
        let answer = client.ask_in(3, &request)?;
        succeeded("ApiVersions", answer.error_code)?;
        let range = |api: &protocol::api_versions_response::ApiVersion| {
            (api.api_key, api.min_version..=api.max_version)
        };
        client.versions = answer.api_keys.iter().map(range).collect();
        Ok(client)
    }

    /// The newest version of an API that both sides speak.
    ///
    /// # Errors
    /// A sentence: there is none.
    pub fn version<R: Request>(&self) -> Result<i16, String> {
        let api: ApiKey = R::API_KEY;
        let found = self.versions.iter().find(|(code, _)| *code == api.code());
        let newest = found.map(|(_, range)| (*range.end()).min(*R::VERSIONS.end()));
        newest.ok_or_else(|| format!("the broker does not speak {}", api.name()))
    }

    /// Makes a topic with one replica and waits until each partition has a leader.
    ///
    /// # Errors
    /// A sentence: the broker refuses, or takes too long.
    pub fn create_topic(
        &mut self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> Result<Topic, String> {
        let config = |(name, value): &(&str, &str)| create_topics_request::CreatableTopicConfig {
            name: Str::from(*name),
            value: Some(Str::from(*value)),
            ..Default::default()
        };
        let topic = create_topics_request::CreatableTopic {
            name: Str::from(name),
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs.iter().map(config).collect(),
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
        let answer = self.ask(&request)?;
        for topic in answer.topics {
            succeeded("CreateTopics", topic.error_code)?;
        }
        let deadline = Instant::now() + TOPIC_TIME_MAX;
        loop {
            if let Some(id) = self.topic_id(name, partitions)? {
                let topic = Topic { name: name.to_owned(), id, partitions };
                // Kafka tells of a leader before that has its log: only a partition knows.
                if self.end_offsets(&topic).is_ok() {
                    return Ok(topic);
                }
            }
            if Instant::now() > deadline {
                return Err(format!("topic {name} has no leaders after {TOPIC_TIME_MAX:?}"));
            }
            thread::sleep(TOPIC_PAUSE);
        }
    }

    /// A topic, if it is there.
    ///
    /// # Errors
    /// A sentence: the broker is gone or refuses.
    pub fn find_topic(&mut self, name: &str, partitions: i32) -> Result<Option<Topic>, String> {
        let id = self.topic_id(name, partitions)?;
        Ok(id.map(|id| Topic { name: name.to_owned(), id, partitions }))
    }

    /// Removes a topic, so that the disk does not fill.
    ///
    /// # Errors
    /// A sentence: the broker refuses.
    pub fn delete_topic(&mut self, topic: &Topic) -> Result<(), String> {
        let state = delete_topics_request::DeleteTopicState {
            name: Some(Str::from(topic.name.as_str())),
            ..Default::default()
        };
        let request =
            DeleteTopicsRequest { topics: vec![state], timeout_ms: 10_000, ..Default::default() };
        let answer = self.ask(&request)?;
        answer.responses.iter().try_for_each(|topic| succeeded("DeleteTopics", topic.error_code))
    }

    /// Changes a setting of a topic.
    ///
    /// # Errors
    /// A sentence: the broker refuses.
    pub fn set_config(&mut self, topic: &Topic, name: &str, value: &str) -> Result<(), String> {
        let config = incremental_alter_configs_request::AlterableConfig {
            name: Str::from(name),
            value: Some(Str::from(value)),
            ..Default::default()
        };
        let resource = incremental_alter_configs_request::AlterConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: Str::from(topic.name.as_str()),
            configs: vec![config],
            ..Default::default()
        };
        let request =
            IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
        let answer = self.ask(&request)?;
        let ask = "IncrementalAlterConfigs";
        answer.responses.iter().try_for_each(|resource| succeeded(ask, resource.error_code))
    }

    /// The end offsets of all partitions, in their order.
    ///
    /// # Errors
    /// A sentence: the broker refuses.
    pub fn end_offsets(&mut self, topic: &Topic) -> Result<Vec<i64>, String> {
        let partition = |partition_index| list_offsets_request::ListOffsetsPartition {
            partition_index,
            timestamp: -1,
            ..Default::default()
        };
        let topics = vec![list_offsets_request::ListOffsetsTopic {
            name: Str::from(topic.name.as_str()),
            partitions: (0..topic.partitions).map(partition).collect(),
            ..Default::default()
        }];
        let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
        let answer = self.ask(&request)?;
        let mut offsets = Vec::new();
        for partition in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            succeeded("ListOffsets", partition.error_code)?;
            offsets.push((partition.partition_index, partition.offset));
        }
        offsets.sort_unstable();
        Ok(offsets.into_iter().map(|(_, offset)| offset).collect())
    }

    fn topic_id(&mut self, name: &str, partitions: i32) -> Result<Option<Uuid>, String> {
        let topic = metadata_request::MetadataRequestTopic {
            name: Some(Str::from(name)),
            ..Default::default()
        };
        let request = MetadataRequest {
            topics: Some(vec![topic]),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        let answer = self.ask(&request)?;
        let Some(topic) = answer.topics.first() else { return Ok(None) };
        let led = |partition: &protocol::metadata_response::MetadataResponsePartition| {
            partition.error_code == ErrorCode::NONE && partition.leader_id >= 0
        };
        let whole = topic.error_code == ErrorCode::NONE
            && topic.partitions.len() == partitions as usize
            && topic.partitions.iter().all(led);
        Ok(whole.then_some(topic.topic_id))
    }

    fn ask<R: Request>(&mut self, request: &R) -> Result<R::Response, String> {
        let version = self.version::<R>()?;
        self.ask_in(version, request)
    }

    fn ask_in<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response, String> {
        let name = R::API_KEY.name();
        self.correlation_id += 1;
        let frame = request_frame(self.correlation_id, version, request)?;
        self.stream.write_all(&frame).map_err(|error| format!("sending {name}: {error}"))?;
        let frame = self.receive().map_err(|error| format!("the answer to {name}: {error}"))?;
        let (correlation_id, answer) = read_response::<R>(frame, version)?;
        if correlation_id != self.correlation_id {
            return Err(format!("{name}: the answer is that of another request"));
        }
        Ok(answer)
    }

    fn receive(&mut self) -> std::io::Result<Bytes> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > ANSWER_BYTES_MAX {
            return Err(std::io::Error::other(format!("{length} bytes are too many")));
        }
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame)?;
        Ok(Bytes::from(frame))
    }
}

/// A request as it goes to the socket.
pub(crate) fn request_frame<R: Request>(
    correlation_id: i32,
    version: i16,
    request: &R,
) -> Result<Bytes, String> {
    let encoded = encode_request(correlation_id, Some(static_str(CLIENT_ID)), version, request);
    encoded.map(protocol::Encoded::into_bytes).map_err(|error| error.to_string())
}

/// An answer, without its length, and whose it is.
pub(crate) fn read_response<R: Request>(
    frame: Bytes,
    version: i16,
) -> Result<(i32, R::Response), String> {
    let mut reader = Reader::new(frame);
    let mut decode = || {
        let correlation_id = reader.i32()?;
        if R::API_KEY.response_header_version(version) > 0 {
            reader.unknown_tags(&mut UnknownTags::default())?;
        }
        Ok((correlation_id, R::Response::decode(&mut reader, version)?))
    };
    decode().map_err(|error: protocol::DecodeError| format!("{}: {error}", R::API_KEY.name()))
}

/// Turns an error code into a sentence.
pub(crate) fn succeeded(what: &str, code: ErrorCode) -> Result<(), String> {
    match code {
        ErrorCode::NONE => Ok(()),
        code => Err(format!("{what}: {}", code.name())),
    }
}
