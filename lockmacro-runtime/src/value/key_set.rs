//! Several keys of one lock.

use std::iter;

use crate::value::key::{InvalidKey, LockKey};

/// Most keys of one lock. A server runs no other command while its script checks them.
const KEYS_MAX: usize = 128;

/// All keys, sorted and without duplicates; empty if a single key is left. A key that is given
/// twice has the stricter of its modes.
pub(crate) fn in_order(first: &LockKey, more: &[LockKey]) -> Result<Vec<LockKey>, InvalidKey> {
    if more.is_empty() {
        return Ok(Vec::new());
    }
    let mut keys: Vec<_> = iter::once(first).chain(more).cloned().collect();
    keys.sort();
    keys.dedup_by(|next, kept| {
        let is_again = next == kept;
        if is_again {
            let mode = kept.mode().stricter(next.mode());
            if mode != kept.mode() {
                *kept = kept.clone().with_mode(mode);
            }
        }
        is_again
    });
    match keys.len() {
        1 => Ok(Vec::new()),
        2..=KEYS_MAX => Ok(keys),
        count => {
            let detail = format!(
                "one lock has {count} keys and {KEYS_MAX} are allowed: split them into several \
                 locks"
            );
            Err(InvalidKey { detail })
        }
    }
}
