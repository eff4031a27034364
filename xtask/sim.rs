//! `cargo xtask sim …`: builds the simulator as fast as it needs to be, and runs it.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use crate::workspace_root;

/// Runs the simulator with these arguments. Returns its exit code.
///
/// # Errors
/// If cargo cannot be started or was ended by a signal.
pub fn run(arguments: &[String]) -> Result<u8, String> {
    let program = env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let mut command = Command::new(program);
    command.args(["run", "--quiet", "--profile", "sim", "--package", "sim", "--"]);
    command.args(arguments).current_dir(workspace_root());
    let status = command.status().map_err(|error| format!("starting cargo: {error}"))?;
    let code = status.code().ok_or_else(|| format!("the simulator ended by itself: {status}"))?;
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}
