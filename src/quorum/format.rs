//! What a node's directories hold before it starts (`kafka-storage format`).
//!
//! Everything is decided here, from the configuration, the options and what the directories hold
//! already; writing the files is left to the caller.

use std::path::{Path, PathBuf};

use base::{LeaderEpoch, NodeId, Random, Uuid};
use bytes::Bytes;
use commitlog::MetaProperties;
use config::BrokerConfig;
use metadata::{
    FEATURES, Feature, KRAFT_VERSION, METADATA_VERSION, MetadataVersion, VersionedRecord,
};
use protocol::FeatureLevelRecord;
use raft::snapshot::{Snapshot, SnapshotId};
use raft::{ReplicaKey, Voter, VoterEndpoint, VoterSet};

/// Who votes at first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Controllers {
    /// Those of `controller.quorum.voters`.
    #[default]
    Configured,
    /// This node alone (`--standalone`).
    Standalone,
    /// These (`--initial-controllers`): number, host, port, directory.
    Initial(Vec<InitialController>),
    /// Nobody that this node knows: it joins a quorum (`--no-initial-controllers`).
    Unknown,
}

/// One of `--initial-controllers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialController {
    /// The node.
    pub id: NodeId,
    /// Its host.
    pub host: String,
    /// The port of its controller listener.
    pub port: u16,
    /// The directory of its metadata log.
    pub directory: Uuid,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct FormatRequest<'a> {
    /// The node's configuration.
    pub config: &'a BrokerConfig,
    /// `--cluster-id`.
    pub cluster_id: &'a str,
    /// Who votes at first.
    pub controllers: Controllers,
    /// `--release-version`.
    pub release_version: Option<&'a str>,
    /// `--feature`, each with its level.
    pub features: &'a [(String, i16)],
    /// `--ignore-formatted`.
    pub ignore_formatted: bool,
    /// `meta.properties` of each directory of [`directories`] that has one, as it was read.
    pub formatted: &'a [(PathBuf, MetaProperties)],
    /// The time, in milliseconds since 1970.
    pub now_ms: i64,
    /// The same as `meta.properties` has it: `Mon Nov 30 23:56:08 UTC 2026`.
    pub date: &'a str,
}

/// What is to be written, in this order.
#[derive(Clone, Debug, PartialEq)]
pub struct FormatPlan {
    /// The files, whose folders are to be made where they are missing.
    pub files: Vec<FormatFile>,
    /// What is to be said, line by line.
    pub messages: Vec<String>,
}

/// One file.
#[derive(Clone, Debug, PartialEq)]
pub struct FormatFile {
    /// Where.
    pub path: PathBuf,
    /// What.
    pub contents: Bytes,
    /// Whether nobody may write to it afterwards.
    pub read_only: bool,
}

/// Why nothing is formatted, in the words of Kafka.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FormatError(pub String);

/// Every directory that a node of this configuration has.
pub fn directories(config: &BrokerConfig) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = config.log_dirs.iter().map(PathBuf::from).collect();
    let metadata = PathBuf::from(&config.metadata_log_dir);
    if !all.contains(&metadata) {
        all.push(metadata);
    }
    all
}

/// Reads `--initial-controllers`: `1@host:port:directory,2@…` (`DynamicVoters.parse`).
///
/// # Errors
/// What is wrong with it.
pub fn parse_initial_controllers(text: &str) -> Result<Vec<InitialController>, FormatError> {
    let parse = |one: &str| {
        let (id, rest) = one.split_once('@')?;
        let (address, directory) = rest.rsplit_once(':')?;
        let (host, port) = address.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let id = id.parse().ok().filter(|id| *id >= 0)?;
        Some(InitialController {
            id: NodeId(id),
            host: Some(host).filter(|host| !host.is_empty())?.to_owned(),
            port: port.parse().ok()?,
            directory: directory.parse().ok()?,
        })
    };
    let refuse = |one: &str| {
        FormatError(format!(
            "Failed to parse dynamic voter string {one}: it is no NODE@HOST:PORT:DIRECTORY-ID"
        ))
    };
    let voters = text.split(',').map(str::trim).filter(|one| !one.is_empty());
    let voters: Vec<_> =
        voters.map(|one| parse(one).ok_or_else(|| refuse(one))).collect::<Result<_, _>>()?;
    if voters.is_empty() {
        return Err(FormatError("No voters given.".to_owned()));
    }
    Ok(voters)
}

