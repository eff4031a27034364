//! What the load asks of a broker that may be gone at any moment.

use std::io::{self, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use blackbox::PAUSE;
use blackbox::wire::{self, Bytes, NONE, Rest};

/// How long a broker that has started may refuse what it must do soon.
const READY_MAX: Duration = Duration::from_secs(60);
/// What a topic has in the broker's answers.
pub(crate) const UNKNOWN_TOPIC: i16 = 3;
/// What one answer to Fetch has at most, in bytes.
const FETCH_BYTES: i32 = 4 << 20;

/// A connection that is made anew when it breaks.
#[derive(Debug)]
pub(crate) struct Client {
    port: u16,
    stream: Option<TcpStream>,
    correlation: i32,
}

/// A record as it was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) offset: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Vec<u8>,
}

impl Client {
    pub(crate) fn new(port: u16) -> Client {
        Client { port, stream: None, correlation: 0 }
    }

    /// The answer to one request, without its header; none where the broker went away meanwhile.
    pub(crate) fn call(&mut self, api: i16, version: i16, body: &[u8]) -> Option<Vec<u8>> {
        let answer = self.try_to_call(api, version, body);
        if answer.is_err() {
            self.stream = None;
        }
        answer.ok()
    }

    fn try_to_call(&mut self, api: i16, version: i16, body: &[u8]) -> io::Result<Vec<u8>> {
        self.correlation += 1;
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(wire::connect(self.port)?),
        };
        stream.write_all(&wire::request(api, version, self.correlation, body))?;
        wire::answer(stream, self.correlation)
    }

    /// Calls until there is an answer that `read` takes.
    ///
    /// # Panics
    /// When there is none in time.
    #[track_caller]
    pub(crate) fn insist<R>(
        &mut self,
        what: &str,
        mut ask: impl FnMut(&mut Client) -> Option<R>,
    ) -> R {
        let deadline = Instant::now() + READY_MAX;
        loop {
            if let Some(answer) = ask(self) {
                return answer;
            }
            assert!(Instant::now() < deadline, "the broker does not {what}");
            thread::sleep(PAUSE);
        }
    }

    /// The error, and the offset of the first record.
    pub(crate) fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        batch: &[u8],
    ) -> Option<(i16, i64)> {
        let mut body = Bytes::default();
        body.i16(-1).i16(-1).i32(30_000).i32(1).string(topic).i32(1).i32(partition).bytes(batch);
        let answer = self.call(wire::PRODUCE, 8, &body.0)?;
        Some(wire::produce_result(&answer, topic))
    }

    pub(crate) fn producer_id(&mut self) -> Option<i64> {
        let mut body = Bytes::default();
        body.i16(-1).i32(60_000);
        let answer = self.call(wire::INIT_PRODUCER_ID, 0, &body.0)?;
        let mut rest = Rest(&answer);
        rest.take(4);
        (rest.i16() == NONE).then(|| rest.i64())
    }

    /// The first offset and the end; none while the partition is not led.
    pub(crate) fn bounds(&mut self, topic: &str, partition: i32) -> Option<(i64, i64)> {
        let mut ask = |time: i64| {
            let mut body = Bytes::default();
            body.i32(-1).i32(1).string(topic).i32(1).i32(partition).i64(time);
            let answer = self.call(wire::LIST_OFFSETS, 1, &body.0)?;
            let mut rest = Rest(&answer);
            rest.take(4 + 2 + topic.len() + 4 + 4);
            let (error, _, offset) = (rest.i16(), rest.i64(), rest.i64());
            (error == NONE).then_some(offset)
        };
        Some((ask(-2)?, ask(-1)?))
    }

    /// The records from an offset on, as far as one answer has them, or the error; nothing where
    /// the broker does not answer.
    pub(crate) fn fetch(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> Option<Result<Vec<Record>, i16>> {
        let mut body = Bytes::default();
        body.i32(-1).i32(0).i32(0).i32(FETCH_BYTES).i8(0).i32(1).string(topic).i32(1);
        body.i32(partition).i64(offset).i32(FETCH_BYTES);
        let answer = self.call(wire::FETCH, 4, &body.0)?;
        let mut rest = Rest(&answer);
        rest.take(4 + 4 + 2 + topic.len() + 4 + 4);
        let error = rest.i16();
        if error != NONE {
            return Some(Err(error));
        }
        // High watermark, last stable offset, aborted transactions.
        rest.take(8 + 8 + 4);
        let length = usize::try_from(rest.i32()).unwrap_or(0);
        Some(Ok(records(rest.take(length)).into_iter().filter(|it| it.offset >= offset).collect()))
    }

    /// The error.
    pub(crate) fn create_topic(
        &mut self,
        topic: &str,
        partitions: i32,
        settings: &[(&str, &str)],
    ) -> Option<i16> {
        let mut body = Bytes::default();
        body.i32(1).string(topic).i32(partitions).i16(1).i32(0);
        body.i32(i32::try_from(settings.len()).expect("few"));
        for (key, value) in settings {
            body.string(key).string(value);
        }
        body.i32(30_000).i8(0);
        let answer = self.call(wire::CREATE_TOPICS, 4, &body.0)?;
        let mut rest = Rest(&answer);
        rest.take(4 + 4);
        rest.string();
        Some(rest.i16())
    }

    /// The error.
    pub(crate) fn delete_topic(&mut self, topic: &str) -> Option<i16> {
        let mut body = Bytes::default();
        body.i32(1).string(topic).i32(30_000);
        let answer = self.call(wire::DELETE_TOPICS, 3, &body.0)?;
        let mut rest = Rest(&answer);
        rest.take(4 + 4);
        rest.string();
        Some(rest.i16())
    }

    /// What the metadata say of a topic: no error, or one. It is not made by that.
    pub(crate) fn topic_error(&mut self, topic: &str) -> Option<i16> {
        let mut body = Bytes::default();
        body.i32(1).string(topic).i8(0);
        let answer = self.call(wire::METADATA, 4, &body.0)?;
        let mut rest = Rest(&answer);
        rest.take(4);
        for _ in 0..rest.i32() {
            rest.take(4);
            rest.string();
            rest.take(4);
            rest.string();
        }
        rest.string();
        rest.take(4 + 4);
        Some(rest.i16())
    }

    /// Has the coordinator of a group looked up, which makes its topic where there is none.
    pub(crate) fn find_coordinator(&mut self, group: &str) -> Option<i16> {
        let mut body = Bytes::default();
        body.string(group);
        let answer = self.call(wire::FIND_COORDINATOR, 0, &body.0)?;
        Some(Rest(&answer).i16())
    }

    /// The error.
    pub(crate) fn commit(&mut self, group: &str, topic: &str, offset: i64) -> Option<i16> {
        let mut body = Bytes::default();
        body.string(group).i32(-1).string("").i64(-1).i32(1).string(topic);
        body.i32(1).i32(0).i64(offset).i16(-1);
        let answer = self.call(wire::OFFSET_COMMIT, 2, &body.0)?;
        let mut rest = Rest(&answer);
        rest.take(4);
        rest.string();
        rest.take(4 + 4);
        Some(rest.i16())
    }

    /// What a group has committed, −1 for nothing; none while its coordinator is not there.
    pub(crate) fn committed(&mut self, group: &str, topic: &str) -> Option<i64> {
        let mut body = Bytes::default();
        body.string(group).i32(1).string(topic).i32(1).i32(0);
        let answer = self.call(wire::OFFSET_FETCH, 1, &body.0)?;
        let mut rest = Rest(&answer);
        rest.take(4);
        rest.string();
        rest.take(4 + 4);
        let offset = rest.i64();
        rest.string();
        (rest.i16() == NONE).then_some(offset)
    }
}

