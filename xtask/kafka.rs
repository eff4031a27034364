//! Apache Kafka's own tools, unchanged: fetched once through Maven, started by their names.
//!
//! A tool's name is that of Kafka's script without `kafka-` and `.sh`; both are taken too. As with
//! Kafka's scripts, `KAFKA_HEAP_OPTS` and `KAFKA_OPTS` go to the virtual machine.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::prerequisites::{self, Prerequisite};
use crate::workspace_root;

/// The version of Apache Kafka that Corelane takes the place of.
pub const VERSION: &str = "4.4.0";

/// Name of a tool, and the class that Kafka's script of this name starts.
#[rustfmt::skip]
pub const TOOLS: &[(&str, &str)] = &[
    ("acls", "org.apache.kafka.tools.AclCommand"),
    ("broker-api-versions", "org.apache.kafka.tools.BrokerApiVersionsCommand"),
    ("client-metrics", "org.apache.kafka.tools.ClientMetricsCommand"),
    ("cluster", "org.apache.kafka.tools.ClusterTool"),
    ("configs", "org.apache.kafka.tools.ConfigCommand"),
    ("console-consumer", "org.apache.kafka.tools.consumer.ConsoleConsumer"),
    ("console-producer", "org.apache.kafka.tools.ConsoleProducer"),
    ("console-share-consumer", "org.apache.kafka.tools.consumer.ConsoleShareConsumer"),
    ("consumer-groups", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
    ("consumer-perf-test", "org.apache.kafka.tools.ConsumerPerformance"),
    ("delegation-tokens", "org.apache.kafka.tools.DelegationTokenCommand"),
    ("delete-records", "org.apache.kafka.tools.DeleteRecordsCommand"),
    ("dump-log", "org.apache.kafka.tools.DumpLogSegments"),
    ("e2e-latency", "org.apache.kafka.tools.EndToEndLatency"),
    ("features", "org.apache.kafka.tools.FeatureCommand"),
    ("get-offsets", "org.apache.kafka.tools.GetOffsetShell"),
    ("groups", "org.apache.kafka.tools.GroupsCommand"),
    ("jmx", "org.apache.kafka.tools.JmxTool"),
    ("leader-election", "org.apache.kafka.tools.LeaderElectionCommand"),
    ("log-dirs", "org.apache.kafka.tools.LogDirsCommand"),
    ("metadata-quorum", "org.apache.kafka.tools.MetadataQuorumCommand"),
    ("producer-perf-test", "org.apache.kafka.tools.ProducerPerformance"),
    ("reassign-partitions", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"),
    ("replica-verification", "org.apache.kafka.tools.ReplicaVerificationTool"),
    ("server-start", "kafka.Kafka"),
    ("share-consumer-perf-test", "org.apache.kafka.tools.ShareConsumerPerformance"),
    ("share-groups", "org.apache.kafka.tools.consumer.group.ShareGroupCommand"),
    ("storage", "kafka.tools.StorageTool"),
    ("streams-application-reset", "org.apache.kafka.tools.StreamsResetter"),
    ("streams-groups", "org.apache.kafka.tools.streams.StreamsGroupCommand"),
    ("topics", "org.apache.kafka.tools.TopicCommand"),
    ("transactions", "org.apache.kafka.tools.TransactionsCommand"),
    ("verifiable-consumer", "org.apache.kafka.tools.VerifiableConsumer"),
    ("verifiable-producer", "org.apache.kafka.tools.VerifiableProducer"),
    ("verifiable-share-consumer", "org.apache.kafka.tools.VerifiableShareConsumer"),
];

/// Kafka with its tools, and what lets it log as Kafka's distribution does.
const ARTIFACTS: &[(&str, &str, &str)] = &[
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.apache.kafka", "kafka-tools", VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.5"),
];

const LOG_CONFIGURATION: &str = "\
status = warn
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = ${sys:corelane.log.level:-warn}
rootLogger.appenderRef.console.ref = console
";

/// Runs a tool in the foreground and gives its exit code.
///
/// # Errors
/// A sentence when the tool is unknown, or Java, Maven or the jars cannot be had.
pub fn run(name: &str, arguments: &[String]) -> Result<u8, String> {
    let mut command = tool(name)?;
    let status = command.args(arguments).status();
    let status = status.map_err(|error| format!("starting java: {error}"))?;
    Ok(exit_code(status))
}

/// Prints the name of every tool.
pub fn print_tools() {
    println!("Apache Kafka {VERSION}'s tools: cargo xtask kafka TOOL arguments…");
    for (name, class) in TOOLS {
        println!("  {name:26} {class}");
    }
}

/// The command that starts a tool; its arguments are to be added.
///
/// # Errors
/// A sentence when the tool is unknown, or Java, Maven or the jars cannot be had.
pub fn tool(name: &str) -> Result<Command, String> {
    let (short, class) = find(name)?;
    let defaults: &[&str] = match short {
        "server-start" => &["-Xmx1G", "-Xms1G", "-Dcorelane.log.level=info"],
        _ => &["-Xmx512M"],
    };
    let heap = env::var("KAFKA_HEAP_OPTS").unwrap_or_else(|_| defaults.join(" "));
    let more = env::var("KAFKA_OPTS").unwrap_or_default();
    let options: Vec<&str> = heap.split_whitespace().chain(more.split_whitespace()).collect();
    java(&options, None, class)
}

/// The command that starts a tool with exactly these options of the virtual machine.
///
/// # Errors
/// As [`tool`].
pub fn tool_with(name: &str, options: &[&str]) -> Result<Command, String> {
    java(options, None, find(name)?.1)
}

/// The command that starts a class with Kafka's jars, and with one more folder of classes.
///
/// # Errors
/// A sentence when Java, Maven or the jars cannot be had.
pub fn java(options: &[&str], classes: Option<&Path>, class: &str) -> Result<Command, String> {
    prerequisites::require(Prerequisite::Java)?;
    let mut class_path = class_path()?;
    if let Some(classes) = classes {
        class_path.push(":");
        class_path.push(classes);
    }
    let mut log = OsString::from("-Dlog4j2.configurationFile=");
    log.push(folder().join("log4j2.properties"));
    let mut command = Command::new("java");
    command.args(options).arg(log).arg("-cp").arg(class_path).arg(class);
    Ok(command)
}

/// Fetches the jars if they aren't there yet, and gives their class path.
///
/// # Errors
/// A sentence when Maven is missing or fails.
pub fn class_path() -> Result<OsString, String> {
    Ok(jar_folder()?.join("*").into_os_string())
}

/// Fetches the jars if they aren't there yet, and gives the folder that they are in.
///
/// # Errors
/// A sentence when Maven is missing or fails.
pub fn jar_folder() -> Result<PathBuf, String> {
    let libraries = folder().join("libs");
    if !libraries.is_dir() {
        fetch(&folder(), &libraries)?;
    }
    Ok(libraries)
}

/// Where Kafka's jars, and what was made from them, are kept.
pub fn folder() -> PathBuf {
    workspace_root().join("target/kafka").join(VERSION)
}

/// The short name and the class of a tool.
fn find(name: &str) -> Result<(&'static str, &'static str), String> {
    let short = name.strip_suffix(".sh").unwrap_or(name);
    let short = short.strip_prefix("kafka-").unwrap_or(short);
    let found = TOOLS.iter().find(|(known, _)| *known == short);
    let unknown = || format!("no tool is named `{name}`: `cargo xtask kafka` lists them");
    found.copied().ok_or_else(unknown)
}

/// Lets Maven copy Kafka and all that it needs. One process fetches, the others wait for it.
fn fetch(folder: &Path, libraries: &Path) -> Result<(), String> {
    let io = |what: &'static str| move |error| format!("{what} below target/kafka: {error}");
    fs::create_dir_all(folder).map_err(io("making folders"))?;
    let lock = fs::File::create(folder.join("lock")).map_err(io("making a lock"))?;
    lock.lock().map_err(io("taking the lock"))?;
    if libraries.is_dir() {
        return Ok(());
    }
    prerequisites::require(Prerequisite::Maven)?;
    eprintln!("fetching Apache Kafka {VERSION} through Maven into {} …", folder.display());
    fs::write(folder.join("pom.xml"), pom()).map_err(io("writing the pom"))?;
    let log = folder.join("log4j2.properties");
    fs::write(log, LOG_CONFIGURATION).map_err(io("writing the log configuration"))?;
    let partial = folder.join("libs.partial");
    let output = Command::new("mvn")
        .args(["--quiet", "--batch-mode", "dependency:copy-dependencies"])
        .arg("-DincludeScope=runtime")
        .arg(format!("-DoutputDirectory={}", partial.display()))
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("starting mvn: {error}"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stdout);
        return Err(format!("Maven could not fetch Apache Kafka {VERSION}:\n{words}"));
    }
    fs::rename(&partial, libraries).map_err(io("renaming the folder"))
}

