//! The compact text of Kafka's message schemas, and the Rust that is made of it.
//!
//! `cargo xtask schemas` writes the text from the JSON in Apache Kafka's jars; the build scripts of
//! `protocol` and `records` turn it into structures against `base::wire`. [`parse`] reads the text,
//! [`generate_messages`] and its siblings write the Rust.
//!
//! Depends on nothing, since it is built before everything else. Deliberately absent: JSON, jars,
//! and any meaning of a message beyond its bytes.
//!
//! A schema in the text:
//!
//! ```text
//! request FetchRequest key=1 versions=4-18 flexible=12+ listeners=broker,controller
//!   ClusterId: string 12+ null=12+ tag=0 default=null ignorable
//!   Topics: []FetchTopic 0+
//!     Partitions: []int32 0+
//! ```
//!
//! A `struct` line, indented like a field, declares a structure that several fields share. A file
//! may open with `family NAME`: its records then are the variants of one enum of that name.
#![allow(clippy::disallowed_methods, reason = "build scripts read files")]

mod code;
mod family;
mod model;
mod names;
mod parse;
mod structs;
mod tables;

pub use family::generate_family;
pub use model::{Field, Kind, Schema, SchemaFile, Structure, Type, Versions};
pub use parse::{parse, read_directory};
pub use structs::generate_messages;
pub use tables::{generate_api_keys, generate_errors, support_table};
