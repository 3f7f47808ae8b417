//! The inspector of a manager's locks, and the release of a lock by force.

use std::any::Any;
use std::sync::Arc;

use crate::engine::core::Core;
use crate::inspect::found::{HeldLock, InspectedServer, Listing, QueuedWaiter};
use crate::inspect::inspection::Inspection;
#[cfg(feature = "postgres")]
use crate::inspect::postgres;
#[cfg(feature = "redis")]
use crate::inspect::redis;
use crate::manager::lock_manager::LockManager;
use crate::protocol::answer::Released;
use crate::protocol::ask::Ask;
use crate::protocol::request::Request;
#[cfg(feature = "postgres")]
use crate::store::postgres::store::Postgres;
#[cfg(feature = "redis")]
use crate::store::redis::store::Redis;
use crate::sys::time::Moment;
use crate::value::error::LockError;
use crate::value::holder::Holder;
use crate::value::key::LockKey;
use crate::value::limits::TTL_MIN;

/// Inspection of locks, with the feature `inspect`.
impl LockManager {
    /// Returns what looks at the locks of this manager's store, those of every process.
    ///
    /// ```no_run
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # async fn inspect(locks: LockManager) -> Result<(), LockError> {
    /// let inspector = locks.inspector();
    /// for lock in inspector.locks("order:*", 100).await?.items {
    ///     let waiters = inspector.waiters(&lock.key, 100).await?.items;
    ///     println!("{} is held by {}, and {} wait", lock.key, lock.holder, waiters.len());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn inspector(&self) -> Inspector {
        Inspector { core: Arc::clone(self.core()) }
    }

    /// Releases a lock in place of its holder, and hands it off to the first waiter. Returns
    /// whether that holder still had the lock.
    ///
    /// It does not stop the holder's body. The holder learns of the loss at its next renewal, or,
    /// without renewal, at its release. Make sure first that the holder is dead, or does no harm.
    ///
    /// A shared lock is taken away from all of its holders, also from those that have come since
    /// `lock` was read.
    ///
    /// ```no_run
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # async fn inspect(locks: LockManager) -> Result<(), LockError> {
    /// if let Some(lock) = locks.inspector().lock("order:42").await? {
    ///     assert!(locks.force_release(&lock).await?, "its holder has released it meanwhile");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Inspector`], and [`LockError::KeyNotALock`] for a value that this crate did not
    /// write.
    ///
    /// # Cancellation
    /// Dropping the future leaves open whether the lock was released.
    pub async fn force_release(&self, lock: &HeldLock) -> Result<bool, LockError> {
        self.inspector().inspection()?;
        let HeldLock { key, token, .. } = lock;
        let Some(token) = token else { return Err(LockError::KeyNotALock { key: key.clone() }) };
        // Nothing is granted here: the ttl is never sent.
        let ask = Ask::new(key.clone(), TTL_MIN, Moment::now());
        let request = Request::new(ask, token.clone());
        // A release without an answer found the lock held.
        Ok(self.core().store.release(&request).await? != Released::NotHeld)
    }
}

/// Looks at locks from outside: see [`LockManager::inspector`].
///
/// # Errors
/// Each of its methods fails with
///
/// - [`LockError::InvalidSetting`] for locks in memory, and for a whole Redlock;
/// - [`LockError::AccessDenied`] where the user lacks `+scan`, `+getrange` or one of the keys;
/// - the failure of the server.
///
/// # Cancellation
/// Each of their futures can be dropped at any time.
#[derive(Debug, Clone)]
pub struct Inspector {
    core: Arc<Core>,
}

