//! Servers in processes of their own, what they cost, and their certain end.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use core_affinity::CoreId;

use crate::wire::Client;

/// The core of the server, and that of the client, where there are two.
const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;
/// Clock ticks in a second, as Linux counts them for programs (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;
/// How long a server may take until its first answer.
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// Between two tries to connect.
const CONNECT_PAUSE: Duration = Duration::from_micros(500);
/// How long a server may take to stop when asked to.
const STOP_TIME_MAX: Duration = Duration::from_secs(30);
/// How often a free pair of ports is looked for.
const PORT_TRIES_MAX: usize = 100;

/// A server that runs; dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Ends the server and removes its folder if this process ends without doing so.
    guard: Child,
    /// From the start of the program to its first answer.
    pub(crate) start_time: Duration,
}

impl Process {
    /// Starts a server on its core and waits for its first answer to ApiVersions.
    ///
    /// # Errors
    /// A sentence: it cannot be started, ends, or does not answer.
    pub(crate) fn start(
        command: Command,
        log: &Path,
        folder: &Path,
        address: SocketAddr,
        pinned: bool,
    ) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let output =
            fs::File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
        let errors = output.try_clone().map_err(|error| format!("the log: {error}"))?;
        let mut command = command;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let started = Instant::now();
        let child = spawn(command, pinned).map_err(|error| format!("starting {name}: {error}"))?;
        let guard = start_guard(child.id(), folder)?;
        let mut process = Self { child, guard, start_time: Duration::ZERO };
        process.wait_for_answer(address, started, log)?;
        Ok(process)
    }

    /// Seconds of CPU that all its threads have used.
    ///
    /// # Errors
    /// A sentence: it has ended.
    pub(crate) fn cpu_seconds(&self) -> Result<f64, String> {
        let path = format!("/proc/{}/stat", self.child.id());
        let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        cpu_of_stat(&text).ok_or_else(|| format!("{path} cannot be understood"))
    }

    /// Its resident memory in bytes.
    ///
    /// # Errors
    /// A sentence: it has ended.
    pub(crate) fn resident_bytes(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        resident_of_status(&text).ok_or_else(|| format!("{path} cannot be understood"))
    }

    /// Asks it to stop and waits for its end, or kills it when that takes too long.
    pub(crate) fn stop(mut self) {
        let mut ask = Command::new("kill");
        ask.arg("-TERM").arg(self.child.id().to_string()).stderr(Stdio::null());
        let asked = ask.status().is_ok_and(|status| status.success());
        let deadline = Instant::now() + STOP_TIME_MAX;
        while asked && Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(self) {
        drop(self);
    }

    fn wait_for_answer(
        &mut self,
        address: SocketAddr,
        started: Instant,
        log: &Path,
    ) -> Result<(), String> {
        loop {
            let problem = match Client::connect(address) {
                Ok(_) => {
                    self.start_time = started.elapsed();
                    return Ok(());
                }
                Err(problem) => problem,
            };
            if let Ok(Some(status)) = self.child.try_wait() {
                let said = fs::read_to_string(log).unwrap_or_default();
                return Err(format!("the server ended ({status}):\n{said}"));
            }
            if started.elapsed() > START_TIME_MAX {
                return Err(format!("no answer for {START_TIME_MAX:?}: {problem}"));
            }
            thread::sleep(CONNECT_PAUSE);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // What has ended already needs no end.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}

/// Puts the calling thread, and those that it starts, on the client's core.
pub(crate) fn pin_client() -> bool {
    let enough = core_affinity::get_core_ids().is_some_and(|cores| cores.len() > CLIENT_CORE);
    enough && core_affinity::set_for_current(CoreId { id: CLIENT_CORE })
}

/// A port of 127.0.0.1 that nobody listens on, the next one free as well.
///
/// # Errors
/// A sentence: the machine has none.
pub(crate) fn free_ports() -> Result<u16, String> {
    let listen = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    for _ in 0..PORT_TRIES_MAX {
        let first = listen(0).and_then(|listener| Ok((listener.local_addr()?.port(), listener)));
        let (port, _first) = first.map_err(|error| format!("a free port: {error}"))?;
        if port.checked_add(1).is_some_and(|next| listen(next).is_ok()) {
            return Ok(port);
        }
    }
    Err("there are no two free ports in a row".to_owned())
}

/// A child inherits the core of the thread that makes it.
fn spawn(mut command: Command, pinned: bool) -> std::io::Result<Child> {
    let make = move || {
        if pinned {
            core_affinity::set_for_current(CoreId { id: SERVER_CORE });
        }
        command.spawn()
    };
    let made = thread::spawn(make).join();
    made.unwrap_or_else(|_| Err(std::io::Error::other("the thread that starts it has failed")))
}

fn start_guard(server: u32, folder: &Path) -> Result<Child, String> {
    let mut command = Command::new("sh");
    let script = r#"read _; kill -9 "$1"; rm -rf "$2""#;
    command.args(["-c", script, "guard", &server.to_string()]).arg(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|error| format!("starting a shell: {error}"))
}

/// User and system time are the 14th and 15th field; the 2nd is a name with any characters.
fn cpu_of_stat(text: &str) -> Option<f64> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

fn resident_of_status(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_read() {
        let stat = "12 (a b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 3 0 100 200 300";
        assert_eq!(cpu_of_stat(stat), Some(3.0));
        assert_eq!(cpu_of_stat("12 (a"), None);
        assert_eq!(resident_of_status("Name:\tx\nVmRSS:\t   2048 kB\nY:\t1"), Some(2 << 20));
        assert_eq!(resident_of_status("Name:\tx\n"), None);
    }

    #[test]
    fn this_process_has_figures_as_well() {
        let read = |name| fs::read_to_string(format!("/proc/self/{name}")).expect("Linux");
        assert!(cpu_of_stat(&read("stat")).is_some());
        assert!(resident_of_status(&read("status")).is_some_and(|bytes| bytes > 100_000));
    }
}
