use std::fmt::Write;

use crate::code::{
    When, default_value, differs_from_default, is_error_code, method, rust_type, type_name,
};
use crate::model::{Field, Schema, Structure, Type, Versions};
use crate::names::snake;

/// The Rust of messages: a module for each, with its structures in it.
///
/// The text expects to be included where `use` of `super::*` in a child module finds `ErrorCode`
/// and everything of `base::wire`, `base::Uuid` and `bytes::Bytes`. `macro_name` is a macro that is
/// defined to call another with the paths of all messages, which are reached below `path` (`$crate`
/// or a module of it).
pub fn generate_messages<'a>(
    schemas: impl IntoIterator<Item = &'a Schema>,
    macro_name: &str,
    path: &str,
) -> String {
    let mut out = String::new();
    let mut paths = String::new();
    for schema in schemas.into_iter().filter(|schema| !schema.versions.is_empty()) {
        let (module, name) = (snake(schema.name()), schema.name());
        let _ = writeln!(out, "/// The structures of {name}.\npub mod {module} {{\nuse super::*;");
        message(&mut out, schema);
        for structure in schema.structures() {
            Generator { structure: &structure, schema }.write(&mut out);
        }
        let _ = writeln!(out, "}}\npub use {module}::{name};");
        let _ = write!(paths, "{path}::{name}, ");
    }
    let _ = writeln!(
        out,
        "/// Calls the macro `$callback` with the paths of all messages of this crate.\n\
         #[macro_export]\nmacro_rules! {macro_name} {{\n\
         ($callback:ident) => {{ $callback! {{ {paths} }} }};\n}}"
    );
    out
}

fn message(out: &mut String, schema: &Schema) {
    let (name, Versions { first, last }) = (schema.name(), schema.versions);
    let _ = writeln!(
        out,
        "impl Message for {name} {{
            const NAME: &'static str = \"{name}\";
            const VERSIONS: std::ops::RangeInclusive<i16> = {first}..={last};
            fn decode(reader: &mut Reader, version: i16) -> Result<Self, DecodeError> {{
                if !Self::VERSIONS.contains(&version) {{
                    return Err(DecodeError::UnsupportedVersion {{ message: Self::NAME, version }});
                }}
                Self::read(reader, version)
            }}
            fn encode(&self, writer: &mut Writer, version: i16) {{
                if !Self::VERSIONS.contains(&version) {{
                    return writer.fail(EncodeError::UnsupportedVersion {{
                        message: Self::NAME, version
                    }});
                }}
                self.put(writer, version);
            }}
        }}"
    );
}

struct Generator<'a> {
    structure: &'a Structure,
    schema: &'a Schema,
}

