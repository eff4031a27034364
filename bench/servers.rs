//! The three that are compared, each started the way people start it.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use xtask::kafka;

use crate::process::{Process, free_ports};
use crate::work::OffsetUnit;

/// Whom a figure belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The ceiling: [`crate::bare`].
    Bare,
    /// What is measured.
    Corelane,
    /// Apache Kafka.
    Kafka,
}

/// The id of Kafka's cluster.
const CLUSTER_ID: &str = "YmVuY2gtY2x1c3Rlci0xMQ";

impl Target {
    /// All three, in the order of a round.
    pub const ALL: [Target; 3] = [Target::Bare, Target::Corelane, Target::Kafka];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Target::Bare => "bare",
            Target::Corelane => "Corelane",
            Target::Kafka => "Kafka",
        }
    }

    /// What its offsets count.
    pub fn offset_unit(self) -> OffsetUnit {
        match self {
            Target::Bare => OffsetUnit::Bytes,
            Target::Corelane | Target::Kafka => OffsetUnit::Records,
        }
    }
}

/// Where servers keep their data, and whether they stay on one core.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The folder that temporary folders are made in: it decides which disk is measured.
    pub(crate) folder: PathBuf,
    /// The server on core 0, the client on core 1.
    pub(crate) pinned: bool,
}

/// A server with a folder of its own.
#[derive(Debug)]
pub(crate) struct Server {
    /// What it is.
    pub(crate) target: Target,
    process: Option<Process>,
    folder: TempDir,
    port: u16,
    pinned: bool,
    settings: &'static [(&'static str, &'static str)],
}

impl Server {
    /// Makes a folder, formats it where the target asks for that, and starts the server, with its
    /// defaults but for these settings.
    ///
    /// # Errors
    /// A sentence: something is missing, or it does not come up.
    pub(crate) fn start(
        target: Target,
        place: &Place,
        settings: &'static [(&'static str, &'static str)],
    ) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(&place.folder);
        let folder = folder.map_err(|error| format!("a folder for data: {error}"))?;
        let port = free_ports()?;
        let mut server =
            Self { target, process: None, folder, port, pinned: place.pinned, settings };
        if target == Target::Kafka {
            server.format_kafka()?;
        }
        server.start_again()?;
        Ok(server)
    }

    /// Starts it on the folder that it has, after [`Server::stop`].
    ///
    /// # Errors
    /// A sentence: it does not come up.
    pub(crate) fn start_again(&mut self) -> Result<(), String> {
        let path = self.folder.path();
        let command = match self.target {
            Target::Bare => bare_command(path, self.port)?,
            Target::Corelane => corelane_command(path, self.port, self.settings)?,
            Target::Kafka => {
                let mut command = kafka::tool("server-start")?;
                command.arg(path.join("server.properties"));
                command
            }
        };
        let log = path.join("output.txt");
        let process = Process::start(command, &log, path, self.address(), self.pinned)
            .map_err(|sentence| format!("{}: {sentence}", self.target.name()))?;
        self.process = Some(process);
        Ok(())
    }

    /// Stops it and keeps its folder.
    pub(crate) fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop();
        }
    }

    /// Kills it and keeps its folder.
    pub(crate) fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Where it keeps its logs.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Its process.
    ///
    /// # Panics
    /// If it was stopped.
    pub(crate) fn process(&self) -> &Process {
        self.process.as_ref().expect("nobody measures a server that was stopped")
    }

    fn format_kafka(&self) -> Result<(), String> {
        let file = self.folder.path().join("server.properties");
        let mut text = kafka_properties(self.folder.path(), self.port);
        self.settings.iter().for_each(|(key, value)| text += &format!("{key}={value}\n"));
        fs::write(&file, text).map_err(|error| format!("writing Kafka's settings: {error}"))?;
        let mut command = kafka::tool("storage")?;
        command.args(["format", "--cluster-id", CLUSTER_ID, "--config"]).arg(&file);
        let output = command.output().map_err(|error| format!("starting java: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("formatting: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }
}

fn bare_command(folder: &Path, port: u16) -> Result<Command, String> {
    let own = env::current_exe().map_err(|error| format!("finding this program: {error}"))?;
    let mut command = Command::new(own);
    command.args(["bare", "--port", &port.to_string(), "--data"]).arg(folder.join("data"));
    Ok(command)
}

fn corelane_command(
    folder: &Path,
    port: u16,
    settings: &[(&str, &str)],
) -> Result<Command, String> {
    let built = xtask::workspace_root().join("target/release/corelane");
    let program = env::var_os("CORELANE_BIN").map_or(built, PathBuf::from);
    if !program.is_file() {
        let path = program.display();
        return Err(format!("{path} is missing: run `cargo build --release`, or set CORELANE_BIN"));
    }
    let mut command = Command::new(program);
    command.args(["dev", "--port", &port.to_string(), "--data"]).arg(folder.join("data"));
    for (key, value) in settings {
        command.args(["--set", &format!("{key}={value}")]);
    }
    Ok(command)
}

/// Kafka's defaults but for what a single node needs, and files of removed topics that go at once.
fn kafka_properties(folder: &Path, port: u16) -> String {
    let data = folder.join("data");
    let (data, controller) = (data.display(), u32::from(port) + 1);
    format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         controller.listener.names=CONTROLLER\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n\
         log.dirs={data}\n\
         offsets.topic.replication.factor=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         group.initial.rebalance.delay.ms=0\n\
         log.segment.delete.delay.ms=500\n"
    )
}
