//! Every file effect, on real file systems: done, refused, missing, full, cold, in order.

#![allow(clippy::disallowed_methods)] // A test is the world around the machines.

mod world;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender};

use api::{Advice, Event, FileEffect, FileOutcome, FileRef, IoErrorKind, Token};
use bytes::Bytes;
use runtime::{Node, Settings};
use world::{machine, next, start, stop, told};

/// A node whose one machine performs what the test asks for, and tells what came of it.
struct Disk {
    node: Node,
    ask: Sender<Vec<FileEffect<Token>>>,
    outcomes: Receiver<(Token, FileOutcome)>,
}

impl Disk {
    fn start() -> Self {
        let (ask, asked) = told::<Vec<FileEffect<Token>>>();
        let (tell, outcomes) = told();
        // Asked every millisecond: a test has no other way into a machine than time.
        let script = machine(move |now, event, effects| {
            if let Event::File { token, outcome } = event {
                tell.send((token, outcome)).expect("the test listens");
            }
            for batch in asked.try_iter() {
                batch.into_iter().for_each(|effect| effects.file(effect));
            }
            effects.push(api::Effect::WakeAt(now.mono + base::Duration::from_millis(1)));
        });
        Self { node: start(vec![vec![script]], Settings::default()), ask, outcomes }
    }

    fn batch(&self, effects: Vec<FileEffect<Token>>) {
        self.ask.send(effects).expect("the machine runs");
    }

    fn perform(&self, effect: FileEffect<Token>) -> FileOutcome {
        self.batch(vec![effect]);
        let (token, outcome) = next(&self.outcomes);
        assert_eq!(token, TOKEN);
        outcome
    }

    fn write(&self, file: &FileRef, position: u64, bytes: &[u8]) -> Result<(), api::IoError> {
        self.perform(write(file, position, bytes)).done()
    }

    fn read(&self, file: &FileRef, position: u64, length: u32) -> Result<Bytes, api::IoError> {
        let file = file.clone();
        self.perform(FileEffect::Read { token: TOKEN, file, position, length }).read()
    }
}

const TOKEN: Token = Token::from_bits(77);

fn write(file: &FileRef, position: u64, bytes: &[u8]) -> FileEffect<Token> {
    let middle = bytes.len() / 2;
    let parts =
        vec![Bytes::copy_from_slice(&bytes[..middle]), Bytes::copy_from_slice(&bytes[middle..])];
    FileEffect::Write { token: TOKEN, file: file.clone(), position, parts }
}

/// A folder on a disk, not on a tmpfs: that has nothing but the page cache.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

fn kind<R: std::fmt::Debug>(result: Result<R, api::IoError>) -> IoErrorKind {
    result.expect_err("is refused").kind
}

#[test]
fn what_is_written_is_read_back_also_past_the_end_and_after_a_reopen() {
    let (disk, folder) = (Disk::start(), folder());
    let path = folder.path().join("a.log");
    let file = FileRef::new(&path);
    disk.write(&file, 0, b"hello world").expect("writes");
    disk.write(&file, 6, b"W").expect("writes");
    assert_eq!(disk.read(&file, 0, 100).expect("reads"), "hello World");
    assert_eq!(disk.read(&file, 6, 3).expect("reads"), "Wor");
    assert_eq!(disk.read(&file, 11, 3).expect("reads"), "");
    assert_eq!(disk.read(&file, 1 << 40, u32::MAX).expect("reads"), "");
    let again = FileRef::new(&path);
    assert_eq!(disk.read(&again, 0, u32::MAX).expect("reads"), "hello World");
    let file = again.clone();
    disk.perform(FileEffect::Sync { token: TOKEN, file }).done().expect("syncs");
    let directory = folder.path().to_owned();
    disk.perform(FileEffect::SyncDirectory { token: TOKEN, directory }).done().expect("syncs");
    let file = again.clone();
    let back = FileEffect::WriteBack { token: TOKEN, file, position: 0, length: 11 };
    disk.perform(back).done().expect("writes back");
    let nothing = FileEffect::Write { token: TOKEN, file: again, position: 3, parts: vec![] };
    disk.perform(nothing).done().expect("writes nothing");
    stop(disk.node);
    assert_eq!(fs::read(path).expect("is there"), b"hello World");
}