impl Generator<'_> {
    fn write(&self, out: &mut String) {
        self.declaration(out);
        self.default(out);
        let _ = writeln!(out, "impl {} {{", self.structure.name);
        self.read(out);
        self.put(out);
        if self.is_element() {
            self.elements(out);
        }
        out.push_str("}\n");
    }

    /// The versions in which the structure's code runs.
    fn range(&self) -> Versions {
        self.structure.versions.and(self.schema.versions)
    }

    fn flexible(&self) -> When {
        When::of(self.schema.flexible, self.range())
    }

    fn flexible_of(&self, field: &Field) -> String {
        if field.inflexible { "false".to_owned() } else { self.flexible().named("flexible") }
    }

    fn present(&self, field: &Field) -> When {
        When::of(field.versions, self.range())
    }

    /// Whether null may be written, in the versions that have the field.
    fn nullable(&self, field: &Field) -> When {
        When::of(field.nullable, field.versions.and(self.range()))
    }

    fn tagged(&self) -> Vec<&Field> {
        let fields = self.structure.fields.iter().filter(|field| field.tag.is_some());
        let mut tagged: Vec<_> = fields.collect();
        tagged.sort_by_key(|field| field.tag);
        tagged
    }

    fn is_element(&self) -> bool {
        let array = Type::Array(Box::new(Type::Structure(self.structure.name.clone())));
        let structures = self.schema.structures();
        structures.iter().any(|other| other.fields.iter().any(|field| field.of == array))
    }

    fn declaration(&self, out: &mut String) {
        let name = &self.structure.name;
        let _ = writeln!(
            out,
            "/// Versions {}.\n#[derive(Clone, Debug, PartialEq)]\npub struct {name} {{",
            self.range()
        );
        for field in &self.structure.fields {
            let mut doc = format!("`{}`, versions {}", field.of, field.versions);
            if field.is_option() {
                let _ = write!(doc, ", null in {}", field.nullable);
            }
            if let Some(default) = &field.default {
                let _ = write!(doc, ", default {default}");
            }
            let mut rust = rust_type(field);
            if field.is_option() {
                rust = format!("Option<{rust}>");
            }
            let _ = writeln!(out, "/// {doc}.\npub {}: {rust},", snake(&field.name));
        }
        out.push_str("/// Tagged fields that the schema does not know.\n");
        out.push_str("pub unknown_tags: UnknownTags,\n}\n");
    }

    fn default(&self, out: &mut String) {
        let name = &self.structure.name;
        let _ = writeln!(out, "impl Default for {name} {{ fn default() -> Self {{ Self {{");
        for field in &self.structure.fields {
            let _ = writeln!(out, "{}: {},", snake(&field.name), default_value(field));
        }
        out.push_str("unknown_tags: UnknownTags(Vec::new()) } } }\n");
    }

    fn head(&self, out: &mut String) {
        if let When::If(condition) = self.flexible() {
            let _ = writeln!(out, "let flexible = {condition};");
        }
    }

    fn read(&self, out: &mut String) {
        out.push_str("fn read(reader: &mut Reader, version: i16) -> Result<Self, DecodeError> {\n");
        out.push_str("let mut message = Self::default();\n");
        self.head(out);
        for field in self.structure.fields.iter().filter(|field| field.tag.is_none()) {
            let present = self.present(field);
            let value = self.read_field(field, &self.flexible_of(field));
            let assignment = format!("message.{} = {value};", snake(&field.name));
            let _ = writeln!(out, "{}", present.choose(&assignment, ""));
        }
        let tags = self.flexible().choose(&self.read_tags(), "");
        let _ = writeln!(out, "{tags}\nOk(message)\n}}");
    }

    fn read_tags(&self) -> String {
        let mut arms = String::new();
        for field in self.tagged() {
            let tag = field.tag.unwrap_or_default();
            let refuse = "return Err(DecodeError::TagNotInVersion { tag, version });";
            let value = self.read_field(field, "true");
            let assignment = format!(
                "message.{} = {value};\nreader.tag_end(tag, start, end)?;",
                snake(&field.name)
            );
            let body = self.present(field).choose(&assignment, refuse);
            let _ = writeln!(arms, "{tag} => {{ {body} }}");
        }
        if arms.is_empty() {
            return "reader.unknown_tags(&mut message.unknown_tags)?;".to_owned();
        }
        format!(
            "for _ in 0..reader.tag_count()? {{
                let (tag, end) = reader.tag()?;
                let start = reader.position();
                match tag {{
                    {arms}
                    _ => reader.unknown_tag(&mut message.unknown_tags, tag, end)?,
                }}
            }}"
        )
    }

    /// An expression that reads a field, of the field's type.
    fn read_field(&self, field: &Field, flexible: &str) -> String {
        let name = &field.name;
        let wrap = |value: String| if field.is_option() { format!("Some({value})") } else { value };
        let nullable = self.nullable(field);
        match &field.of {
            Type::String => nullable.choose(
                &format!("reader.nullable_string({flexible}, \"{name}\")?"),
                &wrap(format!("reader.string({flexible}, \"{name}\")?")),
            ),
            Type::Bytes => nullable.choose(
                &format!("reader.nullable_bytes({flexible})?"),
                &wrap(format!("reader.bytes({flexible}, \"{name}\")?")),
            ),
            Type::Records => nullable.choose(
                &format!("reader.nullable_bytes({flexible})?.map(Records::Bytes)"),
                &wrap(format!("Records::Bytes(reader.bytes({flexible}, \"{name}\")?)")),
            ),
            Type::Array(of) => {
                let elements = read_elements(of, flexible, name);
                nullable.choose(
                    &format!(
                        "match reader.nullable_array({flexible}, \"{name}\")? {{
                            Some(count) => Some({elements}), None => None }}"
                    ),
                    &wrap(format!(
                        "{{ let count = reader.array({flexible}, \"{name}\")?; {elements} }}"
                    )),
                )
            }
            Type::Structure(of) => {
                let absent = match field.tag {
                    Some(_) => "reader.unsigned_varint()? == 0",
                    None => "reader.i8()? < 0",
                };
                let value = format!("{of}::read(reader, version)?");
                nullable.choose(
                    &format!("if {absent} {{ None }} else {{ Some({value}) }}"),
                    &wrap(value.clone()),
                )
            }
            _ if is_error_code(field) => "ErrorCode(reader.i16()?)".to_owned(),
            scalar => format!("reader.{}()?", method(scalar)),
        }
    }

    fn put(&self, out: &mut String) {
        out.push_str("fn put(&self, writer: &mut Writer, version: i16) {\n");
        self.head(out);
        for field in self.structure.fields.iter().filter(|field| field.tag.is_none()) {
            let value = self.put_field(field, &self.flexible_of(field), "writer");
            let _ = writeln!(out, "{}", self.present(field).choose(&value, &self.refuse(field)));
        }
        let put_tags = self.put_tags();
        let mut no_tags = "writer.no_tags(&self.unknown_tags, version);".to_owned();
        for field in self.tagged() {
            no_tags.push_str(&self.refuse(field));
        }
        let _ = writeln!(out, "{}\n}}", self.flexible().choose(&put_tags, &no_tags));
    }

    /// What is done with a value that the version cannot carry.
    fn refuse(&self, field: &Field) -> String {
        if field.ignorable {
            return String::new();
        }
        let name = &field.name;
        let differs = differs_from_default(field, &place(field));
        format!(
            "if {differs} {{
                writer.fail(EncodeError::FieldNotInVersion {{ field: \"{name}\", version }}); }}"
        )
    }

    fn put_tags(&self) -> String {
        let tagged = self.tagged();
        if tagged.is_empty() {
            return "writer.tag_count(0, &self.unknown_tags);\n\
                    writer.unknown_tags(&self.unknown_tags, 0, UNKNOWN_TAGS_END);"
                .to_owned();
        }
        let mut out = "let mut known = 0;\n".to_owned();
        let mut body = String::new();
        let mut from = 0;
        for field in tagged {
            let tag = field.tag.unwrap_or_default();
            let differs = differs_from_default(field, &place(field));
            let count = format!("if {differs} {{ known += 1; }}");
            let _ = writeln!(out, "{}", self.present(field).choose(&count, &self.refuse(field)));
            let write = format!(
                "if {differs} {{
                    let mut size = Writer::counting();
                    let sizing = &mut size;
                    {}
                    writer.tag({tag}, size.len());
                    {}
                }}",
                self.put_field(field, "true", "sizing"),
                self.put_field(field, "true", "writer"),
            );
            let _ = writeln!(
                body,
                "writer.known_tag(&self.unknown_tags, {tag});
                writer.unknown_tags(&self.unknown_tags, {from}, {tag});
                {}",
                self.present(field).choose(&write, "")
            );
            from = tag + 1;
        }
        format!(
            "{out} writer.tag_count(known, &self.unknown_tags);\n{body}\
             writer.unknown_tags(&self.unknown_tags, {from}, UNKNOWN_TAGS_END);"
        )
    }

    /// Statements that write a field to `writer`.
    fn put_field(&self, field: &Field, flexible: &str, writer: &str) -> String {
        let name = &field.name;
        let value =
            |place: &str, borrowed: &str| put_value(field, flexible, writer, place, borrowed);
        if !field.is_option() {
            let place = place(field);
            return value(&place, &format!("&{place}"));
        }
        let null = match (&field.of, field.tag) {
            (Type::String, _) => format!("{writer}.null_string({flexible});"),
            (Type::Structure(_), Some(_)) => format!("{writer}.i8(0);"),
            (Type::Structure(_), None) => format!("{writer}.i8(-1);"),
            _ => format!("{writer}.null({flexible});"),
        };
        let refuse = format!("{writer}.fail(EncodeError::Null {{ field: \"{name}\" }});");
        let mut some = value("value", "value");
        if matches!(field.of, Type::Structure(_)) {
            let marked = format!("{writer}.i8(1);");
            some = format!("{} {some}", self.nullable(field).choose(&marked, ""));
        }
        format!(
            "match &{} {{ Some(value) => {{ {some} }} None => {{ {} }} }}",
            place(field),
            self.nullable(field).choose(&null, &refuse)
        )
    }

    fn elements(&self, out: &mut String) {
        out.push_str(
            "fn read_elements(
                reader: &mut Reader, version: i16, count: usize,
            ) -> Result<Vec<Self>, DecodeError> {
                let mut elements = Vec::with_capacity(reader.capacity(count, size_of::<Self>()));
                for _ in 0..count { elements.push(Self::read(reader, version)?); }
                Ok(elements)
            }
            fn put_elements(elements: &[Self], writer: &mut Writer, version: i16) {
                for element in elements { element.put(writer, version); }
            }\n",
        );
    }
}

