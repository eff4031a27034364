//! Which crate may use which other: `xtask/edges.txt` against every manifest.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::crates::Crates;
use crate::tree::Tree;

const EDGES: &str = "xtask/edges.txt";

#[derive(Default)]
struct Allowed {
    always: BTreeSet<String>,
    in_tests: BTreeSet<String>,
}

/// Finds uses of one crate of the workspace by another that `xtask/edges.txt` doesn't allow.
pub(super) fn check(tree: &Tree, crates: &Crates, findings: &mut Vec<Finding>) {
    let allowed = parse(tree.text(EDGES).unwrap_or_default(), findings);
    for (name, package) in &crates.packages {
        let Some(allowed) = allowed.get(name) else {
            let sentence = format!("the crate `{name}` has no line in {EDGES}");
            findings.push(Finding::new(&package.manifest_path, 0, sentence));
            continue;
        };
        let mut refuse = |used: &String, how: &str| {
            let sentence = format!("`{name}` may not use `{used}`{how}: see {EDGES}");
            findings.push(Finding::new(&package.manifest_path, 0, sentence));
        };
        let is_ours = |used: &&String| crates.packages.contains_key(*used);
        for used in package.dependencies.iter().filter(is_ours) {
            if !allowed.always.contains(used) {
                refuse(used, "");
            }
        }
        for used in package.dev_dependencies.iter().filter(is_ours) {
            if !allowed.always.contains(used) && !allowed.in_tests.contains(used) {
                refuse(used, " in its tests");
            }
        }
    }
}

/// A line is `crate: what it may use | what its tests may use besides`.
fn parse(text: &str, findings: &mut Vec<Finding>) -> BTreeMap<String, Allowed> {
    let mut all = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let Some((name, uses)) = line.split_once(':') else {
            let sentence = "a line is `crate: uses | uses of its tests`".to_owned();
            findings.push(Finding::new(EDGES, index + 1, sentence));
            continue;
        };
        let (always, in_tests) = uses.split_once('|').unwrap_or((uses, ""));
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let allowed = Allowed { always: words(always), in_tests: words(in_tests) };
        if all.insert(name.trim().to_owned(), allowed).is_some() {
            findings.push(Finding::new(EDGES, index + 1, format!("`{name}` has two lines")));
        }
    }
    all
}
