//! Files and directories: what a process sees of them, and what a loss of power leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use fuser::Errno;

use crate::pages::Pages;
use crate::random::Random;

/// The number of a file or directory; none is given twice.
pub(crate) type Inode = u64;

/// The top directory.
pub(crate) const ROOT: Inode = 1;
/// Longest name of a file, in bytes, as in most file systems.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// The end of the largest file, in bytes.
const FILE_END_MAX: u64 = 1 << 40;
/// After so many changes of names, what nobody can reach is forgotten.
const FORGET_EVERY: u32 = 4096;

type Answer<R> = Result<R, Errno>;

/// What a directory that fails refuses, in all that lies below it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// Everything.
    All,
    /// Whatever changes something, and syncs.
    Writes,
    /// Syncs; and what they had to write is lost.
    Syncs,
}

/// What is asked of a file, as far as a failing directory cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    Sync,
}

#[derive(Debug)]
enum Kind {
    File(Pages),
    Directory(Directory),
}

#[derive(Debug, Default)]
struct Directory {
    seen: BTreeMap<OsString, Inode>,
    durable: BTreeMap<OsString, Inode>,
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    permissions: u16,
    modified: SystemTime,
    /// The directory that it lies in, or lay in last.
    parent: Inode,
    has_name: bool,
    open_handles: u32,
}

impl Node {
    /// Whether its space is in use for a process.
    fn is_counted(&self) -> bool {
        self.has_name || self.open_handles > 0
    }

    fn counted_bytes(&self) -> u64 {
        match &self.kind {
            Kind::File(pages) if self.is_counted() => pages.space_bytes(),
            _ => 0,
        }
    }
}

/// What is told of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes {
    pub(crate) inode: Inode,
    pub(crate) is_directory: bool,
    pub(crate) length: u64,
    pub(crate) space_bytes: u64,
    pub(crate) permissions: u16,
    pub(crate) modified: SystemTime,
}

/// One change of names: in each directory a name that leads somewhere now, or nowhere. It is
/// durable whole or not at all.
#[derive(Debug)]
struct Change(Vec<(Inode, OsString, Option<Inode>)>);

/// The whole file system.
#[derive(Debug)]
pub(crate) struct Disk {
    nodes: BTreeMap<Inode, Node>,
    next_inode: Inode,
    /// Changes of names that are not durable yet, in order.
    changes: Vec<Change>,
    changes_until_forget: u32,
    capacity_bytes: u64,
    used_bytes: u64,
    failing: Option<(Inode, Failing)>,
}

impl Disk {
    pub(crate) fn new(capacity_bytes: u64) -> Disk {
        let root = Node {
            kind: Kind::Directory(Directory::default()),
            permissions: 0o755,
            modified: SystemTime::now(),
            parent: ROOT,
            has_name: true,
            open_handles: 0,
        };
        Disk {
            nodes: BTreeMap::from([(ROOT, root)]),
            next_inode: ROOT + 1,
            changes: Vec::new(),
            changes_until_forget: FORGET_EVERY,
            capacity_bytes,
            used_bytes: 0,
            failing: None,
        }
    }

    /// Size and free space, in bytes.
    pub(crate) fn space(&self) -> (u64, u64) {
        (self.capacity_bytes, self.capacity_bytes.saturating_sub(self.used_bytes))
    }

    pub(crate) fn set_capacity(&mut self, bytes: u64) {
        self.capacity_bytes = bytes;
    }

    /// Leaves so much space free, however much is in use.
    pub(crate) fn set_free(&mut self, bytes: u64) {
        self.capacity_bytes = self.used_bytes + bytes;
    }

    /// From now on the directory with this path fails, or no directory at all.
    pub(crate) fn set_failing(&mut self, failing: Option<(&str, Failing)>) -> Answer<()> {
        let find = |path: &str| {
            let mut names = path.split('/').filter(|name| !name.is_empty());
            names.try_fold(ROOT, |inode, name| {
                self.directory(inode)?.seen.get(OsStr::new(name)).copied().ok_or(Errno::ENOENT)
            })
        };
        self.failing = match failing {
            Some((path, what)) => Some((find(path)?, what)),
            None => None,
        };
        Ok(())
    }

    pub(crate) fn lookup(&self, parent: Inode, name: &OsStr) -> Answer<Inode> {
        self.permit(parent, Access::Read)?;
        self.directory(parent)?.seen.get(name).copied().ok_or(Errno::ENOENT)
    }

