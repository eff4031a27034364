//! The data directories of a node: what their `meta.properties` say, and their locks.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use base::Uuid;
use commitlog::MetaProperties;
use config::BrokerConfig;
use node::DIRECTORY_LOST;
use ring::FileLock;

/// The file that says to which cluster and node a directory belongs.
pub(crate) const META_PROPERTIES: &str = "meta.properties";
/// The file whose lock keeps a second process out.
const LOCK: &str = ".lock";

/// One directory that belongs to this node.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    pub(crate) path: PathBuf,
    pub(crate) id: Uuid,
    /// Why it cannot be read, if so: the node starts without it.
    pub(crate) offline: Option<String>,
}

/// Why a directory is not opened.
#[derive(Debug)]
enum Refusal {
    /// Its disk refuses.
    Broken(String),
    /// It is not this node's, or it is in use.
    Wrong(String),
}

impl From<Refusal> for String {
    fn from(refusal: Refusal) -> Self {
        let (Refusal::Broken(sentence) | Refusal::Wrong(sentence)) = refusal;
        sentence
    }
}

/// The directories of a node, locked for as long as this lives.
#[derive(Debug)]
pub(crate) struct Directories {
    pub(crate) cluster_id: String,
    /// Those of `log.dirs`, in order.
    pub(crate) logs: Vec<DataDirectory>,
    /// Where the metadata log is; may be one of `logs`.
    pub(crate) metadata: DataDirectory,
    _locks: Vec<FileLock>,
}

/// Reads and locks the directories that a configuration names. One whose disk refuses is offline,
/// unless it is the one of the metadata log.
///
/// # Errors
/// A sentence on what is wrong and what to do; nothing has been changed.
pub(crate) fn open(config: &BrokerConfig) -> Result<Directories, String> {
    refuse_same(&paths(config))?;
    let (mut logs, mut locks, mut cluster_id) = (Vec::new(), Vec::new(), None);
    for path in paths(config) {
        let opened = lock(&path).and_then(|lock| Ok((lock, read(&path)?)));
        let (lock, found) = match opened {
            Ok(opened) => opened,
            Err(Refusal::Broken(sentence)) if path != Path::new(&config.metadata_log_dir) => {
                let (id, offline) = (DIRECTORY_LOST, Some(sentence));
                logs.push(DataDirectory { path, id, offline });
                continue;
            }
            Err(refusal) => return Err(refusal.into()),
        };
        locks.push(lock);
        check(config, &path, &found, cluster_id.as_deref())?;
        cluster_id.get_or_insert(found.cluster_id);
        // A directory from before directories had ids gets none here: an id that is made up at
        // each start would name another directory each time.
        let id = found.directory_id.ok_or_else(|| {
            format!(
                "{} has no 'directory.id'. It was written by a release before 3.7; start it once \
                 with Apache Kafka 3.7 or later, which adds one",
                path.join(META_PROPERTIES).display()
            )
        })?;
        logs.push(DataDirectory { path, id, offline: None });
    }
    let metadata = PathBuf::from(&config.metadata_log_dir);
    let index = logs.iter().position(|directory| directory.path == metadata);
    let index = index.expect("the metadata directory is among those that were read");
    let metadata = DataDirectory { path: metadata, id: logs[index].id, offline: None };
    logs.retain(|directory| config.log_dirs.iter().any(|path| Path::new(path) == directory.path));
    let cluster_id = cluster_id.expect("log.dirs is never empty");
    Ok(Directories { cluster_id, logs, metadata, _locks: locks })
}

/// Refuses one directory by two names, or a copy of another one (`MetaPropertiesEnsemble.verify`).
fn refuse_same(paths: &[PathBuf]) -> Result<(), String> {
    let mut known: Vec<(Uuid, &Path)> = Vec::new();
    for path in paths {
        // Whatever else is wrong with one is found when it is opened.
        let Some(id) = try_to_read(path).ok().flatten().and_then(|found| found.directory_id) else {
            continue;
        };
        if let Some((_, other)) = known.iter().find(|(other, _)| *other == id) {
            return Err(format!(
                "Duplicate directory ID {id} found. It was the ID of {}, but also of {}: they are \
                 one directory, or copies. Name each once in log.dirs, and metadata.log.dir in the \
                 same words",
                other.display(),
                path.display()
            ));
        }
        known.push((id, path));
    }
    Ok(())
}

/// Every directory of a node once: those of its logs, and that of the metadata log.
pub(crate) fn paths(config: &BrokerConfig) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for path in config.log_dirs.iter().chain([&config.metadata_log_dir]) {
        // Other spellings of a path count as other directories, as in Kafka.
        if !paths.iter().any(|known| known.as_os_str() == path.as_str()) {
            paths.push(PathBuf::from(path));
        }
    }
    paths
}

/// What the `meta.properties` of a directory say; nothing where it is not formatted.
pub(crate) fn read_if_formatted(path: &Path) -> Result<Option<MetaProperties>, String> {
    Ok(try_to_read(path)?)
}

fn try_to_read(path: &Path) -> Result<Option<MetaProperties>, Refusal> {
    let file = path.join(META_PROPERTIES);
    let text = match read_text(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let sentence = format!("cannot read {}: {error}", file.display());
            return Err(Refusal::Broken(sentence));
        }
    };
    let found = MetaProperties::parse(&text);
    let wrong = |error| Refusal::Wrong(format!("{} cannot be used: {error}", file.display()));
    found.map(Some).map_err(wrong)
}

