//! Bytes that a client should not send, and clients that don't behave: each gets what Kafka gives
//! it, and nobody else notices.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use blackbox::wire::{
    self, API_VERSIONS, Batch, Bytes, FETCH, LIST_OFFSETS, METADATA, PRODUCE, Rest, answer,
    api_versions, assert_closed, frame, produce_body, produce_result, request,
};
use flate2::Compression;
use flate2::write::GzEncoder;

use blackbox::{Broker, Target, target};

/// Sends bytes on a new connection. A broker that closes early may make the rest fail: that is
/// what the reads afterwards find.
fn send(broker: &Broker, bytes: &[u8]) -> TcpStream {
    let mut stream = broker.connect();
    drop(stream.write_all(bytes));
    stream
}

fn assert_serves(broker: &Broker) {
    api_versions(&mut broker.connect()).expect("the broker still serves others");
}

#[test]
fn frames_that_cannot_be_are_answered_by_closing() {
    let broker = Broker::shared();
    let good = request(API_VERSIONS, 0, 1, &[]);
    let check = |name: &str, bytes: &[u8]| {
        let mut stream = send(broker, bytes);
        println!("{name}");
        assert_closed(&mut stream);
        assert_serves(broker);
    };
    check("a length of -1", &(-1_i32).to_be_bytes());
    check("a length of 2 GB", &i32::MAX.to_be_bytes());
    check("one more than socket.request.max.bytes", &104_857_601_i32.to_be_bytes());
    check("an empty frame", &frame(&[]));
    check("a header cut short", &frame(&[0, 18, 0]));
    check("an unknown API", &request(999, 0, 1, &[]));
    check("a negative API", &request(-1, 0, 1, &[]));
    check("an unknown version", &request(METADATA, 99, 1, &[0, 0, 0, 0]));
    check("a negative version", &request(METADATA, -1, 1, &[0, 0, 0, 0]));
    check("an old version of Produce", &request(PRODUCE, 2, 1, &produce_body("x", 1, &[])));
    check("an old version of Fetch", &request(FETCH, 3, 1, &[0; 40]));
    check("a body cut short", &request(METADATA, 1, 1, &[0, 0]));
    check("an array longer than the frame", &request(METADATA, 1, 1, &[0x7f, 0xff, 0xff, 0xff]));
    check("a string longer than the frame", &request(METADATA, 1, 1, &[0, 0, 0, 1, 0x7f, 0xff]));
    check("a client id longer than the frame", &frame(&[0, 18, 0, 0, 0, 0, 0, 1, 0x7f, 0xff]));
    check("a request of HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    check("a greeting of TLS", &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03]);
    api_versions(&mut send(broker, &[])).expect("nothing at all is no fault");
    answer(&mut send(broker, &good), 1).expect("and the good frame is answered");
}

#[test]
fn an_unknown_version_of_api_versions_is_answered_in_version_0() {
    let broker = Broker::shared();
    for version in [6, 99, i16::MAX] {
        let mut stream = send(broker, &request(API_VERSIONS, version, 5, &[0]));
        let answered = answer(&mut stream, 5).expect("an answer in version 0");
        assert!(answered.starts_with(&35_i16.to_be_bytes()), "{answered:?}");
        // Kafka lists just itself then, so that the client can ask again.
        let mut expected = Bytes::default();
        expected.i16(35).i32(1).i16(API_VERSIONS).i16(0).i16(5);
        assert_eq!(answered, expected.0);
        api_versions(&mut stream).expect("the connection goes on");
    }
}

#[test]
fn half_a_frame_disturbs_nobody() {
    let broker = Broker::shared();
    let whole = request(API_VERSIONS, 0, 3, &[]);
    let (half, rest) = whole.split_at(whole.len() / 2);
    let mut stream = send(broker, half);
    assert_serves(broker);
    stream.write_all(rest).expect("the connection is still open");
    answer(&mut stream, 3).expect("the whole frame is answered");

    let mut stream = send(broker, half);
    stream.shutdown(Shutdown::Write).expect("the connection is still open");
    assert_closed(&mut stream);

    let mut stream = broker.connect();
    for byte in &whole {
        stream.write_all(&[*byte]).expect("the connection is still open");
    }
    answer(&mut stream, 3).expect("a frame that comes byte by byte is answered");
}

#[test]
fn a_claimed_length_takes_no_memory() {
    // Kafka allocates what is claimed: fifty of these make it run out of memory.
    if target() == Target::Kafka {
        return;
    }
    let broker = Broker::start(&[]);
    assert_serves(&broker);
    let before = broker.memory_bytes();
    // 100 MB each is the most that may be claimed.
    let streams: Vec<TcpStream> =
        (0..50).map(|_| send(&broker, &104_857_600_i32.to_be_bytes())).collect();
    assert_serves(&broker);
    let taken = broker.memory_bytes().saturating_sub(before);
    assert!(taken < 10 << 20, "{taken} bytes for {} lengths", streams.len());
}

#[test]
fn large_requests_that_come_all_at_once_take_their_turns() {
    const CLIENTS: usize = 30;
    const REQUEST_BYTES: usize = 20 << 20;
    // Kafka takes memory for all of them, and may run out of it.
    if target() == Target::Kafka {
        return;
    }
    let broker = Broker::start(&[("corelane.cores", "1")]);
    assert_serves(&broker);
    let before = broker.memory_bytes_most();
    // Each is answered by closing once it is whole, since nobody knows its API.
    let bytes = request(999, 0, 1, &vec![0; REQUEST_BYTES]);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| assert_closed(&mut send(&broker, &bytes)));
        }
    });
    let taken = broker.memory_bytes_most().saturating_sub(before);
    assert!(taken < 250 << 20, "{taken} bytes");
    assert_serves(&broker);
}

