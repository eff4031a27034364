//! The generated enums of the records that share a log.
#![allow(clippy::large_enum_variant, reason = "one record at a time is held, on the stack")]

use base::wire::{DecodeError, EncodeError, Message, Reader, Writer};
use bytes::Bytes;

use crate::coordinator::{key_bytes, record_value, value_bytes};
use crate::messages::*;

include!(concat!(env!("OUT_DIR"), "/families.rs"));
