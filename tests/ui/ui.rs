//! Wrong uses of the attribute to which the compiler answers: each gives one message, where the
//! mistake is. Those to which the macro answers are in `tests/expand/refused.txt`.
//!
//! `TRYBUILD=overwrite cargo test -p lockmacro-ui-tests --test ui` rewrites the messages.

use std::fs;
use std::path::{Path, PathBuf};

/// All are checked by one call of cargo, as long as none of them is to pass: those are in `pass`.
#[test]
fn wrong_uses_are_reported_where_they_are() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("fail/*.rs");
    cases.compile_fail("misplaced/*.rs");
}

/// The messages of a folder's cases, with the path of each.
fn messages(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|kind| kind == "stderr"));
    paths.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

fn count(text: &str) -> usize {
    let is_message = |line: &&str| line.starts_with("error") || line.starts_with("warning");
    text.lines().filter(is_message).count()
}

#[test]
fn one_mistake_gives_one_message() {
    let messages = messages("fail");
    for (path, text) in &messages {
        assert_eq!(count(text), 1, "{}:\n{text}", path.display());
    }
    assert!(messages.len() >= 80, "only {} wrong uses are tested", messages.len());
}

#[test]
fn on_what_is_no_item_the_compiler_speaks_alone() {
    let messages = messages("misplaced");
    for (path, text) in &messages {
        let errors = text.lines().filter(|line| line.starts_with("error"));
        let is_its_own = |line: &str| line.starts_with("error[E0658]:");
        assert!(errors.clone().count() > 0 && errors.clone().all(is_its_own), "{}", path.display());
        assert!(!text.contains("originates in the attribute macro"), "{}", path.display());
    }
    assert!(messages.len() >= 6, "only {} cases", messages.len());
}