#[test]
fn requests_that_never_end_are_given_up_when_they_stand_in_the_way() {
    const CLIENTS: usize = 10;
    if target() == Target::Kafka {
        return;
    }
    let broker = Broker::start(&[("corelane.cores", "1")]);
    let before = broker.memory_bytes_most();
    let whole = frame(&vec![0; 90 << 20]);
    let part = &whole[..60 << 20];
    let streams: Vec<TcpStream> = std::thread::scope(|scope| {
        let sends: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| send(&broker, part))).collect();
        sends.into_iter().map(|sent| sent.join().expect("it sends")).collect()
    });
    // All of it was taken, so that some were closed: nobody sent the rest.
    assert_serves(&broker);
    let taken = broker.memory_bytes_most().saturating_sub(before);
    assert!(taken < 300 << 20, "{taken} bytes for {} clients", streams.len());
    broker.log_text().contains("does not send the rest").then_some(()).expect("it says so");
}

#[test]
fn answers_come_in_the_order_of_the_requests() {
    let broker = Broker::shared();
    let mut bytes = Vec::new();
    for correlation in 0..200 {
        let body = if correlation % 3 == 0 { vec![0, 0, 0, 0] } else { Vec::new() };
        let (api, version) = if body.is_empty() { (API_VERSIONS, 0) } else { (METADATA, 1) };
        bytes.extend(request(api, version, correlation, &body));
    }
    let mut stream = send(broker, &bytes);
    for correlation in 0..200 {
        answer(&mut stream, correlation).expect("in order");
    }
}

/// A topic exists once somebody asked for it and it is led.
fn make_topic(broker: &Broker, topic: &str) {
    broker.kafka(&format!("topics --create --topic {topic}")).ok();
}

fn produce(stream: &mut TcpStream, topic: &str, acks: i16, records: &[u8]) -> (i16, i64) {
    let bytes = request(PRODUCE, 8, 11, &produce_body(topic, acks, records));
    stream.write_all(&bytes).expect("the connection is open");
    let answered = answer(stream, 11).expect("an answer to Produce");
    produce_result(&answered, topic)
}

