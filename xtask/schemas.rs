//! `cargo xtask schemas`: the facts of Kafka's message schemas, from the jars' JSON into the
//! compact text that `src/protocol` and `src/records` are generated from.
//!
//! Only names, types, versions, tags, nullability and defaults are taken, no word of description.
//! The table of error codes comes from Kafka's own enum, by a small Java program.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::kafka;

/// Jars that hold schemas, by the start of their names, and where those that are not requests,
/// responses or files go.
const JARS: [(&str, &str); 7] = [
    ("kafka-clients", "data"),
    ("kafka-metadata", "metadata_records"),
    ("kafka-group-coordinator", "group_records"),
    ("kafka-transaction-coordinator", "transaction_records"),
    ("kafka-share-coordinator", "share_records"),
    ("kafka-raft", "data"),
    ("kafka-storage", "remote_storage_records"),
];

/// Those whose records are the variants of one enum.
const FAMILIES: [(&str, &str); 5] = [
    ("metadata_records", "MetadataRecord"),
    ("group_records", "GroupRecord"),
    ("transaction_records", "TransactionRecord"),
    ("share_records", "ShareRecord"),
    ("remote_storage_records", "RemoteStorageRecord"),
];

/// What stands in files, and is generated into `src/records`.
const FILES: [&str; 10] = [
    "AbortedTxn",
    "ControlRecordTypeSchema",
    "EndTxnMarker",
    "KRaftVersionRecord",
    "LeaderChangeMessage",
    "ProducerSnapshot",
    "QuorumStateData",
    "SnapshotFooterRecord",
    "SnapshotHeaderRecord",
    "VotersRecord",
];

const HEAD: &str = "# Made by `cargo xtask schemas` from Apache Kafka 4.4.0. Do not edit.\n";

/// Writes all schema texts and `docs/protocol_support.md` under `root`.
///
/// # Errors
/// A sentence when the jars cannot be had, or hold a schema that the compact text cannot say.
pub fn run(root: &Path) -> Result<(), String> {
    let jars = kafka::jar_folder()?;
    let protocol = root.join("src/protocol/schemas");
    let records = root.join("src/records/schemas");
    for directory in [&protocol, &records] {
        make_empty(directory)?;
    }
    let mut texts: BTreeMap<PathBuf, Vec<(String, String)>> = BTreeMap::new();
    for (jar, rest) in JARS {
        for schema in read_jar(root, &jars, jar)? {
            let name = text_of(&schema["name"])?;
            let file = match (text_of(&schema["type"])?, FILES.contains(&name)) {
                (_, true) => records.join("files.txt"),
                ("request" | "response", _) => protocol.join(format!("{}.txt", api_file(name))),
                _ => protocol.join(format!("{rest}.txt")),
            };
            texts.entry(file).or_default().push((name.to_owned(), compact(&schema)?));
        }
    }
    for (path, mut schemas) in texts {
        schemas.sort();
        let mut text = HEAD.to_owned();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if let Some((_, family)) = FAMILIES.iter().find(|(file, _)| *file == stem) {
            let _ = writeln!(text, "family {family}");
        }
        for (_, schema) in schemas {
            text.push('\n');
            text.push_str(&schema);
        }
        write(&path, &text)?;
    }
    write(&root.join("src/protocol/errors.txt"), &error_table(root)?)?;
    write_support_table(root)
}

/// The path and the content of the table of all messages, made from the committed texts.
///
/// # Errors
/// A sentence when a text cannot be read.
pub fn support_document(root: &Path) -> Result<(PathBuf, String), String> {
    let mut files = schema::read_directory(&root.join("src/protocol/schemas"))?;
    files.extend(schema::read_directory(&root.join("src/records/schemas"))?);
    let text = format!(
        "# Protocol support\n\n\
         Every message of Apache Kafka 4.4.0 can be read and written, in all of its versions. \
         Which requests the broker answers stands in its answer to ApiVersions.\n\n\
         The features that are finalised there are those that formatting wrote, as Kafka's does \
         (`group.version`, `transaction.version`, `share.version`, `streams.version` and others): \
         they say what the data may hold, which goes back to Kafka, and a level once written is \
         not lowered for a guest. What a client may ask is said by the list of APIs alone. \
         The consumers of Java heed that list: with `group.protocol=consumer`, and as share \
         consumers, they end with UnsupportedVersionException. librdkafka does not, and goes on \
         asking without a word: leave `group.protocol` as it is there.\n\n\
         This page is made by `cargo xtask schemas`; a test compares it with the schemas.\n\n{}",
        schema::support_table(&files)
    );
    Ok((root.join("docs/protocol_support.md"), text))
}

fn write_support_table(root: &Path) -> Result<(), String> {
    let (path, text) = support_document(root)?;
    write(&path, &text)
}

