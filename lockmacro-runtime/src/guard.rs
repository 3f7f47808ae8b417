//! A lock that is held.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::acquire::Acquired;
use crate::engine::held::Held;
use crate::engine::reentry::Scope;
use crate::protocol::answer::Released;
use crate::value::error::LockError;
use crate::value::fence::Fence;
use crate::value::key::LockKey;
use crate::value::limits::check_ttl;
use crate::value::loss::{LossCause, Lost, OnLost};
use crate::value::unavailability::Unavailability;

/// A lock that is held, until it is released, dropped, or lost.
///
/// Dropping a guard anywhere, even while its runtime shuts down, has the lock released in the
/// background within milliseconds. [`release`](LockGuard::release) waits until that is done.
///
/// A guard that [joined](LockGuard::is_joined) an outer one, or comes from
/// [`current`](LockGuard::current) or [`share`](LockGuard::share), looks at the same lock and does
/// not release it.
///
/// ```
/// # use std::time::Duration;
/// # use lockmacro_runtime::{Lock, LockManager, LockError};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockManager::memory();
/// let guard = Lock::new("order:42").ttl(Duration::from_secs(30)).manager(&locks).acquire().await?;
/// assert!(guard.is_held() && guard.remaining() > Duration::from_secs(29));
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the lock is given back as soon as its guard is dropped"]
pub struct LockGuard {
    held: Arc<Held>,
    /// Which of its keys this guard is about; `None` for all of several.
    nth: Option<u8>,
    on_lost: OnLost,
    joined: bool,
}

impl From<Acquired> for LockGuard {
    fn from(Acquired { held, nth, on_lost, joined }: Acquired) -> Self {
        Self { held, nth, on_lost, joined }
    }
}

impl LockGuard {
    /// The guard of the innermost lock that the running code is under, lost or not.
    ///
    /// `None` outside of a body, and in what a body spawned: see [`scope`](LockGuard::scope).
    pub fn current() -> Option<Self> {
        let held = Scope::innermost()?;
        Some(Self { nth: held.only(), held, on_lost: OnLost::default(), joined: true })
    }

    /// The guard of the lock on `key` that the running code is under and that is held now: for a
    /// function that is only right under a lock, to check that it is. The manager may be any.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockGuard, LockManager, LockError};
    /// fn book_stock(id: u64) {
    ///     assert!(LockGuard::of(format!("stock:{id}")).is_some());
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::memory();
    /// Lock::new("stock:7").manager(&locks).run(async {
    ///     book_stock(7);
    ///     Ok(())
    /// }).await
    /// # }
    /// ```
    pub fn of(key: impl Into<LockKey>) -> Option<Self> {
        let key = key.into();
        let held = Scope::find(|held| held.nth_named(&key).is_some() && held.remaining().is_ok())?;
        Some(Self { nth: held.nth_named(&key), held, on_lost: OnLost::default(), joined: true })
    }

    /// Another guard of the same lock, which does not release it.
    pub fn share(&self) -> Self {
        Self { held: Arc::clone(&self.held), joined: true, ..*self }
    }

    /// Whether this guard looks at a lock that another guard releases.
    pub fn is_joined(&self) -> bool {
        self.joined
    }

    /// The key that is held; the first one of several.
    pub fn key(&self) -> &LockKey {
        let request = self.held.request();
        self.nth.and_then(|nth| request.keys().get(usize::from(nth))).unwrap_or(&request.key)
    }

    /// Every key of the lock, in the order of their bytes.
    pub fn keys(&self) -> &[LockKey] {
        self.held.request().keys()
    }

    /// The fence of this grant, where one was asked for: see
    /// [`Lock::acquire_fenced`](crate::Lock::acquire_fenced). Several keys have one each, and only
    /// [`fence_of`](LockGuard::fence_of) tells which is whose.
    pub fn fence(&self) -> Option<Fence> {
        self.held.fence(self.nth?)
    }

    /// The fence of one of the lock's keys, where fences were asked for.
    pub fn fence_of(&self, key: impl Into<LockKey>) -> Option<Fence> {
        self.held.fence(self.held.nth_named(&key.into())?)
    }

