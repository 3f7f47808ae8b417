//! What to lock, and how.

use futures_util::TryFutureExt as _;

use crate::engine::spec::LockSpec;
use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::acquire::{acquire, acquire_blocking};
use crate::engine::unreported::Errors;
use crate::guard::LockGuard;
use crate::manager::lock_manager::LockManager;
use crate::value::error::LockError;
use crate::value::fence::Fence;
use crate::value::key::LockKey;
use crate::value::loss::OnLost;

/// A lock to be had: what `#[distributed_lock]` expands to, and what to use where an attribute
/// does not fit.
///
/// Without [`wait`](Lock::wait) it asks once: when somebody else holds the lock, the answer is
/// [`LockError::Busy`], at once. A manager can have [another
/// default](crate::LockManagerBuilder::default_wait).
///
/// ```
/// # use std::time::Duration;
/// # use lockmacro_runtime::{Lock, LockManager, LockError};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::memory();
/// let audited = Lock::new("order:42")
///     .ttl(Duration::from_secs(300))
///     .manager(&locks)
///     .run(async { Ok::<_, LockError>("audited") })
///     .await?;
/// assert_eq!(audited, "audited");
/// # Ok(()) }
/// ```
///
/// `F` is what [`acquire_fenced`](Lock::acquire_fenced) gives: the fence, or those of
/// [several keys](Lock::many).
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is run or acquired"]
pub struct Lock<F = Fence> {
    /// Boxed, so that settings move a pointer and a waiter carries no more.
    pub(crate) spec: Box<LockSpec>,
    fences: PhantomData<fn() -> F>,
}

impl Lock {
    /// A lock on `key` from the installed manager. Its lease is 30 s, or the manager's
    /// [`default_ttl`](crate::LockManagerBuilder::default_ttl), and is renewed while it is held.
    pub fn new(key: impl Into<LockKey>) -> Self {
        Self::on(key.into(), Box::default())
    }

    /// [`acquire`](Lock::acquire) with a [`Fence`] for the resource behind the lock.
    ///
    /// # Errors
    /// As [`acquire`](Lock::acquire), and [`LockError::NoFence`] when it would join a lock that was
    /// acquired without one.
    ///
    /// # Cancellation
    /// As [`acquire`](Lock::acquire).
    pub async fn acquire_fenced(self) -> Result<(LockGuard, Fence), LockError> {
        fenced(acquire(self.spec, true, Errors::Carried).await?.into())
    }

    /// [`acquire_fenced`](Lock::acquire_fenced) for code that is not async.
    ///
    /// # Errors
    /// As [`acquire_fenced`](Lock::acquire_fenced) and
    /// [`acquire_blocking`](Lock::acquire_blocking).
    pub fn acquire_fenced_blocking(self) -> Result<(LockGuard, Fence), LockError> {
        fenced(acquire_blocking(self.spec, true, Errors::Carried)?.into())
    }
}

impl<F> Lock<F> {
    pub(crate) fn on(key: LockKey, more: Box<[LockKey]>) -> Self {
        Self { spec: LockSpec::new(key, more), fences: PhantomData }
    }