/// The records of whole batches; one that is cut off at the end is left out.
fn records(bytes: &[u8]) -> Vec<Record> {
    /// Up to the length, and from there to the records.
    const LENGTH_END: usize = 12;
    let mut found = Vec::new();
    let mut rest = bytes;
    while rest.len() >= LENGTH_END {
        let mut header = Rest(rest);
        let (base, length) = (header.i64(), header.i32());
        let end = LENGTH_END + usize::try_from(length).expect("a batch has a length");
        let Some(batch) = rest.get(..end) else { break };
        rest = &rest[end..];
        let mut batch = Rest(&batch[LENGTH_END..]);
        assert_eq!((batch.i32() >= 0, batch.u8()), (true, 2), "epoch and magic of {base}");
        let sum = batch.i32().cast_unsigned();
        assert_eq!(wire::crc32c(batch.0), sum, "the checksum of the batch at {base}");
        assert_eq!(batch.i16() & 0x27, 0, "neither compressed nor a control batch");
        batch.take(4 + 8 + 8 + 8 + 2 + 4);
        for _ in 0..batch.i32() {
            batch.varint();
            batch.take(1);
            batch.varint();
            let offset = base + batch.varint();
            let mut bytes = || {
                let length = usize::try_from(batch.varint()).ok()?;
                Some(batch.take(length).to_vec())
            };
            let (key, value) = (bytes(), bytes().unwrap_or_default());
            assert_eq!(batch.varint(), 0, "no headers");
            found.push(Record { offset, key, value });
        }
    }
    found
}
