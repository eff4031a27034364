use std::path::Path;

use base::Random;
use schema::{Field, Schema, Structure, Type, Versions};

/// What a sample is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every field that may be null is.
    Null,
    /// Every array and string is empty, tagged fields have their defaults.
    Empty,
    /// Extremes of numbers, the longest strings, all tagged fields.
    Maximal,
    /// Anything, with unknown tagged fields.
    Mixed,
}

impl Shape {
    /// All of them.
    pub const ALL: [Shape; 4] = [Shape::Null, Shape::Empty, Shape::Maximal, Shape::Mixed];
}

/// About how many bytes long strings and byte fields of one sample may take together.
const LONG_BYTES_MAX: usize = 100_000;
const STRING_BYTES_MAX: usize = 32_767;

/// Every schema that has a version.
///
/// # Errors
/// If a text is not well formed.
pub fn schemas() -> Result<Vec<Schema>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut schemas = Vec::new();
    for directory in ["src/protocol/schemas", "src/records/schemas"] {
        for file in schema::read_directory(&root.join(directory))? {
            schemas.extend(file.schemas);
        }
    }
    schemas.retain(|schema| !schema.versions.is_empty());
    Ok(schemas)
}

/// The bytes of a random message of `schema` in `version`, as Kafka writes them: tagged fields
/// only if they differ from their defaults.
pub fn sample(random: &mut Random, schema: &Schema, version: i16, shape: Shape) -> Vec<u8> {
    let structures = schema.structures();
    let flexible = schema.flexible.contains(version);
    let mut sampler =
        Sampler { random, structures, version, flexible, shape, long_bytes_left: LONG_BYTES_MAX };
    let mut out = Vec::new();
    sampler.structure(&mut out, schema.name(), 0);
    out
}

struct Sampler<'a> {
    random: &'a mut Random,
    structures: Vec<Structure>,
    version: i16,
    flexible: bool,
    shape: Shape,
    long_bytes_left: usize,
}

