//! Formatting the directories of a node.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use base::{Random, Uuid};
use config::BrokerConfig;
use node::format::{self, Controllers, FormatFile, FormatRequest};

use crate::cli::FormatOptions;
use crate::{directories, output, start};

/// The mode of a file that nobody may write to (Kafka writes its first snapshot so).
const READ_ONLY: u32 = 0o444;

/// `corelane format`.
pub(crate) fn run(options: &FormatOptions) -> Result<(), String> {
    let config = start::configuration(&options.config, &[])?;
    let controllers = match &options.initial_controllers {
        Some(list) => Controllers::Initial(
            format::parse_initial_controllers(list).map_err(|error| error.to_string())?,
        ),
        None if options.standalone => Controllers::Standalone,
        None if options.no_initial_controllers => Controllers::Unknown,
        None => Controllers::Configured,
    };
    let features = options.feature.iter().map(|feature| level(feature));
    let features: Vec<(String, i16)> = features.collect::<Result<_, _>>()?;
    let wanted = Wanted {
        cluster_id: &options.cluster_id,
        controllers,
        release_version: options.release_version.as_deref(),
        features: &features,
        ignore_formatted: options.ignore_formatted,
    };
    for line in apply(&config, wanted)? {
        output::say(&line);
    }
    Ok(())
}

/// `corelane random-uuid`.
pub(crate) fn random_uuid() -> Result<(), String> {
    output::say(&Uuid::random(&mut Random::new(start::seed()?)).to_string());
    Ok(())
}

/// How directories are to be formatted.
#[derive(Debug, Default)]
pub(crate) struct Wanted<'a> {
    pub(crate) cluster_id: &'a str,
    pub(crate) controllers: Controllers,
    pub(crate) release_version: Option<&'a str>,
    pub(crate) features: &'a [(String, i16)],
    pub(crate) ignore_formatted: bool,
}

/// Formats the directories of a configuration; returns what is to be said.
///
/// # Errors
/// A sentence. What was written before a fault of the disk stays: a directory counts as formatted
/// only once it has its `meta.properties`, which are written last.
pub(crate) fn apply(config: &BrokerConfig, wanted: Wanted<'_>) -> Result<Vec<String>, String> {
    let mut formatted = Vec::new();
    for path in format::directories(config) {
        if let Some(found) = directories::read_if_formatted(&path)? {
            formatted.push((path, found));
        }
    }
    let now_ms = now_ms();
    let date = java_date(now_ms);
    let request = FormatRequest {
        config,
        cluster_id: wanted.cluster_id,
        controllers: wanted.controllers,
        release_version: wanted.release_version,
        features: wanted.features,
        ignore_formatted: wanted.ignore_formatted,
        formatted: &formatted,
        now_ms,
        date: &date,
    };
    let mut random = Random::new(start::seed()?);
    let plan = format::plan(&request, &mut random).map_err(|error| error.to_string())?;
    for file in &plan.files {
        let shown = file.path.display();
        write(file).map_err(|error| format!("cannot write {shown}: {error}"))?;
    }
    Ok(plan.messages)
}

fn level(feature: &str) -> Result<(String, i16), String> {
    let parsed = feature
        .split_once('=')
        .and_then(|(name, level)| Some((name.trim().to_owned(), level.trim().parse().ok()?)));
    parsed.ok_or_else(|| format!("'{feature}' is not NAME=LEVEL"))
}

/// Writes a file so that it is whole or not there, also after a loss of power.
#[allow(clippy::disallowed_methods)] // Nothing runs yet that could do it.
fn write(file: &FormatFile) -> std::io::Result<()> {
    let folder = file.path.parent().unwrap_or(Path::new("."));
    make_directory(folder)?;
    let mut name = file.path.clone().into_os_string();
    name.push(".tmp");
    let temporary = PathBuf::from(name);
    let mut written = fs::File::create(&temporary)?;
    written.write_all(&file.contents)?;
    if file.read_only {
        written.set_permissions(fs::Permissions::from_mode(READ_ONLY))?;
    }
    written.sync_all()?;
    fs::rename(&temporary, &file.path)?;
    fs::File::open(folder)?.sync_all()
}

/// Makes a directory and those above it, durably: what is in it would go with its name.
#[allow(clippy::disallowed_methods)] // Nothing runs yet that could do it.
fn make_directory(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    make_directory(above)?;
    fs::create_dir(path)?;
    fs::File::open(above)?.sync_all()
}

#[allow(clippy::disallowed_methods)] // Formatting is done outside of every machine.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// As Java's `Date` prints a time in UTC: `Mon Nov 30 23:56:08 UTC 2026`.
fn java_date(ms: i64) -> String {
    let date = time::OffsetDateTime::from_unix_timestamp(ms.div_euclid(1_000));
    let date = date.unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let (weekday, month) = (date.weekday().to_string(), date.month().to_string());
    format!(
        "{} {} {:02} {:02}:{:02}:{:02} UTC {}",
        &weekday[..3],
        &month[..3],
        date.day(),
        date.hour(),
        date.minute(),
        date.second(),
        date.year()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_javas() {
        assert_eq!(java_date(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(java_date(1_796_082_968_000), "Mon Nov 30 23:56:08 UTC 2026");
    }
}
