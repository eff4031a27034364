//! The files and directories of one core.

use std::collections::VecDeque;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::{DirectoryEntry, Event, FileEffect, FileOutcome, FileRef, IoError, IoErrorKind};
use api::{IoResult, Token, WeakFileRef};
use base::{Duration, Instant, Map, Slab};
use bytes::BytesMut;
use ring::{Completion, OpenCount, OpenFile, Operation, Ring, io_error};

use crate::counters::Counters;
use crate::network::Next;
use crate::purpose::{Purpose, Seat};

/// File operations that wait for the ring, over all machines of a core. A machine limits its own.
const OPERATIONS_MAX: usize = 1 << 20;
/// How long an effect waits for a file descriptor before it is tried again.
const DESCRIPTOR_RETRY: Duration = Duration::from_millis(10);
/// How often there is a line about that, at most.
const DESCRIPTOR_LINE_EVERY: Duration = Duration::from_secs(10);
/// A read of more is bounded by the file's length before memory is taken for it.
const UNCHECKED_READ_BYTES_MAX: u32 = 64 << 10;

/// What is done to a file for which space is taken, in sentences about failures.
const ALLOCATE: &str = "allocate space for";
/// The same, where its length is set.
const TRUNCATE: &str = "truncate";

/// A file operation that waits for the ring.
struct Waiting {
    seat: Seat,
    token: Token,
    kind: Kind,
}

enum Kind {
    Read { file: FileRef, open: Arc<OpenFile>, position: u64, length: u32 },
    Sync { file: FileRef },
    WriteBack { file: FileRef },
    Allocate { file: FileRef },
    Truncate { file: FileRef },
    SyncDirectory { directory: String },
    Remove(Removal),
}

/// A file or a whole directory that is being removed, name by name.
struct Removal {
    path: PathBuf,
    /// What is removed next is the last of them.
    left: Vec<Doomed>,
}

struct Doomed {
    path: PathBuf,
    /// A directory, which is empty when its turn comes.
    is_directory: bool,
}

impl Removal {
    fn of(path: PathBuf) -> Self {
        Self { left: vec![Doomed { path: path.clone(), is_directory: false }], path }
    }

    /// The kernel has answered about the last of those that are left. What is not there is gone
    /// as it should be; a directory goes after what is in it, which `list` names.
    fn heed(
        &mut self,
        result: io::Result<u32>,
        list: impl FnOnce(&Path) -> io::Result<Vec<OsString>>,
    ) -> IoResult<()> {
        let Some(last) = self.left.pop() else { return Ok(()) };
        let result = match result {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                list(&last.path).map(|names| {
                    self.left.push(Doomed { path: last.path.clone(), is_directory: true });
                    let inside = names.iter().map(|name| last.path.join(name));
                    self.left.extend(inside.map(|path| Doomed { path, is_directory: false }));
                })
            }
            other => other.map(drop),
        };
        match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_error("remove", last.path.display(), &error))
            }
            _ => Ok(()),
        }
    }
}

/// A file that the ring is at work on.
#[derive(Default)]
struct Busy {
    /// The operation, and the range that it reads.
    reads: Vec<(Token, std::ops::Range<u64>)>,
    /// Space is being taken for it, or given back: a write would stand still until that is done.
    is_resizing: bool,
    /// What must not overtake that or would change such a range, and all asked for after that.
    behind: VecDeque<(Seat, FileEffect<Token>)>,
    /// An effect on it waits for a descriptor.
    is_starved: bool,
}

/// Everything that the machines of one core do with files.
pub(crate) struct Files {
    operations: Slab<Waiting>,
    /// By the identity of the file.
    busy: Map<usize, Busy>,
    /// What waits for a descriptor, in the order it was asked for.
    starved: VecDeque<(Seat, FileEffect<Token>)>,
    try_again_at: Instant,
    say_starved_at: Instant,
    /// Something found no descriptor since the last call of [`Files::wants_descriptors`].
    wants_descriptors: bool,
    /// What this core has opened and not closed for being idle.
    opened: Vec<WeakFileRef>,
    open_count: OpenCount,
    open_files_max: usize,
    counters: Arc<Counters>,
}

