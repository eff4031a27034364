//! A broker in a process of its own: Corelane, or Apache Kafka as the witness.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use faultfs::{Left, Served};
use tempfile::TempDir;
use xtask::kafka;

use crate::process::{Finished, Running, signal};
use crate::wire;

/// How long a broker may take until its first answer.
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// Between two tries to connect to a port that nobody listens on yet.
const CONNECT_PAUSE: Duration = Duration::from_millis(5);
/// How long a broker may take to stop when asked.
const STOP_TIME_MAX: Duration = Duration::from_secs(60);
/// What is shown of the log of a failed test.
const LOG_LINES_SHOWN: usize = 60;

/// Which broker the tests judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Our own.
    Corelane,
    /// Apache Kafka, to prove the tests.
    Kafka,
}

/// What `CORELANE_TEST_TARGET` says: `kafka`, or by default Corelane.
///
/// # Panics
/// When it says anything else.
pub fn target() -> Target {
    match env::var("CORELANE_TEST_TARGET").as_deref() {
        Err(_) | Ok("corelane") => Target::Corelane,
        Ok("kafka") => Target::Kafka,
        Ok(other) => panic!("CORELANE_TEST_TARGET is `corelane` or `kafka`, not `{other}`"),
    }
}

/// A broker that runs; dropping it kills it.
#[derive(Debug)]
pub struct Broker {
    port: u16,
    controller_port: u16,
    /// Whose program runs.
    program: Target,
    /// What starts it: a file of settings, or `dev` with its options.
    arguments: Vec<OsString>,
    /// A program with its arguments that starts the broker's in turn, or nothing.
    wrapper: Vec<OsString>,
    folder: TempDir,
    processes: Option<Processes>,
    disk: Option<Disk>,
}

/// A disk that only its own processes see.
#[derive(Debug)]
enum Disk {
    Small(SmallDisk),
    Served(Box<Served>),
}

/// A disk in memory that only its own processes see.
#[derive(Debug)]
struct SmallDisk {
    /// It has the disk as long as it runs.
    holder: Child,
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop((self.holder.kill(), self.holder.wait()));
    }
}

#[derive(Debug)]
struct Processes {
    broker: Child,
    /// Ends the broker when the process of the tests ends without doing so.
    guard: Child,
}

impl Broker {
    /// Formats a folder and starts a broker with these settings besides the usual ones.
    ///
    /// # Panics
    /// When it doesn't come up; its log is shown.
    pub fn start(settings: &[(&str, &str)]) -> Broker {
        let mut broker = Broker::prepare(settings);
        broker.format(&format!("--cluster-id {CLUSTER_ID}")).ok();
        broker.start_again();
        broker
    }

    /// Writes the settings of a broker that is neither formatted nor started yet.
    ///
    /// # Panics
    /// When they cannot be written.
    pub fn prepare(settings: &[(&str, &str)]) -> Broker {
        let folder = TempDir::with_prefix("blackbox-").expect("a folder for temporary files");
        let (port, controller_port) = (free_port(), free_port());
        let properties = server_properties(folder.path(), port, controller_port, settings);
        let path = folder.path().join(SETTINGS);
        fs::write(&path, properties).expect("writing settings");
        let (program, arguments) = (target(), start_of(target(), &path));
        let (wrapper, processes, disk) = (Vec::new(), None, None);
        Broker { port, controller_port, program, arguments, wrapper, folder, processes, disk }
    }

    /// From now on this program is started on the folder.
    ///
    /// # Panics
    /// When another one runs.
    pub fn set_program(&mut self, program: Target) {
        assert!(self.processes.is_none(), "one program at a time has the folder");
        self.program = program;
        self.arguments = start_of(program, &self.settings());
    }

