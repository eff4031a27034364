//! What a person sees: lines of commands on standard output, log lines on standard error.

use std::io::{IsTerminal, Write};

use tracing_subscriber::EnvFilter;

/// The variable that chooses the log lines, such as `info` or `broker=debug`.
const LOG_VARIABLE: &str = "CORELANE_LOG";

/// Log lines go to standard error from now on.
pub(crate) fn start_logging() {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
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

/// One line of a command's answer. A reader that has gone away is no fault of the command.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Why a command failed.
pub(crate) fn error(sentence: &str) {
    let _ = writeln!(std::io::stderr(), "corelane: {sentence}");
}
