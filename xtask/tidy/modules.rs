//! Cycles between the modules of a crate.
//!
//! Two modules that import each other are one module in two files: neither can be read alone. A
//! use is followed through re-exports to the module that defines the item, then lifted to the pair
//! of siblings that it connects; a parent and its own child may know each other.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use super::crates::Crates;
use super::{Finding, is_for_tests};
use crate::tree::Tree;

/// Re-exports are followed so far; a longer chain is a loop.
const ALIAS_DEPTH_MAX: usize = 16;

type ModulePath = Vec<String>;

#[derive(Default)]
struct Module {
    file: String,
    /// Names that `use` brings in, with the path they stand for.
    aliases: BTreeMap<String, ModulePath>,
    /// Modules whose every name is brought in.
    globs: Vec<ModulePath>,
    /// Paths into this crate that the module names anywhere.
    references: Vec<ModulePath>,
}

type Modules = BTreeMap<ModulePath, Module>;

/// Finds groups of sibling modules that import each other.
pub(super) fn check(tree: &Tree, crates: &Crates, findings: &mut Vec<Finding>) {
    for root in crates.packages.values().flat_map(|package| &package.roots) {
        let mut modules = Modules::new();
        let folder = root.rsplit_once('/').map_or(String::new(), |(folder, _)| folder.to_owned());
        read_module(tree, &mut modules, Vec::new(), root, &folder);
        report_cycles(root, &edges(&modules), findings);
    }
}

fn read_module(tree: &Tree, modules: &mut Modules, path: ModulePath, file: &str, folder: &str) {
    let Some(Ok(parsed)) = tree.text(file).map(syn::parse_file) else { return };
    read_items(tree, modules, path, file, folder, &parsed.items);
}

fn read_items(
    tree: &Tree,
    modules: &mut Modules,
    path: ModulePath,
    file: &str,
    folder: &str,
    items: &[syn::Item],
) {
    let mut children = BTreeSet::new();
    for item in items {
        let syn::Item::Mod(child) = item else { continue };
        if is_for_tests(&child.attrs) {
            continue;
        }
        let name = child.ident.to_string();
        children.insert(name.clone());
        let mut child_path = path.clone();
        child_path.push(name.clone());
        let inside = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        match &child.content {
            Some((_, items)) => read_items(tree, modules, child_path, file, &inside, items),
            None => {
                let candidates = [format!("{inside}.rs"), format!("{inside}/mod.rs")];
                if let Some(found) = candidates.iter().find(|file| tree.text(file).is_some()) {
                    read_module(tree, modules, child_path, found, &inside);
                }
            }
        }
    }
    let mut reader = Reader { path: &path, children, module: Module::default() };
    for item in items {
        let is_module = matches!(item, syn::Item::Mod(_));
        if !is_module {
            reader.visit_item(item);
        }
    }
    reader.module.file = file.to_owned();
    let module = reader.module;
    modules.insert(path, module);
}

struct Reader<'a> {
    path: &'a ModulePath,
    children: BTreeSet<String>,
    module: Module,
}

impl Reader<'_> {
    /// The path from the crate's root, or nothing if it leads out of the crate.
    fn absolute(&self, segments: &[String]) -> Option<ModulePath> {
        let (first, rest) = segments.split_first()?;
        let mut path = match first.as_str() {
            "crate" => Vec::new(),
            "self" => self.path.clone(),
            "super" => self.path.split_last()?.1.to_vec(),
            name if self.children.contains(name) => {
                let mut child = self.path.clone();
                child.push(name.to_owned());
                child
            }
            _ => return None,
        };
        for segment in rest {
            match segment.as_str() {
                "super" => path.truncate(path.len().checked_sub(1)?),
                "self" => {}
                name => path.push(name.to_owned()),
            }
        }
        Some(path)
    }

    fn read_use(&mut self, prefix: &mut Vec<String>, tree: &syn::UseTree) {
        let leaf = |reader: &mut Self, name: String, alias: String| {
            let mut segments = prefix.clone();
            if name != "self" {
                segments.push(name);
            }
            if let Some(path) = reader.absolute(&segments) {
                reader.module.aliases.insert(alias, path.clone());
                reader.module.references.push(path);
            }
        };
        match tree {
            syn::UseTree::Name(name) => leaf(self, name.ident.to_string(), name.ident.to_string()),
            syn::UseTree::Rename(name) => {
                leaf(self, name.ident.to_string(), name.rename.to_string());
            }
            syn::UseTree::Glob(_) => {
                if let Some(path) = self.absolute(prefix) {
                    self.module.globs.push(path.clone());
                    self.module.references.push(path);
                }
            }
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.read_use(prefix, &path.tree);
                prefix.pop();
            }
            syn::UseTree::Group(group) => {
                for item in &group.items {
                    self.read_use(prefix, item);
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.read_use(&mut Vec::new(), &item.tree);
        }
    }

    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1
            && let Some(path) = self.absolute(&segments)
        {
            self.module.references.push(path);
        }
        visit::visit_path(self, path);
    }
}

/// The module that defines what `path` names.
fn resolve(modules: &Modules, path: &[String], depth: usize) -> ModulePath {
    let mut module_path: ModulePath = Vec::new();
    for (index, name) in path.iter().enumerate() {
        let mut child = module_path.clone();
        child.push(name.clone());
        if modules.contains_key(&child) {
            module_path = child;
            continue;
        }
        let alias = modules.get(&module_path).and_then(|module| module.aliases.get(name));
        return match alias {
            Some(target) if depth < ALIAS_DEPTH_MAX => {
                let mut target = target.clone();
                target.extend(path.iter().skip(index + 1).cloned());
                resolve(modules, &target, depth + 1)
            }
            _ => module_path,
        };
    }
    module_path
}

/// For each parent: which of its children use which others, and the file that shows it.
type SiblingEdges = BTreeMap<ModulePath, BTreeMap<String, BTreeMap<String, String>>>;

fn edges(modules: &Modules) -> SiblingEdges {
    let mut edges = SiblingEdges::new();
    for (from, module) in modules {
        for reference in module.references.iter().chain(&module.globs) {
            let to = resolve(modules, reference, 0);
            let shared = from.iter().zip(&to).take_while(|(left, right)| left == right).count();
            let (Some(left), Some(right)) = (from.get(shared), to.get(shared)) else { continue };
            let parent = from.iter().take(shared).cloned().collect();
            let of_parent = edges.entry(parent).or_default();
            of_parent
                .entry(left.clone())
                .or_default()
                .entry(right.clone())
                .or_insert_with(|| module.file.clone());
        }
    }
    edges
}

fn report_cycles(root: &str, edges: &SiblingEdges, findings: &mut Vec<Finding>) {
    for siblings in edges.values() {
        let mut reported = BTreeSet::new();
        for name in siblings.keys() {
            let reached = reachable(siblings, name);
            if reached.contains(name) && !reported.contains(name) {
                let returns = |other: &&String| reachable(siblings, other).contains(name);
                let cycle: Vec<String> = reached.iter().filter(returns).cloned().collect();
                reported.extend(cycle.iter().cloned());
                let sentence = format!("modules import each other: {}", cycle.join(", "));
                findings.push(Finding::new(root, 0, sentence));
            }
        }
    }
}

fn reachable(
    siblings: &BTreeMap<String, BTreeMap<String, String>>,
    from: &str,
) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![from.to_owned()];
    while let Some(name) = waiting.pop() {
        for next in siblings.get(&name).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(next.clone()) {
                waiting.push(next.clone());
            }
        }
    }
    reached
}
