//! Inspection of locks from outside: which locks are held, by whom and for how much longer, and who
//! waits for them. [`LockManager::inspector`] is where to start, and
//! [`LockManager::force_release`] frees a lock by force. The tool `lockmacro`
//! (package `lockmacro-cli`) does the same from a terminal.
//!
//! Keys and patterns are those on the server: they begin with the manager's prefix if it has one.
//! The key of a guard or an error is such a whole key.
//!
//! Inspection works on one Redis server or cluster, such as one node of a Redlock, and on a
//! PostgreSQL database. Its answers are already old when they arrive, so do not decide by them
//! whether to use what a lock protects.
//!
//! ```no_run
//! use lockmacro_runtime::{LockError, LockManager};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), LockError> {
//!     let locks = LockManager::connect("redis://localhost").await?;
//!     for lock in locks.inspector().locks("order:*", 100).await?.items {
//!         println!("{}: {}, for {:?}", lock.key, lock.holder, lock.holder.free_within);
//!     }
//!     Ok(())
//! }
//! ```

use std::sync::Arc;

use crate::engine::core::Core;
#[cfg(feature = "postgres")]
use crate::engine::core::inside_runtime;
#[cfg(feature = "postgres")]
use crate::manager::builder::LockManagerBuilder;
use crate::manager::lock_manager::LockManager;
use crate::protocol::answer::Released;
use crate::protocol::request::Request;
use crate::store::inspection::Inspection;
#[cfg(feature = "postgres")]
use crate::store::postgres::{
    client::url::{Database, check_schema},
    schema::{VERSION, install},
    store::{CONNECT_WITHIN, Postgres},
};
#[cfg(feature = "redis")]
pub use crate::store::redis::acl::{Use, rights};
use crate::sys::time::Moment;
use crate::value::error::LockError;
use crate::value::holder::Holder;
pub use crate::value::inspection::{
    HeldLock, InspectedServer, Listing, QueuedWaiter, SKIPPED_MAX, ServerFacts, Skipped,
};
use crate::value::key::LockKey;
use crate::value::limits::TTL_MIN;
#[cfg(feature = "postgres")]
use crate::value::url::Url;

/// Returns the SQL that makes the schema of the locks in a PostgreSQL database, with the feature
/// `postgres`: for a migration. `lockmacro postgres print` prints the same.
///
/// ```
/// use lockmacro_runtime::inspect::schema;
///
/// assert!(schema("lm1")?.contains("CREATE SCHEMA lm1;"));
/// # Ok::<(), lockmacro_runtime::LockError>(())
/// ```
///
/// # Errors
/// [`LockError::InvalidSetting`] for a name that a URL could not have as its `schema`.
#[cfg(feature = "postgres")]
pub fn schema(name: &str) -> Result<String, LockError> {
    check_schema(name).map(|()| install(name))
}

/// What [`install_schema`] has found and made.
#[cfg(feature = "postgres")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InstalledSchema {
    /// The name of the schema.
    pub name: String,
    /// Its version before; `None` when there was none.
    pub before: Option<i32>,
    /// Its version now.
    pub version: i32,
}

/// Makes the schema of the locks in the PostgreSQL database of a URL, or brings it to the version
/// of this crate, with the feature `postgres`. While a transaction of others uses a table that has
/// to be changed, this tries again for a minute, and stops the calls of locks for 200 ms each time.
///
/// # Errors
/// - [`LockError::InvalidSetting`] for `schema` when it has other things in it, or when it or a
///   part of it belongs to another user than it must;
/// - [`LockError::Unavailable`], which names a transaction that still uses a table;
/// - those of [`LockManager::connect`], and [`LockError::NoRuntime`] outside of tokio.
#[cfg(feature = "postgres")]
pub async fn install_schema(url: &str) -> Result<InstalledSchema, LockError> {
    inside_runtime()?;
    let mut url = Url::parse(url)?;
    // Those of managers do not matter here.
    LockManagerBuilder::new().take_from(&mut url)?;
    let server = Database::of(&url, CONNECT_WITHIN).unwrap_or_else(|| {
        let why = "only a PostgreSQL database has a schema: `postgres://user@host/db`";
        Err(LockError::invalid_url(why))
    })?;
    let name = server.schema.clone();
    let before = Postgres::new(server, CONNECT_WITHIN).install_schema().await?;
    Ok(InstalledSchema { name, before, version: before.unwrap_or_default().max(VERSION) })
}

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
        let request = Request::new(key.clone(), token.clone(), TTL_MIN, Moment::now());
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

    /// Returns the names of the functions that have jobs in the locks' own store, at most `limit`.
    #[cfg(feature = "defer")]
    pub async fn job_functions(&self, limit: usize) -> Result<Listing<String>, LockError> {
        self.inspection()?.functions(limit).await
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
        Ok(self.core.store.backend.servers(key).await)
    }

    fn inspection(&self) -> Result<&dyn Inspection, LockError> {
        let backend = &self.core.store.backend;
        backend.inspection().ok_or_else(|| backend.uninspectable())
    }
}
