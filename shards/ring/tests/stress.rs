//! The ring under stress: thousands of operations, cancelled at random, with buffers that must come
//! back whole, sockets that take little at a time, peers that reset.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use base::Random;
use bytes::{Bytes, BytesMut};
use ring::{
    Bell, Completion, Listener, OpenCount, OpenFile, Operation, OperationId, Ring, Socket, Wait,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for completions and gives them to `take` until it says that it has seen enough.
fn drive<U: Copy>(ring: &mut Ring<U>, mut take: impl FnMut(&mut Ring<U>, Completion<U>) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut list = Vec::new();
    loop {
        ring.enter(Wait::AtMost(Duration::from_millis(100))).expect("enters");
        ring.take_completions(&mut list, 64);
        for completion in list.drain(..) {
            if take(ring, completion) {
                return;
            }
        }
        assert!(Instant::now() < deadline, "{} operations are under way", ring.in_flight());
    }
}

fn file_on_disk(folder: &tempfile::TempDir, length: usize) -> Arc<OpenFile> {
    let path = folder.path().join("f");
    let file = OpenFile::open(&path, true, &OpenCount::default()).expect("opens");
    let content: Bytes = (0..length).map(byte_at).collect();
    file.write(&[content], 0).expect("writes");
    Arc::new(file)
}

fn byte_at(position: usize) -> u8 {
    ((position * 13) ^ (position >> 8)) as u8
}

#[test]
fn reads_of_every_length_return_their_buffers_with_the_right_bytes() {
    const LENGTH: usize = 1 << 20;
    const READS: usize = 2_000;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let file = file_on_disk(&folder, LENGTH);
    let mut ring: Ring<(usize, usize)> = Ring::new().expect("a ring");
    let mut random = Random::new(11);
    for _ in 0..READS {
        // Some reach past the end of the file, and are short.
        let position = random.below(LENGTH as u64 + 1000) as usize;
        let length = random.below(10_000) as usize;
        let mut buffer = BytesMut::with_capacity(length + 3);
        buffer.extend_from_slice(b"abc");
        let (file, position_there) = (Arc::clone(&file), position as u64);
        let length_there = length as u32;
        let operation =
            Operation::Read { file, buffer, position: position_there, length: length_there };
        ring.start(operation, (position, length));
    }
    let mut ended = 0;
    drive(&mut ring, |_, completion| {
        let (position, length) = completion.user;
        let buffer = completion.buffer.expect("a read gives its buffer back");
        let there = LENGTH.saturating_sub(position).min(length);
        assert_eq!(completion.result.expect("reads") as usize, there);
        assert_eq!((&buffer[..3], buffer.len()), (&b"abc"[..], there + 3));
        let right = |(n, byte): (usize, &u8)| *byte == byte_at(position + n);
        assert!(buffer[3..].iter().enumerate().all(right), "wrong bytes");
        ended += 1;
        ended == READS
    });
}

#[test]
fn reads_cancelled_at_random_keep_their_buffers_until_they_are_over() {
    const READS: usize = 1_000;
    const READ_BYTES: usize = 100;
    const ECANCELED: i32 = 125;
    const EINTR: i32 = 4;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pipe");
    // Reads of a pipe wait until something is written, so that there is something to cancel.
    assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo runs").success());
    let pipe = Arc::new(OpenFile::open(&path, false, &OpenCount::default()).expect("opens"));
    let mut ring: Ring<usize> = Ring::new().expect("a ring");
    let mut random = Random::new(5);
    let mut under_way = Vec::new();
    for n in 0..READS {
        let (file, buffer) = (Arc::clone(&pipe), BytesMut::with_capacity(READ_BYTES));
        let operation = Operation::Read { file, buffer, position: 0, length: READ_BYTES as u32 };
        under_way.push(ring.start(operation, n));
    }
    ring.enter(Wait::No).expect("enters");
    // Some are cancelled while the others are fed.
    let mut writer = std::fs::OpenOptions::new().write(true).open(&path).expect("opens");
    let mut seen = vec![false; READS];
    let (mut ended, mut cancelled) = (0, 0);
    while ended < READS {
        if let Some(last) = under_way.len().checked_sub(1) {
            let which = under_way.swap_remove(random.below(last as u64 + 1) as usize);
            if random.chance(50) {
                ring.cancel(which);
            }
        }
        // One read's worth at a time, so that the pipe never fills up and blocks this thread.
        if random.chance(60) {
            writer.write_all(&[7; READ_BYTES]).expect("writes");
        }
        ring.enter(Wait::AtMost(Duration::from_millis(1))).expect("enters");
        let mut list = Vec::new();
        ring.take_completions(&mut list, 64);
        for completion in list {
            let buffer = completion.buffer.expect("a read gives its buffer back");
            assert!(!std::mem::replace(&mut seen[completion.user], true), "it ended twice");
            assert!(buffer.iter().all(|byte| *byte == 7) && buffer.capacity() >= READ_BYTES);
            ended += 1;
            if let Err(error) = completion.result {
                // One that waited in the kernel's worker was interrupted.
                let code = error.raw_os_error();
                assert!(code == Some(ECANCELED) || code == Some(EINTR), "{error}");
                assert!(buffer.is_empty());
                cancelled += 1;
            }
        }
    }
    assert_eq!(ring.in_flight(), 0);
    assert!((READS / 10..READS * 9 / 10).contains(&cancelled), "{cancelled} were cancelled");
}

#[test]
fn a_ring_that_ends_waits_for_what_its_buffers_are_read_into() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let file = file_on_disk(&folder, 4 << 20);
    let bell = Arc::new(Bell::new().expect("a bell"));
    for round in 0..20 {
        let mut ring: Ring<u32> = Ring::new().expect("a ring");
        ring.start(Operation::WatchBell(Arc::clone(&bell)), 0);
        for n in 0..400_u64 {
            let buffer = BytesMut::with_capacity(64 << 10);
            let (file, position) = (Arc::clone(&file), n << 10);
            ring.start(Operation::Read { file, buffer, position, length: 64 << 10 }, 1);
        }
        ring.start(Operation::SyncData(Arc::clone(&file)), 2);
        if round % 2 == 0 {
            ring.enter(Wait::No).expect("enters");
        }
    }
    // Nothing holds the file any more: no operation was leaked.
    assert_eq!((Arc::strong_count(&file), Arc::strong_count(&bell)), (1, 1));
}