/// What formatting writes.
///
/// # Errors
/// Why nothing may be written.
pub fn plan(request: &FormatRequest<'_>, random: &mut Random) -> Result<FormatPlan, FormatError> {
    let is_dynamic = check_controllers(request)?;
    let version = metadata_version(request.release_version)?;
    let levels = feature_levels(request, version, is_dynamic)?;
    check_formatted(request)?;
    let all = directories(request.config);
    let is_formatted =
        |directory: &Path| request.formatted.iter().any(|(path, _)| path == directory);
    let fresh: Vec<&PathBuf> = all.iter().filter(|path| !is_formatted(path)).collect();
    if fresh.is_empty() {
        let messages = vec!["All of the log directories are already formatted.".to_owned()];
        return Ok(FormatPlan { files: Vec::new(), messages });
    }
    let records: Vec<VersionedRecord> = levels.iter().map(level_record).collect();
    let mut messages = vec![bootstrap_message(&levels, version)];
    let mut files = Vec::new();
    for directory in fresh {
        let is_metadata = *directory == Path::new(&request.config.metadata_log_dir);
        let directory_id = match (&request.controllers, is_metadata) {
            (Controllers::Initial(voters), true) => voters
                .iter()
                .find(|voter| voter.id == request.config.node_id)
                .map_or_else(|| Uuid::random(random), |voter| voter.directory),
            _ => Uuid::random(random),
        };
        let voters = initial_voters(request, directory_id);
        let kind = match (is_metadata, voters.is_some()) {
            (false, _) => "data directory",
            (true, false) => "metadata directory",
            (true, true) => "dynamic metadata voter directory",
        };
        let path = directory.display();
        messages.push(format!("Formatting {kind} {path} with {METADATA_VERSION} {version}."));
        if is_metadata {
            files.push(snapshot_file(request, directory, &records, is_dynamic, voters));
        }
        let properties = MetaProperties {
            cluster_id: request.cluster_id.to_owned(),
            node_id: request.config.node_id,
            directory_id: Some(directory_id),
        };
        files.push(FormatFile {
            path: directory.join("meta.properties"),
            contents: properties.format(request.date).into(),
            read_only: false,
        });
    }
    Ok(FormatPlan { files, messages })
}

/// Whether the quorum keeps its own voters (KIP-853).
fn check_controllers(request: &FormatRequest<'_>) -> Result<bool, FormatError> {
    let has_voters = !request.config.quorum_voters.is_empty();
    let refuse = |message: &str| Err(FormatError(message.to_owned()));
    match (&request.controllers, has_voters) {
        (Controllers::Configured, true) => Ok(false),
        (Controllers::Configured, false) if request.config.roles.controller => refuse(
            "Because controller.quorum.voters is not set on this controller, you must specify one \
             of the following: --standalone, --initial-controllers, or --no-initial-controllers.",
        ),
        (Controllers::Configured, false) => Ok(true),
        (Controllers::Unknown, true) => refuse(
            "You cannot specify controller.quorum.voters and format the node with \
             --no-initial-controllers. If you want to use dynamic quorum, please remove \
             controller.quorum.voters and specify controller.quorum.bootstrap.servers instead.",
        ),
        (Controllers::Standalone | Controllers::Initial(_), true) => refuse(
            "You cannot specify controller.quorum.voters and format the node with \
             --initial-controllers or --standalone. If you want to use dynamic quorum, please \
             remove controller.quorum.voters and specify controller.quorum.bootstrap.servers \
             instead.",
        ),
        (Controllers::Standalone | Controllers::Initial(_) | Controllers::Unknown, false) => {
            Ok(true)
        }
    }
}

fn metadata_version(release: Option<&str>) -> Result<MetadataVersion, FormatError> {
    let Some(name) = release else { return Ok(MetadataVersion::LATEST) };
    MetadataVersion::of_name(name).ok_or_else(|| {
        let range = MetadataVersion::range();
        let known: Vec<&str> = (range.min..=range.max)
            .filter_map(MetadataVersion::of_level)
            .map(MetadataVersion::name)
            .collect();
        FormatError(format!(
            "Unknown metadata.version '{name}'. Supported metadata.version are: {}",
            known.join(", ")
        ))
    })
}

/// The features of the new cluster with their levels, `metadata.version` first.
fn feature_levels(
    request: &FormatRequest<'_>,
    version: MetadataVersion,
    is_dynamic: bool,
) -> Result<Vec<(&'static str, i16)>, FormatError> {
    let refuse = |message: String| Err(FormatError(message));
    let asked = |name: &str| {
        let mut all = request.features.iter().filter(|(feature, _)| feature == name);
        all.next_back().map(|(_, level)| *level)
    };
    for (name, level) in request.features {
        if name == METADATA_VERSION {
            return refuse(
                "Use --release-version instead of --feature metadata.version=X to avoid ambiguity."
                    .to_owned(),
            );
        }
        let Some(feature) = Feature::named(name) else {
            let mut known: Vec<&str> = FEATURES.iter().map(|feature| feature.name).collect();
            known.push(KRAFT_VERSION.name);
            known.sort_unstable();
            return refuse(format!(
                "Unsupported feature: {name}. Supported features are: {}",
                known.join(", ")
            ));
        };
        if !(0..=feature.latest()).contains(level) {
            return refuse(format!("No feature:{name} with feature level {level}"));
        }
        if let Some(needed) = feature.needs(*level).filter(|needed| *needed > version) {
            return refuse(format!(
                "{name} could not be set to {level} because it depends on metadata.version={} \
                 ({needed})",
                needed.level()
            ));
        }
    }
    match (asked(KRAFT_VERSION.name), is_dynamic) {
        (Some(0), true) => {
            return refuse(
                "Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of \
                 the flags --standalone, --initial-controllers, or --no-initial-controllers is \
                 used. For dynamic controllers support, try removing the --feature flag for \
                 kraft.version."
                    .to_owned(),
            );
        }
        (Some(level), false) if level > 0 => {
            return refuse(format!(
                "Cannot set kraft.version to {level} unless controller.quorum.voters is empty and \
                 one of the flags --standalone, --initial-controllers, or \
                 --no-initial-controllers is used. For dynamic controllers support, try using one \
                 of --standalone, --initial-controllers, or --no-initial-controllers and removing \
                 controller.quorum.voters."
            ));
        }
        _ => {}
    }
    let mut levels = vec![(METADATA_VERSION, version.level())];
    for feature in FEATURES {
        let level = asked(feature.name).unwrap_or_else(|| feature.default_level(version));
        if level > 0 {
            levels.push((feature.name, level));
        }
    }
    Ok(levels)
}

