//! The packages of the workspace, and what each of them must have: a `//!` at its start, and
//! dependencies only through the workspace, each with its reason.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use super::Finding;
use crate::tree::Tree;

const REASONS: &str = "docs/decisions/0001-dependencies.md";

/// One package: its name, folder, manifest and the files that its targets start from.
pub(super) struct Package {
    pub(super) manifest_path: String,
    pub(super) dependencies: BTreeSet<String>,
    pub(super) dev_dependencies: BTreeSet<String>,
    pub(super) roots: Vec<String>,
    manifest: Table,
}

/// All packages by name.
pub(super) struct Crates {
    pub(super) packages: BTreeMap<String, Package>,
    workspace: Table,
}

impl Crates {
    pub(super) fn read(tree: &Tree, findings: &mut Vec<Finding>) -> Crates {
        let mut crates = Crates { packages: BTreeMap::new(), workspace: Table::new() };
        for (path, text) in tree.iter() {
            let folder = match path.strip_suffix("Cargo.toml") {
                Some(folder) if !folder.starts_with("xtask/testdata") => folder,
                _ => continue,
            };
            match text.parse::<Table>() {
                Ok(manifest) => crates.add(tree, folder, path, manifest),
                Err(error) => findings.push(Finding::new(path, 0, error.message().to_owned())),
            }
        }
        crates
    }

    pub(super) fn check(&self, tree: &Tree, findings: &mut Vec<Finding>) {
        for package in self.packages.values() {
            for root in &package.roots {
                check_opening(tree, root, findings);
            }
            check_comes_from_workspace(package, findings);
        }
        self.check_reasons(tree, findings);
    }

    fn add(&mut self, tree: &Tree, folder: &str, path: &str, manifest: Table) {
        if let Some(Value::Table(workspace)) = manifest.get("workspace") {
            self.workspace.clone_from(workspace);
        }
        let name = manifest.get("package").and_then(|package| package.get("name"));
        let Some(name) = name.and_then(Value::as_str).map(str::to_owned) else { return };
        let mut dependencies = names_in(&manifest, "dependencies");
        dependencies.extend(names_in(&manifest, "build-dependencies"));
        let package = Package {
            manifest_path: path.to_owned(),
            dependencies,
            dev_dependencies: names_in(&manifest, "dev-dependencies"),
            roots: roots(tree, folder, &manifest),
            manifest,
        };
        self.packages.insert(name, package);
    }

    fn check_reasons(&self, tree: &Tree, findings: &mut Vec<Finding>) {
        let Some(Value::Table(dependencies)) = self.workspace.get("dependencies") else { return };
        let reasons = tree.text(REASONS).unwrap_or_default();
        for (name, source) in dependencies {
            if source.get("path").is_none() && !reasons.contains(&format!("`{name}`")) {
                let sentence = format!("the dependency `{name}` has no reason in {REASONS}");
                findings.push(Finding::new("Cargo.toml", 0, sentence));
            }
        }
    }
}

/// Tables of dependencies of one kind, those for one platform included.
fn dependency_tables<'a>(manifest: &'a Table, kind: &str) -> Vec<&'a Table> {
    let mut tables: Vec<&Table> = Vec::new();
    tables.extend(manifest.get(kind).and_then(Value::as_table));
    if let Some(Value::Table(platforms)) = manifest.get("target") {
        tables.extend(platforms.values().filter_map(|platform| platform.get(kind)?.as_table()));
    }
    tables
}

fn names_in(manifest: &Table, kind: &str) -> BTreeSet<String> {
    dependency_tables(manifest, kind).into_iter().flat_map(|table| table.keys().cloned()).collect()
}

/// The first file of every target: library, programs, tests, benches.
fn roots(tree: &Tree, folder: &str, manifest: &Table) -> Vec<String> {
    let mut paths: Vec<&str> = Vec::new();
    if let Some(Value::Table(library)) = manifest.get("lib") {
        paths.push(library.get("path").and_then(Value::as_str).unwrap_or("src/lib.rs"));
    }
    for kind in ["bin", "test", "bench", "example"] {
        if let Some(Value::Array(targets)) = manifest.get(kind) {
            paths.extend(targets.iter().filter_map(|target| target.get("path")?.as_str()));
        }
    }
    if paths.is_empty() {
        paths.extend(["src/lib.rs", "src/main.rs"]);
    }
    let paths = paths.into_iter().map(|path| format!("{folder}{path}"));
    paths.filter(|path| tree.text(path).is_some()).collect()
}

fn check_opening(tree: &Tree, root: &str, findings: &mut Vec<Finding>) {
    if !tree.text(root).is_some_and(|text| text.trim_start().starts_with("//!")) {
        let sentence = "a crate opens with `//!`: its job, what it depends on, what is absent";
        findings.push(Finding::new(root, 1, sentence.to_owned()));
    }
}

fn check_comes_from_workspace(package: &Package, findings: &mut Vec<Finding>) {
    for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
        for (name, source) in dependency_tables(&package.manifest, kind).into_iter().flatten() {
            if source.get("workspace").and_then(Value::as_bool) != Some(true) {
                let sentence =
                    format!("`{name}` must come from [workspace.dependencies] of the root");
                findings.push(Finding::new(&package.manifest_path, 0, sentence));
            }
        }
    }
}
