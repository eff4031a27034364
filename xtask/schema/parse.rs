use std::path::Path;

use crate::model::{Field, Kind, Schema, SchemaFile, Structure, Type, Versions};

/// Every `.txt` of a folder, in order of the names, each parsed.
pub fn read_directory(directory: &Path) -> Result<Vec<SchemaFile>, String> {
    let describe = |error| format!("{}: {error}", directory.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(describe)? {
        let path = entry.map_err(describe)?.path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        text.and_then(|text| parse(&text)).map_err(|error| format!("{}: {error}", path.display()))
    };
    paths.iter().map(read).collect()
}

/// Reads one file of schemas. The error names the line.
pub fn parse(text: &str) -> Result<SchemaFile, String> {
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let content = line.trim_start();
        if !content.is_empty() && !content.starts_with('#') {
            lines.push(Line { number: index + 1, indent: line.len() - content.len(), content });
        }
    }
    let mut rest = lines.as_slice();
    let mut family = None;
    if let Some(name) = rest.first().and_then(|line| line.content.strip_prefix("family ")) {
        family = Some(name.to_owned());
        rest = &rest[1..];
    }
    let mut schemas = Vec::new();
    while let Some((head, tail)) = rest.split_first() {
        let end = tail.iter().take_while(|line| line.indent > 0).count();
        let schema = schema(head, &tail[..end]);
        schemas.push(schema.map_err(|error| format!("line {}: {error}", head.number))?);
        rest = &tail[end..];
    }
    Ok(SchemaFile { family, schemas })
}

struct Line<'a> {
    number: usize,
    indent: usize,
    content: &'a str,
}

fn schema(head: &Line<'_>, body: &[Line<'_>]) -> Result<Schema, String> {
    let mut words = head.content.split_whitespace();
    let kind = match words.next() {
        Some("request") => Kind::Request,
        Some("response") => Kind::Response,
        Some("header") => Kind::Header,
        Some("data") => Kind::Data,
        Some("metadata") => Kind::Metadata,
        Some("coordinator-key") => Kind::CoordinatorKey,
        Some("coordinator-value") => Kind::CoordinatorValue,
        other => return Err(format!("a schema begins with its kind, not {other:?}")),
    };
    let name = words.next().ok_or("the name is missing")?.to_owned();
    let mut schema = Schema {
        kind,
        key: None,
        versions: Versions::NONE,
        flexible: Versions::NONE,
        unstable: false,
        listeners: Vec::new(),
        structure: Structure { name, versions: Versions::NONE, fields: Vec::new() },
        shared: Vec::new(),
    };
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("key", value) => schema.key = Some(number(value)?),
            ("versions", value) => schema.versions = versions(value)?,
            ("flexible", value) => schema.flexible = versions(value)?,
            ("listeners", value) => {
                schema.listeners = value.split(',').map(str::to_owned).collect();
            }
            ("unstable", "") => schema.unstable = true,
            _ => return Err(format!("'{word}' is not known")),
        }
    }
    let mut rest = body;
    while let Some((line, tail)) = rest.split_first() {
        let Some(declared) = line.content.strip_prefix("struct ") else { break };
        let end = tail.iter().take_while(|inner| inner.indent > line.indent).count();
        let (name, range) = declared.split_once(' ').ok_or("a struct has a name and versions")?;
        let fields = fields(&tail[..end])?;
        schema.shared.push(Structure { name: name.to_owned(), versions: versions(range)?, fields });
        rest = &tail[end..];
    }
    schema.structure.fields = fields(rest)?;
    check_recursion(&schema)?;
    Ok(schema)
}

fn fields(lines: &[Line<'_>]) -> Result<Vec<Field>, String> {
    let mut all = Vec::new();
    let mut rest = lines;
    while let Some((line, tail)) = rest.split_first() {
        let end = tail.iter().take_while(|inner| inner.indent > line.indent).count();
        let describe = |error| format!("line {}: {error}", line.number);
        all.push(field(line.content, fields(&tail[..end])?).map_err(describe)?);
        rest = &tail[end..];
    }
    Ok(all)
}

fn field(content: &str, fields: Vec<Field>) -> Result<Field, String> {
    let (name, rest) = content.split_once(": ").ok_or("a field is a name, ': ' and a type")?;
    let mut words = rest.split_whitespace();
    let of = type_of(words.next().ok_or("the type is missing")?);
    let range = versions(words.next().ok_or("the versions are missing")?)?;
    let mut field = Field {
        name: name.to_owned(),
        of,
        versions: range,
        nullable: Versions::NONE,
        tag: None,
        default: None,
        ignorable: false,
        inflexible: false,
        fields,
    };
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("null", value) => field.nullable = versions(value)?,
            ("tag", value) => field.tag = Some(number(value)?),
            ("default", value) => field.default = Some(value.to_owned()),
            ("ignorable", "") => field.ignorable = true,
            ("inflexible", "") => field.inflexible = true,
            _ => return Err(format!("'{word}' is not known")),
        }
    }
    Ok(field)
}

