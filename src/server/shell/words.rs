//! From a line to words.

/// The words of a line, between white space. What stands in `'…'` or `"…"` belongs together, and a
/// `\` outside of quotes takes the meaning from the character behind it.
///
/// # Errors
/// A sentence, if a quote is not closed.
pub(super) fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        None => return Err(format!("close the quote: {char}")),
                        Some(next) if next == char => break,
                        Some(next) => word.push(next),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(chars.next()),
            _ if char.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_words() {
        for (line, words) in [
            ("", &[][..]),
            ("  \t\n", &[]),
            ("ls\n", &["ls"]),
            ("cat  /a b\\ c", &["cat", "/a", "b c"]),
            (r#"cat '/user(a\)b)' "x y"'z'"#, &["cat", r"/user(a\)b)", "x yz"]),
            ("''", &[""]),
            ("a\\", &["a"]),
        ] {
            assert_eq!(split(line).expect("whole"), words, "{line:?}");
        }
        for line in ["cat 'a", "\""] {
            assert!(split(line).expect_err("open").contains("close the quote"), "{line:?}");
        }
    }
}
