//! The commands of the shell (`org.apache.kafka.shell.command`).

use std::io::{self, Write};

use metadata::tree::{Directory, Found, Node, has_pattern};

/// What each command is for; the last three only where commands are read.
const COMMANDS: [(&str, &str); 8] = [
    ("cat", "Show the contents of metadata files."),
    ("find", "Search for nodes in the directory hierarchy."),
    ("ls", "List metadata nodes."),
    ("tree", "Show the contents of metadata nodes in a tree structure."),
    ("cd", "Set the current working directory."),
    ("exit", "Exit the metadata shell."),
    ("help", "Display this help message."),
    ("pwd", "Print the current working directory."),
];
/// How many of [`COMMANDS`] can stand on the command line.
const ALONE: usize = 4;
const INDENT: usize = 2;

/// Why a line is not a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Usage(pub(super) String);

/// A command that can be run; paths are as they were typed.
#[derive(Debug, PartialEq, Eq)]
enum Command<'a> {
    Nothing,
    Cat(&'a [String]),
    Find(&'a [String]),
    Ls(&'a [String]),
    Tree(&'a [String]),
    Cd(Option<&'a str>),
    Exit,
    Help,
    Pwd,
}

impl<'a> Command<'a> {
    /// Of the words of a line; `known` are the commands that it may be.
    fn parse(words: &'a [String], known: &[(&str, &str)]) -> Result<Self, Usage> {
        let Some((name, paths)) = words.split_first() else { return Ok(Command::Nothing) };
        if !known.iter().any(|(known, _)| known == name) {
            let mut names: Vec<String> =
                known.iter().map(|(name, _)| format!("'{name}'")).collect();
            names.sort();
            let names = names.join(", ");
            return Err(Usage(format!("invalid choice: '{name}' (choose from {names})")));
        }
        let command = match name.as_str() {
            "cat" | "tree" if paths.is_empty() => {
                return Err(Usage(format!("too few arguments: {name} needs a path")));
            }
            "cat" => Command::Cat(paths),
            "tree" => Command::Tree(paths),
            "find" => Command::Find(paths),
            "ls" => Command::Ls(paths),
            "cd" if paths.len() < 2 => Command::Cd(paths.first().map(String::as_str)),
            "exit" if paths.is_empty() => Command::Exit,
            "help" if paths.is_empty() => Command::Help,
            "pwd" if paths.is_empty() => Command::Pwd,
            _ => {
                let surplus = paths.join(" ");
                return Err(Usage(format!("unrecognized arguments: '{surplus}'")));
            }
        };
        Ok(command)
    }
}

/// The tree, and where in it somebody is.
#[derive(Debug)]
pub(super) struct Shell<'a> {
    root: Directory<'a>,
    working: String,
}

impl<'a> Shell<'a> {
    pub(super) fn new(root: Directory<'a>) -> Self {
        Self { root, working: "/".to_owned() }
    }

    /// Runs the command of a line that was read; what is no command is answered in a line. Says
    /// whether it was the last one.
    ///
    /// # Errors
    /// If `out` takes nothing.
    pub(super) fn run(&mut self, words: &[String], out: &mut impl Write) -> io::Result<bool> {
        match Command::parse(words, &COMMANDS) {
            Ok(Command::Exit) => return Ok(true),
            Ok(command) => self.perform(&command, out)?,
            Err(Usage(sentence)) => writeln!(out, "{sentence}")?,
        }
        Ok(false)
    }

    /// Runs the command of the command line.
    ///
    /// # Errors
    /// If `out` takes nothing; inside, if it is not a command.
    pub(super) fn run_one(
        &mut self,
        words: &[String],
        out: &mut impl Write,
    ) -> io::Result<Result<(), Usage>> {
        match Command::parse(words, &COMMANDS[..ALONE]) {
            Ok(command) => self.perform(&command, out).map(Ok),
            Err(usage) => Ok(Err(usage)),
        }
    }

    fn perform(&mut self, command: &Command<'_>, out: &mut impl Write) -> io::Result<()> {
        match command {
            Command::Nothing | Command::Exit => Ok(()),
            Command::Cat(paths) => self.cat(paths, out),
            Command::Tree(paths) => self.tree(paths, out),
            Command::Find(paths) => self.find(paths, out),
            Command::Ls(paths) => self.ls(paths, out),
            Command::Cd(path) => self.cd(path.unwrap_or("/"), out),
            Command::Pwd => writeln!(out, "{}", self.working),
            Command::Help => {
                writeln!(out, "The metadata of a cluster, as a tree of directories and files.\n")?;
                let mut commands = COMMANDS;
                commands.sort_unstable();
                for (name, what) in commands {
                    writeln!(out, "  {name:6} {what}")?;
                }
                Ok(())
            }
        }
    }

    fn look_up(&self, path: &str) -> Vec<Found<'a>> {
        self.root.look_up(&self.working, path)
    }

    fn cat(&self, paths: &[String], out: &mut impl Write) -> io::Result<()> {
        for path in paths {
            let found = self.look_up(path);
            if found.is_empty() {
                writeln!(out, "cat: {path}: No such file or directory.")?;
            }
            for found in found {
                match found.node {
                    Node::Directory(_) => writeln!(out, "cat: {path}: Is a directory")?,
                    Node::File(file) => writeln!(out, "{}", file.text())?,
                }
            }
        }
        Ok(())
    }

    fn tree(&self, paths: &[String], out: &mut impl Write) -> io::Result<()> {
        for path in paths {
            let found = self.look_up(path);
            if found.is_empty() {
                writeln!(out, "tree: {path}: No such file or directory.")?;
            }
            for found in found {
                show(&found.node, 0, out)?;
            }
        }
        Ok(())
    }

    fn find(&self, paths: &[String], out: &mut impl Write) -> io::Result<()> {
        for path in or_here(paths) {
            let found = self.look_up(path);
            if found.is_empty() {
                writeln!(out, "find: {path}: no such file or directory.")?;
            }
            for found in found {
                // Kafka would say the pattern in place of what it stood for.
                let path = if has_pattern(path) { found.path() } else { path.to_owned() };
                list_all(&path, Some(found.node), out)?;
            }
        }
        Ok(())
    }

    fn ls(&self, paths: &[String], out: &mut impl Write) -> io::Result<()> {
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        for path in or_here(paths) {
            let found = self.look_up(path);
            if found.is_empty() {
                writeln!(out, "ls: {path}: no such file or directory.")?;
            }
            for found in found {
                match found.node {
                    Node::Directory(directory) => {
                        directories.push((found.name().to_owned(), directory.names()));
                    }
                    Node::File(_) => files.push(found.name().to_owned()),
                }
            }
        }
        for file in &files {
            writeln!(out, "{file}")?;
        }
        let has_titles = !files.is_empty() || directories.len() > 1;
        let mut is_first = files.is_empty();
        for (name, children) in directories {
            if has_titles && !children.is_empty() {
                let space = if is_first { "" } else { "\n" };
                writeln!(out, "{space}{name}:")?;
            }
            is_first = false;
            for child in children {
                writeln!(out, "{child}")?;
            }
        }
        Ok(())
    }

    fn cd(&mut self, path: &str, out: &mut impl Write) -> io::Result<()> {
        let found = self.look_up(path);
        if found.is_empty() {
            return writeln!(out, "cd: {path}: no such directory.");
        }
        for found in found {
            match found.node {
                Node::Directory(_) => self.working = found.path(),
                Node::File(_) => writeln!(out, "cd: {path}: not a directory.")?,
            }
        }
        Ok(())
    }
}

/// Where no path is given, this directory is meant.
fn or_here(paths: &[String]) -> Vec<&str> {
    let mut given: Vec<&str> = paths.iter().map(String::as_str).collect();
    given.retain(|path| !path.is_empty());
    if given.is_empty() {
        given.push(".");
    }
    given
}

/// A node and everything below it, each below its name (`ShellNodePrinter`).
fn show(node: &Node<'_>, depth: usize, out: &mut impl Write) -> io::Result<()> {
    match node {
        Node::File(file) => writeln!(out, "{:1$}{2}", "", depth * INDENT, file.text()),
        Node::Directory(directory) => {
            for name in directory.names() {
                writeln!(out, "{:1$}{name}:", "", depth * INDENT)?;
                if let Some(child) = directory.child(&name) {
                    show(&child, depth + 1, out)?;
                }
            }
            Ok(())
        }
    }
}

/// The paths of a node and of everything below it. A name can have nothing under it
/// ([`Directory::names`]), where Kafka's shell would break off.
fn list_all(path: &str, node: Option<Node<'_>>, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{path}")?;
    let Some(Node::Directory(directory)) = node else { return Ok(()) };
    for name in directory.names() {
        let space = if path == "/" { "" } else { "/" };
        list_all(&format!("{path}{space}{name}"), directory.child(&name), out)?;
    }
    Ok(())
}
