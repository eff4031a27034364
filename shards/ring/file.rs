//! Open files: the calls that are made inline because they do not wait for the disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};

use crate::error::{checked, retry};

/// How many pieces of memory one write takes (`IOV_MAX` of Linux). Their vectors take 16 KB of the
/// stack.
const WRITE_PIECES_MAX: usize = 1024;
/// The number of the system call `cachestat`, the same on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;
/// A page of the page cache, in bytes.
const PAGE_BYTES: u64 = 4096;

/// How far apart pages are looked at that are in the page cache, but may not be read yet: what is
/// read ahead is read in pieces of at least this size.
const LOOK_BYTES: u64 = 64 << 10;

/// Counts the files that are open, over all threads of a node.
pub type OpenCount = Arc<AtomicUsize>;

/// An open file. It is closed when the last use of it ends.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    writable: bool,
    /// When it was last used, by a clock of the driver's choice.
    used_at: AtomicU64,
    count: OpenCount,
}

/// Whether a range of a file is in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// All of it: sending it does not wait for the disk.
    Resident,
    /// Some of it is not.
    Cold,
}

impl OpenFile {
    /// Opens `path` to read and write, and creates it where `create` says so. A file that may only
    /// be read is opened for that.
    ///
    /// # Errors
    /// Not there, not permitted, too many open files.
    pub fn open(path: &Path, create: bool, count: &OpenCount) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create).truncate(false);
        let (file, writable) = match options.open(path) {
            Ok(file) => (file, true),
            Err(error) if !create && is_read_only(&error) => (File::open(path)?, false),
            Err(error) => return Err(error),
        };
        count.fetch_add(1, Ordering::Relaxed);
        Ok(Self { file, writable, used_at: AtomicU64::new(0), count: Arc::clone(count) })
    }

    /// From now on whoever reads says how much. What the kernel reads ahead by itself it does
    /// within whichever call comes upon a certain page, a send too: it takes memory for up to the
    /// device's limit (megabytes) there and then, for which a core was seen to stand still for
    /// 14 ms.
    pub fn read_nothing_ahead(&self) {
        // Without the advice everything works as well.
        // SAFETY: the call takes numbers and touches no memory.
        let _ =
            unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    }

    /// Whether it can be written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Notes that it is used now.
    pub fn touch(&self, now: u64) {
        self.used_at.store(now, Ordering::Relaxed);
    }

    /// When it was last used.
    pub fn used_at(&self) -> u64 {
        self.used_at.load(Ordering::Relaxed)
    }

    /// Its length in bytes.
    ///
    /// # Errors
    /// When the file system has failed.
    pub fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Appends to `buffer` what the page cache has from `position` on, at most `length` bytes and
    /// what there is room for. 0 is the end of the file.
    ///
    /// # Errors
    /// `WouldBlock` when the disk must be asked, or the file system cannot say.
    pub fn read_cached(
        &self,
        buffer: &mut BytesMut,
        position: u64,
        length: usize,
    ) -> io::Result<usize> {
        match self.read_without_waiting(buffer, position, length) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            result => result,
        }
    }

    /// The same, but `Unsupported` when the file system cannot say.
    fn read_without_waiting(
        &self,
        buffer: &mut BytesMut,
        position: u64,
        length: usize,
    ) -> io::Result<usize> {
        let offset = file_offset(position)?;
        let room = buffer.spare_capacity_mut();
        let vector =
            libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len().min(length) };
        let read = retry(|| {
            // SAFETY: the kernel writes at most `iov_len` bytes into memory that is ours alone.
            checked(unsafe {
                libc::preadv2(self.file.as_raw_fd(), &vector, 1, offset, libc::RWF_NOWAIT)
            })
        })?;
        // SAFETY: the kernel has just initialised so many bytes behind the length.
        unsafe { buffer.set_len(buffer.len() + read) };
        Ok(read)
    }

    /// Writes `parts` one behind the other at `position`, all of them.
    ///
    /// # Errors
    /// What the file system refused; any part may have been written.
    pub fn write(&self, parts: &[Bytes], position: u64) -> io::Result<u64> {
        self.check_writable()?;
        let mut written = 0_u64;
        let total: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let mut vectors = [const { MaybeUninit::uninit() }; WRITE_PIECES_MAX];
        while written < total {
            let (filled, bytes) = fill_vectors(&mut vectors, parts, written);
            let offset = file_offset(position + written)?;
            let (first, count) = (vectors.as_ptr().cast(), filled as libc::c_int);
            let taken = retry(|| {
                // SAFETY: the first `count` vectors were filled; each names memory that `parts`
                // holds, and the kernel only reads.
                checked(unsafe { libc::pwritev(self.file.as_raw_fd(), first, count, offset) })
            })?;
            if taken == 0 && bytes > 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            written += taken as u64;
        }
        Ok(total)
    }

    /// Takes disk space for a range and leaves the length as it is.
    ///
    /// # Errors
    /// The disk is full, among others. A file system that cannot do it is none.
    pub fn allocate(&self, position: u64, length: u64) -> io::Result<()> {
        self.check_writable()?;
        let (offset, bytes) = (file_offset(position)?, file_offset(length)?);
        let result = retry(|| {
            // SAFETY: the call takes numbers and touches no memory.
            let result = unsafe {
                let keep_size = libc::FALLOC_FL_KEEP_SIZE;
                libc::fallocate(self.file.as_raw_fd(), keep_size, offset, bytes)
            };
            checked(result as isize)
        });
        match result {
            Err(error) if error.raw_os_error() != Some(libc::EOPNOTSUPP) => Err(error),
            _ => Ok(()),
        }
    }

    /// Sets the length, and gives back the space beyond it.
    ///
    /// # Errors
    /// What the file system refused.
    pub fn truncate(&self, length: u64) -> io::Result<()> {
        self.check_writable()?;
        file_offset(length)?;
        self.file.set_len(length)
    }

    /// Whether a range is in the page cache, so that `sendfile` will not wait for the disk.
    pub fn residency(&self, position: u64, length: u64) -> Residency {
        let end = position + length.max(1);
        let pages = end.div_ceil(PAGE_BYTES) - position / PAGE_BYTES;
        // An older kernel, or a filter of a container, may not tell.
        let cached = self.cached_pages(position, length).ok().map(|cached| cached >= pages);
        // A page is in the cache from the moment on at which it is going to be read.
        let mut byte = BytesMut::with_capacity(1);
        let mut is_read = |at| {
            byte.clear();
            match self.read_without_waiting(&mut byte, at, 1) {
                // Of a file system that does not say, the count is all that is known.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => cached == Some(true),
                result => result.is_ok(),
            }
        };
        let between = (position..end).step_by(LOOK_BYTES as usize).skip(1).map(|at| at - 1);
        let mut looks = [position].into_iter().chain(between).chain([end - 1]);
        if cached != Some(false) && looks.all(&mut is_read) {
            Residency::Resident
        } else {
            Residency::Cold
        }
    }

    fn cached_pages(&self, position: u64, length: u64) -> io::Result<u64> {
        let range = [position, length];
        // Cached, dirty, under writeback, evicted and recently evicted pages.
        let mut counts = [0_u64; 5];
        // SAFETY: both arrays have the layout of the call's structures and outlive it.
        let result = unsafe {
            let counts = counts.as_mut_ptr();
            libc::syscall(SYS_CACHESTAT, self.file.as_raw_fd(), range.as_ptr(), counts, 0)
        };
        checked(result as isize)?;
        Ok(counts[0])
    }

    /// Whether it can be written to.
    ///
    /// # Errors
    /// It was opened where only reading is permitted.
    pub fn check_writable(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EACCES)) }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The position in a file as the kernel takes it.
