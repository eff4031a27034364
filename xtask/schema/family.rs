use std::fmt::Write;

use crate::model::{Kind, Schema, SchemaFile};

/// The Rust of the enum of a file's family, or nothing if its schemas are none.
pub fn generate_family(file: &SchemaFile) -> String {
    let Some(family) = &file.family else { return String::new() };
    let is_metadata = file.schemas.iter().all(|schema| schema.kind == Kind::Metadata);
    if is_metadata { metadata(family, &file.schemas) } else { coordinator(family, &file.schemas) }
}

fn metadata(family: &str, schemas: &[Schema]) -> String {
    let (mut variants, mut kinds, mut reads, mut puts, mut from) = Default::default();
    for schema in schemas {
        let (name, key) = (schema.name(), schema.key.unwrap_or_default());
        let variant = name.strip_suffix("Record").unwrap_or(name);
        append(&mut variants, format!("/// Type {key}.\n{variant}({name}),"));
        append(&mut kinds, format!("{family}::{variant}(_) => {key},"));
        append(
            &mut reads,
            format!("{key} => {family}::{variant}({name}::decode(reader, version)?),"),
        );
        append(
            &mut puts,
            format!("{family}::{variant}(record) => record.encode(writer, version),"),
        );
        append(
            &mut from,
            format!(
                "impl From<{name}> for {family} {{
                    fn from(record: {name}) -> Self {{ {family}::{variant}(record) }} }}"
            ),
        );
    }
    format!(
        "/// One record, of any type of its log.
        #[derive(Clone, Debug, PartialEq)]
        pub enum {family} {{ {variants} }}
        impl {family} {{
            /// The type of the record (`apiKey` in its schema).
            pub const fn kind(&self) -> i16 {{ match self {{ {kinds} }} }}
            /// Reads the body of a record of type `kind` in `version`.
            pub fn decode_body(
                kind: i16, version: i16, reader: &mut Reader,
            ) -> Result<Self, DecodeError> {{
                Ok(match kind {{
                    {reads}
                    _ => return Err(DecodeError::UnknownRecord {{
                        family: \"{family}\", kind: i32::from(kind) }}),
                }})
            }}
            /// Writes the body in `version`, without a frame around it.
            pub fn encode_body(&self, writer: &mut Writer, version: i16) {{
                match self {{ {puts} }}
            }}
        }}
        {from}"
    )
}

fn coordinator(family: &str, schemas: &[Schema]) -> String {
    let (mut variants, mut decodes, mut encodes, mut kinds) = Default::default();
    for key in schemas.iter().filter(|schema| schema.kind == Kind::CoordinatorKey) {
        let name = key.name();
        let stem = name.strip_suffix("Key").unwrap_or(name);
        let kind = key.key.unwrap_or_default();
        append(
            &mut variants,
            format!(
                "/// Type {kind}: its key, and its value unless it is a tombstone.\n\
                 {stem}({name}, Option<{stem}Value>),"
            ),
        );
        append(
            &mut decodes,
            format!(
                "{kind} => {family}::{stem}({name}::decode(&mut reader, 0)?, \
                 record_value(value)?),"
            ),
        );
        append(
            &mut encodes,
            format!(
                "{family}::{stem}(key, value) => Ok((
                    key_bytes({kind}, key)?, value_bytes(value.as_ref(), version)?)),"
            ),
        );
        append(&mut kinds, format!("{family}::{stem}(..) => {kind},"));
    }
    format!(
        "/// One record of an internal topic, of any type.
        #[derive(Clone, Debug, PartialEq)]
        pub enum {family} {{
            {variants}
            /// A type that this version does not know, kept byte for byte.
            Unknown {{
                /// The key, which begins with the type.
                key: Bytes,
                /// The value; none is a tombstone.
                value: Option<Bytes>,
            }},
        }}
        impl {family} {{
            /// The type of the record, which its key begins with; −1 for an unknown one.
            pub const fn kind(&self) -> i16 {{
                match self {{ {kinds} {family}::Unknown {{ .. }} => -1 }}
            }}
            /// Reads a record from its key and value.
            ///
            /// # Errors
            /// If the type is known and the bytes are not what it should be, or the version of the
            /// value is not known.
            pub fn decode(key: &Bytes, value: Option<&Bytes>) -> Result<Self, DecodeError> {{
                let mut reader = Reader::new(key.clone());
                Ok(match reader.i16()? {{
                    {decodes}
                    _ => {family}::Unknown {{ key: key.clone(), value: value.cloned() }},
                }})
            }}
            /// The bytes of key and value, the value in `version`.
            pub fn encode(&self, version: i16) -> Result<(Bytes, Option<Bytes>), EncodeError> {{
                match self {{
                    {encodes}
                    {family}::Unknown {{ key, value }} => Ok((key.clone(), value.clone())),
                }}
            }}
        }}"
    )
}

fn append(out: &mut String, line: String) {
    let _ = writeln!(out, "{line}");
}