#[test]
fn space_is_allocated_and_given_back() {
    let (disk, folder) = (Disk::start(), folder());
    let path = folder.path().join("a.log");
    let file = FileRef::new(&path);
    let allocate =
        FileEffect::Allocate { token: TOKEN, file: file.clone(), position: 0, length: 4 << 20 };
    disk.perform(allocate).done().expect("allocates");
    disk.write(&file, 0, b"abcdef").expect("writes");
    let metadata = fs::metadata(&path).expect("is there");
    assert_eq!(metadata.len(), 6);
    assert!(metadata.blocks() * 512 >= 4 << 20);
    disk.perform(FileEffect::Truncate { token: TOKEN, file, length: 3 }).done().expect("truncates");
    let metadata = fs::metadata(&path).expect("is there");
    assert_eq!(metadata.len(), 3);
    assert!(metadata.blocks() * 512 < 4 << 20);
    let path = folder.path().to_owned();
    match disk.perform(FileEffect::Space { token: TOKEN, path }) {
        FileOutcome::Space(Ok(space)) => assert!(space.total_bytes >= space.usable_bytes),
        other => panic!("unexpected {other:?}"),
    }
    stop(disk.node);
}

#[test]
fn what_is_not_there_is_not_found_and_not_created() {
    let (disk, folder) = (Disk::start(), folder());
    let path = folder.path().join("missing");
    let file = FileRef::new(&path);
    assert_eq!(kind(disk.read(&file, 0, 1)), IoErrorKind::NotFound);
    let sync = FileEffect::Sync { token: TOKEN, file: file.clone() };
    assert_eq!(kind(disk.perform(sync).done()), IoErrorKind::NotFound);
    let list = FileEffect::List { token: TOKEN, directory: path.clone() };
    assert_eq!(kind(disk.perform(list).listed()), IoErrorKind::NotFound);
    let sync = FileEffect::SyncDirectory { token: TOKEN, directory: path.clone() };
    assert_eq!(kind(disk.perform(sync).done()), IoErrorKind::NotFound);
    let to = folder.path().join("elsewhere");
    let rename = FileEffect::Rename { token: TOKEN, from: path.clone(), to, files: vec![] };
    assert_eq!(kind(disk.perform(rename).done()), IoErrorKind::NotFound);
    let space = FileEffect::Space { token: TOKEN, path: path.clone() };
    match disk.perform(space) {
        FileOutcome::Space(Err(error)) => assert_eq!(error.kind, IoErrorKind::NotFound),
        other => panic!("unexpected {other:?}"),
    }
    assert!(!path.exists());
    let deep = FileRef::new(path.join("deep"));
    assert_eq!(kind(disk.write(&deep, 0, b"x")), IoErrorKind::NotFound);
    let back = FileEffect::WriteBack { token: TOKEN, file: file.clone(), position: 0, length: 1 };
    assert_eq!(kind(disk.perform(back).done()), IoErrorKind::NotFound);
    // Removing what is not there is a success; a hint about it is no event.
    let advise = FileEffect::Advise { file, position: 0, length: 0, advice: Advice::WillNeed };
    disk.batch(vec![advise, FileEffect::Remove { token: TOKEN, path, files: Vec::new() }]);
    next(&disk.outcomes).1.done().expect("is gone");
    stop(disk.node);
}