    /// How long the lock may still be relied on; zero once it is lost or given back.
    ///
    /// It is counted from before the lock was asked for, less 1 % of the ttl and 2 ms, so that it
    /// ends before the server can grant the lock to somebody else. A renewal lifts it again.
    pub fn remaining(&self) -> Duration {
        self.held.remaining().unwrap_or_default()
    }

    /// Whether the lock may be relied on now.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Waits until the lock is lost, or given back by the guard that owns it, for a `select!` beside
    /// work that an await does not stop. Without a tokio runtime around it only a loss that the
    /// server tells of wakes it: ask [`is_held`](LockGuard::is_held) there.
    ///
    /// # Cancellation
    /// Nothing is lost by dropping the future.
    pub async fn lost(&self) -> Lost {
        self.held.lost().await
    }

    /// Fails once the lock is lost, or given back by the guard that owns it: for a long computation
    /// to ask before each step that counts.
    ///
    /// # Errors
    /// [`LockError::Lost`].
    pub fn check(&self) -> Result<(), LockError> {
        self.held.remaining()?;
        Ok(())
    }

    /// Runs `work` as code that is under this lock, in a task that the body spawned: there the same
    /// lock can be entered again, and [`current`](LockGuard::current) finds it. It neither keeps the
    /// lock nor is stopped with it, so wait for the task inside the body.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockGuard, LockManager, LockError};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::memory();
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
        let (level, mut work) = (self.level(), pin!(work));
        let inside = poll_fn(|cx| level.enter(|| work.as_mut().poll(cx)));
        self.held.current().unless_here().around(inside).await
    }

    /// Asks the server to hold the lock for at least `ttl` from now on, or up to the end that
    /// [`max_hold`](crate::Lock::max_hold) set. What is left of the lease is never shortened, and a
    /// lock that is lost is never taken again.
    ///
    /// # Errors
    /// [`LockError::Lost`]; [`LockError::InvalidTtl`]; [`LockError::NoRuntime`]; or what is wrong
    /// with the server, and then the lease is as long as it was.
    ///
    /// # Cancellation
    /// Dropping the future leaves open whether the server was asked; the guard believes in the
    /// shorter lease.
    pub async fn extend(&self, ttl: Duration) -> Result<(), LockError> {
        self.held.extend(check_ttl(ttl)?).await
    }

    /// Releases the lock, and waits for the server to confirm it. A joined guard does nothing here.
    ///
    /// # Errors
    /// [`LockError::Lost`] when the lock was not held any more. Any other error tells that the
    /// release could not be confirmed; unless it is done already, it is tried on in the background
    /// until the lease is over.
    ///
    /// # Cancellation
    /// Dropping the future has the release finished in the background.
    pub async fn release(self) -> Result<(), LockError> {
        if self.joined {
            return Ok(());
        }
        let lost = self.held.remaining().err();
        let found = self.held.release().await?;
        self.confirm(found, lost)
    }

    /// [`release`](LockGuard::release) for code that is not async. It blocks for a round trip to
    /// the server.
    ///
    /// # Errors
    /// As [`release`](LockGuard::release).
    pub fn release_blocking(self) -> Result<(), LockError> {
        if self.joined {
            return Ok(());
        }
        let lost = self.held.remaining().err();
        let found = self.held.release_blocking()?;
        self.confirm(found, lost)
    }

    /// The same guard with another policy.
    pub(crate) fn with(mut self, on_lost: OnLost) -> Self {
        self.on_lost = on_lost;
        self
    }

    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    pub(crate) fn on_lost(&self) -> OnLost {
        self.on_lost
    }

    /// This lock, inside of those that the running code is under.
    pub(crate) fn level(&self) -> Scope {
        Scope::inside(Arc::clone(&self.held))
    }

    fn confirm(&self, found: Released, lost: Option<Lost>) -> Result<(), LockError> {
        match (lost, found) {
            (Some(lost), _) => Err(lost.into()),
            (None, Released::Held) => Ok(()),
            (None, Released::NotHeld) => {
                Err(Lost::new(self.held.request().listed(), LossCause::Taken).into())
            }
            (None, Released::Unconfirmed) => Err(LockError::Unavailable {
                reason: Unavailability::Disconnected,
                detail: "the release went out, and its answer was lost".to_owned(),
            }),
        }
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if !self.joined {
            // Others may still look at the lock; giving it back does not wait for them.
            self.held.abandon();
        }
    }
}
