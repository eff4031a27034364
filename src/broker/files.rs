//! File effects under way, and whose steps they are.

use api::{Effects, FileEffect};
use base::{Slab, Token};
use commitlog::{DirectoryStep, LogStep};
use intercom::Message;

/// File effects of one shard under way at once: a few for each partition that opens or closes.
const FILE_STEPS_MAX: usize = 1 << 23;

/// Whose step a file effect is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FileStep {
    /// Of a partition's log.
    Log(Token, LogStep),
    /// Of a log directory's checkpoints, by the directory's index.
    Directory(u16, DirectoryStep),
    /// Of a coordinator that loads, by its partition.
    Load(Token),
    /// A piece of a log that moves to another directory, by its partition and the copy.
    Copy(Token, Token),
    /// A copy that nobody wants is deleted, durably; by the partition and the copy.
    Cancelled(Token, Token),
    /// The mark in a copy's folder, by the partition and the copy.
    CopyMark(Token, Token),
    /// The same goes again; nobody waits for it.
    Unmarked,
    /// A call wants to know the size of a log directory's file system, by the directory's index.
    Space(Token, u16),
}

/// The file effects under way.
#[derive(Debug)]
pub(crate) struct Files {
    steps: Slab<FileStep>,
}

impl Default for Files {
    fn default() -> Self {
        Self { steps: Slab::new(FILE_STEPS_MAX) }
    }
}

impl Files {
    /// Asks the driver for `effect`, whose outcome comes back with the step that `name` makes.
    pub(crate) fn file<T>(
        &mut self,
        effects: &mut Effects<Message>,
        effect: FileEffect<T>,
        name: impl FnOnce(T) -> FileStep,
    ) {
        let named = effect.map(|step| {
            self.steps.insert(name(step)).expect("file effects are bounded by partitions and calls")
        });
        effects.file(named);
    }

    /// The step that an outcome belongs to.
    ///
    /// # Panics
    /// If the driver answered an effect twice.
    pub(crate) fn done(&mut self, token: Token) -> FileStep {
        self.steps.remove(token).expect("the driver answers a file effect once")
    }
}