fn make_empty(directory: &Path) -> Result<(), String> {
    if directory.exists() {
        fs::remove_dir_all(directory).map_err(|error| format!("{directory:?}: {error}"))?;
    }
    fs::create_dir_all(directory).map_err(|error| format!("{directory:?}: {error}"))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn find_jar(jars: &Path, name: &str) -> Result<PathBuf, String> {
    let path = jars.join(format!("{name}-4.4.0.jar"));
    if path.is_file() { Ok(path) } else { Err(format!("{} is missing", path.display())) }
}

/// The schemas of one jar, unpacked by the JDK's own tool.
fn read_jar(root: &Path, jars: &Path, name: &str) -> Result<Vec<Value>, String> {
    let target = root.join("target/schemas").join(name);
    make_empty(&target)?;
    let jar = fs::canonicalize(find_jar(jars, name)?).map_err(|error| error.to_string())?;
    let mut unpack = Command::new("jar");
    unpack.current_dir(&target).arg("xf").arg(jar);
    let status =
        unpack.status().map_err(|error| format!("jar (of a JDK) does not run: {error}"))?;
    if !status.success() {
        return Err(format!("jar xf {name} ended with {status}"));
    }
    let mut schemas = Vec::new();
    for folder in ["common/message", "common/metadata", "message"] {
        let Ok(entries) = fs::read_dir(target.join(folder)) else { continue };
        for entry in entries {
            let path = entry.map_err(|error| error.to_string())?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
                let value = serde_json::from_str(&without_comments(&text));
                schemas.push(value.map_err(|error| format!("{}: {error}", path.display()))?);
            }
        }
    }
    Ok(schemas)
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

fn error_table(root: &Path) -> Result<String, String> {
    let classes = kafka::compile_java(&root.join("xtask/java/ErrorTable.java"))?;
    let mut java = kafka::java(&[], Some(&classes), "ErrorTable")?;
    let output = java.output().map_err(|error| format!("java does not run: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let table = String::from_utf8(output.stdout).map_err(|error| error.to_string())?;
    Ok(format!("{HEAD}# code|name|whether a client may retry|message that clients see\n{table}"))
}

/// `ListOffsetsRequest` and `ListOffsetsResponse` stand in `list_offsets`.
fn api_file(name: &str) -> String {
    let stem = name.strip_suffix("Request").or_else(|| name.strip_suffix("Response"));
    let mut out = String::new();
    for letter in stem.unwrap_or(name).chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

fn compact(schema: &Value) -> Result<String, String> {
    let mut out = format!("{} {}", text_of(&schema["type"])?, text_of(&schema["name"])?);
    if let Some(key) = schema["apiKey"].as_i64() {
        let _ = write!(out, " key={key}");
    }
    let flexible = schema["flexibleVersions"].as_str().unwrap_or("none");
    let _ = write!(out, " versions={} flexible={flexible}", text_of(&schema["validVersions"])?);
    if let Some(listeners) = schema["listeners"].as_array() {
        let names: Result<Vec<_>, _> = listeners.iter().map(text_of).collect();
        let _ = write!(out, " listeners={}", names?.join(","));
    }
    if schema["latestVersionUnstable"] == Value::Bool(true) {
        out.push_str(" unstable");
    }
    out.push('\n');
    for shared in schema["commonStructs"].as_array().into_iter().flatten() {
        let _ = writeln!(
            out,
            "  struct {} {}",
            text_of(&shared["name"])?,
            text_of(&shared["versions"])?
        );
        fields(&mut out, shared, 4)?;
    }
    fields(&mut out, schema, 2)?;
    Ok(out)
}

fn fields(out: &mut String, of: &Value, indent: usize) -> Result<(), String> {
    for field in of["fields"].as_array().into_iter().flatten() {
        let (name, kind) = (text_of(&field["name"])?, text_of(&field["type"])?);
        let tagged = field["taggedVersions"].as_str();
        let versions = field["versions"].as_str().or(tagged).ok_or("a field has no versions")?;
        if tagged.is_some_and(|tagged| tagged != versions) {
            return Err(format!("{name} is a tagged field in some of its versions only"));
        }
        let _ = write!(out, "{:indent$}{}: {kind} {versions}", "", upper_first(name));
        if let Some(nullable) = field["nullableVersions"].as_str() {
            let _ = write!(out, " null={nullable}");
        }
        if let Some(tag) = field["tag"].as_u64() {
            let _ = write!(out, " tag={tag}");
        }
        if let Some(default) = default_of(field)? {
            let _ = write!(out, " default={default}");
        }
        if field["ignorable"] == Value::Bool(true) {
            out.push_str(" ignorable");
        }
        match field["flexibleVersions"].as_str() {
            None => {}
            Some("none") => out.push_str(" inflexible"),
            Some(other) => return Err(format!("{name} is flexible in {other}")),
        }
        out.push('\n');
        fields(out, field, indent + 2)?;
    }
    Ok(())
}

/// The default, unless it is what the type has anyway. A JSON null means that, too: only the text
/// "null" makes null the default.
fn default_of(field: &Value) -> Result<Option<String>, String> {
    let text = match &field["default"] {
        Value::Null => return Ok(None),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let text = match text.strip_prefix("0x") {
        Some(digits) => {
            let number = i64::from_str_radix(digits, 16).map_err(|error| error.to_string())?;
            number.to_string()
        }
        None => text,
    };
    Ok(Some(text).filter(|text| !["", "0", "false"].contains(&text.to_lowercase().as_str())))
}

/// A few schemas write the names of fields with a small first letter.
fn upper_first(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

fn text_of(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("{value} is not a text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_documents_is_current() {
        let (path, expected) = support_document(&crate::workspace_root()).expect("well formed");
        let found = fs::read_to_string(path).expect("docs/protocol_support.md is there");
        assert!(found == expected, "run `cargo xtask schemas`");
    }

    #[test]
    fn defaults_are_normal_and_json_null_is_none() {
        let default = |json: &str| {
            let value = serde_json::from_str(json).expect("JSON");
            default_of(&value).expect("a default")
        };
        assert_eq!(default(r#"{"default": "0x7fffffff"}"#).as_deref(), Some("2147483647"));
        assert_eq!(default(r#"{"default": "null"}"#).as_deref(), Some("null"));
        assert_eq!(default(r#"{"default": -1}"#).as_deref(), Some("-1"));
        assert_eq!(default(r#"{"default": null}"#), None);
        assert_eq!(default(r#"{"default": "False"}"#), None);
    }
}
