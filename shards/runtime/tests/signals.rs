//! Signals end a node in order. A program without the test harness, since a signal that a thread of
//! the harness may take would end the process.

#![allow(clippy::disallowed_methods, clippy::print_stdout)] // A test is the world of the machines.

mod world;

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

use api::{Effect, Effects, Event, ShardId};
use runtime::{NodeSpec, RunError, Settings, ThreadSpec, run};
use world::machine;

fn main() -> ExitCode {
    if let Some(role) = std::env::args().nth(1).filter(|argument| argument.starts_with("node-")) {
        return node(&role);
    }
    for signal in ["TERM", "INT", "HUP"] {
        signal_ends_a_node_in_order(signal);
    }
    a_failure_is_an_error_of_run();
    println!("signals: ok");
    ExitCode::SUCCESS
}

fn node(role: &str) -> ExitCode {
    let fails = role == "node-fails";
    let script = machine(move |_, event, effects: &mut Effects<u64>| match event {
        Event::Started if fails => {
            effects.push(Effect::Fail { sentence: "It must not go on.".to_owned() });
        }
        Event::Started => println!("started"),
        Event::Stop => println!("stopping"),
        _ => {}
    });
    let name = "data-0".to_owned();
    let threads = vec![ThreadSpec { name, core: None, machines: vec![(ShardId(0), script)] }];
    match run(NodeSpec { threads, settings: Settings::default() }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(RunError::Failed { sentence }) => {
            println!("{sentence}");
            ExitCode::FAILURE
        }
        Err(other) => panic!("{other}"),
    }
}

fn child(role: &str) -> (std::process::Child, impl Iterator<Item = String>) {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    let mut child = command.arg(role).stdout(Stdio::piped()).spawn().expect("starts");
    let stdout = child.stdout.take().expect("piped");
    (child, BufReader::new(stdout).lines().map_while(Result::ok))
}

fn signal_ends_a_node_in_order(signal: &str) {
    let (mut child, mut lines) = child("node-runs");
    assert_eq!(lines.next().as_deref(), Some("started"));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &pid]).status().expect("runs").success());
    assert_eq!(lines.next().as_deref(), Some("stopping"));
    assert!(child.wait().expect("ends").success(), "SIG{signal} ended the process");
}

fn a_failure_is_an_error_of_run() {
    let (mut child, mut lines) = child("node-fails");
    assert_eq!(lines.next().as_deref(), Some("It must not go on."));
    assert_eq!(child.wait().expect("ends").code(), Some(1));
}
