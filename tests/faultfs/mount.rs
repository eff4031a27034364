//! The kernel's requests, answered by the disk.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, Session, TimeOrNow, WriteFlags,
};

use crate::disk::{Attributes, Disk, NAME_BYTES_MAX};
use crate::pages::PAGE_BYTES;

/// How long the kernel may believe an answer. Nobody changes anything behind its back.
const BELIEVED: Duration = Duration::from_secs(3600);
/// What one request writes at most, in bytes: an end may fall between two of them.
const WRITE_BYTES_MAX: u32 = 64 << 10;
/// Files that may still be made, as `statfs` has it.
const FREE_FILES: u64 = 1 << 20;

/// Whether requests are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Running {
    /// Yes; and after so many more changes nothing is, if there is a number.
    Until(Option<u64>),
    /// They wait for what becomes of them.
    Frozen,
    /// None is performed any more: who asks is told of an error.
    Cut,
}

#[derive(Debug)]
struct State {
    disk: Disk,
    running: Running,
    /// How often the disk was mounted: what comes through an earlier mount is late, and refused.
    mounts: u64,
}

/// A disk with its mount.
#[derive(Debug)]
pub(crate) struct Mounted {
    shared: Arc<Shared>,
    point: PathBuf,
    session: Option<BackgroundSession>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Mounted {
    /// # Errors
    /// The system lets nobody mount it.
    pub(crate) fn new(disk: Disk, point: &Path) -> io::Result<Mounted> {
        let state = Mutex::new(State { disk, running: Running::Until(None), mounts: 0 });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let mut mounted = Mounted { shared, point: point.to_owned(), session: None };
        mounted.mount()?;
        Ok(mounted)
    }

    pub(crate) fn with_disk<R>(&self, change: impl FnOnce(&mut Disk) -> R) -> R {
        change(&mut self.shared.lock().disk)
    }

    /// Answers nothing more after `changes` changes: what comes then is neither performed nor
    /// refused.
    pub(crate) fn freeze_after(&self, changes: u64) {
        let running = if changes == 0 { Running::Frozen } else { Running::Until(Some(changes)) };
        self.shared.lock().running = running;
        self.shared.changed.notify_all();
    }

    /// Waits until nothing is answered any more; false when it still is after `time`.
    pub(crate) fn wait_until_frozen(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let mut state = self.shared.lock();
        while matches!(state.running, Running::Until(_)) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.expect("no thread panicked").0;
        }
        true
    }

    /// Refuses what waits and what still comes. Nothing is performed any more.
    pub(crate) fn cut(&self) {
        self.shared.lock().running = Running::Cut;
        self.shared.changed.notify_all();
    }

    /// Goes away from under whoever still uses it, changes, and comes back.
    ///
    /// # Errors
    /// The system lets nobody mount it.
    pub(crate) fn come_back(&mut self, change: impl FnOnce(&mut Disk)) -> io::Result<()> {
        self.cut();
        self.unmount()?;
        change(&mut self.shared.lock().disk);
        self.mount()
    }

    fn mount(&mut self) -> io::Result<()> {
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("faultfs".into())];
        let answers = Answers::of_next_mount(&self.shared);
        self.session = Some(Session::new(answers, &self.point, &config)?.spawn()?);
        Ok(())
    }

    fn unmount(&mut self) -> io::Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        // Whoever still has a file open is to be killed, and need not be dead yet.
        let status = Command::new("umount").arg("--lazy").arg(&self.point).status()?;
        if !status.success() {
            return Err(io::Error::other(format!("umount: {status}")));
        }
        // There is nothing to unmount any more, and this says so.
        drop(session.umount_and_join());
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panicked")
    }

    /// Waits for the turn of a request that came through this mount.
    fn enter(&self, mount: u64, is_change: bool) -> Result<MutexGuard<'_, State>, Errno> {
        let mut state = self.lock();
        let is_due = is_change && state.mounts == mount;
        if is_due && let Running::Until(Some(left)) = &mut state.running {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => {
                    state.running = Running::Frozen;
                    self.changed.notify_all();
                }
            }
        }
        loop {
            match state.running {
                _ if state.mounts != mount => return Err(Errno::EIO),
                Running::Until(_) => return Ok(state),
                Running::Cut => return Err(Errno::EIO),
                Running::Frozen => state = self.changed.wait(state).expect("no thread panicked"),
            }
        }
    }
}