#[test]
fn directories_are_made_listed_renamed_and_removed_and_files_follow() {
    let (disk, folder) = (Disk::start(), folder());
    let old = folder.path().join("topic-0");
    let new = folder.path().join("topic-0.deleted");
    for _ in 0..2 {
        let make = FileEffect::MakeDirectory { token: TOKEN, path: old.join("sub") };
        disk.perform(make).done().expect("makes");
    }
    let files = [FileRef::new(old.join("b.log")), FileRef::new(old.join("sub/a.log"))];
    for file in &files {
        disk.write(file, 0, b"1234").expect("writes");
    }
    let rename = FileEffect::Rename {
        token: TOKEN,
        from: old.clone(),
        to: new.clone(),
        files: files.to_vec(),
    };
    disk.perform(rename).done().expect("renames");
    assert_eq!(*files[1].path(), *new.join("sub/a.log"));
    files.iter().for_each(FileRef::close);
    assert_eq!(disk.read(&files[1], 0, 9).expect("reads"), "1234");
    let rename = FileEffect::Rename {
        token: TOKEN,
        from: new.join("b.log"),
        to: new.join("c.log"),
        files: vec![files[0].clone()],
    };
    disk.perform(rename).done().expect("renames");
    files[0].close();
    assert_eq!(disk.read(&files[0], 0, 9).expect("reads"), "1234");
    let list = FileEffect::List { token: TOKEN, directory: new.clone() };
    let entries = disk.perform(list).listed().expect("lists");
    let seen: Vec<_> = entries.iter().map(|e| (&e.name[..], e.is_directory, e.length)).collect();
    assert_eq!(seen, [("c.log", false, 4), ("sub", true, 0)]);
    let remove = FileEffect::Remove { token: TOKEN, path: new.clone(), files: Vec::new() };
    disk.perform(remove).done().expect("removes");
    assert!(!new.exists());
    // An open file can be read to its end though its name is gone.
    assert_eq!(disk.read(&files[0], 0, 9).expect("reads"), "1234");
    stop(disk.node);
}

#[test]
fn a_tree_is_removed_with_its_links_and_the_space_of_its_open_files() {
    let (disk, folder) = (Disk::start(), folder());
    let (tree, beside) = (folder.path().join("tree"), folder.path().join("beside"));
    fs::create_dir_all(tree.join("a/b")).expect("makes");
    fs::create_dir(&beside).expect("makes");
    fs::write(beside.join("kept"), b"x").expect("writes");
    std::os::unix::fs::symlink(&beside, tree.join("a/link")).expect("links");
    let files: Vec<_> = ["1", "a/2", "a/b/3"].map(|name| FileRef::new(tree.join(name))).into();
    for file in &files {
        disk.write(file, 0, b"1234").expect("writes");
    }
    let remove = FileEffect::Remove { token: TOKEN, path: tree.clone(), files: files.clone() };
    disk.perform(remove).done().expect("removes");
    assert!(!tree.exists() && beside.join("kept").exists());
    // Its handle was closed, so that nothing holds the space any more.
    assert!(files.iter().all(|file| file.handle().is_none()));
    stop(disk.node);
}

/// Runs `test` without the rights of root, which may write anywhere. The thread of a node has the
/// rights of the thread that started it, so the test is run again as another user's process.
fn as_nobody(name: &str, folder: &Path) {
    let status = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(copied_test(folder))
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env("FOLDER", folder)
        .status()
        .expect("setpriv runs");
    assert!(status.success(), "{status}");
}

/// This test program where another user can reach it.
fn copied_test(folder: &Path) -> PathBuf {
    let copy = folder.join("program");
    fs::copy(std::env::current_exe().expect("a path"), &copy).expect("copies");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("permits");
    copy
}

#[test]
fn missing_permissions_are_told_and_a_file_that_may_be_read_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("permits");
    fs::write(folder.path().join("readable"), b"words").expect("writes");
    fs::write(folder.path().join("secret"), b"words").expect("writes");
    fs::create_dir(folder.path().join("kept")).expect("makes");
    fs::write(folder.path().join("kept/words"), b"words").expect("writes");
    let secret = fs::Permissions::from_mode(0o600);
    fs::set_permissions(folder.path().join("secret"), secret).expect("permits");
    as_nobody("permissions_of_another_user", folder.path());
}

