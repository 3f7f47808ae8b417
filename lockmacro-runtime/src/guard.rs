//! The guard of a held lock. Long, because its items have examples.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::acquire::outcome::Acquired;
use crate::engine::acquire::reentry::Scope;
use crate::engine::lease::held::Held;
use crate::engine::{current, telemetry};
use crate::manager::lock_manager::LockManager;
use crate::protocol::answer::Released;
use crate::value::defaults::check_ttl;
use crate::value::error::{LockError, UnavailableReason};
use crate::value::fence::{Fence, FenceCheck};
use crate::value::key::LockKey;
use crate::value::loss::{LossCause, Lost, OnLost};

/// The guard of a held lock, until the lock is released or lost.
///
/// Dropping a guard anywhere, even while its runtime shuts down, releases the lock in the
/// background within milliseconds. [`release`](LockGuard::release) waits for the release.
///
/// A guard that [joined](LockGuard::is_joined) an outer one, or comes from
/// [`current`](LockGuard::current) or [`handle`](LockGuard::handle), refers to the same lock and
/// does not release it.
///
/// ```
/// # use std::time::Duration;
/// # use lockmacro_runtime::{Lock, LockManager, LockError};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockManager::isolated_memory();
/// let guard = Lock::new("order:42").ttl(Duration::from_secs(30)).manager(&locks).acquire().await?;
/// assert!(guard.is_held() && guard.remaining() > Duration::from_secs(29));
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct LockGuard {
    pub(crate) lock: Acquired,
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.lock.held.request.ask.keys();
        f.debug_struct("LockGuard").field("keys", &keys).finish_non_exhaustive()
    }
}

impl From<Acquired> for LockGuard {
    fn from(lock: Acquired) -> Self {
        Self { lock }
    }
}

impl LockManager {
    /// Returns a guard of the lock on `key` around the running code, if this manager's lock is held
    /// now. The key is named without the manager's prefix.
    ///
    /// A function that is only correct under a lock can check for the lock with it.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockManager, LockError};
    /// fn book_stock(locks: &LockManager, id: u64) {
    ///     assert!(locks.guard_of(format!("stock:{id}")).is_some());
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// Lock::new("stock:7").manager(&locks).run(async {
    ///     book_stock(&locks, 7);
    ///     Ok(())
    /// }).await
    /// # }
    /// ```
    pub fn guard_of(&self, key: impl Into<LockKey>) -> Option<LockGuard> {
        let key = key.into();
        let is_ours = |held: &Held| Arc::ptr_eq(&held.manager, self.core());
        let held = Scope::find(|held| {
            is_ours(held) && held.nth_named(&key).is_some() && held.check_lease().is_ok()
        })?;
        Some(Acquired::joining(held.nth_named(&key), held, OnLost::default()).into())
    }
}

impl LockGuard {
    /// Returns a guard of the innermost lock around the running code, lost or not.
    ///
    /// `None` outside of a body, and in a task that a body spawned: see
    /// [`scope`](LockGuard::scope).
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// assert!(LockGuard::current().is_none());
    /// Lock::new("order:42").manager(&locks).run(async {
    ///     let lock = LockGuard::current();
    ///     assert!(lock.is_some_and(|lock| lock.key().as_str() == "order:42"));
    ///     Ok(())
    /// }).await
    /// # }
    /// ```
    pub fn current() -> Option<Self> {
        let held = Scope::innermost()?;
        Some(Acquired::joining(held.only(), held, OnLost::default()).into())
    }

    /// Returns another guard of the same lock, which does not release it.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let guard = Lock::new("order:42").manager(&locks).acquire().await?;
    /// let shared = guard.handle();
    /// drop(shared);
    /// assert!(guard.is_held());
    /// # Ok(()) }
    /// ```
    pub fn handle(&self) -> LockGuard {
        Acquired { held: Arc::clone(&self.lock.held), joined: true, ..self.lock }.into()
    }

    /// Returns whether another guard releases the lock of this guard.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let guard = Lock::new("order:42").manager(&locks).acquire().await?;
    /// assert!(!guard.is_joined() && guard.handle().is_joined());
    /// # Ok(()) }
    /// ```
    pub fn is_joined(&self) -> bool {
        self.lock.joined
    }

    /// Returns the key that is held; the first one of several.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let guard = Lock::new("order:42").manager(&locks).acquire().await?;
    /// assert_eq!(guard.key().as_str(), "order:42");
    /// # Ok(()) }
    /// ```
    pub fn key(&self) -> &LockKey {
        let request = &self.lock.held.request;
        self.lock
            .nth
            .and_then(|nth| request.ask.keys().get(usize::from(nth)))
            .unwrap_or(&request.ask.key)
    }

    /// Returns every key of the lock, in the order of their bytes.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let guard = Lock::many(["b", "a"]).manager(&locks).acquire().await?;
    /// assert_eq!(guard.keys().iter().map(|key| key.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    /// # Ok(()) }
    /// ```
    pub fn keys(&self) -> &[LockKey] {
        self.lock.held.request.ask.keys()
    }

