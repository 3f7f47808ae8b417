//! The names of the keys that are kept beside a lock.

/// The waiters of a key without braces.
pub fn queue_of(key: &str) -> String {
    format!("lm1:wq:{{{key}}}")
}

/// Whether a key keeps the last fence of a lock.
pub fn is_fence(key: &str) -> bool {
    key.starts_with("lm1:wf:")
}
