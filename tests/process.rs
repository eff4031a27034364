//! A program that is started, watched and always ended.

use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take before its test fails.
pub const TIME_MAX: Duration = Duration::from_secs(120);
/// Between two looks at what nobody tells of.
pub const PAUSE: Duration = Duration::from_millis(5);

/// Waits until something is so that nobody tells of.
///
/// # Panics
/// When it is not in `TIME_MAX`.
#[track_caller]
pub fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIME_MAX;
    while !is_so() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::sleep(PAUSE);
    }
}

/// A program that runs; dropping it kills it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    name: String,
    lines: Receiver<(Stream, Option<String>)>,
    stdout: String,
    stderr: String,
    open_streams: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Stdout,
    Stderr,
}

/// What a program printed and how it ended.
#[derive(Debug)]
pub struct Finished {
    /// The program and its arguments.
    pub name: String,
    /// All that it printed.
    pub stdout: String,
    /// All that it complained of.
    pub stderr: String,
    /// How it ended.
    pub status: ExitStatus,
}

impl Running {
    /// Starts a program with nothing to read.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Running {
        Running::start_with_input(command, "")
    }

    /// Starts a program that reads `input` and then the end of it.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_with_input(command: &mut Command, input: &str) -> Running {
        let name = describe(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut stdin = child.stdin.take().expect("it was asked for");
        let input = input.to_owned();
        // A program that ends early closes its input: no fault of the test.
        thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let (sender, lines) = mpsc::channel();
        let stdout = child.stdout.take().expect("it was asked for");
        let stderr = child.stderr.take().expect("it was asked for");
        forward(stdout, Stream::Stdout, sender.clone());
        forward(stderr, Stream::Stderr, sender);
        let (stdout, stderr) = (String::new(), String::new());
        Running { child, name, lines, stdout, stderr, open_streams: 2 }
    }

    /// Waits until its output contains `text`.
    ///
    /// # Panics
    /// When it ends or `TIME_MAX` passes before.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + TIME_MAX;
        let name = &self.name.clone();
        // What was searched already is not searched again: programs print a line a record.
        let mut searched = 0;
        while !self.stdout.get(searched..).is_some_and(|unread| unread.contains(text)) {
            searched = self.stdout.rfind('\n').map_or(0, |end| end + 1);
            let more = self.next_line(deadline);
            assert!(more, "{name}: ended without `{text}`\n{}", self.all_output());
        }
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When `TIME_MAX` passes before.
    #[track_caller]
    pub fn finish(mut self) -> Finished {
        let deadline = Instant::now() + TIME_MAX;
        while self.next_line(deadline) {}
        let status = self.child.wait().expect("it is our child");
        Finished {
            name: self.name.clone(),
            stdout: std::mem::take(&mut self.stdout),
            stderr: std::mem::take(&mut self.stderr),
            status,
        }
    }

    /// Sends it a signal by its name.
    ///
    /// # Panics
    /// When it has ended already.
    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Asks it to stop, as a person does with Ctrl-C, and waits for its end.
    #[track_caller]
    pub fn interrupt(self) -> Finished {
        signal(self.child.id(), "INT");
        self.finish()
    }

    /// Takes one more line of either stream; false when both have ended.
    #[track_caller]
    fn next_line(&mut self, deadline: Instant) -> bool {
        while self.open_streams > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((stream, line)) = self.lines.recv_timeout(left) else {
                panic!("{}: still runs after {TIME_MAX:?}\n{}", self.name, self.all_output());
            };
            let Some(line) = line else {
                self.open_streams -= 1;
                continue;
            };
            match stream {
                Stream::Stdout => self.stdout.push_str(&line),
                Stream::Stderr => self.stderr.push_str(&line),
            }
            return true;
        }
        false
    }

    fn all_output(&self) -> String {
        format!("--- stdout\n{}--- stderr\n{}", self.stdout, self.stderr)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already: then there is nothing to end.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Finished {
    /// Fails unless it ended well.
    ///
    /// # Panics
    /// With all that it printed.
    #[track_caller]
    pub fn ok(self) -> Finished {
        assert!(self.status.success(), "{self}");
        self
    }

    /// Fails unless it ended with an error.
    ///
    /// # Panics
    /// With all that it printed.
    #[track_caller]
    pub fn fails(self) -> Finished {
        assert!(!self.status.success(), "{self}");
        self
    }

    /// Fails unless its output has just these lines, in any order.
    ///
    /// # Panics
    /// With all that it printed.
    #[track_caller]
    pub fn prints_in_any_order(self, lines: &[&str]) -> Finished {
        let mut found: Vec<&str> = self.stdout.lines().collect();
        found.sort_unstable();
        let mut expected = lines.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected, "{self}");
        self
    }

    /// Fails unless its output fits; see [`crate::text_fits`].
    ///
    /// # Panics
    /// With all that it printed.
    #[track_caller]
    pub fn prints(self, expected: &str) -> Finished {
        assert!(crate::text_fits(&self.stdout, expected), "expected\n{expected}\nbut {self}");
        self
    }

    /// Fails unless `text` is somewhere in what it printed.
    ///
    /// # Panics
    /// With all that it printed.
    #[track_caller]
    pub fn says(self, text: &str) -> Finished {
        let said = self.stdout.contains(text) || self.stderr.contains(text);
        assert!(said, "no `{text}` from {self}");
        self
    }

    /// Fails unless a line of its output is a JSON object with all fields of `expected`, in any
    /// order and among any others.
    ///
    /// # Panics
    /// With all that it printed.
    #[track_caller]
    pub fn reports(self, expected: &serde_json::Value) -> Finished {
        let fields = expected.as_object().expect("what is expected is an object");
        let fits = |line: &str| {
            let object: Option<serde_json::Value> = serde_json::from_str(line).ok();
            object.is_some_and(|object| {
                fields.iter().all(|(name, value)| object.get(name) == Some(value))
            })
        };
        assert!(self.stdout.lines().any(fits), "no line with {expected} from {self}");
        self
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Finished { name, stdout, stderr, status } = self;
        write!(formatter, "{name}: {status}\n--- stdout\n{stdout}--- stderr\n{stderr}")
    }
}

