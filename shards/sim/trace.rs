//! What happened, as one number that two equal runs agree on, and as text for people.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};

use base::Instant;

/// How much of the text of one thing is looked at, in bytes: a message that carries records would
/// be written out letter by letter otherwise.
const TEXT_BYTES_MAX: usize = 400;

/// How many lines of text are kept at most.
pub const TRACE_LINES_MAX: usize = 100_000;

/// The running hash over everything that happened, and the last lines of it if they are asked for.
///
/// Both are made of the same text, so that two runs with one hash read the same.
#[derive(Debug)]
pub struct Trace {
    hash: Hash,
    text: Text,
    lines: VecDeque<String>,
    lines_max: usize,
    count: u64,
}

impl Trace {
    /// A trace that keeps the last `lines_max` lines, at most [`TRACE_LINES_MAX`]. Keeping lines
    /// costs time: a run that is to be fast keeps none, and is repeated with lines when it failed.
    pub(crate) fn new(lines_max: usize) -> Self {
        let lines_max = lines_max.min(TRACE_LINES_MAX);
        Self {
            hash: Hash::default(),
            text: Text::default(),
            lines: VecDeque::new(),
            lines_max,
            count: 0,
        }
    }

    /// Takes down one thing that happened, with the payload that belongs to it.
    pub(crate) fn note(&mut self, at: Instant, what: fmt::Arguments<'_>, payload: &[u8]) {
        self.count += 1;
        self.hash.word(at.as_nanos());
        let mut text = std::mem::take(&mut self.text);
        text.bytes.clear();
        // An error says that the text is cut at its limit, and saves the making of the rest.
        let is_whole = text.write_fmt(what).is_ok();
        self.hash.bytes(text.bytes.as_slice());
        self.hash.bytes(payload);
        if self.lines_max > 0 {
            self.keep_line(at, &text, is_whole, payload);
        }
        self.text = text;
    }

    fn keep_line(&mut self, at: Instant, text: &Text, is_whole: bool, payload: &[u8]) {
        if self.lines.len() == self.lines_max {
            self.lines.pop_front();
        }
        let nanos = at.as_nanos();
        let (ms, rest) = (nanos / 1_000_000, nanos % 1_000_000);
        let bytes = if payload.is_empty() { String::new() } else { describe(payload) };
        let more = if is_whole { "" } else { " …" };
        let text = String::from_utf8_lossy(&text.bytes);
        self.lines.push_back(format!("{ms:>6}.{rest:06} {text}{more}{bytes}"));
    }

    /// The hash over everything so far.
    pub fn hash(&self) -> u64 {
        self.hash.state
    }

    /// How many things happened.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The last lines, the oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}

fn describe(payload: &[u8]) -> String {
    let mut hash = Hash::default();
    hash.bytes(payload);
    format!(" [{} bytes, {:08x}]", payload.len(), hash.state >> 32)
}

/// A hash that is the same on every machine and with every version of the compiler.
#[derive(Debug)]
struct Hash {
    state: u64,
}

impl Default for Hash {
    fn default() -> Self {
        Self { state: 0x9e37_79b9_7f4a_7c15 }
    }
}

impl Hash {
    fn word(&mut self, word: u64) {
        let mixed = (self.state ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.state = mixed ^ (mixed >> 29);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.word(u64::from_le_bytes(word));
        }
        self.word(bytes.len() as u64);
    }
}

/// A text that is cut where it gets too long.
#[derive(Debug, Default)]
struct Text {
    bytes: Vec<u8>,
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = text.len().min(TEXT_BYTES_MAX - self.bytes.len());
        self.bytes.extend_from_slice(&text.as_bytes()[..fits]);
        if fits < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}
