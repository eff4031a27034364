//! What loads are made of: producing, and fetching what was produced.

use std::time::Duration;

use bytes::Bytes;
use protocol::fetch_request::{FetchPartition, FetchTopic};
use protocol::{FetchRequest, ProduceRequest, Records, Str};
use records::Batches;

use crate::frames::{BatchShape, Frames};
use crate::load::{Answer, Work};
use crate::wire::{Client, Topic, read_response, request_frame, succeeded};

/// Room to receive the small answers of produce requests.
const PRODUCE_ANSWER_BYTES: usize = 4 << 10;
/// Room to receive fetched records.
const FETCH_ANSWER_BYTES: usize = 256 << 10;

/// Sends batches that were made beforehand, over and over.
#[derive(Debug)]
pub struct Produce {
    frames: Frames,
    /// Of each connection: the next frame to send, and the next to be answered.
    places: Vec<(usize, usize)>,
}

/// Where a fetch begins, and where it goes on at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchFrom {
    /// At the first record, and there again after the last.
    StartInCircles,
    /// At the end, waiting for what is produced.
    End,
}

/// What the offsets of a broker count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetUnit {
    /// Records, as Kafka's do.
    Records,
    /// Bytes of a file: those of the bare program, which knows nothing of records.
    Bytes,
}

/// How records are fetched.
#[derive(Clone, Copy, Debug)]
pub struct FetchShape {
    /// Bytes of one answer, at most.
    pub bytes_max: i32,
    /// How long the broker waits for the first byte.
    pub wait_max: Duration,
    /// Where it begins.
    pub from: FetchFrom,
    /// What offsets count.
    pub unit: OffsetUnit,
}

/// Fetches one partition with each connection.
#[derive(Debug)]
pub struct Fetch {
    topic: Topic,
    version: i16,
    shape: FetchShape,
    /// Of each connection: the partition and the offset to fetch.
    places: Vec<(i32, i64)>,
}

impl Produce {
    /// Makes the batches.
    ///
    /// # Errors
    /// A sentence: the broker does not take what would be sent.
    pub fn new(
        client: &Client,
        topic: &Topic,
        shape: &BatchShape,
        connections: usize,
    ) -> Result<Self, String> {
        let frames = Frames::new(topic, client.version::<ProduceRequest>()?, shape)?;
        // Each connection begins with another partition.
        let place =
            |connection| (connection % frames.frames.len(), connection % frames.frames.len());
        let places = (0..connections).map(place).collect();
        Ok(Self { frames, places })
    }

    /// Bytes of the batches of one request.
    pub fn payload_bytes(&self) -> usize {
        self.frames.payload_bytes
    }

    fn made(&self) -> Answer {
        Answer { bytes: self.frames.payload_bytes as u64, records: self.frames.records }
    }
}

impl Work for Produce {
    fn next(&mut self, connection: usize) -> Result<Bytes, String> {
        let (next, _) = &mut self.places[connection];
        let frame = self.frames.frames[*next].clone();
        *next = (*next + 1) % self.frames.frames.len();
        Ok(frame)
    }

    fn answer(&mut self, connection: usize, frame: Bytes) -> Result<Answer, String> {
        let (correlation_id, answer) = read_response::<ProduceRequest>(frame, self.frames.version)?;
        let (_, expected) = &mut self.places[connection];
        if correlation_id as usize != *expected {
            return Err(format!("answer {correlation_id} came in the place of {expected}"));
        }
        *expected = (*expected + 1) % self.frames.frames.len();
        for partition in answer.responses.iter().flat_map(|topic| &topic.partition_responses) {
            succeeded("Produce", partition.error_code)?;
        }
        Ok(self.made())
    }

    fn unanswered(&self) -> Option<Answer> {
        (self.frames.acks == 0).then(|| self.made())
    }

    fn answer_bytes(&self) -> usize {
        PRODUCE_ANSWER_BYTES
    }
}

impl Fetch {
    /// Finds where to begin.
    ///
    /// # Errors
    /// A sentence: the broker does not say.
    pub fn new(
        client: &mut Client,
        topic: &Topic,
        shape: FetchShape,
        connections: usize,
    ) -> Result<Self, String> {
        let version = client.version::<FetchRequest>()?;
        let begin = match shape.from {
            FetchFrom::StartInCircles => vec![0; topic.partitions as usize],
            FetchFrom::End => client.end_offsets(topic)?,
        };
        let all = (0..topic.partitions).zip(begin).cycle();
        let places = all.take(connections).collect();
        Ok(Self { topic: topic.clone(), version, shape, places })
    }
}

impl Work for Fetch {
    fn next(&mut self, connection: usize) -> Result<Bytes, String> {
        let (partition, fetch_offset) = self.places[connection];
        let partition = FetchPartition {
            partition,
            fetch_offset,
            partition_max_bytes: self.shape.bytes_max,
            ..Default::default()
        };
        let topic = FetchTopic {
            topic: Str::from(self.topic.name.as_str()),
            topic_id: self.topic.id,
            partitions: vec![partition],
            ..Default::default()
        };
        let request = FetchRequest {
            max_wait_ms: self.shape.wait_max.as_millis() as i32,
            min_bytes: 1,
            max_bytes: self.shape.bytes_max,
            topics: vec![topic],
            ..Default::default()
        };
        request_frame(connection as i32, self.version, &request)
    }

    fn answer(&mut self, connection: usize, frame: Bytes) -> Result<Answer, String> {
        let (correlation_id, answer) = read_response::<FetchRequest>(frame, self.version)?;
        if correlation_id as usize != connection {
            return Err(format!("an answer to {correlation_id} on connection {connection}"));
        }
        succeeded("Fetch", answer.error_code)?;
        let partition = answer.responses.first().and_then(|topic| topic.partitions.first());
        let partition = partition.ok_or("a fetch was answered without its partition")?;
        succeeded("Fetch", partition.error_code)?;
        let (_, offset) = &mut self.places[connection];
        let mut found = Answer::default();
        if let Some(Records::Bytes(bytes)) = &partition.records {
            found.bytes = bytes.len() as u64;
            if self.shape.unit == OffsetUnit::Bytes {
                *offset += bytes.len() as i64;
            } else {
                for batch in Batches::new(bytes.clone()).map_while(Result::ok) {
                    let next = batch.header().next_offset().0;
                    found.records += u64::try_from(next - *offset).unwrap_or(0);
                    *offset = next.max(*offset);
                }
            }
        }
        if self.shape.from == FetchFrom::StartInCircles && *offset >= partition.high_watermark {
            *offset = 0;
        }
        Ok(found)
    }

    fn unanswered(&self) -> Option<Answer> {
        None
    }

    fn answer_bytes(&self) -> usize {
        FETCH_ANSWER_BYTES
    }
}
