//! The generator against the bare program, from the first request to the last figure.
#![allow(clippy::disallowed_methods, reason = "a test listens, and runs a server on a thread")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use bench::{
    BatchShape, Client, Fetch, FetchFrom, FetchShape, Load, OffsetUnit, Pace, Plan, Produce, bare,
};

const SMALL: BatchShape = BatchShape { batch_bytes: 0, record_bytes: 100, keyed: false, acks: 1 };

/// The bare program on a thread of the test. It ends with the test's process.
fn bare_program() -> (SocketAddr, tempfile::TempDir) {
    let folder = tempfile::TempDir::with_prefix("bench-").expect("a folder");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let path = folder.path().to_path_buf();
    thread::spawn(move || bare::serve_on(&listener, &path));
    (address, folder)
}

fn plan(connections: usize, depth: usize, pace: Pace, milliseconds: u64) -> Plan {
    let duration = Duration::from_millis(milliseconds);
    Plan { connections, depth, pace, duration, requests_max: u64::MAX }
}

#[test]
fn a_paced_load_sends_what_was_meant_and_times_every_answer() {
    let (address, _folder) = bare_program();
    let mut client = Client::connect(address).expect("connects");
    let topic = client.create_topic("paced", 3, &[]).expect("is made");
    let shape = BatchShape { batch_bytes: 16 << 10, record_bytes: 1_000, ..SMALL };
    let work = Produce::new(&client, &topic, &shape, 3).expect("frames");
    let payload = work.payload_bytes() as u64;
    let mut load = Load::connect(address, 3, work).expect("connects");
    for _ in 0..2 {
        let outcome = load.run(plan(3, 5, Pace::Rate(500.0), 400)).expect("is answered");
        assert_eq!((outcome.requests, outcome.unsent), (200, 0));
        assert_eq!(outcome.bytes, 200 * payload);
        assert_eq!(outcome.records, 200 * 16);
        assert_eq!(outcome.latencies.count(), 200);
        assert!(outcome.elapsed >= Duration::from_millis(398), "{:?}", outcome.elapsed);
    }
}

#[test]
fn a_saturating_load_keeps_to_its_limits() {
    let (address, _folder) = bare_program();
    let mut client = Client::connect(address).expect("connects");
    let topic = client.create_topic("saturated", 6, &[]).expect("is made");
    let shape = BatchShape { keyed: true, ..SMALL };
    let work = Produce::new(&client, &topic, &shape, 50).expect("frames");
    let mut load = Load::connect(address, 50, work).expect("connects");
    let outcome = load.run(plan(50, 1, Pace::Saturate, 300)).expect("is answered");
    assert!(outcome.requests > 100, "{outcome:?}");
    assert_eq!(outcome.records, outcome.requests * 6);
    let mut few = plan(50, 4, Pace::Saturate, 10_000);
    few.requests_max = 1_234;
    assert_eq!(load.run(few).expect("is answered").requests, 1_234);
}

#[test]
fn nothing_is_awaited_where_no_answer_is_asked_for() {
    let (address, _folder) = bare_program();
    let mut client = Client::connect(address).expect("connects");
    let topic = client.create_topic("unanswered", 1, &[]).expect("is made");
    let shape = BatchShape { acks: 0, ..SMALL };
    let work = Produce::new(&client, &topic, &shape, 2).expect("frames");
    let mut load = Load::connect(address, 2, work).expect("connects");
    let outcome = load.run(plan(2, 5, Pace::Saturate, 200)).expect("is sent");
    assert!(outcome.requests > 100, "{outcome:?}");
    assert_eq!(outcome.latencies.count(), 0);
    assert_eq!(load.run(plan(2, 5, Pace::Rate(1_000.0), 100)).expect("is sent").requests, 100);
}

#[test]
fn fetching_goes_in_circles_through_a_file() {
    let (address, _folder) = bare_program();
    let mut client = Client::connect(address).expect("connects");
    let topic = client.create_topic("fetched", 1, &[]).expect("is made");
    let shape = FetchShape {
        bytes_max: 1 << 20,
        wait_max: Duration::from_millis(500),
        from: FetchFrom::StartInCircles,
        unit: OffsetUnit::Bytes,
    };
    let work = Fetch::new(&mut client, &topic, shape, 2).expect("offsets");
    let mut load = Load::connect(address, 2, work).expect("connects");
    let mut few = plan(2, 1, Pace::Saturate, 10_000);
    few.requests_max = 600;
    let outcome = load.run(few).expect("is answered");
    assert_eq!((outcome.requests, outcome.bytes), (600, 600 << 20));
}

#[test]
fn a_server_that_is_too_slow_is_charged_for_what_it_keeps_waiting() {
    use std::io::{Read, Write};
    // It answers each request 20 ms late, one after the other: 50 a second where 100 are meant.
    let (address, _folder) = bare_program();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let slow = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("the load connects");
        let mut server = std::net::TcpStream::connect(address).expect("connects");
        let mut length = [0; 4];
        while client.read_exact(&mut length).is_ok() {
            let mut frame = vec![0; u32::from_be_bytes(length) as usize];
            client.read_exact(&mut frame).expect("a whole frame");
            server.write_all(&[&length[..], &frame].concat()).expect("passes on");
            server.read_exact(&mut length).expect("an answer");
            let mut frame = vec![0; u32::from_be_bytes(length) as usize];
            server.read_exact(&mut frame).expect("an answer");
            thread::sleep(Duration::from_millis(20));
            client.write_all(&[&length[..], &frame].concat()).expect("passes back");
        }
    });
    let mut client = Client::connect(address).expect("connects");
    let topic = client.create_topic("slow", 1, &[]).expect("is made");
    let work = Produce::new(&client, &topic, &SMALL, 1).expect("frames");
    let mut load = Load::connect(slow, 1, work).expect("connects");
    let outcome = load.run(plan(1, 1, Pace::Rate(100.0), 500)).expect("is answered");
    assert_eq!(outcome.requests, 50);
    // The last one was meant for 490 ms and answered after a second at least.
    assert!(outcome.latencies.percentile_ms(100.0) > 500.0);
    assert!(outcome.latencies.percentile_ms(50.0) > 200.0);
}
