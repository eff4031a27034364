//! Settings that count as used must be read somewhere, or a user who sets one is told nothing.

use super::Finding;
use crate::tree::Tree;

/// The file whose `simple_settings!` has a field for each key.
const SETTINGS: &str = "src/config/broker.rs";
const BEGIN: &str = "simple_settings! {";

/// Finds fields that no other file reads.
pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let lines = tree.text(SETTINGS).unwrap_or_default().lines().enumerate();
    let declared = lines.skip_while(|(_, line)| *line != BEGIN).skip(1);
    for (index, line) in declared.take_while(|(_, line)| *line != "}") {
        let Some((field, _)) = line.trim().split_once(": ") else { continue };
        let reads = |text: &str| text.split(|c: char| !is_of_name(c)).any(|word| word == field);
        let is_code = |path: &str| path.starts_with("src/") && path.ends_with(".rs");
        let mut others = tree.iter().filter(|(path, _)| is_code(path) && *path != SETTINGS);
        if !others.any(|(_, text)| reads(text)) {
            let sentence = format!("nothing reads `{field}`: its key does not count as used");
            findings.push(Finding::new(SETTINGS, index + 1, sentence));
        }
    }
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