#[test]
fn a_ring_is_woken_by_another_and_by_a_bell() {
    let bell = Arc::new(Bell::new().expect("a bell"));
    let (tell, handles) = std::sync::mpsc::channel();
    let (woken, seen) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let watched = Arc::clone(&bell);
        scope.spawn(move || {
            let mut ring: Ring<()> = Ring::new().expect("a ring");
            ring.start(Operation::WatchBell(watched), ());
            tell.send(ring.handle()).expect("the test listens");
            let mut list = Vec::new();
            for _ in 0..200 {
                // A wake that came before the sleep ends it, too.
                ring.enter(Wait::AtMost(PATIENCE)).expect("enters");
                ring.take_completions(&mut list, 64);
                woken.send(list.drain(..).count()).expect("the test listens");
            }
        });
        let handle = handles.recv_timeout(PATIENCE).expect("a handle");
        let mut ring: Ring<()> = Ring::new().expect("a ring");
        for round in 0..200 {
            if round % 2 == 0 {
                ring.wake(&handle);
                ring.enter(Wait::No).expect("enters");
            } else {
                bell.ring();
            }
            let completions = seen.recv_timeout(PATIENCE).expect("is woken");
            assert_eq!(completions, round % 2, "a wake by a ring is no completion");
        }
        // The other ring is gone now: waking it is harmless.
        ring.wake(&handle);
        ring.enter(Wait::AtMost(Duration::from_millis(10))).expect("enters");
    });
}

/// What the server below knows of a connection.
struct Peer {
    socket: Arc<Socket>,
    watch: OperationId,
    /// Received and not sent back yet.
    pending: Vec<Bytes>,
    waits: bool,
}

#[derive(Clone, Copy)]
enum Purpose {
    Accept,
    Readable(usize),
    Writable(usize),
}

