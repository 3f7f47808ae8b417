//! Wrong uses of the attribute to which the compiler answers: each gives one message, where the
//! mistake is. Those to which the macro answers are in `lockmacro/tests/expand/refused.txt`.
//!
//! A file has one subject. Its mistakes are of one phase of the compiler, which reports those of
//! all functions, and may stop before the next phase.
//!
//! `TRYBUILD=overwrite cargo test -p lockmacro-ui-tests --test ui` rewrites the messages.

use std::fs;
use std::path::{Path, PathBuf};

/// All are checked by one call of cargo, as long as none of them is to pass: those are in `pass`.
#[test]
fn wrong_uses_are_reported_where_they_are() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("fail/*.rs");
    cases.compile_fail("misplaced.rs");
    cases.compile_fail("by_hand.rs");
}

/// For each message about a case, the attribute at or below which it is, counted from 1.
fn attributes_of_messages(case: &Path) -> Vec<usize> {
    let (code, text) = (read(case), read(&case.with_extension("stderr")));
    let attribute = |message: &str| {
        let place = message.split_once("--> ").and_then(|(_, place)| place.split(':').nth(1));
        let line: Option<usize> = place.and_then(|line| line.parse().ok());
        let line = line.unwrap_or_else(|| panic!("{message} has no place"));
        code.lines().take(line).filter(|line| has_attribute(line)).count()
    };
    let found: Vec<usize> = text.trim_end().split("\n\n").map(attribute).collect();
    let is_message = |line: &&str| line.starts_with("error") || line.starts_with("warning");
    assert_eq!(found.len(), text.lines().filter(is_message).count(), "{text}");
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn has_attribute(line: &str) -> bool {
    line.contains("#[distributed_lock")
}

fn attributes(case: &Path) -> Vec<usize> {
    (1..=read(case).lines().filter(|line| has_attribute(line)).count()).collect()
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[test]
fn one_mistake_gives_one_message() {
    let paths = fs::read_dir(path("fail")).unwrap().map(|entry| entry.unwrap().path());
    let mut count = 0;
    for case in paths.filter(|path| path.extension().is_some_and(|kind| kind == "rs")) {
        let (mut found, all) = (attributes_of_messages(&case), attributes(&case));
        found.sort();
        assert_eq!(found, all, "{}", case.display());
        count += all.len();
    }
    assert!(count >= 78, "only {count} wrong uses are tested");
}

#[test]
fn a_body_by_hand_is_told_what_its_error_needs() {
    let text = read(&path("by_hand.stderr"));
    let needs = "`Result<u64, OrderError>` cannot carry the errors of the lock";
    let mut errors = text.lines().filter(|line| line.starts_with("error"));
    assert!(errors.all(|line| line.contains(needs)) && text.contains(needs), "{text}");
}

#[test]
fn on_what_is_no_item_the_compiler_speaks_alone() {
    let case = path("misplaced.rs");
    let text = read(&case.with_extension("stderr"));
    let mut errors = text.lines().filter(|line| line.starts_with("error"));
    assert!(errors.all(|line| line.starts_with("error[E0658]:")), "{text}");
    assert!(!text.contains("originates in the attribute macro"), "{text}");
    let mut found = attributes_of_messages(&case);
    found.sort();
    found.dedup();
    assert_eq!((found.len(), found), (6, attributes(&case)), "{text}");
}
