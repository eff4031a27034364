//! Batches of idempotent producers: none is lost, and none stands twice.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Instant, SystemTime};

use blackbox::wire::{self, Batch, NONE, Produced, Rest};
use blackbox::{Broker, Running, TIME_MAX, Target, target};

const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
const INVALID_TOPIC_EXCEPTION: i16 = 17;
const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
const INVALID_PRODUCER_EPOCH: i16 = 47;
const TRANSACTIONAL_ID_AUTHORIZATION_FAILED: i16 = 53;
const INVALID_RECORD: i16 = 87;

/// The time of the records of [`Batch`].
const TIMESTAMP: i64 = 1_700_000_000_000;

/// Epoch, sequence of the first record, number of records.
type Sent = (i16, i32, usize);
/// Error and base offset.
type Result = (i16, i64);

/// A producer that says its numbers itself.
struct Raw {
    stream: TcpStream,
    topic: &'static str,
    id: i64,
    timestamp: i64,
}

impl Raw {
    fn start(broker: &Broker, topic: &'static str) -> Raw {
        let mut stream = broker.connect();
        let mut body = wire::Bytes::default();
        body.i16(-1).i32(60_000);
        let request = wire::request(wire::INIT_PRODUCER_ID, 0, 1, &body.0);
        loop {
            stream.write_all(&request).expect("asking for an id");
            let answer = wire::answer(&mut stream, 1).expect("an id");
            let mut rest = Rest(&answer);
            rest.take(4);
            match rest.i16() {
                0 => {
                    let id = rest.i64();
                    return Raw { stream, topic, id, timestamp: TIMESTAMP };
                }
                COORDINATOR_LOAD_IN_PROGRESS => {}
                error => panic!("no id: {error}"),
            }
        }
    }

    /// Sends a batch and waits for the answer.
    fn send(&mut self, epoch: i16, sequence: i32, count: usize) -> Produced {
        let values = vec![b"value".to_vec(); count];
        let producer = (self.id, epoch, sequence);
        let batch = Batch { values, producer, timestamp: self.timestamp, ..Batch::default() };
        let body = wire::produce_body(self.topic, -1, &batch.encode());
        let request = wire::request(wire::PRODUCE, 8, 2, &body);
        self.stream.write_all(&request).expect("sending a batch");
        let answer = wire::answer(&mut self.stream, 2).expect("an answer");
        Produced::read(&answer, self.topic)
    }

    /// Asks for the producers of a partition: the error, its sentence and how many there are.
    fn describe(&mut self, topic: &str, partition: i32) -> (i16, Option<String>, u8) {
        let length = i8::try_from(topic.len() + 1).expect("a short name");
        let mut body = wire::Bytes::default();
        body.i8(2).i8(length).raw(topic.as_bytes()).i8(2).i32(partition).i8(0).i8(0);
        let request = wire::flexible_request(wire::DESCRIBE_PRODUCERS, 0, 3, &body.0);
        self.stream.write_all(&request).expect("asking for producers");
        let answer = wire::answer(&mut self.stream, 3).expect("an answer");
        let mut rest = Rest(&answer);
        // Tags of the header, throttle time, one topic, its name, one partition.
        rest.take(1 + 4 + 1);
        assert_eq!(rest.compact_string().as_deref(), Some(topic));
        assert_eq!((rest.u8(), rest.i32()), (2, partition));
        (rest.i16(), rest.compact_string(), rest.u8() - 1)
    }

    /// Sends batches, each of which must get this answer.
    #[track_caller]
    fn check(&mut self, table: &[(Sent, Result)]) {
        for ((epoch, sequence, count), expected) in table {
            let produced = self.send(*epoch, *sequence, *count);
            let found = (produced.error, produced.base_offset);
            assert_eq!(found, *expected, "epoch {epoch}, sequence {sequence}: {produced:?}");
        }
    }
}

const LOST: Result = (OUT_OF_ORDER_SEQUENCE_NUMBER, -1);

