//! The files that the shell shows, only read: of a node that runs or not.

#![allow(clippy::disallowed_methods)] // This command runs no machine that could read for it.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Offset;
use commitlog::parse_segment_file;
use metadata::Image;
use node::{OfflineLog, OfflineRead, SnapshotId};

/// The folder of the metadata log, in a data directory.
const METADATA_FOLDER: &str = "__cluster_metadata-0";
/// How much of a file is read at once.
const READ_BYTES: usize = 1 << 20;
/// The longest batch that is looked for. Kafka's controllers write at most 8 MiB
/// (`KafkaRaftClient.MAX_BATCH_SIZE_BYTES`).
const BATCH_BYTES_MAX: usize = 64 << 20;
/// How often a directory is looked at again in which a file went away before it was opened: a node
/// that runs removes what it needs no more.
const LOOKS_MAX: u32 = 10;

/// What was read.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) image: Arc<Image>,
    /// What to tell a person besides.
    pub(super) notes: Vec<String>,
}

/// Why nothing could be read.
#[derive(Debug)]
enum Failure {
    /// A file that was there is gone.
    Gone(String),
    /// What is in a file cannot follow what was read before.
    Unusable(String),
    /// A sentence.
    Other(String),
}

/// Reads one file alone: a snapshot or a segment of the log, whichever it is, as Kafka's shell
/// does.
///
/// # Errors
/// A sentence on what is wrong and what to do.
pub(super) fn read_file(path: &Path) -> Result<Loaded, String> {
    let mut log = OfflineLog::default();
    let rest = read_batches(&mut log, path).map_err(|failure| match failure {
        Failure::Unusable(sentence) => format!(
            "{sentence}. A segment that does not begin with the first record needs what stands \
             before it: give the directory with --directory"
        ),
        Failure::Gone(sentence) | Failure::Other(sentence) => sentence,
    })?;
    Ok(Loaded { image: Arc::clone(log.image()), notes: rest.into_iter().collect() })
}

/// Reads the newest snapshot of a data directory and the log behind it.
///
/// # Errors
/// A sentence on what is wrong and what to do.
pub(super) fn read_directory(directory: &Path) -> Result<Loaded, String> {
    let folder = folder_of(directory);
    let mut looks = 0;
    loop {
        looks += 1;
        match read_folder(&folder) {
            Ok(loaded) => return Ok(loaded),
            Err(Failure::Gone(_)) if looks < LOOKS_MAX => {}
            Err(
                Failure::Gone(sentence) | Failure::Unusable(sentence) | Failure::Other(sentence),
            ) => return Err(sentence),
        }
    }
}

/// The folder of the metadata log: in a data directory, or that very folder.
fn folder_of(directory: &Path) -> PathBuf {
    let inside = directory.join(METADATA_FOLDER);
    if inside.is_dir() { inside } else { directory.to_owned() }
}

/// What of the metadata log is in its folder.
#[derive(Debug)]
struct Listing {
    snapshot: Option<SnapshotId>,
    /// Where each segment begins, and its file; in order.
    segments: Vec<(Offset, PathBuf)>,
}

fn list(folder: &Path) -> Result<Listing, String> {
    let unreadable = |error: io::Error| format!("cannot list {}: {error}", folder.display());
    let mut listing = Listing { snapshot: None, segments: Vec::new() };
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let Some(name) = name.to_str() else { continue };
        listing.snapshot = listing.snapshot.max(SnapshotId::of_file_name(name));
        if let Some((base, ".log")) = parse_segment_file(name) {
            listing.segments.push((base, folder.join(name)));
        }
    }
    listing.segments.sort();
    if listing.snapshot.is_none() && listing.segments.is_empty() {
        return Err(format!(
            "{} holds no metadata: give a data directory of a node, or its {METADATA_FOLDER}",
            folder.display()
        ));
    }
    Ok(listing)
}

fn read_folder(folder: &Path) -> Result<Loaded, Failure> {
    let Listing { snapshot, segments } = list(folder).map_err(Failure::Other)?;
    let mut log = match snapshot {
        None => OfflineLog::default(),
        Some(id) => {
            let path = folder.join(id.file_name());
            let bytes = std::fs::read(&path).map_err(|error| failure_of(&path, &error))?;
            let read = OfflineLog::of_snapshot(id, bytes.into());
            read.map_err(|error| {
                Failure::Other(format!(
                    "{} cannot be read: {error}. Show another file with --snapshot",
                    path.display()
                ))
            })?
        }
    };
    // Segments that end below the snapshot are in it. Of those that are being removed a newer one
    // may be gone and an older one there: the gap is no loss.
    let behind = segments.partition_point(|(base, _)| *base <= log.end_offset());
    let segments = &segments[behind.saturating_sub(1)..];
    let mut notes = Vec::new();
    for (index, (base, path)) in segments.iter().enumerate() {
        let end = log.end_offset();
        if *base > end {
            return Err(Failure::Other(format!(
                "{} does not hold the log from offset {end} to {base}: some of its files are \
                 missing. Show one of the others with --snapshot",
                folder.display()
            )));
        }
        let rest = read_batches(&mut log, path)?;
        let is_last = index + 1 == segments.len();
        match rest {
            Some(sentence) if !is_last => {
                return Err(Failure::Other(format!(
                    "{sentence}, and others follow. Show what is before it with --snapshot"
                )));
            }
            rest => notes.extend(rest),
        }
    }
    Ok(Loaded { image: Arc::clone(log.image()), notes })
}

