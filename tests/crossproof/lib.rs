//! The proof that messages are encoded exactly as Apache Kafka's own classes encode them.
//!
//! Random messages of every schema and version go both ways: made here from the schemas, decoded
//! and encoded by the generated code, and again by Kafka's classes; and made by Kafka's classes,
//! decoded and encoded by the generated code, in the same version and in another one, where both
//! must agree about what is lost, what is refused, and every byte of the rest.
//!
//! Depends on `fuzz` for samples and the table of messages, and on `xtask` for Java and Kafka's
//! jars. Deliberately absent: anything about the meaning of a message.
#![allow(clippy::disallowed_methods, reason = "it exchanges files with a Java program")]

use std::path::Path;
use std::process::Command;

use base::Random;
use base::wire::Reader;
use bytes::Bytes;
use fuzz::{Kind, Shape};

/// How many messages of each shape are made for each schema and version, on each side.
pub const ROUNDS: u32 = 3;

/// What one run of the proof found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Messages that were made here.
    pub ours: usize,
    /// Messages that Kafka's classes made.
    pub theirs: usize,
    /// Of these, how many another version refused to carry, on both sides.
    pub refused: usize,
    /// What differs, in words; the first of each side only.
    pub faults: Vec<String>,
}

/// Runs the proof with messages that follow from `seed`.
///
/// # Errors
/// If Java does not run, or does not understand what it gets.
pub fn prove(seed: u64) -> Result<Report, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
    let mut report = Report::default();
    let bytes = make_ours(seed, &mut report)?;
    std::fs::write(&ours, bytes).map_err(|error| error.to_string())?;
    run_java(&ours, &theirs, seed, &mut report)?;
    let bytes = std::fs::read(&theirs).map_err(|error| error.to_string())?;
    check_theirs(Bytes::from(bytes), &mut report).map_err(|error| error.to_string())?;
    Ok(report)
}

/// What Kafka's classes know of APIs, and the bytes of records of every family, a line each.
///
/// # Errors
/// If Java does not run.
pub fn kafka_tables() -> Result<String, String> {
    let output = java("CrossTables")?.output();
    let output = output.map_err(|error| format!("java does not run: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}

fn java(class: &str) -> Result<Command, String> {
    let folder = xtask::workspace_root().join("tests/crossproof");
    let classes = xtask::kafka::compile_java(&folder.join(format!("{class}.java")))?;
    xtask::kafka::java(&["-Xmx1G"], Some(&classes), class)
}

/// Samples that went through the generated code: name, version and bytes of each.
fn make_ours(seed: u64, report: &mut Report) -> Result<Vec<u8>, String> {
    let mut random = Random::new(seed);
    let mut out = Vec::new();
    for schema in fuzz::schemas()? {
        let name = schema.name();
        let kind = Kind::named(name).ok_or_else(|| format!("{name} was not generated"))?;
        for version in kind.first..=kind.last {
            for shape in (0..ROUNDS).flat_map(|_| Shape::ALL) {
                let sample = Bytes::from(fuzz::sample(&mut random, &schema, version, shape));
                let written = match (kind.recode)(sample.clone(), version, version) {
                    Ok(recoded) => recoded.written.map_err(|error| error.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                let written = written.map_err(|error| format!("{name} {version}: {error}"))?;
                if written != sample {
                    report.faults.push(format!("{name} {version} {shape:?} changes its sample"));
                }
                report.ours += 1;
                out.extend((name.len() as u16).to_be_bytes());
                out.extend(name.as_bytes());
                out.extend(version.to_be_bytes());
                out.extend((written.len() as u32).to_be_bytes());
                out.extend(written);
            }
        }
    }
    Ok(out)
}

fn run_java(ours: &Path, theirs: &Path, seed: u64, report: &mut Report) -> Result<(), String> {
    let mut java = java("CrossProof")?;
    java.arg(ours).arg(theirs).arg(seed.to_string()).arg(ROUNDS.to_string());
    let output = java.output().map_err(|error| format!("java does not run: {error}"))?;
    let words = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("{words}{}", String::from_utf8_lossy(&output.stderr)));
    }
    let expected = format!("checked {}\nfaults 0\n", report.ours);
    if words != expected {
        report.faults.push(words.into_owned());
    }
    Ok(())
}

/// Checks what Kafka's classes made: name, version, bytes, another version, bytes in that or −1.
fn check_theirs(bytes: Bytes, report: &mut Report) -> Result<(), base::wire::DecodeError> {
    let mut reader = Reader::new(bytes);
    while reader.remaining() > 0 {
        let name = reader.string(false, "name")?;
        let version = reader.i16()?;
        let encoded = reader.bytes(false, "bytes")?;
        let other = reader.i16()?;
        let in_other = reader.nullable_bytes(false)?;
        report.theirs += 1;
        report.refused += usize::from(in_other.is_none());
        if let Err(fault) = check_one(&name, version, &encoded, other, in_other.as_ref()) {
            report.faults.push(format!("{name} {version} to {other}: {fault}"));
        }
    }
    Ok(())
}

fn check_one(
    name: &str,
    version: i16,
    encoded: &Bytes,
    other: i16,
    in_other: Option<&Bytes>,
) -> Result<(), String> {
    let kind = Kind::named(name).ok_or("was not generated")?;
    let recode =
        |to| (kind.recode)(encoded.clone(), version, to).map_err(|error| error.to_string());
    let same = recode(version)?;
    if same.left > 0 {
        return Err(format!("{} bytes are left", same.left));
    }
    match same.written {
        Ok(written) if written == encoded => {}
        Ok(_) => return Err("the bytes differ".to_owned()),
        Err(error) => return Err(error.to_string()),
    }
    match (recode(other)?.written, in_other) {
        (Ok(ours), Some(theirs)) if ours == theirs => Ok(()),
        (Err(_), None) => Ok(()),
        (Ok(_), Some(_)) => Err("the bytes differ in the other version".to_owned()),
        (Ok(_), None) => Err("Kafka refuses the other version".to_owned()),
        (Err(error), Some(_)) => Err(format!("Kafka writes the other version, we don't: {error}")),
    }
}
