//! The file system of one node: names and files, and what of them is durable.
//!
//! It takes no time and draws no errors: that is for whoever performs the effects of a machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Weak};

use api::{DirectoryEntry, IoError, IoErrorKind, IoResult, Space};
use base::Random;

use crate::content::{Content, Left};
use crate::fault::Rest;

/// Unreachable files are dropped whenever this many were made since the last time.
const SWEEP_EVERY_INODES: usize = 256;

/// A file that is open: it stays readable after its name is gone.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) inode: Inode,
}

/// The number of a file or directory, never used twice in the life of a disk.
pub(crate) type Inode = u32;

const ROOT: Inode = 0;

/// The file system of one node.
#[derive(Debug)]
pub struct Disk {
    nodes: BTreeMap<Inode, Node>,
    next_inode: Inode,
    made_since_sweep: usize,
    pending: Vec<NameChange>,
    capacity_bytes: u64,
}

#[derive(Debug)]
enum Node {
    File { content: Content, open: Weak<OpenFile>, modified_ms: i64 },
    Directory { now: BTreeMap<String, Inode>, durable: BTreeMap<String, Inode>, modified_ms: i64 },
}

type Name = (Inode, String);

/// A change of names that the disk does not have yet.
#[derive(Clone, Debug)]
enum NameChange {
    Link { name: Name, inode: Inode },
    Unlink { name: Name },
    Move { from: Name, to: Name, inode: Inode },
}

impl NameChange {
    fn names(&self) -> impl Iterator<Item = &Name> {
        let (first, second) = match self {
            NameChange::Link { name, .. } | NameChange::Unlink { name } => (name, None),
            NameChange::Move { from, to, .. } => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }
}

impl Disk {
    /// An empty disk of this size.
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        let mut disk = Self {
            nodes: BTreeMap::new(),
            next_inode: ROOT + 1,
            made_since_sweep: 0,
            pending: Vec::new(),
            capacity_bytes,
        };
        disk.nodes.insert(ROOT, empty_directory(0));
        disk
    }

    /// Puts a durable file on the disk, with the directories above it, as if it had been there
    /// before the simulation began.
    ///
    /// # Panics
    /// If a file is in the way of a directory.
    pub fn install(&mut self, path: &Path, bytes: &[u8]) {
        if let Some(parent) = path.parent() {
            self.install_directory(parent);
        }
        let inode = self.make(Node::File {
            content: Content::durable(bytes.to_vec()),
            open: Weak::new(),
            modified_ms: 0,
        });
        let name = self.name_of(path, "install").expect("its directory was just made");
        self.link(name, inode, 0);
        self.sync_all_names();
    }

    /// Puts a durable directory on the disk, with those above it.
    ///
    /// # Panics
    /// If a file is in the way.
    pub fn install_directory(&mut self, path: &Path) {
        self.make_directory(path, 0).expect("nothing is in the way");
        self.sync_all_names();
    }

    /// The bytes of a file as a reader would see them now, for tests and checkers.
    pub fn peek(&self, path: &Path) -> Option<&[u8]> {
        match self.nodes.get(&self.find(path)?)? {
            Node::File { content, .. } => Some(content.bytes()),
            Node::Directory { .. } => None,
        }
    }