#[test]
#[ignore = "run as another user by the test above"]
fn permissions_of_another_user() {
    let folder = PathBuf::from(std::env::var_os("FOLDER").expect("given"));
    let disk = Disk::start();
    let readable = FileRef::new(folder.join("readable"));
    assert_eq!(disk.read(&readable, 0, 9).expect("may be read"), "words");
    assert_eq!(kind(disk.write(&readable, 0, b"x")), IoErrorKind::Permission);
    let sync = FileEffect::Sync { token: TOKEN, file: readable };
    disk.perform(sync).done().expect("syncs");
    let secret = FileRef::new(folder.join("secret"));
    assert_eq!(kind(disk.read(&secret, 0, 9)), IoErrorKind::Permission);
    let remove = FileEffect::Remove { token: TOKEN, path: folder.join("kept"), files: Vec::new() };
    assert_eq!(kind(disk.perform(remove).done()), IoErrorKind::Permission);
    let new = FileRef::new(folder.join("new"));
    assert_eq!(kind(disk.write(&new, 0, b"x")), IoErrorKind::Permission);
    let make = FileEffect::MakeDirectory { token: TOKEN, path: folder.join("d") };
    assert_eq!(kind(disk.perform(make).done()), IoErrorKind::Permission);
    stop(disk.node);
}

/// A file system of 1 MiB in memory, as long as it is held.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(folder.path());
        assert!(mount.status().expect("mount runs").success(), "tests mount a tmpfs as root");
        Self(folder)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(unmounted.expect("umount runs").success());
    }
}

#[test]
fn a_full_disk_is_told_and_what_was_there_stays_readable() {
    let (disk, small) = (Disk::start(), SmallDisk::mount());
    let file = FileRef::new(small.0.path().join("a.log"));
    disk.write(&file, 0, &[1; 600 << 10]).expect("writes");
    assert_eq!(kind(disk.write(&file, 600 << 10, &[2; 600 << 10])), IoErrorKind::NoSpace);
    let allocate =
        FileEffect::Allocate { token: TOKEN, file: file.clone(), position: 0, length: 2 << 20 };
    assert_eq!(kind(disk.perform(allocate).done()), IoErrorKind::NoSpace);
    assert_eq!(disk.read(&file, 0, 600 << 10).expect("reads"), vec![1; 600 << 10]);
    let truncate = FileEffect::Truncate { token: TOKEN, file: file.clone(), length: 0 };
    disk.perform(truncate).done().expect("truncates");
    disk.write(&file, 0, &[3; 900 << 10]).expect("there is room again");
    // A file system in memory cannot be asked without waiting: the ring reads it.
    assert_eq!(disk.read(&file, 100, 800 << 10).expect("reads"), vec![3; 800 << 10]);
    stop(disk.node);
}

