//! Turns `schemas/*.txt` into the Rust that the module `files` includes.
#![allow(clippy::disallowed_methods, reason = "a build script reads and writes files")]

use std::path::{Path, PathBuf};

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=schemas");
    let out = PathBuf::from(std::env::var("OUT_DIR").map_err(|error| error.to_string())?);
    let files = schema::read_directory(Path::new("schemas"))?;
    let schemas = files.iter().flat_map(|file| &file.schemas);
    let text = schema::generate_messages(schemas, "every_file_message", "$crate::files");
    std::fs::write(out.join("files.rs"), text).map_err(|error| error.to_string())
}