#[test]
fn the_last_five_batches_are_known_and_the_sixth_is_not() {
    let broker = Broker::shared();
    broker.kafka("topics --create --topic idem-five").ok();
    let mut raw = Raw::start(broker, "idem-five");
    raw.check(&[
        ((0, 0, 3), (NONE, 0)),
        ((0, 0, 3), (NONE, 0)),
        ((0, 5, 1), LOST),
        ((0, 3, 3), (NONE, 3)),
        ((0, 6, 3), (NONE, 6)),
        ((0, 9, 3), (NONE, 9)),
        ((0, 12, 3), (NONE, 12)),
        ((0, 15, 3), (NONE, 15)),
        ((0, 0, 3), LOST),
        ((0, 3, 3), (NONE, 3)),
        ((0, 4, 2), LOST),
        ((0, 15, 3), (NONE, 15)),
    ]);
    broker.kafka("get-offsets --topic idem-five").ok().prints("idem-five:0:18");
}

#[test]
fn a_new_epoch_begins_at_0_and_ends_the_one_before() {
    let broker = Broker::shared();
    broker.kafka("topics --create --topic idem-epochs").ok();
    let mut raw = Raw::start(broker, "idem-epochs");
    raw.check(&[
        // Of a producer that is not known any first sequence is taken.
        ((0, i32::MAX - 1, 3), (NONE, 0)),
        ((0, i32::MAX - 1, 3), (NONE, 0)),
        ((0, 1, 2), (NONE, 3)),
        ((1, 3, 1), LOST),
        ((1, 0, 1), (NONE, 5)),
        ((0, 3, 1), (INVALID_PRODUCER_EPOCH, -1)),
        ((0, 1, 2), (INVALID_PRODUCER_EPOCH, -1)),
        ((1, 0, 1), (NONE, 5)),
        ((-1, 0, 1), (INVALID_PRODUCER_EPOCH, -1)),
        ((1, -1, 1), (INVALID_RECORD, -1)),
    ]);
    let first = Produced {
        error: NONE,
        base_offset: 6,
        log_append_time: -1,
        log_start_offset: 0,
        message: None,
    };
    assert_eq!(raw.send(1, 1, 1), first);
    let again = Produced { log_append_time: TIMESTAMP, ..first.clone() };
    assert_eq!(raw.send(1, 1, 1), again, "Kafka names the batch's own time");
    let lost = OUT_OF_ORDER_SEQUENCE_NUMBER;
    assert_eq!(raw.send(1, 9, 1), Produced { error: lost, base_offset: -1, ..first });
    broker.kafka("get-offsets --topic idem-epochs").ok().prints("idem-epochs:0:7");
}

#[test]
fn a_batch_of_a_transaction_without_its_id_is_refused() {
    let broker = Broker::shared();
    broker.kafka("topics --create --topic idem-transactional").ok();
    let mut raw = Raw::start(broker, "idem-transactional");
    let batch = Batch { attributes: 0x10, producer: (raw.id, 0, 0), ..Batch::default() };
    let body = wire::produce_body(raw.topic, -1, &batch.encode());
    let request = wire::request(wire::PRODUCE, 8, 2, &body);
    raw.stream.write_all(&request).expect("sending a batch");
    let answer = wire::answer(&mut raw.stream, 2).expect("an answer");
    let refused = (TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1);
    assert_eq!(wire::produce_result(&answer, raw.topic), refused);
}

#[test]
fn batches_in_flight_together_see_each_other() {
    let broker = Broker::shared();
    broker.kafka("topics --create --topic idem-together").ok();
    let mut raw = Raw::start(broker, "idem-together");
    let sequences = [0, 1, 2, 1, 2, 4, 3, 0];
    let mut requests = Vec::new();
    for (correlation, sequence) in (0..).zip(sequences) {
        let batch = Batch { producer: (raw.id, 0, sequence), ..Batch::default() };
        let body = wire::produce_body(raw.topic, -1, &batch.encode());
        requests.extend(wire::request(wire::PRODUCE, 8, correlation, &body));
    }
    raw.stream.write_all(&requests).expect("sending batches");
    let results: Vec<_> = (0..8)
        .map(|correlation| {
            let answer = wire::answer(&mut raw.stream, correlation).expect("an answer");
            wire::produce_result(&answer, raw.topic)
        })
        .collect();
    let at = |offset| (NONE, offset);
    assert_eq!(results, [at(0), at(1), at(2), at(1), at(2), LOST, at(3), at(0)]);
}