    pub(crate) fn attributes(&self, inode: Inode) -> Answer<Attributes> {
        self.permit(inode, Access::Read)?;
        let node = self.node(inode)?;
        let (is_directory, length, space_bytes) = match &node.kind {
            Kind::File(pages) => (false, pages.length(), pages.space_bytes()),
            Kind::Directory(_) => (true, 0, 0),
        };
        let (permissions, modified) = (node.permissions, node.modified);
        Ok(Attributes { inode, is_directory, length, space_bytes, permissions, modified })
    }

    /// What a directory holds, by name.
    pub(crate) fn list(&self, inode: Inode) -> Answer<Vec<(OsString, Inode, bool)>> {
        self.permit(inode, Access::Read)?;
        let is_directory =
            |inode| matches!(self.node(inode), Ok(Node { kind: Kind::Directory(_), .. }));
        let entries = self.directory(inode)?.seen.iter();
        Ok(entries.map(|(name, inode)| (name.clone(), *inode, is_directory(*inode))).collect())
    }

    pub(crate) fn parent(&self, inode: Inode) -> Answer<Inode> {
        Ok(self.node(inode)?.parent)
    }

    pub(crate) fn create(
        &mut self,
        parent: Inode,
        name: &OsStr,
        permissions: u16,
        is_directory: bool,
    ) -> Answer<Inode> {
        self.permit(parent, Access::Write)?;
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if self.directory(parent)?.seen.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let inode = self.next_inode;
        self.next_inode += 1;
        let kind = match is_directory {
            true => Kind::Directory(Directory::default()),
            false => Kind::File(Pages::default()),
        };
        let modified = SystemTime::now();
        let node = Node { kind, permissions, modified, parent, has_name: true, open_handles: 0 };
        self.nodes.insert(inode, node);
        self.change(Change(vec![(parent, name.to_owned(), Some(inode))]));
        Ok(inode)
    }

    pub(crate) fn remove(&mut self, parent: Inode, name: &OsStr, is_directory: bool) -> Answer<()> {
        let inode = self.lookup(parent, name)?;
        self.permit(inode, Access::Write)?;
        match &self.node(inode)?.kind {
            Kind::Directory(_) if !is_directory => return Err(Errno::EISDIR),
            Kind::File(_) if is_directory => return Err(Errno::ENOTDIR),
            Kind::Directory(directory) if !directory.seen.is_empty() => {
                return Err(Errno::ENOTEMPTY);
            }
            _ => {}
        }
        self.change(Change(vec![(parent, name.to_owned(), None)]));
        Ok(())
    }

    pub(crate) fn rename(
        &mut self,
        (from, old): (Inode, &OsStr),
        (to, new): (Inode, &OsStr),
        may_replace: bool,
    ) -> Answer<()> {
        let inode = self.lookup(from, old)?;
        self.permit(inode, Access::Write)?;
        self.permit(to, Access::Write)?;
        if new.len() > NAME_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let moves_directory = matches!(self.node(inode)?.kind, Kind::Directory(_));
        if moves_directory && self.lies_below(to, inode) {
            return Err(Errno::EINVAL);
        }
        if let Some(replaced) = self.directory(to)?.seen.get(new).copied() {
            if replaced == inode {
                return Ok(());
            }
            match &self.node(replaced)?.kind {
                _ if !may_replace => return Err(Errno::EEXIST),
                Kind::File(_) if moves_directory => return Err(Errno::ENOTDIR),
                Kind::Directory(_) if !moves_directory => return Err(Errno::EISDIR),
                Kind::Directory(directory) if !directory.seen.is_empty() => {
                    return Err(Errno::ENOTEMPTY);
                }
                _ => {}
            }
        }
        let gone = (from, old.to_owned(), None);
        self.change(Change(vec![gone, (to, new.to_owned(), Some(inode))]));
        Ok(())
    }

    pub(crate) fn read(&self, inode: Inode, position: u64, length: u64) -> Answer<Vec<u8>> {
        self.permit(inode, Access::Read)?;
        match &self.node(inode)?.kind {
            Kind::File(pages) => Ok(pages.read(position, length)),
            Kind::Directory(_) => Err(Errno::EISDIR),
        }
    }

    pub(crate) fn write(&mut self, inode: Inode, position: u64, bytes: &[u8]) -> Answer<()> {
        self.grow(inode, position, bytes.len() as u64, |pages| pages.write(position, bytes))
    }

    /// Takes space for a range; the length stays unless `extends` says otherwise.
    pub(crate) fn allocate(
        &mut self,
        inode: Inode,
        position: u64,
        length: u64,
        extends: bool,
    ) -> Answer<()> {
        self.grow(inode, position, length, |pages| {
            pages.allocate(position, length);
            if extends && position + length > pages.length() {
                pages.set_length(position + length);
            }
        })
    }

