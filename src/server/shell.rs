//! `corelane metadata-shell`: a look at the metadata of a cluster, from a node's files.

mod commands;
mod files;
mod words;

use std::io::{self, BufRead, ErrorKind, IsTerminal, Read, Write};

use metadata::tree::{Directory, Software};

use self::commands::{Shell, Usage};
use self::files::Loaded;
use crate::cli::ShellOptions;
use crate::output;

/// The longest line that is read, in bytes.
const LINE_BYTES_MAX: u64 = 64 << 10;
const PROMPT: &str = ">> ";
/// As Kafka says where the build did not tell.
const COMMIT_UNKNOWN: &str = "unknown";

pub(crate) fn run(options: &ShellOptions) -> Result<(), String> {
    let Loaded { image, notes } = match (&options.snapshot, &options.directory) {
        (Some(file), _) => files::read_file(file)?,
        (None, Some(directory)) => files::read_directory(directory)?,
        (None, None) => return Err("give --snapshot FILE or --directory DIR".to_owned()),
    };
    for note in notes {
        output::error(&note);
    }
    let software = Software { version: env!("CARGO_PKG_VERSION"), commit: COMMIT_UNKNOWN };
    let mut shell = Shell::new(Directory::root(&image, software));
    let mut out = io::BufWriter::new(io::stdout().lock());
    if options.command.is_empty() {
        let is_person = io::stdin().is_terminal() && io::stdout().is_terminal();
        return converse(&mut shell, &mut io::stdin().lock(), &mut out, is_person);
    }
    match shell.run_one(&options.command, &mut out) {
        Ok(Ok(())) => written(out.flush()),
        Ok(Err(Usage(sentence))) => Err(sentence),
        Err(error) => written(Err(error)),
    }
}

/// Reads commands until there are none, or one says so.
fn converse(
    shell: &mut Shell<'_>,
    input: &mut impl BufRead,
    out: &mut impl Write,
    is_person: bool,
) -> Result<(), String> {
    loop {
        if is_person {
            let asked = out.write_all(PROMPT.as_bytes());
            written(asked.and_then(|()| out.flush()))?;
        }
        let Some(line) = next_line(input)? else {
            // The next thing in the terminal begins a line of its own.
            return written(if is_person { writeln!(out) } else { Ok(()) });
        };
        let ran = match words::split(&line) {
            Err(sentence) => writeln!(out, "{sentence}").map(|()| false),
            Ok(words) => shell.run(&words, out),
        };
        match ran.and_then(|is_over| out.flush().map(|()| is_over)) {
            Ok(false) => {}
            Ok(true) => return Ok(()),
            Err(error) => return written(Err(error)),
        }
    }
}

fn next_line(input: &mut impl BufRead) -> Result<Option<String>, String> {
    let mut line = Vec::new();
    let read = input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
    read.map_err(|error| format!("cannot read standard input: {error}"))?;
    if line.len() as u64 == LINE_BYTES_MAX && line.last() != Some(&b'\n') {
        return Err(format!("a line has more than {LINE_BYTES_MAX} bytes; give shorter commands"));
    }
    Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned()))
}

/// A reader that has gone away is no fault of the command.
fn written(result: io::Result<()>) -> Result<(), String> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A log that Apache Kafka wrote.
    const LOG: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../quorum/testdata/kafka/00000000000000000000.log");

    /// What the shell says to some lines.
    fn answers(input: &str) -> String {
        let loaded = files::read_file(Path::new(LOG)).expect("it is whole");
        assert_eq!(loaded.notes, Vec::<String>::new());
        let software = Software { version: "9.9", commit: COMMIT_UNKNOWN };
        let mut shell = Shell::new(Directory::root(&loaded.image, software));
        let mut out = Vec::new();
        converse(&mut shell, &mut input.as_bytes(), &mut out, false).expect("memory takes all");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_tree_is_that_of_kafkas_shell() {
        assert_eq!(answers("tree /image"), include_str!("testdata/kafka_shell_tree.txt"));
        assert_eq!(answers("cat /local/*"), "unknown\n9.9\n");
    }

    #[test]
    fn answers_are_those_of_kafkas_shell() {
        assert_eq!(
            answers(include_str!("testdata/kafka_shell_input.txt")),
            include_str!("testdata/kafka_shell_answers.txt")
        );
    }

    #[test]
    fn what_a_pattern_found_is_shown_by_its_path() {
        let found = answers("cd image\nfind topics/byName/or*/id");
        assert_eq!(found, "/image/topics/byName/orders/id\n");
    }

    #[test]
    fn slips_are_told_and_the_next_line_is_read() {
        for (line, told) in [
            ("foo", "invalid choice: 'foo' (choose from 'cat', 'cd', 'exit'"),
            ("cat", "too few arguments: cat needs a path"),
            ("pwd x y", "unrecognized arguments: 'x y'"),
            ("cat 'x", "close the quote: '"),
        ] {
            let said = answers(&format!("{line}\npwd"));
            assert!(said.starts_with(told) && said.ends_with("\n/\n"), "{said}");
        }
        let mut long = vec![b'x'; 70_000].into_iter().collect::<std::collections::VecDeque<_>>();
        assert!(next_line(&mut long).expect_err("too long").contains("shorter"));
    }

    #[test]
    fn help_has_every_command() {
        let said = answers("help");
        for name in ["cat", "cd", "exit", "find", "help", "ls", "pwd", "tree"] {
            assert!(said.lines().any(|line| line.starts_with(&format!("  {name} "))), "{said}");
        }
    }

    #[test]
    fn a_person_is_prompted() {
        let image = metadata::Image::default();
        let software = Software { version: "9.9", commit: COMMIT_UNKNOWN };
        let mut shell = Shell::new(Directory::root(&image, software));
        let mut out = Vec::new();
        let read = converse(&mut shell, &mut "pwd\n".as_bytes(), &mut out, true);
        assert_eq!((read, &*out), (Ok(()), &b">> /\n>> \n"[..]));
    }
}
