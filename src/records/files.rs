//! What stands in files as messages of a schema: control records of the quorum and of
//! transactions, the heads and feet of snapshots, the quorum's state, snapshots of producers, and
//! entries of the transaction index. Generated from `schemas/`, a module for each.
//!
//! They are here and not in `protocol`, since logs and raft do not know the wire.
#![allow(
    missing_docs,
    unused_variables,
    unused_mut,
    dead_code,
    unused_imports,
    clippy::all,
    reason = "generated: the schema is the text to read"
)]

use base::Uuid;
use base::wire::{
    DecodeError, EncodeError, Message, Reader, Records, Str, UNKNOWN_TAGS_END, UnknownTags, Writer,
};
use bytes::Bytes;

include!(concat!(env!("OUT_DIR"), "/files.rs"));