#[test]
fn producers_are_described() {
    let broker = Broker::shared();
    broker.kafka("topics --create --topic idem-described").ok();
    let mut raw = Raw::start(broker, "idem-described");
    raw.check(&[((0, 0, 3), (NONE, 0)), ((1, 0, 1), (NONE, 3))]);
    broker
        .kafka("transactions describe-producers --topic idem-described --partition 0")
        .ok()
        .prints(&format!(
            "ProducerId\tProducerEpoch\tLatestCoordinatorEpoch\tLastSequence\tLastTimestamp\t\
             CurrentTransactionStartOffset\t\n\
             {:<10}\t1            \t-1                    \t0           \t{TIMESTAMP}\t\
             None                         \t",
            raw.id
        ));
    for (topic, partition, expected) in [
        ("idem-described", 0, (NONE, false, 1)),
        ("idem-described", 1, (UNKNOWN_TOPIC_OR_PARTITION, false, 0)),
        ("idem-absent", 0, (UNKNOWN_TOPIC_OR_PARTITION, true, 0)),
        ("no name", 0, (INVALID_TOPIC_EXCEPTION, true, 0)),
    ] {
        let (error, message, count) = raw.describe(topic, partition);
        assert_eq!((error, message.is_some(), count), expected, "{topic}-{partition}: {message:?}");
    }
}

#[test]
fn a_producer_that_wrote_too_long_ago_is_forgotten() {
    let broker = Broker::start(&[("producer.id.expiration.check.interval.ms", "100")]);
    broker.kafka("topics --create --topic idem-old").ok();
    let mut raw = Raw::start(&broker, "idem-old");
    // What is too long ago is told by the records' own time.
    raw.check(&[((0, 0, 1), (NONE, 0))]);
    let begin = Instant::now();
    while raw.describe("idem-old", 0) != (NONE, None, 0) {
        assert!(begin.elapsed() < TIME_MAX, "it is still known");
    }
    raw.check(&[((0, 77, 1), (NONE, 1))]);
}

#[test]
fn producers_are_known_after_a_stop_and_after_a_kill() {
    let mut broker = Broker::start(&[("log.flush.interval.messages", "1")]);
    broker.kafka("topics --create --topic idem-kept").ok();
    let id = Raw::start(&broker, "idem-kept").id;
    // One whose last record is older than `producer.id.expiration.ms` would be forgotten.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
    let timestamp = i64::try_from(now.as_millis()).expect("it is before the year 292278994");
    let mut end = 0;
    for kill in [false, true, true, false] {
        let sequence = i32::try_from(end).expect("a few records");
        let start = |broker: &Broker| {
            let stream = broker.connect();
            Raw { stream, topic: "idem-kept", id, timestamp }
        };
        start(&broker).check(&[
            ((0, sequence, 2), (NONE, end)),
            ((0, sequence + 2, 1), (NONE, end + 2)),
            ((0, sequence, 2), (NONE, end)),
        ]);
        if kill {
            broker.kill()
        } else {
            broker.stop()
        }
        broker.start_again();
        start(&broker).check(&[
            ((0, sequence + 2, 1), (NONE, end + 2)),
            ((0, sequence + 4, 1), LOST),
            ((0, sequence + 3, 3), (NONE, end + 3)),
        ]);
        end += 6;
    }
    broker.kafka("get-offsets --topic idem-kept").ok().prints(&format!("idem-kept:0:{end}"));
}

#[test]
fn a_java_producer_writes_each_record_once_though_the_broker_is_killed() {
    const RECORDS: usize = 120_000;
    // Apache Kafka takes longer to come back than its producer waits for metadata.
    let kills = if target() == Target::Kafka { 1 } else { 3 };
    let mut broker = Broker::start(&[]);
    broker.kafka("topics --create --topic idem-once").ok();
    let mut producer = Running::start(&mut broker.kafka_command(&format!(
        "producer-perf-test --topic idem-once --num-records {RECORDS} --payload-monotonic \
         --throughput 8000 --reporting-interval 1000"
    )));
    for _ in 0..kills {
        producer.wait_for("records sent");
        broker.kill();
        broker.start_again();
    }
    producer.finish().ok().says(&format!("{RECORDS} records sent"));
    let consumed = broker
        .kafka(&format!(
            "console-consumer --topic idem-once --partition 0 --offset earliest \
             --max-messages {RECORDS}"
        ))
        .ok()
        .stdout;
    let wrong = consumed.lines().zip(0..).find(|(line, number)| *line != format!("{number}"));
    assert_eq!(wrong, None, "a record is missing, or stands twice, or in the wrong place");
    broker.kafka("get-offsets --topic idem-once").ok().prints(&format!("idem-once:0:{RECORDS}"));
}
