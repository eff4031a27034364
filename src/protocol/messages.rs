//! The generated structures, a module for each message.
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

use crate::ErrorCode;

include!(concat!(env!("OUT_DIR"), "/messages.rs"));
