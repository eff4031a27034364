//! Starting a node.

use std::path::Path;
use std::sync::Arc;

use config::{BrokerConfig, Pairs};
use node::{LogDirectorySetup, NodePlan, Role};
use runtime::{NodeSpec, Settings, ThreadSpec};

use crate::cli::StartOptions;
use crate::directories::{self, Directories};
use crate::layout::{Layout, layout};
use crate::listeners::listeners;
use crate::memory;
use crate::output;

/// `corelane start`.
pub(crate) fn run(options: &StartOptions) -> Result<(), String> {
    output::start_logging();
    let config = configuration(&options.file, &options.settings)?;
    let directories = directories::open(&config)?;
    start(config, directories)
}

/// The configuration of a file, with the settings of the command line in place of its own.
pub(crate) fn configuration(file: &Path, settings: &[String]) -> Result<BrokerConfig, String> {
    let text = read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let mut pairs =
        config::parse_properties(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    pairs.extend(overrides(settings)?);
    BrokerConfig::from_pairs(pairs).map_err(|error| format!("{}: {error}", file.display()))
}

/// Settings of the command line.
pub(crate) fn overrides(settings: &[String]) -> Result<Pairs, String> {
    let pair = |setting: &String| {
        let pair = setting.split_once('=');
        let pair = pair.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
        pair.ok_or_else(|| format!("'{setting}' is not KEY=VALUE"))
    };
    settings.iter().map(pair).collect()
}

/// Runs a node until it is asked to stop.
pub(crate) fn start(config: BrokerConfig, directories: Directories) -> Result<(), String> {
    warn_of_settings(&config);
    let layout = layout(&runtime::cores(), &config.simple)?;
    tracing::info!(
        node = %config.node_id,
        cluster = directories.cluster_id,
        data_cores = ?layout.data,
        quorum_core = layout.quorum,
        version = env!("CARGO_PKG_VERSION"),
        "starting"
    );
    let settings = Settings::default();
    let listeners = listeners(&config)?;
    let plan = NodePlan {
        data_shards: u16::try_from(layout.data.len())
            .map_err(|_| "corelane.cores: more than 65,535 cores".to_owned())?,
        lane_slots: u32::try_from(settings.lane_slots).unwrap_or(u32::MAX),
        cluster_id: directories.cluster_id.as_str().into(),
        log_directories: directories.logs.iter().map(log_directory).collect(),
        dirty_bytes_max: memory::dirty_bytes_max(directories.logs.len()),
        metadata_directory: directories.metadata.path.clone(),
        metadata_directory_id: directories.metadata.id,
        listeners: listeners.of_broker.into(),
        controller_listeners: listeners.of_controller.into(),
        seed: seed()?,
        config: Arc::new(config),
    };
    let spec = NodeSpec { threads: threads(&plan, &layout)?, settings };
    // The locks of the directories are held until the node has ended.
    let ended = runtime::run(spec).map_err(|error| error.to_string());
    drop(directories);
    if ended.is_ok() {
        tracing::info!("stopped");
    }
    ended
}

fn log_directory(directory: &directories::DataDirectory) -> LogDirectorySetup {
    let (path, offline) = (directory.path.clone(), directory.offline.clone());
    LogDirectorySetup { path, id: directory.id, offline }
}

fn threads(plan: &NodePlan, layout: &Layout) -> Result<Vec<ThreadSpec<node::Message>>, String> {
    let mut threads: Vec<ThreadSpec<node::Message>> = Vec::new();
    for machine in node::machines(plan)? {
        let core = match machine.role {
            Role::Data => layout.data[usize::from(machine.shard.0)],
            Role::Quorum => layout.quorum,
        };
        let entry = (machine.shard, machine.build);
        match threads.iter_mut().find(|thread| thread.core == Some(core)) {
            Some(thread) => thread.machines.push(entry),
            None => threads.push(ThreadSpec {
                name: format!("core-{core}"),
                core: Some(core),
                machines: vec![entry],
            }),
        }
    }
    Ok(threads)
}

/// Names in one line each what a configuration sets in vain.
fn warn_of_settings(config: &BrokerConfig) {
    let (unused, unknown) = (config.unused_keys(), config.unknown_keys());
    if !unused.is_empty() {
        tracing::warn!("settings of Apache Kafka that are not used yet: {}", unused.join(", "));
    }
    if !unknown.is_empty() {
        tracing::warn!("settings that are not known: {}", unknown.join(", "));
    }
}

#[allow(clippy::disallowed_methods)] // Before the machines start there is nobody to do it.
fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    std::fs::read(file)
}

/// The one random number of a process: everything random in its machines follows from it.
pub(crate) fn seed() -> Result<u64, String> {
    use std::io::Read;
    let mut bytes = [0; 8];
    let path = "/dev/urandom";
    #[allow(clippy::disallowed_methods)] // See `read`.
    let file = std::fs::File::open(path);
    file.and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| format!("cannot read {path}: {error}"))?;
    Ok(u64::from_le_bytes(bytes))
}