fn read(path: &Path) -> Result<MetaProperties, Refusal> {
    try_to_read(path)?.ok_or_else(|| not_formatted(path))
}

fn not_formatted(path: &Path) -> Refusal {
    Refusal::Wrong(format!(
        "No `meta.properties` found in {} (have you run `corelane format` to format the \
         directory?)",
        path.display()
    ))
}

fn check(
    config: &BrokerConfig,
    path: &Path,
    found: &MetaProperties,
    cluster_id: Option<&str>,
) -> Result<(), String> {
    if found.node_id != config.node_id {
        return Err(format!(
            "Stored node id {} doesn't match previous node id {} in {}. If you moved your data, \
             make sure your configured node id matches. If you intend to create a new node, you \
             should remove all data in your data directories",
            found.node_id,
            config.node_id,
            path.join(META_PROPERTIES).display()
        ));
    }
    match cluster_id {
        Some(cluster_id) if cluster_id != found.cluster_id => Err(format!(
            "Invalid cluster.id in {}. Expected {cluster_id}, but read {}. All directories of a \
             node belong to one cluster",
            path.join(META_PROPERTIES).display(),
            found.cluster_id
        )),
        _ => Ok(()),
    }
}

fn lock(path: &Path) -> Result<FileLock, Refusal> {
    let file = path.join(LOCK);
    match FileLock::take(&file) {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => Err(Refusal::Wrong(format!(
            "Failed to acquire lock on file .lock in {}. A Kafka instance in another process or \
             thread is using this directory",
            path.display()
        ))),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(not_formatted(path)),
        Err(error) => Err(Refusal::Broken(format!("cannot lock {}: {error}", file.display()))),
    }
}

#[allow(clippy::disallowed_methods)] // Before the machines start there is nobody to do it.
fn read_text(path: &Path) -> std::io::Result<String> {
    std::fs::read_to_string(path)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // The tests make the directories that they read.
mod tests {
    use base::Random;

    use super::*;

    fn config(directories: &[&Path]) -> BrokerConfig {
        let list: Vec<String> = directories.iter().map(|path| path.display().to_string()).collect();
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=C\n\
             listeners=PLAINTEXT://127.0.0.1:1,C://127.0.0.1:2\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,C:PLAINTEXT\n\
             controller.quorum.voters=1@127.0.0.1:2\nlog.dirs={}\n",
            list.join(",")
        );
        BrokerConfig::parse(text.as_bytes()).expect("valid")
    }

    /// Each directory gets an id of its own.
    fn format(path: &Path, node: i32, cluster: &str) {
        let name = path.as_os_str().as_encoded_bytes();
        let seed = name.iter().fold(0_u64, |seed, byte| seed.wrapping_mul(31) + u64::from(*byte));
        let id = Uuid::random(&mut Random::new(seed));
        let text = format!("version=1\nnode.id={node}\ncluster.id={cluster}\ndirectory.id={id}\n");
        std::fs::write(path.join(META_PROPERTIES), text).expect("written");
    }

    #[test]
    fn directories_are_read_and_locked_once() {
        let (one, two) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        format(one.path(), 1, "c");
        format(two.path(), 1, "c");
        let config = config(&[one.path(), two.path()]);
        let opened = open(&config).expect("both belong here");
        assert_eq!((opened.logs.len(), opened.cluster_id.as_str()), (2, "c"));
        assert_eq!(opened.metadata.path, one.path());
        let again = open(&config).expect_err("it is locked");
        assert!(again.contains("Failed to acquire lock"), "{again}");
        drop(opened);
        open(&config).expect("the lock has gone");
    }

    #[test]
    fn a_directory_whose_disk_refuses_is_offline_unless_it_has_the_metadata() {
        let (one, two) = (tempfile::tempdir().expect("dir"), tempfile::NamedTempFile::new());
        let two = two.expect("a file in the way");
        format(one.path(), 1, "c");
        let opened = open(&config(&[one.path(), two.path()])).expect("one is left");
        let offline: Vec<bool> = opened.logs.iter().map(|one| one.offline.is_some()).collect();
        assert_eq!(offline, [false, true]);
        drop(opened);
        let error = open(&config(&[two.path(), one.path()])).expect_err("the metadata are there");
        assert!(error.contains("Not a directory"), "{error}");
    }

    #[test]
    fn a_directory_by_two_names_is_refused_by_both() {
        let one = tempfile::tempdir().expect("dir");
        format(one.path(), 1, "c");
        let link = one.path().join("link");
        std::os::unix::fs::symlink(one.path(), &link).expect("a link");
        let slash = PathBuf::from(format!("{}/", one.path().display()));
        for other in
            [one.path().join("../").join(one.path().file_name().expect("it has one")), link, slash]
        {
            let error = open(&config(&[one.path(), &other])).expect_err("it is the same");
            let both = format!("{}, but also of {}:", one.path().display(), other.display());
            assert!(error.contains(&both), "{error}");
        }
        open(&config(&[one.path(), one.path()])).expect("by one name it is named once");
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let (one, two) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        let config = config(&[one.path(), two.path()]);
        let error = || open(&config).expect_err("refused");
        assert!(error().contains("have you run `corelane format`"), "{}", error());
        format(one.path(), 1, "c");
        format(two.path(), 1, "other");
        assert!(error().contains("Expected c, but read other"), "{}", error());
        format(two.path(), 2, "c");
        assert!(error().contains("Stored node id 2"), "{}", error());
    }
}
