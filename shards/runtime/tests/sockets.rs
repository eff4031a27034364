//! What a socket does besides echoing: ends of every kind, pauses, slow and silent peers, limits.

#![allow(clippy::disallowed_methods)] // A test is the world around the machines.

mod world;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use api::{CloseReason, Effects, Event, IoErrorKind, Part, SocketEffect, SocketId, Token};
use bytes::Bytes;
use runtime::{Node, Settings};
use world::{LISTENER, PATIENCE, listener, machine, next, start, stop, told};

/// A node of one machine that listens, tells the test what happens to its sockets, and does what
/// `react` adds.
fn node(
    settings: Settings,
    mut react: impl FnMut(&Event<u64>, &mut Effects<u64>) + Send + 'static,
) -> (Node, SocketAddr, Receiver<Event<u64>>) {
    let (mut listen, address) = listener(1);
    let (tell, events) = told();
    let script = machine(move |now, event, effects| {
        react(&event, effects);
        match event {
            Event::Opened { .. }
            | Event::Received { .. }
            | Event::Sent { .. }
            | Event::Closed { .. }
            | Event::Connected { .. } => {
                // A test that has seen enough listens no more.
                let _ = tell.send(event);
            }
            event => listen(now, event, effects),
        }
    });
    let node = start(vec![vec![script]], settings);
    let address = next(&address);
    (node, address, events)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Makes the end of `stream` a reset.
fn reset(stream: TcpStream, address: SocketAddr) {
    // Closing with unread bytes makes the kernel send a reset.
    let mut one = [0];
    stream.peek(&mut one).expect("something unread");
    assert_eq!(stream.peer_addr().expect("a peer"), address);
    drop(stream);
}

fn opened(events: &Receiver<Event<u64>>) -> SocketId {
    match next(events) {
        Event::Opened { socket, listener: 3, .. } => socket,
        other => panic!("expected an opened socket, got {other:?}"),
    }
}

/// The reason of the end of `expected`, skipping what was received and sent before.
fn closed(events: &Receiver<Event<u64>>, expected: SocketId) -> CloseReason {
    loop {
        match next(events) {
            Event::Closed { socket, reason } => {
                assert_eq!(socket, expected);
                return reason;
            }
            Event::Received { .. } | Event::Sent { .. } => {}
            other => panic!("expected the end of a socket, got {other:?}"),
        }
    }
}

fn send(effects: &mut Effects<u64>, socket: SocketId, bytes: impl Into<Bytes>) {
    effects.socket(SocketEffect::Send { socket, parts: vec![Part::Bytes(bytes.into())] });
}

#[test]
fn the_end_of_a_stream_comes_after_its_bytes_and_once() {
    let (node, address, events) = node(Settings::default(), |_, _| {});
    for round in 0..50 {
        let mut stream = connect(address);
        let socket = opened(&events);
        let bytes = vec![7; 1 + round * 5_000];
        stream.write_all(&bytes).expect("writes");
        // Sometimes both are there at once, sometimes the end comes by itself.
        if round % 2 == 0 {
            thread::yield_now();
        }
        drop(stream);
        let mut received = 0;
        let reason = loop {
            match next(&events) {
                Event::Received { bytes, .. } => received += bytes.len(),
                Event::Closed { socket: ended, reason } => {
                    assert_eq!(ended, socket);
                    break reason;
                }
                other => panic!("unexpected {other:?}"),
            }
        };
        assert_eq!((received, reason), (bytes.len(), CloseReason::PeerClosed));
    }
    let counters = node.counters()[0].1;
    assert_eq!((counters.accepted, counters.closed), (50, 50));
    stop(node);
}

#[test]
fn a_reset_is_a_failure_also_while_reading_is_paused() {
    let (node, address, events) = node(Settings::default(), |event, effects| match event {
        Event::Opened { socket, .. } => send(effects, *socket, "unread"),
        Event::Received { socket, bytes } if bytes[..] == b"pause"[..] => {
            effects.socket(SocketEffect::PauseRead { socket: *socket });
        }
        _ => {}
    });
    for words in ["go on", "pause"] {
        let mut stream = connect(address);
        let socket = opened(&events);
        stream.write_all(words.as_bytes()).expect("writes");
        while !matches!(next(&events), Event::Received { .. }) {}
        reset(stream, address);
        match closed(&events, socket) {
            CloseReason::Failed(error) => assert_eq!(error.kind, IoErrorKind::Connection),
            other => panic!("closed for {other:?}"),
        }
    }
    stop(node);
}

#[test]
fn closing_with_flush_sends_everything_first_and_without_ends_at_once() {
    const BYTES: usize = 20 << 20;
    let (node, address, events) = node(Settings::default(), |event, effects| {
        if let Event::Received { socket, bytes } = event {
            send(effects, *socket, vec![5; BYTES]);
            let flush = bytes[0] == b'f';
            effects.socket(SocketEffect::Close { socket: *socket, flush });
            // Both are no-ops now.
            send(effects, *socket, "more");
            effects.socket(SocketEffect::Close { socket: *socket, flush: true });
        }
    });
    for word in ["flush", "now"] {
        let mut stream = connect(address);
        let socket = opened(&events);
        stream.write_all(word.as_bytes()).expect("writes");
        let mut received = Vec::new();
        let end = stream.read_to_end(&mut received);
        if word == "flush" {
            end.expect("an end in order");
            assert_eq!(received.len(), BYTES);
            assert!(received.iter().all(|byte| *byte == 5));
        } else {
            assert!(received.len() < BYTES);
        }
        assert_eq!(closed(&events, socket), CloseReason::Asked);
    }
    stop(node);
}

#[test]
fn a_client_that_never_reads_stalls_nobody_and_what_was_sent_is_told() {
    let (node, address, events) = node(Settings::default(), |event, effects| match event {
        Event::Received { socket, bytes } if bytes[0] == b'!' => {
            for _ in 0..64 {
                send(effects, *socket, vec![9; 1 << 20]);
            }
        }
        event => world::echo(event, effects),
    });
    let mut silent = connect(address);
    let socket = opened(&events);
    silent.write_all(b"!").expect("writes");
    while !matches!(next(&events), Event::Sent { .. }) {}
    // Another client is served meanwhile.
    let mut other = connect(address);
    for _ in 0..100 {
        other.write_all(b"hello").expect("writes");
        let mut back = [0; 5];
        other.read_exact(&mut back).expect("reads");
    }
    drop(other);
    let turns_before = node.counters()[0].1.turns;
    thread::sleep(Duration::from_millis(200));
    let turns = node.counters()[0].1.turns - turns_before;
    assert!(turns < 20, "{turns} turns in which nothing could be done");
    // In the end it reads after all, and gets everything.
    let mut received = vec![0; 64 << 20];
    silent.read_exact(&mut received).expect("reads");
    assert!(received.iter().all(|byte| *byte == 9));
    drop(silent);
    let mut sent_bytes = 0;
    loop {
        match next(&events) {
            Event::Sent { socket: on, bytes } if on == socket => sent_bytes += bytes,
            Event::Closed { socket: ended, .. } if ended == socket => break,
            _ => {}
        }
    }
    // The first of them was taken from the list above.
    assert!(sent_bytes > 60 << 20 && sent_bytes < 64 << 20, "{sent_bytes} bytes told");
    stop(node);
}

#[test]
fn a_paused_connection_is_not_read_until_it_is_resumed() {
    let (mut paused, (resume_now, resume)) = (None, told::<()>());
    let (node, address, events) = node(Settings::default(), move |event, effects| match event {
        Event::Opened { socket, .. } if paused.is_none() => {
            paused = Some(*socket);
            effects.socket(SocketEffect::PauseRead { socket: *socket });
        }
        // The second connection tells when.
        Event::Opened { .. } => {
            resume.recv_timeout(PATIENCE).expect("the test says so");
            let socket = paused.expect("it came first");
            effects.socket(SocketEffect::ResumeRead { socket });
        }
        _ => {}
    });
    let mut stream = connect(address);
    let socket = opened(&events);
    stream.set_write_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    // It takes what the two kernels' buffers hold, and no more.
    let mut written = 0;
    let chunk = vec![1; 1 << 20];
    loop {
        match stream.write(&chunk) {
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("cannot write: {error}"),
        }
    }
    assert!(events.try_recv().is_err(), "a paused connection was read");
    let second = connect(address);
    resume_now.send(()).expect("the machine listens");
    opened(&events);
    stream.shutdown(Shutdown::Write).expect("shuts down");
    let mut received = 0;
    loop {
        match next(&events) {
            Event::Received { socket: on, bytes } => {
                assert_eq!(on, socket);
                received += bytes.len();
            }
            Event::Closed { socket: ended, reason } => {
                assert_eq!((ended, reason), (socket, CloseReason::PeerClosed));
                break;
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    assert_eq!(received, written);
    drop(second);
    stop(node);
}

#[test]
fn at_the_receive_budget_reading_waits_for_slices_to_come_back() {
    let settings = Settings {
        receive_chunk_bytes: 64 << 10,
        receive_bytes_max: 256 << 10,
        ..Settings::default()
    };
    let (mut held, mut held_bytes) = (Vec::new(), 0);
    let (tell, let_go) = told::<usize>();
    let (node, address, events) = node(settings, move |event, effects| match event {
        Event::Received { bytes, .. } => {
            held_bytes += bytes.len();
            held.push(bytes.clone());
            effects.push(api::Effect::WakeAt(api::Instant::ZERO + Duration::from_nanos(1)));
        }
        Event::WakeUp => {
            assert!(held_bytes <= (256 << 10) + (64 << 10), "{held_bytes} bytes are held");
            if held_bytes > 200 << 10 {
                held.clear();
                tell.send(std::mem::take(&mut held_bytes)).expect("the test counts");
            }
        }
        _ => {}
    });
    let writer = thread::spawn(move || {
        let mut stream = connect(address);
        stream.write_all(&vec![3; 4 << 20]).expect("writes");
        stream.shutdown(Shutdown::Write).expect("shuts down");
        let _ = stream.read(&mut [0]);
    });
    let mut received = 0;
    loop {
        match next(&events) {
            Event::Received { bytes, .. } => received += bytes.len(),
            Event::Closed { .. } => break,
            _ => {}
        }
    }
    assert_eq!(received, 4 << 20);
    writer.join().expect("no panic");
    assert!(let_go.try_iter().count() > 3);
    stop(node);
}

#[test]
fn connecting_reaches_a_listener_and_says_why_not() {
    let there = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = there.local_addr().expect("an address");
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = gone.local_addr().expect("an address");
    drop(gone);
    let tokens = (Token::from_bits(1), Token::from_bits(2));
    let (node, _, events) = node(Settings::default(), move |event, effects| match event {
        Event::Started => {
            effects.socket(SocketEffect::Connect { token: tokens.0, address });
            effects.socket(SocketEffect::Connect { token: tokens.1, address: nobody });
        }
        Event::Connected { result: Ok(socket), .. } => send(effects, *socket, "hello"),
        event => world::echo(event, effects),
    });
    let (mut accepted, _) = there.accept().expect("accepts");
    let mut word = [0; 5];
    accepted.read_exact(&mut word).expect("reads");
    assert_eq!(&word, b"hello");
    accepted.write_all(b"world").expect("writes");
    accepted.read_exact(&mut word).expect("reads");
    assert_eq!(&word, b"world");
    let mut results = [None, None];
    while results.iter().any(Option::is_none) {
        if let Event::Connected { token, result } = next(&events) {
            results[usize::from(token == tokens.1)] = Some(result.map(drop));
        }
    }
    assert_eq!(results[0], Some(Ok(())));
    let refused = results[1].take().expect("there").expect_err("nobody listens");
    assert_eq!(refused.kind, IoErrorKind::Refused);
    assert!(refused.to_string().contains(&nobody.to_string()), "{refused}");
    stop(node);
}

#[test]
fn a_port_in_use_is_said_and_a_listener_that_stopped_refuses() {
    let (tell, heard) = told();
    let script = machine(move |_, event, effects| match event {
        Event::Started => effects.socket(SocketEffect::Listen {
            token: LISTENER,
            address: "127.0.0.1:0".parse().expect("an address"),
            backlog: 10,
        }),
        Event::Listening { token: LISTENER, result } => {
            let address = result.expect("a free port");
            let token = Token::from_bits(9);
            effects.socket(SocketEffect::Listen { token, address, backlog: 10 });
            tell.send(Ok(address)).expect("the test listens");
        }
        Event::Listening { result, .. } => {
            effects.socket(SocketEffect::StopListening { token: LISTENER });
            tell.send(result).expect("the test listens");
        }
        _ => {}
    });
    let node = start(vec![vec![script]], Settings::default());
    let address = next(&heard).expect("listens");
    let error = next(&heard).expect_err("the port is in use");
    assert_eq!(error.kind, IoErrorKind::AddressInUse);
    let deadline = std::time::Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_ok() {
        assert!(std::time::Instant::now() < deadline, "it still accepts");
        thread::yield_now();
    }
    stop(node);
}

#[test]
fn a_machine_has_no_more_connections_than_its_limit() {
    let settings = Settings { connections_max: 3, ..Settings::default() };
    let (node, address, events) = node(settings, world::echo);
    let streams: Vec<TcpStream> = (0..3).map(|_| connect(address)).collect();
    for _ in &streams {
        opened(&events);
    }
    let mut fourth = connect(address);
    assert_eq!(fourth.read(&mut [0]).expect("an end"), 0);
    drop(streams);
    for _ in 0..3 {
        while !matches!(next(&events), Event::Closed { .. }) {}
    }
    let mut fifth = connect(address);
    fifth.write_all(b"x").expect("writes");
    fifth.read_exact(&mut [0]).expect("served");
    stop(node);
}

/// What the process with few descriptors says before the address it listens at.
const LISTENS_AT: &str = "listens at ";

#[test]
fn without_descriptors_accepting_pauses_and_goes_on_later() {
    // The node has a process of its own, since the limit is the process's, and since descriptors
    // of clients would count, too.
    let mut child = std::process::Command::new("sh")
        .args(["-c", "ulimit -n 100 && exec \"$0\" --exact few_descriptors --ignored --nocapture"])
        .arg(std::env::current_exe().expect("a path"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("sh runs");
    let mut said = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let address: SocketAddr = said
        .find_map(|line| Some(line.expect("text").split_once(LISTENS_AT)?.1.parse()))
        .expect("it says where it listens")
        .expect("an address");
    let mut first = connect(address);
    assert_served(&mut first);
    // More than 100 cannot be served at once, with what the process has open itself; some can.
    let mut streams: Vec<TcpStream> = (0..160).map(|_| connect(address)).collect();
    streams[..20].iter_mut().for_each(assert_served);
    drop(streams.drain(..140));
    // Clients are accepted in their order: none of these was before.
    streams.iter_mut().for_each(assert_served);
    assert_served(&mut first);
    drop(child.stdin.take());
    said.for_each(drop);
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{status}");
}

fn assert_served(stream: &mut TcpStream) {
    stream.write_all(b"x").expect("writes");
    stream.read_exact(&mut [0]).expect("is served");
}

#[test]
#[ignore = "run with few descriptors by the test above"]
fn few_descriptors() {
    let (node, address, _events) = node(Settings::default(), world::echo);
    println!("{LISTENS_AT}{address}");
    // The test above closes the input when it has seen enough.
    std::io::stdin().read_to_end(&mut Vec::new()).expect("an end");
    assert!(node.counters()[0].1.accept_paused > 0, "it had enough descriptors");
    stop(node);
}
