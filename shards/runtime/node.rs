//! A node: its threads from start to end.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use api::{Machine, ShardId};
use ring::{Ring, Signals, Waited};

use crate::core::Core;
use crate::counters::CountersSnapshot;
use crate::links::{Links, lay};
use crate::settings::Settings;
use crate::shared::{RunError, Shared};

/// The most descriptors that files of the data directories may take, of what the process may have:
/// the rest is for connections.
const OPEN_FILES_SHARE: usize = 2;

/// Makes a machine, on the thread that will drive it.
pub type MachineFactory<M> = Box<dyn FnOnce() -> Box<dyn Machine<Message = M>> + Send>;

/// What is to be run.
pub struct NodeSpec<M> {
    /// The threads, one a core.
    pub threads: Vec<ThreadSpec<M>>,
    /// Limits and modes.
    pub settings: Settings,
}

/// One thread.
pub struct ThreadSpec<M> {
    /// Its name, for the operating system's tools; 15 bytes are shown.
    pub name: String,
    /// The number of the CPU that it is pinned to, if to one; see [`cores`].
    pub core: Option<usize>,
    /// Its machines. The shards of all threads together are numbered from 0 without a gap.
    pub machines: Vec<(ShardId, MachineFactory<M>)>,
}

/// A node that runs.
pub struct Node {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Runs a node until all its machines have stopped. SIGTERM, SIGINT and SIGHUP ask them to.
///
/// It is called before any other thread is started: a signal could end the process there.
///
/// # Errors
/// The node could not be started, or a machine has failed. Nothing was logged of it: the caller
/// says it once and ends the process with exit code 1.
pub fn run<M: Send + 'static>(spec: NodeSpec<M>) -> Result<(), RunError> {
    let failed = |error: std::io::Error| RunError::Signals { cause: error.to_string() };
    let signals = Signals::block().map_err(failed)?;
    let node = Node::start(spec)?;
    while !node.shared.is_over() {
        match signals.wait(node.shared.over()).map_err(failed)? {
            Waited::Bell => break,
            Waited::Signal => {
                tracing::info!("asked to stop by a signal");
                node.stop();
            }
        }
    }
    node.wait()
}

impl Node {
    /// Starts a node and returns.
    ///
    /// # Errors
    /// The kernel or a limit does not allow it, or a thread cannot be started.
    pub fn start<M: Send + 'static>(spec: NodeSpec<M>) -> Result<Self, RunError> {
        start(spec)
    }

    /// Asks all machines to stop, as a signal does.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// The counters of each thread, by its name.
    pub fn counters(&self) -> Vec<(String, CountersSnapshot)> {
        self.shared.all_counters()
    }

    /// Waits until all machines have stopped.
    ///
    /// # Errors
    /// A machine has failed, or a thread has panicked. It has been logged.
    pub fn wait(self) -> Result<(), RunError> {
        for thread in self.threads {
            thread.join().expect("a thread of a node catches its panics");
        }
        self.shared.failure().map_or(Ok(()), |error| Err(error.clone()))
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Node").field("threads", &self.threads.len()).finish()
    }
}

impl<M> fmt::Debug for NodeSpec<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("NodeSpec").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl<M> fmt::Debug for ThreadSpec<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ThreadSpec").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The numbers of the CPUs that this process may run on, in order.
pub fn cores() -> Vec<usize> {
    let mut cores: Vec<usize> =
        core_affinity::get_core_ids().unwrap_or_default().iter().map(|core| core.id).collect();
    cores.sort_unstable();
    cores
}

fn start<M: Send + 'static>(spec: NodeSpec<M>) -> Result<Node, RunError> {
    // What cannot be raised is advised about below.
    let _ = ring::raise_open_files_limit();
    let probe = ring::probe()?;
    for sentence in &probe.advice {
        tracing::warn!("{sentence}");
    }
    let shards: Vec<Vec<ShardId>> = spec
        .threads
        .iter()
        .map(|thread| thread.machines.iter().map(|(shard, _)| *shard).collect())
        .collect();
    let files = usize::try_from(probe.open_files_max).unwrap_or(usize::MAX) / OPEN_FILES_SHARE;
    let names = spec.threads.iter().map(|thread| thread.name.clone()).collect();
    let shared = Arc::new(Shared::new(names, shards.iter().map(Vec::len).sum(), files)?);
    let mut threads = Vec::new();
    for (thread, links) in spec.threads.into_iter().zip(lay(&shards, spec.settings.lane_slots)) {
        let name = thread.name.clone();
        match spawn(thread, links, spec.settings.clone(), Arc::clone(&shared)) {
            Ok(handle) => threads.push(handle),
            Err(error) => {
                let error = RunError::Thread { thread: name, cause: error.to_string() };
                shared.fail(error.clone());
                // The threads that were started end at once.
                let _ = Node { shared, threads }.wait();
                return Err(error);
            }
        }
    }
    Ok(Node { shared, threads })
}

fn spawn<M: Send + 'static>(
    spec: ThreadSpec<M>,
    links: Links<M>,
    settings: Settings,
    shared: Arc<Shared>,
) -> std::io::Result<JoinHandle<()>> {
    let name = spec.name.clone();
    std::thread::Builder::new().name(name.clone()).spawn(move || {
        let body = AssertUnwindSafe(|| thread_main(spec, links, &settings, &shared));
        let error = match catch_unwind(body) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(panic) => RunError::Panicked { thread: name, message: message_of(&*panic) },
        };
        shared.fail(error);
    })
}

fn thread_main<M: Send + 'static>(
    spec: ThreadSpec<M>,
    links: Links<M>,
    settings: &Settings,
    shared: &Arc<Shared>,
) -> Result<(), RunError> {
    if let Some(core) = spec.core
        && !core_affinity::set_for_current(core_affinity::CoreId { id: core })
    {
        tracing::warn!("thread {} cannot be pinned to CPU {core}; it runs anywhere", spec.name);
    }
    let ring = Ring::new().map_err(|error| RunError::Ring { cause: error.to_string() })?;
    shared.set_ring(links.thread(), ring.handle());
    let machines = spec.machines.into_iter().map(|(shard, make)| (shard, make())).collect();
    Core::new(machines, ring, links, settings, Arc::clone(shared)).run()
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(message) = panic.downcast_ref::<String>() {
        return message.clone();
    }
    (*panic.downcast_ref::<&str>().unwrap_or(&"without a message")).to_owned()
}
