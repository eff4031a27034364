//! What the kernel and its limits allow, said before anything is started.

use std::fmt;
use std::io;
use std::mem;

use io_uring::{Probe as Supported, opcode};

use crate::error::checked;
use crate::ring::build;

/// Below this many open files a node with a few hundred connections and partitions gets stuck.
const OPEN_FILES_ADVISED: u64 = 8_192;
/// How a container is told to allow io_uring.
const CONTAINER_HINT: &str = "allow io_uring_setup, io_uring_enter and io_uring_register in the \
    container's seccomp profile (Docker: --security-opt seccomp=PROFILE.json, Kubernetes: \
    securityContext.seccompProfile)";

/// What was found.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The kernel's version, as it names itself.
    pub kernel: String,
    /// How many files the process may have open.
    pub open_files_max: u64,
    /// Sentences about what works but could be better.
    pub advice: Vec<String>,
}

/// Why nothing can run here: a sentence each, with how to allow it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Missing(pub Vec<String>);

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.join(" "))
    }
}

/// Asks the kernel for everything that is needed, and tries it where asking is not enough.
///
/// # Errors
/// Something is missing without which nothing works.
pub fn probe() -> Result<Probe, Missing> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned());
    let ring = build(8, 16).map_err(|error| Missing(vec![refusal(&error, &kernel)]))?;
    let mut supported = Supported::new();
    ring.submitter()
        .register_probe(&mut supported)
        .map_err(|error| Missing(vec![refusal(&error, &kernel)]))?;
    let missing: Vec<String> = needed_opcodes()
        .into_iter()
        .filter(|(code, _)| !supported.is_supported(*code))
        .map(|(_, name)| {
            format!(
                "Kernel {kernel} has no io_uring operation {name}: Linux 6.1 or later is needed."
            )
        })
        .collect();
    if !missing.is_empty() {
        return Err(Missing(missing));
    }
    let open_files_max = open_files_limit().map_or(1_024, |limit| limit.rlim_cur);
    let mut advice = Vec::new();
    if open_files_max < OPEN_FILES_ADVISED {
        advice.push(format!(
            "The process may open only {open_files_max} files, connections included; allow more \
             with `ulimit -n 100000` or LimitNOFILE=100000 in the systemd unit."
        ));
    }
    if !ring.params().is_feature_no_iowait() {
        advice.push(format!(
            "Kernel {kernel} counts a core that waits for work as waiting for the disk (iowait); \
             Linux 6.15 or later does not. Only the display of load is affected."
        ));
    }
    Ok(Probe { kernel, open_files_max, advice })
}

/// Raises the number of files that the process may open as far as it may itself (the hard limit),
/// as a JVM does.
///
/// # Errors
/// The kernel refuses.
pub fn raise_open_files_limit() -> io::Result<()> {
    let mut limit = open_files_limit()?;
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the structure outlives the call.
        checked(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } as isize)?;
    }
    Ok(())
}

fn open_files_limit() -> io::Result<libc::rlimit> {
    // SAFETY: all zeros is a value of this structure of numbers, and it outlives the call.
    unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        checked(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) as isize)?;
        Ok(limit)
    }
}

fn needed_opcodes() -> [(u8, &'static str); 11] {
    [
        (opcode::PollAdd::CODE, "POLL_ADD"),
        (opcode::AcceptMulti::CODE, "ACCEPT"),
        (opcode::Read::CODE, "READ"),
        (opcode::Fsync::CODE, "FSYNC"),
        (opcode::SyncFileRange::CODE, "SYNC_FILE_RANGE"),
        (opcode::Fallocate::CODE, "FALLOCATE"),
        (opcode::Close::CODE, "CLOSE"),
        (opcode::UnlinkAt::CODE, "UNLINKAT"),
        (opcode::Fadvise::CODE, "FADVISE"),
        (opcode::AsyncCancel::CODE, "ASYNC_CANCEL"),
        (opcode::MsgRingData::CODE, "MSG_RING"),
    ]
}

fn refusal(error: &io::Error, kernel: &str) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => format!(
            "io_uring is not there: kernel {kernel} is built without it (CONFIG_IO_URING), is \
             older than Linux 6.1, or a sandbox hides it; in a container {CONTAINER_HINT}."
        ),
        Some(libc::EPERM | libc::EACCES) => match disabled_setting().as_deref() {
            Some(setting @ ("1" | "2")) => format!(
                "io_uring is switched off on this host (kernel.io_uring_disabled = {setting}): \
                 switch it on with `sysctl -w kernel.io_uring_disabled=0`."
            ),
            _ => format!("io_uring is not permitted to this process: {CONTAINER_HINT}."),
        },
        Some(libc::EINVAL) => format!(
            "Kernel {kernel} is too old: io_uring with SINGLE_ISSUER and DEFER_TASKRUN needs Linux \
             6.1 or later."
        ),
        Some(libc::ENOMEM) => format!(
            "There is no memory for io_uring ({error}): raise the limit of locked memory with \
             `ulimit -l unlimited` or LimitMEMLOCK=infinity in the systemd unit, or the memory of \
             the container."
        ),
        Some(libc::EMFILE | libc::ENFILE) => format!(
            "There is no file descriptor left for io_uring ({error}): allow more with `ulimit -n \
             100000` or LimitNOFILE=100000 in the systemd unit."
        ),
        _ => format!("io_uring cannot be set up on kernel {kernel}: {error}."),
    }
}

fn disabled_setting() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    Some(text.trim().to_owned())
}
