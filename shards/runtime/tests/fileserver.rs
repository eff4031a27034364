//! Slices of files sent to real sockets: cached and cold, plain and through a transform.

#![allow(clippy::disallowed_methods)] // A test is the world around the machines.

mod world;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;

use api::{CloseReason, Event, FileRef, FileSlice, Part, SocketEffect};
use bytes::{Bytes, BytesMut};
use runtime::{BadTransport, Node, Settings, Transform, TransportChoice};
use world::{PATIENCE, listener, machine, next, start, stop, told};

const FILE_BYTES: usize = 24 << 20;

/// Flips every bit, and frames what it sends: one byte of a mark before each piece.
struct Flip;

const MARK: u8 = 0xA5;

impl Transform for Flip {
    fn seal(&mut self, plain: &[u8]) -> Bytes {
        let mut sealed = BytesMut::with_capacity(plain.len() + 5);
        sealed.extend_from_slice(&[MARK]);
        sealed.extend_from_slice(&(plain.len() as u32).to_be_bytes());
        sealed.extend(plain.iter().map(|byte| !byte));
        sealed.freeze()
    }

    fn open(&mut self, received: Bytes) -> Result<Bytes, BadTransport> {
        if received.contains(&0) {
            return Err(BadTransport("a zero arrived".to_owned()));
        }
        Ok(received.iter().map(|byte| !byte).collect())
    }
}

/// What the client of a flipping server reads as plain bytes.
struct Unflip {
    stream: TcpStream,
    left: usize,
}

impl Read for Unflip {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            let mut header = [0; 5];
            self.stream.read_exact(&mut header)?;
            assert_eq!(header[0], MARK);
            let length = u32::from_be_bytes(header[1..].try_into().expect("four bytes"));
            self.left = length as usize;
        }
        let room = buffer.len().min(self.left);
        let count = self.stream.read(&mut buffer[..room])?;
        for byte in &mut buffer[..count] {
            *byte = !*byte;
        }
        self.left -= count;
        Ok(count)
    }
}

fn content() -> Vec<u8> {
    (0..FILE_BYTES).map(|n| ((n * 7) ^ (n >> 9) ^ (n >> 17)) as u8).collect()
}

/// A request is a byte: answered by a header that repeats it, and two slices of the file with
/// something in between.
fn answer(request: u8, file: &FileRef) -> Vec<Part> {
    let (first, second) = ranges(request);
    let slice = |(position, length): (usize, usize)| {
        Part::File(FileSlice {
            file: file.clone(),
            position: position as u64,
            length: length as u32,
        })
    };
    vec![
        Part::Bytes(Bytes::from(vec![request])),
        slice(first),
        Part::Bytes(Bytes::from_static(b"between")),
        Part::Bytes(Bytes::new()),
        slice(second),
        slice((0, 0)),
    ]
}

fn ranges(request: u8) -> ((usize, usize), (usize, usize)) {
    let n = usize::from(request);
    ((n * 1_111, 1 + n * 20_021), (FILE_BYTES - 1 - n * 3_001, n * 3_001))
}

