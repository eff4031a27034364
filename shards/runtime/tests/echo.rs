//! Echo over real sockets: many connections, frames small and big, slow readers, resets.

#![allow(clippy::disallowed_methods)] // A test is the world around the machines.

mod world;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use runtime::{Node, Settings, Spin};
use world::{PATIENCE, echo, listener, machine, next, start, stop};

/// A node whose first machine listens, and all of whose machines echo.
fn echo_node(threads: u16, machines_a_thread: u16, settings: Settings) -> (Node, SocketAddr) {
    let shards = threads * machines_a_thread;
    let (mut listen, address) = listener(shards);
    let mut first = Some(machine(move |now, event, effects| {
        echo(&event, effects);
        listen(now, event, effects);
    }));
    let mut make =
        || first.take().unwrap_or_else(|| machine(|_, event, effects| echo(&event, effects)));
    let threads = (0..threads).map(|_| (0..machines_a_thread).map(|_| make()).collect()).collect();
    let node = start(threads, settings);
    let address = next(&address);
    (node, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Bytes that differ at every position and by connection.
fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|n| ((n * 31) ^ (n >> 8) ^ (seed * 101)) as u8).collect()
}

fn round_trips(address: SocketAddr, seed: usize, length: usize, count: usize) {
    let mut stream = connect(address);
    let sent = pattern(seed, length);
    let mut received = vec![0; length];
    for _ in 0..count {
        let mut writer = stream.try_clone().expect("a clone");
        thread::scope(|scope| {
            scope.spawn(|| writer.write_all(&sent).expect("writes"));
            stream.read_exact(&mut received).expect("reads");
        });
        assert!(sent == received, "what came back differs");
    }
}

#[test]
fn frames_of_every_size_come_back_whole_on_many_connections() {
    for (threads, machines) in [(1, 1), (2, 1), (2, 2)] {
        let (node, address) = echo_node(threads, machines, Settings::default());
        thread::scope(|scope| {
            for seed in 0..16 {
                scope.spawn(move || round_trips(address, seed, 1 + seed * 7, 50));
            }
            for (seed, length) in [(20, 16 << 10), (21, 100_000), (22, 3 << 20)] {
                scope.spawn(move || round_trips(address, seed, length, 5));
            }
        });
        let accepted: u64 = node.counters().iter().map(|(_, counters)| counters.accepted).sum();
        assert_eq!(accepted, 19);
        stop(node);
    }
}

#[test]
fn it_never_spins_if_told_so_and_always_if_told_so() {
    // Long enough for an answer to come in time on a busy machine, too.
    for spin in [Spin::Never, Spin::Always(Duration::from_millis(50))] {
        let settings = Settings { spin, ..Settings::default() };
        let (node, address) = echo_node(1, 1, settings);
        round_trips(address, 1, 100, 50);
        let won = node.counters()[0].1.spins_won;
        assert_eq!(won > 0, spin != Spin::Never);
        stop(node);
    }
}