    /// The paths of all files, in order, for tests and checkers.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        self.collect_files(ROOT, Path::new("/"), &mut files);
        files
    }

    /// Sets how many bytes the disk has, for a disk that fills up.
    pub fn set_capacity_bytes(&mut self, capacity_bytes: u64) {
        self.capacity_bytes = capacity_bytes;
    }

    /// How many bytes are taken.
    pub fn used_bytes(&self) -> u64 {
        let sizes = self.nodes.values().map(|node| match node {
            Node::File { content, .. } => content.space_bytes(),
            Node::Directory { .. } => 0,
        });
        sizes.sum()
    }

    /// Flips one bit of a file that the disk has, as a worn disk does. Nothing notices.
    ///
    /// # Panics
    /// If there is no such byte.
    pub fn flip_bit(&mut self, path: &Path, position: usize) {
        let inode = self.find(path).expect("the file is there");
        let content = self.content(inode);
        let byte = content.bytes()[position] ^ 1;
        content.write(position, &[byte]);
    }

    /// Opens the file at `path`; makes it if there is none and `create` says so.
    pub(crate) fn open(
        &mut self,
        path: &Path,
        create: bool,
        wall_ms: i64,
    ) -> IoResult<Arc<OpenFile>> {
        let inode = match self.find(path) {
            Some(inode) => inode,
            None if create => {
                let name = self.name_of(path, "open")?;
                let content = Content::default();
                let inode =
                    self.make(Node::File { content, open: Weak::new(), modified_ms: wall_ms });
                self.link(name, inode, wall_ms);
                inode
            }
            None => return Err(not_found("open", path)),
        };
        match self.nodes.get_mut(&inode) {
            Some(Node::File { open, .. }) => Ok(open.upgrade().unwrap_or_else(|| {
                let handle = Arc::new(OpenFile { inode });
                *open = Arc::downgrade(&handle);
                handle
            })),
            _ => Err(error(IoErrorKind::Other, "open", path, "Is a directory")),
        }
    }

    /// Reads up to `length` bytes of an open file.
    pub(crate) fn read(&self, inode: Inode, position: u64, length: usize) -> &[u8] {
        let Some(Node::File { content, .. }) = self.nodes.get(&inode) else {
            panic!("file {inode} is open and gone");
        };
        let bytes = content.bytes();
        let start = usize::try_from(position).map_or(bytes.len(), |start| start.min(bytes.len()));
        &bytes[start..bytes.len().min(start.saturating_add(length))]
    }

    /// Writes into an open file, as much as fits on the disk; `path` is for the error.
    pub(crate) fn write(
        &mut self,
        inode: Inode,
        position: u64,
        bytes: &[u8],
        wall_ms: i64,
        path: &Path,
    ) -> IoResult<()> {
        let end = position + bytes.len() as u64;
        let missing = end.saturating_sub(self.content(inode).space_bytes());
        let too_much = missing.saturating_sub(self.room_bytes());
        let fits =
            bytes.len() - usize::try_from(too_much).map_or(bytes.len(), |n| n.min(bytes.len()));
        let start = usize::try_from(position).expect("files of a simulation fit in memory");
        self.content(inode).write(start, &bytes[..fits]);
        self.touch(inode, wall_ms);
        if fits < bytes.len() { Err(no_space("write to", path)) } else { Ok(()) }
    }

    /// Takes space of the disk for a range of an open file.
    pub(crate) fn allocate(&mut self, inode: Inode, end: u64, path: &Path) -> IoResult<()> {
        let missing = end.saturating_sub(self.content(inode).space_bytes());
        if missing > self.room_bytes() {
            return Err(no_space("allocate space for", path));
        }
        self.content(inode).allocate(end);
        Ok(())
    }

    /// Sets the length of an open file.
    pub(crate) fn truncate(&mut self, inode: Inode, length: u64, wall_ms: i64) {
        let length = usize::try_from(length).expect("files of a simulation fit in memory");
        self.content(inode).truncate(length);
        self.touch(inode, wall_ms);
    }

    /// The bytes of an open file, to begin and end syncs.
    pub(crate) fn content(&mut self, inode: Inode) -> &mut Content {
        match self.nodes.get_mut(&inode) {
            Some(Node::File { content, .. }) => content,
            _ => panic!("file {inode} is open and gone"),
        }
    }

    /// Makes all changes of names in a directory durable, with those that they build on.
    pub(crate) fn sync_directory(&mut self, path: &Path) -> IoResult<()> {
        let directory = self.find(path).ok_or_else(|| not_found("sync", path))?;
        let pending = std::mem::take(&mut self.pending);
        let mut needed: BTreeSet<Name> = BTreeSet::new();
        let mut chosen = vec![false; pending.len()];
        for (change, chosen) in pending.iter().zip(&mut chosen).rev() {
            *chosen = change.names().any(|name| name.0 == directory || needed.contains(name));
            if *chosen {
                needed.extend(change.names().cloned());
            }
        }
        for (change, chosen) in pending.into_iter().zip(chosen) {
            if chosen {
                self.make_durable(&change);
            } else {
                self.pending.push(change);
            }
        }
        Ok(())
    }

    /// Renames a file or directory.
    pub(crate) fn rename(&mut self, from: &Path, to: &Path, wall_ms: i64) -> IoResult<()> {
        let inode = self.find(from).ok_or_else(|| not_found("rename", from))?;
        let from = self.name_of(from, "rename")?;
        let to_name = self.name_of(to, "rename to")?;
        if let Some(replaced) = self.find(to)
            && !self.entries(replaced).is_none_or(BTreeMap::is_empty)
        {
            return Err(error(IoErrorKind::Other, "rename to", to, "Directory not empty"));
        }
        self.entries_mut(from.0).remove(&from.1);
        self.entries_mut(to_name.0).insert(to_name.1.clone(), inode);
        self.touch(from.0, wall_ms);
        self.touch(to_name.0, wall_ms);
        self.pending.push(NameChange::Move { from, to: to_name, inode });
        Ok(())
    }

    /// Removes a file, or a directory with all that is in it.
    pub(crate) fn remove(&mut self, path: &Path, wall_ms: i64) -> IoResult<()> {
        let Some(inode) = self.find(path) else { return Ok(()) };
        let children: Vec<String> = self
            .entries(inode)
            .map(|entries| entries.keys().cloned().collect())
            .unwrap_or_default();
        for child in children {
            self.remove(&path.join(child), wall_ms)?;
        }
        let name = self.name_of(path, "remove")?;
        self.entries_mut(name.0).remove(&name.1);
        self.touch(name.0, wall_ms);
        self.pending.push(NameChange::Unlink { name });
        Ok(())
    }

    /// Makes a directory and those above it.
    pub(crate) fn make_directory(&mut self, path: &Path, wall_ms: i64) -> IoResult<()> {
        let mut at = ROOT;
        for name in names(path) {
            let entries = self.entries(at).ok_or_else(|| not_a_directory("make", path))?;
            at = match entries.get(name) {
                Some(&inode) => inode,
                None => {
                    let inode = self.make(empty_directory(wall_ms));
                    self.link((at, name.to_owned()), inode, wall_ms);
                    inode
                }
            };
        }
        self.entries(at).map(|_| ()).ok_or_else(|| not_a_directory("make", path))
    }

    /// Lists a directory.
    pub(crate) fn list(&self, path: &Path) -> IoResult<Vec<DirectoryEntry>> {
        let inode = self.find(path).ok_or_else(|| not_found("list", path))?;
        let entries = self.entries(inode).ok_or_else(|| not_a_directory("list", path))?;
        let describe = |(name, inode): (&String, &Inode)| match &self.nodes[inode] {
            Node::File { content, modified_ms, .. } => DirectoryEntry {
                name: name.clone(),
                is_directory: false,
                length: content.bytes().len() as u64,
                modified_ms: *modified_ms,
            },
            Node::Directory { modified_ms, .. } => DirectoryEntry {
                name: name.clone(),
                is_directory: true,
                length: 0,
                modified_ms: *modified_ms,
            },
        };
        Ok(entries.iter().map(describe).collect())
    }

    /// The size of the disk.
    pub(crate) fn space(&self) -> Space {
        Space { total_bytes: self.capacity_bytes, usable_bytes: self.room_bytes() }
    }

    /// The power is lost: what was synced stays, and of the rest what is said or drawn.
    pub(crate) fn lose_power(&mut self, rest: Rest, random: &mut Random) {
        let pending = std::mem::take(&mut self.pending);
        let way = match rest {
            Rest::Nothing | Rest::Bytes => 0,
            Rest::Names => 1,
            Rest::Drawn => random.below(4),
        };
        let prefix = random.below(pending.len() as u64 + 1) as usize;
        for (index, change) in pending.iter().enumerate() {
            let kept = match way {
                0 => false,
                1 => true,
                // A journal: everything up to some moment.
                2 => index < prefix,
                // No order at all, which is all that POSIX promises.
                _ => random.chance(50),
            };
            if kept {
                self.make_durable(change);
            }
        }
        let left = match rest {
            Rest::Nothing | Rest::Names => Left::Nothing,
            Rest::Bytes => Left::Everything,
            Rest::Drawn => {
                let all = [Left::Nothing, Left::Everything, Left::Torn, Left::Torn];
                all[random.below(4) as usize]
            }
        };
        for node in self.nodes.values_mut() {
            match node {
                Node::File { content, open, .. } => {
                    content.lose_power(left, random);
                    *open = Weak::new();
                }
                Node::Directory { now, durable, .. } => now.clone_from(durable),
            }
        }
        self.sweep();
    }

    fn room_bytes(&self) -> u64 {
        match self.capacity_bytes {
            // A disk that never fills up need not be counted.
            u64::MAX => u64::MAX,
            capacity_bytes => capacity_bytes.saturating_sub(self.used_bytes()),
        }
    }

    fn make(&mut self, node: Node) -> Inode {
        self.made_since_sweep += 1;
        if self.made_since_sweep > SWEEP_EVERY_INODES {
            self.sweep();
        }
        let inode = self.next_inode;
        self.next_inode += 1;
        self.nodes.insert(inode, node);
        inode
    }

    /// Drops every file that has no name, no durable name and no one who holds it open.
    fn sweep(&mut self) {
        self.made_since_sweep = 0;
        let mut reachable = BTreeSet::new();
        let mut open_ends = vec![ROOT];
        for change in &self.pending {
            match change {
                NameChange::Link { inode, .. } | NameChange::Move { inode, .. } => {
                    open_ends.push(*inode);
                }
                NameChange::Unlink { .. } => {}
            }
            open_ends.extend(change.names().map(|name| name.0));
        }
        while let Some(inode) = open_ends.pop() {
            if !reachable.insert(inode) {
                continue;
            }
            if let Some(Node::Directory { now, durable, .. }) = self.nodes.get(&inode) {
                open_ends.extend(now.values().chain(durable.values()));
            }
        }
        self.nodes.retain(|inode, node| {
            let held = matches!(node, Node::File { open, .. } if open.strong_count() > 0);
            held || reachable.contains(inode)
        });
    }

    fn link(&mut self, name: Name, inode: Inode, wall_ms: i64) {
        self.entries_mut(name.0).insert(name.1.clone(), inode);
        self.touch(name.0, wall_ms);
        self.pending.push(NameChange::Link { name, inode });
    }

    fn make_durable(&mut self, change: &NameChange) {
        match change {
            NameChange::Link { name, inode } => self.durable_entry(name, Some(*inode)),
            NameChange::Unlink { name } => self.durable_entry(name, None),
            NameChange::Move { from, to, inode } => {
                self.durable_entry(from, None);
                self.durable_entry(to, Some(*inode));
            }
        }
    }

    fn durable_entry(&mut self, name: &Name, inode: Option<Inode>) {
        let Some(Node::Directory { durable, .. }) = self.nodes.get_mut(&name.0) else {
            // The directory itself is gone: nothing in it can be found again.
            return;
        };
        match inode {
            Some(inode) => durable.insert(name.1.clone(), inode),
            None => durable.remove(&name.1),
        };
    }

    fn sync_all_names(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            self.make_durable(&change);
        }
    }

    fn find(&self, path: &Path) -> Option<Inode> {
        names(path).try_fold(ROOT, |at, name| self.entries(at)?.get(name).copied())
    }

    /// The directory that `path` is in, and its name there.
    fn name_of(&self, path: &Path, action: &'static str) -> IoResult<Name> {
        let name = names(path).next_back().ok_or_else(|| not_found(action, path))?;
        let parent = path.parent().ok_or_else(|| not_found(action, path))?;
        match self.find(parent) {
            Some(inode) if self.entries(inode).is_some() => Ok((inode, name.to_owned())),
            Some(_) => Err(not_a_directory(action, path)),
            None => Err(not_found(action, path)),
        }
    }

    fn entries(&self, inode: Inode) -> Option<&BTreeMap<String, Inode>> {
        match self.nodes.get(&inode) {
            Some(Node::Directory { now, .. }) => Some(now),
            _ => None,
        }
    }

    fn entries_mut(&mut self, inode: Inode) -> &mut BTreeMap<String, Inode> {
        match self.nodes.get_mut(&inode) {
            Some(Node::Directory { now, .. }) => now,
            _ => panic!("{inode} was found to be a directory before"),
        }
    }

    fn touch(&mut self, inode: Inode, wall_ms: i64) {
        match self.nodes.get_mut(&inode) {
            Some(Node::File { modified_ms, .. } | Node::Directory { modified_ms, .. }) => {
                *modified_ms = wall_ms;
            }
            None => {}
        }
    }

    fn collect_files(&self, inode: Inode, path: &Path, files: &mut Vec<PathBuf>) {
        match self.entries(inode) {
            Some(entries) => {
                for (name, &child) in entries {
                    self.collect_files(child, &path.join(name), files);
                }
            }
            None => files.push(path.to_owned()),
        }
    }
}