fn place(field: &Field) -> String {
    format!("self.{}", snake(&field.name))
}

fn read_elements(of: &Type, flexible: &str, name: &str) -> String {
    match of {
        Type::Structure(of) => format!("{of}::read_elements(reader, version, count)?"),
        Type::String => format!("reader.string_elements(count, {flexible}, \"{name}\")?"),
        scalar => format!("reader.{}_elements(count)?", method(scalar)),
    }
}

fn put_value(field: &Field, flexible: &str, writer: &str, place: &str, borrowed: &str) -> String {
    let name = &field.name;
    match &field.of {
        Type::String => format!("{writer}.string({borrowed}, {flexible}, \"{name}\");"),
        Type::Bytes => format!("{writer}.bytes({borrowed}, {flexible}, \"{name}\");"),
        Type::Records => format!("{writer}.records({borrowed}, {flexible}, \"{name}\");"),
        Type::Structure(_) => format!("{place}.put({writer}, version);"),
        Type::Array(of) => {
            let head = format!("{writer}.array({place}.len(), {flexible}, \"{name}\");");
            match of.as_ref() {
                Type::Structure(_) => {
                    let of = type_name(of);
                    format!("{head} {of}::put_elements({borrowed}, {writer}, version);")
                }
                Type::String => {
                    format!("{head} {writer}.string_elements({borrowed}, {flexible}, \"{name}\");")
                }
                of => format!("{head} {writer}.{}_elements({borrowed});", method(of)),
            }
        }
        _ if is_error_code(field) => format!("{writer}.i16({place}.0);"),
        scalar => {
            let value = if place == "value" { "*value" } else { place };
            format!("{writer}.{}({value});", method(scalar))
        }
    }
}
