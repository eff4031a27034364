//! The programs that people use: Kafka's tools, kcat, Java and Python clients.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use xtask::kafka;

use crate::process::Running;
use crate::{Broker, Finished};

/// A virtual machine that lives for a second should not spend it on compiling itself.
const QUICK: &[&str] =
    &["-Xmx512M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable", "-Xshare:auto"];

impl Broker {
    /// Runs one of Kafka's tools to its end, with what a person types after `cargo xtask kafka`.
    /// The broker's address stands for `{}`, its controller's for `{controller}`; without either,
    /// `--bootstrap-server` goes first (`dump-log` and `storage` read files and take none).
    ///
    /// # Panics
    /// When it cannot be started or doesn't end.
    #[track_caller]
    pub fn kafka(&self, line: &str) -> Finished {
        Running::start(&mut self.kafka_command(line)).finish()
    }

    /// As [`Broker::kafka`], and the tool reads `input`.
    ///
    /// # Panics
    /// When it cannot be started or doesn't end.
    #[track_caller]
    pub fn kafka_reads(&self, line: &str, input: &str) -> Finished {
        Running::start_with_input(&mut self.kafka_command(line), input).finish()
    }

    /// The command of one of Kafka's tools, see [`Broker::kafka`].
    ///
    /// # Panics
    /// When the tool or Java cannot be had.
    pub fn kafka_command(&self, line: &str) -> Command {
        let (name, arguments) = line.split_once(' ').unwrap_or((line, ""));
        let options = quick_options();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let mut command =
            kafka::tool_with(name, &options).unwrap_or_else(|sentence| panic!("{sentence}"));
        let says_where = line.contains("{}") || line.contains("{controller}");
        if !says_where && !["dump-log", "storage"].contains(&name) {
            command.arg("--bootstrap-server").arg(self.address());
        }
        let controller = format!("127.0.0.1:{}", self.controller_port());
        let address = self.address();
        let placed = |word: &str| word.replace("{}", &address).replace("{controller}", &controller);
        command.args(arguments.split_whitespace().map(placed));
        command
    }
}

/// The command for a class of our own, compiled from `tests/java`.
///
/// # Panics
/// When it doesn't compile.
pub fn quick_java(class: &str) -> Command {
    let classes = compiled(class);
    kafka::java(QUICK, Some(&classes), class).unwrap_or_else(|sentence| panic!("{sentence}"))
}

/// Where a class of `tests/java` was compiled to.
///
/// # Panics
/// When it doesn't compile.
pub fn compiled(class: &str) -> PathBuf {
    let source = xtask::workspace_root().join("tests/java").join(format!("{class}.java"));
    kafka::compile_java(&source).unwrap_or_else(|sentence| panic!("{sentence}"))
}

/// The command of librdkafka's kcat, with the broker's address.
pub fn kcat(broker: &Broker, line: &str) -> Command {
    let mut command = Command::new("kcat");
    command.arg("-b").arg(broker.address()).args(line.split_whitespace());
    command
}

/// The command that runs a script of `tests/python` with its libraries.
///
/// # Panics
/// When `cargo xtask test --only python` has not made the environment yet.
pub fn python(script: &str) -> Command {
    let root = xtask::workspace_root();
    let python = root.join("target/python/bin/python");
    assert!(python.is_file(), "make target/python first: cargo xtask test --only python");
    let mut command = Command::new(python);
    command.arg(root.join("tests/python").join(script));
    command
}

/// The options with an archive of loaded classes, which halves the time that a tool takes to start.
fn quick_options() -> Vec<String> {
    static ARCHIVE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let mut options: Vec<String> = QUICK.iter().map(|option| (*option).to_owned()).collect();
    if let Some(archive) = ARCHIVE.get_or_init(make_archive) {
        options.push(format!("-XX:SharedArchiveFile={}", archive.display()));
    }
    options
}

/// Lets a tool fail to connect, and keeps what it loaded. Without an archive the tools are slower.
fn make_archive() -> Option<PathBuf> {
    kafka::class_path().unwrap_or_else(|sentence| panic!("{sentence}"));
    let archive = kafka::folder().join("tools.jsa");
    if archive.is_file() {
        return Some(archive);
    }
    let folder = tempfile::TempDir::new_in(kafka::folder()).ok()?;
    let settings = folder.path().join("client.properties");
    let partial = folder.path().join("tools.jsa");
    std::fs::write(&settings, "default.api.timeout.ms=300\nrequest.timeout.ms=200\n").ok()?;
    let option = format!("-XX:ArchiveClassesAtExit={}", partial.display());
    let mut options = QUICK.to_vec();
    options.push(&option);
    let mut command = kafka::tool_with("topics", &options).ok()?;
    command.args(["--bootstrap-server", "127.0.0.1:9", "--list", "--command-config"]).arg(settings);
    Running::start(&mut command).finish();
    std::fs::rename(&partial, &archive).ok()?;
    Some(archive)
}
