//! Turns `schemas/*.txt` and `errors.txt` into the Rust that the crate includes.
#![allow(clippy::disallowed_methods, reason = "a build script reads and writes files")]

use std::path::{Path, PathBuf};

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=schemas");
    println!("cargo::rerun-if-changed=errors.txt");
    let out = PathBuf::from(std::env::var("OUT_DIR").map_err(|error| error.to_string())?);
    let write = |name: &str, text: String| {
        std::fs::write(out.join(name), text).map_err(|error| error.to_string())
    };
    let files = schema::read_directory(Path::new("schemas"))?;
    let schemas = files.iter().flat_map(|file| &file.schemas);
    write("messages.rs", schema::generate_messages(schemas, "every_message", "$crate"))?;
    write("families.rs", files.iter().map(schema::generate_family).collect())?;
    write("api_keys.rs", schema::generate_api_keys(&files))?;
    let errors = std::fs::read_to_string("errors.txt").map_err(|error| error.to_string())?;
    write("errors.rs", schema::generate_errors(&errors)?)
}
