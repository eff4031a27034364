//! The black-box tests: what people do with Kafka's tools and clients, and what must not harm.
#![allow(clippy::disallowed_methods, reason = "tests read files and talk to sockets")]

mod admin;
mod bad_input;
mod campaign;
mod cleaning;
mod cluster;
mod compaction;
mod configs;
mod consoles;
mod controller;
mod directories;
mod disks;
mod durability;
mod exchange;
mod faults;
mod fetch;
mod format;
mod groups;
mod idempotence;
mod java;
mod kcat;
mod load;
mod logs;
mod metadata_shell;
mod perf;
mod python;
mod rebuild;
mod start;
mod topics;
