//! A disk in memory for the tests of this crate: it performs every effect at once.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{
    DirectoryEntry, FileEffect, FileOutcome, FileSlice, IoError, IoErrorKind, IoResult, Part,
};
use base::{Instant, Now, Offset, PartitionIndex, TopicPartition, Uuid};
use bytes::Bytes;
use records::{Batch, BatchBuilder, Batches, Compression, HEADER_BYTES, NewRecord};

use crate::{
    AppendBatch, AppendError, AppendInfo, Checkpoints, Log, LogConfig, LogEffects, LogEvent,
    LogParams, LogState, Read, ReadError, ReadPlan, ReadRequest,
};

/// Files by path. A file that is truncated beyond its end grows by zeros, as on Linux.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
    /// The next effects of this kind fail; `names` are renames and removals.
    pub(crate) failing: Option<(&'static str, IoErrorKind)>,
    /// How often each kind of effect was performed.
    pub(crate) performed: BTreeMap<&'static str, usize>,
}

impl Disk {
    pub(crate) fn perform<T>(&mut self, effect: FileEffect<T>) -> Option<(T, FileOutcome)> {
        let (kind, token, outcome) = match effect {
            FileEffect::Read { token, file, position, length } => {
                ("read", token, FileOutcome::Read(self.read(&file.path(), position, length)))
            }
            FileEffect::Write { token, file, position, parts } => {
                let content = self.files.entry(file.path().to_path_buf()).or_default();
                let mut at = usize::try_from(position).expect("tests write small files");
                for part in parts {
                    let end = at + part.len();
                    content.resize(content.len().max(end), 0);
                    content[at..end].copy_from_slice(&part);
                    at = end;
                }
                ("write", token, FileOutcome::Done(Ok(())))
            }
            FileEffect::Truncate { token, file, length } => {
                let content = self.files.entry(file.path().to_path_buf()).or_default();
                content.resize(usize::try_from(length).expect("tests write small files"), 0);
                ("truncate", token, FileOutcome::Done(Ok(())))
            }
            FileEffect::Sync { token, .. } => ("sync", token, FileOutcome::Done(Ok(()))),
            FileEffect::WriteBack { token, .. } => ("write back", token, FileOutcome::Done(Ok(()))),
            FileEffect::SyncDirectory { token, .. } => {
                ("sync directory", token, FileOutcome::Done(Ok(())))
            }
            FileEffect::Allocate { token, .. } => ("allocate", token, FileOutcome::Done(Ok(()))),
            FileEffect::Rename { token, from, to, files } => {
                let result = match self.failing {
                    Some(("rename" | "names", error)) => Err(io_error(error)),
                    _ => self.rename(&from, &to),
                };
                if result.is_ok() {
                    for file in files {
                        let path = file.path();
                        let rest = path.strip_prefix(&from).expect("it lies below");
                        let moved = if rest == Path::new("") { to.clone() } else { to.join(rest) };
                        file.set_path(moved);
                    }
                }
                ("rename", token, FileOutcome::Done(result))
            }
            FileEffect::Remove { token, path, .. } => {
                if let Some(("names", error)) = self.failing {
                    return Some((token, FileOutcome::Done(Err(io_error(error)))));
                }
                self.files.retain(|file, _| !file.starts_with(&path));
                ("remove", token, FileOutcome::Done(Ok(())))
            }
            FileEffect::MakeDirectory { token, .. } => {
                ("make directory", token, FileOutcome::Done(Ok(())))
            }
            FileEffect::List { token, directory } => {
                ("list", token, FileOutcome::Listed(Ok(self.list(&directory))))
            }
            other => panic!("a log does not ask for {:?}", other.map(|_| ())),
        };
        *self.performed.entry(kind).or_default() += 1;
        match self.failing {
            Some((failing, error)) if failing == kind => {
                Some((token, FileOutcome::Done(Err(io_error(error)))))
            }
            _ => Some((token, outcome)),
        }
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.performed.get(kind).copied().unwrap_or(0)
    }

    pub(crate) fn bytes_of(&self, slice: &FileSlice) -> Bytes {
        let read = self.read(&slice.file.path(), slice.position, slice.length);
        let bytes = read.expect("a slice names a file that is there");
        assert_eq!(bytes.len(), slice.length as usize, "the file has all of a slice");
        bytes
    }