    /// Runs `format` with the broker's settings and these options.
    pub fn format(&self, options: &str) -> Finished {
        let command = match self.program {
            Target::Corelane => Command::new(corelane()),
            Target::Kafka => kafka::tool_with("storage", QUICK).unwrap_or_else(|s| panic!("{s}")),
        };
        let mut command = wrapped(&self.wrapper, command);
        command.arg("format").args(options.split_whitespace());
        command.arg("--config").arg(self.settings());
        Running::start(&mut command).finish()
    }

    /// Starts a broker of whose folder a part, such as its data, lies on a disk of its own with so
    /// many megabytes. The disk stays when the broker ends and starts again.
    ///
    /// # Panics
    /// When the system lets nobody make such a disk, or the broker doesn't come up.
    pub fn on_small_disk(settings: &[(&str, &str)], part: &str, megabytes: u32) -> Broker {
        let mut broker = Broker::start(settings);
        broker.stop();
        let script = format!(
            "cp -a {part} {part}.copy && mount -t tmpfs -o size={megabytes}m none {part} && \
             cp -a {part}.copy/. {part} && echo there && exec sleep infinity",
            part = broker.folder.path().join(part).display()
        );
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &script]);
        let mut holder = command.stdout(Stdio::piped()).spawn().expect("unshare is there");
        let mut line = String::new();
        let said = BufReader::new(holder.stdout.take().expect("it was asked for"));
        let read = { said }.read_line(&mut line);
        assert!(read.is_ok() && line == "there\n", "no small disk: {read:?} {line:?}");
        broker.wrapper = faultfs::entering(holder.id()).map(OsString::from).into();
        broker.disk = Some(Disk::Small(SmallDisk { holder }));
        broker.start_again();
        broker
    }

    /// Starts a broker whose data lie on a disk that `program` serves ([`faultfs::serve`]), with so
    /// many bytes. The directories of `log.dirs` lie below `{folder}/data`.
    ///
    /// # Panics
    /// When the system lets nobody make such a disk, or the broker doesn't come up.
    pub fn on_served_disk(settings: &[(&str, &str)], program: &str, bytes: u64) -> Broker {
        let mut broker = Broker::prepare(settings);
        fs::create_dir(broker.data()).expect("a folder for the data");
        let disk = Served::start(Path::new(program), &broker.data(), bytes);
        broker.wrapper = disk.wrapper().map(OsString::from).into();
        broker.disk = Some(Disk::Served(Box::new(disk)));
        broker.format(&format!("--cluster-id {CLUSTER_ID}")).ok();
        broker.start_again();
        broker
    }

    /// The disk that is served to it.
    ///
    /// # Panics
    /// When there is none.
    pub fn served_disk(&mut self) -> &mut Served {
        match &mut self.disk {
            Some(Disk::Served(disk)) => disk,
            _ => panic!("no disk is served to it"),
        }
    }

    /// Ends the process at once, and takes from its disk what was not synced.
    ///
    /// # Panics
    /// When no disk is served to it.
    pub fn lose_power(&mut self, left: Left) {
        if let Some(Processes { mut broker, mut guard }) = self.processes.take() {
            drop((guard.kill(), guard.wait()));
            // It may wait for the disk, and ends when that answers. What it is told it never sees.
            drop(broker.kill());
            self.served_disk().cut();
            drop(broker.wait());
        }
        self.served_disk().lose_power(left);
    }

    /// A path below its folder, as it lies on a disk that not everybody sees.
    ///
    /// # Panics
    /// When it has none.
    pub fn on_disk(&self, path: &str) -> PathBuf {
        let path = self.folder.path().join(path);
        match self.disk.as_ref().expect("it has a disk of its own") {
            Disk::Small(disk) => {
                let below = path.strip_prefix("/").expect("it is absolute");
                Path::new("/proc").join(disk.holder.id().to_string()).join("root").join(below)
            }
            Disk::Served(disk) => disk.path(&path),
        }
    }

    /// Starts a broker whose log lines cannot be written, as when their disk is full.
    ///
    /// # Panics
    /// When it doesn't come up.
    pub fn without_log() -> Broker {
        let mut broker = Broker::prepare(&[]);
        broker.format(&format!("--cluster-id {CLUSTER_ID}")).ok();
        broker.wrapper =
            ["sh", "-c", "exec \"$@\" 2> /dev/full", "without-log"].map(OsString::from).into();
        broker.start_again();
        broker
    }

    /// Starts a broker as `cargo run -- dev` does, without a file of settings: Corelane only.
    ///
    /// # Panics
    /// When it doesn't come up; its log is shown.
    pub fn dev() -> Broker {
        let folder = TempDir::with_prefix("blackbox-").expect("a folder for temporary files");
        let (port, controller_port) = free_neighbours();
        let data = folder.path().join("data").into_os_string();
        let arguments =
            vec!["dev".into(), "--data".into(), data, "--port".into(), port.to_string().into()];
        let (wrapper, processes, disk) = (Vec::new(), None, None);
        let program = Target::Corelane;
        let mut broker =
            Broker { port, controller_port, program, arguments, wrapper, folder, processes, disk };
        broker.start_again();
        broker
    }

    /// Starts a broker that must not come up on the folder of another one, with ports of its own
    /// unless `settings` say otherwise, and gives what it said.
    ///
    /// # Panics
    /// When it comes up or doesn't end.
    #[track_caller]
    pub fn fails_to_start(like: &Broker, settings: &[(&str, &str)]) -> Finished {
        let own = TempDir::with_prefix("blackbox-").expect("a folder for temporary files");
        let path = own.path().join(SETTINGS);
        let (port, controller_port) = (free_port(), free_port());
        let properties = server_properties(like.folder.path(), port, controller_port, settings);
        fs::write(&path, properties).expect("writing settings");
        Running::start(start_command(target()).args(start_of(target(), &path))).finish().fails()
    }

    /// The same for a broker that runs as a user who owns nothing: Corelane only.
    ///
    /// # Panics
    /// When it comes up or doesn't end.
    #[track_caller]
    pub fn fails_to_start_as_nobody(like: &Broker) -> Finished {
        let own = TempDir::with_prefix("blackbox-").expect("a folder for temporary files");
        let (path, program) = (own.path().join(SETTINGS), own.path().join("corelane"));
        let properties = server_properties(like.folder.path(), free_port(), free_port(), &[]);
        fs::write(&path, properties).expect("writing settings");
        fs::copy(corelane(), &program).expect("a copy that everybody can reach");
        for folder in [own.path(), like.folder.path()] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("permits");
        }
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let mut command = Command::new("setpriv");
        Running::start(command.args(nobody).arg(&program).args(start_of(Target::Corelane, &path)))
            .finish()
            .fails()
    }

    /// A broker with the usual settings that several tests use at once, each with topics and
    /// groups of its own. It ends with the process of the tests.
    pub fn shared() -> &'static Broker {
        static SHARED: LazyLock<Broker> = LazyLock::new(|| Broker::start(&[]));
        &SHARED
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where clients connect to.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Where its controller listens.
    pub fn controller_port(&self) -> u16 {
        self.controller_port
    }

    /// A connection for raw bytes, with a limit on how long a read waits.
    ///
    /// # Panics
    /// When the broker doesn't accept it.
    pub fn connect(&self) -> TcpStream {
        wire::connect(self.port).expect("the broker accepts connections")
    }

    /// Its file of settings.
    pub fn settings(&self) -> PathBuf {
        self.folder.path().join(SETTINGS)
    }

    /// A path below its folder.
    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Where the broker keeps its data.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Its process.
    ///
    /// # Panics
    /// When it doesn't run.
    pub fn pid(&self) -> u32 {
        self.processes.as_ref().expect("the broker runs").broker.id()
    }

    /// What the process holds in memory, in bytes.
    ///
    /// # Panics
    /// When the system doesn't say.
    pub fn memory_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most that the process held in memory so far, in bytes.
    ///
    /// # Panics
    /// When the system doesn't say.
    pub fn memory_bytes_most(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// Ends the process at once, as `kill -9` does.
    pub fn kill(&mut self) {
        if let Some(Processes { mut broker, mut guard }) = self.processes.take() {
            // The guard first: afterwards the id could be another process's.
            drop((guard.kill(), guard.wait()));
            drop((broker.kill(), broker.wait()));
        }
    }

    /// Asks the process to stop and waits until it did.
    ///
    /// # Panics
    /// When it takes too long.
    pub fn stop(&mut self) {
        let Some(Processes { mut broker, mut guard }) = self.processes.take() else { return };
        drop((guard.kill(), guard.wait()));
        signal(broker.id(), "TERM");
        let deadline = Instant::now() + STOP_TIME_MAX;
        while broker.try_wait().expect("it is our child").is_none() {
            if Instant::now() > deadline {
                drop((broker.kill(), broker.wait()));
                panic!("the broker still runs after {STOP_TIME_MAX:?}\n{}", self.end_of_log());
            }
            thread::sleep(CONNECT_PAUSE);
        }
    }

    /// Starts the broker on the folder that it had, and waits for its first answer.
    ///
    /// # Panics
    /// When it doesn't come up; its log is shown.
    pub fn start_again(&mut self) {
        self.launch();
        self.wait_until_ready();
    }

    /// Starts the broker on the folder that it had, and waits for nothing.
    ///
    /// # Panics
    /// When it runs already.
    pub fn launch(&mut self) {
        assert!(self.processes.is_none(), "the broker runs already");
        let log = fs::File::options().create(true).append(true).open(self.log()).expect("a log");
        let mut command = wrapped(&self.wrapper, start_command(self.program));
        command.args(&self.arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a second handle")).stderr(log);
        let broker = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let guard = start_guard(broker.id(), self.folder.path());
        self.processes = Some(Processes { broker, guard });
    }

    /// All that it logged.
    pub fn log_text(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// The last lines that it logged.
    pub fn end_of_log(&self) -> String {
        let text = self.log_text();
        let lines: Vec<&str> = text.lines().collect();
        let start = lines.len().saturating_sub(LOG_LINES_SHOWN);
        lines.get(start..).unwrap_or_default().join("\n")
    }

    fn memory(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        1024 * kilobytes.expect("the system says how much memory is in use")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("broker.log")
    }

    /// Waits until a file in the broker's folder has a line that begins so: for what a broker does
    /// some time after its answer.
    ///
    /// # Panics
    /// When it does not come in time.
    pub fn waits_for(&self, file: &str, line: &str) {
        let deadline = Instant::now() + START_TIME_MAX;
        let is_there = |text: String| text.lines().any(|found| found.starts_with(line));
        while !fs::read_to_string(self.path(file)).is_ok_and(is_there) {
            assert!(Instant::now() < deadline, "no {line} in {file}\n{}", self.end_of_log());
            thread::sleep(CONNECT_PAUSE);
        }
    }

    /// Waits for the first answer of a broker that was started.
    ///
    /// # Panics
    /// When it doesn't come up; its log is shown.
    pub fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + START_TIME_MAX;
        let port = self.port;
        loop {
            if wire::connect(port).and_then(|mut stream| wire::api_versions(&mut stream)).is_ok() {
                return;
            }
            let processes = self.processes.as_mut().expect("it was started");
            if let Some(status) = processes.broker.try_wait().expect("it is our child") {
                panic!("the broker ended: {status}\n{}", self.end_of_log());
            }
            assert!(Instant::now() < deadline, "no answer in time\n{}", self.end_of_log());
            thread::sleep(CONNECT_PAUSE);
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("--- end of the broker's log\n{}", self.end_of_log());
        }
    }
}

/// A port that nobody listens on, below those that the system hands to clients: a client that
/// tries to connect while a broker restarts could be given the broker's port as its own.
///
/// # Panics
/// When all are taken.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    for _ in 0..COUNT {
        // Processes that run at the same time begin at places of their own.
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + process::id().wrapping_mul(61).wrapping_add(step) % COUNT;
        let port = u16::try_from(port).expect("it is less than 30,000");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port from {FIRST} on is free");
}

