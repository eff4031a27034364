//! How much memory there is.

use std::fs;

/// Where the kernel says how much memory the machine has.
const MEMINFO: &str = "/proc/meminfo";
/// Where it says how much a container may use: cgroups of the second version, then of the first.
const CONTAINER_LIMITS: [&str; 2] =
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
/// Assumed where nothing is said.
const ASSUMED_BYTES: u64 = 2 << 30;
/// A tenth of the memory may wait for disks: there the kernel begins to write on its own
/// (`vm.dirty_background_ratio`), and half way to twice as much it makes writers wait
/// (`vm.dirty_ratio`).
const DIRTY_SHARE: u64 = 10;
/// What one disk may lag behind at least.
const DIRTY_BYTES_MIN: u64 = 64 << 20;

/// What may be written into one of so many log directories and wait for its disk.
pub(crate) fn dirty_bytes_max(directories: usize) -> u64 {
    let share = memory_bytes() / DIRTY_SHARE / directories.max(1) as u64;
    share.max(DIRTY_BYTES_MIN)
}

/// What this process may use of the machine's memory.
fn memory_bytes() -> u64 {
    let machine = fs::read_to_string(MEMINFO).ok().and_then(|text| total_of(&text));
    let limit = |path: &&str| fs::read_to_string(path).ok()?.trim().parse().ok();
    let container = CONTAINER_LIMITS.iter().find_map(limit);
    machine.into_iter().chain(container).min().unwrap_or(ASSUMED_BYTES)
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_in_bytes() {
        let text = "MemTotal:       24553132 kB\nMemFree:        1 kB\n";
        assert_eq!(total_of(text), Some(24_553_132 * 1024));
        assert_eq!(total_of("MemFree: 1 kB"), None);
    }

    #[test]
    fn more_directories_have_smaller_shares() {
        assert!(dirty_bytes_max(1) >= dirty_bytes_max(4));
        assert_eq!(dirty_bytes_max(usize::MAX), DIRTY_BYTES_MIN);
    }
}
