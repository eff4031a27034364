//! Machines among themselves, their timers, and how a node starts and ends.

#![allow(clippy::disallowed_methods)] // A test is the world around the machines.

mod world;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use api::{Effect, Effects, Event, Instant, ShardId};
use runtime::{MachineFactory, Node, NodeSpec, RunError, Settings, ThreadSpec, cores};
use world::{PATIENCE, listener, machine, next, start, stop, told};

/// Both machines on one thread, and each on its own.
fn arrangements(
    make: impl Fn() -> [MachineFactory<u64>; 2],
) -> impl Iterator<Item = Vec<Vec<MachineFactory<u64>>>> {
    [false, true].into_iter().map(move |apart| {
        let [one, other] = make();
        if apart { vec![vec![one], vec![other]] } else { vec![vec![one, other]] }
    })
}

#[test]
fn requests_are_answered_across_machines_with_lanes_full_to_the_last_slot() {
    const COUNT: u64 = 20_000;
    let (tell, done) = told();
    let make = move || {
        let tell = tell.clone();
        let (mut asked, mut answered) = (0, 0);
        let client = machine(move |_, event, effects: &mut Effects<u64>| {
            if let Event::Mesh { from, message } = event {
                assert_eq!((from, message), (ShardId(1), answered * 2));
                answered += 1;
            }
            // As many under way as the lane has slots.
            while asked < COUNT && asked - answered < 8 {
                effects.request(ShardId(1), asked);
                asked += 1;
            }
            if answered == COUNT {
                tell.send(()).expect("the test waits");
                answered += 1;
            }
        });
        let server = machine(|_, event, effects: &mut Effects<u64>| {
            if let Event::Mesh { from, message } = event {
                effects.reply(from, message * 2);
            }
        });
        [client, server]
    };
    for threads in arrangements(make) {
        let node = start(threads, Settings { lane_slots: 8, ..Settings::default() });
        next(&done);
        stop(node);
    }
}

#[test]
fn a_lane_that_overflows_ends_the_node() {
    let make = || {
        let sender = machine(|_, event, effects: &mut Effects<u64>| {
            if let Event::Started = event {
                (0..5).for_each(|n| effects.request(ShardId(1), n));
            }
        });
        // It is busy for so long that it takes nothing in between.
        let receiver = machine(|_, event, _: &mut Effects<u64>| {
            if let Event::Started = event {
                thread::sleep(Duration::from_millis(300));
            }
        });
        [sender, receiver]
    };
    for threads in arrangements(make) {
        let node = start(threads, Settings { lane_slots: 4, ..Settings::default() });
        match node.wait() {
            Err(RunError::Panicked { message, .. }) => {
                assert_eq!(message, "the Request lane from shard 0 to shard 1 overflows");
            }
            other => panic!("ended with {other:?}"),
        }
    }
}

#[test]
fn of_what_is_posted_the_newest_arrives() {
    let (tell, seen) = told();
    let make = move || {
        let tell = tell.clone();
        let poster = machine(|_, event, effects: &mut Effects<u64>| {
            if let Event::Started = event {
                (1..=100).for_each(|n| effects.push(Effect::Post { to: ShardId(1), message: n }));
            }
        });
        let receiver = machine(move |_, event, _: &mut Effects<u64>| {
            if let Event::Mesh { from: ShardId(0), message } = event {
                tell.send(message).expect("the test waits");
            }
        });
        [poster, receiver]
    };
    for threads in arrangements(make) {
        let node = start(threads, Settings::default());
        let mut last = 0;
        while last < 100 {
            let message = next(&seen);
            assert!(message > last);
            last = message;
        }
        stop(node);
        assert_eq!(seen.try_iter().count(), 0);
    }
}

#[test]
fn a_machine_wakes_at_its_time_and_once() {
    let (tell, woken) = told();
    let script = machine(move |now, event, effects: &mut Effects<u64>| match event {
        Event::Started => {
            effects.push(Effect::WakeAt(now.mono + Duration::from_secs(3600)));
            // The later call replaces the earlier one.
            effects.push(Effect::WakeAt(now.mono + Duration::from_millis(30)));
            tell.send(now.mono).expect("the test waits");
        }
        Event::WakeUp => {
            tell.send(now.mono).expect("the test waits");
            effects.push(Effect::WakeAt(now.mono + Duration::from_millis(20)));
            effects.push(Effect::WakeAt(Instant::FAR_FUTURE));
        }
        _ => {}
    });
    let node = start(vec![vec![script]], Settings::default());
    let (begin, end) = (next(&woken), next(&woken));
    assert!(end >= begin + Duration::from_millis(30), "woken {:?} early", end.since(begin));
    assert!(woken.recv_timeout(Duration::from_millis(100)).is_err(), "cancelled, but woken");
    // A core with nothing to do sleeps.
    let turns = node.counters()[0].1.turns;
    thread::sleep(Duration::from_millis(100));
    assert!(node.counters()[0].1.turns - turns <= 1);
    stop(node);
}

