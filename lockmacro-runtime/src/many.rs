//! A lock on several keys.

use crate::engine::acquire::{acquire, acquire_blocking};
use crate::engine::unreported::Errors;
use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::value::error::LockError;
use crate::value::fence::Fence;
use crate::value::key::LockKey;

impl Lock<Vec<Fence>> {
    /// A lock on all of `keys`, or on none of them: for work that touches several things at once.
    ///
    /// In any order, 1 to 128 of them; what is given twice counts once. No keys at all are
    /// [`LockError::InvalidKey`], because a body under them would run beside every other one: who
    /// has nothing to lock needs no lock. What is said of a lock holds for all its keys together:
    /// they are renewed, extended and given back together, and the lock is lost with any of them.
    /// [`LockError::Busy`] and [`LockError::TimedOut`] name the key that somebody else holds.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Fence, Lock, LockManager, LockError};
    /// # async fn book(_: u64, _: i64, _: Fence) -> Result<(), LockError> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::memory();
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
    /// When all keys are free they are taken at once. Whoever has to [`wait`](Lock::wait) takes them
    /// in the order of their bytes, and waits for each in its own line while holding those before
    /// it. So two callers that name the same keys in opposite orders never wait for each other, and
    /// nobody is overtaken for ever. The price is that keys may be busy without a body under them:
    /// if their waiter dies, for 5 s at most. That is so for the keys of one lock. For a lock inside
    /// of another one's body it is for you to keep to one order.
    ///
    /// # Inside of a body
    /// A lock on keys that one lock around the call has, all of them, joins that one. When only some
    /// are held, or by several locks, it is [`LockError::PartlyHeld`].
    ///
    /// # Cancellation
    /// Dropping any of its futures at any point leaves none of the keys behind.
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
        let given = self.spec.keys();
        fenced(acquire(self.spec, true, Errors::Carried).await?.into(), given)
    }

    /// [`acquire_fenced`](Lock::acquire_fenced) for code that is not async.
    ///
    /// # Errors
    /// As [`acquire_fenced`](Lock::acquire_fenced) and
    /// [`acquire_blocking`](Lock::acquire_blocking).
    pub fn acquire_fenced_blocking(self) -> Result<(LockGuard, Vec<Fence>), LockError> {
        let given = self.spec.keys();
        fenced(acquire_blocking(self.spec, true, Errors::Carried)?.into(), given)
    }
}

fn fenced(guard: LockGuard, keys: Vec<LockKey>) -> Result<(LockGuard, Vec<Fence>), LockError> {
    let prefix = guard.held().manager().defaults().prefix();
    let fence_of = |key: LockKey| {
        let key = key.under(prefix)?;
        guard.fence_of(&key).ok_or(LockError::NoFence { key })
    };
    let fences = keys.into_iter().map(fence_of).collect::<Result<_, _>>()?;
    Ok((guard, fences))
}
