use std::fmt::Write;

use crate::model::{Kind, Schema, SchemaFile};
use crate::names::camel;

/// The Rust of the enum `ApiKey` and its table, and which message belongs to which key.
pub fn generate_api_keys(files: &[SchemaFile]) -> String {
    let (mut variants, mut rows, mut links) = (String::new(), String::new(), String::new());
    for (key, schema) in requests(files) {
        let name = schema.name().strip_suffix("Request").unwrap_or(schema.name());
        let _ = writeln!(variants, "/// `{}`, {key}.\n{name} = {key},", schema.name());
        let listeners: Vec<_> = schema.listeners.iter().map(|name| listener(name)).collect();
        let versions = if schema.versions.is_empty() {
            "None".to_owned()
        } else {
            format!("Some(({}, {}))", schema.versions.first, schema.versions.last)
        };
        let flexible = if schema.flexible.is_empty() { i16::MAX } else { schema.flexible.first };
        let _ = writeln!(
            rows,
            "Facts {{ key: ApiKey::{name}, name: \"{name}\", versions: {versions}, \
             flexible_first: {flexible}, unstable: {}, listeners: &[{}] }},",
            schema.unstable,
            listeners.join(", ")
        );
        if !schema.versions.is_empty() {
            let _ = writeln!(
                links,
                "impl Request for {name}Request {{
                    const API_KEY: ApiKey = ApiKey::{name};
                    type Response = {name}Response;
                }}"
            );
        }
    }
    format!(
        "/// Every API that Kafka 4.4.0 has or had, by its number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ApiKey {{ {variants} }}
        const FACTS: &[Facts] = &[ {rows} ];
        {links}"
    )
}

/// The Rust of the constants of `ErrorCode` and their table, from `code|NAME|retriable|message`.
pub fn generate_errors(text: &str) -> Result<String, String> {
    let (mut constants, mut rows) = (String::new(), String::new());
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut columns = line.splitn(4, '|');
        let (Some(code), Some(name), Some(retriable), Some(message)) =
            (columns.next(), columns.next(), columns.next(), columns.next())
        else {
            return Err(format!("'{line}' does not have four columns"));
        };
        let retriable = match retriable {
            "retriable" => true,
            "fatal" => false,
            other => return Err(format!("'{other}' is neither retriable nor fatal")),
        };
        let _ = writeln!(constants, "/// {code}\npub const {name}: ErrorCode = ErrorCode({code});");
        let _ = writeln!(
            rows,
            "ErrorFacts {{ code: ErrorCode({code}), name: \"{name}\", \
             retriable: {retriable}, message: {message:?} }},"
        );
    }
    Ok(format!(
        "#[allow(missing_docs)]\nimpl ErrorCode {{ {constants} }}\n\
         const ERRORS: &[ErrorFacts] = &[ {rows} ];"
    ))
}

/// The table of `docs/protocol_support.md`: every message with its versions.
pub fn support_table(files: &[SchemaFile]) -> String {
    let mut out = String::from("| message | key | versions | flexible |\n|---|---|---|---|\n");
    let mut all: Vec<_> = files.iter().flat_map(|file| &file.schemas).collect();
    all.sort_by_key(|schema| (order(schema.kind), schema.key, schema.name()));
    for schema in all {
        let key = schema.key.map(|key| key.to_string()).unwrap_or_default();
        let unstable = if schema.unstable { ", the last one unsettled" } else { "" };
        let (name, versions, flexible) = (schema.name(), schema.versions, schema.flexible);
        let _ = writeln!(out, "| {name} | {key} | {versions}{unstable} | {flexible} |");
    }
    out
}

fn order(kind: Kind) -> u8 {
    match kind {
        Kind::Request | Kind::Response => 0,
        Kind::Header => 1,
        Kind::Metadata => 2,
        Kind::CoordinatorKey | Kind::CoordinatorValue => 3,
        Kind::Data => 4,
    }
}

fn requests(files: &[SchemaFile]) -> Vec<(i16, &Schema)> {
    let schemas = files.iter().flat_map(|file| &file.schemas);
    let requests = schemas.filter(|schema| schema.kind == Kind::Request);
    let mut all: Vec<_> = requests.filter_map(|schema| Some((schema.key?, schema))).collect();
    all.sort_by_key(|(key, _)| *key);
    all
}

fn listener(name: &str) -> String {
    format!("Listener::{}", camel(&name.to_ascii_uppercase()))
}