    /// Returns the fence of this grant, if the lock is [`fenced`](crate::Lock::fenced). A lock on
    /// several keys has one fence for each, which [`fence_of`](LockGuard::fence_of) returns.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let stock = Lock::new("stock:7").manager(&locks);
    /// let guard = stock.clone().fenced().acquire().await?;
    /// let first = guard.fence().expect("it is fenced");
    /// guard.release().await?;
    /// assert!(stock.clone().fenced().acquire().await?.fence() > Some(first));
    /// assert_eq!(stock.acquire().await?.fence(), None);
    /// # Ok(()) }
    /// ```
    pub fn fence(&self) -> Option<Fence> {
        self.lock.held.fence(self.lock.nth?)
    }

    /// Returns the fence of one of the lock's keys, if the lock is
    /// [`fenced`](crate::Lock::fenced). The key is named without the manager's prefix.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let both = Lock::many(["account:7", "account:3"]).fenced().manager(&locks);
    /// let guard = both.acquire().await?;
    /// assert!(guard.fence_of("account:7").is_some() && guard.fence_of("account:9").is_none());
    /// # Ok(()) }
    /// ```
    pub fn fence_of(&self, key: impl Into<LockKey>) -> Option<Fence> {
        self.lock.held.fence(self.lock.held.nth_named(&key.into())?)
    }

    /// Returns the check of the lock's fence, for the first statement of a transaction in the
    /// PostgreSQL database that has the lock. It is usable after the lock is lost, too, because the
    /// database decides.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let guard = Lock::new("stock:7").fenced().manager(&locks).acquire().await?;
    /// match guard.fence_check() {
    ///     Ok(check) => println!("{} with {} and {}", check.sql(), check.key(), check.fence()),
    ///     Err(error) => println!("these locks are in memory: {error}"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`LockError::InvalidSetting`] of
    ///
    /// - `keys`: the lock has several, of which each has a check of its own; see
    ///   [`fence_checks`](LockGuard::fence_checks);
    /// - `shared` or `permits`: of the holders that share a lock, only the last would be let
    ///   through;
    /// - `fence`: the lock is not [`fenced`](crate::Lock::fenced);
    /// - `fence_check`: the store is not PostgreSQL.
    ///
    /// [`LockError::Lost`] once the guard that owns the lock has released it.
    pub fn fence_check(&self) -> Result<FenceCheck, LockError> {
        let Some(nth) = self.lock.nth else {
            let detail = "the lock has several, with a fence for each: call `fence_checks`";
            return Err(LockError::invalid("keys", detail));
        };
        self.lock.held.fence_check(nth)
    }

