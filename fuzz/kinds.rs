use std::fmt::Debug;

use base::wire::{DecodeError, EncodeError, Message, Reader};
use bytes::Bytes;

/// One message that is generated from a schema, its type forgotten.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The name in the schema.
    pub name: &'static str,
    /// The first version.
    pub first: i16,
    /// The last version.
    pub last: i16,
    /// Reads it in the first version given and writes it in the second one.
    pub recode: fn(Bytes, i16, i16) -> Result<Recoded, DecodeError>,
}

/// What reading a message and writing it again gave.
#[derive(Clone, Debug)]
pub struct Recoded {
    /// The bytes of the message, or why the version cannot carry it.
    pub written: Result<Bytes, EncodeError>,
    /// How many bytes followed the message that was read.
    pub left: usize,
}

impl Kind {
    const fn of<M: Message + Debug>() -> Kind {
        let (first, last) = (*M::VERSIONS.start(), *M::VERSIONS.end());
        Kind { name: M::NAME, first, last, recode: recode::<M> }
    }

    /// Every message of `protocol`, and every one that `records` has for files.
    pub fn all() -> impl Iterator<Item = &'static Kind> {
        WIRE_KINDS.iter().chain(FILE_KINDS)
    }

    /// The message with this name.
    pub fn named(name: &str) -> Option<&'static Kind> {
        Kind::all().find(|kind| kind.name == name)
    }
}

fn recode<M: Message>(bytes: Bytes, from: i16, to: i16) -> Result<Recoded, DecodeError> {
    let mut reader = Reader::new(bytes);
    let message = M::decode(&mut reader, from)?;
    // Measuring and writing are compared by `to_bytes`' exact size: it must not grow or be short.
    let written = message.to_bytes(to);
    if let Ok(written) = &written {
        assert_eq!(message.encoded_size(to), Ok(written.len()), "{} measures wrong", M::NAME);
    }
    Ok(Recoded { written, left: reader.remaining() })
}

macro_rules! wire_kinds {
    ($($message:path,)*) => {
        const WIRE_KINDS: &[Kind] = &[$(Kind::of::<$message>()),*];
    };
}

macro_rules! file_kinds {
    ($($message:path,)*) => {
        const FILE_KINDS: &[Kind] = &[$(Kind::of::<$message>()),*];
    };
}

protocol::every_message!(wire_kinds);
records::every_file_message!(file_kinds);
