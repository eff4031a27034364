//! Performs the file effects of one node on its disk: late, in order for each file, and with the
//! errors that the plan has.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{FileEffect, FileOutcome, FileRef, FileSlice, IoError, IoErrorKind, IoResult};
use base::{Instant, Map, Random, ShardId, Token};
use bytes::Bytes;

use crate::disk::{Disk, OpenFile, error, no_space};
use crate::fault::{Crash, CrashPoint, Delay, DiskFaults, Moment, Planted, Rest, Trouble, strikes};
use crate::queue::Queue;

/// Files whose order is remembered before those that are idle are forgotten.
const FILES_IN_ORDER_MAX: usize = 4_096;
/// How late a write is performed that was answered before, in microseconds.
const WRITE_BEHIND: Delay = Delay::us(1_000, 40_000);

#[derive(Debug)]
struct Step {
    shard: ShardId,
    what: What,
}

#[derive(Debug)]
enum What {
    Perform(FileEffect<Token>),
    /// The effect was answered already, which is a planted fault.
    PerformAnswered(FileEffect<Token>),
    SyncBegins {
        token: Token,
        file: FileRef,
    },
    SyncEnds {
        token: Token,
        file: Arc<OpenFile>,
        path: Arc<Path>,
        sync: u64,
    },
}

/// A change of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Bytes were written.
    Write,
    /// A sync of a file or a directory has ended.
    Sync,
    /// Something else: a file was cut or got space, or a name was made, changed or removed.
    Other,
}

/// Where changes of a disk are counted, and the crash that is to happen at one of them.
#[derive(Debug)]
struct Watch {
    changes: Vec<Change>,
    point: Option<CrashPoint>,
}

/// The disk of a node with what is under way to it.
#[derive(Debug)]
pub(crate) struct Storage {
    watch: Option<Watch>,
    /// The crash that is to happen now, and the effect that it interrupts.
    crash_now: Option<(CrashPoint, Option<FileEffect<Token>>)>,
    pub(crate) disk: Disk,
    pub(crate) faults: DiskFaults,
    pub(crate) planted: Option<Planted>,
    random: Random,
    steps: Queue<Step>,
    /// When the last effect asked for takes place, for each file by the identity of its reference.
    file_busy_until: Map<usize, Instant>,
    names_busy_until: Instant,
    syncs: u64,
    troubles: BTreeMap<PathBuf, Trouble>,
    done: VecDeque<(ShardId, Token, FileOutcome)>,
}

impl Storage {
    pub(crate) fn new(capacity_bytes: u64, faults: DiskFaults, random: Random) -> Self {
        Self {
            watch: None,
            crash_now: None,
            disk: Disk::new(capacity_bytes),
            faults,
            planted: None,
            random,
            steps: Queue::default(),
            file_busy_until: Map::default(),
            names_busy_until: Instant::ZERO,
            syncs: 0,
            troubles: BTreeMap::new(),
            done: VecDeque::new(),
        }
    }

    /// A directory is in trouble from now on, or no more.
    pub(crate) fn set_trouble(&mut self, directory: &Path, trouble: Option<Trouble>) {
        match trouble {
            Some(trouble) => drop(self.troubles.insert(directory.to_owned(), trouble)),
            None => drop(self.troubles.remove(directory)),
        }
    }

    /// Counts the changes from now on, up to the crash that is to happen at one of them.
    pub(crate) fn watch(&mut self, point: Option<CrashPoint>) {
        self.watch = Some(Watch { changes: Vec::new(), point });
    }

    /// Ends counting: the changes so far.
    pub(crate) fn watched(&mut self) -> Vec<Change> {
        self.watch.take().map(|watch| watch.changes).unwrap_or_default()
    }

    /// The crash that is to happen now, with the effect that it interrupts.
    pub(crate) fn crash_now(&mut self) -> Option<(CrashPoint, Option<FileEffect<Token>>)> {
        self.crash_now.take()
    }

    /// Counts a change. The crash that is to happen at it.
    fn count(&mut self, change: Change) -> Option<CrashPoint> {
        let watch = self.watch.as_mut()?;
        let number = watch.changes.len() as u64;
        watch.changes.push(change);
        watch.point.filter(|point| point.change == number)
    }

