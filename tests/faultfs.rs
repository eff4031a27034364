//! The process that serves a disk which loses what was not synced: [`faultfs::serve`].

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    faultfs::serve(&arguments)
}