pub(crate) fn file_offset(position: u64) -> io::Result<i64> {
    i64::try_from(position).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EROFS | libc::EPERM))
}

/// Fills `vectors` with what follows behind the first `skip` bytes of `parts`, as far as there is
/// room. Returns how many were filled, and of how many bytes.
fn fill_vectors(
    vectors: &mut [MaybeUninit<libc::iovec>],
    parts: &[Bytes],
    mut skip: u64,
) -> (usize, u64) {
    let (mut filled, mut bytes) = (0, 0);
    for part in parts {
        let length = part.len() as u64;
        if skip >= length {
            skip -= length;
            continue;
        }
        let Some(vector) = vectors.get_mut(filled) else { break };
        let rest = &part[skip as usize..];
        skip = 0;
        let iov_base = rest.as_ptr().cast_mut().cast();
        vector.write(libc::iovec { iov_base, iov_len: rest.len() });
        filled += 1;
        bytes += rest.len() as u64;
    }
    (filled, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path, create: bool) -> io::Result<OpenFile> {
        OpenFile::open(path, create, &OpenCount::default())
    }

    #[test]
    fn many_small_parts_are_written_whole_and_read_back_from_the_cache() {
        let directory = tempfile::tempdir().expect("a folder");
        let file = open(&directory.path().join("f"), true).expect("opens");
        let parts: Vec<Bytes> =
            (0..3_000_u32).map(|n| Bytes::from(vec![n as u8; (n % 5) as usize])).collect();
        let expected: Vec<u8> = parts.iter().flatten().copied().collect();
        assert_eq!(file.write(&parts, 10).expect("writes"), expected.len() as u64);
        let mut buffer = BytesMut::with_capacity(expected.len() + 100);
        assert_eq!(file.read_cached(&mut buffer, 10, usize::MAX).expect("cached"), expected.len());
        assert_eq!(buffer, expected);
        let end = 10 + expected.len() as u64;
        assert_eq!(file.read_cached(&mut buffer, end, 5).expect("the end"), 0);
        assert_eq!(file.length().expect("a length"), end);
    }

    #[test]
    fn allocation_keeps_the_length_and_truncation_sets_it() {
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("f");
        let file = open(&path, true).expect("opens");
        file.write(&[Bytes::from_static(b"abc")], 0).expect("writes");
        file.allocate(0, 1 << 20).expect("allocates");
        assert_eq!(file.length().expect("a length"), 3);
        use std::os::unix::fs::MetadataExt;
        assert!(std::fs::metadata(&path).expect("there").blocks() * 512 >= 1 << 20);
        file.truncate(2).expect("truncates");
        assert_eq!(std::fs::read(&path).expect("reads"), b"ab");
        assert!(std::fs::metadata(&path).expect("there").blocks() * 512 < 1 << 20);
        assert!(file.truncate(u64::MAX).is_err());
    }

    #[test]
    fn a_file_dropped_from_the_page_cache_is_cold_and_warm_again_once_read() {
        // Beside this program and not in the default folder: that may be a tmpfs, which has nothing
        // but the page cache.
        let program = std::env::current_exe().expect("a path");
        let beside = program.parent().expect("it stands in a folder");
        let directory = tempfile::tempdir_in(beside).expect("a folder");
        let path = directory.path().join("f");
        let file = open(&path, true).expect("opens");
        file.write(&[Bytes::from(vec![1; 1 << 20])], 0).expect("writes");
        assert_eq!(file.residency(0, 1 << 20), Residency::Resident);
        file.file.sync_all().expect("synced");
        // SAFETY: the call takes numbers and touches no memory.
        let result =
            unsafe { libc::posix_fadvise(file.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(result, 0);
        assert_eq!(file.residency(5_000, 1 << 19), Residency::Cold);
        // The kernel drops what it can: single pages may stay.
        let mut pages = (0..1 << 20).step_by(PAGE_BYTES as usize);
        let at = pages.find(|at| file.residency(*at, 1) == Residency::Cold).expect("most are cold");
        let cold = file.read_cached(&mut BytesMut::with_capacity(1), at, 1);
        assert_eq!(cold.expect_err("cold").kind(), io::ErrorKind::WouldBlock);
        std::fs::read(&path).expect("reads");
        assert_eq!(file.residency(5_000, 1 << 19), Residency::Resident);
    }

    #[test]
    fn nothing_is_read_ahead_of_who_asked_for_that() {
        const HALF: u64 = 512 << 10;
        let program = std::env::current_exe().expect("a path");
        let beside = program.parent().expect("it stands in a folder");
        let directory = tempfile::tempdir_in(beside).expect("a folder");
        let file = open(&directory.path().join("f"), true).expect("opens");
        file.write(&[Bytes::from(vec![1; 2 * HALF as usize])], 0).expect("writes");
        file.file.sync_all().expect("synced");
        // SAFETY: the call takes numbers and touches no memory.
        let result =
            unsafe { libc::posix_fadvise(file.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(result, 0);
        file.read_nothing_ahead();
        // An older kernel cannot tell; of the rest, single pages may have stayed.
        let Ok(before) = file.cached_pages(HALF, HALF) else { return };
        let mut page = [0; PAGE_BYTES as usize];
        for position in (0..HALF).step_by(PAGE_BYTES as usize) {
            std::os::unix::fs::FileExt::read_exact_at(&file.file, &mut page, position)
                .expect("reads");
        }
        assert!(file.cached_pages(HALF, HALF).expect("it told before") <= before);
    }

    #[test]
    fn a_missing_file_is_not_found_and_a_count_follows_the_open_ones() {
        let directory = tempfile::tempdir().expect("a folder");
        let count = OpenCount::default();
        let missing = OpenFile::open(&directory.path().join("no"), false, &count);
        assert_eq!(missing.expect_err("missing").kind(), io::ErrorKind::NotFound);
        let file = OpenFile::open(&directory.path().join("yes"), true, &count).expect("opens");
        assert_eq!(count.load(Ordering::Relaxed), 1);
        drop(file);
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
