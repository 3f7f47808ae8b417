//! Markdown, as far as these tests read it: prose, tables, code and links.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub struct Page {
    pub path: PathBuf,
    pub text: String,
}

/// A link that a page has: its place in the text, and its target.
pub struct Link {
    pub shown: String,
    pub target: String,
}

impl Page {
    pub fn read(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let text = std::fs::read_to_string(&path);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path, text }
    }

    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The lines outside of code blocks.
    fn lines(&self) -> impl Iterator<Item = &str> {
        let mut in_code = false;
        self.text.lines().filter(move |line| {
            let is_fence = line.trim_start().starts_with("```");
            in_code ^= is_fence;
            !is_fence && !in_code
        })
    }

    /// What stands under a heading of the second level.
    pub fn section(&self, heading: &str) -> Self {
        let (_, rest) = self.text.split_once(&format!("\n## {heading}\n")).expect("a section");
        let text = rest.split("\n## ").next().unwrap_or_default();
        Self { path: self.path.clone(), text: text.to_owned() }
    }

    /// The code blocks in a language, without their fences.
    pub fn blocks(&self, language: &str) -> Vec<String> {
        let start = format!("```{language}\n");
        let blocks = self.text.split(&start).skip(1);
        blocks.filter_map(|rest| Some(rest.split_once("```")?.0.to_owned())).collect()
    }

    /// The first cells of all tables, without their heads. A cell may name several things.
    pub fn first_cells(&self) -> Vec<String> {
        let mut cells = Vec::new();
        let mut in_body = false;
        for line in self.lines() {
            let Some(row) = line.strip_prefix('|') else {
                in_body = false;
                continue;
            };
            if row.starts_with("--") || row.starts_with(":-") {
                in_body = true;
            } else if in_body {
                cells.push(row.split('|').next().unwrap_or_default().trim().to_owned());
            }
        }
        cells
    }

    /// What stands in backquotes in the first cells of all tables.
    pub fn names_in_tables(&self) -> BTreeSet<String> {
        self.first_cells().iter().flat_map(|cell| quoted(cell)).collect()
    }

    /// `[shown](target)` and `[shown]: target`.
    pub fn links(&self) -> Vec<Link> {
        let mut links = Vec::new();
        for line in self.lines() {
            let line = without_code(line);
            for (at, _) in line.match_indices("](") {
                let shown = line[..at].rsplit('[').next().unwrap_or_default();
                let target = line[at + 2..].split(')').next().unwrap_or_default();
                links.push(Link { shown: shown.to_owned(), target: target.to_owned() });
            }
        }
        let definitions = self.definitions().into_iter();
        links.extend(definitions.map(|(shown, target)| Link { shown, target }));
        links
    }

    /// `[label]: target`.
    pub fn definitions(&self) -> BTreeMap<String, String> {
        let definition = |line: &str| {
            let (label, target) = line.strip_prefix('[')?.split_once("]: ")?;
            Some((label.to_owned(), target.trim().to_owned()))
        };
        self.lines().filter_map(definition).collect()
    }

    /// The labels that the prose uses: `[label]` and `[shown][label]`.
    pub fn labels(&self) -> BTreeSet<String> {
        let prose = self.lines().filter(|line| !(line.starts_with('[') && line.contains("]: ")));
        let prose = prose.map(without_code).collect::<Vec<_>>().join("\n");
        let mut labels = BTreeSet::new();
        for (at, _) in prose.match_indices('[') {
            let Some((label, rest)) = prose[at + 1..].split_once(']') else { continue };
            if !rest.starts_with(['(', '[']) && !label.contains('[') {
                labels.insert(label.to_owned());
            }
        }
        labels
    }

    /// The anchors of the headings, as GitHub and rustdoc make them.
    pub fn anchors(&self) -> BTreeSet<String> {
        let headings = self.lines().filter(|line| line.starts_with('#'));
        headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
    }

    /// The file that a target of this page names, and its anchor.
    pub fn target(&self, target: &str) -> (PathBuf, Option<String>) {
        let (file, anchor) = match target.split_once('#') {
            Some((file, anchor)) => (file, Some(anchor.to_owned())),
            None => (target, None),
        };
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let file = if file.is_empty() { self.path.clone() } else { folder.join(file) };
        (file, anchor)
    }
}

/// What stands in backquotes.
pub fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Code in a line counts as one word.
fn without_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts.map(|(nth, part)| if nth % 2 == 1 { "code" } else { part }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        Page { path: "x.md".into(), text: text.to_owned() }
    }

    #[test]
    fn links_and_labels_are_found() {
        let page = page("[a](b.md#c) and [d], [e][f], `[g]`\n\n[d]: h.md\n[f]: i.md\n");
        let targets: Vec<_> = page.links().into_iter().map(|link| link.target).collect();
        assert_eq!(targets, ["b.md#c", "h.md", "i.md"]);
        assert_eq!(page.labels(), ["d", "f"].map(str::to_owned).into());
    }

    #[test]
    fn the_names_of_a_table_are_those_of_its_first_cells() {
        let page = page("| `a` | b |\n|---|---|\n| `c` · `d` | `e` |\n");
        assert_eq!(page.names_in_tables(), ["c", "d"].map(str::to_owned).into());
    }
}