fn type_of(word: &str) -> Type {
    match word {
        "bool" => Type::Bool,
        "int8" => Type::Int8,
        "int16" => Type::Int16,
        "uint16" => Type::Uint16,
        "int32" => Type::Int32,
        "uint32" => Type::Uint32,
        "int64" => Type::Int64,
        "float64" => Type::Float64,
        "uuid" => Type::Uuid,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "records" => Type::Records,
        _ => match word.strip_prefix("[]") {
            Some(of) => Type::Array(Box::new(type_of(of))),
            None => Type::Structure(word.to_owned()),
        },
    }
}

fn versions(word: &str) -> Result<Versions, String> {
    if word == "none" {
        return Ok(Versions::NONE);
    }
    if let Some(first) = word.strip_suffix('+') {
        return Ok(Versions { first: number(first)?, last: i16::MAX });
    }
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Ok(Versions { first: number(first)?, last: number(last)? })
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("'{word}' is not a number that fits"))
}

/// A structure within itself would be a decoder without bound: no schema has one.
fn check_recursion(schema: &Schema) -> Result<(), String> {
    fn visit(schema: &Schema, fields: &[Field], path: &mut Vec<String>) -> Result<(), String> {
        for field in fields {
            let Some(name) = field.structure() else { continue };
            if path.iter().any(|outer| outer == name) {
                return Err(format!("the structure {name} contains itself"));
            }
            let shared = schema.shared.iter().find(|structure| structure.name == name);
            let inner = match shared {
                Some(structure) => &structure.fields,
                None => &field.fields,
            };
            path.push(name.to_owned());
            visit(schema, inner, path)?;
            path.pop();
        }
        Ok(())
    }
    visit(schema, &schema.structure.fields, &mut vec![schema.structure.name.clone()])
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "request XRequest key=1 versions=0-3 flexible=2+ listeners=broker\n";

    #[test]
    fn every_word_is_understood() {
        let text = format!(
            "# made by hand\nfamily F\n{HEAD}  struct Shared 1+\n    Id: uuid 1+\n  \
             Names: []string 0+ null=1+ default=null ignorable\n  \
             One: Shared 2+ tag=7\n  Own: []Inner 0-1\n    Port: uint16 1 inflexible\n"
        );
        let file = parse(&text).expect("well formed");
        assert_eq!(file.family.as_deref(), Some("F"));
        let schema = &file.schemas[0];
        assert_eq!((schema.kind, schema.key, schema.unstable), (Kind::Request, Some(1), false));
        assert_eq!(schema.versions, Versions { first: 0, last: 3 });
        assert_eq!(schema.flexible, Versions { first: 2, last: i16::MAX });
        let names: Vec<_> = schema.structures().into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["XRequest", "Shared", "Inner"]);
        let [array, one, own] = schema.structure.fields.as_slice() else { panic!("{schema:?}") };
        assert!(array.is_option() && array.ignorable);
        assert_eq!(array.default.as_deref(), Some("null"));
        assert_eq!((one.tag, one.structure()), (Some(7), Some("Shared")));
        assert!(own.fields[0].inflexible);
        assert_eq!(own.fields[0].versions, Versions { first: 1, last: 1 });
    }

    #[test]
    fn what_is_malformed_is_named_with_its_line() {
        let table = [
            ("nonsense X versions=0\n", "line 1: a schema begins with its kind"),
            ("data X versions=0 colour=red\n", "line 1: 'colour=red' is not known"),
            ("data X versions=zero\n", "line 1: 'zero' is not a number"),
            ("data X versions=0\n  Field int32 0+\n", "line 1: line 2: a field is a name"),
            ("data X versions=0\n  Field: int32\n", "line 1: line 2: the versions are missing"),
            ("data X versions=0\n  A: B 0+\n    C: B 0+\n", "line 1: the structure B contains"),
        ];
        for (text, expected) in table {
            let error = parse(text).expect_err(text);
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_shared_structure_within_itself_is_refused() {
        let text = format!("{HEAD}  struct A 0+\n    Inner: []A 0+\n  First: A 0+\n");
        let error = parse(&text).expect_err("it has no bound");
        assert!(error.contains("the structure A contains itself"), "{error}");
    }
}