    /// Returns the check of each key's fence, in the order of [`keys`](LockGuard::keys). Begin the
    /// transaction with all of them.
    ///
    /// ```no_run
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::connect("postgres://app@localhost/shop").await?;
    /// let both = Lock::many(["account:7", "account:3"]).fenced().manager(&locks);
    /// let guard = both.acquire().await?;
    /// for check in guard.fence_checks()? {
    ///     println!("{} with {} and {}", check.sql(), check.key(), check.fence());
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`fence_check`](LockGuard::fence_check), if one of the keys has no check. In the
    /// body, [`LockManager::guard_of`](crate::LockManager::guard_of) returns a guard of one key alone.
    pub fn fence_checks(&self) -> Result<Vec<FenceCheck>, LockError> {
        (0..).take(self.keys().len()).map(|nth| self.lock.held.fence_check(nth)).collect()
    }

    /// Returns how long the lock may still be relied on; zero once it is lost or released.
    ///
    /// The time counts from before the request was sent, less 1 % of the ttl and 2 ms, so it ends
    /// before the server can grant the lock to somebody else. A renewal raises it again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let order = Lock::new("order:42").ttl(Duration::from_secs(30)).manager(&locks);
    /// let guard = order.acquire().await?;
    /// assert!(guard.remaining() < Duration::from_secs(30));
    /// # Ok(()) }
    /// ```
    pub fn remaining(&self) -> Duration {
        self.lock.held.check_lease().unwrap_or_default()
    }

    /// Returns whether the lock may be relied on now.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let guard = Lock::new("order:42").manager(&locks).acquire().await?;
    /// let shared = guard.handle();
    /// assert!(shared.is_held());
    /// guard.release().await?;
    /// assert!(!shared.is_held());
    /// # Ok(()) }
    /// ```
    #[must_use = "a lock that is not held stops nothing by itself"]
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Waits until the lock is lost, or released by the guard that owns it, for a `select!` beside
    /// the work.
    ///
    /// Outside of a tokio runtime there is no timer: only a loss that the server reports wakes the
    /// future there. Call [`is_held`](LockGuard::is_held) instead.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let order = Lock::new("order:42").ttl(Duration::from_millis(50)).manager(&locks);
    /// let guard = order.acquire().await?;
    /// tokio::select! {
    ///     lost = guard.lost() => println!("stop: {lost}"),
    ///     () = tokio::time::sleep(Duration::from_secs(60)) => println!("the work is done"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancellation
    /// Nothing is lost by dropping the future.
    pub async fn lost(&self) -> Lost {
        self.lock.held.lost().await
    }

    /// Fails once the lock is lost, or released by the guard that owns it. A long computation calls
    /// it before each step that needs the lock.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let guard = Lock::new("ledger:7").manager(&locks).acquire().await?;
    /// for step in 0..3 {
    ///     guard.check()?; // still ours
    ///     println!("step {step}");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`LockError::Lost`].
    pub fn check(&self) -> Result<(), LockError> {
        self.lock.held.check_lease()?;
        Ok(())
    }

    /// Runs `work` as code under this lock, for a task that the body spawned. Inside of `work` the
    /// same lock can be acquired again, and [`current`](LockGuard::current) finds it.
    ///
    /// `work` neither keeps the lock nor is stopped when the lock is lost, so await the task inside
    /// of the body.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockGuard, LockManager, LockError};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// Lock::new("stock:7").manager(&locks).run(async {
    ///     let lock = LockGuard::current();
    ///     let task = tokio::spawn(async move {
    ///         assert!(LockGuard::current().is_none());
    ///         match lock {
    ///             Some(lock) => lock.scope(async { LockGuard::current().is_some() }).await,
    ///             None => false,
    ///         }
    ///     });
    ///     assert_eq!(task.await.ok(), Some(true));
    ///     Ok(())
    /// }).await
    /// # }
    /// ```
    pub async fn scope<F: Future>(&self, work: F) -> F::Output {
        let level = Scope::inside(Arc::clone(&self.lock.held));
        let mut work = pin!(work);
        let inside = poll_fn(|cx| level.enter(|| work.as_mut().poll(cx)));
        let scope = current::here().or_else(|| self.lock.held.scope.clone());
        current::around(scope, inside).await
    }

    /// Extends the lease to at least `ttl` from now, but not beyond
    /// [`max_hold`](crate::Lock::max_hold). It never shortens the lease, and never acquires a lost
    /// lock again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let upload = Lock::new("upload:7").ttl(Duration::from_secs(1)).manager(&locks);
    /// let guard = upload.acquire().await?;
    /// guard.extend(Duration::from_secs(60)).await?;
    /// assert!(guard.remaining() > Duration::from_secs(55));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`LockError::Lost`]; [`LockError::InvalidSetting`]; [`LockError::NoRuntime`]; or the failure
    /// of the server, and then the lease is as long as before.
    ///
    /// # Cancellation
    /// Dropping the future leaves open whether the request was sent. The guard counts on the
    /// shorter lease.
    pub async fn extend(&self, ttl: Duration) -> Result<(), LockError> {
        self.lock.held.extend(check_ttl(ttl)?).await
    }

    /// Releases the lock, and waits for the server's answer. A joined guard does nothing.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let guard = Lock::new("order:42").manager(&locks).acquire().await?;
    /// guard.release().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LockError::Lost`] when the lock was not held any more. Any other error means that the
    /// release was not answered; it is then repeated in the background until the lease is over.
    ///
    /// # Cancellation
    /// Dropping the future finishes the release in the background.
    pub async fn release(self) -> Result<(), LockError> {
        if self.lock.joined {
            return Ok(());
        }
        let lost = self.lock.held.check_lease().err();
        let found = self.lock.held.release().await?;
        self.confirm(found, lost)
    }

    /// Releases the lock as [`release`](LockGuard::release) does, in code that is not async. It
    /// blocks the thread for a round trip to the server.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let guard = Lock::new("order:42").manager(&locks).acquire_blocking()?;
    /// guard.release_blocking()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`release`](LockGuard::release).
    pub fn release_blocking(self) -> Result<(), LockError> {
        if self.lock.joined {
            return Ok(());
        }
        let lost = self.lock.held.check_lease().err();
        let found = self.lock.held.release_blocking()?;
        self.confirm(found, lost)
    }

    fn confirm(&self, found: Released, lost: Option<Lost>) -> Result<(), LockError> {
        match (lost, found) {
            (Some(lost), _) => Err(lost.into()),
            (None, Released::Held) => Ok(()),
            (None, Released::NotHeld) => {
                telemetry::released_late(&self.lock.held.request.ask);
                Err(Lost::of(self.lock.held.request.ask.listed(), LossCause::Taken).into())
            }
            (None, Released::Unconfirmed) => Err(LockError::unavailable_at(
                self.lock.held.manager.store.backend.address(&self.lock.held.request),
                UnavailableReason::Disconnected,
                "no answer to the release: the key ends with its ttl at the latest",
            )),
        }
    }
}
