//! The project's own commands: what `cargo xtask` runs, as functions.
//!
//! Depends on: nothing of this workspace but `schema`, so that it builds and judges a tree that is
//! broken.
//! Deliberately absent: anything that a running broker needs. The black-box tests use [`kafka`]
//! too, so that they start Apache Kafka's tools exactly as `cargo xtask kafka` does.
#![allow(
    clippy::disallowed_methods,
    reason = "these commands read files, wait for processes and look at the clock: it is their job"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "they talk to a person")]

pub mod config_keys;
pub mod kafka;
pub mod prerequisites;
pub mod schemas;
pub mod sim;
pub mod test;
pub mod tidy;
pub mod tree;

use std::path::PathBuf;

/// The folder of the workspace: where `Cargo.toml`, `xtask/` and `target/` are.
pub fn workspace_root() -> PathBuf {
    let xtask = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask lies inside the workspace").to_path_buf()
}