fn empty_directory(modified_ms: i64) -> Node {
    Node::Directory { now: BTreeMap::new(), durable: BTreeMap::new(), modified_ms }
}

fn names(path: &Path) -> impl DoubleEndedIterator<Item = &str> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_str().expect("machines name files in UTF-8")),
        _ => None,
    })
}

pub(crate) fn error(kind: IoErrorKind, action: &'static str, path: &Path, cause: &str) -> IoError {
    IoError { kind, action, subject: path.display().to_string(), cause: cause.to_owned() }
}

fn not_found(action: &'static str, path: &Path) -> IoError {
    error(IoErrorKind::NotFound, action, path, "No such file or directory")
}

fn not_a_directory(action: &'static str, path: &Path) -> IoError {
    error(IoErrorKind::Other, action, path, "Not a directory")
}

pub(crate) fn no_space(action: &'static str, path: &Path) -> IoError {
    error(IoErrorKind::NoSpace, action, path, "No space left on device")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> &Path {
        Path::new(text)
    }

    fn write(disk: &mut Disk, at: &str, bytes: &[u8]) -> Inode {
        let file = disk.open(path(at), true, 0).expect("opens");
        disk.write(file.inode, 0, bytes, 0, path(at)).expect("fits");
        disk.content(file.inode).sync_begins(1);
        disk.content(file.inode).sync_ends(1);
        file.inode
    }

    /// Whether a file can be there and can be missing after a loss of power.
    fn fates(make: impl Fn() -> Disk, at: &str) -> (bool, bool) {
        let mut fates = (false, false);
        for seed in 0..50 {
            let mut disk = make();
            disk.lose_power(Rest::Drawn, &mut Random::new(seed));
            match disk.peek(path(at)) {
                Some(_) => fates.0 = true,
                None => fates.1 = true,
            }
        }
        fates
    }

    #[test]
    fn a_file_is_lost_unless_its_directory_was_synced() {
        let make = |sync: bool| {
            let mut disk = Disk::new(1 << 20);
            disk.install_directory(path("/data"));
            write(&mut disk, "/data/a", b"abc");
            if sync {
                disk.sync_directory(path("/data")).expect("is there");
            }
            disk
        };
        assert_eq!(fates(|| make(false), "/data/a"), (true, true));
        assert_eq!(fates(|| make(true), "/data/a"), (true, false));
    }

    #[test]
    fn a_rename_is_whole_or_not_there() {
        let make = || {
            let mut disk = Disk::new(1 << 20);
            disk.install(path("/data/final"), b"old");
            write(&mut disk, "/data/new", b"new");
            disk.rename(path("/data/new"), path("/data/final"), 0).expect("is there");
            disk
        };
        for seed in 0..50 {
            let mut disk = make();
            disk.lose_power(Rest::Drawn, &mut Random::new(seed));
            let bytes = disk.peek(path("/data/final")).map(<[u8]>::to_vec);
            assert!(matches!(bytes.as_deref(), Some(b"old" | b"new")), "{bytes:?}");
        }
    }

    #[test]
    fn syncing_a_directory_brings_along_what_a_rename_builds_on() {
        let mut disk = Disk::new(1 << 20);
        disk.install_directory(path("/a"));
        disk.install_directory(path("/b"));
        write(&mut disk, "/a/x", b"x");
        disk.rename(path("/a/x"), path("/b/x"), 0).expect("is there");
        disk.sync_directory(path("/b")).expect("is there");
        disk.lose_power(Rest::Drawn, &mut Random::new(1));
        assert_eq!(disk.files(), [PathBuf::from("/b/x")]);
    }

    #[test]
    fn an_open_file_outlives_its_name() {
        let mut disk = Disk::new(1 << 20);
        disk.install(path("/f"), b"still here");
        let file = disk.open(path("/f"), false, 0).expect("is there");
        disk.remove(path("/f"), 0).expect("is there");
        disk.sync_directory(path("/")).expect("is there");
        disk.sweep();
        assert_eq!(disk.read(file.inode, 0, 100), b"still here");
        drop(file);
        disk.sweep();
        assert_eq!(disk.used_bytes(), 0);
    }

    #[test]
    fn a_full_disk_takes_a_part_of_a_write() {
        let mut disk = Disk::new(100);
        let file = disk.open(path("/f"), true, 0).expect("opens");
        let refused = disk.write(file.inode, 0, &[1; 150], 0, path("/f")).expect_err("too much");
        assert_eq!(refused.kind, IoErrorKind::NoSpace);
        assert_eq!(disk.space(), Space { total_bytes: 100, usable_bytes: 0 });
        disk.write(file.inode, 0, &[2; 100], 0, path("/f")).expect("rewrites what it has");
    }
}