#[test]
fn a_cold_file_is_read_by_the_ring_and_later_effects_do_not_overtake() {
    const LENGTH: usize = 8 << 20;
    let (disk, folder) = (Disk::start(), folder());
    let file = FileRef::new(folder.path().join("a.log"));
    let expected: Vec<u8> = (0..LENGTH).map(|n| (n / 1000) as u8).collect();
    for round in 0..10 {
        disk.write(&file, 0, &expected).expect("writes");
        disk.perform(FileEffect::Sync { token: TOKEN, file: file.clone() }).done().expect("syncs");
        let forget = |length| FileEffect::Advise {
            file: file.clone(),
            position: 0,
            length,
            advice: Advice::DontNeed,
        };
        // The advice is taken once something that came after it is answered.
        disk.batch(vec![forget(0)]);
        disk.read(&file, u64::from(u32::MAX), 1).expect("reads nothing");
        let read = |position, length| FileEffect::Read {
            token: TOKEN,
            file: file.clone(),
            position,
            length,
        };
        let length = LENGTH as u32;
        let asked = vec![
            read(0, length),
            write(&file, LENGTH as u64 / 2, b"changed"),
            read(LENGTH as u64 / 2, 7),
            FileEffect::Truncate { token: TOKEN, file: file.clone(), length: 10 },
            read(5, 100),
        ];
        let named = asked.into_iter().zip(0..);
        disk.batch(named.map(|(effect, n)| effect.map(|_| Token::from_bits(n))).collect());
        // A write can be done before the end of a read that has read beyond it already.
        let outcomes = (0..5).map(|_| next(&disk.outcomes));
        let outcomes: std::collections::BTreeMap<_, _> = outcomes.collect();
        let mut outcomes = outcomes.into_values();
        let first = outcomes.next().expect("five").read().expect("reads");
        assert!(first == expected, "round {round}: the first read saw a later change");
        outcomes.next().expect("five").done().expect("writes");
        assert_eq!(outcomes.next().expect("five").read().expect("reads"), "changed");
        outcomes.next().expect("five").done().expect("truncates");
        assert_eq!(outcomes.next().expect("five").read().expect("reads"), expected[5..10]);
    }
    stop(disk.node);
}

#[test]
fn while_space_is_taken_or_given_back_what_comes_after_on_the_file_waits() {
    let (disk, folder) = (Disk::start(), folder());
    let [busy, other] = ["a.log", "b.log"].map(|name| FileRef::new(folder.path().join(name)));
    for round in 0..20 {
        let (file, position, length) = (busy.clone(), round << 20, 4 << 20);
        let asked = vec![
            FileEffect::Allocate { token: TOKEN, file, position, length },
            write(&busy, round << 20, b"first"),
            FileEffect::Truncate { token: TOKEN, file: busy.clone(), length: (round << 20) + 3 },
            write(&busy, (round << 20) + 3, b"lly"),
            write(&other, 0, b"else"),
            FileEffect::Sync { token: TOKEN, file: busy.clone() },
        ];
        let named = asked.into_iter().zip(0..);
        disk.batch(named.map(|(effect, n)| effect.map(|_| Token::from_bits(n))).collect());
        let mut order = Vec::new();
        for _ in 0..6 {
            let (token, outcome) = next(&disk.outcomes);
            outcome.done().expect("there is room");
            order.push(token.to_bits());
        }
        assert_eq!(order[0], 4, "another file waits for nothing: {order:?}");
        assert_eq!(order[1..], [0, 1, 2, 3, 5]);
        assert_eq!(disk.read(&busy, round << 20, 10).expect("reads"), "firlly");
    }
    stop(disk.node);
}

#[test]
fn what_a_rename_replaces_is_closed_and_its_space_is_back() {
    let (disk, folder) = (Disk::start(), folder());
    let [from, to] = ["a.tmp", "a"].map(|name| folder.path().join(name));
    for round in 0..50 {
        disk.write(&FileRef::new(&from), 0, &[round; 4096]).expect("writes");
        let (from, to, files) = (from.clone(), to.clone(), Vec::new());
        disk.perform(FileEffect::Rename { token: TOKEN, from, to, files }).done().expect("renames");
        assert_eq!(fs::read(folder.path().join("a")).expect("is there"), [round; 4096]);
    }
    let is_ours = |entry: std::io::Result<fs::DirEntry>| {
        let open = fs::read_link(entry.expect("listed").path()).unwrap_or_default();
        open.starts_with(folder.path()) && open.to_string_lossy().ends_with("(deleted)")
    };
    let deadline = std::time::Instant::now() + world::PATIENCE;
    while fs::read_dir("/proc/self/fd").expect("Linux").any(is_ours) {
        assert!(std::time::Instant::now() < deadline, "what was replaced stays open");
        std::thread::yield_now();
    }
    stop(disk.node);
}

