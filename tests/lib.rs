//! The harness of the black-box tests: a broker in a process of its own, and the programs that
//! people use against it.
//!
//! The same tests run against Apache Kafka itself with `CORELANE_TEST_TARGET=kafka`: what a test
//! expects was seen there first. Depends on: `xtask`, for Kafka's tools. Deliberately absent: any
//! crate of the broker, since a test that shares code with what it judges shares its mistakes.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start processes, wait for them and talk to sockets"
)]
#![allow(clippy::print_stderr, reason = "what a failed test shows")]

mod broker;
mod process;
mod tools;
pub mod wire;

pub use broker::{Broker, CLUSTER_ID, Target, corelane, free_port, target};
pub use process::{Finished, PAUSE, Running, TIME_MAX, allow_open_files, await_that};
pub use tools::{compiled, kcat, python, quick_java};

/// Whether each line of `text` fits the line of `expected` in its place; `*` stands for any
/// characters. Empty lines at the end don't count.
pub fn text_fits(text: &str, expected: &str) -> bool {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let patterns: Vec<&str> = expected.trim_end().lines().collect();
    lines.len() == patterns.len()
        && lines.iter().zip(&patterns).all(|(line, pattern)| fits(line, pattern))
}

/// Whether a line fits a pattern in which `*` stands for any characters.
pub fn fits(line: &str, pattern: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        match rest.split_once(piece) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let check = |line, pattern, expected| assert_eq!(fits(line, pattern), expected, "{line}");
        check("abc", "abc", true);
        check("abc", "a*", true);
        check("abc", "*c", true);
        check("abc", "a*c", true);
        check("abc", "a*d", false);
        check("abcd", "abc", false);
        check("a1b2c", "a*b*c", true);
        check("a1c", "a*b*c", false);
        check("", "*", true);
    }
}