impl Inspector {
    /// Returns the locks whose keys match a glob pattern of Redis (`order:*`), at most `limit` of
    /// them. On Redis it visits all keys of the server with SCAN.
    ///
    /// ```no_run
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # async fn inspect(locks: LockManager) -> Result<(), LockError> {
    /// for lock in locks.inspector().locks("order:*", 100).await?.items {
    ///     println!("{} is held by {}", lock.key, lock.holder);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn locks(&self, pattern: &str, limit: usize) -> Result<Listing<HeldLock>, LockError> {
        self.inspection()?.held(pattern, false, limit).await
    }

    /// Returns the same locks, and all other strings whose keys match. Strings that this crate did
    /// not write may be no locks.
    pub async fn all(&self, pattern: &str, limit: usize) -> Result<Listing<HeldLock>, LockError> {
        self.inspection()?.held(pattern, true, limit).await
    }

    /// Returns the lock on a key; `None` when the key is free.
    ///
    /// ```no_run
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # async fn inspect(locks: LockManager) -> Result<(), LockError> {
    /// if let Some(lock) = locks.inspector().lock("order:42").await? {
    ///     println!("held by {} for {:?}", lock.holder, lock.holder.free_within);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Also [`LockError::InvalidKey`], and [`LockError::KeyNotALock`] for another type of value.
    pub async fn lock(&self, key: impl Into<LockKey>) -> Result<Option<HeldLock>, LockError> {
        let key = key.into();
        key.check()?;
        self.inspection()?.holder(&key).await
    }

    /// Returns the holders of a key: at most `limit`, and at most 1,000. Shared callers of one
    /// manager that asked together are one. What a [`min_hold`](crate::Lock::min_hold) keeps
    /// [is told apart](Holder::is_kept).
    ///
    /// ```no_run
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # async fn inspect(locks: LockManager) -> Result<(), LockError> {
    /// for holder in locks.inspector().holders("gpu", 100).await?.items {
    ///     println!("{holder}, since {:?}, one of {:?}", holder.asked, holder.permits);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Also [`LockError::InvalidKey`], and [`LockError::KeyNotALock`] for another type of value.
    pub async fn holders(
        &self,
        key: impl Into<LockKey>,
        limit: usize,
    ) -> Result<Listing<Holder>, LockError> {
        let key = key.into();
        key.check()?;
        self.inspection()?.holders(&key, limit).await
    }

    /// Returns the waiters of a key, the next one first: at most `limit`, and at most 1,000.
    ///
    /// ```no_run
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # async fn inspect(locks: LockManager) -> Result<(), LockError> {
    /// let waiting = locks.inspector().waiters("order:42", 100).await?.items;
    /// println!("{} processes wait", waiting.len());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Also [`LockError::InvalidKey`], and [`LockError::KeyNotALock`] when the key of the queue has
    /// another type of value.
    pub async fn waiters(
        &self,
        key: impl Into<LockKey>,
        limit: usize,
    ) -> Result<Listing<QueuedWaiter>, LockError> {
        let key = key.into();
        key.check()?;
        self.inspection()?.queue(&key, limit).await
    }

    /// Returns which open or prepared transaction has [checked](crate::LockGuard::fence_check) the
    /// last fence of a key, as text: on PostgreSQL nobody else is granted the lock until it has
    /// ended. `None` when there is no such transaction, and on Redis, which does not know of any.
    ///
    /// ```no_run
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # async fn inspect(locks: LockManager) -> Result<(), LockError> {
    /// if let Some(transaction) = locks.inspector().checked_by("order:42").await? {
    ///     println!("not granted before the end of {transaction}");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Also [`LockError::InvalidKey`].
    pub async fn checked_by(&self, key: impl Into<LockKey>) -> Result<Option<String>, LockError> {
        let key = key.into();
        key.check()?;
        self.inspection()?.checked_by(&key).await
    }

    /// Asks the servers about themselves: every primary of a cluster, every node of a Redlock. It
    /// takes a second, in which it watches their clocks. `lockmacro doctor` says what it means.
    ///
    /// The rights of a user of some keys only are checked on `key`, which is not written.
    ///
    /// A manager that cannot connect can be made with
    /// [`lazy`](crate::LockManagerBuilder::lazy). The result is empty for locks in memory. The
    /// error of a server is in the place of its facts.
    ///
    /// ```no_run
    /// # use lockmacro_runtime::{LockError, LockManager};
    /// # async fn inspect() -> Result<(), LockError> {
    /// let locks = LockManager::builder().lazy().connect("redis://localhost").await?;
    /// for server in locks.inspector().servers(None).await? {
    ///     match server.facts {
    ///         Ok(facts) => println!("{} is {:?} away", server.server, facts.round_trip),
    ///         Err(error) => println!("{error}"),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`LockError::InvalidKey`] and nothing else.
    ///
    /// # Cancellation
    /// The future can be dropped at any time.
    pub async fn servers(&self, key: Option<&LockKey>) -> Result<Vec<InspectedServer>, LockError> {
        key.map_or(Ok(()), LockKey::check)?;
        #[cfg(feature = "redis")]
        if let Some(redis) = self.store().downcast_ref() {
            return Ok(redis::facts::of_all(redis, key, true).await);
        }
        #[cfg(feature = "redis")]
        if let Some(redlock) = self.store().downcast_ref() {
            return Ok(redis::facts::of_nodes(redlock, key).await);
        }
        #[cfg(feature = "postgres")]
        if let Some(postgres) = self.store().downcast_ref() {
            return Ok(vec![postgres::facts::of(postgres).await]);
        }
        Ok(Vec::new())
    }

    /// The store, of which only some kinds can be inspected.
    pub(crate) fn store(&self) -> &dyn Any {
        &*self.core.store.backend
    }

    /// The error for a store that shows no locks.
    pub(crate) fn uninspectable(&self) -> LockError {
        let refusal =
            self.core.store.backend.refusal("inspect", "lists no locks: ask the store itself");
        let others =
            || LockError::invalid_url("only the locks of one server or cluster can be inspected");
        refusal.unwrap_or_else(others)
    }

    /// The locks as the store shows them, where that is possible.
    fn inspection(&self) -> Result<&dyn Inspection, LockError> {
        #[cfg(feature = "redis")]
        if let Some(redis) = self.store().downcast_ref::<Redis>() {
            return Ok(redis);
        }
        #[cfg(feature = "postgres")]
        if let Some(postgres) = self.store().downcast_ref::<Postgres>() {
            return Ok(postgres);
        }
        Err(self.uninspectable())
    }
}