/// An entry of a listing, as the kernel takes it.
type Entry = (INodeNo, FileType, OsString);

/// What the kernel asks through one mount.
#[derive(Debug)]
struct Answers {
    shared: Arc<Shared>,
    mount: u64,
    /// What each open directory held when it was opened; the handles count up.
    listings: Mutex<(u64, BTreeMap<u64, Vec<Entry>>)>,
}

impl Answers {
    /// From now on those of earlier mounts refuse what still comes to them: the kernel may hold
    /// requests of a process that was killed, and the disk they speak of is gone.
    fn of_next_mount(shared: &Arc<Shared>) -> Answers {
        let mut state = shared.lock();
        state.mounts += 1;
        state.running = Running::Until(None);
        Answers { shared: Arc::clone(shared), mount: state.mounts, listings: Mutex::default() }
    }

    fn read_disk<R>(&self, read: impl FnOnce(&Disk) -> Result<R, Errno>) -> Result<R, Errno> {
        read(&self.shared.enter(self.mount, false)?.disk)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Disk) -> Result<R, Errno>) -> Result<R, Errno> {
        change(&mut self.shared.enter(self.mount, true)?.disk)
    }

    /// Something that neither waits for its number among the changes nor is one.
    fn handle<R>(&self, handle: impl FnOnce(&mut Disk) -> Result<R, Errno>) -> Result<R, Errno> {
        handle(&mut self.shared.enter(self.mount, false)?.disk)
    }

    fn list(&self, inode: INodeNo) -> Result<FileHandle, Errno> {
        let (parent, found) =
            self.read_disk(|disk| Ok((disk.parent(inode.0)?, disk.list(inode.0)?)))?;
        let mut entries = vec![(inode, FileType::Directory, ".".into())];
        entries.push((INodeNo(parent), FileType::Directory, "..".into()));
        entries.extend(found.into_iter().map(|(name, inode, is_directory)| {
            let kind = if is_directory { FileType::Directory } else { FileType::RegularFile };
            (INodeNo(inode), kind, name)
        }));
        let mut listings = self.listings.lock().expect("no thread panicked");
        listings.0 += 1;
        let handle = listings.0;
        listings.1.insert(handle, entries);
        Ok(FileHandle(handle))
    }

    fn create(
        &self,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        is_directory: bool,
    ) -> Result<FileAttr, Errno> {
        self.change(|disk| {
            let inode = disk.create(parent.0, name, permissions(mode), is_directory)?;
            if !is_directory {
                disk.open(inode)?;
            }
            Ok(described(disk.attributes(inode)?))
        })
    }
}

fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

fn described(attributes: Attributes) -> FileAttr {
    let Attributes { inode, is_directory, length, space_bytes, permissions, modified } = attributes;
    FileAttr {
        ino: INodeNo(inode),
        size: length,
        blocks: space_bytes / 512,
        atime: modified,
        mtime: modified,
        ctime: modified,
        crtime: modified,
        kind: if is_directory { FileType::Directory } else { FileType::RegularFile },
        perm: permissions,
        nlink: 1,
        // The one who has mounted it.
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: PAGE_BYTES as u32,
        flags: 0,
    }
}

/// Answers with an error, or as the second part says.
macro_rules! answer {
    ($reply:ident, $result:expr, |$value:pat_param| $good:expr) => {
        match $result {
            Ok($value) => $good,
            Err(error) => $reply.error(error),
        }
    };
}

