//! Turns the tables of keys (`keys/*.txt`) into static arrays, so that a start parses none of them.

// A build script reads and writes files; the ban is for what runs in the broker.
#![allow(clippy::disallowed_methods)]

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;

const TABLES: [(&str, &str); 8] = [
    ("BROKER", "broker"),
    ("BROKER_DYNAMIC", "broker-dynamic"),
    ("CORELANE", "corelane"),
    ("TOPIC", "topic"),
    ("GROUP", "group"),
    ("CLIENT_METRICS", "client-metrics"),
    ("CLIENT_QUOTA", "client-quota"),
    ("IP_QUOTA", "ip-quota"),
];

fn main() {
    println!("cargo::rerun-if-changed=keys");
    let mut code = String::new();
    for (constant, file) in TABLES {
        let text = fs::read_to_string(format!("keys/{file}.txt")).expect("the table is committed");
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split('\t').collect())
            .collect();
        write_table(&mut code, constant, file, &rows);
    }
    let directory = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&directory).join("tables.rs"), code).expect("the directory is writable");
}

fn write_table(code: &mut String, constant: &str, file: &str, rows: &[Vec<&str>]) {
    let mut by_name: Vec<usize> = (0..rows.len()).collect();
    by_name.sort_by_key(|&row| rows[row][0]);
    writeln!(code, "/// The keys of `keys/{file}.txt`.").expect("a string takes all");
    writeln!(code, "pub static {constant}: Table = Table {{ by_name: &{by_name:?}, keys: &[")
        .expect("a string takes all");
    for row in rows {
        let [name, kind, default, rule, importance, update, synonyms] = row[..] else {
            panic!("{file}: seven columns are expected in {row:?}");
        };
        let default = match default.strip_prefix('=') {
            Some(text) => format!("Default::Text({text:?})"),
            None if default == "null" => "Default::Null".to_owned(),
            None => "Default::Required".to_owned(),
        };
        let (importance, internal) = match importance.split_once(',') {
            Some((importance, _)) => (importance, true),
            None => (importance, false),
        };
        writeln!(
            code,
            "Key {{ name: {name:?}, kind: Type::{}, default: {default}, rule: {}, \
             importance: Importance::{}, internal: {internal}, update: Update::{}, \
             synonyms: &{} }},",
            camel(kind),
            rule_code(rule),
            camel(importance),
            camel(update),
            synonyms_code(synonyms),
        )
        .expect("a string takes all");
    }
    code.push_str("] };\n");
}

/// `read-only` and `READ_ONLY` become `ReadOnly`.
fn camel(word: &str) -> String {
    word.split(['-', '_'])
        .flat_map(|part| {
            let (first, rest) = part.split_at(1);
            [first.to_ascii_uppercase(), rest.to_ascii_lowercase()]
        })
        .collect()
}

fn rule_code(rule: &str) -> String {
    let words: Vec<&str> = rule.split(' ').collect();
    match words[..] {
        ["range", min, max] => {
            format!("Rule::Range {{ min: {}, max: {} }}", bound_code(min), bound_code(max))
        }
        ["list", empty, null, values] => format!(
            "Rule::List {{ may_be_empty: {}, may_be_null: {}, values: &{} }}",
            empty == "empty",
            null == "null",
            strings_code(values),
        ),
        ["one-of", values] => format!("Rule::OneOf(&{})", strings_code(values)),
        ["one-of-any-case", values] => format!("Rule::OneOfAnyCase(&{})", strings_code(values)),
        [word] => format!("Rule::{}", camel(word)),
        _ => panic!("no rule is written {rule:?}"),
    }
}

fn bound_code(text: &str) -> String {
    if text == "-" {
        return "None".to_owned();
    }
    let value: f64 = text.parse().expect("a bound is a number");
    format!("Some(Bound {{ text: {text:?}, value: {value:?} }})")
}

fn strings_code(values: &str) -> String {
    if values == "-" {
        return "[]".to_owned();
    }
    format!("{:?}", values.split(',').collect::<Vec<_>>())
}

fn synonyms_code(synonyms: &str) -> String {
    if synonyms == "-" {
        return "[]".to_owned();
    }
    let pairs: Vec<(&str, i64)> = synonyms
        .split(',')
        .map(|one| match one.split_once('*') {
            Some((name, factor)) => (name, factor.parse().expect("a factor is a number")),
            None => (one, 1),
        })
        .collect();
    format!("{pairs:?}")
}
