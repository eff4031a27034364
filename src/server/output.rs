//! What a person sees: lines of commands on standard output, log lines on standard error.

use std::io::{IsTerminal, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The variable that chooses the log lines, such as `info` or `broker=debug`.
const LOG_VARIABLE: &str = "CORELANE_LOG";
/// What is shown where it says nothing, or nothing that can be understood.
const DEFAULT_FILTER: &str = "info";

/// Log lines go to standard error from now on.
pub(crate) fn start_logging() {
    let wanted = std::env::var(LOG_VARIABLE).unwrap_or_default();
    let filter = filter(&wanted).unwrap_or_else(|sentence| {
        error(&sentence);
        EnvFilter::new(DEFAULT_FILTER)
    });
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // A line that cannot be written, because the disk is full or the reader of a pipe has gone,
        // is lost. To complain of it would be to write to standard error again, and to panic.
        .log_internal_errors(false);
    // A second call would be a bug that shows as doubled lines; the first subscriber stays.
    let _ = lines.try_init();
}

/// What chooses the lines. A word alone would be a part of the program whose lines are shown, and
/// none of the others': it is a level with a slip of the pen, most likely.
fn filter(wanted: &str) -> Result<EnvFilter, String> {
    let is_unknown = |word: &&str| !word.contains('=') && word.parse::<LevelFilter>().is_err();
    if wanted.is_empty() {
        return Ok(EnvFilter::new(DEFAULT_FILTER));
    }
    match wanted.split(',').map(str::trim).find(is_unknown) {
        Some(word) => Err(format!(
            "{LOG_VARIABLE}: `{word}` is no level (off, error, warn, info, debug, trace); log \
             lines from {DEFAULT_FILTER} on follow"
        )),
        None => EnvFilter::try_new(wanted).map_err(|error| {
            format!("{LOG_VARIABLE}: {error}; log lines from {DEFAULT_FILTER} on follow")
        }),
    }
}

/// One line of a command's answer. A reader that has gone away is no fault of the command.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Why a command failed.
pub(crate) fn error(sentence: &str) {
    let _ = writeln!(std::io::stderr(), "corelane: {sentence}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_parts_are_understood_and_slips_are_told() {
        for wanted in ["", "warn", "WARN", "broker=debug", "info,broker=trace", "off"] {
            assert!(filter(wanted).is_ok(), "{wanted}");
        }
        for (wanted, word) in [("warning", "`warning`"), ("info,nonsense", "`nonsense`")] {
            let sentence = filter(wanted).expect_err("no level");
            assert!(sentence.contains(word), "{sentence}");
        }
        assert!(filter("broker=loud").is_err());
    }
}
