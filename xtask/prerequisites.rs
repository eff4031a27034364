//! What the tests need beyond Rust, and how a person gets it.

use std::fs::File;
use std::process::{Command, Stdio};

const JAVA_MAJOR_MIN: u32 = 17;

/// A program of the system that some command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prerequisite {
    /// Java 17 or later, with its compiler: runs Apache Kafka's tools and clients.
    Java,
    /// Fetches Apache Kafka.
    Maven,
    /// Python 3 with `venv`: runs kafka-python and confluent-kafka.
    Python,
    /// The command line of librdkafka.
    Kcat,
    /// The kernel's end of a file system in a process: has the disk that loses its power.
    Fuse,
    /// A folder of mounts for a process and those that it starts: has every disk of the tests.
    Namespaces,
}

/// Everything that `cargo xtask test` needs.
pub const ALL: &[Prerequisite] = &[
    Prerequisite::Java,
    Prerequisite::Maven,
    Prerequisite::Python,
    Prerequisite::Kcat,
    Prerequisite::Fuse,
    Prerequisite::Namespaces,
];

/// The kernel's end of a file system in a process.
const FUSE_DEVICE: &str = "/dev/fuse";

/// Says in one sentence what is missing and how to install it.
///
/// # Errors
/// That sentence.
pub fn require(prerequisite: Prerequisite) -> Result<(), String> {
    let found = match prerequisite {
        Prerequisite::Java => has_java(),
        Prerequisite::Maven => succeeds("mvn", &["--version"]),
        Prerequisite::Python => succeeds("python3", &["-c", "import venv, ensurepip"]),
        Prerequisite::Kcat => succeeds("kcat", &["-V"]),
        Prerequisite::Fuse => File::options().read(true).write(true).open(FUSE_DEVICE).is_ok(),
        Prerequisite::Namespaces => {
            let line = "mount -t tmpfs none /tmp && umount --lazy /tmp && nsenter --version";
            succeeds("unshare", &["--map-root-user", "--mount", "sh", "-c", line])
        }
    };
    if found { Ok(()) } else { Err(how_to_install(prerequisite)) }
}

/// Checks everything and gives one sentence a line for what is missing.
///
/// # Errors
/// Those sentences.
pub fn require_all() -> Result<(), String> {
    let missing: Vec<String> =
        ALL.iter().filter_map(|prerequisite| require(*prerequisite).err()).collect();
    if missing.is_empty() { Ok(()) } else { Err(missing.join("\n")) }
}

fn has_java() -> bool {
    let Ok(output) = Command::new("java").arg("-version").stdin(Stdio::null()).output() else {
        return false;
    };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    java_major(&text).is_some_and(|major| major >= JAVA_MAJOR_MIN)
        && succeeds("javac", &["-version"])
}

/// The 17 of `openjdk version "17.0.15" 2025-04-15`; of `"1.8.0"` it is 1.
fn java_major(text: &str) -> Option<u32> {
    let (_, version) = text.split_once("version \"")?;
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn how_to_install(prerequisite: Prerequisite) -> String {
    let (what, debian, fedora, brew) = match prerequisite {
        Prerequisite::Java => {
            ("Java 17 (a JDK)", "openjdk-17-jdk-headless", "java-17-openjdk-devel", "openjdk@17")
        }
        Prerequisite::Maven => ("Maven", "maven", "maven", "maven"),
        Prerequisite::Python => ("Python 3 with venv", "python3-venv", "python3", "python"),
        Prerequisite::Kcat => ("kcat", "kcat", "kcat", "kcat"),
        Prerequisite::Fuse => {
            return format!(
                "{FUSE_DEVICE} is missing or may not be opened; load it with `modprobe fuse`, \
                 permit it with `chmod 666 {FUSE_DEVICE}`, or start the container with `--device \
                 {FUSE_DEVICE}`"
            );
        }
        Prerequisite::Namespaces => {
            return "nobody may mount a disk for himself (`unshare --map-root-user --mount`); \
                    install it with `apt-get install util-linux mount` (Debian, Ubuntu), permit \
                    it with `sysctl kernel.unprivileged_userns_clone=1 \
                    kernel.apparmor_restrict_unprivileged_userns=0`, or start the container with \
                    `--cap-add SYS_ADMIN --security-opt seccomp=unconfined`"
                .to_owned();
        }
    };
    format!(
        "{what} is missing; install it with `apt-get install {debian}` (Debian, Ubuntu), \
         `dnf install {fedora}` (Fedora) or `brew install {brew}` (macOS)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_java() {
        let check = |text: &str, expected| assert_eq!(java_major(text), expected, "{text}");
        check("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK", Some(17));
        check("java version \"1.8.0_202\"", Some(1));
        check("openjdk version \"21\" 2023-09-19", Some(21));
        check("command not found", None);
    }
}