/// The cluster of every broker that is started.
pub const CLUSTER_ID: &str = "bGFja2JveC10ZXN0cy0xMA";

const SETTINGS: &str = "server.properties";
/// In the value of a setting, the broker's own folder.
const FOLDER: &str = "{folder}";

const QUICK: &[&str] = &["-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];

/// The program under test: `CORELANE_BIN`, or what `cargo build --release` made.
///
/// # Panics
/// When it was not built.
pub fn corelane() -> PathBuf {
    let built = xtask::workspace_root().join("target/release/corelane");
    let path = env::var_os("CORELANE_BIN").map_or(built, PathBuf::from);
    assert!(path.is_file(), "{} is missing: run `cargo build --release`", path.display());
    path
}

/// The program that is or starts a broker.
fn start_command(program: Target) -> Command {
    match program {
        Target::Corelane => Command::new(corelane()),
        Target::Kafka => {
            let options = &["-Xmx768M", "-Xms256M", "-Dcorelane.log.level=info"];
            kafka::tool_with("server-start", options).unwrap_or_else(|error| panic!("{error}"))
        }
    }
}

/// The command as an argument of another one.
fn wrapped(wrapper: &[OsString], command: Command) -> Command {
    let Some((program, arguments)) = wrapper.split_first() else { return command };
    let mut outer = Command::new(program);
    outer.args(arguments).arg(command.get_program()).args(command.get_args());
    outer
}

/// What lets a broker start with a file of settings.
fn start_of(program: Target, properties: &Path) -> Vec<OsString> {
    let file = properties.as_os_str().to_owned();
    match program {
        Target::Corelane => vec!["start".into(), file],
        Target::Kafka => vec![file],
    }
}

/// A shell that waits for the end of its input, then ends the broker and removes its folder.
fn start_guard(broker: u32, folder: &Path) -> Child {
    let mut command = Command::new("sh");
    let script = r#"read _; kill -9 "$1"; rm -rf "$2""#;
    command.args(["-c", script, "guard", &broker.to_string()]).arg(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("a shell")
}

fn server_properties(
    folder: &Path,
    port: u16,
    controller_port: u16,
    settings: &[(&str, &str)],
) -> String {
    let listeners =
        format!("PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}");
    let voters = format!("1@127.0.0.1:{controller_port}");
    let data = folder.join("data").display().to_string();
    let mut lines = vec![
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        ("listeners", &listeners),
        ("controller.listener.names", "CONTROLLER"),
        ("controller.quorum.voters", &voters),
        ("log.dirs", &data),
        ("offsets.topic.replication.factor", "1"),
        ("offsets.topic.num.partitions", "4"),
        ("transaction.state.log.replication.factor", "1"),
        ("transaction.state.log.min.isr", "1"),
        // Without it, every first member of a group waits for others for three seconds.
        ("group.initial.rebalance.delay.ms", "0"),
    ];
    lines.retain(|(key, _)| !settings.iter().any(|(changed, _)| changed == key));
    lines.extend(settings);
    let folder = folder.display().to_string();
    let line = |(key, value): &(&str, &str)| format!("{key}={}\n", value.replace(FOLDER, &folder));
    lines.iter().map(line).collect()
}

/// Two such ports of which the second follows the first: `dev` has its controller there.
fn free_neighbours() -> (u16, u16) {
    loop {
        let (first, second) = (free_port(), free_port());
        if second == first + 1 {
            return (first, second);
        }
    }
}