    /// When something takes place next.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.steps.next_at()
    }

    /// What was done since the last call, in order.
    pub(crate) fn done(&mut self) -> Option<(ShardId, Token, FileOutcome)> {
        self.done.pop_front()
    }

    /// Takes an effect on. One that is inline takes place at once.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        wall_ms: i64,
        shard: ShardId,
        effect: FileEffect<Token>,
    ) {
        match effect {
            FileEffect::Write { token, ref file, .. } => {
                if self.planted == Some(Planted::SendBeforeWrite) {
                    self.done.push_back((shard, token, FileOutcome::Done(Ok(()))));
                    let at = self.in_order(now, file, WRITE_BEHIND);
                    let what = What::PerformAnswered(effect);
                    self.steps.put(at, Step { shard, what });
                } else if self.random.below(100) < self.faults.writes_inline_percent
                    && self.is_idle(now, file)
                {
                    self.perform(wall_ms, shard, effect);
                } else {
                    let at = self.in_order(now, file, self.faults.write);
                    self.steps.put(at, Step { shard, what: What::Perform(effect) });
                }
            }
            FileEffect::Read { ref file, .. } => {
                let at = self.in_order(now, file, self.faults.read);
                self.steps.put(at, Step { shard, what: What::Perform(effect) });
            }
            FileEffect::Sync { token, file } => {
                let at = self.in_order(now, &file, Delay::us(0, 0));
                self.steps.put(at, Step { shard, what: What::SyncBegins { token, file } });
            }
            FileEffect::WriteBack { ref file, .. } => {
                let at = self.sync_delay(&file.path()).after(now, &mut self.random);
                self.steps.put(at, Step { shard, what: What::Perform(effect) });
            }
            FileEffect::Allocate { ref file, .. } | FileEffect::Truncate { ref file, .. } => {
                let at = self.in_order(now, file, self.faults.names);
                self.steps.put(at, Step { shard, what: What::Perform(effect) });
            }
            FileEffect::Advise { .. } => {}
            names => self.ask_names(now, shard, names),
        }
    }

    /// Lets the next thing take place.
    pub(crate) fn arrive(&mut self, wall_ms: i64) {
        let Some((now, Step { shard, what })) = self.steps.take() else { return };
        match what {
            What::Perform(effect) => self.perform(wall_ms, shard, effect),
            What::PerformAnswered(effect) => {
                self.perform(wall_ms, shard, effect);
                self.done.pop_back();
            }
            What::SyncBegins { token, file } => self.sync_begins(now, shard, token, &file),
            What::SyncEnds { token, file, path, sync } => {
                let point = self.count(Change::Sync);
                self.crash_now = point.map(|point| (point, None));
                if point.is_some_and(|point| point.moment != Moment::After) {
                    return self.disk.content(file.inode).sync_skipped(sync);
                }
                let result = self.sync_ends(&file, &path, sync);
                self.done.push_back((shard, token, FileOutcome::Done(result)));
            }
        }
    }

    /// The bytes of a slice; fewer if the file is shorter or gone.
    pub(crate) fn read_slice(&mut self, slice: &FileSlice) -> Bytes {
        match self.open(&slice.file, false, 0) {
            Ok(file) => {
                let bytes = self.disk.read(file.inode, slice.position, slice.length as usize);
                Bytes::copy_from_slice(bytes)
            }
            Err(_) => Bytes::new(),
        }
    }

    /// The process, or the whole machine, ends now. What was under way may have been performed up
    /// to some point, and the last write of it in part; `cut` is a write that was being performed.
    pub(crate) fn crash(
        &mut self,
        wall_ms: i64,
        crash: Crash,
        rest: Rest,
        cut: Option<FileEffect<Token>>,
    ) {
        (self.watch, self.crash_now) = (None, None);
        let under_way = self.steps.take_all(|_| true);
        if let Some(effect) = cut {
            self.perform_in_part(wall_ms, effect);
        }
        let planted = self.planted == Some(Planted::SendBeforeWrite);
        let mut goes_on = !planted && rest == Rest::Drawn;
        for step in under_way {
            match step.what {
                What::Perform(effect) if goes_on => {
                    goes_on = self.random.chance(50);
                    if goes_on {
                        self.perform(wall_ms, step.shard, effect);
                    } else {
                        self.perform_in_part(wall_ms, effect);
                    }
                }
                What::SyncEnds { file, sync, .. } => {
                    self.disk.content(file.inode).sync_skipped(sync);
                }
                _ => {}
            }
        }
        self.done.clear();
        self.file_busy_until.clear();
        self.names_busy_until = Instant::ZERO;
        if crash == Crash::Machine {
            self.disk.lose_power(rest, &mut self.random);
        }
    }

    fn ask_names(&mut self, now: Instant, shard: ShardId, effect: FileEffect<Token>) {
        let mut at = self.faults.names.after(now, &mut self.random).max(self.names_busy_until);
        if let FileEffect::Rename { ref files, .. } = effect {
            // A rename is an effect on the files that it moves: it keeps its place among them.
            for file in files {
                at = at.max(self.busy_until(file));
            }
            for file in files {
                self.file_busy_until.insert(file.identity(), at);
            }
        }
        if let FileEffect::SyncDirectory { directory, .. } = &effect
            && let Some(Trouble::SlowFolderSyncs(delay)) = self.trouble(directory)
        {
            let at = delay.after(at, &mut self.random);
            return self.steps.put(at, Step { shard, what: What::Perform(effect) });
        }
        if let FileEffect::SyncDirectory { .. } = effect {
            at = self.faults.sync.after(at, &mut self.random);
        }
        self.names_busy_until = at;
        self.steps.put(at, Step { shard, what: What::Perform(effect) });
    }

    fn busy_until(&self, file: &FileRef) -> Instant {
        self.file_busy_until.get(&file.identity()).copied().unwrap_or(Instant::ZERO)
    }

    fn is_idle(&self, now: Instant, file: &FileRef) -> bool {
        self.busy_until(file) < now
    }

    /// When an effect on `file` takes place that takes this long, behind all earlier ones.
    fn in_order(&mut self, now: Instant, file: &FileRef, delay: Delay) -> Instant {
        if self.file_busy_until.len() > FILES_IN_ORDER_MAX {
            self.file_busy_until.retain(|_, until| *until >= now);
        }
        let at = delay.after(now, &mut self.random).max(self.busy_until(file));
        self.file_busy_until.insert(file.identity(), at);
        at
    }

    fn trouble(&self, path: &Path) -> Option<Trouble> {
        let mut troubles = self.troubles.iter();
        troubles.find(|(directory, _)| path.starts_with(directory)).map(|(_, trouble)| *trouble)
    }

    /// Fails for what lies on a dead disk.
    fn check(&self, action: &'static str, path: &Path) -> IoResult<()> {
        match self.trouble(path) {
            Some(Trouble::Broken) => Err(broken(action, path)),
            _ => Ok(()),
        }
    }

    /// Fails for what lies on a dead disk, or takes space on a full one.
    fn check_space(&self, action: &'static str, path: &Path) -> IoResult<()> {
        match self.trouble(path) {
            Some(Trouble::Full) => Err(no_space(action, path)),
            _ => self.check(action, path),
        }
    }

    fn open(&mut self, file: &FileRef, create: bool, wall_ms: i64) -> IoResult<Arc<OpenFile>> {
        self.check("open", &file.path())?;
        let disk = &mut self.disk;
        let handle =
            file.handle_or_open(|path| disk.open(path, create, wall_ms).map(|file| file as _))?;
        Ok(handle.downcast().expect("the handles of this driver are open files"))
    }

    fn perform(&mut self, wall_ms: i64, shard: ShardId, effect: FileEffect<Token>) {
        if let Some(point) = change_of(&effect).and_then(|change| self.count(change)) {
            let interrupted = match point.moment {
                Moment::Before => return self.crash_now = Some((point, None)),
                Moment::Within => return self.crash_now = Some((point, Some(effect))),
                Moment::After => None,
            };
            self.crash_now = Some((point, interrupted));
        }
        let (token, outcome) = match effect {
            FileEffect::Read { token, file, position, length } => {
                (token, FileOutcome::Read(self.read(&file, position, length)))
            }
            FileEffect::Write { token, file, position, parts } => {
                let bytes = parts.concat();
                (token, FileOutcome::Done(self.write(wall_ms, &file, position, &bytes)))
            }
            FileEffect::Allocate { token, file, position, length } => {
                let result = self.open(&file, true, wall_ms).and_then(|open| {
                    self.check_space("allocate space for", &file.path())?;
                    self.disk.allocate(open.inode, position + length, &file.path())
                });
                (token, FileOutcome::Done(result))
            }
            FileEffect::Truncate { token, file, length } => {
                let result = self
                    .open(&file, true, wall_ms)
                    .map(|open| self.disk.truncate(open.inode, length, wall_ms));
                (token, FileOutcome::Done(result))
            }
            // It gives no promise, so that a loss of power may take what it covered.
            FileEffect::WriteBack { token, file, .. } => {
                let checked = self.check("write back", &file.path());
                let result = checked.and_then(|()| self.open(&file, false, wall_ms).map(drop));
                (token, FileOutcome::Done(result))
            }
            names => self.perform_names(wall_ms, names),
        };
        self.done.push_back((shard, token, outcome));
    }

    fn perform_names(&mut self, wall_ms: i64, effect: FileEffect<Token>) -> (Token, FileOutcome) {
        match effect {
            FileEffect::SyncDirectory { token, directory } => {
                let checked = self.check("sync", &directory);
                let result = checked.and_then(|()| self.disk.sync_directory(&directory));
                (token, FileOutcome::Done(result))
            }
            FileEffect::Rename { token, from, to, files } => {
                let checked = self.check("rename", &from);
                let result = checked.and_then(|()| self.disk.rename(&from, &to, wall_ms));
                if result.is_ok() {
                    files.iter().for_each(|file| follow(file, &from, &to));
                }
                (token, FileOutcome::Done(result))
            }
            FileEffect::Remove { token, path, .. } => {
                let checked = self.check("remove", &path);
                let result = checked.and_then(|()| self.disk.remove(&path, wall_ms));
                (token, FileOutcome::Done(result))
            }
            FileEffect::MakeDirectory { token, path } => {
                let checked = self.check_space("make", &path);
                let result = checked.and_then(|()| self.disk.make_directory(&path, wall_ms));
                (token, FileOutcome::Done(result))
            }
            FileEffect::List { token, directory } => {
                let checked = self.check("list", &directory);
                let result = checked.and_then(|()| self.disk.list(&directory));
                (token, FileOutcome::Listed(result))
            }
            FileEffect::Space { token, path } => {
                let checked = self.check("ask for the size of", &path);
                (token, FileOutcome::Space(checked.map(|()| self.disk.space())))
            }
            other => panic!("{other:?} is an effect on a file, not on names"),
        }
    }

    fn read(&mut self, file: &FileRef, position: u64, length: u32) -> IoResult<Bytes> {
        let open = self.open(file, false, 0)?;
        if strikes(self.faults.read_errors_per_million, &mut self.random) {
            return Err(broken("read from", &file.path()));
        }
        Ok(Bytes::copy_from_slice(self.disk.read(open.inode, position, length as usize)))
    }

    fn write(&mut self, wall_ms: i64, file: &FileRef, position: u64, bytes: &[u8]) -> IoResult<()> {
        let open = self.open(file, true, wall_ms)?;
        self.check_space("write to", &file.path())?;
        if strikes(self.faults.write_errors_per_million, &mut self.random) {
            let part = self.random.below(bytes.len() as u64 + 1) as usize;
            self.disk.write(open.inode, position, &bytes[..part], wall_ms, &file.path())?;
            return Err(broken("write to", &file.path()));
        }
        self.disk.write(open.inode, position, bytes, wall_ms, &file.path())
    }

    /// The process ended within the effect: a write may have come to any byte.
    fn perform_in_part(&mut self, wall_ms: i64, effect: FileEffect<Token>) {
        if let FileEffect::Write { file, position, parts, .. } = effect {
            let bytes = parts.concat();
            let part = self.random.below(bytes.len() as u64 + 1) as usize;
            if let Ok(open) = self.open(&file, true, wall_ms) {
                let path = file.path();
                // A full disk cuts it shorter still, and nobody is left to be told.
                let _ = self.disk.write(open.inode, position, &bytes[..part], wall_ms, &path);
            }
        }
    }

    fn sync_begins(&mut self, now: Instant, shard: ShardId, token: Token, file: &FileRef) {
        match self.open(file, false, 0) {
            Ok(open) => {
                self.syncs += 1;
                let sync = self.syncs;
                self.disk.content(open.inode).sync_begins(sync);
                let at = self.sync_delay(&file.path()).after(now, &mut self.random);
                let what = What::SyncEnds { token, file: open, path: file.path(), sync };
                self.steps.put(at, Step { shard, what });
            }
            Err(error) => self.done.push_back((shard, token, FileOutcome::Done(Err(error)))),
        }
    }

    /// How long the disk takes to get what was written to a file.
    fn sync_delay(&self, path: &Path) -> Delay {
        match self.trouble(path) {
            Some(Trouble::SlowSyncs(delay)) => delay,
            _ => self.faults.sync,
        }
    }

    fn sync_ends(&mut self, file: &OpenFile, path: &Path, sync: u64) -> IoResult<()> {
        let checked = self.check("sync", path);
        let content = self.disk.content(file.inode);
        if let Err(error) = checked {
            content.sync_fails(sync);
            return Err(error);
        }
        if self.planted == Some(Planted::SkipSync) && self.random.chance(50) {
            content.sync_skipped(sync);
            return Ok(());
        }
        if strikes(self.faults.sync_errors_per_million, &mut self.random) {
            content.sync_fails(sync);
            return Err(broken("sync", path));
        }
        content.sync_ends(sync);
        Ok(())
    }
}

/// What an effect changes, if anything; syncs of files count when they end.
fn change_of(effect: &FileEffect<Token>) -> Option<Change> {
    match effect {
        FileEffect::Write { .. } => Some(Change::Write),
        FileEffect::SyncDirectory { .. } => Some(Change::Sync),
        FileEffect::Allocate { .. }
        | FileEffect::Truncate { .. }
        | FileEffect::Rename { .. }
        | FileEffect::Remove { .. }
        | FileEffect::MakeDirectory { .. } => Some(Change::Other),
        _ => None,
    }
}

fn follow(file: &FileRef, from: &Path, to: &Path) {
    let path = file.path();
    if let Ok(rest) = path.strip_prefix(from) {
        let moved: PathBuf =
            if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
        file.set_path(moved);
    }
}

fn broken(action: &'static str, path: &Path) -> IoError {
    error(IoErrorKind::Other, action, path, "Input/output error")
}
