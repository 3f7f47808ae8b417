//! The histories in `examples`, and what `lockmacro-check` says of them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lockmacro_histories::{History, Rule, judge};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

fn check(arguments: &[&Path]) -> (i32, String) {
    let check = Command::new(env!("CARGO_BIN_EXE_lockmacro-check")).args(arguments).output();
    let Output { status, stdout, stderr } = check.expect("it starts");
    let text = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
    (status.code().expect("it ends by itself"), text.into_owned())
}

fn all(directory: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(example(directory)).expect("a directory");
    let files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    assert!(files.len() > 2);
    files
}

#[test]
fn the_exit_status_tells_the_verdict() {
    for (directory, status, word) in [
        ("valid", 0, "valid: "),
        ("invalid", 1, "INVALID: "),
        ("unreadable", 2, "lockmacro-check: "),
    ] {
        for file in all(directory) {
            let (found, text) = check(&[&file]);
            assert!(found == status && text.starts_with(word), "{file:?}: {found} {text}");
        }
    }
    assert_eq!(check(&[]).0, 2);
    assert_eq!(check(&[Path::new("/no/such/file")]).0, 2);
}

#[test]
fn each_broken_rule_is_named_with_both_grants() {
    for (name, rule, first, second) in [
        ("overlap.edn", Rule::Overlap, 1, 2),
        ("late_use.jsonl", Rule::Overlap, 1, 2),
        ("same_fence.edn", Rule::SameFence, 5, 5),
        ("fence_fell.edn", Rule::FenceFell, 9, 8),
    ] {
        let history = History::load(&[example("invalid").join(name)]).expect("a history");
        let found = judge(&history).expect("a verdict").contradictions;
        let [found] = found.as_slice() else { panic!("{name}: {found:?}") };
        let fences = (found.first.fence, found.second.fence);
        assert_eq!((found.rule, fences), (rule, (Some(first), Some(second))), "{name}");
        assert_eq!((found.first.process.as_str(), found.second.process.as_str()), ("a", "b"));
    }
}

#[test]
fn several_files_are_one_history() {
    let (status, text) = check(&[&example("invalid/overlap.edn"), &example("valid/in_turn.edn")]);
    assert!(status == 1 && text.contains("2 keys, 4 grants, 1 overlaps"), "{text}");
    assert_eq!(check(&[&example("unreadable")]).0, 2);
    let directory = tempfile::tempdir().expect("a directory");
    let history = History::load(&[example("valid/killed.edn")]).expect("a history");
    history.save(directory.path(), "killed").expect("written");
    for file in ["killed.edn", "killed.jsonl"] {
        assert_eq!(check(&[&directory.path().join(file)]).0, 0);
    }
}

#[test]
fn the_tool_translates_histories() {
    for file in all("valid") {
        for format in ["--edn", "--json"] {
            let (status, text) = check(&[Path::new(format), &file]);
            assert_eq!(status, 0, "{text}");
            let history = History::load(&[&file]).expect("a history");
            assert_eq!(History::parse(&text).expect("a history"), history, "{file:?}");
        }
    }
}
