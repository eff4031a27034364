//! The disk that loses what was not synced, as processes see it: what it is must be known before
//! it judges a broker.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use blackbox::Running;
use faultfs::{Failing, Left, Served};
use tempfile::TempDir;

/// The program that serves it.
const PROGRAM: &str = env!("CARGO_BIN_EXE_faultfs");
const SIZE: u64 = 64 << 20;
/// No answer takes so long.
const LONG: Duration = Duration::from_secs(60);

struct Disk {
    served: Served,
    folder: TempDir,
}

impl Disk {
    fn new() -> Disk {
        let folder = TempDir::with_prefix("disks-").expect("a folder for temporary files");
        Disk { served: Served::start(PROGRAM.as_ref(), folder.path(), SIZE), folder }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.served.path(&self.folder.path().join(path))
    }

    fn sync(&self, directory: &str) {
        File::open(self.path(directory)).and_then(|open| open.sync_all()).expect("it syncs");
    }

    fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(directory)).expect("it is there");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("listed").file_name();
        let mut names: Vec<String> = entries.map(|e| name(e).display().to_string()).collect();
        names.sort();
        names
    }

    /// Runs a line of the shell in the mounted folder.
    fn shell(&self, line: &str) -> Running {
        let wrapper = self.served.wrapper();
        let mut command = Command::new(&wrapper[0]);
        command.args(&wrapper[1..]).args(["sh", "-ec"]);
        command.arg(format!("cd {}; {line}", self.folder.path().display()));
        Running::start(&mut command)
    }
}

#[test]
fn only_what_was_synced_outlives_a_loss_of_power() {
    let mut disk = Disk::new();
    fs::create_dir(disk.path("kept")).expect("a directory");
    fs::create_dir(disk.path("lost")).expect("a directory");
    let mut file = File::create(disk.path("kept/file")).expect("a file");
    file.write_all(b"synced").expect("it is written");
    file.sync_data().expect("it syncs");
    file.write_all(b", not synced").expect("it is written");
    disk.sync("kept");
    fs::write(disk.path("kept/other"), b"bytes").expect("it is written");
    fs::rename(disk.path("kept/file"), disk.path("kept/renamed")).expect("it is renamed");
    assert_eq!(fs::read(disk.path("kept/renamed")).expect("it is read"), b"synced, not synced");
    fs::remove_dir(disk.path("lost")).expect("it is removed");
    disk.sync("");
    disk.served.lose_power(Left::Nothing);
    assert_eq!(disk.names(""), ["kept"]);
    assert_eq!(disk.names("kept"), ["file"]);
    assert_eq!(fs::read(disk.path("kept/file")).expect("it is read"), b"synced");
    // It is a disk like any other again.
    fs::write(disk.path("kept/new"), vec![1; 1 << 20]).expect("it is written");
    assert_eq!(fs::metadata(disk.path("kept/new")).expect("it is there").len(), 1 << 20);
}

#[test]
fn programs_find_what_they_are_used_to() {
    let disk = Disk::new();
    let lines = [
        ": > file && fallocate --keep-size --length 1000000 file && test ! -s file",
        ": > other && fallocate --length 5000 other && test $(stat -c %s other) = 5000",
        "printf abc > file && truncate --size 2 file && test \"$(cat file)\" = ab",
        "mkdir many && cd many && for i in $(seq 500); do : > $i; done && test $(ls | wc -l) = 500",
        "rm -r many && ! test -e many",
        "dd if=/dev/urandom of=big bs=1M count=8 status=none && cp big copy && cmp big copy",
        "touch --date 2020-01-01 big && test $(stat -c %Y big) = $(date --date 2020-01-01 +%s)",
        "test \"$(stat -f -c '%S %b' .)\" = '4096 16384'",
        "flock --nonblock big true",
        "mkdir a b && : > a/x && mv a b/c && test -f b/c/x && ! mv --no-target-directory b b/c/d",
        "python3 -c 'import os; s = open(\"big\"); t = open(\"sent\", \"wb\"); \
         assert os.sendfile(t.fileno(), s.fileno(), 5, 1000000) == 1000000' && \
         tail --bytes +6 big | head --bytes 1000000 | cmp - sent",
        "python3 -c 'import mmap; f = open(\"mapped\", \"wb+\"); f.truncate(9999); \
         m = mmap.mmap(f.fileno(), 9999); m[9000:9003] = b\"abc\"; m.flush(); \
         f.seek(9000); assert f.read(3) == b\"abc\"'",
    ];
    for line in lines {
        disk.shell(line).finish().ok();
    }
}

#[test]
fn a_full_disk_and_one_that_fails_say_so() {
    let mut disk = Disk::new();
    fs::create_dir(disk.path("bad")).expect("a directory");
    let sound = File::create(disk.path("sound")).expect("a file");
    let failing = File::create(disk.path("bad/file")).expect("a file");
    disk.served.set_failing(Some(("bad", Failing::Writes)));
    let error = failing.write_at(b"x", 0).expect_err("it fails");
    assert_eq!(error.raw_os_error(), Some(5));
    assert_eq!(failing.sync_all().expect_err("it fails").raw_os_error(), Some(5));
    sound.write_at(b"x", 0).expect("it is written");
    disk.served.set_failing(None);
    failing.write_at(b"x", 0).expect("it is written");
    disk.served.set_free(0);
    assert_eq!(sound.write_at(b"x", 9999).expect_err("full").kind(), ErrorKind::StorageFull);
    fs::remove_file(disk.path("bad/file")).expect("it is removed");
    drop(failing);
    // Its handle is given back by the kernel when it likes to.
    disk.served.set_free(4096);
    sound.write_at(b"x", 9999).expect("there is room");
}

#[test]
fn a_frozen_disk_performs_nothing_and_lets_nobody_know() {
    let mut disk = Disk::new();
    // Each file is made, written and synced, and so is the folder.
    disk.served.freeze_after(10);
    let line = "for i in 1 2 3 4 5; do printf $i > $i; sync $i . ; echo $i done; done";
    let writer = disk.shell(line);
    assert!(disk.served.wait_until_frozen(LONG));
    writer.signal("KILL");
    disk.served.cut();
    let printed = writer.finish().fails().stdout;
    disk.served.lose_power(Left::Nothing);
    let known: Vec<&str> = printed.lines().filter_map(|line| line.strip_suffix(" done")).collect();
    assert!(known.len() < 5, "{printed}");
    assert_eq!(disk.names(""), known);
    for name in known {
        assert_eq!(fs::read_to_string(disk.path(name)).expect("it is there"), name);
    }
    assert!(!disk.served.wait_until_frozen(Duration::from_millis(1)));
    fs::write(disk.path("after"), b"x").expect("it is written");
}
