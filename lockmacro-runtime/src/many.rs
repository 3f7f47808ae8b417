//! A lock on several keys.

use std::iter;
use std::sync::Arc;

use crate::error::LockError;
use crate::fence::Fence;
use crate::guard::LockGuard;
use crate::held::Held;
use crate::key::LockKey;
use crate::lock::Lock;
use crate::scope::Scope;

/// Most keys of one lock: a server does nothing else while it looks at them.
const KEYS_MAX: usize = 128;

impl Lock<Vec<Fence>> {
    /// A lock on all of `keys`, or on none: 1 to 128 different ones, where doubles do not count.
    pub fn many(keys: impl IntoIterator<Item: Into<LockKey>>) -> Self {
        let mut keys = keys.into_iter().map(Into::into);
        Self::on(keys.next().unwrap_or_else(LockKey::none), keys.collect())
    }

    /// [`acquire`](Lock::acquire) with a [`Fence`] for each key, in the order in which the keys were
    /// given; what was given twice has the same one twice.
    ///
    /// # Errors
    /// As [`acquire`](Lock::acquire), and [`LockError::NoFence`] when it would join a lock that was
    /// acquired without fences.
    ///
    /// # Cancellation
    /// As [`acquire`](Lock::acquire).
    pub async fn acquire_fenced(self) -> Result<(LockGuard, Vec<Fence>), LockError> {
        let given = self.given();
        fenced(self.obtain(true).await?, given)
    }

    /// [`acquire_fenced`](Lock::acquire_fenced) for code that is not async.
    ///
    /// # Errors
    /// As [`acquire_fenced`](Lock::acquire_fenced) and
    /// [`acquire_blocking`](Lock::acquire_blocking).
    pub fn acquire_fenced_blocking(self) -> Result<(LockGuard, Vec<Fence>), LockError> {
        let given = self.given();
        fenced(self.obtain_blocking(true)?, given)
    }

    fn given(&self) -> Vec<LockKey> {
        iter::once(&self.key).chain(&self.more).cloned().collect()
    }
}

fn fenced(guard: LockGuard, keys: Vec<LockKey>) -> Result<(LockGuard, Vec<Fence>), LockError> {
    let fence_of = |key| guard.fence_of(&key).ok_or(LockError::NoFence { key });
    let fences = keys.into_iter().map(fence_of).collect::<Result<_, _>>()?;
    Ok((guard, fences))
}

/// All keys in the order of their bytes, without doubles; nothing if that leaves one.
pub(crate) fn in_order(first: &LockKey, more: &[LockKey]) -> Result<Vec<LockKey>, LockError> {
    if more.is_empty() {
        return Ok(Vec::new());
    }
    more.iter().try_for_each(LockKey::check)?;
    let mut keys: Vec<_> = iter::once(first).chain(more).cloned().collect();
    keys.sort();
    keys.dedup();
    match keys.len() {
        1 => Ok(Vec::new()),
        2..=KEYS_MAX => Ok(keys),
        count => {
            let detail = format!("there are {count} and {KEYS_MAX} are allowed");
            Err(LockError::InvalidKey { detail })
        }
    }
}

/// The innermost lock around the running code that has all of `keys`; an error when none has all and
/// one has some.
pub(crate) fn around(
    keys: &[LockKey],
    ours: impl Fn(&Held) -> bool,
) -> Result<Option<Arc<Held>>, LockError> {
    let has = |held: &Held, key: &LockKey| held.nth(key).is_some();
    if let Some(held) = Scope::find(|held| ours(held) && keys.iter().all(|key| has(held, key))) {
        return Ok(Some(held));
    }
    let partly = |key: &&LockKey| Scope::find(|held| ours(held) && has(held, key)).is_some();
    match keys.iter().find(partly) {
        Some(key) => Err(LockError::PartlyHeld { key: key.clone() }),
        None => Ok(None),
    }
}