impl Filesystem for Answers {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let refused = |nearest| io::Error::other(format!("writes of {nearest} bytes only"));
        config.set_max_write(WRITE_BYTES_MAX).map(drop).map_err(refused)
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.read_disk(|disk| disk.attributes(disk.lookup(parent.0, name)?));
        answer!(reply, found, |found| reply.entry(&BELIEVED, &described(found), Generation(0)));
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.read_disk(|disk| disk.attributes(inode.0));
        answer!(reply, found, |found| reply.attr(&BELIEVED, &described(found)));
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changed = self.change(|disk| {
            if let Some(mode) = mode {
                disk.set_permissions(inode.0, permissions(mode))?;
            }
            if let Some(size) = size {
                disk.set_length(inode.0, size)?;
            }
            match modified {
                Some(TimeOrNow::SpecificTime(time)) => disk.set_modified(inode.0, time)?,
                Some(TimeOrNow::Now) => disk.set_modified(inode.0, SystemTime::now())?,
                None => {}
            }
            disk.attributes(inode.0)
        });
        answer!(reply, changed, |found| reply.attr(&BELIEVED, &described(found)));
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.create(parent, name, mode & !umask, true);
        answer!(reply, made, |made| reply.entry(&BELIEVED, &made, Generation(0)));
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let made = self.create(parent, name, mode & !umask, false);
        answer!(reply, made, |made| {
            let flags = FopenFlags::FOPEN_KEEP_CACHE;
            reply.created(&BELIEVED, &made, Generation(0), FileHandle(0), flags)
        });
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.change(|disk| disk.remove(parent.0, name, false));
        answer!(reply, removed, |()| reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.change(|disk| disk.remove(parent.0, name, true));
        answer!(reply, removed, |()| reply.ok());
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if flags.intersects(!RenameFlags::RENAME_NOREPLACE) {
            return reply.error(Errno::EINVAL);
        }
        let may_replace = flags.is_empty();
        let renamed = self
            .change(|disk| disk.rename((parent.0, name), (new_parent.0, new_name), may_replace));
        answer!(reply, renamed, |()| reply.ok());
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.handle(|disk| disk.open(inode.0));
        answer!(reply, opened, |()| { reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE) });
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let bytes = self.read_disk(|disk| disk.read(inode.0, offset, u64::from(size)));
        answer!(reply, bytes, |bytes| reply.data(&bytes));
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.change(|disk| disk.write(inode.0, offset, data));
        answer!(reply, written, |()| reply.written(data.len() as u32));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let closed = self.handle(|disk| disk.close(inode.0));
        answer!(reply, closed, |()| reply.ok());
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let synced = self.change(|disk| disk.sync(inode.0));
        answer!(reply, synced, |()| reply.ok());
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let synced = self.change(|disk| disk.sync(inode.0));
        answer!(reply, synced, |()| reply.ok());
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let listed = self.list(inode);
        answer!(reply, listed, |handle| reply.opened(handle, FopenFlags::empty()));
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listings = self.listings.lock().expect("no thread panicked");
        let Some(entries) = listings.1.get(&handle.0) else { return reply.error(Errno::EBADF) };
        for (index, (inode, kind, name)) in (1..).zip(entries).skip(offset as usize) {
            if reply.add(*inode, index, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings.lock().expect("no thread panicked").1.remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let space = self.read_disk(|disk| Ok(disk.space()));
        answer!(reply, space, |(total, free)| {
            let (total, free) = (total / PAGE_BYTES, free / PAGE_BYTES);
            let (page, name) = (PAGE_BYTES as u32, NAME_BYTES_MAX as u32);
            reply.statfs(total, free, free, FREE_FILES, FREE_FILES, page, name, page)
        });
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        /// `FALLOC_FL_KEEP_SIZE`.
        const KEEPS_LENGTH: i32 = 1;
        if mode & !KEEPS_LENGTH != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let extends = mode & KEEPS_LENGTH == 0;
        let allocated = self.change(|disk| disk.allocate(inode.0, offset, length, extends));
        answer!(reply, allocated, |()| reply.ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_mount_is_asked_changes_nothing_any_more() {
        let state = State { disk: Disk::new(1 << 20), running: Running::Until(None), mounts: 0 };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let create = |answers: &Answers, name: &str| {
            answers.create(INodeNo::ROOT, OsStr::new(name), 0o644, false).map(|_| ())
        };
        let earlier = Answers::of_next_mount(&shared);
        assert!(create(&earlier, "before").is_ok());
        shared.lock().running = Running::Cut;
        assert!(create(&earlier, "cut").is_err());
        let later = Answers::of_next_mount(&shared);
        shared.lock().running = Running::Until(Some(1));
        assert!(create(&earlier, "late").is_err());
        assert!(later.read_disk(|disk| disk.lookup(1, OsStr::new("late"))).is_err());
        assert!(create(&later, "after").is_ok(), "what is late does not count as a change");
        // And whoever waits for what becomes of the disk is told when it has come back.
        let waiting = Answers { shared: Arc::clone(&shared), mount: 2, listings: Mutex::default() };
        shared.lock().running = Running::Frozen;
        let waits = std::thread::spawn(move || create(&waiting, "frozen").is_err());
        let _newest = Answers::of_next_mount(&shared);
        shared.changed.notify_all();
        assert!(waits.join().expect("it does not panic"));
    }
}
