//! `cargo xtask tidy`: what keeps the tree small and readable, checked rather than hoped for.
//!
//! Each rule is a module and gives findings. `testdata/tidy/` has a made-up tree and the findings
//! expected of it for every rule.

mod crates;
mod edges;
mod modules;
mod settings;
mod sizes;
mod words;

use std::fmt;
use std::path::Path;

use crate::tree::Tree;
use crates::Crates;

/// One thing that is wrong: where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    path: String,
    line: usize,
    sentence: String,
}

impl Finding {
    /// `line` counts from 1; 0 is the file as a whole.
    fn new(path: &str, line: usize, sentence: String) -> Finding {
        Finding { path: path.to_owned(), line, sentence }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { path, line, sentence } = self;
        match line {
            0 => write!(formatter, "{path}: {sentence}"),
            line => write!(formatter, "{path}:{line}: {sentence}"),
        }
    }
}

/// Checks the tree under `root` and prints what is wrong.
///
/// # Errors
/// How many findings there are, or why a file cannot be read.
pub fn run(root: &Path) -> Result<(), String> {
    let tree = Tree::read(root).map_err(|error| format!("reading files: {error}"))?;
    let findings = check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(format!("tidy has {count} findings; docs/HACKING.md says what it checks")),
    }
}

/// Runs every rule; findings come ordered by path and line.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let crates = Crates::read(tree, &mut findings);
    crates.check(tree, &mut findings);
    edges::check(tree, &crates, &mut findings);
    modules::check(tree, &crates, &mut findings);
    settings::check(tree, &mut findings);
    sizes::check(tree, &mut findings);
    words::check(tree, &mut findings);
    findings.sort();
    findings.dedup();
    findings
}

/// Whether an attribute list has `#[cfg(test)]` (also as part of a longer condition).
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<proc_macro2::TokenStream>().is_ok_and(|condition| {
                condition.into_iter().next().is_some_and(|first| first.to_string() == "test")
            })
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A case is a text: `--- path` starts a file of the tree, `=== findings` the expected list.
    fn run_case(text: &str) -> (String, String) {
        let (files, expected) = text.split_once("=== findings\n").expect("a list of findings");
        let mut tree = Tree::default();
        for file in files.split("--- ").skip(1) {
            let (path, text) = file.split_once('\n').expect("a path, then the text");
            tree.insert(path, text);
        }
        let found: Vec<String> = check(&tree).iter().map(Finding::to_string).collect();
        (found.join("\n"), expected.trim_end().to_owned())
    }

    #[test]
    fn cases_give_their_findings() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/tidy");
        let mut cases: Vec<_> =
            fs::read_dir(folder).expect("the folder of cases").map(|e| e.unwrap().path()).collect();
        cases.sort();
        assert!(cases.len() >= 10, "only {} cases were found", cases.len());
        for case in cases {
            let (found, expected) = run_case(&fs::read_to_string(&case).unwrap());
            assert_eq!(found, expected, "\ncase {}", case.display());
        }
    }

    #[test]
    fn this_tree_is_tidy() {
        let tree = Tree::read(&crate::workspace_root()).unwrap();
        let findings: Vec<String> = check(&tree).iter().map(Finding::to_string).collect();
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}