/// What file effects work with.
pub(crate) struct Tools<'a, M> {
    pub(crate) ring: &'a mut Ring<Purpose>,
    pub(crate) next: &'a mut Next<M>,
    pub(crate) now: Instant,
}

impl<M> Tools<'_, M> {
    fn answer(&mut self, seat: Seat, token: Token, outcome: FileOutcome) {
        self.next.push((seat, Event::File { token, outcome }));
    }

    fn done(&mut self, seat: Seat, token: Token, result: IoResult<()>) {
        self.answer(seat, token, FileOutcome::Done(result));
    }
}

impl Files {
    /// `open_count` counts the files that all cores of the node have open.
    pub(crate) fn new(
        open_count: OpenCount,
        open_files_max: usize,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            operations: Slab::new(OPERATIONS_MAX),
            busy: Map::default(),
            starved: VecDeque::new(),
            try_again_at: Instant::FAR_FUTURE,
            say_starved_at: Instant::ZERO,
            wants_descriptors: false,
            opened: Vec::new(),
            open_count,
            open_files_max,
            counters,
        }
    }

    /// Performs an effect, or puts it behind the reads that it must not overtake.
    pub(crate) fn perform<M>(
        &mut self,
        seat: Seat,
        effect: FileEffect<Token>,
        tools: &mut Tools<'_, M>,
    ) {
        if !self.busy.is_empty()
            && let Some(file) = file_of(&effect)
            && let Some(busy) = self.busy.get_mut(&file.identity())
            && (busy.is_starved || !busy.behind.is_empty() || busy.holds(&effect))
        {
            busy.behind.push_back((seat, effect));
            return;
        }
        self.perform_now(seat, effect, tools);
    }

    /// When [`Files::try_again`] wants to be called.
    pub(crate) fn try_again_at(&self) -> Instant {
        self.try_again_at
    }

    /// Whether something found no descriptor since the last call.
    pub(crate) fn wants_descriptors(&mut self) -> bool {
        std::mem::take(&mut self.wants_descriptors)
    }

    /// Performs what waited for a descriptor, as far as there are some now.
    pub(crate) fn try_again<M>(&mut self, tools: &mut Tools<'_, M>) {
        if self.try_again_at > tools.now {
            return;
        }
        self.try_again_at = Instant::FAR_FUTURE;
        let mut waiting = std::mem::take(&mut self.starved);
        while self.starved.is_empty()
            && let Some((seat, effect)) = waiting.pop_front()
        {
            let identity = file_of(&effect).map(FileRef::identity);
            self.perform_now(seat, effect, tools);
            if let Some(identity) = identity
                && self.starved.is_empty()
                && let Some(busy) = self.busy.get_mut(&identity)
            {
                busy.is_starved = false;
                self.release_behind(identity, tools);
            }
        }
        self.starved.append(&mut waiting);
    }

    /// Keeps an effect that found no descriptor, though idle files were closed. It is no fault of
    /// the file's disk, and no reason to give the file up.
    fn starve<M>(&mut self, seat: Seat, effect: FileEffect<Token>, tools: &Tools<'_, M>) {
        if let Some(file) = file_of(&effect) {
            self.busy.entry(file.identity()).or_default().is_starved = true;
        }
        if self.say_starved_at <= tools.now {
            self.say_starved_at = tools.now + DESCRIPTOR_LINE_EVERY;
            tracing::warn!(
                "the process has as many open files as it may: what needs another one waits. \
                 Allow more with `ulimit -n` or LimitNOFILE"
            );
        }
        self.starved.push_back((seat, effect));
        self.wants_descriptors = true;
        self.try_again_at = tools.now + DESCRIPTOR_RETRY;
    }

    fn perform_now<M>(&mut self, seat: Seat, effect: FileEffect<Token>, tools: &mut Tools<'_, M>) {
        match effect {
            FileEffect::Read { token, file, position, length } => {
                self.read(seat, token, file, (position, length), tools);
            }
            FileEffect::Write { token, file, position, parts } => {
                let result =
                    self.change(&file, "write to", tools.now, |open| open.write(&parts, position));
                if is_starved(&result) {
                    let effect = FileEffect::Write { token, file, position, parts };
                    return self.starve(seat, effect, tools);
                }
                let result = result.map(|written| self.counters.file_written_bytes.add(written));
                tools.done(seat, token, result);
            }
            FileEffect::Allocate { token, file, position, length } => {
                self.allocate(seat, token, file, (position, length), tools);
            }
            FileEffect::Truncate { token, file, length } => {
                self.truncate(seat, token, file, length, tools);
            }
            FileEffect::Sync { token, ref file } => match self.open(file, false, tools.now) {
                Ok(open) => {
                    let kind = Kind::Sync { file: file.clone() };
                    self.start(seat, token, kind, Operation::SyncData(open), tools.ring);
                }
                Err(error) => self.not_opened(seat, "sync", &error, effect, tools),
            },
            FileEffect::WriteBack { token, ref file, position, length } => {
                match self.open(file, false, tools.now) {
                    Ok(open) => {
                        let kind = Kind::WriteBack { file: file.clone() };
                        let operation = Operation::WriteBack { file: open, position, length };
                        self.start(seat, token, kind, operation, tools.ring);
                    }
                    Err(error) => self.not_opened(seat, "write back", &error, effect, tools),
                }
            }
            FileEffect::Advise { file, position, length, advice } => {
                // A hint about a file that is not there helps nobody, and harms nobody.
                if let Ok(file) = self.open(&file, false, tools.now) {
                    let operation = Operation::Advise { file, position, length, advice };
                    tools.ring.start(operation, Purpose::Nobody);
                }
            }
            other => self.perform_on_path(seat, other, tools),
        }
    }

    /// Takes space by the ring: the file system may have to read its own maps from the disk.
    fn allocate<M>(
        &mut self,
        seat: Seat,
        token: Token,
        file: FileRef,
        (position, length): (u64, u64),
        tools: &mut Tools<'_, M>,
    ) {
        match self.open_to_resize(&file, ALLOCATE, tools.now) {
            Ok(open) => {
                self.busy.entry(file.identity()).or_default().is_resizing = true;
                let operation = Operation::Allocate { file: open, position, length };
                self.start(seat, token, Kind::Allocate { file }, operation, tools.ring);
            }
            Err(error) if is_starved_by(&error) => {
                let effect = FileEffect::Allocate { token, file, position, length };
                self.starve(seat, effect, tools);
            }
            Err(error) => tools.done(seat, token, Err(error)),
        }
    }

    /// Sets a length, by the ring where that can: the space beyond it is given back within the
    /// call, for which the file system may have to read its maps, or wait for the disk to discard
    /// it.
    fn truncate<M>(
        &mut self,
        seat: Seat,
        token: Token,
        file: FileRef,
        length: u64,
        tools: &mut Tools<'_, M>,
    ) {
        let fits = i64::try_from(length).is_ok();
        match self.open_to_resize(&file, TRUNCATE, tools.now) {
            Ok(open) if tools.ring.can_truncate() && fits => {
                self.busy.entry(file.identity()).or_default().is_resizing = true;
                let operation = Operation::Truncate { file: open, length };
                self.start(seat, token, Kind::Truncate { file }, operation, tools.ring);
            }
            Ok(open) => {
                let failed = |error| io_error(TRUNCATE, file.path().display(), &error);
                tools.done(seat, token, open.truncate(length).map_err(failed));
            }
            Err(error) if is_starved_by(&error) => {
                self.starve(seat, FileEffect::Truncate { token, file, length }, tools);
            }
            Err(error) => tools.done(seat, token, Err(error)),
        }
    }

    fn open_to_resize(
        &mut self,
        file: &FileRef,
        action: &'static str,
        now: Instant,
    ) -> IoResult<Arc<OpenFile>> {
        self.open(file, true, now)
            .and_then(|open| open.check_writable().map(|()| open))
            .map_err(|error| io_error(action, file.path().display(), &error))
    }

    /// The file of a `Sync` or a `WriteBack` cannot be opened.
    fn not_opened<M>(
        &mut self,
        seat: Seat,
        action: &'static str,
        error: &io::Error,
        effect: FileEffect<Token>,
        tools: &mut Tools<'_, M>,
    ) {
        let (FileEffect::Sync { token, file } | FileEffect::WriteBack { token, file, .. }) =
            &effect
        else {
            unreachable!("other effects treat it themselves");
        };
        let (token, result) = (*token, Err(io_error(action, file.path().display(), error)));
        if is_starved(&result) {
            return self.starve(seat, effect, tools);
        }
        tools.done(seat, token, result);
    }

    fn perform_on_path<M>(
        &mut self,
        seat: Seat,
        effect: FileEffect<Token>,
        tools: &mut Tools<'_, M>,
    ) {
        match effect {
            FileEffect::SyncDirectory { token, directory } => {
                let shown = directory.display().to_string();
                match self.with_room(|| open_directory(&directory)) {
                    Ok(open) => {
                        let kind = Kind::SyncDirectory { directory: shown };
                        let operation = Operation::SyncDirectory(open);
                        self.start(seat, token, kind, operation, tools.ring);
                    }
                    Err(error) => {
                        let result = Err(io_error("sync", shown, &error));
                        if is_starved(&result) {
                            let effect = FileEffect::SyncDirectory { token, directory };
                            return self.starve(seat, effect, tools);
                        }
                        tools.done(seat, token, result);
                    }
                }
            }
            FileEffect::Rename { token, from, to, files } => {
                // While it is open, what is replaced does not give its space back within the call.
                let replaced = open_to_close(&to);
                let result = rename(&from, &to, &files)
                    .map_err(|error| io_error("rename", from.display(), &error));
                if let Some(replaced) = replaced {
                    tools.ring.start(Operation::close(replaced), Purpose::Nobody);
                }
                tools.done(seat, token, result);
            }
            FileEffect::Remove { token, path, files } => {
                files.iter().for_each(FileRef::close);
                self.remove_on(seat, token, Removal::of(path), tools);
            }
            FileEffect::MakeDirectory { token, path } => {
                let result = ring::make_directory(&path)
                    .map_err(|error| io_error("make directory", path.display(), &error));
                tools.done(seat, token, result);
            }
            FileEffect::List { token, directory } => {
                let result: IoResult<Vec<DirectoryEntry>> = self
                    .with_room(|| ring::list(&directory))
                    .map_err(|error| io_error("list", directory.display(), &error));
                if is_starved(&result) {
                    return self.starve(seat, FileEffect::List { token, directory }, tools);
                }
                tools.answer(seat, token, FileOutcome::Listed(result));
            }
            FileEffect::Space { token, path } => {
                let result = ring::space(&path)
                    .map_err(|error| io_error("ask for the size of", path.display(), &error));
                tools.answer(seat, token, FileOutcome::Space(result));
            }
            other => unreachable!("{other:?} is about a file that is open"),
        }
    }

    /// The open file of a slice that is to be sent.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn open_to_send(
        &mut self,
        file: &FileRef,
        now: Instant,
    ) -> Result<Arc<OpenFile>, IoError> {
        self.open(file, false, now)
            .map_err(|error| io_error("read from", file.path().display(), &error))
    }

    fn change<R>(
        &mut self,
        file: &FileRef,
        action: &'static str,
        now: Instant,
        change: impl FnOnce(&OpenFile) -> io::Result<R>,
    ) -> IoResult<R> {
        self.open(file, true, now)
            .and_then(|open| change(&open))
            .map_err(|error| io_error(action, file.path().display(), &error))
    }

    fn read<M>(
        &mut self,
        seat: Seat,
        token: Token,
        file: FileRef,
        (position, length): (u64, u32),
        tools: &mut Tools<'_, M>,
    ) {
        let refused = |error: io::Error| io_error("read from", file.path().display(), &error);
        let opened = self.open(&file, false, tools.now).and_then(|open| {
            let mut length = length;
            if length > UNCHECKED_READ_BYTES_MAX {
                let there = open.length()?.saturating_sub(position);
                length = u32::try_from(there).unwrap_or(u32::MAX).min(length);
            }
            Ok((open, length))
        });
        match opened {
            Ok((open, length)) => {
                let buffer = BytesMut::with_capacity(length as usize);
                let waiting =
                    Waiting { seat, token, kind: Kind::Read { file, open, position, length } };
                self.read_on(waiting, buffer, tools);
            }
            Err(error) => {
                let result = Err(refused(error));
                if is_starved(&result) {
                    let effect = FileEffect::Read { token, file, position, length };
                    return self.starve(seat, effect, tools);
                }
                tools.answer(seat, token, FileOutcome::Read(result));
            }
        }
    }

    /// Reads what the page cache has; for the rest, asks the ring.
    fn read_on<M>(&mut self, waiting: Waiting, mut buffer: BytesMut, tools: &mut Tools<'_, M>) {
        let (seat, token) = (waiting.seat, waiting.token);
        let Kind::Read { file, open, position, length } = &waiting.kind else {
            unreachable!("only reads are continued");
        };
        let result = loop {
            let (position, left) =
                (position + buffer.len() as u64, *length as usize - buffer.len());
            if left == 0 {
                break Ok(());
            }
            match open.read_cached(&mut buffer, position, left) {
                Ok(0) => break Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.read_by_ring(waiting, buffer, tools.ring);
                }
                Err(error) => break Err(error),
            }
        };
        let result = match result {
            Ok(()) => {
                self.counters.file_read_bytes.add(buffer.len() as u64);
                Ok(buffer.freeze())
            }
            Err(error) => Err(io_error("read from", file.path().display(), &error)),
        };
        tools.answer(seat, token, FileOutcome::Read(result));
    }

    fn read_by_ring(&mut self, waiting: Waiting, buffer: BytesMut, ring: &mut Ring<Purpose>) {
        let Kind::Read { file, open, position, length } = &waiting.kind else {
            unreachable!("only reads are continued");
        };
        let identity = file.identity();
        let from = position + buffer.len() as u64;
        let left = *length - buffer.len() as u32;
        let operation =
            Operation::Read { file: Arc::clone(open), buffer, position: from, length: left };
        let range = from..from + u64::from(left);
        let name = self.insert(waiting);
        self.busy.entry(identity).or_default().reads.push((name, range));
        ring.start(operation, Purpose::File(name));
    }

    fn start(
        &mut self,
        seat: Seat,
        token: Token,
        kind: Kind,
        operation: Operation,
        ring: &mut Ring<Purpose>,
    ) {
        let name = self.insert(Waiting { seat, token, kind });
        ring.start(operation, Purpose::File(name));
    }

    fn insert(&mut self, waiting: Waiting) -> Token {
        let Ok(name) = self.operations.insert(waiting) else {
            panic!("{OPERATIONS_MAX} file operations wait: a machine does not limit its own");
        };
        name
    }

    /// The ring has answered about one name of what is being removed.
    fn removed<M>(
        &mut self,
        seat: Seat,
        token: Token,
        mut removal: Removal,
        result: io::Result<u32>,
        tools: &mut Tools<'_, M>,
    ) {
        match removal.heed(result, |path| self.with_room(|| ring::list_names(path))) {
            Ok(()) => self.remove_on(seat, token, removal, tools),
            result if is_starved(&result) => {
                let effect = FileEffect::Remove { token, path: removal.path, files: Vec::new() };
                self.starve(seat, effect, tools);
            }
            result => tools.done(seat, token, result),
        }
    }

    /// Removes the next name: by the ring, because giving back the space of a large file takes
    /// long.
    fn remove_on<M>(
        &mut self,
        seat: Seat,
        token: Token,
        removal: Removal,
        tools: &mut Tools<'_, M>,
    ) {
        let Some(next) = removal.left.last() else { return tools.done(seat, token, Ok(())) };
        match CString::new(next.path.as_os_str().as_bytes()) {
            Ok(path) => {
                let operation = Operation::Remove { path, is_directory: next.is_directory };
                self.start(seat, token, Kind::Remove(removal), operation, tools.ring);
            }
            Err(error) => {
                tools.done(
                    seat,
                    token,
                    Err(io_error("remove", next.path.display(), &error.into())),
                );
            }
        }
    }

    /// The ring has done a file operation.
    pub(crate) fn completed<M>(
        &mut self,
        name: Token,
        completion: Completion<Purpose>,
        tools: &mut Tools<'_, M>,
    ) {
        let waiting = self.operations.remove(name).expect("it waits until it is completed");
        let (seat, token) = (waiting.seat, waiting.token);
        let waiting = match waiting.kind {
            Kind::Remove(removal) => {
                return self.removed(seat, token, removal, completion.result, tools);
            }
            Kind::Allocate { file } => {
                // A file system that cannot do it is no failure.
                let result = completion.result.or_else(|error| match error.kind() {
                    io::ErrorKind::Unsupported => Ok(0),
                    _ => Err(io_error(ALLOCATE, file.path().display(), &error)),
                });
                return self.resized(seat, token, &file, result.map(drop), tools);
            }
            Kind::Truncate { file } => {
                let failed = |error| io_error(TRUNCATE, file.path().display(), &error);
                let result = completion.result.map(drop).map_err(failed);
                return self.resized(seat, token, &file, result, tools);
            }
            kind => Waiting { seat, token, kind },
        };
        let (action, path) = match &waiting.kind {
            Kind::Read { file, .. } => {
                let identity = file.identity();
                self.read_completed(waiting, completion, tools);
                return self.release(identity, name, tools);
            }
            Kind::Sync { file } => {
                self.counters.syncs.add(1);
                ("sync", file.path().display().to_string())
            }
            Kind::WriteBack { file } => ("write back", file.path().display().to_string()),
            Kind::SyncDirectory { directory } => ("sync", directory.clone()),
            Kind::Remove(_) | Kind::Allocate { .. } | Kind::Truncate { .. } => {
                unreachable!("these were treated above")
            }
        };
        // What could not be brought to the disk is gone from the cache, also where only space was
        // missing: nobody may try it again as if it were there.
        let lost = |error| IoError { kind: IoErrorKind::Other, ..io_error(action, path, &error) };
        let result = completion.result.map(drop).map_err(lost);
        tools.done(seat, token, result);
    }

    /// Space was taken or given back, or not: what waited for that goes on.
    fn resized<M>(
        &mut self,
        seat: Seat,
        token: Token,
        file: &FileRef,
        result: IoResult<()>,
        tools: &mut Tools<'_, M>,
    ) {
        tools.done(seat, token, result);
        if let Some(busy) = self.busy.get_mut(&file.identity()) {
            busy.is_resizing = false;
        }
        self.release_behind(file.identity(), tools);
    }

    fn read_completed<M>(
        &mut self,
        waiting: Waiting,
        completion: Completion<Purpose>,
        tools: &mut Tools<'_, M>,
    ) {
        let Kind::Read { file, .. } = &waiting.kind else {
            unreachable!("only reads are continued");
        };
        let buffer = completion.buffer.unwrap_or_default();
        let outcome = match completion.result {
            // The file ends here.
            Ok(0) => {
                self.counters.file_read_bytes.add(buffer.len() as u64);
                Ok(buffer.freeze())
            }
            Ok(_) => return self.read_on(waiting, buffer, tools),
            Err(error) => Err(io_error("read from", file.path().display(), &error)),
        };
        tools.answer(waiting.seat, waiting.token, FileOutcome::Read(outcome));
    }

    /// A read by the ring is over: what waited behind it goes on.
    fn release<M>(&mut self, identity: usize, name: Token, tools: &mut Tools<'_, M>) {
        let Some(busy) = self.busy.get_mut(&identity) else { return };
        busy.reads.retain(|(other, _)| *other != name);
        self.release_behind(identity, tools);
    }

    /// Performs what waited behind other effects on a file, as far as it has to wait no more.
    fn release_behind<M>(&mut self, identity: usize, tools: &mut Tools<'_, M>) {
        while let Some(busy) = self.busy.get_mut(&identity)
            && !busy.is_starved
            && let Some((_, effect)) = busy.behind.front()
            && !busy.holds(effect)
            && let Some((seat, effect)) = busy.behind.pop_front()
        {
            self.perform_now(seat, effect, tools);
        }
        let is_idle = |busy: &Busy| busy.reads.is_empty() && !busy.is_resizing && !busy.is_starved;
        if self.busy.get(&identity).is_some_and(is_idle) {
            self.busy.remove(&identity);
        }
    }

    fn open(&mut self, file: &FileRef, create: bool, now: Instant) -> io::Result<Arc<OpenFile>> {
        let mut opened = false;
        let count = Arc::clone(&self.open_count);
        let handle = self.with_room(|| {
            file.handle_or_open(|path| {
                opened = true;
                let open = OpenFile::open(path, create, &count)?;
                open.read_nothing_ahead();
                Ok(Arc::new(open) as _)
            })
        })?;
        let open: Arc<OpenFile> =
            handle.downcast().expect("this driver alone puts handles into files");
        open.touch(now.as_nanos());
        if opened {
            self.opened.push(file.downgrade());
            if self.open_count.load(Ordering::Relaxed) > self.open_files_max {
                self.close_idlest();
            }
        }
        Ok(open)
    }

    /// Calls `open`; when no descriptor is left, once more after idle files were closed.
    fn with_room<R>(&mut self, mut open: impl FnMut() -> io::Result<R>) -> io::Result<R> {
        match open() {
            Err(error) if io_error("", "", &error).kind == IoErrorKind::TooManyFiles => {
                self.close_idlest();
                open()
            }
            result => result,
        }
    }

    /// Closes a quarter of the files that this core has opened: those that were used last the
    /// longest ago. One in use stays open until that use ends.
    pub(crate) fn close_idlest(&mut self) {
        let mut open: Vec<(u64, FileRef)> = self
            .opened
            .drain(..)
            .filter_map(|weak| {
                let file = weak.upgrade()?;
                let handle = file.handle()?.downcast::<OpenFile>().ok()?;
                Some((handle.used_at(), file))
            })
            .collect();
        open.sort_by_key(|(used_at, _)| *used_at);
        let close = open.len().div_ceil(4);
        for (_, file) in open.drain(..close) {
            file.close();
        }
        self.opened.extend(open.iter().map(|(_, file)| file.downgrade()));
    }
}

