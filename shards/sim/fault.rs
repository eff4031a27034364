//! What the world does to those who live in it.

use base::{Duration, Instant, Random};

/// A range of time to draw from.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    /// The shortest, in microseconds.
    pub min_us: u64,
    /// The longest, in microseconds.
    pub max_us: u64,
}

impl Delay {
    /// From `min_us` to `max_us` microseconds.
    pub const fn us(min_us: u64, max_us: u64) -> Self {
        Self { min_us, max_us }
    }

    pub(crate) fn draw(self, random: &mut Random) -> Duration {
        let spread_ns = (self.max_us.saturating_sub(self.min_us)) * 1_000 + 1;
        Duration::from_nanos(self.min_us * 1_000 + random.below(spread_ns))
    }

    pub(crate) fn after(self, now: Instant, random: &mut Random) -> Instant {
        now + self.draw(random)
    }
}

/// Draws whether something that happens `per_million` times in a million happens now.
pub(crate) fn strikes(per_million: u32, random: &mut Random) -> bool {
    per_million > 0 && random.below(1_000_000) < u64::from(per_million)
}

/// Everything that can go slow or wrong by itself. Crashes are no part of it: whoever drives the
/// world orders them, since it has to start the node again.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    /// What disks do.
    pub disk: DiskFaults,
    /// What connections do.
    pub network: NetworkFaults,
    /// How long a message between two machines of a node takes.
    pub mesh_delay: Delay,
    /// How long a turn takes.
    pub turn: Delay,
    /// How long a core is away when the kernel gives it to somebody else.
    pub core_stall: Delay,
    /// How often that happens, in a million turns.
    pub core_stalls_per_million: u32,
    /// How late a timer is.
    pub timer_delay: Delay,
}

/// What disks do.
#[derive(Clone, Debug)]
pub struct DiskFaults {
    /// How long a read takes.
    pub read: Delay,
    /// How long a write takes that is not performed inline.
    pub write: Delay,
    /// How many of 100 writes are performed inline, within the turn that asked for them.
    pub writes_inline_percent: u64,
    /// How long a sync takes.
    pub sync: Delay,
    /// How long everything else takes (names, space).
    pub names: Delay,
    /// Reads that fail, of a million.
    pub read_errors_per_million: u32,
    /// Writes that fail, of a million. A part of the bytes may have been written.
    pub write_errors_per_million: u32,
    /// Syncs that fail, of a million. The pages count as clean afterwards, as in Linux: a later
    /// sync succeeds without making them durable.
    pub sync_errors_per_million: u32,
}

/// What a directory of a disk does, as if it were a disk of its own. Whoever drives the world says
/// when it begins and ends.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// Everything fails: the disk under it is dead.
    Broken,
    /// Nothing that takes space can be written.
    Full,
    /// Syncs take this long.
    SlowSyncs(Delay),
    /// Syncs of folders take this long, and nothing elsewhere waits for them.
    SlowFolderSyncs(Delay),
}

/// What connections do.
#[derive(Clone, Debug)]
pub struct NetworkFaults {
    /// How long a packet travels.
    pub latency: Delay,
    /// The largest of the small pieces that a stream is chopped into now and then, in bytes.
    pub piece_bytes_max: u64,
    /// How many bytes fit between two ends before the sender has to wait.
    pub window_bytes: usize,
    /// Pieces that are held up, of a million; what was sent behind them waits with them.
    pub stalls_per_million: u32,
    /// How long they are held up.
    pub stall: Delay,
    /// Pieces at which the connection breaks, of a million.
    pub resets_per_million: u32,
    /// How long the addresses at which a process listened stay taken once it has gone: the kernel
    /// lets go of the sockets of a ring a moment later.
    pub linger: Delay,
}

impl FaultPlan {
    /// A world in which nothing goes wrong and nothing takes long.
    pub fn calm() -> Self {
        Self {
            disk: DiskFaults {
                read: Delay::us(20, 100),
                write: Delay::us(20, 100),
                writes_inline_percent: 100,
                sync: Delay::us(200, 1_000),
                names: Delay::us(10, 50),
                read_errors_per_million: 0,
                write_errors_per_million: 0,
                sync_errors_per_million: 0,
            },
            network: NetworkFaults {
                latency: Delay::us(10, 60),
                piece_bytes_max: 256 * 1024,
                window_bytes: 512 * 1024,
                stalls_per_million: 0,
                stall: Delay::us(0, 0),
                resets_per_million: 0,
                linger: Delay::us(0, 0),
            },
            mesh_delay: Delay::us(1, 20),
            turn: Delay::us(2, 20),
            core_stall: Delay::us(0, 0),
            core_stalls_per_million: 0,
            timer_delay: Delay::us(0, 50),
        }
    }

    /// A world in which everything can be slow and nothing fails: streams come in small pieces
    /// and late, disks take their time, cores are taken away. What it does follows from `random`.
    pub fn rough(random: &mut Random) -> Self {
        let mut plan = Self::calm();
        plan.disk.writes_inline_percent = [0, 50, 100][random.below(3) as usize];
        plan.disk.write = Delay::us(20, 100 + random.below(5_000));
        plan.disk.read = Delay::us(20, 100 + random.below(5_000));
        plan.disk.sync = Delay::us(200, 1_000 + random.below(30_000));
        plan.disk.names = Delay::us(10, 50 + random.below(5_000));
        plan.network.latency = Delay::us(10, 60 + random.below(3_000));
        plan.network.piece_bytes_max = [7, 100, 1_500, 65_536, 262_144][random.below(5) as usize];
        plan.network.window_bytes = [4_096, 65_536, 524_288][random.below(3) as usize];
        plan.network.stalls_per_million = [0, 2_000, 20_000][random.below(3) as usize];
        plan.network.stall = Delay::us(100, 30_000);
        plan.network.resets_per_million = [0, 100, 1_000][random.below(3) as usize];
        plan.network.linger = Delay::us(0, 50_000);
        plan.mesh_delay = Delay::us(1, 20 + random.below(2_000));
        plan.core_stalls_per_million = [0, 1_000, 10_000][random.below(3) as usize];
        plan.core_stall = Delay::us(100, 20_000);
        plan.timer_delay = Delay::us(0, 50 + random.below(5_000));
        plan
    }
}

/// A fault of the driver, planted to see whether the checkers find it. Never set otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// One sync in two is answered without being performed.
    SkipSync,
    /// Writes are answered before they are performed, so that a reply leaves before its write; a
    /// crash in between loses them.
    SendBeforeWrite,
    /// One message in a hundred between two machines vanishes.
    LoseMesh,
}

/// What ends a node without asking it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process is killed. The page cache survives: every write that was performed is there.
    Process,
    /// The machine loses power. What was synced survives, with a part of the rest.
    Machine,
}

/// A crash at one change of a disk, for whoever goes through all of them. A change is a write, an
/// allocation, a cut, a sync that ends, or a change of names or its sync, as it is performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashPoint {
    /// At which change, from 0.
    pub change: u64,
    /// At which moment of it.
    pub moment: Moment,
    /// In which way.
    pub crash: Crash,
    /// What is left of the rest.
    pub rest: Rest,
}

/// The moment of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It is not performed.
    Before,
    /// A write is performed up to some byte; other changes are not.
    Within,
    /// It is performed, and nobody has heard of it.
    After,
}

/// What a crash leaves of changes that were under way, and a loss of power of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing.
    Nothing,
    /// Of what was not synced all names, and no bytes.
    Names,
    /// Of what was not synced all bytes, and no names.
    Bytes,
    /// What is drawn.
    Drawn,
}