    /// How long the lock may be held and no longer, 50 ms to 24 h in whole milliseconds; with
    /// [`renew`](Lock::renew), how long after its holder's death the server frees it. Anything else
    /// gives [`LockError::InvalidTtl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.spec.ttl = Some(ttl);
        self.spec.renewed.get_or_insert(false);
        self
    }

    /// Has the lease renewed while the lock is held, from a third of the ttl on. That is so by
    /// itself where no ttl is given.
    ///
    /// A ttl of ten round trips to the server is enough in a steady network; 200 ms and twelve
    /// round trips survive a lost connection as well. Below four a WARN is logged, once.
    pub fn renew(mut self) -> Self {
        self.spec.renewed = Some(true);
        self
    }

    /// The end of renewal: the lock is lost that long after its grant, so that a body that hangs
    /// does not hold it for ever. Says nothing to a lock that is not renewed, which ends with
    /// its ttl.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.spec.max_hold = Some(max_hold);
        self
    }

    /// How long the key stays at least: when the body is done earlier, nobody else gets the lock
    /// until then. At most the ttl. For a job that every machine starts at about the same time, and
    /// that one of them is to run.
    pub fn min_hold(mut self, min_hold: Duration) -> Self {
        self.spec.min_hold = min_hold;
        self
    }

    /// What becomes of the body when the lock is lost; [`OnLost::Cancel`] if nothing is said.
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.spec.on_lost = on_lost;
        self
    }

    /// How long to wait in line when somebody else holds the lock; without it as long as the
    /// manager's [`default_wait`](crate::LockManagerBuilder::default_wait) says, which is not at
    /// all unless it was set. With `Duration::ZERO` the lock is asked for once, and the answer is
    /// [`LockError::Busy`], at once. Waiters get the lock in the order of asking, each directly by
    /// the release of the holder before it. When the time is over the answer is
    /// [`LockError::TimedOut`], and [`LockError::QueueFull`] when 10,000 wait already. Dropping the
    /// future leaves the line.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.spec.wait = Some(wait);
        self
    }

    /// [`wait`](Lock::wait) without an end, also while the server cannot be asked.
    pub fn wait_forever(self) -> Self {
        self.wait(Duration::MAX)
    }

    /// The name that others see in [`LockError::Busy`] and in the key's value, behind the manager's
    /// label. The attribute gives the function's name.
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.spec.name = name.into();
        self
    }

    /// The text of [`LockError::Busy`] and [`LockError::TimedOut`], for the person who asked. Their
    /// `Display` adds who holds the lock; [`LockError::message`] is the text alone.
    pub fn message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.spec.message = Some(message.into());
        self
    }

    /// Leaves a note for those who find the lock busy, such as the name of the person who holds it:
    /// they get it from [`LockError::holder_note`], and the tool `lockmacro` shows it.
    ///
    /// It stands in the key's value, where everybody who may read the key can read it. At most 64
    /// bytes, a longer one is cut between two characters; control characters become blanks. No
    /// metric and no log line of the holder has it.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::memory();
    /// let lock = Lock::new("order:42").manager(&locks);
    /// let guard = lock.clone().holder_note("Ann, desk 3").acquire().await?;
    /// let busy = lock.acquire().await.expect_err("it is held");
    /// assert_eq!(busy.holder_note(), Some("Ann, desk 3"));
    /// # guard.release().await }
    /// ```
    pub fn holder_note(mut self, note: impl Into<String>) -> Self {
        self.spec.holder_note = Some(note.into());
        self
    }

    /// The manager to ask, instead of the installed one.
    pub fn manager(mut self, manager: &LockManager) -> Self {
        self.spec.manager = Some(Arc::clone(manager.core()));
        self
    }

    /// Acquires the lock, or says why not: at once, or when the [`wait`](Lock::wait) has run out.
    ///
    /// A server in trouble is asked again for as long as the manager's timeout or the wait allows,
    /// always with the same token, so that a lost reply neither locks the caller out nor counts twice. Inside
    /// of a body under the same key and manager the guard joins the outer lock, without traffic;
    /// the settings are those of the outer one.
    ///
    /// # Errors
    /// [`LockError::Busy`] when somebody else holds it, [`LockError::TimedOut`] when somebody still
    /// did when the wait was over, [`LockError::QueueFull`] when too many wait,
    /// [`LockError::Lost`] when it would join a lock that is lost, and every other [`LockError`].
    ///
    /// # Cancellation
    /// Dropping the future at any point leaves no lock behind: if the server was asked already, the
    /// lock is released in the background.
    ///
    /// # Panics
    /// Tokio panics when its runtime was built without `enable_time` and `enable_io`.
    pub fn acquire(self) -> impl Future<Output = Result<LockGuard, LockError>> {
        acquire(self.spec, false, Errors::Carried).map_ok(LockGuard::from)
    }

    /// [`acquire`](Lock::acquire) for code that is not async. It blocks the thread for a round trip
    /// to the server, which a background thread does; for up to the [`wait`](Lock::wait) when the
    /// lock is busy, and for up to the manager's timeout when the server is in trouble.
    ///
    /// In a task of tokio's multi-thread runtime the other tasks go on meanwhile, as by
    /// `block_in_place`. Not so what shares the task (`join!`, `select!`), nor the tasks of the same
    /// `LocalSet`: who waits there for a lock that one of these holds waits in vain, and for ever if
    /// it is told to.
    ///
    /// # Errors
    /// As [`acquire`](Lock::acquire), and [`LockError::BlockingInAsync`] on the thread of a
    /// current-thread runtime. On its `spawn_blocking` threads it works.
    pub fn acquire_blocking(self) -> Result<LockGuard, LockError> {
        acquire_blocking(self.spec, false, Errors::Carried).map(LockGuard::from)
    }
}

fn fenced(guard: LockGuard) -> Result<(LockGuard, Fence), LockError> {
    match guard.fence() {
        Some(fence) => Ok((guard, fence)),
        None => Err(LockError::NoFence { key: guard.key().clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 120 bytes on a 64-bit machine when this was written. With more than 152 a task of tokio, which
    /// is a multiple of 128 bytes, takes 128 more.
    #[test]
    fn who_runs_a_lock_carries_little() {
        let body = async { Ok::<_, LockError>(()) };
        let run = size_of_val(&Lock::new("order:42").run(body));
        assert!(run <= 152, "{run}");
    }
}