/// What is formatted already must be of this cluster and node.
fn check_formatted(request: &FormatRequest<'_>) -> Result<(), FormatError> {
    for (path, properties) in request.formatted {
        let file = path.join("meta.properties");
        let differs =
            |what: &str, expected: &dyn std::fmt::Display, found: &dyn std::fmt::Display| {
                let file = file.display();
                Err(FormatError(format!(
                    "Invalid {what} in: {file}. Expected {expected}, but read {found}: the \
                     directory is already formatted, for another cluster or node. Start the node \
                     on it as it is, name another directory, or remove what is in it if nobody \
                     needs that any more"
                )))
            };
        if properties.cluster_id != request.cluster_id {
            return differs("cluster.id", &request.cluster_id, &properties.cluster_id);
        }
        if properties.node_id != request.config.node_id {
            return differs("node.id", &request.config.node_id, &properties.node_id);
        }
        if !request.ignore_formatted {
            return Err(FormatError(format!(
                "Log directory {} is already formatted. Use --ignore-formatted to ignore this \
                 directory and format the others.",
                path.display()
            )));
        }
    }
    Ok(())
}

/// The voters that the snapshot names, if it names some.
fn initial_voters(request: &FormatRequest<'_>, directory: Uuid) -> Option<VoterSet> {
    let listener: &str =
        request.config.controller_listener_names.first().map_or("CONTROLLER", String::as_str);
    let voter = |id: NodeId, directory: Uuid, host: &str, port: u16| Voter {
        key: ReplicaKey { id, directory },
        endpoints: vec![VoterEndpoint { listener: listener.into(), host: host.into(), port }],
        kraft_versions: (0, KRAFT_VERSION.latest()),
    };
    match &request.controllers {
        Controllers::Configured | Controllers::Unknown => None,
        Controllers::Initial(voters) => {
            let voters = voters.iter().map(|one| voter(one.id, one.directory, &one.host, one.port));
            Some(VoterSet::new(voters.collect()))
        }
        Controllers::Standalone => {
            let config = request.config;
            let endpoints =
                config.advertised_controller_listeners.iter().map(|one| VoterEndpoint {
                    listener: one.name.as_str().into(),
                    host: one.host.as_str().into(),
                    port: one.port,
                });
            let mut own = voter(config.node_id, directory, "", 0);
            own.endpoints = endpoints.collect();
            Some(VoterSet::new(vec![own]))
        }
    }
}

fn snapshot_file(
    request: &FormatRequest<'_>,
    directory: &Path,
    records: &[VersionedRecord],
    is_dynamic: bool,
    voters: Option<VoterSet>,
) -> FormatFile {
    let encode =
        |record: &VersionedRecord| record.encode().expect("a feature's level can be written");
    let snapshot = Snapshot {
        last_contained_ms: request.now_ms,
        kraft_version: if is_dynamic { KRAFT_VERSION.latest() } else { 0 },
        voters,
        values: records.iter().map(encode).collect(),
    };
    let folder = directory.join(format!("{}-0", controller::METADATA_TOPIC));
    FormatFile {
        path: folder.join(SnapshotId::BOOTSTRAP.file_name()),
        contents: snapshot.to_bytes(LeaderEpoch(0), request.now_ms),
        read_only: true,
    }
}

fn level_record(level: &(&'static str, i16)) -> VersionedRecord {
    let record = FeatureLevelRecord {
        name: level.0.into(),
        feature_level: level.1,
        ..FeatureLevelRecord::default()
    };
    VersionedRecord { record: record.into(), version: 0 }
}

/// As Kafka prints it (`BootstrapMetadata.toString`).
fn bootstrap_message(levels: &[(&'static str, i16)], version: MetadataVersion) -> String {
    let records = levels.iter().map(|(name, level)| {
        format!(
            "ApiMessageAndVersion(FeatureLevelRecord(name='{name}', featureLevel={level}) at \
             version 0)"
        )
    });
    let records: Vec<String> = records.collect();
    format!(
        "Bootstrap metadata: BootstrapMetadata(records=[{}], metadataVersionLevel={}, \
         source=format command)",
        records.join(", "),
        version.level()
    )
}