    fn read(&self, path: &Path, position: u64, length: u32) -> IoResult<Bytes> {
        let content = self.files.get(path).ok_or_else(|| io_error(IoErrorKind::NotFound))?;
        let begin = usize::try_from(position).expect("small").min(content.len());
        let end = (begin + length as usize).min(content.len());
        Ok(Bytes::copy_from_slice(&content[begin..end]))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> IoResult<()> {
        let moved: Vec<PathBuf> =
            self.files.keys().filter(|path| path.starts_with(from)).cloned().collect();
        if moved.is_empty() {
            return Err(io_error(IoErrorKind::NotFound));
        }
        for path in moved {
            let content = self.files.remove(&path).expect("it was listed");
            let rest = path.strip_prefix(from).expect("it lies below");
            let new = if rest == Path::new("") { to.to_path_buf() } else { to.join(rest) };
            self.files.insert(new, content);
        }
        Ok(())
    }

    fn list(&self, directory: &Path) -> Vec<DirectoryEntry> {
        let mut entries: BTreeMap<String, DirectoryEntry> = BTreeMap::new();
        for (path, content) in &self.files {
            let Ok(rest) = path.strip_prefix(directory) else { continue };
            let mut parts = rest.iter();
            let name = parts.next().expect("a file has a name").to_string_lossy().into_owned();
            let is_directory = parts.next().is_some();
            let length = if is_directory { 0 } else { content.len() as u64 };
            let entry = DirectoryEntry { name: name.clone(), is_directory, length, modified_ms: 0 };
            entries.insert(name, entry);
        }
        entries.into_values().collect()
    }
}

/// A log on a disk in memory, whose effects are performed until nothing is left to do.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) disk: Disk,
    pub(crate) log: Log,
    pub(crate) out: LogEffects,
    pub(crate) events: Vec<LogEvent>,
    pub(crate) now: Now,
}

pub(crate) const FOLDER: &str = "data/t-0";

impl Bench {
    pub(crate) fn create(config: LogConfig) -> Self {
        Self::make(Disk::default(), config)
    }

    /// A new log on a disk that may have something in its folder.
    pub(crate) fn make(disk: Disk, config: LogConfig) -> Self {
        let mut out = Vec::new();
        let log = Log::create(params(config), &mut out);
        Self::run_new(disk, log, out)
    }

    pub(crate) fn open(disk: Disk, config: LogConfig, found: Checkpoints) -> Self {
        let mut out = Vec::new();
        let log = Log::open(params(config), found, &mut out);
        Self::run_new(disk, log, out)
    }

    /// A log that was just made, on a disk of its own.
    pub(crate) fn of(log: Log, out: LogEffects) -> Self {
        Self::run_new(Disk::default(), log, out)
    }

    fn run_new(disk: Disk, log: Log, out: LogEffects) -> Self {
        let now = Now { mono: Instant::from_nanos(1), wall_ms: 1_000_000 };
        let mut bench = Self { disk, log, out, events: Vec::new(), now };
        bench.run();
        bench
    }

    /// Turns, until nothing is under way.
    pub(crate) fn run(&mut self) {
        self.run_files();
        while self.log.batches_to_search() > 0 {
            self.log.search_on(&mut usize::MAX.clone(), false, &mut self.out, &mut self.events);
            self.run_files();
        }
    }

    /// Performs effects until nothing is left to do but to look through batches.
    pub(crate) fn run_files(&mut self) {
        loop {
            self.log.flush_turn(self.now, &mut self.out);
            if self.out.is_empty() {
                return;
            }
            let outcomes: VecDeque<_> =
                self.out.drain(..).filter_map(|effect| self.disk.perform(effect)).collect();
            for (step, outcome) in outcomes {
                self.log.on_file(self.now, step, outcome, &mut self.out, &mut self.events);
            }
        }
    }

    /// A turn in which only the first `count` effects come to an end.
    pub(crate) fn run_some(&mut self, count: usize) {
        self.log.flush_turn(self.now, &mut self.out);
        let ending: Vec<_> = self.out.drain(..count.min(self.out.len())).collect();
        for effect in ending {
            if let Some((step, outcome)) = self.disk.perform(effect) {
                self.log.on_file(self.now, step, outcome, &mut self.out, &mut self.events);
            }
        }
    }

    /// Waits until the log wants to be called.
    pub(crate) fn run_timer(&mut self) {
        self.now.mono = self.log.next_timer().expect("it waits for something");
        self.log.on_timer(self.now, &mut self.out, &mut self.events);
        self.run();
    }

    pub(crate) fn path(name: &str) -> PathBuf {
        Path::new(FOLDER).join(name)
    }

    pub(crate) fn content(&self, name: &str) -> &[u8] {
        let content = self.disk.files.get(&Self::path(name));
        content.unwrap_or_else(|| panic!("there is no {name}: {:?}", self.disk.files.keys()))
    }

    /// Appends a batch of `records` with values of `value_bytes`, without a turn.
    pub(crate) fn append(
        &mut self,
        records: usize,
        value_bytes: usize,
        timestamp: i64,
    ) -> Result<AppendInfo, AppendError> {
        let batch = batch(self.log.end_offset(), records, value_bytes, timestamp);
        self.log.append(self.now, &[appended(&batch)])
    }

