//! A history: read from and written to files.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::edn;
use crate::entry::Entry;

/// The entries of all processes, in the order of their times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// The entries.
    pub entries: Vec<Entry>,
}

/// A file that is no history.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct Unreadable {
    path: PathBuf,
    why: String,
}

impl History {
    /// A history of these entries, which are sorted by their times. Entries of one time stay as
    /// they are.
    pub fn new(mut entries: Vec<Entry>) -> History {
        entries.sort_by_key(|entry| entry.time);
        History { entries }
    }

    /// Reads the text of a history: EDN, or JSON in lines. Text without `{:` and with `{"` is JSON.
    pub fn parse(text: &str) -> Result<History, String> {
        let first = text.find('{').map_or("", |at| text[at + 1..].trim_start());
        let values = if first.starts_with('"') { json_lines(text)? } else { edn::read(text)? };
        let mut entries = Vec::new();
        for value in values {
            match value {
                Value::Array(values) => entries.extend(values),
                value => entries.push(value),
            }
        }
        let read = entries.iter().enumerate().map(|(nth, entry)| {
            Entry::from_json(entry).map_err(|why| format!("entry {}: {why}: {entry}", nth + 1))
        });
        Ok(History::new(read.collect::<Result<_, _>>()?))
    }

    /// Reads files, and all files of directories that end in `.edn`, `.json` or `.jsonl`, as one
    /// history.
    pub fn load(paths: &[impl AsRef<Path>]) -> Result<History, Unreadable> {
        let mut entries = Vec::new();
        for path in paths.iter().map(AsRef::as_ref) {
            let unreadable = |path: &Path, why: &dyn ToString| Unreadable {
                path: path.to_owned(),
                why: why.to_string(),
            };
            let mut files = vec![path.to_owned()];
            if path.is_dir() {
                let listed = fs::read_dir(path).map_err(|error| unreadable(path, &error))?;
                files =
                    listed.flatten().map(|file| file.path()).filter(|f| is_history(f)).collect();
                files.sort();
            }
            for file in files {
                let text = fs::read_to_string(&file).map_err(|error| unreadable(&file, &error))?;
                let read = History::parse(&text).map_err(|why| unreadable(&file, &why))?;
                entries.extend(read.entries);
            }
        }
        Ok(History::new(entries))
    }

    /// The history as EDN, an entry a line.
    pub fn to_edn(&self) -> String {
        let mut text = String::new();
        for entry in &self.entries {
            edn::write(&entry.to_json(), &mut text);
            text.push('\n');
        }
        text
    }

    /// The history as lines of JSON.
    pub fn to_json_lines(&self) -> String {
        self.entries.iter().map(|entry| format!("{}\n", entry.to_json())).collect()
    }

    /// Writes `name.edn` and `name.jsonl` in a directory, which is made if it is not there.
    pub fn save(&self, directory: &Path, name: &str) -> std::io::Result<()> {
        fs::create_dir_all(directory)?;
        fs::write(directory.join(format!("{name}.edn")), self.to_edn())?;
        fs::write(directory.join(format!("{name}.jsonl")), self.to_json_lines())
    }
}

fn is_history(file: &Path) -> bool {
    let ending = file.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| matches!(ending, "edn" | "json" | "jsonl"))
}

fn json_lines(text: &str) -> Result<Vec<Value>, String> {
    let values = serde_json::Deserializer::from_str(text).into_iter();
    values.map(|value| value.map_err(|error| error.to_string())).collect()
}
