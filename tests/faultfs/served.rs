//! The test's end of a disk that is served by another process.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::disk::Failing;

/// What a loss of power leaves of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// What follows from this seed.
    Some(u64),
}

/// A disk that only those who enter its namespace see. It ends when this is dropped, and when the
/// process of the test ends.
#[derive(Debug)]
pub struct Served {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Served {
    /// Starts `program`, which calls [`crate::serve`], in a namespace of its own, with an empty
    /// disk of so many bytes at the folder `point`.
    ///
    /// # Panics
    /// When the system lets nobody do that; so do the others when the process has ended.
    pub fn start(program: &Path, point: &Path, bytes: u64) -> Served {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount"]).arg(program).arg(point);
        command.arg(bytes.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("unshare is there");
        let output = BufReader::new(process.stdout.take().expect("it was asked for"));
        let input = process.stdin.take().expect("it was asked for");
        let mut served = Served { process, input, output };
        assert_eq!(served.answer(), "ok", "no disk is served at {}", point.display());
        served
    }

    /// What starts a command that sees the disk.
    pub fn wrapper(&self) -> [String; 6] {
        entering(self.process.id())
    }

    /// A path as it lies on the disk, for those outside of its namespace.
    ///
    /// # Panics
    /// When it is not absolute.
    pub fn path(&self, path: &Path) -> PathBuf {
        let below = path.strip_prefix("/").expect("it is absolute");
        Path::new("/proc").join(self.process.id().to_string()).join("root").join(below)
    }

    /// Nothing is answered any more after so many changes: who asks waits for what comes of it.
    pub fn freeze_after(&mut self, changes: u64) {
        self.command(&format!("freeze-after {changes}"));
    }

    /// Waits until nothing is answered any more; false when it still is after `time`.
    pub fn wait_until_frozen(&mut self, time: Duration) -> bool {
        self.command(&format!("wait-until-frozen {}", time.as_millis())) == "ok true"
    }

    /// From now on nothing is performed. Whoever waits or asks is told of an error: they are to be
    /// killed before.
    pub fn cut(&mut self) {
        self.command("cut");
    }

    /// What was not synced is gone, and the disk is there again, with no file open.
    pub fn lose_power(&mut self, left: Left) {
        match left {
            Left::Nothing => self.command("lose-power"),
            Left::Some(seed) => self.command(&format!("lose-power {seed}")),
        };
    }

    /// Makes the disk as large as that.
    pub fn set_capacity(&mut self, bytes: u64) {
        self.command(&format!("capacity {bytes}"));
    }

    /// Makes the disk so large that this much of it is free.
    pub fn set_free(&mut self, bytes: u64) {
        self.command(&format!("free {bytes}"));
    }

    /// The directory with this path below the mount point fails from now on, or no more.
    ///
    /// # Panics
    /// When there is no such directory.
    pub fn set_failing(&mut self, failing: Option<(&str, Failing)>) {
        match failing {
            None => self.command("fail"),
            Some((path, Failing::All)) => self.command(&format!("fail all {path}")),
            Some((path, Failing::Writes)) => self.command(&format!("fail writes {path}")),
            Some((path, Failing::Syncs)) => self.command(&format!("fail syncs {path}")),
        };
    }

    fn command(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").expect("the process of the disk runs");
        let answer = self.answer();
        assert!(answer.starts_with("ok"), "{answer}");
        answer
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the process of the disk runs");
        line.trim_end().to_owned()
    }
}

/// What starts a command that sees the mounts of a process.
pub fn entering(pid: u32) -> [String; 6] {
    ["nsenter", "--user", "--preserve-credentials", "--mount", "--target", &pid.to_string()]
        .map(str::to_owned)
}

impl Drop for Served {
    fn drop(&mut self) {
        // Its mount goes with its namespace.
        drop((self.process.kill(), self.process.wait()));
    }
}
