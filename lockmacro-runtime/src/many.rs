//! The builder of a lock on several keys.

use crate::engine::acquire::acquiring::{acquire, acquire_blocking};
use crate::engine::acquire::outcome::Errors;
use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::value::error::LockError;
use crate::value::fence::Fence;
use crate::value::key::LockKey;

impl Lock<Vec<Fence>> {
    /// Creates a lock on all of `keys`, or on none of them, for work that touches several things at
    /// once.
    ///
    /// - `keys` are 1 to 128 keys in any order. A key that is given twice counts once.
    /// - Without a key, acquiring fails with [`LockError::InvalidKey`], because a body under no key
    ///   would run beside every other one.
    /// - The keys are renewed, extended and released together. The lock is lost when any of its
    ///   keys is lost.
    /// - [`LockError::Busy`] and [`LockError::TimedOut`] name the key that somebody else holds.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Fence, Lock, LockManager, LockError};
    /// # async fn book(_: u64, _: i64, _: Fence) -> Result<(), LockError> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let (from, to) = (7, 3);
    /// let accounts = [from, to].map(|id| format!("account:{id}"));
    /// let both = Lock::many(accounts).wait(Duration::from_secs(5)).manager(&locks);
    /// let (guard, fences) = both.acquire_fenced().await?;
    /// book(from, -100, fences[0]).await?;
    /// book(to, 100, fences[1]).await?;
    /// guard.release().await
    /// # }
    /// ```
    ///
    /// # Waiting
    /// When all keys are free, they are acquired at once. A caller that has to
    /// [`wait`](Lock::wait) acquires the keys in the order of their bytes. It waits for each key in
    /// that key's queue, and holds the keys before it meanwhile. So two callers that name the same
    /// keys in opposite orders never deadlock, and no caller is overtaken for ever.
    ///
    /// The price is that a key may be busy while no body runs under it. If the waiter dies, that
    /// lasts 5 s at most.
    ///
    /// This order covers the keys of one lock. Locks that are acquired inside of another lock's
    /// body need an order of their own, which the program has to keep.
    ///
    /// # Inside of a body
    /// When one lock around the call holds all of the keys, the new lock joins it. When only some
    /// of the keys are held, or several locks hold them, acquiring fails with
    /// [`LockError::PartlyHeld`].
    ///
    /// # Cancellation
    /// Dropping one of its futures at any point leaves none of the keys locked.
    pub fn many(keys: impl IntoIterator<Item: Into<LockKey>>) -> Self {
        let mut keys = keys.into_iter().map(Into::into);
        Self::on(keys.next().unwrap_or_else(LockKey::none), keys.collect())
    }

    /// Acquires the lock as [`acquire`](Lock::acquire) does, with a [`Fence`] for each key, in the
    /// order in which the keys were given. A key that was given twice has the same fence twice.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let accounts = Lock::many(["account:7", "account:3"]).manager(&locks);
    /// let (guard, fences) = accounts.acquire_fenced().await?;
    /// assert_eq!(guard.fence_of("account:7"), Some(fences[0]));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Lock::acquire), and [`LockError::NoFence`] when the call would join a lock
    /// that was acquired without fences.
    ///
    /// # Cancellation
    /// As [`acquire`](Lock::acquire).
    pub async fn acquire_fenced(self) -> Result<(LockGuard, Vec<Fence>), LockError> {
        let given = self.spec.keys().cloned().collect();
        fenced(acquire(self.spec, true, Errors::Carried).await?.into(), given)
    }

    /// [`acquire_fenced`](Lock::acquire_fenced) for code that is not async.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let accounts = Lock::many(["account:7", "account:3"]).manager(&locks);
    /// let (guard, fences) = accounts.acquire_fenced_blocking()?;
    /// assert_eq!(fences.len(), 2);
    /// # guard.release_blocking() }
    /// ```
    ///
    /// # Errors
    /// As [`acquire_fenced`](Lock::acquire_fenced) and
    /// [`acquire_blocking`](Lock::acquire_blocking).
    pub fn acquire_fenced_blocking(self) -> Result<(LockGuard, Vec<Fence>), LockError> {
        let given = self.spec.keys().cloned().collect();
        fenced(acquire_blocking(self.spec, true, Errors::Carried)?.into(), given)
    }
}

fn fenced(guard: LockGuard, keys: Vec<LockKey>) -> Result<(LockGuard, Vec<Fence>), LockError> {
    let prefix = &guard.lock.held.manager.defaults.prefix;
    let fence_of = |key: LockKey| {
        let key = key.under(prefix)?;
        guard.fence_of(&key).ok_or(LockError::NoFence { key })
    };
    let fences = keys.into_iter().map(fence_of).collect::<Result<_, _>>()?;
    Ok((guard, fences))
}
