//! How a Fetch spends the bytes that it may have, and how long it waits for those that it wants.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use blackbox::Broker;
use blackbox::wire::{Batch, Bytes, FETCH, PRODUCE, answer, request};

/// Long enough to be noticed when it is waited for in vain.
const WAIT_MS: i32 = 20_000;

fn produce(stream: &mut TcpStream, topic: &str, partition: i32, batch: &[u8]) {
    let mut body = Bytes::default();
    body.i16(-1).i16(1).i32(10_000).i32(1).string(topic).i32(1).i32(partition).bytes(batch);
    stream.write_all(&request(PRODUCE, 8, 11, &body.0)).expect("the connection is open");
    answer(stream, 11).expect("an answer to Produce");
}

/// A request for two partitions from their start.
struct Fetch<'a> {
    topic: &'a str,
    partitions: [i32; 2],
    wait_ms: i32,
    bytes_min: usize,
    bytes_max: usize,
}

impl Fetch<'_> {
    fn send(&self, stream: &mut TcpStream) {
        let size = |bytes: usize| i32::try_from(bytes).expect("small");
        let mut body = Bytes::default();
        body.i32(-1).i32(self.wait_ms).i32(size(self.bytes_min)).i32(size(self.bytes_max)).i8(0);
        body.i32(1).string(self.topic).i32(2);
        for partition in self.partitions {
            body.i32(partition).i64(0).i32(1 << 20);
        }
        stream.write_all(&request(FETCH, 4, 9, &body.0)).expect("the connection is open");
    }

    /// How many bytes of records each partition has in the answer.
    fn answer(&self, stream: &mut TcpStream) -> [usize; 2] {
        let answered = answer(stream, 9).expect("an answer to Fetch");
        let mut at = 4 + 4 + 2 + self.topic.len() + 4;
        let number = |at: usize| {
            let bytes = answered[at..at + 4].try_into().expect("four bytes");
            usize::try_from(i32::from_be_bytes(bytes)).unwrap_or(0)
        };
        let mut found = [0; 2];
        for expected in self.partitions {
            assert_eq!(number(at), usize::try_from(expected).expect("an index"));
            // Index, error code, high watermark, last stable offset, no aborted transactions.
            let length = number(at + 4 + 2 + 8 + 8 + 4);
            found[usize::from(expected != self.partitions[0])] = length;
            at += 4 + 2 + 8 + 8 + 4 + 4 + length;
        }
        found
    }

    fn call(&self, stream: &mut TcpStream) -> [usize; 2] {
        self.send(stream);
        self.answer(stream)
    }
}

#[test]
fn bytes_are_spent_in_the_order_of_the_request() {
    let broker = Broker::shared();
    let mut stream = broker.connect();
    // Batches of this size stay in the memory of their log; larger ones are read from its file.
    for (kind, value_bytes) in [1_000, 20_000].into_iter().enumerate() {
        let topic = format!("fetch-bytes-{kind}");
        broker.kafka(&format!("topics --create --topic {topic} --partitions 2")).ok();
        let batch = Batch { values: vec![vec![7; value_bytes]], ..Batch::default() }.encode();
        for partition in [0, 1] {
            for _ in 0..3 {
                produce(&mut stream, &topic, partition, &batch);
            }
        }
        let size = batch.len();
        for partitions in [[0, 1], [1, 0]] {
            for (bytes_max, first, second) in [
                (6 * size, 3, 3),
                (5 * size + 100, 3, 2),
                (4 * size, 3, 1),
                (4 * size - 1, 3, 0),
                (3 * size, 3, 0),
                (2 * size, 2, 0),
                (1, 1, 0),
            ] {
                let topic = topic.as_str();
                let fetch = Fetch { topic, partitions, wait_ms: 0, bytes_min: 0, bytes_max };
                let found = fetch.call(&mut stream);
                let whole = found.map(|bytes| bytes / size);
                assert_eq!(whole, [first, second], "{bytes_max} of {size}: {found:?}");
                assert!(found.iter().sum::<usize>() <= bytes_max.max(size), "{found:?}");
            }
        }
    }
}

#[test]
fn a_fetch_waits_for_the_bytes_of_all_its_partitions() {
    let broker = Broker::shared();
    let topic = "fetch-waits";
    broker.kafka(&format!("topics --create --topic {topic} --partitions 2")).ok();
    let batch = Batch { values: vec![vec![7; 1_000]], ..Batch::default() }.encode();
    let (mut consumer, mut producer) = (broker.connect(), broker.connect());
    let bytes_min = 4 * batch.len();
    let fetch =
        Fetch { topic, partitions: [0, 1], wait_ms: WAIT_MS, bytes_min, bytes_max: 1 << 20 };
    let started = Instant::now();
    fetch.send(&mut consumer);
    for partition in [0, 1, 1, 0] {
        produce(&mut producer, topic, partition, &batch);
    }
    let found = fetch.answer(&mut consumer);
    assert_eq!(found, [2 * batch.len(); 2]);
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
}

#[test]
fn a_fetch_whose_time_is_over_has_what_came_meanwhile() {
    let broker = Broker::shared();
    let topic = "fetch-ends";
    broker.kafka(&format!("topics --create --topic {topic} --partitions 2")).ok();
    let batch = Batch::default().encode();
    let (mut consumer, mut producer) = (broker.connect(), broker.connect());
    let bytes_max = 1 << 20;
    let fetch =
        Fetch { topic, partitions: [0, 1], wait_ms: 2_000, bytes_min: bytes_max, bytes_max };
    fetch.send(&mut consumer);
    produce(&mut producer, topic, 1, &batch);
    assert_eq!(fetch.answer(&mut consumer), [0, batch.len()]);
}
