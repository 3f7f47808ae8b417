//! What an error says.

use lockmacro_runtime::LockError;

/// Whether a call was refused for its runtime, in a text with this word.
pub fn is_no_runtime<T>(called: &Result<T, LockError>, word: &str) -> bool {
    matches!(called, Err(LockError::NoRuntime { detail, .. }) if detail.contains(word))
}
