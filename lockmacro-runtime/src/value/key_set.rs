//! Several keys of one lock.

use std::iter;

use crate::value::key::{InvalidKey, LockKey};
use crate::value::mode::Mode;

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
        if next != kept {
            return false;
        }
        let mode = kept.mode().stricter(next.mode());
        if mode != kept.mode() {
            *kept = kept.clone().with_mode(mode);
        }
        true
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

/// The first of these keys, in their order, that is held with a permit while an exclusive one is
/// waited for.
pub(crate) fn permit_before_exclusive(keys: &[LockKey]) -> Option<&LockKey> {
    let permit = keys.iter().position(|key| matches!(key.mode(), Mode::Permits(_)))?;
    let waits = keys[permit..].iter().any(|key| key.mode().is_exclusive());
    waits.then(|| &keys[permit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_noticed_that_would_be_held_during_a_wait() {
        let (a, b) = (LockKey::from("a"), LockKey::from("b"));
        let is_noticed = |keys: &[LockKey]| permit_before_exclusive(keys).is_some();
        assert!(is_noticed(&[a.clone().permits(3), b.clone()]));
        assert!(!is_noticed(&[a.clone(), b.clone().permits(3)]));
        assert!(!is_noticed(&[a.clone().shared(), b.clone()]));
        assert!(!is_noticed(&[a.permits(3), b.permits(3)]));
    }
}
