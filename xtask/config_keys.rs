//! `cargo xtask config-keys`: the facts of Kafka's configuration keys from its classes into the
//! tables of `src/config/keys`, and its answers into the files that the tests of `src/config`
//! compare with.
//!
//! The cases in `src/config/testdata` are written by hand, their answers by this command: wrong
//! files and changes are put to Kafka's classes, descriptions to a node that is started for it.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::kafka;

/// As `listeners` of `describe_server.properties` says.
const SERVER: &str = "127.0.0.1:19292";
/// As `log.dirs` of `describe_server.properties` says.
const DATA: &str = "/tmp/corelane-config-fixture";
/// Any will do.
const CLUSTER_ID: &str = "4L6g3nShT-eMCtK--X86sw";
const START_MAX: Duration = Duration::from_secs(60);

/// Writes all tables and answers under `root`.
///
/// # Errors
/// A sentence when Java or the jars cannot be had, or Kafka does not start.
pub fn run(root: &Path) -> Result<(), String> {
    let keys = root.join("src/config/keys");
    let cases = root.join("src/config/testdata");
    java(root, "ConfigKeys", &[&keys])?;
    java(root, "PropertiesCases", &[&cases.join("properties_cases.txt")])?;
    for kind in ["server", "topic", "broker", "default"] {
        let file = cases.join(format!("{kind}_cases.txt"));
        java(root, "ConfigCases", &[Path::new(kind), &file])?;
    }
    describe(root, &cases)
}

fn java(root: &Path, class: &str, arguments: &[&Path]) -> Result<(), String> {
    let classes = kafka::compile_java(&root.join(format!("xtask/java/{class}.java")))?;
    let mut command = kafka::java(&[], Some(&classes), class)?;
    succeed(command.args(arguments), class)
}

fn succeed(command: &mut Command, name: &str) -> Result<(), String> {
    match command.stdout(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name} ended with {status}")),
        Err(error) => Err(format!("{name} does not start: {error}")),
    }
}

/// Starts a node on an empty disk, and lets it run the commands.
fn describe(root: &Path, cases: &Path) -> Result<(), String> {
    let file = cases.join("describe_server.properties");
    let _ = fs::remove_dir_all(DATA);
    let mut format = kafka::tool("storage")?;
    format.args(["format", "-t", CLUSTER_ID, "-c"]).arg(&file);
    succeed(&mut format, "kafka-storage")?;
    let mut start = kafka::tool("server-start")?;
    let node = start.arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let node = Node(node.map_err(|error| format!("Kafka does not start: {error}"))?);
    let since = Instant::now();
    while TcpStream::connect(SERVER).is_err() {
        if since.elapsed() > START_MAX {
            return Err(format!("Kafka does not listen on {SERVER}"));
        }
        thread::sleep(Duration::from_millis(100));
    }
    let commands = cases.join("describe_commands.txt");
    let outcome = java(root, "ConfigDescribe", &[Path::new(SERVER), &commands, cases]);
    drop(node);
    let _ = fs::remove_dir_all(PathBuf::from(DATA));
    outcome
}

/// A node that ends with the command.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
