//! Sizes of functions, files and lines, with one file of exceptions that only shrinks.

use std::collections::BTreeMap;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::{Finding, is_for_tests};
use crate::tree::Tree;

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 1_000;
const LINE_COLUMNS_MAX: usize = 100;

const RATCHET: &str = "xtask/ratchet.txt";

/// What a person writes and reads as text: its lines are measured.
const ENDINGS_MEASURED: &[&str] = &[".rs", ".java", ".py", ".sh", ".ci/run"];

/// What was measured, named as in the ratchet file: `function PATH NAME`, `file PATH`,
/// `line PATH` (there the number of lines that are too long).
type Measures = BTreeMap<String, Measure>;

struct Measure {
    path: String,
    line: usize,
    value: usize,
    limit: usize,
}

/// Finds what is larger than allowed, and exceptions that are larger than what they excuse.
pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut measures = Measures::new();
    let is_measured = |path: &str| {
        !path.starts_with("xtask/testdata/")
            && ENDINGS_MEASURED.iter().any(|end| path.ends_with(end))
    };
    for (path, text) in tree.iter().filter(|(path, _)| is_measured(path)) {
        measure_columns(path, text, &mut measures);
        if !path.ends_with(".rs") {
            measure_file(path, text.lines().count(), &mut measures);
            continue;
        }
        match syn::parse_file(text) {
            Ok(file) => measure_rust(path, text, &file, &mut measures),
            Err(error) => {
                let line = error.span().start().line;
                findings.push(Finding::new(path, line, format!("does not parse: {error}")));
            }
        }
    }
    compare(tree, &measures, findings);
}

fn measure_columns(path: &str, text: &str, measures: &mut Measures) {
    let is_long = |(_, line): &(usize, &str)| line.chars().count() > LINE_COLUMNS_MAX;
    let mut long = text.lines().enumerate().filter(is_long).map(|(index, _)| index + 1);
    if let Some(line) = long.next() {
        let value = 1 + long.count();
        let measure = Measure { path: path.to_owned(), line, value, limit: 0 };
        measures.insert(format!("line {path}"), measure);
    }
}

fn measure_file(path: &str, value: usize, measures: &mut Measures) {
    let measure = Measure { path: path.to_owned(), line: 0, value, limit: FILE_LINES_MAX };
    measures.insert(format!("file {path}"), measure);
}

fn measure_rust(path: &str, text: &str, file: &syn::File, measures: &mut Measures) {
    let mut lines_of_tests = 0;
    for item in &file.items {
        if let syn::Item::Mod(module) = item
            && is_for_tests(&module.attrs)
        {
            lines_of_tests += lines_of(item);
        }
    }
    let is_all_tests = path.ends_with("/tests.rs") || path.contains("/tests/");
    if !is_all_tests {
        measure_file(path, text.lines().count() - lines_of_tests, measures);
    }
    let mut functions = Functions { path, owner: String::new(), measures };
    functions.visit_file(file);
}

fn lines_of(item: &impl Spanned) -> usize {
    let span = item.span();
    1 + span.end().line - span.start().line
}

struct Functions<'a> {
    path: &'a str,
    owner: String,
    measures: &'a mut Measures,
}

impl Functions<'_> {
    fn measure(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let line = signature.span().start().line;
        let value = 1 + block.span().end().line - line;
        let name = format!("{}{}", self.owner, signature.ident);
        let key = format!("function {} {name}", self.path);
        let measure =
            Measure { path: self.path.to_owned(), line, value, limit: FUNCTION_LINES_MAX };
        // Two functions of one name (for two platforms, say) share an exception: the longer counts.
        if self.measures.get(&key).is_none_or(|known| known.value < value) {
            self.measures.insert(key, measure);
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.measure(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        let outer = std::mem::take(&mut self.owner);
        self.owner = name.map_or(String::new(), |name| format!("{name}::"));
        visit::visit_item_impl(self, item);
        self.owner = outer;
    }
}

fn compare(tree: &Tree, measures: &Measures, findings: &mut Vec<Finding>) {
    let exceptions = read_ratchet(tree, findings);
    for (key, measure) in measures {
        let excused = exceptions.get(key).map(|(value, _)| *value);
        if measure.value <= excused.unwrap_or(measure.limit).max(measure.limit) {
            continue;
        }
        let what = match key.split(' ').next() {
            Some("line") => format!("{} lines over {LINE_COLUMNS_MAX} columns", measure.value),
            Some("file") => format!("a file of {} lines without its tests", measure.value),
            _ => format!("a function of {} lines", measure.value),
        };
        let limit = match excused {
            Some(excused) => format!("its exception is {excused} and only shrinks"),
            None => format!("the limit is {}", measure.limit),
        };
        findings.push(Finding::new(&measure.path, measure.line, format!("{what}; {limit}")));
    }
    for (key, (excused, line)) in &exceptions {
        let sentence = match measures.get(key) {
            Some(measure) if measure.value > measure.limit && measure.value < *excused => {
                format!("`{key}` fell to {}: lower its exception", measure.value)
            }
            Some(measure) if measure.value > measure.limit => continue,
            _ => format!("`{key}` needs no exception any more: remove the line"),
        };
        findings.push(Finding::new(RATCHET, *line, sentence));
    }
}

fn read_ratchet(tree: &Tree, findings: &mut Vec<Finding>) -> BTreeMap<String, (usize, usize)> {
    let mut exceptions = BTreeMap::new();
    for (index, line) in tree.text(RATCHET).unwrap_or_default().lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parsed =
            line.rsplit_once(' ').and_then(|(key, value)| Some((key, value.parse().ok()?)));
        match parsed {
            Some((key, value)) => {
                exceptions.insert(key.trim().to_owned(), (value, index + 1));
            }
            None => {
                let sentence = "an exception is `function PATH NAME LINES`, `file PATH LINES` \
                                or `line PATH COUNT`";
                findings.push(Finding::new(RATCHET, index + 1, sentence.to_owned()));
            }
        }
    }
    exceptions
}
