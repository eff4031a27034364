//! Paths with patterns in them (`GlobVisitor`, `GlobComponent`).

use std::collections::BTreeSet;

use super::{Directory, Node};

/// A node that a path led to.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// The names on the way to it.
    path: Vec<String>,
    /// What is there.
    pub node: Node<'a>,
}

impl Found<'_> {
    /// Its path from the root.
    pub fn path(&self) -> String {
        format!("/{}", self.path.join("/"))
    }

    /// Its name; `/` for the root.
    pub fn name(&self) -> &str {
        self.path.last().map_or("/", String::as_str)
    }
}

/// Whether a part of `path` is a pattern: then what it leads to has other names.
pub fn has_pattern(path: &str) -> bool {
    path.split('/').any(|part| Pattern::parse(part).is_some())
}

impl<'a> Directory<'a> {
    /// Everything that `path` leads to, from this root on; one that doesn't begin with `/` goes on
    /// from `working`. `.` and `..` are taken for what they usually mean, without looking whether
    /// what they leave is there.
    ///
    /// In a part of a path `*` stands for any characters, `?` for one of them, `{one,other}` for
    /// one of several texts with `*` and `?` in them, and `\` takes the meaning from the character
    /// behind it. A part without any of these three, or with a brace that does not fit, is a name
    /// as it stands.
    pub fn look_up(&self, working: &str, path: &str) -> Vec<Found<'a>> {
        let working = if path.starts_with('/') { "" } else { working };
        let mut parts = Vec::new();
        for part in working.split('/').chain(path.split('/')) {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                name => parts.push(name),
            }
        }
        let mut found = vec![Found { path: Vec::new(), node: Node::Directory(*self) }];
        for part in parts {
            found = found.iter().flat_map(|at| at.step(part)).collect();
        }
        found
    }
}

impl<'a> Found<'a> {
    /// What one part of a path leads to from here.
    fn step(&self, part: &str) -> Vec<Found<'a>> {
        let Node::Directory(directory) = self.node else { return Vec::new() };
        let names = match Pattern::parse(part) {
            None => vec![part.to_owned()],
            Some(pattern) => {
                directory.names().into_iter().filter(|name| pattern.matches(name)).collect()
            }
        };
        let children = names.into_iter().filter_map(|name| {
            let node = directory.child(&name)?;
            let mut path = self.path.clone();
            path.push(name);
            Some(Found { path, node })
        });
        children.collect()
    }
}

/// A part of a path that stands for several names.
#[derive(Debug, PartialEq)]
struct Pattern(Vec<Piece>);

#[derive(Debug, PartialEq)]
enum Piece {
    Literal(char),
    /// `?`
    One,
    /// `*`
    Any,
    /// `{…,…}`
    Either(Vec<Vec<Piece>>),
}

impl Pattern {
    /// Nothing where it is a name.
    fn parse(text: &str) -> Option<Self> {
        let mut pieces = Vec::new();
        // What was read of the braces that are open: the texts before, and the last one.
        let mut group: Option<(Vec<Vec<Piece>>, Vec<Piece>)> = None;
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            let piece = match (char, &mut group) {
                ('{', Some(_)) => return None,
                ('{', None) => {
                    group = Some((Vec::new(), Vec::new()));
                    continue;
                }
                (',', Some((before, last))) => {
                    before.push(std::mem::take(last));
                    continue;
                }
                ('}', Some((before, last))) => {
                    before.push(std::mem::take(last));
                    let either = Piece::Either(std::mem::take(before));
                    group = None;
                    either
                }
                ('*', _) => Piece::Any,
                ('?', _) => Piece::One,
                ('\\', _) => Piece::Literal(chars.next().unwrap_or('\\')),
                (other, _) => Piece::Literal(other),
            };
            match &mut group {
                Some((_, last)) => last.push(piece),
                None => pieces.push(piece),
            }
        }
        let is_name = pieces.iter().all(|piece| matches!(piece, Piece::Literal(_)));
        (group.is_none() && !is_name).then_some(Self(pieces))
    }

    fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        ends(&self.0, &name, BTreeSet::from([0])).contains(&name.len())
    }
}

/// Where in `name` the pieces can end if they begin at one of `begins`. All ways are followed at
/// once, so that no pattern takes long.
fn ends(pieces: &[Piece], name: &[char], begins: BTreeSet<usize>) -> BTreeSet<usize> {
    pieces.iter().fold(begins, |at, piece| match piece {
        Piece::Literal(char) => {
            at.into_iter().filter(|at| name.get(*at) == Some(char)).map(|at| at + 1).collect()
        }
        Piece::One => at.into_iter().filter(|at| *at < name.len()).map(|at| at + 1).collect(),
        Piece::Any => at.first().map_or_else(BTreeSet::new, |at| (*at..=name.len()).collect()),
        Piece::Either(texts) => {
            texts.iter().flat_map(|text| ends(text, name, at.clone())).collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_kafkas_shell() {
        let check = |pattern: &str, name: &str, expected: bool| {
            let parsed = Pattern::parse(pattern);
            let matches = parsed.map_or_else(|| pattern == name, |parsed| parsed.matches(name));
            assert_eq!(matches, expected, "{pattern} {name}");
        };
        check("*", "", true);
        check("*", "any.thing", true);
        check("a*c", "abbc", true);
        check("a*c", "abcd", false);
        check("a?c", "abc", true);
        check("a?c", "ac", false);
        check("{ab,c?}d", "abd", true);
        check("{ab,c?}d", "cxd", true);
        check("{ab,c?}d", "cd", false);
        check("{a,}b", "b", true);
        check("x{a*,b}*", "xaaa", true);
        check("a.c*", "abc", false);
        check("a|b*", "a", false);
        // What is no pattern is a name as it stands, `\` and all.
        check("a\\*", "a\\*", true);
        check("a\\*", "a*", false);
        check("a,b", "a,b", true);
        check("a}", "a}", true);
        check("{a", "{a", true);
        check("{a,{b}}", "{a,{b}}", true);
        check("\\**", "*x", true);
        check("\\**", "x", false);
        check("*\\", "a\\", true);
        check("{a\\,b,c}", "a,b", true);
    }

    #[test]
    fn a_pattern_with_many_ways_is_matched_at_once() {
        let strict = Pattern::parse(&format!("{}b", "*a".repeat(50))).expect("a pattern");
        assert!(!strict.matches(&"a".repeat(2_000)));
        assert!(strict.matches(&("a".repeat(2_000) + "b")));
    }
}