    /// Reads, going around as often as places have to be looked up.
    pub(crate) fn read(&mut self, request: ReadRequest) -> Result<ReadPlan, ReadError> {
        for _ in 0..4 {
            match self.log.read(request, &mut self.out)? {
                Read::Plan(plan) => return Ok(plan),
                Read::Locating(_) => self.run(),
                Read::Busy => panic!("nothing else is looked up"),
            }
        }
        panic!("{request:?} is not found")
    }

    pub(crate) fn bytes_of(&self, plan: &ReadPlan) -> Bytes {
        let mut bytes = Vec::new();
        for part in &plan.parts {
            match part {
                Part::Bytes(part) => bytes.extend_from_slice(part),
                Part::File(slice) => bytes.extend_from_slice(&self.disk.bytes_of(slice)),
            }
        }
        assert_eq!(bytes.len(), plan.bytes as usize);
        Bytes::from(bytes)
    }

    /// All batches from `offset` to `up_to`, as a consumer gets them by reads of `bytes_max`.
    pub(crate) fn consume(&mut self, offset: Offset, up_to: Offset, bytes_max: u32) -> Vec<Batch> {
        let mut next = offset;
        let mut all = Vec::new();
        while next < up_to {
            let request = ReadRequest { offset: next, up_to, bytes_max, at_least_one: true };
            let plan = self.read(request).expect("the log has it");
            let batches: Vec<Batch> =
                Batches::new(self.bytes_of(&plan)).map(|batch| batch.expect("is whole")).collect();
            assert!(!batches.is_empty(), "{request:?} made no progress: {plan:?}");
            assert!(batches[0].header().last_offset() >= next, "begins at the first needed");
            assert!(batches[0].header().base_offset <= next.max(batches[0].header().base_offset));
            next = batches[batches.len() - 1].header().next_offset();
            all.extend(batches);
        }
        all
    }

    pub(crate) fn close(mut self) -> Disk {
        self.log.close(self.now, &mut self.out, &mut self.events);
        self.run();
        if let Some(retry) = self.log.next_timer().filter(|_| self.log.state() == LogState::Closing)
        {
            self.now.mono = retry;
            self.log.on_timer(self.now, &mut self.out, &mut self.events);
            self.run();
        }
        let end_offset = self.log.end_offset();
        assert_eq!(self.events.last(), Some(&LogEvent::Closed { end_offset }));
        self.disk
    }
}

/// The files of a log that Apache Kafka wrote, under the folder of the tests; its topic id is the
/// tests' own.
#[allow(clippy::disallowed_methods)] // A test reads its data.
pub(crate) fn kafka_log(name: &str) -> Disk {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/kafka")).join(name);
    let mut disk = Disk::default();
    for entry in fs::read_dir(folder).expect("the fixture is there") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().expect("a file has a name");
        let mut content = fs::read(&path).expect("it can be read");
        if name == "partition.metadata" {
            let text = format!("version: 0\ntopic_id: {}", Uuid([7; 16]));
            assert_eq!(text.len(), content.len(), "the form is Kafka's");
            content = text.into_bytes();
        }
        disk.files.insert(Path::new(FOLDER).join(name), content);
    }
    disk
}

pub(crate) fn params(config: LogConfig) -> LogParams {
    LogParams {
        directory: PathBuf::from(FOLDER),
        partition: TopicPartition { topic: Arc::from("t"), partition: PartitionIndex(0) },
        topic_id: Uuid([7; 16]),
        sets_strays_aside: true,
        config,
    }
}

pub(crate) fn clean() -> Checkpoints {
    Checkpoints { clean_shutdown: true, ..Checkpoints::default() }
}

/// A batch of plain records whose timestamps rise by one.
pub(crate) fn batch(base: Offset, records: usize, value_bytes: usize, timestamp: i64) -> Batch {
    let mut builder = BatchBuilder::new(base, Compression::None);
    let value = vec![b'v'; value_bytes];
    for index in 0..records {
        let timestamp = timestamp + index as i64;
        builder.append(&NewRecord { timestamp, value: Some(&value), ..NewRecord::default() });
    }
    builder.build()
}

pub(crate) fn appended(batch: &Batch) -> AppendBatch {
    let header = *batch.bytes().first_chunk::<HEADER_BYTES>().expect("a batch has a header");
    AppendBatch { header, records: batch.record_bytes() }
}

pub(crate) fn io_error(kind: IoErrorKind) -> IoError {
    IoError { kind, action: "test", subject: "a file".to_owned(), cause: format!("{kind:?}") }
}
