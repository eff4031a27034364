//! `corelane`: the command line, the system that a node stands on, and its start.
//!
//! This is the one crate under `src/` that touches the system: it reads the configuration, formats,
//! checks and locks data directories, sets up log lines, and puts the machines of [`node`] on
//! pinned threads of the [`runtime`]. Apart from that it shows people the metadata in their files.

mod cli;
mod dev;
mod directories;
mod format;
mod layout;
mod listeners;
mod memory;
mod output;
mod shell;
mod start;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let result = match cli.command {
        cli::Command::Dev(options) => dev::run(&options),
        cli::Command::Start(options) => start::run(&options),
        cli::Command::Format(options) => format::run(&options),
        cli::Command::RandomUuid => format::random_uuid(),
        cli::Command::MetadataShell(options) => shell::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            output::error(&sentence);
            ExitCode::FAILURE
        }
    }
}