impl Busy {
    /// Whether the effect has to wait: it would stand still, or change what a read under way is to
    /// return.
    fn holds(&self, effect: &FileEffect<Token>) -> bool {
        if self.is_resizing {
            return true;
        }
        let changed = match effect {
            FileEffect::Write { position, parts, .. } => {
                let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
                *position..*position + bytes
            }
            FileEffect::Truncate { length, .. } => *length..u64::MAX,
            _ => return false,
        };
        self.reads.iter().any(|(_, read)| read.start < changed.end && changed.start < read.end)
    }
}

/// Whether no descriptor was left, also after idle files were closed.
fn is_starved<R>(result: &IoResult<R>) -> bool {
    result.as_ref().is_err_and(is_starved_by)
}

fn is_starved_by(error: &IoError) -> bool {
    error.kind == IoErrorKind::TooManyFiles
}

fn file_of(effect: &FileEffect<Token>) -> Option<&FileRef> {
    match effect {
        FileEffect::Read { file, .. }
        | FileEffect::Write { file, .. }
        | FileEffect::Sync { file, .. }
        | FileEffect::WriteBack { file, .. }
        | FileEffect::Allocate { file, .. }
        | FileEffect::Truncate { file, .. } => Some(file),
        _ => None,
    }
}

#[allow(clippy::disallowed_methods)] // This crate is what performs the effects.
fn open_directory(directory: &Path) -> io::Result<File> {
    File::open(directory)
}

/// The file at a path that is about to get another one: none there, or none left to open it, is no
/// harm.
#[allow(clippy::disallowed_methods)] // This crate is what performs the effects.
fn open_to_close(path: &Path) -> Option<File> {
    File::open(path).ok()
}

#[allow(clippy::disallowed_methods)] // This crate is what performs the effects.
fn rename(from: &Path, to: &Path, files: &[FileRef]) -> io::Result<()> {
    std::fs::rename(from, to)?;
    for file in files {
        let path = file.path();
        let Ok(below) = path.strip_prefix(from) else {
            debug_assert!(false, "{path:?} does not lie at or below {from:?}");
            continue;
        };
        // Joining an empty path would add a slash.
        let moved = if below.as_os_str().is_empty() { to.to_owned() } else { to.join(below) };
        file.set_path(moved);
    }
    Ok(())
}