#[test]
fn connections_are_handed_to_another_thread_and_stay_there() {
    let (mut listen, address) = listener(2);
    let (tell, opened) = told();
    let first = machine(move |now, event, effects| match event {
        Event::Opened { .. } => panic!("connection {event:?} belongs to shard 1"),
        Event::Accepted { socket, .. } => {
            let to = ShardId(1);
            effects.socket(api::SocketEffect::HandOver { socket, to, listener: 3 });
        }
        event => listen(now, event, effects),
    });
    let second = machine(move |_, event, effects| {
        if let Event::Opened { socket, peer, listener } = event {
            tell.send((socket, peer, listener)).expect("the test waits");
        }
        world::echo(&event, effects);
    });
    let node = start(vec![vec![first], vec![second]], Settings::default());
    let address = next(&address);
    // More at once than the lane between the threads has slots.
    let mut streams: Vec<TcpStream> =
        (0..600).map(|_| TcpStream::connect(address).expect("connects")).collect();
    let mut sockets: Vec<_> = streams.iter().map(|_| next(&opened)).collect();
    for stream in &mut streams {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(b"hello").expect("writes");
        let mut back = [0; 5];
        stream.read_exact(&mut back).expect("reads");
        assert_eq!(&back, b"hello");
    }
    let peers: Vec<_> = streams.iter().map(|s| s.local_addr().expect("an address")).collect();
    assert!(sockets.iter().all(|(_, peer, listener)| peers.contains(peer) && *listener == 3));
    sockets.dedup_by_key(|(socket, ..)| *socket);
    assert_eq!(sockets.len(), 600);
    stop(node);
    let end = streams[0].read(&mut [0]).expect("an end");
    assert_eq!(end, 0, "a node that has stopped closes its connections");
}

#[test]
fn a_machine_that_fails_ends_the_node_with_its_sentence() {
    let make = || {
        let failing = machine(|_, event, effects: &mut Effects<u64>| {
            if let Event::Started = event {
                effects.push(Effect::Fail { sentence: "The disk is broken.".to_owned() });
                // What it asks for beside is not done any more.
                effects.request(ShardId(1), 1);
            }
        });
        let other = machine(|_, event, _| assert!(!matches!(event, Event::Mesh { .. })));
        [failing, other]
    };
    for threads in arrangements(make) {
        let error = start(threads, Settings::default()).wait().expect_err("it failed");
        assert_eq!(error, RunError::Failed { sentence: "The disk is broken.".to_owned() });
    }
}

#[test]
fn a_panic_ends_the_node_and_is_told() {
    let make = || {
        let panicking = machine(|_, event, _: &mut Effects<u64>| {
            assert!(!matches!(event, Event::Started), "a bug");
        });
        [panicking, machine(|_, _, _| {})]
    };
    for threads in arrangements(make) {
        match start(threads, Settings::default()).wait() {
            Err(RunError::Panicked { thread, message }) => {
                assert_eq!((&thread[..], &message[..]), ("test-0", "a bug"));
            }
            other => panic!("ended with {other:?}"),
        }
    }
}

#[test]
fn nodes_start_and_end_many_times_and_leave_nothing_open() {
    let open = || std::fs::read_dir("/proc/self/task").expect("a listing").count();
    let threads_before = open();
    for _ in 0..30 {
        let threads = (0..4).map(|_| vec![machine(|_, _, _| {})]).collect();
        let node: Node = start(threads, Settings::default());
        stop(node);
    }
    // Other tests run beside this one; without a leak it is far below thirty times four.
    assert!(open() < threads_before + 60);
}

#[test]
fn threads_are_pinned() {
    let core = *cores().last().expect("there is a core");
    let (tell, pinned) = told();
    let script = machine(move |_, event, _: &mut Effects<u64>| {
        if let Event::Started = event {
            let status = std::fs::read_to_string("/proc/thread-self/status").expect("a status");
            let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list:"));
            tell.send(line.expect("there").to_owned()).expect("the test waits");
        }
    });
    let name = "pinned".to_owned();
    let threads = vec![ThreadSpec { name, core: Some(core), machines: vec![(ShardId(0), script)] }];
    let node = Node::start(NodeSpec { threads, settings: Settings::default() }).expect("starts");
    assert_eq!(next(&pinned), format!("Cpus_allowed_list:\t{core}"));
    stop(node);
}
