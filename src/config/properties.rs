//! The `.properties` format, as `java.util.Properties.load(InputStream)` reads it.

use std::collections::BTreeMap;

/// Keys and values, sorted by key. A file's keys are bounded by its size, and it is the
/// administrator's own.
pub type Pairs = BTreeMap<String, String>;

/// A file that is not in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PropertiesError {
    /// `\u` without four hexadecimal digits after it.
    #[error("Malformed \\uxxxx encoding.")]
    UnicodeEscape,
}

/// Reads the bytes of a file. They are ISO-8859-1: one byte, one character; any other character is
/// written `\uXXXX`, in UTF-16. A key that stands twice has its last value. Half of a surrogate
/// pair, which Java keeps, becomes U+FFFD.
pub fn parse(file: &[u8]) -> Result<Pairs, PropertiesError> {
    let mut pairs = Pairs::new();
    let mut lines = NaturalLines { rest: file };
    while let Some(line) = lines.next_logical() {
        let (key, value) = split(&line);
        pairs.insert(unescape(key)?, unescape(value)?);
    }
    Ok(pairs)
}

/// Hands out logical lines: without comments, blank lines and continuations, escapes still in.
struct NaturalLines<'a> {
    rest: &'a [u8],
}

impl<'a> NaturalLines<'a> {
    fn next_logical(&mut self) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        let mut is_continued = false;
        loop {
            let Some(natural) = self.next_natural() else {
                // A backslash at the end of the file continues nothing, yet makes a line.
                return is_continued.then_some(line);
            };
            // As long as nothing has come, a line can be blank or a comment, which never goes on.
            let is_skipped = natural.first().is_none_or(|byte| matches!(byte, b'#' | b'!'));
            if line.is_empty() && is_skipped {
                is_continued = false;
                continue;
            }
            line.extend_from_slice(natural);
            is_continued = ends_in_odd_backslashes(natural);
            if !is_continued {
                return Some(line);
            }
            line.pop();
        }
    }

    /// The next line, without the white space before it and the line end after it.
    fn next_natural(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let bytes = self.rest;
        let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let (line, rest) = match end {
            None => (bytes, &bytes[bytes.len()..]),
            Some(end) => {
                let both = bytes[end..].starts_with(b"\r\n");
                (&bytes[..end], &bytes[end + if both { 2 } else { 1 }..])
            }
        };
        self.rest = rest;
        let start = line.iter().position(|&byte| !is_blank(byte)).unwrap_or(line.len());
        Some(&line[start..])
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0c)
}

fn ends_in_odd_backslashes(line: &[u8]) -> bool {
    line.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// Parts a logical line at the first `=`, `:` or white space that is not escaped.
fn split(line: &[u8]) -> (&[u8], &[u8]) {
    let mut escaped = false;
    let key_end = line
        .iter()
        .position(|&byte| {
            let ends = !escaped && (matches!(byte, b'=' | b':') || is_blank(byte));
            escaped = !escaped && byte == b'\\';
            ends
        })
        .unwrap_or(line.len());
    let (key, mut value) = line.split_at(key_end);
    let skip_blanks = |bytes: &mut &[u8]| {
        while bytes.first().is_some_and(|&byte| is_blank(byte)) {
            *bytes = &bytes[1..];
        }
    };
    skip_blanks(&mut value);
    if value.first().is_some_and(|byte| matches!(byte, b'=' | b':')) {
        value = &value[1..];
        skip_blanks(&mut value);
    }
    (key, value)
}

fn unescape(bytes: &[u8]) -> Result<String, PropertiesError> {
    let mut units: Vec<u16> = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            units.push(u16::from(byte));
            continue;
        }
        match rest.next() {
            None => {}
            Some(b't') => units.push(0x09),
            Some(b'n') => units.push(0x0a),
            Some(b'f') => units.push(0x0c),
            Some(b'r') => units.push(0x0d),
            Some(b'u') => units.push(unicode_escape(&mut rest)?),
            Some(other) => units.push(u16::from(other)),
        }
    }
    Ok(String::from_utf16_lossy(&units))
}

fn unicode_escape(rest: &mut impl Iterator<Item = u8>) -> Result<u16, PropertiesError> {
    let mut unit = 0;
    for _ in 0..4 {
        let byte = rest.next().ok_or(PropertiesError::UnicodeEscape)?;
        let digit = char::from(byte).to_digit(16).ok_or(PropertiesError::UnicodeEscape)?;
        unit = unit * 16 + digit as u16;
    }
    Ok(unit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |byte: u8| char::from(byte).to_digit(16).expect("hexadecimal") as u8;
        hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) * 16 + digit(pair[1])).collect()
    }

    fn text(hex: &str) -> String {
        let units: Vec<u16> =
            bytes(hex).chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        String::from_utf16_lossy(&units)
    }

    #[test]
    fn files_are_read_as_java_reads_them() {
        for line in include_str!("testdata/properties_cases.txt").lines() {
            let (file, answer) = line.split_once(' ').unwrap_or((line, ""));
            let file = bytes(file);
            let expected = match answer.strip_prefix("error ") {
                Some(message) => Err(message.to_owned()),
                None => Ok(answer
                    .split(' ')
                    .filter_map(|pair| pair.split_once('='))
                    .map(|(key, value)| (text(key), text(value)))
                    .collect()),
            };
            let ours = parse(&file).map_err(|error| error.to_string());
            assert_eq!(ours, expected, "{:?}", String::from_utf8_lossy(&file));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(file in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&file);
        }

        #[test]
        fn plain_pairs_come_back(
            pairs in prop::collection::btree_map("[a-z.]{1,9}", "[a-z0-9]{0,9}", 0..9),
        ) {
            let lines = pairs.iter().map(|(key, value)| format!("{key}={value}\n"));
            let file: String = lines.collect();
            prop_assert_eq!(parse(file.as_bytes()), Ok(pairs));
        }
    }
}