impl Sampler<'_> {
    fn structure(&mut self, out: &mut Vec<u8>, name: &str, depth: u32) {
        let fields = self.fields_of(name);
        for field in fields.iter().filter(|field| field.tag.is_none()) {
            self.value(out, field, depth);
        }
        if self.flexible {
            self.tags(out, &fields, depth);
        }
    }

    /// The fields of a structure that the version has.
    fn fields_of(&self, name: &str) -> Vec<Field> {
        let structure = self.structures.iter().find(|structure| structure.name == name);
        let fields = &structure.expect("a schema declares the structures that it uses").fields;
        fields.iter().filter(|field| field.versions.contains(self.version)).cloned().collect()
    }

    fn tags(&mut self, out: &mut Vec<u8>, fields: &[Field], depth: u32) {
        let mut tags = Vec::new();
        for field in fields {
            let Some(tag) = field.tag else { continue };
            let mut content = Vec::new();
            let mut default = Vec::new();
            self.default_content(&mut default, field);
            if self.shape != Shape::Empty && (self.shape != Shape::Mixed || self.random.chance(50))
            {
                self.value(&mut content, field, depth);
            } else {
                content.clone_from(&default);
            }
            if content != default {
                tags.push((tag, content));
            }
        }
        if self.shape == Shape::Mixed && self.random.chance(30) {
            let highest = fields.iter().filter_map(|field| field.tag).max().unwrap_or(0);
            let mut tag = highest.max(20);
            for _ in 0..=self.random.below(2) {
                tag += 1 + u32::try_from(self.random.below(3_000)).unwrap_or(0);
                let mut bytes = vec![0; usize::try_from(self.random.below(20)).unwrap_or(0)];
                self.random.fill(&mut bytes);
                tags.push((tag, bytes));
            }
        }
        tags.sort();
        varint(out, tags.len());
        for (tag, content) in tags {
            varint(out, tag as usize);
            varint(out, content.len());
            out.extend(content);
        }
    }

    fn value(&mut self, out: &mut Vec<u8>, field: &Field, depth: u32) {
        let flexible = self.flexible && !field.inflexible;
        let may_be_null = field.nullable.contains(self.version);
        let null = may_be_null
            && match self.shape {
                Shape::Null => true,
                Shape::Empty | Shape::Maximal => false,
                Shape::Mixed => self.random.chance(25),
            };
        if null {
            return null_of(out, field, flexible);
        }
        match &field.of {
            Type::Structure(name) => {
                present(out, field, self.version);
                self.structure(out, name, depth + 1);
            }
            Type::Array(of) => {
                let count = self.count(depth);
                length(out, count, flexible, 4);
                for _ in 0..count {
                    self.scalar(out, of, flexible, depth);
                }
            }
            scalar => self.scalar(out, scalar, flexible, depth),
        }
    }

    fn count(&mut self, depth: u32) -> usize {
        let most = match self.shape {
            Shape::Empty => 0,
            _ if depth > 2 => 1,
            Shape::Null => 1,
            Shape::Maximal | Shape::Mixed => 3,
        };
        usize::try_from(self.random.below(most + 1)).unwrap_or(0)
    }

    fn scalar(&mut self, out: &mut Vec<u8>, of: &Type, flexible: bool, depth: u32) {
        match of {
            Type::Bool => out.push(u8::from(self.random.chance(50))),
            Type::Int8 => self.integer(out, 1),
            Type::Int16 | Type::Uint16 => self.integer(out, 2),
            Type::Int32 | Type::Uint32 => self.integer(out, 4),
            Type::Int64 => self.integer(out, 8),
            // No NaN: Java may change its bits.
            Type::Float64 => {
                let number = self.random.next_u64() as i32;
                out.extend((f64::from(number) / 1_024.0).to_be_bytes());
            }
            Type::Uuid => self.integer(out, 16),
            Type::String => {
                let text = self.text();
                length(out, text.len(), flexible, 2);
                out.extend(text.as_bytes());
            }
            Type::Bytes | Type::Records => {
                let mut bytes = vec![0; self.long()];
                self.random.fill(&mut bytes);
                length(out, bytes.len(), flexible, 4);
                out.extend(bytes);
            }
            Type::Structure(name) => self.structure(out, name, depth + 1),
            Type::Array(_) => unreachable!("no schema has an array of arrays"),
        }
    }

    fn integer(&mut self, out: &mut Vec<u8>, bytes: usize) {
        let mut number = vec![0; bytes];
        match (self.shape, self.random.below(4)) {
            (Shape::Empty, _) | (Shape::Mixed, 0) => {}
            (Shape::Maximal, 0 | 1) => {
                number.fill(0xff);
                number[0] = 0x7f;
            }
            (Shape::Maximal, 2) => number[0] = 0x80,
            _ => self.random.fill(&mut number),
        }
        out.extend(number);
    }

    fn text(&mut self) -> String {
        let bytes = self.long();
        if bytes == STRING_BYTES_MAX {
            return "語".repeat(bytes / 3) + &"x".repeat(bytes % 3);
        }
        let mut text = String::with_capacity(bytes);
        while text.len() < bytes {
            let letter = match self.random.below(20) {
                0 if bytes - text.len() >= 2 => 'é',
                1 if bytes - text.len() >= 3 => '語',
                2 if bytes - text.len() >= 4 => '😀',
                letter => char::from(b'a' + u8::try_from(letter).unwrap_or(0)),
            };
            text.push(letter);
        }
        text
    }

    fn long(&mut self) -> usize {
        let most = match self.shape {
            Shape::Empty => 0,
            Shape::Maximal if self.long_bytes_left > 2 * STRING_BYTES_MAX => {
                self.long_bytes_left -= STRING_BYTES_MAX;
                return STRING_BYTES_MAX;
            }
            _ if self.random.chance(5) => 300,
            _ => 12,
        };
        usize::try_from(self.random.below(most + 1)).unwrap_or(0)
    }

    /// The content that a tagged field has by default, so that it is not written.
    fn default_content(&self, out: &mut Vec<u8>, field: &Field) {
        let flexible = self.flexible && !field.inflexible;
        if field.default.as_deref() == Some("null") {
            return null_of(out, field, flexible);
        }
        let number: i64 = field.default.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
        let number = number.to_be_bytes();
        match &field.of {
            Type::Bool => out.push(u8::from(field.default.as_deref() == Some("true"))),
            Type::Int8 => out.extend(&number[7..]),
            Type::Int16 | Type::Uint16 => out.extend(&number[6..]),
            Type::Int32 | Type::Uint32 => out.extend(&number[4..]),
            Type::Int64 => out.extend(number),
            Type::Float64 => out.extend(0.0_f64.to_be_bytes()),
            Type::Uuid => out.extend([0; 16]),
            Type::String => length(out, 0, flexible, 2),
            Type::Bytes | Type::Records | Type::Array(_) => length(out, 0, flexible, 4),
            Type::Structure(name) => {
                present(out, field, self.version);
                let fields = self.fields_of(name);
                for inner in fields.iter().filter(|inner| inner.tag.is_none()) {
                    self.default_content(out, inner);
                }
                if self.flexible {
                    out.push(0);
                }
            }
        }
    }
}

/// A structure that may be null begins with a mark that it is there.
fn present(out: &mut Vec<u8>, field: &Field, version: i16) {
    if field.nullable != Versions::NONE && field.nullable.contains(version) {
        out.push(1);
    }
}

fn null_of(out: &mut Vec<u8>, field: &Field, flexible: bool) {
    match &field.of {
        Type::Structure(_) if field.tag.is_some() => out.push(0),
        Type::Structure(_) => out.push(0xff),
        _ if flexible => out.push(0),
        Type::String => out.extend([0xff; 2]),
        _ => out.extend([0xff; 4]),
    }
}

fn length(out: &mut Vec<u8>, length: usize, flexible: bool, bytes: usize) {
    if flexible {
        varint(out, length + 1);
    } else {
        out.extend(&(length as u64).to_be_bytes()[8 - bytes..]);
    }
}

fn varint(out: &mut Vec<u8>, number: usize) {
    let number = u32::try_from(number).expect("lengths of samples are small");
    base::varint::write_unsigned_varint(number, out);
}