/// Applies the batches of a file. Says so where it does not end with a whole one, as that of a log
/// that is being written.
fn read_batches(log: &mut OfflineLog, path: &Path) -> Result<Option<String>, Failure> {
    let mut file = File::open(path).map_err(|error| failure_of(path, &error))?;
    let mut rest = Vec::new();
    loop {
        let taken = (&mut file).take(READ_BYTES as u64).read_to_end(&mut rest);
        if taken.map_err(|error| failure_of(path, &error))? == 0 {
            break;
        }
        let refuse =
            |error| Failure::Unusable(format!("{} cannot be shown: {error}", path.display()));
        let OfflineRead { bytes, broken } = log.read(rest.clone().into()).map_err(refuse)?;
        rest.drain(..bytes);
        if broken.is_some() || rest.len() > BATCH_BYTES_MAX {
            break;
        }
    }
    Ok((!rest.is_empty()).then(|| {
        format!(
            "{} ends with something that is no whole batch; what is shown ends at offset {}",
            path.display(),
            log.end_offset()
        )
    }))
}

fn failure_of(path: &Path, error: &io::Error) -> Failure {
    let sentence = format!("cannot read {}: {error}", path.display());
    match error.kind() {
        ErrorKind::NotFound => Failure::Gone(sentence),
        _ => Failure::Other(sentence),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const LOG: &[u8] = include_bytes!("../../quorum/testdata/kafka/00000000000000000000.log");
    /// The last offset of a metadata record in it.
    const LAST: i64 = 340;

    fn length_of_batch(bytes: &[u8]) -> usize {
        let length = bytes[8..12].first_chunk().expect("four bytes");
        12 + usize::try_from(i32::from_be_bytes(*length)).expect("a batch has a length")
    }

    /// Where the batches of the log begin: in the file, and their offsets.
    fn batches() -> Vec<(usize, i64)> {
        let (mut found, mut at) = (Vec::new(), 0);
        while at < LOG.len() {
            let offset = i64::from_be_bytes(*LOG[at..].first_chunk().expect("eight bytes"));
            found.push((at, offset));
            at += length_of_batch(&LOG[at..]);
        }
        found
    }

    /// A data directory with these segments.
    fn directory(segments: &[(i64, &[u8])]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a folder");
        let folder = directory.path().join(METADATA_FOLDER);
        fs::create_dir(&folder).expect("made");
        for (base, bytes) in segments {
            fs::write(folder.join(format!("{base:020}.log")), bytes).expect("written");
        }
        directory
    }

    fn last_offset(loaded: &Loaded) -> i64 {
        loaded.image.provenance().last_offset.0
    }

    #[test]
    fn a_data_directory_or_the_folder_in_it_is_read() {
        let directory = directory(&[(0, LOG)]);
        for path in [directory.path().to_owned(), directory.path().join(METADATA_FOLDER)] {
            let loaded = read_directory(&path).expect("it is whole");
            assert_eq!((last_offset(&loaded), loaded.notes.len()), (LAST, 0));
        }
    }

    #[test]
    fn segments_are_read_one_after_the_other() {
        let (at, offset) = batches()[40];
        let both = directory(&[(offset, &LOG[at..]), (0, &LOG[..at])]);
        assert_eq!(last_offset(&read_directory(both.path()).expect("whole")), LAST);

        let hole = batches()[42];
        let hole = directory(&[(0, &LOG[..at]), (hole.1, &LOG[hole.0..])]);
        let sentence = read_directory(hole.path()).expect_err("a part is missing");
        assert!(sentence.contains("some of its files are missing"), "{sentence}");

        let cut = directory(&[(0, &LOG[..at - 1]), (offset, &LOG[at..])]);
        let sentence = read_directory(cut.path()).expect_err("an older segment is torn");
        assert!(sentence.contains("and others follow"), "{sentence}");
    }

    #[test]
    fn a_torn_end_is_no_error() {
        let (at, _) = *batches().last().expect("there are some");
        for cut in [1, 30, 100] {
            let torn = directory(&[(0, &LOG[..LOG.len() - cut])]);
            let loaded = read_directory(torn.path()).expect("what is whole is shown");
            assert!(last_offset(&loaded) < LAST);
            assert!(loaded.notes[0].contains("no whole batch"), "{:?}", loaded.notes);
        }
        let mut bytes = LOG.to_vec();
        bytes[at + 70] ^= 1;
        let loaded = read_directory(directory(&[(0, &bytes)]).path()).expect("likewise");
        assert!(last_offset(&loaded) < LAST && loaded.notes.len() == 1);
        bytes.truncate(at);
        bytes.extend([0; 4096]);
        let loaded = read_directory(directory(&[(0, &bytes)]).path()).expect("likewise");
        assert!(last_offset(&loaded) < LAST && loaded.notes.len() == 1);
    }

    #[test]
    fn a_later_segment_alone_says_what_it_lacks() {
        // The topic is made before it, and changed in it.
        let (at, offset) = batches()[40];
        let directory = directory(&[(offset, &LOG[at..])]);
        let file = directory.path().join(METADATA_FOLDER).join(format!("{offset:020}.log"));
        let sentence = read_file(&file).expect_err("it changes what is not there");
        assert!(sentence.contains("give the directory with --directory"), "{sentence}");
    }

    #[test]
    fn other_places_are_told() {
        let empty = tempfile::tempdir().expect("a folder");
        let sentence = read_directory(empty.path()).expect_err("nothing is there");
        assert!(sentence.contains("holds no metadata: give a data directory"), "{sentence}");
        for path in [empty.path().join("nothing"), empty.path().to_owned()] {
            let sentence = read_file(&path).expect_err("no file");
            assert!(sentence.starts_with("cannot read "), "{sentence}");
        }
        let sentence = read_directory(&empty.path().join("nothing")).expect_err("no folder");
        assert!(sentence.starts_with("cannot list "), "{sentence}");
    }
}
