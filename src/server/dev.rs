//! `corelane dev`: a single node that needs no file.

use std::path::Path;

use base::{Random, Uuid};
use config::{BrokerConfig, Pairs};

use crate::cli::DevOptions;
use crate::format::{self, Wanted};
use crate::{directories, output, start};

/// What a node on its own needs that differs from Kafka's defaults: one replica of everything, and
/// groups that do not wait for more members.
const SETTINGS: [(&str, &str); 6] = [
    ("process.roles", "broker,controller"),
    ("node.id", "1"),
    ("controller.listener.names", "CONTROLLER"),
    ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"),
    ("offsets.topic.replication.factor", "1"),
    ("group.initial.rebalance.delay.ms", "0"),
];

pub(crate) fn run(options: &DevOptions) -> Result<(), String> {
    output::start_logging();
    let config = configuration(options)?;
    let formatted = directories::read_if_formatted(&options.data)?.is_some();
    if !formatted {
        refuse_foreign_data(&options.data)?;
        format_node(&config)?;
    }
    let opened = directories::open(&config)?;
    greet(options, formatted, &opened.cluster_id);
    start::start(config, opened)
}

fn configuration(options: &DevOptions) -> Result<BrokerConfig, String> {
    let controller = match options.port {
        0 => 0,
        port => port.checked_add(1).ok_or("--port: 65535 leaves no next port")?,
    };
    let (port, data) = (options.port, options.data.display());
    let mut pairs: Pairs =
        SETTINGS.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let listeners = format!("PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}");
    pairs.insert("listeners".to_owned(), listeners);
    pairs.insert("controller.quorum.voters".to_owned(), format!("1@127.0.0.1:{controller}"));
    pairs.insert("log.dirs".to_owned(), data.to_string());
    pairs.extend(start::overrides(&options.settings)?);
    BrokerConfig::from_pairs(pairs).map_err(|error| error.to_string())
}

/// A directory that holds something and has no `meta.properties` is not this command's to format.
fn refuse_foreign_data(data: &Path) -> Result<(), String> {
    #[allow(clippy::disallowed_methods)] // Before the machines start there is nobody to do it.
    let entries = std::fs::read_dir(data);
    let holds_something = entries.is_ok_and(|mut entries| entries.next().is_some());
    if !holds_something {
        return Ok(());
    }
    Err(format!(
        "{} is not empty and has no meta.properties, so that it cannot be told whose data it is. \
         Put meta.properties back, or give an empty directory with --data",
        data.display()
    ))
}

fn format_node(config: &BrokerConfig) -> Result<(), String> {
    let cluster_id = Uuid::random(&mut Random::new(start::seed()?)).to_string();
    format::apply(config, Wanted { cluster_id: &cluster_id, ..Wanted::default() })?;
    Ok(())
}

fn greet(options: &DevOptions, formatted: bool, cluster_id: &str) {
    let (port, data) = (options.port, shown(&options.data));
    let did = if formatted { "Continuing with" } else { "Formatted" };
    output::say(&format!("{did} {data} (cluster {cluster_id})."));
    if port == 0 {
        output::say("One node starts on a port that is free, see \"listening\". Ctrl-C stops it.");
        return;
    }
    output::say(&format!("One node starts, for clients on 127.0.0.1:{port}. Ctrl-C stops it."));
    output::say("Try, in another terminal, once it says \"the broker is running\":");
    let server = format!("--bootstrap-server 127.0.0.1:{port}");
    output::say(&format!("  cargo xtask kafka topics {server} --create --topic orders"));
    output::say(&format!("  cargo xtask kafka console-producer {server} --topic orders"));
}

fn shown(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}