    pub(crate) fn set_length(&mut self, inode: Inode, length: u64) -> Answer<()> {
        self.permit(inode, Access::Write)?;
        if length > FILE_END_MAX {
            return Err(Errno::EFBIG);
        }
        self.with_file(inode, |pages| pages.set_length(length))
    }

    pub(crate) fn set_modified(&mut self, inode: Inode, modified: SystemTime) -> Answer<()> {
        self.permit(inode, Access::Write)?;
        self.node_mut(inode)?.modified = modified;
        Ok(())
    }

    pub(crate) fn set_permissions(&mut self, inode: Inode, permissions: u16) -> Answer<()> {
        self.permit(inode, Access::Write)?;
        self.node_mut(inode)?.permissions = permissions;
        Ok(())
    }

    /// Makes the bytes of a file durable, or the names in a directory. A name that was moved from
    /// or to another directory takes with it what was changed there before.
    pub(crate) fn sync(&mut self, inode: Inode) -> Answer<()> {
        if let Err(error) = self.permit(inode, Access::Sync) {
            if let Kind::File(pages) = &mut self.node_mut(inode)?.kind {
                pages.fail_to_sync();
            }
            return Err(error);
        }
        match &mut self.node_mut(inode)?.kind {
            Kind::File(pages) => pages.sync(),
            Kind::Directory(_) => self.sync_names(inode),
        }
        Ok(())
    }

    pub(crate) fn open(&mut self, inode: Inode) -> Answer<()> {
        self.permit(inode, Access::Read)?;
        self.count_again(inode, |node| node.open_handles += 1)
    }

    pub(crate) fn close(&mut self, inode: Inode) -> Answer<()> {
        self.count_again(inode, |node| node.open_handles = node.open_handles.saturating_sub(1))
    }

    /// Only what is durable is left, and what `random` chooses of the rest.
    pub(crate) fn lose_power(&mut self, mut random: Option<&mut Random>) {
        let changes = std::mem::take(&mut self.changes);
        if let Some(random) = random.as_deref_mut() {
            self.keep_some(changes, random);
        }
        let places: BTreeSet<Inode> = self.reachable(|directory| vec![&directory.durable]);
        self.nodes.retain(|inode, _| places.contains(inode));
        let mut parents = Vec::new();
        for (inode, node) in &mut self.nodes {
            (node.has_name, node.open_handles) = (true, 0);
            match &mut node.kind {
                Kind::File(pages) => pages.lose_power(random.as_deref_mut()),
                Kind::Directory(directory) => {
                    directory.seen.clone_from(&directory.durable);
                    parents.extend(directory.seen.values().map(|child| (*child, *inode)));
                }
            }
        }
        for (child, parent) in parents {
            if let Some(node) = self.nodes.get_mut(&child) {
                node.parent = parent;
            }
        }
        self.used_bytes = self.nodes.values().map(Node::counted_bytes).sum();
    }

    /// Of changes that were not synced, a journal keeps the first ones; another file system any.
    fn keep_some(&mut self, changes: Vec<Change>, random: &mut Random) {
        let has_journal = random.below(2) == 0;
        let kept = random.below(changes.len() as u64 + 1);
        for (index, change) in (0..).zip(changes) {
            if if has_journal { index < kept } else { random.below(2) == 0 } {
                self.make_durable(change);
            }
        }
    }

    fn make_durable(&mut self, Change(names): Change) {
        for (directory, name, inode) in names {
            let Ok(Node { kind: Kind::Directory(directory), .. }) = self.node_mut(directory) else {
                continue;
            };
            match inode {
                Some(inode) => drop(directory.durable.insert(name, inode)),
                None => drop(directory.durable.remove(&name)),
            }
        }
    }

    fn sync_names(&mut self, inode: Inode) {
        let mut directories = BTreeSet::from([inode]);
        let (mut synced, mut left) = (Vec::new(), Vec::new());
        for change in std::mem::take(&mut self.changes).into_iter().rev() {
            if change.0.iter().any(|(directory, ..)| directories.contains(directory)) {
                directories.extend(change.0.iter().map(|(directory, ..)| *directory));
                synced.push(change);
            } else {
                left.push(change);
            }
        }
        left.reverse();
        self.changes = left;
        for change in synced.into_iter().rev() {
            self.make_durable(change);
        }
    }