fn server(path: &Path, transport: TransportChoice) -> (Node, SocketAddr, Receiver<Event<u64>>) {
    let (mut listen, address) = listener(2);
    let file = FileRef::new(path);
    let (tell, events) = told();
    let serve = {
        move |event: &Event<u64>, effects: &mut api::Effects<u64>| {
            if let Event::Received { socket, bytes } = event {
                for request in bytes {
                    let parts = answer(*request, &file);
                    effects.socket(SocketEffect::Send { socket: *socket, parts });
                }
            }
        }
    };
    let serve_too = serve.clone();
    let tell_too = tell.clone();
    let first = machine(move |now, event, effects| {
        serve(&event, effects);
        match event {
            Event::Sent { .. } | Event::Closed { .. } => drop(tell.send(event)),
            event => listen(now, event, effects),
        }
    });
    let second = machine(move |_, event, effects| {
        serve_too(&event, effects);
        if let Event::Sent { .. } | Event::Closed { .. } = event {
            drop(tell_too.send(event));
        }
    });
    let settings = Settings { transport, ..Settings::default() };
    let node = start(vec![vec![first], vec![second]], settings);
    let address = next(&address);
    (node, address, events)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

fn expect_answer(stream: &mut impl Read, request: u8, content: &[u8]) -> usize {
    let ((a, a_length), (b, b_length)) = ranges(request);
    let mut expected = vec![request];
    expected.extend_from_slice(&content[a..a + a_length]);
    expected.extend_from_slice(b"between");
    expected.extend_from_slice(&content[b..b + b_length]);
    let mut received = vec![0; expected.len()];
    stream.read_exact(&mut received).expect("reads");
    assert!(received == expected, "the answer to {request} differs");
    expected.len()
}

fn forget(path: &Path) {
    let mut dd = Command::new("dd");
    dd.arg(format!("of={}", path.display())).args(["oflag=nocache", "conv=notrunc,fdatasync"]);
    dd.args(["count=0", "status=none"]);
    assert!(dd.status().expect("dd runs").success());
}

/// Asks from many connections at once, some of which read slowly, with requests in a row.
fn check(transport: TransportChoice, flips: bool) -> Node {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = folder.path().join("a.log");
    let content = content();
    std::fs::write(&path, &content).expect("writes");
    forget(&path);
    let (node, address, events) = server(&path, transport);
    let sent: usize = thread::scope(|scope| {
        let clients: Vec<_> = (0..8_u8)
            .map(|client| {
                let content = &content;
                scope.spawn(move || {
                    let mut stream = connect(address);
                    let count = if flips { 5 } else { 20 };
                    let requests: Vec<u8> = (1..=count).map(|n| n * 5 + client).collect();
                    let sent: Vec<u8> =
                        requests.iter().map(|n| if flips { !n } else { *n }).collect();
                    stream.write_all(&sent).expect("writes");
                    if client % 4 == 0 {
                        // The server's side fills up first.
                        thread::sleep(std::time::Duration::from_millis(100));
                    }
                    let mut reader: Box<dyn Read> =
                        if flips { Box::new(Unflip { stream, left: 0 }) } else { Box::new(stream) };
                    requests.iter().map(|n| expect_answer(&mut reader, *n, content)).sum::<usize>()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("no panic")).sum()
    });
    let (mut told, mut closed) = (0, 0);
    while closed < 8 {
        match next(&events) {
            Event::Sent { bytes, .. } => told += bytes,
            Event::Closed { .. } => closed += 1,
            other => panic!("unexpected {other:?}"),
        }
    }
    assert_eq!(told, sent as u64, "what was told as sent is what the machines sent");
    node
}

fn counted(node: &Node, what: impl Fn(&runtime::CountersSnapshot) -> u64) -> u64 {
    node.counters().iter().map(|(_, counters)| what(counters)).sum()
}

#[test]
fn slices_go_from_the_page_cache_to_the_socket_and_cold_ones_are_warmed_first() {
    let node = check(TransportChoice::Plain, false);
    assert!(counted(&node, |counters| counters.cold_ranges) > 0);
    assert!(counted(&node, |counters| counters.sent_file_bytes) > 100_000_000);
    stop(node);
}

#[test]
fn the_same_answers_come_through_a_transforming_transport() {
    let factory = Arc::new(|listener| {
        assert_eq!(listener, 3);
        Some(Box::new(Flip) as Box<dyn Transform>)
    });
    let node = check(TransportChoice::ByListener(factory), true);
    assert!(counted(&node, |counters| counters.cold_ranges) > 0);
    assert_eq!(counted(&node, |counters| counters.sent_file_bytes), 0);
    stop(node);
}

#[test]
fn what_cannot_be_opened_closes_the_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let factory = Arc::new(|_| Some(Box::new(Flip) as Box<dyn Transform>));
    let (node, address, events) =
        server(&folder.path().join("f"), TransportChoice::ByListener(factory));
    let mut stream = connect(address);
    stream.write_all(&[0]).expect("writes");
    match next(&events) {
        Event::Closed { reason: CloseReason::Failed(error), .. } => {
            assert_eq!(error.cause, "a zero arrived");
        }
        other => panic!("unexpected {other:?}"),
    }
    stop(node);
}

#[test]
fn a_slice_of_a_file_that_is_gone_or_too_short_closes_the_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.log");
    let (node, address, events) = server(&path, TransportChoice::Plain);
    for short in [false, true] {
        if short {
            std::fs::write(&path, vec![1; 60_000]).expect("writes");
        }
        let mut stream = connect(address);
        stream.write_all(&[10]).expect("writes");
        let mut received = Vec::new();
        stream.read_to_end(&mut received).expect("an end in order");
        assert!(received.len() <= 1 + 60_000);
        let reason = loop {
            match next(&events) {
                Event::Closed { reason, .. } => break reason,
                Event::Sent { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        };
        assert!(matches!(reason, CloseReason::Failed(_)), "{reason:?}");
    }
    stop(node);
}
