//! The text files of the project, in memory, so that a check can be tested on a made-up tree.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// What was built, fetched or recorded, not written. (In a second work tree `.git` is a file.)
const NAMES_SKIPPED: &[&str] = &["target", ".git", "node_modules", "__pycache__"];

/// Every text file of a tree, by its path from the root with `/` between names.
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads all files under `root` that are UTF-8.
    ///
    /// # Errors
    /// What the file system says of a folder or file that cannot be read.
    pub fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree::default();
        tree.read_folder(root, "")?;
        Ok(tree)
    }

    /// Adds one file, or takes the place of the one that is there.
    pub fn insert(&mut self, path: &str, text: &str) {
        self.files.insert(path.to_owned(), text.to_owned());
    }

    /// The text of one file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// All files, ordered by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if NAMES_SKIPPED.contains(&name.as_str()) {
                continue;
            }
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.read_folder(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file()
                && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
            {
                self.files.insert(path, text);
            }
        }
        Ok(())
    }
}
