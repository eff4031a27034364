//! Directories, locks and the size of a file system: short calls that are made inline.

use std::ffi::{CString, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use api::{DirectoryEntry, Space};

use crate::error::checked;

/// The entries of a directory, in order of name. A name that is no UTF-8 is shown with
/// replacement characters: nothing that a Kafka data directory holds has one.
///
/// # Errors
/// Not there, no directory, not permitted.
pub fn list(directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = match fs::metadata(entry.path()) {
            Ok(metadata) => metadata,
            // It was removed since, or is a link that leads nowhere.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let modified = metadata.modified()?;
        let modified_ms = match modified.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |n| -n),
        };
        entries.push(DirectoryEntry {
            name: entry.file_name().to_string_lossy().into_owned(),
            is_directory: metadata.is_dir(),
            length: if metadata.is_dir() { 0 } else { metadata.len() },
            modified_ms,
        });
    }
    entries.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(entries)
}

/// The names in a directory as they are, in any order.
///
/// # Errors
/// Not there, no directory, not permitted.
pub fn list_names(directory: &Path) -> io::Result<Vec<OsString>> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Makes a directory and those above it. One that is there is a success.
///
/// # Errors
/// Not permitted, disk full, or a file stands there.
pub fn make_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// The size of the file system that `path` is on.
///
/// # Errors
/// There is no such path.
pub fn space(path: &Path) -> io::Result<Space> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all zeros is a value of this structure of numbers.
    let mut answer: libc::statvfs = unsafe { mem::zeroed() };
    // SAFETY: the path ends with a zero, and both outlive the call.
    checked(unsafe { libc::statvfs(path.as_ptr(), &mut answer) } as isize)?;
    let block_bytes = answer.f_frsize;
    Ok(Space {
        total_bytes: answer.f_blocks.saturating_mul(block_bytes),
        usable_bytes: answer.f_bavail.saturating_mul(block_bytes),
    })
}

/// A lock on a file against other processes; it ends when this is dropped.
#[derive(Debug)]
pub struct FileLock(#[expect(dead_code, reason = "held open, never read")] File);

impl FileLock {
    /// Takes the lock of the whole file, created where there is none. `None` when another holds it.
    ///
    /// It is a record lock, as Java's `FileChannel.tryLock` takes it, so that a broker of Apache
    /// Kafka on the same directory conflicts. It is bound to the open file: a POSIX lock of a whole
    /// process would end as soon as any other descriptor of the file is closed.
    ///
    /// # Errors
    /// The file cannot be opened or created, or its file system has no locks.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        // SAFETY: all zeros is a value of this structure of numbers: the whole file, from 0.
        let mut lock: libc::flock = unsafe { mem::zeroed() };
        lock.l_type = libc::F_WRLCK as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        // SAFETY: the command takes a `flock`, which outlives the call.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
        match checked(result as isize) {
            Ok(_) => Ok(Some(Self(file))),
            Err(error) if is_conflict(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn is_conflict(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_listing_is_in_order_of_name_and_says_what_is_a_directory() {
        let directory = tempfile::tempdir().expect("a folder");
        let root = directory.path();
        make_directory(&root.join("b/c")).expect("makes");
        make_directory(&root.join("b/c")).expect("is there already");
        fs::write(root.join("a"), b"12345").expect("writes");
        fs::write(root.join("c"), b"").expect("writes");
        let entries = list(root).expect("lists");
        let seen: Vec<_> =
            entries.iter().map(|e| (e.name.as_str(), e.is_directory, e.length)).collect();
        assert_eq!(seen, [("a", false, 5), ("b", true, 0), ("c", false, 0)]);
        assert!(entries.iter().all(|entry| entry.modified_ms > 1_600_000_000_000));
        let mut names = list_names(root).expect("lists");
        names.sort();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(list(&root.join("d")).expect_err("not there").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_lock_excludes_others_until_it_is_dropped() {
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join(".lock");
        let first = FileLock::take(&path).expect("opens").expect("free");
        assert!(FileLock::take(&path).expect("opens").is_none());
        // Another descriptor of the file comes and goes: the lock stays.
        drop(File::open(&path).expect("opens"));
        assert!(FileLock::take(&path).expect("opens").is_none());
        drop(first);
        assert!(FileLock::take(&path).expect("opens").is_some());
    }

    #[test]
    fn a_file_system_has_a_size() {
        let answer = space(Path::new("/")).expect("answers");
        assert!(answer.total_bytes >= answer.usable_bytes && answer.total_bytes > 0);
        assert!(space(Path::new("/no/such/place")).is_err());
    }

    #[test]
    fn a_lock_excludes_another_process_and_is_excluded_by_it() {
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join(".lock");
        // A POSIX record lock, as Java takes it.
        let script = "import fcntl, sys\n\
            f = open(sys.argv[1], 'a+')\n\
            try:\n    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n\
            except OSError:\n    sys.exit(3)\n\
            print('locked', flush=True)\n\
            sys.stdin.read()\n";
        let other = || {
            let mut command = Command::new("python3");
            command.args(["-c", script]).arg(&path);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 runs")
        };
        let mut holder = other();
        let mut line = String::new();
        let stdout = holder.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("reads");
        assert_eq!(line, "locked\n");
        assert!(FileLock::take(&path).expect("opens").is_none(), "another process holds it");
        drop(holder.stdin.take());
        assert!(holder.wait().expect("ends").success());
        let lock = FileLock::take(&path).expect("opens").expect("is free now");
        assert_eq!(other().wait().expect("ends").code(), Some(3));
        drop(lock);
        let mut after = other();
        drop(after.stdin.take());
        assert!(after.wait().expect("ends").success());
    }
}
