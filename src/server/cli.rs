//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// A broker that takes Apache Kafka's place.
#[derive(Debug, Parser)]
#[command(name = "corelane", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Formats and starts a single node on this machine; a second start continues.
    Dev(DevOptions),
    /// Starts a node with Kafka's own configuration file.
    Start(StartOptions),
    /// Formats the data directories of a node, as kafka-storage format does.
    Format(FormatOptions),
    /// Prints an id for a new cluster, as kafka-storage random-uuid does.
    RandomUuid,
    /// Shows the metadata in a node's files, as kafka-metadata-shell does.
    MetadataShell(ShellOptions),
}

#[derive(Debug, Args)]
pub(crate) struct DevOptions {
    /// Where the data is kept.
    #[arg(long, default_value = "corelane-data", value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// The port for clients on 127.0.0.1, 0 for any; the next one is kept for controllers.
    #[arg(long, default_value_t = 9092, value_name = "PORT")]
    pub(crate) port: u16,
    /// A setting of server.properties, as KEY=VALUE; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct StartOptions {
    /// The configuration file, in the format of Kafka's server.properties.
    #[arg(value_name = "server.properties")]
    pub(crate) file: PathBuf,
    /// A setting that replaces the file's, as KEY=VALUE; may be given several times.
    #[arg(long = "override", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
}

/// The options of `kafka-storage format`.
#[derive(Debug, Args)]
pub(crate) struct FormatOptions {
    /// The configuration file, in the format of Kafka's server.properties.
    #[arg(short, long, value_name = "server.properties")]
    pub(crate) config: PathBuf,
    /// The id of the cluster.
    #[arg(short = 't', long, value_name = "ID")]
    pub(crate) cluster_id: String,
    /// Format this node as the only voter of a dynamic quorum.
    #[arg(short, long, conflicts_with_all = ["no_initial_controllers", "initial_controllers"])]
    pub(crate) standalone: bool,
    /// Format without voters: they are added later, or stand in controller.quorum.voters.
    #[arg(short = 'N', long, conflicts_with = "initial_controllers")]
    pub(crate) no_initial_controllers: bool,
    /// The voters of a dynamic quorum, as ID@HOST:PORT:DIRECTORY_ID, separated by commas.
    #[arg(short = 'I', long, value_name = "LIST")]
    pub(crate) initial_controllers: Option<String>,
    /// Leave directories alone that are formatted already.
    #[arg(short = 'g', long)]
    pub(crate) ignore_formatted: bool,
    /// The release whose features to begin with, such as 4.4.
    #[arg(short, long, value_name = "RELEASE")]
    pub(crate) release_version: Option<String>,
    /// The level of a feature to begin with, as NAME=LEVEL; may be given several times.
    #[arg(short, long, value_name = "NAME=LEVEL")]
    pub(crate) feature: Vec<String>,
}

/// The options of `kafka-metadata-shell`, and a directory.
#[derive(Debug, Args)]
pub(crate) struct ShellOptions {
    /// The file to show alone: a snapshot of the metadata, or a segment of its log.
    #[arg(short, long, value_name = "FILE", required_unless_present = "directory")]
    pub(crate) snapshot: Option<PathBuf>,
    /// The data directory to show: its newest snapshot, and the log behind it. Nothing is changed,
    /// and the node may run.
    #[arg(short, long, value_name = "DIR", conflicts_with = "snapshot")]
    pub(crate) directory: Option<PathBuf>,
    /// cat, find, ls or tree, with paths; without it, commands are read from standard input, and
    /// `help` lists them.
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}