    fn change(&mut self, change: Change) {
        let now = SystemTime::now();
        for (directory, name, inode) in &change.0 {
            let Ok(Node { kind: Kind::Directory(parent), modified, .. }) =
                self.node_mut(*directory)
            else {
                continue;
            };
            *modified = now;
            let before = match inode {
                Some(inode) => parent.seen.insert(name.clone(), *inode),
                None => parent.seen.remove(name),
            };
            for (inode, has_name) in [(before, false), (*inode, true)] {
                let Some(inode) = inode else { continue };
                let named = self.count_again(inode, |node| {
                    node.has_name = has_name;
                    if has_name {
                        node.parent = *directory;
                    }
                });
                named.expect("a name leads to what is there");
            }
        }
        self.changes.push(change);
        self.changes_until_forget -= 1;
        if self.changes_until_forget == 0 {
            self.changes_until_forget = FORGET_EVERY;
            self.forget_the_lost();
        }
    }

    /// Forgets what no process and no loss of power can bring back.
    fn forget_the_lost(&mut self) {
        let mut places = self.reachable(|directory| vec![&directory.seen, &directory.durable]);
        let changed = self.changes.iter().flat_map(|change| &change.0);
        places.extend(changed.filter_map(|(_, _, inode)| *inode));
        self.nodes.retain(|inode, node| node.open_handles > 0 || places.contains(inode));
    }

    /// What the names of directories lead to, from the top.
    fn reachable<'a>(
        &'a self,
        names: impl Fn(&'a Directory) -> Vec<&'a BTreeMap<OsString, Inode>>,
    ) -> BTreeSet<Inode> {
        let (mut found, mut left) = (BTreeSet::new(), vec![ROOT]);
        while let Some(inode) = left.pop() {
            if found.insert(inode)
                && let Ok(directory) = self.directory(inode)
            {
                left.extend(names(directory).into_iter().flat_map(BTreeMap::values));
            }
        }
        found
    }

    fn grow(
        &mut self,
        inode: Inode,
        position: u64,
        length: u64,
        change: impl FnOnce(&mut Pages),
    ) -> Answer<()> {
        self.permit(inode, Access::Write)?;
        let end = position.checked_add(length).ok_or(Errno::EFBIG)?;
        if end > FILE_END_MAX {
            return Err(Errno::EFBIG);
        }
        let Kind::File(pages) = &self.node(inode)?.kind else { return Err(Errno::EISDIR) };
        if pages.growth_bytes(position, length) > self.space().1 {
            return Err(Errno::ENOSPC);
        }
        self.with_file(inode, change)
    }

    fn with_file(&mut self, inode: Inode, change: impl FnOnce(&mut Pages)) -> Answer<()> {
        if matches!(self.node(inode)?.kind, Kind::Directory(_)) {
            return Err(Errno::EISDIR);
        }
        self.count_again(inode, |node| {
            node.modified = SystemTime::now();
            if let Kind::File(pages) = &mut node.kind {
                change(pages);
            }
        })
    }

    /// Changes something on which depends how much space is in use.
    fn count_again(&mut self, inode: Inode, change: impl FnOnce(&mut Node)) -> Answer<()> {
        let node = self.nodes.get_mut(&inode).ok_or(Errno::ENOENT)?;
        let before = node.counted_bytes();
        change(node);
        self.used_bytes = self.used_bytes - before + node.counted_bytes();
        Ok(())
    }

    fn permit(&self, inode: Inode, access: Access) -> Answer<()> {
        let Some((directory, failing)) = self.failing else { return Ok(()) };
        let refuses = match failing {
            Failing::All => true,
            Failing::Writes => access != Access::Read,
            Failing::Syncs => access == Access::Sync,
        };
        if refuses && self.lies_below(inode, directory) { Err(Errno::EIO) } else { Ok(()) }
    }

    fn lies_below(&self, inode: Inode, directory: Inode) -> bool {
        let mut at = inode;
        while at != directory {
            match self.nodes.get(&at) {
                Some(node) if at != ROOT => at = node.parent,
                _ => return false,
            }
        }
        true
    }

    fn node(&self, inode: Inode) -> Answer<&Node> {
        self.nodes.get(&inode).ok_or(Errno::ENOENT)
    }

    fn node_mut(&mut self, inode: Inode) -> Answer<&mut Node> {
        self.nodes.get_mut(&inode).ok_or(Errno::ENOENT)
    }

    fn directory(&self, inode: Inode) -> Answer<&Directory> {
        match &self.node(inode)?.kind {
            Kind::Directory(directory) => Ok(directory),
            Kind::File(_) => Err(Errno::ENOTDIR),
        }
    }
}

#[cfg(test)]
mod tests;
