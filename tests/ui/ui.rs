//! Wrong uses of the attribute: each gives one message, where the mistake is.
//!
//! `TRYBUILD=overwrite cargo test -p lockmacro-ui-tests --test ui` writes the messages anew.

use std::fs;
use std::path::Path;

/// All are checked by one call of cargo, as long as none of them is to pass: those are in `pass`.
#[test]
fn wrong_uses_are_told_where_they_are() {
    trybuild::TestCases::new().compile_fail("fail/*.rs");
}

#[test]
fn one_mistake_gives_one_message() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fail");
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "stderr") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let messages =
            text.lines().filter(|line| line.starts_with("error") || line.starts_with("warning"));
        assert_eq!(messages.count(), 1, "{}:\n{text}", path.display());
        seen += 1;
    }
    assert!(seen >= 35, "only {seen} wrong uses are tested");
}