/// Sends a signal by its name to one process.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
    assert!(status.is_ok_and(|status| status.success()), "kill -{name} {pid} failed");
}

/// Lets this process, and those that it starts, have so many files and connections open.
///
/// # Panics
/// When the system's limit is lower.
pub fn allow_open_files(count: usize) {
    let mut command = Command::new("prlimit");
    command.arg(format!("--pid={}", std::process::id())).arg(format!("--nofile={count}:"));
    let raised = command.status().is_ok_and(|status| status.success());
    assert!(raised, "this test needs {count} open files: see `ulimit -Hn`");
}

fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    let is_noise = |word: &str| word.starts_with("-X") || word.contains("/libs/*");
    words.extend(command.get_args().map(|word| word.to_string_lossy()).filter(|w| !is_noise(w)));
    words.join(" ")
}

fn forward(
    mut stream: impl Read + Send + 'static,
    name: Stream,
    sender: mpsc::Sender<(Stream, Option<String>)>,
) {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut chunk = [0; 16 * 1024];
        while let Ok(count @ 1..) = stream.read(&mut chunk) {
            bytes.extend(chunk.iter().take(count));
            while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = bytes.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line).into_owned();
                if sender.send((name, Some(line))).is_err() {
                    return;
                }
            }
        }
        if !bytes.is_empty() {
            let line = String::from_utf8_lossy(&bytes).into_owned();
            // Nobody listens any more once the test is over.
            drop(sender.send((name, Some(line))));
        }
        drop(sender.send((name, None)));
    });
}
