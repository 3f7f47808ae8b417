//! The histories of runs with faults.

use std::path::Path;

use lockmacro_histories::{History, Verdict, judge};

/// Judges the history in a file, which must contradict nothing. `LOCKMACRO_HISTORY` names a
/// directory in which the history is kept under `name`.
pub fn judged(file: &Path, name: &str) -> Verdict {
    let history = History::load(&[file]).expect("a history");
    if let Some(directory) = std::env::var_os("LOCKMACRO_HISTORY") {
        history.save(directory.as_ref(), name).expect("the history can be kept");
    }
    let verdict = judge(&history).expect("operations that have a beginning");
    assert!(verdict.is_valid(), "{verdict}");
    verdict
}
