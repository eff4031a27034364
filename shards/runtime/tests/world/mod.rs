//! Machines made of a closure, and what tests need to run and watch them.

#![allow(dead_code, unreachable_pub)] // Every test file uses a part of it.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use api::{Effect, Effects, Event, Machine, Now, ShardId, SocketEffect, Token};
use runtime::{MachineFactory, Node, NodeSpec, Settings, ThreadSpec};

/// Longer than anything here takes: a test that waits so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What a scripted machine does with an event.
pub trait Script: FnMut(Now, Event<u64>, &mut Effects<u64>) + Send + 'static {}
impl<F: FnMut(Now, Event<u64>, &mut Effects<u64>) + Send + 'static> Script for F {}

struct Scripted<F>(F);

impl<F: Script> Machine for Scripted<F> {
    type Message = u64;

    fn step(&mut self, now: Now, event: Event<u64>, effects: &mut Effects<u64>) {
        let stop = matches!(event, Event::Stop);
        (self.0)(now, event, effects);
        if stop {
            effects.push(Effect::Stopped);
        }
    }
}

/// A machine that does what `script` says, and stops when it is asked to.
pub fn machine(script: impl Script) -> MachineFactory<u64> {
    Box::new(move || Box::new(Scripted(script)))
}

/// Starts a node with a thread for each list of machines; shards are numbered in order.
pub fn start(threads: Vec<Vec<MachineFactory<u64>>>, settings: Settings) -> Node {
    let mut shard = 0..;
    let threads = threads
        .into_iter()
        .enumerate()
        .map(|(index, machines)| ThreadSpec {
            name: format!("test-{index}"),
            core: None,
            machines: machines
                .into_iter()
                .map(|machine| (ShardId(shard.next().expect("endless")), machine))
                .collect(),
        })
        .collect();
    Node::start(NodeSpec { threads, settings }).expect("starts")
}

/// Stops a node and expects an end in order.
pub fn stop(node: Node) {
    node.stop();
    node.wait().expect("ends in order");
}

/// The token of the listener of [`listener`].
pub const LISTENER: Token = Token::from_bits(7 << 32);

/// Listens on a free port, tells which, and hands connections to the shards in turn.
pub fn listener(shards: u16) -> (impl Script, Receiver<SocketAddr>) {
    let (told, address) = channel();
    let mut accepted = 0;
    let script = move |_now: Now, event: Event<u64>, effects: &mut Effects<u64>| match event {
        Event::Started => effects.socket(SocketEffect::Listen {
            token: LISTENER,
            address: "127.0.0.1:0".parse().expect("an address"),
            backlog: 1000,
        }),
        Event::Listening { token, result } => {
            assert_eq!(token, LISTENER);
            told.send(result.expect("a free port")).expect("the test waits");
        }
        Event::Accepted { token, socket, .. } => {
            assert_eq!(token, LISTENER);
            let to = ShardId(accepted % shards);
            accepted += 1;
            effects.socket(SocketEffect::HandOver { socket, to, listener: 3 });
        }
        _ => {}
    };
    (script, address)
}

/// Sends back what it receives.
pub fn echo(event: &Event<u64>, effects: &mut Effects<u64>) {
    if let Event::Received { socket, bytes } = event {
        let parts = vec![api::Part::Bytes(bytes.clone())];
        effects.socket(SocketEffect::Send { socket: *socket, parts });
    }
}

/// The next thing that a machine tells the test.
pub fn next<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(PATIENCE).expect("a machine tells something")
}

/// A way for a machine to tell the test something.
pub fn told<T>() -> (Sender<T>, Receiver<T>) {
    channel()
}
