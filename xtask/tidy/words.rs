//! Words that don't belong into the tree: unfinished work, paths of one machine, addresses of
//! servers that a reader may not have, and `unsafe` outside its two crates.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};

use super::Finding;
use crate::tree::Tree;

const WORDS: &str = "xtask/words.txt";

/// The two crates that may hold `unsafe`.
const FOLDERS_UNSAFE: &[&str] = &["shards/ring/", "shards/mesh/"];

/// These name the words in order to refuse them, or were written by others.
const FILES_SKIPPED: &[&str] = &["xtask/words.txt", "xtask/testdata/", "Cargo.lock", "LICENSE"];

#[derive(Default)]
struct Rules<'a> {
    refused: Vec<&'a str>,
    hosts: BTreeSet<&'a str>,
}

/// Finds refused words, addresses of unknown hosts and misplaced `unsafe`.
pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let rules = parse(tree.text(WORDS).unwrap_or_default(), findings);
    let is_read = |path: &str| !FILES_SKIPPED.iter().any(|skipped| path.starts_with(skipped));
    for (path, text) in tree.iter().filter(|(path, _)| is_read(path)) {
        for (index, line) in text.lines().enumerate() {
            check_line(&rules, path, index + 1, line, findings);
        }
        let may_be_unsafe = FOLDERS_UNSAFE.iter().any(|folder| path.starts_with(folder));
        if path.ends_with(".rs") && !may_be_unsafe {
            check_unsafe(path, text, findings);
        }
    }
}

/// A line is `refuse WORD` or `host NAME`.
fn parse<'a>(text: &'a str, findings: &mut Vec<Finding>) -> Rules<'a> {
    let mut rules = Rules::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once(' ') {
            Some(("refuse", word)) => rules.refused.push(word.trim()),
            Some(("host", name)) => {
                rules.hosts.insert(name.trim());
            }
            _ => {
                let sentence = "a line is `refuse WORD` or `host NAME`".to_owned();
                findings.push(Finding::new(WORDS, index + 1, sentence));
            }
        }
    }
    rules
}

fn check_line(rules: &Rules<'_>, path: &str, number: usize, line: &str, out: &mut Vec<Finding>) {
    for word in &rules.refused {
        if contains_word(line, word) {
            out.push(Finding::new(path, number, format!("`{word}` does not belong here")));
        }
    }
    for address in line.split("://").skip(1) {
        let is_of_host = |byte: &char| byte.is_ascii_alphanumeric() || ".-".contains(*byte);
        let host: String = address.chars().take_while(is_of_host).collect();
        let is_local = host.is_empty() || host == "localhost" || host.starts_with("127.");
        let is_name = host.contains('.') && host.chars().any(|c| c.is_ascii_alphabetic());
        if !is_local && is_name && !rules.hosts.contains(host.as_str()) {
            let sentence = format!("the host {host} is not one that {WORDS} lists");
            out.push(Finding::new(path, number, sentence));
        }
    }
}

/// Whether `word` stands in `line` and is not a part of a longer word.
fn contains_word(line: &str, word: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line.get(at + word.len()..).and_then(|text| text.chars().next());
        let starts = !word.starts_with(is_letter) || !before.is_some_and(is_letter);
        starts && (!word.ends_with(is_letter) || !after.is_some_and(is_letter))
    })
}

fn check_unsafe(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let Ok(tokens) = text.parse::<TokenStream>() else { return };
    let mut waiting = vec![tokens];
    while let Some(tokens) = waiting.pop() {
        for token in tokens {
            match token {
                TokenTree::Group(group) => waiting.push(group.stream()),
                TokenTree::Ident(word) if word == "unsafe" => {
                    let sentence = "`unsafe` lives in shards/ring and shards/mesh only".to_owned();
                    findings.push(Finding::new(path, word.span().start().line, sentence));
                }
                _ => {}
            }
        }
    }
}