#[test]
fn files_beyond_the_limit_are_closed_when_idle_and_opened_again() {
    // In a process of its own, since the limit is the process's.
    let folder = folder();
    let status = Command::new("sh")
        .args(["-c", "ulimit -n 100 && exec \"$0\" --exact few_open_files --ignored"])
        .arg(std::env::current_exe().expect("a path"))
        .env("FOLDER", folder.path())
        .status()
        .expect("sh runs");
    assert!(status.success(), "{status}");
}

#[test]
fn what_finds_no_descriptor_waits_and_is_done_in_order_when_there_are_some() {
    let folder = folder();
    let status = Command::new("sh")
        .args(["-c", "ulimit -n 100 && exec \"$0\" --exact no_open_files --ignored"])
        .arg(std::env::current_exe().expect("a path"))
        .env("FOLDER", folder.path())
        .status()
        .expect("sh runs");
    assert!(status.success(), "{status}");
}

#[test]
#[ignore = "run with few open files by the test above"]
fn no_open_files() {
    let folder = PathBuf::from(std::env::var_os("FOLDER").expect("given"));
    let disk = Disk::start();
    let path = folder.join("a.log");
    let (file, other) = (FileRef::new(&path), FileRef::new(folder.join("b.log")));
    // The node is there and has all that it needs itself.
    drop(disk.perform(FileEffect::Space { token: TOKEN, path: folder.clone() }));
    let mut taken = Vec::new();
    while let Ok(null) = fs::File::open("/dev/null") {
        taken.push(null);
    }
    let name = Token::from_bits;
    disk.batch(vec![
        write(&file, 0, b"first"),
        FileEffect::List { token: name(1), directory: folder.clone() },
        write(&file, 0, b"later"),
        FileEffect::Read { token: name(2), file: file.clone(), position: 0, length: 9 },
        FileEffect::Sync { token: name(3), file: file.clone() },
        write(&other, 0, b"other"),
        // This one needs no descriptor: it says that all before it were tried.
        FileEffect::Space { token: name(4), path: folder.clone() },
    ]);
    let (first, outcome) = next(&disk.outcomes);
    assert_eq!(first, name(4), "{outcome:?}");
    drop(taken);
    let outcomes: Vec<_> = (0..6).map(|_| next(&disk.outcomes)).collect();
    for (token, outcome) in outcomes {
        match outcome {
            FileOutcome::Read(bytes) => assert_eq!(bytes.expect("reads"), "later"),
            FileOutcome::Done(done) => done.unwrap_or_else(|error| panic!("{token:?}: {error}")),
            FileOutcome::Listed(list) => drop(list.expect("is listed")),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(disk.read(&file, 0, 9).expect("reads"), "later");
    stop(disk.node);
}

#[test]
#[ignore = "run with few open files by the test above"]
fn few_open_files() {
    let folder = PathBuf::from(std::env::var_os("FOLDER").expect("given"));
    let disk = Disk::start();
    let files: Vec<FileRef> =
        (0..500).map(|n| FileRef::new(folder.join(format!("{n}.log")))).collect();
    for round in 0..3_u64 {
        for (n, file) in files.iter().enumerate() {
            disk.write(file, round * 10, format!("{n:10}").as_bytes()).expect("writes");
        }
    }
    for (n, file) in files.iter().enumerate() {
        assert_eq!(disk.read(file, 10, 10).expect("reads"), format!("{n:10}"));
    }
    let open = fs::read_dir("/proc/self/fd").expect("a listing").count();
    assert!(open < 100, "{open} files are open");
    // A file that nobody names any more is closed at once.
    drop(files);
    disk.read(&FileRef::new(folder.join("0.log")), 0, 1).expect("reads");
    let open = fs::read_dir("/proc/self/fd").expect("a listing").count();
    assert!(open < 30, "{open} files are open");
    stop(disk.node);
}