#[test]
fn batches_that_lie_are_refused_and_leave_nothing_behind() {
    let broker = Broker::shared();
    make_topic(broker, "bad-batches");
    let mut stream = broker.connect();
    let good = Batch::default();
    assert_eq!(produce(&mut stream, "bad-batches", 1, &good.encode()), (0, 0));
    let three = vec![b"a".to_vec(), b"b".to_vec(), b"c".to_vec()];
    let cut = |batch: &Batch, bytes: usize| {
        let mut encoded = batch.encode();
        encoded.truncate(encoded.len() - bytes);
        encoded
    };
    let twice = [good.encode(), good.encode()].concat();
    const CORRUPT: &[i16] = &[2];
    const INVALID: &[i16] = &[87];
    // Kafka's -1 is an exception that nobody caught there: a code with a meaning is better.
    const UNCAUGHT: &[i16] = &[-1, 87];
    let records_of = |attributes, bytes: &[u8]| {
        Batch { attributes, records: Some(bytes.to_vec()), ..good.clone() }.encode()
    };
    let with_count = |count| Batch { count: Some(count), ..good.clone() }.encode();
    let with_length = |length| Batch { length: Some(length), ..good.clone() }.encode();
    let too_low = Batch { values: three, count: Some(2), ..good.clone() };
    let too_far = Batch { last_offset_delta: Some(5), ..good.clone() };
    let too_large = Batch { values: vec![vec![0; 1_100_000]], ..good.clone() };
    let cases: Vec<(&str, Vec<u8>, &[i16])> = vec![
        ("a corrupt checksum", Batch { checksum_flip: 1, ..good.clone() }.encode(), CORRUPT),
        ("a count too high", with_count(5), INVALID),
        ("a count of 2 G", with_count(i32::MAX), INVALID),
        ("a negative count", with_count(-1), INVALID),
        ("a count of 0", with_count(0), INVALID),
        ("a count too low", too_low.encode(), INVALID),
        ("a last offset too far", too_far.encode(), INVALID),
        ("a length too long", with_length(1_000), INVALID),
        ("a length too short", with_length(20), CORRUPT),
        ("a negative length", with_length(-1), CORRUPT),
        ("a batch cut short", cut(&good, 3), INVALID),
        ("magic 3", Batch { magic: 3, ..good.clone() }.encode(), CORRUPT),
        ("no batch", Vec::new(), INVALID),
        ("two batches", twice, INVALID),
        ("a codec that is none", Batch { attributes: 7, ..good.clone() }.encode(), UNCAUGHT),
        ("gzip that is garbage", records_of(1, &[7; 50]), UNCAUGHT),
        ("snappy that is garbage", records_of(2, &[7; 50]), UNCAUGHT),
        ("lz4 that is garbage", records_of(3, &[7; 50]), UNCAUGHT),
        ("zstd that is garbage", records_of(4, &[7; 50]), UNCAUGHT),
        ("records that are garbage", records_of(0, &[0xff; 50]), UNCAUGHT),
        ("a control batch", Batch { attributes: 1 << 5, ..good.clone() }.encode(), INVALID),
        ("too large", too_large.encode(), &[10]),
    ];
    let mut differences = Vec::new();
    for (name, records, expected) in cases {
        stream = broker.connect();
        let (code, offset) = produce(&mut stream, "bad-batches", 1, &records);
        if !expected.contains(&code) || offset != -1 {
            differences.push(format!("{name}: {code} at {offset} instead of {expected:?} at -1"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    stream = broker.connect();
    assert_eq!(produce(&mut stream, "bad-batches", 1, &good.encode()), (0, 1));
}

#[test]
fn what_the_broker_keeps_for_itself_is_not_written_by_clients() {
    const INVALID_TOPIC_EXCEPTION: i16 = 17;
    let broker = Broker::shared();
    // A commit makes the topic.
    make_topic(broker, "internal-source");
    broker.kafka_reads("console-producer --topic internal-source", "a\n").ok();
    let consume = "console-consumer --group internal --topic internal-source --from-beginning";
    broker.kafka(&format!("{consume} --max-messages 1")).ok().prints("a");
    let (mut stream, records) = (broker.connect(), Batch::default().encode());
    for acks in [1, -1] {
        let answered = produce(&mut stream, "__consumer_offsets", acks, &records);
        assert_eq!(answered, (INVALID_TOPIC_EXCEPTION, -1));
    }
    assert_serves(broker);
}

#[test]
fn acks_that_cannot_be() {
    let broker = Broker::shared();
    make_topic(broker, "bad-acks");
    let good = Batch::default().encode();
    let mut stream = broker.connect();
    assert_eq!(produce(&mut stream, "bad-acks", 5, &good), (21, -1));
    assert_eq!(produce(&mut stream, "bad-acks", -1, &good), (0, 0));
    // Without acks there is no answer, so an error can only be shown by closing.
    let corrupt = Batch { checksum_flip: 1, ..Batch::default() }.encode();
    let body = produce_body("bad-acks", 0, &corrupt);
    assert_closed(&mut send(broker, &request(PRODUCE, 8, 1, &body)));
    let body = produce_body("bad-acks", 0, &good);
    let mut stream = send(broker, &request(PRODUCE, 8, 1, &body));
    api_versions(&mut stream).expect("a good batch without acks has no answer of its own");
}

#[test]
fn fetching_beyond_the_end_is_out_of_range() {
    let broker = Broker::shared();
    make_topic(broker, "bad-offsets");
    produce(&mut broker.connect(), "bad-offsets", 1, &Batch::default().encode());
    let fetch = |offset: i64| {
        let mut body = Bytes::default();
        body.i32(-1).i32(100).i32(1).i32(1 << 20).i8(0);
        body.i32(1).string("bad-offsets").i32(1).i32(0).i64(offset).i64(-1).i32(1 << 20);
        let mut stream = send(broker, &request(FETCH, 5, 9, &body.0));
        let answered = answer(&mut stream, 9).expect("an answer to Fetch");
        let mut rest = Rest(&answered[4 + 4 + 2 + "bad-offsets".len() + 4 + 4..]);
        // The error code, high watermark, last stable offset and log start offset.
        (rest.i16(), rest.i64(), rest.i64(), rest.i64())
    };
    assert_eq!(fetch(0), (0, 1, 1, 0));
    assert_eq!(fetch(1), (0, 1, 1, 0));
    for offset in [2, -5, i64::MAX] {
        assert_eq!(fetch(offset), (1, -1, -1, -1), "{offset}");
    }
}

#[test]
fn topics_and_partitions_that_are_not_there() {
    let broker = Broker::shared();
    make_topic(broker, "bad-names");
    let good = Batch::default().encode();
    let mut stream = broker.connect();
    assert_eq!(produce(&mut stream, "bad-nowhere", 1, &good), (3, -1));
    assert_eq!(produce(&mut stream, "not/valid", 1, &good), (3, -1));
    let mut body = Bytes::default();
    body.i16(-1).i16(1).i32(10_000).i32(1).string("bad-names").i32(1).i32(99).bytes(&good);
    stream.write_all(&request(PRODUCE, 8, 11, &body.0)).expect("the connection is open");
    let answered = answer(&mut stream, 11).expect("an answer to Produce");
    assert_eq!(produce_result(&answered, "bad-names"), (3, -1));

    // Fetch version 13 names topics by their ids: this one is nobody's.
    let mut body = Bytes::default();
    body.i32(-1).i32(100).i32(1).i32(1 << 20).i8(0).i32(0).i32(-1);
    body.i8(2).raw(&[0x5a; 16]).i8(2);
    body.i32(0).i32(-1).i64(0).i32(-1).i64(-1).i32(1 << 20).raw(&[0, 0]);
    body.i8(1).i8(1).i8(0);
    stream.write_all(&wire::flexible_request(FETCH, 13, 12, &body.0)).expect("it is open");
    let answered = answer(&mut stream, 12).expect("an answer to Fetch");
    let at = 1 + 4 + 2 + 4 + 1 + 16 + 1 + 4;
    assert_eq!(answered.get(at..at + 2), Some(&100_i16.to_be_bytes()[..]), "{answered:?}");
}

#[test]
fn a_compressed_bomb_takes_little_memory() {
    /// What the record claims to hold: zeros, a thousandth of it when compressed.
    const VALUE_BYTES: usize = 800 << 20;
    let broker = Broker::start(&[]);
    make_topic(&broker, "bomb");
    let before = broker.memory_bytes_most();
    let mut records = GzEncoder::new(Vec::new(), Compression::best());
    let mut head = Bytes::default();
    let value_bytes = i32::try_from(VALUE_BYTES).expect("less than 2 GB");
    head.i8(0).varint(0).varint(0).varint(-1).varint(value_bytes);
    let mut length = Bytes::default();
    let all = head.0.len() + VALUE_BYTES + 1;
    length.varint(i32::try_from(all).expect("less than 2 GB")).raw(&head.0);
    records.write_all(&length.0).expect("memory takes it");
    let zeros = vec![0; 1 << 20];
    for _ in 0..VALUE_BYTES / zeros.len() {
        records.write_all(&zeros).expect("memory takes it");
    }
    let records = records.write_all(&[0]).and_then(|()| records.finish()).expect("it ends");
    let bomb = Batch { attributes: 1, records: Some(records), ..Batch::default() }.encode();
    let (code, _) = produce(&mut broker.connect(), "bomb", 1, &bomb);
    assert!([0, 10, 87].contains(&code), "{code}");
    if target() == Target::Corelane {
        // What is accepted can be searched. (Kafka unpacks the record whole, and has no memory.)
        let time = Batch::default().timestamp;
        let mut body = Bytes::default();
        body.i32(-1).i32(1).string("bomb").i32(1).i32(0).i64(time);
        let mut stream = send(&broker, &request(LIST_OFFSETS, 1, 9, &body.0));
        let answered = answer(&mut stream, 9).expect("an answer to ListOffsets");
        let mut rest = Rest(&answered[4 + 2 + "bomb".len() + 4 + 4..]);
        assert_eq!((rest.i16(), rest.i64(), rest.i64()), (0, time, 0));
        let taken = broker.memory_bytes_most().saturating_sub(before);
        assert!(taken < 64 << 20, "{taken} bytes for {} bytes", bomb.len());
    }
    assert_serves(&broker);
}

#[test]
fn a_client_that_never_reads_is_held_back() {
    /// More than every buffer between the two, less than what would be taken without a limit.
    const BYTES_MAX: usize = 256 << 20;
    let broker = Broker::shared();
    make_topic(broker, "never-read");
    let value = vec![b'x'; 900_000];
    let batch = Batch { values: vec![value], ..Batch::default() };
    assert_eq!(produce(&mut broker.connect(), "never-read", 1, &batch.encode()).0, 0);
    let mut body = Bytes::default();
    body.i32(-1).i32(100).i32(1).i32(10 << 20).i8(0);
    body.i32(1).string("never-read").i32(1).i32(0).i64(0).i32(10 << 20);
    // Each request is large besides, so that the broker would have to keep what it doesn't answer.
    let mut filled = request(FETCH, 4, 9, &body.0);
    filled.extend(request(METADATA, 1, 9, &metadata_of_many(2_000)));
    let before = broker.memory_bytes();
    let mut stream = broker.connect();
    stream.set_write_timeout(Some(Duration::from_secs(3))).expect("a limit is set");
    let mut sent = 0;
    let blocked = loop {
        match stream.write(&filled) {
            Ok(count) => sent += count,
            Err(error) => break error.kind(),
        }
        assert!(sent < BYTES_MAX, "{sent} bytes were taken and none was held back");
    };
    let held = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
    let closed = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    assert!(held.contains(&blocked) || closed.contains(&blocked), "{blocked}");
    let taken = broker.memory_bytes().saturating_sub(before);
    assert!(taken < 256 << 20, "{taken} bytes for a client that doesn't read");
    assert_serves(broker);
}

/// Metadata version 1 for topics whose names cannot be, so that none is created.
fn metadata_of_many(count: i32) -> Vec<u8> {
    let mut body = Bytes::default();
    body.i32(count);
    for index in 0..count {
        body.string(&format!("no/{index}"));
    }
    body.0
}

#[test]
fn ten_thousand_idle_connections_cost_little() {
    const CONNECTIONS: usize = 10_000;
    const BYTES_PER_CONNECTION_MAX: u64 = 8 * 1024;
    blackbox::allow_open_files(CONNECTIONS + 1_000);
    let broker = Broker::start(&[]);
    assert_serves(&broker);
    let before = broker.memory_bytes();
    let mut streams = Vec::new();
    for index in 0..CONNECTIONS {
        let mut stream = broker.connect();
        // An answer to each is the event that says that the broker took it.
        api_versions(&mut stream).unwrap_or_else(|error| panic!("connection {index}: {error}"));
        streams.push(stream);
    }
    let taken = broker.memory_bytes().saturating_sub(before);
    let limit = CONNECTIONS as u64 * BYTES_PER_CONNECTION_MAX;
    if target() == Target::Corelane {
        assert!(taken <= limit, "{taken} bytes instead of {limit}");
    }
    make_topic(&broker, "beside-idle");
    for stream in streams.iter_mut().step_by(97) {
        api_versions(stream).expect("an idle connection is still served");
    }
    wire::api_versions(&mut broker.connect()).expect("and so is a new one");
}