impl Peer {
    /// Receives all that is there; `false` at the end of the stream.
    fn receive(&mut self) -> std::io::Result<bool> {
        loop {
            let mut room = BytesMut::with_capacity(1 << 16);
            match self.socket.receive(&mut room) {
                Ok(0) => return Ok(false),
                Ok(_) => self.pending.push(room.freeze()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&mut self, ring: &mut Ring<Purpose>, index: usize) -> std::io::Result<()> {
        while !self.pending.is_empty() && !self.waits {
            match self.socket.send(self.pending.iter().map(|bytes| &bytes[..])) {
                Ok(mut taken) => self.pending.retain_mut(|bytes| {
                    let here = taken.min(bytes.len());
                    let _ = bytes.split_to(here);
                    taken -= here;
                    !bytes.is_empty()
                }),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let operation = Operation::AwaitWritable(Arc::clone(&self.socket));
                    ring.start(operation, Purpose::Writable(index));
                    self.waits = true;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Echoes to `count` connections until all have ended; returns how many failed.
fn serve(listener: Listener, count: usize) -> usize {
    let mut ring: Ring<Purpose> = Ring::new().expect("a ring");
    ring.start(Operation::Accept(Arc::new(listener)), Purpose::Accept);
    let mut peers: Vec<Option<Peer>> = Vec::new();
    let (mut ended, mut failed) = (0, 0);
    drive(&mut ring, |ring, completion| {
        let (index, result) = match completion.user {
            Purpose::Accept => {
                assert!(completion.more, "accepting goes on: {:?}", completion.result);
                let descriptor = completion.accepted.expect("a connection");
                let socket = Arc::new(Socket::accepted(descriptor).expect("a socket"));
                let operation = Operation::WatchReadable(Arc::clone(&socket));
                let watch = ring.start(operation, Purpose::Readable(peers.len()));
                peers.push(Some(Peer { socket, watch, pending: Vec::new(), waits: false }));
                return false;
            }
            Purpose::Readable(index) => {
                let Some(peer) = &mut peers[index] else { return false };
                assert!(completion.more, "watching goes on: {:?}", completion.result);
                (index, peer.receive())
            }
            Purpose::Writable(index) => {
                let Some(peer) = &mut peers[index] else { return false };
                peer.waits = false;
                (index, Ok(true))
            }
        };
        let peer = peers[index].as_mut().expect("looked at above");
        let result = result.and_then(|goes_on| peer.send(ring, index).map(|()| goes_on));
        if !matches!(result, Ok(true)) {
            ended += 1;
            failed += usize::from(result.is_err());
            ring.cancel(peer.watch);
            peers[index] = None;
        }
        ended == count
    });
    failed
}

#[test]
fn an_echo_survives_small_windows_short_sends_and_resets() {
    const CLIENTS: usize = 24;
    let listener = Listener::open("127.0.0.1:0".parse().expect("an address"), 100).expect("opens");
    let address = listener.address().expect("an address");
    thread::scope(|scope| {
        let server = scope.spawn(move || serve(listener, CLIENTS));
        for seed in 0..CLIENTS {
            scope.spawn(move || client(address, seed));
        }
        let failed = server.join().expect("no panic");
        assert!((1..=CLIENTS / 4).contains(&failed), "{failed} connections failed");
    });
}

/// Sends much and reads it back slowly, in odd pieces; every fourth client ends with a reset.
fn client(address: SocketAddr, seed: usize) {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let content: Vec<u8> = (0..3 << 20).map(|n| byte_at(n + seed)).collect();
    let mut writer = stream.try_clone().expect("a clone");
    thread::scope(|scope| {
        scope.spawn(|| writer.write_all(&content).expect("writes"));
        let mut random = Random::new(seed as u64);
        let (mut received, mut buffer) = (0, vec![0; 50_000]);
        while received < content.len() {
            let room = 1 + random.below(buffer.len() as u64 - 1) as usize;
            let count = stream.read(&mut buffer[..room]).expect("reads");
            assert!(buffer[..count] == content[received..received + count], "wrong bytes");
            received += count;
        }
    });
    if seed.is_multiple_of(4) {
        // An end with unread bytes is a reset.
        stream.write_all(&content[..1000]).expect("writes");
        stream.peek(&mut [0]).expect("something unread");
    }
}