fn pom() -> String {
    let dependency = |(group, artifact, version): &(&str, &str, &str)| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version></dependency>\n"
        )
    };
    let dependencies: String = ARTIFACTS.iter().map(dependency).collect();
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n\
         <modelVersion>4.0.0</modelVersion>\n\
         <groupId>corelane</groupId><artifactId>kafka-tools</artifactId><version>1</version>\n\
         <dependencies>\n{dependencies}</dependencies>\n</project>\n"
    )
}

fn exit_code(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Where a Java class of our own is compiled to, against Kafka's jars: used by proofs and tests.
///
/// # Errors
/// A sentence when Java or the jars cannot be had, or the source doesn't compile.
pub fn compile_java(source: &Path) -> Result<PathBuf, String> {
    prerequisites::require(Prerequisite::Java)?;
    let name = source.file_stem().and_then(|name| name.to_str()).unwrap_or("java");
    let target = workspace_root().join("target/java").join(name);
    let stamp = target.join("compiled");
    let io = |error| format!("writing to target/java: {error}");
    let modified = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    // It may use the classes that stand beside it.
    let folder = source.parent().unwrap_or(source);
    let mut newest = modified(source);
    for entry in fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|ending| ending == "java") {
            newest = newest.max(modified(&path));
        }
    }
    if modified(&stamp).is_some_and(|at| Some(at) > newest) {
        return Ok(target);
    }
    fs::create_dir_all(&target).map_err(io)?;
    let lock = fs::File::create(target.join("lock")).map_err(io)?;
    lock.lock().map_err(io)?;
    if modified(&stamp).is_some_and(|at| Some(at) > newest) {
        return Ok(target);
    }
    let mut compiler = Command::new("javac");
    compiler.arg("-nowarn").arg("-cp").arg(class_path()?).arg("-d").arg(&target);
    compiler.arg("-sourcepath").arg(folder).arg(source);
    let status = compiler.status().map_err(|error| format!("starting javac: {error}"))?;
    if !status.success() {
        return Err(format!("{} does not compile", source.display()));
    }
    fs::write(stamp, "").map_err(io)?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_ordered_and_unique() {
        assert!(TOOLS.is_sorted_by(|left, right| left.0 < right.0));
    }

    #[test]
    fn an_unknown_tool_is_named() {
        let sentence = tool("kafka-nothing.sh").expect_err("there is no such tool");
        assert!(sentence.contains("`kafka-nothing.sh`"), "{sentence}");
    }
}
