//! What to lock, and how.

use std::borrow::Cow;
use std::pin::pin;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};

use crate::LockManager;
use crate::backend::Claim;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::hold::{Hold, Refusal};
use crate::key::LockKey;
use crate::lease::{TTL_DEFAULT, check_ttl};
use crate::manager::inside_runtime;
use crate::outcome::{Failure, LockOutcome, SkipOutcome};
use crate::token::{Token, label};

/// A lock to be had: what `#[distributed_lock]` expands to, and what to use where an attribute
/// does not fit.
///
/// Every attempt asks once. When somebody else holds the lock, the answer is
/// [`LockError::Busy`], at once.
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
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is run or acquired"]
pub struct Lock {
    key: LockKey,
    ttl: Duration,
    name: Cow<'static, str>,
    message: Option<String>,
    manager: Option<LockManager>,
}

impl Lock {
    /// A lock on `key`, with a ttl of 30 s and the installed manager.
    pub fn new(key: impl Into<LockKey>) -> Self {
        Self {
            key: key.into(),
            ttl: TTL_DEFAULT,
            name: Cow::Borrowed(""),
            message: None,
            manager: None,
        }
    }

    /// How long the lock may be held, 50 ms to 24 h in whole milliseconds. After that the server
    /// frees it, whatever became of its holder. Anything else gives [`LockError::InvalidTtl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// The name that others see in [`LockError::Busy`] and in the key's value, behind the manager's
    /// label. The attribute gives the function's name.
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.name = name.into();
        self
    }

    /// The text of [`LockError::Busy`], for the person who asked.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// The manager to ask, instead of the installed one.
    pub fn manager(mut self, manager: &LockManager) -> Self {
        self.manager = Some(manager.clone());
        self
    }

    /// Runs `body` under the lock: acquires it, runs the body as [`LockGuard::run`] does, and gives
    /// the lock back. Without the lock the body is not polled once.
    ///
    /// # Errors
    /// In the body's return type: those of [`acquire`](Lock::acquire), and [`LockError::Lost`].
    ///
    /// # Cancellation
    /// Dropping the future at any point drops the body and leaves no lock behind.
    pub async fn run<F>(self, body: F) -> F::Output
    where
        F: Future,
        F::Output: LockOutcome,
    {
        let body = pin!(Some(body));
        match self.acquire().await {
            Ok(guard) => guard.attend(body, Failure::reported()).await,
            Err(error) => LockOutcome::from_lock_error(error),
        }
    }

    /// [`run`](Lock::run), but when somebody else holds the lock the body is left out and the
    /// return type's "nothing" is given: `()`, `None`, `Ok(())` or `Ok(None)`.
    pub async fn run_or_skip<F>(self, body: F) -> F::Output
    where
        F: Future,
        F::Output: SkipOutcome,
    {
        let body = pin!(Some(body));
        match self.acquire().await {
            Ok(guard) => guard.attend(body, Failure::skippable()).await,
            Err(busy) if busy.is_busy() => SkipOutcome::skipped(busy),
            Err(error) => SkipOutcome::from_lock_error(error),
        }
    }

    /// [`run`](Lock::run) for a body that is not async, as
    /// [`LockGuard::run_blocking`] does it.
    pub fn run_blocking<R: LockOutcome>(self, body: impl FnOnce() -> R) -> R {
        match self.acquire_blocking() {
            Ok(guard) => guard.attend_blocking(body, Failure::reported()),
            Err(error) => R::from_lock_error(error),
        }
    }

    /// [`run_or_skip`](Lock::run_or_skip) for a body that is not async.
    pub fn run_blocking_or_skip<R: SkipOutcome>(self, body: impl FnOnce() -> R) -> R {
        match self.acquire_blocking() {
            Ok(guard) => guard.attend_blocking(body, Failure::skippable()),
            Err(busy) if busy.is_busy() => R::skipped(busy),
            Err(error) => R::from_lock_error(error),
        }
    }

    /// Acquires the lock, or says at once why not.
    ///
    /// A server in trouble is asked again for as long as the manager's timeout allows, always with
    /// the same token, so that a lost reply neither locks the caller out nor counts twice.
    ///
    /// # Errors
    /// [`LockError::Busy`] when somebody else holds it, and every other [`LockError`] but `Lost`.
    ///
    /// # Cancellation
    /// Dropping the future at any point leaves no lock behind: if the server was asked already, the
    /// lock is released in the background.
    pub async fn acquire(self) -> Result<LockGuard, LockError> {
        let (manager, claim, busy) = self.prepare()?;
        inside_runtime()?;
        Hold::acquire(manager, claim)
            .await
            .map(LockGuard::new)
            .map_err(|refusal| busy.tell(refusal))
    }

    /// [`acquire`](Lock::acquire) for code that is not async. It blocks the thread for a round trip
    /// to the server, which a background thread does.
    ///
    /// # Errors
    /// As [`acquire`](Lock::acquire), and [`LockError::BlockingInAsync`] wherever the current tokio
    /// runtime is a current-thread one, its `spawn_blocking` threads included.
    pub fn acquire_blocking(self) -> Result<LockGuard, LockError> {
        let (manager, claim, busy) = self.prepare()?;
        let current = Handle::try_current().map(|runtime| runtime.runtime_flavor());
        if matches!(current, Ok(RuntimeFlavor::CurrentThread)) {
            return Err(LockError::BlockingInAsync);
        }
        Hold::acquire_blocking(manager, claim)
            .map(LockGuard::new)
            .map_err(|refusal| busy.tell(refusal))
    }

    /// Checks everything that can be checked without a server.
    fn prepare(self) -> Result<(LockManager, Claim, BusyMessage), LockError> {
        self.key.check()?;
        let ttl = check_ttl(self.ttl)?;
        let manager = self.manager.map_or_else(LockManager::installed, Ok)?;
        let token = Token::new(&label(manager.label(), &self.name))?;
        let busy = BusyMessage { key: self.key.clone(), message: self.message };
        Ok((manager, Claim { key: self.key, token, ttl }, busy))
    }
}

struct BusyMessage {
    key: LockKey,
    message: Option<String>,
}

impl BusyMessage {
    fn tell(self, refusal: Refusal) -> LockError {
        let Self { key, message } = self;
        match refusal {
            Refusal::Busy { owner, left: retry_after } => {
                LockError::Busy { key, owner, retry_after, message }
            }
            Refusal::Failed(error) => error,
        }
    }
}
